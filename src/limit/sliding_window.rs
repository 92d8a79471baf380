//! Sliding window of two counters: what was counted in the last aligned window weighs by how much of it still lies
//! within one period of now. `weight = past * (1 - x) + current`, x being the share of the present window gone by.
//!
//! The weight of the past is rounded up, so that rounding never admits a unit more.

use super::fixed_window::window;
use super::{Answer, Outcome, Quota, State};

/// Asks for `cost` units.
pub fn take(state: State, quota: &Quota, cost: u64, now_ns: u64) -> (State, Outcome) {
    let (number, left_ns) = window(quota, now_ns);
    let (current, past) = counts(state, number);
    let limit = quota.capacity();
    let weight = weight(past, left_ns, quota).saturating_add(current);
    let fits = weight.saturating_add(cost) <= limit;
    let answer = match fits {
        true => Answer::Admitted,
        false if cost > limit => Answer::Never,
        false => Answer::Later(wait_ns(quota, current, past, cost, left_ns)),
    };
    let after = if fits && cost > 0 {
        // Both counts are bounded by the capacity, which fits 32 bits.
        State::windowed(number, (current + cost) as u32, past as u32)
    } else {
        state
    };
    let used = if fits { weight + cost } else { weight };
    let remaining = limit.saturating_sub(used);
    (after, Outcome { answer, limit: quota.limit.get(), remaining, reset_ns: left_ns })
}

/// Counts `cost` units, at most to the limit.
pub fn charge(state: State, quota: &Quota, cost: u64, now_ns: u64) -> State {
    let (number, _) = window(quota, now_ns);
    let (current, past) = counts(state, number);
    State::windowed(number, current.saturating_add(cost).min(quota.capacity()) as u32, past as u32)
}

/// Returns `cost` units to the window they were taken from, present or past.
pub fn give_back(state: State, quota: &Quota, cost: u64, taken_ns: u64) -> State {
    let (number, _) = window(quota, taken_ns);
    let less = |count: u32| u64::from(count).saturating_sub(cost) as u32;
    match state.number().wrapping_sub(number) {
        0 => State::windowed(number, less(state.count()), state.past),
        1 => State::windowed(state.number(), state.count(), less(state.past)),
        _ => state,
    }
}

/// Whether neither window counts any more.
pub fn is_full(state: State, quota: &Quota, now_ns: u64) -> bool {
    counts(state, window(quota, now_ns).0) == (0, 0)
}

/// What counts now, in the present and in the last window.
fn counts(state: State, number: u32) -> (u64, u64) {
    match number.wrapping_sub(state.number()) {
        0 => (u64::from(state.count()), u64::from(state.past)),
        1 => (0, u64::from(state.count())),
        // The clock went back by less than a window: what is known still holds.
        u32::MAX => (u64::from(state.count()), u64::from(state.past)),
        _ => (0, 0),
    }
}

/// What the last window weighs with `left_ns` of the present one to come, rounded up.
fn weight(past: u64, left_ns: u64, quota: &Quota) -> u64 {
    (u128::from(past) * u128::from(left_ns)).div_ceil(u128::from(quota.period_ns.get())) as u64
}

/// How long until `cost` fits, if nobody else comes: the past fades linearly, in this window or, when this window's
/// own count is too much, in the next.
fn wait_ns(quota: &Quota, current: u64, past: u64, cost: u64, left_ns: u64) -> u64 {
    let limit = quota.capacity();
    let period = quota.period_ns.get();
    if current + cost <= limit && past > 0 {
        // The past may weigh `room`: it does from the moment when left/period * past <= room.
        let room = limit - current - cost;
        let left_then = (u128::from(room) * u128::from(period) / u128::from(past)) as u64;
        if left_then >= 1 {
            return left_ns.saturating_sub(left_then);
        }
    }
    // At the next window's start the present count is the past, with the whole period left.
    let room = limit - cost;
    let left_then = match current {
        0 => period,
        count => (u128::from(room) * u128::from(period) / u128::from(count)).min(u128::from(period)) as u64,
    };
    if left_then == 0 {
        // Not before all of it has faded: the window after the next.
        return left_ns.saturating_add(period);
    }
    left_ns + (period - left_then)
}

#[cfg(test)]
mod tests {
    use super::super::Algorithm;
    use super::super::quota::tests::quota;
    use super::*;
    use proptest::prelude::*;

    const SECOND: u64 = 1_000_000_000;

    fn at(number: u32, percent: u64) -> u64 {
        u64::from(number) * 100 * SECOND + percent * SECOND
    }

    fn counted(past: u32, current: u32) -> (State, Quota) {
        (State::windowed(100, current, past), quota(Algorithm::SlidingWindow, 100, 100 * SECOND, 100))
    }

    #[test]
    fn the_worked_examples_hold() {
        let (state, quota) = counted(80, 30);
        let (_, outcome) = take(state, &quota, 0, at(100, 40));
        assert_eq!(outcome.remaining, 100 - 78);
        let (state, quota) = counted(100, 100);
        let (_, outcome) = take(state, &quota, 1, at(100, 3));
        assert!(!outcome.is_admitted());
        assert_eq!(weight(100, 97 * SECOND, &quota) + 100, 197);
    }

    #[test]
    fn units_come_back_to_the_window_they_were_taken_from() {
        let (state, quota) = counted(10, 20);
        assert_eq!(give_back(state, &quota, 5, at(100, 1)), State::windowed(100, 15, 10));
        assert_eq!(give_back(state, &quota, 5, at(99, 1)), State::windowed(100, 20, 5));
        assert_eq!(give_back(state, &quota, 5, at(98, 1)), state);
    }

    proptest! {
        #[test]
        fn it_weighs_as_the_formula_says(
            limit in 1u64..200,
            steps in prop::collection::vec((0u64..90, 1u64..6), 1..300),
        ) {
            let quota = quota(Algorithm::SlidingWindow, limit, 100 * SECOND, limit);
            let mut state = State::FRESH;
            let mut now = at(1_000, 0);
            let mut counted = std::collections::HashMap::new();
            for (step, cost) in steps {
                now += step * SECOND;
                let number = now / (100 * SECOND);
                let gone = now % (100 * SECOND) / SECOND;
                let past: u64 = *counted.get(&(number - 1)).unwrap_or(&0);
                let current: u64 = *counted.get(&number).unwrap_or(&0);
                let weight = (past * (100 - gone)).div_ceil(100) + current;
                let (next, outcome) = take(state, &quota, cost, now);
                prop_assert_eq!(outcome.is_admitted(), weight + cost <= limit);
                match outcome.answer {
                    Answer::Admitted => *counted.entry(number).or_insert(0) += cost,
                    Answer::Never => prop_assert!(cost > limit),
                    Answer::Later(wait) => {
                        prop_assert_eq!(next, state);
                        prop_assert!(wait > 0);
                        prop_assert!(!take(state, &quota, cost, now + wait - 1).1.is_admitted(), "{}", wait);
                        prop_assert!(take(state, &quota, cost, now + wait).1.is_admitted(), "{}", wait);
                    }
                }
                state = next;
            }
        }
    }
}
