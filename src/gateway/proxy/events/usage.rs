//! Counts each policy's decisions for the consumer and the tenant, by the minute.

use super::event::DecidedRequest;
use crate::proxy::context::RequestContext;
use metrics::usage::UnixMinute;

pub fn decided(context: &RequestContext, event: &DecidedRequest<'_>) {
    let (Some(tally), Some(identity)) = (&context.services.usage, &context.facts.identity) else { return };
    let minute = UnixMinute::of(context.services.unix(context.facts.started));
    let (consumer, tenant) = (identity.consumer.as_deref(), identity.tenant.as_deref());
    for (who, amount) in event.check.usage(event.table, consumer, tenant) {
        tally.count(minute, who, amount);
    }
}
