//! The permits of concurrency windows that this node holds, and the requests that wait for more. It only keeps the
//! counts; `permits/mod.rs` sends.

use std::collections::VecDeque;
use std::sync::Arc;

use smallvec::SmallVec;

use crate::local::striped_map::StripedMap;
use crate::plans::Plans;
use crate::wait::Waiter;
use limit::lease_messages::{ExactCharge, Hold, Op};
use limit::{Charge, Key, Outcome, Plan, Quota, State};

/// Held permits, by key. Keys do not share a lock, because every request takes and gives one back.
#[derive(Debug, Default)]
pub(crate) struct Holdings(pub(crate) StripedMap<Holding>);

#[derive(Debug)]
pub(crate) struct Holding {
    /// The window, as a part with cost 0.
    part: ExactCharge,
    held: u64,
    /// Redis has not been told the present `held`.
    is_untold: bool,
    /// Redis may count permits for this node, so it has to be told when there are none.
    is_counted: bool,
    is_in_flight: bool,
    waiting: VecDeque<Waiter>,
    /// How many Redis said are free, if it had fewer than it was asked for.
    room: Option<u64>,
    told_ns: u64,
}

/// The requests that a message asks for, in the order in which they came.
#[derive(Debug, Default)]
pub(crate) struct PermitRequest {
    waiters: SmallVec<[Waiter; 1]>,
    /// For how many of `waiters`, from the first, it asks for permits. The others wait on behind these.
    count: usize,
    cost: u64,
}

impl Holding {
    fn new(charge: &Charge, plan: &Arc<Plan>) -> Holding {
        Holding {
            part: ExactCharge::of(&Charge { cost: 0, ..*charge }, plan),
            held: 0,
            is_untold: false,
            is_counted: false,
            is_in_flight: false,
            waiting: VecDeque::new(),
            room: None,
            told_ns: 0,
        }
    }

    /// Takes out the requests that still wait and are under the plan of the first, by which the key is counted from here
    /// on.
    fn take_waiting(&mut self, plans: &Plans) -> PermitRequest {
        let mut asked = PermitRequest::default();
        self.waiting.retain(|waiter| !waiter.wait.is_over());
        let Some(first) = self.waiting.front() else { return asked };
        let number = first.charge.plan;
        if let Some(plan) = plans.get(number) {
            self.part.plan = Arc::clone(&plan);
        }
        let others = self.waiting.iter().position(|waiter| waiter.charge.plan != number);
        asked.waiters = self.waiting.drain(..others.unwrap_or(self.waiting.len())).collect();
        let free = self.part.plan.quota.limit().get().saturating_sub(self.held);
        let room = self.room.take().unwrap_or(free).min(free);
        for waiter in &asked.waiters {
            let cost = asked.cost.saturating_add(waiter.charge.cost);
            // Beyond what may be free, ask for one request all the same, because its refusal answers for the others.
            if asked.count > 0 && cost > room {
                break;
            }
            (asked.count, asked.cost) = (asked.count + 1, cost);
        }
        asked
    }

    /// Puts back requests that still wait, before all others.
    fn put_back(&mut self, waiters: impl DoubleEndedIterator<Item = Waiter>) {
        waiters.rev().for_each(|waiter| self.waiting.push_front(waiter));
    }
}

impl Holdings {
    pub(crate) fn want(&self, plan: &Arc<Plan>, waiter: Waiter) {
        let key = waiter.charge.key;
        let mut keys = self.0.of(key);
        let holding = keys.entry(key).or_insert_with(|| Holding::new(&waiter.charge, plan));
        holding.waiting.push_back(waiter);
    }

    /// Keys about which Redis has to be told: held permits were told too long ago, or the shard was down since.
    pub(crate) fn due(&self, now_ns: u64, is_up: impl Fn(Key) -> bool) -> Vec<Key> {
        let mut due = Vec::new();
        self.0.retain(|key, holding| {
            let is_up = is_up(*key);
            let is_aged = now_ns.saturating_sub(holding.told_ns) >= SAID_EVERY_NS;
            holding.is_untold |= holding.held > 0 && (is_aged || !is_up);
            due.extend((holding.is_untold && is_up).then_some(*key));
            true
        });
        due
    }

    /// Records that no answer came. Returns all requests that waited for it.
    pub(crate) fn unanswered(&self, key: Key, asked: PermitRequest, now_ns: u64) -> SmallVec<[Waiter; 1]> {
        let mut waiting = asked.waiters;
        self.ended(key, now_ns, |holding| {
            holding.is_untold = true;
            waiting.extend(holding.waiting.drain(..));
        });
        waiting
    }

    /// The next message about a key and the requests it asks for; `None` if one is in flight or there is nothing to tell.
    pub(crate) fn next(&self, key: Key, plans: &Plans) -> Option<(Op, PermitRequest)> {
        let mut keys = self.0.of(key);
        let holding = keys.get_mut(&key)?;
        if holding.is_in_flight {
            return None;
        }
        let asked = holding.take_waiting(plans);
        if asked.count == 0 && !holding.is_untold {
            if holding.held == 0 {
                keys.remove(&key);
            }
            return None;
        }
        holding.is_in_flight = true;
        holding.is_counted = true;
        holding.is_untold = false;
        let part = ExactCharge { cost: asked.cost, ..holding.part.clone() };
        Some((Op::Hold(Hold { part, held: holding.held, lasts_us: LASTS_US }), asked))
    }

    /// Takes permits without Redis if this node's total stays within `share`.
    pub(crate) fn take_fallback(&self, charge: &Charge, plan: &Arc<Plan>, share: &Quota) -> Outcome {
        let mut keys = self.0.of(charge.key);
        let held = keys.get(&charge.key).map_or(0, |holding| holding.held);
        let (State([held, _]), outcome) = State([held, 0]).take(share, charge.cost, 0);
        if outcome.is_admitted() {
            let holding = keys.entry(charge.key).or_insert_with(|| Holding::new(charge, plan));
            holding.held = held;
            holding.is_untold = true;
        }
        outcome
    }

    /// The outcome of `take_fallback`, taking nothing.
    pub(crate) fn foresee(&self, charge: &Charge, share: &Quota) -> Outcome {
        let held = self.0.of(charge.key).get(&charge.key).map_or(0, |holding| holding.held);
        State([held, 0]).take(share, charge.cost, 0).1
    }

    /// Takes back the permits of a request that is over.
    pub(crate) fn release(&self, charge: &Charge) {
        let mut keys = self.0.of(charge.key);
        let Some(holding) = keys.get_mut(&charge.key) else { return };
        holding.held = holding.held.saturating_sub(charge.cost);
        holding.is_untold = true;
        // Redis need not be told, because it never counted this key.
        if holding.held == 0 && !holding.is_counted && holding.waiting.is_empty() {
            keys.remove(&charge.key);
        }
    }

    /// Records the end of a message.
    fn ended(&self, key: Key, now_ns: u64, note: impl FnOnce(&mut Holding)) {
        if let Some(holding) = self.0.of(key).get_mut(&key) {
            holding.is_in_flight = false;
            holding.told_ns = now_ns;
            note(holding);
        }
    }

    /// Records that Redis granted what it was asked for. Returns the requests that have a permit now; the others wait on.
    pub(crate) fn granted(&self, key: Key, mut asked: PermitRequest, now_ns: u64) -> SmallVec<[Waiter; 1]> {
        self.ended(key, now_ns, |holding| {
            holding.held += asked.cost;
            holding.put_back(asked.waiters.drain(asked.count..));
        });
        asked.waiters
    }

    /// Records that Redis has only `free` permits, fewer than it was asked for. Requests that fit into those wait on for the
    /// next message; returns the others.
    pub(crate) fn refused(
        &self,
        key: Key,
        asked: PermitRequest,
        free: u64,
        now_ns: u64,
    ) -> SmallVec<[Waiter; 1]> {
        // At least one fewer than asked for, so that every message answers at least one request.
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

/// How long Redis counts permits that a node reported. The permits of a killed node are free in less than five seconds.
const LASTS_US: u64 = 4_500_000;
/// How often a node repeats its report: three times within `LASTS_US`, so that two may get lost.
const SAID_EVERY_NS: u64 = 1_400_000_000;
