//! What Redis did not get because its shard was away: costs that turned out larger than what was charged, and units that
//! came back. They are sent once it answers, as what is in flight when it goes away is.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use smallvec::SmallVec;

use super::Limiter;
use super::fleet::Fleet;
use crate::limit::lease_messages::{Op, Part, Unanswered};

/// Operations that wait for their shard, the oldest first.
#[derive(Debug, Default)]
pub(super) struct Unsent {
    /// How many there are, so that the usual case (none) takes no lock.
    count: AtomicUsize,
    waiting: Mutex<VecDeque<Settling>>,
}

/// A debit or a return of one window's units.
#[derive(Clone, Debug)]
pub(super) struct Settling {
    part: Part,
    /// When the units were taken that come back, microseconds of Redis's clock; `None`: more are spent.
    returned_of_us: Option<u64>,
    /// Since when it should be known to Redis.
    since_ns: u64,
}

impl Settling {
    /// More was spent than was charged.
    pub(super) fn debit(part: Part, now_ns: u64) -> Settling {
        Settling { part, returned_of_us: None, since_ns: now_ns }
    }

    /// Units come back that were taken at `taken_us`.
    pub(super) fn give_back(part: Part, taken_us: u64, now_ns: u64) -> Settling {
        Settling { part, returned_of_us: Some(taken_us), since_ns: now_ns }
    }

    fn op(&self) -> Op {
        let parts: SmallVec<[Part; 2]> = [self.part.clone()].into_iter().collect();
        match self.returned_of_us {
            Some(taken_us) => Op::Return { parts, taken_us },
            None => Op::Debit(parts),
        }
    }
}

impl Unsent {
    pub(super) fn is_empty(&self) -> bool {
        self.count.load(Ordering::Relaxed) == 0
    }

    fn waiting(&self) -> MutexGuard<'_, VecDeque<Settling>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, settling: Settling) {
        let mut waiting = self.waiting();
        if waiting.len() < WAITING_MAX {
            waiting.push_back(settling);
        }
        self.count.store(waiting.len(), Ordering::Relaxed);
    }

    /// Takes out those whose key answers, at most `SENT_MAX`, and forgets those that are too old.
    fn take(&self, is_up: impl Fn(&Settling) -> bool, now_ns: u64) -> Vec<Settling> {
        let (mut due, mut waiting) = (Vec::new(), self.waiting());
        waiting.retain(|settling| {
            if now_ns.saturating_sub(settling.since_ns) >= KEPT_NS {
                return false;
            }
            let is_due = due.len() < SENT_MAX && is_up(settling);
            if is_due {
                due.push(settling.clone());
            }
            !is_due
        });
        self.count.store(waiting.len(), Ordering::Relaxed);
        due
    }
}

impl Limiter {
    /// Tells Redis what a window's units have come to; again when it is back, if it certainly did not get it. A remembered
    /// denial may be wrong once units are back, so this node forgets it; other nodes keep theirs until it ends.
    pub(super) fn settle(self: &Arc<Self>, fleet: &Fleet, settling: Settling) {
        let (limiter, op) = (Arc::clone(self), settling.op());
        let done = move |answer: Result<_, Unanswered>, _| {
            let Some(fleet) = &limiter.fleet else { return };
            if settling.returned_of_us.is_some() {
                let _ = fleet.change_known(settling.part.key, |_, share| share.end_denial());
            }
            if answer.is_err_and(Unanswered::is_undone) {
                fleet.unsent.add(settling);
            }
        };
        fleet.link.send(op, Box::new(done));
    }

    /// Sends what waits for shards that answer.
    pub(super) fn send_unsent(self: &Arc<Self>, fleet: &Fleet, now_ns: u64) {
        if fleet.unsent.is_empty() {
            return;
        }
        for settling in fleet.unsent.take(|settling| fleet.link.is_up(settling.part.key), now_ns) {
            self.settle(fleet, settling);
        }
    }
}

/// The most operations that wait; further ones are lost.
const WAITING_MAX: usize = 65_536;
/// The most that are sent in one sweep.
const SENT_MAX: usize = 512;
/// As long as what is in flight is sent again.
const KEPT_NS: u64 = 300_000_000_000;
