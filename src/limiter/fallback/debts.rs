//! Debts of exact windows: units that this node admitted and Redis has not counted, because Redis was down or its refusal
//! came too late. `repayment.rs` sends them.
//!
//! A debt shrinks at this node's even part of the limit, because the window would have forgotten it: after a long
//! outage only what still counts is sent.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use crate::mostly_empty::MostlyEmpty;
use limit::{Algorithm, Charge, Key, PlanId};

#[derive(Debug, Default)]
pub(crate) struct Debts(MostlyEmpty<HashMap<Key, Debt>>);

#[derive(Clone, Copy, Debug)]
struct Debt {
    charge: Charge,
    units: f64,
    at_ns: u64,
}

impl Debt {
    /// Units of it that still count.
    fn left(&self, now_ns: u64, nodes: u32) -> f64 {
        let quota = &self.charge.quota;
        let gone_ns = now_ns.saturating_sub(self.at_ns) as f64;
        let period_ns = quota.period_ns().get() as f64;
        let is_bucket = matches!(quota.algorithm(), Algorithm::TokenBucket | Algorithm::LeakyBucket);
        if quota.is_anew(self.at_ns, now_ns) || !is_bucket && gone_ns >= period_ns {
            return 0.0;
        }
        let refilled = quota.limit().get() as f64 / f64::from(nodes.max(1)) * gone_ns / period_ns;
        (self.units - refilled).max(0.0)
    }
}

impl Debts {
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds units to the debt of a key.
    pub(crate) fn add(&self, charge: &Charge, units: u64, now_ns: u64, nodes: u32) {
        self.0.with(|keys| {
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
        });
    }

    /// Removes a refunded charge from the debt of its key.
    pub(crate) fn forgive(&self, charge: &Charge) {
        if self.is_empty() {
            return;
        }
        self.0.with(|keys| {
            if let Some(debt) = keys.get_mut(&charge.key) {
                debt.units = (debt.units - charge.cost as f64).max(0.0);
            }
        });
    }

    /// Takes out the debt of a key, as a charge.
    pub(crate) fn take(&self, key: Key, now_ns: u64, nodes: u32) -> Option<Charge> {
        let debt = self.0.with(|keys| keys.remove(&key))?;
        let cost = debt.left(now_ns, nodes).round() as u64;
        (cost > 0).then_some(Charge { cost, ..debt.charge })
    }

    /// The plans that debts are under.
    pub(crate) fn plans(&self) -> Vec<PlanId> {
        self.0.with(|keys| keys.values().filter_map(|debt| debt.charge.plan).collect())
    }

    /// Up to `most` keys with a debt.
    pub(crate) fn due(&self, most: usize) -> Vec<Key> {
        self.0.with(|keys| keys.keys().take(most).copied().collect())
    }
}

/// The most keys with a debt; further ones are not recorded.
const DEBTS_MAX: usize = 65_536;
