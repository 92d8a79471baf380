//! Quotas by fingerprint, so that a state written under an old configuration can be read, and the overflow bucket of
//! each quota. A key that has a slot under the present quota needs neither.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard};

use arc_swap::ArcSwap;

use limit::{Quota, State};

#[derive(Debug, Default)]
pub(super) struct Quotas {
    declared: ArcSwap<HashMap<u32, DeclaredQuota>>,
    /// Those of overrides, which come one by one.
    also: RwLock<HashMap<u32, Quota>>,
    overflow: Mutex<HashMap<u32, State>>,
}

#[derive(Clone, Copy, Debug)]
struct DeclaredQuota {
    quota: Quota,
    /// The number of the last declaration that had it.
    number: u64,
    /// Whether the configuration in force has it.
    in_force: bool,
}

/// What declares quotas.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum By {
    /// A configuration, which takes the place of the one before.
    Configuration,
    /// The fleet, a predecessor: beside the configuration in force.
    Others,
}

pub(super) struct KnownQuotas<'q> {
    declared: Arc<HashMap<u32, DeclaredQuota>>,
    also: &'q RwLock<HashMap<u32, Quota>>,
}

impl KnownQuotas<'_> {
    pub(super) fn get(&self, fingerprint: u32) -> Option<Quota> {
        let declared = self.declared.get(&fingerprint).map(|it| it.quota);
        declared.or_else(|| self.also().get(&fingerprint).copied())
    }

    /// Each of them once.
    pub(super) fn all(&self) -> Vec<Quota> {
        let also = self.also();
        let others = also.iter().filter(|(fingerprint, _)| !self.declared.contains_key(fingerprint));
        self.declared.values().map(|it| it.quota).chain(others.map(|(_, quota)| *quota)).collect()
    }

    fn also(&self) -> RwLockReadGuard<'_, HashMap<u32, Quota>> {
        self.also.read().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Quotas {
    /// Adds quotas. Earlier ones stay known while there is room, see [`forget`]; `used` have an overflow log.
    pub(super) fn declare(&self, quotas: impl IntoIterator<Item = Quota>, by: By, mut used: HashSet<u32>) {
        let current: Vec<Quota> = quotas.into_iter().collect();
        let spent =
            |(fingerprint, state): (&u32, &State)| (*state != State::default()).then_some(*fingerprint);
        used.extend(self.overflow().iter().filter_map(spent));
        self.declared.rcu(|before| {
            let mut declared = HashMap::clone(before);
            let number = declared.values().map(|it| it.number).max().unwrap_or(0) + 1;
            if by == By::Configuration {
                declared.values_mut().for_each(|it| it.in_force = false);
            }
            for quota in &current {
                let it = DeclaredQuota { quota: *quota, number, in_force: by == By::Configuration };
                let known = declared.entry(quota.fingerprint()).or_insert(it);
                known.number = number;
                known.in_force |= it.in_force;
            }
            forget(&mut declared, number, &used);
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
    pub(super) fn known(&self) -> KnownQuotas<'_> {
        KnownQuotas { declared: self.declared.load_full(), also: &self.also }
    }

    /// Overflow buckets by fingerprint; one that is missing has nothing spent. There are no more than there are quotas.
    pub(super) fn overflow(&self) -> MutexGuard<'_, HashMap<u32, State>> {
        // A state is replaced as a whole, so that a thread that panicked under the lock has left none half changed.
        self.overflow.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Forgets what is beyond `REMEMBERED_MAX`, the oldest first, and nothing that the configuration in force or the last
/// declaration has, because states under it would count as spent. What keys without a slot spend of stays beside that,
/// as many again, because it would be given anew.
fn forget(declared: &mut HashMap<u32, DeclaredQuota>, last: u64, used: &HashSet<u32>) {
    let beyond = declared.len().saturating_sub(REMEMBERED_MAX);
    if beyond == 0 {
        return;
    }
    let past = declared.iter().filter(|(_, it)| !it.in_force && it.number != last);
    let past = past.map(|(fingerprint, it)| (it.number, *fingerprint));
    let (used, unused): (Vec<_>, Vec<_>) = past.partition(|(_, fingerprint)| used.contains(fingerprint));
    let used_beyond = used.len().saturating_sub(REMEMBERED_MAX);
    for (mut kind, count) in [(unused, beyond), (used, used_beyond)] {
        kind.sort_unstable();
        for (_, fingerprint) in kind.iter().take(count) {
            declared.remove(fingerprint);
        }
    }
}

/// How many quotas are remembered over reloads, and how many of overrides.
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
            quotas.declare(
                (reload * EACH..(reload + 1) * EACH).map(quota),
                By::Configuration,
                HashSet::new(),
            );
            quotas.overflow().insert(first, State::default());
            let known = quotas.known();
            assert!(known.all().len() <= REMEMBERED_MAX && known.get(first).is_some());
            assert!(quotas.overflow().len() <= 4);
        }
    }

    #[test]
    fn a_fleet_of_another_size_takes_nothing_of_the_configuration_away() {
        let quotas = Quotas::default();
        let quota = |limit: usize| {
            let whole = |number| NonZeroU64::new(number).expect("not zero");
            Quota::new(Algorithm::TokenBucket, whole(limit as u64), whole(1_000), whole(1))
        };
        const MANY: usize = 40_000;
        let spent = State([1, 2]);
        let declare = |from: usize, by| quotas.declare((from..from + MANY).map(quota), by, HashSet::new());
        declare(1, By::Configuration);
        quotas.overflow().insert(quota(7).fingerprint(), spent);
        for nodes in 2..12 {
            declare(nodes * MANY + 1, By::Others);
            quotas.overflow().insert(quota(nodes * MANY + 1).fingerprint(), spent);
            assert!((1..=MANY).all(|limit| quotas.known().get(quota(limit).fingerprint()).is_some()));
            assert!(quotas.known().all().len() <= 2 * MANY + 10);
        }
        // Buckets that are in use outlive what else is old.
        assert_eq!(quotas.overflow().get(&quota(7).fingerprint()), Some(&spent));
        assert_eq!(quotas.overflow().len(), 11);
        // The configuration that comes next is the one in force.
        declare(1_000_000, By::Configuration);
        declare(2_000_000, By::Others);
        assert!(quotas.known().get(quota(1_000_000).fingerprint()).is_some());
        assert!(quotas.known().get(quota(8).fingerprint()).is_none());
        assert_eq!(quotas.overflow().get(&quota(7).fingerprint()), Some(&spent));
    }
}
