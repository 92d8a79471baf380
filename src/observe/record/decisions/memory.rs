//! The last samples of a process, for who asks by a request's id, and for who writes them on.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};

use super::sample::DecisionSample;
use super::sampling::SampleBudget;
use metrics::SharedCounter;

/// The last [`KEPT_MAX`] samples. Workers put them in if the lock is free; who reads holds it for as long as it takes to look
/// at each once.
#[derive(Debug, Default)]
pub struct SampleMemory {
    pub(super) budget: SampleBudget,
    pub(super) dropped: SharedCounter,
    state: Mutex<MemoryState>,
}

#[derive(Debug, Default)]
struct MemoryState {
    samples: VecDeque<Arc<DecisionSample>>,
    taken: u64,
    is_closed: bool,
}

#[derive(Debug, Default)]
pub struct SampleCursor(u64);

impl SampleMemory {
    /// Samples of this request, the oldest first. There may be several, because a trusted hop may choose an id again.
    pub fn find(&self, request_id: &str) -> Vec<Arc<DecisionSample>> {
        let state = self.lock();
        state.samples.iter().filter(|sample| &*sample.request_id == request_id).cloned().collect()
    }

    /// The newest samples of which this holds, the newest first, at most so many.
    pub fn newest(&self, holds: impl Fn(&DecisionSample) -> bool, most: usize) -> Vec<Arc<DecisionSample>> {
        // Cloned first, because what a caller compares may take longer than a lock should be held.
        let samples: Vec<_> = self.lock().samples.iter().rev().cloned().collect();
        samples.into_iter().filter(|sample| holds(sample)).take(most).collect()
    }

    /// The samples since the last call, at most so many, and how many have gone before they were read.
    pub fn since(&self, cursor: &mut SampleCursor, most: usize) -> (Vec<Arc<DecisionSample>>, u64) {
        let state = self.lock();
        let oldest = state.taken - state.samples.len() as u64;
        let lost = oldest.saturating_sub(cursor.0);
        let first = cursor.0.max(oldest);
        let samples: Vec<_> = state.samples.range((first - oldest) as usize..).take(most).cloned().collect();
        cursor.0 = first + samples.len() as u64;
        (samples, lost)
    }

    /// How many samples there have been.
    pub fn taken(&self) -> u64 {
        self.lock().taken
    }

    /// How many decisions were drawn for which there was no room.
    pub fn dropped(&self) -> u64 {
        self.dropped.value()
    }

    /// Whether samples are kept from now on. If not, those that are here go, because an operator who turns them off
    /// wants nobody to read them any more. A request that began before may still bring one, which is not taken.
    pub fn keep(&self, is_kept: bool) {
        let mut state = self.lock();
        state.is_closed = !is_kept;
        if state.is_closed {
            state.samples = VecDeque::new();
        }
    }

    pub fn is_kept(&self) -> bool {
        !self.lock().is_closed
    }

    /// Takes all that waits, unless the lock is taken.
    pub(super) fn offer(&self, waiting: &mut VecDeque<Arc<DecisionSample>>) {
        match self.state.try_lock() {
            Ok(state) => take(state, waiting),
            Err(TryLockError::Poisoned(poisoned)) => take(poisoned.into_inner(), waiting),
            // Not waited for, so that no request stands still. What waits is offered again, with the next tick at the
            // latest.
            Err(TryLockError::WouldBlock) => {}
        }
    }

    pub(super) fn put(&self, waiting: &mut VecDeque<Arc<DecisionSample>>) {
        take(self.lock(), waiting);
    }

    fn lock(&self) -> MutexGuard<'_, MemoryState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[cfg(test)]
    pub(super) fn while_locked(&self, act: impl FnOnce()) {
        let _held = self.lock();
        act();
    }
}

fn take(mut state: MutexGuard<'_, MemoryState>, waiting: &mut VecDeque<Arc<DecisionSample>>) {
    if state.is_closed {
        // Forgotten, because a request that began before samples were turned off may still bring one.
        waiting.clear();
    }
    for sample in waiting.drain(..) {
        if state.samples.len() >= KEPT_MAX {
            state.samples.pop_front();
        }
        state.samples.push_back(sample);
        state.taken += 1;
    }
}

/// Samples that are kept: some 5 MB of requests with one window, 25 MB if each has as many as are kept and long names.
pub const KEPT_MAX: usize = 10_000;

#[cfg(test)]
mod tests {
    use super::*;

    fn put(memory: &SampleMemory, numbers: std::ops::Range<u64>) {
        memory.put(&mut numbers.map(|number| Arc::new(DecisionSample::numbered(number))).collect());
    }

    #[test]
    fn what_is_turned_off_is_forgotten_and_nothing_more_is_taken() {
        let memory = SampleMemory::default();
        put(&memory, 0..3);
        memory.keep(false);
        put(&memory, 3..4);
        let everything = |memory: &SampleMemory| memory.newest(|_| true, usize::MAX).len();
        assert_eq!((everything(&memory), memory.is_kept()), (0, false));
        memory.keep(true);
        put(&memory, 4..6);
        assert_eq!((everything(&memory), memory.find("4").len()), (2, 1));
    }

    #[test]
    fn the_last_ones_are_kept_and_read_once() {
        let memory = SampleMemory::default();
        let mut cursor = SampleCursor::default();
        put(&memory, 0..3);
        let numbers = |samples: Vec<Arc<DecisionSample>>| {
            samples.iter().map(|one| one.request_id.to_string()).collect::<Vec<_>>()
        };
        let (read, lost) = memory.since(&mut cursor, 2);
        assert_eq!((numbers(read), lost), (vec!["0".to_owned(), "1".to_owned()], 0));
        let (read, lost) = memory.since(&mut cursor, 2);
        assert_eq!((numbers(read), lost), (vec!["2".to_owned()], 0));
        put(&memory, 3..KEPT_MAX as u64 + 10);
        let (read, lost) = memory.since(&mut cursor, usize::MAX);
        assert_eq!((read.len(), lost), (KEPT_MAX, 7), "what nobody has read in time");
        assert_eq!((memory.find("9").len(), memory.find("10").len()), (0, 1));
        assert_eq!(memory.taken(), KEPT_MAX as u64 + 10);
        let newest = memory.newest(|sample| sample.request_id.ends_with('7'), 2);
        assert_eq!(numbers(newest), ["10007", "9997"]);
    }
}
