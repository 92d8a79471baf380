//! Leaky bucket as a queue, which shapes traffic: requests faster than `limit` in `period` are delayed, in a queue of at
//! most `burst` units; beyond that they are refused.
//!
//! The arithmetic is the token bucket's, on the same axis: a bucket of `burst` units and the one that is being served.
//! The units missing from it are those queued before a request, and its delay is the time until they have drained. So
//! the first of a volley goes on at once, the next after one unit's time, the last after `burst` units' time. Refunds,
//! counted denials and rescaling are those of the token bucket.

use super::{Outcome, Quota};

/// Takes a place in the queue if there is one; the outcome holds the delay.
pub(super) fn take(state: u64, quota: &Quota, cost: u64, now_ns: u64) -> (u64, Outcome) {
    let axis = quota.axis();
    let position = axis.position(now_ns);
    let turn = state.max(position);
    let taken = turn.saturating_add(axis.ticks(cost));
    let missing = taken - position;
    let units = quota.capacity();
    if missing > axis.capacity || cost > units {
        return (state, axis.denied(state, position, units, cost, now_ns));
    }
    let delay_ns = if turn == position { 0 } else { axis.wait_ns(turn, now_ns) };
    let remaining = (axis.capacity - missing) >> axis.shift;
    (taken, Outcome::delayed(delay_ns, remaining, axis.reset_ns(missing)))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::quota::tests;
    use super::*;
    use crate::{Algorithm, Answer};

    const SECOND: u64 = 1_000_000_000;
    const START: u64 = 3_600 * SECOND;

    fn quota(limit: u64, period_ns: u64, queue: u64) -> Quota {
        tests::quota(Algorithm::LeakyBucket, limit, period_ns, queue)
    }

    #[test]
    fn a_volley_leaves_one_by_one_and_the_rest_is_refused() {
        let quota = quota(10, SECOND, 3);
        let mut state = 0;
        for turn in 0..4 {
            let (next, outcome) = take(state, &quota, 1, START);
            assert!(outcome.is_admitted());
            assert_eq!((outcome.delay_ns(), outcome.remaining), (turn * SECOND / 10, 3 - turn));
            state = next;
        }
        let refused = take(state, &quota, 1, START).1;
        assert_eq!(
            (refused.answer(), refused.delay_ns()),
            (Answer::Later { retry_after_ns: SECOND / 10 }, 0)
        );
        // A place has come free, and it is the last one.
        let later = take(state, &quota, 1, START + SECOND / 10).1;
        assert_eq!((later.is_admitted(), later.delay_ns()), (true, 3 * SECOND / 10));
        assert_eq!(take(state, &quota, 5, START).1.answer(), Answer::Never);
    }

    proptest! {
        /// Departures are never closer than the rate allows, nobody waits longer than the queue is, and whoever is
        /// refused met a full queue.
        #[test]
        fn departures_keep_their_distance(
            limit in 1u64..1_000, period in 1_000_000u64..1 << 40, queue in 1u64..50,
            steps in prop::collection::vec((0u64..3_000, 1u64..4), 1..80),
        ) {
            let quota = quota(limit, period, queue);
            let each = period as f64 / limit as f64;
            let (mut state, mut now) = (0, START);
            let mut free_at = START as f64;
            for (wait, cost) in steps {
                now += (wait as f64 * each / 1_000.0) as u64;
                let (next, outcome) = take(state, &quota, cost, now);
                let before = (free_at - now as f64).max(0.0);
                let tolerance = each / 1_000.0 + 4.0;
                if outcome.is_admitted() {
                    prop_assert!((outcome.delay_ns() as f64 - before).abs() <= tolerance);
                    free_at = now as f64 + before + cost as f64 * each;
                    state = next;
                } else {
                    prop_assert_eq!(next, state);
                    prop_assert!(before / each + cost as f64 >= (queue + 1) as f64 - tolerance / each);
                }
            }
        }
    }
}
