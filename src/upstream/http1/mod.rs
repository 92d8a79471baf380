//! HTTP/1.1 connections to upstreams, driven by the request that holds them.
//!
//! A connection has no task of its own: the request that holds it writes and reads it, so that no other task is woken.
//! It serves one request at a time, which is all a gateway needs. hyper's client is not used because it is driven by a
//! task of its own and pays for that with channels. The pool decides which connection a request gets and whether it is
//! kept afterwards.

mod answer;
mod chunks;
pub(super) mod fields;
mod outgoing;

use std::io;
use std::pin::pin;
use std::task::{Context, Poll, Waker, ready};
use std::time::{Duration, Instant};

use bytes::{Buf, Bytes, BytesMut};
use http::{HeaderMap, Method, StatusCode};
use http_body::{Body, Frame, SizeHint};
use hyper::ext::ReasonPhrase;
use tokio::io::AsyncReadExt;

use self::answer::AnswerBody;
use self::outgoing::OutgoingRequest;
use super::connect::ServerStream;
use super::deadline::{FAR, ReusableDeadline};
use super::error::{Error, SendError, UnsentRequest};
use super::open::OpenConnection;
use super::request::RequestHead;
use base::cause::Cause;

/// An HTTP/1.1 connection, held by at most one request.
#[derive(Debug)]
pub struct Http1<B> {
    stream: Box<dyn ServerStream>,
    /// Bytes that were read and not consumed yet.
    read: BytesMut,
    /// How much is read at once. It grows while reads fill it and shrinks when they do not.
    read_bytes: usize,
    /// Whether `read_bytes` has grown since the connection was last idle.
    is_grown: bool,
    outgoing: OutgoingRequest<B>,
    /// The error of a failed write, kept until it is reported, because the server may have answered before it closed.
    write_error: Option<io::Error>,
    to_head: bool,
    incoming: Incoming,
    /// Bytes of interim answers since the request was sent.
    interim_bytes: usize,
    /// How many bytes of an incomplete head were searched for its end, so that they are not searched again.
    scanned: usize,
    /// What the last answer calls its status, until it is taken; see [`Http1::take_phrase`].
    phrase: Option<Box<ReasonPhrase>>,
    /// Whether the server allows another request on the connection.
    keeps: bool,
    /// The timer of the connection's deadlines, reused by each request.
    pub(super) deadline: ReusableDeadline,
    pub(super) retires: Instant,
    pub(super) idle_since: Instant,
    /// How long the server lets the connection be idle, a little less.
    kept_for: Duration,
    open: OpenConnection,
}

/// The part of an answer that comes next.
#[derive(Debug)]
enum Incoming {
    Head,
    /// The rest of the body: none before the first request and after each answer.
    Body(AnswerBody),
    /// The server has switched to another protocol (101).
    Switched,
}

/// What is left of a connection whose protocol was switched: the stream, and bytes already read from it.
#[derive(derive_more::Debug)]
#[debug("Upgraded({} bytes read)", read.len())]
pub struct UpgradedStream {
    /// The stream, which now carries the other protocol.
    pub stream: Box<dyn ServerStream>,
    /// Bytes of the other protocol that were read together with the answer's head.
    pub read: Bytes,
    /// Counts the connection among those to its server.
    pub open: OpenConnection,
}

impl<B> Http1<B> {
    /// A connection over a stream that was just opened.
    pub(super) fn new(
        stream: Box<dyn ServerStream>,
        deadline: ReusableDeadline,
        retires: Instant,
        now: Instant,
        open: OpenConnection,
    ) -> Http1<B> {
        Http1 {
            stream,
            read: BytesMut::new(),
            read_bytes: READ_BYTES,
            is_grown: false,
            outgoing: OutgoingRequest::new(),
            write_error: None,
            to_head: false,
            incoming: Incoming::Body(AnswerBody::Length(0)),
            interim_bytes: 0,
            scanned: 0,
            phrase: None,
            keeps: true,
            deadline,
            retires,
            idle_since: now,
            kept_for: FAR,
            open,
        }
    }

    /// Whether the last answer is complete and the server has neither closed the connection nor sent anything since.
    pub(super) fn is_idle(&mut self) -> bool {
        if !self.is_free() {
            return false;
        }
        match self.poll_read(&mut Context::from_waker(Waker::noop())) {
            Poll::Pending => true,
            Poll::Ready(read) => {
                self.write_error = self.write_error.take().or(read.err());
                false
            }
        }
    }

    /// The error if [`Http1::is_idle`] is false: why no request can be sent.
    pub(super) fn ended(&mut self) -> Error {
        self.write_error.take().map_or(Error::Closed, Error::Io)
    }

    /// Whether another request may follow. If an answer came before its request was sent completely, the connection
    /// cannot be used again.
    pub(super) fn is_reusable(&self, now: Instant) -> bool {
        self.is_usable(now) && self.is_free()
    }

    /// Whether it is not too old and its server still has the same address.
    pub(super) fn is_usable(&self, now: Instant) -> bool {
        now < self.retires && self.open.is_current()
    }

    /// Whether its server, by what it said last, does not close it yet.
    pub(super) fn is_still_kept(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.idle_since) < self.kept_for
    }

    /// Prepares the connection for being idle: a buffer that has grown for a long answer is freed.
    pub(super) fn rest(&mut self, now: Instant) {
        self.idle_since = now;
        if std::mem::take(&mut self.is_grown) {
            (self.read, self.read_bytes) = (BytesMut::new(), READ_BYTES);
        }
    }

    fn is_free(&self) -> bool {
        self.keeps && self.is_answered() && self.read.is_empty() && self.outgoing.is_over()
    }

    pub(super) fn is_answered(&self) -> bool {
        matches!(&self.incoming, Incoming::Body(framing) if framing.is_over())
    }

    pub(super) fn size_hint(&self) -> SizeHint {
        match &self.incoming {
            Incoming::Body(AnswerBody::Length(left)) => SizeHint::with_exact(*left),
            _ => SizeHint::default(),
        }
    }

    /// The error of an exchange without an answer, with how much of the request was sent.
    pub(super) fn broken(&mut self, error: Error) -> SendError<B> {
        let unsent = if self.outgoing.is_unsent() {
            UnsentRequest::Request(self.outgoing.take_body())
        } else if self.interim_bytes > 0 || !self.read.is_empty() {
            UnsentRequest::Answered
        } else {
            UnsentRequest::Nothing
        };
        SendError::Broken { error, unsent }
    }

    /// What the server calls the answer's status, if that is not its standard name.
    pub(super) fn take_phrase(&mut self) -> Option<Box<ReasonPhrase>> {
        self.phrase.take()
    }

    pub(super) fn into_upgraded(self) -> Option<UpgradedStream> {
        let is_switched = matches!(self.incoming, Incoming::Switched);
        is_switched.then(|| UpgradedStream { stream: self.stream, read: self.read.freeze(), open: self.open })
    }

    /// Reads at most `read_bytes`; `Ok(0)` is the end of the connection.
    fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        if self.read.capacity() - self.read.len() < self.read_bytes {
            self.read.reserve(self.read_bytes);
        }
        let room = self.read.capacity() - self.read.len();
        let count = ready!(pin!(self.stream.read_buf(&mut self.read)).poll(cx))?;
        if count == room {
            self.read_bytes = (self.read_bytes * 2).min(READ_BYTES_MAX);
            self.is_grown = true;
        } else if count < self.read_bytes / 4 {
            self.read_bytes = (self.read_bytes / 2).max(READ_BYTES);
        }
        Poll::Ready(Ok(count))
    }
}

impl<B> Http1<B>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    /// Accepts a request. It is written while the answer is polled.
    pub(super) fn begin(&mut self, head: &RequestHead, body: B) {
        self.to_head = head.method == Method::HEAD;
        self.incoming = Incoming::Head;
        (self.interim_bytes, self.scanned) = (0, 0);
        self.outgoing.begin(head, body);
    }

    /// The answer's head. Its fields replace the request's in the given map, so that it need not be allocated again.
    /// Interim answers are dropped (RFC 9110 section 15.2); `hear` is told of early hints.
    pub(super) fn poll_head(
        &mut self,
        fields: &mut HeaderMap,
        hear: Option<&dyn Fn(&HeaderMap)>,
        cx: &mut Context<'_>,
    ) -> Poll<Result<StatusCode, Error>> {
        self.send(cx)?;
        loop {
            if let Some(status) = self.take_head(fields, hear)? {
                return Poll::Ready(Ok(status));
            }
            let Poll::Ready(read) = self.poll_read(cx) else { return self.nothing_read().map(Err) };
            if read? == 0 {
                return Poll::Ready(Err(Error::Closed));
            }
        }
    }

    /// Nothing has come. What the server sent before it closed would be its answer, even after a failed write.
    fn nothing_read(&mut self) -> Poll<Error> {
        use io::ErrorKind::{BrokenPipe, ConnectionReset};
        match &self.write_error {
            // The end of the connection comes to its reading side as well, behind whatever was sent; the writing side may
            // have heard of it first.
            Some(error) if matches!(error.kind(), ConnectionReset | BrokenPipe) => Poll::Pending,
            Some(_) => Poll::Ready(self.ended()),
            None => Poll::Pending,
        }
    }

    pub(super) fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        self.send(cx)?;
        loop {
            if let Some(frame) = self.take_frame()? {
                return Poll::Ready(Some(Ok(frame)));
            }
            if self.is_answered() {
                return Poll::Ready(None);
            }
            if ready!(self.poll_read(cx))? > 0 {
                continue;
            }
            self.keeps = false;
            return match &mut self.incoming {
                Incoming::Body(AnswerBody::Close(is_closed)) => {
                    *is_closed = true;
                    Poll::Ready(None)
                }
                _ => Poll::Ready(Some(Err(Error::Closed))),
            };
        }
    }

    /// The whole body, if it is short and was read together with the head.
    pub(super) fn take_whole(&mut self) -> Option<Bytes> {
        match &mut self.incoming {
            Incoming::Body(AnswerBody::Length(left)) if *left <= COPIED_BYTES as u64 => {
                let whole = Bytes::copy_from_slice(self.read.get(..*left as usize)?);
                self.read.advance(whole.len());
                *left = 0;
                Some(whole)
            }
            _ => None,
        }
    }

    /// Writes as much of the request as the server takes. A failed write is kept for later, because a server that stops
    /// reading may have answered.
    fn send(&mut self, cx: &mut Context<'_>) -> Result<(), Error> {
        if self.write_error.is_some() {
            return Ok(());
        }
        match self.outgoing.poll(&mut self.stream, cx) {
            Poll::Ready(Err(Error::Io(error))) => {
                self.keeps = false;
                self.write_error = Some(error);
                Ok(())
            }
            Poll::Ready(sent) => sent,
            Poll::Pending => Ok(()),
        }
    }

    fn take_head(
        &mut self,
        fields: &mut HeaderMap,
        hear: Option<&dyn Fn(&HeaderMap)>,
    ) -> Result<Option<StatusCode>, Error> {
        loop {
            // A head that arrives in many pieces is parsed only once its end has come.
            if self.read.is_empty() || self.scanned > 0 && !has_end(&self.read, self.scanned) {
                return self.wait_for_head();
            }
            let parsed = answer::AnswerHead::parse(&self.read, fields);
            let parsed = parsed.map_err(|error| match self.read.first() {
                Some(&net::wire::TLS_ALERT) => Error::Unreadable(Cause::SpeaksTls),
                _ => error.into(),
            });
            let Some(mut head) = parsed? else {
                return self.wait_for_head();
            };
            self.read.advance(head.taken);
            self.scanned = 0;
            if !head.is_interim() {
                self.keeps &= head.keeps();
                self.kept_for = head.kept_for().unwrap_or(self.kept_for);
                self.phrase = head.phrase.take();
                self.incoming = match head.status {
                    StatusCode::SWITCHING_PROTOCOLS => Incoming::Switched,
                    _ => Incoming::Body(head.body(self.to_head)?),
                };
                return Ok(Some(head.status));
            }
            self.interim_bytes += head.taken;
            if let (Some(hints), Some(hear)) = (&head.hints, hear) {
                hear(hints);
            }
        }
    }

    /// Waits for more of the head, up to [`HEAD_BYTES_MAX`].
    fn wait_for_head(&mut self) -> Result<Option<StatusCode>, Error> {
        self.scanned = self.read.len();
        if self.scanned > HEAD_BYTES_MAX || self.interim_bytes + self.scanned > INTERIM_BYTES_MAX {
            return Err(Error::Unreadable(Cause::HeadTooLong));
        }
        Ok(None)
    }

    /// The next frame of the body, out of what has been read.
    fn take_frame(&mut self) -> Result<Option<Frame<Bytes>>, Error> {
        let Incoming::Body(framing) = &mut self.incoming else { return Ok(None) };
        if let AnswerBody::Chunked(chunks) = framing {
            chunks.advance(&mut self.read)?;
            if let Some(trailers) = chunks.take_trailers() {
                return Ok(Some(Frame::trailers(trailers)));
            }
        }
        let mut unbounded = u64::MAX;
        let left = match framing {
            AnswerBody::Length(left) => left,
            AnswerBody::Close(_) => &mut unbounded,
            AnswerBody::Chunked(chunks) => match chunks.data() {
                Some(left) => left,
                None => return Ok(None),
            },
        };
        let count = usize::try_from(*left).map_or(self.read.len(), |left| left.min(self.read.len()));
        if count == 0 {
            return Ok(None);
        }
        *left -= count as u64;
        // Small pieces are copied, because a slice of the buffer would keep all of it alive until the client has taken
        // the slice.
        let data = if count <= COPIED_BYTES.max(self.read_bytes / 8) {
            let data = Bytes::copy_from_slice(&self.read[..count]);
            self.read.advance(count);
            data
        } else {
            self.read.split_to(count).freeze()
        };
        if let AnswerBody::Chunked(chunks) = framing {
            // Consumes the body's end if it has come. An error stays in the buffer, so that it is found again after
            // this piece.
            let _ = chunks.advance(&mut self.read);
        }
        Ok(Some(Frame::data(data)))
    }
}

/// Whether `read` holds the empty line that ends a head, past the bytes searched before.
fn has_end(read: &[u8], scanned: usize) -> bool {
    let fresh = &read[scanned.saturating_sub(3)..];
    memchr::memchr_iter(b'\n', fresh).any(|at| matches!(&fresh[at + 1..], [b'\n', ..] | [b'\r', b'\n', ..]))
}

/// How much is read at once at first, and at most.
const READ_BYTES: usize = 8 * 1024;
const READ_BYTES_MAX: usize = 128 * 1024;
/// Pieces of a body up to this size are copied, so that the read buffer can be reused.
const COPIED_BYTES: usize = 2 * 1024;
const HEAD_BYTES_MAX: usize = 128 * 1024;
/// The most a server may send before the end of its final answer's head, interim answers included.
const INTERIM_BYTES_MAX: usize = 2 * HEAD_BYTES_MAX;

#[cfg(test)]
mod tests;
