//! Draws which decisions are sampled: a share of the admitted, a share of the refused, and so many a second at most.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::record::sampler::{WHOLE_PPM, is_drawn};

/// Which decisions are sampled. Part of the snapshot, so a reload replaces it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DecisionSampling {
    /// Parts per million of admitted requests.
    pub admitted_ppm: u32,
    /// Parts per million of refused requests.
    pub denied_ppm: u32,
    /// The most in a second, of the whole process; admitted requests take at most half of it.
    pub per_second_max: u32,
}

impl DecisionSampling {
    pub const OFF: DecisionSampling = DecisionSampling { admitted_ppm: 0, denied_ppm: 0, per_second_max: 0 };

    /// Draws one. `drawn` counts the draws of a worker.
    #[inline]
    pub(super) fn draws(&self, is_admitted: bool, drawn: &mut u64) -> bool {
        let ppm = if is_admitted { self.admitted_ppm } else { self.denied_ppm };
        ppm > 0 && is_drawn(ppm, drawn)
    }

    pub(super) fn room(&self, is_admitted: bool) -> u32 {
        // Admitted requests take at most half, so that refusals find room beside them.
        if is_admitted { self.per_second_max.div_ceil(2) } else { self.per_second_max }
    }
}

impl Default for DecisionSampling {
    /// Every refusal, so that a person who has only a request's id learns why; no admission.
    fn default() -> DecisionSampling {
        DecisionSampling { admitted_ppm: 0, denied_ppm: WHOLE_PPM, per_second_max: PER_SECOND }
    }
}

/// How many samples were taken in the second that runs. Once it is full, a taker only reads it, so that a flood of
/// refusals does not pass the word from core to core.
#[derive(Debug, Default)]
pub(super) struct SampleBudget(AtomicU64);

impl SampleBudget {
    /// Takes one of `max` in this second of the monotonic clock; `false` if all are taken.
    pub(super) fn take(&self, second: u64, max: u32) -> bool {
        let mut word = self.0.load(Ordering::Relaxed);
        loop {
            // The later second counts for both, because a worker may be a moment behind another.
            let next = word.max(second << 32);
            if next & 0xffff_ffff >= u64::from(max) {
                return false;
            }
            match self.0.compare_exchange_weak(word, next + 1, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return true,
                Err(now) => word = now,
            }
        }
    }
}

/// Samples a second at most if nothing is said.
const PER_SECOND: u32 = 1_000;
/// The highest bound there may be: the log looks at the memory five times a second, and that keeps 10,000. The database
/// looks once, so that what is beyond those is counted as lost.
pub const PER_SECOND_MAX: u32 = 20_000;

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn a_second_has_its_bound_whoever_takes() {
        let budget = SampleBudget::default();
        let take = |second, times: usize| (0..times).filter(|_| budget.take(second, 5)).count();
        assert_eq!(
            [take(1, 9), take(1, 9), take(2, 3), take(1, 9), take(2, 9), take(3, 9)],
            [5, 0, 3, 2, 0, 5]
        );
        let budget = SampleBudget::default();
        let taken: usize = thread::scope(|scope| {
            let threads: Vec<_> = (0..4)
                .map(|_| scope.spawn(|| (0..10_000).filter(|_| budget.take(7, 1_000)).count()))
                .collect();
            threads.into_iter().map(|thread| thread.join().expect("no panic")).sum()
        });
        assert_eq!(taken, 1_000);
    }

    #[test]
    fn admitted_requests_leave_half_to_refusals() {
        let (draws, budget) =
            (DecisionSampling { per_second_max: 10, ..DecisionSampling::default() }, SampleBudget::default());
        let take = |is_admitted| (0..20).filter(|_| budget.take(1, draws.room(is_admitted))).count();
        assert_eq!([take(true), take(false)], [5, 5]);
    }

    #[test]
    fn shares_are_drawn() {
        let draws = DecisionSampling { admitted_ppm: 10_000, ..DecisionSampling::default() };
        let count = |draws: DecisionSampling, is_admitted| {
            let mut drawn = 0;
            (0..100_000).filter(|_| draws.draws(is_admitted, &mut drawn)).count()
        };
        assert_eq!(count(draws, false), 100_000);
        assert!((800..1_200).contains(&count(draws, true)));
        assert_eq!(
            [
                count(DecisionSampling::OFF, true),
                count(DecisionSampling::OFF, false),
                count(DecisionSampling::default(), true)
            ],
            [0; 3]
        );
    }
}
