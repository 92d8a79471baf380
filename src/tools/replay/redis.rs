//! The Redis of a replayed fleet: it keeps what nodes share by the arithmetic of the real one ([`ScriptModel`] for leases,
//! [`State`] and [`Log`] for exact windows) and answers at once, by the clock of the log.
//!
//! It has no network: no delay, no loss, no restart. What those do to limits is what `tests/sim` measures.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use smallvec::SmallVec;

use limit::lease_messages::{ExactCharge, Hold, LinkError, Op, Reply, TakeReply};
use limit::{Algorithm, Key, Log, Outcome, ScriptModel, State};
use limiter::{Done, Link};

/// What nodes ask, and what it keeps.
pub struct Redis {
    nodes: u32,
    asked: Mutex<Vec<(usize, Op, Done)>>,
    kept: Mutex<RedisState>,
}

#[derive(Default)]
struct RedisState {
    leased: HashMap<Key, (ScriptModel, u64)>,
    exact: HashMap<Key, (Exact, u64)>,
    /// Permits that each node holds.
    held: HashMap<Key, Box<[u64]>>,
    nodes: usize,
    /// How far its own clock, which leases know, is ahead of the limiters'.
    ahead_ns: u64,
}

/// What is kept of one exact window.
enum Exact {
    Words(State),
    Log(Log),
}

pub struct Wire {
    pub redis: Arc<Redis>,
    /// Who asks, from 0.
    pub node: usize,
}

impl Redis {
    pub fn new(nodes: u32) -> Redis {
        let kept = RedisState { nodes: nodes as usize, ..RedisState::default() };
        Redis { nodes, asked: Mutex::default(), kept: Mutex::new(kept) }
    }

    /// Sets its clock so far ahead of the limiters'.
    pub fn set_clock(&self, ahead_ns: u64) {
        lock(&self.kept).ahead_ns = ahead_ns;
    }

    /// Answers all that was asked, and what is asked because of the answers, at a time of the log.
    pub fn answer(&self, now_ns: u64) {
        loop {
            // Taken out first, because an answer may make its node ask again, which needs this lock.
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

impl RedisState {
    fn act(&mut self, node: usize, op: &Op, now_ns: u64) -> Result<Reply, LinkError> {
        // Cut, because Redis counts microseconds, and is told them when something comes back.
        let now_ns = now_ns / 1_000 * 1_000;
        self.forget(now_ns);
        Ok(match op {
            Op::Renew(renewal) => {
                let lasts_ns =
                    renewal.plan.quota.period_ns().get().saturating_mul(2).saturating_add(LEASE_NS);
                let (model, kept_ns) = self.leased.entry(renewal.key).or_default();
                *kept_ns = (*kept_ns).max(now_ns.saturating_add(lasts_ns));
                Reply::Grant(model.renew(renewal, now_ns.saturating_add(self.ahead_ns) / 1_000))
            }
            Op::Take(parts) => Reply::Taken(self.take(parts, now_ns)),
            Op::Return { parts, taken_us } => {
                for part in parts {
                    self.kept(part, now_ns).give_back(part, taken_us.saturating_mul(1_000));
                }
                Reply::Returned
            }
            Op::Debit(parts) => {
                for part in parts {
                    self.kept(part, now_ns).debit(part, now_ns);
                }
                Reply::Returned
            }
            Op::Repay(parts) => {
                for part in parts {
                    self.kept(part, now_ns).repay(part, now_ns);
                }
                Reply::Returned
            }
            Op::Peek(part) => Reply::Peeked(self.peek(part, now_ns)),
            Op::Hold(hold) => Reply::Taken(self.hold(node, hold, now_ns)),
            // Never asked, because only operators look, and no node of a replay has one; nor is Redis ever away in one.
            Op::Look(_) | Op::Report { .. } => return Err(LinkError::Lost),
        })
    }

    fn take(&mut self, parts: &[ExactCharge], now_ns: u64) -> TakeReply {
        let mut outcomes: SmallVec<[Outcome; 2]> = parts.iter().map(|part| self.peek(part, now_ns)).collect();
        let refuses = |(part, outcome): (&ExactCharge, &Outcome)| !outcome.is_admitted() && !part.shadow;
        let admitted = !parts.iter().zip(&outcomes).any(refuses);
        for (part, outcome) in parts.iter().zip(&mut outcomes) {
            if admitted && outcome.is_admitted() {
                *outcome = self.kept(part, now_ns).take(part, now_ns);
            } else if part.count_denied {
                self.kept(part, now_ns).count_denied(part, now_ns);
            }
        }
        TakeReply { at_us: now_ns / 1_000, outcomes, admitted }
    }

    fn peek(&self, part: &ExactCharge, now_ns: u64) -> Outcome {
        match self.exact.get(&part.key) {
            Some((exact, _)) => exact.peek(part, now_ns),
            None => Exact::new(part).peek(part, now_ns),
        }
    }

    /// What is kept of a window that changes now.
    fn kept(&mut self, part: &ExactCharge, now_ns: u64) -> &mut Exact {
        let until_ns = now_ns.saturating_add(part.plan.quota.period_ns().get().saturating_mul(2));
        let (exact, kept_ns) = self.exact.entry(part.key).or_insert_with(|| (Exact::new(part), 0));
        *kept_ns = (*kept_ns).max(until_ns);
        exact
    }

    /// A node says all that it holds; what the others hold is what they said last.
    fn hold(&mut self, node: usize, hold: &Hold, now_ns: u64) -> TakeReply {
        let part = &hold.part;
        let nodes = self.nodes;
        let all = self.held.entry(part.key).or_insert_with(|| vec![0; nodes].into());
        // Its own do not count, because it says all that it holds.
        all[node] = 0;
        let elsewhere: u64 = all.iter().sum();
        let state = State([hold.held.saturating_add(elsewhere), 0]);
        let (State([out, _]), outcome) = state.take(&part.plan.quota, part.cost, now_ns);
        all[node] = out.saturating_sub(elsewhere);
        if out == 0 {
            self.held.remove(&part.key);
        }
        let admitted = outcome.is_admitted();
        TakeReply { at_us: now_ns / 1_000, outcomes: [outcome].into_iter().collect(), admitted }
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

impl Exact {
    fn new(part: &ExactCharge) -> Exact {
        match part.plan.quota.algorithm() {
            Algorithm::SlidingLog => Exact::Log(Log::default()),
            _ => Exact::Words(State::default()),
        }
    }

    fn peek(&self, part: &ExactCharge, now_ns: u64) -> Outcome {
        match self {
            Exact::Words(state) => state.take(&part.plan.quota, part.cost, now_ns).1,
            Exact::Log(log) => log.peek(&part.plan.quota, part.cost, now_ns),
        }
    }

    fn take(&mut self, part: &ExactCharge, now_ns: u64) -> Outcome {
        match self {
            Exact::Words(state) => {
                let (taken, outcome) = state.take(&part.plan.quota, part.cost, now_ns);
                *state = taken;
                outcome
            }
            Exact::Log(log) => log.take(&part.plan.quota, part.cost, now_ns),
        }
    }

    fn count_denied(&mut self, part: &ExactCharge, now_ns: u64) {
        match self {
            Exact::Words(state) => *state = state.count_denied(&part.plan.quota, part.cost, now_ns),
            Exact::Log(log) => log.count_denied(&part.plan.quota, part.cost, now_ns),
        }
    }

    fn debit(&mut self, part: &ExactCharge, now_ns: u64) {
        match self {
            Exact::Words(state) => *state = state.debit(&part.plan.quota, part.cost, now_ns),
            Exact::Log(log) => log.debit(&part.plan.quota, part.cost, now_ns),
        }
    }

    fn repay(&mut self, part: &ExactCharge, now_ns: u64) {
        match self {
            Exact::Words(state) => *state = state.repay(&part.plan.quota, part.cost, now_ns),
            // A log holds no more than one limit beyond.
            Exact::Log(log) => log.debit(&part.plan.quota, part.cost, now_ns),
        }
    }

    fn give_back(&mut self, part: &ExactCharge, taken_ns: u64) {
        match self {
            Exact::Words(state) => *state = state.give_back(&part.plan.quota, part.cost, taken_ns),
            Exact::Log(log) => log.give_back(part.cost, taken_ns),
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
