//! How much, in which time, counted how: one window of a policy.

use std::num::NonZeroU64;

/// How a window counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Algorithm {
    /// Refills continuously; stored as one theoretical arrival time (GCRA, ITU-T I.371).
    TokenBucket,
    /// Counts in aligned windows.
    FixedWindow,
    /// Two counters; the last window weighs by what of it still overlaps.
    SlidingWindow,
}

/// One window of a policy: `limit` units in `period_ns`, at most `burst` of them at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Quota {
    /// How it counts.
    pub algorithm: Algorithm,
    /// Units admitted in one period.
    pub limit: NonZeroU64,
    /// Length of the period, nanoseconds.
    pub period_ns: NonZeroU64,
    /// Capacity of the bucket, units (token bucket only; the others ignore it). Equals `limit` unless written.
    pub burst: NonZeroU64,
}
