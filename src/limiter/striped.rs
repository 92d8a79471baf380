//! Values by key behind many locks, so that threads that work on different keys hardly ever meet.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::limit::Key;

/// One lock for every so many keys.
#[derive(Debug)]
pub(super) struct Striped<T>([Mutex<HashMap<Key, T>>; STRIPES]);

impl<T> Default for Striped<T> {
    fn default() -> Striped<T> {
        Striped(std::array::from_fn(|_| Mutex::default()))
    }
}

impl<T> Striped<T> {
    /// The keys that share a lock with this one.
    pub(super) fn of(&self, key: Key) -> MutexGuard<'_, HashMap<Key, T>> {
        self.0[key.high() as usize % STRIPES].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many keys there are.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        (0..STRIPES as u128).map(|stripe| self.of(Key::new(stripe << 64)).len()).sum()
    }
}

/// Locks over which the keys are spread.
const STRIPES: usize = 64;
