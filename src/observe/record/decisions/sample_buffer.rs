//! A worker's end of the samples: draws, and holds what finds the memory's lock taken.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::sync::Arc;

use super::memory::SampleMemory;
use super::sample::DecisionSample;
use super::sampling::DecisionSampling;

/// What one worker has drawn. Dropping it hands over what is left.
#[derive(Debug)]
pub struct SampleBuffer {
    memory: Arc<SampleMemory>,
    /// Drawn, and not in the memory yet: its lock was taken.
    waiting: RefCell<VecDeque<Arc<DecisionSample>>>,
    drawn: Cell<u64>,
    /// Samples for which there was no room, until they are counted: once a tick.
    dropped: Cell<u64>,
}

impl SampleBuffer {
    pub fn new(memory: Arc<SampleMemory>) -> SampleBuffer {
        SampleBuffer { memory, waiting: RefCell::default(), drawn: Cell::new(0), dropped: Cell::new(0) }
    }

    /// Draws whether a decision in this second of the monotonic clock is sampled, so that facts are gathered of those
    /// alone.
    #[inline]
    pub fn draws(&self, draws: &DecisionSampling, is_admitted: bool, second: impl FnOnce() -> u64) -> bool {
        let mut drawn = self.drawn.get();
        let is_drawn = draws.draws(is_admitted, &mut drawn);
        self.drawn.set(drawn);
        is_drawn && self.has_room(draws.room(is_admitted), second())
    }

    fn has_room(&self, most: u32, second: u64) -> bool {
        let has_room = self.memory.budget.take(second, most);
        if !has_room {
            self.drop_one();
        }
        has_room
    }

    /// Keeps a sample that was drawn.
    pub fn keep(&self, sample: DecisionSample) {
        let mut waiting = self.waiting.borrow_mut();
        if waiting.len() >= WAITING_MAX {
            waiting.pop_front();
            self.drop_one();
        }
        waiting.push_back(Arc::new(sample));
        self.memory.offer(&mut waiting);
    }

    /// Hands over what waits, unless the lock is taken. The worker calls it every [`crate::record::TICK`].
    pub fn hand_over(&self) {
        let mut waiting = self.waiting.borrow_mut();
        if !waiting.is_empty() {
            self.memory.offer(&mut waiting);
        }
        if self.dropped.get() > 0 {
            self.memory.dropped.add(self.dropped.take());
        }
    }

    fn drop_one(&self) {
        self.dropped.set(self.dropped.get() + 1);
    }
}

impl Drop for SampleBuffer {
    fn drop(&mut self) {
        // This waits for the lock, because no tick comes any more.
        self.memory.put(&mut self.waiting.borrow_mut());
        self.memory.dropped.add(self.dropped.take());
    }
}

const WAITING_MAX: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_finds_no_room_is_counted() {
        let memory = Arc::new(SampleMemory::default());
        let hand = SampleBuffer::new(Arc::clone(&memory));
        let draws = DecisionSampling { per_second_max: 3, ..DecisionSampling::default() };
        let drawn = (0..10).filter(|_| hand.draws(&draws, false, || 9)).count();
        assert_eq!((drawn, memory.dropped()), (3, 0));
        hand.hand_over();
        assert_eq!(memory.dropped(), 7);
    }

    #[test]
    fn a_worker_does_not_wait_for_who_reads() {
        let memory = Arc::new(SampleMemory::default());
        let hand = SampleBuffer::new(Arc::clone(&memory));
        memory.while_locked(|| {
            (0..WAITING_MAX as u64 + 5).for_each(|number| hand.keep(DecisionSample::numbered(number)))
        });
        assert_eq!(memory.find("5").len(), 0);
        hand.hand_over();
        assert_eq!((memory.find("5").len(), memory.find("4").len(), memory.dropped()), (1, 0, 5));
        memory.while_locked(|| hand.keep(DecisionSample::numbered(1_000)));
        drop(hand);
        assert_eq!(memory.find("1000").len(), 1, "its last ones are handed over");
    }
}
