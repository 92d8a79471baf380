//! Permits of windows that count what is in flight, held by this node's requests and counted by the centre.
//!
//! The node tells the centre how many it holds, not how many more or fewer: what a lost message leaves wrong, the next
//! one puts right. So of one key one message is on its way at a time, and requests that want a permit have theirs in
//! the order in which they came. What is held is said again before it lapses; the permits of a node that is gone lapse.
//! What was let in without the centre is held like the rest, and said when the centre is back.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::Limiter;
use super::attempt::Undo;
use super::fleet::{Fleet, part};
use super::renewals::Waiter;
use super::waiting::Verdict;
use crate::limit::central::{Hold, Op, Part, Reply, Unanswered};
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
    /// The centre does not know what is held.
    is_untold: bool,
    /// The centre may count something for this node.
    is_counted: bool,
    is_on_its_way: bool,
    waiting: VecDeque<Waiter>,
    told_ns: u64,
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
            told_ns: 0,
        }
    }
}

impl Permits {
    fn keys(&self) -> MutexGuard<'_, HashMap<u128, Holding>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next thing to say of a key, and for whom; `None` where one message is on its way or nothing is to be said.
    fn next(&self, key: u128) -> Option<(Op, Option<Waiter>)> {
        let mut keys = self.keys();
        let holding = keys.get_mut(&key)?;
        if holding.is_on_its_way {
            return None;
        }
        let waiter = holding.waiting.pop_front();
        if waiter.is_none() && !holding.is_untold {
            if holding.held == 0 {
                keys.remove(&key);
            }
            return None;
        }
        holding.is_on_its_way = true;
        holding.is_counted = true;
        holding.is_untold = false;
        let cost = waiter.as_ref().map_or(0, |waiter| waiter.charge.cost);
        let part = Part { cost, ..holding.part.clone() };
        Some((Op::Hold(Hold { part, held: holding.held, lasts_us: LASTS_US }), waiter))
    }

    /// Takes a permit without the centre where this node, with all it holds, keeps to `share`.
    pub(super) fn take_alone(&self, charge: &Charge, plan: &Arc<Plan>, share: &Quota) -> Outcome {
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

    /// What `take_alone` would say.
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
        // Of what came and went without the centre there is nothing to say.
        if holding.held == 0 && !holding.is_counted && holding.waiting.is_empty() {
            keys.remove(&charge.key);
        }
    }

    /// Notes how a message ended: permits got, and whether the centre may know another number.
    fn ended(&self, key: u128, got: u64, is_untold: bool, now_ns: u64) {
        if let Some(holding) = self.keys().get_mut(&key) {
            holding.is_on_its_way = false;
            holding.held += got;
            holding.is_untold |= is_untold;
            holding.told_ns = now_ns;
        }
    }
}

impl Limiter {
    /// Asks the centre for a permit.
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
        // While the store is away there is nobody to tell; the sweep does when it is back.
        if fleet.link.is_up(charge.key) {
            self.say(fleet, charge.key);
        }
    }

    /// Says again what is held: before it lapses, and at once when the store is back, which may have forgotten it.
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
        let Some((op, waiter)) = fleet.permits.next(key) else { return };
        let limiter = Arc::clone(self);
        fleet.link.send(op, Box::new(move |answer, now_ns| limiter.held(key, waiter, answer, now_ns)));
    }

    /// Takes up an answer.
    fn held(
        self: &Arc<Self>,
        key: u128,
        waiter: Option<Waiter>,
        answer: Result<Reply, Unanswered>,
        now_ns: u64,
    ) {
        let Some(fleet) = &self.fleet else { return };
        let verdict = match answer {
            Ok(Reply::Taken(taken)) => match taken.outcomes.first() {
                Some(outcome) if taken.admitted => Verdict::Taken(*outcome, Undo::Permit),
                Some(outcome) => Verdict::Refused(*outcome),
                None => Verdict::Unanswered,
            },
            _ => Verdict::Unanswered,
        };
        let is_granted = matches!(verdict, Verdict::Taken(..));
        let cost = waiter.as_ref().map_or(0, |waiter| waiter.charge.cost);
        // Held before its request learns of it, which may give it back at once.
        let got = if is_granted { cost } else { 0 };
        fleet.permits.ended(key, got, matches!(verdict, Verdict::Unanswered), now_ns);
        if let Some(waiter) = waiter
            && !waiter.wait.settle(waiter.index, || verdict)
            && is_granted
        {
            self.release_permit(fleet, &waiter.charge);
        }
        // Without an answer the next try is the sweep's, but for those who wait.
        if matches!(verdict, Verdict::Unanswered) {
            self.give_up_waiting(fleet, key);
        } else {
            self.say(fleet, key);
        }
    }

    /// Lets requests that wait behind one without an answer decide without the store too.
    fn give_up_waiting(&self, fleet: &Fleet, key: u128) {
        let waiting = fleet.permits.keys().get_mut(&key).map(|holding| std::mem::take(&mut holding.waiting));
        for waiter in waiting.into_iter().flatten() {
            waiter.wait.settle(waiter.index, || Verdict::Unanswered);
        }
    }
}

/// How long the centre counts what a node says it holds.
const LASTS_US: u64 = 15_000_000;
/// How often a node says it.
const SAID_EVERY_NS: u64 = 4_000_000_000;
