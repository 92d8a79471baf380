//! What is spent while two processes serve: a process and the successor that has taken over its table tell each other, so
//! that a client with a connection to each spends one limit between them, not one at each.
//!
//! Costs are summed by key until they are told (`beside.rs`). What one neighbour tells is told to the other, so that all
//! processes of a row of upgrades know of each other. Permits are not in it: a request gives its own back where it ends.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::limit::{Algorithm, Charge, Key, Quota};

/// Another process with the same table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Neighbour {
    /// Whose place this one has taken.
    Predecessor,
    /// Which takes the place of this one.
    Successor,
}

/// What was spent and not told yet; nothing for whom it is not open.
#[derive(Debug)]
pub(super) struct Journal {
    /// A bit for each neighbour.
    open: AtomicU8,
    unsaid: [Unsaid; NEIGHBOURS.len()],
}

/// What one neighbour is to be told.
#[derive(Debug)]
struct Unsaid([Mutex<Sums>; STRIPES]);

/// Sums by key and the quota's fingerprint.
pub(super) type Sums = HashMap<(Key, u32), Spent>;

/// The sum of what one key spent under one quota. What is given back counts against it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Spent {
    pub(super) quota: Quota,
    pub(super) cost: i64,
}

impl Default for Journal {
    fn default() -> Journal {
        let unsaid = |_| Unsaid(std::array::from_fn(|_| Mutex::default()));
        Journal { open: AtomicU8::new(0), unsaid: std::array::from_fn(unsaid) }
    }
}

impl Unsaid {
    fn stripe(&self, number: u64) -> MutexGuard<'_, Sums> {
        self.0[number as usize % STRIPES].lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, charge: &Charge, cost: i64) {
        let mut stripe = self.stripe(charge.key.high());
        let key = (charge.key, charge.quota.fingerprint());
        if let Some(spent) = stripe.get_mut(&key) {
            spent.cost = spent.cost.saturating_add(cost);
        } else if stripe.len() < KEYS_MAX / STRIPES {
            stripe.insert(key, Spent { quota: charge.quota, cost });
        }
    }
}

impl Journal {
    /// Notes from now on what this neighbour is to be told.
    pub(super) fn open(&self, whom: Neighbour) {
        self.open.fetch_or(bit(whom), Ordering::Relaxed);
    }

    /// Notes no more for it, and forgets what it was not told.
    pub(super) fn close(&self, whom: Neighbour) {
        self.open.fetch_and(!bit(whom), Ordering::Relaxed);
        self.take(whom).for_each(drop);
    }

    /// Takes out what it is to be told, a part after the other.
    pub(super) fn take(&self, whom: Neighbour) -> impl Iterator<Item = Sums> {
        let unsaid = &self.unsaid[whom as usize];
        (0..STRIPES as u64).map(|number| std::mem::take(&mut *unsaid.stripe(number)))
    }

    #[inline]
    pub(super) fn is_open(&self) -> bool {
        self.open.load(Ordering::Relaxed) != 0
    }

    /// Notes that a charge was spent, or given back.
    #[cold]
    pub(super) fn note(&self, charge: &Charge, is_spent: bool) {
        self.note_for(NEIGHBOURS, charge, is_spent);
    }

    /// Notes what one neighbour has told for the other.
    pub(super) fn pass_on(&self, from: Neighbour, charge: &Charge, is_spent: bool) {
        self.note_for(NEIGHBOURS.into_iter().filter(|whom| *whom != from), charge, is_spent);
    }

    fn note_for(&self, whom: impl IntoIterator<Item = Neighbour>, charge: &Charge, is_spent: bool) {
        if charge.quota.algorithm() == Algorithm::Concurrency {
            return;
        }
        let cost = i64::try_from(charge.cost).unwrap_or(i64::MAX);
        let cost = if is_spent { cost } else { -cost };
        let open = self.open.load(Ordering::Relaxed);
        for neighbour in whom.into_iter().filter(|whom| open & bit(*whom) != 0) {
            self.unsaid[neighbour as usize].add(charge, cost);
        }
    }
}

/// Keys of which costs wait to be told. What more keys spend meanwhile is counted by their own process alone.
const KEYS_MAX: usize = 256 * 1024;
const STRIPES: usize = 64;
pub(super) const NEIGHBOURS: [Neighbour; 2] = [Neighbour::Predecessor, Neighbour::Successor];

fn bit(neighbour: Neighbour) -> u8 {
    1 << neighbour as u8
}
