//! Token bucket in one word (GCRA, ITU-T I.371).
//!
//! GCRA keeps the time at which an empty bucket would be full again. Here that point is kept on an axis of units
//! rather than of nanoseconds: `position(now) = now * limit * 2^shift / period` is what has been refilled since the
//! clock began, in ticks of `2^-shift` units, and the state is the position at which the bucket will be full again.
//! A cost is then a whole number of ticks whatever the quota, so neither spending nor giving back rounds; the only
//! rounding is in `position`, taken of absolute time so that it cannot add up: over any interval at most `burst` + what
//! refills + less than two ticks is admitted (a tick is under a nanosecond's refill, unless the burst needs coarser
//! ones to fit 62 bits).
//!
//! `limit * 2^shift / period` is kept as a binary fraction of 64 digits, rounded down, so that a position costs one
//! multiplication; by the end of the clock it is at most one tick behind the exact one, never ahead.
//!
//! The clock is read as at most 2^60 ns (36 years), and positions end at 2^62 (of units, where more than four a
//! nanosecond refill: 14 years of ten thousand million a second); after either nothing refills. There is no idle
//! state: a word at or behind the position, 0 above all, is a full bucket.

use super::axis::TICKS_MAX;
use super::{Answer, Outcome, Quota};

#[inline]
pub(super) fn take(state: u64, quota: &Quota, cost: u64, now_ns: u64) -> (u64, Outcome) {
    let axis = quota.axis();
    let position = axis.position(now_ns);
    let taken = state.max(position).saturating_add(axis.ticks(cost));
    let missing = taken - position;
    if missing > axis.capacity || cost > quota.burst().get() {
        return (state, axis.denied(state, position, quota.burst().get(), cost, now_ns));
    }
    let remaining = (axis.capacity - missing) >> axis.shift;
    (taken, Outcome::new(Answer::Admitted, remaining, axis.reset_ns(missing)))
}

/// Counts a denied cost: empties the bucket at most, never into debt.
pub(super) fn count_denied(state: u64, quota: &Quota, cost: u64, now_ns: u64) -> u64 {
    let axis = quota.axis();
    let position = axis.position(now_ns);
    let full_at = state.max(position);
    full_at.saturating_add(axis.ticks(cost)).min(full_at.max(position + axis.capacity))
}

/// Spends a cost whether it fits or not. A debt is held until it is refilled, to the end of the axis and twice that.
pub(super) fn debit(state: u64, quota: &Quota, cost: u64, now_ns: u64) -> u64 {
    let axis = quota.axis();
    let position = axis.position(now_ns);
    let full_at = state.max(position);
    // A cost on top of it still fits a word, because it is at most `TICKS_MAX`, a quarter of one.
    full_at.saturating_add(axis.ticks(cost)).min(full_at.max(3 * TICKS_MAX))
}

/// Undoes a `take`: the bucket is what it would be without it, at any later time.
pub(super) fn give_back(state: u64, quota: &Quota, cost: u64) -> u64 {
    state.saturating_sub(quota.axis().ticks(cost))
}

pub(super) fn is_full(state: u64, quota: &Quota, now_ns: u64) -> bool {
    state <= quota.axis().position(now_ns)
}

pub(super) fn used(state: u64, quota: &Quota, now_ns: u64) -> (u64, u64) {
    let axis = quota.axis();
    (state.saturating_sub(axis.position(now_ns)), axis.capacity)
}

/// A bucket of which that fraction is missing, rounded up to a tick.
pub(super) fn with_used(quota: &Quota, (used, whole): (u64, u64), now_ns: u64) -> u64 {
    let axis = quota.axis();
    let missing = (u128::from(used) * u128::from(axis.capacity)).div_ceil(u128::from(whole));
    // As far as `debit` goes.
    let most = 3 * TICKS_MAX - axis.position(now_ns);
    axis.position(now_ns) + missing.min(u128::from(most)) as u64
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::axis::NOW_MAX_NS;
    use super::super::quota::tests;
    use super::*;
    use crate::Algorithm;

    const SECOND: u64 = 1_000_000_000;

    fn quota(limit: u64, period_ns: u64, burst: u64) -> Quota {
        tests::quota(Algorithm::TokenBucket, limit, period_ns, burst)
    }

    fn peek(state: u64, quota: &Quota, cost: u64, now_ns: u64) -> Outcome {
        take(state, quota, cost, now_ns).1
    }

    #[test]
    fn a_hundred_a_minute_with_burst_20() {
        let (quota, start) = (quota(100, 60 * SECOND, 20), 3_600 * SECOND + 12_345_677);
        let mut state = 0;
        let mut spend = |units: u64, now_ns: u64| {
            let mut left = None;
            for _ in 0..units {
                let (next, outcome) = take(state, &quota, 1, now_ns);
                assert!(outcome.is_admitted());
                (state, left) = (next, Some(outcome.remaining));
            }
            (left, peek(state, &quota, 0, now_ns).remaining)
        };
        assert_eq!(spend(15, start).0, Some(5));
        assert_eq!(spend(0, start + 6 * SECOND).1, 15);
        assert_eq!(spend(12, start + 6 * SECOND).0, Some(3));
        // 2 a second against 1.67 a second lose a third of a unit a second: 3 units last 9 seconds.
        let from = start + 6 * SECOND;
        let first_denied = (1..100).find(|n| {
            let (next, outcome) = take(state, &quota, 1, from + n * SECOND / 2);
            state = next;
            !outcome.is_admitted()
        });
        assert_eq!(first_denied, Some(19));
    }

    #[test]
    fn more_than_the_burst_is_never_admitted() {
        let quota = quota(100, SECOND, 20);
        assert_eq!(take(0, &quota, 21, SECOND).1.answer(), Answer::Never);
        assert_eq!(take(0, &quota, u64::MAX, SECOND).1.answer(), Answer::Never);
        assert!(take(0, &quota, 20, SECOND).1.is_admitted());
    }

    #[test]
    fn a_denied_cost_that_counts_empties_and_makes_no_debt() {
        let quota = quota(1, SECOND, 5);
        let now = 10 * SECOND;
        let (state, _) = take(0, &quota, 3, now);
        let counted = count_denied(state, &quota, 4, now);
        assert_eq!(peek(counted, &quota, 1, now).answer(), Answer::Later { retry_after_ns: SECOND });
        assert_eq!(count_denied(counted, &quota, 4, now), counted);
    }

    fn any_quota() -> impl Strategy<Value = Quota> {
        let magnitude = |bits: u32| (0..bits).prop_flat_map(|bit| (1u64 << bit)..=(2 << bit) - 1);
        (magnitude(40), magnitude(57), magnitude(40)).prop_map(|(l, p, b)| quota(l, p, b))
    }

    proptest! {
        /// Beside a bucket of exact fractions: never more than two ticks apart, never a tick that adds up.
        #[test]
        fn no_more_than_burst_and_refill_in_any_interval(
            quota in any_quota(),
            steps in prop::collection::vec((0u64..1 << 50, 1u64..50), 1..60),
        ) {
            let (limit, period) = (i128::from(quota.limit().get()), i128::from(quota.period_ns().get()));
            let ticks = 2 * ((period >> quota.axis().shift) + 1);
            let (mut state, mut now) = (0, 0u64);
            // Exact: units times the period, so that a nanosecond refills `limit`.
            let full = i128::from(quota.burst().get()) * period;
            let mut exact = full;
            for (wait, cost) in steps {
                let wait = wait % (quota.period_ns().get() / quota.limit().get() + 2).saturating_mul(3);
                now += wait;
                exact = full.min(exact + i128::from(wait) * limit);
                let (next, outcome) = take(state, &quota, cost, now);
                state = next;
                let price = i128::from(cost) * period;
                if outcome.is_admitted() {
                    prop_assert!(exact + ticks >= price, "more than two ticks in the client's favour");
                    exact -= price;
                } else if price <= full {
                    prop_assert!(exact < price + ticks, "refused although two ticks more than needed was there");
                }
            }
        }

        #[test]
        fn denied_until_retry_after_and_admitted_at_it(
            quota in any_quota(), cost in 1u64..1 << 41, now in 1u64..1 << 55, used in 0.0f64..=1.0,
            early in 1u64..1 << 40,
        ) {
            let spent = ((quota.burst().get() as f64 * used) as u64).min(quota.burst().get());
            let (state, _) = take(0, &quota, spent, now);
            let (unchanged, outcome) = take(state, &quota, cost, now);
            match outcome.answer() {
                Answer::Admitted => {}
                Answer::Never => prop_assert!(cost > quota.burst().get()),
                Answer::Later { retry_after_ns } => {
                    prop_assert_eq!(unchanged, state);
                    let at = now + retry_after_ns;
                    if at <= NOW_MAX_NS && quota.axis().position(at) < TICKS_MAX {
                        prop_assert!(take(state, &quota, cost, at).1.is_admitted());
                        prop_assert!(!take(state, &quota, cost, at - 1).1.is_admitted());
                        let before = at - early.min(retry_after_ns);
                        prop_assert!(!take(state, &quota, cost, before).1.is_admitted());
                    }
                }
            }
        }

        #[test]
        fn giving_back_is_as_if_never_taken(
            quota in any_quota(), first in 1u64..1000, second in 1u64..1000, now in 1u64..1 << 55,
            later in 0u64..1 << 40,
        ) {
            let (before, _) = take(0, &quota, first, now);
            let (taken, outcome) = take(before, &quota, second, now);
            let back = if outcome.is_admitted() { give_back(taken, &quota, second) } else { taken };
            let at = now + later;
            prop_assert_eq!(peek(back, &quota, 1, at), peek(before, &quota, 1, at));
        }

        #[test]
        fn time_going_backwards_gives_nothing(
            quota in any_quota(), costs in prop::collection::vec(1u64..1000, 1..10), now in 1u64..u64::MAX,
            back in 0u64..u64::MAX,
        ) {
            let state = costs.iter().fold(0, |state, cost| take(state, &quota, *cost, now).0);
            let left = |now_ns| peek(state, &quota, 0, now_ns).remaining;
            prop_assert!(left(now.saturating_sub(back)) <= left(now));
        }
    }
}
