//! Renewals on their way, and the requests that wait for them. Of one key one renewal is on its way at a time.

use std::collections::hash_map::Entry;

use super::striped::Striped;
use super::wait::Waiter;
use crate::limit::{Key, PlanId, Wanted};

/// Renewals on their way, by key.
#[derive(Debug, Default)]
pub(super) struct Renewals(Striped<Renewing>);

/// One key's.
#[derive(Debug, Default)]
struct Renewing {
    /// Requests the renewal on its way asks for.
    sent: Vec<Waiter>,
    /// Requests that came later.
    queued: Vec<Waiter>,
}

impl Renewals {
    /// How many are on their way.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Enters a key, or queues the waiter behind the renewal that is on its way. Whether one is to be sent.
    pub(super) fn begin(&self, key: Key, waiter: Option<Waiter>) -> bool {
        match self.0.of(key).entry(key) {
            Entry::Occupied(mut renewing) => {
                let queued = &mut renewing.get_mut().queued;
                // An answer may take as long as an outage, and nobody waits so long.
                if queued.len() == queued.capacity() {
                    queued.retain(|waiter| !waiter.wait.is_over());
                }
                queued.extend(waiter);
                false
            }
            Entry::Vacant(vacant) => {
                vacant.insert(Renewing { sent: waiter.into_iter().collect(), queued: Vec::new() });
                true
            }
        }
    }

    /// Those whose renewal is answered.
    pub(super) fn answered(&self, key: Key) -> Vec<Waiter> {
        self.0.of(key).get_mut(&key).map(|renewing| std::mem::take(&mut renewing.sent)).unwrap_or_default()
    }

    /// Takes those out who came later.
    pub(super) fn take_queued(&self, key: Key) -> Vec<Waiter> {
        self.0.of(key).get_mut(&key).map(|renewing| std::mem::take(&mut renewing.queued)).unwrap_or_default()
    }

    /// Puts back those who wait on, before whoever has come meanwhile.
    pub(super) fn put_back(&self, key: Key, waiters: Vec<Waiter>) {
        if let Some(renewing) = self.0.of(key).get_mut(&key) {
            renewing.queued.splice(..0, waiters);
        }
    }

    /// Ends a renewal. Where requests came meanwhile and still wait, the first of them are those the next one asks for:
    /// what they want, and the number of the plan the last of them came under. What others had wanted would be asked for
    /// in vain, and might be more than there is.
    pub(super) fn next(&self, key: Key) -> Option<(Wanted, Option<PlanId>)> {
        let mut keys = self.0.of(key);
        let renewing = keys.get_mut(&key)?;
        renewing.queued.retain(|waiter| !waiter.wait.is_over());
        let count = renewing.queued.len().min(WANTED_MAX);
        renewing.sent = renewing.queued.drain(..count).collect();
        let Some(last) = renewing.sent.last() else {
            keys.remove(&key);
            return None;
        };
        let wanted = Wanted::by(renewing.sent.iter().map(|waiter| waiter.charge.cost));
        Some((wanted, last.charge.plan))
    }
}

/// Requests that one renewal asks for.
const WANTED_MAX: usize = 64;
