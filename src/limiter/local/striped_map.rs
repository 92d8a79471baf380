//! A map by key behind many locks, so that threads that work on different keys rarely wait for each other.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use limit::Key;

/// A map from a limiter key, or `K` that holds one, to `T`, divided into stripes by the limiter key's high half.
#[derive(Debug)]
pub struct StripedMap<T, K = Key>([Mutex<HashMap<K, T>>; STRIPES]);

impl<T, K> Default for StripedMap<T, K> {
    fn default() -> StripedMap<T, K> {
        StripedMap(std::array::from_fn(|_| Mutex::default()))
    }
}

impl<T, K> StripedMap<T, K> {
    /// Locks the stripe of a key.
    pub fn of(&self, key: Key) -> MutexGuard<'_, HashMap<K, T>> {
        lock(&self.0[key.high() as usize % STRIPES])
    }

    /// Whether no stripe has a key, each as it is when it is looked at.
    pub fn is_empty(&self) -> bool {
        self.0.iter().all(|stripe| lock(stripe).is_empty())
    }

    /// Keeps the entries for which this holds, stripe by stripe.
    pub fn retain(&self, mut is_kept: impl FnMut(&K, &mut T) -> bool) {
        self.0.iter().for_each(|stripe| lock(stripe).retain(&mut is_kept));
    }

    /// Takes everything out, stripe by stripe.
    pub fn take(&self) -> impl Iterator<Item = HashMap<K, T>> {
        self.0.iter().map(|stripe| std::mem::take(&mut *lock(stripe)))
    }

    /// How many keys all stripes have together.
    #[cfg(test)]
    pub fn len(&self) -> usize {
        (0..STRIPES as u128).map(|stripe| self.of(Key::new(stripe << 64)).len()).sum()
    }
}

fn lock<M>(stripe: &Mutex<M>) -> MutexGuard<'_, M> {
    stripe.lock().unwrap_or_else(PoisonError::into_inner)
}

/// How many stripes there are, each with a lock of its own.
pub const STRIPES: usize = 64;
