//! The buckets of durations. They are fixed, so that recording is one search and routes can be compared.

use std::time::Duration;

/// Upper bounds, inclusive, nanoseconds: 100 µs to 60 s, about 2.5 apart. One more bucket takes what is above.
pub(super) const BOUNDS_NS: [u64; 18] = [
    100_000,
    250_000,
    500_000,
    1_000_000,
    2_500_000,
    5_000_000,
    10_000_000,
    25_000_000,
    50_000_000,
    100_000_000,
    250_000_000,
    500_000_000,
    1_000_000_000,
    2_500_000_000,
    5_000_000_000,
    10_000_000_000,
    30_000_000_000,
    60_000_000_000,
];

/// Buckets with the last, open one.
pub(super) const BUCKETS: usize = BOUNDS_NS.len() + 1;

/// A histogram as read: the count of each bucket, not cumulative, and the sum of all durations.
pub(super) struct Reading {
    pub(super) buckets: [u64; BUCKETS],
    pub(super) sum_ns: u64,
}

/// Durations by bucket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Durations([u64; BUCKETS]);

/// Which bucket a duration falls into.
pub(super) fn bucket(duration_ns: u64) -> usize {
    BOUNDS_NS.partition_point(|bound| *bound < duration_ns)
}

/// Durations that one part of the process counts on its own.
#[derive(Clone, Debug, Default)]
pub struct Histogram {
    buckets: [u64; BUCKETS],
    sum_ns: u64,
}

impl Histogram {
    /// Counts one.
    pub fn record(&mut self, duration: Duration) {
        let duration_ns = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        self.buckets[bucket(duration_ns)] += 1;
        self.sum_ns = self.sum_ns.saturating_add(duration_ns);
    }

    pub(super) fn reading(&self) -> Reading {
        Reading { buckets: self.buckets, sum_ns: self.sum_ns }
    }
}

impl Reading {
    /// Upper bounds in seconds with the count of each bucket alone.
    pub(super) fn by_bound(&self) -> [(f64, u64); BUCKETS] {
        std::array::from_fn(|index| {
            let bound = BOUNDS_NS.get(index).map_or(f64::INFINITY, |bound| seconds(*bound));
            (bound, self.buckets[index])
        })
    }

    /// How many were recorded: the buckets' sum, so that it always agrees with the open bucket.
    pub(super) fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }

    /// The sum of all durations, seconds.
    pub(super) fn sum_seconds(&self) -> f64 {
        seconds(self.sum_ns)
    }
}

impl Durations {
    pub(in crate::metrics) fn of(buckets: [u64; BUCKETS]) -> Durations {
        Durations(buckets)
    }

    /// Those that came since an earlier moment.
    pub fn since(&self, earlier: &Durations) -> Durations {
        // A reading that races with a worker may see less than one before.
        Durations(std::array::from_fn(|index| self.0[index].saturating_sub(earlier.0[index])))
    }

    /// With others.
    pub fn and(&self, other: &Durations) -> Durations {
        Durations(std::array::from_fn(|index| self.0[index] + other.0[index]))
    }

    /// The duration that this share of them did not exceed, seconds, taken as evenly spread within a bucket, as Prometheus's
    /// `histogram_quantile` does. `None`: there are none.
    pub fn quantile(&self, share: f64) -> Option<f64> {
        let count: u64 = self.0.iter().sum();
        let rank = share * count as f64;
        let mut before = 0;
        for (index, in_bucket) in self.0.iter().enumerate().filter(|(_, count)| **count > 0) {
            if (before + in_bucket) as f64 >= rank {
                let lower = index.checked_sub(1).map_or(0, |index| BOUNDS_NS[index]) as f64;
                // Of what is above the last bound only that is known.
                let upper = BOUNDS_NS.get(index).map_or(lower, |bound| *bound as f64);
                return Some((lower + (upper - lower) * (rank - before as f64) / *in_bucket as f64) / 1e9);
            }
            before += in_bucket;
        }
        None
    }
}

fn seconds(nanoseconds: u64) -> f64 {
    nanoseconds as f64 / 1e9
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bound_belongs_to_its_own_bucket() {
        for (index, bound) in BOUNDS_NS.into_iter().enumerate() {
            assert_eq!(bucket(bound), index);
            assert_eq!(bucket(bound + 1), index + 1);
        }
        assert_eq!(bucket(0), 0);
        assert_eq!(bucket(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn quantiles_lie_within_their_bucket() {
        let mut buckets = [0; BUCKETS];
        assert_eq!(Durations(buckets).quantile(0.5), None);
        // Four between 1 and 2.5 ms, four above a minute.
        (buckets[4], buckets[BUCKETS - 1]) = (4, 4);
        let durations = Durations(buckets);
        let nearly = |share, seconds: f64| {
            let found = durations.quantile(share).expect("there are some");
            assert!((found - seconds).abs() < 1e-9, "{share}: {found}");
        };
        nearly(0.25, 0.001_75);
        nearly(0.5, 0.002_5);
        nearly(0.99, 60.0);
        nearly(0.0, 0.001);
    }
}
