//! Permits of windows that count what is in flight, held by this node's requests and counted by the centre.
//!
//! The node tells the centre how many it holds, not how many more or fewer: what a lost message leaves wrong, the next
//! one puts right. So of one key one message is on its way at a time, and requests that want a permit have theirs in
//! the order in which they came. What is held is said again before it lapses; the permits of a node that is gone lapse.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::Limiter;
use super::attempt::Undo;
use super::fleet::{Fleet, part};
use super::renewals::Waiter;
use super::waiting::Verdict;
use crate::limit::central::{Hold, Op, Part, Reply, Unanswered};
use crate::limit::{Charge, Plan};

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
    is_on_its_way: bool,
    waiting: VecDeque<Waiter>,
    told_ns: u64,
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
        holding.is_untold = false;
        let cost = waiter.as_ref().map_or(0, |waiter| waiter.charge.cost);
        let part = Part { cost, ..holding.part.clone() };
        Some((Op::Hold(Hold { part, held: holding.held, lasts_us: LASTS_US }), waiter))
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
        let holding = || Holding {
            part: part(&Charge { cost: 0, ..waiter.charge }, plan),
            held: 0,
            is_untold: false,
            is_on_its_way: false,
            waiting: VecDeque::new(),
            told_ns: 0,
        };
        fleet.permits.keys().entry(key).or_insert_with(holding).waiting.push_back(waiter.clone());
        self.say(fleet, key);
    }

    /// Takes a permit back from a request that is over.
    pub(super) fn release_permit(self: &Arc<Self>, fleet: &Fleet, charge: &Charge) {
        if let Some(holding) = fleet.permits.keys().get_mut(&charge.key) {
            holding.held = holding.held.saturating_sub(charge.cost);
            holding.is_untold = true;
        }
        self.say(fleet, charge.key);
    }

    /// Says again what is held, before it lapses, and what could not be said while the store was away.
    pub(super) fn say_permits(self: &Arc<Self>, fleet: &Fleet, now_ns: u64) {
        let due: Vec<u128> = {
            let mut keys = fleet.permits.keys();
            let aged = |holding: &&mut Holding| now_ns.saturating_sub(holding.told_ns) >= SAID_EVERY_NS;
            let due = keys.values_mut().filter(|holding| holding.held > 0 || holding.is_untold).filter(aged);
            due.map(|holding| {
                holding.is_untold = true;
                holding.part.key
            })
            .collect()
        };
        due.into_iter().filter(|key| fleet.link.is_up(*key)).for_each(|key| self.say(fleet, key));
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
