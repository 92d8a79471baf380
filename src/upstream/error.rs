//! Why an exchange with a server broke, in one type for both protocols. What is answered for it is not decided here.

use super::http1::fields::MalformedMessage;
use base::cause::Cause;

/// Why an exchange with a server broke.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The server's answer is not HTTP, or can be read in more ways than one.
    #[error("the response is malformed: {0}")]
    Malformed(&'static str),
    /// The same, and this says why.
    #[error("{}", .0.sentence())]
    Unreadable(Cause),
    /// The server closed the connection before its answer was whole.
    #[error("the server closed the connection before its response was complete")]
    Closed,
    /// The server ended a shared connection by a fault of TLS: over TLS 1.3 it refuses our certificate when our side
    /// of the handshake is done.
    #[error("TLS: {}", .0.sentence())]
    Tls(Cause),
    #[error("{0}")]
    Io(#[from] std::io::Error),
    /// The request's body broke off, or is not as long as its head says.
    #[error("the request's body broke off: {0}")]
    Request(Box<dyn std::error::Error + Send + Sync>),
    /// What hyper says of an HTTP/2 connection.
    #[error(transparent)]
    Http2(#[from] hyper::Error),
}

impl From<MalformedMessage> for Error {
    fn from(MalformedMessage(what): MalformedMessage) -> Error {
        Error::Malformed(what)
    }
}

impl Error {
    /// Whether the server answered with something that is not a valid answer.
    pub fn is_bad_answer(&self) -> bool {
        match self {
            Error::Malformed(_) | Error::Unreadable(_) => true,
            Error::Http2(error) => error.is_parse(),
            Error::Closed | Error::Tls(_) | Error::Io(_) | Error::Request(_) => false,
        }
    }

    /// The fault of TLS that it is, if it is one.
    pub fn tls_cause(&self) -> Option<Cause> {
        match self {
            Error::Tls(cause) => Some(*cause),
            Error::Io(error) => Cause::of_tls_behind(error),
            Error::Http2(error) => Cause::of_tls_behind(error),
            Error::Malformed(_) | Error::Unreadable(_) | Error::Closed | Error::Request(_) => None,
        }
    }
}

/// Why no head of an answer came.
#[derive(Debug)]
pub enum SendError<B> {
    Broken {
        error: Error,
        /// What of the request the server cannot have seen.
        unsent: UnsentRequest<B>,
    },
    Timeout,
    /// The request's body came too slowly, or yielded to other requests.
    Slow,
}

/// What of a request was not sent.
#[derive(Debug)]
pub enum UnsentRequest<B> {
    /// All of it: here is its body, where it has one.
    Request(Option<B>),
    /// Perhaps all was sent, but the server says that it has done nothing with it (RFC 9113 section 8.7). `is_graceful`:
    /// nor that anything is wrong.
    Unprocessed {
        /// It closes the connection in good order, or takes no more streams now.
        is_graceful: bool,
    },
    /// Nothing that is known, and the server has said nothing.
    Nothing,
    /// Nothing: a part of an answer has come, or an answer before it (RFC 9110 section 15.2).
    Answered,
}
