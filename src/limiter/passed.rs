//! Charges what has passed without being asked about: nothing can be refused any more, so each window is charged what it can
//! owe.

use std::sync::Arc;

use super::{Check, Limiter};
use limit::{Algorithm, Charge};
use policy::{Chosen, MissingDimension, Subject};

impl Limiter {
    /// Charges a subject that has passed, with as many units as it is said to cost. No window owes more than one whole limit
    /// after it, so what follows is not refused for as long as that went on; a window of a day is charged all of it beside
    /// one of a second. What is in flight is not charged.
    ///
    /// # Errors
    /// If a policy requires a dimension that the subject does not have. Then nothing is charged.
    pub fn charge_passed<'t>(
        self: &Arc<Self>,
        policies: Chosen<'t>,
        subject: &impl Subject,
        now_ns: u64,
    ) -> Result<(), MissingDimension<'t>> {
        let mut check = Check::default();
        policies.charges(subject, &mut check.charges)?;
        self.override_charges(policies, subject, &mut check.charges, now_ns);
        self.route_tenant(&mut check.charges, subject.tenant());
        self.hot.keep_local(&mut check.charges);
        check
            .charges
            .iter()
            .filter(|charge| is_counted(charge))
            .for_each(|charge| self.repay(charge, now_ns));
        Ok(())
    }

    fn repay(&self, charge: &Charge, now_ns: u64) {
        let shared = self.fleet.as_ref().and_then(|fleet| Some((fleet, fleet.plans.get(charge.plan)?)));
        let Some((fleet, plan)) = shared else { return self.table.repay(charge, now_ns) };
        if plan.sharing.is_exact() {
            self.table.repay(&fleet.own_part(charge), now_ns);
            fleet.debts.add(charge, charge.cost, now_ns, fleet.nodes());
        } else if fleet.change(charge, now_ns, |share| share.owe(charge.cost)).is_some() {
            // Nobody may come who would renew it: the sweep reports what is owed.
            fleet.watched.add(charge.key, charge.plan);
        }
    }
}

/// Permits come back when requests end, and these have.
fn is_counted(charge: &Charge) -> bool {
    charge.quota.algorithm() != Algorithm::Concurrency
}
