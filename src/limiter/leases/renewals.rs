//! Renews leases and returns them. This is where the reply to a renewal becomes the outcome of a charge: `renewed` → `serve` →
//! `lease_outcome`.
//!
//! Each key has at most one renewal in flight. Requests that come meanwhile wait for its answer; if that brings too
//! little for them, they wait for the next renewal, which is sent at once and asks for them. Units go to waiting requests
//! in the order in which they came, before any new request can take them.

use std::sync::Arc;

use crate::check::charge_state::{ChargeOutcome, ChargeState, Refund, not_before, said, unheard};
use crate::leases::Leases;
use crate::leases::lease_table::{lease_outcome, outcome_of};
use crate::plans::Plans;
use crate::wait::{Attempt, Waiter};
use limit::lease_messages::{Grant, LinkError, Op, Renewal, Reply};
use limit::{Algorithm, Charge, Key, Lease, LeaseAnswer, LeaseDemand, Plan, PlanId, outgrows, owed};

#[derive(Clone, Debug)]
struct LeasedCharge {
    key: Key,
    plan_id: Option<PlanId>,
    plan: Arc<Plan>,
    sent_ns: u64,
}

impl LeasedCharge {
    /// Its plan is the one that the lease is under by now: a changed limit counts in other units.
    fn come_under(&mut self, plans: &Plans, under: Option<PlanId>) {
        if under != self.plan_id
            && let Some(plan) = plans.get(under)
        {
            (self.plan_id, self.plan) = (under, Arc::clone(&plan));
        }
    }
}

impl Leases {
    /// Renews a key's lease, for a request that waits (`waiter`) or ahead of need.
    pub(crate) fn renew(
        self: &Arc<Self>,
        key: Key,
        plan_id: Option<PlanId>,
        waiter: Option<Waiter>,
        now_ns: u64,
    ) {
        let Some(plan) = self.fleet.plans.get(plan_id) else { return };
        let wanted =
            waiter.as_ref().map_or(LeaseDemand::default(), |waiter| LeaseDemand::by_one(waiter.charge.cost));
        if self.renewals.begin(key, waiter, now_ns) {
            let leased = LeasedCharge { key, plan_id, plan: Arc::clone(&plan), sent_ns: now_ns };
            self.send_renewal(leased, wanted);
        }
    }

    /// Renews the lease that a charge was spent from, without anybody waiting for it.
    pub(crate) fn renew_ahead(self: &Arc<Self>, charge: &Charge, now_ns: u64) {
        if self.fleet.link.is_up(charge.key) {
            self.renew(charge.key, charge.plan, None, now_ns);
        }
    }

    fn send_renewal(self: &Arc<Self>, mut leased: LeasedCharge, wanted: LeaseDemand) {
        // Even of a small limit, if there is no other node to miss the units, or answers come too late for requests to wait.
        let ahead = self.fleet.nodes() <= 1 || self.fleet.is_late(leased.key);
        let wanted = LeaseDemand { ahead, ..wanted };
        let renewal = self.table.change_known(leased.key, |under, share| {
            leased.come_under(&self.fleet.plans, under);
            share.renewal(&leased.plan, leased.key, wanted.clone(), leased.sent_ns)
        });
        let LeasedCharge { key, plan, sent_ns, .. } = &leased;
        // Each request asks on its own, because the table has no room for the key.
        let renewal = renewal.unwrap_or_else(|| Lease::default().renewal(plan, *key, wanted, *sent_ns));
        self.note_ahead(*key, (leased.plan_id, plan), renewal.delta, *sent_ns);
        let (leases, sent) = (Arc::clone(self), renewal.clone());
        let done = move |answer, now_ns| leases.renewed(leased, &sent, answer, now_ns);
        self.fleet.link.send(Op::Renew(renewal), Box::new(done));
    }

    /// Returns a key's lease to Redis, unless a renewal is in flight. Renewals that are wanted meanwhile wait for the
    /// answer, because Redis must get the messages of a key in their order.
    pub(super) fn release(self: &Arc<Self>, key: Key, plan_id: Option<PlanId>, now_ns: u64) {
        let Some(plan) = self.fleet.plans.get(plan_id) else { return };
        if !self.renewals.begin(key, None, now_ns) {
            return;
        }
        let mut leased = LeasedCharge { key, plan_id, plan: Arc::clone(&plan), sent_ns: now_ns };
        let release = self.table.change_known(key, |under, share| {
            leased.come_under(&self.fleet.plans, under);
            share.release(&leased.plan, key, now_ns)
        });
        let Some(release) = release.flatten() else { return self.renew_next(leased, false, now_ns) };
        self.note_ahead(key, (leased.plan_id, &leased.plan), release.delta, now_ns);
        let (leases, sent) = (Arc::clone(self), release.clone());
        let done = move |answer: Result<Reply, LinkError>, now_ns| {
            let answer = match answer {
                Ok(Reply::Grant(grant)) => {
                    if leases.was_away(key) {
                        leases.forgive(&sent, &grant);
                    }
                    Ok(grant.level)
                }
                answer => Err(answer.is_err_and(LinkError::is_undone)),
            };
            let _ = leases.table.change_known(key, |_, share| share.released(&sent, answer));
            // What was not returned is the sweep's to return again.
            leases.renew_next(leased, false, now_ns);
        };
        self.fleet.link.send(Op::Renew(release), Box::new(done));
    }

    /// Returns the lease of a key of which Redis now decides each request.
    pub(crate) fn return_former(self: &Arc<Self>, charge: &Charge, now_ns: u64) {
        if let Some((under, lease)) = self.table.former(charge)
            && !lease.is_in_flight()
        {
            self.release(charge.key, under, now_ns);
        }
    }

    /// The same of a bucket that was lowered, if more is spent of it than the limit of now holds.
    pub(crate) fn return_outgrown(self: &Arc<Self>, plan: &Plan, charge: &Charge, now_ns: u64) {
        let Some((under, lease)) = self.table.former(charge).filter(|(_, lease)| !lease.is_in_flight())
        else {
            return;
        };
        let old = self.fleet.plans.get(under);
        if old.is_some_and(|old| outgrows(&lease, &old, plan, now_ns)) {
            self.release(charge.key, under, now_ns);
        }
    }

    /// Whether a key has been decided without Redis because that was down.
    fn was_away(&self, key: Key) -> bool {
        self.table.peek(key).is_some_and(|(_, share)| share.was_away())
    }

    /// Reports what was spent in an outage and the renewal that ended it does not tell, because it was on its way since before.
    fn report_untold(self: &Arc<Self>, key: Key, plan: &Arc<Plan>, now_ns: u64) {
        let owed = self.table.change_known(key, |_, share| share.take_owed(now_ns)).unwrap_or(0.0);
        if owed <= 0.0 {
            return;
        }
        let report = Renewal::report(key, Arc::clone(plan), owed);
        let (leases, told) = (Arc::clone(self), report.clone());
        let done = move |answer, _| match answer {
            Ok(Reply::Grant(grant)) => leases.forgive(&told, &grant),
            Ok(_) => {}
            Err(_) => {
                let _ = leases.table.change_known(key, |_, share| share.take_back(&told, false));
            }
        };
        self.fleet.link.send(Op::Renew(report), Box::new(done));
    }

    /// Refunds the part of an outage's report that brought a bucket below empty: the nodes together can have admitted twice
    /// the limit, and a bucket that had to refill that first would admit nobody meanwhile. Units that others have refunded by
    /// then are reported again.
    fn forgive(self: &Arc<Self>, told: &Renewal, grant: &Grant) {
        let units = told.delta.min(-grant.level);
        if told.plan.quota.algorithm() != Algorithm::TokenBucket || units <= 0.0 {
            return;
        }
        let (leases, key, plan) = (Arc::clone(self), told.key, Arc::clone(&told.plan));
        let done = move |answer, _| {
            let _ = leases.table.change_known(key, |_, share| share.end_denial());
            if let Ok(Reply::Grant(grant)) = answer
                && grant.level > 0.0
            {
                let too_much = Renewal::report(key, plan, units.min(grant.level));
                leases.fleet.link.send(Op::Renew(too_much), Box::new(|_, _| ()));
            }
        };
        let report = Renewal::report(key, Arc::clone(&told.plan), -units);
        self.fleet.link.send(Op::Renew(report), Box::new(done));
    }

    /// Ends a renewal or return, and sends the next renewal if requests have come meanwhile. Else the sweep looks after the
    /// lease from here on; `is_left`: nothing was granted.
    fn renew_next(self: &Arc<Self>, leased: LeasedCharge, is_left: bool, now_ns: u64) {
        let key = leased.key;
        if let Some((wanted, plan_id)) = self.renewals.next(leased.key, now_ns) {
            // A reload may have changed the plan meanwhile.
            let plan = self.fleet.plans.get(plan_id).map_or(leased.plan, |plan| Arc::clone(&plan));
            self.send_renewal(LeasedCharge { plan_id, plan, sent_ns: now_ns, ..leased }, wanted);
        }
        self.watch(key, is_left, now_ns);
    }

    /// Handles the answer to a renewal: updates the lease, then serves the requests that wait, in order.
    fn renewed(
        self: &Arc<Self>,
        leased: LeasedCharge,
        renewal: &Renewal,
        answer: Result<Reply, LinkError>,
        now_ns: u64,
    ) {
        let LeasedCharge { key, ref plan, sent_ns, .. } = leased;
        let (grant, is_unheard) = match answer {
            Ok(Reply::Grant(grant)) => (Some(grant), false),
            Ok(_) => (None, false),
            Err(why) => (None, why.is_undone()),
        };
        let was_away = self.was_away(key);
        let known = self.table.change_known(key, |under, share| {
            match &grant {
                Some(grant) if under != leased.plan_id => {
                    // A denial under the old limit does not hold, because the limit changed while this was in flight.
                    let changed = self.fleet.plans.get(under).map(|now| grant.under(plan, &now));
                    share.granted(renewal, changed.as_ref().unwrap_or(grant), sent_ns);
                    share.end_denial();
                }
                Some(grant) => share.granted(renewal, grant, sent_ns),
                None => share.lost(renewal, is_unheard),
            }
            owed(share, now_ns)
        });
        if let Some(grant) = grant.filter(|_| was_away) {
            self.forgive(renewal, &grant);
            self.report_untold(key, plan, now_ns);
        }
        // Units granted to a key without a slot: they can only go to the requests that wait now.
        let mut loose = if known.is_none() { grant.map_or(0.0, |grant| grant.tokens) } else { 0.0 };
        let mut unserved = Vec::new();
        for waiter in self.renewals.answered(key) {
            let cost = waiter.charge.cost;
            let attempt = waiter.wait.try_resolve(waiter.index, || match (&grant, known) {
                (None, _) => Some(unheard(ChargeState::Unanswered)),
                // Another request may have spent the units. Then ask again, if Redis had more left.
                (Some(grant), Some(_)) => {
                    let is_final = |told| told != LeaseAnswer::Ask || grant.level < cost as f64;
                    let said = self.serve(plan, &waiter.charge, now_ns, is_final)?;
                    Some(not_before(said, grant.wait_ns.saturating_sub(now_ns.saturating_sub(sent_ns))))
                }
                (Some(grant), None) => {
                    let told = if cost as f64 <= loose {
                        loose -= cost as f64;
                        LeaseAnswer::Admitted { renew: false }
                    } else {
                        LeaseAnswer::Denied { retry_after_ns: grant.deny_ns.max(1) }
                    };
                    Some(said(outcome_of(told, (grant.level.max(0.0) as u64, 0)), Refund::Nothing))
                }
            });
            if attempt == Attempt::Open {
                unserved.push(waiter);
            }
        }
        self.renewals.put_back(key, unserved);
        if known.is_some() && grant.is_some() {
            self.serve_queued(&leased, now_ns);
        }
        let plan_id = leased.plan_id;
        self.renew_next(leased, grant.is_none(), now_ns);
        // What was admitted ahead is told at once, because others do not know of it.
        if grant.is_some() && known.is_some_and(|owed| owed >= 2.0) && self.fleet.is_late_as_a_rule(key) {
            self.renew(key, plan_id, None, now_ns);
        }
    }

    /// Spends granted units for a request that waited; `None` if the lease's answer is not final and the request waits on.
    fn serve(
        &self,
        plan: &Plan,
        charge: &Charge,
        now_ns: u64,
        is_final: impl Fn(LeaseAnswer) -> bool,
    ) -> Option<ChargeOutcome> {
        match self.take_again(plan, charge, now_ns) {
            Some((told, left)) => {
                is_final(told).then(|| said(lease_outcome(plan, charge.cost, told, left), Refund::Lease))
            }
            None => Some(unheard(ChargeState::Unanswered)),
        }
    }

    /// What the lease answers to a request that has waited, and what is left; `None`: the key has no slot.
    fn take_again(&self, plan: &Plan, charge: &Charge, now_ns: u64) -> Option<(LeaseAnswer, (u64, u64))> {
        self.table.change_known(charge.key, |under, share| {
            // If the limit has changed while it waited, it takes from what there is under the new one.
            let now = self.fleet.plans.get(under).filter(|plan| !plan.sharing.is_exact());
            let plan = now.as_ref().map_or(plan, |plan| plan);
            (share.take_again(plan, charge.cost, now_ns, self.table.lead_ns()), share.estimate(plan, now_ns))
        })
    }

    /// Serves requests that came after the renewal was sent, as far as its grant decides them.
    fn serve_queued(&self, leased: &LeasedCharge, now_ns: u64) {
        let mut queued = self.renewals.take_queued(leased.key);
        queued.retain(|waiter| {
            // A request that came after a reload is under another plan, for which this grant says nothing.
            let is_alike = waiter.charge.plan == leased.plan_id;
            let attempt = waiter.wait.try_resolve(waiter.index, || {
                let told = is_alike.then(|| self.take_again(&leased.plan, &waiter.charge, now_ns)).flatten();
                let (told, left) = told.filter(|(told, _)| *told != LeaseAnswer::Ask)?;
                Some(said(lease_outcome(&leased.plan, waiter.charge.cost, told, left), Refund::Lease))
            });
            attempt == Attempt::Open
        });
        if !queued.is_empty() {
            self.renewals.put_back(leased.key, queued);
        }
    }
}
