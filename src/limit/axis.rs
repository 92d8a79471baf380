//! The axis on which a bucket fills: how far it is refilled at an instant, in ticks, and when it is refilled so far.
//!
//! `token_bucket.rs` says why the axis has units instead of nanoseconds, and what is rounded.

use std::num::NonZeroU64;

use super::{Answer, Outcome};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Axis {
    /// Ticks a nanosecond are `rate / 2^rate_shift`; the top bit of `rate` is set.
    rate: u64,
    /// `2^126 / rate`, rounded up; `reset_ns` multiplies by it.
    inverse: u64,
    /// At most 126.
    rate_shift: u8,
    /// A unit is `2^shift` ticks.
    pub(super) shift: u8,
    /// The whole bucket, ticks; at most `TICKS_MAX`.
    pub(super) capacity: u64,
}

impl Axis {
    /// The finest ticks with which both the burst and 2^60 ns of refill stay under `TICKS_MAX`.
    pub(super) fn new(limit: NonZeroU64, period_ns: NonZeroU64, burst: NonZeroU64) -> Axis {
        // limit * 2^by_rate < 4 * period, so 2^60 ns refill less than 2^62 ticks.
        let by_rate = (limit.leading_zeros() + 1).saturating_sub(period_ns.leading_zeros());
        let by_burst = burst.leading_zeros().saturating_sub(2);
        let shift = by_rate.min(by_burst);
        let capacity = burst.get().min(TICKS_MAX >> shift) << shift;
        // Long division to 64 significant digits: the dividend as far up as it goes, the quotient down to a word.
        let ticks = u128::from(limit.get()) << shift;
        let up = ticks.leading_zeros();
        let quotient = (ticks << up) / u128::from(period_ns.get());
        let down = (64 - quotient.leading_zeros()).max(up.saturating_sub(126));
        let rate = (quotient >> down) as u64;
        // Under 2^64 but for a unit in 2^64 ns, of which one nanosecond is missing then.
        let inverse = (1u128 << 126).div_ceil(u128::from(rate)).min(u128::from(u64::MAX)) as u64;
        Axis { rate, inverse, rate_shift: (up - down) as u8, shift: shift as u8, capacity }
    }

    /// Ticks refilled since the clock began, rounded down; at most `TICKS_MAX`.
    #[inline]
    pub(super) fn position(&self, now_ns: u64) -> u64 {
        let ticks = (u128::from(now_ns.min(NOW_MAX_NS)) * u128::from(self.rate)) >> self.rate_shift;
        ticks.min(u128::from(TICKS_MAX)) as u64
    }

    /// Nanoseconds until the first instant at which the position is `target`.
    #[inline]
    pub(super) fn wait_ns(&self, target: u64, now_ns: u64) -> u64 {
        let target = u128::from(target);
        if target.leading_zeros() < u32::from(self.rate_shift) {
            // Beyond the last instant of the clock.
            return u64::MAX - now_ns;
        }
        let (dividend, rate) = (target << self.rate_shift, u128::from(self.rate));
        // Not `div_ceil`, because that divides a second time for the remainder.
        let down_ns = dividend / rate;
        let at_ns = down_ns + u128::from(down_ns * rate < dividend);
        u64::try_from(at_ns).unwrap_or(u64::MAX).saturating_sub(now_ns)
    }

    /// Nanoseconds until `missing` ticks are refilled, late by up to one tick. Because it is only shown, never promised
    /// as `wait_ns` is, it multiplies by the inverse instead of dividing.
    #[inline]
    pub(super) fn reset_ns(&self, missing: u64) -> u64 {
        let wait_ns = (u128::from(missing) * u128::from(self.inverse)) >> (126 - self.rate_shift);
        u64::try_from(wait_ns).unwrap_or(u64::MAX)
    }

    /// A cost in ticks, saturating beyond what any bucket holds.
    #[inline]
    pub(super) fn ticks(&self, cost: u64) -> u64 {
        cost.min(TICKS_MAX >> self.shift) << self.shift
    }

    /// The outcome of a cost that does not fit a bucket of `units`.
    pub(super) fn denied(&self, state: u64, position: u64, units: u64, cost: u64, now_ns: u64) -> Outcome {
        let full_at = state.max(position);
        let answer = if cost > units {
            Answer::Never
        } else {
            let enough_at = full_at.saturating_add(self.ticks(cost)) - self.capacity;
            Answer::Later { retry_after_ns: self.wait_ns(enough_at, now_ns) }
        };
        let missing = full_at - position;
        let remaining = self.capacity.saturating_sub(missing) >> self.shift;
        Outcome::new(answer, remaining, self.reset_ns(missing))
    }
}

/// Latest instant the arithmetic tells apart.
pub(super) const NOW_MAX_NS: u64 = 1 << 60;
/// Highest position, and highest capacity; their sum, and a cost on top, fits a word.
pub(super) const TICKS_MAX: u64 = 1 << 62;
