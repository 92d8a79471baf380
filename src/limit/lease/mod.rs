//! [`Lease`]: the units of one shared key that this node may spend without asking Redis. Pure: six words, `now` as an
//! argument, no clock and no I/O.
//!
//! A lease holds units and a rate at which more accrue until it ends. The units are kept as the balance *at the lease's
//! end*, in fractions of 2^20, so that spending and refunding are exact and reading costs one multiplication:
//! `held(now) = balance - rate * (end - now)`. A negative balance is a debt, which the next renewal reports to Redis.
//!
//! It deliberately knows nothing of other keys, of waiting requests, or of how messages travel. This file has what
//! happens between messages, `upkeep.rs` the messages, `window_answer.rs` what Redis said of windows without leases, `fallback.rs`
//! the time without Redis.

mod fallback;
mod upkeep;
mod window_answer;
mod words;

use super::lease_messages::Grant;
use super::plan::SMALL;
use super::{Algorithm, Plan, Quota};
use words::{Flag, Words};

pub use upkeep::{LeaseDemand, hear_level, owed};

/// This node's lease of one key, and what it remembers of the key without one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lease(Words);

/// What a lease answers to one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeaseAnswer {
    /// The cost was taken; Redis need not be asked.
    Admitted {
        /// The lease should be renewed now, without waiting for it.
        renew: bool,
    },
    /// Not taken, and asking Redis would bring nothing.
    Denied {
        /// When to try again, nanoseconds; at least 1.
        retry_after_ns: u64,
    },
    /// Not taken: Redis has to be asked, and decides.
    Ask,
}

/// What a node knows of a shared key, for operators.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct View {
    /// Units it may spend on its own; negative: owed.
    pub held: f64,
    /// Units a second that accrue to it.
    pub rate: f64,
    /// How long the lease lasts, nanoseconds.
    pub lasts_ns: u64,
    /// How long it denies on its own, nanoseconds.
    pub denied_ns: u64,
    /// Units left in Redis, as of its last answer.
    pub level: f64,
    /// Units a second that requests ask for.
    pub demand: f64,
    /// How long ago the last report to Redis was, nanoseconds, in steps of a millisecond.
    pub told_ns: u64,
    /// It decides without Redis, which is down or too slow.
    pub is_fallback: bool,
    /// It has a lease, whether or not that has ended; not in fallback.
    pub has_lease: bool,
}

/// How a changed limit changes what is lent of it.
struct Change {
    /// How many units more are left: what was spent stays spent.
    more: f64,
    /// Of a lower limit, its share of the higher: as large a share is kept of what is held.
    smaller: f64,
    /// What rates are multiplied by.
    rate: f64,
}

impl Change {
    fn between(old: &Plan, new: &Plan) -> Change {
        Change {
            more: new.quota.capacity() as f64 - old.quota.capacity() as f64,
            smaller: (new.quota.capacity() as f64 / old.quota.capacity() as f64).min(1.0),
            rate: (rate_of(&new.quota) / rate_of(&old.quota)).min(1.0),
        }
    }

    /// Units that are held, and those left in Redis: of a lower limit a share of what was lent, less what was spent of that and has
    /// not refilled; no larger a share of what was held, and no more than the limit leaves.
    fn units(&self, lent: f64, (spent, refilled): (f64, f64), level: f64) -> (f64, f64) {
        let share = if lent > 0.0 { lent * self.smaller } else { lent };
        let kept = (share - spent + refilled).min(((lent - spent) * self.smaller).max(0.0));
        let level = level + self.more + (lent - share);
        let dropped = if self.more < 0.0 { (-level).min(kept).max(0.0) } else { 0.0 };
        (kept - dropped, level + dropped)
    }
}

/// Whether more is spent of a bucket than its lower limit of now holds. Redis then leaves it as it is, with all that is lent of
/// it, so a node that may not spend what it holds has to return it.
pub fn outgrows(lease: &Lease, old: &Plan, new: &Plan, now_ns: u64) -> bool {
    let is_bucket = |plan: &Plan| plan.quota.algorithm() == Algorithm::TokenBucket;
    let is_alike = is_bucket(old) && is_bucket(new) && old.quota.period_ns() == new.quota.period_ns();
    let change = Change::between(old, new);
    let lent = lease.held(now_ns) as f64 / UNIT as f64 + lease.spent().max(0.0);
    let is_known = is_alike && change.more < 0.0 && !lease.0.has(Flag::Fallback);
    is_known && lease.0.level() + change.more + lent * (1.0 - change.smaller) < 0.0
}

impl Grant {
    /// What it is worth under a limit that has changed since it was asked for.
    pub fn under(&self, old: &Plan, new: &Plan) -> Grant {
        let change = Change::between(old, new);
        let (tokens, level) = change.units(self.tokens, (0.0, 0.0), self.level);
        Grant { tokens, rate: self.rate * change.rate, level, ..*self }
    }
}

impl Lease {
    /// The reverse of `into_words`. All zero is a key never seen.
    #[inline]
    pub fn from_words(words: [u64; 6]) -> Lease {
        Lease(Words(words))
    }

    /// Its six words, as a slot of the table keeps them.
    #[inline]
    pub fn into_words(self) -> [u64; 6] {
        self.0.0
    }

    /// The fast path of [`Lease::take`], for nearly every request of a hot key: takes `cost` if the lease holds enough not
    /// to need a renewal, and returns what `estimate` would. Else it changes nothing and returns `None`; use `take`.
    #[inline(always)]
    pub fn spend(&mut self, plan: &Plan, cost: u64, now_ns: u64, lead_ns: u64) -> Option<(u64, u64)> {
        // After a pause `take` has to look at how long it was (`note_pause`).
        let is_late = self.0.unseen_ns(now_ns) >= PAUSE_NS || now_ns >= self.0.end_ns();
        if self.0.epoch() == 0 || is_late || cost > plan.quota.capacity() {
            return None;
        }
        let held = self.held(now_ns);
        let left = held.saturating_sub(fixed(cost));
        // With so little left or so much to tell, `take` asks for a renewal.
        let is_low = left < 0 || left as f64 <= self.0.demand() * (lead_ns as f64 * (UNIT as f64 / 1e9));
        if is_low || self.0.has(Flag::Fresh) && has_to_tell(self, plan, cost, now_ns) {
            return None;
        }
        upkeep::note_held(self, plan, held, now_ns);
        self.0.add_offered(cost);
        self.0.set_seen(now_ns);
        self.0.set_balance(self.0.balance().saturating_sub(fixed(cost)));
        let whole = plan.quota.capacity() as f64;
        let remaining = (self.0.level() + left as f64 / UNIT as f64).max(0.0).min(whole);
        Some((remaining as u64, ((whole - remaining) * unit_ns(&plan.quota)) as u64))
    }

    /// Takes `cost` if it is held, and counts it as demand. Renewals are asked for `lead_ns` ahead of need, which is how long
    /// they take; at least [`LEAD_MIN_NS`].
    pub fn take(&mut self, plan: &Plan, cost: u64, now_ns: u64, lead_ns: u64) -> LeaseAnswer {
        self.note_pause(now_ns);
        upkeep::note_held(self, plan, self.held(now_ns), now_ns);
        self.0.add_offered(cost);
        self.0.set_seen(now_ns);
        self.take_again(plan, cost, now_ns, lead_ns)
    }

    /// Takes `cost` for a request that has waited for Redis; its demand was counted before.
    #[inline]
    pub fn take_again(&mut self, plan: &Plan, cost: u64, now_ns: u64, lead_ns: u64) -> LeaseAnswer {
        let (price, end_ns) = (fixed(cost), self.0.end_ns());
        if now_ns <= end_ns + plan.age_ns() && self.0.epoch() != 0 {
            let left = self.held(now_ns).saturating_sub(price);
            if left.saturating_add(self.advanced(now_ns, lead_ns)) >= 0 {
                self.0.set_balance(self.0.balance().saturating_sub(price));
                return LeaseAnswer::Admitted { renew: self.is_running_dry(plan, left, now_ns, lead_ns) };
            }
        }
        self.without(plan, cost, now_ns, lead_ns)
    }

    /// What a lease that has ended would have accrued since, `2^-20` units. If renewals take longer than requests may wait,
    /// this is spent in advance; the renewal's grant, which counts from when it was asked for, covers it.
    #[inline]
    fn advanced(&self, now_ns: u64, lead_ns: u64) -> i64 {
        let since_ns = now_ns.saturating_sub(self.0.end_ns());
        if lead_ns <= LEAD_MIN_NS || since_ns == 0 || since_ns > lead_ns || !self.0.has(Flag::InFlight) {
            return 0;
        }
        (since_ns as f64 * self.0.rate() * (UNIT as f64 / 1e9)) as i64
    }

    #[cold]
    fn without(&mut self, plan: &Plan, cost: u64, now_ns: u64, lead_ns: u64) -> LeaseAnswer {
        let (end_ns, deny_until_ns) = (self.0.end_ns(), self.0.deny_until_ns());
        if now_ns < deny_until_ns {
            return LeaseAnswer::Denied { retry_after_ns: deny_until_ns - now_ns };
        }
        if self.0.epoch() == 0 {
            return LeaseAnswer::Ask;
        }
        let rate = self.0.rate();
        let is_in_flight = self.0.has(Flag::InFlight);
        // Denied until the rate has accrued the cost, because the answer in flight would bring no more than the rate,
        // unless Redis had as much left, or plenty.
        let enough = (cost as f64).min(plan.quota.capacity() as f64 / 4.0);
        let grace_ns = if lead_ns > LEAD_MIN_NS { lead_ns } else { GRACE_NS };
        if is_in_flight && rate > 0.0 && now_ns < end_ns + grace_ns && self.0.level() < enough {
            let held = self.held(now_ns).saturating_add(self.advanced(now_ns, lead_ns));
            let missing = fixed(cost).saturating_sub(held) as f64 / UNIT as f64;
            return LeaseAnswer::Denied { retry_after_ns: ((missing / rate * 1e9) as u64).max(1) };
        }
        let is_awaited = (end_ns..end_ns + plan.sharing.epoch_ns).contains(&now_ns);
        if is_awaited && cost == 1 && !self.0.has(Flag::Overdrawn) && self.may_overdraw(plan) {
            owe_one(self, plan, now_ns);
            return LeaseAnswer::Admitted { renew: !is_in_flight };
        }
        LeaseAnswer::Ask
    }

    /// Overdraws one unit for a request that would have to wait; once, until Redis reports that some are left. So all
    /// nodes together owe at most one unit each.
    ///
    /// Not if little refills and Redis's last answer is older than an epoch, because then the remaining units that the
    /// client is shown would be as old.
    pub fn overdraw(&mut self, plan: &Plan, now_ns: u64) -> bool {
        // The fleet is in debt already.
        let is_owed = self.0.epoch() != 0 && self.0.level() < 0.0;
        let is_slow = rate_of(&plan.quota) * seconds(plan.sharing.epoch_ns) < SMALL;
        let is_unheard = self.0.epoch() == 0 || self.0.unreported_ns(now_ns) > plan.sharing.epoch_ns;
        let is_old = is_slow && is_unheard;
        if is_owed
            || is_old
            || self.0.has(Flag::Overdrawn)
            || self.0.has(Flag::Fallback)
            || self.held(now_ns) < 0
        {
            return false;
        }
        owe_one(self, plan, now_ns);
        true
    }

    /// Undoes a `take` that admitted, also if the lease has been renewed or has ended since. Takes its demand back too.
    #[inline]
    pub fn give_back(&mut self, cost: u64) {
        // It may be the unit that is owed, which must not be asked for then: Redis has nothing out to take it back from.
        self.0.lower(Flag::Owing);
        self.0.set_balance(self.0.balance().saturating_add(fixed(cost)));
        self.forget_wanted(cost);
        if self.0.has(Flag::Fallback) {
            self.0.set_level(self.0.level() - cost as f64);
        }
    }

    /// Takes units out of the demand: another window refused the request that wanted them.
    pub fn forget_wanted(&mut self, cost: u64) {
        self.0.set_offered(self.0.offered().saturating_sub(u32::try_from(cost).unwrap_or(u32::MAX)));
    }

    /// Debits a cost that is known only afterwards, held or not; the next renewal reports what is owed.
    pub fn owe(&mut self, cost: u64) {
        self.0.add_offered(cost);
        self.0.set_balance(self.0.balance().saturating_sub(fixed(cost)));
        if self.0.has(Flag::Fallback) {
            self.0.set_level(self.0.level() + cost as f64);
        }
    }

    /// Forgets a denial. It is not set to end now, because a thread that has read the clock before would still find it,
    /// and for a cost that was never refused.
    pub fn end_denial(&mut self) {
        self.deny_until(0);
    }

    /// Goes on under a changed limit. What was spent stays spent, unit for unit, as in Redis: what is held or owed stays, as far
    /// as a lower limit leaves it. A rate falls with the limit, so that a lower one holds at once; it rises only when Redis says so.
    pub fn adopt(&mut self, old: &Plan, new: &Plan, now_ns: u64) {
        let is_alike = old.quota.algorithm() == new.quota.algorithm()
            && old.sharing.is_exact() == new.sharing.is_exact();
        // With nothing left of a lease, what Redis says of each request is all there is to know.
        if new.sharing.is_exact() && !old.sharing.is_exact() && !self.has_something_of_redis() {
            *self = Lease::default();
        }
        if !is_alike || self.0.has(Flag::Fallback) {
            return;
        }
        if new.sharing.is_exact() {
            return self.adopt_heard(old, new, now_ns);
        }
        let change = Change::between(old, new);
        let before = self.held(now_ns);
        let unit = UNIT as f64;
        let held = before as f64 / unit;
        // A window has counted as spent all that it lent.
        let is_bucket = new.quota.algorithm() == Algorithm::TokenBucket;
        let spent = if is_bucket { self.spent().max(0.0) } else { 0.0 };
        // What a bucket that is nearly full has refilled in its place, the next report would have told.
        let is_full = change.smaller < 1.0 && self.0.level() * 2.0 >= old.quota.capacity() as f64;
        let refilled = if is_bucket && is_full { upkeep::refilled(self, old, spent, now_ns) } else { 0.0 };
        let (lent, granted) = (held + spent, self.0.last_grant());
        // Ended sooner, because under a shorter epoch Redis promises the rate anew before the old one would have ended.
        let sooner_ns = old.sharing.epoch_ns.saturating_sub(new.sharing.epoch_ns);
        self.0.set_end_ns(self.0.end_ns().min(self.0.end_ns().saturating_sub(sooner_ns).max(now_ns)));
        let (kept, level) = change.units(lent, (spent, refilled), self.0.level());
        if self.0.epoch() != 0 {
            self.0.set_lease(self.0.rate() * change.rate, self.0.epoch());
        }
        let dropped = held - kept;
        let kept = before.saturating_sub((dropped * unit) as i64);
        self.0.set_balance(self.0.balance().saturating_add(kept.saturating_sub(self.held(now_ns))));
        self.0.set_level(level);
        // Redis counts as large a share of what it has lent, and of what has accrued the part that the new rate had accrued.
        let accrued = if is_bucket { lent - granted } else { 0.0 };
        self.0.set_last_grant(granted * change.smaller + accrued * (change.smaller - change.rate));
        self.0.set_excess(f64::MAX);
    }

    fn deny_until(&mut self, until_ns: u64) {
        // A fallback bucket with a rate keeps in this field since when it runs.
        if !self.0.has(Flag::Fallback) || self.0.rate() == 0.0 {
            self.0.set_deny_until_ns(until_ns);
        }
    }

    /// Whether its denial is so old that units may have been refunded since.
    pub fn is_denial_old(&self, now_ns: u64) -> bool {
        now_ns < self.0.deny_until_ns()
            && !self.0.has(Flag::InFlight)
            && self.0.unreported_ns(now_ns) >= RECHECK_NS
    }

    /// Remembers that Redis refused `cost` units of an exact window: until then, as many or more would be refused too.
    pub fn refuse(&mut self, cost: u64, wait_ns: u64, now_ns: u64) {
        self.0.set_offered(u32::try_from(cost).unwrap_or(u32::MAX));
        self.deny_until(now_ns.saturating_add(wait_ns));
    }

    /// How long a refusal of Redis still holds for a request of this cost, nanoseconds; longer for a larger cost if the
    /// algorithm refills gradually. `None`: it does not hold.
    pub fn refused_for(&self, plan: &Plan, cost: u64, now_ns: u64) -> Option<u64> {
        let dearer = cost.checked_sub(u64::from(self.0.offered()))?;
        let wait_ns = self.0.deny_until_ns().checked_sub(now_ns).filter(|wait_ns| *wait_ns > 0)?;
        let more_ns = match plan.quota.algorithm() {
            // So may many units of a log be free at once.
            _ if plan.quota.is_few() => 0.0,
            // A sliding window frees units at most at the limit's rate.
            Algorithm::TokenBucket | Algorithm::LeakyBucket | Algorithm::SlidingWindow => {
                dearer as f64 * unit_ns(&plan.quota)
            }
            Algorithm::FixedWindow | Algorithm::SlidingLog | Algorithm::Concurrency => 0.0,
        };
        Some(wait_ns.saturating_add(more_ns as u64))
    }

    /// The same for a request that is decided now. Once in `RECHECK_NS` it lets one request ask Redis again, because units
    /// may have been refunded since.
    pub fn refuses(&mut self, plan: &Plan, cost: u64, now_ns: u64) -> Option<u64> {
        let wait_ns = self.refused_for(plan, cost, now_ns)?;
        if now_ns.saturating_sub(self.0.end_ns()) < RECHECK_NS {
            return Some(wait_ns);
        }
        let (left, _) = self.estimate(plan, now_ns);
        let heard_ago_ns = now_ns.saturating_sub(self.0.end_ns());
        let reset_ns = ((self.0.rate() * 1e9) as u64).saturating_sub(heard_ago_ns);
        self.hear(left, reset_ns, now_ns);
        None
    }

    /// Whether it can be dropped without loss: it holds, owes and denies nothing, has no renewal in flight, and a fallback
    /// bucket has refilled.
    pub fn says_nothing(&self, plan: &Plan, now_ns: u64) -> bool {
        if now_ns < self.0.deny_until_ns() || self.0.has(Flag::InFlight) {
            return false;
        }
        let gone_ns = now_ns.saturating_sub(self.0.end_ns());
        if self.0.has(Flag::Fallback) {
            return seconds(gone_ns) * rate_of(&plan.quota) >= plan.quota.capacity() as f64;
        }
        gone_ns > plan.age_ns() && (0..UNIT).contains(&self.0.balance())
    }

    /// What is left of the limit in the whole fleet as far as this node knows, units, and nanoseconds until it is
    /// whole if nobody spends. An estimate: what others spent since the last word of Redis is not in it.
    pub fn estimate(&self, plan: &Plan, now_ns: u64) -> (u64, u64) {
        if let Some(heard) = window_answer::estimate(self, plan, now_ns) {
            return heard;
        }
        let whole = plan.quota.capacity() as f64;
        let unit_ns = unit_ns(&plan.quota);
        let held = self.held_or_owed(now_ns);
        let level = if self.0.has(Flag::Fallback) { 0.0 } else { self.0.level() };
        // While the lease lasts, what refills goes to the leases of all nodes; after it, count it as left.
        let gone_ns = now_ns.saturating_sub(self.0.end_ns().max(1));
        let refilled = match gone_ns {
            0 => 0.0,
            // Assumed to be full, because Redis has said nothing about this key yet.
            _ if self.0.end_ns() == 0 && !self.0.has(Flag::Fallback) => whole,
            _ => gone_ns as f64 / unit_ns,
        };
        // What is owed comes back before anything is left.
        let left = (level + held + refilled).min(whole);
        (left.max(0.0) as u64, ((whole - left) * unit_ns) as u64)
    }

    /// Units it may spend without asking or, if negative, owes to Redis.
    pub fn held_or_owed(&self, now_ns: u64) -> f64 {
        // Without a lease there may still be a debt.
        let held = if self.0.epoch() == 0 { self.0.balance().min(0) } else { self.held(now_ns) };
        held as f64 / UNIT as f64
    }

    /// What this node knows of the key, for operators.
    pub fn view(&self, now_ns: u64) -> View {
        let has_lease = self.0.epoch() != 0 && !self.0.has(Flag::Fallback);
        View {
            held: if has_lease { self.held(now_ns) as f64 / UNIT as f64 } else { 0.0 },
            rate: if has_lease { self.0.rate() } else { 0.0 },
            lasts_ns: if has_lease { self.0.end_ns().saturating_sub(now_ns) } else { 0 },
            denied_ns: self.0.deny_until_ns().saturating_sub(now_ns),
            level: self.0.level(),
            demand: self.0.demand(),
            told_ns: self.0.unreported_ns(now_ns),
            is_fallback: self.0.has(Flag::Fallback),
            has_lease,
        }
    }

    /// How long ago Redis was last heard of this window, nanoseconds, to a millisecond; `None` if it never was.
    pub fn age_ns(&self, is_exact: bool, now_ns: u64) -> Option<u64> {
        match is_exact {
            // Of an exact window only this is kept; in fallback it is this node's own.
            true if self.0.has(Flag::Fallback) => None,
            true => Some(self.0.end_ns())
                .filter(|heard_ns| *heard_ns > 0)
                .map(|heard_ns| now_ns.saturating_sub(heard_ns)),
            // A bucket of this node's own knows what is left, but nobody may have told it.
            false if !self.0.has(Flag::Known) || self.0.epoch() == 0 => None,
            // Another thread may have reported a moment after this one read the clock.
            false => Some(self.0.unreported_ns(now_ns)).filter(|ago_ns| *ago_ns < AGE_MAX_NS).or(Some(0)),
        }
    }

    /// Held now, `2^-20` units; negative: owed. Saturates, so that a huge debt does not wrap into units held.
    #[inline]
    fn held(&self, now_ns: u64) -> i64 {
        let to_come_ns = self.0.end_ns().saturating_sub(now_ns);
        let to_come = (to_come_ns as f64 * self.0.rate() * (UNIT as f64 / 1e9)) as i64;
        self.0.balance().saturating_sub(to_come)
    }

    /// Whether what is `left` lasts no longer than a renewal takes, and the demand is enough for a lease.
    #[inline]
    fn is_running_dry(&self, plan: &Plan, left: i64, now_ns: u64, lead_ns: u64) -> bool {
        let demand = self.0.demand();
        let is_low = left as f64 <= demand * seconds(lead_ns) * UNIT as f64;
        let is_over = now_ns >= self.0.end_ns();
        let is_untold = self.0.has(Flag::Fresh) && has_to_tell(self, plan, 0, now_ns);
        (is_low || is_over || is_untold)
            && !self.0.has(Flag::InFlight)
            && (is_over || now_ns >= self.0.deny_until_ns())
            && demand * seconds(plan.sharing.epoch_ns) >= LEASE_MIN
    }

    /// Whether its lease is large enough to overdraw a unit. All leases together have the limit's rate, so at most
    /// `spare` of them are as large as this.
    fn may_overdraw(&self, plan: &Plan) -> bool {
        let life_s = seconds(plan.sharing.epoch_ns);
        let lease_min = (rate_of(&plan.quota) * life_s / f64::from(plan.sharing.spare)).max(2.0);
        self.0.rate() * life_s >= lease_min
    }
}

/// Overdraws a unit. Units too old to be spent do not pay for it, because the bucket may have refilled in their place.
fn owe_one(lease: &mut Lease, plan: &Plan, now_ns: u64) {
    let is_aged = now_ns > lease.0.end_ns() + plan.age_ns();
    if is_aged && lease.held(now_ns) > 0 && !lease.0.has(Flag::InFlight) {
        lease.0.raise(Flag::Owing);
    }
    lease.0.raise(Flag::Overdrawn);
    lease.0.set_balance(lease.0.balance().saturating_sub(UNIT));
}

/// Units as the balance keeps them; saturates at `UNITS_MAX`.
#[inline]
fn fixed(units: u64) -> i64 {
    (units.min(UNITS_MAX) as i64) * UNIT
}

/// Units a second that a quota refills.
fn rate_of(quota: &Quota) -> f64 {
    quota.limit().get() as f64 * 1e9 / quota.period_ns().get() as f64
}

/// Whether Redis has to hear what was spent: otherwise much refill of a fast bucket would be lost, because a full bucket
/// does not refill before, and the rates of first leases are less than the limit's. `more` is spent now, and not yet offered.
#[cold]
fn has_to_tell(lease: &Lease, plan: &Plan, more: u64, now_ns: u64) -> bool {
    let epoch_ns = plan.sharing.epoch_ns;
    let gone_ns = epoch_ns.saturating_sub(lease.0.end_ns().saturating_sub(now_ns));
    u64::from(lease.0.offered()).saturating_add(more) >= TOLD_MIN
        && lease.0.unreported_ns(now_ns) >= (gone_ns / 3).max(TOLD_NS)
        && lease.0.level() > plan.quota.capacity() as f64 / 4.0
        && is_fast(plan)
}

/// Whether a bucket refills an eighth or more in an epoch.
fn is_fast(plan: &Plan) -> bool {
    let per_epoch = rate_of(&plan.quota) * seconds(plan.sharing.epoch_ns);
    plan.quota.algorithm() == Algorithm::TokenBucket && per_epoch * 8.0 >= plan.quota.capacity() as f64
}

/// Nanoseconds in which a quota refills one unit. The division does not depend on the key, so the processor does it while
/// the key's memory is being fetched.
#[inline]
fn unit_ns(quota: &Quota) -> f64 {
    quota.period_ns().get() as f64 / quota.limit().get() as f64
}

fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

const UNIT: i64 = 1 << 20;
const UNITS_MAX: u64 = 1 << 40;
/// The shortest time without requests that counts as a pause.
const PAUSE_NS: u64 = 8_000_000;
/// How long after its end a lease still denies while its renewal is in flight.
const GRACE_NS: u64 = 2_000_000;
/// A denied key is checked again after this, because other nodes return units they did not need.
const RECHECK_NS: u64 = 500_000_000;
/// Thirty days: what is said of a longer time is not true, because fewer bits of it are kept.
const AGE_MAX_NS: u64 = 30 * 86_400 * 1_000_000_000;
/// The shortest time ahead of need that a renewal is asked for, nanoseconds: about what an answer takes that requests can
/// wait for.
pub const LEAD_MIN_NS: u64 = 3_000_000;
/// A fresh lease tells what it spent when it is so many requests, and after so long and a third of its age.
const TOLD_MIN: u64 = 9;
const TOLD_NS: u64 = 60_000_000;
/// A demand of fewer units in a lease's life gets no lease: Redis decides its requests one by one.
const LEASE_MIN: f64 = 1.5;

#[cfg(test)]
mod tests;
