//! The server with the fewest requests on their way, for its weight; of several such the one whose turn it is.
//!
//! A worker knows its own requests alone, as every balance does.

use super::weights::Weights;

/// The server whose turn it is, or the first one that is less loaded than it and all others.
pub(super) fn pick(
    weights: &Weights,
    first: usize,
    fit: impl Fn(usize) -> bool,
    load: impl Fn(usize) -> u32,
) -> usize {
    // With this request: otherwise every idle server would be as good as any other, whatever its weight.
    let load_with = |index: usize| i64::from(load(index)) + 1;
    // Fractions compared without a division: both numbers are far below 2^31.
    let is_less = |one: usize, other: usize| {
        load_with(one) * weights.each[other] < load_with(other) * weights.each[one]
    };
    (0..weights.each.len())
        .filter(|&index| fit(index))
        .fold(first, |best, index| if is_less(index, best) { index } else { best })
}
