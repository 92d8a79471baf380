//! The keys that hold, owe or deny something of Redis, which the sweep (`sweep.rs`) looks at until they do not.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use limit::{Key, PlanId};

/// Keys that hold something, and their plan.
#[derive(Debug, Default)]
pub(crate) struct Watched(Mutex<HashMap<Key, Option<PlanId>>>);

impl Watched {
    pub(crate) fn add(&self, key: Key, plan: Option<PlanId>) {
        self.keys().insert(key, plan);
    }

    /// Adds a key that nothing was granted to: one more of what an outage leaves behind, for which memory is bounded.
    pub(crate) fn add_left(&self, key: Key, plan: Option<PlanId>) {
        let mut keys = self.keys();
        if keys.len() < LEFT_MAX {
            keys.insert(key, plan);
        }
    }

    pub(crate) fn keys(&self) -> MutexGuard<'_, HashMap<Key, Option<PlanId>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// As many as debts of exact windows (`debts.rs`). What further keys spent in fallback is reported with their next request.
const LEFT_MAX: usize = 65_536;
