//! Token bucket in the form of the generic cell rate algorithm (ITU-T I.371, "virtual scheduling"): the state is the
//! theoretical arrival time (TAT), the moment from which the bucket would be full again.
//!
//! A unit is one emission interval of time; a request of `c` units moves the TAT by `c` intervals, and fits while the
//! TAT stays within the capacity (burst intervals) of now. Time is counted in ticks of 1/16 ns, and the interval
//! `period / limit` is rounded up to whole ticks: the rate is never above what was written, and below it by at most
//! `limit / (16 period_ns)` (6 parts in 100,000 at a million a second). Ticks fill 64 bits after 36 years.

use super::{Answer, Outcome, Quota, State};

/// Asks for `cost` units.
pub fn take(state: State, quota: &Quota, cost: u64, now_ns: u64) -> (State, Outcome) {
    let now = ticks(now_ns);
    let interval = interval(quota);
    let capacity = interval.saturating_mul(quota.burst.get());
    // A TAT in the past is a full bucket: what was not used is not kept.
    let tat = state.word.max(now);
    let next = tat.saturating_add(interval.saturating_mul(cost));
    let (state, tat, answer) = if next - now <= capacity {
        (State { word: next, past: 0 }, next, Answer::Admitted)
    } else if cost > quota.burst.get() {
        (state, tat, Answer::Never)
    } else {
        (state, tat, Answer::Later(nanoseconds(next - now - capacity)))
    };
    let remaining = capacity.saturating_sub(tat - now) / interval;
    let outcome = Outcome { answer, limit: quota.limit.get(), remaining, reset_ns: nanoseconds(tat - now) };
    (state, outcome)
}

/// Counts `cost` units; the bucket goes no deeper than empty.
pub fn charge(state: State, quota: &Quota, cost: u64, now_ns: u64) -> State {
    let now = ticks(now_ns);
    let interval = interval(quota);
    let capacity = interval.saturating_mul(quota.burst.get());
    let next = state.word.max(now).saturating_add(interval.saturating_mul(cost));
    State { word: next.min(now.saturating_add(capacity)).max(state.word), past: 0 }
}

/// Returns `cost` units.
pub fn give_back(state: State, quota: &Quota, cost: u64) -> State {
    State { word: state.word.saturating_sub(interval(quota).saturating_mul(cost)), past: 0 }
}

/// Whether the bucket is full again.
pub fn is_full(state: State, now_ns: u64) -> bool {
    state.word <= ticks(now_ns)
}

/// Ticks a unit takes to come back, rounded up, at least one.
fn interval(quota: &Quota) -> u64 {
    match quota.period_ns.get().checked_mul(TICKS) {
        Some(period) => period.div_ceil(quota.limit.get()),
        None => {
            let period = u128::from(quota.period_ns.get()) * u128::from(TICKS);
            u64::try_from(period.div_ceil(u128::from(quota.limit.get()))).unwrap_or(u64::MAX)
        }
    }
}

fn ticks(now_ns: u64) -> u64 {
    now_ns.saturating_mul(TICKS)
}

/// Rounded up: a promise of when to come back is never early.
fn nanoseconds(ticks: u64) -> u64 {
    ticks.div_ceil(TICKS)
}

/// Ticks of a nanosecond.
const TICKS: u64 = 16;

#[cfg(test)]
mod tests {
    use super::super::quota::tests::{quota, start};
    use super::super::{Algorithm, rescale};
    use super::*;
    use proptest::prelude::*;

    const SECOND: u64 = 1_000_000_000;

    fn hundred_a_minute() -> Quota {
        quota(Algorithm::TokenBucket, 100, 60 * SECOND, 20)
    }

    /// Takes one unit `count` times; how many were admitted and what is left.
    fn volley(state: &mut State, quota: &Quota, count: u32, now_ns: u64) -> (u32, u64) {
        let mut admitted = 0;
        let mut remaining = 0;
        for _ in 0..count {
            let (next, outcome) = take(*state, quota, 1, now_ns);
            *state = next;
            admitted += u32::from(outcome.is_admitted());
            remaining = outcome.remaining;
        }
        (admitted, remaining)
    }

    #[test]
    fn the_worked_example_holds_to_the_token() {
        let quota = hundred_a_minute();
        let mut state = State::FRESH;
        assert_eq!(volley(&mut state, &quota, 15, start()), (15, 5));
        let later = start() + 6 * SECOND;
        assert_eq!(take(state, &quota, 0, later).1.remaining, 15);
        assert_eq!(volley(&mut state, &quota, 12, later), (12, 3));
        // 2/s against 1.67/s: three left over and a third of a unit lost each second.
        let empty = (1..).find(|&half| volley(&mut state, &quota, 1, later + half * SECOND / 2).0 == 0);
        let seconds = empty.expect("it empties") as f64 / 2.0;
        assert!((8.0..=10.5).contains(&seconds), "{seconds}");
    }

    #[test]
    fn a_cost_over_the_burst_is_never_admitted() {
        let quota = hundred_a_minute();
        let (state, outcome) = take(State::FRESH, &quota, 21, start());
        assert_eq!((state, outcome.answer), (State::FRESH, Answer::Never));
        assert_eq!(take(State::FRESH, &quota, u64::MAX, start()).1.answer, Answer::Never);
    }

    #[test]
    fn a_changed_limit_keeps_the_share_that_is_used() {
        let old = hundred_a_minute();
        let new = quota(Algorithm::TokenBucket, 1_000, 60 * SECOND, 200);
        let mut state = State::FRESH;
        volley(&mut state, &old, 15, start());
        let carried = rescale(state, &old, &new, start());
        assert_eq!(take(carried, &new, 0, start()).1.remaining, 50);
        volley(&mut state, &old, 5, start());
        assert_eq!(take(rescale(state, &old, &new, start()), &new, 0, start()).1.remaining, 0);
        assert_eq!(rescale(state, &old, &new, start() + 3_600 * SECOND), State::FRESH);
    }

    proptest! {
        /// Against an exact bucket in rational arithmetic: never one unit more, and never more than one less.
        #[test]
        fn it_admits_what_an_exact_bucket_admits(
            limit in 1u64..2_000,
            period_ms in 1u64..100_000,
            burst in 1u64..50,
            steps in prop::collection::vec((0u64..2_000_000_000, 1u64..4), 1..200),
        ) {
            let quota = quota(Algorithm::TokenBucket, limit, period_ms * 1_000_000, burst);
            let mut state = State::FRESH;
            let mut now = start();
            // Units times the period, so that refill is an integer: limit a nanosecond.
            let period = u128::from(quota.period_ns.get());
            let mut level = u128::from(burst) * period;
            for (step, cost) in steps {
                now += step;
                level = (level + u128::from(step) * u128::from(limit)).min(u128::from(burst) * period);
                let (next, outcome) = take(state, &quota, cost, now);
                let exact = level >= u128::from(cost) * period;
                if outcome.is_admitted() {
                    prop_assert!(exact, "admitted what the exact bucket refuses");
                    level -= u128::from(cost) * period;
                } else if exact {
                    // The interval's rounding: the exact bucket may be ahead by less than a tick a unit.
                    prop_assert!(outcome.retry_after_ns().is_none_or(|wait| wait <= 16), "{outcome:?}");
                    return Ok(());
                }
                state = next;
            }
        }

        #[test]
        fn denied_until_retry_after_and_admitted_exactly_at_it(
            limit in 1u64..100_000, period_s in 1u64..100_000, burst in 1u64..100, cost in 1u64..10, used in 1u64..100,
        ) {
            let quota = quota(Algorithm::TokenBucket, limit, period_s * SECOND, burst);
            let state = charge(State::FRESH, &quota, used, start());
            let (same, outcome) = take(state, &quota, cost, start());
            if let Answer::Later(wait) = outcome.answer {
                prop_assert_eq!(same, state);
                prop_assert!(wait > 0);
                prop_assert!(!take(state, &quota, cost, start() + wait - 1).1.is_admitted());
                prop_assert!(take(state, &quota, cost, start() + wait).1.is_admitted());
            }
        }

        #[test]
        fn what_is_given_back_is_there_again(burst in 2u64..100, used in 1u64..50, cost in 1u64..50) {
            let quota = quota(Algorithm::TokenBucket, 10, SECOND, burst);
            let before = charge(State::FRESH, &quota, used.min(burst), start());
            let (after, outcome) = take(before, &quota, cost, start());
            if outcome.is_admitted() {
                prop_assert_eq!(give_back(after, &quota, cost), before);
            }
        }

        #[test]
        fn time_that_goes_back_gives_nothing(word in any::<u64>(), cost in any::<u64>(), now in any::<u64>()) {
            let quota = hundred_a_minute();
            let (state, outcome) = take(State { word, past: 0 }, &quota, cost, now);
            prop_assert!(state.word >= word || outcome.is_admitted());
            let (_, earlier) = take(State { word, past: 0 }, &quota, cost, now / 2);
            prop_assert!(earlier.remaining <= outcome.remaining || outcome.is_admitted());
        }
    }
}
