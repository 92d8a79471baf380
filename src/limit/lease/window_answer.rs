//! What Redis last said of an exact window: no lease, but what is left and when it is whole. From it a node that must not
//! ask knows how long the window refuses.

use super::words::Flag;
use super::{Lease, UNIT, seconds, unit_ns};
use crate::{Algorithm, Plan};

impl Lease {
    /// Records what Redis said is left of an exact window, and in how many nanoseconds it is whole.
    pub fn hear(&mut self, remaining: u64, reset_ns: u64, now_ns: u64) {
        // What is left of a lease from before a reload is less than a unit, which nobody spends or returns.
        let is_over = !self.0.has(Flag::InFlight) && self.0.end_ns() <= now_ns;
        if self.0.epoch() != 0 && is_over && (0..UNIT).contains(&self.0.balance()) {
            self.0.set_balance(0);
            self.0.set_lease(0.0, 0);
        }
        self.0.set_level(remaining as f64);
        self.0.set_end_ns(now_ns);
        // The field of the rate, which a window without leases has not. A lease from before a reload keeps its own.
        if self.0.epoch() == 0 {
            // Rounded up, because an f32 may be less.
            self.0.set_lease(seconds(reset_ns) * (1.0 + RESET_ROUNDING), 0);
        }
    }

    /// Units that Redis said are left of an exact window and what is certain to have come back since, if nobody spends; all
    /// of them if it has said nothing.
    pub fn heard_left(&self, plan: &Plan, now_ns: u64) -> u64 {
        let whole = plan.quota.capacity();
        self.heard(plan, now_ns).map_or(whole, |left| (left as u64).min(whole))
    }

    /// The same, negative if more is spent than a lowered limit has; `None`: all of them.
    fn heard(&self, plan: &Plan, now_ns: u64) -> Option<f64> {
        let heard_ns = self.0.end_ns();
        if heard_ns == 0 || self.0.epoch() != 0 || self.0.has(Flag::Fallback) {
            return None;
        }
        let (gone_ns, reset_ns) = (now_ns.saturating_sub(heard_ns) as f64, self.0.rate() * 1e9);
        let back = match plan.quota.algorithm() {
            _ if gone_ns >= reset_ns => return None,
            Algorithm::TokenBucket | Algorithm::LeakyBucket => gone_ns / unit_ns(&plan.quota),
            // When they come back was not said.
            _ => 0.0,
        };
        Some(self.0.level() + back)
    }

    /// What was heard, under a limit that has changed: what was spent stays spent, and comes back as the new limit says.
    pub(super) fn adopt_heard(&mut self, old: &Plan, new: &Plan, now_ns: u64) {
        let Some(left) = self.heard(old, now_ns) else { return };
        let spent = old.quota.capacity() as f64 - left;
        let whole_in_ns = self.0.rate() * 1e9 - now_ns.saturating_sub(self.0.end_ns()) as f64;
        let (then_ns, period_ns) = (old.quota.period_ns(), new.quota.period_ns());
        let reset_ns = match new.quota.algorithm() {
            Algorithm::TokenBucket | Algorithm::LeakyBucket => spent * unit_ns(&new.quota),
            _ if then_ns == period_ns => whole_in_ns,
            // What is spent counts in the present window, and in the next one as far as that overlaps.
            _ => 2.0 * period_ns.get() as f64,
        };
        self.0.set_level(new.quota.capacity() as f64 - spent);
        self.0.set_end_ns(now_ns);
        self.0.set_lease(reset_ns / 1e9 * (1.0 + RESET_ROUNDING), 0);
    }

    /// How long an exact window refuses `cost` at most, nanoseconds, if nobody spends or gives back; `None`: not at all, as
    /// far as Redis said. Logs and sliding windows may admit earlier, because when their units were spent is not kept.
    pub fn heard_wait_ns(&self, plan: &Plan, cost: u64, now_ns: u64) -> Option<u64> {
        let (heard_ns, reset_ns) = (self.0.end_ns(), self.0.rate() * 1e9);
        let left = self.0.level();
        if heard_ns == 0 || self.0.epoch() != 0 || self.0.has(Flag::Fallback) || cost as f64 <= left {
            return None;
        }
        let whole_in_ns = reset_ns - now_ns.saturating_sub(heard_ns) as f64;
        let spare = plan.quota.capacity().saturating_sub(cost) as f64;
        let wait_ns = match plan.quota.algorithm() {
            _ if plan.quota.is_few() => whole_in_ns,
            Algorithm::TokenBucket | Algorithm::LeakyBucket => whole_in_ns - spare * unit_ns(&plan.quota),
            // The units of one window decay together until it is whole: all of them, in the worst case.
            Algorithm::SlidingWindow => {
                let used = (plan.quota.capacity() as f64 - left).max(1.0);
                whole_in_ns - reset_ns.min(plan.quota.period_ns().get() as f64) * spare / used
            }
            Algorithm::FixedWindow | Algorithm::SlidingLog => whole_in_ns,
            Algorithm::Concurrency => return None,
        };
        (wait_ns > 0.0).then_some((wait_ns as u64).max(1))
    }
}

/// What is left of an exact window and when it is whole, as `estimate` says it: of a fixed window nothing comes back before it
/// ends, by the clock of Redis. `None`: Redis has said nothing.
pub(super) fn estimate(lease: &Lease, plan: &Plan, now_ns: u64) -> Option<(u64, u64)> {
    let Lease(words) = lease;
    let heard_ns = words.end_ns();
    if !plan.sharing.is_exact() || heard_ns == 0 || words.epoch() != 0 || words.has(Flag::Fallback) {
        return None;
    }
    let (whole, gone_ns) = (plan.quota.capacity(), now_ns.saturating_sub(heard_ns));
    let reset_ns = ((words.rate() * 1e9) as u64).saturating_sub(gone_ns);
    let is_fixed = plan.quota.algorithm() == Algorithm::FixedWindow;
    let back = if is_fixed { 0.0 } else { gone_ns as f64 / unit_ns(&plan.quota) };
    let left = (words.level() + lease.held_or_owed(now_ns) + back).max(0.0) as u64;
    Some(if reset_ns == 0 || left >= whole { (whole, 0) } else { (left, reset_ns) })
}

/// More than an f32 loses.
const RESET_ROUNDING: f64 = 1e-6;

#[cfg(test)]
mod tests {
    use std::num::NonZeroU64;
    use std::sync::Arc;

    use proptest::prelude::*;

    use super::*;
    use crate::{Quota, Sharing, State, WhenDown};

    const SECOND: u64 = 1_000_000_000;
    const NOW: u64 = 3_600 * SECOND;

    fn plan(algorithm: Algorithm, limit: u64, period_ns: u64) -> Plan {
        let (limit, period_ns) = (NonZeroU64::new(limit), NonZeroU64::new(period_ns));
        let (limit, period_ns) = (limit.expect("not zero"), period_ns.expect("not zero"));
        let quota = Quota::new(algorithm, limit, period_ns, limit);
        let sharing = Sharing { epoch_ns: 0, spare: 0, when_down: WhenDown::Local };
        Plan { policy: Arc::from("p"), quota, sharing }
    }

    #[test]
    fn what_was_heard_before_a_limit_changed_is_of_the_old_limit() {
        let (hour, bucket) = (3_600 * SECOND, Algorithm::TokenBucket);
        let plans = |algorithm| [1_000, 100, 2_000].map(|limit| plan(algorithm, limit, hour));
        for algorithm in [bucket, Algorithm::FixedWindow, Algorithm::SlidingWindow, Algorithm::SlidingLog] {
            let [old, lower, higher] = plans(algorithm);
            let mut lease = Lease::default();
            lease.hear(950, hour / 20, NOW);
            lease.adopt(&old, &lower, NOW);
            assert_eq!(lease.heard_left(&lower, NOW), 50, "{algorithm:?}");
            lease.hear(40, hour * 6 / 10, NOW);
            lease.adopt(&lower, &higher, NOW);
            assert_eq!(lease.heard_left(&higher, NOW), 1_940, "{algorithm:?}");
            // Nothing is forgotten by a limit that goes down and up again.
            lease.hear(900, hour, NOW);
            lease.adopt(&higher, &lower, NOW);
            assert_eq!(lease.heard_left(&lower, NOW), 0, "{algorithm:?}");
            lease.adopt(&lower, &higher, NOW);
            assert_eq!(lease.heard_left(&higher, NOW), 900, "{algorithm:?}");
            assert_eq!(lease.heard_left(&higher, NOW + 2 * hour), 2_000, "{algorithm:?}");
        }
        // It comes back at the rate of the limit that was there.
        let [old, lower, _] = plans(bucket);
        let mut lease = Lease::default();
        lease.hear(900, hour / 10, NOW);
        lease.adopt(&old, &lower, NOW + hour / 20);
        assert_eq!(lease.heard_left(&lower, NOW + hour / 20), 50);
        assert_eq!(lease.heard_left(&lower, NOW + hour / 20 + hour / 10), 60);
        // Of an unheard limit all is there.
        let mut lease = Lease::default();
        lease.adopt(&old, &lower, NOW);
        assert_eq!(lease.heard_left(&lower, NOW), 100);
    }

    #[test]
    fn a_fixed_window_is_whole_when_redis_says_so() {
        let plan = plan(Algorithm::FixedWindow, 20, 86_400 * SECOND);
        let mut lease = Lease::default();
        assert_eq!(lease.estimate(&plan, NOW), (20, 0));
        // Fifteen seconds before midnight there, whatever this node's clock says.
        lease.hear(3, 15 * SECOND, NOW);
        let (left, reset_ns) = lease.estimate(&plan, NOW + 5 * SECOND);
        assert!(left == 3 && reset_ns.abs_diff(10 * SECOND) < 100_000, "{left} {reset_ns}");
        assert_eq!(lease.estimate(&plan, NOW + 16 * SECOND), (20, 0));
    }

    #[test]
    fn the_rest_of_a_lease_keeps_nothing_from_being_heard() {
        let plan = plan(Algorithm::TokenBucket, 100, 3_600 * SECOND);
        let mut lease = Lease::default();
        lease.0.set_lease(1.0, 9);
        lease.0.set_end_ns(NOW);
        lease.0.set_balance(UNIT / 2);
        lease.hear(7, 3_600 * SECOND, NOW + SECOND);
        assert_eq!(lease.heard_left(&plan, NOW + SECOND), 7);
        // A unit is returned first.
        lease.0.set_lease(1.0, 9);
        lease.0.set_balance(UNIT);
        lease.hear(7, 3_600 * SECOND, NOW + SECOND);
        assert_eq!(lease.0.epoch(), 9);
    }

    proptest! {
        /// The wait is never early, and of a bucket and a fixed window not late either.
        #[test]
        fn a_wait_that_was_heard_is_never_early(
            which in 0usize..3, limit in 1u64..30, period_s in 1u64..100,
            steps in prop::collection::vec((0u64..20 * SECOND, 1u64..9), 1..30),
            later_ns in 0u64..30 * SECOND, cost in 1u64..9,
        ) {
            let algorithm = [Algorithm::TokenBucket, Algorithm::FixedWindow, Algorithm::SlidingWindow][which];
            let plan = plan(algorithm, limit, period_s * SECOND);
            prop_assume!(cost <= limit);
            let (mut state, mut now_ns, mut lease) = (State::default(), NOW, Lease::default());
            for (pause_ns, cost) in steps {
                now_ns += pause_ns;
                let (next, outcome) = state.take(&plan.quota, cost, now_ns);
                state = next;
                lease.hear(outcome.remaining, outcome.reset_ns, now_ns);
            }
            now_ns += later_ns;
            let told = state.take(&plan.quota, cost, now_ns).1.retry_after_ns().expect("it fits once");
            let heard = lease.heard_wait_ns(&plan, cost, now_ns).unwrap_or(0);
            // Words keep times to about a microsecond.
            prop_assert!(heard + 2_000 >= told, "{heard} {told}");
            if algorithm != Algorithm::SlidingWindow {
                let rounding_ns = period_s * 2_000 + 10_000;
                prop_assert!(heard <= told + rounding_ns, "{heard} {told}");
            }
        }
    }
}
