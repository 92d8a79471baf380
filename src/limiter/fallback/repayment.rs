//! Debts of exact windows: recorded when a charge was admitted without Redis, sent to Redis as soon as it answers. What
//! a debt is worth after a while is in `debts.rs`.

use std::sync::Arc;

use crate::Limiter;
use crate::check::charge_state::{ChargeState, Refund};
use crate::fleet::Fleet;
use base::clock;
use limit::lease_messages::{ExactCharge, LinkError, Op};
use limit::{Charge, Key, Plan, WhenDown};

impl Fleet {
    /// Records a charge that was admitted and that Redis did not take. Not for `when-redis-down = "allow"`, which
    /// deliberately admits beyond the limit.
    pub(crate) fn owe(&self, charge: &Charge) {
        let is_open = |plan: &Arc<Plan>| plan.sharing.when_down != WhenDown::Local;
        if self.plans.get(charge.plan).is_none_or(is_open) {
            return;
        }
        self.debts.add(charge, charge.cost, clock::now_ns(), self.link.nodes());
    }

    /// As `owe`, if the charge was taken by fallback from an exact window; leases keep their own debts.
    pub(crate) fn owe_fallback(&self, charge: &Charge, state: &ChargeState) {
        if matches!(state, ChargeState::Taken { refund: Refund::Fallback { .. }, .. })
            && self.plans.get(charge.plan).is_some_and(|plan| plan.sharing.is_exact())
        {
            self.owe(charge);
        }
    }
}

impl Limiter {
    /// Sends the debts of keys whose shard answers, up to `TOLD_MAX` of them.
    pub(crate) fn tell_debts(self: &Arc<Self>, fleet: &Fleet, now_ns: u64) {
        if fleet.debts.is_empty() {
            return;
        }
        for key in fleet.debts.due(TOLD_MAX) {
            if fleet.link.is_up(key) {
                self.tell_debt(fleet, key, now_ns);
            }
        }
    }

    /// Sends the debt of a key. It is recorded again if Redis certainly did not apply it.
    pub(crate) fn tell_debt(self: &Arc<Self>, fleet: &Fleet, key: Key, now_ns: u64) {
        let Some(charge) = fleet.debts.take(key, now_ns, fleet.link.nodes()) else { return };
        let Some(plan) = fleet.plans.get(charge.plan) else { return };
        let parts = [ExactCharge::of(&charge, plan)].into_iter().collect();
        let limiter = Arc::clone(self);
        let done = move |answer: Result<_, LinkError>, now_ns| {
            if let (Some(fleet), true) = (&limiter.fleet, answer.is_err_and(LinkError::is_undone)) {
                fleet.debts.add(&charge, charge.cost, now_ns, fleet.link.nodes());
            }
        };
        fleet.link.send(Op::Repay(parts), Box::new(done));
    }
}

/// The most debts that are sent in one sweep.
const TOLD_MAX: usize = 512;
