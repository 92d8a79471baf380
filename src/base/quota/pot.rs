//! A count that limits buckets, and all who take of it: the streams of one bucket or of several, requests that are decided
//! here, and the other gateways of a fleet. Sums only, so a turn costs the same however many buckets there are.

use super::fleet_part::{FleetPart, Others, Refill};
use super::own::Own;

/// What the streams of one bucket want, in units of its count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wants {
    /// How many streams there are.
    pub(super) streams: u64,
    /// Units that they should be given before their next reports; without those of which nothing is known.
    pub(super) needs: u64,
    /// Units a second that all of them want, times 1,024.
    pub(super) demand: u64,
    /// The same of those that should be given some.
    pub(super) weight: u64,
    /// The same of those that will have nothing left by the next round.
    pub(super) soon: u64,
    /// The part of `soon` that has had its turn in `round`.
    pub(super) gone: u64,
    /// How many streams there are of which nothing is known.
    pub(super) unknown: u64,
    /// Those among them that have had their turn in `round`.
    pub(super) unknown_gone: u64,
    /// The last round in which this was summed up.
    pub(super) round: u64,
}

/// What the other buckets of a pot want.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rivals {
    /// Units that their streams should be given.
    pub(super) needs: u64,
    /// The weight of those that wait for their turn in this round.
    pub(super) waits: u64,
    /// How many of those are there of which nothing is known.
    pub(super) unknown: u64,
}

/// A count that is divided.
#[derive(Clone, Debug, Default)]
pub struct Pot {
    sum: Wants,
    buckets: u64,
    own: Own,
    /// What requests that are decided here were said to take in their last turn; `None`: as many as they found.
    held: Option<u64>,
    fleet: FleetPart,
    /// Units that are left for streams in this round, as far as they have not been planned.
    unplanned: (u64, u64),
}

/// What requests that are decided here did since their last turn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OwnTurn {
    /// Units that they asked for.
    pub came: u64,
    /// Units that they might take and did not.
    pub unspent: u64,
}

impl Wants {
    /// The same of requests that cost so much each.
    pub fn at_cost(self, cost: u64) -> Wants {
        let times = |requests: u64| requests.saturating_mul(cost).min(WANTS_MAX);
        Wants {
            needs: times(self.needs),
            demand: times(self.demand),
            weight: times(self.weight),
            soon: times(self.soon),
            gone: times(self.gone),
            ..self
        }
    }

    pub(super) fn gone_in(&self, round: u64) -> (u64, u64) {
        if self.round == round { (self.gone, self.unknown_gone) } else { (0, 0) }
    }
}

impl Rivals {
    /// The same in requests that cost so much each.
    pub fn in_requests(self, cost: u64) -> Rivals {
        let cost = cost.max(1);
        Rivals { needs: self.needs / cost, waits: self.waits / cost, ..self }
    }
}

impl Pot {
    /// A bucket comes.
    pub fn enter(&mut self, wants: Wants) {
        self.buckets += 1;
        self.change(Wants::default(), wants);
    }

    /// A bucket that wanted this last goes.
    pub fn leave(&mut self, wants: Wants) {
        self.buckets = self.buckets.saturating_sub(1);
        self.change(wants, Wants::default());
    }

    /// A bucket wants something else than before.
    pub fn change(&mut self, before: Wants, now: Wants) {
        let round = self.sum.round.max(now.round);
        let (gone, unknown_gone) = self.sum.gone_in(round);
        let ((gone_before, unknown_before), (gone_now, unknown_now)) =
            (before.gone_in(round), now.gone_in(round));
        let swap = |sum: u64, before: u64, now: u64| sum.saturating_sub(before).saturating_add(now);
        self.sum = Wants {
            streams: swap(self.sum.streams, before.streams, now.streams),
            needs: swap(self.sum.needs, before.needs, now.needs),
            demand: swap(self.sum.demand, before.demand, now.demand),
            weight: swap(self.sum.weight, before.weight, now.weight),
            soon: swap(self.sum.soon, before.soon, now.soon),
            gone: swap(gone, gone_before, gone_now),
            unknown: swap(self.sum.unknown, before.unknown, now.unknown),
            unknown_gone: swap(unknown_gone, unknown_before, unknown_now),
            round,
        };
    }

    /// What all but this bucket want.
    pub fn rivals(&self, of: &Wants, round: u64) -> Rivals {
        let ((gone, unknown_gone), (own_gone, own_unknown_gone)) =
            (self.sum.gone_in(round), of.gone_in(round));
        let but = |sum: u64, own: u64| sum.saturating_sub(own);
        Rivals {
            needs: but(self.sum.needs, of.needs),
            waits: but(but(self.sum.soon, gone), but(of.soon, own_gone)),
            unknown: but(but(self.sum.unknown, unknown_gone), but(of.unknown, own_unknown_gone)),
        }
    }

    /// Whether nobody reports a bucket of this count, here or to another gateway.
    pub fn is_over(&self, now_ns: u64) -> bool {
        self.buckets == 0 && self.fleet.others(now_ns).streams == 0
    }

    /// Whether streams report buckets of this count here.
    pub fn has_buckets(&self) -> bool {
        self.buckets > 0
    }

    /// How many streams report buckets of it here.
    pub fn streams(&self) -> u64 {
        self.sum.streams
    }

    /// The same here and at the other gateways.
    pub fn all_streams(&self, now_ns: u64) -> u64 {
        self.streams().saturating_add(self.fleet.others(now_ns).streams)
    }

    /// Whether all who take of it here want more than there is, or others want some of it, so that requests that nobody
    /// reports should not take what comes first.
    pub fn is_scarce(&self, left: u64, now_ns: u64) -> bool {
        self.sum.unknown > 0 || self.sum.needs > left || self.fleet.has_others(now_ns)
    }

    /// Whether a stream should be given more, or another gateway wants some.
    pub fn is_wanted(&self, now_ns: u64) -> bool {
        self.sum.weight > 0 || self.fleet.has_others(now_ns)
    }

    /// Units a second that are wanted here, times 1,024, for the other gateways.
    pub fn demand(&self) -> u64 {
        let known = self.sum.demand.saturating_add(self.own.weight());
        // One of which nothing is known may want as much as any of the others.
        if self.sum.unknown > 0 { known.max(self.fleet.usual()) } else { known }
    }

    /// Requests that nobody reports take as many as they find.
    pub fn release_own(&mut self) {
        self.held = None;
    }

    /// Notes what other gateways want.
    pub fn hear(&mut self, others: Others, now_ns: u64) {
        self.fleet.hear(others, now_ns);
    }

    /// What this gateway may take now of so many units that are left.
    pub fn left(&mut self, left: u64, refill: Refill, now_ns: u64) -> u64 {
        let demand = self.demand();
        self.fleet.left(left, demand, refill, now_ns)
    }

    /// What is left for streams of so many units, once requests that nobody reports have theirs. While there is too little
    /// for all it is what there was at the beginning of the round, less what has been planned since: streams have their turn
    /// at once, on several threads, so one may have looked before another has drawn.
    pub fn for_streams(&mut self, left: u64, round: u64) -> u64 {
        if self.unplanned.0 != round {
            self.unplanned = (round, left);
        }
        let is_enough = self.sum.unknown == 0 && self.sum.needs <= left;
        if is_enough { left } else { left.min(self.unplanned.1) }
    }

    /// Units are drawn for a stream.
    pub fn take(&mut self, units: u64) {
        self.unplanned.1 = self.unplanned.1.saturating_sub(units);
        self.fleet.take(units);
    }

    /// Units that were to be drawn were not.
    pub fn give_back(&mut self, units: u64) {
        self.fleet.give_back(units);
    }

    /// Whether requests that nobody reports have not had their turn in this round.
    pub fn is_turn_of_own(&self, round: u64) -> bool {
        self.own.round != round
    }

    /// Notes what requests that nobody reports did since their last turn.
    pub fn note_own(&mut self, turn: OwnTurn, round: u64, now_ns: u64) {
        self.own.round = round;
        self.own.measure(turn.came, now_ns);
        let taken = self.held.map_or(turn.came, |held| held.saturating_sub(turn.unspent));
        self.fleet.take(taken);
    }

    /// The turn of requests that nobody reports, once a round. Returns how many units they may take from now on, of those that
    /// this gateway may, and which no stream should be given therefore; `None`: as many as they find. `interval_ns`: from one
    /// report to the next.
    pub fn turn_of_own(&mut self, turn: OwnTurn, left: u64, interval_ns: u64, now_ns: u64) -> Option<u64> {
        self.held = self.share_of_own(turn, left, interval_ns, now_ns);
        self.held
    }

    fn share_of_own(&mut self, turn: OwnTurn, left: u64, interval_ns: u64, now_ns: u64) -> Option<u64> {
        let weight = self.own.weight();
        // Theirs is what a stream wants that reports as rarely as the others do.
        let wanted = self.own.wants_within(interval_ns);
        let is_enough = self.sum.unknown == 0 && self.sum.needs.saturating_add(wanted) <= left;
        if weight == 0 || is_enough || !self.is_wanted(now_ns) {
            return None;
        }
        let unspent = turn.unspent.min(left);
        let free = u128::from(left - unspent) * PART;
        let part = match self.sum.unknown > 0 {
            true => free / 2,
            false => free * u128::from(weight) / u128::from(self.sum.weight.saturating_add(weight)),
        };
        let most = u128::from(wanted) * PART;
        let credit = (u128::from(unspent) * PART + u128::from(self.own.credit) + part).min(most);
        let whole = (credit / PART).min(u128::from(left));
        self.own.credit = u64::try_from(credit - whole * PART).unwrap_or(0);
        // At most `left`.
        Some(whole as u64)
    }
}

/// A part of a unit.
const PART: u128 = 256;
/// So that the sums of 65,536 buckets do not overflow.
const WANTS_MAX: u64 = 1 << 47;
