//! The weights of an upstream's servers, as every balance reads them.

use crate::ids::ServerIndex;
use base::ids::IdVec;

/// The weight of each server, at least one, and what follows from them.
#[derive(Debug)]
pub(super) struct Weights {
    pub each: IdVec<ServerIndex, i64>,
    pub total: i64,
    pub is_even: bool,
}

impl Weights {
    pub(super) fn new(weights: Vec<u32>) -> Weights {
        let each: IdVec<_, i64> = weights.into_iter().map(|weight| i64::from(weight.max(1))).collect();
        let is_even = each.windows(2).all(|two| two[0] == two[1]);
        Weights { total: each.iter().sum(), is_even, each }
    }
}

/// The server that is next if no balance finds one.
pub(super) const FIRST: ServerIndex = ServerIndex::new(0);
