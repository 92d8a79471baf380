//! Permits of windows that count what is in flight, held by this node's requests and counted by Redis.
//!
//! The node tells Redis how many it holds, not how many more or fewer: what a lost message leaves wrong, the next
//! one puts right. So of one key one message is on its way at a time. It asks for all requests that wait by then, as
//! far as their permits may be free; where Redis has fewer, for so many again, and the others are refused: they
//! have theirs in the order in which they came, and nobody waits for more than a message or two. What is held is said again before it lapses; the permits of a node that is gone lapse.
//! What was let in without Redis is held like the rest, and said when Redis is back.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use smallvec::SmallVec;

use super::Limiter;
use super::charge_state::{ChargeState, Refund, said, unheard};
use super::fleet::{Fleet, part};
use super::plans::Plans;
use super::renewals::Waiter;
use crate::limit::lease_messages::{Hold, Op, Part, Reply, Unanswered};
use crate::limit::{Charge, Outcome, Plan, Quota, State};

/// What this node holds, by key.
#[derive(Debug, Default)]
pub(super) struct Permits(Mutex<HashMap<u128, Holding>>);

/// What this node holds of one key.
#[derive(Debug)]
struct Holding {
    /// As a part of no cost.
    part: Part,
    held: u64,
    /// Redis does not know what is held.
    is_untold: bool,
    /// Redis may count something for this node.
    is_counted: bool,
    is_on_its_way: bool,
    waiting: VecDeque<Waiter>,
    /// What Redis said is free, where it had fewer than it was asked for.
    room: Option<u64>,
    told_ns: u64,
}

/// Those for whom a message asks, in the order in which they came.
#[derive(Debug, Default)]
struct Asked {
    waiters: SmallVec<[Waiter; 1]>,
    /// Of how many of them it asks for the permits. The others were there, and would come after these.
    count: usize,
    /// The permits of these.
    cost: u64,
}

impl Holding {
    fn new(charge: &Charge, plan: &Arc<Plan>) -> Holding {
        Holding {
            part: part(&Charge { cost: 0, ..*charge }, plan),
            held: 0,
            is_untold: false,
            is_counted: false,
            is_on_its_way: false,
            waiting: VecDeque::new(),
            room: None,
            told_ns: 0,
        }
    }

    /// Takes out who still waits, under one plan, which the key is counted by from here on.
    fn take_waiting(&mut self, plans: &Plans) -> Asked {
        let mut asked = Asked::default();
        self.waiting.retain(|waiter| !waiter.wait.is_over());
        let Some(first) = self.waiting.front() else { return asked };
        let number = first.charge.plan;
        if let Some(plan) = plans.get(number) {
            self.part.plan = Arc::clone(plan);
        }
        let others = self.waiting.iter().position(|waiter| waiter.charge.plan != number);
        asked.waiters = self.waiting.drain(..others.unwrap_or(self.waiting.len())).collect();
        let free = self.part.plan.quota.limit().get().saturating_sub(self.held);
        let room = self.room.take().unwrap_or(free).min(free);
        for waiter in &asked.waiters {
            let cost = asked.cost.saturating_add(waiter.charge.cost);
            // What cannot be free is asked about with one, for all.
            if asked.count > 0 && cost > room {
                break;
            }
            (asked.count, asked.cost) = (asked.count + 1, cost);
        }
        asked
    }

    /// Lets these wait on, before all others.
    fn put_back(&mut self, waiters: impl DoubleEndedIterator<Item = Waiter>) {
        waiters.rev().for_each(|waiter| self.waiting.push_front(waiter));
    }
}

impl Permits {
    /// Keys of which something is held, wanted or to be said.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.keys().len()
    }

    fn keys(&self) -> MutexGuard<'_, HashMap<u128, Holding>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next thing to say of a key, and for whom; `None` where one message is on its way or nothing is to be said.
    fn next(&self, key: u128, plans: &Plans) -> Option<(Op, Asked)> {
        let mut keys = self.keys();
        let holding = keys.get_mut(&key)?;
        if holding.is_on_its_way {
            return None;
        }
        let asked = holding.take_waiting(plans);
        if asked.count == 0 && !holding.is_untold {
            if holding.held == 0 {
                keys.remove(&key);
            }
            return None;
        }
        holding.is_on_its_way = true;
        holding.is_counted = true;
        holding.is_untold = false;
        let part = Part { cost: asked.cost, ..holding.part.clone() };
        Some((Op::Hold(Hold { part, held: holding.held, lasts_us: LASTS_US }), asked))
    }

    /// Takes a permit without Redis where this node, with all it holds, keeps to `share`.
    pub(super) fn take_fallback(&self, charge: &Charge, plan: &Arc<Plan>, share: &Quota) -> Outcome {
        let mut keys = self.keys();
        let held = keys.get(&charge.key).map_or(0, |holding| holding.held);
        let (State([held, _]), outcome) = State([held, 0]).take(share, charge.cost, 0);
        if outcome.is_admitted() {
            let holding = keys.entry(charge.key).or_insert_with(|| Holding::new(charge, plan));
            holding.held = held;
            holding.is_untold = true;
        }
        outcome
    }

    /// What `take_fallback` would say.
    pub(super) fn foresee(&self, charge: &Charge, share: &Quota) -> Outcome {
        let held = self.keys().get(&charge.key).map_or(0, |holding| holding.held);
        State([held, 0]).take(share, charge.cost, 0).1
    }

    /// Takes permits back.
    fn release(&self, charge: &Charge) {
        let mut keys = self.keys();
        let Some(holding) = keys.get_mut(&charge.key) else { return };
        holding.held = holding.held.saturating_sub(charge.cost);
        holding.is_untold = true;
        // Of what came and went without Redis there is nothing to say.
        if holding.held == 0 && !holding.is_counted && holding.waiting.is_empty() {
            keys.remove(&charge.key);
        }
    }

    /// Notes how a message ended.
    fn ended(&self, key: u128, now_ns: u64, note: impl FnOnce(&mut Holding)) {
        if let Some(holding) = self.keys().get_mut(&key) {
            holding.is_on_its_way = false;
            holding.told_ns = now_ns;
            note(holding);
        }
    }

    /// Notes that Redis granted what it was asked for; who was there beside waits on. Who has a permit now.
    fn granted(&self, key: u128, mut asked: Asked, now_ns: u64) -> SmallVec<[Waiter; 1]> {
        self.ended(key, now_ns, |holding| {
            holding.held += asked.cost;
            holding.put_back(asked.waiters.drain(asked.count..));
        });
        asked.waiters
    }

    /// Notes that Redis has no more than `free` permits, fewer than it was asked for: who can have them waits on.
    /// Who cannot.
    fn refused(&self, key: u128, asked: Asked, free: u64, now_ns: u64) -> SmallVec<[Waiter; 1]> {
        // Fewer in any case, so that somebody has an answer with every message.
        let free = free.min(asked.cost.saturating_sub(1));
        let mut left = free;
        let (again, refused): (SmallVec<[Waiter; 1]>, _) = asked.waiters.into_iter().partition(|waiter| {
            let rest = left.checked_sub(waiter.charge.cost);
            left = rest.unwrap_or(left);
            rest.is_some()
        });
        self.ended(key, now_ns, |holding| {
            holding.room = Some(free).filter(|_| !again.is_empty());
            holding.put_back(again.into_iter());
        });
        refused
    }
}

impl Limiter {
    /// Asks Redis for a permit.
    pub(super) fn ask_permit(self: &Arc<Self>, fleet: &Fleet, plan: &Arc<Plan>, waiter: Waiter) {
        let key = waiter.charge.key;
        {
            let mut keys = fleet.permits.keys();
            let holding = keys.entry(key).or_insert_with(|| Holding::new(&waiter.charge, plan));
            holding.waiting.push_back(waiter);
        }
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
        let due: Vec<u128> = {
            let mut keys = fleet.permits.keys();
            let due = keys.iter_mut().filter_map(|(key, holding)| {
                let is_up = fleet.link.is_up(*key);
                let is_aged = now_ns.saturating_sub(holding.told_ns) >= SAID_EVERY_NS;
                holding.is_untold |= holding.held > 0 && (is_aged || !is_up);
                (holding.is_untold && is_up).then_some(*key)
            });
            due.collect()
        };
        due.into_iter().for_each(|key| self.say(fleet, key));
    }

    /// Sends what is to be said of a key.
    fn say(self: &Arc<Self>, fleet: &Fleet, key: u128) {
        let Some((op, asked)) = fleet.permits.next(key, &fleet.plans) else { return };
        let limiter = Arc::clone(self);
        fleet.link.send(op, Box::new(move |answer, now_ns| limiter.held(key, asked, answer, now_ns)));
    }

    /// Takes up an answer.
    fn held(self: &Arc<Self>, key: u128, asked: Asked, answer: Result<Reply, Unanswered>, now_ns: u64) {
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
                let mut waiting = asked.waiters;
                fleet.permits.ended(key, now_ns, |holding| {
                    holding.is_untold = true;
                    waiting.extend(holding.waiting.drain(..));
                });
                for waiter in waiting {
                    waiter.wait.resolve(waiter.index, || unheard(ChargeState::Unanswered));
                }
            }
        }
    }
}

/// How long Redis counts what a node says it holds: the permits of one that was killed are others' in less than
/// five seconds.
const LASTS_US: u64 = 4_500_000;
/// How often a node says it: three times before that.
const SAID_EVERY_NS: u64 = 1_400_000_000;
