//! Counts the keys that decisions were about, to find those that use most.

use super::event::DecidedRequest;
use crate::proxy::services::Services;

pub fn decided(services: &Services, event: &DecidedRequest<'_>) {
    let Some(tally) = &services.hot_keys else { return };
    let naming = &event.snapshot.naming;
    event.check.count_keys(&services.shared.limiter, (tally, naming), |_| Some(event.subject));
}
