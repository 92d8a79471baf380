//! Counters with a row for each worker, so that counting is a plain load and store.
//!
//! Only the row's worker can count in it. No atomic read-modify-write is needed, because there is a single writer.

use std::cell::Cell;
use std::marker::PhantomData;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// The token with which a worker counts. Each worker has one, it cannot be copied, and two threads cannot use it at
/// once, so that each row has a single writer by construction.
#[derive(Debug)]
pub struct WorkerToken {
    index: usize,
    not_sync: PhantomData<Cell<()>>,
}

impl WorkerToken {
    pub(super) fn new(index: usize) -> WorkerToken {
        WorkerToken { index, not_sync: PhantomData }
    }

    /// Which of the workers: 0 and up.
    pub fn index(&self) -> usize {
        self.index
    }
}

/// `N` counters in one row for each worker. A row is allocated when its worker first counts in it, so that of ten thousand
/// routes only the used ones take memory.
#[derive(Debug)]
pub(super) struct Cells<const N: usize>(Box<[OnceLock<Box<CellRow<N>>>]>);

/// Aligned to two cache lines, because the prefetcher loads them in pairs and would share the neighbour's.
#[derive(Debug)]
#[repr(align(128))]
pub(super) struct CellRow<const N: usize>([AtomicU64; N]);

impl<const N: usize> Cells<N> {
    pub(super) fn new(workers: usize) -> Cells<N> {
        Cells((0..workers).map(|_| OnceLock::new()).collect())
    }

    /// The row `worker` alone writes.
    pub(super) fn row(&self, worker: &WorkerToken) -> &CellRow<N> {
        self.0[worker.index].get_or_init(|| Box::new(CellRow([const { AtomicU64::new(0) }; N])))
    }

    /// Adds one for `worker`.
    pub(super) fn count(&self, worker: &WorkerToken, slot: usize) {
        self.row(worker).add(slot, 1);
    }

    /// Moves a level up or down for `worker`. Levels wrap, so that the sum over the workers is right even if one worker
    /// counts something in and another counts it out.
    pub(super) fn shift(&self, worker: &WorkerToken, slot: usize, by: i64) {
        self.row(worker).add(slot, by as u64);
    }

    /// One counter over all workers.
    pub(super) fn total(&self, slot: usize) -> u64 {
        self.rows().fold(0, |sum, row| sum.wrapping_add(row.read(slot)))
    }

    /// One level over all workers. A scrape that races with workers may see a negative sum, which shows as zero.
    pub(super) fn level(&self, slot: usize) -> u64 {
        u64::try_from(self.total(slot) as i64).unwrap_or(0)
    }

    /// Neighbouring counters over all workers.
    pub(super) fn totals<const M: usize>(&self, first: usize) -> [u64; M] {
        std::array::from_fn(|offset| self.total(first + offset))
    }

    pub(super) fn is_used(&self) -> bool {
        self.rows().next().is_some()
    }

    pub(super) fn of_worker(&self, index: usize, slot: usize) -> u64 {
        self.0[index].get().map_or(0, |row| row.read(slot))
    }

    fn rows(&self) -> impl Iterator<Item = &CellRow<N>> {
        self.0.iter().filter_map(|row| row.get()).map(|row| &**row)
    }
}

impl<const N: usize> CellRow<N> {
    /// Adds to one counter. No read-modify-write is needed, because the holder of the [`WorkerToken`] is the only
    /// writer.
    pub(super) fn add(&self, slot: usize, count: u64) {
        let counter = &self.0[slot];
        counter.store(counter.load(Ordering::Relaxed).wrapping_add(count), Ordering::Relaxed);
    }

    fn read(&self, slot: usize) -> u64 {
        self.0[slot].load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workers_add_up() {
        let cells = Cells::<2>::new(3);
        let workers: Vec<_> = (0..3).map(WorkerToken::new).collect();
        assert!(!cells.is_used());
        std::thread::scope(|scope| {
            for worker in workers {
                let cells = &cells;
                scope.spawn(move || {
                    for _ in 0..10_000 {
                        cells.count(&worker, 0);
                    }
                    cells.row(&worker).add(1, worker.index() as u64);
                });
            }
        });
        assert_eq!(cells.totals::<2>(0), [30_000, 3]);
        assert_eq!(cells.of_worker(2, 1), 2);
        assert!(cells.is_used());
    }

    #[test]
    fn a_level_may_rise_on_one_worker_and_fall_on_another() {
        let cells = Cells::<1>::new(2);
        let (first, second) = (WorkerToken::new(0), WorkerToken::new(1));
        cells.shift(&first, 0, 3);
        cells.shift(&second, 0, -1);
        assert_eq!(cells.level(0), 2);
        cells.shift(&second, 0, -4);
        assert_eq!(cells.level(0), 0, "below zero shows as zero");
    }

    #[test]
    fn rows_share_no_cache_line() {
        assert_eq!(align_of::<CellRow<1>>(), 128);
        assert_eq!(size_of::<CellRow<17>>() % 128, 0);
    }
}
