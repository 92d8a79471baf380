//! How long decisions take, by who made them, apart from how long requests take.
//!
//! The bounds are those of a native histogram of Prometheus with schema 4: sixteen a doubling, each 4.4 % above the one
//! before, so that a quantile between two of them is exact to 5 %.

use std::fmt;
use std::sync::LazyLock;

use super::policy::DecidingTier;
use crate::cells::{Cells, WorkerToken};
use crate::exemplars::{Exemplar, Exemplars};
use crate::families::Families;
use crate::grid::Native;
use crate::histogram::{Distribution, seconds};

#[derive(Debug)]
pub struct Latency {
    cells: Cells<{ SLOTS * DecidingTier::ALL.len() }>,
    exemplars: [Exemplars; DecidingTier::ALL.len()],
}

impl Latency {
    pub(crate) fn new(workers: usize) -> Latency {
        Latency { cells: Cells::new(workers), exemplars: Default::default() }
    }

    /// A decision of `tier` took `duration_ns`, and stands for `weight` decisions, of which only this one was measured.
    pub fn record(&self, worker: &WorkerToken, tier: DecidingTier, duration_ns: u64, weight: u64) {
        let row = self.cells.row(worker);
        let first = tier as usize * SLOTS;
        row.add(first + bucket(duration_ns), weight);
        row.add(first + BUCKETS, duration_ns.saturating_mul(weight));
    }

    /// Shows a request as an exemplar of how long its decision took.
    pub fn exemplify(&self, tier: DecidingTier, exemplar: Exemplar) {
        self.exemplars[tier as usize].keep(bucket(exemplar.duration_ns), exemplar);
    }

    fn distribution(&self, tier: DecidingTier) -> Distribution {
        let first = tier as usize * SLOTS;
        let counts = (first..first + BUCKETS).map(|slot| self.cells.total(slot));
        let bounds = BOUNDS_NS.iter().map(|bound| seconds(*bound)).chain([f64::INFINITY]);
        let buckets: Vec<(f64, u64)> = bounds.zip(counts).collect();
        Distribution {
            native: native(&buckets),
            buckets,
            sum_seconds: seconds(self.cells.total(first + BUCKETS)),
            exemplars: self.exemplars[tier as usize].all(),
        }
    }

    /// Writes the family. A tier that has decided nothing is left out.
    pub(crate) fn families(&self, families: &mut Families<'_>) -> fmt::Result {
        let tiers = DecidingTier::ALL.map(|tier| (tier, self.distribution(tier)));
        let used = tiers.into_iter().filter(|(_, distribution)| distribution.count() > 0);
        families.distributions(
            "decision_duration",
            "How long decisions on limits took, by where they were made; one of sixteen that need no wait is measured",
            used.map(|(tier, distribution)| ([("tier", tier.word())], distribution)),
        )
    }
}

/// Fine buckets are native ones as they are. A doubling above them counts in the last native bucket of that doubling, and
/// what is above the last bound in the first native bucket beyond it.
fn native(buckets: &[(f64, u64)]) -> Native {
    let zero_threshold = f64::from(EXPONENT_FIRST).exp2();
    let mut native = Native { schema: SCHEMA, zero_threshold, zero_count: 0, buckets: Vec::new() };
    for (position, (_, count)) in buckets.iter().enumerate() {
        let index = match position.checked_sub(FINE) {
            None => EXPONENT_FIRST * STEPS + position as i32,
            Some(above) if position < BOUNDS => (EXPONENT_LAST + 1 + above as i32) * STEPS,
            Some(_) => 1,
        };
        native.add((position > 0).then_some(index), *count);
    }
    native
}

fn bucket(duration_ns: u64) -> usize {
    BOUNDS_NS.partition_point(|bound| *bound < duration_ns)
}

/// Upper bounds, inclusive, nanoseconds: 2^-23 s (119 ns) to 2^-5 s (31 ms) by sixteenths of a doubling, and then
/// doublings up to 1 s, which no decision takes: a request does not wait longer than `redis.deadline`.
static BOUNDS_NS: LazyLock<[u64; BOUNDS]> = LazyLock::new(|| {
    std::array::from_fn(|index| {
        let exponent = match index.checked_sub(FINE) {
            None => f64::from(EXPONENT_FIRST) + index as f64 / f64::from(STEPS),
            Some(above) => f64::from(EXPONENT_LAST) + 1.0 + above as f64,
        };
        // Rounded to whole nanoseconds, because durations are.
        (exponent.exp2() * 1e9).round() as u64
    })
});

/// Two to its power are the bounds to a doubling.
const SCHEMA: i32 = 4;
const STEPS: i32 = 1 << SCHEMA;
const EXPONENT_FIRST: i32 = -23;
const EXPONENT_LAST: i32 = -5;
/// Fine bounds, the first and the last included.
const FINE: usize = ((EXPONENT_LAST - EXPONENT_FIRST) * STEPS) as usize + 1;
const BOUNDS: usize = FINE + EXPONENT_LAST.unsigned_abs() as usize;
/// With the last, open one.
const BUCKETS: usize = BOUNDS + 1;
/// The buckets of a tier and its sum.
const SLOTS: usize = BUCKETS + 1;

#[cfg(test)]
mod tests {
    use super::*;

    /// What Prometheus makes of a quantile: a straight line within its bucket.
    fn histogram_quantile(quantile: f64, buckets: &[(f64, u64)]) -> f64 {
        let rank = quantile * buckets.iter().map(|(_, count)| *count as f64).sum::<f64>();
        let (mut below, mut lower) = (0.0, 0.0);
        for (bound, count) in buckets {
            let count = *count as f64;
            if below + count >= rank && count > 0.0 {
                return lower + (bound - lower) * (rank - below) / count;
            }
            (below, lower) = (below + count, *bound);
        }
        lower
    }

    /// The buckets of a native histogram with their upper bounds, the empty ones below them included.
    fn upper_bounds(native: &Native) -> Vec<(f64, u64)> {
        let bound = |index: i32| (f64::from(index) / f64::from(STEPS)).exp2();
        let with_lower = |(index, count): &(i32, u64)| [(bound(index - 1), 0), (bound(*index), *count)];
        let zero = (native.zero_threshold, native.zero_count);
        [zero].into_iter().chain(native.buckets.iter().flat_map(with_lower)).collect()
    }

    #[test]
    fn quantiles_are_exact_to_five_percent() {
        // Durations of several shapes: around 300 ns, around 200 µs with a long tail, and a few values alone.
        let mut random = 0x9e37_79b9_u64;
        let mut next = move || {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            (random >> 11) as f64 / (1_u64 << 53) as f64
        };
        let mut shapes: Vec<Vec<u64>> = vec![vec![141; 1_000], vec![7_000, 30_000_000, 260]];
        for (middle, spread) in [(300.0, 0.4), (200_000.0, 1.2), (4_000_000.0, 0.3)] {
            // A sum of twelve is nearly normal, and its exponential has a tail.
            let mut draw = || (0..12).map(|_| next()).sum::<f64>() - 6.0;
            shapes.push(
                (0..20_000)
                    .map(|_| ((middle * (draw() * spread).exp()) as u64).clamp(130, 31_000_000))
                    .collect(),
            );
        }
        for mut shape in shapes {
            let latency = Latency::new(1);
            let worker = WorkerToken::new(0);
            for duration_ns in &shape {
                latency.record(&worker, DecidingTier::Global, *duration_ns, 1);
            }
            shape.sort_unstable();
            let shown = latency.distribution(DecidingTier::Global);
            assert_eq!(shown.count(), shape.len() as u64);
            for quantile in [0.5, 0.95, 0.99] {
                let rank = (quantile * shape.len() as f64).ceil() as usize;
                let exact = shape[rank.saturating_sub(1)] as f64 / 1e9;
                for (kind, buckets) in [("classic", &shown.buckets), ("native", &upper_bounds(&shown.native))]
                {
                    let found = histogram_quantile(quantile, buckets);
                    let is_near = (found / exact - 1.0).abs() <= 0.05;
                    assert!(is_near, "{kind} {quantile}: {found} beside {exact}");
                }
            }
        }
    }

    #[test]
    fn a_bound_belongs_to_its_own_bucket_and_bounds_lie_close() {
        for (index, bound) in BOUNDS_NS.iter().enumerate() {
            assert_eq!((bucket(*bound), bucket(bound + 1)), (index, index + 1));
        }
        for pair in BOUNDS_NS[..FINE].windows(2) {
            assert!(pair[1] as f64 / pair[0] as f64 <= 1.05, "{pair:?}");
        }
        assert_eq!((BOUNDS_NS[0], BOUNDS_NS[BOUNDS - 1]), (119, 1_000_000_000));
        assert_eq!(bucket(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn each_bucket_has_its_native_one() {
        for position in 0..BUCKETS {
            let bounds = BOUNDS_NS.iter().map(|bound| seconds(*bound)).chain([f64::INFINITY]);
            let one = bounds.enumerate().map(|(index, bound)| (bound, u64::from(index == position)));
            let one: Vec<_> = one.collect();
            let found = native(&one);
            match (position, &found.buckets[..]) {
                (0, []) => assert_eq!(found.zero_count, 1),
                (_, [(index, 1)]) => {
                    let bound = (f64::from(*index) / f64::from(STEPS)).exp2();
                    let is_open = position == BOUNDS && *index == 1;
                    // Classic bounds are rounded to a nanosecond.
                    assert!(is_open || (one[position].0 - bound).abs() < 1e-9, "{position}: {found:?}");
                }
                _ => panic!("{position}: {found:?}"),
            }
        }
    }

    #[test]
    fn a_sample_counts_for_those_that_were_not_measured() {
        let latency = Latency::new(1);
        let worker = WorkerToken::new(0);
        latency.record(&worker, DecidingTier::Local, 1_000, 16);
        latency.record(&worker, DecidingTier::Global, 200_000, 1);
        let (local, global) =
            (latency.distribution(DecidingTier::Local), latency.distribution(DecidingTier::Global));
        assert_eq!((local.count(), global.count()), (16, 1));
        assert!((local.sum_seconds - 16e-6).abs() < 1e-12, "{}", local.sum_seconds);
        assert_eq!(latency.distribution(DecidingTier::Fallback).count(), 0);
    }
}
