//! What an admitted request holds of its limits beyond the decision: permits, until its answer has ended, and a place
//! in a queue, until its turn comes. It belongs to the exchange and goes with it, whatever ends that: the last byte,
//! a client that went away, a panic.
//!
//! Most requests hold nothing; then there is none, and nothing of this is paid for. It decides nothing.

use std::time::Duration;

use smallvec::SmallVec;
use tokio::time::sleep;

use super::exchange::Exchange;
use crate::limit::{Algorithm, Charge};
use crate::limiter::{Decision, Limiter, Undo};

/// What one request holds.
#[derive(Debug)]
pub struct Held {
    permits: SmallVec<[(Charge, Undo); 1]>,
    places: SmallVec<[(Charge, Undo); 1]>,
    /// When all of it was taken.
    taken_ns: u64,
    /// From then to its turn; 0: it has come.
    delay_ns: u64,
}

impl Held {
    /// What an admitted request holds of its charges; `None`: nothing.
    pub fn of(charges: &[Charge], decision: &Decision, taken_ns: u64) -> Option<Box<Held>> {
        let delay_ns = decision.delay_ns(charges);
        let taken = |algorithm| {
            let counted = charges.iter().zip(&decision.outcomes).enumerate();
            counted
                .filter(move |(_, (charge, outcome))| {
                    charge.quota.algorithm() == algorithm && outcome.is_admitted()
                })
                .map(|(index, (charge, _))| (*charge, decision.undo(index)))
        };
        let permits: SmallVec<_> = taken(Algorithm::Concurrency).collect();
        let places = if delay_ns > 0 { taken(Algorithm::LeakyBucket).collect() } else { SmallVec::new() };
        if permits.is_empty() && places.is_empty() {
            return None;
        }
        Some(Box::new(Held { permits, places, taken_ns, delay_ns }))
    }

    /// Gives back what is still held. A request whose turn had not come leaves its place to others.
    pub fn end(&mut self, limiter: &Limiter) {
        let places = if self.delay_ns > 0 { self.places.as_slice() } else { &[] };
        for (charge, undo) in self.permits.iter().chain(places) {
            limiter.give_back(charge, *undo, self.taken_ns);
        }
    }
}

/// Waits for the request's turn, where it has to. The wait is no longer than a queue is, which the configuration
/// bounds; a client that goes away meanwhile drops it, and the drain's deadline the worker.
pub async fn turn(exchange: &mut Exchange) {
    let Some(delay_ns) = exchange.held.as_ref().map(|held| held.delay_ns).filter(|delay_ns| *delay_ns > 0)
    else {
        return;
    };
    // From when the place was taken, which is when the request began.
    let left_ns = delay_ns.saturating_sub(exchange.elapsed_ns());
    sleep(Duration::from_nanos(left_ns)).await;
    exchange.steps.delay = exchange.elapsed_ns().saturating_sub(exchange.steps.decide).max(1);
    if let Some(held) = &mut exchange.held {
        held.delay_ns = 0;
    }
}
