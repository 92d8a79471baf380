//! What an admitted request holds of its limits beyond the decision: permits, until its answer has ended; a place in a
//! queue, until its turn comes; an estimate of its cost, until the answer's head tells. It belongs to the context and
//! goes with it, whatever ends that: the last byte, a client that went away, a panic.
//!
//! Most requests hold nothing; then there is none, and nothing of this is paid for. It decides nothing.

use std::sync::Arc;

use http::HeaderMap;
use smallvec::SmallVec;

use crate::limit::{Algorithm, Charge};
use crate::limiter::{Decision, Limiter, Refund};
use crate::policy::Table;

/// What one request holds.
#[derive(Debug)]
pub struct Reservation {
    permits: SmallVec<[(Charge, Refund); 1]>,
    places: SmallVec<[(Charge, Refund); 1]>,
    estimates: SmallVec<[(Charge, Refund); 1]>,
    /// When all of it was taken.
    taken_ns: u64,
    /// From then to its turn; 0: it has come.
    delay_ns: u64,
}

impl Reservation {
    /// What an admitted request holds of its charges; `None`: nothing.
    pub fn of(
        table: &Table,
        charges: &[Charge],
        decision: &Decision,
        taken_ns: u64,
    ) -> Option<Box<Reservation>> {
        let delay_ns = decision.delay_ns(charges);
        let mut held = Reservation {
            permits: SmallVec::new(),
            places: SmallVec::new(),
            estimates: SmallVec::new(),
            taken_ns,
            delay_ns,
        };
        for (index, (charge, outcome)) in charges.iter().zip(&decision.outcomes).enumerate() {
            if !outcome.is_admitted() {
                continue;
            }
            let taken = (*charge, decision.refund(index));
            match charge.quota.algorithm() {
                Algorithm::Concurrency => held.permits.push(taken),
                Algorithm::LeakyBucket if delay_ns > 0 => held.places.push(taken),
                _ => {}
            }
            let is_settled = table.policies()[charge.policy.index()].is_settled();
            // Permits come back as they were taken.
            if is_settled && charge.quota.algorithm() != Algorithm::Concurrency {
                held.estimates.push(taken);
            }
        }
        let is_empty = held.permits.is_empty() && held.places.is_empty() && held.estimates.is_empty();
        (!is_empty).then(|| Box::new(held))
    }

    /// Settles what was charged with what the answer says the request cost; if it says nothing, the estimate stays.
    pub fn settle(&mut self, table: &Table, limiter: &Arc<Limiter>, answer: &HeaderMap, now_ns: u64) {
        for (charge, undo) in self.estimates.drain(..) {
            let policy = &table.policies()[charge.policy.index()];
            if let Some(cost) = policy.settled_cost(answer) {
                limiter.reconcile(&charge, undo, self.taken_ns, cost, now_ns);
            }
        }
    }

    /// How long its turn is after what it was taken at, nanoseconds; 0: it has come.
    pub fn delay_ns(&self) -> u64 {
        self.delay_ns
    }

    /// The turn has come.
    pub fn turn_came(&mut self) {
        self.delay_ns = 0;
    }

    /// Gives back what is still held. A request whose turn had not come leaves its place to others.
    pub fn end(&mut self, limiter: &Arc<Limiter>) {
        let places = if self.delay_ns > 0 { self.places.as_slice() } else { &[] };
        for (charge, undo) in self.permits.iter().chain(places) {
            limiter.refund(charge, *undo, self.taken_ns);
        }
    }
}
