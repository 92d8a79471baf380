//! Tells Redis what the units of an exact window have come to, costs that turned out larger than what was charged and units
//! that came back: at once, or when its shard is back.

use std::sync::Arc;

use crate::fallback::Fallback;
use base::clock;
use limit::lease_messages::{ExactCharge, LinkError, Op};
use limit::{Charge, Key};

/// A debit or a return of one window's units.
#[derive(Clone, Debug)]
pub(crate) struct Settling {
    key: Key,
    op: Op,
    /// Since when it should be known to Redis.
    since_ns: u64,
}

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
                fallback.unsent.with(|waiting| {
                    if waiting.len() < WAITING_MAX {
                        waiting.push_back(settling);
                    }
                });
            }
        };
        self.fleet.link.send(op, Box::new(done));
    }

    /// Sends what waits for shards that answer, at most `SENT_MAX`, and forgets what is too old.
    pub(crate) fn send_unsent(self: &Arc<Self>, now_ns: u64) {
        if self.unsent.is_empty() {
            return;
        }
        let mut due = Vec::new();
        let stays = |settling: &Settling| {
            if now_ns.saturating_sub(settling.since_ns) >= KEPT_NS {
                return false;
            }
            let is_due = due.len() < SENT_MAX && self.fleet.link.is_up(settling.key);
            if is_due {
                due.push(settling.clone());
            }
            !is_due
        };
        self.unsent.with(|waiting| waiting.retain(stays));
        due.into_iter().for_each(|settling| self.settle(settling));
    }
}

/// The most operations that wait; further ones are lost.
const WAITING_MAX: usize = 65_536;
/// The most that are sent in one sweep.
const SENT_MAX: usize = 512;
/// As long as what is in flight is sent again.
const KEPT_NS: u64 = 300_000_000_000;
