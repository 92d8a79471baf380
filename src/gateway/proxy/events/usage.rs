//! Counts each policy's decisions for the consumer and the tenant, by the minute.

use super::event::DecidedRequest;
use crate::proxy::services::Services;
use base::clock;
use base::identity::Identity;
use metrics::usage::{Amount, UnixMinute, UsageSubject};
use policy::Policy;
use policy::definition::Dimension;

pub fn decided(services: &Services, event: &DecidedRequest<'_>) {
    let (Some(tally), Some(identity)) = (&services.usage, &event.request.identity) else { return };
    let minute = UnixMinute::of(services.unix(event.request.started));
    let (consumer, tenant) = (identity.consumer.as_deref(), identity.tenant.as_deref());
    let is_by_status = |policy: &str| event.table.policy(policy)?.actual_cost()?.statuses();
    let settles = event.request.route.is_some_and(|route| event.table.routes()[route.index()].holds);
    for (who, mut amount) in event.check.usage(0, event.table, consumer, tenant) {
        if settles && is_by_status(who.policy).is_some() {
            // They are counted once the status is known.
            amount.units = 0;
        }
        tally.count(minute, who, amount);
    }
}

/// Counts what a policy has charged by the status of an answer.
pub fn charged(services: &Services, identity: Option<&Identity>, policy: &Policy, units: u64) {
    let (Some(tally), Some(identity)) = (&services.usage, identity) else { return };
    if !policy.by.iter().any(Dimension::is_name) {
        return;
    }
    let [consumer, tenant] =
        [&identity.consumer, &identity.tenant].map(|name| name.as_deref().unwrap_or_default());
    if !(consumer.is_empty() && tenant.is_empty()) {
        let who = UsageSubject { policy: &policy.name, consumer, tenant };
        let minute = UnixMinute::of(services.unix(clock::instant()));
        tally.count(minute, who, Amount { units, ..Amount::default() });
    }
}
