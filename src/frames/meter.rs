//! What a peer may make us do, and when it is too much.
//!
//! Each kind of frame that asks for work without asking for an answer has a budget a second and one for the life of
//! the connection. What we send of answers (or, to an upstream, of requests) earns the peer more: whoever downloads
//! must open windows, and a library that measures its path asks with PING at every burst. What the protocol's own
//! implementation bounds already is not counted again: CONTINUATION, empty and tiny DATA, resets for errors.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use super::splitter::{
    CONTINUATION, DATA, END_HEADERS, END_STREAM, GOAWAY, HEADERS, Head, PING, PRIORITY, RST_STREAM, SETTINGS,
    Splitter, WINDOW_UPDATE,
};
use super::trailers;

/// Who is at the other end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peer {
    /// A client: it opens streams.
    Client,
    /// A server: it answers on ours.
    Server,
}

/// What a peer did too often.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Excess {
    /// Requests taken back before they were answered (CVE-2023-44487).
    RapidReset,
    /// RST_STREAM in all.
    Reset,
    /// SETTINGS, answers to ours included.
    Settings,
    /// PING, answers to ours included.
    Ping,
    /// PRIORITY.
    Priority,
    /// WINDOW_UPDATE.
    WindowUpdate,
    /// HEADERS of a server beyond what we asked for: informational answers without end.
    Headers,
    /// Frames of other kinds, GOAWAY among them.
    Other,
    /// Requests on the wire that nobody has taken.
    Unread,
    /// Trailers with a pseudo-header: one is too many.
    PseudoTrailers,
}

impl Excess {
    /// In a word, for logs.
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
        }
    }

    /// Whether this is counted by the second.
    fn per_second(self, streams: u32) -> u64 {
        match self {
            Excess::Settings => 50,
            Excess::Ping | Excess::Priority | Excess::Headers | Excess::Other => 100,
            // A client may leave all its requests at once, and opens each stream's window where it likes.
            Excess::Reset => u64::from(streams).max(100),
            Excess::WindowUpdate => 100 + 2 * u64::from(streams),
            Excess::RapidReset | Excess::Unread | Excess::PseudoTrailers => u64::MAX,
        }
    }
}

/// A request that was refused before anybody here read it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// By a reset with this code (RFC 9113 section 7).
    Reset(u32),
    /// By an answer: the fields were too long.
    TooLarge,
}

/// Both directions of one connection, counted.
#[derive(Debug)]
pub struct Meter {
    peer: Peer,
    streams: u32,
    reads: Splitter,
    writes: Splitter,
    counts: [Count; COUNTED],
    /// Frames more that the peer has earned, since the connection began.
    earned: u64,
    /// The highest stream the client has opened.
    last: u32,
    /// Requests nobody has read yet, in the order they came.
    unread: VecDeque<Unread>,
    /// Requests without an answer.
    unanswered: Vec<u32>,
    answered: u64,
    taken_back: u64,
    refused: Vec<Refused>,
    /// HEADERS that have come.
    heads: u64,
    /// The last frame belongs to a head, or nothing has come yet.
    is_head: bool,
    /// Its fields go on in the next.
    is_continued: bool,
    /// Trailers of which a part has come.
    trailers: Option<(Head, Vec<u8>)>,
    data_sent: u64,
    goaway_sent: Option<u32>,
    excess: Option<Excess>,
}

#[derive(Clone, Copy, Debug)]
struct Unread {
    stream: u32,
    is_reset: bool,
}

/// One kind of frame: this second, and ever.
#[derive(Clone, Copy, Debug)]
struct Count {
    second: u64,
    allowed: u64,
    ever: u64,
    began: Instant,
    /// What had been earned when the second began.
    earned: u64,
}

impl Meter {
    /// A connection that begins now; `streams` is how many requests may be open at once.
    pub fn new(peer: Peer, streams: u32, now: Instant) -> Meter {
        let count = Count { second: 0, allowed: 0, ever: 0, began: now, earned: 0 };
        let (reads, writes) = match peer {
            Peer::Client => (Splitter::at_preface(), Splitter::new()),
            Peer::Server => (Splitter::new(), Splitter::at_preface()),
        };
        Meter {
            peer,
            streams,
            reads,
            writes,
            counts: [count; COUNTED],
            earned: 0,
            last: 0,
            unread: VecDeque::new(),
            unanswered: Vec::new(),
            answered: 0,
            taken_back: 0,
            refused: Vec::new(),
            heads: 0,
            is_head: true,
            is_continued: false,
            trailers: None,
            data_sent: 0,
            goaway_sent: None,
            excess: None,
        }
    }

    /// Counts what the peer has sent. The clock is read only where a second's budget is used up.
    ///
    /// # Errors
    /// What there is too much of: the connection is to be closed, and this answers the same from then on.
    pub fn read(&mut self, mut bytes: &[u8], now: impl Fn() -> Instant) -> Result<(), Excess> {
        if let Some(excess) = self.excess {
            return Err(excess);
        }
        let counted = self.count_all(&mut bytes, &now);
        self.excess = counted.err();
        counted
    }

    fn count_all(&mut self, bytes: &mut &[u8], now: &impl Fn() -> Instant) -> Result<(), Excess> {
        loop {
            if self.trailers.is_some() {
                self.read_trailers(bytes)?;
            }
            let Some(head) = self.reads.next(bytes) else { return Ok(()) };
            self.received(head, now)?;
        }
    }

    /// Gathers the payload of trailers, and looks at them once they are whole.
    fn read_trailers(&mut self, bytes: &mut &[u8]) -> Result<(), Excess> {
        let payload = self.reads.payload(bytes);
        let Some((head, gathered)) = &mut self.trailers else { return Ok(()) };
        gathered.extend_from_slice(payload);
        if gathered.len() < head.length as usize {
            return Ok(());
        }
        let is_malformed = trailers::have_pseudo(*head, gathered);
        self.trailers = None;
        if is_malformed { Err(Excess::PseudoTrailers) } else { Ok(()) }
    }

    fn received(&mut self, head: Head, now: &impl Fn() -> Instant) -> Result<(), Excess> {
        self.is_head = matches!(head.kind, HEADERS | CONTINUATION);
        if self.is_head {
            self.heads += u64::from(head.kind == HEADERS);
            self.is_continued = head.flags & END_HEADERS == 0;
        }
        match (head.kind, self.peer) {
            (DATA | CONTINUATION, _) => Ok(()),
            (HEADERS, Peer::Client) => self.opened(head),
            (HEADERS, Peer::Server) => self.count(Excess::Headers, now),
            (RST_STREAM, peer) => {
                if peer == Peer::Client {
                    self.reset_by_client(head.stream)?;
                }
                self.count(Excess::Reset, now)
            }
            (PRIORITY, _) => self.count(Excess::Priority, now),
            (SETTINGS, _) => self.count(Excess::Settings, now),
            (PING, _) => self.count(Excess::Ping, now),
            (WINDOW_UPDATE, _) => self.count(Excess::WindowUpdate, now),
            _ => self.count(Excess::Other, now),
        }
    }

    /// A budget a second begins with the first frame after the one before is over, so that twice of it may come
    /// within a second across that border and never more.
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
        *count = Count { second: 1, allowed: 0, ever: count.ever, began: now, earned };
        Ok(())
    }

    fn opened(&mut self, head: Head) -> Result<(), Excess> {
        let stream = head.stream;
        if stream <= self.last || stream.is_multiple_of(2) {
            // Trailers, or what the protocol refuses by itself, as it does larger frames.
            if head.length <= FRAME_BYTES_MAX {
                self.trailers = Some((head, Vec::new()));
            }
            return Ok(());
        }
        self.last = stream;
        self.unread.push_back(Unread { stream, is_reset: false });
        if self.unread.len() > UNREAD_MAX.max(2 * self.streams as usize) {
            return Err(Excess::Unread);
        }
        Ok(())
    }

    fn reset_by_client(&mut self, stream: u32) -> Result<(), Excess> {
        if let Some(unread) = self.unread.iter_mut().find(|unread| unread.stream == stream) {
            // It is read all the same, later: its place in the order stays.
            unread.is_reset = true;
        } else if let Some(place) = self.unanswered.iter().position(|open| *open == stream) {
            self.unanswered.swap_remove(place);
        } else {
            return Ok(());
        }
        self.taken_back += 1;
        // All of what may be open may be left once; beyond that, every other request.
        if self.taken_back > u64::from(self.streams) + self.answered / 2 {
            return Err(Excess::RapidReset);
        }
        Ok(())
    }

    /// Counts what was sent to the peer.
    pub fn wrote(&mut self, mut bytes: &[u8]) {
        while let Some(head) = self.writes.next(&mut bytes) {
            match head.kind {
                DATA if head.length > 0 => {
                    self.earned += EARNED_BY_FRAME;
                    self.data_sent += u64::from(head.length);
                }
                HEADERS => {
                    self.earned += EARNED_BY_FRAME;
                    self.answered_on(head);
                }
                RST_STREAM => self.reset_by_us(head),
                GOAWAY => self.goaway_sent = Some(head.code),
                _ => {}
            }
        }
    }

    fn answered_on(&mut self, head: Head) {
        if let Some(place) = self.unanswered.iter().position(|open| *open == head.stream) {
            self.unanswered.swap_remove(place);
            self.answered += 1;
        } else if head.flags & END_STREAM != 0 && self.forget_unread(head.stream) {
            self.refuse(Refused::TooLarge);
        }
    }

    fn reset_by_us(&mut self, head: Head) {
        if let Some(place) = self.unanswered.iter().position(|open| *open == head.stream) {
            self.unanswered.swap_remove(place);
        } else if self.forget_unread(head.stream) {
            self.refuse(Refused::Reset(head.code));
        }
    }

    fn refuse(&mut self, refused: Refused) {
        // Whoever reads these does so at every turn.
        if self.refused.len() < UNREAD_MAX {
            self.refused.push(refused);
        }
    }

    fn forget_unread(&mut self, stream: u32) -> bool {
        let place = self.unread.iter().position(|unread| unread.stream == stream);
        place.is_some_and(|place| self.unread.remove(place).is_some())
    }

    /// The next request of the client is being read; they are in the order they came.
    pub fn accepted(&mut self) {
        if let Some(unread) = self.unread.pop_front()
            && !unread.is_reset
        {
            self.unanswered.push(unread.stream);
        }
    }

    /// A request that was refused unread, each told once.
    pub fn take_refused(&mut self) -> Option<Refused> {
        self.refused.pop()
    }

    /// Requests that were taken back before they were answered.
    pub fn taken_back(&self) -> u64 {
        self.taken_back
    }

    /// Bytes of bodies that have gone out.
    pub fn data_sent(&self) -> u64 {
        self.data_sent
    }

    /// The code of the last GOAWAY that has gone out.
    pub fn goaway_sent(&self) -> Option<u32> {
        self.goaway_sent
    }

    /// What there was too much of.
    pub fn excess(&self) -> Option<Excess> {
        self.excess
    }

    /// Heads of messages begun so far, and whether the last is still to be continued: nothing else may come before.
    pub fn head(&self) -> (u64, bool) {
        (self.heads, self.is_continued || (self.is_head && !self.reads.is_between_frames()))
    }

    /// Whether a frame may be put in between what goes out.
    pub fn may_interpose(&self) -> bool {
        self.writes.is_between_frames()
    }
}

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
/// Requests on the wire that nobody has taken, where twice of what may be open is less.
const UNREAD_MAX: usize = 1024;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
        let mut bytes = (payload.len() as u32).to_be_bytes()[1..].to_vec();
        bytes.extend([kind, flags]);
        bytes.extend(stream.to_be_bytes());
        bytes.extend(payload);
        bytes
    }

    /// A meter behind the preface, and when it began.
    fn meter() -> (Meter, Instant) {
        let began = Instant::now();
        let mut meter = Meter::new(Peer::Client, 100, began);
        assert_eq!(meter.read(&[0; 24], || began), Ok(()));
        (meter, began)
    }

    /// How many of these frames pass at one moment.
    fn passing(meter: &mut Meter, bytes: &[u8], now: Instant, most: usize) -> usize {
        (0..most).take_while(|_| meter.read(bytes, || now).is_ok()).count()
    }

    #[test]
    fn each_kind_has_its_budget_a_second() {
        for (kind, budget, excess) in [
            (PING, 100, Excess::Ping),
            (SETTINGS, 50, Excess::Settings),
            (PRIORITY, 100, Excess::Priority),
            (WINDOW_UPDATE, 300, Excess::WindowUpdate),
            (GOAWAY, 100, Excess::Other),
            (0x77, 100, Excess::Other),
        ] {
            let (mut meter, now) = meter();
            let bytes = frame(kind, 0, 0, &[0; 8]);
            assert_eq!(passing(&mut meter, &bytes, now, 1_000), budget, "{excess:?}");
            assert_eq!(meter.excess(), Some(excess));
            assert_eq!(meter.read(&[], || now), Err(excess), "once over, always over");
        }
    }

    #[test]
    fn a_second_later_there_is_a_new_budget_until_the_lifetime_s_is_used_up() {
        let (mut meter, mut now) = meter();
        let bytes = frame(PING, 0, 0, &[0; 8]);
        for _ in 0..100 {
            assert_eq!(passing(&mut meter, &bytes, now, 100), 100);
            now += SECOND;
        }
        assert_eq!(passing(&mut meter, &bytes, now, 100), 0);
        assert_eq!(meter.excess(), Some(Excess::Ping));
    }

    #[test]
    fn what_is_sent_earns_the_peer_its_window_updates() {
        let (mut meter, now) = meter();
        let (update, data) = (frame(WINDOW_UPDATE, 0, 0, &[0; 4]), frame(DATA, 0, 1, &[0; 100]));
        for _ in 0..100_000 {
            meter.wrote(&data);
            assert_eq!(passing(&mut meter, &update, now, 10), 10);
        }
        assert_eq!(meter.data_sent(), 10_000_000);
        assert_eq!(passing(&mut meter, &update, now, 1_000), 300, "and not one more");
    }

    /// Opens a stream and has it read.
    fn request(meter: &mut Meter, stream: u32, now: Instant) {
        assert_eq!(meter.read(&frame(HEADERS, 5, stream, b"x"), || now), Ok(()));
        meter.accepted();
    }

    fn reset(meter: &mut Meter, stream: u32, now: Instant) -> Result<(), Excess> {
        meter.read(&frame(RST_STREAM, 0, stream, &[0, 0, 0, 8]), || now)
    }

    #[test]
    fn requests_taken_back_have_a_budget_that_answers_fill_up() {
        let (mut meter, mut now) = meter();
        let mut stream = 1;
        let mut take_back = |meter: &mut Meter| {
            now += SECOND;
            request(meter, stream, now);
            stream += 2;
            reset(meter, stream - 2, now)
        };
        for _ in 0..100 {
            assert_eq!(take_back(&mut meter), Ok(()));
        }
        for stream in [10_001, 10_003] {
            meter.unanswered.push(stream);
            meter.wrote(&frame(HEADERS, 4, stream, b"x"));
        }
        assert_eq!(take_back(&mut meter), Ok(()), "two answers");
        assert_eq!(take_back(&mut meter), Err(Excess::RapidReset));
    }

    #[test]
    fn an_answered_request_may_be_left() {
        let (mut meter, mut now) = meter();
        for stream in (1..2_000).step_by(2) {
            request(&mut meter, stream, now);
            meter.wrote(&frame(HEADERS, 4, stream, b"x"));
            assert_eq!(reset(&mut meter, stream, now), Ok(()));
            now += SECOND / 50;
        }
        assert_eq!(meter.taken_back, 0);
        assert_eq!((meter.unread.len(), meter.unanswered.len()), (0, 0));
    }

    #[test]
    fn a_request_reset_before_it_is_read_keeps_its_turn() {
        let (mut meter, now) = meter();
        for stream in [1, 3] {
            assert_eq!(meter.read(&frame(HEADERS, 5, stream, b"x"), || now), Ok(()));
        }
        assert_eq!(reset(&mut meter, 1, now), Ok(()));
        meter.accepted();
        meter.accepted();
        assert_eq!(meter.unanswered, [3]);
    }

    #[test]
    fn what_is_refused_unread_is_told_once() {
        let (mut meter, now) = meter();
        for stream in [1, 3, 5] {
            assert_eq!(meter.read(&frame(HEADERS, 5, stream, b"x"), || now), Ok(()));
        }
        meter.wrote(&frame(RST_STREAM, 0, 1, &[0, 0, 0, 1]));
        meter.wrote(&frame(HEADERS, 5, 3, b"431"));
        meter.accepted();
        meter.wrote(&frame(HEADERS, 5, 5, b"204"));
        let told: Vec<_> = std::iter::from_fn(|| meter.take_refused()).collect();
        assert_eq!(told, [Refused::TooLarge, Refused::Reset(1)]);
        assert_eq!(meter.answered, 1);
    }

    #[test]
    fn requests_nobody_takes_are_bounded() {
        let (mut meter, now) = meter();
        let opened = (1..10_000)
            .step_by(2)
            .take_while(|stream| meter.read(&frame(HEADERS, 5, *stream, b"x"), || now).is_ok());
        assert_eq!(opened.count(), UNREAD_MAX);
    }

    #[test]
    fn a_head_is_under_way_until_its_last_byte() {
        let now = Instant::now();
        let mut meter = Meter::new(Peer::Client, 100, now);
        assert_eq!(meter.head(), (0, true), "the preface");
        let mut pieces = |bytes: &[u8]| {
            assert_eq!(meter.read(bytes, || now), Ok(()));
            meter.head()
        };
        assert_eq!(pieces(&[0; 24]), (0, false));
        let whole = frame(HEADERS, 5, 1, b"xyz");
        assert_eq!(pieces(&whole[..10]), (1, true));
        assert_eq!(pieces(&whole[10..]), (1, false));
        assert_eq!(pieces(&frame(HEADERS, 1, 3, b"xyz")), (2, true));
        assert_eq!(pieces(&frame(CONTINUATION, 0, 3, b"xyz")), (2, true));
        assert_eq!(pieces(&frame(CONTINUATION, 4, 3, b"xyz")), (2, false));
        assert_eq!(pieces(&frame(DATA, 0, 1, b"xyz")[..10]), (2, false), "a body has its own deadline");
    }

    #[test]
    fn trailers_with_a_pseudo_header_end_it_however_they_are_cut() {
        let bytes = frame(HEADERS, 5, 1, b"\x00\x01a\x01b\x42\x03200");
        for size in 1..bytes.len() {
            let (mut meter, now) = meter();
            request(&mut meter, 1, now);
            let read: Vec<_> = bytes.chunks(size).map(|piece| meter.read(piece, || now)).collect();
            assert_eq!(read.last(), Some(&Err(Excess::PseudoTrailers)), "{size}");
        }
    }

    #[test]
    fn a_server_may_not_send_heads_without_end() {
        let now = Instant::now();
        let mut meter = Meter::new(Peer::Server, 100, now);
        meter.wrote(&[0; 24]);
        meter.wrote(&frame(HEADERS, 5, 1, b"x"));
        assert_eq!(passing(&mut meter, &frame(HEADERS, 4, 1, b"103"), now, 1_000), 110);
    }

    proptest! {
        #[test]
        fn any_cut_counts_the_same(
            frames in prop::collection::vec((0u8..12, any::<u8>(), 0u32..40, 0usize..30), 0..400),
            cuts in prop::collection::vec(1usize..60, 1..40),
        ) {
            let frames = frames.iter().map(|(kind, flags, stream, length)| {
                frame(*kind, *flags, *stream, &vec![*flags; *length])
            });
            let bytes: Vec<u8> = frames.flatten().collect();
            let counts = |meter: &Meter| {
                let ever: Vec<_> = meter.counts.iter().map(|count| count.ever).collect();
                (meter.excess, ever, meter.unread.len(), meter.taken_back, meter.head())
            };
            let (mut whole, now) = meter();
            let ended = whole.read(&bytes, || now);
            let (mut cut, _) = meter();
            let mut rest = &bytes[..];
            let mut size = cuts.iter().cycle();
            while !rest.is_empty() && cut.excess().is_none() {
                let (piece, left) = rest.split_at(size.next().map_or(1, |size| *size).min(rest.len()));
                let _ = cut.read(piece, || now);
                rest = left;
            }
            prop_assert_eq!(cut.excess(), ended.err());
            if ended.is_ok() {
                prop_assert_eq!(counts(&cut), counts(&whole));
            }
        }
    }
}
