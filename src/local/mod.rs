//! The local tier: a bounded table of key states in memory, shared by all workers.
//!
//! Memory is fixed when the table is made; the kernel backs it page by page as keys come. A key is found by linear
//! probing over at most [`WINDOW`] slots of 32 bytes, two to a cache line. Slots are never emptied, only taken over:
//! by a new key from one whose bucket is full again, which loses nothing. Where a new key finds no such slot, it is
//! decided on a bucket that all such keys of its quota share: it never gets a fresh one of its own.
//!
//! It knows nothing of policies, requests or other nodes.

mod slot;

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use crate::limit::{self, Charge, Outcome, Quota, State};
use slot::{Key, Seen, Slot, Words};

/// A bounded table of key states.
#[derive(Debug)]
pub struct Table {
    slots: Box<[Words]>,
    /// Every slot in which a window may begin; the last window ends with the table.
    homes: u64,
    /// Quotas by fingerprint, each with the bucket its overflowing keys share.
    quotas: RwLock<HashMap<u32, Arc<Declared>>>,
    /// Taken to bring a new key in, never to decide on one that is there. A key always takes the same.
    stripes: Box<[Mutex<()>]>,
    used: AtomicU64,
    evictions: AtomicU64,
    overflow_decisions: AtomicU64,
}

#[derive(Debug)]
struct Declared {
    quota: Quota,
    overflow: Words,
}

/// How full a table is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Keys it has room for.
    pub slots: u64,
    /// Slots a key has ever come to.
    pub used: u64,
    /// Keys forgotten for another, their bucket being full.
    pub evictions: u64,
    /// Decisions on a shared bucket, for want of a slot.
    pub overflow_decisions: u64,
}

impl Table {
    /// A table of about `bytes`, at least a window of slots.
    pub fn with_memory(bytes: usize) -> Table {
        let count = (bytes / size_of::<Words>()).max(2 * WINDOW);
        Table {
            slots: bytemuck::allocation::zeroed_slice_box(count),
            homes: (count - WINDOW) as u64,
            quotas: RwLock::default(),
            stripes: (0..STRIPES).map(|_| Mutex::default()).collect(),
            used: AtomicU64::new(0),
            evictions: AtomicU64::new(0),
            overflow_decisions: AtomicU64::new(0),
        }
    }

    /// Makes quotas known, once a configuration: so that a key's state can be carried over when its limit changes.
    pub fn declare(&self, quotas: impl IntoIterator<Item = Quota>) {
        let mut known = self.quotas.write().unwrap_or_else(PoisonError::into_inner);
        for quota in quotas {
            known.entry(quota.fingerprint()).or_insert_with(|| {
                let overflow = Words::default();
                Slot(&overflow).claim_empty(Key::OVERFLOW, quota.fingerprint());
                Arc::new(Declared { quota, overflow })
            });
        }
    }

    /// Decides one charge, and charges it where it fits.
    pub fn take(&self, charge: &Charge, now_ns: u64) -> Outcome {
        let mut said = None;
        self.update(charge, now_ns, |state| {
            let (after, outcome) = limit::take(state, &charge.quota, charge.cost, now_ns);
            said = Some(outcome);
            after
        });
        said.expect("an update asks for the change at least once")
    }

    /// Counts a charge whether it fits or not.
    pub fn charge(&self, charge: &Charge, now_ns: u64) {
        self.update(charge, now_ns, |state| limit::charge(state, &charge.quota, charge.cost, now_ns));
    }

    /// Returns what [`Table::take`] took at `taken_ns`.
    pub fn give_back(&self, charge: &Charge, taken_ns: u64) {
        self.update(charge, taken_ns, |state| limit::give_back(state, &charge.quota, charge.cost, taken_ns));
    }

    /// What [`Table::take`] would say; spends nothing and leaves no trace.
    pub fn peek(&self, charge: &Charge, now_ns: u64) -> Outcome {
        let key = Key::new(charge.key);
        let seen = find(self.window(key), key).and_then(|slot| slot.read(key));
        let state = seen.map_or(State::FRESH, |seen| self.current(seen, charge, now_ns));
        limit::take(state, &charge.quota, charge.cost, now_ns).1
    }

    /// How full it is.
    pub fn stats(&self) -> Stats {
        Stats {
            slots: self.slots.len() as u64,
            used: self.used.load(Ordering::Relaxed),
            evictions: self.evictions.load(Ordering::Relaxed),
            overflow_decisions: self.overflow_decisions.load(Ordering::Relaxed),
        }
    }

    /// Changes the state of the charge's key: in its slot, in one brought in for it, or else in the shared one.
    fn update(&self, charge: &Charge, now_ns: u64, mut change: impl FnMut(State) -> State) {
        let key = Key::new(charge.key);
        let fingerprint = charge.quota.fingerprint();
        let mut change = |seen: Seen| change(self.current(seen, charge, now_ns));
        loop {
            // A slot found can be taken over before it is changed: then it is looked for again.
            if let Some(slot) = find(self.window(key), key)
                && slot.update(key, fingerprint, &mut change)
            {
                return;
            }
            if !self.bring_in(key, charge, now_ns) {
                self.overflow_decisions.fetch_add(1, Ordering::Relaxed);
                let shared = self.declared(&charge.quota);
                if Slot(&shared.overflow).update(Key::OVERFLOW, fingerprint, &mut change) {
                    return;
                }
            }
        }
    }

    /// Makes a slot the key's own, unless none can be had.
    fn bring_in(&self, key: Key, charge: &Charge, now_ns: u64) -> bool {
        let window = self.window(key);
        // Two workers that meet the same new key must not give it two slots.
        let _alone = self.stripe(key);
        loop {
            if find(window, key).is_some() {
                return true;
            }
            let free = window.iter().map(Slot).find(|slot| slot.is_empty());
            if let Some(slot) = free {
                if slot.claim_empty(key, charge.quota.fingerprint()) {
                    self.used.fetch_add(1, Ordering::Relaxed);
                    return true;
                }
                // Another key was faster: look again.
                continue;
            }
            let spent = window.iter().map(Slot).find_map(|slot| {
                let seen = slot.read_any()?;
                self.is_spent(seen, charge, now_ns).then_some((slot, seen))
            });
            let Some((slot, seen)) = spent else { return false };
            if slot.take_over(seen, key, charge.quota.fingerprint()) {
                self.evictions.fetch_add(1, Ordering::Relaxed);
                return true;
            }
        }
    }

    /// Whether a slot's bucket is full again, so that its key can be forgotten.
    fn is_spent(&self, seen: Seen, charge: &Charge, now_ns: u64) -> bool {
        if seen.fingerprint == charge.quota.fingerprint() {
            return limit::is_full(seen.state, &charge.quota, now_ns);
        }
        let known = self.quotas.read().unwrap_or_else(PoisonError::into_inner);
        known
            .get(&seen.fingerprint)
            .is_none_or(|declared| limit::is_full(seen.state, &declared.quota, now_ns))
    }

    /// A slot's state under the charge's quota: carried over where the limit has changed since.
    fn current(&self, seen: Seen, charge: &Charge, now_ns: u64) -> State {
        if seen.fingerprint == charge.quota.fingerprint() {
            return seen.state;
        }
        let known = self.quotas.read().unwrap_or_else(PoisonError::into_inner);
        match known.get(&seen.fingerprint) {
            Some(before) => limit::rescale(seen.state, &before.quota, &charge.quota, now_ns),
            None => State::FRESH,
        }
    }

    fn declared(&self, quota: &Quota) -> Arc<Declared> {
        let known = self.quotas.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(declared) = known.get(&quota.fingerprint()) {
            return Arc::clone(declared);
        }
        drop(known);
        self.declare([*quota]);
        self.declared(quota)
    }

    fn window(&self, key: Key) -> &[Words] {
        // The key's upper half spread over the homes: a multiplication instead of a division (Lemire 2019).
        let home = ((u128::from(key.high) * u128::from(self.homes)) >> 64) as usize;
        &self.slots[home..home + WINDOW]
    }

    fn stripe(&self, key: Key) -> MutexGuard<'_, ()> {
        let stripe = &self.stripes[key.low as usize % STRIPES];
        stripe.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The slot that has the key. A key lies before the first slot that was never used: it would have been put there.
fn find(window: &[Words], key: Key) -> Option<Slot<'_>> {
    for slot in window.iter().map(Slot) {
        if slot.has(key) {
            return Some(slot);
        }
        if slot.is_empty() {
            return None;
        }
    }
    None
}

/// Slots a key may lie in. At half load a window of 64 is full for a few keys in a million.
const WINDOW: usize = 64;
const STRIPES: usize = 1024;

#[cfg(test)]
mod tests;
