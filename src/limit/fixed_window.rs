//! Fixed window: units counted in aligned windows of one period. Twice the limit can pass around a window's edge;
//! that is what the algorithm is.
//!
//! Windows are numbered in 32 bits, which come round after four billion periods.

use super::{Answer, Outcome, Quota, State};

/// Asks for `cost` units.
pub fn take(state: State, quota: &Quota, cost: u64, now_ns: u64) -> (State, Outcome) {
    let (number, left_ns) = window(quota, now_ns);
    let count = count(state, number);
    let limit = quota.capacity();
    let fits = count.saturating_add(cost) <= limit;
    let answer = match fits {
        true => Answer::Admitted,
        false if cost > limit => Answer::Never,
        false => Answer::Later(left_ns),
    };
    let next = if fits { count + cost } else { count };
    // Counts are bounded by the capacity, which fits 32 bits.
    let after = if fits && cost > 0 { State::windowed(number, next as u32, 0) } else { state };
    let remaining = limit.saturating_sub(next);
    (after, Outcome { answer, limit: quota.limit.get(), remaining, reset_ns: left_ns })
}

/// Counts `cost` units, at most to the limit.
pub fn charge(state: State, quota: &Quota, cost: u64, now_ns: u64) -> State {
    let (number, _) = window(quota, now_ns);
    let next = count(state, number).saturating_add(cost).min(quota.capacity());
    State::windowed(number, next as u32, 0)
}

/// Returns `cost` units, if their window is still the present one.
pub fn give_back(state: State, quota: &Quota, cost: u64, taken_ns: u64) -> State {
    let (number, _) = window(quota, taken_ns);
    if state.number() != number {
        return state;
    }
    State::windowed(number, u64::from(state.count()).saturating_sub(cost) as u32, 0)
}

/// Whether its window is over.
pub fn is_full(state: State, quota: &Quota, now_ns: u64) -> bool {
    count(state, window(quota, now_ns).0) == 0
}

/// The present window's number, and nanoseconds until it ends.
pub(super) fn window(quota: &Quota, now_ns: u64) -> (u32, u64) {
    let period = quota.period_ns.get();
    ((now_ns / period) as u32, period - now_ns % period)
}

fn count(state: State, number: u32) -> u64 {
    if state.number() == number { u64::from(state.count()) } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::super::Algorithm;
    use super::super::quota::tests::quota;
    use super::*;
    use proptest::prelude::*;

    const SECOND: u64 = 1_000_000_000;

    proptest! {
        #[test]
        fn each_window_admits_its_limit_and_no_more(
            limit in 1u64..50,
            steps in prop::collection::vec((0u64..400_000_000, 1u64..4), 1..300),
        ) {
            let quota = quota(Algorithm::FixedWindow, limit, SECOND, limit);
            let mut state = State::FRESH;
            let mut now = 3_600 * SECOND;
            let mut counted = std::collections::HashMap::new();
            for (step, cost) in steps {
                now += step;
                let used = counted.entry(now / SECOND).or_insert(0);
                let (next, outcome) = take(state, &quota, cost, now);
                prop_assert_eq!(outcome.is_admitted(), *used + cost <= limit);
                match outcome.answer {
                    Answer::Admitted => *used += cost,
                    Answer::Never => prop_assert!(cost > limit),
                    Answer::Later(wait) => {
                        prop_assert_eq!(next, state);
                        prop_assert!(!take(state, &quota, cost, now + wait - 1).1.is_admitted());
                        prop_assert!(take(state, &quota, cost, now + wait).1.is_admitted());
                    }
                }
                prop_assert_eq!(outcome.remaining, limit - *used);
                state = next;
            }
        }
    }

    #[test]
    fn units_come_back_only_to_their_own_window() {
        let quota = quota(Algorithm::FixedWindow, 10, SECOND, 10);
        let now = 3_600 * SECOND;
        let state = charge(State::FRESH, &quota, 7, now);
        assert_eq!(take(give_back(state, &quota, 3, now), &quota, 0, now).1.remaining, 6);
        assert_eq!(give_back(state, &quota, 3, now + SECOND), state);
        assert!(!is_full(state, &quota, now) && is_full(state, &quota, now + SECOND));
    }
}
