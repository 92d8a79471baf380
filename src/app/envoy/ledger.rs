//! Which proxies have how much of which bucket, of all streams of a process.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::draw::Draw;
use crate::quota::{BucketId, Shares, StreamId};

/// A bucket of a domain.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct Name {
    pub(super) domain: Arc<str>,
    pub(super) bucket: BucketId,
}

/// The shares of a bucket.
pub(super) type BucketShares = Shares<Arc<Draw>>;

/// The buckets of all streams. A lock is held for the arithmetic of one bucket, and never while anybody waits.
#[derive(Debug)]
pub(super) struct Ledger {
    shards: [Mutex<HashMap<Arc<Name>, BucketShares>>; SHARDS],
    hasher: RandomState,
    streams: AtomicU64,
}

/// A stream of reports.
#[derive(Debug)]
pub(in crate::app) struct Reporter {
    pub(super) stream: StreamId,
    pub(super) domain: Arc<str>,
    /// Buckets in which it has a share.
    pub(super) buckets: HashSet<Arc<Name>>,
    /// Those that should be given more before its next report.
    pub(super) waiting: HashSet<Arc<Name>>,
    /// When it was last looked for buckets that it says nothing of.
    pub(super) swept_ns: u64,
}

impl Ledger {
    pub(super) fn new() -> Ledger {
        Ledger {
            shards: std::array::from_fn(|_| Mutex::default()),
            hasher: RandomState::new(),
            streams: AtomicU64::new(0),
        }
    }

    /// A stream that begins.
    pub(super) fn reporter(&self, domain: &str) -> Reporter {
        Reporter {
            stream: StreamId(self.streams.fetch_add(1, Ordering::Relaxed)),
            domain: domain.into(),
            buckets: HashSet::new(),
            waiting: HashSet::new(),
            swept_ns: 0,
        }
    }

    /// Calls with the shares of a bucket.
    pub(super) fn with<T>(&self, name: &Arc<Name>, call: impl FnOnce(&mut BucketShares) -> T) -> T {
        let mut shard = self.shard(name);
        let shares = shard.entry(Arc::clone(name)).or_default();
        let called = call(shares);
        if shares.is_empty() {
            shard.remove(name);
        }
        called
    }

    fn shard(&self, name: &Name) -> MutexGuard<'_, HashMap<Arc<Name>, BucketShares>> {
        // The low bits choose a place within a map of the same kind.
        let shard = (self.hasher.hash_one(name) >> 32) as usize % SHARDS;
        self.shards[shard].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Reporter {
    /// How long until it should be given more, or be looked through.
    pub(super) fn renewal_in(&self, now_ns: u64) -> Duration {
        match self.waiting.is_empty() {
            true => SWEEP_EVERY,
            // All streams have their turn at the same time, so that the first in a round gets what the last one gets.
            false => Duration::from_nanos(ROUND_NS - now_ns % ROUND_NS),
        }
    }

    /// Whether it should be looked through now.
    pub(super) fn is_sweep_due(&mut self, now_ns: u64) -> bool {
        let is_due = now_ns.saturating_sub(self.swept_ns) >= SWEEP_EVERY.as_nanos() as u64;
        if is_due {
            self.swept_ns = now_ns;
        }
        is_due
    }
}

/// The number of the round that a time is in.
pub(super) fn round(now_ns: u64) -> u64 {
    now_ns / ROUND_NS
}

const SHARDS: usize = 16;
/// How often those that wait get what there is.
const ROUND_NS: u64 = 250_000_000;
const SWEEP_EVERY: Duration = Duration::from_secs(5);
/// Shares of all buckets, one for each bucket of each stream.
pub(super) const SHARES_MAX: usize = 65_536;
