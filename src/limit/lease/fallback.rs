//! Fallback: a lease while Redis is down becomes a bucket of this node's own, in the same six words.
//!
//! The bucket keeps the rate of its last lease for `HOLD_NS`: the rates of all nodes together are at most the limit's, so
//! the fleet keeps the limit as long as demand stays where it was. Then it moves to twice the even share. A key without a
//! lease has that from the start, and once a burst of it. What is spent is a debt, reported when Redis is back.

use super::words::Flag;
use super::{Lease, LeaseAnswer, UNIT, fixed, rate_of, seconds, unit_ns};
use crate::{Algorithm, Plan, Quota};

impl Lease {
    /// Whether it is a fallback bucket now.
    pub fn is_fallback(&self) -> bool {
        self.0.has(Flag::Fallback)
    }

    /// Whether it is a fallback bucket and Redis was down meanwhile, not only slow.
    pub fn was_away(&self) -> bool {
        self.0.has(Flag::Fallback) && self.0.has(Flag::Fresh)
    }

    /// Takes `cost` from this node's share of the limit among `nodes` (0: it has none). Never returns `LeaseAnswer::Ask`.
    /// Call it after `take`, which has counted the demand. `is_away`: Redis is down; else it is slow, lends to other nodes
    /// meanwhile, and is told everything that is spent here.
    pub fn take_fallback(
        &mut self,
        plan: &Plan,
        cost: u64,
        now_ns: u64,
        nodes: u32,
        is_away: bool,
    ) -> LeaseAnswer {
        let ceiling = Ceiling::new(&plan.quota, nodes, is_away);
        if !self.0.has(Flag::Fallback) {
            self.begin(plan, &ceiling, now_ns);
        }
        if is_away {
            self.0.raise(Flag::Fresh);
        }
        // The later of both, because threads read the clock slightly apart and the same time must not refill twice.
        let now_ns = now_ns.max(self.0.end_ns());
        let rate = self.fallback_rate(&ceiling, now_ns);
        let gone_s = seconds(now_ns.saturating_sub(self.0.end_ns()));
        // The bucket may fill up to `cost`, so that a request that costs more than its burst is admitted in the end.
        let cap = ((ceiling.burst * UNIT as f64) as i64).max(fixed(cost));
        // Then the bucket is full, and what was spent before is no debt, because Redis counts anew, too.
        let is_anew = plan.quota.is_anew(self.0.end_ns(), now_ns);
        let refilled = match is_anew && nodes > 0 {
            true => cap,
            false => self.0.balance().saturating_add((rate * gone_s * UNIT as f64) as i64),
        };
        let left = refilled.min(cap).saturating_sub(fixed(cost));
        if left < 0 {
            let missing = -(left as f64) / UNIT as f64;
            let longest_ns = plan.quota.period_ns().get().saturating_mul(cost);
            let wait_ns = if rate > 0.0 { (missing / rate * 1e9) as u64 } else { longest_ns };
            let wait_ns = wait_ns.min(anew_in_ns(&plan.quota, now_ns));
            return LeaseAnswer::Denied { retry_after_ns: wait_ns.max(1) };
        }
        // Because limits over short periods refill in Redis meanwhile, what was spent within the rate is no debt. But a
        // bucket is full there when Redis is back: of what this node has spent it owes what its part of the bucket
        // lacks.
        let is_covered = is_away && plan.quota.period_ns().get() < DEBT_PERIOD_NS;
        let is_bucket = plan.quota.algorithm() == Algorithm::TokenBucket;
        let covered = if is_covered && !is_bucket { rate * gone_s } else { 0.0 };
        let owed = if is_anew { 0.0 } else { self.0.level() };
        let mut owes = (owed - covered).max(owed.min(0.0)) + cost as f64;
        if is_covered && is_bucket && owes > 0.0 {
            let held = plan.quota.capacity() as f64 * (rate / rate_of(&plan.quota)).min(1.0);
            let part = if self.0.rate() > 0.0 { held } else { ceiling.burst };
            let lacks = 1.0 - left as f64 / (ceiling.burst.max(1.0) * UNIT as f64);
            owes = owes.min(part * lacks.max(0.0));
        }
        self.0.set_level(owes);
        self.0.set_balance(left);
        self.0.set_end_ns(now_ns);
        LeaseAnswer::Admitted { renew: false }
    }

    /// Takes `cost` beyond what is held, out of this node's part of what is left, for a request that a late answer cannot
    /// decide. The next renewal reports it as a debt. `Some(false)`: that part is spent. `None`: Redis has said nothing of the
    /// key.
    ///
    /// The part is even. Where it is less than a unit, the nodes take one each in the order of their `rank`, the later ones as
    /// more is left, because all of them may have heard the same.
    pub fn advance(
        &mut self,
        plan: &Plan,
        cost: u64,
        now_ns: u64,
        nodes: u32,
        rank: impl FnOnce() -> u32,
    ) -> Option<bool> {
        if !self.0.has(Flag::Known) || self.0.has(Flag::Fallback) {
            return None;
        }
        let (nodes, whole) = (f64::from(nodes.max(1)), plan.quota.capacity() as f64);
        let left = self.left_by_now(plan, now_ns);
        let part = (left / nodes).floor();
        let is_first = || left >= 1.0 + f64::from(rank()) * (whole - 1.0) / nodes;
        let part = if part < 1.0 && is_first() { 1.0 } else { part };
        let held = if self.0.epoch() == 0 { self.0.balance().min(0) } else { self.held(now_ns) };
        let is_left = held.saturating_sub(fixed(cost)) as f64 >= -part * UNIT as f64;
        if is_left {
            self.0.set_balance(self.0.balance().saturating_sub(fixed(cost)));
        }
        Some(is_left)
    }

    /// Units that are left by Redis' last word, with what a bucket has refilled since the lease ended.
    fn left_by_now(&self, plan: &Plan, now_ns: u64) -> f64 {
        let whole = plan.quota.capacity() as f64;
        let gone_ns = now_ns.saturating_sub(self.0.end_ns().max(1));
        match plan.quota.algorithm() {
            Algorithm::TokenBucket => (self.0.level() + gone_ns as f64 / unit_ns(&plan.quota)).min(whole),
            _ if gone_ns >= plan.quota.period_ns().get() => whole,
            _ => self.0.level(),
        }
    }

    /// Units that are left in the bucket, and nanoseconds until it is full if nobody spends. `estimate` says what is left of
    /// the fleet's limit, which nobody knows without Redis.
    pub fn fallback_left(&self, plan: &Plan, now_ns: u64, nodes: u32, is_away: bool) -> (u64, u64) {
        let ceiling = Ceiling::new(&plan.quota, nodes, is_away);
        let rate = self.fallback_rate(&ceiling, now_ns);
        let refilled = rate * seconds(now_ns.saturating_sub(self.0.end_ns()));
        let balance = self.0.balance() as f64 / UNIT as f64;
        // A bucket of less than a unit fills up to the one that the next request costs.
        let whole = ceiling.burst.max(1.0);
        if nodes > 0 && plan.quota.is_anew(self.0.end_ns(), now_ns) {
            return (whole as u64, 0);
        }
        let left = (balance + refilled).clamp(0.0, whole);
        let full_ns =
            if rate > 0.0 { ((whole - left) / rate * 1e9) as u64 } else { plan.quota.period_ns().get() };
        (left as u64, full_ns.min(anew_in_ns(&plan.quota, now_ns)))
    }

    /// Turns the lease into a bucket when Redis goes down.
    fn begin(&mut self, plan: &Plan, ceiling: &Ceiling, now_ns: u64) {
        let end_ns = self.0.end_ns();
        // What a renewal in flight has told Redis that it keeps is not too old to be spent.
        let is_held = self.0.epoch() != 0 && (now_ns <= end_ns + plan.age_ns() || self.0.has(Flag::InFlight));
        let held = if is_held { self.held(now_ns) } else { self.0.balance().min(0) };
        let is_recent = self.0.epoch() != 0 && now_ns <= end_ns + plan.sharing.epoch_ns;
        // What became free of a window went to its node only until that ended.
        let is_bucket = plan.quota.algorithm() == Algorithm::TokenBucket;
        let rate = if is_recent && is_bucket { self.0.rate() } else { 0.0 };
        let is_denied = now_ns < self.0.deny_until_ns();
        // A key that Redis has said nothing about gets a burst; another at most what Redis said was left.
        let endowment = match self.0.has(Flag::Known) {
            _ if plan.quota.is_anew(self.0.end_ns(), now_ns) => ceiling.burst,
            _ if is_denied || rate > 0.0 => 0.0,
            // Less what has been advanced of it.
            true => {
                let owed = -(held.min(0) as f64) / UNIT as f64;
                ceiling.burst.min((self.0.level().max(0.0) * ceiling.of_level - owed).max(0.0))
            }
            false => ceiling.burst,
        };
        // What it held needs no reporting: the level (units owed) starts below zero by that much.
        self.0.set_level(-(held as f64 / UNIT as f64));
        self.0.set_balance(held.max(0).saturating_add((endowment * UNIT as f64) as i64));
        self.0.set_end_ns(now_ns);
        self.0.set_deny_until_ns(now_ns);
        self.0.set_lease(rate, 0);
        self.0.lower(Flag::InFlight);
        self.0.lower(Flag::Fresh);
        self.0.raise(Flag::Fallback);
        self.0.raise(Flag::Known);
    }

    /// Takes out what to report to a Redis that may be back: units spent beside the lease, the same less held units that
    /// are returned, and units kept, which are none. The bucket goes on until there is an answer.
    pub(super) fn owed_fallback(&mut self, plan: &Plan) -> (f64, f64, f64) {
        let owed = self.0.level().min(plan.quota.capacity() as f64);
        let given_back = (-owed.min(0.0) * UNIT as f64) as i64;
        self.0.set_balance(self.0.balance().saturating_sub(given_back));
        self.0.set_level(0.0);
        // What nobody was lent is spent, because Redis must not take it for units that a node still holds.
        (owed.max(0.0), owed, 0.0)
    }

    /// The last lease's rate for `HOLD_NS`, then linearly to the ceiling's within another `HOLD_NS`.
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

/// Nanoseconds until another window of the calendar begins, in which the bucket is full; `u64::MAX` if it has no calendar.
fn anew_in_ns(quota: &Quota, now_ns: u64) -> u64 {
    let next_ns = |_| quota.window_start_ns(quota.window_at(now_ns) + 1).saturating_sub(now_ns);
    quota.calendar().map_or(u64::MAX, next_ns)
}

/// What a node may spend in fallback: twice the even share and at most the limit; the even share if Redis is only slow.
struct Ceiling {
    /// Units a second.
    rate: f64,
    /// Units at once.
    burst: f64,
    /// Which part of the units that Redis said are left.
    of_level: f64,
}

impl Ceiling {
    fn new(quota: &Quota, nodes: u32, is_away: bool) -> Ceiling {
        // Not twice under a slow Redis, because it still lends to others; nor of a unit, because a share of one is not
        // two.
        let leases =
            if is_away && quota.limit().min(quota.burst()).get() > u64::from(nodes) { 2.0 } else { 1.0 };
        let lease = if nodes == 0 { 0.0 } else { (leases / f64::from(nodes)).min(1.0) };
        // Because a slow Redis still gets all debts, each of its answers divides what is left among all nodes anew.
        let of_level = if is_away { 1.0 } else { 1.0 / f64::from(nodes.max(1)) };
        // Because a window's limit is all it admits, half of the share is burst and half accrues over the window.
        let half = match quota.algorithm() {
            Algorithm::FixedWindow | Algorithm::SlidingWindow if leases > 1.0 => 0.5,
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
/// Limits over shorter periods do not report what was spent within their rate.
const DEBT_PERIOD_NS: u64 = 60_000_000_000;
