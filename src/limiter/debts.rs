//! What this node admitted of exact windows without Redis, and Redis does not know of yet: while Redis was
//! away, or because its answer came too late and was no. `repayment` tells it as soon as Redis answers.
//!
//! What is owed shrinks as the window forgets it, at this node's even part of the limit: after a long outage only what
//! still counts is told. What an operator lets everybody have while Redis is away (`allow`) is no debt.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::limit::{Algorithm, Charge, Key};

/// Debts, by key.
#[derive(Debug, Default)]
pub(super) struct Debts {
    /// How many there are, so that it costs nothing where there are none.
    count: AtomicUsize,
    keys: Mutex<HashMap<Key, Debt>>,
}

#[derive(Clone, Copy, Debug)]
struct Debt {
    charge: Charge,
    units: f64,
    at_ns: u64,
}

impl Debt {
    /// What still counts of it.
    fn left(&self, now_ns: u64, nodes: u32) -> f64 {
        let quota = &self.charge.quota;
        let gone_ns = now_ns.saturating_sub(self.at_ns) as f64;
        let period_ns = quota.period_ns().get() as f64;
        let is_bucket = matches!(quota.algorithm(), Algorithm::TokenBucket | Algorithm::LeakyBucket);
        if !is_bucket && gone_ns >= period_ns {
            return 0.0;
        }
        let refilled = quota.limit().get() as f64 / f64::from(nodes.max(1)) * gone_ns / period_ns;
        (self.units - refilled).max(0.0)
    }
}

impl Debts {
    /// Whether nothing is owed.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.count.load(Ordering::Relaxed) == 0
    }

    fn keys(&self) -> MutexGuard<'_, HashMap<Key, Debt>> {
        self.keys.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds so many units to what is owed of a key.
    pub(super) fn add(&self, charge: &Charge, units: u64, now_ns: u64, nodes: u32) {
        let mut keys = self.keys();
        if keys.len() >= DEBTS_MAX && !keys.contains_key(&charge.key) {
            keys.retain(|_, debt| debt.left(now_ns, nodes) >= 1.0);
            if keys.len() >= DEBTS_MAX {
                return;
            }
        }
        match keys.entry(charge.key) {
            Entry::Occupied(mut debt) => {
                let debt = debt.get_mut();
                debt.units = debt.left(now_ns, nodes) + units as f64;
                (debt.charge, debt.at_ns) = (*charge, now_ns);
            }
            Entry::Vacant(vacant) => {
                vacant.insert(Debt { charge: *charge, units: units as f64, at_ns: now_ns });
            }
        }
        self.count.store(keys.len(), Ordering::Relaxed);
    }

    /// Takes back what has not been told.
    pub(super) fn forgive(&self, charge: &Charge) {
        if self.is_empty() {
            return;
        }
        if let Some(debt) = self.keys().get_mut(&charge.key) {
            debt.units = (debt.units - charge.cost as f64).max(0.0);
        }
    }

    /// Takes out what is owed of a key, as a charge.
    pub(super) fn take(&self, key: Key, now_ns: u64, nodes: u32) -> Option<Charge> {
        let mut keys = self.keys();
        let debt = keys.remove(&key)?;
        self.count.store(keys.len(), Ordering::Relaxed);
        let cost = debt.left(now_ns, nodes) as u64;
        (cost > 0).then_some(Charge { cost, ..debt.charge })
    }

    /// Keys of which something is owed.
    pub(super) fn due(&self, most: usize) -> Vec<Key> {
        self.keys().keys().take(most).copied().collect()
    }
}

/// Keys of which debts are remembered; what is owed of more is not told.
const DEBTS_MAX: usize = 65_536;
