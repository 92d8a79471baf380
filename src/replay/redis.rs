//! The Redis of a replayed fleet: it keeps what nodes share by the arithmetic of the real one ([`ScriptModel`] for leases,
//! [`State`] for exact windows) and answers at once, by the clock of the log.
//!
//! It has no network: no delay, no loss, no restart. What those do to limits is what `tests/sim` measures.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use smallvec::SmallVec;

use crate::limit::lease_messages::{Hold, Op, Part, Reply, Taken, Unanswered};
use crate::limit::{Key, ScriptModel, State};
use crate::limiter::{Done, Link};

/// What nodes ask, and what it keeps.
pub struct Redis {
    nodes: u32,
    asked: Mutex<Vec<(usize, Op, Done)>>,
    kept: Mutex<Kept>,
}

#[derive(Default)]
struct Kept {
    leased: HashMap<Key, (ScriptModel, u64)>,
    exact: HashMap<Key, (State, u64)>,
    /// Permits that each node holds.
    held: HashMap<Key, Box<[u64]>>,
    nodes: usize,
}

/// One node's way to it.
pub struct Wire {
    /// Who is asked.
    pub redis: Arc<Redis>,
    /// Who asks, from 0.
    pub node: usize,
}

impl Redis {
    /// For so many nodes.
    pub fn new(nodes: u32) -> Redis {
        let kept = Kept { nodes: nodes as usize, ..Kept::default() };
        Redis { nodes, asked: Mutex::default(), kept: Mutex::new(kept) }
    }

    /// Answers all that was asked, and what is asked because of the answers, at a time of the log.
    pub fn answer(&self, now_ns: u64) {
        loop {
            let asked = std::mem::take(&mut *lock(&self.asked));
            if asked.is_empty() {
                return;
            }
            for (node, op, done) in asked {
                let reply = lock(&self.kept).act(node, &op, now_ns);
                done(reply, now_ns);
            }
        }
    }
}

impl Kept {
    fn act(&mut self, node: usize, op: &Op, now_ns: u64) -> Result<Reply, Unanswered> {
        self.forget(now_ns);
        Ok(match op {
            Op::Renew(renewal) => {
                let until_ns = now_ns + 2 * renewal.plan.quota.period_ns().get() + LEASE_NS;
                let (model, kept_ns) = self.leased.entry(renewal.key).or_default();
                *kept_ns = (*kept_ns).max(until_ns);
                Reply::Grant(model.renew(renewal, now_ns / 1_000))
            }
            Op::Take(parts) => Reply::Taken(self.take(parts, now_ns)),
            Op::Return { parts, taken_us } => {
                for part in parts {
                    self.change(part, now_ns, |state| {
                        state.give_back(&part.plan.quota, part.cost, taken_us * 1_000)
                    });
                }
                Reply::Returned
            }
            Op::Debit(parts) => {
                for part in parts {
                    self.change(part, now_ns, |state| state.debit(&part.plan.quota, part.cost, now_ns));
                }
                Reply::Returned
            }
            Op::Peek(part) => Reply::Peeked(self.state(part).take(&part.plan.quota, part.cost, now_ns).1),
            Op::Hold(hold) => Reply::Taken(self.hold(node, hold, now_ns)),
            // Operators look; no node of a replay has one.
            Op::Look(_) => return Err(Unanswered::Lost),
        })
    }

    fn take(&mut self, parts: &[Part], now_ns: u64) -> Taken {
        let taken = parts.iter().map(|part| self.state(part).take(&part.plan.quota, part.cost, now_ns));
        let (states, outcomes): (Vec<_>, SmallVec<[_; 2]>) = taken.unzip();
        let refuses =
            |(part, outcome): (&Part, &crate::limit::Outcome)| !outcome.is_admitted() && !part.shadow;
        let admitted = !parts.iter().zip(&outcomes).any(refuses);
        for ((part, state), outcome) in parts.iter().zip(states).zip(&outcomes) {
            if admitted && outcome.is_admitted() {
                self.change(part, now_ns, |_| state);
            } else if part.count_denied {
                self.change(part, now_ns, |state| state.count_denied(&part.plan.quota, part.cost, now_ns));
            }
        }
        Taken { at_us: now_ns / 1_000, outcomes, admitted }
    }

    /// A node says all that it holds; what the others hold is what they said last.
    fn hold(&mut self, node: usize, hold: &Hold, now_ns: u64) -> Taken {
        let part = &hold.part;
        let nodes = self.nodes;
        let all = self.held.entry(part.key).or_insert_with(|| vec![0; nodes].into());
        all[node] = 0;
        let elsewhere: u64 = all.iter().sum();
        let state = State([hold.held.saturating_add(elsewhere), 0]);
        let (State([out, _]), outcome) = state.take(&part.plan.quota, part.cost, now_ns);
        all[node] = out.saturating_sub(elsewhere);
        if out == 0 {
            self.held.remove(&part.key);
        }
        let admitted = outcome.is_admitted();
        Taken { at_us: now_ns / 1_000, outcomes: [outcome].into_iter().collect(), admitted }
    }

    fn state(&self, part: &Part) -> State {
        self.exact.get(&part.key).map_or_else(State::default, |(state, _)| *state)
    }

    fn change(&mut self, part: &Part, now_ns: u64, change: impl FnOnce(State) -> State) {
        let until_ns = now_ns + 2 * part.plan.quota.period_ns().get();
        let (state, kept_ns) = self.exact.entry(part.key).or_default();
        (*state, *kept_ns) = (change(*state), (*kept_ns).max(until_ns));
    }

    /// Forgets keys whose windows are over, as Redis does, once there are many.
    fn forget(&mut self, now_ns: u64) {
        let is_full = |length: usize, capacity: usize| length == capacity && length >= KEYS_LEAST;
        if is_full(self.leased.len(), self.leased.capacity()) {
            self.leased.retain(|_, (_, until_ns)| *until_ns > now_ns);
        }
        if is_full(self.exact.len(), self.exact.capacity()) {
            self.exact.retain(|_, (_, until_ns)| *until_ns > now_ns);
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Link for Wire {
    fn send(&self, op: Op, done: Done) {
        lock(&self.redis.asked).push((self.node, op, done));
    }

    fn is_up(&self, _key: Key) -> bool {
        true
    }

    fn round_trip_ns(&self, _key: Key) -> u64 {
        ROUND_TRIP_NS
    }

    fn same_shard(&self, _one: Key, _other: Key) -> bool {
        true
    }

    fn nodes(&self) -> u32 {
        self.redis.nodes
    }
}

/// What nodes believe of the network: a Redis next door.
const ROUND_TRIP_NS: u64 = 500_000;
/// A lease is over long before.
const LEASE_NS: u64 = 60_000_000_000;
/// With fewer keys none is forgotten.
const KEYS_LEAST: usize = 1 << 16;
