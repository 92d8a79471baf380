//! [`Inbox`]: where one worker leaves what it has counted, and the control runtime takes it.

use std::sync::{Mutex, PoisonError, TryLockError};

use super::named_key::NamedKey;
use super::sketch::KeyCounts;

/// Where a worker leaves what it has counted.
#[derive(Debug, Default)]
pub(super) struct Inbox(Mutex<Vec<KeyBatch>>);

/// What a worker has counted since its last.
#[derive(Debug)]
pub(super) struct KeyBatch {
    /// When it began, seconds since the Unix epoch.
    pub second: u64,
    pub counts: Vec<(u64, KeyCounts)>,
    pub names: Vec<NamedKey>,
    /// Decisions by shard, about.
    pub shards: Vec<u64>,
}

impl Inbox {
    /// Takes everything out.
    pub(super) fn empty(&self) -> Vec<KeyBatch> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Puts one in; `false` if that cannot be done now.
    pub(super) fn put(&self, batch: impl FnOnce() -> KeyBatch) -> bool {
        let mut batches = match self.0.try_lock() {
            Ok(batches) => batches,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return false,
        };
        if batches.len() >= BATCHES_MAX {
            return false;
        }
        batches.push(batch());
        true
    }
}

/// Batches that wait for a reader who comes each second.
const BATCHES_MAX: usize = 8;
