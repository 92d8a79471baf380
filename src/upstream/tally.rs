//! What one server's answers are like: counted by each worker in a row of its own, and added up now and then by the control
//! runtime. A request takes no lock and shares no cache line for it.

use std::cell::Cell;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// One worker's row of one server. It is neither cloned nor shared, so the row has one writer and counting needs no
/// read-modify-write.
#[derive(Debug)]
pub struct ServerTally {
    row: Arc<TallyRow>,
    not_sync: PhantomData<Cell<()>>,
}

/// Aligned to two cache lines, because the prefetcher loads them in pairs.
#[derive(Debug, Default)]
#[repr(align(128))]
struct TallyRow {
    answers: AtomicU64,
    failures: AtomicU64,
    log_ns: AtomicU64,
}

/// What was seen of a server over some time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TallyCounts {
    pub answers: u64,
    /// Requests that failed, as for ejections.
    pub failures: u64,
    /// The logarithms of the good answers' times, added up; see `log2`.
    pub log_ns: u64,
}

impl TallyCounts {
    /// All requests that had an end.
    pub fn requests(&self) -> u64 {
        self.answers + self.failures
    }

    /// The part of the requests that was answered well, 0 to 1; 1 if there was none.
    pub fn success_rate(&self) -> f64 {
        if self.requests() == 0 { 1.0 } else { self.answers as f64 / self.requests() as f64 }
    }

    /// The geometric mean of the good answers' times to their first byte, nanoseconds: a few answers that took for ever
    /// move it little. `None` without an answer.
    pub fn first_byte_ns(&self) -> Option<f64> {
        (self.answers > 0).then(|| (self.log_ns as f64 / STEPS as f64 / self.answers as f64).exp2())
    }

    fn plus(self, other: TallyCounts) -> TallyCounts {
        TallyCounts {
            answers: self.answers.wrapping_add(other.answers),
            failures: self.failures.wrapping_add(other.failures),
            log_ns: self.log_ns.wrapping_add(other.log_ns),
        }
    }

    fn minus(self, other: TallyCounts) -> TallyCounts {
        TallyCounts {
            answers: self.answers.wrapping_sub(other.answers),
            failures: self.failures.wrapping_sub(other.failures),
            log_ns: self.log_ns.wrapping_sub(other.log_ns),
        }
    }
}

impl ServerTally {
    /// A good answer came, so long after its request was sent.
    pub fn answered(&self, first_byte_ns: u64) {
        add(&self.row.answers, 1);
        add(&self.row.log_ns, log2(first_byte_ns));
    }

    pub fn failed(&self) {
        add(&self.row.failures, 1);
    }
}

fn add(counter: &AtomicU64, count: u64) {
    counter.store(counter.load(Ordering::Relaxed).wrapping_add(count), Ordering::Relaxed);
}

/// The binary logarithm in steps of 1/256, without floating point: between powers of two along `x + 0.344 x (1 - x)`, which
/// is less than 1 % off.
fn log2(ns: u64) -> u64 {
    let ns = ns.max(1);
    let whole = ns.ilog2();
    // The eight bits behind the highest.
    let fraction = (ns << (63 - whole) >> 55) & (STEPS - 1);
    u64::from(whole) * STEPS + fraction + (fraction * (STEPS - fraction) * BEND / (STEPS * STEPS))
}

const STEPS: u64 = 256;
/// 0.344 in steps.
const BEND: u64 = 88;

/// All workers' rows of one server.
#[derive(Debug, Default)]
pub struct Tallies(Mutex<TallyRows>);

#[derive(Debug, Default)]
struct TallyRows {
    rows: Vec<Arc<TallyRow>>,
    /// Counted in rows whose worker has given them up.
    gone: TallyCounts,
    /// All that was counted until the last interval ended.
    before: TallyCounts,
    last: TallyCounts,
}

impl Tallies {
    pub fn row(&self) -> ServerTally {
        let row = Arc::<TallyRow>::default();
        self.kept().rows.push(Arc::clone(&row));
        ServerTally { row, not_sync: PhantomData }
    }

    /// Ends an interval: what was counted in it.
    pub fn end_interval(&self) -> TallyCounts {
        let mut kept = self.kept();
        let TallyRows { rows, gone, .. } = &mut *kept;
        rows.retain(|row| {
            let is_used = Arc::strong_count(row) > 1;
            if !is_used {
                *gone = gone.plus(row.read());
            }
            is_used
        });
        let all = rows.iter().fold(*gone, |sum, row| sum.plus(row.read()));
        kept.last = all.minus(kept.before);
        kept.before = all;
        kept.last
    }

    /// What was counted in the last interval that has ended.
    pub fn last_interval(&self) -> TallyCounts {
        self.kept().last
    }

    fn kept(&self) -> MutexGuard<'_, TallyRows> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl TallyRow {
    fn read(&self) -> TallyCounts {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        TallyCounts {
            answers: read(&self.answers),
            failures: read(&self.failures),
            log_ns: read(&self.log_ns),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_add_up_by_interval_and_outlive_their_workers() {
        let tallies = Tallies::default();
        let (one, two) = (tallies.row(), tallies.row());
        (0..3).for_each(|_| one.answered(1_000_000));
        two.failed();
        let seen = tallies.end_interval();
        assert_eq!((seen.answers, seen.failures, seen.success_rate()), (3, 1, 0.75));
        two.failed();
        drop(two);
        assert_eq!(tallies.last_interval(), seen);
        assert_eq!(tallies.end_interval(), TallyCounts { failures: 1, ..TallyCounts::default() });
        assert_eq!(tallies.end_interval(), TallyCounts::default());
        one.answered(2_000_000);
        assert_eq!(tallies.end_interval().answers, 1);
    }

    #[test]
    fn the_time_to_the_first_byte_is_that_of_most_answers() {
        let tallies = Tallies::default();
        let row = tallies.row();
        (0..100).for_each(|_| row.answered(5_000_000));
        let usual = tallies.end_interval().first_byte_ns().expect("there were answers");
        assert!((4.7e6..5.3e6).contains(&usual), "{usual}");
        // One that took three thousand times as long.
        (0..99).for_each(|_| row.answered(5_000_000));
        row.answered(15_000_000_000);
        let with_one = tallies.end_interval().first_byte_ns().expect("there were answers");
        assert!(with_one < usual * 1.1, "{with_one}");
        assert_eq!(tallies.end_interval().first_byte_ns(), None);
    }

    #[test]
    fn logarithms_rise_and_are_near() {
        let mut last = 0;
        for ns in
            (0..64).flat_map(|bit| [1u64 << bit, (1 << bit) + (1 << bit) / 3, (1 << bit) + (1 << bit) / 2])
        {
            let log = log2(ns);
            assert!(log >= last && (log as f64 / 256.0 - (ns as f64).log2()).abs() < 0.02, "{ns}: {log}");
            last = log;
        }
        assert_eq!(log2(0), 0);
    }
}
