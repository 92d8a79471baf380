//! HTTP/1.1 connections to upstreams, driven by the request that holds them.
//!
//! A connection has no task of its own: the request that holds it writes and reads it, so an exchange wakes nobody but
//! itself. It serves one request at a time, as a gateway needs it; that is why it is not hyper's, which is made to be
//! driven from elsewhere and pays for it with channels. Which connection a request gets, and what becomes of it
//! afterwards, is the pool's.

mod answer;
mod chunks;
pub(super) mod fields;
mod outgoing;

use std::io;
use std::pin::pin;
use std::task::{Context, Poll, Waker, ready};
use std::time::Instant;

use bytes::{Buf, Bytes, BytesMut};
use http::{HeaderMap, Method, StatusCode};
use http_body::{Body, Frame, SizeHint};
use tokio::io::AsyncReadExt;

use self::answer::AnswerBody;
use self::outgoing::Outgoing;
use super::connect::Stream;
use super::deadline::Deadline;
use super::error::{Error, SendError, Unsent};
use super::open::Open;
use super::request::Head;

/// An HTTP/1.1 connection, held by at most one request.
#[derive(Debug)]
pub struct Http1<B> {
    stream: Box<dyn Stream>,
    /// What was read and not taken.
    read: BytesMut,
    /// How much is read at once: more where more comes, less again where it does not.
    read_bytes: usize,
    /// Whether that has been more since the connection was idle.
    is_grown: bool,
    outgoing: Outgoing<B>,
    /// Why nothing more can be written, until it is told.
    write_error: Option<io::Error>,
    /// Whether what is asked is HEAD.
    to_head: bool,
    /// What of an answer comes next.
    incoming: Incoming,
    /// So many bytes came since the request went, and were interim answers.
    interim_bytes: usize,
    /// Of a head that is not whole, so many bytes have been looked at.
    scanned: usize,
    /// Whether another request may follow, as far as the server has said.
    keeps: bool,
    /// Kept with the connection, so that a deadline costs no timer each time.
    pub(super) deadline: Deadline,
    pub(super) retires: Instant,
    pub(super) idle_since: Instant,
    open: Open,
}

/// What of an answer comes next.
#[derive(Debug)]
enum Incoming {
    Head,
    /// Of the body what is still to come: at first, and in the end, nothing.
    Body(AnswerBody),
    /// The server speaks another protocol now.
    Switched,
}

/// What is left of a connection whose protocol was switched: the stream, and bytes already read from it.
pub struct Upgraded {
    /// The stream.
    pub stream: Box<dyn Stream>,
    /// What the server sent after its answer's head.
    pub read: Bytes,
}

impl std::fmt::Debug for Upgraded {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "Upgraded({} bytes read)", self.read.len())
    }
}

impl<B> Http1<B> {
    /// A connection that has just been opened.
    pub(super) fn new(
        stream: Box<dyn Stream>,
        deadline: Deadline,
        retires: Instant,
        now: Instant,
        open: Open,
    ) -> Http1<B> {
        Http1 {
            stream,
            read: BytesMut::new(),
            read_bytes: READ_BYTES,
            is_grown: false,
            outgoing: Outgoing::new(),
            write_error: None,
            to_head: false,
            incoming: Incoming::Body(AnswerBody::Length(0)),
            interim_bytes: 0,
            scanned: 0,
            keeps: true,
            deadline,
            retires,
            idle_since: now,
            open,
        }
    }

    /// Whether the last exchange is over to its end, and the server has neither closed nor said anything since.
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

    /// Why nothing can be sent on it, after [`Http1::is_idle`] has said so.
    pub(super) fn ended(&mut self) -> Error {
        self.write_error.take().map_or(Error::Closed, Error::Io)
    }

    /// Whether another request may follow: one whose answer came before it was whole leaves a connection of no use.
    pub(super) fn is_reusable(&self, now: Instant) -> bool {
        self.is_usable(now) && self.is_free()
    }

    /// Whether it is not too old, and leads to where the server is.
    pub(super) fn is_usable(&self, now: Instant) -> bool {
        now < self.retires && self.open.is_current()
    }

    /// Nobody needs it for now. A buffer that grew for a long answer is given back.
    pub(super) fn rest(&mut self, now: Instant) {
        self.idle_since = now;
        if std::mem::take(&mut self.is_grown) {
            (self.read, self.read_bytes) = (BytesMut::new(), READ_BYTES);
        }
    }

    fn is_free(&self) -> bool {
        self.keeps && self.is_answered() && self.read.is_empty() && self.outgoing.is_over()
    }

    /// Whether the answer is whole.
    pub(super) fn is_answered(&self) -> bool {
        matches!(&self.incoming, Incoming::Body(framing) if framing.is_over())
    }

    /// How long the rest of the answer's body is.
    pub(super) fn size_hint(&self) -> SizeHint {
        match &self.incoming {
            Incoming::Body(AnswerBody::Length(left)) => SizeHint::with_exact(*left),
            _ => SizeHint::default(),
        }
    }

    /// Why the exchange is over before there was an answer.
    pub(super) fn broken(&mut self, error: Error) -> SendError<B> {
        let unsent = if self.outgoing.is_unsent() {
            Unsent::Request(self.outgoing.take_body())
        } else if self.interim_bytes > 0 || !self.read.is_empty() {
            Unsent::Answered
        } else {
            Unsent::Nothing
        };
        SendError::Broken { error, unsent }
    }

    /// The stream under it, where the server has switched its protocol.
    pub(super) fn into_upgraded(self) -> Option<Upgraded> {
        let is_switched = matches!(self.incoming, Incoming::Switched);
        is_switched.then(|| Upgraded { stream: self.stream, read: self.read.freeze() })
    }

    /// Reads what has come, at most what is read at once; no bytes are the end.
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
    /// Takes a request, which is written as the answer is asked for.
    pub(super) fn begin(&mut self, head: &Head, body: B) {
        self.to_head = head.method == Method::HEAD;
        self.incoming = Incoming::Head;
        (self.interim_bytes, self.scanned) = (0, 0);
        self.outgoing.begin(head, body);
    }

    /// The head of the answer, its fields in place of the request's. Interim answers are read and forgotten (RFC 9110
    /// section 15.2).
    pub(super) fn poll_head(
        &mut self,
        fields: &mut HeaderMap,
        cx: &mut Context<'_>,
    ) -> Poll<Result<StatusCode, Error>> {
        self.send(cx)?;
        loop {
            if let Some(status) = self.take_head(fields)? {
                return Poll::Ready(Ok(status));
            }
            let Poll::Ready(read) = self.poll_read(cx) else {
                // What a server says before it closes is its answer; this one has said nothing.
                return self.write_error.take().map_or(Poll::Pending, |error| Poll::Ready(Err(error.into())));
            };
            if read? == 0 {
                return Poll::Ready(Err(Error::Closed));
            }
        }
    }

    /// The next piece of the answer's body.
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

    /// All of the answer's body, where it is short and has come with the head.
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

    /// Writes what it can of the request. A server that reads no more may have answered: what it said is still read.
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

    fn take_head(&mut self, fields: &mut HeaderMap) -> Result<Option<StatusCode>, Error> {
        loop {
            // A head that comes in many pieces is not parsed at each of them.
            if self.read.is_empty() || self.scanned > 0 && !has_end(&self.read, self.scanned) {
                return self.wait_for_head();
            }
            let Some(head) = answer::Head::parse(&self.read, fields)? else { return self.wait_for_head() };
            self.read.advance(head.taken);
            self.scanned = 0;
            if !head.is_interim() {
                self.keeps &= head.keeps();
                self.incoming = match head.status {
                    StatusCode::SWITCHING_PROTOCOLS => Incoming::Switched,
                    _ => Incoming::Body(head.body(self.to_head)?),
                };
                return Ok(Some(head.status));
            }
            self.interim_bytes += head.taken;
        }
    }

    /// More of the head has to come, within bounds.
    fn wait_for_head(&mut self) -> Result<Option<StatusCode>, Error> {
        self.scanned = self.read.len();
        if self.scanned > HEAD_BYTES_MAX || self.interim_bytes + self.scanned > INTERIM_BYTES_MAX {
            return Err(Error::Malformed("its head does not end"));
        }
        Ok(None)
    }

    /// What of the body has been read.
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
        // A piece that is not copied keeps the whole buffer from being freed for as long as its reader takes.
        let data = if count <= COPIED_BYTES.max(self.read_bytes / 8) {
            let data = Bytes::copy_from_slice(&self.read[..count]);
            self.read.advance(count);
            data
        } else {
            self.read.split_to(count).freeze()
        };
        if let AnswerBody::Chunked(chunks) = framing {
            // To see the end where it has come. What is wrong stays in the buffer, and is told after this piece.
            let _ = chunks.advance(&mut self.read);
        }
        Ok(Some(Frame::data(data)))
    }
}

/// Whether an empty line ends within `read`, beyond what has been looked at.
fn has_end(read: &[u8], scanned: usize) -> bool {
    let fresh = &read[scanned.saturating_sub(3)..];
    memchr::memchr_iter(b'\n', fresh).any(|at| matches!(&fresh[at + 1..], [b'\n', ..] | [b'\r', b'\n', ..]))
}

/// How much is read at once, at first and at most.
const READ_BYTES: usize = 8 * 1024;
const READ_BYTES_MAX: usize = 128 * 1024;
/// Pieces of a body up to this size are copied, so that the buffer they were read into is used again.
const COPIED_BYTES: usize = 2 * 1024;
/// The longest head of an answer.
const HEAD_BYTES_MAX: usize = 128 * 1024;
/// What a server may send before its answer's head is whole, interim answers and all.
const INTERIM_BYTES_MAX: usize = 2 * HEAD_BYTES_MAX;

#[cfg(test)]
mod tests;
