//! One slot of the table: 32 bytes, changed without locks and without unsafe code.
//!
//! The words: the key's halves, the state's word, and its past with the quota's fingerprint. The state's word is also
//! the guard: whoever sets it to [`BUSY`] owns all four until it stores another. Three rules make every interleaving
//! come out right:
//!
//! - A reader takes the word, then the rest, then the word again: unchanged and not `BUSY`, they belong together. A
//!   writer stores the word last (release) and a reader loads it first (acquire), so a new word shows the new rest.
//! - A writer owns the slot before it looks at key and rest once more. A word that has come back to an old value in
//!   between (the slot was taken over, and its new key stands where the old one did) is thereby seen, and nothing is
//!   charged to a stranger.
//! - A slot leaves the empty state once and never goes back, so "before the first empty slot" stays true of a key.
//!
//! An owner holds a slot for a few nanoseconds of straight code that cannot fail. Should it lose its core just then,
//! the others give theirs up instead of spinning.

use std::hint::spin_loop;
use std::sync::atomic::{AtomicU64, Ordering, fence};

use crate::limit::State;

/// A limiter key: two halves, the lower one never 0, which says empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Key {
    pub(super) high: u64,
    pub(super) low: u64,
}

impl Key {
    /// What the shared buckets are held under; they lie outside the table.
    pub(super) const OVERFLOW: Key = Key { high: 0, low: 1 };

    pub(super) fn new(key: u128) -> Key {
        // A lower half of 0 would say empty; one key in 2^64 shares another's bucket for it.
        Key { high: (key >> 64) as u64, low: (key as u64).max(1) }
    }
}

/// A slot's contents at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Seen {
    pub(super) state: State,
    /// Of the quota the state belongs to.
    pub(super) fingerprint: u32,
}

/// The words of one slot. A plain array, so that a table of zeroes needs no initialisation.
pub(super) type Words = [AtomicU64; 4];

/// One slot, borrowed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Slot<'a>(pub(super) &'a Words);

impl Slot<'_> {
    pub(super) fn has(self, key: Key) -> bool {
        self.0[LOW].load(Ordering::Acquire) == key.low && self.0[HIGH].load(Ordering::Acquire) == key.high
    }

    /// Whether no key ever came to it.
    pub(super) fn is_empty(self) -> bool {
        self.0[LOW].load(Ordering::Acquire) == 0
    }

    /// Its contents; `None` where it is not the key's.
    pub(super) fn read(self, key: Key) -> Option<Seen> {
        self.read_if(|slot| slot.has(key))
    }

    /// Its contents, whosever it is.
    pub(super) fn read_any(self) -> Option<Seen> {
        self.read_if(|_| true)
    }

    fn read_if(self, fits: impl Fn(Self) -> bool) -> Option<Seen> {
        let mut spins = 0;
        loop {
            let word = self.0[WORD].load(Ordering::Acquire);
            if word != BUSY {
                let rest = self.0[REST].load(Ordering::Relaxed);
                let fits = fits(self);
                fence(Ordering::Acquire);
                if self.0[WORD].load(Ordering::Relaxed) == word {
                    return fits.then(|| seen(word, rest));
                }
            }
            pause(&mut spins);
        }
    }

    /// Changes the state of the key's slot; false where the slot is not, or no longer, the key's. `change` may be
    /// asked several times, until nobody else came in between.
    pub(super) fn update(self, key: Key, fingerprint: u32, mut change: impl FnMut(Seen) -> State) -> bool {
        let mut spins = 0;
        loop {
            let Some(before) = self.read(key) else { return false };
            let after = Seen { state: change(before), fingerprint };
            if after == before {
                return true;
            }
            if self.own(before.state.word) {
                let same = self.has(key) && self.0[REST].load(Ordering::Relaxed) == rest(before);
                if same {
                    self.0[REST].store(rest(after), Ordering::Relaxed);
                }
                let word = if same { after.state.word } else { before.state.word };
                self.0[WORD].store(word.min(BUSY - 1), Ordering::Release);
                if same {
                    return true;
                }
            }
            pause(&mut spins);
        }
    }

    /// Gives an empty slot its first key; false where another key was faster.
    pub(super) fn claim_empty(self, key: Key, fingerprint: u32) -> bool {
        self.own(0) && self.replace(key, fingerprint, |slot| slot.is_empty(), 0)
    }

    /// Gives a slot that was seen to hold `spent` to another key; false where it has changed since.
    pub(super) fn take_over(self, spent: Seen, key: Key, fingerprint: u32) -> bool {
        self.own(spent.state.word)
            && self.replace(
                key,
                fingerprint,
                |slot| slot.0[REST].load(Ordering::Relaxed) == rest(spent),
                spent.state.word,
            )
    }

    /// Owns the slot if its word is `word`.
    fn own(self, word: u64) -> bool {
        self.0[WORD].compare_exchange(word, BUSY, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// The owner's last act: a new key where `still` holds, else all as it was.
    fn replace(self, key: Key, fingerprint: u32, still: impl Fn(Self) -> bool, before: u64) -> bool {
        let still = still(self);
        if still {
            self.0[REST].store(rest(Seen { state: State::FRESH, fingerprint }), Ordering::Relaxed);
            self.0[HIGH].store(key.high, Ordering::Release);
            self.0[LOW].store(key.low, Ordering::Release);
        }
        self.0[WORD].store(if still { State::FRESH.word } else { before }, Ordering::Release);
        still
    }
}

fn rest(seen: Seen) -> u64 {
    u64::from(seen.state.past) << 32 | u64::from(seen.fingerprint)
}

fn seen(word: u64, rest: u64) -> Seen {
    Seen { state: State { word, past: (rest >> 32) as u32 }, fingerprint: rest as u32 }
}

fn pause(spins: &mut u32) {
    *spins += 1;
    if *spins % SPINS_MAX == 0 {
        std::thread::yield_now();
    } else {
        spin_loop();
    }
}

/// A state's word while somebody owns the slot.
const BUSY: u64 = u64::MAX;
/// Looks at a slot that is owned before the core is given up once.
const SPINS_MAX: u32 = 64;

const HIGH: usize = 0;
const LOW: usize = 1;
const WORD: usize = 2;
const REST: usize = 3;
