//! This node's leases: a slot of 64 bytes for each key, in memory fixed by the configuration, changed under the slot's
//! lock bit. This file does not know what the words of a lease mean; `limit` does.
//!
//! A full table evicts keys whose lease holds no units and remembers no denial. If there is none, a new key gets no
//! slot, and Redis decides each of its requests.

use std::sync::atomic::{AtomicU64, Ordering};

use super::slots::{Entry, Slots};
use limit::{Key, PlanId};

/// The table of this node's leases, in memory of a fixed size.
#[derive(Debug)]
pub struct LeaseSlots {
    slots: Slots<8, WORDS>,
    used: AtomicU64,
    evictions: AtomicU64,
    overflows: AtomicU64,
}

/// The words of a lease's state.
pub type LeaseWords = [u64; WORDS];

impl LeaseSlots {
    /// A table of that many bytes, with room for one key in 64 bytes.
    pub fn with_memory(bytes: usize) -> LeaseSlots {
        let zero = || AtomicU64::new(0);
        LeaseSlots { slots: Slots::with_memory(bytes), used: zero(), evictions: zero(), overflows: zero() }
    }

    /// Changes the key's lease, which is all zero if it is new; `change` gets the plan it was written under. Returns
    /// `None` and changes nothing if the table is full of keys that are not idle by `is_idle`.
    pub fn change<R>(
        &self,
        key: Key,
        plan: Option<PlanId>,
        is_idle: impl Fn(Option<PlanId>, LeaseWords) -> bool,
        change: impl FnOnce(Option<PlanId>, &mut LeaseWords) -> R,
    ) -> Option<R> {
        let found = self.slots.find(key).or_else(|| self.claim(key, plan, is_idle));
        let mut slot = found?;
        let mut words = slot.state();
        let result = change(PlanId::from_bits(slot.fingerprint()), &mut words);
        slot.set_state(words, PlanId::into_bits(plan));
        Some(result)
    }

    /// Changes the lease of a key that has one, and leaves its plan as it is.
    #[inline(always)]
    pub fn change_known<R>(
        &self,
        key: Key,
        change: impl FnOnce(Option<PlanId>, &mut LeaseWords) -> R,
    ) -> Option<R> {
        let mut slot = self.slots.find(key)?;
        let (plan, mut words) = (slot.fingerprint(), slot.state());
        let result = change(PlanId::from_bits(plan), &mut words);
        slot.set_state(words, plan);
        Some(result)
    }

    /// Reads the lease of a key and its plan; `None` if it has none.
    pub fn peek(&self, key: Key) -> Option<(Option<PlanId>, LeaseWords)> {
        let slot = self.slots.find(key)?;
        Some((PlanId::from_bits(slot.fingerprint()), slot.state()))
    }

    /// Counters of the table, for the metrics.
    pub fn stats(&self) -> super::Stats {
        super::Stats {
            slots: self.slots.len() as u64,
            used: self.used.load(Ordering::Relaxed),
            evictions: self.evictions.load(Ordering::Relaxed),
            overflow_decisions: self.overflows.load(Ordering::Relaxed),
            ..super::Stats::default()
        }
    }

    #[cold]
    fn claim(
        &self,
        key: Key,
        plan: Option<PlanId>,
        is_idle: impl Fn(Option<PlanId>, LeaseWords) -> bool,
    ) -> Option<super::slots::SlotGuard<'_, 8, WORDS>> {
        let is_idle = |plan, words| is_idle(PlanId::from_bits(plan), words);
        let (slot, counter) = match self.slots.find_or_claim(key, PlanId::into_bits(plan), is_idle) {
            Entry::Found(slot) => return Some(slot),
            Entry::Unused(slot) => (Some(slot), &self.used),
            Entry::Replaced(slot) => (Some(slot), &self.evictions),
            Entry::Full => (None, &self.overflows),
        };
        counter.fetch_add(1, Ordering::Relaxed);
        slot
    }
}

const WORDS: usize = 6;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_is_kept_under_its_key_and_plan() {
        let leases = LeaseSlots::with_memory(1 << 16);
        let never = |_: Option<PlanId>, _: LeaseWords| false;
        assert_eq!(
            leases.change(Key::new(7 << 70 | 7), PlanId::from_bits(3), never, |plan, words| (
                plan,
                std::mem::replace(&mut words[5], 9)
            )),
            Some((PlanId::from_bits(3), 0))
        );
        assert_eq!(
            leases.change(Key::new(7 << 70 | 7), PlanId::from_bits(4), never, |plan, words| (plan, words[5])),
            Some((PlanId::from_bits(3), 9))
        );
        assert_eq!(leases.peek(Key::new(7 << 70 | 7)), Some((PlanId::from_bits(4), [0, 0, 0, 0, 0, 9])));
        assert_eq!(leases.peek(Key::new(8 << 70 | 7)), None);
        assert_eq!(leases.change_known(Key::new(8 << 70 | 7), |_, _| ()), None);
    }

    #[test]
    fn a_full_table_gives_up_idle_keys_only() {
        let leases = LeaseSlots::with_memory(0);
        let slots = leases.stats().slots;
        let key = |number: u64| Key::new(u128::from(number) << 64 | u128::from(number << 40));
        let never = |_: Option<PlanId>, _: LeaseWords| false;
        for number in 0..slots {
            assert_eq!(
                leases.change(key(number), PlanId::from_bits(1), never, |_, words| words[0] = number),
                Some(())
            );
        }
        assert_eq!(leases.change(key(slots), PlanId::from_bits(1), never, |_, _| ()), None);
        assert_eq!(
            leases.change(key(slots), PlanId::from_bits(1), |_, words| words[0] == 5, |_, words| words[0]),
            Some(0)
        );
        assert_eq!(leases.peek(key(5)), None);
        let stats = leases.stats();
        assert_eq!((stats.used, stats.evictions, stats.overflow_decisions), (slots, 1, 1));
    }
}
