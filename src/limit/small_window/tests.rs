use proptest::prelude::*;

use super::super::quota::tests;
use super::super::{Log, State};
use super::*;
use crate::Algorithm;

const SECOND: u64 = 1_000_000_000;
const DAY: u64 = 86_400 * SECOND;

fn quota(limit: u64, period_ns: u64) -> Quota {
    tests::quota(Algorithm::SlidingWindow, limit, period_ns, limit)
}

/// Limits that people write, and periods.
const LIMITS: [(u64, u64); 12] = [
    (1, 2 * SECOND),
    (2, 2 * SECOND),
    (3, 2 * SECOND),
    (5, 2 * SECOND),
    (10, 2 * SECOND),
    (20, 2 * SECOND),
    (32, 2 * SECOND),
    (1, SECOND),
    (3, SECOND),
    (1, DAY),
    (7, DAY),
    (20, 10_000_000),
];

#[test]
fn who_stays_below_the_limit_is_never_refused() {
    for (limit, period_ns) in LIMITS {
        for slower in [1.0, 1.001, 1.05, 1.5] {
            let quota = quota(limit, period_ns);
            let (mut state, mut now) = (State::default(), 123_456_789 * SECOND);
            for number in 0..1_000 {
                let (next, outcome) = state.take(&quota, 1, now);
                assert!(outcome.is_admitted(), "{limit} in {period_ns}, {slower}: number {number}");
                state = next;
                now += (period_ns as f64 / limit as f64 * slower).ceil() as u64;
            }
        }
    }
}

#[test]
fn who_asks_all_the_time_gets_the_limit_a_period() {
    for (limit, period_ns) in LIMITS {
        let quota = quota(limit, period_ns);
        let (mut state, mut admitted) = (State::default(), 0);
        let begin = 123_456_789 * SECOND + 777;
        let (periods, every) = (100, period_ns / 500 + 1);
        for now in (begin..begin + periods * period_ns).step_by(every as usize) {
            let (next, outcome) = state.take(&quota, 1, now);
            state = next;
            admitted += u64::from(outcome.is_admitted());
        }
        let most = limit * periods;
        // What it waits for is there between two times that it asks.
        assert!((most * 98 / 100..=most + limit).contains(&admitted), "{limit} in {period_ns}: {admitted}");
    }
}

proptest! {
    #[test]
    fn words_lose_nothing(
        limit in 1u64..=FEW_MAX, period_ns in 1u64 << 20..1 << 55, now in 1u64 << 52..1 << 58,
        steps in prop::collection::vec((0.0f64..1.5, 1u64..6), 1..60),
    ) {
        let quota = quota(limit, period_ns);
        let scale = quota.steps().expect("there are few");
        let (mut state, mut now) = (State::default(), now);
        for (wait, cost) in steps {
            now += (period_ns as f64 / limit as f64 * wait) as u64;
            let few = state.few(&quota).expect("there are few").0.debit(&quota, scale, cost, now);
            let again = SmallWindow::from_words(few.into_words(scale), scale);
            prop_assert_eq!((few.newest, &few.ages[..few.len]), (again.newest, &again.ages[..again.len]));
            state = State(few.into_words(scale));
        }
    }

    /// Beside a log of exact times: never later, and by less than a step earlier.
    #[test]
    fn a_unit_counts_for_its_period_or_less_than_a_step_less(
        limit in 1u64..=FEW_MAX, period_ns in 1u64 << 30..1 << 50, now in 1u64 << 52..1 << 55,
        asks in prop::collection::vec((0.0f64..2.0, 1u64..4), 1..80),
    ) {
        let quota = quota(limit, period_ns);
        let step_ns = period_ns.div_ceil(quota.steps().expect("there are few").count.into());
        let (mut state, mut log, mut now) = (State::default(), Log::default(), now);
        for (wait, cost) in asks {
            now += (period_ns as f64 / limit as f64 * wait) as u64;
            let (next, outcome) = state.take(&quota, cost, now);
            let exact = log.peek(&quota, cost, now);
            let early = log.peek(&quota, cost, now + step_ns + 1);
            prop_assert!(outcome.is_admitted() || !exact.is_admitted());
            prop_assert!(!outcome.is_admitted() || early.is_admitted());
            if let Answer::Later { retry_after_ns } = outcome.answer() {
                prop_assert!(!state.take(&quota, cost, now + retry_after_ns - 1).1.is_admitted());
                prop_assert!(state.take(&quota, cost, now + retry_after_ns).1.is_admitted());
            }
            if outcome.is_admitted() {
                log.debit(&quota, cost, now);
                let back = next.give_back(&quota, cost, now);
                prop_assert_eq!(back.take(&quota, 0, now).1.remaining, state.take(&quota, 0, now).1.remaining);
            }
            state = next;
        }
    }

    #[test]
    fn what_is_owed_is_waited_for_and_given_back(
        limit in 1u64..=FEW_MAX, owed in 1u64..200, now in 1u64 << 52..1 << 55,
    ) {
        let quota = quota(limit, 60 * SECOND);
        let whole = State::default().take(&quota, limit, now).0;
        let owing = whole.debit(&quota, owed, now);
        prop_assert_eq!(owing.used(&quota, now), (limit + owed, limit));
        let back = (0..owed).fold(owing, |state, _| state.give_back(&quota, 1, now));
        prop_assert_eq!(back.used(&quota, now), (limit, limit));
        // As many periods as it takes.
        let wait_ns = owing.take(&quota, 1, now).1.retry_after_ns().expect("nothing is left");
        prop_assert!(wait_ns.abs_diff(60 * SECOND * (owed / limit + 1)) <= 60 * SECOND / 52 + 1);
    }
}
