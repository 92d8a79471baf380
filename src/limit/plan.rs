//! How a fleet shares one window: what a node has to know of it beside its quota.

use std::sync::Arc;

use super::{Algorithm, Quota};

/// One window of one policy, as it is shared. Made when a configuration is loaded; kept, under its number, for as
/// long as a key may still be written under it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Plan {
    /// The policy's name: a part of the names under which Redis keeps keys.
    pub policy: Arc<str>,
    /// How much.
    pub quota: Quota,
    /// How it is shared.
    pub sharing: Sharing,
}

impl Plan {
    /// A letter that tells apart what Redis keeps under a plan: the algorithm, and whether it lends leases. A
    /// policy that changes in this begins anew, for what it kept cannot be read.
    pub fn mark(&self) -> u8 {
        let leased = *b"TFSLQC".get(usize::from(self.quota.algorithm().number()) - 1).unwrap_or(&b'C');
        if self.sharing.is_exact() { leased.to_ascii_lowercase() } else { leased }
    }
}

/// How exactly a fleet keeps a window together, and what happens without Redis.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Sharing {
    /// Life of a lease, nanoseconds; 0: no leases, every admission is Redis's.
    pub epoch_ns: u64,
    /// Units that all nodes together may owe: spent instead of letting requests wait for Redis.
    pub spare: u32,
    /// What happens while Redis is away.
    pub when_down: WhenDown,
}

/// What a policy does while Redis is away (`when-redis-down`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
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
    /// How a window is shared that may be overshot by `overshoot`: a share of what it admits in one period, a bucket's
    /// burst included. 0 is exact.
    ///
    /// What a bucket has left in Redis and what the nodes hold of it unspent are one burst together, so leases
    /// on their own overshoot nothing, whatever their life. What does is the unit a node may owe instead of letting
    /// a request wait, `spare` in all of them. A fixed window counts what is reserved, and a reserved unit is spent
    /// in its window or not at all. In a sliding window a unit is counted when it is reserved and spent up to a life
    /// and an age later: what is reserved in that time may be too much.
    ///
    /// A lease is at most an eighth of a window, and half of what a bucket's burst or period refills in, so that no
    /// node keeps for long what it does not need; where that is under `EPOCH_MIN_NS`, or the limit so small that a
    /// lease would hold nothing, the window is exact.
    pub fn new(quota: &Quota, overshoot: f64, when_down: WhenDown) -> Sharing {
        let exact = Sharing { epoch_ns: 0, spare: 0, when_down };
        let (limit, period_ns) = (quota.limit().get() as f64, quota.period_ns().get() as f64);
        let epoch_ns = match quota.algorithm() {
            _ if overshoot <= 0.0 => return exact,
            Algorithm::SlidingWindow => (overshoot * period_ns / (1.0 + AGE_SHARE)).min(period_ns / 8.0),
            // What accrues to nodes that do not spend it must not outgrow the burst.
            Algorithm::TokenBucket => period_ns / 2.0 * (quota.capacity() as f64 / limit).min(1.0),
            Algorithm::FixedWindow => period_ns / 8.0,
            // A log, a queue and what is in flight are one whole; no part of them can be lent.
            Algorithm::SlidingLog | Algorithm::LeakyBucket | Algorithm::Concurrency => return exact,
        };
        // Whole microseconds, as Redis counts.
        let epoch_ns = (epoch_ns as u64 / 1_000 * 1_000).min(EPOCH_MAX_NS);
        if epoch_ns < EPOCH_MIN_NS || quota.capacity() < UNITS_MIN {
            return exact;
        }
        let spare = match quota.algorithm() {
            Algorithm::TokenBucket => overshoot * (limit + quota.capacity() as f64),
            _ => 0.0,
        };
        Sharing { epoch_ns, spare: spare as u32, when_down }
    }

    /// The most a fleet of `nodes` may admit beyond the limit in one period, units: while Redis answers, and while
    /// it is away with `WhenDown::Local`.
    ///
    /// The first holds for nodes that stay up and have room for the key. One that restarts has forgotten that it owes,
    /// and so has one whose full table gave the key up, which it does a lease's age after its lease at the earliest:
    /// either may owe its unit once more. What is owed was told at once and is taken out of what refills, so it does
    /// not add up.
    pub fn worst_overshoot(&self, quota: &Quota, nodes: u32) -> (f64, f64) {
        let (limit, period_ns) = (quota.limit().get() as f64, quota.period_ns().get() as f64);
        let per_life = limit * self.epoch_ns as f64 / period_ns;
        let drift = per_life * DRIFT;
        let with = match quota.algorithm() {
            _ if self.is_exact() => 0.0,
            // Each node a unit, where so many are spared.
            Algorithm::TokenBucket if nodes <= self.spare => f64::from(nodes) + drift,
            // Else a node may only overdraw a lease of two units or more, so not all can.
            Algorithm::TokenBucket => f64::from(self.spare).min(per_life / 2.0) + drift,
            Algorithm::SlidingWindow => per_life * (1.0 + AGE_SHARE) + drift,
            _ => drift,
        };
        // Every node twice its share, on top of what leases were given out.
        let whole = Sharing::whole(quota);
        let share = (2.0 / f64::from(nodes.max(1))).min(1.0) * f64::from(nodes.max(1));
        (with, whole * (share - 1.0) + if self.is_exact() { 0.0 } else { limit })
    }

    /// What a window admits in one period, a bucket's burst included, units: what `overshoot` is a share of.
    pub fn whole(quota: &Quota) -> f64 {
        match quota.algorithm() {
            Algorithm::TokenBucket | Algorithm::LeakyBucket => {
                quota.limit().get() as f64 + quota.capacity() as f64
            }
            _ => quota.capacity() as f64,
        }
    }

    /// Whether every admission is Redis's.
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
/// How far two clocks drift apart.
const DRIFT: f64 = 5e-4;
/// A limit that never admits more at once is not worth leases.
const UNITS_MIN: u64 = 10;
/// The shortest life of a lease, nanoseconds.
pub const EPOCH_MIN_NS: u64 = 50_000_000;
/// The longest, nanoseconds.
pub const EPOCH_MAX_NS: u64 = 500_000_000;
