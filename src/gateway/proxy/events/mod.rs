//! Events: how requests and connections ended. Every sink gets each event exactly once.
//!
//! A sink is a file in this directory with one function per event, called by the functions below. It first checks whether
//! it is switched on, so that it costs nothing if it is off. It reads the event and keeps nothing of the request.

mod access_log;
mod event;
mod metrics;
mod spans;

pub use event::{FailedHandshake, FinishedRequest, UnreadHead};

use super::services::Services;

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
