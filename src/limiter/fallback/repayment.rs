//! Debts of exact windows: recorded when a charge was admitted that Redis did not take, sent to it as soon as it
//! answers. What a debt is worth after a while is in `debts.rs`.

use std::sync::Arc;

use crate::check::charge_state::{ChargeState, Refund};
use crate::fallback::Fallback;
use crate::fallback::debts::{DebtKind, SpentAt};
use limit::lease_messages::{ExactCharge, LinkError, Op};
use limit::{Charge, Key, WhenDown};

impl Fallback {
    /// Records a charge that was admitted while Redis was away. Not for `when-redis-down = "allow"`, which
    /// deliberately admits beyond the limit.
    pub(crate) fn owe(&self, charge: &Charge, now_ns: u64) {
        let plan = self.fleet.plans.get(charge.plan);
        if plan.is_some_and(|plan| plan.sharing.when_down == WhenDown::Local) {
            self.add_debt(charge, DebtKind::Unheard, now_ns);
        }
    }

    /// As `owe`, if the charge was taken by fallback from an exact window; leases keep their own debts.
    pub(crate) fn owe_fallback(&self, charge: &Charge, state: &ChargeState, now_ns: u64) {
        if matches!(state, ChargeState::Taken { refund: Refund::Fallback { .. }, .. })
            && self.fleet.plans.get(charge.plan).is_some_and(|plan| plan.sharing.is_exact())
        {
            self.owe(charge, now_ns);
        }
    }

    pub(crate) fn add_debt(&self, charge: &Charge, kind: DebtKind, now_ns: u64) {
        self.debts.add(charge, kind, self.spent_at(charge.key, now_ns), self.fleet.nodes());
    }

    fn spent_at(&self, key: Key, ns: u64) -> SpentAt {
        SpentAt { ns, us: self.fleet.link.shard_us(key, ns) }
    }

    /// Sends the debts of keys whose shard answers, up to `TOLD_MAX` of them.
    pub(crate) fn tell_debts(self: &Arc<Self>, now_ns: u64) {
        if self.debts.is_empty() {
            return;
        }
        for key in self.debts.due(TOLD_MAX) {
            if self.fleet.link.answers(key) {
                self.tell_debt(key, now_ns);
            }
        }
    }

    /// Sends the debt of a key, if it has one. It is recorded again if Redis certainly did not apply it.
    pub(crate) fn tell_debt(self: &Arc<Self>, key: Key, now_ns: u64) {
        if self.debts.is_empty() {
            return;
        }
        let now = self.spent_at(key, now_ns);
        let Some(debt) = self.debts.take(key, now, self.fleet.nodes()) else { return };
        let Some(plan) = self.fleet.plans.get(debt.charge.plan) else { return };
        for kind in [DebtKind::Refused, DebtKind::Unheard] {
            let charge = Charge { cost: debt.units(kind), ..debt.charge };
            if charge.cost == 0 {
                continue;
            }
            let parts = [ExactCharge::of(&charge, &plan)].into_iter().collect();
            let (fallback, at) = (Arc::clone(self), debt.at);
            let done = move |answer: Result<_, LinkError>, _| {
                if answer.is_err_and(LinkError::is_undone) {
                    fallback.debts.add(&charge, kind, at, fallback.fleet.nodes());
                }
            };
            let op = match kind {
                DebtKind::Refused => Op::Repay(parts),
                DebtKind::Unheard => Op::Report { parts, spent_us: debt.at.us },
            };
            self.fleet.link.send(op, Box::new(done));
        }
    }
}

/// The most debts that are sent in one sweep.
const TOLD_MAX: usize = 512;
