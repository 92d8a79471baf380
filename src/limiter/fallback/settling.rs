//! Tells Redis what the units of an exact window have come to: at once, or when its shard is back (`unsent_queue.rs`).

use std::sync::Arc;

use crate::fallback::Fallback;
use crate::fallback::unsent_queue::Settling;
use base::clock;
use limit::Charge;
use limit::lease_messages::{ExactCharge, LinkError, Op};

impl Fallback {
    /// Gives back to Redis what it took of an exact window at `taken_us`.
    pub(crate) fn give_back(self: &Arc<Self>, charge: &Charge, taken_us: u64) {
        if let Some(plan) = self.fleet.plans.get(charge.plan) {
            let parts = [ExactCharge::of(charge, &plan)].into_iter().collect();
            let op = Op::Return { parts, taken_us };
            self.settle(Settling { key: charge.key, op, since_ns: clock::now_ns() });
        }
    }

    /// Debits an exact window in Redis, whether the cost fits or not.
    pub(crate) fn debit(self: &Arc<Self>, charge: &Charge, now_ns: u64) {
        if let Some(plan) = self.fleet.plans.get(charge.plan) {
            let op = Op::Debit([ExactCharge::of(charge, &plan)].into_iter().collect());
            self.settle(Settling { key: charge.key, op, since_ns: now_ns });
        }
    }

    /// Tells Redis what a window's units have come to; again when it is back, if it certainly did not get it. A remembered
    /// denial may be wrong once units are back, so this node forgets it; other nodes keep theirs until it ends.
    fn settle(self: &Arc<Self>, settling: Settling) {
        let (fallback, op) = (Arc::clone(self), settling.op.clone());
        let done = move |answer: Result<_, LinkError>, _| {
            if matches!(settling.op, Op::Return { .. }) {
                let _ = fallback.leases.table.change_known(settling.key, |_, lease| lease.end_denial());
            }
            if answer.is_err_and(LinkError::is_undone) {
                fallback.unsent.add(settling);
            }
        };
        self.fleet.link.send(op, Box::new(done));
    }

    pub(crate) fn send_unsent(self: &Arc<Self>, now_ns: u64) {
        if self.unsent.is_empty() {
            return;
        }
        for settling in self.unsent.take(|key| self.fleet.link.is_up(key), now_ns) {
            self.settle(settling);
        }
    }
}
