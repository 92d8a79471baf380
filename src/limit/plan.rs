//! [`Plan`]: how a fleet shares one window of a policy: by leases or exactly, how far it may overshoot, and what happens
//! without Redis. It holds no state.

use std::sync::Arc;

use super::{Algorithm, Quota};

/// One window of one policy, as it is shared. Made when a configuration is loaded, and kept under its number afterwards,
/// because leases may still be written under it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Plan {
    /// The policy's name, which is part of the names of its keys in Redis.
    pub policy: Arc<str>,
    /// How much is allowed, in which time, and by which algorithm.
    pub quota: Quota,
    /// How exactly the fleet keeps it, and what happens without Redis.
    pub sharing: Sharing,
}

impl Plan {
    /// A letter in the names of its keys in Redis: the algorithm. A policy that changes it starts with new keys. Leases and
    /// exact charges read each other's records, so that a limit that changes how it is shared keeps what was spent.
    pub fn mark(&self) -> u8 {
        *b"TFSLQC".get(usize::from(self.quota.algorithm().number()) - 1).unwrap_or(&b'C')
    }

    /// Whether a lease lasts until its window ends.
    pub(crate) fn is_lent_whole(&self) -> bool {
        self.quota.algorithm() != Algorithm::TokenBucket
            && self.sharing.epoch_ns >= self.quota.period_ns().get()
    }

    /// A lease's age: how long after its end its units may still be spent, nanoseconds. Older ones are only returned.
    #[inline]
    pub fn age_ns(&self) -> u64 {
        if self.is_lent_whole() { 0 } else { self.sharing.epoch_ns / 5 }
    }
}

/// How exactly a fleet keeps a window together, and what happens without Redis.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Sharing {
    /// Life of a lease, nanoseconds; 0: no leases, Redis decides every request.
    pub epoch_ns: u64,
    /// Units that all nodes together may owe, so that requests need not wait for Redis.
    pub spare: u32,
    /// What happens while Redis is down.
    pub when_down: WhenDown,
}

/// What a policy does while Redis is down (`when-redis-down`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum WhenDown {
    /// This node's share of the limit is enforced.
    #[default]
    Local,
    /// Everything is admitted, within a coarse limit by address.
    Allow,
    /// Every request that the policy charges is denied.
    Deny,
}

impl Sharing {
    /// Sharing for a window that may be overshot by `overshoot`, a fraction of what it admits in one period (a bucket's
    /// burst included). 0 is exact.
    ///
    /// Where overshoot comes from: a bucket's level in Redis and the unspent units of all nodes are one burst together,
    /// so its leases overshoot nothing; only the unit that a node may owe does, `spare` of them in all. A fixed or a
    /// sliding window counts units when it lends them, and they are spent in that window or not at all.
    ///
    /// A lease lasts at most an eighth of a window, or half of the time in which a bucket's burst or period refills, so
    /// that no node keeps units for long that it does not need, and half a second; a second and a half if that is little
    /// of what a bucket holds, and much refills in it or much is lent out of its level. A window of up to `WHOLE_MAX_NS` is
    /// lent until it ends, because a node asks at least once in each; what becomes free of it may be spent as much earlier as
    /// the question was on its way. If that is under `EPOCH_MIN_NS`, or the limit is so small that a lease would hold nothing,
    /// the window is exact.
    pub fn new(quota: &Quota, overshoot: f64, when_down: WhenDown) -> Sharing {
        let exact = Sharing { epoch_ns: 0, spare: 0, when_down };
        let (limit, period_ns) = (quota.limit().get() as f64, quota.period_ns().get() as f64);
        let is_whole = quota.algorithm() != Algorithm::TokenBucket && quota.period_ns().get() <= WHOLE_MAX_NS;
        let epoch_ns = match quota.algorithm() {
            _ if overshoot <= 0.0 || quota.is_few() => return exact,
            // Shorter under a small burst, because what accrues to nodes that do not spend it must not outgrow the
            // burst.
            Algorithm::TokenBucket => period_ns / 2.0 * (quota.capacity() as f64 / limit).min(1.0),
            Algorithm::FixedWindow | Algorithm::SlidingWindow => period_ns / if is_whole { 1.0 } else { 8.0 },
            // Logs, queues and permits are exact by nature, because no part of them can be lent.
            Algorithm::SlidingLog | Algorithm::LeakyBucket | Algorithm::Concurrency => return exact,
        };
        // Every node renews once an epoch, however many there are.
        let is_long = quota.algorithm() == Algorithm::TokenBucket
            && epoch_ns >= LONG_MIN_NS
            && (limit * EPOCH_MAX_NS as f64 >= SMALL * period_ns || is_lent_by_level(quota));
        let most_ns = match (is_long, is_whole) {
            (true, _) => EPOCH_LONG_NS,
            (_, true) => WHOLE_MAX_NS,
            _ => EPOCH_MAX_NS,
        };
        // Whole ticks, in which Redis counts the epochs of buckets.
        let epoch_ns = (epoch_ns as u64 / TICK_NS * TICK_NS).min(most_ns);
        if epoch_ns < EPOCH_MIN_NS || quota.capacity() < UNITS_MIN {
            return exact;
        }
        let spare = match quota.algorithm() {
            Algorithm::TokenBucket => overshoot * (limit + quota.capacity() as f64),
            _ => 0.0,
        };
        Sharing { epoch_ns, spare: spare as u32, when_down }
    }

    /// The most units that a fleet of `nodes` may admit beyond the limit in one period: while Redis answers, and while it
    /// is down with `WhenDown::Local`.
    ///
    /// The first holds for nodes that stay up and have room for the key. A node that restarts, or whose full table dropped
    /// the key (a lease's age after its lease ended, at the earliest), has forgotten that it owes, and may owe one unit
    /// more. Debts are reported at once and repaid from what refills, so they do not add up.
    pub fn worst_overshoot(&self, quota: &Quota, nodes: u32) -> (f64, f64) {
        let (limit, period_ns) = (quota.limit().get() as f64, quota.period_ns().get() as f64);
        let per_life = limit * self.epoch_ns as f64 / period_ns;
        let drift = per_life * DRIFT;
        let with = match quota.algorithm() {
            _ if self.is_exact() => 0.0,
            // Every node may owe one unit.
            Algorithm::TokenBucket if nodes <= self.spare => f64::from(nodes) + drift,
            // Otherwise only nodes whose lease is two units or more may, which are at most half of the units lent.
            Algorithm::TokenBucket => f64::from(self.spare).min(per_life / 2.0) + drift,
            _ => drift,
        };
        // Every node that spends may spend its share, on top of the leases it held.
        let shares = f64::from(quota.spenders(nodes)) * Sharing::whole(&quota.share_of(nodes));
        let without = (shares - Sharing::whole(quota)).max(0.0);
        (with, without + if self.is_exact() { 0.0 } else { limit })
    }

    /// Units that a window admits in one period, a bucket's burst included; `overshoot` is a fraction of this.
    pub fn whole(quota: &Quota) -> f64 {
        match quota.algorithm() {
            Algorithm::TokenBucket | Algorithm::LeakyBucket => {
                quota.limit().get() as f64 + quota.capacity() as f64
            }
            _ => quota.capacity() as f64,
        }
    }

    /// Whether Redis decides every request, without leases.
    #[inline]
    pub fn is_exact(&self) -> bool {
        self.epoch_ns == 0
    }
}

/// Whether what a bucket holds is enough for the long leases of all nodes, whatever it refills.
fn is_lent_by_level(quota: &Quota) -> bool {
    let per_life = quota.limit().get() as f64 * EPOCH_LONG_NS as f64 / quota.period_ns().get() as f64;
    quota.capacity() >= if per_life < SMALL { LONG_UNITS_MIN } else { DEEP_UNITS_MIN }
}

/// How far two clocks drift apart, as a fraction of the time.
const DRIFT: f64 = 5e-4;
/// A window that never admits this many units at once gets no leases.
const UNITS_MIN: u64 = 10;
/// A limit is small if it refills fewer units than this in an epoch.
pub(super) const SMALL: f64 = 12.0;
/// The step in which Redis keeps how far an epoch is.
const TICK_NS: u64 = 4_000;
/// The shortest life of a lease, nanoseconds.
pub const EPOCH_MIN_NS: u64 = 50_000_000;
/// The longest life of a lease, nanoseconds.
pub const EPOCH_MAX_NS: u64 = 500_000_000;
/// The longest window that is lent until it ends.
const WHOLE_MAX_NS: u64 = 1_000_000_000;
/// The longest of a bucket that holds a minute of refill, which half of is `LONG_MIN_NS`.
const EPOCH_LONG_NS: u64 = 1_500_000_000;
const LONG_MIN_NS: f64 = 30e9;
/// A bucket of so many units that is small even in a long lease has long ones too: they come out of its level, of which a
/// fortieth may be lent.
const LONG_UNITS_MIN: u64 = 10_000;
/// A bucket of so many units has long leases even if rates are lent beside its level.
const DEEP_UNITS_MIN: u64 = 40_000;
