//! Each server in turn, by weight: a smooth weighted round-robin, in which a server that was passed over keeps its claim.
//! Turns keep the shares exact, whatever takes them.

use std::cell::RefCell;

use super::weights::{FIRST, Weights};
use crate::ids::ServerIndex;
use base::ids::IdVec;

#[derive(Debug)]
pub(super) struct RoundRobinTurns {
    /// What each server has earned and not been paid.
    claims: RefCell<IdVec<ServerIndex, i64>>,
}

impl RoundRobinTurns {
    pub(super) fn new(weights: &Weights) -> RoundRobinTurns {
        RoundRobinTurns { claims: RefCell::new(vec![0; weights.each.len()].into()) }
    }

    /// Goes on from the servers before: one that was there keeps its claim, one that is new has none.
    pub(super) fn go_on_from(
        &self,
        other: &RoundRobinTurns,
        before: &IdVec<ServerIndex, Option<ServerIndex>>,
    ) {
        let known = other.claims.borrow();
        let claims = before.iter().map(|before| before.map_or(0, |before| known[before]));
        self.claims.replace(claims.collect());
    }

    /// The server with the largest claim, were each to earn its weight now.
    pub(super) fn next(&self, weights: &Weights, fit: impl Fn(ServerIndex) -> bool) -> ServerIndex {
        let claims = self.claims.borrow();
        let claim = |index: &ServerIndex| claims[*index] + weights.each[*index];
        let all = weights.each.ids().filter(|&index| fit(index));
        // Not `max_by_key`, because of several it gives the last, and the first is wanted.
        all.reduce(|best, index| if claim(&index) > claim(&best) { index } else { best }).unwrap_or(FIRST)
    }

    /// Every server that may be asked earns its weight, and the one that is asked pays for all. A claim is bounded, so
    /// that a server that was slow for an hour is not owed the hour.
    pub(super) fn take(&self, weights: &Weights, taken: ServerIndex, fit: impl Fn(ServerIndex) -> bool) {
        let mut claims = self.claims.borrow_mut();
        let mut earned = 0;
        for index in weights.each.ids().filter(|&index| fit(index)) {
            let most = CLAIM_TURNS_MAX * weights.total - claims[index];
            let earns = weights.each[index].min(most.max(0));
            claims[index] += earns;
            earned += earns;
        }
        claims[taken] -= earned;
    }
}

/// A server may be owed so many turns at most.
const CLAIM_TURNS_MAX: i64 = 8;
