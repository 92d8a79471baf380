//! Idempotency: recognises requests that were charged before by their idempotency key, in this node's table or, for a
//! fleet, in Redis.
//!
//! A memory is a charge of one unit on a quota of one: if it is spent, the request was charged. It is looked at before
//! the request is decided, and spent only after the request is admitted.

use std::sync::Arc;

use smallvec::SmallVec;

use super::Limiter;
use super::charge_state::{ChargeState, Refund, Said, said, unheard};
use super::wait::{Resolved, Wait};
use limit::Charge;
use limit::lease_messages::{Op, Part, Reply};

/// A question to Redis about memories, in flight.
#[must_use = "nothing uses the answer unless `remembered` is called"]
pub struct Recall {
    wait: Arc<Wait>,
}

impl Limiter {
    /// Whether this node remembers the request.
    pub(super) fn is_remembered(&self, memory: &Charge, now_ns: u64) -> bool {
        memory.plan.is_none() && self.table.is_remembered(memory, now_ns)
    }

    /// Asks Redis for the memories that the fleet shares; `None` if there are none or their shards are not quick.
    pub(super) fn recall(&self, memories: &[Charge]) -> Option<Recall> {
        let fleet = self.fleet.as_ref()?;
        let plans = &fleet.plans;
        let shared: SmallVec<[_; 2]> = memories
            .iter()
            .enumerate()
            .filter_map(|(index, memory)| Some((index, memory, plans.get(memory.plan)?)))
            .filter(|(_, memory, _)| fleet.link.is_quick(memory.key))
            .collect();
        if shared.is_empty() {
            return None;
        }
        let wait = Arc::new(Wait::new(memories.len(), shared.len()));
        for (index, memory, plan) in shared {
            let wait = Arc::clone(&wait);
            let done = move |answer| {
                wait.resolve(index, || match answer {
                    Ok(Reply::Peeked(outcome)) => said(outcome, Refund::Nothing),
                    _ => unheard(ChargeState::Unanswered),
                });
            };
            fleet.link.send(Op::Peek(Part::of(memory, plan)), Box::new(move |answer, _| done(answer)));
        }
        Some(Recall { wait })
    }

    /// Remembers an admitted request: in Redis if the policy is shared, else in this node's table.
    pub(super) fn remember(&self, memory: &Charge, now_ns: u64) {
        let shared = self.fleet.as_ref().and_then(|fleet| Some((fleet, fleet.plans.get(memory.plan)?)));
        match shared {
            Some((fleet, plan)) => {
                let parts = [Part::of(memory, plan)].into_iter().collect();
                fleet.link.send(Op::Repay(parts), Box::new(|_, _| {}));
            }
            None => self.table.remember(memory, now_ns),
        }
    }
}

impl Recall {
    /// Done when Redis has answered everything.
    pub(super) fn resolved(&self) -> impl Future<Output = ()> {
        Resolved(&self.wait)
    }

    /// The indices of the memories that Redis has reported as spent so far.
    pub(super) fn remembered(self) -> SmallVec<[usize; 2]> {
        let answers = self.wait.close().into_iter().enumerate();
        let is_spent = |(_, (state, _)): &(usize, Said)| *state == ChargeState::Refused;
        answers.filter(is_spent).map(|(index, _)| index).collect()
    }
}
