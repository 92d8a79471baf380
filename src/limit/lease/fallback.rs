//! A lease while Redis is away: a bucket of this node's own, in the same words.
//!
//! It goes on at the rate of its last lease for `HOLD_NS` (the rates of all nodes together are at most the limit's,
//! so the fleet keeps the limit as long as its demand keeps its shape), then moves to twice the even lease. A key
//! without a lease has that from the start, and once a burst of that lease. What is spent so is a debt, told to the
//! model when it is back.

use super::words::Flag;
use super::{Lease, Told, UNIT, fixed, rate_of, seconds};
use crate::limit::{Algorithm, Plan, Quota};

impl Lease {
    /// Whether it is this node's own bucket now.
    pub fn is_fallback(&self) -> bool {
        self.0.has(Flag::Alone)
    }

    /// Takes `cost` out of this node's own share of the limit, of `nodes` that were last known. Never `Told::Ask`.
    /// That it was wanted, `take` has noted before, which sent the request here. `is_away`: Redis counts nothing
    /// meanwhile; else it is only slow, and all that is spent here is told to it.
    pub fn take_fallback(&mut self, plan: &Plan, cost: u64, now_ns: u64, nodes: u32, is_away: bool) -> Told {
        let ceiling = Ceiling::new(&plan.quota, nodes, is_away);
        if !self.0.has(Flag::Alone) {
            self.part(plan, &ceiling, now_ns);
        }
        // Threads read the clock a little apart: what refills does so once.
        let now_ns = now_ns.max(self.0.end_ns());
        let rate = self.fallback_rate(&ceiling, now_ns);
        let gone_s = seconds(now_ns.saturating_sub(self.0.end_ns()));
        let refilled = self.0.balance().saturating_add((rate * gone_s * UNIT as f64) as i64);
        // A dear request finds its units in the end even where the lease's burst is smaller.
        let cap = ((ceiling.burst * UNIT as f64) as i64).max(fixed(cost));
        let left = refilled.min(cap).saturating_sub(fixed(cost));
        if left < 0 {
            let missing = -(left as f64) / UNIT as f64;
            return Told::Denied { retry_after_ns: ((missing / rate.max(RATE_MIN) * 1e9) as u64).max(1) };
        }
        // Second-scale limits refill while Redis is away: what the fleet's rate covers is no debt.
        let is_covered = is_away && plan.quota.period_ns().get() < DEBT_PERIOD_NS;
        let covered = if is_covered { rate * gone_s } else { 0.0 };
        let owed = self.0.level();
        self.0.set_level((owed - covered).max(owed.min(0.0)) + cost as f64);
        self.0.set_balance(left);
        self.0.set_end_ns(now_ns);
        Told::Admitted { renew: false }
    }

    /// Redis went away: the lease becomes a bucket.
    fn part(&mut self, plan: &Plan, ceiling: &Ceiling, now_ns: u64) {
        let end_ns = self.0.end_ns();
        let is_held = self.0.epoch() != 0 && now_ns <= end_ns + plan.sharing.age_ns();
        let held = if is_held { self.held(now_ns) } else { self.0.balance().min(0) };
        let rate = if now_ns <= end_ns + plan.sharing.epoch_ns { self.0.rate() } else { 0.0 };
        let is_denied = now_ns < self.0.deny_until_ns();
        // A burst is handed out to who is not known, and to others what they are known to have left.
        let endowment = match self.0.has(Flag::Known) {
            _ if is_denied || rate > 0.0 => 0.0,
            true => ceiling.burst.min(self.0.level().max(0.0) * ceiling.of_level),
            false => ceiling.burst,
        };
        // What it held is its own; beyond that it owes.
        self.0.set_level(-(held as f64 / UNIT as f64));
        self.0.set_balance(held.max(0).saturating_add((endowment * UNIT as f64) as i64));
        self.0.set_end_ns(now_ns);
        self.0.set_deny_until_ns(now_ns);
        self.0.set_lease(rate, 0);
        self.0.lower(Flag::InFlight);
        self.0.raise(Flag::Alone);
        self.0.raise(Flag::Known);
    }

    /// What is told to a Redis that may be back. What is owed, units; negative: what was held and is given back. The
    /// bucket goes on until there is an answer: a Redis that refuses is as good as away.
    pub(super) fn owed_fallback(&mut self, plan: &Plan) -> f64 {
        let owed = self.0.level().min(plan.quota.capacity() as f64);
        let given_back = (-owed.min(0.0) * UNIT as f64) as i64;
        self.0.set_balance(self.0.balance().saturating_sub(given_back));
        self.0.set_level(0.0);
        owed
    }

    /// The held rate for `HOLD_NS`, then in a straight line to the ceiling within as long again.
    fn fallback_rate(&self, ceiling: &Ceiling, now_ns: u64) -> f64 {
        let held = self.0.rate();
        if held == 0.0 {
            return ceiling.rate;
        }
        let since_ns = now_ns.saturating_sub(self.0.deny_until_ns());
        let gone = (since_ns.saturating_sub(HOLD_NS) as f64 / HOLD_NS as f64).min(1.0);
        held + (ceiling.rate - held) * gone
    }
}

/// What a node without a lease may spend: twice the even lease, at most the limit; the even lease while Redis is
/// slow.
struct Ceiling {
    /// Units a second.
    rate: f64,
    /// Units at once.
    burst: f64,
    /// What part of what is known to be left.
    of_level: f64,
}

impl Ceiling {
    fn new(quota: &Quota, nodes: u32, is_away: bool) -> Ceiling {
        // A store that is only slow lends to the others meanwhile.
        let leases = if is_away { 2.0 } else { 1.0 };
        let lease = (leases / f64::from(nodes.max(1))).min(1.0);
        // It asks the others for their debts all the while, so what is left is divided among all anew with each answer.
        let of_level = if is_away { 1.0 } else { 1.0 / f64::from(nodes.max(1)) };
        // A window has no burst beside its limit: half of the lease at once, half of it over the window.
        let half = match quota.algorithm() {
            Algorithm::FixedWindow | Algorithm::SlidingWindow => 0.5,
            _ => 1.0,
        };
        Ceiling {
            rate: rate_of(quota) * lease * half,
            burst: quota.capacity() as f64 * lease * half,
            of_level,
        }
    }
}

/// How long the rate of the last lease is kept.
const HOLD_NS: u64 = 10_000_000_000;
/// Limits over shorter periods do not tell what was spent at the rate they held.
const DEBT_PERIOD_NS: u64 = 60_000_000_000;
/// Keeps a wait finite.
const RATE_MIN: f64 = 1e-9;
