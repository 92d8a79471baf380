//! What an admitted request holds of its limits: concurrency permits until its answer has ended, a place in a leaky
//! bucket's queue until its turn comes, an estimated cost until the answer names the real one.
//!
//! The request's context owns it, so it is given back however the request ends: by the last byte, a client that leaves,
//! or a panic. Most requests hold nothing and have no reservation. It decides nothing.

use std::sync::Arc;

use http::HeaderMap;
use smallvec::SmallVec;

use crate::limit::{Algorithm, Charge};
use crate::limiter::{Decision, Limiter, Refund};
use crate::policy::Table;

/// The reservation of one request.
#[derive(Debug)]
pub struct Reservation {
    permits: SmallVec<[(Charge, Refund); 1]>,
    places: SmallVec<[(Charge, Refund); 1]>,
    estimates: SmallVec<[(Charge, Refund); 1]>,
    /// When all of it was charged: a refund goes to the window of that time.
    taken_ns: u64,
    /// From `taken_ns` to the request's turn; 0 once it has come.
    delay_ns: u64,
}

impl Reservation {
    /// What an admitted request holds of its charges; `None` if nothing.
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
            let is_estimate = table.policies()[charge.policy.index()].reconciles_cost();
            // Permits come back as they were taken.
            if is_estimate && charge.quota.algorithm() != Algorithm::Concurrency {
                held.estimates.push(taken);
            }
        }
        let is_empty = held.permits.is_empty() && held.places.is_empty() && held.estimates.is_empty();
        (!is_empty).then(|| Box::new(held))
    }

    /// Replaces each charged estimate by the cost that the answer names; if it names none, the estimate stays.
    pub fn reconcile(&mut self, table: &Table, limiter: &Arc<Limiter>, answer: &HeaderMap, now_ns: u64) {
        for (charge, refund) in self.estimates.drain(..) {
            let policy = &table.policies()[charge.policy.index()];
            if let Some(cost) = policy.cost_in(answer) {
                limiter.reconcile(&charge, refund, self.taken_ns, cost, now_ns);
            }
        }
    }

    /// From the request's begin to its turn; 0 once it has come.
    pub fn delay_ns(&self) -> u64 {
        self.delay_ns
    }

    /// The turn has come: the place in the queue is used up and not given back any more.
    pub fn turn_came(&mut self) {
        self.delay_ns = 0;
    }

    /// Gives back what is still held: permits, and the place in a queue of a request whose turn had not come.
    pub fn end(&mut self, limiter: &Arc<Limiter>) {
        let places = if self.delay_ns > 0 { self.places.as_slice() } else { &[] };
        for (charge, refund) in self.permits.iter().chain(places) {
            limiter.refund(charge, *refund, self.taken_ns);
        }
    }
}
