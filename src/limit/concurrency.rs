//! Concurrency: permits for requests in flight. A permit is taken until it is given back; time does not free it.
//!
//! Because it is unknown when one will be free, a refusal says one second, the shortest wait that `Retry-After` can
//! express. If the quota changes, the count stays (other algorithms scale it), because each permit comes back as it was
//! taken.

use super::{Answer, Outcome, Quota};

/// Takes `cost` permits if they are free. The state is the number taken.
pub(super) fn take(out: u64, quota: &Quota, cost: u64) -> (u64, Outcome) {
    let limit = quota.limit().get();
    let free = limit.saturating_sub(out);
    let answer = match free.checked_sub(cost) {
        Some(left) => return (out + cost, Outcome::new(Answer::Admitted, left, reset_ns(out + cost))),
        None if cost > limit => Answer::Never,
        None => Answer::Later { retry_after_ns: RETRY_NS },
    };
    (out, Outcome::new(answer, free, reset_ns(out)))
}

fn reset_ns(out: u64) -> u64 {
    if out == 0 { 0 } else { RETRY_NS }
}

const RETRY_NS: u64 = 1_000_000_000;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::quota::tests;
    use crate::{Algorithm, State};

    proptest! {
        /// Beside a plain count, over changed limits.
        #[test]
        fn what_is_out_never_exceeds_the_limit_it_was_taken_under(
            steps in prop::collection::vec((1u64..9, 1u64..4, any::<bool>()), 1..80),
        ) {
            let mut quota = tests::quota(Algorithm::Concurrency, 5, 1, 5);
            let (mut state, mut out) = (State::default(), Vec::new());
            for (now, (limit, cost, comes_back)) in steps.into_iter().enumerate() {
                let changed = tests::quota(Algorithm::Concurrency, limit, 1, limit);
                state = state.rescale(&quota, &changed, now as u64);
                quota = changed;
                if comes_back && let Some(cost) = out.pop() {
                    state = state.give_back(&quota, cost, 0);
                }
                let held: u64 = out.iter().sum();
                let (next, outcome) = state.take(&quota, cost, now as u64);
                prop_assert_eq!(outcome.is_admitted(), held + cost <= limit);
                if outcome.is_admitted() {
                    out.push(cost);
                }
                let held: u64 = out.iter().sum();
                prop_assert_eq!(outcome.remaining, limit.saturating_sub(held));
                prop_assert_eq!(next.is_full(&quota, u64::MAX), held == 0);
                state = next;
            }
        }
    }
}
