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
    /// The longest lease with which a window may be overshot by `overshoot` (a share of what one burst and one period
    /// admit, `burst + limit`) and no more: `overshoot * (period + burst / rate) - age`, between `EPOCH_MIN_NS` and
    /// `EPOCH_MAX_NS`. Where that is too short for a lease, and where the algorithm cannot be leased, none.
    pub fn new(quota: &Quota, overshoot: f64, when_down: WhenDown) -> Sharing {
        let (limit, period_ns) = (quota.limit().get() as f64, quota.period_ns().get() as f64);
        let whole_ns = match quota.algorithm() {
            Algorithm::TokenBucket => period_ns * (1.0 + quota.capacity() as f64 / limit),
            Algorithm::FixedWindow | Algorithm::SlidingWindow => period_ns,
            // A log, a queue and what is in flight are one whole; no part of them can be lent.
            Algorithm::SlidingLog | Algorithm::LeakyBucket | Algorithm::Concurrency => 0.0,
        };
        let life_ns = overshoot * whole_ns - AGE_NS as f64;
        let epoch_ns = if life_ns < EPOCH_MIN_NS as f64 { 0 } else { (life_ns as u64).min(EPOCH_MAX_NS) };
        Sharing { epoch_ns, when_down }
    }

    /// Whether every admission is the centre's.
    pub fn is_exact(&self) -> bool {
        self.epoch_ns == 0
    }
}

/// How long after a lease's end its tokens may still be spent, nanoseconds; older ones are only given back.
pub const AGE_NS: u64 = 100_000_000;
/// The shortest life of a lease, nanoseconds.
pub const EPOCH_MIN_NS: u64 = 50_000_000;
/// The longest, nanoseconds.
pub const EPOCH_MAX_NS: u64 = 500_000_000;
