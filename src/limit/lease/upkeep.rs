//! What a lease says to Redis and is told by it. Debits are told at least once, credits at most once: a lost
//! message can only cost the fleet what it might have spent.

use std::sync::Arc;

use smallvec::SmallVec;

use super::words::{self, Flag};
use super::{Lease, PAUSE_NS, UNIT, seconds};
use crate::limit::lease_messages::{Grant, Renewal};
use crate::limit::{Key, Plan};

/// What requests wait for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wanted {
    /// In all.
    pub units: u64,
    /// What each costs, in the order in which they came; none: a unit each.
    pub costs: SmallVec<[u64; 2]>,
    /// Beyond that, a lease even where the limit is small.
    pub ahead: bool,
}

impl Wanted {
    /// By one request, or by none.
    pub fn by_one(cost: u64) -> Wanted {
        Wanted::by([cost].into_iter().filter(|cost| *cost > 0))
    }

    /// By requests of these costs.
    pub fn by(costs: impl Iterator<Item = u64> + Clone) -> Wanted {
        let units = costs.clone().fold(0, u64::saturating_add);
        let is_a_unit_each = costs.clone().all(|cost| cost == 1);
        Wanted { units, costs: if is_a_unit_each { SmallVec::new() } else { costs.collect() }, ahead: false }
    }
}

impl Lease {
    /// Whether a renewal is on its way.
    #[inline]
    pub fn is_in_flight(&self) -> bool {
        self.0.has(Flag::InFlight)
    }

    /// What to send: the demand since the last report, debts, and what it holds beyond its need. Requests wait for
    /// `wanted`.
    pub fn renewal(&mut self, plan: &Arc<Plan>, key: Key, wanted: Wanted, now_ns: u64) -> Renewal {
        let spent = self.spent();
        if now_ns > self.0.end_ns() + NUMBERED_NS {
            // Long over: Redis may number another epoch so by now.
            self.0.set_lease(self.0.rate(), 0);
        }
        let hint = self.hint(now_ns);
        let reported = self.0.reported();
        let demand = self.sample_demand(now_ns);
        let (delta, keep) = match self.0.has(Flag::Alone) {
            true => (self.owed_fallback(plan), 0.0),
            false => self.settle(plan, demand, now_ns),
        };
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
            delta,
            keep,
            release: false,
            ahead: wanted.ahead,
        }
    }

    /// Takes what Redis gave for a renewal. The lease counts from when it was asked for, so it ends here before it ends there.
    pub fn granted(&mut self, renewal: &Renewal, grant: &Grant, sent_ns: u64) {
        if self.0.has(Flag::Alone) {
            // Redis is back. What was spent since it was asked is a debt.
            let owed = self.0.level();
            self.0.lower(Flag::Alone);
            self.0.set_lease(0.0, 0);
            self.0.set_balance((-owed * UNIT as f64) as i64);
        }
        // What the old lease still accrues when Redis numbers its renewal in the same epoch, it accrues within the
        // new one. What the two clocks differ by is in neither, so nothing comes twice and nothing is lost.
        let rate_before = if grant.epoch == self.0.epoch() { self.0.rate() } else { 0.0 };
        self.0.set_end_ns(match grant.lasts_ns {
            0 => self.ended_ns(&renewal.plan, sent_ns),
            lasts_ns => sent_ns.saturating_add(lasts_ns),
        });
        self.0.set_lease(grant.rate, grant.epoch);
        let life_s = seconds(grant.lasts_ns);
        let given = ((grant.tokens + (self.0.rate() - rate_before) * life_s) * UNIT as f64) as i64;
        self.0.set_balance(self.0.balance().saturating_add(given));
        self.0.set_deny_until_ns(if grant.deny_ns == 0 { 0 } else { sent_ns.saturating_add(grant.deny_ns) });
        self.0.set_level(grant.level);
        // What Redis takes for held: what requests wait for is spent at once.
        self.0.set_last_grant(renewal.keep + (grant.tokens - renewal.pending as f64).max(0.0));
        self.0.lower(Flag::InFlight);
        if grant.level >= OVERDRAW_MIN {
            self.0.lower(Flag::Overdrawn);
        }
        self.0.raise(Flag::Known);
    }

    /// When a lease ended that was over when it was given: its window ends in less than an age. What was held is spent
    /// no longer for it; who waits for what was given has the time of an answer.
    fn ended_ns(&self, plan: &Plan, sent_ns: u64) -> u64 {
        let latest_ns = if self.0.epoch() == 0 { 0 } else { self.0.end_ns().min(sent_ns) };
        latest_ns.max(sent_ns.saturating_add(ANSWER_NS).saturating_sub(plan.sharing.age_ns()))
    }

    /// No answer came. Where Redis has heard nothing (`is_unheard`), what was told is to be told again. Else it may
    /// have heard all the same: a debt is told again, a credit is not.
    pub fn lost(&mut self, renewal: &Renewal, is_unheard: bool) {
        self.take_back(renewal, is_unheard);
        // What was spent may have been heard, and then it is not told twice.
        let untold = if is_unheard { renewal.spent } else { 0.0 };
        self.0.set_last_grant((untold - self.spent_of(0.0)).max(0.0));
        self.0.lower(Flag::InFlight);
    }

    /// Takes back what was told without an answer: a debt that may not have been heard stays owed, and what was given
    /// back is held again if nobody has heard of it.
    pub fn take_back(&mut self, renewal: &Renewal, is_unheard: bool) {
        if renewal.delta <= 0.0 && !is_unheard {
            return;
        }
        if self.0.has(Flag::Alone) {
            self.0.set_level(self.0.level() + renewal.delta);
            let held = (-renewal.delta.min(0.0) * UNIT as f64) as i64;
            self.0.set_balance(self.0.balance().saturating_add(held));
        } else {
            let owed = (renewal.delta * UNIT as f64) as i64;
            self.0.set_balance(self.0.balance().saturating_sub(owed));
        }
    }

    /// Whether it holds something worth giving back and nobody has come for it for a while, or owes or holds something
    /// and its lease is over.
    pub fn is_idle(&self, plan: &Plan, now_ns: u64) -> bool {
        if self.0.has(Flag::InFlight) || self.0.has(Flag::Alone) {
            return false;
        }
        if self.0.epoch() == 0 || now_ns > self.0.end_ns() + plan.sharing.age_ns() {
            // The next request's renewal would tell the same for nothing.
            return self.0.balance() < 0 || self.0.balance() >= UNIT && self.0.unseen_ns(now_ns) >= RETURN_NS;
        }
        let least_ns = if self.0.has(Flag::Sparse) { SPARSE_NS } else { IDLE_NS };
        let quiet_ns = ((IDLE_ARRIVALS / self.0.demand()) * 1e9).max(least_ns as f64);
        // The balance is what it holds and what it would still accrue.
        self.0.balance() >= IDLE_UNITS * UNIT && self.0.unseen_ns(now_ns) as f64 >= quiet_ns
    }

    /// Notes a request that comes after a pause which the demand that was told last does not explain: there is less of
    /// it now, but it has not gone, so another such pause says nothing.
    pub(super) fn note_pause(&mut self, now_ns: u64) {
        let unseen_ns = self.0.unseen_ns(now_ns);
        let least_s = seconds(unseen_ns.saturating_sub(words::SEEN_STEP_NS));
        if unseen_ns >= PAUSE_NS && least_s * self.0.demand() >= QUIET_ARRIVALS {
            self.0.raise(Flag::Sparse);
        }
    }

    /// Ends a denial for which nobody has come for a while: it was measured by a demand that is gone, here and so
    /// elsewhere too, and what others gave back meanwhile is there to be had.
    pub fn forgive(&mut self, now_ns: u64) {
        if now_ns >= self.0.deny_until_ns() || self.0.has(Flag::InFlight) || self.0.has(Flag::Alone) {
            return;
        }
        let quiet_ns = ((QUIET_ARRIVALS / self.0.demand()) * 1e9).max(IDLE_NS as f64);
        if self.0.unseen_ns(now_ns) as f64 >= quiet_ns {
            self.0.set_deny_until_ns(0);
        }
    }

    /// Whether it has a lease, or holds or owes what Redis knows of.
    pub fn has_something_of_redis(&self) -> bool {
        !self.0.has(Flag::Alone) && (self.0.epoch() != 0 || self.0.balance() != 0)
    }

    /// Gives everything back: what it holds, and the rate. The demand stays known. `None`: there is nothing, or an
    /// answer is awaited.
    pub fn release(&mut self, plan: &Arc<Plan>, key: Key, now_ns: u64) -> Option<Renewal> {
        if !self.has_something_of_redis() || self.0.has(Flag::InFlight) {
            return None;
        }
        let renewal = Renewal {
            key,
            plan: Arc::clone(plan),
            epoch: self.0.epoch(),
            demand: 0.0,
            reported: self.0.reported(),
            rate: self.0.rate(),
            pending: 0,
            costs: SmallVec::new(),
            hint: 0.0,
            spent: self.spent(),
            // What is to accrue until the lease's end is in it: Redis knows how much of its epoch is left.
            delta: -(self.0.balance() as f64 / UNIT as f64),
            keep: 0.0,
            release: true,
            ahead: false,
        };
        self.0.raise(Flag::InFlight);
        self.0.set_balance(0);
        self.0.set_end_ns(now_ns);
        self.0.set_lease(0.0, 0);
        self.0.set_last_grant(0.0);
        self.0.set_reported(0.0);
        // Denials were measured by a demand that is gone; what is measured next begins with its silence.
        self.0.set_deny_until_ns(0);
        self.0.set_offered(0);
        self.0.set_reported_at(now_ns.saturating_sub(self.0.unseen_ns(now_ns)));
        Some(renewal)
    }

    /// What was given back is answered: it was heard, or it was not (whether nobody heard it).
    pub fn released(&mut self, release: &Renewal, unanswered: Option<bool>) {
        if let Some(is_unheard) = unanswered {
            self.take_back(release, is_unheard);
        }
        self.0.lower(Flag::InFlight);
    }

    /// Four times the last grant, and who waited for it, where it was used up in no time: a slow start.
    fn hint(&self, now_ns: u64) -> f64 {
        let is_spent = self.0.epoch() != 0 && self.held(now_ns) < UNIT;
        if is_spent && self.0.unreported_ns(now_ns) < HINT_NS {
            4.0 * (self.0.last_grant() + 1.0)
        } else {
            0.0
        }
    }

    /// Spent of what it held after the last grant and of what accrues, units, without what was waited for. Negative
    /// where a request did not take what it had waited for, or gave back what it had.
    fn spent(&self) -> f64 {
        if self.0.has(Flag::Alone) { 0.0 } else { self.spent_of(self.0.last_grant()) }
    }

    /// The same of so many units that it held when it reported last.
    fn spent_of(&self, held: f64) -> f64 {
        let life_s =
            if self.0.epoch() == 0 { 0.0 } else { seconds(self.0.reported_before_ns(self.0.end_ns())) };
        held + self.0.rate() * life_s - self.0.balance() as f64 / UNIT as f64
    }

    /// The demand, units a second: rises at once where the arrivals leave no doubt, falls at once to a tenth where
    /// their absence leaves none, and slowly in between.
    fn sample_demand(&mut self, now_ns: u64) -> f64 {
        let before = self.0.demand();
        // Without the arrival that brought the report about: it always comes, however short the time.
        let arrived = f64::from(self.0.offered().saturating_sub(1));
        let measured_s = seconds(self.0.unreported_ns(now_ns));
        // A shorter sample let one node claim nearly everything.
        let sample_s = measured_s.max(SAMPLE_MIN_S);
        let demand = if before == 0.0 {
            UNKNOWN
        } else {
            let weight = 1.0 - (-sample_s / DECAY_S).exp();
            // On the whole it counts: the one before it began what is measured here.
            let slow = before + (f64::from(self.0.offered()) / sample_s - before) * weight;
            let doubt = 1.5 * arrived.sqrt();
            let least = (arrived - doubt) / sample_s;
            // No less, for what comes in bursts comes again. A sample made longer than it was says nothing of absence.
            let most = ((arrived + doubt + 1.5) / sample_s).max(before * FALL);
            let most = if measured_s < SAMPLE_MIN_S { f64::INFINITY } else { most };
            slow.min(most).max(least).max(DEMAND_MIN)
        };
        let demand = words::rounded(demand);
        self.0.lower(Flag::Sparse);
        self.0.set_offered(0);
        self.0.set_demand(demand);
        self.0.set_reported(demand);
        self.0.set_reported_at(now_ns);
        demand
    }

    /// Takes out of the balance what is owed or held beyond need. (Debts less returns, what is kept), units.
    fn settle(&mut self, plan: &Plan, demand: f64, now_ns: u64) -> (f64, f64) {
        let held = self.held(now_ns);
        let is_aged = now_ns > self.0.end_ns() + plan.sharing.age_ns();
        let need = (0.25 * demand * seconds(plan.sharing.epoch_ns)).max(1.0);
        let keep_max = if is_aged || self.0.epoch() == 0 { 0 } else { (need * UNIT as f64) as i64 };
        let kept = held.clamp(0, keep_max);
        self.0.set_balance(self.0.balance().saturating_sub(held.saturating_sub(kept)));
        (kept.saturating_sub(held) as f64 / UNIT as f64, kept as f64 / UNIT as f64)
    }
}

/// For so long the number of an epoch means no other.
const NUMBERED_NS: u64 = 3_600_000_000_000;
/// A demand nobody has measured, units a second.
const UNKNOWN: f64 = 0.5;
/// The least that is told.
const DEMAND_MIN: f64 = 0.01;
const SAMPLE_MIN_S: f64 = 0.02;
/// An answer takes no longer, or is taken for lost.
const ANSWER_NS: u64 = 10_000_000;
/// What is left of a demand, at least, from one report to the next.
const FALL: f64 = 0.1;
/// Time in which an old demand is forgotten to a third.
const DECAY_S: f64 = 0.6;
/// A grant that lasts no longer is followed by a larger one.
const HINT_NS: u64 = 50_000_000;
/// A lease is idle when so many arrivals are missing, and at least for `IDLE_NS`: the time between two sweeps.
const IDLE_ARRIVALS: f64 = 6.0;
const IDLE_NS: u64 = 50_000_000;
/// What is held of a lease that is over goes back when nobody has come for so long.
const RETURN_NS: u64 = 1_500_000_000;
/// The same where requests have come far apart since the last report.
const SPARSE_NS: u64 = 200_000_000;
/// With so much left in Redis, units, a node may again owe one.
const OVERDRAW_MIN: f64 = 10.0;
/// A denial is forgotten, and a pause noted, when so many are missing.
const QUIET_ARRIVALS: f64 = 8.0;
/// Less than this is not worth a message.
const IDLE_UNITS: i64 = 2;
