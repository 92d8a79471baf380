//! [`KeyCollector`]: what all workers have counted, as the control runtime gathers it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::book::{Book, HotKeyChange, PolicyFacts};
use super::inbox::Inbox;
use super::tally::KeyTally;

/// What all workers have counted. Workers come here once, when they start.
#[derive(Debug, Default)]
pub struct KeyCollector {
    inboxes: Mutex<Vec<Arc<Inbox>>>,
    book: Mutex<Book>,
}

impl KeyCollector {
    /// The part of one more worker; `seed` is what its sketch chooses by.
    pub fn tally(&self, seed: u64) -> KeyTally {
        let inbox = Arc::<Inbox>::default();
        lock(&self.inboxes).push(Arc::clone(&inbox));
        KeyTally::new(inbox, seed)
    }

    /// Takes what workers have left, and says which keys have become hot and which are no longer. `second` is now, since the
    /// Unix epoch; `facts` says what a policy has decided, and from which share on its keys are hot.
    pub fn turn(&self, second: u64, facts: impl FnMut(&str) -> PolicyFacts) -> Vec<HotKeyChange> {
        let inboxes = lock(&self.inboxes).clone();
        let mut book = lock(&self.book);
        for inbox in inboxes {
            inbox.empty().into_iter().for_each(|batch| book.take(batch));
        }
        book.turn(second, facts)
    }

    pub fn book(&self) -> MutexGuard<'_, Book> {
        lock(&self.book)
    }
}

/// Ignores poisoning, because no code under these locks leaves a state half changed.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
