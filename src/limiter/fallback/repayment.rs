//! Debts of exact windows: recorded when a charge was admitted without Redis, sent to Redis as soon as it answers. What
//! a debt is worth after a while is in `debts.rs`.

use std::sync::Arc;

use crate::check::charge_state::{ChargeState, Refund};
use crate::fallback::Fallback;
use base::clock;
use limit::lease_messages::{ExactCharge, LinkError, Op};
use limit::{Charge, Key, WhenDown};

impl Fallback {
    /// Records a charge that was admitted and that Redis did not take. Not for `when-redis-down = "allow"`, which
    /// deliberately admits beyond the limit.
    pub(crate) fn owe(&self, charge: &Charge) {
        let plan = self.fleet.plans.get(charge.plan);
        if plan.is_some_and(|plan| plan.sharing.when_down == WhenDown::Local) {
            self.add_debt(charge, clock::now_ns());
        }
    }

    /// As `owe`, if the charge was taken by fallback from an exact window; leases keep their own debts.
    pub(crate) fn owe_fallback(&self, charge: &Charge, state: &ChargeState) {
        if matches!(state, ChargeState::Taken { refund: Refund::Fallback { .. }, .. })
            && self.fleet.plans.get(charge.plan).is_some_and(|plan| plan.sharing.is_exact())
        {
            self.owe(charge);
        }
    }

    /// Adds a charge to what Redis has to be told of its key.
    pub(crate) fn add_debt(&self, charge: &Charge, now_ns: u64) {
        self.debts.add(charge, charge.cost, now_ns, self.fleet.nodes());
    }

    /// Sends the debts of keys whose shard answers, up to `TOLD_MAX` of them.
    pub(crate) fn tell_debts(self: &Arc<Self>, now_ns: u64) {
        if self.debts.is_empty() {
            return;
        }
        for key in self.debts.due(TOLD_MAX) {
            if self.fleet.link.is_up(key) {
                self.tell_debt(key, now_ns);
            }
        }
    }

    /// Sends the debt of a key, if it has one. It is recorded again if Redis certainly did not apply it.
    pub(crate) fn tell_debt(self: &Arc<Self>, key: Key, now_ns: u64) {
        if self.debts.is_empty() {
            return;
        }
        let Some(charge) = self.debts.take(key, now_ns, self.fleet.nodes()) else { return };
        let Some(plan) = self.fleet.plans.get(charge.plan) else { return };
        let parts = [ExactCharge::of(&charge, &plan)].into_iter().collect();
        let fallback = Arc::clone(self);
        let done = move |answer: Result<_, LinkError>, now_ns| {
            if answer.is_err_and(LinkError::is_undone) {
                fallback.add_debt(&charge, now_ns);
            }
        };
        self.fleet.link.send(Op::Repay(parts), Box::new(done));
    }
}

/// The most debts that are sent in one sweep.
const TOLD_MAX: usize = 512;
