//! The plans of every configuration so far, by the number that charges and slots name them by.
//!
//! A number is never given to another plan, so that what a slot was written under can always be read. A plan that
//! stays the same over a reload keeps its number.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use crate::limit::{Plan, Quota, WhenDown};

/// All plans.
#[derive(Debug, Default)]
pub struct Plans {
    /// Each twice as long as the one before: what stands in one never moves, so a plan is read by its number without
    /// a lock and without a count of its readers.
    blocks: [OnceLock<Block>; BLOCKS],
    /// Held by whoever adds one.
    numbers: Mutex<HashMap<Arc<Plan>, u32>>,
    /// How many nodes share them; 0: nobody has said.
    nodes: AtomicU32,
}

type Block = Box<[OnceLock<Arc<Plan>>]>;

impl Plans {
    /// The number of a plan, from 1; the same for an equal one.
    pub fn number(&self, plan: Plan) -> u32 {
        let mut numbers = self.numbers();
        if let Some(number) = numbers.get(&plan) {
            return *number;
        }
        let number = numbers.len() as u32 + 1;
        let (block, index) = place(number);
        let plan = Arc::new(plan);
        let entries =
            self.blocks[block].get_or_init(|| (0..1usize << block).map(|_| OnceLock::new()).collect());
        // Nobody else can have filled it: numbers are given under the lock.
        let _ = entries[index].set(Arc::clone(&plan));
        numbers.insert(plan, number);
        number
    }

    /// The plan of a number; `None` for 0.
    #[inline]
    pub fn get(&self, number: u32) -> Option<&Arc<Plan>> {
        if number == 0 {
            return None;
        }
        let (block, index) = place(number);
        self.blocks[block].get()?.get(index)?.get()
    }

    /// What this node enforces of the plan of a number without Redis; `None` for 0.
    pub fn share(&self, number: u32) -> Option<Quota> {
        let nodes = self.nodes.load(Ordering::Relaxed).max(1);
        Some(self.get(number)?.quota.share_of(nodes))
    }

    /// All that this node enforces without Redis: these shares, and what an address is admitted.
    pub fn fallbacks(&self) -> Vec<Quota> {
        let count = self.numbers().len() as u32;
        let shares = (1..=count).filter_map(|number| self.share(number));
        let allowing = (1..=count).filter_map(|number| self.get(number));
        let allowing = allowing.filter(|plan| plan.sharing.when_down == WhenDown::Allow);
        shares.chain(allowing.map(|plan| plan.quota.for_address())).collect()
    }

    /// Works out every plan's share anew where the fleet has become another size.
    pub fn resize(&self, nodes: u32) -> Vec<Quota> {
        if self.nodes.swap(nodes, Ordering::Relaxed) == nodes { Vec::new() } else { self.fallbacks() }
    }

    fn numbers(&self) -> MutexGuard<'_, HashMap<Arc<Plan>, u32>> {
        self.numbers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The block of a number from 1, and the place in it: block 0 is number 1, block 1 are 2 and 3, block 2 are 4 to 7.
#[inline]
fn place(number: u32) -> (usize, usize) {
    let block = number.ilog2();
    (block as usize, (number - (1 << block)) as usize)
}

/// Enough for every number there is.
const BLOCKS: usize = u32::BITS as usize;

#[cfg(test)]
mod tests {
    use std::num::NonZeroU64;

    use super::*;
    use crate::limit::{Algorithm, Sharing};

    fn plan(policy: &str, limit: u64) -> Plan {
        let positive = |number| NonZeroU64::new(number).expect("tests give no zero");
        let quota =
            Quota::new(Algorithm::FixedWindow, positive(limit), positive(1_000_000_000), positive(limit));
        Plan { policy: policy.into(), quota, sharing: Sharing::new(&quota, 0.0, WhenDown::Local) }
    }

    #[test]
    fn an_equal_plan_keeps_its_number_and_no_other_gets_it() {
        let plans = Plans::default();
        let numbers = [plan("a", 5), plan("b", 5), plan("a", 6), plan("a", 5)].map(|plan| plans.number(plan));
        assert_eq!(numbers, [1, 2, 3, 1]);
        assert_eq!(plans.get(3).map(|found| found.quota.limit().get()), Some(6));
        assert_eq!(plans.get(0), None);
    }

    #[test]
    fn every_number_has_its_own_plan() {
        let plans = Plans::default();
        for number in 1..=300 {
            assert_eq!(plans.get(number), None);
            assert_eq!(plans.number(plan("a", u64::from(number))), number);
        }
        let limit = |number| plans.get(number).map(|found| found.quota.limit().get());
        assert!((1..=300).all(|number| limit(number) == Some(u64::from(number))));
        assert_eq!((limit(301), limit(u32::MAX)), (None, None));
    }

    #[test]
    fn a_share_is_twice_the_even_one_and_never_more_than_the_whole() {
        let plans = Plans::default();
        let number = plans.number(plan("a", 100));
        let share = || plans.share(number).map(|share| share.limit().get());
        assert_eq!(share(), Some(100));
        assert_eq!((plans.resize(2).len(), share()), (1, Some(100)));
        assert_eq!((plans.resize(8).len(), share()), (1, Some(25)));
        assert_eq!((plans.resize(8).len(), share()), (0, Some(25)));
        assert_eq!((plans.resize(1_000).len(), share()), (1, Some(1)));
    }
}
