//! A second server, drawn at random, takes the turn if it is less loaded: it keeps the longest queue short ("the power of
//! two choices", Mitzenmacher 2001).
//!
//! Weights decide whose turn it is and nothing else, because a comparison of loads divided by weights would count them
//! twice: with 95:5 and one client every load is 0 or 1, and the small server would never be the less loaded one.

use super::weights::Weights;
use crate::ids::ServerIndex;
use base::random::Random;

/// The server whose turn it is, or another one that is better.
pub(super) fn pick(
    weights: &Weights,
    first: ServerIndex,
    random: &Random,
    fit: impl Fn(ServerIndex) -> bool,
    load: impl Fn(ServerIndex) -> u32,
) -> ServerIndex {
    match draw(weights, random, |index| index != first && fit(index)) {
        Some(other) if is_better(weights, other, first, load) => other,
        _ => first,
    }
}

/// Whether a request had better go to `other` than to `first`, whose turn it is.
///
/// Servers of one weight are compared as they are, because that favours none. Of unequal ones the load goes by leaps, a
/// whole request where a fraction would be fair, so that only a load beyond what chance explains counts: more than the
/// fair share, its standard deviation (that of a Poisson distribution) and one.
fn is_better(
    weights: &Weights,
    other: ServerIndex,
    first: ServerIndex,
    load: impl Fn(ServerIndex) -> u32,
) -> bool {
    if weights.is_even {
        return load(other) < load(first);
    }
    let total: f64 = weights.each.ids().map(|index| f64::from(load(index))).sum();
    let fair = |index: ServerIndex| total * weights.each[index] as f64 / weights.total as f64;
    let excess = |index: ServerIndex| f64::from(load(index)) - fair(index) - fair(index).sqrt() - 1.0;
    excess(first) > 0.0 && excess(other) < 0.0
}

fn draw(weights: &Weights, random: &Random, fit: impl Fn(ServerIndex) -> bool) -> Option<ServerIndex> {
    let all = || weights.each.ids().filter(|&index| fit(index));
    let total: u64 = all().map(|index| weights.each[index].unsigned_abs()).sum();
    let mut point = random.next() % total.max(1);
    all().find(|&index| {
        let weight = weights.each[index].unsigned_abs();
        let is_drawn = point < weight;
        point = point.saturating_sub(weight);
        is_drawn
    })
}
