//! A node's share of one key: what it may spend on its own of a limit the whole fleet leases, and what it says of it
//! to Redis. Pure: six words, `now` as an argument, no clock and no I/O.
//!
//! A lease is a lease: units held, a rate at which more accrue until the lease ends, and after that nothing. The
//! units are kept as a balance *at the lease's end* in fractions of 2^20, so spending and giving back are exact and
//! a look costs one multiplication: `held(now) = balance - rate * (end - now)`. A negative balance is a debt, which
//! the next renewal tells Redis.
//!
//! It deliberately knows nothing of other keys, of who waits for what, or of how a message travels. What happens
//! between messages stands here, the messages in `upkeep.rs`, the time without a model in `alone.rs`.

mod fallback;
mod upkeep;
mod words;

use super::script_model::{SMALL, SMALL_AHEAD};
use super::{Algorithm, Plan, Quota};
use words::{Flag, Words};

pub use upkeep::Wanted;

/// A node's share of one key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lease(Words);

/// What a lease says to one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Told {
    /// Taken.
    Admitted {
        /// The lease should be renewed now, without waiting for it.
        renew: bool,
    },
    /// Not taken, and asking would be in vain.
    Denied {
        /// When it is worth coming back, nanoseconds; at least 1.
        retry_after_ns: u64,
    },
    /// Only Redis knows.
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
    /// Units Redis said are left there.
    pub level: f64,
    /// Units a second that are asked of it.
    pub demand: f64,
    /// How long ago it told the model of itself, nanoseconds, in steps of a millisecond.
    pub told_ns: u64,
    /// It decides without Redis.
    pub is_fallback: bool,
    /// It holds a lease.
    pub has_lease: bool,
}

impl Lease {
    /// A lease as `into_words` gave it; all zero: of a key never seen.
    #[inline]
    pub fn from_words(words: [u64; 6]) -> Lease {
        Lease(Words(words))
    }

    /// Its six words.
    #[inline]
    pub fn into_words(self) -> [u64; 6] {
        self.0.0
    }

    /// Takes `cost` where the lease holds more than enough, and says what `estimate` would then: nearly every request
    /// of a key that is hot. Anywhere else it changes nothing, and `take` says what becomes of the request.
    #[inline(always)]
    pub fn spend(&mut self, plan: &Plan, cost: u64, now_ns: u64, lead_ns: u64) -> Option<(u64, u64)> {
        // After a pause `take` looks at how long it was.
        let is_late = self.0.unseen_ns(now_ns) >= PAUSE_NS || now_ns >= self.0.end_ns();
        if self.0.epoch() == 0 || is_late || cost > plan.quota.capacity() {
            return None;
        }
        let left = self.held(now_ns).saturating_sub(fixed(cost));
        // A request that leaves as little as this is one that renews.
        if left < 0 || left as f64 <= self.0.demand() * (lead_ns as f64 * (UNIT as f64 / 1e9)) {
            return None;
        }
        self.0.add_offered(cost);
        self.0.set_seen(now_ns);
        self.0.set_balance(self.0.balance().saturating_sub(fixed(cost)));
        let whole = plan.quota.capacity() as f64;
        let remaining = (self.0.level() + left as f64 / UNIT as f64).max(0.0).min(whole);
        Some((remaining as u64, ((whole - remaining) * unit_ns(&plan.quota)) as u64))
    }

    /// Takes `cost` where it is held, and notes that it was wanted. A renewal takes `lead_ns`, and is asked for so much
    /// ahead of need; the least is [`LEAD_MIN_NS`].
    pub fn take(&mut self, plan: &Plan, cost: u64, now_ns: u64, lead_ns: u64) -> Told {
        self.note_pause(now_ns);
        self.0.add_offered(cost);
        self.0.set_seen(now_ns);
        self.take_again(plan, cost, now_ns, lead_ns)
    }

    /// Takes `cost` for a request that was told to ask and has waited: it has been noted before.
    #[inline]
    pub fn take_again(&mut self, plan: &Plan, cost: u64, now_ns: u64, lead_ns: u64) -> Told {
        let (price, end_ns) = (fixed(cost), self.0.end_ns());
        if now_ns <= end_ns + plan.sharing.age_ns() && self.0.epoch() != 0 {
            let left = self.held(now_ns).saturating_sub(price);
            if left.saturating_add(self.advanced(now_ns, lead_ns)) >= 0 {
                self.0.set_balance(self.0.balance().saturating_sub(price));
                return Told::Admitted { renew: self.is_running_dry(plan, left, now_ns, lead_ns) };
            }
        }
        self.without(plan, cost, now_ns, lead_ns)
    }

    /// What a lease that is over would have accrued since, `2^-20` units: spent while a renewal is on its way for longer
    /// than a request waits, and taken out of what that brings, which counts from when it was asked for.
    #[inline]
    fn advanced(&self, now_ns: u64, lead_ns: u64) -> i64 {
        let since_ns = now_ns.saturating_sub(self.0.end_ns());
        if lead_ns <= LEAD_MIN_NS || since_ns == 0 || since_ns > lead_ns || !self.0.has(Flag::InFlight) {
            return 0;
        }
        (since_ns as f64 * self.0.rate() * (UNIT as f64 / 1e9)) as i64
    }

    /// What to do for a request whose cost is not held.
    #[cold]
    fn without(&mut self, plan: &Plan, cost: u64, now_ns: u64, lead_ns: u64) -> Told {
        let (end_ns, deny_until_ns) = (self.0.end_ns(), self.0.deny_until_ns());
        if now_ns < deny_until_ns {
            return Told::Denied { retry_after_ns: deny_until_ns - now_ns };
        }
        if self.0.epoch() == 0 {
            return Told::Ask;
        }
        let rate = self.0.rate();
        let is_in_flight = self.0.has(Flag::InFlight);
        // Paced: more would not be held if the answer were here already. Where plenty is left in Redis, the
        // answer brings units, and is worth waiting for.
        let grace_ns = if lead_ns > LEAD_MIN_NS { lead_ns } else { GRACE_NS };
        if is_in_flight && rate > 0.0 && now_ns < end_ns + grace_ns && !self.is_plenty(&plan.quota) {
            let held = self.held(now_ns).saturating_add(self.advanced(now_ns, lead_ns));
            let missing = fixed(cost).saturating_sub(held) as f64 / UNIT as f64;
            return Told::Denied { retry_after_ns: ((missing / rate * 1e9) as u64).max(1) };
        }
        let is_awaited = (end_ns..end_ns + plan.sharing.epoch_ns).contains(&now_ns);
        if is_awaited && cost == 1 && !self.0.has(Flag::Overdrawn) && self.may_overdraw(plan) {
            self.0.raise(Flag::Overdrawn);
            self.0.set_balance(self.0.balance().saturating_sub(UNIT));
            return Told::Admitted { renew: !is_in_flight };
        }
        Told::Ask
    }

    /// Whether it holds a lease that brings units in time, and that is not over, or not so long that what renews it could
    /// be here. Of a limit that hardly refills in an epoch, nobody is lent anything for requests to come.
    pub fn has_lease(&self, plan: &Plan, now_ns: u64, lead_ns: u64) -> bool {
        let is_lent = rate_of(&plan.quota) * seconds(plan.sharing.epoch_ns) >= SMALL_AHEAD;
        let has_lease = self.0.epoch() != 0 && !self.0.has(Flag::Alone);
        is_lent && has_lease && now_ns < self.0.end_ns().saturating_add(lead_ns)
    }

    /// Takes a unit that is not held, for a request that would have to wait: once, until Redis has said that
    /// there is still some left. So all nodes together owe no more than a unit each, however often they are asked.
    ///
    /// Not where little refills and Redis's last word is older than an epoch: what a client is told is left would be,
    /// too.
    pub fn overdraw(&mut self, plan: &Plan, now_ns: u64) -> bool {
        // The nodes owe already more than there was.
        let is_owed = self.0.epoch() != 0 && self.0.level() < 0.0;
        let is_slow = rate_of(&plan.quota) * seconds(plan.sharing.epoch_ns) < SMALL;
        let is_unheard = self.0.epoch() == 0 || self.0.unreported_ns(now_ns) > plan.sharing.epoch_ns;
        let is_old = is_slow && is_unheard;
        if is_owed
            || is_old
            || self.0.has(Flag::Overdrawn)
            || self.0.has(Flag::Alone)
            || self.held(now_ns) < 0
        {
            return false;
        }
        self.0.raise(Flag::Overdrawn);
        self.0.set_balance(self.0.balance().saturating_sub(UNIT));
        true
    }

    /// Undoes a `take` that admitted, whatever became of the lease since; the demand is taken back too.
    #[inline]
    pub fn give_back(&mut self, cost: u64) {
        self.0.set_balance(self.0.balance().saturating_add(fixed(cost)));
        self.forget_wanted(cost);
        if self.0.has(Flag::Alone) {
            self.0.set_level(self.0.level() - cost as f64);
        }
    }

    /// Whether it holds no whole unit, and none is to come.
    pub fn holds_nothing(&self) -> bool {
        self.0.balance() < UNIT
    }

    /// Forgets that so many units were wanted: another window refused the request that wanted them.
    pub fn forget_wanted(&mut self, cost: u64) {
        self.0.set_offered(self.0.offered().saturating_sub(u32::try_from(cost).unwrap_or(u32::MAX)));
    }

    /// Spends units that are not held, for a cost that is known only now: the next renewal settles what is owed.
    pub fn owe(&mut self, cost: u64) {
        self.0.add_offered(cost);
        self.0.set_balance(self.0.balance().saturating_sub(fixed(cost)));
        if self.0.has(Flag::Alone) {
            self.0.set_level(self.0.level() + cost as f64);
        }
    }

    /// Remembers a denial of Redis: nothing that costs as much can be admitted before.
    pub fn deny_for(&mut self, wait_ns: u64, now_ns: u64) {
        // A bucket of its own that goes on at a lease's rate keeps its beginning there.
        if !self.0.has(Flag::Alone) || self.0.rate() == 0.0 {
            self.0.set_deny_until_ns(now_ns.saturating_add(wait_ns));
        }
    }

    /// Whether it denies by what Redis said so long ago that units may have come back since.
    pub fn is_denial_old(&self, now_ns: u64) -> bool {
        now_ns < self.0.deny_until_ns()
            && !self.0.has(Flag::InFlight)
            && self.0.unreported_ns(now_ns) >= RECHECK_NS
    }

    /// Notes what Redis said is left of an exact window.
    pub fn hear(&mut self, remaining: u64, now_ns: u64) {
        self.0.set_level(remaining as f64);
        self.0.set_end_ns(now_ns);
    }

    /// Remembers that Redis refused so many units of an exact window: no request for as many can be admitted
    /// before.
    pub fn refuse(&mut self, cost: u64, wait_ns: u64, now_ns: u64) {
        self.0.set_offered(u32::try_from(cost).unwrap_or(u32::MAX));
        self.deny_for(wait_ns, now_ns);
    }

    /// How long a refusal of Redis still stands for a request of that cost, nanoseconds: longer for one that costs
    /// more than what was refused, as far as what it counts comes back by and by.
    pub fn refused_for(&self, plan: &Plan, cost: u64, now_ns: u64) -> Option<u64> {
        let dearer = cost.checked_sub(u64::from(self.0.offered()))?;
        let wait_ns = self.0.deny_until_ns().checked_sub(now_ns).filter(|wait_ns| *wait_ns > 0)?;
        let more_ns = match plan.quota.algorithm() {
            // What weighs of a sliding window shrinks no faster than at the limit's rate.
            Algorithm::TokenBucket | Algorithm::LeakyBucket | Algorithm::SlidingWindow => {
                dearer as f64 * unit_ns(&plan.quota)
            }
            Algorithm::FixedWindow | Algorithm::SlidingLog | Algorithm::Concurrency => 0.0,
        };
        Some(wait_ns.saturating_add(more_ns as u64))
    }

    /// The same for a request that is decided now. What was refused may have come back since, so once in `RECHECK_NS`
    /// one request is let ask again.
    pub fn refuses(&mut self, plan: &Plan, cost: u64, now_ns: u64) -> Option<u64> {
        let wait_ns = self.refused_for(plan, cost, now_ns)?;
        if now_ns.saturating_sub(self.0.end_ns()) < RECHECK_NS {
            return Some(wait_ns);
        }
        let (left, _) = self.estimate(plan, now_ns);
        self.hear(left, now_ns);
        None
    }

    /// Whether forgetting it loses nothing: it holds, owes and denies nothing, awaits no answer, and a bucket of its
    /// own has refilled.
    pub fn says_nothing(&self, plan: &Plan, now_ns: u64) -> bool {
        if now_ns < self.0.deny_until_ns() || self.0.has(Flag::InFlight) {
            return false;
        }
        let gone_ns = now_ns.saturating_sub(self.0.end_ns());
        if self.0.has(Flag::Alone) {
            return seconds(gone_ns) * rate_of(&plan.quota) >= plan.quota.capacity() as f64;
        }
        gone_ns > plan.sharing.age_ns() && (0..UNIT).contains(&self.0.balance())
    }

    /// What is left of the limit in the whole fleet as far as this node knows, units, and nanoseconds until it is
    /// whole if nobody spends. An estimate: what others spent since the last word of Redis is not in it.
    pub fn estimate(&self, plan: &Plan, now_ns: u64) -> (u64, u64) {
        let whole = plan.quota.capacity() as f64;
        let unit_ns = unit_ns(&plan.quota);
        // Without a lease it may still owe.
        let held = if self.0.epoch() == 0 { self.0.balance().min(0) } else { self.held(now_ns) };
        let held = held as f64 / UNIT as f64;
        let level = if self.0.has(Flag::Alone) { 0.0 } else { self.0.level() };
        // While the lease lasts others hold leases too, and what refills is theirs; after it, nobody's.
        let gone_ns = now_ns.saturating_sub(self.0.end_ns().max(1));
        let refilled = match gone_ns {
            0 => 0.0,
            // Nothing has been heard of it, so nothing is known to be spent.
            _ if self.0.end_ns() == 0 && !self.0.has(Flag::Alone) => whole,
            _ => gone_ns as f64 / unit_ns,
        };
        let left = (level + held + refilled).clamp(0.0, whole);
        (left as u64, ((whole - left) * unit_ns) as u64)
    }

    /// What this node knows of the key, for operators.
    pub fn view(&self, now_ns: u64) -> View {
        let has_lease = self.0.epoch() != 0 && !self.0.has(Flag::Alone);
        View {
            held: if has_lease { self.held(now_ns) as f64 / UNIT as f64 } else { 0.0 },
            rate: if has_lease { self.0.rate() } else { 0.0 },
            lasts_ns: if has_lease { self.0.end_ns().saturating_sub(now_ns) } else { 0 },
            denied_ns: self.0.deny_until_ns().saturating_sub(now_ns),
            level: self.0.level(),
            demand: self.0.demand(),
            told_ns: self.0.unreported_ns(now_ns),
            is_fallback: self.0.has(Flag::Alone),
            has_lease,
        }
    }

    /// Held now, `2^-20` units; negative: owed. What is owed without end stays owed: nothing wraps.
    #[inline]
    fn held(&self, now_ns: u64) -> i64 {
        let to_come_ns = self.0.end_ns().saturating_sub(now_ns);
        let to_come = (to_come_ns as f64 * self.0.rate() * (UNIT as f64 / 1e9)) as i64;
        self.0.balance().saturating_sub(to_come)
    }

    /// Whether what is `left` lasts no longer than a renewal takes, and the key is worth a lease.
    #[inline]
    fn is_running_dry(&self, plan: &Plan, left: i64, now_ns: u64, lead_ns: u64) -> bool {
        let demand = self.0.demand();
        let is_low = left as f64 <= demand * seconds(lead_ns) * UNIT as f64;
        let is_over = now_ns >= self.0.end_ns();
        (is_low || is_over)
            && !self.0.has(Flag::InFlight)
            && (is_over || now_ns >= self.0.deny_until_ns())
            && demand * seconds(plan.sharing.epoch_ns) >= LEASE_MIN
    }

    /// Whether its lease was large enough for the unit to be within what the plan spares: leases are the limit's rate
    /// together, so at most `spare` of them are.
    fn may_overdraw(&self, plan: &Plan) -> bool {
        let life_s = seconds(plan.sharing.epoch_ns);
        let lease_min = (rate_of(&plan.quota) * life_s / f64::from(plan.sharing.spare)).max(2.0);
        self.0.rate() * life_s >= lease_min
    }

    /// Whether Redis had so much left that it gives what is asked for.
    fn is_plenty(&self, quota: &Quota) -> bool {
        self.0.level() >= quota.capacity() as f64 / 4.0
    }
}

/// Units as the balance keeps them; what is more than any limit allows saturates.
#[inline]
fn fixed(units: u64) -> i64 {
    (units.min(UNITS_MAX) as i64) * UNIT
}

/// Units a second that a quota refills.
fn rate_of(quota: &Quota) -> f64 {
    quota.limit().get() as f64 * 1e9 / quota.period_ns().get() as f64
}

/// Nanoseconds in which a quota refills one unit. The division knows nothing of a key, so none waits for it whose memory
/// is waited for.
#[inline]
fn unit_ns(quota: &Quota) -> f64 {
    quota.period_ns().get() as f64 / quota.limit().get() as f64
}

fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

/// One unit in a balance.
const UNIT: i64 = 1 << 20;
const UNITS_MAX: u64 = 1 << 40;
/// Shorter ones are no pause.
const PAUSE_NS: u64 = 8_000_000;
/// How much longer than its life a lease denies while its renewal is on its way.
const GRACE_NS: u64 = 2_000_000;
/// How long Redis's word that a window is spent is taken for true: others give back units they did not need.
const RECHECK_NS: u64 = 500_000_000;
/// A renewal is asked for when what is held lasts no longer, nanoseconds: what answers take where requests wait for them.
pub const LEAD_MIN_NS: u64 = 3_000_000;
/// A demand of fewer units a lease's life is served by Redis, first come.
const LEASE_MIN: f64 = 1.5;

#[cfg(test)]
mod tests;
