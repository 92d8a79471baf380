//! Durations as they are read: by cell, by bucket, and as quantiles.

use std::collections::BTreeMap;
use std::time::Duration;

use super::exemplars::Exemplar;
use super::grid::{BOUNDS_NS, BUCKETS, CELLS, Native, cell, classic, native};

/// A histogram as a scrape shows it.
pub(super) struct Distribution {
    /// Upper bounds in seconds, the last one infinite, with the count of each bucket alone.
    pub(super) buckets: Vec<(f64, u64)>,
    pub(super) sum_seconds: f64,
    /// The same durations in native buckets.
    pub(super) native: Native,
    /// By the index of their bucket.
    pub(super) exemplars: BTreeMap<usize, Exemplar>,
}

/// A histogram as read: the count of each cell, not cumulative, and the sum of all durations.
pub(super) struct HistogramReading {
    pub(super) cells: [u64; CELLS],
    pub(super) sum_ns: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Durations([u64; BUCKETS]);

/// Durations that one part of the process counts on its own.
#[derive(Clone, Debug)]
pub struct Histogram {
    cells: [u64; CELLS],
    sum_ns: u64,
}

impl Default for Histogram {
    fn default() -> Histogram {
        Histogram { cells: [0; CELLS], sum_ns: 0 }
    }
}

impl Histogram {
    pub fn record(&mut self, duration: Duration) {
        let duration_ns = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        self.cells[cell(duration_ns)] += 1;
        self.sum_ns = self.sum_ns.saturating_add(duration_ns);
    }

    pub(super) fn distribution(&self) -> Distribution {
        HistogramReading { cells: self.cells, sum_ns: self.sum_ns }.distribution(BTreeMap::new())
    }
}

impl Distribution {
    /// How many were recorded: the buckets' sum, so that it always agrees with the open bucket.
    pub(super) fn count(&self) -> u64 {
        self.buckets.iter().map(|(_, count)| count).sum()
    }
}

impl HistogramReading {
    pub(super) fn distribution(&self, exemplars: BTreeMap<usize, Exemplar>) -> Distribution {
        let bounds = BOUNDS_NS.into_iter().map(seconds).chain([f64::INFINITY]);
        Distribution {
            buckets: bounds.zip(classic(&self.cells)).collect(),
            sum_seconds: seconds(self.sum_ns),
            native: native(&self.cells),
            exemplars,
        }
    }

    /// By classic bucket.
    pub(super) fn durations(&self) -> Durations {
        Durations(classic(&self.cells))
    }
}

impl Durations {
    /// Those that came since an earlier moment.
    pub fn since(&self, earlier: &Durations) -> Durations {
        // It saturates, because a reading that races with a worker may see less than one before.
        Durations(std::array::from_fn(|index| self.0[index].saturating_sub(earlier.0[index])))
    }

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
                // The last bound itself, because of what is above it only that is known.
                let upper = BOUNDS_NS.get(index).map_or(lower, |bound| *bound as f64);
                return Some((lower + (upper - lower) * (rank - before as f64) / *in_bucket as f64) / 1e9);
            }
            before += in_bucket;
        }
        None
    }
}

/// Nanoseconds as seconds.
pub(super) fn seconds(nanoseconds: u64) -> f64 {
    nanoseconds as f64 / 1e9
}

#[cfg(test)]
mod tests {
    use super::*;

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
