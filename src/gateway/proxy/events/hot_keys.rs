//! Counts the keys that decisions were about, to find those that use most.

use super::event::DecidedRequest;
use crate::proxy::context::RequestContext;

pub fn decided(context: &RequestContext, event: &DecidedRequest<'_>) {
    let Some(tally) = &context.services.hot_keys else { return };
    let naming = &context.view.snapshot.naming;
    context.services.shared.limiter.count_keys(tally, naming, event.check, |_| Some(event.subject));
}
