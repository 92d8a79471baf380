//! Exchanges with one upstream, and its connections as they are made.

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;

use crate::cells::{Cells, WorkerToken};
use crate::families::{Families, LabelledSeries};
use crate::grid::{CELLS, cell};
use crate::histogram::HistogramReading;

/// Exchanges with one upstream; the state of its connections is in `upstream`.
#[derive(Debug)]
pub struct UpstreamSeries(Cells<{ slot::SLOTS }>);

words! {
    /// How one try to have a request answered by an upstream server ended.
    pub enum ExchangeOutcome {
        Answered: "answered",
        /// No connection could be made (refused, unreachable, TLS failed).
        ConnectFailed: "connect-failed",
        /// Nor within the connect deadline.
        ConnectTimeout: "connect-timeout",
        /// The server's name has no address.
        Unresolved: "unresolved",
        /// No connection came free in time, or too many waited for one.
        PoolExhausted: "pool-exhausted",
        /// No answer's head within the response deadline.
        ResponseTimeout: "response-timeout",
        /// The answer's body stood still for too long.
        StallTimeout: "stall-timeout",
        /// The whole exchange took too long.
        TotalTimeout: "total-timeout",
        /// The server broke the connection before the answer was whole.
        Reset: "reset",
        /// What came is not an HTTP answer, or not one that may be passed on.
        BadAnswer: "bad-answer",
        ClientGone: "client-gone",
        /// Another try of the same request was answered first.
        Cancelled: "cancelled",
    }
}

words! {
    /// A version of IP, as the addresses of a name may have both.
    #[derive(PartialOrd, Ord)]
    pub enum IpVersion {
        V4: "ipv4",
        V6: "ipv6",
    }
}

impl IpVersion {
    pub fn of(address: SocketAddr) -> IpVersion {
        if address.is_ipv4() { IpVersion::V4 } else { IpVersion::V6 }
    }

    pub fn other(self) -> IpVersion {
        match self {
            IpVersion::V4 => IpVersion::V6,
            IpVersion::V6 => IpVersion::V4,
        }
    }
}

words! {
    /// What became of a copy that was to go to a mirror.
    pub enum MirrorOutcome {
        Answered: "answered",
        /// None came, or not in time.
        Failed: "failed",
        /// It was not sent: too many others were on their way, or memory was short.
        TooMany: "too-many",
        /// It was not sent: the request's body is too large.
        TooLarge: "too-large",
        /// It was not sent: the request's body broke off, or its first server did not take all of it.
        Incomplete: "incomplete",
    }
}

impl UpstreamSeries {
    pub(crate) fn new(workers: usize) -> UpstreamSeries {
        UpstreamSeries(Cells::new(workers))
    }

    /// A try is over, in whichever way; a retry is a try of its own.
    pub fn exchanged(&self, worker: &WorkerToken, exchange: ExchangeOutcome) {
        self.0.count(worker, slot::EXCHANGES_FIRST + exchange as usize);
    }

    /// An answer's head came, this long after the request's head was sent.
    pub fn answered(&self, worker: &WorkerToken, first_byte_ns: u64) {
        let row = self.0.row(worker);
        row.add(slot::CELLS_FIRST + cell(first_byte_ns), 1);
        row.add(slot::SUM_NS, first_byte_ns);
    }

    pub fn connected(&self, worker: &WorkerToken) {
        self.0.count(worker, slot::CONNECTS);
    }

    /// A connection could not be made.
    pub fn connect_failed(&self, worker: &WorkerToken) {
        self.0.count(worker, slot::CONNECT_FAILURES);
    }

    /// A request went to a server of the same name and the other version of IP, because a connection over this one was
    /// not there soon enough.
    pub fn went_around(&self, worker: &WorkerToken, version: IpVersion) {
        self.0.count(worker, slot::AROUND_FIRST + version as usize);
    }

    /// A request was sent a second time.
    pub fn retried(&self, worker: &WorkerToken) {
        self.0.count(worker, slot::RETRIES);
    }

    /// A retry was due but the budget was spent.
    pub fn retry_refused(&self, worker: &WorkerToken) {
        self.0.count(worker, slot::RETRIES_REFUSED);
    }

    /// A second server was asked while the first had not answered; whether its answer is the one that was used.
    pub fn hedged(&self, worker: &WorkerToken, is_won: bool) {
        self.0.count(worker, if is_won { slot::HEDGES_WON } else { slot::HEDGES_LOST });
    }

    /// A copy of a request was to go there as to a mirror.
    pub fn mirrored(&self, worker: &WorkerToken, result: MirrorOutcome) {
        self.0.count(worker, slot::MIRRORED_FIRST + result as usize);
    }

    pub(crate) fn first_bytes(&self) -> HistogramReading {
        HistogramReading { cells: self.0.totals(slot::CELLS_FIRST), sum_ns: self.0.total(slot::SUM_NS) }
    }
}

pub(crate) fn families(
    upstreams: &[LabelledSeries<UpstreamSeries>],
    families: &mut Families<'_>,
) -> fmt::Result {
    let used = || upstreams.iter().filter(|(_, upstream)| upstream.0.is_used());
    families.counters_of_each(
        ("upstream_exchanges", "Attempts to send a request to an upstream, by how they ended"),
        ["upstream", "outcome"],
        used(),
        |it| ExchangeOutcome::ALL.map(|one| (one.word(), it.0.total(slot::EXCHANGES_FIRST + one as usize))),
    )?;
    families.distributions(
        "upstream_first_byte",
        "Time from sending a request's head to receiving the head of the response",
        used().map(|(name, upstream)| {
            ([("upstream", &**name)], upstream.first_bytes().distribution(BTreeMap::new()))
        }),
    )?;
    families.counters_of_each(
        ("upstream_retries", "Retries sent, and retries that the budget did not allow"),
        ["upstream", "result"],
        used(),
        |it| [("sent", it.0.total(slot::RETRIES)), ("over-budget", it.0.total(slot::RETRIES_REFUSED))],
    )?;
    families.counters_of_each(
        ("upstream_hedges", "Hedged requests, by whether the second server was faster than the first"),
        ["upstream", "result"],
        used(),
        |it| [("won", it.0.total(slot::HEDGES_WON)), ("lost", it.0.total(slot::HEDGES_LOST))],
    )?;
    families.counters_of_each(
        ("upstream_mirrored", "Copies of requests for an upstream that is a mirror, by outcome"),
        ["upstream", "result"],
        used(),
        |it| MirrorOutcome::ALL.map(|one| (one.word(), it.0.total(slot::MIRRORED_FIRST + one as usize))),
    )?;
    let made = ("upstream_connects", "Connections made to an upstream");
    families.counter_of_each(made, "upstream", used(), |it| it.0.total(slot::CONNECTS))?;
    let failed = ("upstream_connect_failures", "Connections to an upstream that failed");
    families.counter_of_each(failed, "upstream", used(), |it| it.0.total(slot::CONNECT_FAILURES))?;
    families.counters_of_each(
        (
            "upstream_family_fallbacks",
            "Requests sent over the other IP version, because a connection over this one hung or failed",
        ),
        ["upstream", "family"],
        used(),
        |it| IpVersion::ALL.map(|one| (one.word(), it.0.total(slot::AROUND_FIRST + one as usize))),
    )
}

mod slot {
    pub(super) const EXCHANGES_FIRST: usize = 0;
    pub(super) const CELLS_FIRST: usize = super::ExchangeOutcome::ALL.len();
    pub(super) const SUM_NS: usize = CELLS_FIRST + super::CELLS;
    pub(super) const CONNECTS: usize = SUM_NS + 1;
    pub(super) const CONNECT_FAILURES: usize = SUM_NS + 2;
    pub(super) const RETRIES: usize = SUM_NS + 3;
    pub(super) const RETRIES_REFUSED: usize = SUM_NS + 4;
    pub(super) const HEDGES_WON: usize = RETRIES_REFUSED + 1;
    pub(super) const HEDGES_LOST: usize = HEDGES_WON + 1;
    pub(super) const MIRRORED_FIRST: usize = HEDGES_LOST + 1;
    pub(super) const AROUND_FIRST: usize = MIRRORED_FIRST + super::MirrorOutcome::ALL.len();
    pub(super) const SLOTS: usize = AROUND_FIRST + super::IpVersion::ALL.len();
}
