//! A client's connection as bytes, and the activity that watches them.
//!
//! hyper sees a stream; the [`Activity`] beside it knows whether the client owes us something: a head, a body, or the
//! reading of what we sent. It counts and never acts: deadlines are the connection's.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::io;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll, Waker, ready};
use std::time::{Duration, Instant};

use bytes::{Buf, Bytes};
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf, Ready};
use tokio::net::TcpStream;
use tokio_rustls::server::TlsStream;

use crate::clock;
use crate::wire::http1::Fault;

/// A client's socket, in the clear or under TLS.
#[derive(Debug)]
pub enum Stream {
    /// In the clear.
    Plain(TcpStream),
    /// Under TLS; boxed, because most of its size is rustls' state.
    Tls(Box<TlsStream<TcpStream>>),
}

impl Stream {
    /// Whether bytes for us have left the socket already: a client may send its request along with the end of the
    /// handshake, and then TLS holds it and the socket stays silent.
    pub fn holds_bytes(&self) -> bool {
        match self {
            Stream::Plain(_) => false,
            // rustls wants no more only where what it decrypted has not been taken, or the client has closed.
            Stream::Tls(tls) => !tls.get_ref().1.wants_read(),
        }
    }

    /// The socket underneath.
    pub fn tcp(&self) -> &TcpStream {
        match self {
            Stream::Plain(tcp) => tcp,
            Stream::Tls(tls) => tls.get_ref().0,
        }
    }
}

impl AsyncRead for Stream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Stream::Plain(tcp) => Pin::new(tcp).poll_read(cx, buf),
            Stream::Tls(tls) => Pin::new(tls).poll_read(cx, buf),
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Stream::Plain(tcp) => Pin::new(tcp).poll_write(cx, buf),
            Stream::Tls(tls) => Pin::new(tls).poll_write(cx, buf),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Stream::Plain(tcp) => Pin::new(tcp).poll_flush(cx),
            Stream::Tls(tls) => Pin::new(tls).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Stream::Plain(tcp) => Pin::new(tcp).poll_shutdown(cx),
            Stream::Tls(tls) => Pin::new(tls).poll_shutdown(cx),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Stream::Plain(tcp) => Pin::new(tcp).poll_write_vectored(cx, bufs),
            Stream::Tls(tls) => Pin::new(tls).poll_write_vectored(cx, bufs),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Stream::Plain(tcp) => tcp.is_write_vectored(),
            Stream::Tls(tls) => tls.is_write_vectored(),
        }
    }
}

/// What a connection is doing, told by those who see it: the stream below hyper, the requests above.
#[derive(Debug)]
pub struct Activity {
    exchanges: Cell<u32>,
    bodies: Cell<u32>,
    held: Cell<u32>,
    heads: Cell<usize>,
    heading: Cell<bool>,
    since: Cell<Instant>,
    moved: Cell<u64>,
    read_blocked: Cell<bool>,
    write_blocked: Cell<bool>,
    last_status: Cell<u16>,
    ended: Cell<u64>,
    at_end: RefCell<Option<Waker>>,
    head_fault: Cell<Option<Fault>>,
    body_fault: Cell<Option<Fault>>,
    in_message: Cell<bool>,
    answer: Cell<Answer>,
    presence: Cell<Presence>,
    asks_presence: Cell<bool>,
    /// Whether that matters: over HTTP/2 a client ends its side for good.
    minds_presence: Cell<bool>,
    /// What had moved when the last request began.
    moved_before: Cell<u64>,
}

/// How far the answer to the request at hand has come, over HTTP/1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Its head is not known.
    Awaited,
    /// Its body is on its way in chunks.
    Chunked,
    /// Its body is on its way, or there is none.
    Begun,
}

/// Whether a client waits for its answer, over HTTP/1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Presence {
    /// As far as is known.
    There,
    /// It has ended its side, and has been sent something since: if it has closed both, a reset comes.
    Silent,
    /// It has ended its side within a body of which nothing can be sent ahead.
    Doubted {
        /// So many looks before it is taken for gone.
        looks: u8,
        /// What had moved by then.
        moved: u64,
    },
    /// It has closed both sides.
    Gone,
}

impl Presence {
    /// When a client that waits is looked at again. Of most that end their side the runtime tells at once.
    pub fn look_after(self) -> Duration {
        Duration::from_millis(match self {
            Presence::There => 250,
            // As long as the next piece of an answer may take to come from nearby.
            Presence::Doubted { looks: 0, .. } => 2,
            Presence::Silent | Presence::Doubted { .. } | Presence::Gone => 100,
        })
    }
}

/// What a connection is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Nothing, since then.
    Idle(Instant),
    /// A head has begun to arrive, then.
    Head(Instant),
    /// At least one request is being served.
    Busy,
}

impl Activity {
    /// A connection on which nothing has happened since `now`.
    pub fn new(now: Instant) -> Activity {
        Activity {
            exchanges: Cell::new(0),
            bodies: Cell::new(0),
            held: Cell::new(0),
            heads: Cell::new(0),
            heading: Cell::new(false),
            since: Cell::new(now),
            moved: Cell::new(0),
            read_blocked: Cell::new(false),
            write_blocked: Cell::new(false),
            last_status: Cell::new(0),
            ended: Cell::new(0),
            at_end: RefCell::new(None),
            head_fault: Cell::new(None),
            body_fault: Cell::new(None),
            in_message: Cell::new(false),
            answer: Cell::new(Answer::Awaited),
            presence: Cell::new(Presence::There),
            asks_presence: Cell::new(false),
            minds_presence: Cell::new(false),
            moved_before: Cell::new(0),
        }
    }

    /// The same for one that has rested: hyper answered by itself with this status last; 0 is none.
    pub fn after_rest(now: Instant, last_status: u16) -> Activity {
        Activity { last_status: Cell::new(last_status), ..Activity::new(now) }
    }

    /// What the connection is doing.
    pub fn phase(&self) -> Phase {
        match (self.exchanges.get(), self.heading.get()) {
            (0, false) => Phase::Idle(self.since.get()),
            (0, true) => Phase::Head(self.since.get()),
            _ => Phase::Busy,
        }
    }

    /// A request has arrived; when its head began to, where that was seen.
    pub fn begin_exchange(&self) {
        self.exchanges.set(self.exchanges.get() + 1);
        self.heading.set(false);
        self.answer.set(Answer::Awaited);
        self.moved_before.set(self.moved.get());
    }

    /// Whether what was read last over HTTP/1 ends within a message.
    pub fn read_within(&self, is_in_message: bool) {
        self.in_message.set(is_in_message);
    }

    /// Whether bytes of a message over HTTP/1 have not been read: with those of its request an answer ends the
    /// connection.
    pub fn is_in_message(&self) -> bool {
        self.in_message.get()
    }

    /// Its answer is about to be sent.
    pub fn answer(&self, answer: Answer) {
        self.answer.set(answer);
    }

    /// Has the stream look after clients that wait.
    pub fn mind_presence(&self) {
        self.minds_presence.set(true);
    }

    /// Has the stream look, when it is flushed next, whether the client is there.
    pub fn ask_presence(&self) {
        self.asks_presence.set(true);
    }

    /// Whether the client waits, as far as is known.
    pub fn presence(&self) -> Presence {
        self.presence.get()
    }

    /// A request is over.
    pub fn end_exchange(&self, now: Instant) {
        self.exchanges.set(self.exchanges.get().saturating_sub(1));
        self.since.set(now);
        self.ended.set(self.ended.get() + 1);
        if let Some(waker) = self.at_end.take() {
            waker.wake();
        }
    }

    /// Requests that are over so far.
    pub fn exchanges_ended(&self) -> u64 {
        self.ended.get()
    }

    /// Wakes once when the next request is over.
    pub fn wake_at_end(&self, waker: &Waker) {
        self.at_end.replace(Some(waker.clone()));
    }

    /// What has come is no head we read on; the requests before it are still answered.
    pub fn refuse_head(&self, fault: Fault) {
        self.head_fault.set(Some(fault));
    }

    /// Why nothing more is read.
    pub fn head_fault(&self) -> Option<Fault> {
        self.head_fault.get()
    }

    /// A request's body cannot be read on.
    pub fn refuse_body(&self, fault: Fault) {
        self.body_fault.set(Some(fault));
    }

    /// Why a request's body was not read on.
    pub fn body_fault(&self) -> Option<Fault> {
        self.body_fault.get()
    }

    /// A head that is refused, once everything before it is answered and sent.
    pub fn due_fault(&self) -> Option<Fault> {
        self.head_fault.get().filter(|_| !self.is_busy() && !self.is_write_blocked())
    }

    /// Whether requests are being served.
    pub fn is_busy(&self) -> bool {
        self.exchanges.get() > 0
    }

    /// A request's body has more to come.
    pub fn begin_body(&self) {
        self.bodies.set(self.bodies.get() + 1);
    }

    /// A request's body is whole, or nobody wants the rest.
    pub fn end_body(&self) {
        self.bodies.set(self.bodies.get().saturating_sub(1));
    }

    /// A request's head holds so many bytes; how many all of them do.
    pub fn hold_head(&self, bytes: usize) -> usize {
        self.heads.set(self.heads.get() + bytes);
        self.heads.get()
    }

    /// It holds them no longer.
    pub fn release_head(&self, bytes: usize) {
        self.heads.set(self.heads.get().saturating_sub(bytes));
    }

    /// A piece of an answer's body is on its way to the client, and no more is taken before it.
    pub fn begin_held(&self) {
        self.held.set(self.held.get() + 1);
    }

    /// More of that body is taken, or nobody wants the rest.
    pub fn end_held(&self) {
        self.held.set(self.held.get().saturating_sub(1));
    }

    /// Whether what we send waits for the client: its socket, or over HTTP/2 one of its windows, is full.
    pub fn is_reading_owed(&self) -> bool {
        self.write_blocked.get() || self.held.get() > 0
    }

    /// Whether the client owes us bytes of a body, or the reading of what we sent.
    pub fn is_owed(&self) -> bool {
        self.write_blocked.get() || (self.bodies.get() > 0 && self.read_blocked.get())
    }

    /// Whether the answer at hand is a long one that has been coming: then more comes soon.
    fn has_flown(&self) -> bool {
        self.moved.get().wrapping_sub(self.moved_before.get()) >= FLOWN_BYTES
    }

    /// Whether bytes of ours wait for the client to read.
    pub fn is_write_blocked(&self) -> bool {
        self.write_blocked.get()
    }

    /// Changes whenever a byte moves either way.
    pub fn moved(&self) -> u64 {
        self.moved.get()
    }

    /// Status of an answer hyper gave by itself, before any request reached us. 0: none.
    pub fn last_status(&self) -> u16 {
        self.last_status.get()
    }

    /// Bytes that were read before this connection was watched belong to a head that began then.
    pub fn begin_head(&self, now: Instant) {
        self.heading.set(true);
        self.since.set(now);
    }

    fn on_read(&self, count: usize) {
        self.moved.set(self.moved.get().wrapping_add(count as u64));
        if self.exchanges.get() == 0 && !self.heading.get() && count > 0 {
            self.begin_head(clock::instant());
        }
    }

    fn on_write(&self, bytes: &[u8], count: usize) {
        self.moved.set(self.moved.get().wrapping_add(count as u64));
        // hyper answers a head it cannot parse without asking us; the log wants to know how.
        if self.exchanges.get() == 0
            && let Some(digits) = bytes.strip_prefix(b"HTTP/1.1 ").and_then(|rest| rest.get(..3))
        {
            let status = digits.iter().fold(0, |sum, digit| sum * 10 + u16::from(digit.wrapping_sub(b'0')));
            self.last_status.set(status);
        }
    }
}

/// A client's stream with its activity, and with bytes that were read ahead of hyper.
#[derive(Debug)]
pub struct Tracked {
    /// The stream.
    pub stream: Stream,
    ahead: Bytes,
    activity: Rc<Activity>,
    /// The first byte of what hyper writes next has gone out already.
    is_begun: bool,
    /// What had moved when the client was looked for last.
    moved_seen: u64,
}

impl Tracked {
    /// Watches `stream`; `ahead` is read first.
    pub fn new(stream: Stream, ahead: Bytes, activity: Rc<Activity>) -> Tracked {
        Tracked { stream, ahead, activity, is_begun: false, moved_seen: 0 }
    }

    /// Looks whether the client is there. hyper flushes with nothing left to write, so this is between two messages, or
    /// two chunks of one. Until it has ended its side it wakes the task when it does, as a read would; afterwards the
    /// timer asks.
    ///
    /// Who has closed and who has ended only its own side have said the same, and differ in what a byte brings them to:
    /// the one resets the connection. So the first byte of what comes in any case is sent: of the answer's head, or of
    /// the size of its next chunk, which may begin with a zero (RFC 9112 section 7.1). Within a body of known length
    /// there is none: whoever ends its side there is gone, unless more of it can be sent soon.
    fn look_for_client(&mut self, cx: &mut Context<'_>) {
        let known = self.activity.presence.get();
        let moved = self.activity.moved();
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
            Presence::There => self.knock(has_moved, cx),
            Presence::Doubted { moved: before, .. } if moved != before => Presence::Silent,
            Presence::Doubted { looks: 0, .. } => Presence::Gone,
            Presence::Doubted { looks, moved } => Presence::Doubted { looks: looks - 1, moved },
            Presence::Silent | Presence::Gone => known,
        };
        self.activity.presence.set(presence);
    }

    /// What the runtime knows of the socket without a look at it.
    fn readiness(&self) -> Ready {
        let readiness = pin!(self.stream.tcp().ready(Interest::READABLE | Interest::WRITABLE));
        match readiness.poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(ready) => ready.unwrap_or(Ready::WRITE_CLOSED),
            Poll::Pending => Ready::EMPTY,
        }
    }

    /// Whether the client has reset the connection, which nobody may have been told yet.
    fn is_reset(&self) -> bool {
        !matches!(self.stream.tcp().take_error(), Ok(None))
    }

    /// Sends a byte to a client that has ended its side; `has_moved` where something has just gone to it.
    fn knock(&mut self, has_moved: bool, cx: &mut Context<'_>) -> Presence {
        let begin: &[u8] = match self.activity.answer.get() {
            Answer::Awaited => HEAD_BEGIN,
            Answer::Chunked => CHUNK_BEGIN,
            Answer::Begun if has_moved => return Presence::Silent,
            Answer::Begun => {
                let looks = if self.activity.has_flown() { LOOKS } else { 0 };
                return Presence::Doubted { looks, moved: self.activity.moved() };
            }
        };
        match Pin::new(&mut self.stream).poll_write(cx, begin) {
            Poll::Ready(Ok(1)) => self.is_begun = begin == HEAD_BEGIN,
            Poll::Ready(_) => return Presence::Gone,
            Poll::Pending => return Presence::There,
        }
        match Pin::new(&mut self.stream).poll_flush(cx) {
            Poll::Ready(Err(_)) => Presence::Gone,
            _ if self.is_reset() => Presence::Gone,
            _ => Presence::Silent,
        }
    }
}

impl AsyncRead for Tracked {
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

impl AsyncWrite for Tracked {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
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
        let polled = Pin::new(&mut this.stream).poll_flush(cx);
        // TLS keeps records of its own that a flush has to bring out.
        if polled.is_pending() {
            this.activity.write_blocked.set(true);
        } else if this.activity.minds_presence.get() && this.activity.is_busy() {
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
        if self.is_begun {
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

/// Small pieces copied into one: the kernel takes one buffer faster than a list of them, and TLS makes one record of
/// it instead of several.
fn join<'a>(bufs: &[io::IoSlice<'_>], whole: &'a mut [u8; SMALL_BYTES]) -> Option<&'a [u8]> {
    let mut filled = 0;
    for buf in bufs {
        whole.get_mut(filled..filled + buf.len())?.copy_from_slice(buf);
        filled += buf.len();
    }
    Some(&whole[..filled])
}

/// What every answer begins with, be it of HTTP/1.0 or HTTP/1.1.
const HEAD_BEGIN: &[u8] = b"H";
const CHUNK_BEGIN: &[u8] = b"0";
/// An answer of so many bytes is a long one.
const FLOWN_BYTES: u64 = 16 * 1024;
/// How often a client in doubt is looked at before it is taken for gone.
const LOOKS: u8 = 4;
/// A head and a short body.
const SMALL_BYTES: usize = 2048;
