//! Sliding log: the time of every unit. Exact at every instant: within any stretch of one period it admits at most
//! `limit` units. Meant for what is billed.
//!
//! Because it keeps one word for each unit, its memory is bounded by its limit (by twice its limit if costs are
//! reconciled), which the configuration keeps small ([`LIMIT_MAX`]). A unit taken at `t` counts until just before
//! `t + period`. Unlike the other states it is not a plain value: it is changed in place, under the lock of its shard.
//!
//! A unit that is owed takes the place of one that expires: its time is when that happens. So a debt is one more limit
//! for one more period; what more is owed is forgiven, because each unit of it would need a word.

use std::collections::VecDeque;

use super::quota::units_of;
use super::{Answer, Outcome, Quota};

/// The log of one key: the time of each unit that still counts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Log {
    times_ns: VecDeque<u64>,
}

impl Log {
    /// A log of which the fraction `used.0 / used.1` was spent at `now_ns`, rounded up to a unit.
    pub fn with_used(quota: &Quota, used: (u64, u64), now_ns: u64) -> Log {
        let (limit, mut log) = (quota.limit().get(), Log::default());
        log.push(quota, units_of(used, limit).min(limit), now_ns);
        log
    }

    /// When each unit was taken, nanoseconds, the oldest first.
    pub fn times_ns(&self) -> impl ExactSizeIterator<Item = u64> {
        self.times_ns.iter().copied()
    }

    /// A log of these times; they come in order.
    pub fn of_times(times_ns: impl IntoIterator<Item = u64>) -> Log {
        Log { times_ns: times_ns.into_iter().collect() }
    }

    /// Takes `cost` if it fits. A denied cost spends nothing; expired units are dropped either way.
    pub fn take(&mut self, quota: &Quota, cost: u64, now_ns: u64) -> Outcome {
        self.forget(quota, now_ns);
        let outcome = self.peek(quota, cost, now_ns);
        if !outcome.is_admitted() {
            return outcome;
        }
        self.push(quota, cost, now_ns);
        Outcome::new(Answer::Admitted, outcome.remaining, self.reset_ns(quota, now_ns))
    }

    /// What `take` would say, with the log as it is: `reset_ns` is that of the log without the cost.
    pub fn peek(&self, quota: &Quota, cost: u64, now_ns: u64) -> Outcome {
        let over = self.over(quota, now_ns);
        let limit = quota.limit().get();
        let used = (self.times_ns.len() - over) as u64;
        let remaining = limit.saturating_sub(used);
        let answer = match remaining.checked_sub(cost) {
            Some(remaining) => {
                return Outcome::new(Answer::Admitted, remaining, self.reset_ns(quota, now_ns));
            }
            None if cost > limit => Answer::Never,
            None => {
                // The oldest `excess` units have to expire first; the last of them says when.
                let excess = (used + cost - limit) as usize;
                let at_ns = self.times_ns[over + excess - 1].saturating_add(quota.period_ns().get());
                Answer::Later { retry_after_ns: at_ns.saturating_sub(now_ns) }
            }
        };
        Outcome::new(answer, remaining, self.reset_ns(quota, now_ns))
    }

    /// Counts a denied cost: until nothing is left, no further.
    pub fn count_denied(&mut self, quota: &Quota, cost: u64, now_ns: u64) {
        self.forget(quota, now_ns);
        let room = quota.limit().get().saturating_sub(self.times_ns.len() as u64);
        self.push(quota, cost.min(room), now_ns);
    }

    /// Counts a cost whether it fits or not, up to twice the limit. What does not fit counts from when its place is free.
    pub fn debit(&mut self, quota: &Quota, cost: u64, now_ns: u64) {
        self.forget(quota, now_ns);
        let (limit, length) = (quota.limit().get(), self.times_ns.len() as u64);
        let fits = cost.min(limit.saturating_sub(length));
        self.push(quota, fits, now_ns);
        let owed = (cost - fits).min(limit.saturating_mul(2).saturating_sub(length + fits));
        for _ in 0..owed {
            let place = self.times_ns.len() - limit as usize;
            let free_ns = self.times_ns[place].saturating_add(quota.period_ns().get());
            self.times_ns.push_back(free_ns);
        }
    }

    /// Undoes a `take` of `cost` made at `taken_ns`. What is over needs nothing back.
    pub fn give_back(&mut self, cost: u64, taken_ns: u64) {
        let from = self.times_ns.partition_point(|time_ns| *time_ns < taken_ns);
        let same = self.times_ns.range(from..).take_while(|time_ns| **time_ns == taken_ns).count();
        self.times_ns.drain(from..from + same.min(usize::try_from(cost).unwrap_or(usize::MAX)));
    }

    /// Whether nothing is missing, and it can be dropped without loss.
    pub fn is_full(&self, quota: &Quota, now_ns: u64) -> bool {
        self.reset_ns(quota, now_ns) == 0
    }

    /// What is missing, as a fraction (missing, whole); `missing <= whole`.
    pub fn used(&self, quota: &Quota, now_ns: u64) -> (u64, u64) {
        let limit = quota.limit().get();
        (((self.times_ns.len() - self.over(quota, now_ns)) as u64).min(limit), limit)
    }

    /// Bytes of memory more that it would need to hold `cost` more units.
    pub fn growth_bytes(&mut self, quota: &Quota, cost: u64, now_ns: u64) -> usize {
        self.forget(quota, now_ns);
        let (length, capacity) = (self.times_ns.len(), self.times_ns.capacity());
        let wanted = length.saturating_add(usize::try_from(cost).unwrap_or(usize::MAX));
        // A vector doubles, and starts with four.
        let grown = if wanted <= capacity { capacity } else { wanted.max(capacity * 2).max(4) };
        (grown - capacity).saturating_mul(size_of::<u64>())
    }

    /// Memory that it holds for times of units, bytes.
    pub fn bytes(&self) -> usize {
        self.times_ns.capacity() * size_of::<u64>()
    }

    /// How many of the oldest are over. They are looked at in turn, because few are not yet forgotten.
    fn over(&self, quota: &Quota, now_ns: u64) -> usize {
        let period_ns = quota.period_ns().get();
        self.times_ns.iter().take_while(|time_ns| time_ns.saturating_add(period_ns) <= now_ns).count()
    }

    /// Forgets what is over, and the memory it stood in where that is most of it.
    fn forget(&mut self, quota: &Quota, now_ns: u64) {
        let over = self.over(quota, now_ns);
        self.times_ns.drain(..over);
        if self.times_ns.capacity() > SHRINK_ABOVE && self.times_ns.len() < self.times_ns.capacity() / 4 {
            self.times_ns.shrink_to(self.times_ns.len() * 2);
        }
    }

    fn push(&mut self, quota: &Quota, cost: u64, now_ns: u64) {
        let count = usize::try_from(cost).unwrap_or(usize::MAX).min(quota.limit().get() as usize * 2);
        if self.times_ns.back().is_none_or(|newest_ns| *newest_ns <= now_ns) {
            self.times_ns.extend(std::iter::repeat_n(now_ns, count));
            return;
        }
        // Its place is near the end, because threads read the clock a little apart; `give_back` looks there.
        let at = self.times_ns.partition_point(|time_ns| *time_ns <= now_ns);
        (0..count).for_each(|_| self.times_ns.insert(at, now_ns));
    }

    fn reset_ns(&self, quota: &Quota, now_ns: u64) -> u64 {
        let newest = self.times_ns.back();
        newest.map_or(0, |time_ns| time_ns.saturating_add(quota.period_ns().get()).saturating_sub(now_ns))
    }
}

/// The largest limit a configuration may ask a log for: 800 kB a key.
pub const LIMIT_MAX: u64 = 100_000;
/// Words below which memory is not given back.
const SHRINK_ABOVE: usize = 16;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::quota::tests;
    use super::*;
    use crate::Algorithm;

    fn quota(limit: u64, period_ns: u64) -> Quota {
        tests::quota(Algorithm::SlidingLog, limit, period_ns, limit)
    }

    #[test]
    fn a_unit_counts_for_one_period_to_the_nanosecond() {
        let quota = quota(3, 1_000);
        let mut log = Log::default();
        assert_eq!(log.take(&quota, 2, 100).remaining, 1);
        assert_eq!(log.take(&quota, 1, 600).reset_ns, 1_000);
        assert_eq!(log.take(&quota, 1, 1_099).answer(), Answer::Later { retry_after_ns: 1 });
        assert_eq!(log.take(&quota, 3, 1_099).answer(), Answer::Later { retry_after_ns: 501 });
        assert_eq!(log.take(&quota, 4, 1_099).answer(), Answer::Never);
        assert_eq!(log.take(&quota, 2, 1_100).remaining, 0);
        assert!(log.is_full(&quota, 2_100) && !log.is_full(&quota, 2_099));
    }

    #[test]
    fn what_was_spent_stays_spent_under_a_changed_limit() {
        let (four, eight, two) = (quota(4, 1_000), quota(8, 1_000), quota(2, 1_000));
        let mut log = Log::default();
        log.take(&four, 1, 100);
        log.take(&four, 2, 200);
        assert_eq!(log.peek(&eight, 5, 300).remaining, 0);
        assert_eq!(log.peek(&two, 1, 300).answer(), Answer::Later { retry_after_ns: 900 });
        assert_eq!(log.peek(&two, 0, 300).remaining, 0);
        assert_eq!(log.peek(&four, 1, 300).remaining, 0, "and what it is again is what it was");
        let from_bucket = Log::with_used(&four, (1, 3), 300);
        assert_eq!(from_bucket.used(&four, 300), (2, 4));
    }

    #[test]
    fn debts_and_counted_denials_have_an_end() {
        let quota = quota(5, 1_000);
        let mut log = Log::default();
        log.count_denied(&quota, 9, 0);
        assert_eq!(log.used(&quota, 0), (5, 5));
        log.debit(&quota, 900, 10);
        assert_eq!(log.times_ns.len(), 10);
        // Five places are free at 1,000, and what is owed has them until 2,000.
        for at in [20, 999, 1_000, 1_999] {
            assert_eq!(log.take(&quota, 1, at).answer(), Answer::Later { retry_after_ns: 2_000 - at });
        }
        assert_eq!(log.peek(&quota, 5, 2_000).answer(), Answer::Admitted);
        for at in 0..1_000 {
            log.take(&quota, 1, at * 200);
            assert!(log.bytes() <= 8 * 64, "memory follows what is kept");
        }
    }

    proptest! {
        /// Beside a plain list of what was admitted.
        #[test]
        fn equal_to_a_list_of_all_admissions(
            limit in 1u64..20, period in 1u64..100,
            steps in prop::collection::vec((0u64..60, 0u64..8, any::<bool>()), 1..80),
        ) {
            let quota = quota(limit, period);
            let (mut log, mut now, mut admitted) = (Log::default(), 0, Vec::<(u64, u64)>::new());
            for (wait, cost, give_back) in steps {
                now += wait;
                let used = |admitted: &[(u64, u64)], now: u64| -> u64 {
                    admitted.iter().filter(|(at, _)| at + period > now).map(|(_, cost)| cost).sum()
                };
                let before = log.clone();
                let outcome = log.take(&quota, cost, now);
                prop_assert_eq!(outcome.is_admitted(), used(&admitted, now) + cost <= limit);
                match outcome.answer() {
                    Answer::Admitted => admitted.push((now, cost)),
                    Answer::Later { retry_after_ns } => {
                        let at = now + retry_after_ns;
                        prop_assert!(used(&admitted, at) + cost <= limit);
                        prop_assert!(used(&admitted, at - 1) + cost > limit);
                        prop_assert_eq!(before.peek(&quota, cost, now).answer(), outcome.answer());
                    }
                    Answer::Never => prop_assert!(cost > limit),
                }
                if give_back && let Some((at, cost)) = admitted.pop() {
                    log.give_back(cost, at);
                }
                prop_assert_eq!(log.peek(&quota, 0, now).remaining, limit - used(&admitted, now));
                prop_assert_eq!(log.is_full(&quota, now), used(&admitted, now) == 0);
            }
        }
    }
}
