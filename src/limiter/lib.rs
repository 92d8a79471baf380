//! The limiter: decides all charges of one request together. All are taken, or none.
//!
//! Without `[redis]` a node decides every charge in its own table ([`crate::local`]). With it, a charge that the fleet
//! shares is decided from this node's lease, else by Redis (`leases`, `exact` for windows without leases, `permits` for
//! concurrency), and by this node's `fallback` while Redis is down. A request waits for each call at most `redis.deadline`. The
//! way of one request: `check` → `charge_walk` → `shared_limits` → one of these parts → `wait`.
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
mod decision;
mod exact;
mod fallback;
mod fleet;
mod fleet_penalties;
pub mod global;
mod holders;
mod hot;
mod inspection;
mod leases;
pub mod local;
mod mostly_empty;
mod permits;
mod plans;
mod shared_limits;
mod wait;
mod waiting;

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use base::clock;
use check::charge_state::ChargeState;
use holders::Holders;
use limit::{Algorithm, Charge, Outcome, Quota};
use local::Table;
use shared_limits::SharedLimits;

pub use check::charge_state::Refund;
pub use check::event::{Count, Event};
pub use check::forecast::{Decider, Forecast};
pub use check::joint_check::CheckPart;
pub use check::provenance::Provenance;
pub use check::recall::Recall;
pub use check::{Check, PeekResult, Pending};
pub use decision::{ClientAddress, Decision};
pub use fleet::Fleet;
pub use fleet_penalties::PenaltyExchange;
pub use global::link::{Done, Link};
pub use holders::account::Account;
pub use holders::assignments::Assignments;
pub use holders::overrides::{BlockAnswer, Change, Override, Overrides};
pub use holders::own_limits::OwnLimit;
pub use holders::resets::{Reset, Resets};
pub use holders::standings::Standings;
pub use inspection::{Inspection, RedisView};
pub use leases::lease_table::LeaseTable;
pub use plans::{PlanRef, Plans};
pub use waiting::Waiting;

/// Decides charges; one for the whole process, shared by all workers.
pub struct Limiter {
    table: Arc<Table>,
    shared: Option<SharedLimits>,
    holders: Holders,
    hot: hot::Hot,
}

impl fmt::Debug for Limiter {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Limiter").field("in_fleet", &self.shared.is_some()).finish_non_exhaustive()
    }
}

/// How the fleet shares a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SharedWindow {
    /// Nodes hold leases of it, rather than Redis deciding each charge.
    pub is_leased: bool,
    /// Redis answers: what a node decides without it is decided so because an answer is late.
    pub answers: bool,
    /// How far the clock that its windows follow is ahead of this node's, microseconds.
    pub ahead_us: i64,
}

impl SharedWindow {
    /// What the clock that its windows follow reads when this node's does so.
    pub fn unix(&self, here: Duration) -> Duration {
        let here_us = u64::try_from(here.as_micros()).unwrap_or(u64::MAX);
        Duration::from_micros(here_us.saturating_add_signed(self.ahead_us))
    }
}

impl Limiter {
    /// A limiter without Redis: this node counts on its own.
    pub fn new(table: Table) -> Limiter {
        let table = Arc::new(table);
        let holders = Holders::new(&table, None);
        Limiter { table, shared: None, holders, hot: hot::Hot::default() }
    }

    /// A limiter of a node of a fleet. The table counts what the fleet does not share.
    pub fn in_fleet(table: Table, fleet: Fleet) -> Limiter {
        let table = Arc::new(table);
        let shared = SharedLimits::new(fleet, &table);
        let holders = Holders::new(&table, Some(&shared.fleet));
        Limiter { table, shared: Some(shared), holders, hot: hot::Hot::default() }
    }

    /// The overrides that charges are changed by.
    pub fn overrides(&self) -> &Overrides {
        &self.holders.overrides
    }

    /// The resets that keys are changed by.
    pub fn resets(&self) -> &Resets {
        &self.holders.resets
    }

    /// The tiers that consumers were assigned.
    pub fn assignments(&self) -> &Assignments {
        &self.holders.assignments
    }

    /// The fleet that limits are shared with, if Redis is configured.
    pub fn fleet(&self) -> Option<&Fleet> {
        self.shared.as_ref().map(|shared| &*shared.fleet)
    }

    /// The parts that decide a charge that the fleet shares, and its plan.
    fn shared(&self, charge: &Charge) -> Option<(&SharedLimits, PlanRef<'_>)> {
        let shared = self.shared.as_ref()?;
        Some((shared, shared.plan(charge)?))
    }

    /// Routes the keys of shared charges to the shard that keeps this tenant's, if it has one of its own.
    #[inline]
    pub fn route_tenant(&self, charges: &mut [Charge], tenant: Option<&str>) {
        let Some(Fleet { link, .. }) = self.fleet() else { return };
        for charge in charges.iter_mut().filter(|charge| charge.plan.is_some()) {
            charge.key = link.route(charge.key, tenant);
        }
    }

    /// How the fleet shares a charge's window; `None`: it does not.
    pub fn shared_window(&self, charge: &Charge) -> Option<SharedWindow> {
        let (shared, plan) = self.shared(charge)?;
        let shard_us = shared.fleet.link.shard_us(charge.key, clock::now_ns());
        let unix_us = u64::try_from(clock::unix().as_micros()).unwrap_or(u64::MAX);
        let ahead_us = shard_us.cast_signed().saturating_sub_unsigned(unix_us);
        let answers = shared.fleet.link.answers(charge.key);
        Some(SharedWindow { is_leased: !plan.sharing.is_exact(), answers, ahead_us })
    }

    /// The table of what this node counts on its own.
    pub fn table(&self) -> &Table {
        &self.table
    }

    /// From now on these keys, and no others, are decided by this node alone, each by its quota, whose algorithm is that of
    /// its policy.
    pub fn keep_local(&self, quotas: HashMap<u64, Quota>) {
        self.table.declare_more(quotas.values().copied());
        self.hot.put(quotas);
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

    /// What is left of a charge's window as far as this node knows. Spends nothing.
    fn look(&self, charge: &Charge, now_ns: u64) -> Outcome {
        self.foresee(&Charge { cost: 0, ..*charge }, now_ns)
    }

    /// The outcome that a charge would have as far as this node knows. Spends nothing.
    fn foresee(&self, charge: &Charge, now_ns: u64) -> Outcome {
        match &self.shared {
            Some(shared) => shared.fallback.foresee(charge, now_ns),
            None => self.table.peek(charge, now_ns),
        }
    }

    /// The same for a request that another window refuses.
    fn foresee_refused(&self, charge: &Charge, now_ns: u64) -> Outcome {
        if let Some(shared) = &self.shared {
            return shared.fallback.foresee_refused(charge, now_ns);
        }
        let (outcome, left) = (self.foresee(charge, now_ns), self.look(charge, now_ns));
        left.with_answer_of(outcome)
    }

    /// Gives a charge's units back. `refund` is its [`Decision::refund`], `taken_ns` the time of the decision.
    pub fn refund(&self, charge: &Charge, refund: Refund, taken_ns: u64) {
        match (refund, &self.shared) {
            (Refund::Table(place), _) => self.table.give_back(charge, place, taken_ns),
            (_, Some(shared)) => shared.refund(charge, refund, taken_ns),
            (_, None) => {}
        }
    }

    /// Refunds a charge of a refused request. One that counts denials stays taken, except concurrency, because a
    /// refused request is not in flight.
    fn refund_refused(&self, charge: &Charge, state: &ChargeState, taken_ns: u64) {
        let stays = charge.count_denied && charge.quota.algorithm() != Algorithm::Concurrency;
        let ChargeState::Taken { refund, .. } = state else { return };
        match (refund, &self.shared) {
            _ if stays => {}
            // It is no debt yet. If Redis takes it late, that is undone then.
            (Refund::Fallback { place, taken_ns }, Some(shared)) => {
                shared.exact.withdraw(charge, *place, *taken_ns);
            }
            _ => self.refund(charge, *refund, taken_ns),
        }
    }

    /// Corrects a charge to the cost that the answer stated: refunds the difference if it is less, and debits it where the
    /// charge was taken if it is more.
    pub fn reconcile(&self, charge: &Charge, refund: Refund, taken_ns: u64, cost: u64, now_ns: u64) {
        if cost < charge.cost {
            return self.refund(&Charge { cost: charge.cost - cost, ..*charge }, refund, taken_ns);
        }
        let more = Charge { cost: cost - charge.cost, ..*charge };
        match (refund, &self.shared) {
            _ if more.cost == 0 => {}
            (Refund::Table(place), _) => self.table.debit(&more, place, now_ns),
            (_, Some(shared)) => shared.debit(&more, refund, now_ns),
            (_, None) => {}
        }
    }

    /// Returns idle leases, adapts this node's shares to the number of nodes, and sends permits and debts that are due.
    /// Call it every `SWEEP_EVERY`.
    pub fn sweep(&self, now_ns: u64) {
        let Some(shared) = &self.shared else { return };
        let quotas = shared.fleet.plans.resize(shared.fleet.nodes());
        if !quotas.is_empty() {
            self.table.declare_more(quotas);
        }
        shared.sweep(now_ns);
    }

    /// Returns all leases, when this node stops, and sends permits and debts. Whether to call again in a moment: something
    /// is held or owed, or no answer has come yet to what was asked or returned. A return may find no connection, and has
    /// to be sent again then.
    pub fn release_all(&self, now_ns: u64) -> bool {
        self.shared.as_ref().is_some_and(|shared| shared.release_all(now_ns))
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
    use limit::{Answer, Key, Penalty, PenaltyCheck, PolicyId};

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
            let mut check = Check::default();
            check.begun_ns = now_ns;
            check.charges.extend([watched, other]);
            check.penalties.push(penalty);
            if !check.keep_out(&limiter) {
                check.decision = decide(&limiter, &[watched, other], now_ns);
                check.watch(&limiter);
            }
            (check.decision.is_admitted(), check.decision.retry_after_ns().unwrap_or(0) / SECOND)
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
