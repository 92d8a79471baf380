//! The messages between a lease and Redis: renewals, grants, returns, and what a lost message means. Debits are reported
//! at least once and credits at most once, so a lost message can waste units but never admit too many.

mod due;

use std::sync::Arc;

use smallvec::SmallVec;

use super::words::{self, Flag};
use super::{Lease, PAUSE_NS, UNIT, seconds};
use crate::lease_messages::{Grant, Renewal};
use crate::{Key, Plan};

/// The units that waiting requests need.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LeaseDemand {
    /// What the waiting requests cost together, units.
    pub units: u64,
    /// The cost of each, in the order in which they came; empty: one unit each.
    pub costs: SmallVec<[u64; 2]>,
    /// Whether to lease units ahead even if the limit is small.
    pub ahead: bool,
}

impl LeaseDemand {
    /// For one request; for none if `cost` is 0.
    pub fn by_one(cost: u64) -> LeaseDemand {
        LeaseDemand::by([cost].into_iter().filter(|cost| *cost > 0))
    }

    /// For waiting requests with these costs, in the order in which they came.
    pub fn by(costs: impl Iterator<Item = u64> + Clone) -> LeaseDemand {
        let units = costs.clone().fold(0, u64::saturating_add);
        let is_a_unit_each = costs.clone().all(|cost| cost == 1);
        LeaseDemand {
            units,
            costs: if is_a_unit_each { SmallVec::new() } else { costs.collect() },
            ahead: false,
        }
    }
}

/// Units to keep for requests to come. Once an eighth of a fast bucket is gone, what is not needed until the answer comes
/// goes back, and Redis divides it anew; an answer that is asked for ahead of need takes long.
fn needed(lease: &Lease, plan: &Plan, demand: f64, is_ahead: bool) -> f64 {
    let is_low = lease.0.level() < plan.quota.capacity() as f64 * 0.875;
    let is_divided = is_low && !is_ahead && super::is_fast(plan);
    let kept_s = if is_divided { KEPT_S } else { 0.25 * seconds(plan.sharing.epoch_ns) };
    (demand * kept_s).max(1.0)
}

impl Lease {
    /// Whether a renewal is in flight.
    #[inline]
    pub fn is_in_flight(&self) -> bool {
        self.0.has(Flag::InFlight)
    }

    /// The renewal to send: the demand since the last report, the debt, and units held beyond need, which go back.
    /// `wanted` is what requests wait for; a unit that is owed while older units go back is asked for with them.
    pub fn renewal(&mut self, plan: &Arc<Plan>, key: Key, mut wanted: LeaseDemand, now_ns: u64) -> Renewal {
        let is_owing = self.0.has(Flag::Owing) && !self.0.has(Flag::Fallback);
        let owed = if is_owing { UNIT } else { 0 };
        self.0.lower(Flag::Owing);
        self.0.set_balance(self.0.balance().saturating_add(owed));
        if owed > 0 && !wanted.costs.is_empty() {
            wanted.costs.push(1);
        }
        wanted.units = wanted.units.saturating_add(u64::from(owed > 0));
        let spent = self.spent();
        if now_ns > self.0.end_ns() + NUMBERED_NS {
            // The number is dropped, because epoch numbers wrap and by now another epoch may have it.
            self.0.set_lease(self.0.rate(), 0);
        }
        let hint = hint(self, now_ns);
        let (reported, refilled) = (self.0.reported(), refilled(self, plan, spent, now_ns));
        let demand = self.sample_demand(now_ns);
        let (spent, delta, keep) = match self.0.has(Flag::Fallback) {
            true => self.owed_fallback(plan),
            false => {
                // Redis serves a cost of several units whole: from what it has, to which what is held here belongs then.
                let needed = wanted.costs.is_empty().then(|| needed(self, plan, demand, wanted.ahead));
                let (delta, keep) = self.take_surplus(plan, needed, now_ns);
                // What is reported is no longer there to be advanced.
                self.0.set_level(self.0.level() - delta);
                (spent, delta, keep)
            }
        };
        self.0.set_balance(self.0.balance().saturating_sub(owed));
        self.0.set_last_grant(keep);
        self.0.set_excess(0.0);
        self.0.raise(Flag::InFlight);
        Renewal {
            key,
            plan: Arc::clone(plan),
            epoch: self.0.epoch(),
            demand,
            reported,
            rate: self.0.rate(),
            pending: wanted.units,
            costs: wanted.costs,
            hint,
            spent,
            refilled,
            delta,
            keep,
            release: false,
            ahead: wanted.ahead,
        }
    }

    /// Applies the grant for a renewal. The lease counts from when it was asked for, so it ends here before it ends in
    /// Redis.
    pub fn granted(&mut self, renewal: &Renewal, grant: &Grant, sent_ns: u64) {
        if self.0.has(Flag::Fallback) {
            // Redis is back; what fallback spent since the renewal was sent is a debt.
            let owed = self.0.level();
            self.0.lower(Flag::Fallback);
            self.0.lower(Flag::Fresh);
            self.0.set_lease(0.0, 0);
            self.0.set_balance((-owed * UNIT as f64) as i64);
        }
        // Because in the same epoch the balance already includes what the old rate accrues until the lease's end, only
        // the difference of the rates is added. The time by which the two ends differ is in neither, so nothing counts
        // twice.
        let rate_before = if grant.epoch == self.0.epoch() { self.0.rate() } else { 0.0 };
        self.0.set_end_ns(match grant.lasts_ns {
            0 => ended_ns(self, &renewal.plan, sent_ns),
            lasts_ns => sent_ns.saturating_add(lasts_ns),
        });
        match renewal.epoch {
            0 => self.0.raise(Flag::Fresh),
            epoch if epoch != grant.epoch => self.0.lower(Flag::Fresh),
            _ => {}
        }
        self.0.set_lease(grant.rate, grant.epoch);
        let life_s = seconds(grant.lasts_ns);
        let given = ((grant.tokens + (self.0.rate() - rate_before) * life_s) * UNIT as f64) as i64;
        self.0.set_balance(self.0.balance().saturating_add(given));
        self.0.set_deny_until_ns(if grant.deny_ns == 0 { 0 } else { sent_ns.saturating_add(grant.deny_ns) });
        self.0.set_level(grant.level);
        // What Redis believes to be held: it counts what requests waited for as spent.
        self.0.set_last_grant(renewal.keep + (grant.tokens - renewal.pending as f64).max(0.0));
        self.0.lower(Flag::InFlight);
        if grant.level >= OVERDRAW_MIN {
            self.0.lower(Flag::Overdrawn);
        }
        self.0.raise(Flag::Known);
    }

    /// Takes out the units that it owes, to be reported apart from its renewals.
    pub fn take_owed(&mut self, now_ns: u64) -> f64 {
        let owed = self.held(now_ns).min(0).saturating_neg();
        let units = owed as f64 / UNIT as f64;
        self.0.set_balance(self.0.balance().saturating_add(owed));
        // They are not left either.
        self.0.set_level(self.0.level().min((self.0.level() - units).max(0.0)));
        units
    }

    /// No answer came to a renewal. If Redis certainly did not get it (`is_unheard`), everything is reported again. Else
    /// Redis may have got it: a debt is reported again, a credit is not.
    pub fn lost(&mut self, renewal: &Renewal, is_unheard: bool) {
        self.take_back(renewal, is_unheard);
        // `spent` is not reported twice, because Redis may have got it unless it certainly did not.
        let untold = if is_unheard { renewal.spent } else { 0.0 };
        self.0.set_last_grant((untold - self.spent_of(0.0)).max(0.0));
        self.0.set_excess(f64::MAX);
        self.0.lower(Flag::InFlight);
    }

    /// Takes back the debt or credit of an unanswered message: a debt stays owed, and returned units are held again only
    /// if Redis certainly did not get them.
    pub fn take_back(&mut self, renewal: &Renewal, is_unheard: bool) {
        if renewal.delta <= 0.0 && !is_unheard {
            return;
        }
        if self.0.has(Flag::Fallback) {
            self.0.set_level(self.0.level() + renewal.delta);
            let held = (-renewal.delta.min(0.0) * UNIT as f64) as i64;
            self.0.set_balance(self.0.balance().saturating_add(held));
        } else {
            let owed = (renewal.delta * UNIT as f64) as i64;
            self.0.set_balance(self.0.balance().saturating_sub(owed));
            let told = if renewal.release { renewal.delta.max(0.0) } else { renewal.delta };
            self.0.set_level(self.0.level() + told);
        }
    }

    /// Whether it decides without Redis though requests have come within the last second: then it is the first to be renewed
    /// when Redis is back.
    pub fn is_wanted_back(&self, now_ns: u64) -> bool {
        self.0.has(Flag::Fallback) && !self.0.has(Flag::InFlight) && self.0.unseen_ns(now_ns) < WANTED_NS
    }

    /// Whether to return the lease: it holds units and no request has come for a while, or it has ended and owes or holds
    /// something.
    pub fn is_idle(&self, plan: &Plan, now_ns: u64) -> bool {
        if self.0.has(Flag::InFlight) {
            return false;
        }
        if self.0.has(Flag::Fallback) {
            // The next request's renewal would report it; this is for keys of which none comes.
            return self.has_something_of_redis()
                && self.0.unseen_ns(now_ns) >= SPARSE_NS
                && self.0.unreported_ns(now_ns) >= HELD_BACK_NS;
        }
        if self.0.epoch() == 0 || now_ns > self.0.end_ns() + plan.age_ns() {
            // A return without an answer left it without an epoch.
            if self.0.epoch() == 0 && now_ns < self.0.end_ns() + HELD_BACK_NS {
                return false;
            }
            // A debt is reported at once. Units wait a little, because the next request's renewal would return them
            // anyway.
            return self.0.balance() < 0 || self.0.balance() >= UNIT && self.0.unseen_ns(now_ns) >= RETURN_NS;
        }
        let least_ns = if self.0.has(Flag::Sparse) { SPARSE_NS } else { IDLE_NS };
        let quiet_ns = ((IDLE_ARRIVALS / self.0.demand()) * 1e9).max(least_ns as f64);
        // The balance includes what would still accrue.
        self.0.balance() >= IDLE_UNITS * UNIT && self.0.unseen_ns(now_ns) as f64 >= quiet_ns
    }

    /// Marks the lease as sparse if this request comes after a pause that the reported demand does not explain. Because
    /// requests have become rarer but have not stopped, the next such pause does not mean that the lease is idle.
    pub(super) fn note_pause(&mut self, now_ns: u64) {
        let unseen_ns = self.0.unseen_ns(now_ns);
        let least_s = seconds(unseen_ns.saturating_sub(words::SEEN_STEP_NS));
        if unseen_ns >= PAUSE_NS && least_s * self.0.demand() >= QUIET_ARRIVALS {
            self.0.raise(Flag::Sparse);
        }
    }

    /// Ends a denial if no request has come for a while: it was computed from a demand that is gone, and other nodes may
    /// have returned units meanwhile.
    pub fn forgive(&mut self, now_ns: u64) {
        if now_ns >= self.0.deny_until_ns() || self.0.has(Flag::InFlight) || self.0.has(Flag::Fallback) {
            return;
        }
        let quiet_ns = ((QUIET_ARRIVALS / self.0.demand()) * 1e9).max(IDLE_NS as f64);
        if self.0.unseen_ns(now_ns) as f64 >= quiet_ns {
            self.0.set_deny_until_ns(0);
        }
    }

    /// Whether it has a lease, or holds or owes units of Redis.
    pub fn has_something_of_redis(&self) -> bool {
        match self.0.has(Flag::Fallback) {
            true => self.0.level().abs() >= 1.0,
            false => self.0.epoch() != 0 || self.0.balance() != 0,
        }
    }

    /// The message that returns units and rate, or reports what fallback spent; the demand stays known. `None` if there is
    /// nothing to return or a renewal is in flight.
    pub fn release(&mut self, plan: &Arc<Plan>, key: Key, now_ns: u64) -> Option<Renewal> {
        if !self.has_something_of_redis() || self.0.has(Flag::InFlight) {
            return None;
        }
        self.0.lower(Flag::Owing);
        let is_fallback = self.0.has(Flag::Fallback);
        let (spent, delta, keep) = match is_fallback {
            true => self.owed_fallback(plan),
            // Includes what would still accrue until the lease's end: Redis knows how much of its epoch is left.
            false => (self.spent(), -(self.0.balance() as f64 / UNIT as f64), 0.0),
        };
        let renewal = Renewal {
            epoch: self.0.epoch(),
            reported: self.0.reported(),
            rate: self.0.rate(),
            spent,
            keep,
            ..Renewal::report(key, Arc::clone(plan), delta)
        };
        self.0.raise(Flag::InFlight);
        if is_fallback {
            // The bucket goes on until a request is answered. From here on demand is measured anew.
            self.0.set_offered(0);
            self.0.set_reported_at(now_ns);
            return Some(renewal);
        }
        self.0.set_balance(0);
        // What is reported is no longer there to be advanced.
        self.0.set_level(self.0.level() - delta.max(0.0));
        self.0.set_end_ns(now_ns);
        self.0.set_lease(0.0, 0);
        self.0.set_last_grant(0.0);
        self.0.set_excess(f64::MAX);
        self.0.lower(Flag::Reported);
        // The denial was computed from a demand that is gone. The next demand is measured from the last request on,
        // so that the silence since counts.
        self.0.set_deny_until_ns(0);
        self.0.set_offered(0);
        self.0.set_reported_at(now_ns.saturating_sub(self.0.unseen_ns(now_ns)));
        Some(renewal)
    }

    /// Ends a return. `answer`: the units that are left then, or whether Redis certainly did not get it.
    pub fn released(&mut self, release: &Renewal, answer: Result<f64, bool>) {
        self.0.lower(Flag::InFlight);
        match answer {
            Ok(level) => hear_level(self, level),
            Err(is_unheard) => self.take_back(release, is_unheard),
        }
    }

    /// Units spent since the last grant, without those that requests waited for. Negative if a request did not take what
    /// it had waited for, or was refunded.
    pub(super) fn spent(&self) -> f64 {
        self.spent_of(self.0.last_grant())
    }

    /// As `spent`, if `held` units were held at the last report.
    fn spent_of(&self, held: f64) -> f64 {
        let life_s =
            if self.0.epoch() == 0 { 0.0 } else { seconds(self.0.reported_before_ns(self.0.end_ns())) };
        held + self.0.rate() * life_s - self.0.balance() as f64 / UNIT as f64
    }

    /// Measures the demand, units a second. It follows a sample at once as far as the sample is beyond doubt (1.5 standard
    /// deviations of a Poisson count), but falls to no less than a tenth; within the doubt it follows slowly.
    fn sample_demand(&mut self, now_ns: u64) -> f64 {
        let before = self.0.demand();
        // Without the arrival that caused this report: a report always has one, however short the time.
        let arrived = f64::from(self.0.offered().saturating_sub(1));
        let measured_s = seconds(self.0.unreported_ns(now_ns));
        // Not less, because with shorter samples one node could claim nearly the whole limit.
        let sample_s = measured_s.max(SAMPLE_MIN_S);
        let demand = if before == 0.0 {
            UNKNOWN
        } else {
            // The slow average counts all arrivals: the previous report's arrival began this stretch. It takes the time
            // as it was, so a node that asks for every request measures what one does that asks once an epoch.
            let slow_s = measured_s.max(SLOW_MIN_S);
            let weight = 1.0 - (-slow_s / DECAY_S).exp();
            let slow = before + (f64::from(self.0.offered()) / slow_s - before) * weight;
            let doubt = 1.5 * arrived.sqrt();
            let least = (arrived - doubt) / sample_s;
            // Not below `FALL`, because bursts come again. A sample stretched to `SAMPLE_MIN_S` proves no absence.
            let most = ((arrived + doubt + 1.5) / sample_s).max(before * FALL);
            let most = if measured_s < SAMPLE_MIN_S { f64::INFINITY } else { most };
            slow.min(most).max(least).max(DEMAND_MIN)
        };
        let demand = words::rounded(demand);
        self.0.lower(Flag::Sparse);
        self.0.set_offered(0);
        self.0.set_demand(demand);
        self.0.raise(Flag::Reported);
        self.0.set_reported_at(now_ns);
        demand
    }

    /// Takes debts and units beyond `need` out of the balance, to report them. Returns (debts less returns, units kept).
    fn take_surplus(&mut self, plan: &Plan, need: Option<f64>, now_ns: u64) -> (f64, f64) {
        let held = self.held(now_ns);
        let is_aged = now_ns > self.0.end_ns() + plan.age_ns();
        let need = need.filter(|_| !is_aged && self.0.epoch() != 0);
        let keep_max = need.map_or(0, |need| (need * UNIT as f64) as i64);
        let kept = held.clamp(0, keep_max);
        self.0.set_balance(self.0.balance().saturating_sub(held.saturating_sub(kept)));
        (kept.saturating_sub(held) as f64 / UNIT as f64, kept as f64 / UNIT as f64)
    }
}

/// Redis said what is left, and knows of all that was spent here but what is still in the balance.
pub fn hear_level(lease: &mut Lease, level: f64) {
    if !lease.0.has(Flag::Fallback) && !lease.0.has(Flag::InFlight) {
        lease.0.set_level(level);
    }
}

/// The units that a lease owes.
pub fn owed(lease: &Lease, now_ns: u64) -> f64 {
    lease.held(now_ns).min(0).saturating_neg() as f64 / UNIT as f64
}

/// The end of a lease that Redis gave without a life, because its window ends in less than a lease's age. It does not
/// prolong what was held; requests that wait for the grant have the time of an answer to spend it.
fn ended_ns(lease: &Lease, plan: &Plan, sent_ns: u64) -> u64 {
    let latest_ns = if lease.0.epoch() == 0 { 0 } else { lease.0.end_ns().min(sent_ns) };
    latest_ns.max(sent_ns.saturating_add(ANSWER_NS).saturating_sub(plan.age_ns()))
}

/// Slow start: asks for four times the last grant if that was used up within `HINT_NS`.
fn hint(lease: &Lease, now_ns: u64) -> f64 {
    let is_spent = lease.0.epoch() != 0 && lease.held(now_ns) < UNIT;
    let is_quick = lease.0.unreported_ns(now_ns) < HINT_NS;
    if is_spent && is_quick { 4.0 * (lease.0.last_grant() + 1.0) } else { 0.0 }
}

/// How much of `spent` would have refilled since the last report if Redis had known of it: what was due to this node, less the
/// most that was due before it was spent, because that would have found the bucket full.
pub(super) fn refilled(lease: &mut Lease, plan: &Plan, spent: f64, now_ns: u64) -> f64 {
    if lease.0.epoch() == 0 || lease.0.has(Flag::Fallback) || lease.0.rate() == 0.0 {
        return 0.0;
    }
    note_held(lease, plan, lease.held(now_ns), now_ns);
    // The rates of all leases are the limit's at most. Those of first leases are much less, but until others have reported too
    // Redis knows for how long the bucket was full, and gives nobody more than was due then.
    let rate = if lease.0.has(Flag::Fresh) { super::rate_of(&plan.quota) } else { lease.0.rate() };
    let due = rate * seconds(lease.0.reported_before_ns(now_ns.min(lease.0.end_ns())));
    (due - lease.0.excess()).min(spent).max(0.0)
}

/// Notes the most that was due to this node beyond what it has spent, before a request spends more.
#[inline]
pub(super) fn note_held(lease: &mut Lease, plan: &Plan, held: i64, now_ns: u64) {
    let mut excess = held as f64 / UNIT as f64 - lease.0.last_grant();
    // In flight, the rate that is granted counts from when it was asked for, and is at most the limit's.
    let unheld = match (lease.0.has(Flag::Fresh), lease.0.has(Flag::InFlight)) {
        (true, _) => super::rate_of(&plan.quota) - lease.0.rate(),
        (false, true) => super::rate_of(&plan.quota),
        (false, false) => 0.0,
    };
    if unheld > 0.0 {
        excess += unheld * seconds(lease.0.unreported_ns(now_ns) + words::REPORT_STEP_NS);
    }
    if excess > lease.0.excess() {
        lease.0.set_excess(excess);
    }
}

/// How long an epoch's number is unambiguous.
const NUMBERED_NS: u64 = 3_600_000_000_000;
/// The demand of a key that was never measured, units a second.
const UNKNOWN: f64 = 0.5;
/// The least demand that is reported; 0 would mean unknown.
const DEMAND_MIN: f64 = 0.01;
const SAMPLE_MIN_S: f64 = 0.02;
/// The shortest time that the slow average divides by; it is short beside `DECAY_S`, so the result is the same.
const SLOW_MIN_S: f64 = 1e-6;
/// How long after it was asked for a grant without a life may be spent; an answer that takes longer is lost.
const ANSWER_NS: u64 = 10_000_000;
/// The lowest a demand falls from one report to the next, as a factor.
const FALL: f64 = 0.1;
/// Time constant of the slow average: an old demand has a weight of 1/e after it.
const DECAY_S: f64 = 0.6;
/// A grant that is spent within this is followed by a larger one.
const HINT_NS: u64 = 50_000_000;
/// A lease is idle when this many expected arrivals have not come, and at least after `IDLE_NS`, the time between sweeps.
const IDLE_ARRIVALS: f64 = 6.0;
const IDLE_NS: u64 = 50_000_000;
/// Units of an ended lease are returned after this time without a request.
const RETURN_NS: u64 = 1_500_000_000;
/// As `IDLE_NS`, for a sparse lease.
const SPARSE_NS: u64 = 200_000_000;
/// How long after a return the next one is sent. At the end of an outage Redis may refuse the returns of many keys for a
/// while; there is a pause, because without one the sweep would do nothing but repeat them, and other keys would wait
/// behind them.
const HELD_BACK_NS: u64 = 200_000_000;
/// A key that was asked for within this time resumes its lease at once when Redis is back.
const WANTED_NS: u64 = 1_000_000_000;
/// For how long a node keeps units of a fast bucket of which an eighth is gone, seconds.
const KEPT_S: f64 = 0.02;
/// A node may overdraw again once Redis has this many units left.
const OVERDRAW_MIN: f64 = 10.0;
/// A denial is forgotten, and a pause noted, when this many expected arrivals have not come.
const QUIET_ARRIVALS: f64 = 8.0;
/// Fewer units than this are not worth a message.
const IDLE_UNITS: i64 = 2;
