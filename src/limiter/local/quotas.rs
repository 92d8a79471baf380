//! Quotas by fingerprint, so that a state written under an old configuration can be read, and the overflow bucket of
//! each quota. A key that has a slot under the present quota needs neither.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard};

use arc_swap::ArcSwap;

use limit::{Quota, State};

/// The known quotas and their overflow buckets.
#[derive(Debug, Default)]
pub(super) struct Quotas {
    declared: ArcSwap<HashMap<u32, Quota>>,
    /// Those of overrides, which come one by one.
    also: RwLock<HashMap<u32, Quota>>,
    overflow: Mutex<HashMap<u32, State>>,
}

/// All quotas that are known at this moment.
pub(super) struct Known<'q> {
    declared: Arc<HashMap<u32, Quota>>,
    also: &'q RwLock<HashMap<u32, Quota>>,
}

impl Known<'_> {
    /// The quota with this fingerprint.
    pub(super) fn get(&self, fingerprint: u32) -> Option<Quota> {
        let declared = self.declared.get(&fingerprint).copied();
        declared.or_else(|| self.also().get(&fingerprint).copied())
    }

    /// Each of them once.
    pub(super) fn all(&self) -> Vec<Quota> {
        let also = self.also();
        let others = also.iter().filter(|(fingerprint, _)| !self.declared.contains_key(fingerprint));
        self.declared.values().copied().chain(others.map(|(_, quota)| *quota)).collect()
    }

    fn also(&self) -> RwLockReadGuard<'_, HashMap<u32, Quota>> {
        self.also.read().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Quotas {
    /// Adds the quotas of a configuration. Earlier ones stay known until there are more than `REMEMBERED_MAX`.
    pub(super) fn declare(&self, quotas: impl IntoIterator<Item = Quota>) {
        let current: HashMap<u32, Quota> =
            quotas.into_iter().map(|quota| (quota.fingerprint(), quota)).collect();
        self.declared.rcu(|before| {
            let mut declared = current.clone();
            if before.len() + current.len() <= REMEMBERED_MAX {
                declared.extend(before.iter().map(|(fingerprint, quota)| (*fingerprint, *quota)));
            }
            declared
        });
        let known = self.known();
        self.overflow().retain(|fingerprint, _| known.get(*fingerprint).is_some());
    }

    /// Adds one quota, unless there are `REMEMBERED_MAX` such already: a state under it then counts as spent when its key
    /// is charged under another.
    pub(super) fn declare_also(&self, quota: Quota) {
        let mut also = self.also.write().unwrap_or_else(PoisonError::into_inner);
        if also.len() < REMEMBERED_MAX {
            also.insert(quota.fingerprint(), quota);
        }
    }

    /// All known quotas, loaded once for several look-ups.
    pub(super) fn known(&self) -> Known<'_> {
        Known { declared: self.declared.load_full(), also: &self.also }
    }

    /// Overflow buckets by fingerprint; one that is missing has nothing spent. There are no more than there are quotas.
    pub(super) fn overflow(&self) -> MutexGuard<'_, HashMap<u32, State>> {
        // A state is replaced as a whole, so a thread that panicked under the lock has left none half changed.
        self.overflow.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How many quotas are remembered over reloads, and how many of overrides. Beyond that only those of the newest
/// configuration are kept.
const REMEMBERED_MAX: usize = 65_536;

#[cfg(test)]
mod tests {
    use std::num::NonZeroU64;

    use super::*;
    use limit::Algorithm;

    #[test]
    fn reloads_without_end_fill_no_memory() {
        let quotas = Quotas::default();
        let quota = |number: usize| {
            let whole = |number| NonZeroU64::new(number).expect("not zero");
            Quota::new(Algorithm::TokenBucket, whole(number as u64 + 1), whole(1_000), whole(1))
        };
        const EACH: usize = REMEMBERED_MAX / 4 + 1;
        for reload in 0..9 {
            let first = quota(reload * EACH).fingerprint();
            quotas.declare((reload * EACH..(reload + 1) * EACH).map(quota));
            quotas.overflow().insert(first, State::default());
            let known = quotas.known();
            assert!(known.all().len() <= REMEMBERED_MAX && known.get(first).is_some());
            assert!(quotas.overflow().len() <= 4);
        }
    }
}
