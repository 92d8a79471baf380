//! Events: how requests were decided, and how requests and connections ended. Every sink gets each event exactly once.
//!
//! A sink is a file in this directory with one function per event, called by the functions below. It first checks whether
//! it is switched on, so that it costs nothing if it is off. It reads the event and keeps nothing of the request.

mod access_log;
mod event;
mod hot_keys;
mod metrics;
mod samples;
mod spans;
mod usage;

pub use event::{DecidedRequest, FailedHandshake, FinishedRequest, UnreadHead};
pub use samples::{blocked, sampled_windows};
pub use usage::charged;

use super::services::Services;

/// Whether the decision is kept as a sample.
pub fn decided(services: &Services, event: &DecidedRequest<'_>) -> bool {
    metrics::decided(services, event);
    hot_keys::decided(services, event);
    usage::decided(services, event);
    samples::decided(services, event)
}

pub fn finished(services: &Services, event: &FinishedRequest<'_>) {
    metrics::finished(services, event);
    access_log::finished(services, event);
    spans::finished(services, event);
}

pub fn unread_head(services: &Services, event: &UnreadHead<'_>) {
    let view = services.view();
    metrics::unread_head(services, &view.snapshot, event);
    access_log::unread_head(services, &view.snapshot, event);
}

pub fn failed_handshake(services: &Services, event: &FailedHandshake<'_>) {
    metrics::failed_handshake(services, event);
    access_log::failed_handshake(services, event);
}
