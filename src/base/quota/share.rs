//! What one reporter has of one bucket: how much it wants, and what it was assigned and has not reported as spent.

use std::num::NonZeroU64;
use std::time::Duration;

use super::receipts::{Back, Receipts};
use super::{Assignment, Usage};

/// One reporter's share of one bucket.
#[derive(Clone, Debug)]
pub(super) struct Share<R> {
    /// When it last reported.
    reported_ns: u64,
    /// When it last reported a request.
    used_ns: u64,
    /// From one report to the next.
    interval_ns: u64,
    /// How often it has reported.
    reports: u64,
    /// Units that it wants from one report to the next.
    wanted: u64,
    /// Units that it should be given before its next report.
    need: u64,
    /// Requests from its last report but one to its last.
    seen: u64,
    /// Whether it has refused requests lately, so that nothing is left of what it was assigned.
    is_out: bool,
    /// When it will have spent what it was assigned, by what it has told.
    out_ns: u64,
    /// What it was assigned and has not spent, as far as it has told.
    held: Receipts<R>,
    /// Parts of a unit that it was not given in earlier rounds.
    pub(super) credit: u64,
    /// Units that had gathered and were kept from it, while nothing was known of it; `None`: all that there were.
    pub(super) kept: Option<u64>,
    /// The last round in which it had its turn.
    pub(super) round: u64,
    /// Units that it was assigned last.
    assigned: Option<NonZeroU64>,
    /// Whether it was told nothing of the bucket so far, on no stream.
    is_untold: bool,
}

impl<R: Clone> Share<R> {
    pub fn new(now_ns: u64) -> Share<R> {
        Share {
            reported_ns: now_ns,
            used_ns: now_ns,
            interval_ns: INTERVAL_FIRST_NS,
            reports: 0,
            wanted: 0,
            need: 0,
            seen: 0,
            is_out: false,
            out_ns: now_ns,
            held: Receipts::new(),
            credit: 0,
            kept: None,
            round: 0,
            assigned: None,
            is_untold: false,
        }
    }

    /// Takes a report. Returns how many units were spent that it did not have.
    pub fn report(&mut self, usage: &Usage, now_ns: u64) -> u64 {
        // Reports that have gathered on their way come at once, and each says what it is about.
        let elapsed_ns = now_ns.saturating_sub(self.reported_ns).max(usage.elapsed_ns);
        let elapsed_ns = elapsed_ns.clamp(INTERVAL_MIN_NS, INTERVAL_MAX_NS);
        self.interval_ns = match self.reports {
            0 => INTERVAL_FIRST_NS,
            // The first report of a bucket comes with its first request, the second whenever the next is due.
            1 => elapsed_ns.max(INTERVAL_MIN_NS),
            2 => elapsed_ns,
            _ => (self.interval_ns * 3 + elapsed_ns) / 4,
        };
        self.is_untold = usage.is_begun && self.reports == 0;
        self.reports += 1;
        self.reported_ns = now_ns;
        let seen = usage.allowed.saturating_add(usage.denied);
        self.seen = seen;
        if seen > 0 {
            self.used_ns = now_ns;
        }
        // A quarter more than last time, so that a load that grows is not refused for a report's time; not much less than
        // last time, because reports of a steady load differ.
        self.wanted = seen.saturating_add(seen.div_ceil(4)).max(self.wanted / 2).max(1);
        let unpaid = self.held.spend(usage.allowed);
        self.is_out = usage.denied > 0;
        self.need = match self.is_out {
            false if self.held.units() >= self.wanted => 0,
            // As much as there can be is not the same as unknown.
            _ => self.wanted.saturating_sub(self.held.units()).min(UNKNOWN - 1),
        };
        unpaid
    }

    /// Notes what one should have of which nothing is known but that it has come. `left`: what there is. If that `is_quick` to
    /// come back, waiting for its second report would waste it.
    pub fn expect(&mut self, left: u64, is_quick: bool) {
        if self.reports > 1 {
            return;
        }
        let first = (left / FIRST_PART).clamp(1, FIRST_MAX);
        self.wanted = self.wanted.max(first);
        if is_quick {
            self.need = UNKNOWN;
        } else if self.assigned.is_none() {
            self.need = self.need.max(first);
        }
    }

    /// Units that it should be given, if they are there.
    pub fn needs(&self) -> u64 {
        self.need
    }

    /// From one of its reports to the next.
    pub fn interval_ns(&self) -> u64 {
        self.interval_ns
    }

    /// Whether nothing is known of what it wants.
    pub fn is_unknown(&self) -> bool {
        self.need == UNKNOWN
    }

    /// Whether it should not wait for its next report, because it will have nothing left. One that still has units would lose
    /// sight of them.
    pub fn hungers(&self, now_ns: u64) -> bool {
        self.need > 0 && now_ns >= self.out_ns
    }

    /// Whether it has been given nothing yet.
    pub fn is_new(&self) -> bool {
        self.reports <= 1 && self.held.units() == 0
    }

    /// Units a second that it wants, times 1,024.
    pub fn weight(&self) -> u64 {
        let weight = u128::from(self.wanted) * u128::from(1024 * SECOND_NS) / u128::from(self.interval_ns);
        u64::try_from(weight).unwrap_or(u64::MAX).clamp(1, WEIGHT_MAX)
    }

    /// How long what it is told holds.
    pub fn ttl(&self) -> Duration {
        let ttl_ns = match self.reports {
            0..=2 => TTL_FIRST_NS,
            _ => self.interval_ns.saturating_mul(3).max(TTL_MIN_NS),
        };
        // Whole seconds: proxies read no smaller ones.
        Duration::from_secs(ttl_ns.div_ceil(SECOND_NS))
    }

    /// Whether it has reported nothing for as long as it was told something for.
    pub fn is_silent(&self, now_ns: u64) -> bool {
        now_ns.saturating_sub(self.reported_ns) > self.ttl().as_nanos() as u64
    }

    /// Whether it has reported no request for so long.
    pub fn is_idle(&self, now_ns: u64, for_ns: u64) -> bool {
        now_ns.saturating_sub(self.used_ns) >= for_ns
    }

    /// Answers a report, with these units that were drawn for it. What it has and does not need goes back.
    pub fn answer(&mut self, drawn: u64, receipt: Option<R>, now_ns: u64) -> (Assignment, Vec<Back<R>>) {
        self.add(drawn, receipt);
        if self.reports > 1 && self.held.units() > self.wanted.saturating_mul(2).saturating_add(SURPLUS) {
            let back = self.held.take_beyond(self.wanted);
            return (self.assign(self.held.units(), now_ns), back);
        }
        let keeps = drawn == 0 && !self.is_out && self.held.units() > 0;
        let assignment = match self.assigned.filter(|_| keeps) {
            Some(units) => Assignment::Keep { units, ttl: self.ttl() },
            None => self.assign(self.held.units(), now_ns),
        };
        (assignment, Vec::new())
    }

    /// Assigns units between two reports. What it had is spent by then, though it has not told.
    pub fn top_up(&mut self, drawn: u64, receipt: Option<R>, now_ns: u64) -> Assignment {
        self.add(drawn, receipt);
        self.assign(drawn, now_ns)
    }

    /// What goes back if it says nothing more: what it will hardly have spent since its last report.
    pub fn leave(&mut self, now_ns: u64) -> Vec<Back<R>> {
        let elapsed_ns = now_ns.saturating_sub(self.reported_ns);
        let seen = if self.reports > 1 { self.seen } else { self.wanted };
        let spent = u128::from(seen) * u128::from(elapsed_ns) / u128::from(self.interval_ns) + 1;
        self.held.take_beyond(u64::try_from(spent).unwrap_or(u64::MAX).min(self.held.units()))
    }

    /// What it has, all of it.
    pub fn take_all(&mut self) -> Vec<Back<R>> {
        self.held.take_beyond(0)
    }

    fn add(&mut self, drawn: u64, receipt: Option<R>) {
        if let Some(receipt) = receipt.filter(|_| drawn > 0) {
            self.held.add(receipt, drawn);
        }
        if !self.is_unknown() {
            self.need = self.need.saturating_sub(drawn);
        }
    }

    fn assign(&mut self, units: u64, now_ns: u64) -> Assignment {
        self.assigned = NonZeroU64::new(units);
        let lasts_ns = u128::from(units) * u128::from(self.interval_ns) / u128::from(self.seen.max(1));
        // Of one that has reported once nothing is known; what waits for it is what would be wasted.
        let lasts_ns = if self.reports > 1 { u64::try_from(lasts_ns).unwrap_or(u64::MAX) } else { 0 };
        self.out_ns = now_ns.saturating_add(lasts_ns);
        let is_first = std::mem::take(&mut self.is_untold);
        match self.assigned {
            Some(units) if is_first => Assignment::Begin { units, ttl: self.ttl() },
            Some(units) => Assignment::Spend { units, ttl: self.ttl() },
            None => Assignment::Deny { ttl: self.ttl() },
        }
    }
}

const SECOND_NS: u64 = 1_000_000_000;
/// The interval of a reporter that has reported once.
const INTERVAL_FIRST_NS: u64 = SECOND_NS;
const INTERVAL_MIN_NS: u64 = SECOND_NS / 10;
const INTERVAL_MAX_NS: u64 = 3_600 * SECOND_NS;
/// How long an assignment holds until the interval is known.
const TTL_FIRST_NS: u64 = 60 * SECOND_NS;
const TTL_MIN_NS: u64 = 5 * SECOND_NS;
/// Units that a reporter may have beyond two times what it wants.
const SURPLUS: u64 = 2;
const WEIGHT_MAX: u64 = 1 << 40;
/// What a new reporter gets before anything is known of what it wants: a part of what is left.
const FIRST_PART: u64 = 8;
const FIRST_MAX: u64 = 4_096;
/// What one wants of which nothing is known.
const UNKNOWN: u64 = u64::MAX;
