//! Writes a request: its head, then its body in chunks or with its length.
//!
//! A short request leaves in one write, head and body. No more of a body is taken than the server accepts.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use http::HeaderMap;
use http::header::CONTENT_LENGTH;
use http_body::{Body, Frame};
use tokio::io::{AsyncWrite, AsyncWriteExt};

use super::super::error::Error;
use super::super::request::{RequestHead, TRACEPARENT};
use super::fields::length;
use net::wire::http1::BodyEnd;

/// The part of a request that has not been written yet.
#[derive(Debug)]
pub(super) struct OutgoingRequest<B> {
    /// The head, and small pieces of the body, which are copied here.
    bytes: Vec<u8>,
    written: usize,
    /// A larger piece of the body, which follows `bytes` without being copied.
    piece: Bytes,
    /// The end of the chunk, which follows `piece`.
    tail: &'static [u8],
    body: Option<B>,
    /// How the body ends: the rest of the length in the head, or chunks.
    end: BodyEnd,
    /// Whether any byte was written or taken from the body.
    is_begun: bool,
    /// Whether everything written was flushed; it is kept, because TLS may hold back written bytes.
    is_flushed: bool,
}

impl<B> OutgoingRequest<B> {
    pub(super) fn new() -> OutgoingRequest<B> {
        OutgoingRequest {
            bytes: Vec::with_capacity(HEAD_BYTES),
            written: 0,
            piece: Bytes::new(),
            tail: b"",
            body: None,
            end: BodyEnd::Length(0),
            is_begun: false,
            is_flushed: true,
        }
    }

    /// Whether the whole request was written and flushed.
    pub(super) fn is_over(&self) -> bool {
        self.is_flushed && self.body.is_none()
    }

    /// Whether nothing of the request was written or taken, so that it may go to another server whatever its method is.
    pub(super) fn is_unsent(&self) -> bool {
        !self.is_begun
    }

    /// Takes the body out, with the frames that were not sent yet.
    pub(super) fn take_body(&mut self) -> Option<B> {
        self.body.take()
    }

    fn is_written(&self) -> bool {
        self.written == self.bytes.len() && self.piece.is_empty() && self.tail.is_empty()
    }

    /// Whether more may be gathered before the next write.
    fn has_room(&self) -> bool {
        self.bytes.len() < GATHERED_BYTES && self.piece.is_empty() && self.tail.is_empty()
    }

    fn poll_write(
        &mut self,
        stream: &mut (impl AsyncWrite + Unpin),
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        while !self.is_written() {
            let mut rest = &self.bytes[self.written..];
            let written = if self.piece.is_empty() && self.tail.is_empty() {
                ready!(Pin::new(&mut *stream).poll_write(cx, rest))?
            } else {
                let mut parts = (&mut rest).chain(&mut self.piece).chain(&mut self.tail);
                let before = parts.remaining();
                ready!(std::pin::pin!(stream.write_buf(&mut parts)).poll(cx))?;
                before - parts.remaining()
            };
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.is_begun = true;
            self.written = (self.written + written).min(self.bytes.len());
        }
        self.bytes.clear();
        self.written = 0;
        ready!(Pin::new(stream).poll_flush(cx))?;
        self.is_flushed = true;
        Poll::Ready(Ok(()))
    }
}

impl<B> OutgoingRequest<B>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    /// Starts the next request. Its head has no `Transfer-Encoding`; the field that its body needs is added here.
    pub(super) fn begin(&mut self, head: &RequestHead, body: B) {
        self.bytes.clear();
        (self.written, self.is_begun, self.is_flushed) = (0, false, false);
        push_line(&mut self.bytes, head);
        push_fields(&mut self.bytes, &head.headers);
        if let Some(traceparent) = &head.traceparent {
            push_field(&mut self.bytes, TRACEPARENT.as_str(), traceparent);
        }
        if !body.is_end_stream()
            && let Some(end) = self.end_of(head)
        {
            self.end = end;
            self.body = Some(body);
        }
        self.bytes.extend_from_slice(b"\r\n");
    }

    /// How the body will be framed; `None` if there is none to send.
    fn end_of(&mut self, head: &RequestHead) -> Option<BodyEnd> {
        match head.headers.get(CONTENT_LENGTH).and_then(|value| length(value.as_bytes())) {
            Some(0) => None,
            Some(length) => Some(BodyEnd::Length(length)),
            // A body is sent with any method (RFC 9112 section 6), because only the server knows whether it has a
            // meaning.
            None => {
                self.bytes.extend_from_slice(b"transfer-encoding: chunked\r\n");
                Some(BodyEnd::Chunked)
            }
        }
    }

    /// Writes as much as the server takes; ready when the whole request is written.
    pub(super) fn poll(
        &mut self,
        stream: &mut (impl AsyncWrite + Unpin),
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), Error>> {
        if self.is_over() {
            return Poll::Ready(Ok(()));
        }
        loop {
            self.is_flushed = false;
            let mut waits = false;
            while self.has_room()
                && !waits
                && let Some(body) = &mut self.body
            {
                let polled = Pin::new(body).poll_frame(cx);
                self.is_begun |= polled.is_ready();
                match polled {
                    Poll::Ready(Some(Ok(frame))) => self.push(frame)?,
                    Poll::Ready(Some(Err(error))) => return Poll::Ready(Err(Error::Request(error.into()))),
                    Poll::Ready(None) => self.end()?,
                    Poll::Pending => waits = true,
                }
            }
            ready!(self.poll_write(stream, cx))?;
            if self.body.is_none() {
                return Poll::Ready(Ok(()));
            }
            if waits {
                return Poll::Pending;
            }
        }
    }

    /// Adds a frame of the body. Trailers are dropped, because no `Trailer` field has announced them.
    fn push(&mut self, frame: Frame<Bytes>) -> Result<(), Error> {
        if let Ok(data) = frame.into_data()
            && !data.is_empty()
        {
            match &mut self.end {
                BodyEnd::Length(left) => {
                    *left = left.checked_sub(data.len() as u64).ok_or_else(wrong_length)?;
                    self.push_data(data, b"");
                }
                BodyEnd::Chunked => {
                    let size = format!("{:x}\r\n", data.len());
                    self.bytes.extend_from_slice(size.as_bytes());
                    self.push_data(data, b"\r\n");
                }
            }
        }
        if self.body.as_ref().is_some_and(Body::is_end_stream) { self.end() } else { Ok(()) }
    }

    fn push_data(&mut self, data: Bytes, tail: &'static [u8]) {
        if data.len() <= COPIED_BYTES {
            self.bytes.extend_from_slice(&data);
            self.bytes.extend_from_slice(tail);
        } else {
            (self.piece, self.tail) = (data, tail);
        }
    }

    fn end(&mut self) -> Result<(), Error> {
        self.body = None;
        match self.end {
            BodyEnd::Length(0) => {}
            BodyEnd::Length(_) => return Err(wrong_length()),
            // The last chunk is appended to the end of the one before, if that is still to be written.
            BodyEnd::Chunked if self.tail.is_empty() => self.bytes.extend_from_slice(LAST_CHUNK),
            BodyEnd::Chunked => self.tail = b"\r\n0\r\n\r\n",
        }
        Ok(())
    }
}

fn push_line(out: &mut Vec<u8>, head: &RequestHead) {
    out.extend_from_slice(head.method.as_str().as_bytes());
    out.push(b' ');
    out.extend_from_slice(head.target.as_str().as_bytes());
    out.extend_from_slice(b" HTTP/1.1\r\n");
}

fn push_fields(out: &mut Vec<u8>, headers: &HeaderMap) {
    for (name, value) in headers {
        push_field(out, name.as_str(), value.as_bytes());
    }
}

fn push_field(out: &mut Vec<u8>, name: &str, value: &[u8]) {
    out.reserve(name.len() + value.len() + 4);
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b": ");
    out.extend_from_slice(value);
    out.extend_from_slice(b"\r\n");
}

fn wrong_length() -> Error {
    Error::Request("it is not as long as its `Content-Length`".into())
}

const LAST_CHUNK: &[u8] = b"0\r\n\r\n";
/// Initial size of the buffer for heads, which the connection keeps.
const HEAD_BYTES: usize = 1024;
/// How much is gathered before it is written.
const GATHERED_BYTES: usize = 16 * 1024;
/// Pieces up to this size are copied, so that they leave in one write with the bytes before them.
const COPIED_BYTES: usize = 4 * 1024;

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::convert::Infallible;

    use http::Method;
    use http::header::HOST;

    use super::*;

    /// A body of these pieces that does not announce its length.
    struct Pieces(VecDeque<Bytes>);

    impl Body for Pieces {
        type Data = Bytes;
        type Error = Infallible;

        fn poll_frame(
            self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
            Poll::Ready(self.get_mut().0.pop_front().map(|piece| Ok(Frame::data(piece))))
        }

        fn is_end_stream(&self) -> bool {
            self.0.is_empty()
        }
    }

    /// The bytes sent for a request with this body.
    fn sent(
        method: &str,
        fields: &[(&'static str, &'static str)],
        pieces: &[&[u8]],
    ) -> Result<String, Error> {
        let fields = fields
            .iter()
            .map(|(name, value)| (name.parse().expect("a name"), value.parse().expect("a value")));
        let head = RequestHead {
            method: method.parse().expect("a method"),
            target: "/a?b".parse().expect("a target"),
            headers: fields.collect(),
            traceparent: None,
        };
        let (mut outgoing, mut out) = (OutgoingRequest::new(), Vec::new());
        outgoing.begin(&head, Pieces(pieces.iter().map(|piece| Bytes::copy_from_slice(piece)).collect()));
        assert!(outgoing.is_unsent() && !outgoing.is_over());
        let polled = outgoing.poll(&mut out, &mut Context::from_waker(std::task::Waker::noop()));
        let Poll::Ready(sent) = polled else { panic!("nothing of it waits") };
        sent.map(|()| {
            assert!(outgoing.is_over() && !outgoing.is_unsent());
            String::from_utf8(out).expect("text was sent")
        })
    }

    #[test]
    fn a_body_goes_at_its_length_or_in_chunks() {
        let sent = |method: &str, fields: &[(&'static str, &'static str)], pieces: &[&[u8]]| {
            sent(method, fields, pieces).expect("it is sent")
        };
        assert_eq!(sent("GET", &[("host", "a")], &[]), "GET /a?b HTTP/1.1\r\nhost: a\r\n\r\n");
        assert_eq!(
            sent("POST", &[("content-length", "4")], &[b"12", b"34"]),
            "POST /a?b HTTP/1.1\r\ncontent-length: 4\r\n\r\n1234"
        );
        let chunked = "POST /a?b HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n";
        assert_eq!(
            sent("POST", &[], &[b"0123456789ab", b"", b"c"]),
            format!("{chunked}c\r\n0123456789ab\r\n1\r\nc\r\n0\r\n\r\n")
        );
        let text = "x".repeat(COPIED_BYTES + 1);
        let large = text.as_bytes();
        assert_eq!(
            sent("POST", &[], &[large, b"y", large]),
            format!("{chunked}1001\r\n{text}\r\n1\r\ny\r\n1001\r\n{text}\r\n0\r\n\r\n")
        );
        assert_eq!(sent("GET", &[], &[b"1"]), chunked.replace("POST", "GET") + "1\r\n1\r\n0\r\n\r\n");
    }

    #[test]
    fn a_traceparent_that_is_not_among_the_fields_follows_them() {
        let headers = [(HOST, "a".parse().expect("a value"))].into_iter().collect();
        let target = "/".parse().expect("a target");
        let head = RequestHead { method: Method::GET, target, headers, traceparent: Some([b'0'; 55]) };
        let mut outgoing = OutgoingRequest::new();
        outgoing.begin(&head, Pieces(Vec::new().into()));
        let written = format!("GET / HTTP/1.1\r\nhost: a\r\ntraceparent: {}\r\n\r\n", "0".repeat(55));
        assert_eq!(String::from_utf8_lossy(&outgoing.bytes), written);
    }

    /// A server that has closed its connection.
    struct ClosedServer;

    impl AsyncWrite for ClosedServer {
        fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, _: &[u8]) -> Poll<io::Result<usize>> {
            Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()))
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    #[test]
    fn a_request_whose_body_was_begun_is_not_whole_any_more() {
        let fields = [(CONTENT_LENGTH, "2".parse().expect("a value"))];
        for (body, is_unsent) in [(&[][..], true), (&[&b"12"[..]], false), (&[b"1", b"2"], false)] {
            let mut outgoing = OutgoingRequest::new();
            let target = "/".parse().expect("a target");
            let headers = fields.clone().into_iter().collect();
            let head = RequestHead { method: Method::POST, target, headers, traceparent: None };
            outgoing.begin(&head, Pieces(body.iter().map(|piece| Bytes::copy_from_slice(piece)).collect()));
            assert!(outgoing.is_unsent());
            let polled = outgoing.poll(&mut ClosedServer, &mut Context::from_waker(std::task::Waker::noop()));
            assert!(matches!(polled, Poll::Ready(Err(Error::Io(_)))));
            assert_eq!(outgoing.is_unsent(), is_unsent, "{body:?}");
        }
    }

    #[test]
    fn a_body_of_another_length_than_its_head_says_is_not_sent_to_its_end() {
        for length in ["1", "3"] {
            assert!(matches!(sent("PUT", &[("content-length", length)], &[b"12"]), Err(Error::Request(_))));
        }
    }
}
