//! How much, in which time, counted how: one window of a policy, with the constants its decisions need.

use std::num::NonZeroU64;

use super::axis::Axis;

/// How a window counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Algorithm {
    /// Refills continuously; stored as one theoretical arrival time (GCRA, ITU-T I.371).
    TokenBucket,
    /// Counts in aligned windows.
    FixedWindow,
    /// Two counters; the last window weighs by what of it still overlaps.
    SlidingWindow,
    /// Every unit's time; exact, and bounded by its limit.
    SlidingLog,
    /// Shapes: what comes too fast waits in a queue of `burst` units, and is refused beyond it.
    LeakyBucket,
    /// Units at once, until they are given back; time does nothing for them.
    Concurrency,
}

impl Algorithm {
    /// All of them.
    pub const ALL: [Algorithm; 6] = [
        Algorithm::TokenBucket,
        Algorithm::FixedWindow,
        Algorithm::SlidingWindow,
        Algorithm::SlidingLog,
        Algorithm::LeakyBucket,
        Algorithm::Concurrency,
    ];

    /// The number by which scripts and fingerprints know it, from 1.
    pub fn number(self) -> u8 {
        match self {
            Algorithm::TokenBucket => 1,
            Algorithm::FixedWindow => 2,
            Algorithm::SlidingWindow => 3,
            Algorithm::SlidingLog => 4,
            Algorithm::LeakyBucket => 5,
            Algorithm::Concurrency => 6,
        }
    }
}

/// One window of a policy: `limit` units in `period_ns`, at most `burst` of them at once. What a decision would have
/// to divide for is worked out once, when a quota is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Quota {
    algorithm: Algorithm,
    limit: NonZeroU64,
    period_ns: NonZeroU64,
    burst: NonZeroU64,
    fingerprint: u32,
    axis: Axis,
}

impl Quota {
    /// The fingerprint of what is no quota.
    pub const NO_FINGERPRINT: u32 = 0;

    /// A quota. `burst` is the capacity of a token bucket and the length of a leaky bucket's queue; the other
    /// algorithms ignore it, and concurrency ignores the period.
    pub fn new(algorithm: Algorithm, limit: NonZeroU64, period_ns: NonZeroU64, burst: NonZeroU64) -> Quota {
        let fingerprint = fingerprint(algorithm, [limit, period_ns, burst]);
        let holds = match algorithm {
            Algorithm::LeakyBucket => queue_and_one(burst),
            _ => burst,
        };
        let axis = Axis::new(limit, period_ns, holds);
        Quota { algorithm, limit, period_ns, burst, fingerprint, axis }
    }

    /// The same amount, counted another way.
    pub fn counted_by(self, algorithm: Algorithm) -> Quota {
        Quota::new(algorithm, self.limit, self.period_ns, self.burst)
    }

    /// What one of so many nodes enforces on its own: twice the even share, at least a unit, at most the whole.
    pub fn share_of(self, nodes: u32) -> Quota {
        let share = |whole: NonZeroU64| {
            let doubled = whole.get().saturating_mul(2).div_ceil(u64::from(nodes.max(1)));
            NonZeroU64::new(doubled.min(whole.get())).unwrap_or(NonZeroU64::MIN)
        };
        Quota::new(self.algorithm, share(self.limit), self.period_ns, share(self.burst))
    }

    /// What one address is admitted where a policy admits while Redis is away: ten times the window, since clients that
    /// the policy tells apart may share an address. A bucket whatever the window is, so that nobody waits in a queue and
    /// no log is kept.
    pub fn for_address(self) -> Quota {
        let tenfold = |whole: u64| NonZeroU64::new(whole.saturating_mul(10)).unwrap_or(NonZeroU64::MIN);
        let (limit, capacity) = (tenfold(self.limit.get()), tenfold(self.capacity()));
        Quota::new(Algorithm::TokenBucket, limit, self.period_ns, capacity)
    }

    /// How it counts.
    #[inline]
    pub fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    /// Units admitted in one period.
    #[inline]
    pub fn limit(&self) -> NonZeroU64 {
        self.limit
    }

    /// Length of the period, nanoseconds.
    #[inline]
    pub fn period_ns(&self) -> NonZeroU64 {
        self.period_ns
    }

    /// What was written as the bucket's capacity or the queue's length, units; equals `limit` unless written.
    #[inline]
    pub fn burst(&self) -> NonZeroU64 {
        self.burst
    }

    /// The most units it admits at once.
    pub fn capacity(&self) -> u64 {
        match self.algorithm {
            Algorithm::TokenBucket => self.burst.get(),
            Algorithm::FixedWindow => self.limit.get(),
            Algorithm::SlidingWindow => self.limit.get().min(PAIR_COUNT_MAX),
            Algorithm::LeakyBucket => queue_and_one(self.burst).get(),
            Algorithm::SlidingLog | Algorithm::Concurrency => self.limit.get(),
        }
    }

    /// Sets quotas apart in 32 bits, so that a key's state can say which one it was written under. Two that share
    /// one (one pair in four thousand million) read each other's states after a reload that changes one into the
    /// other on the same key, and nowhere else.
    #[inline]
    pub fn fingerprint(&self) -> u32 {
        self.fingerprint
    }

    #[inline]
    pub(super) fn axis(&self) -> &Axis {
        &self.axis
    }
}

fn fingerprint(algorithm: Algorithm, numbers: [NonZeroU64; 3]) -> u32 {
    let kind = u64::from(algorithm.number());
    // A finaliser of good avalanche (splitmix64, Steele 2014) over each number in turn.
    let [limit, period_ns, burst] = numbers.map(NonZeroU64::get);
    let mixed = [kind, limit, period_ns, burst].iter().fold(0, |sum: u64, number| {
        let mut word = (sum ^ number).wrapping_add(0x9e37_79b9_7f4a_7c15);
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ (word >> 31)
    });
    ((mixed >> 32) as u32).max(Quota::NO_FINGERPRINT + 1)
}

/// Units that wait in a leaky bucket's queue, and the one that goes on.
fn queue_and_one(queue: NonZeroU64) -> NonZeroU64 {
    queue.saturating_add(1)
}

/// The most that each of a sliding window's two counters tells apart; both share a word with their index.
pub(super) const PAIR_COUNT_MAX: u64 = (1 << 44) - 1;

#[cfg(test)]
pub(crate) mod tests {
    use std::collections::HashSet;

    use super::*;

    /// A quota of plain numbers, none of them zero.
    pub(crate) fn quota(algorithm: Algorithm, limit: u64, period_ns: u64, burst: u64) -> Quota {
        let positive = |number| NonZeroU64::new(number).expect("a positive number");
        Quota::new(algorithm, positive(limit), positive(period_ns), positive(burst))
    }

    #[test]
    fn quotas_people_write_have_their_own_fingerprints() {
        let mut fingerprints = HashSet::new();
        let mut quotas = 0;
        for algorithm in Algorithm::ALL {
            for limit in (1..100).chain([1_000, 10_000, 1_000_000]) {
                for seconds in [1, 60, 3_600, 86_400] {
                    for burst in [limit, 2 * limit, 10 * limit + 1] {
                        quotas += 1;
                        fingerprints
                            .insert(quota(algorithm, limit, seconds * 1_000_000_000, burst).fingerprint());
                    }
                }
            }
        }
        assert_eq!(fingerprints.len(), quotas);
    }
}
