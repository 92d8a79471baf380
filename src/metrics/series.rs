//! The figures of one route, policy, upstream, listener or reason: what each can count, in words of its trade.
//!
//! Every method takes the [`Worker`] that counts and costs a few plain memory accesses.

use super::cells::{Cells, Worker};
use super::histogram::{BUCKETS, Reading, bucket};

/// Requests of one route, by status, with their durations and bytes.
#[derive(Debug)]
pub struct Route(Cells<{ route::SLOTS }>);

/// What a route counts of a finished request.
#[derive(Clone, Copy, Debug, Default)]
pub struct Request {
    /// Status answered.
    pub status: u16,
    /// From its head to the answer's last byte, nanoseconds.
    pub duration_ns: u64,
    /// Bytes of body received.
    pub bytes_in: u64,
    /// Bytes of body sent.
    pub bytes_out: u64,
}

impl Route {
    pub(super) fn new(workers: usize) -> Route {
        Route(Cells::new(workers))
    }

    /// A request is over.
    pub fn finished(&self, worker: &Worker, request: &Request) {
        let row = self.0.row(worker);
        row.add(code_slot(request.status), 1);
        row.add(route::BUCKETS_FIRST + bucket(request.duration_ns), 1);
        row.add(route::SUM_NS, request.duration_ns);
        row.add(route::BYTES_IN, request.bytes_in);
        row.add(route::BYTES_OUT, request.bytes_out);
    }

    /// Requests so far by code: a known status, or its class (`4xx`). Only those that occurred.
    pub(super) fn by_code(&self) -> Vec<(String, u64)> {
        (0..CODES)
            .map(|slot| (slot, self.0.total(slot)))
            .filter(|(_, count)| *count > 0)
            .map(|(slot, count)| (code_label(slot), count))
            .collect()
    }

    pub(super) fn durations(&self) -> Reading {
        Reading { buckets: self.0.totals(route::BUCKETS_FIRST), sum_ns: self.0.total(route::SUM_NS) }
    }

    pub(super) fn bytes_in(&self) -> u64 {
        self.0.total(route::BYTES_IN)
    }

    pub(super) fn bytes_out(&self) -> u64 {
        self.0.total(route::BYTES_OUT)
    }

    pub(super) fn requests_of_worker(&self, index: usize) -> u64 {
        (0..CODES).map(|slot| self.0.of_worker(index, slot)).sum()
    }

    pub(super) fn is_used(&self) -> bool {
        self.0.is_used()
    }
}

mod route {
    pub(super) const BUCKETS_FIRST: usize = super::CODES;
    pub(super) const SUM_NS: usize = BUCKETS_FIRST + super::BUCKETS;
    pub(super) const BYTES_IN: usize = SUM_NS + 1;
    pub(super) const BYTES_OUT: usize = BYTES_IN + 1;
    pub(super) const SLOTS: usize = BYTES_OUT + 1;
}

/// Decisions of one policy.
#[derive(Debug)]
pub struct Policy(Cells<{ Decision::ALL.len() + Tier::ALL.len() }>);

/// Who decided a request for a policy, the nearest first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Tier {
    /// This node, by what it counts or holds.
    #[default]
    Local,
    /// The centre that a fleet shares.
    Global,
    /// This node, because the centre did not answer.
    Fallback,
}

impl Tier {
    pub(super) const ALL: [Tier; 3] = [Tier::Local, Tier::Global, Tier::Fallback];

    /// As metrics, logs and problems have it.
    pub fn label(self) -> &'static str {
        match self {
            Tier::Local => "local",
            Tier::Global => "global",
            Tier::Fallback => "fallback",
        }
    }
}

/// What a policy decided of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Every window admitted it.
    Admitted,
    /// A window was over: the request was refused.
    Denied,
    /// A window was over, but the policy is in shadow: the request passed.
    ShadowDenied,
    /// A dimension of the key was absent, and the policy refuses that.
    MissingRejected,
    /// The caller did not wait when it was told to, and is kept out for longer.
    Penalised,
    /// It would be, but the policy is in shadow.
    ShadowPenalised,
}

impl Decision {
    pub(super) const ALL: [Decision; 6] = [
        Decision::Admitted,
        Decision::Denied,
        Decision::ShadowDenied,
        Decision::MissingRejected,
        Decision::Penalised,
        Decision::ShadowPenalised,
    ];

    pub(super) fn label(self) -> &'static str {
        match self {
            Decision::Admitted => "admitted",
            Decision::Denied => "denied",
            Decision::ShadowDenied => "shadow-denied",
            Decision::MissingRejected => "missing-rejected",
            Decision::Penalised => "penalised",
            Decision::ShadowPenalised => "shadow-penalised",
        }
    }
}

impl Policy {
    pub(super) fn new(workers: usize) -> Policy {
        Policy(Cells::new(workers))
    }

    /// The policy decided.
    pub fn decided(&self, worker: &Worker, decision: Decision) {
        self.0.count(worker, decision as usize);
    }

    /// It was decided there.
    pub fn decided_by(&self, worker: &Worker, tier: Tier) {
        self.0.count(worker, Decision::ALL.len() + tier as usize);
    }

    pub(super) fn decisions(&self, decision: Decision) -> u64 {
        self.0.total(decision as usize)
    }

    pub(super) fn decisions_by(&self, tier: Tier) -> u64 {
        self.0.total(Decision::ALL.len() + tier as usize)
    }
}

/// Requests this gateway refused for one reason.
#[derive(Debug)]
pub struct Refusal(Cells<1>);

impl Refusal {
    pub(super) fn new(workers: usize) -> Refusal {
        Refusal(Cells::new(workers))
    }

    /// A request was refused for this reason.
    pub fn count(&self, worker: &Worker) {
        self.0.count(worker, 0);
    }

    pub(super) fn total(&self) -> u64 {
        self.0.total(0)
    }
}

/// Exchanges with one upstream; the state of its connections is [`super::PoolUsage`].
#[derive(Debug)]
pub struct Upstream(Cells<{ upstream::SLOTS }>);

/// How one try to have a request answered by an upstream server ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exchange {
    /// The whole answer came.
    Answered,
    /// No connection could be made (refused, unreachable, TLS failed).
    ConnectFailed,
    /// Nor within the connect deadline.
    ConnectTimeout,
    /// The server's name has no address.
    Unresolved,
    /// No connection came free in time, or too many waited for one.
    PoolExhausted,
    /// No answer's head within the response deadline.
    ResponseTimeout,
    /// The answer's body stood still for too long.
    StallTimeout,
    /// The whole exchange took too long.
    TotalTimeout,
    /// The server broke the connection before the answer was whole.
    Reset,
    /// What came is not an HTTP answer, or not one that may be passed on.
    BadAnswer,
    /// The client went away first.
    ClientGone,
}

impl Exchange {
    pub(super) const ALL: [Exchange; 11] = [
        Exchange::Answered,
        Exchange::ConnectFailed,
        Exchange::ConnectTimeout,
        Exchange::Unresolved,
        Exchange::PoolExhausted,
        Exchange::ResponseTimeout,
        Exchange::StallTimeout,
        Exchange::TotalTimeout,
        Exchange::Reset,
        Exchange::BadAnswer,
        Exchange::ClientGone,
    ];

    pub(super) fn label(self) -> &'static str {
        match self {
            Exchange::Answered => "answered",
            Exchange::ConnectFailed => "connect-failed",
            Exchange::ConnectTimeout => "connect-timeout",
            Exchange::Unresolved => "unresolved",
            Exchange::PoolExhausted => "pool-exhausted",
            Exchange::ResponseTimeout => "response-timeout",
            Exchange::StallTimeout => "stall-timeout",
            Exchange::TotalTimeout => "total-timeout",
            Exchange::Reset => "reset",
            Exchange::BadAnswer => "bad-answer",
            Exchange::ClientGone => "client-gone",
        }
    }
}

impl Upstream {
    pub(super) fn new(workers: usize) -> Upstream {
        Upstream(Cells::new(workers))
    }

    /// A try is over, in whichever way; a retry is a try of its own.
    pub fn exchanged(&self, worker: &Worker, exchange: Exchange) {
        self.0.count(worker, upstream::EXCHANGES_FIRST + exchange as usize);
    }

    /// An answer's head came, this long after the request's head was sent.
    pub fn answered(&self, worker: &Worker, first_byte_ns: u64) {
        let row = self.0.row(worker);
        row.add(upstream::BUCKETS_FIRST + bucket(first_byte_ns), 1);
        row.add(upstream::SUM_NS, first_byte_ns);
    }

    /// A connection was made.
    pub fn connected(&self, worker: &Worker) {
        self.0.count(worker, upstream::CONNECTS);
    }

    /// A connection could not be made.
    pub fn connect_failed(&self, worker: &Worker) {
        self.0.count(worker, upstream::CONNECT_FAILURES);
    }

    /// A request was sent a second time.
    pub fn retried(&self, worker: &Worker) {
        self.0.count(worker, upstream::RETRIES);
    }

    /// A retry was due but the budget was spent.
    pub fn retry_refused(&self, worker: &Worker) {
        self.0.count(worker, upstream::RETRIES_REFUSED);
    }

    pub(super) fn exchanges(&self, exchange: Exchange) -> u64 {
        self.0.total(upstream::EXCHANGES_FIRST + exchange as usize)
    }

    pub(super) fn first_bytes(&self) -> Reading {
        Reading { buckets: self.0.totals(upstream::BUCKETS_FIRST), sum_ns: self.0.total(upstream::SUM_NS) }
    }

    pub(super) fn connects(&self) -> u64 {
        self.0.total(upstream::CONNECTS)
    }

    pub(super) fn connect_failures(&self) -> u64 {
        self.0.total(upstream::CONNECT_FAILURES)
    }

    pub(super) fn retries(&self) -> u64 {
        self.0.total(upstream::RETRIES)
    }

    pub(super) fn retries_refused(&self) -> u64 {
        self.0.total(upstream::RETRIES_REFUSED)
    }

    pub(super) fn is_used(&self) -> bool {
        self.0.is_used()
    }
}

mod upstream {
    pub(super) const EXCHANGES_FIRST: usize = 0;
    pub(super) const BUCKETS_FIRST: usize = super::Exchange::ALL.len();
    pub(super) const SUM_NS: usize = BUCKETS_FIRST + super::BUCKETS;
    pub(super) const CONNECTS: usize = SUM_NS + 1;
    pub(super) const CONNECT_FAILURES: usize = SUM_NS + 2;
    pub(super) const RETRIES: usize = SUM_NS + 3;
    pub(super) const RETRIES_REFUSED: usize = SUM_NS + 4;
    pub(super) const SLOTS: usize = RETRIES_REFUSED + 1;
}

/// Connections of one listener.
#[derive(Debug)]
pub struct Listener(Cells<{ listener::SLOTS }>);

/// Why a connection was closed as soon as it was accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// The listener has as many as it may.
    Connections,
    /// The client's address has as many as it may.
    ConnectionsPerIp,
    /// Memory runs out.
    Overload,
}

/// Which deadline closed a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deadline {
    /// The TLS handshake took too long.
    Handshake,
    /// A request's head took too long.
    Header,
    /// No request came.
    Idle,
    /// A body, or the reader of an answer, stood still.
    BodyStall,
}

impl Refused {
    pub(super) const ALL: [Refused; 3] = [Refused::Connections, Refused::ConnectionsPerIp, Refused::Overload];

    pub(super) fn label(self) -> &'static str {
        match self {
            Refused::Connections => "max-connections",
            Refused::ConnectionsPerIp => "max-connections-per-ip",
            Refused::Overload => "overload",
        }
    }
}

impl Deadline {
    pub(super) const ALL: [Deadline; 4] =
        [Deadline::Handshake, Deadline::Header, Deadline::Idle, Deadline::BodyStall];

    pub(super) fn label(self) -> &'static str {
        match self {
            Deadline::Handshake => "handshake",
            Deadline::Header => "header",
            Deadline::Idle => "idle",
            Deadline::BodyStall => "body-stall",
        }
    }
}

impl Listener {
    pub(super) fn new(workers: usize) -> Listener {
        Listener(Cells::new(workers))
    }

    /// A connection was accepted and is served; [`Listener::closed`] follows.
    pub fn opened(&self, worker: &Worker) {
        self.0.count(worker, listener::ACCEPTED);
        self.0.shift(worker, listener::OPEN, 1);
    }

    /// A connection that was opened is gone.
    pub fn closed(&self, worker: &Worker) {
        self.0.shift(worker, listener::OPEN, -1);
    }

    /// A connection was closed as soon as it was accepted; it never counts as opened.
    pub fn refused(&self, worker: &Worker, refused: Refused) {
        self.0.count(worker, listener::REFUSED_FIRST + refused as usize);
    }

    /// A TLS handshake failed otherwise than by its deadline.
    pub fn handshake_failed(&self, worker: &Worker) {
        self.0.count(worker, listener::HANDSHAKE_FAILURES);
    }

    /// A connection did not begin with the header of the PROXY protocol that it should have.
    pub fn announcement_failed(&self, worker: &Worker) {
        self.0.count(worker, listener::ANNOUNCEMENT_FAILURES);
    }

    /// A deadline closed a connection.
    pub fn deadline_passed(&self, worker: &Worker, deadline: Deadline) {
        self.0.count(worker, listener::DEADLINES_FIRST + deadline as usize);
    }

    pub(super) fn accepted(&self) -> u64 {
        self.0.total(listener::ACCEPTED)
    }

    pub(super) fn accepted_of_worker(&self, index: usize) -> u64 {
        self.0.of_worker(index, listener::ACCEPTED)
    }

    pub(super) fn open(&self) -> u64 {
        self.0.level(listener::OPEN)
    }

    pub(super) fn refusals(&self, refused: Refused) -> u64 {
        self.0.total(listener::REFUSED_FIRST + refused as usize)
    }

    pub(super) fn handshake_failures(&self) -> u64 {
        self.0.total(listener::HANDSHAKE_FAILURES)
    }

    pub(super) fn announcement_failures(&self) -> u64 {
        self.0.total(listener::ANNOUNCEMENT_FAILURES)
    }

    pub(super) fn deadlines(&self, deadline: Deadline) -> u64 {
        self.0.total(listener::DEADLINES_FIRST + deadline as usize)
    }
}

mod listener {
    pub(super) const ACCEPTED: usize = 0;
    pub(super) const OPEN: usize = 1;
    pub(super) const HANDSHAKE_FAILURES: usize = 2;
    pub(super) const ANNOUNCEMENT_FAILURES: usize = 3;
    pub(super) const REFUSED_FIRST: usize = 4;
    pub(super) const DEADLINES_FIRST: usize = REFUSED_FIRST + super::Refused::ALL.len();
    pub(super) const SLOTS: usize = DEADLINES_FIRST + super::Deadline::ALL.len();
}

/// Statuses counted by themselves; any other is counted with its class. A slot for every number would be four
/// kilobytes a route and worker.
const KNOWN_CODES: [u16; 37] = [
    101, 200, 201, 202, 204, 206, 301, 302, 303, 304, 307, 308, 400, 401, 403, 404, 405, 406, 408, 409, 410,
    411, 412, 413, 414, 415, 416, 422, 429, 431, 499, 500, 501, 502, 503, 504, 505,
];
const CLASSES: [&str; 6] = ["1xx", "2xx", "3xx", "4xx", "5xx", "other"];
const CODES: usize = KNOWN_CODES.len() + CLASSES.len();

fn code_slot(status: u16) -> usize {
    CODE_SLOTS.get(usize::from(status)).map_or(CODES - 1, |slot| usize::from(*slot))
}

fn code_label(slot: usize) -> String {
    match KNOWN_CODES.get(slot) {
        Some(code) => code.to_string(),
        None => CLASSES[slot - KNOWN_CODES.len()].to_owned(),
    }
}

/// The slot of every status below 600, worked out by the compiler.
static CODE_SLOTS: [u8; 600] = {
    let mut slots = [(CODES - 1) as u8; 600];
    let mut status = 100;
    while status < slots.len() {
        slots[status] = (KNOWN_CODES.len() + status / 100 - 1) as u8;
        status += 1;
    }
    let mut known = 0;
    while known < KNOWN_CODES.len() {
        slots[KNOWN_CODES[known] as usize] = known as u8;
        known += 1;
    }
    slots
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_status_has_a_label() {
        let labels = [(200, "200"), (429, "429"), (505, "505"), (207, "2xx"), (418, "4xx"), (599, "5xx")];
        for (status, label) in labels {
            assert_eq!(code_label(code_slot(status)), label);
        }
        for strange in [0, 99, 600, 999, u16::MAX] {
            assert_eq!(code_label(code_slot(strange)), "other");
        }
    }

    #[test]
    fn a_finished_request_is_counted_whole() {
        let route = Route::new(2);
        let worker = Worker::new(1);
        let request = Request { status: 204, duration_ns: 2_000_000, bytes_in: 10, bytes_out: 20 };
        route.finished(&worker, &request);
        route.finished(&worker, &request);
        assert_eq!(route.by_code(), [("204".to_owned(), 2)]);
        assert_eq!(route.durations().count(), 2);
        assert_eq!(route.durations().sum_ns, 4_000_000);
        assert_eq!((route.bytes_in(), route.bytes_out()), (20, 40));
        assert_eq!((route.requests_of_worker(0), route.requests_of_worker(1)), (0, 2));
    }

    #[test]
    fn slots_of_a_closed_set_follow_its_order() {
        for (index, exchange) in Exchange::ALL.into_iter().enumerate() {
            assert_eq!(exchange as usize, index);
        }
        for (index, decision) in Decision::ALL.into_iter().enumerate() {
            assert_eq!(decision as usize, index);
        }
        for (index, deadline) in Deadline::ALL.into_iter().enumerate() {
            assert_eq!(deadline as usize, index);
        }
        for (index, refused) in Refused::ALL.into_iter().enumerate() {
            assert_eq!(refused as usize, index);
        }
    }
}
