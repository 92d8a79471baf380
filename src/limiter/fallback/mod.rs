//! [`Fallback`]: what this node admits while Redis does not answer, as `when-redis-down` of a policy says, and what Redis is told
//! of it afterwards.
//!
//! What a window without leases has spent is counted in this node's own table; a leased one is counted in its lease.

pub(super) mod debts;
pub(super) mod repayment;
pub(super) mod settling;

use std::collections::VecDeque;
use std::sync::Arc;

use crate::check::charge_state::{ChargeOutcome, ChargeState, Refund, said};
use crate::decision::{ClientAddress, Decision};
use crate::fallback::debts::Debts;
use crate::fallback::settling::Settling;
use crate::fleet::Fleet;
use crate::leases::Leases;
use crate::leases::lease_table::{ASK_RETRY_NS, lease_outcome, outcome_of};
use crate::local::{StateLocation, Table};
use crate::mostly_empty::MostlyEmpty;
use crate::permits::Permits;
use base::clock;
use limit::{Algorithm, Answer, Charge, Lease, Outcome, Plan, WhenDown};
use metrics::DecidingTier;

pub(crate) struct Fallback {
    fleet: Arc<Fleet>,
    table: Arc<Table>,
    leases: Arc<Leases>,
    permits: Arc<Permits>,
    pub(crate) debts: Debts,
    /// What waits for its shard, the oldest first.
    pub(crate) unsent: MostlyEmpty<VecDeque<Settling>>,
}

impl Fallback {
    pub(crate) fn new(
        fleet: &Arc<Fleet>,
        table: &Arc<Table>,
        leases: &Arc<Leases>,
        permits: &Arc<Permits>,
    ) -> Fallback {
        Fallback {
            fleet: Arc::clone(fleet),
            table: Arc::clone(table),
            leases: Arc::clone(leases),
            permits: Arc::clone(permits),
            debts: Debts::default(),
            unsent: MostlyEmpty::default(),
        }
    }

    /// Decides a charge without waiting, because its shard is down or slower than a request may wait. A slow shard is
    /// still asked for a lease for later requests. A key that has one already spends beyond it no more than its part of what
    /// Redis said is left, because otherwise the node would spend both the lease and its fallback share.
    pub(crate) fn decide(
        &self,
        plan: &Arc<Plan>,
        charge: &Charge,
        client: ClientAddress,
        now_ns: u64,
        decision: &mut Decision,
    ) -> ChargeOutcome {
        let (fleet, table) = (&self.fleet, &self.leases.table);
        let is_slow =
            !plan.sharing.is_exact() && fleet.link.is_up(charge.key) && !table.is_held_back(charge.key);
        if is_slow {
            let known = table.change_known(charge.key, |_, lease| {
                let told = table.beyond_lease(lease, plan, charge, now_ns)?;
                Some((told, lease.estimate(plan, now_ns)))
            });
            self.leases.renew(charge.key, charge.plan, None, now_ns);
            if let Some((told, left)) = known.flatten() {
                return said(lease_outcome(plan, charge.cost, told, left), Refund::Lease);
            }
        }
        self.take(plan, charge, client, now_ns, decision)
    }

    /// Decides a charge without Redis, as `when-redis-down` of its policy says.
    pub(crate) fn take(
        &self,
        plan: &Arc<Plan>,
        charge: &Charge,
        client: ClientAddress,
        now_ns: u64,
        decision: &mut Decision,
    ) -> ChargeOutcome {
        let fleet = &self.fleet;
        decision.tier = DecidingTier::Fallback;
        let is_permit = plan.quota.algorithm() == Algorithm::Concurrency;
        // It answers nearly always in time, and may have given the units to others.
        let is_in_doubt = plan.sharing.when_down == WhenDown::Deny && fleet.link.is_quick(charge.key);
        // A Redis that is only late is not down. But a client whose lease it has not answered for is not over its limit.
        let is_late = fleet.link.answers(charge.key) && !Fleet::is_advanced(plan);
        if is_permit && is_late && is_in_doubt {
            let later = Answer::Later { retry_after_ns: ASK_RETRY_NS };
            return (ChargeState::Refused, Outcome::new(later, 0, 0));
        }
        match if is_late && !is_in_doubt { WhenDown::Local } else { plan.sharing.when_down } {
            WhenDown::Deny => {
                decision.is_redis_down |= !charge.shadow;
                (ChargeState::Refused, down())
            }
            when_down if is_permit => {
                if when_down == WhenDown::Local && fleet.spenders(charge) == 0 {
                    return (ChargeState::Refused, others_spend(charge));
                }
                let share = fleet.permits_of(charge, when_down);
                said(self.permits.holdings.take_fallback(charge, plan, &share), Refund::Permit)
            }
            WhenDown::Allow => {
                // A coarse limit: it is not refunded if another policy refuses the request.
                let taken = self.table.take(&fleet.coarse(plan, charge, client), now_ns);
                said(coarse_outcome(plan, taken.outcome), Refund::Nothing)
            }
            WhenDown::Local if plan.sharing.is_exact() => self.take_share(charge, now_ns),
            WhenDown::Local => {
                let table = &self.leases.table;
                let fallen =
                    table.change(charge, now_ns, |lease| table.fall_back(lease, plan, charge, now_ns));
                match fallen {
                    Some((told, left)) => {
                        // It is wanted back, and what it spends is told, as soon as Redis answers.
                        self.leases.watch(charge.key, true, now_ns);
                        said(outcome_of(told, left), Refund::Lease)
                    }
                    // The lease table is full; the other table has an overflow bucket.
                    None => self.take_share(charge, now_ns),
                }
            }
        }
    }

    fn take_share(&self, charge: &Charge, now_ns: u64) -> ChargeOutcome {
        if self.fleet.spenders(charge) == 0 {
            return (ChargeState::Refused, others_spend(charge));
        }
        let taken = self.table.take(&self.share_of(charge), now_ns);
        said(taken.outcome, Refund::Fallback { place: taken.place, taken_ns: now_ns })
    }

    /// A charge as this node's table counts it: under its share of the quota.
    fn share_of(&self, charge: &Charge) -> Charge {
        Charge { quota: self.fleet.share_of(charge), ..*charge }
    }

    pub(crate) fn refund_share(&self, charge: &Charge, place: StateLocation, taken_ns: u64) {
        self.table.give_back(&self.share_of(charge), place, taken_ns);
    }

    pub(crate) fn debit_share(&self, charge: &Charge, place: StateLocation, now_ns: u64) {
        self.table.debit(&self.share_of(charge), place, now_ns);
    }

    /// What a client would be told; as [`Fallback::decide`], on a copy of the key's lease.
    pub(crate) fn foretell(
        &self,
        plan: &Plan,
        mut lease: Lease,
        (charge, client): (&Charge, ClientAddress),
        now_ns: u64,
    ) -> Outcome {
        let (fleet, leases, is_exact) = (&self.fleet, &self.leases.table, plan.sharing.is_exact());
        let is_late = fleet.is_late_as_a_rule(charge.key);
        if is_late
            && !leases.is_held_back(charge.key)
            && let Some(told) = leases.beyond_lease(&mut lease, plan, charge, now_ns)
        {
            return lease_outcome(plan, charge.cost, told, lease.estimate(plan, now_ns));
        }
        match if is_late { WhenDown::Local } else { plan.sharing.when_down } {
            WhenDown::Deny => down(),
            WhenDown::Local if is_exact && fleet.spenders(charge) == 0 => others_spend(charge),
            when_down if plan.quota.algorithm() == Algorithm::Concurrency => {
                self.permits.holdings.foresee(charge, &fleet.permits_of(charge, when_down))
            }
            WhenDown::Allow => coarse_outcome(plan, self.peek_coarse(plan, charge, client, now_ns)),
            WhenDown::Local if is_exact => self.table.peek(&self.share_of(charge), now_ns),
            WhenDown::Local => {
                let (told, left) = leases.fall_back(&mut lease, plan, charge, now_ns);
                outcome_of(told, left)
            }
        }
    }

    pub(crate) fn peek_coarse(
        &self,
        plan: &Plan,
        charge: &Charge,
        client: ClientAddress,
        now_ns: u64,
    ) -> Outcome {
        self.table.peek(&self.fleet.coarse(plan, charge, client), now_ns)
    }

    /// The outcome that a charge would have as far as this node knows. Spends nothing.
    pub(crate) fn foresee(&self, charge: &Charge, now_ns: u64) -> Outcome {
        match self.fleet.fallback_share(charge) {
            Some(_) if self.fleet.spenders(charge) == 0 => others_spend(charge),
            Some(share) if share.algorithm() == Algorithm::Concurrency => {
                self.permits.holdings.foresee(charge, &share)
            }
            Some(quota) => self.table.peek(&Charge { quota, ..*charge }, now_ns),
            None => {
                let shared = self.leases.table.foresee(charge, now_ns);
                shared.unwrap_or_else(|| self.table.peek(charge, now_ns))
            }
        }
    }

    /// The same for a request that another window refuses: a window that has too little refuses it too, because the client
    /// is told every wait, and none of them spends anything. Of a window that Redis would have to be asked about, what Redis
    /// last said counts.
    pub(crate) fn foresee_refused(&self, charge: &Charge, now_ns: u64) -> Outcome {
        let (outcome, left) =
            (self.foresee(charge, now_ns), self.foresee(&Charge { cost: 0, ..*charge }, now_ns));
        let known = self.leases.table.known_wait_ns(charge, now_ns);
        match known.filter(|_| outcome.is_admitted()) {
            Some(retry_after_ns) => {
                let answer = Answer::Later { retry_after_ns };
                Outcome::new(answer, left.remaining, left.reset_ns.max(retry_after_ns))
            }
            None => left.with_answer_of(outcome),
        }
    }
}

/// What a client is told by a node that is not among those that spend this limit without Redis.
fn others_spend(charge: &Charge) -> Outcome {
    let retry_after_ns = match charge.quota.algorithm() {
        Algorithm::Concurrency => DOWN_RETRY_NS,
        // No later than another window of the calendar begins.
        _ if charge.quota.calendar().is_some() => charge.quota.window_left_ns(clock::unix()),
        _ => charge.quota.period_ns().get(),
    };
    Outcome::new(Answer::Later { retry_after_ns }, 0, retry_after_ns)
}

fn down() -> Outcome {
    Outcome::new(Answer::Later { retry_after_ns: DOWN_RETRY_NS }, 0, 0)
}

/// What clients are shown of the coarse limit of `when-redis-down = "allow"`: the address may have ten times the policy's
/// units left, and they know the policy's.
fn coarse_outcome(plan: &Plan, outcome: Outcome) -> Outcome {
    Outcome::new(outcome.answer(), outcome.remaining.min(plan.quota.capacity()), outcome.reset_ns)
}

/// `Retry-After` of a client that is denied because Redis is down.
const DOWN_RETRY_NS: u64 = 1_000_000_000;
