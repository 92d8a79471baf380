//! The part of a count that this gateway may take, while other gateways of a fleet want some of it, too.
//!
//! Each gateway says how much is wanted of it, and takes of what comes back by that: a part of the limit's rate accrues to it,
//! and of what has gathered beyond half a second of that a part, bit by bit, so that what others leave is used. Nobody
//! waits for another's turn, whose moments are not the same. What is taken is charged to the limit as ever, so a part that
//! is wrong or late can only refuse.

/// What other gateways want of a count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Others {
    /// Units a second, times 1,024.
    pub demand: u64,
    /// How many gateways want some.
    pub nodes: u64,
    /// Streams that report buckets of it to them.
    pub streams: u64,
    /// Units that were left when they last looked.
    pub left: u64,
}

/// How fast a limit comes back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refill {
    /// Units.
    pub units: u64,
    /// In this time; not 0.
    pub period_ns: u64,
}

/// This gateway's part of one count.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct FleetPart {
    others: Others,
    heard_ns: u64,
    /// Parts of a unit that it may take.
    credit: u128,
    /// Until when they have accrued; `None`: nobody else wants any.
    accrued_ns: Option<u64>,
}

impl Refill {
    /// Parts of a unit that come back in this time.
    fn within(self, time_ns: u64) -> u128 {
        let parts = u128::from(self.units) * PART;
        parts.saturating_mul(u128::from(time_ns)) / u128::from(self.period_ns.max(1))
    }
}

impl FleetPart {
    pub fn hear(&mut self, others: Others, now_ns: u64) {
        (self.others, self.heard_ns) = (others, now_ns);
    }

    /// Whether others want some, as far as is known.
    pub fn has_others(&self, now_ns: u64) -> bool {
        self.others.nodes > 0 && now_ns.saturating_sub(self.heard_ns) < HEARD_NS
    }

    /// What others have told, if it is not old.
    pub fn others(&self, now_ns: u64) -> Others {
        if self.has_others(now_ns) { self.others } else { Others::default() }
    }

    /// What another gateway wants.
    pub fn usual(&self) -> u64 {
        self.others.demand / self.others.nodes.max(1)
    }

    /// Units that it may take of those that are left, if so much is wanted of it a second, times 1,024.
    pub fn left(&mut self, left: u64, demand: u64, refill: Refill, now_ns: u64) -> u64 {
        if !self.has_others(now_ns) {
            self.accrued_ns = None;
            return left;
        }
        let own = u128::from(demand);
        let all = (own + u128::from(self.others.demand)).max(1);
        let since_ns = match self.accrued_ns.replace(now_ns) {
            Some(accrued_ns) => now_ns.saturating_sub(accrued_ns).min(SECOND_NS),
            None => {
                self.credit = 0;
                FIRST_NS
            }
        };
        if all * u128::from(ENOUGH_SECONDS) <= u128::from(left) * 1_024 {
            return left;
        }
        let parts = u128::from(left) * PART;
        let gathered = parts.saturating_sub(refill.within(SECOND_NS / 2));
        let gathered = gathered.saturating_mul(u128::from(since_ns)) / GATHERED_NS;
        let fresh = refill.within(since_ns).saturating_add(gathered);
        // Rounded down, so all parts together are not more than there is.
        let share = own * WHOLE / all;
        let part = |of: u128| of.saturating_mul(share) / WHOLE;
        // What it does not take does not gather without end, or it would take it from others later.
        let most = part(refill.within(SECOND_NS).max(parts / 2)).saturating_add(PART);
        self.credit = self.credit.saturating_add(part(fresh)).min(most);
        u64::try_from(self.credit / PART).unwrap_or(u64::MAX).min(left)
    }

    /// Units are taken.
    pub fn take(&mut self, units: u64) {
        self.credit = self.credit.saturating_sub(u128::from(units) * PART);
    }

    /// Units that were taken were not.
    pub fn give_back(&mut self, units: u64) {
        self.credit = self.credit.saturating_add(u128::from(units) * PART);
    }
}

const SECOND_NS: u64 = 1_000_000_000;
/// A part of a unit, so small that of a limit of one a day something accrues in a round.
const PART: u128 = 1 << 32;
/// A whole, of which this gateway has a part.
const WHOLE: u128 = 1 << 20;
/// For how long others want what they said last.
pub(super) const HEARD_NS: u64 = 2 * SECOND_NS;
/// What accrues at once when others begin to want some: a round's.
const FIRST_NS: u64 = SECOND_NS / 4;
/// If there is as much as all want in so many seconds, nobody has to take care.
const ENOUGH_SECONDS: u64 = 2;
/// How long it takes to hand out what has gathered.
const GATHERED_NS: u128 = 2 * SECOND_NS as u128;
