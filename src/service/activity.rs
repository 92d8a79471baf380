//! What a client's connection is doing: whether the client owes us a head, a body, or the reading of what we sent.
//!
//! The stream below hyper and the requests above it write it; it counts and never acts: deadlines are the server's.

use std::cell::{Cell, RefCell};
use std::task::Waker;
use std::time::{Duration, Instant};

use crate::clock;
use crate::wire::http1::Fault;

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

    /// The same for one that has rested: hyper answered on its own with this status last; 0 is none.
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

    /// A request has arrived; its head has come.
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

    /// Whether the stream is to look after clients that wait.
    pub fn is_presence_minded(&self) -> bool {
        self.minds_presence.get()
    }

    /// Whether the stream was asked to look since this was called last.
    pub fn take_presence_question(&self) -> bool {
        self.asks_presence.take()
    }

    /// What the stream has found.
    pub fn set_presence(&self, presence: Presence) {
        self.presence.set(presence);
    }

    /// How far the answer at hand has come.
    pub fn answer_at_hand(&self) -> Answer {
        self.answer.get()
    }

    /// Whether the last read found nothing.
    pub fn set_read_blocked(&self, is_blocked: bool) {
        self.read_blocked.set(is_blocked);
    }

    /// Whether the last write found no room.
    pub fn set_write_blocked(&self, is_blocked: bool) {
        self.write_blocked.set(is_blocked);
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
    pub fn has_flown(&self) -> bool {
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

    /// Status of an answer hyper gave on its own, before any request reached us. 0: none.
    pub fn last_status(&self) -> u16 {
        self.last_status.get()
    }

    /// Bytes that were read before this connection was watched belong to a head that began then.
    pub fn begin_head(&self, now: Instant) {
        self.heading.set(true);
        self.since.set(now);
    }

    /// So many bytes have come.
    pub fn on_read(&self, count: usize) {
        self.moved.set(self.moved.get().wrapping_add(count as u64));
        if self.exchanges.get() == 0 && !self.heading.get() && count > 0 {
            self.begin_head(clock::instant());
        }
    }

    /// So many of these bytes have gone.
    pub fn on_write(&self, bytes: &[u8], count: usize) {
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

/// An answer of so many bytes is a long one.
const FLOWN_BYTES: u64 = 16 * 1024;
