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

impl Quota {
    /// The most units it ever holds. Windows count in 32 bits: a limit beyond that is that.
    pub fn capacity(&self) -> u64 {
        match self.algorithm {
            Algorithm::TokenBucket => self.burst.get(),
            Algorithm::FixedWindow | Algorithm::SlidingWindow => self.limit.get().min(u64::from(u32::MAX)),
        }
    }

    /// Sets quotas apart in 32 bits, so that a key can remember which one its state belongs to. Never 0.
    pub fn fingerprint(&self) -> u32 {
        // A finaliser of good avalanche (splitmix64, Steele 2014) over each field in turn.
        let fields = [self.algorithm as u64 + 1, self.limit.get(), self.period_ns.get(), self.burst.get()];
        let mixed = fields.iter().fold(0u64, |sum, field| {
            let mut word = (sum ^ field).wrapping_add(0x9e37_79b9_7f4a_7c15);
            word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            word ^ (word >> 31)
        });
        ((mixed >> 32) as u32).max(1)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn quota(algorithm: Algorithm, limit: u64, period_ns: u64, burst: u64) -> Quota {
        let positive = |number| NonZeroU64::new(number).expect("a positive number");
        Quota { algorithm, limit: positive(limit), period_ns: positive(period_ns), burst: positive(burst) }
    }

    /// A moment like those of the clock: an hour after its origin.
    pub(crate) fn start() -> u64 {
        3_600 * 1_000_000_000
    }

    #[test]
    fn quotas_that_differ_have_different_fingerprints() {
        let all = [
            quota(Algorithm::TokenBucket, 100, 60, 20),
            quota(Algorithm::FixedWindow, 100, 60, 20),
            quota(Algorithm::TokenBucket, 101, 60, 20),
            quota(Algorithm::TokenBucket, 100, 61, 20),
            quota(Algorithm::TokenBucket, 100, 60, 21),
        ];
        let prints: std::collections::HashSet<u32> = all.iter().map(Quota::fingerprint).collect();
        assert_eq!(prints.len(), all.len());
        assert_eq!(all[0].fingerprint(), all[0].fingerprint());
    }
}
