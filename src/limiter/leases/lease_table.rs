//! [`LeaseTable`]: what this node knows of the windows it shares, a [`Lease`] for each key: what it holds of a leased window, and
//! what Redis last said of one without leases. It decides from that alone; `renewals.rs` asks Redis.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::check::charge_state::{ChargeOutcome, ChargeState, Refund};
use crate::fleet::Fleet;
use crate::leases::second_looks::SecondLooks;
use crate::local::Stats;
use crate::local::slots::Slots;
use limit::{Algorithm, Answer, Charge, Key, Outcome, Plan, PlanId, View};
use limit::{LEAD_MIN_NS, Lease, LeaseAnswer};

/// This node's leases of all keys that the fleet shares, in memory fixed by the configuration. A full table evicts keys whose
/// lease says nothing. If there is none, a new key gets no slot, and Redis decides each of its requests.
pub struct LeaseTable {
    fleet: Arc<Fleet>,
    /// A slot has the plan in the place of a fingerprint.
    slots: Slots<8, 6>,
    /// How often a key got no slot.
    overflows: AtomicU64,
    /// How much ahead of need leases are renewed, nanoseconds.
    pub(super) lead_ns: AtomicU64,
    pub(crate) looks: SecondLooks,
}

impl LeaseTable {
    pub(super) fn new(fleet: &Arc<Fleet>) -> LeaseTable {
        LeaseTable {
            fleet: Arc::clone(fleet),
            slots: Slots::with_memory(fleet.lease_bytes),
            overflows: AtomicU64::new(0),
            lead_ns: AtomicU64::new(LEAD_MIN_NS),
            looks: SecondLooks::default(),
        }
    }

    #[inline]
    pub(crate) fn lead_ns(&self) -> u64 {
        self.lead_ns.load(Ordering::Relaxed)
    }

    /// How far ahead leases of a key are renewed: as long as its answers take, if requests cannot wait for them.
    pub(super) fn lead_for(&self, key: Key) -> u64 {
        let round_trip_ns = self.fleet.link.round_trip_ns(key);
        let lead_ns = round_trip_ns + round_trip_ns / 4 + LEAD_MIN_NS;
        if self.fleet.is_late(key) { lead_ns.min(LEAD_MAX_NS) } else { LEAD_MIN_NS }
    }

    /// Counters of the table, for the metrics.
    pub fn stats(&self) -> Stats {
        Stats { overflow_decisions: self.overflows.load(Ordering::Relaxed), ..self.slots.stats() }
    }

    /// This node's lease of a key, for operators; `None` if it has none.
    pub fn view(&self, key: Key, now_ns: u64) -> Option<View> {
        Some(self.peek(key)?.1.view(now_ns))
    }

    /// A key's lease and the plan it was written under.
    pub(crate) fn peek(&self, key: Key) -> Option<(Option<PlanId>, Lease)> {
        let slot = self.slots.find(key)?;
        Some((PlanId::from_bits(slot.fingerprint()), Lease::from_words(slot.state())))
    }

    /// The lease that Redis has of this node still under another plan than that of a charge, and that plan.
    pub(crate) fn former(&self, charge: &Charge) -> Option<(Option<PlanId>, Lease)> {
        let (under, lease) = self.peek(charge.key).filter(|(under, _)| *under != charge.plan)?;
        let is_leased = self.fleet.plans.get(under).is_some_and(|plan| !plan.sharing.is_exact());
        (is_leased && (lease.is_in_flight() || lease.has_something_of_redis())).then_some((under, lease))
    }

    /// A copy of a key's lease, as it is for a charge.
    pub(crate) fn copy(&self, charge: &Charge, now_ns: u64) -> Lease {
        let (under, share) = self.peek(charge.key).unwrap_or_default();
        self.under(charge, under, share, now_ns)
    }

    /// Changes a key's lease, creating it if needed; `None` if the table has no room for it.
    pub(crate) fn change<R>(
        &self,
        charge: &Charge,
        now_ns: u64,
        change: impl FnOnce(&mut Lease) -> R,
    ) -> Option<R> {
        let says_nothing = |under, words| {
            let plan = self.fleet.plans.get(PlanId::from_bits(under));
            plan.is_none_or(|plan| Lease::from_words(words).says_nothing(&plan, now_ns))
        };
        let plan = PlanId::into_bits(charge.plan);
        let claim = || self.slots.find_or_claim(charge.key, plan, says_nothing);
        let Some(mut slot) = self.slots.find(charge.key).or_else(claim) else {
            self.overflows.fetch_add(1, Ordering::Relaxed);
            return None;
        };
        let (under, share) = (PlanId::from_bits(slot.fingerprint()), Lease::from_words(slot.state()));
        let mut share = self.under(charge, under, share, now_ns);
        let result = change(&mut share);
        slot.set_state(share.into_words(), plan);
        Some(result)
    }

    /// Changes the lease of a key that has one. `change` gets the plan under which it was written.
    pub(crate) fn change_known<R>(
        &self,
        key: Key,
        change: impl FnOnce(Option<PlanId>, &mut Lease) -> R,
    ) -> Option<R> {
        let mut slot = self.slots.find(key)?;
        let (under, mut share) = (slot.fingerprint(), Lease::from_words(slot.state()));
        let result = change(PlanId::from_bits(under), &mut share);
        slot.set_state(share.into_words(), under);
        Some(result)
    }

    /// A key's lease for a charge. If it was written under another plan, the limit has changed: a denial is dropped, and what
    /// is lent keeps its share.
    fn under(&self, charge: &Charge, under: Option<PlanId>, mut share: Lease, now_ns: u64) -> Lease {
        if under != charge.plan {
            share.end_denial();
            let plans = &self.fleet.plans;
            if let (Some(old), Some(new)) = (plans.get(under), plans.get(charge.plan)) {
                share.adopt(&old, &new, now_ns);
            }
        }
        share
    }

    /// The fast path: spends a charge from a lease that holds enough and needs no renewal. `None`: it has to be decided the
    /// long way.
    #[inline(always)]
    pub(crate) fn spend(&self, charge: &Charge, now_ns: u64) -> Option<Outcome> {
        let plan = self.fleet.plans.get(charge.plan).filter(|plan| !plan.sharing.is_exact())?;
        let mut slot = self.slots.find(charge.key)?;
        let under = slot.fingerprint();
        // After a reload the lease may still belong to another plan.
        if under != PlanId::into_bits(charge.plan) {
            return None;
        }
        let mut share = Lease::from_words(slot.state());
        let (remaining, reset_ns) = share.spend(&plan, charge.cost, now_ns, self.lead_ns())?;
        slot.set_state(share.into_words(), under);
        Some(Outcome::new(Answer::Admitted, remaining, reset_ns))
    }

    /// Decides a charge by this node's lease; `None`: Redis has to be asked.
    pub(crate) fn decide(&self, plan: &Plan, charge: &Charge, now_ns: u64) -> Option<ChargeOutcome> {
        let (told, left) = self.change(charge, now_ns, |share| {
            (self.take_from(share, plan, charge, now_ns), share.estimate(plan, now_ns))
        })?;
        let state = match told {
            LeaseAnswer::Ask => return None,
            LeaseAnswer::Admitted { renew } => ChargeState::Taken { refund: Refund::Lease, renews: renew },
            LeaseAnswer::Denied { .. } => ChargeState::Refused,
        };
        Some((state, lease_outcome(plan, charge.cost, told, left)))
    }

    /// What a lease answers to a charge, overdrawn and rechecked as the policy allows. `LeaseAnswer::Ask`: Redis has
    /// to be asked.
    #[inline]
    pub(crate) fn take_from(
        &self,
        share: &mut Lease,
        plan: &Plan,
        charge: &Charge,
        now_ns: u64,
    ) -> LeaseAnswer {
        let is_quick = || self.fleet.link.is_quick(charge.key);
        match share.take(plan, charge.cost, now_ns, self.lead_ns()) {
            LeaseAnswer::Ask if self.fleet.may_owe(charge, plan) && share.overdraw(plan, now_ns) => {
                LeaseAnswer::Admitted { renew: true }
            }
            LeaseAnswer::Denied { .. } if share.is_denial_old(now_ns) && is_quick() => LeaseAnswer::Ask,
            // Redis is asked, because only it knows how long a cost above one has to wait in a sliding window.
            LeaseAnswer::Denied { .. }
                if charge.cost > 1 && plan.quota.algorithm() == Algorithm::SlidingWindow && is_quick() =>
            {
                LeaseAnswer::Ask
            }
            told => told,
        }
    }

    /// The outcome of a charge that Redis has denied before, while that denial lasts.
    pub(crate) fn denied_before(&self, plan: &Plan, charge: &Charge, now_ns: u64) -> Option<Outcome> {
        let refused = self.change_known(charge.key, |under, share| {
            // The denial no longer holds, because a reload has changed the limit.
            if under != charge.plan {
                share.end_denial();
                return None;
            }
            self.denied_by(share, plan, charge, now_ns)
        });
        refused.flatten()
    }

    /// The outcome of a charge on an exact window that Redis has denied before, while that denial lasts.
    pub(crate) fn denied_by(
        &self,
        share: &mut Lease,
        plan: &Plan,
        charge: &Charge,
        now_ns: u64,
    ) -> Option<Outcome> {
        let retry_after_ns = match self.fleet.link.is_quick(charge.key) {
            true => share.refuses(plan, charge.cost, now_ns),
            // No recheck, because Redis cannot be asked again.
            false => share.refused_for(plan, charge.cost, now_ns),
        }?;
        let (remaining, reset_ns) = share.estimate(plan, now_ns);
        Some(Outcome::new(Answer::Later { retry_after_ns }, remaining, reset_ns.max(retry_after_ns)))
    }

    /// What a lease answers to a charge without Redis, and what is left then.
    pub(crate) fn fall_back(
        &self,
        share: &mut Lease,
        plan: &Plan,
        charge: &Charge,
        now_ns: u64,
    ) -> (LeaseAnswer, (u64, u64)) {
        let (nodes, is_away) = (self.fleet.spenders(charge), !self.fleet.link.answers(charge.key));
        if !is_away && let Some(told) = self.beyond_lease(share, plan, charge, now_ns) {
            return (told, share.estimate(plan, now_ns));
        }
        let told = share.take_fallback(plan, charge.cost, now_ns, nodes, is_away);
        (told, share.fallback_left(plan, now_ns, nodes, is_away))
    }

    /// What a Redis that answers too late leaves to this node of a key beyond its lease: its part of what is left. `None`: Redis has
    /// said nothing of the key.
    pub(crate) fn beyond_lease(
        &self,
        share: &mut Lease,
        plan: &Plan,
        charge: &Charge,
        now_ns: u64,
    ) -> Option<LeaseAnswer> {
        // Until the second look nothing is within its part.
        let cost = if self.looks.hold(charge.key) { u64::MAX } else { charge.cost };
        let rank = || self.fleet.link.rank(charge.key);
        Some(match share.advance(plan, cost, now_ns, self.fleet.nodes(), rank)? {
            true => LeaseAnswer::Admitted { renew: false },
            false => LeaseAnswer::Denied { retry_after_ns: self.lead_ns() },
        })
    }

    /// Whether a key stays in fallback a little longer, so that a Redis that has just come back does not meet every key of
    /// every node at once. Chosen by bits of the key, so that all nodes bring the same keys back first.
    pub(crate) fn is_held_back(&self, key: Key) -> bool {
        self.peek(key).is_some_and(|(_, share)| self.is_held_back_as(key, &share))
    }

    /// The same of a key with this lease.
    pub(super) fn is_held_back_as(&self, key: Key, share: &Lease) -> bool {
        share.is_fallback() && key.high() % 100 >= u64::from(self.fleet.link.ramp_percent(key))
    }

    /// Whether Redis is asked about a key that this node cannot decide. A slow one is not, because nobody waits for it.
    pub(crate) fn is_asked(&self, key: Key) -> bool {
        self.fleet.link.is_quick(key) && !self.is_held_back(key)
    }

    /// How long ago Redis said what is left of a window, nanoseconds; `None`: never.
    pub(crate) fn heard_ago_ns(&self, charge: &Charge, is_exact: bool, now_ns: u64) -> Option<u64> {
        self.peek(charge.key)?.1.age_ns(is_exact, now_ns)
    }

    /// Removes a charge from the demand of its lease, because another window refused the request.
    pub(crate) fn forget_wanted(&self, charge: &Charge) {
        if self.fleet.plans.get(charge.plan).is_some_and(|plan| !plan.sharing.is_exact()) {
            let _ = self.change_known(charge.key, |_, share| share.forget_wanted(charge.cost));
        }
    }

    /// Units left of an exact window as far as this node knows.
    pub(crate) fn left(&self, charge: &Charge, now_ns: u64) -> u64 {
        let plan = self.fleet.plans.get(charge.plan);
        plan.map_or(0, |plan| self.copy(charge, now_ns).estimate(&plan, now_ns).0)
    }

    /// How long an exact window refuses a charge at most, by what Redis last said was left of it; `None`: it may admit it.
    pub(crate) fn known_wait_ns(&self, charge: &Charge, now_ns: u64) -> Option<u64> {
        let plan = self.fleet.plans.get(charge.plan).filter(|plan| plan.sharing.is_exact())?;
        let (_, share) = self.peek(charge.key).filter(|(under, _)| *under == charge.plan)?;
        share.heard_wait_ns(&plan, charge.cost, now_ns)
    }

    /// The outcome that a shared charge would have as far as this node knows; `None` if the fleet does not share it.
    pub(crate) fn foresee(&self, charge: &Charge, now_ns: u64) -> Option<Outcome> {
        let fleet = &self.fleet;
        let plan = &fleet.plans.get(charge.plan)?;
        let mut share = self.copy(charge, now_ns);
        let (remaining, reset_ns) = match share.is_fallback() && !plan.sharing.is_exact() {
            true => {
                share.fallback_left(plan, now_ns, fleet.spenders(charge), !fleet.link.answers(charge.key))
            }
            false => share.estimate(plan, now_ns),
        };
        let told = match (plan.sharing.is_exact(), share.refused_for(plan, charge.cost, now_ns)) {
            _ if charge.cost > plan.quota.capacity() => {
                return Some(Outcome::new(Answer::Never, remaining, reset_ns));
            }
            (true, Some(retry_after_ns)) if charge.cost > 0 => LeaseAnswer::Denied { retry_after_ns },
            (false, _) if charge.cost > remaining => {
                let told = share.take(plan, charge.cost, now_ns, self.lead_ns());
                return Some(lease_outcome(plan, charge.cost, told, (remaining, reset_ns)));
            }
            _ => LeaseAnswer::Admitted { renew: false },
        };
        let remaining = match told {
            LeaseAnswer::Admitted { .. } => remaining.saturating_sub(charge.cost),
            LeaseAnswer::Denied { .. } | LeaseAnswer::Ask => remaining,
        };
        Some(outcome_of(told, (remaining, reset_ns)))
    }
}

/// What a lease's answer means to a client. `Ask` is a denial of unknown length: Redis had too little.
pub(crate) fn outcome_of(told: LeaseAnswer, (remaining, reset_ns): (u64, u64)) -> Outcome {
    match told {
        LeaseAnswer::Admitted { .. } => Outcome::new(Answer::Admitted, remaining, reset_ns),
        LeaseAnswer::Denied { retry_after_ns } => {
            Outcome::new(Answer::Later { retry_after_ns }, remaining, reset_ns.max(retry_after_ns))
        }
        LeaseAnswer::Ask => Outcome::new(Answer::Later { retry_after_ns: ASK_RETRY_NS }, remaining, reset_ns),
    }
}

/// The same for a lease of a bucket: a lease denies until asking Redis again makes sense, but the client is told when the
/// bucket will have refilled the units, if that is later.
pub(crate) fn lease_outcome(plan: &Plan, cost: u64, told: LeaseAnswer, left: (u64, u64)) -> Outcome {
    let outcome = outcome_of(told, left);
    let (Algorithm::TokenBucket, Answer::Later { retry_after_ns }) =
        (plan.quota.algorithm(), outcome.answer())
    else {
        return outcome;
    };
    let (remaining, reset_ns) = left;
    // From the time until it is full, because that counts fractions of a unit, which `remaining` does not.
    let spare = plan.quota.capacity().saturating_sub(cost) as f64;
    let unit_ns = plan.quota.period_ns().get() as f64 / plan.quota.limit().get() as f64;
    let refilled_ns = reset_ns.saturating_sub((spare * unit_ns) as u64);
    let retry_after_ns = retry_after_ns.max(refilled_ns);
    Outcome::new(Answer::Later { retry_after_ns }, remaining, reset_ns.max(retry_after_ns))
}

/// The farthest ahead that leases are renewed: a fifth of their longest life.
const LEAD_MAX_NS: u64 = 100_000_000;
/// `Retry-After` of a client for whom Redis had too little, without saying for how long.
pub(crate) const ASK_RETRY_NS: u64 = 10_000_000;
