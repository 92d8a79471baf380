//! A request that waits for Redis, and who answers it.
//!
//! The request lives on a worker, answers come on another thread. What is said of a charge and whether the request
//! still waits is decided under one lock: an answer is either used by the request or undone by who brought it.

use std::sync::Arc;

use smallvec::SmallVec;

use super::charge_state::ChargeState;
use super::wait::{Fate, Reserved, Resolved, Wait};
use super::{Caller, Limiter};
use crate::limit::Charge;

/// A request whose decision is not made yet. Resume it with [`Limiter::resume`]; dropped, it gives back what it took.
#[must_use = "a request that waits holds what it has taken"]
pub struct Waiting {
    pub(super) limiter: Arc<Limiter>,
    pub(super) charges: SmallVec<[Charge; 4]>,
    pub(super) states: SmallVec<[ChargeState; 4]>,
    pub(super) wait: Arc<Wait>,
    pub(super) caller: Caller,
    pub(super) started_ns: u64,
    /// What this node's table holds for charges that Redis is asked about: they are admitted where no answer comes.
    pub(super) reserved: SmallVec<[Reserved; 2]>,
}

impl Waiting {
    /// Whether Redis has answered everything.
    pub fn is_resolved(&self) -> bool {
        self.wait.is_resolved()
    }

    /// Done when Redis has answered everything.
    pub fn resolved(&self) -> impl Future<Output = ()> {
        Resolved(&self.wait)
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let answers = self.wait.close();
        for reserved in self.reserved.drain(..) {
            // What Redis took, too, is undone with that.
            if !matches!(answers.get(reserved.index), Some((ChargeState::Taken { .. }, _))) {
                self.states[reserved.index] = ChargeState::taken(reserved.refund);
            }
        }
        for (state, (answer, _)) in self.states.iter_mut().zip(answers) {
            if let ChargeState::Taken { .. } = answer {
                *state = answer;
            }
        }
        self.limiter.refund_all(&self.charges, &self.states, self.started_ns);
        // Resumed, it has none.
        if !self.states.is_empty() {
            let fates = SmallVec::from_elem(Some(Fate::Refused), self.charges.len());
            self.limiter.tell_fates(&self.wait, &self.charges, fates);
        }
    }
}
