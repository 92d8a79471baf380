//! What is spent while two processes serve: a process and the successor that has taken over its table tell each other, so
//! that a client with a connection to each spends one limit between them, not one at each.
//!
//! Costs are summed by key until they are told (`spend_messages.rs`). What one relative tells is told to the other, so
//! that all processes of a row of upgrades know of each other. Permits are not in it: a request gives its own back where it ends.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU8, Ordering};

use super::striped_map::{STRIPES, StripedMap};
use limit::{Algorithm, Charge, Key, Quota};

/// Another process with the same table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Relative {
    /// Whose place this one has taken.
    Predecessor,
    /// Which takes the place of this one.
    Successor,
}

/// What was spent and not told yet; nothing for whom it is not open.
#[derive(Debug, Default)]
pub(super) struct Journal {
    /// A bit for each relative.
    open: AtomicU8,
    /// What each relative is to be told, by key and the quota's fingerprint.
    unsaid: [StripedMap<KeySpend, (Key, u32)>; RELATIVES.len()],
}

/// The sum of what one key spent under one quota. What is given back counts against it.
#[derive(Clone, Copy, Debug)]
pub(super) struct KeySpend {
    pub(super) quota: Quota,
    pub(super) cost: i64,
}

impl Journal {
    /// Notes from now on what this relative is to be told.
    pub(super) fn open(&self, whom: Relative) {
        self.open.fetch_or(bit(whom), Ordering::Relaxed);
    }

    /// Notes no more for it, and forgets what it was not told.
    pub(super) fn close(&self, whom: Relative) {
        self.open.fetch_and(!bit(whom), Ordering::Relaxed);
        self.take(whom).for_each(drop);
    }

    /// Takes out what it is to be told, a part after the other.
    pub(super) fn take(&self, whom: Relative) -> impl Iterator<Item = HashMap<(Key, u32), KeySpend>> {
        self.unsaid[whom as usize].take()
    }

    /// Notes that a charge was spent, or given back, for whom it is open.
    #[inline]
    pub(super) fn note(&self, charge: &Charge, is_spent: bool) {
        if self.open.load(Ordering::Relaxed) != 0 {
            self.note_for(RELATIVES, charge, is_spent);
        }
    }

    /// Notes what one relative has told for the other.
    pub(super) fn pass_on(&self, from: Relative, charge: &Charge, is_spent: bool) {
        self.note_for(RELATIVES.into_iter().filter(|whom| *whom != from), charge, is_spent);
    }

    #[cold]
    fn note_for(&self, whom: impl IntoIterator<Item = Relative>, charge: &Charge, is_spent: bool) {
        if charge.quota.algorithm() == Algorithm::Concurrency {
            return;
        }
        let cost = i64::try_from(charge.cost).unwrap_or(i64::MAX);
        let cost = if is_spent { cost } else { -cost };
        let open = self.open.load(Ordering::Relaxed);
        for relative in whom.into_iter().filter(|whom| open & bit(*whom) != 0) {
            self.add(relative, charge, cost);
        }
    }

    fn add(&self, relative: Relative, charge: &Charge, cost: i64) {
        let mut stripe = self.unsaid[relative as usize].of(charge.key);
        let key = (charge.key, charge.quota.fingerprint());
        if let Some(spent) = stripe.get_mut(&key) {
            spent.cost = spent.cost.saturating_add(cost);
        } else if stripe.len() < KEYS_MAX / STRIPES {
            stripe.insert(key, KeySpend { quota: charge.quota, cost });
        }
    }
}

/// Keys of which costs wait to be told. What more keys spend meanwhile is counted by their own process alone.
const KEYS_MAX: usize = 256 * 1024;
pub(super) const RELATIVES: [Relative; 2] = [Relative::Predecessor, Relative::Successor];

fn bit(relative: Relative) -> u8 {
    1 << relative as u8
}
