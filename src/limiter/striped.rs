//! A map by key behind many locks, so that threads that work on different keys rarely wait for each other.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::limit::Key;

/// A map from key to `T`, divided into stripes by the key's high half.
#[derive(Debug)]
pub(super) struct Striped<T>([Mutex<HashMap<Key, T>>; STRIPES]);

impl<T> Default for Striped<T> {
    fn default() -> Striped<T> {
        Striped(std::array::from_fn(|_| Mutex::default()))
    }
}

impl<T> Striped<T> {
    /// Locks the stripe of a key.
    pub(super) fn of(&self, key: Key) -> MutexGuard<'_, HashMap<Key, T>> {
        self.0[key.high() as usize % STRIPES].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether there is no key.
    pub(super) fn is_empty(&self) -> bool {
        self.0.iter().all(|stripe| stripe.lock().unwrap_or_else(PoisonError::into_inner).is_empty())
    }

    /// How many keys there are.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        (0..STRIPES as u128).map(|stripe| self.of(Key::new(stripe << 64)).len()).sum()
    }
}

/// How many locks there are.
const STRIPES: usize = 64;
