//! The keys that hold, owe or deny something of Redis, which the sweep (`sweep.rs`) looks at until they do not.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::limit::{Key, PlanId};

/// Keys that hold something, and their plan.
#[derive(Debug, Default)]
pub(super) struct Watched(Mutex<HashMap<Key, Option<PlanId>>>);

impl Watched {
    pub(super) fn add(&self, key: Key, plan: Option<PlanId>) {
        self.keys().insert(key, plan);
    }

    pub(super) fn keys(&self) -> MutexGuard<'_, HashMap<Key, Option<PlanId>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
