//! A connection lent to one exchange: sending the request, waiting for its answer, giving the connection back.

use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Instant;

use http::{Request, Response};
use http_body::Body;
use hyper::body::Incoming;

use super::deadline::Deadline;
use super::http1::{Http1, Upgraded};
use super::http2::Http2;
use super::pool::Pool;

/// A connection lent to one exchange. Dropped before [`Lease::finish`], it takes an HTTP/1.1 connection down with
/// it and resets an HTTP/2 stream: the server learns that nobody listens.
#[derive(Debug)]
pub struct Lease<B: Body + 'static> {
    pub(super) pool: Rc<Pool<B>>,
    /// Index of the server.
    pub server: usize,
    /// How long it took to come free, nanoseconds. 0: nothing was waited for.
    pub wait_ns: u64,
    /// How long it took to open, nanoseconds. 0: it was open already.
    pub connect_ns: u64,
    pub(super) connection: Option<Connection<B>>,
}

#[derive(Debug)]
pub(super) enum Connection<B: Body + 'static> {
    Http1(Box<Http1<B>>),
    Http2(Rc<Http2<B>>, Deadline),
}

/// Why no head of an answer came.
#[derive(Debug)]
pub enum SendError<B> {
    /// The exchange broke.
    Broken {
        /// What hyper says.
        error: hyper::Error,
        /// The request, if not a byte of it was sent.
        unsent: Option<Box<Request<B>>>,
    },
    /// The deadline passed.
    Timeout,
    /// So many bytes came and no head of an answer was whole among them, interim ones aside.
    TooLong,
}

impl<B> Lease<B>
where
    B: Body + Unpin + 'static,
    B::Data: Send,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    /// Sends the request and waits for the head of its answer, until `until`; the body is still to come then.
    pub fn send(&mut self, request: Request<B>, until: Instant) -> Sending<'_, B> {
        // Boxed: hyper's future holds the request for as long as it might give it back, and would make every future
        // around this one as much larger.
        let connection = self.connection.as_mut().expect("a lease holds its connection until it is finished");
        let answer: Pin<Box<Answer<B>>> = match connection {
            Connection::Http1(connection) => {
                connection.begin();
                Box::pin(connection.sender.try_send_request(request))
            }
            Connection::Http2(connection, _) => Box::pin(connection.sender.clone().try_send_request(request)),
        };
        connection.deadline().set(until);
        Sending { answer, connection }
    }

    /// Asks for more of the answer's body. Over HTTP/1.1 that drives the connection it comes on.
    pub fn poll_answer<T>(
        &mut self,
        cx: &mut Context<'_>,
        mut poll: impl FnMut(&mut Context<'_>) -> Poll<T>,
    ) -> Poll<T> {
        match self.connection.as_mut() {
            Some(Connection::Http1(connection)) => connection.poll_driven(cx, poll),
            _ => poll(cx),
        }
    }

    /// The deadline that travels with the connection.
    pub fn deadline(&mut self) -> &mut Deadline {
        self.connection.as_mut().expect("a lease holds its connection until it is finished").deadline()
    }

    /// `host:port` of the server.
    pub fn authority(&self) -> &str {
        &self.pool.upstream.servers[self.server].authority
    }

    /// Gives the connection back: the exchange is over to the last byte.
    pub fn finish(mut self, now: Instant) {
        let Some(Connection::Http1(mut connection)) = self.connection.take_http1() else { return };
        if !connection.is_reusable(now) {
            return;
        }
        connection.idle_since = now;
        self.pool.take_back(self.server, connection);
    }

    /// The stream under an HTTP/1.1 connection whose protocol the server has switched.
    pub fn into_upgraded(mut self) -> Option<Upgraded> {
        match self.connection.take_http1() {
            Some(Connection::Http1(connection)) => connection.into_upgraded(),
            _ => None,
        }
    }
}

impl<B: Body + 'static> Connection<B> {
    fn deadline(&mut self) -> &mut Deadline {
        match self {
            Connection::Http1(connection) => &mut connection.deadline,
            Connection::Http2(_, deadline) => deadline,
        }
    }
}

/// The head of an answer to come, or the deadline.
pub struct Sending<'a, B: Body + 'static> {
    answer: Pin<Box<Answer<B>>>,
    connection: &'a mut Connection<B>,
}

type Answer<B> =
    dyn Future<Output = Result<Response<Incoming>, hyper::client::conn::TrySendError<Request<B>>>>;

impl<B> Future for Sending<'_, B>
where
    B: Body + 'static,
    B::Data: Send,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    type Output = Result<Response<Incoming>, SendError<B>>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Sending { answer, connection } = self.get_mut();
        let polled = match connection {
            Connection::Http1(connection) => connection.poll_driven(cx, |cx| answer.as_mut().poll(cx)),
            Connection::Http2(..) => answer.as_mut().poll(cx),
        };
        if let Poll::Ready(sent) = polled {
            return Poll::Ready(sent.map_err(|mut failed| {
                let unsent = failed.take_message().map(Box::new);
                SendError::Broken { error: failed.into_error(), unsent }
            }));
        }
        if let Connection::Http1(connection) = connection
            && connection.is_flooded()
        {
            return Poll::Ready(Err(SendError::TooLong));
        }
        connection.deadline().poll(cx).map(|()| Err(SendError::Timeout))
    }
}

/// Takes an HTTP/1.1 connection out of its lease and leaves an HTTP/2 one, which the lease's drop accounts for.
trait TakeHttp1<B: Body + 'static> {
    fn take_http1(&mut self) -> Option<Connection<B>>;
}

impl<B: Body + 'static> TakeHttp1<B> for Option<Connection<B>> {
    fn take_http1(&mut self) -> Option<Connection<B>> {
        if matches!(self, Some(Connection::Http1(_))) { self.take() } else { None }
    }
}

impl<B: Body + 'static> Drop for Lease<B> {
    fn drop(&mut self) {
        if let Some(Connection::Http2(connection, _)) = &self.connection {
            connection.leave();
        }
        self.pool.exchange_over(self.server);
    }
}
