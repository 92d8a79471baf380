//! [`Waiting`]: a request that waits for Redis, as its worker holds it. The side that answers is `wait.rs`.

use std::sync::Arc;
use std::time::Duration;

use smallvec::SmallVec;

use super::Limiter;
use super::check::charge_state::ChargeState;
use super::decision::ClientAddress;
use super::wait::{EarlyDecision, Wait, WaitResolution};
use base::clock;
use limit::Charge;

/// A request that waits for Redis. [`Waiting::resume`] completes it; if it is dropped instead (the client left), it
/// refunds what was taken.
#[must_use = "a request that waits holds the units it has taken until it is resumed or dropped"]
pub struct Waiting {
    pub(super) limiter: Arc<Limiter>,
    pub(super) charges: SmallVec<[Charge; 4]>,
    pub(super) states: SmallVec<[ChargeState; 4]>,
    pub(super) wait: Arc<Wait>,
    pub(super) client: ClientAddress,
    pub(super) started_ns: u64,
}

impl Waiting {
    /// Whether Redis has answered everything that this request waits for.
    pub fn is_resolved(&self) -> bool {
        self.wait.is_resolved()
    }

    /// How long it waits: the longest that one of its keys is given.
    pub fn deadline(&self) -> Duration {
        let asked = self.charges.iter().zip(&self.states).filter(|(_, state)| **state == ChargeState::Asked);
        let keys = asked.map(|(charge, _)| charge.key);
        self.limiter.shared.as_ref().map_or(Duration::ZERO, |shared| shared.fleet.deadline(keys))
    }

    /// How much longer it waits at `now_ns`, when its deadline is over: an exact window is asked about by one call at a time, so
    /// the answer to a request that was behind another call is due a deadline after its own call was sent. `None`: no longer.
    pub fn more(&self, now_ns: u64) -> Option<Duration> {
        let deadline_ns = self.deadline().as_nanos() as u64;
        let end_ns = self.wait.asked_ns().saturating_add(deadline_ns);
        let latest_ns = self.started_ns.saturating_add(deadline_ns.saturating_mul(CALLS_MAX));
        let left_ns = end_ns.min(latest_ns).checked_sub(now_ns).filter(|left_ns| *left_ns > 0)?;
        Some(Duration::from_nanos(left_ns))
    }

    /// Done when Redis has answered everything.
    pub fn resolved(&self) -> impl Future<Output = ()> {
        WaitResolution(&self.wait)
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let answers = self.wait.close();
        for (state, (answer, _)) in self.states.iter_mut().zip(answers) {
            if let ChargeState::Taken { .. } = answer {
                *state = answer;
            }
        }
        for (charge, state) in self.charges.iter().zip(&self.states) {
            self.limiter.refund_refused(charge, state, self.started_ns);
        }
        // `resume` has taken the states out, and tells the fates itself.
        if let Some(shared) = self.limiter.shared.as_ref().filter(|_| !self.states.is_empty()) {
            let fates = SmallVec::from_elem(Some(EarlyDecision::Refused), self.charges.len());
            shared.exact.tell_fates(&self.wait, &self.charges, fates, clock::now_ns());
        }
    }
}

/// For so many calls after one another a request waits at most: that of others, its own, and those for fewer requests if together
/// they were too much.
const CALLS_MAX: u64 = 4;
