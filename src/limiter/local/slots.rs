//! The memory of a table: slots of half a cache line or a whole one, open addressing with a bounded probe window.
//!
//! A slot has the key's high half, a tag (30 more bits of the key, an occupied bit, a lock bit, and a 32-bit
//! fingerprint of the quota or plan that the state was written under) and the state, two words or six. This file does
//! not know what a state means. It waits only for another thread's few instructions under a slot's lock bit.
//!
//! Why no key can be in two slots, and none is lost:
//! - Words of a slot change only under its lock bit, which is taken by compare-exchange (acquire) and released by the
//!   store of the tag (release). The thread that holds it sees a consistent slot. A read without it is a hint: a match
//!   is checked again under the lock, a miss is tried again in `find_or_claim`.
//! - A key is put into its window only while its home slot's lock is held, and its tag is visible before that lock is
//!   released. So two threads with the same new key meet at its home, and the second finds what the first wrote. In
//!   between another key can have taken the slot only if the first one's state had nothing spent, and then starting
//!   anew loses nothing.
//! - Slots are filled in the order of the window and never emptied, only replaced. So no key of a window is behind an
//!   empty slot, and a search ends there.
//! - A thread holds at most two locks, a home and one slot above it, and takes them in rising order (windows do not
//!   wrap around the end), so threads cannot deadlock.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use super::memory::ZeroedWords;
use limit::Key;

/// All slots, of `W` words each, of which `S` are state.
#[derive(Debug)]
pub(crate) struct Slots<const W: usize, const S: usize> {
    words: ZeroedWords,
    /// Words skipped at the start so that no slot crosses a cache line.
    first: usize,
    /// Number of cache lines that can be a home. The lines behind the last one are the rest of its window.
    homes: u64,
    used: AtomicU64,
    evictions: AtomicU64,
}

/// Counters of a table since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Keys that the table has room for.
    pub slots: u64,
    /// Slots that hold a key, those with nothing spent included.
    pub used: u64,
    /// Keys evicted for others. None of them had anything spent.
    pub evictions: u64,
    /// Decisions on an overflow bucket or log.
    pub overflow_decisions: u64,
    /// Keys that have a sliding log.
    pub logs: u64,
    /// Memory of the sliding logs, bytes.
    pub log_bytes: u64,
}

impl<const W: usize, const S: usize> Slots<W, S> {
    const SLOTS_PER_LINE: usize = {
        assert!(W == S + STATE && WORDS_PER_LINE.is_multiple_of(W));
        WORDS_PER_LINE / W
    };
    const LINES_PER_WINDOW: usize = WINDOW_SLOTS / Self::SLOTS_PER_LINE;

    /// As many slots as fit, at least one window. The memory is zeroed without being touched, so that the kernel has
    /// not backed it yet.
    pub(crate) fn with_memory(bytes: usize) -> Slots<W, S> {
        let lines = (bytes / LINE_BYTES).saturating_sub(1).max(Self::LINES_PER_WINDOW);
        let words = ZeroedWords::zeroed((lines + 1) * WORDS_PER_LINE);
        let past_line = words.as_ptr().addr() % LINE_BYTES;
        let first = if past_line == 0 { 0 } else { (LINE_BYTES - past_line) / size_of::<u64>() };
        let homes = (lines - Self::LINES_PER_WINDOW + 1) as u64;
        Slots { words, first, homes, used: AtomicU64::new(0), evictions: AtomicU64::new(0) }
    }

    pub(super) fn len(&self) -> usize {
        (self.homes as usize - 1) * Self::SLOTS_PER_LINE + WINDOW_SLOTS
    }

    pub(crate) fn stats(&self) -> Stats {
        let [used, evictions] = [&self.used, &self.evictions].map(|count| count.load(Relaxed));
        Stats { slots: self.len() as u64, used, evictions, ..Stats::default() }
    }

    /// The key's slot, if it is found without the home's lock. `None` may be wrong while another thread puts the key
    /// in.
    #[inline(always)]
    pub(crate) fn find(&self, key: Key) -> Option<SlotGuard<'_, W, S>> {
        for slot in self.window(self.home(key)) {
            let tag = slot[TAG].load(Relaxed);
            if tag & OCCUPIED == 0 {
                return None;
            }
            if tag & KEY_BITS == tag_bits(key) && slot[KEY].load(Relaxed) == key.high() {
                return SlotGuard::of(slot, key);
            }
        }
        None
    }

    /// The key's slot, or one claimed for it: an unused one, or the first whose key may be evicted by
    /// `is_whole(fingerprint, state)`. A claimed slot holds the key, the fingerprint and a state of zeros. `None`: the window is
    /// full of keys that cannot be evicted without loss.
    #[cold]
    pub(crate) fn find_or_claim(
        &self,
        key: Key,
        fingerprint: u32,
        is_whole: impl Fn(u32, [u64; S]) -> bool,
    ) -> Option<SlotGuard<'_, W, S>> {
        let home = self.home(key);
        // Held until the key is in its slot. If that is the home slot itself, this lock becomes the slot's.
        let mut home_lock = Some(SlotGuard::wait_for(&self.window(home)[0]));
        for (index, slot) in self.window(home).iter().enumerate() {
            let tag = slot[TAG].load(Acquire);
            let is_match = tag & KEY_BITS == tag_bits(key) && slot[KEY].load(Relaxed) == key.high();
            if tag & OCCUPIED != 0 && !is_match {
                continue;
            }
            let mut locked =
                take_home(&mut home_lock, index == 0).unwrap_or_else(|| SlotGuard::wait_for(slot));
            if locked.holds(key) {
                return Some(locked);
            }
            if !locked.is_occupied() {
                locked.place(key, fingerprint);
                self.used.fetch_add(1, Relaxed);
                return Some(locked);
            }
            // Another thread has put another key here first. At home none can: this thread holds its lock.
        }
        for (index, slot) in self.window(home).iter().enumerate() {
            if !is_whole(slot[TAG].load(Relaxed) as u32, state_of(slot)) {
                continue;
            }
            let at_home = index == 0;
            let mut locked = take_home(&mut home_lock, at_home).unwrap_or_else(|| SlotGuard::wait_for(slot));
            if is_whole(locked.fingerprint(), locked.state()) {
                locked.place(key, fingerprint);
                self.evictions.fetch_add(1, Relaxed);
                return Some(locked);
            }
            if at_home {
                home_lock = Some(locked);
            }
        }
        None
    }

    /// Whether `find_or_claim` would find or claim a slot, judged without locks.
    pub(super) fn has_room(&self, key: Key, is_whole: impl Fn(u32, [u64; S]) -> bool) -> bool {
        let home = self.home(key);
        self.window(home).iter().any(|slot| {
            let tag = slot[TAG].load(Relaxed);
            tag & OCCUPIED == 0 || is_whole(tag as u32, state_of(slot))
        })
    }

    /// The words of every slot that holds a key, and the slot's number: each as it is at one moment.
    pub(super) fn occupied(&self) -> impl Iterator<Item = (usize, [u64; W])> {
        let slots: &[[AtomicU64; W]] = self.words[self.first..].as_chunks().0;
        slots[..self.len()].iter().enumerate().filter_map(|(number, slot)| {
            if slot[TAG].load(Relaxed) & OCCUPIED == 0 {
                return None;
            }
            let locked = SlotGuard::<W, S>::wait_for(slot);
            let mut words = std::array::from_fn(|word| slot[word].load(Relaxed));
            words[TAG] = locked.tag;
            Some((number, words))
        })
    }

    /// Puts the words of another table's slot into the same place of this one, whose size has to be the same; false if
    /// there is a key already, or no such place.
    pub(super) fn fill(&self, number: usize, words: [u64; W]) -> bool {
        let slots: &[[AtomicU64; W]] = self.words[self.first..].as_chunks().0;
        let Some(slot) = slots[..self.len()].get(number) else { return false };
        let mut locked = SlotGuard::<W, S>::wait_for(slot);
        if locked.is_occupied() || words[TAG] & OCCUPIED == 0 {
            return false;
        }
        slot[KEY].store(words[KEY], Relaxed);
        for (place, word) in slot[STATE..].iter().zip(&words[STATE..]) {
            place.store(*word, Relaxed);
        }
        locked.tag = words[TAG] & !LOCKED;
        self.used.fetch_add(1, Relaxed);
        true
    }

    /// Index of the first slot of the key's window: the first of a cache line, chosen by the key's low half.
    #[inline]
    fn home(&self, key: Key) -> usize {
        let line = (u128::from(key.low()) * u128::from(self.homes)) >> 64;
        line as usize * Self::SLOTS_PER_LINE
    }

    /// The slots in which a key of this home may be.
    #[inline]
    fn window(&self, home: usize) -> &[[AtomicU64; W]] {
        let slots = self.words[self.first..].as_chunks().0;
        &slots[home..home + WINDOW_SLOTS]
    }
}

/// Takes the home slot's lock if that is the slot to work on.
fn take_home<'a, const W: usize, const S: usize>(
    home_lock: &mut Option<SlotGuard<'a, W, S>>,
    at_home: bool,
) -> Option<SlotGuard<'a, W, S>> {
    if at_home { home_lock.take() } else { None }
}

/// A slot whose lock bit this thread holds; dropping it releases the bit.
pub(crate) struct SlotGuard<'a, const W: usize, const S: usize> {
    slot: &'a [AtomicU64; W],
    /// The tag to store when the slot is released, without the lock bit.
    tag: u64,
}

impl<'a, const W: usize, const S: usize> SlotGuard<'a, W, S> {
    /// Locks a slot in which the key was just seen, if the key is still there.
    #[inline(always)]
    fn of(slot: &'a [AtomicU64; W], key: Key) -> Option<SlotGuard<'a, W, S>> {
        let tag = slot[TAG].load(Relaxed);
        let locked = SlotGuard::at_once(slot, tag).unwrap_or_else(|| SlotGuard::wait_for(slot));
        locked.holds(key).then_some(locked)
    }

    /// Locks a slot whose tag was just read, if no thread has locked or changed it since.
    #[inline]
    fn at_once(slot: &'a [AtomicU64; W], tag: u64) -> Option<SlotGuard<'a, W, S>> {
        let tag = tag & !LOCKED;
        let held = slot[TAG].compare_exchange(tag, tag | LOCKED, Acquire, Relaxed);
        // `then`, not `then_some`, because dropping a `SlotGuard` of a slot that another thread holds would release it.
        held.is_ok().then(|| SlotGuard { slot, tag })
    }

    /// Locks a slot, waiting for the thread that holds it. That takes as long as a decision's arithmetic, unless the
    /// kernel has descheduled the holder; then this thread yields its own core.
    #[cold]
    fn wait_for(slot: &'a [AtomicU64; W]) -> SlotGuard<'a, W, S> {
        let mut attempts = 0u32;
        loop {
            let tag = slot[TAG].load(Relaxed);
            if tag & LOCKED == 0
                && slot[TAG].compare_exchange_weak(tag, tag | LOCKED, Acquire, Relaxed).is_ok()
            {
                return SlotGuard { slot, tag };
            }
            attempts = attempts.wrapping_add(1);
            if attempts.is_multiple_of(SPINS_MAX) { std::thread::yield_now() } else { std::hint::spin_loop() }
        }
    }

    #[inline]
    pub(crate) fn state(&self) -> [u64; S] {
        state_of(self.slot)
    }

    #[inline]
    pub(crate) fn fingerprint(&self) -> u32 {
        self.tag as u32
    }

    #[inline]
    pub(crate) fn set_state(&mut self, state: [u64; S], fingerprint: u32) {
        for (word, value) in self.slot[STATE..].iter().zip(state) {
            word.store(value, Relaxed);
        }
        self.tag = self.tag & !u64::from(u32::MAX) | u64::from(fingerprint);
    }

    #[inline]
    fn is_occupied(&self) -> bool {
        self.tag & OCCUPIED != 0
    }

    #[inline]
    fn holds(&self, key: Key) -> bool {
        self.is_occupied()
            && self.tag & KEY_BITS == tag_bits(key)
            && self.slot[KEY].load(Relaxed) == key.high()
    }

    /// Gives the slot to a key. The tag is stored at once, still locked, so that other threads with this key wait here.
    fn place(&mut self, key: Key, fingerprint: u32) {
        self.tag = tag_bits(key) | OCCUPIED;
        self.set_state([0; S], fingerprint);
        self.slot[KEY].store(key.high(), Relaxed);
        self.slot[TAG].store(self.tag | LOCKED, Release);
    }
}

impl<const W: usize, const S: usize> Drop for SlotGuard<'_, W, S> {
    #[inline]
    fn drop(&mut self) {
        self.slot[TAG].store(self.tag, Release);
    }
}

#[inline]
fn state_of<const W: usize, const S: usize>(slot: &[AtomicU64; W]) -> [u64; S] {
    std::array::from_fn(|word| slot[STATE + word].load(Relaxed))
}

/// The key's lowest bits at their place in the tag. `home` uses the highest bits of the same half, so these still tell
/// keys of one home apart.
#[inline]
fn tag_bits(key: Key) -> u64 {
    key.low() << 34
}

pub(super) fn fingerprint_of(words: &[u64]) -> u32 {
    words[TAG] as u32
}

/// The lowest bits of a slot's key, as many as it keeps.
pub(super) fn low_bits_of(words: &[u64]) -> u64 {
    (words[TAG] & KEY_BITS) >> KEY_BITS.trailing_zeros()
}

/// How many slots a key may be in.
pub(super) const WINDOW_SLOTS: usize = 64;

const KEY: usize = 0;
const TAG: usize = 1;
/// Where the state begins in a slot's words.
pub(super) const STATE: usize = 2;
const WORDS_PER_LINE: usize = 8;
const LINE_BYTES: usize = WORDS_PER_LINE * size_of::<u64>();

/// The tag, from the top: 30 bits of the key, occupied, locked, 32 bits of fingerprint.
const KEY_BITS: u64 = !0 << 34;
const OCCUPIED: u64 = 1 << 33;
const LOCKED: u64 = 1 << 32;

/// Attempts before a waiting thread yields its core.
const SPINS_MAX: u32 = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_is_kept_under_its_key_and_fingerprint() {
        let slots = Slots::<8, 6>::with_memory(1 << 16);
        let key = Key::new(7 << 70 | 7);
        for (fingerprint, before) in [(3, 0), (4, 9)] {
            let mut slot = slots.find_or_claim(key, fingerprint, |_, _| false).expect("it is empty");
            assert_eq!((slot.fingerprint(), slot.state()[5]), (3, before));
            slot.set_state([0, 0, 0, 0, 0, 9], fingerprint);
        }
        let found = slots.find(key).map(|slot| (slot.fingerprint(), slot.state()));
        assert_eq!(found, Some((4, [0, 0, 0, 0, 0, 9])));
        assert!(slots.find(Key::new(8 << 70 | 7)).is_none());
    }

    #[test]
    fn a_full_table_gives_up_whole_keys_only() {
        let slots = Slots::<8, 6>::with_memory(0);
        let count = slots.stats().slots;
        let key = |number: u64| Key::new(u128::from(number) << 64 | u128::from(number << 40));
        for number in 0..count {
            let mut slot = slots.find_or_claim(key(number), 1, |_, _| false).expect("there is room");
            slot.set_state([number, 0, 0, 0, 0, 0], 1);
        }
        assert!(slots.find_or_claim(key(count), 1, |_, _| false).is_none());
        let claimed = slots.find_or_claim(key(count), 1, |_, words| words[0] == 5);
        assert_eq!(claimed.map(|slot| slot.state()[0]), Some(0));
        assert!(slots.find(key(5)).is_none());
        assert_eq!((slots.stats().used, slots.stats().evictions), (count, 1));
    }
}
