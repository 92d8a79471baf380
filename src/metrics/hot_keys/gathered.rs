//! [`Gathered`]: what all workers have counted, as the control runtime gathers it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::book::{Book, Change, Facts};
use super::inbox::Inbox;
use super::tally::Tally;

/// What all workers have counted. Workers come here once, when they start.
#[derive(Debug, Default)]
pub struct Gathered {
    inboxes: Mutex<Vec<Arc<Inbox>>>,
    book: Mutex<Book>,
}

impl Gathered {
    /// The part of one more worker; `seed` is what its sketch chooses by.
    pub fn tally(&self, seed: u64) -> Tally {
        let inbox = Arc::<Inbox>::default();
        lock(&self.inboxes).push(Arc::clone(&inbox));
        Tally::new(inbox, seed)
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
