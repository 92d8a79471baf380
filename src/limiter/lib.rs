//! The limiter: decides all charges of one request together. All are taken, or none.
//!
//! Without `[redis]` a node decides every charge in its own table ([`crate::local`]). With it, a charge that the fleet
//! shares is decided from this node's lease (`fleet`), else by Redis (`renewals` for leases, `exact` for windows without
//! leases, `permits` for concurrency), and by this node's fallback while Redis is down. A request waits for Redis at
//! most `redis.deadline`. The way of one request: `check` → `attempt` → `fleet` → `renewals` or `exact` → `wait`.
//!
//! Charges are taken in the order given, not the one with the least left first, because finding that order costs a look
//! at every key, while a refund is exact and takes nanoseconds. Between a take and its refund another thread may find
//! the units missing and be refused; it never finds too many.
//!
//! It does not know the names of policies, headers, or statuses.
//!
//! README.md beside this file says why it is built so.

#![warn(missing_docs)]

mod check;
mod exact;
mod fallback;
mod fleet;
pub mod global;
mod holders;
mod hot;
mod leases;
mod link;
pub mod local;
mod look;
mod permits;
mod plans;
mod seldom;
mod wait;
mod waiting;

use std::collections::HashMap;
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use smallvec::SmallVec;

use crate::local::{Table, TakeResult};
use check::own_limits::OwnLimits;
use limit::{Algorithm, Charge, Key, Outcome, Quota, Worlds};
use metrics::DecidingTier;

pub use check::charge_state::Refund;
pub use check::event::{Count, Event};
pub use check::foretell::{Decider, Foretold};
pub use check::joint_check::CheckPart;
pub use check::own_limits::OwnLimit;
pub use check::provenance::Provenance;
pub use check::recall::Recall;
pub use check::{Check, PeekResult, Pending};
pub use fleet::Fleet;
pub use holders::account::Account;
pub use holders::assignments::Assignments;
pub use holders::by_holder::Holder;
pub use holders::overrides::{Change, Override, Overrides};
pub use holders::resets::{Reset, Resets};
pub use link::{Done, Link};
pub use look::Look;
pub use plans::Plans;
pub use waiting::Waiting;

/// Decides charges; one for the whole process, shared by all workers.
pub struct Limiter {
    table: Table,
    fleet: Option<Fleet>,
    overrides: Overrides,
    resets: Resets,
    assignments: Assignments,
    given: OwnLimits,
    hot: hot::Hot,
}

/// What was decided about one request, and by whom.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Decision {
    /// The outcome of each charge, in the order of the charges. If the request is refused, `remaining` is what is left
    /// without it.
    pub outcomes: SmallVec<[Outcome; 4]>,
    /// Index of the charge that the rate-limit fields of the answer describe: the one with the least left or, if
    /// refused, the one with the longest wait. Never a shadow's; `None` if there are only shadows.
    pub binding: Option<usize>,
    /// Which tier decided; if several did, the farthest from this node.
    pub tier: DecidingTier,
    /// Whether it is refused because Redis is down (`when-redis-down = "deny"`).
    pub is_redis_down: bool,
    /// Whether it waits for what is asked of Redis; else it is decided before the answer.
    waits: bool,
    /// Where it is refused; beside the request's own world those of its trials.
    refused: Worlds,
    /// Where a penalty refuses it: no charge of these is decided.
    kept_out: Worlds,
    /// Where charges that are not in `refunds` go back to: their slot or, for a request with one charge, the lease.
    usual: Refund,
    /// Charges that go back elsewhere, by index. Nearly always empty without Redis.
    refunds: SmallVec<[(u16, Refund); 2]>,
    /// The charges that something else decided than this node with what it holds, by index.
    elsewhere: SmallVec<[(u16, Elsewhere); 2]>,
}

/// Who decided a charge, if not this node with what it holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Elsewhere {
    /// Redis, which was asked for it.
    Redis,
    /// This node without Redis, as `when-redis-down` of the policy says.
    Fallback,
    /// Nobody: another window had refused the request, and this one was not asked.
    Nobody,
    /// This node, by a penalty that it remembers, before anything was decided.
    Penalty,
}

/// The address of the client, as the policies count it (IPv6 clients by network). Only the fallback of
/// `when-redis-down = "allow"` uses it: that limits by address whatever the policy counts by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClientAddress(u128);

impl From<IpAddr> for ClientAddress {
    fn from(address: IpAddr) -> ClientAddress {
        ClientAddress(match address {
            IpAddr::V4(address) => address.to_ipv6_mapped().to_bits(),
            IpAddr::V6(address) => address.to_bits(),
        })
    }
}

impl Decision {
    /// Whether the request may pass in its own world, whatever its trials say.
    #[inline]
    pub fn is_admitted(&self) -> bool {
        !self.refused.has(Worlds::OWN)
    }

    /// Whether the world in which a charge counts is refused: then the charge is not taken.
    #[inline]
    fn is_refused_to(&self, charge: &Charge) -> bool {
        self.refused.has(charge.world())
    }

    /// Whether the charge of this index is taken, and may be given back.
    pub fn has_taken(&self, index: usize, charge: &Charge) -> bool {
        self.outcomes.get(index).is_some_and(Outcome::is_admitted) && !self.is_refused_to(charge)
    }

    /// Nanoseconds until every window that refused would admit: 0 if admitted, `None` if one never will.
    pub fn retry_after_ns(&self) -> Option<u64> {
        if self.is_admitted() {
            return Some(0);
        }
        self.binding.and_then(|index| self.outcomes[index].retry_after_ns())
    }

    /// Nanoseconds an admitted request waits in the slowest of its queues. A shadow delays nobody.
    pub fn delay_ns(&self, charges: &[Charge]) -> u64 {
        let enforced = charges.iter().zip(&self.outcomes).filter(|(charge, _)| !charge.shadow);
        enforced.map(|(_, outcome)| outcome.delay_ns()).max().unwrap_or(0)
    }

    /// How the charge of this index is given back.
    pub fn refund(&self, index: usize) -> Refund {
        let other = self.refunds.iter().find(|(of, _)| usize::from(*of) == index);
        other.map_or(self.usual, |(_, refund)| *refund)
    }

    /// Notes how the charge of this index is given back.
    fn note(&mut self, index: usize, refund: Refund) {
        if refund != self.usual {
            // A request has no more charges than a route has windows, far fewer than that.
            self.refunds.push((u16::try_from(index).unwrap_or(u16::MAX), refund));
        }
    }

    /// Notes who decided the charge of this index.
    fn note_elsewhere(&mut self, index: usize, elsewhere: Elsewhere) {
        self.elsewhere.push((u16::try_from(index).unwrap_or(u16::MAX), elsewhere));
    }

    /// Who decided the charge of this index, if not this node with what it holds.
    fn elsewhere(&self, index: usize) -> Option<Elsewhere> {
        self.elsewhere.iter().find(|(of, _)| usize::from(*of) == index).map(|(_, elsewhere)| *elsewhere)
    }

    /// Lets `decide` decide the charge of this index, which may be without Redis, and notes whether it was.
    fn decide_at<R>(&mut self, index: usize, decide: impl FnOnce(&mut Decision) -> R) -> R {
        let before = std::mem::take(&mut self.tier);
        let decided = decide(self);
        if self.tier == DecidingTier::Fallback {
            self.note_elsewhere(index, Elsewhere::Fallback);
        }
        self.tier = self.tier.max(before);
        decided
    }

    /// The charges that refused, with their outcomes, without shadows.
    pub fn violated<'c>(&'c self, charges: &'c [Charge]) -> impl Iterator<Item = (&'c Charge, &'c Outcome)> {
        charges
            .iter()
            .zip(&self.outcomes)
            .filter(|(charge, outcome)| !charge.shadow && !outcome.is_admitted())
    }
}

impl fmt::Debug for Limiter {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Limiter").field("in_fleet", &self.fleet.is_some()).finish_non_exhaustive()
    }
}

impl Limiter {
    /// A limiter without Redis: this node counts on its own.
    pub fn new(table: Table) -> Limiter {
        Limiter {
            table,
            fleet: None,
            overrides: Overrides::default(),
            resets: Resets::default(),
            assignments: Assignments::default(),
            given: OwnLimits::default(),
            hot: hot::Hot::default(),
        }
    }

    /// A limiter of a node of a fleet. The table counts what the fleet does not share.
    pub fn in_fleet(table: Table, fleet: Fleet) -> Limiter {
        Limiter { fleet: Some(fleet), ..Limiter::new(table) }
    }

    /// The tiers that consumers were assigned.
    pub fn assignments(&self) -> &Assignments {
        &self.assignments
    }

    /// The part that shares limits with a fleet, if Redis is configured.
    pub fn fleet(&self) -> Option<&Fleet> {
        self.fleet.as_ref()
    }

    /// Routes the keys of shared charges to the shard that keeps this tenant's, if it has one of its own.
    #[inline]
    pub fn route_tenant(&self, charges: &mut [Charge], tenant: Option<&str>) {
        let Some(fleet) = &self.fleet else { return };
        for charge in charges.iter_mut().filter(|charge| charge.plan.is_some()) {
            charge.key = fleet.link.route(charge.key, tenant);
        }
    }

    /// Whether nodes hold leases of a charge's window, rather than Redis deciding each charge.
    pub fn is_leased(&self, charge: &Charge) -> bool {
        let plan = self.fleet.as_ref().and_then(|fleet| fleet.plans.get(charge.plan));
        plan.is_some_and(|plan| !plan.sharing.is_exact())
    }

    /// The table of what this node counts on its own.
    pub fn table(&self) -> &Table {
        &self.table
    }

    /// Makes the quotas of a configuration known; see [`Table::declare`].
    pub fn declare(&self, quotas: impl IntoIterator<Item = Quota>) {
        self.table.declare(quotas);
    }

    /// From now on these keys, and no others, are decided by this node alone, each by its quota, whose algorithm is that of
    /// its policy.
    pub fn keep_local(&self, quotas: HashMap<u64, Quota>) {
        self.table.declare_more(quotas.values().copied());
        self.hot.put(quotas);
    }

    /// Decides a request into `decision`, which it overwrites: filling it in place is cheaper than returning it, because
    /// moving it costs as much as a decision. A refused request spends nothing, except on charges that count denials.
    ///
    /// Returns what to wait for if Redis has to be asked; `decision` is not valid then until [`Limiter::resume`].
    #[inline]
    pub fn decide(
        self: &Arc<Self>,
        charges: &[Charge],
        client: ClientAddress,
        now_ns: u64,
        decision: &mut Decision,
    ) -> Option<Waiting> {
        decision.clear();
        match (charges, &self.fleet) {
            ([charge], None) => {
                self.decide_one(charge, now_ns, decision);
                None
            }
            ([charge], Some(fleet)) => match fleet.spend(charge, now_ns) {
                Some(outcome) => {
                    decision.spent(charge, outcome);
                    None
                }
                None => self.decide_shared(charge, client, now_ns, decision),
            },
            _ => self.decide_all(charges, client, now_ns, decision),
        }
    }

    /// What `decide` would decide, with nothing spent.
    pub fn peek_charges(&self, charges: &[Charge], now_ns: u64) -> Decision {
        let mut decision = Decision::default();
        decision.outcomes.extend(charges.iter().map(|charge| self.foresee(charge, now_ns)));
        for (charge, outcome) in charges.iter().zip(&decision.outcomes) {
            if !outcome.is_admitted() {
                decision.refused.add(charge.refuses());
            }
        }
        let refused = decision.refused;
        for (charge, outcome) in charges.iter().zip(&mut decision.outcomes) {
            if refused.has(charge.world()) {
                let left = self.look(charge, now_ns);
                *outcome = Outcome::new(outcome.answer(), left.remaining, left.reset_ns);
            }
        }
        decision.bind(charges);
        decision
    }

    /// The usual request has one charge; without others there is nothing to combine or to refund.
    #[inline(always)]
    fn decide_one(&self, charge: &Charge, now_ns: u64, decision: &mut Decision) {
        let TakeResult { outcome, place } = self.table.take(charge, now_ns);
        decision.note(0, Refund::Table(place));
        if !charge.shadow {
            decision.binding = Some(0);
        }
        if !outcome.is_admitted() {
            decision.refused = charge.refuses();
        }
        decision.outcomes.push(outcome);
    }
}

impl Decision {
    /// Forgets what was decided before.
    #[inline]
    fn clear(&mut self) {
        self.outcomes.clear();
        self.binding = None;
        self.tier = DecidingTier::Local;
        self.is_redis_down = false;
        self.waits = false;
        self.usual = Refund::default();
        self.refunds.clear();
        self.elsewhere.clear();
        self.refused = Worlds::NONE;
        self.kept_out = Worlds::NONE;
    }

    /// Records that the request's only charge was spent from this node's lease.
    #[inline(always)]
    fn spent(&mut self, charge: &Charge, outcome: Outcome) {
        self.usual = Refund::Lease;
        self.binding = if charge.shadow { None } else { Some(0) };
        self.outcomes.push(outcome);
    }

    /// Lets charges of one window say the same of what is left, where the request is refused. Redis decides them one after the
    /// other, so the later ones found taken what the earlier ones gave back.
    fn agree(&mut self, charges: &[Charge]) {
        // Only subjects that are decided together have a window twice.
        if charges.first().map(|charge| charge.part) == charges.last().map(|charge| charge.part) {
            return;
        }
        let is_undone = |charge: &Charge, refused: Worlds| {
            let stays = charge.count_denied && charge.quota.algorithm() != Algorithm::Concurrency;
            refused.has(charge.world()) && !stays
        };
        let refused = self.refused;
        let mut most: HashMap<(Key, Worlds), (u64, u64)> = HashMap::new();
        let undone = charges.iter().zip(&self.outcomes).filter(|(charge, _)| is_undone(charge, refused));
        for (charge, outcome) in undone {
            let (remaining, reset_ns) =
                most.entry((charge.key, charge.world())).or_insert((outcome.remaining, outcome.reset_ns));
            *remaining = outcome.remaining.max(*remaining);
            *reset_ns = outcome.reset_ns.min(*reset_ns);
        }
        for (charge, outcome) in charges.iter().zip(&mut self.outcomes) {
            if let Some((remaining, reset_ns)) = most.get(&(charge.key, charge.world()))
                && is_undone(charge, refused)
            {
                *outcome = Outcome::new(outcome.answer(), *remaining, *reset_ns);
            }
        }
    }

    /// Chooses `binding`.
    fn bind(&mut self, charges: &[Charge]) {
        let enforced =
            charges.iter().zip(&self.outcomes).enumerate().filter(|(_, (charge, _))| !charge.shadow);
        let bound = if !self.is_admitted() {
            // `None` means never, the longest wait of all.
            enforced.max_by_key(|(_, (_, outcome))| outcome.retry_after_ns().unwrap_or(u64::MAX))
        } else {
            // Of two with the same remainder, the one that takes longer to be full again.
            enforced.min_by_key(|(_, (_, outcome))| (outcome.remaining, u64::MAX - outcome.reset_ns))
        };
        self.binding = bound.map(|(index, _)| index);
    }
}

#[cfg(test)]
mod fleet_tests;
#[cfg(test)]
mod outgoing_tests;
#[cfg(test)]
mod trial_tests;
#[cfg(test)]
mod tests {
    use std::num::NonZeroU64;
    use std::thread;

    use proptest::prelude::*;

    use super::*;
    use limit::{Answer, Penalty, PenaltyCheck, PolicyId};

    const SECOND: u64 = 1_000_000_000;
    const NOW: u64 = 3_600 * SECOND;

    fn charge(key: u64, limit: u64) -> Charge {
        let limit = NonZeroU64::new(limit).expect("tests give no zero");
        let period_ns = NonZeroU64::new(SECOND).expect("not zero");
        let quota = Quota::new(Algorithm::TokenBucket, limit, period_ns, limit);
        let key = Key::new(u128::from(key.wrapping_mul(0x9e37_79b9_7f4a_7c15)) << 64 | u128::from(key << 40));
        Charge::one(key, quota)
    }

    fn decide(limiter: &Arc<Limiter>, charges: &[Charge], now_ns: u64) -> Decision {
        let mut decision = Decision::default();
        assert!(
            limiter.decide(charges, ClientAddress::default(), now_ns, &mut decision).is_none(),
            "nothing to wait for"
        );
        decision
    }

    /// Indices of the charges that were refused, shadows among them.
    fn over(decision: &Decision) -> Vec<usize> {
        (0..decision.outcomes.len()).filter(|index| !decision.outcomes[*index].is_admitted()).collect()
    }

    fn limiter() -> Arc<Limiter> {
        Arc::new(Limiter::new(Table::with_memory(1 << 16)))
    }

    fn left(limiter: &Limiter, charges: &[Charge]) -> Vec<u64> {
        charges
            .iter()
            .map(|charge| limiter.table.peek(&Charge { cost: 0, ..*charge }, NOW).remaining)
            .collect()
    }

    #[test]
    fn nothing_to_charge_is_admitted() {
        let decision = decide(&limiter(), &[], NOW);
        assert!(decision.is_admitted());
        assert_eq!((decision.binding, decision.retry_after_ns()), (None, Some(0)));
    }

    #[test]
    fn a_refused_request_costs_nothing_anywhere() {
        let limiter = limiter();
        let charges = [charge(1, 5), charge(2, 2), charge(3, 9)];
        assert!(decide(&limiter, &charges, NOW).is_admitted());
        assert!(decide(&limiter, &charges, NOW).is_admitted());
        let refused = decide(&limiter, &charges, NOW);
        assert_eq!(over(&refused), [1]);
        assert_eq!(refused.outcomes.iter().map(|outcome| outcome.remaining).collect::<Vec<_>>(), [3, 0, 7]);
        assert_eq!(left(&limiter, &charges), [3, 0, 7]);
    }

    #[test]
    fn every_violated_window_is_named_and_the_longest_wait_binds() {
        let limiter = limiter();
        let (slow, fast) = (charge(1, 1), charge(2, 10));
        let dear = Charge { cost: 10, ..fast };
        assert!(decide(&limiter, &[slow, dear], NOW).is_admitted());
        let refused = decide(&limiter, &[fast, slow], NOW);
        assert_eq!(over(&refused), [0, 1]);
        assert_eq!((refused.binding, refused.retry_after_ns()), (Some(1), Some(SECOND)));
        let never = decide(&limiter, &[slow, Charge { cost: 11, ..fast }], NOW);
        assert_eq!((never.binding, never.retry_after_ns()), (Some(1), None));
    }

    #[test]
    fn the_least_left_binds_an_admitted_request() {
        let limiter = limiter();
        let shadow = Charge { shadow: true, ..charge(3, 2) };
        let decision = decide(&limiter, &[charge(1, 9), charge(2, 4), shadow], NOW);
        assert_eq!(decision.binding, Some(1));
        assert_eq!(decide(&limiter, &[shadow], NOW).binding, None);
    }

    #[test]
    fn a_shadow_charge_counts_and_never_refuses() {
        let limiter = limiter();
        let charges = [Charge { shadow: true, ..charge(1, 1) }, charge(2, 3)];
        assert_eq!(over(&decide(&limiter, &charges, NOW)), [] as [usize; 0]);
        let second = decide(&limiter, &charges, NOW);
        assert!(second.is_admitted());
        assert_eq!((over(&second), second.violated(&charges).count()), (vec![0], 0));
        assert_eq!(left(&limiter, &charges), [0, 1]);
        assert!(decide(&limiter, &charges, NOW).is_admitted());
        // The enforced one refuses, so the shadow one is not charged either.
        let other = [Charge { shadow: true, ..charge(3, 5) }, charge(2, 3)];
        assert!(!decide(&limiter, &other, NOW).is_admitted());
        assert_eq!(left(&limiter, &other), [5, 0]);
    }

    #[test]
    fn a_charge_that_counts_when_denied_is_not_given_back() {
        let limiter = limiter();
        let counted = Charge { count_denied: true, ..charge(1, 5) };
        let last = Charge { count_denied: true, ..charge(3, 5) };
        let spent = charge(2, 1);
        assert!(decide(&limiter, &[spent], NOW).is_admitted());
        assert!(!decide(&limiter, &[counted, spent, last], NOW).is_admitted());
        assert_eq!(left(&limiter, &[counted, last]), [4, 4]);
    }

    #[test]
    fn peek_says_what_decide_would_and_spends_nothing() {
        let limiter = limiter();
        let charges = [charge(1, 1), charge(2, 2)];
        assert!(limiter.peek_charges(&charges, NOW).is_admitted());
        assert!(decide(&limiter, &charges, NOW).is_admitted());
        let peeked = limiter.peek_charges(&charges, NOW);
        assert_eq!(peeked, decide(&limiter, &charges, NOW));
        assert_eq!(peeked.outcomes[0].answer(), Answer::Later { retry_after_ns: SECOND });
    }

    #[test]
    fn a_penalised_request_is_charged_nowhere() {
        let limiter = limiter();
        let (watched, other) = (charge(1, 1), Charge { policy: PolicyId::new(1), ..charge(2, 9) });
        let rule = Penalty::new(2, 60 * SECOND, 2, 3_600);
        let penalty = PenaltyCheck {
            key: Key::new(77),
            rule,
            policy: PolicyId::default(),
            part: 0,
            shadow: false,
            trial: None,
            wait_ns: 0,
        };
        let ask = |now_ns: u64| {
            let mut penalties = [penalty];
            let mut decision = Decision::default();
            if !limiter.keep_out(&[watched, other], &mut penalties, &[], now_ns, &mut decision) {
                decision = decide(&limiter, &[watched, other], now_ns);
                limiter.watch(&[watched, other], &mut penalties, &[], now_ns, &mut decision);
            }
            (decision.is_admitted(), decision.retry_after_ns().unwrap_or(0) / SECOND)
        };
        assert_eq!([ask(NOW), ask(NOW), ask(NOW), ask(NOW)], [(true, 0), (false, 1), (false, 1), (false, 2)]);
        // The limit itself is whole again after a second; the client is penalised, and longer while it keeps asking.
        let later = NOW + SECOND * 3 / 2;
        assert_eq!([ask(later), ask(later), ask(later)], [(false, 0), (false, 0), (false, 4)]);
        assert_eq!(left(&limiter, &[other]), [8]);
        assert_eq!(ask(later + 5 * SECOND), (true, 0));
    }

    #[test]
    fn threads_over_several_keys_admit_the_smallest_limit_at_most() {
        let limiter = limiter();
        let charges = [charge(1, 3_000), charge(2, 2_000), charge(3, 2_500)];
        let spend = || (0..2_000).filter(|_| decide(&limiter, &charges, NOW).is_admitted()).count();
        let admitted: usize = thread::scope(|scope| {
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(spend)).collect();
            threads.into_iter().map(|thread| thread.join().expect("no thread panics")).sum()
        });
        assert_eq!(admitted, 2_000);
        assert_eq!(left(&limiter, &charges), [1_000, 0, 500]);
    }

    proptest! {
        /// Beside plain counters that admit all or nothing, at one instant.
        #[test]
        fn equal_to_counters_that_take_all_or_nothing(
            requests in prop::collection::vec(prop::collection::vec((0usize..6, 1u64..4), 1..6), 1..60),
        ) {
            let limiter = limiter();
            let limit = |key: usize| key as u64 * 3 + 4;
            let mut spent = [0u64; 6];
            for request in requests {
                let charges: Vec<Charge> = request
                    .iter()
                    .map(|(key, cost)| Charge { cost: *cost, ..charge(*key as u64, limit(*key)) })
                    .collect();
                let mut wanted = spent;
                request.iter().for_each(|(key, cost)| wanted[*key] += cost);
                let fits = (0..6).all(|key| wanted[key] <= limit(key));
                prop_assert_eq!(decide(&limiter, &charges, NOW).is_admitted(), fits);
                spent = if fits { wanted } else { spent };
                for (key, spent) in spent.iter().enumerate() {
                    let remaining = left(&limiter, &[charge(key as u64, limit(key))])[0];
                    prop_assert_eq!(remaining, limit(key) - spent);
                }
            }
        }
    }
}
