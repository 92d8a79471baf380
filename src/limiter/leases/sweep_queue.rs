//! When the sweep (`sweep.rs`) looks at which lease: each key that holds, owes or denies something of Redis is in here with
//! the time when that has to be seen to, so that a sweep costs what is due and not what there is. What only Redis could
//! change waits apart until its shard answers.
//!
//! A key whose renewal or return is in flight is not in here; the answer puts it back (`Leases::watch`). It does not know
//! what a lease means.

use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::global::ShardId;
use crate::local::striped_map::{STRIPES, Stripes};
use limit::Key;

#[derive(Debug, Default)]
pub(crate) struct SweepQueue {
    stripes: Stripes<Stripe>,
    shards: Mutex<HashMap<ShardId, Shard>>,
    /// The stripe that the next sweep begins with, so that none is the last one each time.
    first: AtomicUsize,
}

#[derive(Debug, Default)]
struct Stripe {
    due_ns: HashMap<Key, u64>,
    /// The same, the earliest first.
    order: BTreeSet<(u64, Key)>,
}

/// What one key of a shard tells of all of them.
#[derive(Debug, Default)]
struct Shard {
    /// A key that was put in here lately, and when.
    recent: Option<(Key, u64)>,
    /// A key that waits until the shard answers.
    away: Option<Key>,
}

impl Stripe {
    /// Whether the key is due sooner than it was.
    fn put(&mut self, key: Key, due_ns: u64) -> bool {
        match self.due_ns.get(&key) {
            Some(before_ns) if *before_ns <= due_ns => return false,
            _ => self.remove(key),
        }
        self.due_ns.insert(key, due_ns);
        self.order.insert((due_ns, key))
    }

    fn remove(&mut self, key: Key) {
        if let Some(due_ns) = self.due_ns.remove(&key) {
            self.order.remove(&(due_ns, key));
        }
    }
}

impl SweepQueue {
    /// Puts a key in, or makes it due sooner. `AWAY`: when its shard answers. `is_left`: nothing was granted to it, so it is
    /// one more of what an outage leaves behind, for which memory is bounded.
    pub(crate) fn put(&self, key: Key, shard: ShardId, due_ns: u64, is_left: bool, now_ns: u64) {
        let mut stripe = self.stripes.of(key);
        let is_full = is_left && stripe.due_ns.len() >= LEFT_MAX / STRIPES;
        if is_full && !stripe.due_ns.contains_key(&key) || !stripe.put(key, due_ns) {
            return;
        }
        drop(stripe);
        // After the key is in, because who wakes the shard takes this out before it looks for keys.
        let mut shards = self.shards();
        let shard = shards.entry(shard).or_default();
        shard.recent = Some((key, now_ns));
        if due_ns == AWAY {
            shard.away = Some(key);
        }
    }

    /// The order in which this sweep goes through the stripes.
    pub(crate) fn stripes(&self) -> impl Iterator<Item = usize> {
        let first = self.first.fetch_add(1, Ordering::Relaxed);
        (0..STRIPES).map(move |stripe| first.wrapping_add(stripe) % STRIPES)
    }

    /// Takes out what is due of a stripe, the earliest first and at most so many.
    pub(crate) fn take(&self, stripe: usize, most: usize, now_ns: u64) -> Vec<Key> {
        let mut stripe = self.stripes.at(stripe);
        let due = stripe.order.range(..=(now_ns, Key::new(u128::MAX))).take(most);
        let due: Vec<Key> = due.map(|(_, key)| *key).collect();
        due.iter().for_each(|key| stripe.remove(*key));
        due
    }

    /// Makes due what waits for shards that answer.
    pub(crate) fn wake(&self, answers: impl Fn(Key) -> bool, shard_of: impl Fn(Key) -> ShardId, now_ns: u64) {
        let mut back = Vec::new();
        for (number, shard) in self.shards().iter_mut() {
            back.extend(shard.away.take_if(|key| answers(*key)).map(|_| *number));
        }
        if back.is_empty() {
            return;
        }
        for stripe in 0..STRIPES {
            let mut stripe = self.stripes.at(stripe);
            let away: Vec<Key> = stripe.order.range((AWAY, Key::new(0))..).map(|(_, key)| *key).collect();
            for key in away.into_iter().filter(|key| back.contains(&shard_of(*key))) {
                stripe.put(key, now_ns);
            }
        }
    }

    /// The longest that `of` says of a shard that has a key in here; `None`: none has.
    pub(crate) fn longest(&self, of: impl Fn(Key) -> u64, now_ns: u64) -> Option<u64> {
        let shards = self.shards();
        let is_recent = |at_ns: u64| now_ns.saturating_sub(at_ns) < RECENT_NS;
        let recent = shards.values().filter_map(|shard| shard.recent);
        recent.filter(|(_, at_ns)| is_recent(*at_ns)).map(|(key, _)| of(key)).max()
    }

    /// All keys of a stripe, due or not.
    pub(crate) fn keys(&self, stripe: usize) -> Vec<Key> {
        self.stripes.at(stripe).due_ns.keys().copied().collect()
    }

    pub(crate) fn remove(&self, key: Key) {
        self.stripes.of(key).remove(key);
    }

    fn shards(&self) -> MutexGuard<'_, HashMap<ShardId, Shard>> {
        self.shards.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Due when the shard answers.
pub(crate) const AWAY: u64 = u64::MAX;
/// As many keys without a grant as there are debts of exact windows (`debts.rs`). What further keys spent in fallback is
/// reported with their next request.
const LEFT_MAX: usize = 65_536;
/// Leases that are in use come in again far more often than this.
const RECENT_NS: u64 = 10_000_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: usize = usize::MAX;
    const ONE: ShardId = ShardId::new(0);
    const OTHER: ShardId = ShardId::new(1);

    fn key(number: u64) -> Key {
        Key::new(u128::from(number) << 64 | u128::from(number))
    }

    fn taken(queue: &SweepQueue, now_ns: u64) -> Vec<u64> {
        let mut keys: Vec<u64> =
            (0..STRIPES).flat_map(|stripe| queue.take(stripe, ALL, now_ns)).map(Key::low).collect();
        keys.sort_unstable();
        keys
    }

    #[test]
    fn a_key_is_taken_once_when_it_is_due_and_the_soonest_time_counts() {
        let queue = SweepQueue::default();
        for (number, due_ns) in [(1, 50), (2, 70), (1, 90), (2, 40)] {
            queue.put(key(number), ONE, due_ns, false, 0);
        }
        assert_eq!(taken(&queue, 39), [0; 0]);
        assert_eq!(taken(&queue, 40), [2]);
        assert_eq!(taken(&queue, 100), [1]);
        assert_eq!(taken(&queue, u64::MAX - 1), [0; 0]);
    }

    #[test]
    fn the_earliest_are_taken_first_and_the_others_stay() {
        let queue = SweepQueue::default();
        let of_one_stripe = |number: u64| key(number * STRIPES as u64);
        (1..=5).for_each(|number| queue.put(of_one_stripe(number), ONE, 100 - number, false, 0));
        let first: Vec<Key> = queue.take(0, 2, 100);
        assert_eq!(first, [of_one_stripe(5), of_one_stripe(4)]);
        assert_eq!(queue.take(0, ALL, 100).len(), 3);
    }

    #[test]
    fn what_waits_for_a_shard_is_due_when_that_one_answers() {
        let queue = SweepQueue::default();
        let shard_of = |key: Key| if key.low().is_multiple_of(2) { ONE } else { OTHER };
        (1..=6).for_each(|number| queue.put(key(number), shard_of(key(number)), AWAY, false, 0));
        queue.wake(|_| false, shard_of, 10);
        assert_eq!(taken(&queue, 10), [0; 0]);
        queue.wake(|key| shard_of(key) == OTHER, shard_of, 20);
        assert_eq!(taken(&queue, 20), [1, 3, 5]);
        queue.wake(|_| true, shard_of, 30);
        assert_eq!(taken(&queue, 30), [2, 4, 6]);
    }

    #[test]
    fn what_an_outage_leaves_behind_is_bounded_and_what_was_granted_is_not() {
        let queue = SweepQueue::default();
        let most = LEFT_MAX as u64;
        (0..most + 640).for_each(|number| queue.put(key(number), ONE, 5, true, 0));
        (most + 640..most + 740).for_each(|number| queue.put(key(number), ONE, 5, false, 0));
        assert_eq!(taken(&queue, 5).len(), LEFT_MAX + 100);
    }

    #[test]
    fn a_shard_counts_as_long_as_keys_of_it_come_in() {
        let queue = SweepQueue::default();
        queue.put(key(1), ONE, 5, false, 0);
        queue.put(key(2), OTHER, 5, false, RECENT_NS / 2);
        assert_eq!(queue.longest(Key::low, RECENT_NS - 1), Some(2));
        queue.put(key(9), ONE, 5, false, RECENT_NS);
        assert_eq!(queue.longest(Key::low, RECENT_NS), Some(9));
        assert_eq!(queue.longest(Key::low, 3 * RECENT_NS), None);
    }
}
