//! Which keys use most of a policy: every worker counts for itself, and the control runtime gathers that each second into
//! minutes, of which an hour is kept.
//!
//! Nothing is decided by it. A decision takes no lock for it and asks no clock. Keys are hashes here; a key has its name made
//! only when it is among the heavy ones.

mod book;
mod fleet;
mod sketch;
mod slots;
mod tally;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

pub use book::{
    Asked, Book, Change, EACH_MAX, FLOOR, Facts, HotKeyStat, MINUTES_MAX, ROWS_MAX, Shown, Standing,
};
pub use fleet::{FleetRow, decode, encode, sum};
pub use sketch::{BYTES, Counts, KEYS, Sketch};
use tally::Inbox;
pub use tally::Tally;

/// A key, as people know it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Named {
    /// The key's hash.
    pub key: u64,
    /// The policy that counts by it.
    pub policy: Box<str>,
    /// Who is counted, without anything secret; empty if the policy counts everybody together.
    pub name: Box<str>,
    /// The shard of Redis that keeps it; `None`: this node does.
    pub shard: Option<u16>,
}

impl Named {
    /// A name that is cut to what is kept of one.
    pub fn new(key: u64, policy: &str, mut name: String, shard: Option<u16>) -> Named {
        if name.len() > NAME_BYTES_MAX {
            let cut = name.floor_char_boundary(NAME_BYTES_MAX - ELLIPSIS.len());
            name.truncate(cut);
            name.push_str(ELLIPSIS);
        }
        Named { key, policy: policy.into(), name: name.into(), shard }
    }
}

/// A key's name as it is shown: that of a policy that counts everybody together is empty.
pub fn shown_name(name: &str) -> &str {
    if name.is_empty() { "everybody" } else { name }
}

/// What all workers have counted. Workers come here once, when they start.
#[derive(Debug, Default)]
pub struct Gathered {
    inboxes: Mutex<Vec<Arc<Inbox>>>,
    book: Mutex<Book>,
}

impl Gathered {
    fn inbox(&self) -> Arc<Inbox> {
        let inbox = Arc::<Inbox>::default();
        lock(&self.inboxes).push(Arc::clone(&inbox));
        inbox
    }

    /// Takes what workers have left, and says which keys have become hot and which are no longer. `second` is now, since the
    /// Unix epoch; `facts` says what a policy has decided, and from which share on its keys are hot.
    pub fn turn(&self, second: u64, facts: impl FnMut(&str) -> Facts) -> Vec<Change> {
        let inboxes = lock(&self.inboxes).clone();
        let mut book = lock(&self.book);
        for inbox in inboxes {
            inbox.empty().into_iter().for_each(|batch| book.take(batch));
        }
        book.turn(second, facts)
    }

    /// What is known of keys.
    pub fn book(&self) -> MutexGuard<'_, Book> {
        lock(&self.book)
    }
}

/// Ignores poisoning: no code under these locks leaves a state half changed.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A name is cut to so many bytes.
const NAME_BYTES_MAX: usize = 200;
const ELLIPSIS: &str = "…";

#[cfg(test)]
mod tests;
