//! Questions to Redis and what comes of their answers.
//!
//! Of one key one renewal is on its way at a time. Requests that find it so wait for its answer, and where that brings
//! too little for them for the next, which goes out at once: what was asked for before they came is not theirs. Tokens
//! go to those who wait in the order in which they came, before anybody else can take them.

use std::sync::Arc;

use smallvec::SmallVec;

use super::Limiter;
use super::charge_state::{ChargeState, Refund, Said, not_before, said, unheard};
use super::fleet::{Fleet, lease_outcome, outcome_of};
use super::questions::Question;
use super::wait::{Attempt, Wait, Waiter};
use crate::limit::Plan;
use crate::limit::lease_messages::{Op, Renewal, Reply, Unanswered};
use crate::limit::{Algorithm, Charge, Key};
use crate::limit::{Lease, PlanId, Told, Wanted};

/// A key that is renewed.
#[derive(Clone, Debug)]
struct Leased {
    key: Key,
    plan_id: Option<PlanId>,
    plan: Arc<Plan>,
    /// When the node asked.
    sent_ns: u64,
}

impl Limiter {
    /// Asks Redis for every one of these charges of a request.
    pub(super) fn ask_redis(
        self: &Arc<Self>,
        charges: &[Charge],
        asked: SmallVec<[usize; 4]>,
        wait: &Arc<Wait>,
        now_ns: u64,
    ) {
        let Some(fleet) = &self.fleet else { return };
        let plans = &fleet.plans;
        let mut groups: SmallVec<[SmallVec<[usize; 2]>; 2]> = SmallVec::new();
        for index in asked {
            let charge = charges[index];
            let Some(plan) = plans.get(charge.plan) else { continue };
            if plan.quota.algorithm() == Algorithm::Concurrency {
                self.ask_permit(fleet, plan, Waiter { wait: Arc::clone(wait), index, charge });
                continue;
            }
            if !plan.sharing.is_exact() {
                let waiter = Waiter { wait: Arc::clone(wait), index, charge };
                self.renew(fleet, charge.key, charge.plan, plan, Some(waiter), now_ns);
                continue;
            }
            let together = |group: &&mut SmallVec<[usize; 2]>| {
                group.iter().all(|other| fleet.link.same_shard(charges[*other].key, charge.key))
            };
            match groups.iter_mut().find(together) {
                Some(group) => group.push(index),
                None => groups.push(SmallVec::from_slice(&[index])),
            }
        }
        for group in groups {
            let charges = group.iter().map(|index| charges[*index]).collect();
            self.ask_exact(fleet, Question { wait: Arc::clone(wait), indices: group, charges }, now_ns);
        }
    }

    /// Renews a key's lease, for a request that waits or for those to come.
    pub(super) fn renew(
        self: &Arc<Self>,
        fleet: &Fleet,
        key: Key,
        plan_id: Option<PlanId>,
        plan: &Arc<Plan>,
        waiter: Option<Waiter>,
        now_ns: u64,
    ) {
        let wanted = waiter.as_ref().map_or(Wanted::default(), |waiter| Wanted::by_one(waiter.charge.cost));
        if fleet.renewals.begin(key, waiter) {
            let leased = Leased { key, plan_id, plan: Arc::clone(plan), sent_ns: now_ns };
            self.send_renewal(fleet, leased, wanted);
        }
    }

    fn send_renewal(self: &Arc<Self>, fleet: &Fleet, leased: Leased, wanted: Wanted) {
        let Leased { key, plan, sent_ns, .. } = &leased;
        let wanted = Wanted { ahead: fleet.wants_ahead(*key), ..wanted };
        let renewal =
            fleet.change_known(*key, |_, share| share.renewal(plan, *key, wanted.clone(), *sent_ns));
        // A key without a slot is asked for each time anew.
        let renewal = renewal.unwrap_or_else(|| Lease::default().renewal(plan, *key, wanted, *sent_ns));
        let (limiter, sent) = (Arc::clone(self), renewal.clone());
        fleet.link.send(
            Op::Renew(renewal),
            Box::new(move |answer, now_ns| limiter.renewed(leased, &sent, answer, now_ns)),
        );
    }

    /// Gives a key's lease back, unless a renewal is on its way; what is asked for meanwhile waits for the answer, so that
    /// Redis hears everything of a key in its order. Whether it did.
    pub(super) fn release(
        self: &Arc<Self>,
        fleet: &Fleet,
        key: Key,
        plan_id: Option<PlanId>,
        plan: &Arc<Plan>,
        now_ns: u64,
    ) -> bool {
        if !fleet.renewals.begin(key, None) {
            return false;
        }
        let release = fleet.change_known(key, |_, share| share.release(plan, key, now_ns)).flatten();
        let leased = Leased { key, plan_id, plan: Arc::clone(plan), sent_ns: now_ns };
        let Some(release) = release else {
            self.renew_next(fleet, leased, now_ns);
            return true;
        };
        let (limiter, sent) = (Arc::clone(self), release.clone());
        fleet.link.send(
            Op::Renew(release),
            Box::new(move |answer, now_ns| {
                let Some(fleet) = &limiter.fleet else { return };
                let known = fleet.change_known(key, |_, share| {
                    share.released(&sent, answer.as_ref().err().map(|why| why.is_undone()));
                });
                if known.is_some() && answer.is_err() {
                    // It says so again.
                    fleet.watched.add(key, leased.plan_id);
                }
                limiter.renew_next(fleet, leased, now_ns);
            }),
        );
        true
    }

    /// Ends a question about a key, and asks for those who came meanwhile.
    fn renew_next(self: &Arc<Self>, fleet: &Fleet, leased: Leased, now_ns: u64) {
        if let Some((wanted, plan_id)) = fleet.renewals.next(leased.key) {
            // A reload may have come between the two.
            let plan = fleet.plans.get(plan_id).map_or(leased.plan, Arc::clone);
            self.send_renewal(fleet, Leased { plan_id, plan, sent_ns: now_ns, ..leased }, wanted);
        }
    }

    /// Takes up the answer to a renewal: first for those who wait, then for those to come.
    fn renewed(
        self: &Arc<Self>,
        leased: Leased,
        renewal: &Renewal,
        answer: Result<Reply, Unanswered>,
        now_ns: u64,
    ) {
        let Some(fleet) = &self.fleet else { return };
        let Leased { key, ref plan, sent_ns, .. } = leased;
        let (grant, is_unheard) = match answer {
            Ok(Reply::Grant(grant)) => (Some(grant), false),
            Ok(_) => (None, false),
            Err(why) => (None, why.is_undone()),
        };
        let known = fleet.change_known(key, |under, share| match &grant {
            Some(grant) => {
                share.granted(renewal, grant, sent_ns);
                // A reload came before the answer: what is denied is denied under the old limit.
                if under != leased.plan_id {
                    share.deny_for(0, now_ns);
                }
            }
            None => share.lost(renewal, is_unheard),
        });
        if known.is_some() && grant.is_some() {
            fleet.watched.add(key, leased.plan_id);
        }
        // What a key without a slot was given, for those who wait now.
        let mut loose = if known.is_none() { grant.map_or(0.0, |grant| grant.tokens) } else { 0.0 };
        let mut unserved = Vec::new();
        for waiter in fleet.renewals.answered(key) {
            let cost = waiter.charge.cost;
            let attempt = waiter.wait.try_resolve(waiter.index, || match (&grant, known) {
                (None, _) => Some(unheard(ChargeState::Unanswered)),
                // Somebody was quicker to spend what was granted for it: there is more where that came from.
                (Some(grant), Some(())) => {
                    let is_final = |told| told != Told::Ask || grant.level < cost as f64;
                    let said = spend(fleet, plan, &waiter.charge, now_ns, is_final)?;
                    Some(not_before(said, grant.wait_ns.saturating_sub(now_ns.saturating_sub(sent_ns))))
                }
                (Some(grant), None) => {
                    let told = if cost as f64 <= loose {
                        loose -= cost as f64;
                        Told::Admitted { renew: false }
                    } else {
                        Told::Denied { retry_after_ns: grant.deny_ns.max(1) }
                    };
                    Some(said(outcome_of(told, (grant.level.max(0.0) as u64, 0)), Refund::Nothing))
                }
            });
            if attempt == Attempt::Open {
                unserved.push(waiter);
            }
        }
        fleet.renewals.put_back(key, unserved);
        if known.is_some() && grant.is_some() {
            serve_queued(fleet, &leased, now_ns);
        }
        self.renew_next(fleet, leased, now_ns);
    }
}

/// Spends what was granted for one who waited, and tells what the share says if that `is_final`.
fn spend(
    fleet: &Fleet,
    plan: &Plan,
    charge: &Charge,
    now_ns: u64,
    is_final: impl Fn(Told) -> bool,
) -> Option<Said> {
    match take_again(fleet, plan, charge, now_ns) {
        Some((told, left)) => {
            is_final(told).then(|| said(lease_outcome(plan, charge.cost, told, left), Refund::Lease))
        }
        None => Some(unheard(ChargeState::Unanswered)),
    }
}

/// What the share of one who has waited says now, and what is left; `None`: the key has no slot.
fn take_again(fleet: &Fleet, plan: &Plan, charge: &Charge, now_ns: u64) -> Option<(Told, (u64, u64))> {
    fleet.change(charge, now_ns, |share| {
        (share.take_again(plan, charge.cost, now_ns, fleet.lead_ns()), share.estimate(plan, now_ns))
    })
}

/// Decides those who came after a renewal was sent by what it has brought, as far as that says what becomes of them.
fn serve_queued(fleet: &Fleet, leased: &Leased, now_ns: u64) {
    let mut queued = fleet.renewals.take_queued(leased.key);
    queued.retain(|waiter| {
        // Who came after a reload has another plan.
        let is_alike = waiter.charge.plan == leased.plan_id;
        let attempt = waiter.wait.try_resolve(waiter.index, || {
            let told = is_alike.then(|| take_again(fleet, &leased.plan, &waiter.charge, now_ns)).flatten();
            let (told, left) = told.filter(|(told, _)| *told != Told::Ask)?;
            Some(said(lease_outcome(&leased.plan, waiter.charge.cost, told, left), Refund::Lease))
        });
        attempt == Attempt::Open
    });
    if !queued.is_empty() {
        fleet.renewals.put_back(leased.key, queued);
    }
}
