//! How overrides and resets change the charges of a subject, before they are decided.

use std::sync::Arc;

use smallvec::SmallVec;

use crate::holders::Holders;
use crate::holders::overrides::Override;
use crate::holders::own_limits::{OwnLimit, OwnWindow};
use limit::{Charge, Plan, PolicyId, Quota};
use policy::{Policy, PolicySelection, Subject};

impl Holders {
    /// Changes charges as the overrides and the resets of their subject say. Returns the override that leaves nothing of a
    /// policy's limit, if the policy refuses anybody.
    #[inline]
    pub(crate) fn change(
        &self,
        policies: PolicySelection<'_>,
        subject: &impl Subject,
        charges: &mut [Charge],
        now_ns: u64,
    ) -> Option<(PolicyId, Arc<Override>)> {
        if self.overrides.is_empty() && self.resets.is_empty() {
            return None;
        }
        let names = (subject.consumer(), subject.tenant());
        charges.iter_mut().fold(None, |refusing, charge| {
            let found = self.change_one(policies.policy_of(charge), names, charge, now_ns);
            let found = found.filter(|found| found.refuses_all() && !charge.shadow);
            refusing.or(found.map(|found| (charge.policy, found)))
        })
    }

    /// Changes a charge of this policy as the override of a consumer or a tenant says, which it returns, and as their resets say.
    #[cold]
    pub(crate) fn change_one(
        &self,
        policy: &Policy,
        (consumer, tenant): (Option<&str>, Option<&str>),
        charge: &mut Charge,
        now_ns: u64,
    ) -> Option<Arc<Override>> {
        let found = self.overrides.of(policy, consumer, tenant, now_ns);
        if let Some(found) = found.as_ref().filter(|found| !found.refuses_all()) {
            let factor = found.factor(policy.first_limit(charge.window.into()));
            let base = (charge.quota, charge.plan);
            let scale = || self.declare(policy, charge, base.0.multiplied(factor));
            let (quota, plan) = found.scaled.of(base, factor, scale);
            (charge.quota, charge.plan, charge.is_overridden) = (quota, plan, true);
        }
        *charge = self.resets.apply(policy, consumer, tenant, charge);
        found
    }

    /// Puts a limit in the place of all windows that the first of these policies charges, from this charge on; of its
    /// candidate's, too. What an operator has set for the holder stays.
    #[cold]
    pub(crate) fn limit(
        &self,
        policies: PolicySelection<'_>,
        (own, now_ns): (OwnLimit, u64),
        first: usize,
        charges: &mut SmallVec<[Charge; 4]>,
    ) {
        let Some(limited) = policies.first().map(|policy| policy.id) else { return };
        let is_limited = |charge: &Charge| {
            let policy = policies.policy_of(charge);
            policy.id == limited || policy.replaces().is_some_and(|replaces| replaces.policy == limited)
        };
        let mut kept = charges.len().min(first);
        for index in first..charges.len() {
            let mut charge = charges[index];
            if is_limited(&charge) && !charge.is_overridden {
                // One window takes the place of all.
                let is_next = index > first && kept > first && charges[kept - 1].policy == charge.policy;
                if is_next {
                    continue;
                }
                let policy = policies.policy_of(&charge);
                let make = |quota| self.declare(policy, &charge, quota);
                let base = (charge.quota, charge.plan);
                if let Some((quota, plan)) = self.own_limits.of(&policy.name, base, own, now_ns, make) {
                    (charge.quota, charge.plan, charge.is_overridden) = (quota, plan, true);
                }
            }
            charges[kept] = charge;
            kept += 1;
        }
        charges.truncate(kept);
    }

    /// Makes another quota of a charge's window known, and finds the plan by which the fleet shares it.
    #[cold]
    fn declare(&self, policy: &Policy, charge: &Charge, quota: Quota) -> OwnWindow {
        self.table.declare_also(quota);
        let Some((fleet, _)) = self.fleet.as_ref().zip(charge.plan) else { return (quota, None) };
        let sharing = policy.sharing(charge.window.into(), &quota);
        let (id, plan) = fleet.plans.scaled(Plan { policy: policy.name.as_ref().into(), quota, sharing });
        fleet.plans.share(Some(id)).into_iter().for_each(|share| self.table.declare_also(share));
        self.table.declare_also(quota.for_address());
        (quota, Some((id, plan)))
    }
}
