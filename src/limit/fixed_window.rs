//! Fixed window: a count that starts again at every multiple of the period on the given clock, or where a window of the
//! calendar begins.
//!
//! Up to twice the limit can pass around a boundary; use a sliding window if that is too much. A count above the limit is
//! a debt: each window that ends takes one limit of it, and the rest counts in the next.

use super::quota::units_of;
use super::{Answer, Outcome, Quota};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counter {
    /// Which window; of the calendar, when units were last spent, by which another zone or anchor finds them, as in Redis.
    pub(super) place: u64,
    pub(super) count: u64,
}

impl Counter {
    /// The counter as it is at `now_ns`. A clock behind the counter finds the counter's own window.
    pub(super) fn at(self, quota: &Quota, now_ns: u64) -> Counter {
        let index = quota.window_at(now_ns);
        // The one of the calendar that is over is looked for only if it left a debt.
        let ended = match quota.calendar() {
            Some(_) if self.count <= limit_of(quota) => (self.place < quota.window_start_ns(index)).into(),
            _ => index.saturating_sub(self.window(quota)),
        };
        let place = if ended == 0 { self.place } else { place_at(quota, now_ns) };
        Counter { place, count: self.count.saturating_sub(limit_of(quota).saturating_mul(ended)) }
    }

    pub(super) fn window(self, quota: &Quota) -> u64 {
        quota.calendar().map_or(self.place, |_| quota.window_at(self.place))
    }

    /// The counter, which is of now, with another count.
    fn counting(self, quota: &Quota, count: u64, now_ns: u64) -> Counter {
        let place = if count > self.count { self.place.max(place_at(quota, now_ns)) } else { self.place };
        Counter { place, count }
    }

    pub(super) fn take(self, quota: &Quota, cost: u64, now_ns: u64) -> (Counter, Outcome) {
        let current = self.at(quota, now_ns);
        let limit = limit_of(quota);
        let remaining = limit.saturating_sub(current.count);
        let answer = match remaining.checked_sub(cost) {
            Some(remaining) => {
                let taken = current.counting(quota, current.count + cost, now_ns);
                return (taken, Outcome::new(Answer::Admitted, remaining, taken.reset_ns(quota, now_ns)));
            }
            None if cost > limit => Answer::Never,
            None => {
                // Windows that have to end, until what is left of the count leaves room.
                let windows = (current.count - (limit - cost)).div_ceil(limit);
                Answer::Later { retry_after_ns: current.end_ns(quota, windows).saturating_sub(now_ns) }
            }
        };
        (self, Outcome::new(answer, remaining, current.reset_ns(quota, now_ns)))
    }

    /// Counts a denied cost: until the window is spent, no further.
    pub(super) fn count_denied(self, quota: &Quota, cost: u64, now_ns: u64) -> Counter {
        let current = self.at(quota, now_ns);
        let count = current.count.saturating_add(cost).min(limit_of(quota).max(current.count));
        current.counting(quota, count, now_ns)
    }

    /// Counts a cost whether it fits or not; what is over counts in the windows that follow.
    pub(super) fn debit(self, quota: &Quota, cost: u64, now_ns: u64) -> Counter {
        let current = self.at(quota, now_ns);
        current.counting(quota, current.count.saturating_add(cost), now_ns)
    }

    /// Undoes a `take` made at `taken_ns`; a window that is over needs nothing back. If it ended in debt, that stays as it
    /// is, because nothing tells it from what was spent since.
    pub(super) fn give_back(self, quota: &Quota, cost: u64, taken_ns: u64) -> Counter {
        if quota.window_at(taken_ns) != self.window(quota) {
            return self;
        }
        Counter { count: self.count.saturating_sub(cost), ..self }
    }

    pub(super) fn is_full(self, quota: &Quota, now_ns: u64) -> bool {
        self.at(quota, now_ns).count == 0
    }

    pub(super) fn used(self, quota: &Quota, now_ns: u64) -> (u64, u64) {
        (self.at(quota, now_ns).count, limit_of(quota))
    }

    /// A counter of which that fraction is spent, rounded up to a unit.
    pub(super) fn with_used(quota: &Quota, used: (u64, u64), now_ns: u64) -> Counter {
        Counter { place: place_at(quota, now_ns), count: units_of(used, limit_of(quota)) }
    }

    fn reset_ns(self, quota: &Quota, now_ns: u64) -> u64 {
        if self.count == 0 {
            return 0;
        }
        self.end_ns(quota, self.count.div_ceil(limit_of(quota))).saturating_sub(now_ns)
    }

    /// When so many windows have ended, its own included.
    fn end_ns(self, quota: &Quota, windows: u64) -> u64 {
        quota.window_start_ns(self.window(quota).saturating_add(windows))
    }
}

fn place_at(quota: &Quota, now_ns: u64) -> u64 {
    quota.calendar().map_or_else(|| quota.window_at(now_ns), |_| now_ns)
}

fn limit_of(quota: &Quota) -> u64 {
    quota.limit().get()
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::super::quota::tests;
    use super::*;
    use crate::Algorithm;

    fn quota(limit: u64, period_ns: u64) -> Quota {
        tests::quota(Algorithm::FixedWindow, limit, period_ns, limit)
    }

    #[test]
    fn a_debt_takes_one_limit_of_each_window_that_follows() {
        let quota = quota(10, 1_000);
        let owing = Counter::default().take(&quota, 4, 500).0.debit(&quota, 29, 500);
        let later = |cost, now_ns| owing.take(&quota, cost, now_ns).1;
        assert_eq!(later(1, 500).answer(), Answer::Later { retry_after_ns: 2_500 });
        assert_eq!(later(8, 500).answer(), Answer::Later { retry_after_ns: 3_500 });
        assert_eq!((later(7, 3_000).remaining, later(7, 3_000).is_admitted()), (0, true));
        assert_eq!((later(0, 1_999).reset_ns, owing.is_full(&quota, 3_999)), (2_001, false));
        assert!(owing.is_full(&quota, 4_000));
    }

    #[test]
    fn a_window_holds_its_limit_and_ends_on_time() {
        let quota = quota(10, 1000);
        let (state, outcome) = Counter::default().take(&quota, 10, 5_400);
        assert_eq!((outcome.remaining, outcome.reset_ns), (0, 600));
        let denied = state.take(&quota, 1, 5_900).1;
        assert_eq!(denied.answer(), Answer::Later { retry_after_ns: 100 });
        assert!(state.take(&quota, 10, 6_000).1.is_admitted());
        assert_eq!(state.take(&quota, 11, 6_000).1.answer(), Answer::Never);
    }

    proptest! {
        #[test]
        fn equal_to_a_count_per_window(
            limit in 1u64..50, period in 1u64..100,
            steps in prop::collection::vec((0u64..40, 0u64..60), 1..80),
        ) {
            let quota = quota(limit, period);
            let (mut state, mut now, mut spent) = (Counter::default(), 0, HashMap::<u64, u64>::new());
            for (wait, cost) in steps {
                now += wait;
                let window = spent.entry(now / period).or_default();
                let (next, outcome) = state.take(&quota, cost, now);
                prop_assert_eq!(outcome.is_admitted(), *window + cost <= limit);
                if let Answer::Later { retry_after_ns } = outcome.answer() {
                    prop_assert_eq!(next, state);
                    prop_assert!(!state.take(&quota, cost, now + retry_after_ns - 1).1.is_admitted());
                    prop_assert!(state.take(&quota, cost, now + retry_after_ns).1.is_admitted());
                } else if outcome.is_admitted() {
                    let back = next.give_back(&quota, cost, now);
                    prop_assert_eq!(back.take(&quota, 1, now).1, state.take(&quota, 1, now).1);
                    *window += cost;
                }
                prop_assert_eq!(outcome.remaining, limit - *window);
                state = next;
            }
        }

        #[test]
        fn time_going_backwards_gives_nothing(
            limit in 1u64..50, period in 1u64..u64::MAX, now in 0u64..u64::MAX, back in 0u64..u64::MAX,
        ) {
            let quota = quota(limit, period);
            let (state, _) = Counter::default().take(&quota, 1, now);
            let left = |now_ns| state.take(&quota, 1, now_ns).1.remaining;
            prop_assert!(left(now.saturating_sub(back)) <= left(now));
        }
    }
}
