//! Charges that were decided without Redis and that it took all the same, because its answer came too late. Only of
//! these a node may give units back to Redis later, because it does not know of any other whether Redis has it.

use std::collections::{HashMap, VecDeque};

use crate::mostly_empty::{Holds, MostlyEmpty};
use limit::Key;

/// The last ones, by key and by when this node decided them.
#[derive(Debug, Default)]
pub(crate) struct LateCharges(MostlyEmpty<LateTimes>);

#[derive(Debug, Default)]
struct LateTimes {
    /// When Redis took them, microseconds of its clock.
    taken_us: HashMap<(Key, u64), u64>,
    /// The oldest first.
    order: VecDeque<(Key, u64)>,
}

impl Holds for LateTimes {
    fn count(&self) -> usize {
        self.order.len()
    }
}

impl LateCharges {
    /// Redis took at `taken_us` what this node decided at `decided_ns`.
    pub(crate) fn note(&self, key: Key, decided_ns: u64, taken_us: u64) {
        self.0.with(|last| {
            if last.taken_us.insert((key, decided_ns), taken_us).is_none() {
                last.order.push_back((key, decided_ns));
            }
            if last.order.len() > KEPT_MAX
                && let Some(oldest) = last.order.pop_front()
            {
                last.taken_us.remove(&oldest);
            }
        });
    }

    /// When Redis took what this node decided then; `None` if that is not known.
    pub(crate) fn at_us(&self, key: Key, decided_ns: u64) -> Option<u64> {
        if self.0.is_empty() {
            return None;
        }
        self.0.with(|last| last.taken_us.get(&(key, decided_ns)).copied())
    }
}

/// How many are known; what settles of earlier ones wastes units.
const KEPT_MAX: usize = 65_536;
