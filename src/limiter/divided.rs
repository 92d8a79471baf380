//! Keys whose limit is divided: others are assigned units of it in advance, so that what is decided here must not take all that
//! comes back before those have their turn. Who divides says how much requests may take until the next turn; here it is
//! counted, and how many come. All of it is charged to the limit as ever, so nothing is admitted that the limit does not
//! have. A check of other keys pays one load while there are none of these.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use base::sharded::Sharded;
use limit::Key;

/// The keys that are divided.
#[derive(Clone, Debug, Default)]
pub(super) struct Divided(Arc<Sharded<Key, Arc<Party>>>);

/// What is decided here about one key.
#[derive(Debug, Default)]
pub(super) struct Party {
    /// Units that were asked for since this was last read.
    came: AtomicU64,
    /// Units that may be taken until it is said anew.
    share: AtomicU64,
    /// Until when no more than that is taken. Whoever divides may be late, and then all may be taken again.
    held_until_ns: AtomicU64,
    /// Among how many the rest is divided.
    streams: AtomicU64,
}

/// What requests may take of a key whose limit is divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartOfLimit {
    /// Units, and for how long no more; `None`: as many as they find.
    pub held: Option<(u64, u64)>,
    /// Streams of reporters that are assigned the rest, of all gateways.
    pub streams: u64,
}

/// Divides the limit of a key until it is dropped.
#[derive(Debug)]
pub struct Division {
    divided: Divided,
    key: Key,
    party: Arc<Party>,
}

/// How a check stands to the shares of its keys.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Shared {
    /// Nothing was asked yet, or no key of it is divided.
    #[default]
    Apart,
    /// It draws for others, who have shares of their own.
    Draws,
    /// It has taken of what requests may take.
    Taken,
}

impl Divided {
    /// Whether there are none.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Begins to divide a key; `None` if somebody else does already.
    pub fn begin(&self, key: Key) -> Option<Division> {
        let mut begun = None;
        self.0.change(key, |before| {
            Some(before.unwrap_or_else(|| Arc::clone(begun.insert(Arc::new(Party::default())))))
        });
        begun.map(|party| Division { divided: self.clone(), key, party })
    }

    /// Calls with what is decided here about a key, if it is divided.
    pub fn with<T>(&self, key: &Key, call: impl FnOnce(&Party) -> T) -> Option<T> {
        self.0.of(key)?.get().map(|party| call(party))
    }
}

impl Party {
    /// Takes units of the share. Returns how long to wait if there are not enough.
    pub fn take(&self, units: u64, now_ns: u64) -> Option<u64> {
        self.came.fetch_add(units, Ordering::Relaxed);
        let held_ns = self.held_until_ns.load(Ordering::Relaxed).saturating_sub(now_ns);
        if held_ns == 0 {
            return None;
        }
        let less = |share: u64| share.checked_sub(units);
        self.share.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).is_err().then_some(held_ns)
    }

    /// What may be taken now.
    pub fn part(&self, now_ns: u64) -> PartOfLimit {
        let held_ns = self.held_until_ns.load(Ordering::Relaxed).saturating_sub(now_ns);
        let held = (held_ns > 0).then(|| (self.share.load(Ordering::Relaxed), held_ns));
        PartOfLimit { held, streams: self.streams.load(Ordering::Relaxed) }
    }

    /// Gives units back to the share.
    pub fn give_back(&self, units: u64) {
        self.share.fetch_add(units, Ordering::Relaxed);
    }
}

impl Division {
    /// Units that were asked for since this was last called.
    pub fn take_came(&self) -> u64 {
        self.party.came.swap(0, Ordering::Relaxed)
    }

    /// Units that may be taken and have not been; 0 if as many may be taken as there are.
    pub fn unspent(&self, now_ns: u64) -> u64 {
        match self.party.held_until_ns.load(Ordering::Relaxed) > now_ns {
            true => self.party.share.load(Ordering::Relaxed),
            false => 0,
        }
    }

    /// No more than these units are taken until then, if nothing is said anew.
    pub fn hold(&self, units: u64, until_ns: u64) {
        self.party.share.store(units, Ordering::Relaxed);
        self.party.held_until_ns.store(until_ns, Ordering::Relaxed);
    }

    /// Says among how many streams the rest is divided.
    pub fn note_streams(&self, streams: u64) {
        self.party.streams.store(streams, Ordering::Relaxed);
    }

    /// As many are taken as there are.
    pub fn release(&self) {
        self.party.held_until_ns.store(0, Ordering::Relaxed);
    }
}

impl Drop for Division {
    fn drop(&mut self) {
        self.divided.0.change(self.key, |_| None);
    }
}
