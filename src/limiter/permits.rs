//! Permits of windows that count what is in flight, held by this node's requests and counted by Redis.
//!
//! The node tells Redis how many it holds, not how many more or fewer: what a lost message leaves wrong, the next
//! one puts right. So of one key one message is on its way at a time. It asks for all requests that wait by then, as
//! far as their permits may be free; where Redis has fewer, for so many again, and the others are refused: they
//! have theirs in the order in which they came, and nobody waits for more than a message or two. What is held is said again before it lapses; the permits of a node that is gone lapse.
//! What was let in without Redis is held like the rest, and said when Redis is back.

use std::sync::Arc;

use super::Limiter;
use super::charge_state::{ChargeState, Refund, said, unheard};
use super::fleet::Fleet;
use super::holdings::Asked;
use super::wait::Waiter;
use crate::limit::lease_messages::{Reply, Unanswered};
use crate::limit::{Charge, Key, Plan};

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
        // While Redis is away there is nobody to tell; the sweep does when it is back.
        if fleet.link.is_up(charge.key) {
            self.say(fleet, charge.key);
        }
    }

    /// Says again what is held: before it lapses, and at once when Redis is back, which may have forgotten it.
    pub(super) fn say_permits(self: &Arc<Self>, fleet: &Fleet, now_ns: u64) {
        let due = fleet.permits.due(now_ns, |key| fleet.link.is_up(key));
        due.into_iter().for_each(|key| self.say(fleet, key));
    }

    /// Sends what is to be said of a key.
    fn say(self: &Arc<Self>, fleet: &Fleet, key: Key) {
        let Some((op, asked)) = fleet.permits.next(key, &fleet.plans) else { return };
        let limiter = Arc::clone(self);
        fleet.link.send(op, Box::new(move |answer, now_ns| limiter.held(key, asked, answer, now_ns)));
    }

    /// Takes up an answer.
    fn held(self: &Arc<Self>, key: Key, asked: Asked, answer: Result<Reply, Unanswered>, now_ns: u64) {
        let Some(fleet) = &self.fleet else { return };
        let heard = match answer {
            Ok(Reply::Taken(taken)) => taken.outcomes.first().map(|outcome| (taken.admitted, *outcome)),
            _ => None,
        };
        match heard {
            Some((true, outcome)) => {
                // Held before their requests learn of it, which may give it back at once.
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
            // The next try is the sweep's: who waits decides without Redis, too.
            None => {
                for waiter in fleet.permits.unanswered(key, asked, now_ns) {
                    waiter.wait.resolve(waiter.index, || unheard(ChargeState::Unanswered));
                }
            }
        }
    }
}
