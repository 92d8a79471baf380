//! How overrides and resets change the charges of a subject, before they are decided.

use std::sync::Arc;

use crate::Limiter;
use crate::holders::overrides::{Override, Overrides};
use crate::holders::resets::Resets;
use limit::{Charge, Plan, PlanId, Quota};
use policy::{Policy, PolicySelection, Subject};

impl Limiter {
    /// The overrides that charges are changed by.
    pub fn overrides(&self) -> &Overrides {
        &self.overrides
    }

    /// Changes charges as the overrides and the resets of their subject say.
    #[inline]
    pub(crate) fn override_charges(
        &self,
        policies: PolicySelection<'_>,
        subject: &impl Subject,
        charges: &mut [Charge],
        now_ns: u64,
    ) {
        if !self.overrides.is_empty() {
            self.override_each(policies, subject.consumer(), subject.tenant(), charges, now_ns);
        }
        if !self.resets.is_empty() {
            self.reset_each(policies, subject.consumer(), subject.tenant(), charges);
        }
    }

    #[cold]
    fn override_each(
        &self,
        policies: PolicySelection<'_>,
        consumer: Option<&str>,
        tenant: Option<&str>,
        charges: &mut [Charge],
        now_ns: u64,
    ) {
        if consumer.is_none() && tenant.is_none() {
            return;
        }
        for charge in charges {
            let policy = policies.policy_of(charge);
            self.override_charge(policy, consumer, tenant, charge, now_ns);
        }
    }

    /// The resets that keys are changed by.
    pub fn resets(&self) -> &Resets {
        &self.resets
    }

    /// Gives a charge of this policy the key that it has since the last resets of a consumer and a tenant.
    pub fn reset_charge(
        &self,
        policy: &Policy,
        consumer: Option<&str>,
        tenant: Option<&str>,
        charge: &mut Charge,
    ) {
        if !self.resets.is_empty() {
            *charge = self.resets.apply(policy, consumer, tenant, charge);
        }
    }

    #[cold]
    fn reset_each(
        &self,
        policies: PolicySelection<'_>,
        consumer: Option<&str>,
        tenant: Option<&str>,
        charges: &mut [Charge],
    ) {
        for charge in charges {
            self.reset_charge(policies.policy_of(charge), consumer, tenant, charge);
        }
    }

    /// Changes a charge of this policy as the overrides of a consumer and a tenant say, and returns the one that does.
    pub fn override_charge(
        &self,
        policy: &Policy,
        consumer: Option<&str>,
        tenant: Option<&str>,
        charge: &mut Charge,
        now_ns: u64,
    ) -> Option<Arc<Override>> {
        let found = self.overrides.of(policy, consumer, tenant, now_ns)?;
        let factor = found.factor(policy.first_limit(charge.window.into()));
        let base = (charge.quota, charge.plan);
        let window = usize::from(charge.window);
        let (quota, plan) = found.scaled.of(base, factor, || self.scale(policy, window, base, factor));
        (charge.quota, charge.plan, charge.is_overridden) = (quota, plan, true);
        Some(found)
    }

    /// A window under another limit: its quota, and the plan by which the fleet shares that.
    #[cold]
    fn scale(
        &self,
        policy: &Policy,
        window: usize,
        (quota, plan): (Quota, Option<PlanId>),
        factor: f64,
    ) -> (Quota, Option<PlanId>) {
        self.declared(policy, window, quota.multiplied(factor), plan)
    }

    /// Makes another quota of a window known, and finds the plan by which the fleet shares it.
    pub(crate) fn declared(
        &self,
        policy: &Policy,
        window: usize,
        quota: Quota,
        plan: Option<PlanId>,
    ) -> (Quota, Option<PlanId>) {
        self.table.declare_also(quota);
        let Some((fleet, _)) = self.fleet().zip(plan) else { return (quota, None) };
        let plans = fleet.plans();
        let sharing = policy.sharing(window, &quota);
        let id = plans.id(Plan { policy: policy.name.as_ref().into(), quota, sharing });
        plans.share(Some(id)).into_iter().for_each(|share| self.table.declare_also(share));
        self.table.declare_also(quota.for_address());
        (quota, Some(id))
    }
}
