//! [`KeyTally`]: one worker's part. It never leaves its thread, and what it hands over it leaves in a box of its own, once a second
//! and only if nobody else has its hand in there.

use std::cell::RefCell;
use std::sync::Arc;

use super::inbox::{Inbox, KeyBatch};
use super::named_key::{NamedKey, ShardNumber};
use super::sketch::Sketch;

/// One worker's part.
#[derive(Debug)]
pub struct KeyTally {
    inbox: Arc<Inbox>,
    own: RefCell<WorkerSketch>,
}

#[derive(Debug)]
struct WorkerSketch {
    sketch: Sketch,
    names: Vec<NamedKey>,
    shards: Vec<u64>,
    /// Decisions until the shard of one is looked up.
    until_sampled: u64,
    second: u64,
}

impl KeyTally {
    pub(super) fn new(inbox: Arc<Inbox>, seed: u64) -> KeyTally {
        let own = WorkerSketch {
            sketch: Sketch::new(seed),
            names: Vec::new(),
            shards: Vec::new(),
            until_sampled: SAMPLED,
            second: 0,
        };
        KeyTally { inbox, own: RefCell::new(own) }
    }

    /// Counts a decision about a key. `named` is called for a key that is worth it, once a minute.
    #[inline]
    pub fn count(&self, key: u64, is_denied: bool, named: impl FnOnce() -> NamedKey) {
        let mut own = self.own.borrow_mut();
        let heavier = own.sketch.count(key, is_denied) as usize;
        // The fewer names are left in this second, the heavier must be who gets one.
        if heavier > own.names.len() / NAMES_STEP && own.names.len() < NAMES_MAX {
            own.sketch.name(key);
            own.names.push(named());
        }
    }

    /// Counts a decision for its shard. `shard` is asked for one in `SAMPLED`, which stands for them all.
    #[inline]
    pub fn count_shard(&self, shard: impl FnOnce() -> ShardNumber) {
        let mut own = self.own.borrow_mut();
        own.until_sampled -= 1;
        if own.until_sampled == 0 {
            own.until_sampled = SAMPLED;
            let shard = usize::from(shard().0).min(SHARDS_MAX - 1);
            if own.shards.len() <= shard {
                own.shards.resize(shard + 1, 0);
            }
            own.shards[shard] += SAMPLED;
        }
    }

    /// Hands over what was counted before this second, if it has not been yet.
    pub fn hand_over(&self, second: u64) {
        let mut own = self.own.borrow_mut();
        let own = &mut *own;
        if own.second == second {
            return;
        }
        let begun = match own.second {
            0 => second,
            begun => begun,
        };
        let is_put = self.inbox.put(|| KeyBatch {
            second: begun,
            counts: own.sketch.take(),
            names: std::mem::take(&mut own.names),
            shards: std::mem::take(&mut own.shards),
        });
        if is_put {
            own.second = second;
            if begun / 60 != second / 60 {
                own.sketch.age();
            }
        }
    }
}

/// Names that are made in a second.
pub(super) const NAMES_MAX: usize = 64;
/// After so many names the next one is for a key that has come once more.
const NAMES_STEP: usize = 4;
/// Of so many decisions one is asked for its shard.
const SAMPLED: u64 = 64;
/// Shards that are told apart.
const SHARDS_MAX: usize = 256;
