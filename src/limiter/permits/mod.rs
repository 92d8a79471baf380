//! Permits of concurrency windows: held by this node's requests, counted by Redis.
//!
//! The node tells Redis how many permits it holds, not a difference, so the next message corrects what a lost one left
//! wrong. For that, each key has one message in flight at a time. A message asks for all requests that wait by then, as
//! far as permits may be free. If Redis has fewer, the node asks again for that many and refuses the others: permits go
//! out in the order in which requests came, and nobody waits for more than two messages. The node repeats what it holds
//! before Redis lets it lapse; permits of a node that is gone lapse. Permits taken by fallback are held like the others
//! and told when Redis is back.

pub(super) mod holdings;

use std::sync::Arc;

use super::Limiter;
use super::check::charge_state::{ChargeState, Refund, said, unheard};
use super::fleet::Fleet;
use super::permits::holdings::PermitRequest;
use super::wait::Waiter;
use limit::lease_messages::{LinkError, Reply};
use limit::{Charge, Key, Plan};

impl Limiter {
    /// Asks Redis for a permit.
    pub(super) fn ask_permit(self: &Arc<Self>, fleet: &Fleet, plan: &Arc<Plan>, waiter: Waiter) {
        let key = waiter.charge.key;
        fleet.permits.want(plan, waiter);
        self.say(fleet, key);
    }

    /// Takes a permit back from a request that is over.
    pub(super) fn release_permit(self: &Arc<Self>, fleet: &Fleet, charge: &Charge) {
        fleet.permits.release(charge);
        // While Redis is down nothing is sent; the sweep does it when Redis is back.
        if fleet.link.is_up(charge.key) {
            self.say(fleet, charge.key);
        }
    }

    /// Repeats what is held: before it lapses, and at once when Redis is back, because it may have lost it.
    pub(super) fn say_permits(self: &Arc<Self>, fleet: &Fleet, now_ns: u64) {
        let due = fleet.permits.due(now_ns, |key| fleet.link.is_up(key));
        due.into_iter().for_each(|key| self.say(fleet, key));
    }

    /// Sends the next message about a key, if there is one.
    fn say(self: &Arc<Self>, fleet: &Fleet, key: Key) {
        let Some((op, asked)) = fleet.permits.next(key, &fleet.plans) else { return };
        let limiter = Arc::clone(self);
        fleet.link.send(op, Box::new(move |answer, now_ns| limiter.held(key, asked, answer, now_ns)));
    }

    /// Handles the answer to a message.
    fn held(self: &Arc<Self>, key: Key, asked: PermitRequest, answer: Result<Reply, LinkError>, now_ns: u64) {
        let Some(fleet) = &self.fleet else { return };
        let heard = match answer {
            Ok(Reply::Taken(taken)) => taken.outcomes.first().map(|outcome| (taken.admitted, *outcome)),
            _ => None,
        };
        match heard {
            Some((true, outcome)) => {
                // `granted` counts the permits before their requests are woken, because they may release them at once.
                for waiter in fleet.permits.granted(key, asked, now_ns) {
                    if !waiter.wait.resolve(waiter.index, || said(outcome, Refund::Permit)) {
                        fleet.permits.release(&waiter.charge);
                    }
                }
                self.say(fleet, key);
            }
            Some((false, outcome)) => {
                for waiter in fleet.permits.refused(key, asked, outcome.remaining, now_ns) {
                    waiter.wait.resolve(waiter.index, || (ChargeState::Refused, outcome));
                }
                self.say(fleet, key);
            }
            // No answer: the requests that wait decide by fallback, and the sweep sends the next message.
            None => {
                for waiter in fleet.permits.unanswered(key, asked, now_ns) {
                    waiter.wait.resolve(waiter.index, || unheard(ChargeState::Unanswered));
                }
            }
        }
    }
}
