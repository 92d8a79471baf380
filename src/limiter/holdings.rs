//! What this node holds of windows that count what is in flight, and who waits for more of it.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use smallvec::SmallVec;

use super::plans::Plans;
use super::wait::Waiter;
use crate::limit::lease_messages::{Hold, Op, Part};
use crate::limit::{Charge, Key, Outcome, Plan, Quota, State};

/// What this node holds, by key.
#[derive(Debug, Default)]
pub(super) struct Permits(Mutex<HashMap<Key, Holding>>);

/// What this node holds of one key.
#[derive(Debug)]
pub(super) struct Holding {
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
pub(super) struct Asked {
    waiters: SmallVec<[Waiter; 1]>,
    /// Of how many of them it asks for the permits. The others were there, and would come after these.
    count: usize,
    /// The permits of these.
    cost: u64,
}

impl Holding {
    fn new(charge: &Charge, plan: &Arc<Plan>) -> Holding {
        Holding {
            part: Part::of(&Charge { cost: 0, ..*charge }, plan),
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

    fn keys(&self) -> MutexGuard<'_, HashMap<Key, Holding>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that somebody waits for a permit.
    pub(super) fn want(&self, plan: &Arc<Plan>, waiter: Waiter) {
        let mut keys = self.keys();
        let holding = keys.entry(waiter.charge.key).or_insert_with(|| Holding::new(&waiter.charge, plan));
        holding.waiting.push_back(waiter);
    }

    /// Keys of which something is to be said: what is held of them was said too long ago, or their shard was away.
    pub(super) fn due(&self, now_ns: u64, is_up: impl Fn(Key) -> bool) -> Vec<Key> {
        let mut keys = self.keys();
        let due = keys.iter_mut().filter_map(|(key, holding)| {
            let is_up = is_up(*key);
            let is_aged = now_ns.saturating_sub(holding.told_ns) >= SAID_EVERY_NS;
            holding.is_untold |= holding.held > 0 && (is_aged || !is_up);
            (holding.is_untold && is_up).then_some(*key)
        });
        due.collect()
    }

    /// Notes that no answer came. Returns all who waited for one.
    pub(super) fn unanswered(&self, key: Key, asked: Asked, now_ns: u64) -> SmallVec<[Waiter; 1]> {
        let mut waiting = asked.waiters;
        self.ended(key, now_ns, |holding| {
            holding.is_untold = true;
            waiting.extend(holding.waiting.drain(..));
        });
        waiting
    }

    /// The next thing to say of a key, and for whom; `None` where one message is on its way or nothing is to be said.
    pub(super) fn next(&self, key: Key, plans: &Plans) -> Option<(Op, Asked)> {
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
    pub(super) fn release(&self, charge: &Charge) {
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
    fn ended(&self, key: Key, now_ns: u64, note: impl FnOnce(&mut Holding)) {
        if let Some(holding) = self.keys().get_mut(&key) {
            holding.is_on_its_way = false;
            holding.told_ns = now_ns;
            note(holding);
        }
    }

    /// Notes that Redis granted what it was asked for; who was there beside waits on. Who has a permit now.
    pub(super) fn granted(&self, key: Key, mut asked: Asked, now_ns: u64) -> SmallVec<[Waiter; 1]> {
        self.ended(key, now_ns, |holding| {
            holding.held += asked.cost;
            holding.put_back(asked.waiters.drain(asked.count..));
        });
        asked.waiters
    }

    /// Notes that Redis has no more than `free` permits, fewer than it was asked for: who can have them waits on.
    /// Who cannot.
    pub(super) fn refused(&self, key: Key, asked: Asked, free: u64, now_ns: u64) -> SmallVec<[Waiter; 1]> {
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

/// How long Redis counts what a node says it holds: the permits of one that was killed are others' in less than
/// five seconds.
const LASTS_US: u64 = 4_500_000;
/// How often a node says it: three times before that.
const SAID_EVERY_NS: u64 = 1_400_000_000;
