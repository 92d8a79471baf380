//! What a client's connection is doing: whether it is idle, and whether the client still has to send a head or a body, or
//! to read what was sent.
//!
//! The stream below hyper and the requests above it report to it. It only counts: `server::timer` compares with deadlines.

use std::cell::{Cell, RefCell};
use std::task::Waker;
use std::time::{Duration, Instant};

use bytes::Bytes;

use base::clock;
use net::wire::http1::FramingFault;

/// The activity of one connection. Cells without locks: it never leaves its worker's thread.
#[derive(Debug)]
pub struct Activity {
    exchanges: Cell<u32>,
    bodies: Cell<u32>,
    rest: Cell<bool>,
    /// Bodies of answers that wait for their source.
    waiting: Cell<usize>,
    heads: Cell<usize>,
    heading: Cell<bool>,
    since: Cell<Instant>,
    /// Bytes that have moved either way, modulo 2^64: a change means progress.
    pub moved: Cell<u64>,
    /// Whether the last read had to wait for bytes.
    pub read_blocked: Cell<bool>,
    /// Whether the last write had to wait for room in the client's socket.
    pub write_blocked: Cell<bool>,
    /// The status of the last answer that was written when no request was being served; 0 if none.
    pub last_status: Cell<u16>,
    /// The most requests that were served at once.
    pub exchanges_most: Cell<u32>,
    /// Requests that have ended so far.
    pub exchanges_ended: Cell<u64>,
    at_end: RefCell<Option<Waker>>,
    /// What has come is not a valid head. The requests before it are still answered; see [`Activity::due_fault`].
    pub head_fault: Cell<Option<FramingFault>>,
    /// The rest of a request's body cannot be read.
    pub body_fault: Cell<Option<FramingFault>>,
    /// Over HTTP/1: whether the bytes read so far end within a message. An answer that is complete before its request ends
    /// the connection then.
    pub in_message: Cell<bool>,
    pub answer: Cell<AnswerProgress>,
    /// What the last check of the client has found.
    pub presence: Cell<Presence>,
    /// Early hints over HTTP/1.1 that the stream is to send before the answer.
    pub hints: RefCell<Bytes>,
    /// Makes the stream check the client at its next flush.
    pub asks_presence: Cell<bool>,
    /// Makes the stream check whether clients that wait for an answer are still connected. Off over HTTP/2: there, a
    /// client that ends its side of the connection is gone.
    pub minds_presence: Cell<bool>,
    /// [`Activity::moved`] when the last request began.
    moved_before: Cell<u64>,
}

/// How far the answer to the current request has come, over HTTP/1: what could be sent next to probe the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AnswerProgress {
    /// Its head is not known yet.
    Awaited,
    /// Its body is being sent in chunks.
    Chunked,
    /// Its body of known length is being sent, or it has none.
    Begun,
}

/// Whether a client that waits for its answer is still connected, over HTTP/1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Presence {
    /// Nothing that has been looked at says otherwise.
    There,
    /// It has ended its side and has been sent something since: if it has closed both sides, a reset will come.
    Silent,
    /// It has ended its side within a body of known length, where no byte can be sent to probe it.
    Doubted {
        /// Looks left before it counts as gone.
        looks: u8,
        /// [`Activity::moved`] at the first look: if it changes, the body goes on and acts as the probe.
        moved: u64,
    },
    /// It has closed both sides, or reset the connection.
    Gone,
}

impl Presence {
    /// When a client that waits is looked at again. Most half-closes wake the task at once; this finds the others.
    pub fn look_after(self) -> Duration {
        Duration::from_millis(match self {
            Presence::There => 250,
            // Long enough for the next piece of the answer to come from a nearby upstream.
            Presence::Doubted { looks: 0, .. } => 2,
            Presence::Silent | Presence::Doubted { .. } | Presence::Gone => 100,
        })
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectionPhase {
    /// No request, and none since that time.
    Idle(Instant),
    /// A head has begun to arrive at that time.
    Head(Instant),
    /// At least one request is being served, or the rest of its body is being read.
    Busy,
}

impl Activity {
    /// A connection on which nothing has happened since `now`.
    pub fn new(now: Instant) -> Activity {
        Activity {
            exchanges: Cell::new(0),
            bodies: Cell::new(0),
            rest: Cell::new(false),
            waiting: Cell::new(0),
            heads: Cell::new(0),
            heading: Cell::new(false),
            since: Cell::new(now),
            moved: Cell::new(0),
            read_blocked: Cell::new(false),
            write_blocked: Cell::new(false),
            last_status: Cell::new(0),
            exchanges_most: Cell::new(0),
            exchanges_ended: Cell::new(0),
            at_end: RefCell::new(None),
            head_fault: Cell::new(None),
            body_fault: Cell::new(None),
            in_message: Cell::new(false),
            answer: Cell::new(AnswerProgress::Awaited),
            presence: Cell::new(Presence::There),
            hints: RefCell::default(),
            asks_presence: Cell::new(false),
            minds_presence: Cell::new(false),
            moved_before: Cell::new(0),
        }
    }

    /// The same for a connection that was idle, whose [`Activity::last_status`] was this.
    pub fn after_idle(now: Instant, last_status: u16) -> Activity {
        Activity { last_status: Cell::new(last_status), ..Activity::new(now) }
    }

    /// Requests count before heads, because a connection may read the next head while it answers.
    pub fn phase(&self) -> ConnectionPhase {
        match (self.exchanges.get(), self.heading.get()) {
            (0, _) if self.rest.get() => ConnectionPhase::Busy,
            (0, false) => ConnectionPhase::Idle(self.since.get()),
            (0, true) => ConnectionPhase::Head(self.since.get()),
            _ => ConnectionPhase::Busy,
        }
    }

    /// The head of a request has come.
    pub fn begin_exchange(&self) {
        self.exchanges.set(self.exchanges.get() + 1);
        self.exchanges_most.set(self.exchanges_most.get().max(self.exchanges.get()));
        self.heading.set(false);
        self.answer.set(AnswerProgress::Awaited);
        // Those of the answer before, which came too late.
        self.hints.take();
        self.moved_before.set(self.moved.get());
    }

    pub fn end_exchange(&self, now: Instant) {
        self.exchanges.set(self.exchanges.get().saturating_sub(1));
        self.since.set(now);
        self.exchanges_ended.set(self.exchanges_ended.get() + 1);
        if let Some(waker) = self.at_end.take() {
            waker.wake();
        }
    }

    /// Wakes once when the next request ends.
    pub fn wake_at_end(&self, waker: &Waker) {
        self.at_end.replace(Some(waker.clone()));
    }

    /// The fault of a head, once everything before it is answered and sent.
    pub fn due_fault(&self) -> Option<FramingFault> {
        self.head_fault.get().filter(|_| !self.is_busy() && !self.write_blocked.get())
    }

    pub fn is_busy(&self) -> bool {
        self.exchanges.get() > 0
    }

    /// A request's body has more to come.
    pub fn begin_body(&self) {
        self.bodies.set(self.bodies.get() + 1);
    }

    /// A request's body is whole, or its rest will not be read.
    pub fn end_body(&self) {
        self.bodies.set(self.bodies.get().saturating_sub(1));
    }

    /// Over HTTP/1: the rest of a request's body is read although nobody wants it.
    pub fn begin_rest(&self) {
        self.rest.set(true);
        self.begin_body();
    }

    /// Since when nothing but such a rest is waited for.
    pub fn rest_since(&self) -> Option<Instant> {
        (self.rest.get() && self.exchanges.get() == 0).then(|| self.since.get())
    }

    /// That rest has been read to its end.
    pub fn end_rest(&self, now: Instant) {
        self.rest.set(false);
        self.since.set(now);
        self.end_body();
    }

    /// Counts the bytes that a request's head holds; returns how many all heads of the connection hold.
    pub fn hold_head(&self, bytes: usize) -> usize {
        self.heads.set(self.heads.get() + bytes);
        self.heads.get()
    }

    pub fn release_head(&self, bytes: usize) {
        self.heads.set(self.heads.get().saturating_sub(bytes));
    }

    /// The body of an answer has nothing to send until its source has more.
    pub fn begin_waiting(&self) {
        self.waiting.set(self.waiting.get() + 1);
    }

    /// Its source has more, or the body is dropped.
    pub fn end_waiting(&self) {
        self.waiting.set(self.waiting.get().saturating_sub(1));
    }

    /// Whether an answer over HTTP/2 waits for the client to read: its socket or one of its windows is full. `unended`:
    /// answers of which the end was not sent; those that do not wait for their source wait for the client.
    pub fn is_reading_owed(&self, unended: usize) -> bool {
        self.write_blocked.get() || unended > self.waiting.get()
    }

    /// Whether the client has to send bytes of a body, or to read what was sent.
    pub fn is_owed(&self) -> bool {
        self.write_blocked.get() || (self.bodies.get() > 0 && self.read_blocked.get())
    }

    /// Whether much of the current answer has been sent already: then the next piece is likely to come soon.
    pub fn is_long_answer(&self) -> bool {
        self.moved.get().wrapping_sub(self.moved_before.get()) >= LONG_ANSWER_BYTES
    }

    /// A head began at `now`. Called for bytes that were read before the stream reported to this activity.
    pub fn begin_head(&self, now: Instant) {
        self.heading.set(true);
        self.since.set(now);
    }

    /// Reports bytes that have come. Between two requests they begin a head.
    pub fn on_read(&self, count: usize) {
        self.moved.set(self.moved.get().wrapping_add(count as u64));
        if self.exchanges.get() == 0 && !self.heading.get() && !self.rest.get() && count > 0 {
            self.begin_head(clock::instant());
        }
    }

    /// `count` of `bytes` have been sent.
    pub fn on_write(&self, bytes: &[u8], count: usize) {
        self.moved.set(self.moved.get().wrapping_add(count as u64));
        if self.exchanges.get() == 0
            && let Some(digits) = bytes.strip_prefix(b"HTTP/1.1 ").and_then(|rest| rest.get(..3))
        {
            let status = digits.iter().fold(0, |sum, digit| sum * 10 + u16::from(digit.wrapping_sub(b'0')));
            self.last_status.set(status);
        }
    }
}

const LONG_ANSWER_BYTES: u64 = 16 * 1024;
