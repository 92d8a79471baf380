//! [`Waiting`]: a request that waits for Redis, as its worker holds it. The side that answers is `wait.rs`.

use std::sync::Arc;

use smallvec::SmallVec;

use super::charge_state::ChargeState;
use super::wait::{Fate, Reserved, Resolved, Wait};
use super::{ClientAddress, Limiter};
use limit::Charge;

/// A request that waits for Redis. Pass it to [`Limiter::resume`]; if it is dropped instead (the client left), it
/// refunds what was taken.
#[must_use = "a request that waits holds the units it has taken until it is resumed or dropped"]
pub struct Waiting {
    pub(super) limiter: Arc<Limiter>,
    pub(super) charges: SmallVec<[Charge; 4]>,
    pub(super) states: SmallVec<[ChargeState; 4]>,
    pub(super) wait: Arc<Wait>,
    pub(super) client: ClientAddress,
    pub(super) started_ns: u64,
    /// Charges that are reserved in this node's table: they are admitted if no answer comes.
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
            // If Redis took the charge too, the refund to Redis below gives back the reservation with it.
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
        // `resume` has taken the states out, and tells the fates itself.
        if !self.states.is_empty() {
            let fates = SmallVec::from_elem(Some(Fate::Refused), self.charges.len());
            self.limiter.tell_fates(&self.wait, &self.charges, fates);
        }
    }
}
