//! [`Waiting`]: a request that waits for Redis, as its worker holds it. The side that answers is `wait.rs`.

use std::sync::Arc;
use std::time::Duration;

use smallvec::SmallVec;

use super::Limiter;
use super::check::charge_state::ChargeState;
use super::decision::ClientAddress;
use super::wait::{EarlyDecision, Wait};
use base::clock;
use limit::{Charge, Key};

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
        self.limiter.shared.as_ref().map_or(Duration::ZERO, |shared| shared.fleet.deadline(self.asked_keys()))
    }

    /// How much longer it waits after that. Requests to a key are asked for together, behind the question in flight, and
    /// this node's part is for a Redis that is late, not for a queue: so it goes on while the last question about one of its
    /// keys is within its deadline, at most `DEADLINES_MAX` in all.
    pub fn longer(&self, now_ns: u64) -> Duration {
        let Some(shared) = &self.limiter.shared else { return Duration::ZERO };
        let until_ns = self.asked_keys().filter_map(|key| {
            let deadline_ns = shared.fleet.link.deadline(key).as_nanos() as u64;
            let last_ns = self.started_ns.saturating_add(deadline_ns.saturating_mul(DEADLINES_MAX));
            let sent_ns = shared.exact.questions.sent_ns(key).or_else(|| shared.leases.renewals.sent_ns(key));
            Some(sent_ns?.saturating_add(deadline_ns).min(last_ns))
        });
        Duration::from_nanos(until_ns.max().unwrap_or(0).saturating_sub(now_ns))
    }

    fn asked_keys(&self) -> impl Iterator<Item = Key> {
        let asked = self.charges.iter().zip(&self.states).filter(|(_, state)| **state == ChargeState::Asked);
        asked.map(|(charge, _)| charge.key)
    }

    /// Done when Redis has answered everything.
    pub fn resolved(&self) -> impl Future<Output = ()> {
        self.wait.resolved()
    }
}

/// How many deadlines a request waits at most in a queue: for the question before its own, for its own, and again if that
/// asked for too much.
const DEADLINES_MAX: u64 = 4;

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
            let fates: SmallVec<[_; 4]> = SmallVec::from_elem(EarlyDecision::Refused, self.charges.len());
            shared.exact.tell_fates(&self.wait, &self.charges, &fates, clock::now_ns());
        }
    }
}
