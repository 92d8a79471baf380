//! How a fleet shares one window: what a node has to know of it beside its quota.

use std::sync::Arc;

use super::{Algorithm, Quota};

/// One window of one policy, as it is shared. Made when a configuration is loaded; kept, under its number, for as
/// long as a key may still be written under it.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// The policy's name: a part of the names under which the store keeps keys.
    pub policy: Arc<str>,
    /// How much.
    pub quota: Quota,
    /// How it is shared.
    pub sharing: Sharing,
}

/// How exactly a fleet keeps a window together, and what happens without the store.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sharing {
    /// Life of a lease, nanoseconds; 0: no leases, every admission is the centre's.
    pub epoch_ns: u64,
    /// What happens while the store is away.
    pub when_down: WhenDown,
}

/// What a policy does while the store is away (`when-store-down`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WhenDown {
    /// This node's share of the limit is enforced.
    #[default]
    Local,
    /// Everything is admitted, behind a coarse limit by address.
    Allow,
    /// Everything is denied.
    Deny,
}

impl Sharing {
    /// The longest lease with which a window may be overshot by `overshoot` (a share of what it admits in one period,
    /// a bucket's burst included) and no more. A unit is spent at most a lease's life and its age after it was
    /// reserved, so what is admitted too much is at most `rate * (life + age)`; the age is a fifth of the life. Under
    /// `EPOCH_MIN_NS` a lease is not worth its cost: none. `overshoot = 0` is none.
    ///
    /// A fixed window counts what it reserves, and a reserved unit is spent in its window or not at all: it is not
    /// overshot, whatever the life. It is leased for an eighth of the window at most, so that what a node holds
    /// unspent does not stay with it.
    pub fn new(quota: &Quota, overshoot: f64, when_down: WhenDown) -> Sharing {
        let period_ns = quota.period_ns().get() as f64;
        let late_ns = match quota.algorithm() {
            Algorithm::TokenBucket => {
                overshoot * period_ns * (1.0 + quota.capacity() as f64 / quota.limit().get() as f64)
            }
            Algorithm::SlidingWindow => overshoot * period_ns,
            Algorithm::FixedWindow if overshoot > 0.0 => period_ns / 8.0,
            Algorithm::FixedWindow => 0.0,
            // A log, a queue and what is in flight are one whole; no part of them can be lent.
            Algorithm::SlidingLog | Algorithm::LeakyBucket | Algorithm::Concurrency => 0.0,
        };
        // Whole microseconds, as the centre counts.
        let epoch_us = (late_ns / (1.0 + AGE_SHARE) / 1e3) as u64;
        let epoch_ns = if epoch_us * 1_000 < EPOCH_MIN_NS { 0 } else { (epoch_us * 1_000).min(EPOCH_MAX_NS) };
        Sharing { epoch_ns, when_down }
    }

    /// Whether every admission is the centre's.
    #[inline]
    pub fn is_exact(&self) -> bool {
        self.epoch_ns == 0
    }

    /// How long after a lease's end its units may still be spent, nanoseconds; older ones are only given back.
    #[inline]
    pub fn age_ns(&self) -> u64 {
        self.epoch_ns / 5
    }
}

/// A lease's age, as a share of its life.
const AGE_SHARE: f64 = 0.2;
/// The shortest life of a lease, nanoseconds.
pub const EPOCH_MIN_NS: u64 = 50_000_000;
/// The longest, nanoseconds.
pub const EPOCH_MAX_NS: u64 = 500_000_000;
