//! Which proxies have how much of which bucket, of all streams of a process.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::draw::Draw;
use super::pots::{Bound, Place, Pots, ROUND_NS, next_round_in, round};
use base::clock;
use base::quota::{BucketId, Left, Rivals, Shares, StreamId, Turn};

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
    /// What the pot knows of it that it takes of, once it has taken some.
    place: Option<Place>,
}

/// The buckets of all streams. A lock is held for the arithmetic of one bucket, and never while anybody waits.
#[derive(Debug)]
pub(super) struct Ledger {
    shards: [Mutex<HashMap<Arc<Name>, Bucket>>; SHARDS],
    pub(super) pots: Arc<Pots>,
    hasher: RandomState,
    streams: AtomicU64,
}

/// A stream of reports.
#[derive(Debug)]
pub(crate) struct Reporter {
    pub(super) stream: StreamId,
    pub(super) domain: Arc<str>,
    /// Buckets in which it has a share.
    pub(super) buckets: HashSet<Arc<Name>>,
    /// Those that should be given more before its next report.
    pub(super) waiting: HashSet<Arc<Name>>,
    /// The last round in which those had their turn, or in which they began to wait.
    pub(super) round: u64,
    /// When it was last looked for buckets that it says nothing of.
    pub(super) swept_ns: u64,
}

impl Ledger {
    pub(super) fn new(pots: Arc<Pots>) -> Ledger {
        Ledger {
            pots,
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
            round: 0,
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
            self.pots.leave(bucket.place.take(), clock::now_ns());
            shard.remove(name);
        } else if bucket.place.is_some() {
            bucket.tell(&self.pots, clock::now_ns());
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
    pub(super) fn is_turn_of_own(&self, pots: &Pots, now_ns: u64) -> bool {
        self.place.is_some_and(|place| pots.is_turn_of_own(&place, now_ns))
    }

    /// Tells its pot what its streams want by now.
    fn tell(&mut self, pots: &Pots, now_ns: u64) {
        let wants = self.shares.wants(round(now_ns), now_ns, ROUND_NS);
        if let Some(place) = &mut self.place {
            pots.change(place, wants.at_cost(place.cost()), now_ns);
        }
    }

    /// What is left for its streams and those of other buckets of the same count, and what these want of it, once requests
    /// that are decided here have had their turn.
    pub(super) fn turn(
        &mut self,
        pots: &Pots,
        stream: StreamId,
        (left, bound): (Left, Bound),
        now_ns: u64,
    ) -> (Left, Rivals) {
        self.shares.expect(stream, left);
        let cost = bound.cost.get();
        let wants = self.shares.wants(round(now_ns), now_ns, ROUND_NS).at_cost(cost);
        let (units, interval_ns) = (left.units.saturating_mul(cost), self.shares.interval_ns());
        let (units, rivals) = pots.turn(&mut self.place, (wants, bound), units, interval_ns, now_ns);
        (Left { units: units / cost, ..left }, rivals.in_requests(cost))
    }

    /// How much of what is left should be drawn for a stream. It counts as drawn until it is given back.
    pub(super) fn plan(
        &mut self,
        pots: &Pots,
        (stream, turn): (StreamId, Turn),
        of: (Left, Bound),
        now_ns: u64,
    ) -> u64 {
        let (left, rivals) = self.turn(pots, stream, of, now_ns);
        let planned = self.shares.plan(stream, left, rivals, (turn, round(now_ns)), now_ns);
        pots.take(&of.1, planned);
        planned
    }
}

impl Reporter {
    /// How long until it should be given more, or be looked through.
    pub(super) fn renewal_in(&self, now_ns: u64) -> Duration {
        match self.waiting.is_empty() {
            true => SWEEP_EVERY,
            // A report came in between.
            false if self.round < round(now_ns) => Duration::ZERO,
            // All streams have their turn at the same time, so that the first in a round gets what the last one gets.
            false => next_round_in(now_ns),
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

const SHARDS: usize = 16;
const SWEEP_EVERY: Duration = Duration::from_secs(5);
/// Shares of all buckets, one for each bucket of each stream.
pub(super) const SHARES_MAX: usize = 65_536;
