//! What became of requests and connections, as events. A request that is finished is told once, to every sink.
//!
//! A sink is a file here with a function an event, called by the functions below. It looks first whether it is switched
//! on, so that it costs nothing if it is off, and it reads the event: it keeps nothing of the request.

mod access_log;
mod metrics;

use std::time::{Duration, Instant};

use http::{HeaderValue, Version};

use super::facts::{Attempts, Outcome, RequestFacts};
use super::services::Services;
use super::snapshot::Snapshot;
use crate::cause::Cause;
use crate::limiter::Count;
use crate::service::Ends;
use crate::service::conn::Conn;
use crate::service::reason::Reason;

/// A request is finished: its answer is sent, or nobody is left to take it.
pub struct Finished<'r> {
    pub conn: &'r Conn,
    /// The snapshot it was served by.
    pub snapshot: &'r Snapshot,
    pub request: &'r RequestFacts,
    pub attempts: &'r Attempts,
    /// `None`: no limit was asked.
    pub verdict: Option<Count>,
    pub outcome: &'r Outcome,
    /// The status and reason it is told with. They differ from those of its outcome if it ended before its answer.
    pub status: u16,
    pub reason: Option<Reason>,
    pub ended: Instant,
    pub duration: Duration,
    pub bytes_in: u64,
}

/// A head never came whole, or was none: there is no request. Nothing is told of what nobody has read.
pub struct UnreadHead<'r> {
    pub conn: &'r Conn,
    pub version: Version,
    pub request_id: &'r HeaderValue,
    pub reason: Reason,
    pub status: u16,
    pub duration: Duration,
}

/// A TLS handshake failed.
pub struct FailedHandshake<'r> {
    /// The name of the listener.
    pub listener: &'r str,
    pub ends: Ends,
    pub cause: Cause,
}

/// Tells of a request that is finished.
pub fn finished(services: &Services, event: &Finished<'_>) {
    metrics::finished(services, event);
    access_log::finished(services, event);
}

/// Tells of a head that is no request.
pub fn unread_head(services: &Services, event: &UnreadHead<'_>) {
    let view = services.view();
    metrics::unread_head(services, &view.snapshot, event);
    access_log::unread_head(services, &view.snapshot, event);
}

/// Tells of a failed handshake.
pub fn failed_handshake(services: &Services, event: &FailedHandshake<'_>) {
    metrics::failed_handshake(services, event);
    access_log::failed_handshake(services, event);
}
