//! The plans of every configuration so far, by the number that charges and slots name them by.
//!
//! A number is never given to another plan, so that what a slot was written under can always be read. A plan that
//! stays the same over a reload keeps its number.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arc_swap::{ArcSwap, Guard};

use crate::limit::{Plan, Quota};

/// All plans.
#[derive(Debug, Default)]
pub struct Plans {
    known: ArcSwap<Known>,
    /// Held by whoever changes what is known.
    numbers: Mutex<HashMap<Arc<Plan>, u32>>,
}

/// The plans at one time.
#[derive(Clone, Debug, Default)]
pub struct Known {
    plans: Vec<Entry>,
    nodes: u32,
}

#[derive(Clone, Debug)]
struct Entry {
    plan: Arc<Plan>,
    /// What this node alone enforces of an exact plan without the store.
    share: Quota,
}

/// Plans that are being added; [`Adding::publish`] shows them to everybody at once.
#[derive(Debug)]
pub struct Adding<'p> {
    plans: &'p Plans,
    numbers: MutexGuard<'p, HashMap<Arc<Plan>, u32>>,
    known: Known,
}

impl Plans {
    /// Begins to add plans: a configuration's together, however many they are.
    pub fn add(&self) -> Adding<'_> {
        let numbers = self.numbers.lock().unwrap_or_else(PoisonError::into_inner);
        Adding { plans: self, numbers, known: Known::clone(&self.known.load()) }
    }

    /// The number of one plan, from 1; the same for an equal one.
    pub fn number(&self, plan: Plan) -> u32 {
        let mut adding = self.add();
        let number = adding.number(plan);
        adding.publish();
        number
    }

    /// The plans as they are now.
    #[inline]
    pub fn load(&self) -> Guard<Arc<Known>> {
        self.known.load()
    }

    /// Works out every plan's share anew where the fleet has become another size; those that changed.
    pub fn resize(&self, nodes: u32) -> Vec<Quota> {
        let _numbers = self.numbers.lock().unwrap_or_else(PoisonError::into_inner);
        let known = self.known.load();
        if known.nodes == nodes {
            return Vec::new();
        }
        let mut known = Known { nodes, ..Known::clone(&known) };
        for entry in &mut known.plans {
            entry.share = entry.plan.quota.share_of(nodes);
        }
        let shares = known.shares().collect();
        self.known.store(Arc::new(known));
        shares
    }
}

impl Adding<'_> {
    /// The number of a plan, from 1; the same for an equal one.
    pub fn number(&mut self, plan: Plan) -> u32 {
        if let Some(number) = self.numbers.get(&plan) {
            return *number;
        }
        let share = plan.quota.share_of(self.known.nodes.max(1));
        let plan = Arc::new(plan);
        self.known.plans.push(Entry { plan: Arc::clone(&plan), share });
        let number = self.known.plans.len() as u32;
        self.numbers.insert(plan, number);
        number
    }

    /// From now on the plans are read by their numbers.
    pub fn publish(self) {
        self.plans.known.store(Arc::new(self.known));
    }
}

impl Known {
    /// The plan of a number; `None` for 0.
    #[inline]
    pub fn get(&self, number: u32) -> Option<&Arc<Plan>> {
        Some(&self.plans.get((number as usize).checked_sub(1)?)?.plan)
    }

    /// What this node enforces of the plan of a number without the store; `None` for 0.
    pub fn share(&self, number: u32) -> Option<&Quota> {
        Some(&self.plans.get((number as usize).checked_sub(1)?)?.share)
    }

    /// All of these shares.
    pub fn shares(&self) -> impl Iterator<Item = Quota> {
        self.plans.iter().map(|entry| entry.share)
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU64;

    use super::*;
    use crate::limit::{Algorithm, Sharing, WhenDown};

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
        assert_eq!(plans.load().get(3).map(|found| found.quota.limit().get()), Some(6));
        assert_eq!(plans.load().get(0), None);
    }

    #[test]
    fn a_share_is_twice_the_even_one_and_never_more_than_the_whole() {
        let plans = Plans::default();
        let number = plans.number(plan("a", 100));
        let share = || plans.load().share(number).map(|share| share.limit().get());
        assert_eq!(share(), Some(100));
        assert_eq!((plans.resize(2).len(), share()), (1, Some(100)));
        assert_eq!((plans.resize(8).len(), share()), (1, Some(25)));
        assert_eq!((plans.resize(8).len(), share()), (0, Some(25)));
        assert_eq!((plans.resize(1_000).len(), share()), (1, Some(1)));
    }
}
