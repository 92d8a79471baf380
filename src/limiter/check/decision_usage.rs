//! What a decision says of a consumer's and a tenant's usage, for the counts by the minute. It counts nothing.

use crate::{Check, Count};
use limit::Charge;
use metrics::PolicyDecision;
use metrics::usage::{Amount, UsageSubject};
use policy::RouteTable;
use policy::definition::Dimension;

impl Check<'_> {
    /// What each policy that counts by consumer or tenant decided of this one. Nothing for who has neither name. Costs that
    /// are known later change nothing of it.
    pub fn usage<'a>(
        &'a self,
        part: u16,
        table: &'a RouteTable,
        consumer: Option<&'a str>,
        tenant: Option<&'a str>,
    ) -> impl Iterator<Item = (UsageSubject<'a>, Amount)> + 'a {
        let is_charged = self.is_admitted();
        let is_known = consumer.is_some() || tenant.is_some();
        let is_counted =
            move |said: &&Count| is_known && said.part == part && said.decision != PolicyDecision::Exempt;
        self.event.counts.iter().filter(is_counted).filter_map(move |said| {
            let policy = &table.policies()[said.policy.index()];
            if !policy.by.iter().any(Dimension::is_name) {
                return None;
            }
            let is_admitted = said.decision == PolicyDecision::Admitted;
            // The first window's, because the others are charged the same.
            let is_own = |charge: &&Charge| is_charged && (charge.policy, charge.part) == (said.policy, part);
            let charge = self.charges.iter().find(is_own);
            let amount = Amount {
                admitted: u64::from(is_admitted),
                denied: u64::from(!is_admitted),
                units: charge.map_or(0, |charge| charge.cost),
            };
            let who = UsageSubject {
                policy: &policy.name,
                consumer: consumer.unwrap_or_default(),
                tenant: tenant.unwrap_or_default(),
            };
            Some((who, amount))
        })
    }
}
