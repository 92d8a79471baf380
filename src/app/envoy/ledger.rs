//! Which proxies have how much of which bucket, of all streams of a process.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::draw::{Bound, Draw};
use crate::limiter::{Division, Limiter};
use crate::quota::{BucketId, Left, Shares, StreamId};

/// A bucket of a domain.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct Name {
    pub(super) domain: Arc<str>,
    pub(super) bucket: BucketId,
}

/// The shares of a bucket.
pub(super) type BucketShares = Shares<Arc<Draw>>;

/// A bucket that streams report.
#[derive(Debug, Default)]
pub(super) struct Bucket {
    pub(super) shares: BucketShares,
    /// While its limit is divided with requests that are decided here: since it had too little for all.
    division: Option<Division>,
}

/// The buckets of all streams. A lock is held for the arithmetic of one bucket, and never while anybody waits.
#[derive(Debug)]
pub(super) struct Ledger {
    shards: [Mutex<HashMap<Arc<Name>, Bucket>>; SHARDS],
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
        self.with_bucket(name, |bucket| call(&mut bucket.shares))
    }

    /// Calls with a bucket.
    pub(super) fn with_bucket<T>(&self, name: &Arc<Name>, call: impl FnOnce(&mut Bucket) -> T) -> T {
        let mut shard = self.shard(name);
        let bucket = shard.entry(Arc::clone(name)).or_default();
        let called = call(bucket);
        if bucket.shares.is_empty() {
            shard.remove(name);
        } else if let Some(division) = bucket.division.as_ref().filter(|_| !bucket.shares.is_wanted()) {
            division.release();
        }
        called
    }

    fn shard(&self, name: &Name) -> MutexGuard<'_, HashMap<Arc<Name>, Bucket>> {
        // The low bits choose a place within a map of the same kind.
        let shard = (self.hasher.hash_one(name) >> 32) as usize % SHARDS;
        self.shards[shard].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Bucket {
    /// Whether requests that are decided here wait for their turn.
    pub(super) fn is_turn_of_own(&self, now_ns: u64) -> bool {
        self.division.is_some() && self.shares.is_turn_of_own(round(now_ns))
    }

    /// What is left for streams once requests that are decided here have had their turn. These are counted from the moment
    /// on when there is too little for all streams, by the window that has the least.
    pub(super) fn turn_of_own(
        &mut self,
        limiter: &Arc<Limiter>,
        stream: StreamId,
        (left, bound): (Left, Bound),
        now_ns: u64,
    ) -> Left {
        let is_other = self.division.as_ref().is_some_and(|division| division.key() != bound.key);
        if is_other {
            self.division = None;
        }
        if self.division.is_none() && self.shares.is_scarce(stream, left) {
            self.division = limiter.divide(bound.key);
        }
        let Some(division) = &self.division else { return left };
        let requests = |units: u64| units / bound.cost;
        if self.shares.is_turn_of_own(round(now_ns)) {
            let (came, unspent) = (requests(division.take_came()), requests(division.unspent(now_ns)));
            match self.shares.turn_of_own((came, unspent), left.units, round(now_ns), now_ns) {
                Some(share) => {
                    division.hold(share.saturating_mul(bound.cost.get()), now_ns + HELD_NS);
                }
                None => division.release(),
            }
        }
        Left { units: left.units.saturating_sub(requests(division.unspent(now_ns))), ..left }
    }

    /// How much of what is left should be drawn for a stream.
    pub(super) fn plan(
        &mut self,
        limiter: &Arc<Limiter>,
        stream: StreamId,
        of: (Left, Bound),
        now_ns: u64,
    ) -> u64 {
        let left = self.turn_of_own(limiter, stream, of, now_ns);
        self.shares.plan(stream, left, round(now_ns), now_ns)
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
fn round(now_ns: u64) -> u64 {
    now_ns / ROUND_NS
}

const SHARDS: usize = 16;
/// How often those that wait get what there is.
const ROUND_NS: u64 = 250_000_000;
/// How long requests that are decided here keep to a share that is not said anew.
const HELD_NS: u64 = 4 * ROUND_NS;
const SWEEP_EVERY: Duration = Duration::from_secs(5);
/// Shares of all buckets, one for each bucket of each stream.
pub(super) const SHARES_MAX: usize = 65_536;
