//! Sliding window from two counters: this aligned window and the one before, which weighs by the share of it that
//! still overlaps. `estimate = previous * (period - elapsed) / period + current`, rounded down to a unit: rounded up, an
//! unbroken flow of requests would get one unit less than the limit in each period.
//!
//! It assumes that the previous window was spent evenly; use a sliding log if that is too rough. Window numbers have 40
//! bits (34 years of windows of a millisecond) and counts 44: a limit above 2^44 - 1 counts as that, which never admits
//! more.
//!
//! A count above the limit is a debt: when its window ends, one limit of it weighs as the window before, and the rest
//! counts in the next. The estimate is the same before and behind that moment. Spent and owed together are at most
//! 2^44 - 1 units.

use super::quota::units_of;
use super::{Answer, Outcome, Quota};

/// The counts of two neighbouring windows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Pair {
    /// Number of the current window, 40 bits.
    index: u64,
    previous: u64,
    current: u64,
}

impl Pair {
    /// Two words: a count and half of the index in each.
    pub(super) fn into_words(self) -> [u64; 2] {
        [
            (self.previous << HALF_BITS) | (self.index >> HALF_BITS),
            (self.current << HALF_BITS) | (self.index & HALF_MASK),
        ]
    }

    pub(super) fn from_words([first, second]: [u64; 2]) -> Pair {
        let index = ((first & HALF_MASK) << HALF_BITS) | (second & HALF_MASK);
        Pair { index, previous: first >> HALF_BITS, current: second >> HALF_BITS }
    }

    /// The pair as it is at `now_ns`. A clock behind the pair finds the beginning of the pair's own window.
    pub(super) fn at(self, quota: &Quota, now_ns: u64) -> Pair {
        let index = index_of(quota, now_ns);
        match index.checked_sub(self.index) {
            None | Some(0) => self,
            Some(windows) => self.later(quota, windows),
        }
    }

    /// The pair after so many more windows, at least one.
    fn later(self, quota: &Quota, windows: u64) -> Pair {
        let limit = limit_of(quota);
        let begun = self.current.saturating_sub(limit.saturating_mul(windows - 1));
        let (previous, current) = (begun.min(limit), begun.saturating_sub(limit));
        Pair { index: self.index.saturating_add(windows) & INDEX_MASK, previous, current }
    }

    pub(super) fn take(self, quota: &Quota, cost: u64, now_ns: u64) -> (Pair, Outcome) {
        let pair = self.at(quota, now_ns);
        let limit = limit_of(quota);
        let remaining = limit.saturating_sub(pair.estimate(quota, now_ns));
        let answer = match remaining.checked_sub(cost) {
            Some(remaining) => {
                let taken = Pair { current: pair.current + cost, ..pair };
                return (taken, Outcome::new(Answer::Admitted, remaining, taken.reset_ns(quota, now_ns)));
            }
            None if cost > limit => Answer::Never,
            None => Answer::Later { retry_after_ns: pair.retry_after_ns(quota, cost, now_ns) },
        };
        (self, Outcome::new(answer, remaining, pair.reset_ns(quota, now_ns)))
    }

    /// Counts a denied cost: until the current window alone is spent, no further.
    pub(super) fn count_denied(self, quota: &Quota, cost: u64, now_ns: u64) -> Pair {
        let pair = self.at(quota, now_ns);
        let current = pair.current.saturating_add(cost).min(limit_of(quota).max(pair.current));
        Pair { current, ..pair }
    }

    /// Counts a cost whether it fits or not, in the current window and in those that follow.
    pub(super) fn debit(self, quota: &Quota, cost: u64, now_ns: u64) -> Pair {
        let pair = self.at(quota, now_ns);
        Pair { current: pair.current.saturating_add(cost).min(COUNT_MAX), ..pair }
    }

    /// Undoes a `take` made at `taken_ns`, in whichever of the two windows that was.
    pub(super) fn give_back(self, quota: &Quota, cost: u64, taken_ns: u64) -> Pair {
        match self.index.checked_sub(index_of(quota, taken_ns)) {
            Some(0) => Pair { current: self.current.saturating_sub(cost), ..self },
            Some(1) => Pair { previous: self.previous.saturating_sub(cost), ..self },
            _ => self,
        }
    }

    /// Whether nothing is missing, now or later.
    pub(super) fn is_full(self, quota: &Quota, now_ns: u64) -> bool {
        let pair = self.at(quota, now_ns);
        pair.previous == 0 && pair.current == 0
    }

    pub(super) fn used(self, quota: &Quota, now_ns: u64) -> (u64, u64) {
        (self.at(quota, now_ns).estimate(quota, now_ns), limit_of(quota))
    }

    /// A pair of which that fraction is spent in the current window, rounded up to a unit.
    pub(super) fn with_used(quota: &Quota, used: (u64, u64), now_ns: u64) -> Pair {
        let current = units_of(used, limit_of(quota)).min(COUNT_MAX);
        Pair { index: index_of(quota, now_ns), previous: 0, current }
    }

    fn elapsed_ns(self, quota: &Quota, now_ns: u64) -> u64 {
        if index_of(quota, now_ns) < self.index { 0 } else { now_ns % quota.period_ns() }
    }

    /// Spent as of now, rounded down to a unit.
    fn estimate(self, quota: &Quota, now_ns: u64) -> u64 {
        let period = quota.period_ns().get();
        let overlap = period - self.elapsed_ns(quota, now_ns);
        let weighed = match self.previous.checked_mul(overlap) {
            Some(product) => product / period,
            // At most `previous`, so it fits.
            None => (u128::from(self.previous) * u128::from(overlap) / u128::from(period)) as u64,
        };
        weighed + self.current
    }

    fn reset_ns(self, quota: &Quota, now_ns: u64) -> u64 {
        match (self.previous, self.current) {
            (0, 0) => 0,
            (_, 0) => self.end_ns(quota, 1, now_ns),
            (_, current) => self.end_ns(quota, current.div_ceil(limit_of(quota)).saturating_add(1), now_ns),
        }
    }

    /// From now to the end of so many windows, the current one included.
    fn end_ns(self, quota: &Quota, windows: u64, now_ns: u64) -> u64 {
        self.index.saturating_add(windows).saturating_mul(quota.period_ns().get()).saturating_sub(now_ns)
    }

    /// The first instant at which `cost <= limit` fits. It can be solved for, because the estimate shrinks
    /// linearly within each window.
    fn retry_after_ns(self, quota: &Quota, cost: u64, now_ns: u64) -> u64 {
        let period = quota.period_ns().get();
        let room = limit_of(quota) - cost;
        // In this window `previous` shrinks. If `current` alone is too much, it does so in the next one, or if it is a debt,
        // in the first in which not too much of it is left.
        let windows = self.current.saturating_sub(room).div_ceil(limit_of(quota));
        let then = if windows == 0 { self } else { self.later(quota, windows) };
        let (weighs, room) = (then.previous, room - then.current);
        // weighs * (period - elapsed) < (room + 1) * period, solved for the smallest elapsed.
        let overlap = ((u128::from(room) + 1) * u128::from(period)).div_ceil(u128::from(weighs.max(1))) - 1;
        let elapsed = period - u64::try_from(overlap).unwrap_or(period).min(period);
        self.end_ns(quota, windows, 0).saturating_add(elapsed).saturating_sub(now_ns)
    }
}

fn index_of(quota: &Quota, now_ns: u64) -> u64 {
    (now_ns / quota.period_ns()) & INDEX_MASK
}

fn limit_of(quota: &Quota) -> u64 {
    quota.limit().get().min(COUNT_MAX)
}

const HALF_BITS: u32 = 20;
const HALF_MASK: u64 = (1 << HALF_BITS) - 1;
const INDEX_MASK: u64 = (1 << (2 * HALF_BITS)) - 1;
const COUNT_MAX: u64 = super::quota::PAIR_COUNT_MAX;

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::super::quota::tests;
    use super::*;
    use crate::Algorithm;

    fn quota(limit: u64, period_ns: u64) -> Quota {
        tests::quota(Algorithm::SlidingWindow, limit, period_ns, limit)
    }

    #[test]
    fn the_last_window_weighs_by_its_overlap() {
        let quota = quota(100, 60_000);
        let pair = Pair { index: 9, previous: 80, current: 30 };
        assert_eq!(pair.estimate(&quota, 9 * 60_000 + 24_000), 78);
        assert!(pair.take(&quota, 22, 9 * 60_000 + 24_000).1.is_admitted());
        assert!(!pair.take(&quota, 23, 9 * 60_000 + 24_000).1.is_admitted());
        let full = Pair { index: 9, previous: 100, current: 100 };
        assert_eq!(full.estimate(&quota, 9 * 60_000 + 1_800), 197);
        assert!(!full.take(&quota, 1, 9 * 60_000 + 1_800).1.is_admitted());
    }

    #[test]
    fn even_requests_get_the_whole_limit_and_slower_ones_are_never_refused() {
        for limit in [33, 40, 100, 1_000] {
            // The time between two requests, as a part of what the limit allows.
            for (percent, phase) in [(33, 0), (95, 1), (101, 3), (102, 5), (110, 7)] {
                let quota = quota(limit, 2_000_000);
                let step = 2_000_000 * percent / 100 / limit;
                let times = (0..).map(|number| phase * 777 + number * step).take_while(|at| *at < 40_000_000);
                let (mut state, mut requests, mut admitted) = (Pair::default(), 0, 0);
                for at in times {
                    let (next, outcome) = state.take(&quota, 1, at);
                    (state, requests) = (next, requests + 1);
                    admitted += u64::from(outcome.is_admitted());
                }
                let least = if percent < 100 { 20 * limit } else { requests };
                assert!(admitted >= least, "{limit} at {percent} %: {admitted} of {requests}");
            }
        }
    }

    proptest! {
        #[test]
        fn words_lose_nothing(index in 0..=INDEX_MASK, previous in 0..=COUNT_MAX, current in 0..=COUNT_MAX) {
            let pair = Pair { index, previous, current };
            prop_assert_eq!(Pair::from_words(pair.into_words()), pair);
        }

        /// Beside counts of every window and a fraction that is rounded down once.
        #[test]
        fn equal_to_exact_fractions(
            limit in 1u64..50, period in 1u64..100, probe in 1u64..200,
            steps in prop::collection::vec((0u64..60, 0u64..60), 1..80),
        ) {
            let quota = quota(limit, period);
            let (mut state, mut now) = (Pair::default(), 0);
            let mut spent = HashMap::<u64, u64>::new();
            for (wait, cost) in steps {
                now += wait;
                let fits = |spent: &HashMap<u64, u64>, now: u64| {
                    let count = |index: u64| spent.get(&index).copied().unwrap_or(0);
                    let last = (now / period).checked_sub(1).map_or(0, count);
                    last * (period - now % period) / period + count(now / period) + cost <= limit
                };
                let (next, outcome) = state.take(&quota, cost, now);
                prop_assert_eq!(outcome.is_admitted(), fits(&spent, now));
                match outcome.answer() {
                    Answer::Admitted => {
                        let back = next.give_back(&quota, cost, now);
                        prop_assert_eq!(back.take(&quota, 1, now + probe).1, state.take(&quota, 1, now + probe).1);
                        *spent.entry(now / period).or_default() += cost;
                    }
                    Answer::Later { retry_after_ns } => {
                        prop_assert_eq!(next, state);
                        for at in now..now + retry_after_ns {
                            prop_assert!(!fits(&spent, at) && !state.take(&quota, cost, at).1.is_admitted());
                        }
                        prop_assert!(fits(&spent, now + retry_after_ns));
                        prop_assert!(state.take(&quota, cost, now + retry_after_ns).1.is_admitted());
                    }
                    Answer::Never => prop_assert!(cost > limit),
                }
                state = next;
            }
        }

        #[test]
        fn a_late_give_back_finds_the_window_it_was_taken_in(
            limit in 2u64..50, period in 1u64..100, now in 0u64..1000, wait in 0u64..150, probe in 0u64..200,
        ) {
            let quota = quota(limit, period);
            let (one, _) = Pair::default().take(&quota, 1, now);
            let later = now + wait;
            let with = one.take(&quota, 1, now).0.take(&quota, 0, later).0.give_back(&quota, 1, now);
            let without = one.take(&quota, 0, later).0;
            prop_assert_eq!(with.take(&quota, 1, later + probe).1, without.take(&quota, 1, later + probe).1);
        }

        #[test]
        fn time_going_backwards_gives_nothing(
            limit in 1u64..50, period in 1_000_000u64..1 << 50, now in 0u64..1 << 60, back in 0u64..u64::MAX,
        ) {
            let quota = quota(limit, period);
            let (state, _) = Pair::default().take(&quota, 1, now);
            let left = |now_ns| state.take(&quota, 1, now_ns).1.remaining;
            prop_assert!(left(now.saturating_sub(back)) <= left(now));
        }
    }
}
