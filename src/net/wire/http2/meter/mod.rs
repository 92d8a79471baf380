//! Budgets for the frames of one peer, against floods.
//!
//! Each kind of frame that causes work has a budget per second and one for the life of the connection. Every frame that we
//! send of answers (to an upstream: of requests) earns the peer more, because a client that downloads must open windows,
//! and some libraries send PING at every burst to measure the path. What hyper bounds itself is not counted again:
//! CONTINUATION, empty and tiny DATA, resets for errors.

#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use http::HeaderMap;

use super::faults::{FLOW_CONTROL_ERROR, FRAME_SIZE_ERROR, Faults, PROTOCOL_ERROR, STREAM_CLOSED};
use super::splitter::{
    ACK, CONTINUATION, DATA, END_HEADERS, END_STREAM, FrameHead, GOAWAY, HEADERS, PING, PRIORITY, RST_STREAM,
    SETTINGS, Splitter, WINDOW_UPDATE, frame,
};
use super::trailers;

/// Who is at the other end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeerSide {
    Client,
    /// A server: it answers on ours.
    Server,
}

/// What a peer did too often.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Excess {
    /// Requests taken back before they were answered (CVE-2023-44487).
    RapidReset,
    /// RST_STREAM in all, whatever became of their requests.
    Reset,
    /// SETTINGS, including those that acknowledge ours.
    Settings,
    /// PING, including those that answer ours.
    Ping,
    Priority,
    WindowUpdate,
    /// HEADERS of a server beyond what we asked for: informational answers without end.
    Headers,
    /// Frames of other kinds, GOAWAY among them.
    Other,
    /// Requests on the wire that nobody has taken.
    Unread,
    /// Trailers with a pseudo-header: one is too many.
    PseudoTrailers,
    /// A first frame other than SETTINGS: one is too many (RFC 9113 section 3.4).
    Unannounced,
    /// An answer with a pseudo-header of a request: one is too many (RFC 9113 section 8.3).
    PseudoAnswer,
}

impl Excess {
    pub fn name(self) -> &'static str {
        match self {
            Excess::RapidReset => "rapid reset",
            Excess::Reset => "RST_STREAM",
            Excess::Settings => "SETTINGS",
            Excess::Ping => "PING",
            Excess::Priority => "PRIORITY",
            Excess::WindowUpdate => "WINDOW_UPDATE",
            Excess::Headers => "HEADERS",
            Excess::Other => "other frames",
            Excess::Unread => "requests at once",
            Excess::PseudoTrailers => "pseudo-headers in trailers",
            Excess::Unannounced => "frames before SETTINGS",
            Excess::PseudoAnswer => "pseudo-headers of a request",
        }
    }

    /// The budget per second, before anything is earned; `u64::MAX` for what is not counted by the second.
    fn per_second(self, streams: u32) -> u64 {
        match self {
            Excess::Settings => 50,
            Excess::Ping | Excess::Priority | Excess::Headers | Excess::Other => 100,
            // A client may cancel all its requests at once, and update the window of every stream.
            Excess::Reset => u64::from(streams).max(100),
            Excess::WindowUpdate => 100 + 2 * u64::from(streams),
            Excess::RapidReset
            | Excess::Unread
            | Excess::PseudoTrailers
            | Excess::Unannounced
            | Excess::PseudoAnswer => u64::MAX,
        }
    }
}

/// What has come first from the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Opening {
    None,
    /// An alert of TLS, which is shorter than the head of a frame (RFC 8446 section 6).
    TlsAlert,
    /// The head of its SETTINGS, as it must be.
    Settings,
}

/// How hyper refused a request that it never handed to the service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HyperRefusal {
    /// By a reset with this code (RFC 9113 section 7).
    Reset(u32),
    /// By an answer: the fields were too long.
    TooLarge,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamId(u32);

/// Both directions of one connection, counted.
#[derive(Debug)]
pub struct Meter {
    peer: PeerSide,
    streams: u32,
    reads: Splitter,
    writes: Splitter,
    /// The peer has begun as it must, with SETTINGS.
    is_announced: bool,
    faults: Faults,
    counts: [FrameCount; COUNTED],
    /// Frames more that the peer has earned, since the connection began.
    earned: u64,
    /// The highest stream the client has opened.
    last: u32,
    /// Requests nobody has read yet, in the order they came.
    unread: VecDeque<UnreadStream>,
    /// Streams of requests that hyper has handed over and nobody has answered.
    unanswered: Vec<u32>,
    /// Streams on which an answer has begun and not ended.
    unended: Vec<u32>,
    answered: u64,
    taken_back: u64,
    refused: Vec<HyperRefusal>,
    broken: u32,
    heads: u64,
    /// The last frame belongs to a head, or nothing has come yet.
    is_head: bool,
    /// Its fields go on in the next.
    is_continued: bool,
    /// Trailers, SETTINGS or the head of an answer of which a part has come.
    gathered: Option<(FrameHead, Vec<u8>)>,
    /// An answer's head that goes on in the next frame: whether it ends its stream, and the fields that have come.
    begun: Option<(bool, Vec<u8>)>,
    /// A server has sent an answer before the answer.
    has_interim: bool,
    data_sent: u64,
    goaway_sent: Option<u32>,
    /// The peer has announced the end of the connection, with this code.
    goaway: Option<u32>,
    /// How many streams of ours the peer takes at once, once it has said so.
    streams_taken: Option<u32>,
    /// How many times something has come.
    heard: u64,
    /// Who waits for it to say so.
    waker: Option<Waker>,
    /// Interim answers that are not written yet, each with its stream.
    interims: VecDeque<(StreamId, Vec<u8>)>,
    writer: Option<Waker>,
    /// The fields of the last head that was written go on in the next frame.
    is_writing_head: bool,
    /// The client takes a smaller table of fields than there is at first, and no head has been written since: the next one has to
    /// say so (RFC 7541 section 4.2), which only hyper's can.
    is_table_smaller: bool,
    excess: Option<Excess>,
}

#[derive(Clone, Copy, Debug)]
struct UnreadStream {
    stream: u32,
    /// The client has taken it back.
    is_reset: bool,
    /// hyper has reset it with this code. If that was because of its head, it will never be handed over; if because of
    /// something after the head, it will. Which one is known only when hyper has handed over all that it can.
    refused: Option<u32>,
}

/// One kind of frame: its count in this second and in the connection's life.
#[derive(Clone, Copy, Debug)]
struct FrameCount {
    second: u64,
    allowed: u64,
    ever: u64,
    began: Instant,
    /// What had been earned when the second began.
    earned: u64,
}

impl Meter {
    /// A connection that begins now; `streams` is how many requests may be open at once.
    pub fn new(peer: PeerSide, streams: u32, now: Instant) -> Meter {
        let count = FrameCount { second: 0, allowed: 0, ever: 0, began: now, earned: 0 };
        let (reads, writes) = match peer {
            PeerSide::Client => (Splitter::at_preface(), Splitter::new()),
            PeerSide::Server => (Splitter::new(), Splitter::at_preface()),
        };
        Meter {
            peer,
            streams,
            reads,
            writes,
            is_announced: false,
            faults: Faults::new(),
            counts: [count; COUNTED],
            earned: 0,
            last: 0,
            unread: VecDeque::new(),
            unanswered: Vec::new(),
            unended: Vec::new(),
            answered: 0,
            taken_back: 0,
            refused: Vec::new(),
            broken: 0,
            heads: 0,
            is_head: true,
            is_continued: false,
            gathered: None,
            begun: None,
            has_interim: false,
            data_sent: 0,
            goaway_sent: None,
            goaway: None,
            streams_taken: None,
            heard: 0,
            waker: None,
            interims: VecDeque::new(),
            writer: None,
            is_writing_head: false,
            is_table_smaller: false,
            excess: None,
        }
    }

    /// Counts what the peer has sent. The clock is read only if a second's budget is used up.
    ///
    /// # Errors
    /// The budget that is exceeded. The connection must be closed; every later call returns the same error.
    pub fn read(&mut self, mut bytes: &[u8], now: impl Fn() -> Instant) -> Result<(), Excess> {
        if let Some(excess) = self.excess {
            return Err(excess);
        }
        self.heard += 1;
        let counted = self.count_all(&mut bytes, &now);
        self.excess = counted.err();
        counted
    }

    fn count_all(&mut self, bytes: &mut &[u8], now: &impl Fn() -> Instant) -> Result<(), Excess> {
        loop {
            if self.gathered.is_some() {
                self.gather(bytes)?;
            }
            let Some(head) = self.reads.next(bytes) else { return Ok(()) };
            self.is_announced |= head.kind == SETTINGS && head.flags & ACK == 0;
            if !self.is_announced {
                return Err(Excess::Unannounced);
            }
            self.faults.see(&head);
            self.received(head, now)?;
            if self.peer == PeerSide::Server && self.is_head {
                self.answers(head, bytes)?;
            }
        }
    }

    /// Looks at the head of an answer. It has usually come whole, and then nothing is copied.
    fn answers(&mut self, head: FrameHead, bytes: &[u8]) -> Result<(), Excess> {
        let is_whole = head.kind == HEADERS && head.flags & END_HEADERS != 0;
        match bytes.get(..head.length as usize) {
            Some(payload) if is_whole => {
                let fields = trailers::fields(head, payload).unwrap_or_default();
                self.answered_with(fields, head.flags & END_STREAM != 0)
            }
            // Not a larger one, because hyper refuses it.
            _ if head.length <= FRAME_BYTES_MAX => {
                self.gathered = Some((head, Vec::new()));
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Looks at the fields of an answer or its trailers. One that ends its stream is not an interim answer.
    fn answered_with(&mut self, fields: &[u8], ends: bool) -> Result<(), Excess> {
        let beginning = trailers::beginning(fields);
        self.has_interim |= beginning.is_interim && !ends;
        if beginning.is_of_a_request { Err(Excess::PseudoAnswer) } else { Ok(()) }
    }

    /// Takes a frame of a head that did not come in one piece; its fields stay until the last frame.
    fn answer_gathered(&mut self, head: FrameHead, payload: &[u8]) -> Result<(), Excess> {
        let (ends, fields) = match (head.kind, self.begun.take()) {
            (HEADERS, _) => {
                let fields = trailers::fields(head, payload).unwrap_or_default();
                (head.flags & END_STREAM != 0, fields.to_vec())
            }
            (_, Some((ends, mut fields))) => {
                fields.extend_from_slice(payload);
                (ends, fields)
            }
            // The rest of a head that is too long to be looked at, or that had no begin.
            (_, None) => return Ok(()),
        };
        if head.flags & END_HEADERS != 0 {
            return self.answered_with(&fields, ends);
        }
        if fields.len() <= ANSWER_BYTES_MAX {
            self.begun = Some((ends, fields));
        }
        Ok(())
    }

    /// Gathers a payload, and looks at it once it is whole.
    fn gather(&mut self, bytes: &mut &[u8]) -> Result<(), Excess> {
        let payload = self.reads.payload(bytes);
        let Some((head, gathered)) = &mut self.gathered else { return Ok(()) };
        gathered.extend_from_slice(payload);
        if gathered.len() < head.length as usize {
            return Ok(());
        }
        let (head, gathered) = (*head, std::mem::take(gathered));
        self.gathered = None;
        match (head.kind, self.peer) {
            (SETTINGS, _) => {
                self.faults.see_settings(&gathered);
                if head.flags & ACK == 0 {
                    self.settled(&gathered);
                }
            }
            (_, PeerSide::Server) => return self.answer_gathered(head, &gathered),
            (_, PeerSide::Client) if trailers::have_pseudo(head, &gathered) => {
                return Err(Excess::PseudoTrailers);
            }
            (_, PeerSide::Client) => {}
        }
        Ok(())
    }

    /// The peer's SETTINGS: without a word about streams, what it said before stays, and at first it takes any number
    /// (RFC 9113 section 6.5.2).
    fn settled(&mut self, payload: &[u8]) {
        for parameter in payload.chunks_exact(6) {
            let [0, kind, value @ ..] = parameter else { continue };
            let value = value.try_into().ok().map(u32::from_be_bytes);
            match *kind {
                MAX_CONCURRENT_STREAMS => self.streams_taken = value,
                HEADER_TABLE_SIZE => self.is_table_smaller |= value < Some(TABLE_BYTES),
                _ => {}
            }
        }
        self.streams_taken.get_or_insert(u32::MAX);
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }

    /// How many streams of ours the peer takes at once: known when its first SETTINGS have come.
    pub fn poll_streams(&mut self, cx: &Context<'_>) -> Poll<u32> {
        match self.streams_taken {
            Some(streams) => Poll::Ready(streams),
            None => {
                self.waker = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }

    /// How many streams of ours the peer takes at once, as far as it has said.
    pub fn streams_taken(&self) -> u32 {
        self.streams_taken.unwrap_or(u32::MAX)
    }

    /// How the peer has begun.
    pub fn opening(&self) -> Opening {
        match self.is_announced {
            true => Opening::Settings,
            false if self.reads.begins_with(crate::wire::TLS_ALERT) => Opening::TlsAlert,
            false => Opening::None,
        }
    }

    /// How many times something has come from the peer: as long as it stays the same, nothing has.
    pub fn heard(&self) -> u64 {
        self.heard
    }

    /// With which code the peer has announced the end of the connection: it takes no new streams (RFC 9113 section 6.8).
    pub fn goaway(&self) -> Option<u32> {
        self.goaway
    }

    fn received(&mut self, head: FrameHead, now: &impl Fn() -> Instant) -> Result<(), Excess> {
        self.is_head = matches!(head.kind, HEADERS | CONTINUATION);
        if self.is_head {
            self.heads += u64::from(head.kind == HEADERS);
            self.is_continued = head.flags & END_HEADERS == 0;
        }
        match (head.kind, self.peer) {
            (DATA | CONTINUATION, _) => Ok(()),
            (HEADERS, PeerSide::Client) => self.opened(head),
            (HEADERS, PeerSide::Server) => self.count(Excess::Headers, now),
            (RST_STREAM, peer) => {
                if peer == PeerSide::Client {
                    self.reset_by_client(head.stream)?;
                }
                self.count(Excess::Reset, now)
            }
            (PRIORITY, _) => self.count(Excess::Priority, now),
            (SETTINGS, _) => {
                if head.length <= FRAME_BYTES_MAX {
                    self.gathered = Some((head, Vec::new()));
                }
                self.count(Excess::Settings, now)
            }
            (PING, _) => self.count(Excess::Ping, now),
            (WINDOW_UPDATE, _) => self.count(Excess::WindowUpdate, now),
            (GOAWAY, _) => {
                self.goaway = Some(head.code);
                self.count(Excess::Other, now)
            }
            _ => self.count(Excess::Other, now),
        }
    }

    /// A second begins with the first frame after the one before is over. So at most twice the budget can come within any
    /// second, across that border.
    fn count(&mut self, kind: Excess, now: &impl Fn() -> Instant) -> Result<(), Excess> {
        let (earned, streams) = (self.earned, self.streams);
        let count = &mut self.counts[kind as usize];
        count.second += 1;
        count.ever += 1;
        if count.second <= count.allowed {
            return Ok(());
        }
        if count.ever > LIFETIME + earned {
            return Err(kind);
        }
        count.allowed = kind.per_second(streams).saturating_add(earned - count.earned);
        if count.second <= count.allowed {
            return Ok(());
        }
        let now = now();
        if now.saturating_duration_since(count.began) < SECOND {
            return Err(kind);
        }
        *count = FrameCount { second: 1, allowed: 0, ever: count.ever, began: now, earned };
        Ok(())
    }

    fn opened(&mut self, head: FrameHead) -> Result<(), Excess> {
        let stream = head.stream;
        if stream <= self.last || stream.is_multiple_of(2) {
            // Trailers, or what the protocol refuses on its own, as it does larger frames.
            if head.length <= FRAME_BYTES_MAX {
                self.gathered = Some((head, Vec::new()));
            }
            return Ok(());
        }
        self.last = stream;
        self.unread.push_back(UnreadStream { stream, is_reset: false, refused: None });
        if self.unread.len() > self.unread_max() {
            return Err(Excess::Unread);
        }
        Ok(())
    }

    fn unread_max(&self) -> usize {
        UNREAD_MAX.max(2 * self.streams as usize)
    }

    fn reset_by_client(&mut self, stream: u32) -> Result<(), Excess> {
        self.ended(stream);
        if let Some(unread) = self.unread.iter_mut().find(|unread| unread.stream == stream) {
            // It keeps its place in the order, because hyper still hands it over later.
            unread.is_reset = true;
        } else if let Some(place) = self.unanswered.iter().position(|open| *open == stream) {
            self.unanswered.swap_remove(place);
        } else {
            return Ok(());
        }
        self.taken_back += 1;
        // A client may cancel as many requests as may be open, once; beyond that, one for every two answered.
        if self.taken_back > u64::from(self.streams) + self.answered / 2 {
            return Err(Excess::RapidReset);
        }
        Ok(())
    }

    /// Counts what was sent to the peer.
    pub fn wrote(&mut self, mut bytes: &[u8]) {
        while let Some(head) = self.writes.next(&mut bytes) {
            match head.kind {
                DATA => {
                    if head.length > 0 {
                        self.earned += EARNED_BY_FRAME;
                        self.data_sent += u64::from(head.length);
                    }
                    if head.flags & END_STREAM != 0 {
                        self.ended(head.stream);
                    }
                }
                HEADERS => {
                    self.is_writing_head = head.flags & END_HEADERS == 0;
                    self.is_table_smaller = false;
                    self.earned += EARNED_BY_FRAME;
                    self.faults.open(head.stream);
                    self.answered_on(head);
                }
                CONTINUATION => self.is_writing_head = head.flags & END_HEADERS == 0,
                RST_STREAM => self.reset_by_us(head),
                GOAWAY => self.goaway_sent = Some(head.code),
                _ => {}
            }
        }
    }

    fn answered_on(&mut self, head: FrameHead) {
        let ends = head.flags & END_STREAM != 0;
        if let Some(place) = self.unanswered.iter().position(|open| *open == head.stream) {
            self.unanswered.swap_remove(place);
            self.answered += 1;
            if !ends {
                self.unended.push(head.stream);
            }
        } else if let Some(unread) = self.forget_unread(head.stream) {
            // hyper's own answer (fields too large) has no body. An answer with a body is ours, to a request that was not
            // matched because hyper handed requests over in another order than expected; then only the counts are off.
            if ends {
                self.refuse(HyperRefusal::TooLarge);
            } else {
                self.answered += 1;
                // Not if the client has taken it back, because nothing follows then.
                if !unread.is_reset {
                    self.unended.push(head.stream);
                }
            }
        } else if ends {
            self.ended(head.stream);
        }
    }

    /// An answer is whole, or its stream was reset. Looked for from the end, because most end as soon as they begin.
    fn ended(&mut self, stream: u32) {
        if let Some(place) = self.unended.iter().rposition(|unended| *unended == stream) {
            self.unended.swap_remove(place);
        }
    }

    fn reset_by_us(&mut self, head: FrameHead) {
        self.ended(head.stream);
        if let Some(place) = self.unanswered.iter().position(|open| *open == head.stream) {
            self.unanswered.swap_remove(place);
            self.broken += u32::from(is_fault(head.code));
        } else if let Some(unread) = self.unread.iter_mut().find(|unread| unread.stream == head.stream) {
            unread.refused = Some(head.code);
        }
    }

    fn refuse(&mut self, refused: HyperRefusal) {
        // Bounded, although the connection takes them out after every poll.
        if self.refused.len() < UNREAD_MAX {
            self.refused.push(refused);
        }
    }

    fn forget_unread(&mut self, stream: u32) -> Option<UnreadStream> {
        let place = self.unread.iter().position(|unread| unread.stream == stream)?;
        self.unread.remove(place)
    }

    /// hyper has handed over the next request. It does so in the order they came, except for those it refuses. Returns its
    /// stream, if it waits for an answer.
    pub fn accepted(&mut self) -> Option<StreamId> {
        let place = self.unread.iter().position(|unread| unread.refused.is_none());
        let unread = self.unread.remove(place.unwrap_or(0))?;
        if let Some(code) = unread.refused {
            self.broken += u32::from(is_fault(code));
        } else if !unread.is_reset && self.unanswered.len() < self.unread_max() {
            self.unanswered.push(unread.stream);
            return Some(StreamId(unread.stream));
        }
        None
    }

    /// Has `100 Continue` sent on a stream, before its answer.
    pub fn say_continue(&mut self, stream: StreamId) {
        self.say(stream, STATUS_100);
    }

    /// Has `103 Early Hints` with these fields sent on a stream, before its answer. Long ones are left out, and so are those that
    /// come while others wait for a client that does not read.
    pub fn give_hints(&mut self, stream: StreamId, fields: &HeaderMap) {
        let mut block = STATUS_103.to_vec();
        for (name, value) in fields {
            // A literal in no table, its name, too (RFC 7541 section 6.2.2).
            block.push(0);
            push_text(name.as_str().as_bytes(), &mut block);
            push_text(value.as_bytes(), &mut block);
        }
        if block.len() <= HINTS_BYTES_MAX && self.interims.len() < INTERIMS_MAX {
            self.say(stream, &block);
        }
    }

    fn say(&mut self, stream: StreamId, block: &[u8]) {
        let StreamId(id) = stream;
        self.interims.push_back((stream, frame(HEADERS, END_HEADERS, id, block)));
        if let Some(writer) = &self.writer {
            writer.wake_by_ref();
        }
    }

    /// Who writes is woken when there is an interim answer.
    pub(super) fn written_by(&mut self, cx: &Context<'_>) {
        self.writer.get_or_insert_with(|| cx.waker().clone());
    }

    /// The next interim answer, if one may be written now. Those that come too late are dropped.
    pub(super) fn next_interim(&mut self) -> Option<Vec<u8>> {
        if self.interims.is_empty() || !self.may_interpose() {
            return None;
        }
        loop {
            let (StreamId(stream), frame) = self.interims.pop_front()?;
            if self.unanswered.contains(&stream) && !self.is_table_smaller {
                return Some(frame);
            }
        }
    }

    /// Takes out a request that hyper refused. Only valid after hyper has handed over all requests that it can.
    pub fn take_refused(&mut self) -> Option<HyperRefusal> {
        self.refused.pop().or_else(|| {
            let place = self.unread.iter().position(|unread| unread.refused.is_some())?;
            self.unread.remove(place)?.refused.map(HyperRefusal::Reset)
        })
    }

    /// Takes out how many requests were reset, after they were handed over, because the client broke the protocol.
    pub fn take_broken(&mut self) -> u32 {
        std::mem::take(&mut self.broken)
    }

    /// Requests that the client cancelled before they were answered.
    pub fn taken_back(&self) -> u64 {
        self.taken_back
    }

    /// Requests that hyper has handed over and nobody has answered.
    pub fn unanswered(&self) -> usize {
        self.unanswered.len()
    }

    /// Answers of which the head was sent and the end was not.
    pub fn unended(&self) -> usize {
        self.unended.len()
    }

    /// Bytes of bodies that were sent.
    pub fn data_sent(&self) -> u64 {
        self.data_sent
    }

    /// The code of the last GOAWAY that was sent.
    pub fn goaway_sent(&self) -> Option<u32> {
        self.goaway_sent
    }

    /// The error code for a GOAWAY, where hyper only says PROTOCOL_ERROR.
    pub fn fault(&self) -> u8 {
        self.faults.code()
    }

    /// Whether the server has ever sent an interim answer (1xx).
    pub fn has_interim(&self) -> bool {
        self.has_interim
    }

    /// The budget that was exceeded, if one was.
    pub fn excess(&self) -> Option<Excess> {
        self.excess
    }

    /// How many heads have begun so far, and whether the last is incomplete: then no other frame may come before its rest.
    pub fn head(&self) -> (u64, bool) {
        (self.heads, self.is_continued || (self.is_head && !self.reads.is_between_frames()))
    }

    /// Whether `bytes`, if they are written next, end at the end of a frame.
    pub fn ends_between_frames(&self, mut bytes: &[u8]) -> bool {
        // A copy, because these bytes are not written yet.
        let mut writes = self.writes.clone();
        while writes.next(&mut bytes).is_some() {}
        writes.is_between_frames()
    }

    /// Whether a frame of ours may be written now: not within another one, nor between those of one head.
    pub fn may_interpose(&self) -> bool {
        self.writes.is_between_frames() && !self.is_writing_head
    }
}

/// Whether a reset with this code means that the client has broken a rule (RFC 9113 section 7).
fn is_fault(code: u32) -> bool {
    [PROTOCOL_ERROR, FLOW_CONTROL_ERROR, STREAM_CLOSED, FRAME_SIZE_ERROR].map(u32::from).contains(&code)
}

/// A text of HPACK, not compressed (RFC 7541 sections 5.1 and 5.2).
fn push_text(text: &[u8], block: &mut Vec<u8>) {
    let mut rest = text.len();
    if rest < 127 {
        block.push(rest as u8);
    } else {
        block.push(127);
        rest -= 127;
        while rest >= 128 {
            block.push(rest as u8 | 128);
            rest >>= 7;
        }
        block.push(rest as u8);
    }
    block.extend_from_slice(text);
}

/// The longest `103 Early Hints`, and how many interim answers wait at most before one more is left out.
const HINTS_BYTES_MAX: usize = 8 * 1024;
const INTERIMS_MAX: usize = 16;
/// RFC 9113 section 6.5.2: SETTINGS_HEADER_TABLE_SIZE, and its value at first.
const HEADER_TABLE_SIZE: u8 = 1;
const TABLE_BYTES: u32 = 4_096;
/// `:status: 100` in HPACK, in no table (RFC 7541 section 6.2.2), so that it stands beside any head of hyper's.
const STATUS_100: &[u8] = b"\x08\x03100";
/// `:status: 103` in the same form.
const STATUS_103: &[u8] = b"\x08\x03103";
/// The number of SETTINGS_MAX_CONCURRENT_STREAMS (RFC 9113 section 6.5.2).
const MAX_CONCURRENT_STREAMS: u8 = 3;
/// Kinds that are counted by the second; the numbers of [`Excess`] index them.
const COUNTED: usize = Excess::Unread as usize + 1;
const SECOND: Duration = Duration::from_secs(1);
/// Frames of one kind in the life of a connection, beside those earned.
const LIFETIME: u64 = 10_000;
/// What each frame of an answer (a request, to an upstream) lets the peer send more of each kind. Envoy's figure for
/// WINDOW_UPDATE.
const EARNED_BY_FRAME: u64 = 10;
/// The largest frame we take (RFC 9113 section 4.2), bytes.
const FRAME_BYTES_MAX: u32 = 16_384;
/// The fields of an answer that are looked at: all that the protocol takes (`connect.rs`), compressed.
const ANSWER_BYTES_MAX: usize = 64 * 1024;
/// Requests that hyper has not handed over: at least this many may wait, or twice the number that may be open.
const UNREAD_MAX: usize = 1024;
