//! Renewals in flight, and the requests that wait for them. Each key has at most one renewal in flight; requests that
//! come meanwhile are queued behind it. It sends nothing itself (`renewals.rs` does).

use std::collections::hash_map::Entry;

use crate::local::striped_map::StripedMap;
use crate::wait::Waiter;
use limit::{Key, LeaseDemand, PlanId};

#[derive(Debug, Default)]
pub(crate) struct Renewals(pub(crate) StripedMap<KeyRenewals>);

#[derive(Debug, Default)]
pub(crate) struct KeyRenewals {
    /// Requests that the renewal in flight asks units for.
    sent: Vec<Waiter>,
    /// Requests that came later.
    queued: Vec<Waiter>,
    sent_ns: u64,
}

impl Renewals {
    /// When the renewal of a key was sent that is on its way, nanoseconds.
    pub(crate) fn sent_ns(&self, key: Key) -> Option<u64> {
        self.0.of(key).get(&key).map(|renewing| renewing.sent_ns)
    }

    /// Begins a renewal and returns true, or queues the waiter behind the one in flight and returns false.
    pub(crate) fn begin(&self, key: Key, waiter: Option<Waiter>, now_ns: u64) -> bool {
        match self.0.of(key).entry(key) {
            Entry::Occupied(mut renewing) => {
                let queued = &mut renewing.get_mut().queued;
                // An answer may take as long as an outage. Requests that gave up are removed each time the queue is full,
                // so that it does not grow with the outage.
                if queued.len() == queued.capacity() {
                    queued.retain(|waiter| !waiter.wait.is_over());
                }
                queued.extend(waiter);
                false
            }
            Entry::Vacant(vacant) => {
                let sent = waiter.into_iter().collect();
                vacant.insert(KeyRenewals { sent, queued: Vec::new(), sent_ns: now_ns });
                true
            }
        }
    }

    /// Takes out the requests that the answered renewal asked for.
    pub(crate) fn answered(&self, key: Key) -> Vec<Waiter> {
        self.0.of(key).get_mut(&key).map(|renewing| std::mem::take(&mut renewing.sent)).unwrap_or_default()
    }

    /// Takes out the requests that came after the renewal was sent.
    pub(crate) fn take_queued(&self, key: Key) -> Vec<Waiter> {
        self.0.of(key).get_mut(&key).map(|renewing| std::mem::take(&mut renewing.queued)).unwrap_or_default()
    }

    /// Puts back requests that still wait, before those that came meanwhile.
    pub(crate) fn put_back(&self, key: Key, waiters: Vec<Waiter>) {
        if let Some(renewing) = self.0.of(key).get_mut(&key) {
            renewing.queued.splice(..0, waiters);
        }
    }

    /// Ends a renewal. If requests wait, returns what the next renewal asks for: the units of the first `WANTED_MAX`, and
    /// the plan of the last of them, which is the newest. Requests that gave up are left out, because what they wanted
    /// would be granted in vain.
    pub(crate) fn next(&self, key: Key, now_ns: u64) -> Option<(LeaseDemand, Option<PlanId>)> {
        let mut keys = self.0.of(key);
        let renewing = keys.get_mut(&key)?;
        renewing.queued.retain(|waiter| !waiter.wait.is_over());
        let count = renewing.queued.len().min(WANTED_MAX);
        renewing.sent = renewing.queued.drain(..count).collect();
        renewing.sent_ns = now_ns;
        let Some(last) = renewing.sent.last() else {
            keys.remove(&key);
            return None;
        };
        let wanted = LeaseDemand::by(renewing.sent.iter().map(|waiter| waiter.charge.cost));
        Some((wanted, last.charge.plan))
    }
}

/// How many requests one renewal asks for.
const WANTED_MAX: usize = 64;
