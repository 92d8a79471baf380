//! Counts each policy's decisions for the consumer and the tenant, by the minute.

use super::event::DecidedRequest;
use crate::proxy::services::Services;
use metrics::usage::UnixMinute;

pub fn decided(services: &Services, event: &DecidedRequest<'_>) {
    let (Some(tally), Some(identity)) = (&services.usage, &event.request.identity) else { return };
    let minute = UnixMinute::of(services.unix(event.request.started));
    let (consumer, tenant) = (identity.consumer.as_deref(), identity.tenant.as_deref());
    for (who, amount) in event.check.usage(event.table, consumer, tenant) {
        tally.count(minute, who, amount);
    }
}
