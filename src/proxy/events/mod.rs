//! Events: how requests and connections ended. Every sink gets each event exactly once.
//!
//! A sink is a file in this directory with one function per event, called by the functions below. It first checks whether
//! it is switched on, so that it costs nothing if it is off. It reads the event and keeps nothing of the request.

mod access_log;
mod metrics;
mod spans;

use std::rc::Rc;
use std::time::{Duration, Instant};

use http::{HeaderValue, Version};

use super::facts::{Attempts, Outcome, RequestFacts};
use super::request_body::RequestBody;
use super::services::Services;
use super::snapshot::Snapshot;
use crate::cause::Cause;
use crate::limiter::Count;
use crate::record;
use crate::service::Ends;
use crate::service::conn::Conn;
use crate::service::reason::Reason;
use crate::trace::Trace;
use crate::upstream::Pool;

/// A request has ended: its answer is sent, or its client has left.
pub struct Finished<'r> {
    pub conn: &'r Conn,
    /// The snapshot it was served by.
    pub snapshot: &'r Snapshot,
    /// The trace that it is a part of, if requests are traced.
    pub trace: Option<&'r Trace>,
    /// The upstreams' pools as they were when it began.
    pub pools: &'r [Rc<Pool<RequestBody>>],
    pub request: &'r RequestFacts,
    pub attempts: &'r Attempts,
    /// `None` if its route has no limits.
    pub verdict: Option<Count>,
    /// What is left of the limit that binds, if one was charged.
    pub left: Option<record::Left>,
    pub outcome: &'r Outcome,
    /// The status and reason to log. They differ from those in `outcome` if the request ended before its answer.
    pub status: u16,
    pub reason: Option<Reason>,
    pub ended: Instant,
    pub duration: Duration,
    pub bytes_in: u64,
}

/// A head never came whole, or was not valid HTTP: there is no request, and no method or path to log.
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

pub fn finished(services: &Services, event: &Finished<'_>) {
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
