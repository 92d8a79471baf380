//! What is divided by key among many locks, so that threads that work on different keys rarely wait for each other.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use limit::Key;

/// Parts behind a lock each, of which the high half of a limiter key names one.
#[derive(Debug)]
pub struct Stripes<S>([Mutex<S>; STRIPES]);

/// A map from a limiter key, or `K` that holds one, to `T`.
pub type StripedMap<T, K = Key> = Stripes<HashMap<K, T>>;

impl<S: Default> Default for Stripes<S> {
    fn default() -> Stripes<S> {
        Stripes(std::array::from_fn(|_| Mutex::default()))
    }
}

impl<S> Stripes<S> {
    /// Locks the stripe of a key.
    pub fn of(&self, key: Key) -> MutexGuard<'_, S> {
        self.at(key.high() as usize % STRIPES)
    }

    /// Locks a stripe by its number, which is below `STRIPES`.
    pub fn at(&self, stripe: usize) -> MutexGuard<'_, S> {
        self.0[stripe].lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn each(&self) -> impl Iterator<Item = MutexGuard<'_, S>> {
        (0..STRIPES).map(|stripe| self.at(stripe))
    }
}

impl<T, K> StripedMap<T, K> {
    /// Whether no stripe has a key, each as it is when it is looked at.
    pub fn is_empty(&self) -> bool {
        self.each().all(|stripe| stripe.is_empty())
    }

    /// Keeps the entries for which this holds, stripe by stripe.
    pub fn retain(&self, mut is_kept: impl FnMut(&K, &mut T) -> bool) {
        self.each().for_each(|mut stripe| stripe.retain(&mut is_kept));
    }

    /// Takes everything out, stripe by stripe.
    pub fn take(&self) -> impl Iterator<Item = HashMap<K, T>> {
        self.each().map(|mut stripe| std::mem::take(&mut *stripe))
    }

    /// How many keys all stripes have together.
    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.each().map(|stripe| stripe.len()).sum()
    }
}

/// How many stripes there are, each with a lock of its own.
pub const STRIPES: usize = 64;
