//! The events as plain values.

use std::rc::Rc;
use std::time::{Duration, Instant};

use http::{HeaderValue, Version};

use crate::proxy::facts::{AttemptFacts, RequestFacts, RequestOutcome};
use crate::proxy::request::request_body::RequestBody;
use crate::proxy::snapshot::Snapshot;
use crate::service::ClientAddresses;
use crate::service::conn::Conn;
use crate::service::reason::Reason;
use base::cause::Cause;
use base::ids::IdVec;
use limiter::{Check, Count};
use observe::record;
use observe::trace::Trace;
use policy::{HttpSubject, RouteTable, UpstreamId};
use upstream::Pool;

/// The limits of a request are decided. This is an event of its own, because an answer may stream for hours, and a limit
/// that refuses now has to show now.
pub struct DecidedRequest<'r> {
    /// The snapshot it was decided by.
    pub snapshot: &'r Snapshot,
    pub request: &'r RequestFacts,
    /// How long after its begin it was decided.
    pub decided_after_ns: u64,
    /// The table that the check's policies are of.
    pub table: &'r RouteTable,
    pub subject: &'r HttpSubject<'r>,
    pub check: &'r Check<'r>,
}

/// A request has ended: its answer is sent, or its client has left.
pub struct FinishedRequest<'r> {
    pub conn: &'r Conn,
    /// The snapshot it was served by.
    pub snapshot: &'r Snapshot,
    /// Whether its decision on limits is kept as a sample.
    pub is_sampled: bool,
    /// The trace that it is a part of, if requests are traced.
    pub trace: Option<&'r Trace>,
    /// The upstreams' pools as they were when it began.
    pub pools: &'r IdVec<UpstreamId, Rc<Pool<RequestBody>>>,
    pub request: &'r RequestFacts,
    pub attempts: &'r AttemptFacts,
    /// `None` if its route has no limits.
    pub verdict: Option<Count>,
    /// What is left of the limit that binds, if one was charged.
    pub left: Option<record::RemainingLimit>,
    pub outcome: &'r RequestOutcome,
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
}

pub struct FailedHandshake<'r> {
    pub listener: &'r str,
    pub ends: ClientAddresses,
    pub cause: Cause,
}
