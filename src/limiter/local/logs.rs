//! Sliding logs, the one algorithm whose state does not fit a slot. They are kept by key in memory of their own, which
//! is bounded too.
//!
//! A log is changed under the short lock of its shard, which only policies that count by a log pay for. When memory
//! runs out, logs with nothing spent are evicted. If that is not enough, a key without a log shares the overflow log of
//! its quota, and a key with a log cannot add to it until entries of it expire. Neither way lets a key exceed its
//! limit.

use std::collections::HashMap;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU64, AtomicUsize};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::quotas::Quotas;
use super::{StateLocation, TakeResult};
use limit::{Answer, Charge, Key, Log, Outcome};

#[derive(Debug)]
pub(super) struct Logs {
    shards: Box<[Mutex<Shard>]>,
    /// The log of each quota that keys without one of their own share. There are no more than there are quotas.
    overflow: Mutex<HashMap<u32, Log>>,
    bytes_max: usize,
    bytes: AtomicUsize,
    kept: AtomicUsize,
    pub(super) evictions: AtomicU64,
}

/// The logs of the keys whose low bits are the shard's number.
#[derive(Debug, Default)]
struct Shard {
    logs: HashMap<Key, KeyLog>,
    /// When it was last searched for logs to evict, nanoseconds.
    swept_ns: u64,
}

/// A key's log and the quota it was written under.
#[derive(Debug)]
struct KeyLog {
    fingerprint: u32,
    log: Log,
}

impl Logs {
    /// Without logs at first; memory is taken as they grow, up to `bytes_max`.
    pub(super) fn with_memory(bytes_max: usize) -> Logs {
        Logs {
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            overflow: Mutex::default(),
            bytes_max,
            bytes: AtomicUsize::new(0),
            kept: AtomicUsize::new(0),
            evictions: AtomicU64::new(0),
        }
    }

    /// How many keys have a log.
    pub(super) fn len(&self) -> usize {
        self.kept.load(Relaxed)
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes.load(Relaxed)
    }

    pub(super) fn take(&self, charge: &Charge, quotas: &Quotas, now_ns: u64) -> TakeResult {
        let mut shard = self.shard(charge.key);
        let mut new = Log::default();
        let growth_bytes = {
            let log = shard.logs.get_mut(&charge.key).map_or(&mut new, |kept| {
                kept.adopt(charge, quotas, now_ns);
                &mut kept.log
            });
            log.growth_bytes(&charge.quota, charge.cost, now_ns)
        };
        if !self.has_room(growth_bytes) {
            self.sweep(&mut shard, charge, quotas, now_ns);
        }
        let has_room = self.has_room(growth_bytes);
        if let Some(kept) = shard.logs.get_mut(&charge.key) {
            let before = kept.log.bytes();
            let outcome = match has_room || growth_bytes == 0 {
                true => spend(&mut kept.log, charge, now_ns),
                false => held(&kept.log, charge, now_ns),
            };
            self.account(before, kept.log.bytes());
            return TakeResult { outcome, place: StateLocation::Slot };
        }
        if !has_room {
            drop(shard);
            let mut overflow = self.overflow();
            let log = overflow.entry(charge.quota.fingerprint()).or_default();
            return TakeResult { outcome: spend(log, charge, now_ns), place: StateLocation::Overflow };
        }
        let outcome = spend(&mut new, charge, now_ns);
        self.account(0, new.bytes() + ENTRY_BYTES);
        self.kept.fetch_add(1, Relaxed);
        shard.logs.insert(charge.key, KeyLog { fingerprint: charge.quota.fingerprint(), log: new });
        TakeResult { outcome, place: StateLocation::Slot }
    }

    /// What `take` would return; spends nothing.
    pub(super) fn peek(&self, charge: &Charge, quotas: &Quotas, now_ns: u64) -> Outcome {
        let mut shard = self.shard(charge.key);
        if let Some(kept) = shard.logs.get_mut(&charge.key) {
            kept.adopt(charge, quotas, now_ns);
            return said(&kept.log, charge, now_ns);
        }
        drop(shard);
        if self.has_room(0) {
            return said(&Log::default(), charge, now_ns);
        }
        let mut overflow = self.overflow();
        said(overflow.entry(charge.quota.fingerprint()).or_default(), charge, now_ns)
    }

    pub(super) fn give_back(&self, charge: &Charge, place: StateLocation, taken_ns: u64) {
        self.with(charge, place, |log| log.give_back(charge.cost, taken_ns));
    }

    pub(super) fn debit(&self, charge: &Charge, place: StateLocation, now_ns: u64) {
        self.with(charge, place, |log| log.debit(&charge.quota, charge.cost, now_ns));
    }

    /// Every key's log and the quota it was written under, copied a shard at a time, because whoever is told of them
    /// may take long.
    pub(super) fn each(&self) -> impl Iterator<Item = (Key, u32, Log)> {
        self.shards.iter().flat_map(|shard| {
            let shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
            let logs = shard.logs.iter().map(|(key, kept)| (*key, kept.fingerprint, kept.log.clone()));
            logs.collect::<Vec<_>>()
        })
    }

    /// Keeps a predecessor's log. Its logs fitted the same memory; how much each takes may differ a little, so that there
    /// is room for twice as much.
    pub(super) fn fill(&self, key: Key, fingerprint: u32, log: Log) {
        let bytes = log.bytes();
        if self.bytes() >= self.bytes_max.saturating_mul(2) {
            return;
        }
        let before = self.shard(key).logs.insert(key, KeyLog { fingerprint, log });
        match before {
            Some(before) => self.account(before.log.bytes(), bytes),
            None => {
                self.account(0, bytes + ENTRY_BYTES);
                self.kept.fetch_add(1, Relaxed);
            }
        }
    }

    /// Drops the overflow logs of quotas that are no longer declared.
    pub(super) fn retain(&self, is_declared: impl Fn(u32) -> bool) {
        self.overflow().retain(|fingerprint, _| is_declared(*fingerprint));
    }

    fn with(&self, charge: &Charge, place: StateLocation, change: impl FnOnce(&mut Log)) {
        match place {
            // There is nothing to change, because a log that was evicted had nothing spent.
            StateLocation::Slot => {
                if let Some(kept) = self.shard(charge.key).logs.get_mut(&charge.key) {
                    let before = kept.log.bytes();
                    change(&mut kept.log);
                    self.account(before, kept.log.bytes());
                }
            }
            StateLocation::Overflow => {
                if let Some(log) = self.overflow().get_mut(&charge.quota.fingerprint()) {
                    change(log);
                }
            }
        }
    }

    /// Evicts logs with nothing spent from one shard, at most once in [`SWEEP_EVERY_NS`], and logs whose quota is not
    /// known.
    fn sweep(&self, shard: &mut Shard, charge: &Charge, quotas: &Quotas, now_ns: u64) {
        if now_ns < shard.swept_ns.saturating_add(SWEEP_EVERY_NS) {
            return;
        }
        shard.swept_ns = now_ns;
        let known = quotas.known();
        let before = shard.logs.len();
        shard.logs.retain(|key, kept| {
            let quota = known.get(kept.fingerprint);
            let is_whole = quota.is_none_or(|quota| kept.log.is_full(&quota, now_ns));
            let keeps = *key == charge.key || !is_whole;
            if !keeps {
                self.account(kept.log.bytes() + ENTRY_BYTES, 0);
            }
            keeps
        });
        let swept = before - shard.logs.len();
        self.kept.fetch_sub(swept, Relaxed);
        self.evictions.fetch_add(swept as u64, Relaxed);
    }

    /// Whether `more_bytes` fit, and the entry of a new key.
    fn has_room(&self, more_bytes: usize) -> bool {
        self.bytes().saturating_add(more_bytes).saturating_add(ENTRY_BYTES) <= self.bytes_max
    }

    fn account(&self, before: usize, after: usize) {
        match after.checked_sub(before) {
            Some(more) => self.bytes.fetch_add(more, Relaxed),
            None => self.bytes.fetch_sub(before - after, Relaxed),
        };
    }

    fn shard(&self, key: Key) -> MutexGuard<'_, Shard> {
        // A panic under the lock cannot leave a log half changed, because each change is one call.
        self.shards[key.low() as usize % SHARDS].lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn overflow(&self) -> MutexGuard<'_, HashMap<u32, Log>> {
        self.overflow.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl KeyLog {
    /// Takes the log over to the charge's quota if it was written under another.
    fn adopt(&mut self, charge: &Charge, quotas: &Quotas, now_ns: u64) {
        let fingerprint = charge.quota.fingerprint();
        if self.fingerprint == fingerprint {
            return;
        }
        // The times stay as they are. Without the old quota the past cannot be read: the log counts as spent, because
        // otherwise a reload would give the key a second burst.
        if quotas.known().get(self.fingerprint).is_none() {
            self.log = Log::with_used(&charge.quota, (1, 1), now_ns);
        }
        self.fingerprint = fingerprint;
    }
}

fn spend(log: &mut Log, charge: &Charge, now_ns: u64) -> Outcome {
    let outcome = log.take(&charge.quota, charge.cost, now_ns);
    if !outcome.is_admitted() && charge.count_denied {
        log.count_denied(&charge.quota, charge.cost, now_ns);
        return log.peek(&charge.quota, charge.cost, now_ns);
    }
    outcome
}

/// What `spend` would return.
fn said(log: &Log, charge: &Charge, now_ns: u64) -> Outcome {
    let outcome = log.peek(&charge.quota, charge.cost, now_ns);
    match outcome.is_admitted() && charge.cost > 0 {
        true => Outcome::new(Answer::Admitted, outcome.remaining, charge.quota.period_ns().get()),
        false => outcome,
    }
}

/// The outcome if a log cannot grow: as if the limit were spent.
fn held(log: &Log, charge: &Charge, now_ns: u64) -> Outcome {
    let whole = log.peek(&charge.quota, charge.quota.limit().get(), now_ns);
    Outcome::new(whole.answer(), 0, whole.reset_ns)
}

const SHARDS: usize = 64;
/// How often a shard may be swept, nanoseconds. A full table would otherwise sweep at every request.
const SWEEP_EVERY_NS: u64 = 50_000_000;
/// Memory of a key beside its log: its entry in a map that may be half empty.
const ENTRY_BYTES: usize = 2 * (size_of::<Key>() + size_of::<KeyLog>());
