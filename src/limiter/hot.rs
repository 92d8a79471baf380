//! Hot keys of policies that say `local-only`: this node alone decides them, by a limit of its own, so that one key does not take a
//! shard of Redis from all others. A check of others pays one load.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};

use arc_swap::ArcSwap;
use smallvec::SmallVec;

use limit::{Algorithm, Charge, Key, PolicyId, Quota};

/// The keys that this node decides by itself for now, by the upper half of their first window's key.
#[derive(Debug, Default)]
pub(super) struct Hot {
    is_any: AtomicBool,
    quotas: ArcSwap<HashMap<u64, Quota>>,
}

impl Hot {
    pub(super) fn put(&self, quotas: HashMap<u64, Quota>) {
        let is_any = !quotas.is_empty();
        self.quotas.store(quotas.into());
        self.is_any.store(is_any, Ordering::Release);
    }

    /// Brings the charges of hot keys to this node. A policy's other windows over time do not count such a key, requests in
    /// flight go on being counted. What an operator has set for a holder stays.
    #[inline]
    pub(super) fn keep_local(&self, charges: &mut SmallVec<[Charge; 4]>) {
        if self.is_any.load(Ordering::Acquire) {
            self.replace(charges);
        }
    }

    /// Whether a charge is one of a hot key, as [`Hot::keep_local`] changes it.
    pub(super) fn has(&self, charge: &Charge) -> bool {
        let is_changed = charge.is_overridden && charge.plan.is_none() && self.is_any.load(Ordering::Acquire);
        is_changed && self.quotas.load().get(&charge.key.high()) == Some(&charge.quota)
    }

    #[cold]
    fn replace(&self, charges: &mut SmallVec<[Charge; 4]>) {
        let quotas = self.quotas.load();
        // The policy at hand, and its quota here until one of its windows has it.
        let mut own: Option<(PolicyId, u16, Option<Quota>, bool)> = None;
        charges.retain(|charge| {
            if own.is_none_or(|(policy, part, ..)| (policy, part) != (charge.policy, charge.part)) {
                let quota = quotas.get(&charge.key.high()).filter(|_| !charge.is_overridden).copied();
                own = Some((charge.policy, charge.part, quota, false));
            }
            let Some((_, _, Some(quota), is_placed)) = &mut own else { return true };
            if charge.quota.algorithm() == Algorithm::Concurrency || charge.trial.is_some() {
                return true;
            }
            if *is_placed || quota.algorithm() != charge.quota.algorithm() {
                return false;
            }
            *is_placed = true;
            (charge.quota, charge.plan, charge.is_overridden) = (*quota, None, true);
            // Counted apart: what the key spends under the one limit is not spent under the other.
            charge.key = Key::new(charge.key.bits() ^ APART);
            true
        });
    }
}

/// In the lower half, so that the key has its name and its shard still; of the bits that a table compares.
const APART: u128 = 1 << 16;

#[cfg(test)]
mod tests {
    use std::num::NonZeroU64;

    use super::*;
    use crate::check::tests::{Job, NOW, check, limiter, policy, table};

    fn job(consumer: &'static str) -> Job {
        Job { consumer, units: 1, number: None }
    }

    #[test]
    fn an_override_holds_for_a_hot_key() {
        let limiter = limiter();
        let table = table(&[policy("jobs", "5/m by consumer")]);
        let mut charges = check(&limiter, &table, &job("ann"), NOW).charges;
        let own = charges[0].quota;
        let many = NonZeroU64::new(1_000).expect("it is not 0");
        let local = Quota::new(own.algorithm(), many, own.period_ns(), many);
        limiter.keep_local(HashMap::from([(charges[0].key.high(), local)]));
        charges[0].is_overridden = true;
        limiter.hot.keep_local(&mut charges);
        assert_eq!(charges[0].quota, own);
        charges[0].is_overridden = false;
        limiter.hot.keep_local(&mut charges);
        assert_eq!(charges[0].quota, local);
    }

    #[test]
    fn a_hot_key_has_this_nodes_limit_until_it_is_one_no_longer() {
        let (limiter, table) =
            (limiter(), table(&[policy("jobs", "1/m by consumer"), policy("all", "100/h")]));
        let first = check(&limiter, &table, &job("ann"), NOW);
        let quota = first.charges[0].quota;
        let three = NonZeroU64::new(3).expect("three is not 0");
        let local = Quota::new(quota.algorithm(), three, quota.period_ns(), three);
        assert!(first.is_admitted() && !check(&limiter, &table, &job("ann"), NOW).is_admitted());
        limiter.keep_local(HashMap::from([(first.charges[0].key.high(), local)]));
        let hot = check(&limiter, &table, &job("ann"), NOW + 60_000_000_000);
        let plans: Vec<_> = hot.charges.iter().map(|charge| (charge.quota, charge.plan)).collect();
        assert_eq!(plans, [(local, None), (hot.charges[1].quota, None)]);
        let later = NOW + 180_000_000_000;
        let admitted = (0..5).filter(|_| check(&limiter, &table, &job("ann"), later).is_admitted()).count();
        assert_eq!(admitted, 3);
        assert!(check(&limiter, &table, &job("bob"), later).is_admitted());
        assert!(!check(&limiter, &table, &job("bob"), later).is_admitted(), "others keep their limit");
        limiter.keep_local(HashMap::new());
        let cool = check(&limiter, &table, &job("ann"), later);
        assert!(cool.is_admitted(), "what the key has spent here was not the policy's");
        assert_eq!(cool.charges[0].quota, quota);
    }
}
