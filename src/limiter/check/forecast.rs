//! What a charge would be told, for `explain`: decided on copies by the functions that decide requests, so nothing is
//! spent, counted or asked.
//!
//! This node often cannot know: Redis would be asked. So a [`Forecast`] says who decides and, for the case that Redis does
//! not answer, what the fallback would say.

use crate::Limiter;
use crate::decision::ClientAddress;
use crate::fleet::Fleet;
use crate::leases::lease_table::lease_outcome;
use limit::{Algorithm, Charge, LeaseAnswer, Outcome, WhenDown};

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
pub struct Forecast {
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

impl Forecast {
    /// What a charge of this client would be told now.
    pub(crate) fn of(limiter: &Limiter, charge: &Charge, client: ClientAddress, now_ns: u64) -> Forecast {
        let Some((shared, plan)) = limiter.shared(charge) else {
            return Forecast::by_node(limiter.table.peek(charge, now_ns), 0.0);
        };
        if charge.cost > plan.quota.capacity() {
            return Forecast::by_node(limiter.foresee(charge, now_ns), 0.0);
        }
        let leases = &shared.leases.table;
        let mut share = leases.copy(charge, now_ns);
        let held = share.held_or_owed(now_ns);
        let known = if plan.sharing.is_exact() {
            let is_remembered = plan.quota.algorithm() != Algorithm::Concurrency && !charge.count_denied;
            is_remembered.then(|| leases.denied_by(&mut share, &plan, charge, now_ns)).flatten()
        } else {
            match leases.take_from(&mut share, &plan, charge, now_ns) {
                LeaseAnswer::Ask => None,
                told => Some(lease_outcome(&plan, charge.cost, told, share.estimate(&plan, now_ns))),
            }
        };
        if let Some(outcome) = known {
            return Forecast::by_node(outcome, held);
        }
        let is_late = shared.fleet.is_late_as_a_rule(charge.key);
        let without_redis = match is_late && Fleet::is_advanced(&plan) {
            true => shared.exact.foresee_ahead(&plan, charge, now_ns),
            false => shared.fallback.foretell(&plan, share, (charge, client), now_ns),
        };
        let denies_without_redis = plan.sharing.when_down == WhenDown::Deny && !is_late;
        let is_open = !is_late
            && plan.sharing.when_down == WhenDown::Allow
            && plan.quota.algorithm() != Algorithm::Concurrency;
        let coarse = || shared.fallback.peek_coarse(&plan, charge, client, now_ns).remaining;
        let open_without_redis = is_open.then(coarse);
        let (decider, outcome) = match leases.is_asked(charge.key) {
            true => (Decider::Redis, limiter.foresee(charge, now_ns)),
            false => (Decider::Fallback, without_redis),
        };
        Forecast { decider, outcome, without_redis, denies_without_redis, open_without_redis, held }
    }

    fn by_node(outcome: Outcome, held: f64) -> Forecast {
        Forecast {
            decider: Decider::Node,
            outcome,
            without_redis: outcome,
            denies_without_redis: false,
            open_without_redis: None,
            held,
        }
    }
}
