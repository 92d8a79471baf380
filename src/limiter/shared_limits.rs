//! [`SharedLimits`]: the limits that a fleet shares, as one node decides them: a charge from its lease, from a denial that Redis
//! gave, by asking Redis, or by fallback. Each part owns what it counts; here is which of them a charge goes to.
//!
//! It decides single charges only; `check/charge_walk.rs` combines them.

use std::sync::Arc;

use smallvec::SmallVec;

use crate::check::charge_state::{ChargeOutcome, ChargeState, Refund, unheard};
use crate::decision::{ClientAddress, Decision};
use crate::exact::Exact;
use crate::exact::questions::Question;
use crate::fallback::Fallback;
use crate::fallback::debts::DebtKind;
use crate::fleet::Fleet;
use crate::fleet_penalties::FleetPenalties;
use crate::leases::Leases;
use crate::local::{StateLocation, Table};
use crate::permits::Permits;
use crate::plans::PlanRef;
use crate::wait::{Wait, Waiter};
use limit::{Algorithm, Charge, Plan};

pub(crate) struct SharedLimits {
    pub(crate) fleet: Arc<Fleet>,
    pub(crate) leases: Arc<Leases>,
    pub(crate) permits: Arc<Permits>,
    pub(crate) fallback: Arc<Fallback>,
    pub(crate) exact: Arc<Exact>,
    pub(crate) penalties: FleetPenalties,
}

impl SharedLimits {
    /// `table` counts beside Redis, for fallback.
    pub(crate) fn new(fleet: Fleet, table: &Arc<Table>) -> SharedLimits {
        let fleet = Arc::new(fleet);
        let (leases, permits) = (Arc::new(Leases::new(&fleet)), Arc::new(Permits::new(&fleet)));
        let fallback = Arc::new(Fallback::new(&fleet, table, &leases, &permits));
        let exact = Arc::new(Exact::new(&fleet, table, &leases, &fallback));
        SharedLimits { fleet, leases, permits, fallback, exact, penalties: FleetPenalties::default() }
    }

    /// The plan of a charge; `None`: the fleet does not lease it.
    #[inline]
    pub(crate) fn plan(&self, charge: &Charge) -> Option<PlanRef<'_>> {
        self.fleet.plans.get(charge.plan)
    }

    /// Decides one charge if this node can, else returns `ChargeState::Asked`: the charge has to be asked of Redis.
    pub(crate) fn decide(
        &self,
        plan: &Arc<Plan>,
        charge: &Charge,
        client: ClientAddress,
        now_ns: u64,
        decision: &mut Decision,
    ) -> ChargeOutcome {
        // Only larger costs can be too large, because every window holds at least one unit.
        if charge.cost > 1 && charge.cost > plan.quota.capacity() {
            return (ChargeState::Refused, self.fallback.foresee(charge, now_ns));
        }
        let known = if !plan.sharing.is_exact() {
            self.leases.return_outgrown(plan, charge, now_ns);
            self.leases.table.decide(plan, charge, now_ns)
        } else if plan.quota.algorithm() == Algorithm::Concurrency || charge.count_denied {
            // No denial is remembered, because permits may be free again at any moment. A policy that counts denials
            // has to tell Redis each of them.
            None
        } else {
            self.leases.table.denied_before(plan, charge, now_ns).map(|denied| {
                // What a slow Redis has given for a request before is there all the same.
                let is_late = self.fleet.is_late_as_a_rule(charge.key);
                let granted = is_late.then(|| self.exact.spend_granted(plan, charge, now_ns)).flatten();
                granted.unwrap_or((ChargeState::Refused, denied))
            })
        };
        match known {
            Some(known) => known,
            None if self.leases.table.is_asked(charge.key) => {
                decision.waits = true;
                unheard(ChargeState::Asked)
            }
            None if Fleet::is_advanced(plan) && self.fleet.link.answers(charge.key) => {
                self.exact.decide_or_ask(plan, charge, now_ns)
            }
            None => self.fallback.decide(plan, charge, client, now_ns, decision),
        }
    }

    /// Asks Redis for these charges of a request: concurrency by permits, leased windows by a renewal, and exact windows
    /// of one shard by one question.
    pub(crate) fn ask(
        &self,
        charges: &[Charge],
        asked: impl Iterator<Item = usize>,
        wait: &Arc<Wait>,
        now_ns: u64,
    ) {
        let mut groups: SmallVec<[SmallVec<[usize; 2]>; 2]> = SmallVec::new();
        for index in asked {
            let charge = charges[index];
            let Some(plan) = self.plan(&charge) else { continue };
            let waiter = || Waiter { wait: Arc::clone(wait), index, charge };
            if plan.quota.algorithm() == Algorithm::Concurrency {
                self.permits.ask(&plan, waiter());
                continue;
            }
            if !plan.sharing.is_exact() {
                self.leases.renew(charge.key, charge.plan, Some(waiter()), now_ns);
                continue;
            }
            // Redis takes all that it is asked together or nothing, and worlds are refused apart.
            let place = |charge: &Charge| (charge.world(), self.fleet.link.shard(charge.key));
            let together = |group: &&mut SmallVec<[usize; 2]>| {
                group.iter().all(|other| place(&charges[*other]) == place(&charge))
            };
            match groups.iter_mut().find(together) {
                Some(group) => group.push(index),
                None => groups.push(SmallVec::from_slice(&[index])),
            }
        }
        for group in groups {
            let charges = group.iter().map(|index| charges[*index]).collect();
            self.exact.ask(Question { wait: Arc::clone(wait), indices: group, charges }, now_ns);
        }
    }

    /// Gives back what was not taken from this node's table alone.
    pub(crate) fn refund(&self, charge: &Charge, refund: Refund, taken_ns: u64) {
        let fallback = &self.fallback;
        match refund {
            Refund::Nothing | Refund::Table(_) => {}
            Refund::Permit => self.permits.release(charge),
            Refund::Fallback { place, taken_ns } => {
                fallback.refund_share(charge, place, taken_ns);
                match self.exact.taken_late.at_us(charge.key, taken_ns) {
                    Some(taken_us) => fallback.give_back(charge, taken_us),
                    // If Redis has been told of it, or may have it, nothing goes back, because that could be a unit too
                    // many.
                    None => fallback.debts.forgive(charge),
                }
            }
            // If the lease has gone meanwhile, its units were already returned.
            Refund::Lease => {
                self.leases.change_watched(charge.key, taken_ns, |lease| lease.give_back(charge.cost));
            }
            Refund::Redis { taken_us } => {
                fallback.refund_share(charge, StateLocation::Slot, taken_ns);
                fallback.give_back(charge, taken_us);
            }
        }
    }

    /// Debits more where a charge was taken that is not in this node's table alone.
    pub(crate) fn debit(&self, more: &Charge, refund: Refund, now_ns: u64) {
        let fallback = &self.fallback;
        match refund {
            // A permit stands for a request in flight, whatever it costs.
            Refund::Nothing | Refund::Permit | Refund::Table(_) => {}
            Refund::Fallback { place, taken_ns } => {
                fallback.debit_share(more, place, now_ns);
                match self.exact.taken_late.at_us(more.key, taken_ns) {
                    Some(_) => fallback.debit(more, now_ns),
                    None => fallback.add_debt(more, DebtKind::Refused, now_ns),
                }
            }
            // Watched, because no request may come that would tell it.
            Refund::Lease => self.leases.change_watched(more.key, now_ns, |lease| lease.owe(more.cost)),
            Refund::Redis { .. } => {
                fallback.debit_share(more, StateLocation::Slot, now_ns);
                fallback.debit(more, now_ns);
            }
        }
    }

    /// Returns what is idle and sends what is due.
    pub(crate) fn sweep(&self, now_ns: u64) {
        self.leases.sweep(now_ns);
        self.tell(false, now_ns);
        let named = || self.leases.plans().chain(self.fallback.debts.plans()).collect();
        self.fleet.plans.trim(now_ns, named);
    }

    /// Returns all that this node holds, because it stops; see [`Limiter::release_all`](crate::Limiter::release_all).
    pub(crate) fn release_all(&self, now_ns: u64) -> bool {
        // Looked at first, because an answer makes its key a watched one, or a debt, before it is no longer missing.
        let is_asked = !self.leases.renewals.0.is_empty() || !self.exact.questions.is_empty();
        self.tell(true, now_ns);
        let owes = || !self.fallback.debts.is_empty() || !self.fallback.unsent.is_empty();
        self.leases.release_all(now_ns) || is_asked || owes()
    }

    /// Tells Redis of permits, debts, and units that come back.
    fn tell(&self, is_over: bool, now_ns: u64) {
        self.permits.sweep(now_ns);
        self.fallback.tell_debts(now_ns);
        self.fallback.send_unsent(now_ns);
        self.exact.return_unused(is_over, now_ns);
        self.leases.look_again(now_ns);
    }
}
