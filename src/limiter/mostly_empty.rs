//! What is empty nearly always, behind a lock that is not taken to learn that.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

#[derive(Debug, Default)]
pub(super) struct MostlyEmpty<T> {
    /// How many it holds, so that the usual case (none) takes no lock.
    count: AtomicUsize,
    held: Mutex<T>,
}

pub(super) trait Holds {
    fn count(&self) -> usize;
}

impl<K, V> Holds for HashMap<K, V> {
    fn count(&self) -> usize {
        self.len()
    }
}

impl<T> Holds for VecDeque<T> {
    fn count(&self) -> usize {
        self.len()
    }
}

impl<T: Holds> MostlyEmpty<T> {
    /// Whether it held nothing after the last change.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.count.load(Ordering::Relaxed) == 0
    }

    pub(super) fn with<R>(&self, change: impl FnOnce(&mut T) -> R) -> R {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        let result = change(&mut held);
        self.count.store(held.count(), Ordering::Relaxed);
        result
    }
}
