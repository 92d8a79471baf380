//! [`ByName`]: a large map from names that requests read without a lock and that changes a little at a time.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::{ArcSwapOption, Guard};

type Shard<T> = HashMap<Box<str>, T>;

/// A map from names to values, in shards of which a change copies one.
#[derive(Debug)]
pub(super) struct ByName<T> {
    hasher: RandomState,
    shards: Box<[ArcSwapOption<Shard<T>>]>,
    /// Names that have a value. While it is 0 nobody looks further.
    names: AtomicUsize,
    /// Held while something changes, so that no change is lost to another.
    changing: Mutex<()>,
}

/// The value of one name, as it is at this moment.
pub(super) struct Held<'n, T> {
    shard: Guard<Option<Arc<Shard<T>>>>,
    name: &'n str,
}

impl<T> Held<'_, T> {
    pub(super) fn get(&self) -> Option<&T> {
        self.shard.as_ref()?.get(self.name)
    }
}

impl<T> Default for ByName<T> {
    fn default() -> ByName<T> {
        ByName {
            hasher: RandomState::new(),
            shards: (0..SHARDS).map(|_| ArcSwapOption::empty()).collect(),
            names: AtomicUsize::new(0),
            changing: Mutex::new(()),
        }
    }
}

impl<T: Clone> ByName<T> {
    /// Whether no name has a value.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.names.load(Ordering::Relaxed) == 0
    }

    /// What a name may have; `None` if it has nothing for sure.
    pub(super) fn of<'n>(&self, name: &'n str) -> Option<Held<'n, T>> {
        if self.is_empty() {
            return None;
        }
        let shard = self.shards[self.place(name)].load();
        shard.is_some().then_some(Held { shard, name })
    }

    /// Changes the value of a name; `None` is no value.
    pub(super) fn change(&self, name: &str, change: impl FnOnce(Option<T>) -> Option<T>) {
        let _changing = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        let shard = &self.shards[self.place(name)];
        let mut map = shard.load().as_deref().cloned().unwrap_or_default();
        let before = map.len();
        if let Some(value) = change(map.remove(name)) {
            map.insert(name.into(), value);
        }
        self.store(shard, map, before);
    }

    /// Puts these in the place of all there are. A name that has a value before and after has one all the time.
    pub(super) fn replace(&self, all: impl IntoIterator<Item = (Box<str>, T)>) {
        let _changing = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        let mut maps: Vec<Shard<T>> = (0..SHARDS).map(|_| HashMap::new()).collect();
        for (name, value) in all {
            maps[self.place(&name)].insert(name, value);
        }
        // Before the first of them can be found: while the count is 0 nobody looks.
        self.names.store(maps.iter().map(HashMap::len).sum(), Ordering::Relaxed);
        for (shard, map) in self.shards.iter().zip(maps) {
            shard.store((!map.is_empty()).then(|| Arc::new(map)));
        }
    }

    /// Changes every value, or removes it, where `change` says so; `None` leaves it as it is.
    pub(super) fn sweep(&self, change: impl Fn(&T) -> Option<Option<T>>) {
        if self.is_empty() {
            return;
        }
        let _changing = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        for shard in &self.shards {
            let Some(held) = shard.load_full() else { continue };
            let changed: Vec<_> =
                held.iter().filter_map(|(name, value)| Some((name, change(value)?))).collect();
            if changed.is_empty() {
                continue;
            }
            let (mut map, before) = ((*held).clone(), held.len());
            for (name, value) in changed {
                match value {
                    Some(value) => map.insert(name.clone(), value),
                    None => map.remove(name),
                };
            }
            self.store(shard, map, before);
        }
    }

    /// Every value, for operators.
    pub(super) fn sum(&self, of: impl Fn(&T) -> usize) -> usize {
        let shards = self.shards.iter().filter_map(ArcSwapOption::load_full);
        shards.map(|shard| shard.values().map(&of).sum::<usize>()).sum()
    }

    fn store(&self, shard: &ArcSwapOption<Shard<T>>, map: Shard<T>, before: usize) {
        let after = map.len();
        // A name must not be missed by a count that comes late, so it grows first and shrinks last.
        if after > before {
            self.names.fetch_add(after - before, Ordering::Relaxed);
        }
        shard.store((!map.is_empty()).then(|| Arc::new(map)));
        if before > after {
            self.names.fetch_sub(before - after, Ordering::Relaxed);
        }
    }

    fn place(&self, name: &str) -> usize {
        self.hasher.hash_one(name) as usize % SHARDS
    }
}

/// Of a million names one change copies a thousand.
const SHARDS: usize = 1024;
