//! Quotas by fingerprint, so that a state written under an old configuration can be read, and the overflow bucket of
//! each quota. A key that has a slot under the present quota needs neither.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arc_swap::ArcSwap;

use crate::limit::{Quota, State};

/// The known quotas and their overflow buckets.
#[derive(Debug, Default)]
pub(super) struct Quotas {
    declared: ArcSwap<HashMap<u32, Quota>>,
    overflow: Mutex<HashMap<u32, State>>,
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
        let declared = self.declared();
        self.overflow().retain(|fingerprint, _| declared.contains_key(fingerprint));
    }

    /// All known quotas, loaded once for several look-ups.
    pub(super) fn declared(&self) -> Arc<HashMap<u32, Quota>> {
        self.declared.load_full()
    }

    /// Overflow buckets by fingerprint; one that is missing has nothing spent. There are no more than there are quotas.
    pub(super) fn overflow(&self) -> MutexGuard<'_, HashMap<u32, State>> {
        // A state is replaced as a whole, so a thread that panicked under the lock has left none half changed.
        self.overflow.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How many quotas are remembered over reloads. Beyond that only those of the newest configuration are kept.
const REMEMBERED_MAX: usize = 65_536;

#[cfg(test)]
mod tests {
    use std::num::NonZeroU64;

    use super::*;
    use crate::limit::Algorithm;

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
            let known = quotas.declared();
            assert!(known.len() <= REMEMBERED_MAX && known.contains_key(&first));
            assert!(quotas.overflow().len() <= 4);
        }
    }
}
