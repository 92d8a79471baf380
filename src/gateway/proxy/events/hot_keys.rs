//! Counts the keys that decisions were about, to find those that use most.

use super::event::DecidedRequest;
use crate::proxy::services::Services;

pub fn decided(services: &Services, event: &DecidedRequest<'_>) {
    let Some(tally) = &services.hot_keys else { return };
    services.shared.limiter.count_keys(tally, &event.snapshot.naming, event.check, |_| Some(event.subject));
}
