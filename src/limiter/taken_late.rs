//! Charges that were decided without Redis and that it took all the same: its answer came too late. Only of these a node
//! may give units back to Redis later, since of any other it does not know whether Redis has it.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::limit::Key;

/// The last ones, by key and by when this node decided them.
#[derive(Debug, Default)]
pub(super) struct TakenLate {
    /// How many there are, so that the usual case (none) takes no lock.
    count: AtomicUsize,
    last: Mutex<Last>,
}

#[derive(Debug, Default)]
struct Last {
    /// When Redis took them, microseconds of its clock.
    taken_us: HashMap<(Key, u64), u64>,
    /// The oldest first.
    order: VecDeque<(Key, u64)>,
}

impl TakenLate {
    fn last(&self) -> MutexGuard<'_, Last> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Redis took at `taken_us` what this node decided at `decided_ns`.
    pub(super) fn note(&self, key: Key, decided_ns: u64, taken_us: u64) {
        let mut last = self.last();
        if last.taken_us.insert((key, decided_ns), taken_us).is_none() {
            last.order.push_back((key, decided_ns));
        }
        if last.order.len() > KEPT_MAX
            && let Some(oldest) = last.order.pop_front()
        {
            last.taken_us.remove(&oldest);
        }
        self.count.store(last.order.len(), Ordering::Relaxed);
    }

    /// When Redis took what this node decided then; `None` if that is not known.
    pub(super) fn at_us(&self, key: Key, decided_ns: u64) -> Option<u64> {
        if self.count.load(Ordering::Relaxed) == 0 {
            return None;
        }
        self.last().taken_us.get(&(key, decided_ns)).copied()
    }
}

/// How many are known; what settles of earlier ones wastes units.
const KEPT_MAX: usize = 65_536;
