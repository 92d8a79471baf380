//! Debts of exact windows: units that this node admitted and Redis has not counted, because its refusal came too late or
//! it was away. `repayment.rs` sends them.
//!
//! A debt shrinks at this node's even part of the limit, because the window would have forgotten it: after a long
//! outage only what still counts is sent. What was spent without Redis in a fixed window stays as it is until that is over.

use std::collections::HashMap;
use std::time::Duration;

use crate::mostly_empty::MostlyEmpty;
use limit::{Algorithm, Charge, Key, PlanId, Quota};

#[derive(Debug, Default)]
pub(crate) struct Debts(MostlyEmpty<HashMap<Key, Debt>>);

/// Why Redis has not counted units.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DebtKind {
    /// It refused them, after this node had admitted them: all of them are owed.
    Refused,
    /// It was away: they count in the window in which they were spent, and as far as that has room.
    Unheard,
}

/// When something was spent: by this node's monotonic clock, nanoseconds, and by that of Redis, microseconds since 1970.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SpentAt {
    pub(crate) ns: u64,
    pub(crate) us: u64,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Debt {
    pub(crate) charge: Charge,
    refused: f64,
    unheard: f64,
    pub(crate) at: SpentAt,
}

impl Debt {
    /// What of it still counts.
    fn at(&self, now: SpentAt, nodes: u32) -> Debt {
        let quota = &self.charge.quota;
        let gone_ns = now.ns.saturating_sub(self.at.ns) as f64;
        let period_ns = quota.period_ns().get() as f64;
        let is_bucket = matches!(quota.algorithm(), Algorithm::TokenBucket | Algorithm::LeakyBucket);
        let is_fixed = quota.algorithm() == Algorithm::FixedWindow;
        let refilled = match quota.is_anew(self.at.ns, now.ns) || !is_bucket && gone_ns >= period_ns {
            true => f64::INFINITY,
            false => quota.limit().get() as f64 / f64::from(nodes.max(1)) * gone_ns / period_ns,
        };
        let left = |units: f64, refilled: f64| (units - refilled).max(0.0);
        let unheard = match is_fixed {
            true if window_of(quota, self.at) == window_of(quota, now) => self.unheard,
            true => 0.0,
            false => left(self.unheard, refilled),
        };
        let at = SpentAt { ns: now.ns, us: self.at.us };
        Debt { charge: self.charge, refused: left(self.refused, refilled), unheard, at }
    }

    /// Both together, as of the later one.
    fn with(&self, other: &Debt, nodes: u32) -> Debt {
        let at = SpentAt { ns: self.at.ns.max(other.at.ns), us: self.at.us.max(other.at.us) };
        let (one, other) = (self.at(at, nodes), other.at(at, nodes));
        // No window holds more than its capacity.
        let unheard = (one.unheard + other.unheard).min(self.charge.quota.capacity() as f64);
        Debt { charge: self.charge, refused: one.refused + other.refused, unheard, at }
    }

    pub(crate) fn units(&self, kind: DebtKind) -> u64 {
        let units = if kind == DebtKind::Refused { self.refused } else { self.unheard };
        units.round() as u64
    }
}

/// When a fixed window began, by the clock of Redis.
fn window_of(quota: &Quota, at: SpentAt) -> u64 {
    quota.window_around_ns(Duration::from_micros(at.us)).0
}

impl Debts {
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn add(&self, charge: &Charge, kind: DebtKind, at: SpentAt, nodes: u32) {
        self.0.with(|keys| {
            if keys.len() >= DEBTS_MAX && !keys.contains_key(&charge.key) {
                keys.retain(|_, debt| {
                    let left = debt.at(at, nodes);
                    left.refused + left.unheard >= 1.0
                });
                if keys.len() >= DEBTS_MAX {
                    return;
                }
            }
            let units = |of| if kind == of { charge.cost as f64 } else { 0.0 };
            let (refused, unheard) = (units(DebtKind::Refused), units(DebtKind::Unheard));
            let more = Debt { charge: *charge, refused, unheard, at };
            keys.entry(charge.key).and_modify(|debt| *debt = more.with(debt, nodes)).or_insert(more);
        });
    }

    /// Removes a refunded charge from the debt of its key.
    pub(crate) fn forgive(&self, charge: &Charge) {
        if self.is_empty() {
            return;
        }
        self.0.with(|keys| {
            if let Some(debt) = keys.get_mut(&charge.key) {
                let more = (charge.cost as f64 - debt.unheard).max(0.0);
                debt.unheard = (debt.unheard - charge.cost as f64).max(0.0);
                debt.refused = (debt.refused - more).max(0.0);
            }
        });
    }

    pub(crate) fn take(&self, key: Key, now: SpentAt, nodes: u32) -> Option<Debt> {
        let debt = self.0.with(|keys| keys.remove(&key))?;
        Some(debt.at(now, nodes))
    }

    pub(crate) fn plans(&self) -> Vec<PlanId> {
        self.0.with(|keys| keys.values().filter_map(|debt| debt.charge.plan).collect())
    }

    pub(crate) fn due(&self, most: usize) -> Vec<Key> {
        self.0.with(|keys| keys.keys().take(most).copied().collect())
    }
}

/// The most keys with a debt; further ones are not recorded.
const DEBTS_MAX: usize = 65_536;
