//! [`ShardedMap`]: a large map that requests read without a lock and that changes a little at a time.

use std::borrow::Borrow;
use std::collections::HashMap;
use std::hash::{BuildHasher, Hash, RandomState};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::{ArcSwapOption, Guard};

type Shard<K, V> = HashMap<K, V>;

/// A map in shards of which a change copies one.
#[derive(Debug)]
pub struct ShardedMap<K, V> {
    hasher: RandomState,
    shards: Box<[ArcSwapOption<Shard<K, V>>]>,
    /// Keys that have a value. While it is 0 nobody looks further.
    keys: AtomicUsize,
    /// Held while something changes, so that no change is lost to another.
    changing: Mutex<()>,
}

/// The value of one key, as it is at this moment.
pub struct ShardedValue<'k, K, Q: ?Sized, V> {
    shard: Guard<Option<Arc<Shard<K, V>>>>,
    key: &'k Q,
}

impl<K: Borrow<Q> + Eq + Hash, Q: Eq + Hash + ?Sized, V> ShardedValue<'_, K, Q, V> {
    /// The value; `None` if the key has none.
    pub fn get(&self) -> Option<&V> {
        self.shard.as_ref()?.get(self.key)
    }
}

impl<K, V> Default for ShardedMap<K, V> {
    fn default() -> ShardedMap<K, V> {
        ShardedMap {
            hasher: RandomState::new(),
            shards: (0..SHARDS).map(|_| ArcSwapOption::empty()).collect(),
            keys: AtomicUsize::new(0),
            changing: Mutex::new(()),
        }
    }
}

impl<K: Clone + Eq + Hash, V: Clone> ShardedMap<K, V> {
    /// Whether no key has a value.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.keys.load(Ordering::Relaxed) == 0
    }

    /// What a key may have; `None` if it has nothing for sure.
    pub fn of<'k, Q>(&self, key: &'k Q) -> Option<ShardedValue<'k, K, Q, V>>
    where
        K: Borrow<Q>,
        Q: Eq + Hash + ?Sized,
    {
        if self.is_empty() {
            return None;
        }
        let shard = self.shards[self.place(key)].load();
        shard.is_some().then_some(ShardedValue { shard, key })
    }

    /// Changes the value of a key; `None` is no value.
    pub fn change(&self, key: K, change: impl FnOnce(Option<V>) -> Option<V>) {
        let _changing = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        let shard = &self.shards[self.place(&key)];
        let mut map = shard.load().as_deref().cloned().unwrap_or_default();
        let before = map.len();
        if let Some(value) = change(map.remove(&key)) {
            map.insert(key, value);
        }
        self.store(shard, map, before);
    }

    /// Puts these in the place of all there are. A key that has a value before and after has one all the time.
    pub fn replace(&self, all: impl IntoIterator<Item = (K, V)>) {
        let _changing = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        let mut maps: Vec<Shard<K, V>> = (0..SHARDS).map(|_| HashMap::new()).collect();
        for (key, value) in all {
            maps[self.place(&key)].insert(key, value);
        }
        // Before the first of them can be found, because nobody looks while the count is 0.
        self.keys.store(maps.iter().map(HashMap::len).sum(), Ordering::Relaxed);
        for (shard, map) in self.shards.iter().zip(maps) {
            shard.store((!map.is_empty()).then(|| Arc::new(map)));
        }
    }

    /// Changes every value, or removes it, where `change` says so; `None` leaves it as it is.
    pub fn sweep(&self, change: impl Fn(&V) -> Option<Option<V>>) {
        if self.is_empty() {
            return;
        }
        let _changing = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        for shard in &self.shards {
            let Some(held) = shard.load_full() else { continue };
            let changed: Vec<_> =
                held.iter().filter_map(|(key, value)| Some((key, change(value)?))).collect();
            if changed.is_empty() {
                continue;
            }
            let (mut map, before) = ((*held).clone(), held.len());
            for (key, value) in changed {
                match value {
                    Some(value) => map.insert(key.clone(), value),
                    None => map.remove(key),
                };
            }
            self.store(shard, map, before);
        }
    }

    /// Every value, for operators.
    pub fn sum(&self, of: impl Fn(&V) -> usize) -> usize {
        let shards = self.shards.iter().filter_map(ArcSwapOption::load_full);
        shards.map(|shard| shard.values().map(&of).sum::<usize>()).sum()
    }

    fn store(&self, shard: &ArcSwapOption<Shard<K, V>>, map: Shard<K, V>, before: usize) {
        let after = map.len();
        // The count grows first and shrinks last, so that a key is not missed by a count that comes late.
        if after > before {
            self.keys.fetch_add(after - before, Ordering::Relaxed);
        }
        shard.store((!map.is_empty()).then(|| Arc::new(map)));
        if before > after {
            self.keys.fetch_sub(before - after, Ordering::Relaxed);
        }
    }

    fn place<Q: Hash + ?Sized>(&self, key: &Q) -> usize {
        self.hasher.hash_one(key) as usize % SHARDS
    }
}

/// Of a million keys one change copies a thousand.
const SHARDS: usize = 1024;
