//! What a charge would be told, for `explain`: decided on copies by the functions that decide requests, so nothing is
//! spent, counted or asked.
//!
//! This node often cannot know: Redis would be asked. So a [`Foretold`] says who decides and, for the case that Redis does
//! not answer, what the fallback would say.

use std::sync::Arc;

use crate::fleet::{DOWN_RETRY_NS, Fleet, coarse_outcome, lease_outcome, others_spend, outcome_of};
use crate::{ClientAddress, Limiter};
use limit::{Algorithm, Answer, Charge, Lease, LeaseAnswer, Outcome, Plan, WhenDown};

/// Who would decide a charge of this client now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decider {
    /// This node: the window is its own, or its lease or a denial that it remembers decides.
    Node,
    /// Redis, which a request would ask; `outcome` is only what this node remembers.
    Redis,
    /// This node without Redis, which is down or too slow.
    Fallback,
}

/// What a charge would be told.
#[derive(Clone, Copy, Debug)]
pub struct Foretold {
    /// Who would decide it, so whose word `outcome` is.
    pub decider: Decider,
    /// What the charge would be told, with nothing spent.
    pub outcome: Outcome,
    /// The outcome if Redis does not answer.
    pub without_redis: Outcome,
    /// Whether the fallback answers 503, because the policy has `when-redis-down = "deny"`.
    pub denies_without_redis: bool,
    /// Units that the fallback has left where the policy has `when-redis-down = "allow"`: many times the limit's.
    pub open_without_redis: Option<u64>,
    /// Units of the window that this node may spend without asking Redis; negative: owed.
    pub held: f64,
}

impl Limiter {
    /// What a charge of this client would be told now.
    pub fn foretell(&self, charge: &Charge, client: ClientAddress, now_ns: u64) -> Foretold {
        let shared = self.fleet.as_ref().and_then(|fleet| Some((fleet, fleet.plans.get(charge.plan)?)));
        let Some((fleet, plan)) = shared else {
            return Foretold::by_node(self.table.peek(charge, now_ns), 0.0);
        };
        if charge.cost > plan.quota.capacity() {
            return Foretold::by_node(self.foresee(charge, now_ns), 0.0);
        }
        let (under, words) = fleet.shares.peek(charge.key).unwrap_or_default();
        let mut share = fleet.share_under(charge, under, words, now_ns);
        let held = share.held_or_owed(now_ns);
        let known = if plan.sharing.is_exact() {
            let is_remembered = plan.quota.algorithm() != Algorithm::Concurrency && !charge.count_denied;
            is_remembered.then(|| fleet.denied_by(&mut share, plan, charge, now_ns)).flatten()
        } else {
            match fleet.take_from(&mut share, plan, charge, now_ns) {
                LeaseAnswer::Ask => None,
                told => Some(lease_outcome(plan, charge.cost, told, share.estimate(plan, now_ns))),
            }
        };
        if let Some(outcome) = known {
            return Foretold::by_node(outcome, held);
        }
        let without_redis = self.without_redis(fleet, plan, share, (charge, client), now_ns);
        let is_late = fleet.is_late_as_a_rule(charge.key);
        let denies_without_redis = plan.sharing.when_down == WhenDown::Deny && !is_late;
        let is_open = !is_late
            && plan.sharing.when_down == WhenDown::Allow
            && plan.quota.algorithm() != Algorithm::Concurrency;
        let coarse = || self.table.peek(&fleet.coarse(plan, charge, client), now_ns);
        let open_without_redis = is_open.then(|| coarse().remaining);
        let (decider, outcome) = match fleet.is_asked(charge.key) {
            true => (Decider::Redis, self.foresee(charge, now_ns)),
            false => (Decider::Fallback, without_redis),
        };
        Foretold { decider, outcome, without_redis, denies_without_redis, open_without_redis, held }
    }

    /// What the fallback would say; as `Limiter::without_answer`, on a copy.
    fn without_redis(
        &self,
        fleet: &Fleet,
        plan: &Arc<Plan>,
        mut share: Lease,
        (charge, client): (&Charge, ClientAddress),
        now_ns: u64,
    ) -> Outcome {
        let (lead_ns, is_exact) = (fleet.lead_ns(), plan.sharing.is_exact());
        let is_late = fleet.is_late_as_a_rule(charge.key);
        if is_late && Fleet::is_advanced(plan) {
            return fleet.foresee_ahead(plan, charge, now_ns);
        }
        if is_late && !fleet.is_held_back(charge.key) && share.has_lease(plan, now_ns, lead_ns) {
            let told = match share.advance(charge.cost, now_ns, fleet.nodes()) {
                true => LeaseAnswer::Admitted { renew: false },
                false => LeaseAnswer::Denied { retry_after_ns: lead_ns },
            };
            return lease_outcome(plan, charge.cost, told, share.estimate(plan, now_ns));
        }
        match if is_late { WhenDown::Local } else { plan.sharing.when_down } {
            WhenDown::Deny => Outcome::new(Answer::Later { retry_after_ns: DOWN_RETRY_NS }, 0, 0),
            WhenDown::Local if is_exact && fleet.spenders(charge) == 0 => others_spend(charge),
            when_down if plan.quota.algorithm() == Algorithm::Concurrency => {
                fleet.permits.foresee(charge, &fleet.permits_of(charge, when_down))
            }
            WhenDown::Allow => {
                coarse_outcome(plan, self.table.peek(&fleet.coarse(plan, charge, client), now_ns))
            }
            WhenDown::Local if is_exact => {
                self.table.peek(&Charge { quota: fleet.share_of(charge), ..*charge }, now_ns)
            }
            WhenDown::Local => {
                let (told, left) = fleet.fall_back(&mut share, plan, charge, now_ns);
                outcome_of(told, left)
            }
        }
    }
}

impl Foretold {
    fn by_node(outcome: Outcome, held: f64) -> Foretold {
        Foretold {
            decider: Decider::Node,
            outcome,
            without_redis: outcome,
            denies_without_redis: false,
            open_without_redis: None,
            held,
        }
    }
}
