//! A client's connection as bytes: its socket, in the clear or under TLS, and [`TrackedStream`], which reports every read and
//! write to the [`Activity`] and notices clients that have gone. It parses nothing.

use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf, Ready};
use tokio_rustls::server::TlsStream;

use crate::service::activity::{Activity, AnswerProgress, Presence};
use net::outbox::QueuedSocket;

#[derive(Debug)]
pub enum ClientStream {
    Plain(QueuedSocket),
    /// Boxed, because rustls' state would make every plain connection as large.
    Tls(Box<TlsStream<QueuedSocket>>),
}

impl ClientStream {
    /// Whether TLS holds bytes that have left the socket already. Asked before a wait, because a client may send its
    /// request along with the end of the handshake: a wait for the socket would then last until the client gives up.
    pub fn holds_bytes(&self) -> bool {
        match self {
            ClientStream::Plain(_) => false,
            // rustls wants to read unless decrypted bytes have not been taken or the client has closed.
            ClientStream::Tls(tls) => !tls.get_ref().1.wants_read(),
        }
    }

    pub fn tcp(&self) -> &QueuedSocket {
        match self {
            ClientStream::Plain(tcp) => tcp,
            ClientStream::Tls(tls) => tls.get_ref().0,
        }
    }
}

impl AsyncRead for ClientStream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            ClientStream::Plain(tcp) => Pin::new(tcp).poll_read(cx, buf),
            ClientStream::Tls(tls) => Pin::new(tls).poll_read(cx, buf),
        }
    }
}

impl AsyncWrite for ClientStream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            ClientStream::Plain(tcp) => Pin::new(tcp).poll_write(cx, buf),
            ClientStream::Tls(tls) => Pin::new(tls).poll_write(cx, buf),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            ClientStream::Plain(tcp) => Pin::new(tcp).poll_flush(cx),
            ClientStream::Tls(tls) => Pin::new(tls).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            ClientStream::Plain(tcp) => Pin::new(tcp).poll_shutdown(cx),
            ClientStream::Tls(tls) => Pin::new(tls).poll_shutdown(cx),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            ClientStream::Plain(tcp) => Pin::new(tcp).poll_write_vectored(cx, bufs),
            ClientStream::Tls(tls) => Pin::new(tls).poll_write_vectored(cx, bufs),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            ClientStream::Plain(tcp) => tcp.is_write_vectored(),
            ClientStream::Tls(tls) => tls.is_write_vectored(),
        }
    }
}

/// A client's stream that reports to its activity, and gives out first what was read before hyper was built.
#[derive(Debug)]
pub struct TrackedStream {
    pub stream: ClientStream,
    ahead: Bytes,
    activity: Rc<Activity>,
    /// The first byte of what hyper writes next has been sent already, by [`TrackedStream::probe`].
    is_begun: bool,
    /// Early hints of which a part may have been sent.
    hints: Bytes,
    /// [`Activity::moved`] at the last look for the client.
    moved_seen: u64,
}

impl TrackedStream {
    /// `ahead` is read before the stream's bytes.
    pub fn new(stream: ClientStream, ahead: Bytes, activity: Rc<Activity>) -> TrackedStream {
        TrackedStream { stream, ahead, activity, is_begun: false, hints: Bytes::new(), moved_seen: 0 }
    }

    /// Begins to send early hints. Only when hyper flushes with nothing left to write and no answer has come, because an
    /// earlier answer is whole then.
    fn begin_hints(&mut self) {
        if self.activity.hints.borrow().is_empty() {
            return;
        }
        self.hints = self.activity.hints.take();
        // The first byte has been sent if the client was probed.
        self.hints.advance(usize::from(std::mem::take(&mut self.is_begun)));
    }

    /// Sends the rest of early hints that were begun.
    fn poll_hints(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.hints.is_empty() {
            let polled = Pin::new(&mut self.stream).poll_write(cx, &self.hints);
            self.activity.write_blocked.set(polled.is_pending());
            match ready!(polled)? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                count => self.hints.advance(count),
            }
        }
        Poll::Ready(Ok(()))
    }

    /// Checks whether a client that waits for its answer is still connected. It runs when hyper flushes with nothing left
    /// to write, so between two messages or two chunks of one. Until the client ends its side, the socket's readiness
    /// wakes the task at that moment; afterwards the timer asks.
    ///
    /// A client that has closed and one that has only ended its own side (half-close) have both sent FIN. They differ in
    /// what they do with a byte they receive: the one that has closed resets the connection. So a byte is sent that
    /// comes next in any case: the first of the answer's head, or a zero before the size of the next chunk (RFC 9112
    /// section 7.1 allows leading zeros). Within a body of known length there is no such byte: there, a client that ends
    /// its side counts as gone unless more of the body can be sent soon.
    fn look_for_client(&mut self, cx: &mut Context<'_>) {
        let known = self.activity.presence.get();
        let moved = self.activity.moved.get();
        let has_moved = moved != std::mem::replace(&mut self.moved_seen, moved);
        let is_asked = self.activity.asks_presence.take();
        if !is_asked && (known != Presence::There || self.stream.tcp().poll_read_ready(cx).is_pending()) {
            return;
        }
        let ready = self.readiness();
        if known == Presence::There && !ready.is_read_closed() {
            return;
        }
        let presence = match known {
            _ if ready.is_write_closed() || self.is_reset() => Presence::Gone,
            Presence::There => self.probe(has_moved, cx),
            Presence::Doubted { moved: before, .. } if moved != before => Presence::Silent,
            Presence::Doubted { looks: 0, .. } => Presence::Gone,
            Presence::Doubted { looks, moved } => Presence::Doubted { looks: looks - 1, moved },
            Presence::Silent | Presence::Gone => known,
        };
        self.activity.presence.set(presence);
    }

    /// What the runtime knows of the socket, without a system call.
    fn readiness(&self) -> Ready {
        self.stream.tcp().readiness()
    }

    /// Whether the client has reset the connection. Reads SO_ERROR, because no read or write may have failed yet.
    fn is_reset(&self) -> bool {
        !matches!(self.stream.tcp().take_error(), Ok(None))
    }

    /// Sends a byte to a client that has ended its side, unless something has just been sent (`has_moved`), which makes
    /// a client that has closed reset the connection as well.
    fn probe(&mut self, has_moved: bool, cx: &mut Context<'_>) -> Presence {
        let begin: &[u8] = match self.activity.answer.get() {
            AnswerProgress::Awaited => HEAD_BEGIN,
            AnswerProgress::Chunked => CHUNK_BEGIN,
            AnswerProgress::Begun if has_moved => return Presence::Silent,
            AnswerProgress::Begun => {
                let looks = if self.activity.is_long_answer() { LOOKS } else { 0 };
                return Presence::Doubted { looks, moved: self.activity.moved.get() };
            }
        };
        match Pin::new(&mut self.stream).poll_write(cx, begin) {
            Poll::Ready(Ok(1)) => self.is_begun = begin == HEAD_BEGIN,
            Poll::Ready(_) => return Presence::Gone,
            Poll::Pending => return Presence::There,
        }
        self.stream.tcp().send_queued();
        match Pin::new(&mut self.stream).poll_flush(cx) {
            Poll::Ready(Err(_)) => Presence::Gone,
            _ if self.is_reset() => Presence::Gone,
            _ => Presence::Silent,
        }
    }
}

impl AsyncRead for TrackedStream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if !this.ahead.is_empty() {
            let count = this.ahead.len().min(buf.remaining());
            buf.put_slice(&this.ahead[..count]);
            this.ahead.advance(count);
            this.activity.on_read(count);
            return Poll::Ready(Ok(()));
        }
        let before = buf.filled().len();
        let polled = Pin::new(&mut this.stream).poll_read(cx, buf);
        this.activity.read_blocked.set(polled.is_pending());
        ready!(polled)?;
        this.activity.on_read(buf.filled().len() - before);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for TrackedStream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        ready!(this.poll_hints(cx))?;
        let sent = usize::from(this.is_begun);
        let polled = Pin::new(&mut this.stream).poll_write(cx, &buf[sent.min(buf.len())..]);
        this.activity.write_blocked.set(polled.is_pending());
        let count = ready!(polled)? + sent;
        this.is_begun = false;
        this.activity.on_write(buf, count);
        Poll::Ready(Ok(count))
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.activity.answer.get() == AnswerProgress::Awaited && this.activity.is_busy() {
            this.begin_hints();
        }
        ready!(this.poll_hints(cx))?;
        let polled = Pin::new(&mut this.stream).poll_flush(cx);
        // TLS and the outbox hold what does not go out; as long as they do, the client is not reading.
        this.activity.write_blocked.set(polled.is_pending());
        if polled.is_ready() && this.activity.minds_presence.get() && this.activity.is_busy() {
            this.look_for_client(cx);
        }
        polled
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        if self.is_begun || !self.hints.is_empty() {
            let first = bufs.first().map_or(&[][..], |first| first);
            return self.poll_write(cx, first);
        }
        let this = self.get_mut();
        let mut whole = [0; SMALL_BYTES];
        let polled = match join(bufs, &mut whole) {
            Some(bytes) => Pin::new(&mut this.stream).poll_write(cx, bytes),
            None => Pin::new(&mut this.stream).poll_write_vectored(cx, bufs),
        };
        this.activity.write_blocked.set(polled.is_pending());
        let count = ready!(polled)?;
        this.activity.on_write(bufs.first().map_or(&[], |first| first), count);
        Poll::Ready(Ok(count))
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

/// Copies small pieces into one, because the kernel takes one buffer faster than a list of them, and TLS makes one
/// record of it instead of several. `None` if they do not fit.
fn join<'a>(bufs: &[io::IoSlice<'_>], whole: &'a mut [u8; SMALL_BYTES]) -> Option<&'a [u8]> {
    let mut filled = 0;
    for buf in bufs {
        whole.get_mut(filled..filled + buf.len())?.copy_from_slice(buf);
        filled += buf.len();
    }
    Some(&whole[..filled])
}

/// The first byte of every answer, whichever version it is of.
const HEAD_BEGIN: &[u8] = b"H";
const CHUNK_BEGIN: &[u8] = b"0";
/// How often a client that may be gone is looked at before it counts as gone.
const LOOKS: u8 = 4;
/// Enough for a head and a short body.
const SMALL_BYTES: usize = 2048;
