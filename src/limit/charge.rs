//! [`Charge`]: what one window of one policy asks of the limiter for one request. A plain value; it decides nothing.

use super::trial::{self, Trial, TrialSet};
use super::{Algorithm, Key, Outcome, PlanId, PolicyId, Quota};

/// What one window of one policy asks of the limiter for one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Charge {
    /// The window's key: policy, window and dimension values, hashed.
    pub key: Key,
    /// How much is allowed, in which time, and by which algorithm.
    pub quota: Quota,
    /// Units that the request takes if it is admitted.
    pub cost: u64,
    /// The policy that asks, by its place in its table.
    pub policy: PolicyId,
    /// Index of the window in its policy.
    pub window: u16,
    /// Counted and reported, but never a reason to refuse (`shadow`).
    pub shadow: bool,
    /// Counted even if the request is refused (`count-denied`).
    pub count_denied: bool,
    /// Whether an override has changed `quota`.
    pub is_overridden: bool,
    /// Which of the subjects it is of, if several are decided together; else 0.
    pub part: u16,
    /// Its part in a trial of two policies, if its policy is in one.
    pub trial: Option<Trial>,
    /// The window's [`Plan`](super::Plan) if the fleet shares it; `None`: this node counts on its own.
    pub plan: Option<PlanId>,
}

impl Charge {
    /// One unit, enforced, counted on this node, in the first window of the first policy.
    #[inline]
    pub fn one(key: Key, quota: Quota) -> Charge {
        let policy = PolicyId::default();
        Charge {
            key,
            quota,
            cost: 1,
            policy,
            window: 0,
            shadow: false,
            count_denied: false,
            is_overridden: false,
            part: 0,
            trial: None,
            plan: None,
        }
    }

    /// The outcome that took it, as it is once it has come back.
    pub fn refunded(&self, mut outcome: Outcome) -> Outcome {
        let (remaining, whole) = (outcome.remaining.saturating_add(self.cost), self.quota.capacity());
        let back_ns = match self.quota.algorithm() {
            _ if remaining >= whole => u64::MAX,
            // Rounded down, so that nobody is told to come too early.
            Algorithm::TokenBucket | Algorithm::LeakyBucket => {
                (u128::from(self.quota.whole_ns()) * u128::from(self.cost) / u128::from(whole)) as u64
            }
            _ => 0,
        };
        outcome.remaining = remaining.min(whole);
        outcome.reset_ns = outcome.reset_ns.saturating_sub(back_ns);
        outcome
    }

    /// The world in which it counts.
    #[inline]
    pub fn world(&self) -> TrialSet {
        trial::world_of(self.trial)
    }

    /// The worlds that are refused if it does not fit.
    #[inline]
    pub fn refuses(&self) -> TrialSet {
        trial::refused_by(self.trial, self.shadow)
    }

    /// Whether both are of one policy for one subject.
    #[inline]
    pub fn is_beside(&self, other: &Charge) -> bool {
        (self.policy, self.part) == (other.policy, other.part)
    }

    /// Whether it never keeps another charge from being taken.
    #[inline]
    pub fn is_lenient(&self) -> bool {
        self.refuses() == TrialSet::NONE
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::State;
    use crate::quota::tests::quota;

    #[test]
    fn what_comes_back_is_as_if_it_had_not_been_taken() {
        const NOW: u64 = 3_600_000_000_000;
        for algorithm in Algorithm::ALL {
            if matches!(algorithm, Algorithm::SlidingLog | Algorithm::Concurrency) {
                continue;
            }
            for (limit, before) in [(100, 0), (100, 30), (20, 0), (20, 5)] {
                let charge = Charge {
                    cost: 7,
                    ..Charge::one(Key::default(), quota(algorithm, limit, 60_000_000_000, limit))
                };
                let start = State::default().take(&charge.quota, before, NOW - 1_000_000).0;
                let (taken, outcome) = start.take(&charge.quota, charge.cost, NOW);
                let left = taken.give_back(&charge.quota, charge.cost, NOW).take(&charge.quota, 0, NOW).1;
                let refunded = charge.refunded(outcome);
                assert!(outcome.is_admitted() && outcome.remaining < left.remaining, "{algorithm:?} {limit}");
                assert_eq!(refunded.remaining, left.remaining, "{algorithm:?} {limit} {before}");
                assert!(refunded.reset_ns + 1 >= left.reset_ns, "{algorithm:?} {limit} {before}: too early");
                if matches!(algorithm, Algorithm::TokenBucket | Algorithm::LeakyBucket) {
                    assert!(
                        refunded.reset_ns <= left.reset_ns + 1,
                        "{algorithm:?} {limit} {before}: too late"
                    );
                }
            }
        }
    }
}
