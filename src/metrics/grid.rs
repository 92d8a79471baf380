//! The cells in which durations are counted. One ends at every bound that the text formats show, and one at every bound
//! of a native histogram of Prometheus with schema 3, so that both kinds of buckets are sums of whole cells and count
//! the same.
//!
//! Schema 3 has eight buckets to a doubling. Its quantiles are exact to 9 %, and a row of a route takes 1.9 kB for each
//! worker that serves the route; schema 4 would take 3.2 kB.

/// Upper bounds of classic buckets, inclusive, nanoseconds: 100 µs to 60 s, about 2.5 apart. One more bucket takes what is
/// above. They are fixed, so that routes can be compared.
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

/// Classic buckets with the last, open one.
pub(super) const BUCKETS: usize = BOUNDS_NS.len() + 1;

/// Cells with the last, open one.
pub(super) const CELLS: usize = CELL_BOUNDS + 1;

/// The buckets of a native histogram: the one around zero, and those that are not empty.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Native {
    /// Buckets to a doubling, as a power of two.
    pub(super) schema: i32,
    /// Up to this many seconds counts as zero.
    pub(super) zero_threshold: f64,
    pub(super) zero_count: u64,
    /// Index and count. The bucket of an index reaches up to two to the power of `index / 2^schema`, in seconds.
    pub(super) buckets: Vec<(i32, u64)>,
}

impl Native {
    /// Puts a cell's count into its bucket. Cells come in their order; that of `None` is around zero.
    pub(super) fn add(&mut self, index: Option<i32>, count: u64) {
        match (index, self.buckets.last_mut()) {
            (None, _) => self.zero_count += count,
            (Some(_), _) if count == 0 => {}
            (Some(index), Some((last, sum))) if *last == index => *sum += count,
            (Some(index), _) => self.buckets.push((index, count)),
        }
    }
}

/// Which cell a duration falls into. A slot of the table is narrower than the bounds of schema 3 lie apart, so that at
/// most two bounds lie in it: one of theirs and a classic one. A table, because a binary search of all bounds took
/// twice as long.
pub(super) fn cell(duration_ns: u64) -> usize {
    let clamped = duration_ns.clamp(1 << SLOT_OCTAVE_FIRST, (1 << (SLOT_OCTAVE_LAST + 1)) - 1);
    let octave = clamped.ilog2();
    let sixteenth = (clamped >> (octave - 4)) as usize - 16;
    let first = usize::from(SLOTS[(octave - SLOT_OCTAVE_FIRST) as usize * 16 + sixteenth]);
    first
        + usize::from(duration_ns > CELL_BOUNDS_NS[first])
        + usize::from(duration_ns > CELL_BOUNDS_NS[first + 1])
}

/// Which classic bucket a duration falls into.
pub(super) fn bucket(duration_ns: u64) -> usize {
    BOUNDS_NS.partition_point(|bound| *bound < duration_ns)
}

/// The classic buckets of cells; not cumulative.
pub(super) fn classic(cells: &[u64; CELLS]) -> [u64; BUCKETS] {
    let mut buckets = [0; BUCKETS];
    for (count, bound) in cells.iter().zip(CELL_BOUNDS_NS) {
        buckets[bucket(bound)] += count;
    }
    buckets
}

/// The native histogram of cells. What is longer than the last bound is in the first bucket above it.
pub(super) fn native(cells: &[u64; CELLS]) -> Native {
    let zero_threshold = f64::from(OCTAVE_FIRST).exp2();
    let mut native = Native { schema: 3, zero_threshold, zero_count: 0, buckets: Vec::new() };
    let mut above_zero = 0;
    for (count, bound) in cells.iter().zip(CELL_BOUNDS_NS) {
        while above_zero < NATIVE_BOUNDS && native_bound_ns(above_zero) < bound {
            above_zero += 1;
        }
        let index = OCTAVE_FIRST * 8 + above_zero as i32;
        native.add((above_zero > 0).then_some(index), *count);
    }
    native
}

/// A bound of schema 3, in whole nanoseconds. It is cut, not rounded, so that of whole durations just those up to it
/// are below.
const fn native_bound_ns(index: usize) -> u64 {
    let first_ns = 1e9 / (1_u64 << -OCTAVE_FIRST) as f64;
    (first_ns * (1_u64 << (index / 8)) as f64 * EIGHTHS[index % 8]) as u64
}

/// The upper bounds of all cells, inclusive, nanoseconds. The last cell has none, and [`cell`] looks one further.
static CELL_BOUNDS_NS: [u64; CELLS + 1] = {
    let mut bounds = [u64::MAX; CELLS + 1];
    let (mut native, mut classic, mut cell) = (0, 0, 0);
    while native < NATIVE_BOUNDS {
        let bound = native_bound_ns(native);
        if classic < BOUNDS_NS.len() && BOUNDS_NS[classic] < bound {
            bounds[cell] = BOUNDS_NS[classic];
            classic += 1;
        } else {
            bounds[cell] = bound;
            native += 1;
            if classic < BOUNDS_NS.len() && BOUNDS_NS[classic] == bound {
                classic += 1;
            }
        }
        cell += 1;
    }
    assert!(classic == BOUNDS_NS.len() && cell == CELL_BOUNDS);
    bounds
};

/// The first cell of each slot: sixteen slots of equal width from each power of two to the next, nanoseconds.
static SLOTS: [u8; 16 * (SLOT_OCTAVE_LAST - SLOT_OCTAVE_FIRST + 1) as usize] = {
    let mut slots = [0; 16 * (SLOT_OCTAVE_LAST - SLOT_OCTAVE_FIRST + 1) as usize];
    let (mut slot, mut cell) = (0, 0);
    while slot < slots.len() {
        let begin = (16 + slot as u64 % 16) << (slot as u32 / 16 + SLOT_OCTAVE_FIRST - 4);
        while CELL_BOUNDS_NS[cell] < begin {
            cell += 1;
        }
        slots[slot] = cell as u8;
        slot += 1;
    }
    slots
};

/// Two to the power of 0/8, 1/8 and so on.
const EIGHTHS: [f64; 8] = [
    1.0,
    1.090_507_732_665_257_7,
    1.189_207_115_002_721,
    1.296_839_554_651_009_6,
    std::f64::consts::SQRT_2,
    1.542_210_825_407_940_7,
    1.681_792_830_507_429,
    1.834_008_086_409_342_4,
];
/// The first bound is 2^-14 s, 61 µs, and the last one 2^6 s, 64 s: one on each side of the classic ones.
const OCTAVE_FIRST: i32 = -14;
const OCTAVE_LAST: i32 = 6;
const NATIVE_BOUNDS: usize = (OCTAVE_LAST - OCTAVE_FIRST) as usize * 8 + 1;
/// Three classic bounds are native ones as well: 250 and 500 ms, and 1 s.
const CELL_BOUNDS: usize = NATIVE_BOUNDS + BOUNDS_NS.len() - 3;
/// The powers of two, nanoseconds, between which all bounds lie: 2^15 is below 61 µs, 2^36 above 64 s.
const SLOT_OCTAVE_FIRST: u32 = 15;
const SLOT_OCTAVE_LAST: u32 = 35;

#[cfg(test)]
mod tests {
    use super::*;

    /// Durations at, just below and just above every bound, at both ends, and some in between.
    fn durations() -> impl Iterator<Item = u64> {
        let around = |bound: u64| [bound - 1, bound, bound.saturating_add(1)];
        let between = (0..4_000).map(|step| 1.01_f64.powi(step) as u64);
        CELL_BOUNDS_NS.into_iter().flat_map(around).chain([0, u64::MAX]).chain(between)
    }

    #[test]
    fn the_table_finds_what_a_search_finds() {
        for duration_ns in durations() {
            let searched = CELL_BOUNDS_NS[..CELL_BOUNDS].partition_point(|bound| *bound < duration_ns);
            assert_eq!(cell(duration_ns), searched, "{duration_ns}");
        }
    }

    #[test]
    fn each_duration_is_in_the_bucket_of_both_kinds_that_holds_it() {
        for duration_ns in durations() {
            let mut cells = [0; CELLS];
            cells[cell(duration_ns)] = 1;
            assert_eq!(classic(&cells).iter().position(|count| *count == 1), Some(bucket(duration_ns)));
            let native = native(&cells);
            let seconds = duration_ns as f64 / 1e9;
            match native.buckets[..] {
                [] => assert!(native.zero_count == 1 && seconds <= native.zero_threshold, "{duration_ns}"),
                [(index, 1)] => {
                    let (lower, upper) = (f64::from(index - 1) / 8.0, f64::from(index) / 8.0);
                    let is_open = index == OCTAVE_LAST * 8 + 1;
                    assert!(seconds > lower.exp2() && (is_open || seconds <= upper.exp2()), "{duration_ns}");
                }
                _ => panic!("{native:?}"),
            }
        }
    }

    #[test]
    fn a_classic_bound_belongs_to_its_own_bucket() {
        for (index, bound) in BOUNDS_NS.into_iter().enumerate() {
            assert_eq!((bucket(bound), bucket(bound + 1)), (index, index + 1));
        }
        assert_eq!((bucket(0), bucket(u64::MAX)), (0, BUCKETS - 1));
    }
}
