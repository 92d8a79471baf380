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

use crate::check::charge_state::{ChargeState, Refund, said, unheard};
use crate::fleet::Fleet;
use crate::permits::holdings::{Holdings, PermitRequest};
use crate::wait::Waiter;
use limit::lease_messages::{LinkError, Reply};
use limit::{Charge, Key, Plan};

pub(crate) struct Permits {
    fleet: Arc<Fleet>,
    pub(crate) holdings: Holdings,
}

impl Permits {
    pub(crate) fn new(fleet: &Arc<Fleet>) -> Permits {
        Permits { fleet: Arc::clone(fleet), holdings: Holdings::default() }
    }

    pub(crate) fn ask(self: &Arc<Self>, plan: &Arc<Plan>, waiter: Waiter) {
        let key = waiter.charge.key;
        self.holdings.want(plan, waiter);
        self.say(key);
    }

    /// Takes a permit back from a request that is over.
    pub(crate) fn release(self: &Arc<Self>, charge: &Charge) {
        self.holdings.release(charge);
        // While Redis is down nothing is sent; the sweep does it when Redis is back.
        if self.fleet.link.is_up(charge.key) {
            self.say(charge.key);
        }
    }

    /// Repeats what is held: before it lapses, and at once when Redis is back, because it may have lost it.
    pub(crate) fn sweep(self: &Arc<Self>, now_ns: u64) {
        let due = self.holdings.due(now_ns, |key| self.fleet.link.is_up(key));
        due.into_iter().for_each(|key| self.say(key));
    }

    /// Sends the next message about a key, if there is one.
    fn say(self: &Arc<Self>, key: Key) {
        let Some((op, asked)) = self.holdings.next(key, &self.fleet.plans) else { return };
        let permits = Arc::clone(self);
        let done = move |answer, now_ns| permits.answered(key, asked, answer, now_ns);
        self.fleet.link.send(op, Box::new(done));
    }

    fn answered(
        self: &Arc<Self>,
        key: Key,
        asked: PermitRequest,
        answer: Result<Reply, LinkError>,
        now_ns: u64,
    ) {
        let heard = match answer {
            Ok(Reply::Taken(taken)) => taken.outcomes.first().map(|outcome| (taken.admitted, *outcome)),
            _ => None,
        };
        match heard {
            Some((true, outcome)) => {
                // `granted` counts the permits before their requests are woken, because they may release them at once.
                for waiter in self.holdings.granted(key, asked, now_ns) {
                    if !waiter.wait.resolve(waiter.index, || said(outcome, Refund::Permit)) {
                        self.holdings.release(&waiter.charge);
                    }
                }
                self.say(key);
            }
            Some((false, outcome)) => {
                for waiter in self.holdings.refused(key, asked, outcome.remaining, now_ns) {
                    waiter.wait.resolve(waiter.index, || (ChargeState::Refused, outcome));
                }
                self.say(key);
            }
            // No answer: the requests that wait decide by fallback, and the sweep sends the next message.
            None => {
                for waiter in self.holdings.unanswered(key, asked, now_ns) {
                    waiter.wait.resolve(waiter.index, || unheard(ChargeState::Unanswered));
                }
            }
        }
    }
}
