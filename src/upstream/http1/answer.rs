//! The head of an answer: its fields, and how its end is told (RFC 9112 section 6.3). It does no I/O.

use std::mem::MaybeUninit;

use bytes::Bytes;
use http::header::{CONNECTION, CONTENT_LENGTH, TRANSFER_ENCODING};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};

use super::super::Error;
use super::chunks::Chunks;
use super::length;

/// What an answer begins with.
#[derive(Debug)]
pub(super) struct Head {
    pub status: StatusCode,
    pub headers: HeaderMap,
    /// Whether the connection may be used again, as far as the server is asked.
    pub keeps: bool,
    is_http_10: bool,
}

/// How far a body goes.
#[derive(Debug)]
pub(super) enum Framing {
    /// So many bytes are still to come.
    Length(u64),
    Chunked(Chunks),
    /// To the end of the connection; whether that has come.
    Close(bool),
}

impl Head {
    /// Reads a head, and how many bytes it takes; `None` where more have to come.
    pub(super) fn parse(read: &[u8]) -> Result<Option<(Head, usize)>, Error> {
        let mut fields = [const { MaybeUninit::uninit() }; FIELDS_MAX];
        let mut answer = httparse::Response::new(&mut []);
        let config = httparse::ParserConfig::default();
        let taken = match config.parse_response_with_uninit_headers(&mut answer, read, &mut fields) {
            Ok(httparse::Status::Complete(taken)) => taken,
            Ok(httparse::Status::Partial) => return Ok(None),
            Err(_) => return Err(Error::Malformed("its head is none")),
        };
        let status = answer.code.and_then(|code| StatusCode::from_u16(code).ok());
        let status = status.ok_or(Error::Malformed("its status is none"))?;
        let is_http_10 = answer.version == Some(0);
        let headers = copied(&read[..taken], answer.headers)?;
        let keeps = keeps(&headers, is_http_10);
        Ok(Some((Head { status, headers, keeps, is_http_10 }, taken)))
    }

    /// Whether the answer itself is still to come (RFC 9110 section 15.2).
    pub(super) fn is_interim(&self) -> bool {
        self.status.is_informational() && self.status != StatusCode::SWITCHING_PROTOCOLS
    }

    /// How far the body goes; `to_head` where the request was HEAD, which has none.
    pub(super) fn framing(&self, to_head: bool) -> Result<Framing, Error> {
        let is_empty = matches!(
            self.status,
            StatusCode::SWITCHING_PROTOCOLS | StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED
        );
        if is_empty || to_head {
            return Ok(Framing::Length(0));
        }
        if let Some(coding) = self.headers.get_all(TRANSFER_ENCODING).iter().next_back() {
            let last = coding.as_bytes().rsplit(|byte| *byte == b',').next().unwrap_or_default();
            return match last.trim_ascii().eq_ignore_ascii_case(b"chunked") {
                _ if self.is_http_10 => Err(Error::Malformed("a transfer coding, and HTTP/1.0")),
                true => Ok(Framing::Chunked(Chunks::default())),
                false => Ok(Framing::Close(false)),
            };
        }
        match length(&self.headers) {
            Some(length) => Ok(Framing::Length(length)),
            None if self.headers.contains_key(CONTENT_LENGTH) => {
                Err(Error::Malformed("Content-Length is not one number"))
            }
            None => Ok(Framing::Close(false)),
        }
    }
}

impl Framing {
    /// Whether the body is whole.
    pub(super) fn is_over(&self) -> bool {
        match self {
            Framing::Length(left) => *left == 0,
            Framing::Chunked(chunks) => chunks.is_over(),
            Framing::Close(is_closed) => *is_closed,
        }
    }
}

/// Whether the server keeps the connection open (RFC 9112 section 9.3): one `close` is final.
fn keeps(headers: &HeaderMap, is_http_10: bool) -> bool {
    let has = |token: &str| {
        let mut lines = headers.get_all(CONNECTION).iter();
        lines.any(|line| {
            line.as_bytes()
                .split(|byte| *byte == b',')
                .any(|part| part.trim_ascii().eq_ignore_ascii_case(token.as_bytes()))
        })
    };
    if headers.contains_key(CONNECTION) {
        !has("close") && (!is_http_10 || has("keep-alive"))
    } else {
        !is_http_10
    }
}

/// Fields of `text` as a map of their own: one copy of all the text, which the values share.
pub(super) fn copied(text: &[u8], fields: &[httparse::Header<'_>]) -> Result<HeaderMap, Error> {
    let bad = Error::Malformed("a field of it is none");
    let shared = Bytes::copy_from_slice(text);
    let mut headers = HeaderMap::with_capacity(fields.len() + FIELDS_ADDED);
    for field in fields {
        let name = HeaderName::from_bytes(field.name.as_bytes());
        let start = field.value.as_ptr() as usize - text.as_ptr() as usize;
        let value = HeaderValue::from_maybe_shared(shared.slice(start..start + field.value.len()));
        let (Ok(name), Ok(value)) = (name, value) else { return Err(bad) };
        headers.append(name, value);
    }
    Ok(headers)
}

/// Fields in the head of an answer.
pub(super) const FIELDS_MAX: usize = 200;
/// Room for what the gateway adds, so that the map need not grow for it.
const FIELDS_ADDED: usize = 6;

#[cfg(test)]
mod tests {
    use super::*;

    fn head(text: &str) -> Head {
        let (head, taken) = Head::parse(text.as_bytes()).expect("well formed").expect("whole");
        assert_eq!(taken, text.len());
        head
    }

    /// How far a body goes that follows these fields.
    fn framing(status: &str, fields: &str) -> String {
        match head(&format!("HTTP/1.1 {status}\r\n{fields}\r\n")).framing(false) {
            Ok(Framing::Length(length)) => length.to_string(),
            Ok(Framing::Chunked(_)) => "chunked".to_owned(),
            Ok(Framing::Close(false)) => "close".to_owned(),
            other => format!("{other:?}"),
        }
    }

    #[test]
    fn a_body_ends_where_its_head_says() {
        assert_eq!(framing("200 OK", "Content-Length: 7\r\n"), "7");
        assert_eq!(framing("200", "Content-Length: 7\r\ncontent-length: 7\r\n"), "7");
        assert_eq!(framing("200 OK", "transfer-encoding: gzip, Chunked\r\n"), "chunked");
        assert_eq!(framing("200 OK", "transfer-encoding: gzip\r\n"), "close");
        assert_eq!(framing("200 OK", ""), "close");
        for status in ["101 X", "204 No Content", "304 Not Modified"] {
            assert_eq!(framing(status, "content-length: 7\r\n"), "0", "{status}");
        }
        for length in ["", "+7", "7 7", "7,8", "0x7", "99999999999999999999"] {
            assert!(
                framing("200 OK", &format!("content-length: {length}\r\n")).contains("Malformed"),
                "{length}"
            );
        }
        assert!(head("HTTP/1.0 200 OK\r\ntransfer-encoding: chunked\r\n\r\n").framing(false).is_err());
        let to_head = head("HTTP/1.1 200 OK\r\ncontent-length: 7\r\n\r\n").framing(true);
        assert!(to_head.is_ok_and(|framing| framing.is_over()));
    }

    #[test]
    fn a_connection_is_kept_as_its_server_says() {
        for (begin, keeps) in [
            ("HTTP/1.1 200 OK\r\n", true),
            ("HTTP/1.1 200 OK\r\nconnection: x, Close\r\n", false),
            ("HTTP/1.1 200 OK\r\nconnection: close\r\nconnection: keep-alive\r\n", false),
            ("HTTP/1.0 200 OK\r\n", false),
            ("HTTP/1.0 200 OK\r\nconnection: Keep-Alive\r\n", true),
        ] {
            assert_eq!(head(&format!("{begin}\r\n")).keeps, keeps, "{begin:?}");
        }
    }

    #[test]
    fn fields_are_read_as_they_stand_and_half_a_head_is_none() {
        let text = "HTTP/1.1 200 OK\r\nServer: a b\r\nempty:\r\nX-Twice: 1\r\nx-twice: 2\r\n\r\n";
        let fields = head(text).headers;
        assert_eq!(
            (&fields["server"], &fields["empty"]),
            (&"a b".parse().expect("a value"), &"".parse().expect("one"))
        );
        assert_eq!(fields.get_all("x-twice").iter().collect::<Vec<_>>(), ["1", "2"]);
        for end in 0..text.len() {
            assert!(Head::parse(&text.as_bytes()[..end]).is_ok_and(|head| head.is_none()), "{end}");
        }
    }
}
