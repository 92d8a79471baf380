//! What Redis did not get because its shard was away: costs that turned out larger than what was charged, and units that
//! came back. `settling.rs` sends them once it answers.

use std::collections::VecDeque;

use crate::mostly_empty::MostlyEmpty;
use limit::Key;
use limit::lease_messages::Op;

/// Operations that wait for their shard, the oldest first.
#[derive(Debug, Default)]
pub(crate) struct UnsentQueue(MostlyEmpty<VecDeque<Settling>>);

/// A debit or a return of one window's units.
#[derive(Clone, Debug)]
pub(crate) struct Settling {
    pub(crate) key: Key,
    pub(crate) op: Op,
    /// Since when it should be known to Redis.
    pub(crate) since_ns: u64,
}

impl UnsentQueue {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn add(&self, settling: Settling) {
        self.0.with(|waiting| {
            if waiting.len() < WAITING_MAX {
                waiting.push_back(settling);
            }
        });
    }

    /// Takes out those whose key answers, at most `SENT_MAX`, and forgets those that are too old.
    pub(crate) fn take(&self, is_up: impl Fn(Key) -> bool, now_ns: u64) -> Vec<Settling> {
        let mut due = Vec::new();
        let stays = |settling: &Settling| {
            if now_ns.saturating_sub(settling.since_ns) >= KEPT_NS {
                return false;
            }
            let is_due = due.len() < SENT_MAX && is_up(settling.key);
            if is_due {
                due.push(settling.clone());
            }
            !is_due
        };
        self.0.with(|waiting| waiting.retain(stays));
        due
    }
}

/// The most operations that wait; further ones are lost.
const WAITING_MAX: usize = 65_536;
/// The most that are sent in one sweep.
const SENT_MAX: usize = 512;
/// As long as what is in flight is sent again.
const KEPT_NS: u64 = 300_000_000_000;
