//! What one node knows of the keys it shares with its fleet: leases, denials, and its own share while Redis is
//! away.

use std::hash::Hasher;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use siphasher::sip128::{Hasher128, SipHasher13};

use super::charge_state::{ChargeState, Refund, Said, said, unheard};
use super::debts::Debts;
use super::holdings::Permits;
use super::link::Link;
use super::plans::Plans;
use super::questions::Questions;
use super::renewal_queue::Renewals;
use super::watched::Watched;
use super::{Caller, Decision, Limiter};
use crate::limit::Plan;
use crate::limit::{Algorithm, Answer, Charge, Key, Outcome, Quota, WhenDown};
use crate::limit::{LEAD_MIN_NS, Lease, PlanId, Told, View};
use crate::local::Leases;
use crate::metrics::Tier;

/// The shared half of a limiter.
pub struct Fleet {
    pub(super) link: Arc<dyn Link>,
    pub(super) deadline: Duration,
    pub(super) shares: Leases,
    pub(super) plans: Plans,
    pub(super) renewals: Renewals,
    pub(super) watched: Watched,
    pub(super) permits: Permits,
    /// How much ahead of need leases are renewed, nanoseconds.
    lead_ns: AtomicU64,
    /// What keys of addresses are hashed from.
    addresses: SipHasher13,
    pub(super) questions: Questions,
    pub(super) debts: Debts,
}

impl Fleet {
    /// A fleet's node with so many bytes for its shares, whose requests wait for Redis no longer than the
    /// deadline.
    pub fn new(link: Arc<dyn Link>, bytes: usize, deadline: Duration) -> Fleet {
        Fleet {
            link,
            deadline,
            shares: Leases::with_memory(bytes),
            plans: Plans::default(),
            renewals: Renewals::default(),
            watched: Watched::default(),
            permits: Permits::default(),
            lead_ns: AtomicU64::new(LEAD_MIN_NS),
            addresses: SipHasher13::new(),
            questions: Questions::default(),
            debts: Debts::default(),
        }
    }

    /// Hashes keys of addresses under this salt, so that no client can choose addresses whose keys collide.
    pub fn salted(self, salt: &[u8; 16]) -> Fleet {
        Fleet { addresses: SipHasher13::new_with_key(salt), ..self }
    }

    /// How much ahead of need leases are renewed, nanoseconds.
    #[inline]
    pub(super) fn lead_ns(&self) -> u64 {
        self.lead_ns.load(Ordering::Relaxed)
    }

    /// Whether answers take longer than a request waits.
    fn is_late(&self, round_trip_ns: u64) -> bool {
        u128::from(round_trip_ns) > self.deadline.as_nanos()
    }

    /// Leases are renewed as much ahead of need as answers take, of all shards the slowest.
    pub(super) fn follow(&self, round_trip_ns: u64) {
        let lead_ns = if self.is_late(round_trip_ns) {
            round_trip_ns + round_trip_ns / 4 + LEAD_MIN_NS
        } else {
            LEAD_MIN_NS
        };
        self.lead_ns.store(lead_ns.min(LEAD_MAX_NS), Ordering::Relaxed);
    }

    /// The table of shares.
    pub fn leases(&self) -> &Leases {
        &self.shares
    }

    /// The plans of every configuration so far.
    pub fn plans(&self) -> &Plans {
        &self.plans
    }

    /// Changes a key's share; `None` where the table has no room for it.
    pub(super) fn change<R>(
        &self,
        charge: &Charge,
        now_ns: u64,
        change: impl FnOnce(&mut Lease) -> R,
    ) -> Option<R> {
        let says_nothing = |under, words| {
            self.plans.get(under).is_none_or(|plan| Lease::from_words(words).says_nothing(plan, now_ns))
        };
        self.shares.change(charge.key, charge.plan, says_nothing, |under, words| {
            let mut share = share_under(charge, under, *words, now_ns);
            let result = change(&mut share);
            *words = share.into_words();
            result
        })
    }

    /// Spends a charge of this node's lease, where there is a lease and nothing else to be done.
    #[inline(always)]
    pub(super) fn spend(&self, charge: &Charge, now_ns: u64) -> Option<Outcome> {
        let plan = self.plans.get(charge.plan).filter(|plan| !plan.sharing.is_exact())?;
        let spent = self.shares.change_known(charge.key, |under, words| {
            let mut share = Lease::from_words(*words);
            // After a reload the share may be another plan's still.
            let left = if under == charge.plan {
                share.spend(plan, charge.cost, now_ns, self.lead_ns())
            } else {
                None
            };
            *words = share.into_words();
            left
        });
        spent?.map(|(remaining, reset_ns)| Outcome::new(Answer::Admitted, remaining, reset_ns))
    }

    /// Changes the share of a key that has one; `change` is told the number of the plan it is under.
    pub(super) fn change_known<R>(
        &self,
        key: Key,
        change: impl FnOnce(Option<PlanId>, &mut Lease) -> R,
    ) -> Option<R> {
        self.shares.change_known(key, |under, words| {
            let mut share = Lease::from_words(*words);
            let result = change(under, &mut share);
            *words = share.into_words();
            result
        })
    }

    /// The key of a client's address in a charge's window, whatever the policy counts: what it counts may be the
    /// client's to choose.
    fn key_of_address(&self, charge: &Charge, caller: Caller) -> Key {
        let mut state = self.addresses;
        state.write_u32(PlanId::into_bits(charge.plan));
        state.write_u16(charge.window);
        state.write_u128(caller.address);
        Key::new(state.finish128().as_u128())
    }

    /// What this node knows of a key that the fleet shares; `None` where it has nothing of it.
    pub fn view(&self, key: Key, now_ns: u64) -> Option<View> {
        let (_, words) = self.shares.peek(key)?;
        Some(Lease::from_words(words).view(now_ns))
    }

    /// Whether a key's lease is worth it though its limit is small: nobody else misses what this node holds, or requests
    /// cannot wait for answers.
    pub(super) fn wants_ahead(&self, key: Key) -> bool {
        self.link.nodes() <= 1 || self.is_late(self.link.round_trip_ns(key))
    }

    /// Whether a request that would have to wait may owe its unit, as every node may where there are no more nodes than
    /// units that may be owed; Redis is told at once.
    pub fn may_owe(&self, charge: &Charge, plan: &Plan) -> bool {
        charge.cost == 1 && self.link.nodes() <= plan.sharing.spare && self.link.is_quick(charge.key)
    }

    /// Whether a key that was decided alone is so a little longer: a Redis that has just come back is not to meet every
    /// key of every node at once. The same keys come first on every node, so that each soon has one limit again.
    fn is_held_back(&self, key: Key) -> bool {
        let is_fallback =
            self.shares.peek(key).is_some_and(|(_, words)| Lease::from_words(words).is_fallback());
        is_fallback && key.high() % 100 >= u64::from(self.link.ramp_percent(key))
    }

    /// This node's share of a charge's window; the window itself where the fleet does not share it.
    pub(super) fn share_of(&self, charge: &Charge) -> Quota {
        self.plans.share(charge.plan).unwrap_or(charge.quota)
    }

    /// A charge as this node's table notes it beside Redis, to know of it should Redis go away.
    pub(super) fn own_part(&self, charge: &Charge) -> Charge {
        Charge { quota: self.share_of(charge), count_denied: true, ..*charge }
    }

    /// What this node's table enforces of an exact window while Redis is away; `None` where it does not.
    pub(super) fn fallback_share(&self, charge: &Charge) -> Option<Quota> {
        let sharing = &self.plans.get(charge.plan)?.sharing;
        let is_fallback =
            sharing.is_exact() && sharing.when_down == WhenDown::Local && !self.link.is_up(charge.key);
        if is_fallback { self.plans.share(charge.plan) } else { None }
    }

    /// What is left of an exact window as far as this node knows, units.
    pub(super) fn left(&self, charge: &Charge, now_ns: u64) -> u64 {
        let Some(plan) = self.plans.get(charge.plan) else { return 0 };
        let (under, words) = self.shares.peek(charge.key).unwrap_or_default();
        share_under(charge, under, words, now_ns).estimate(plan, now_ns).0
    }

    /// What would be said of a shared charge, as this node knows it; `None` where the fleet does not share it.
    pub(super) fn foresee(&self, charge: &Charge, now_ns: u64) -> Option<Outcome> {
        let plan = self.plans.get(charge.plan)?;
        let (under, words) = self.shares.peek(charge.key).unwrap_or_default();
        let mut share = share_under(charge, under, words, now_ns);
        let (remaining, reset_ns) = share.estimate(plan, now_ns);
        let told = match (plan.sharing.is_exact(), share.refused_for(plan, charge.cost, now_ns)) {
            _ if charge.cost > plan.quota.capacity() => {
                return Some(Outcome::new(Answer::Never, remaining, reset_ns));
            }
            (true, Some(retry_after_ns)) if charge.cost > 0 => Told::Denied { retry_after_ns },
            (false, _) if charge.cost > remaining => {
                let told = share.take(plan, charge.cost, now_ns, self.lead_ns());
                return Some(lease_outcome(plan, charge.cost, told, (remaining, reset_ns)));
            }
            _ => Told::Admitted { renew: false },
        };
        let remaining = match told {
            Told::Admitted { .. } => remaining.saturating_sub(charge.cost),
            Told::Denied { .. } | Told::Ask => remaining,
        };
        Some(outcome_of(told, (remaining, reset_ns)))
    }
}

impl Limiter {
    /// What this node can say of one charge.
    pub(super) fn decide_charge(
        self: &Arc<Self>,
        charge: &Charge,
        caller: Caller,
        now_ns: u64,
        decision: &mut Decision,
    ) -> Said {
        let shared = self.fleet.as_ref().and_then(|fleet| Some((fleet, fleet.plans.get(charge.plan)?)));
        let Some((fleet, plan)) = shared else {
            let taken = self.table.take(charge, now_ns);
            return said(taken.outcome, Refund::Table(taken.place));
        };
        // One unit fits into any window.
        if charge.cost > 1 && charge.cost > plan.quota.capacity() {
            return (ChargeState::Refused, self.foresee(charge, now_ns));
        }
        let known = if !plan.sharing.is_exact() {
            self.spend_lease(fleet, plan, charge, now_ns)
        } else if plan.quota.algorithm() == Algorithm::Concurrency || charge.count_denied {
            // Permits come back at any time, so a denial says nothing of the next moment; and what counts when it is
            // denied is Redis's to count.
            None
        } else {
            denied_before(fleet, plan, charge, now_ns).map(|outcome| (ChargeState::Refused, outcome))
        };
        match known {
            Some(known) => known,
            None if fleet.link.is_quick(charge.key) && !fleet.is_held_back(charge.key) => {
                unheard(ChargeState::Asked)
            }
            None => self.without_answer(fleet, plan, charge, caller, now_ns, decision),
        }
    }

    /// Decides a charge for which nobody waits: its shard is away, or slower than a request may wait. One that is slow
    /// is told all the same, and lends for those to come; who has a lease has nothing beside it meanwhile.
    fn without_answer(
        self: &Arc<Self>,
        fleet: &Fleet,
        plan: &Arc<Plan>,
        charge: &Charge,
        caller: Caller,
        now_ns: u64,
        decision: &mut Decision,
    ) -> Said {
        let is_slow =
            !plan.sharing.is_exact() && fleet.link.is_up(charge.key) && !fleet.is_held_back(charge.key);
        let lead_ns = fleet.lead_ns();
        let left = fleet.change_known(charge.key, |_, share| {
            (is_slow && share.has_lease(plan, now_ns, lead_ns)).then(|| share.estimate(plan, now_ns))
        });
        if is_slow {
            self.renew(fleet, charge.key, charge.plan, plan, None, now_ns);
        }
        match left.flatten() {
            Some(left) => {
                let told = Told::Denied { retry_after_ns: lead_ns };
                (ChargeState::Refused, lease_outcome(plan, charge.cost, told, left))
            }
            None => self.alone(fleet, plan, charge, caller, now_ns, decision),
        }
    }

    /// Spends what this node holds; `None`: Redis must say.
    fn spend_lease(&self, fleet: &Fleet, plan: &Plan, charge: &Charge, now_ns: u64) -> Option<Said> {
        let (told, left) = fleet.change(charge, now_ns, |share| {
            let told = match share.take(plan, charge.cost, now_ns, fleet.lead_ns()) {
                Told::Ask if fleet.may_owe(charge, plan) && share.overdraw(plan, now_ns) => {
                    Told::Admitted { renew: true }
                }
                Told::Denied { .. } if share.is_denial_old(now_ns) && fleet.link.is_quick(charge.key) => {
                    Told::Ask
                }
                // How long a dear one has to wait for a window that slides, only Redis can say.
                Told::Denied { .. }
                    if charge.cost > 1
                        && plan.quota.algorithm() == Algorithm::SlidingWindow
                        && fleet.link.is_quick(charge.key) =>
                {
                    Told::Ask
                }
                told => told,
            };
            (told, share.estimate(plan, now_ns))
        })?;
        let state = match told {
            Told::Ask => return None,
            Told::Admitted { renew } => ChargeState::Taken { refund: Refund::Lease, renews: renew },
            Told::Denied { .. } => ChargeState::Refused,
        };
        Some((state, lease_outcome(plan, charge.cost, told, left)))
    }

    /// Decides a charge without Redis, as its policy wants it.
    pub(super) fn alone(
        &self,
        fleet: &Fleet,
        plan: &Arc<Plan>,
        charge: &Charge,
        caller: Caller,
        now_ns: u64,
        decision: &mut Decision,
    ) -> Said {
        decision.tier = Tier::Fallback;
        match plan.sharing.when_down {
            WhenDown::Deny => {
                decision.is_redis_down |= !charge.shadow;
                (ChargeState::Refused, Outcome::new(Answer::Later { retry_after_ns: DOWN_RETRY_NS }, 0, 0))
            }
            when_down if plan.quota.algorithm() == Algorithm::Concurrency => {
                // Not by address: what is in flight is told to Redis when it is back.
                let share = match when_down {
                    WhenDown::Local => fleet.share_of(charge),
                    WhenDown::Allow | WhenDown::Deny => charge.quota,
                };
                let outcome = fleet.permits.take_fallback(charge, plan, &share);
                said(outcome, Refund::Permit)
            }
            WhenDown::Allow => {
                // Coarse. It is not given back what another policy refuses.
                let (key, quota) = (fleet.key_of_address(charge, caller), plan.quota.for_address());
                let outcome = self.table.take(&Charge { key, quota, ..*charge }, now_ns).outcome;
                // A client is promised no more than the window that it knows.
                let remaining = outcome.remaining.min(plan.quota.capacity());
                let outcome = Outcome::new(outcome.answer(), remaining, outcome.reset_ns);
                said(outcome, Refund::Nothing)
            }
            WhenDown::Local if plan.sharing.is_exact() => self.take_share(fleet, charge, now_ns),
            WhenDown::Local => {
                let (nodes, is_away) = (fleet.link.nodes(), !fleet.link.is_up(charge.key));
                let told = fleet.change(charge, now_ns, |share| {
                    let told = share.take_fallback(plan, charge.cost, now_ns, nodes, is_away);
                    (told, share.estimate(plan, now_ns))
                });
                match told {
                    Some((told, left)) => {
                        let outcome = outcome_of(told, left);
                        said(outcome, Refund::Lease)
                    }
                    // No room for its share: the table's overflow bucket stands in for it.
                    None => self.take_share(fleet, charge, now_ns),
                }
            }
        }
    }

    /// Spends this node's share of a window in its own table.
    fn take_share(&self, fleet: &Fleet, charge: &Charge, now_ns: u64) -> Said {
        let quota = fleet.share_of(charge);
        let taken = self.table.take(&Charge { quota, ..*charge }, now_ns);
        let refund = Refund::Fallback { place: taken.place, taken_ns: now_ns };
        said(taken.outcome, refund)
    }
}

/// A key's share for a charge. A denial under another plan says nothing of what this one allows: the limit has changed.
fn share_under(charge: &Charge, under: Option<PlanId>, words: [u64; 6], now_ns: u64) -> Lease {
    let mut share = Lease::from_words(words);
    if under != charge.plan {
        share.deny_for(0, now_ns);
    }
    share
}

/// Whether a denial that Redis gave still stands for this charge.
pub(super) fn denied_before(fleet: &Fleet, plan: &Plan, charge: &Charge, now_ns: u64) -> Option<Outcome> {
    let refused = fleet.change_known(charge.key, |under, share| {
        // A denial under another plan says nothing of what this one allows: the limit has changed.
        if under != charge.plan {
            share.deny_for(0, now_ns);
            return None;
        }
        let refused = match fleet.link.is_quick(charge.key) {
            true => share.refuses(plan, charge.cost, now_ns),
            // Nobody could say otherwise.
            false => share.refused_for(plan, charge.cost, now_ns),
        };
        refused.map(|retry_after_ns| (retry_after_ns, share.estimate(plan, now_ns)))
    });
    let (retry_after_ns, (remaining, reset_ns)) = refused.flatten()?;
    Some(Outcome::new(Answer::Later { retry_after_ns }, remaining, reset_ns.max(retry_after_ns)))
}

/// What a share's word means to a client. To one that was let ask it is a denial of unknown length.
pub(super) fn outcome_of(told: Told, (remaining, reset_ns): (u64, u64)) -> Outcome {
    match told {
        Told::Admitted { .. } => Outcome::new(Answer::Admitted, remaining, reset_ns),
        Told::Denied { retry_after_ns } => {
            Outcome::new(Answer::Later { retry_after_ns }, remaining, reset_ns.max(retry_after_ns))
        }
        Told::Ask => Outcome::new(Answer::Later { retry_after_ns: ASK_RETRY_NS }, remaining, reset_ns),
    }
}

/// The same of a lease. It denies until asking is worth while; of a bucket that is as good as empty everywhere, the
/// client is told when the units will be there.
pub(super) fn lease_outcome(plan: &Plan, cost: u64, told: Told, left: (u64, u64)) -> Outcome {
    let outcome = outcome_of(told, left);
    let (Algorithm::TokenBucket, Answer::Later { retry_after_ns }) =
        (plan.quota.algorithm(), outcome.answer())
    else {
        return outcome;
    };
    let (remaining, reset_ns) = left;
    // Whole again less what it may lack then: the estimate's fractions of a unit count.
    let spare = plan.quota.capacity().saturating_sub(cost) as f64;
    let unit_ns = plan.quota.period_ns().get() as f64 / plan.quota.limit().get() as f64;
    let refilled_ns = reset_ns.saturating_sub((spare * unit_ns) as u64);
    let retry_after_ns = retry_after_ns.max(refilled_ns);
    Outcome::new(Answer::Later { retry_after_ns }, remaining, reset_ns.max(retry_after_ns))
}

/// Leases are renewed no more ahead of need: a fifth of their longest life.
const LEAD_MAX_NS: u64 = 100_000_000;
/// When a client that is denied because Redis is away may try again.
const DOWN_RETRY_NS: u64 = 1_000_000_000;
/// When one may for whom Redis had too little, without saying how long that will be so.
const ASK_RETRY_NS: u64 = 10_000_000;
