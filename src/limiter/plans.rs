//! The plans of every configuration so far, by the number that charges and slots name them by.
//!
//! A number is never given to another plan, so that what a slot was written under can always be read. A plan that
//! stays the same over a reload keeps its number.

use std::collections::HashMap;
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use limit::{Plan, PlanId, Quota, WhenDown};

/// The plans of every configuration so far, by their numbers.
#[derive(Debug, Default)]
pub struct Plans {
    /// Each block is twice as long as the one before, and no entry ever moves, so that a plan is read by its number
    /// without a lock and without a reference count.
    blocks: [OnceLock<Block>; BLOCKS],
    /// Locked only to add a plan.
    numbers: Mutex<HashMap<Arc<Plan>, PlanId>>,
    /// How many nodes share them; 0: not known yet.
    nodes: AtomicU32,
}

type Block = Box<[OnceLock<Arc<Plan>>]>;

impl Plans {
    /// The id of a plan; the same for an equal one.
    pub fn id(&self, plan: Plan) -> PlanId {
        let mut numbers = self.numbers();
        if let Some(id) = numbers.get(&plan) {
            return *id;
        }
        let id = PlanId::new(NonZeroU32::MIN.saturating_add(numbers.len() as u32));
        let (block, index) = place(id);
        let plan = Arc::new(plan);
        let entries =
            self.blocks[block].get_or_init(|| (0..1usize << block).map(|_| OnceLock::new()).collect());
        // Nobody else can have filled it: numbers are given under the lock.
        let _ = entries[index].set(Arc::clone(&plan));
        numbers.insert(plan, id);
        id
    }

    /// The plan of a charge or slot that may have one.
    #[inline]
    pub fn get(&self, id: Option<PlanId>) -> Option<&Arc<Plan>> {
        let (block, index) = place(id?);
        self.blocks[block].get()?.get(index)?.get()
    }

    /// What this node enforces of a plan without Redis.
    pub fn share(&self, id: Option<PlanId>) -> Option<Quota> {
        let nodes = self.nodes.load(Ordering::Relaxed).max(1);
        Some(self.get(id)?.quota.share_of(nodes))
    }

    /// All that this node enforces without Redis: these shares, and what an address is admitted.
    pub fn fallbacks(&self) -> Vec<Quota> {
        let count = self.numbers().len() as u32;
        let ids = (1..=count).map(PlanId::from_bits);
        let shares = ids.clone().filter_map(|id| self.share(id));
        let allowing = ids.filter_map(|id| self.get(id));
        let allowing = allowing.filter(|plan| plan.sharing.when_down == WhenDown::Allow);
        shares.chain(allowing.map(|plan| plan.quota.for_address())).collect()
    }

    /// Works out every plan's share anew where the fleet has become another size.
    pub fn resize(&self, nodes: u32) -> Vec<Quota> {
        if self.nodes.swap(nodes, Ordering::Relaxed) == nodes { Vec::new() } else { self.fallbacks() }
    }

    fn numbers(&self) -> MutexGuard<'_, HashMap<Arc<Plan>, PlanId>> {
        self.numbers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The block of a plan, and the place in it: block 0 is number 1, block 1 are 2 and 3, block 2 are 4 to 7.
#[inline]
fn place(id: PlanId) -> (usize, usize) {
    let number = id.number().get();
    let block = number.ilog2();
    (block as usize, (number - (1 << block)) as usize)
}

/// Enough for every number there is.
const BLOCKS: usize = u32::BITS as usize;

#[cfg(test)]
mod tests {
    use std::num::NonZeroU64;

    use super::*;
    use limit::{Algorithm, Sharing};

    fn plan(policy: &str, limit: u64) -> Plan {
        let positive = |number| NonZeroU64::new(number).expect("tests give no zero");
        let quota =
            Quota::new(Algorithm::FixedWindow, positive(limit), positive(1_000_000_000), positive(limit));
        Plan { policy: policy.into(), quota, sharing: Sharing::new(&quota, 0.0, WhenDown::Local) }
    }

    #[test]
    fn an_equal_plan_keeps_its_number_and_no_other_gets_it() {
        let plans = Plans::default();
        let numbers = [plan("a", 5), plan("b", 5), plan("a", 6), plan("a", 5)]
            .map(|plan| plans.id(plan).number().get());
        assert_eq!(numbers, [1, 2, 3, 1]);
        assert_eq!(plans.get(PlanId::from_bits(3)).map(|found| found.quota.limit().get()), Some(6));
        assert_eq!(plans.get(None), None);
    }

    #[test]
    fn every_number_has_its_own_plan() {
        let plans = Plans::default();
        for number in 1..=300 {
            assert_eq!(plans.get(PlanId::from_bits(number)), None);
            assert_eq!(plans.id(plan("a", u64::from(number))).number().get(), number);
        }
        let limit = |number| plans.get(PlanId::from_bits(number)).map(|found| found.quota.limit().get());
        assert!((1..=300).all(|number| limit(number) == Some(u64::from(number))));
        assert_eq!((limit(301), limit(u32::MAX)), (None, None));
    }

    #[test]
    fn a_share_is_twice_the_even_one_and_never_more_than_the_whole() {
        let plans = Plans::default();
        let id = Some(plans.id(plan("a", 100)));
        let share = || plans.share(id).map(|share| share.limit().get());
        assert_eq!(share(), Some(100));
        assert_eq!((plans.resize(2).len(), share()), (1, Some(100)));
        assert_eq!((plans.resize(8).len(), share()), (1, Some(25)));
        assert_eq!((plans.resize(8).len(), share()), (0, Some(25)));
        assert_eq!((plans.resize(1_000).len(), share()), (1, Some(1)));
    }
}
