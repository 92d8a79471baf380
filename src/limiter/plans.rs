//! The plans of every configuration so far, by the number that charges and slots name them by, and those of overrides while
//! somebody needs them.
//!
//! A number is never given to another plan, so that what a slot was written under can always be read. A plan that
//! stays the same over a reload keeps its number.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use base::sharded_map::ShardedMap;
use limit::{Plan, PlanId, Quota, WhenDown};

/// The plans of every configuration so far, by their numbers.
#[derive(Debug, Default)]
pub struct Plans {
    /// Each block is twice as long as the one before, and no entry ever moves, so that a plan is read by its number
    /// without a lock and without a reference count.
    blocks: [OnceLock<Block>; BLOCKS],
    /// Those that overrides have made, of which there is no end. They go when nobody needs them.
    scaled: ShardedMap<PlanId, Arc<Plan>>,
    /// Locked only to add a plan, and to let plans go.
    numbers: Mutex<PlanNumbers>,
    /// How many nodes share them; 0: not known yet.
    nodes: AtomicU32,
}

type Block = Box<[OnceLock<Arc<Plan>>]>;

#[derive(Debug, Default)]
struct PlanNumbers {
    known: HashMap<Arc<Plan>, PlanNumber>,
    /// The last number of a configuration's plan, and of an override's.
    last: (u32, u32),
    trimmed_ns: u64,
}

#[derive(Clone, Copy, Debug)]
struct PlanNumber {
    id: PlanId,
    /// A configuration has it, or had it.
    is_lasting: bool,
    /// Since when nobody has needed it.
    unused_since_ns: Option<u64>,
}

/// A plan, for as long as it is looked at: one of a configuration, or a copy of one that an override has made.
pub type PlanRef<'p> = Cow<'p, Arc<Plan>>;

impl Plans {
    /// The id of a plan of a configuration; the same for an equal one.
    pub fn id(&self, plan: Plan) -> PlanId {
        let mut numbers = self.numbers();
        if let Some(number) = numbers.known.get_mut(&plan) {
            number.is_lasting = true;
            return number.id;
        }
        numbers.last.0 += 1;
        let id = PlanId::new(NonZeroU32::MIN.saturating_add(numbers.last.0 - 1));
        let (block, index) = place(id);
        let plan = Arc::new(plan);
        let entries =
            self.blocks[block].get_or_init(|| (0..1usize << block).map(|_| OnceLock::new()).collect());
        // Nobody else can have filled it: numbers are given under the lock.
        let _ = entries[index].set(Arc::clone(&plan));
        numbers.known.insert(plan, PlanNumber { id, is_lasting: true, unused_since_ns: None });
        id
    }

    /// The id of a plan that is needed for as long as what is returned with it is held.
    pub(crate) fn scaled(&self, plan: Plan) -> (PlanId, Arc<Plan>) {
        let mut numbers = self.numbers();
        if let Some((plan, number)) = numbers.known.get_key_value(&plan) {
            return (number.id, Arc::clone(plan));
        }
        let id = PlanId::new(SCALED.saturating_add(numbers.last.1));
        numbers.last.1 += 1;
        let plan = Arc::new(plan);
        self.scaled.change(id, |_| Some(Arc::clone(&plan)));
        let number = PlanNumber { id, is_lasting: false, unused_since_ns: None };
        numbers.known.insert(Arc::clone(&plan), number);
        (id, plan)
    }

    /// Lets plans of overrides go that nobody holds and nothing names: not what `named` says, which is asked only if there is
    /// one to go, nor a request that was decided under it, which has that long to end. Looks once in so long.
    pub(crate) fn trim(&self, now_ns: u64, named: impl FnOnce() -> HashSet<PlanId>) {
        let mut over = self.unused(now_ns);
        if over.is_empty() {
            return;
        }
        let named = named();
        over.retain(|id| !named.contains(id));
        self.numbers().known.retain(|plan, number| {
            // Somebody may have come for it meanwhile.
            let goes =
                over.contains(&number.id) && !number.is_lasting && Arc::strong_count(plan) <= HELD_HERE;
            if goes {
                self.scaled.change(number.id, |_| None);
            }
            !goes
        });
    }

    /// The plans of overrides that nobody has held for long.
    fn unused(&self, now_ns: u64) -> HashSet<PlanId> {
        let mut numbers = self.numbers();
        if self.scaled.is_empty() || now_ns.saturating_sub(numbers.trimmed_ns) < TRIM_EVERY_NS {
            return HashSet::new();
        }
        numbers.trimmed_ns = now_ns;
        let scaled = numbers.known.iter_mut().filter(|(_, number)| !number.is_lasting);
        let over = scaled.filter_map(|(plan, number)| {
            let is_held = Arc::strong_count(plan) > HELD_HERE;
            number.unused_since_ns = (!is_held).then(|| number.unused_since_ns.unwrap_or(now_ns));
            let since_ns = number.unused_since_ns?;
            (now_ns.saturating_sub(since_ns) >= KEPT_NS).then_some(number.id)
        });
        over.collect()
    }

    /// The plan of a charge or slot that may have one.
    #[inline]
    pub fn get(&self, id: Option<PlanId>) -> Option<PlanRef<'_>> {
        let id = id?;
        if id.number() >= SCALED {
            return self.get_scaled(id);
        }
        let (block, index) = place(id);
        self.blocks[block].get()?.get(index)?.get().map(Cow::Borrowed)
    }

    #[cold]
    fn get_scaled(&self, id: PlanId) -> Option<PlanRef<'_>> {
        self.scaled.of(&id)?.get().map(|plan| Cow::Owned(Arc::clone(plan)))
    }

    /// What this node enforces of a plan without Redis.
    pub fn share(&self, id: Option<PlanId>) -> Option<Quota> {
        Some(self.get(id)?.quota.share_of(self.nodes()))
    }

    /// All that this node enforces without Redis: these shares, and what an address is admitted.
    pub fn fallbacks(&self) -> Vec<Quota> {
        let (numbers, nodes) = (self.numbers(), self.nodes());
        let shares = numbers.known.keys().map(|plan| plan.quota.share_of(nodes));
        let allowing = numbers.known.keys().filter(|plan| plan.sharing.when_down == WhenDown::Allow);
        shares.chain(allowing.map(|plan| plan.quota.for_address())).collect()
    }

    /// Works out every plan's share anew where the fleet has become another size.
    pub fn resize(&self, nodes: u32) -> Vec<Quota> {
        if self.nodes.swap(nodes, Ordering::Relaxed) == nodes { Vec::new() } else { self.fallbacks() }
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.numbers().known.len()
    }

    fn nodes(&self) -> u32 {
        self.nodes.load(Ordering::Relaxed).max(1)
    }

    fn numbers(&self) -> MutexGuard<'_, PlanNumbers> {
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

/// Enough for every number below `SCALED`.
const BLOCKS: usize = u32::BITS as usize - 1;
/// The first number of an override's plan.
const SCALED: NonZeroU32 = NonZeroU32::MIN.saturating_add((1 << (u32::BITS - 1)) - 1);
/// How often a plan of an override is held here: as itself, and by its number.
const HELD_HERE: usize = 2;
/// How long a plan stays that nobody needs.
const KEPT_NS: u64 = 600_000_000_000;
const TRIM_EVERY_NS: u64 = 60_000_000_000;

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
        assert!(plans.get(None).is_none());
    }

    #[test]
    fn every_number_has_its_own_plan() {
        let plans = Plans::default();
        for number in 1..=300 {
            assert!(plans.get(PlanId::from_bits(number)).is_none());
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
