//! The server with the fewest requests on their way, for its weight; of several such, idle ones among them, the one whose turn
//! it is by weight.
//!
//! A worker knows its own requests alone, as every balance does.

use super::round_robin::RoundRobinTurns;
use super::weights::{FIRST, Weights};
use crate::ids::ServerIndex;

/// The least loaded server; of several such, the one whose turn it is among them.
pub(super) fn pick(
    weights: &Weights,
    turns: &RoundRobinTurns,
    fit: impl Fn(ServerIndex) -> bool,
    load: impl Fn(ServerIndex) -> u32,
) -> ServerIndex {
    // Fractions compared without a division: both numbers are far below 2^31. The request at hand is not counted:
    // otherwise, of idle servers the heaviest would be the least loaded with it, and get all requests that come one by
    // one.
    let weighted = |one: ServerIndex, other: ServerIndex| i64::from(load(one)) * weights.each[other];
    let all = weights.each.ids().filter(|&index| fit(index));
    let less = |best, index| if weighted(index, best) < weighted(best, index) { index } else { best };
    let Some(least) = all.reduce(less) else { return FIRST };
    turns.next(weights, |index| fit(index) && weighted(index, least) == weighted(least, index))
}
