//! Plain facts of a request, for the log and the metrics: of its head, its attempts at an upstream, and its end. They are
//! data without behaviour, so that sinks of events need not know the context.

use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use http::{HeaderValue, Method, Uri, Version};

use super::request::client::ForwardedTarget;
use super::request::request_body::UploadState;
use crate::service::form::ErrorForm;
use crate::service::reason::Reason;
use base::cause::Cause;
use base::identity::Identity;
use net::wire::http2::StreamId;
use observe::record;
use policy::{RouteId, UpstreamId};
use upstream::ServerIndex;

/// Facts of a request's head, and who sent it.
pub struct RequestFacts {
    /// When its head was whole.
    pub started: Instant,
    /// The method, which the upstream gets unchanged.
    pub method: Method,
    /// The target as the log shows it: with credentials masked, and cut if it is long.
    pub uri: Uri,
    /// The client's protocol; the upstream may be spoken to in another.
    pub version: Version,
    /// Its stream, over HTTP/2.
    pub stream: Option<StreamId>,
    /// Whether it is a gRPC call, whose refusal has gRPC's form.
    pub is_call: bool,
    /// The form in which it is told of any other refusal.
    pub form: ErrorForm,
    /// The authority it names, as it was sent; empty if it names none. Of a request that is refused it may be invalid.
    pub authority: HeaderValue,
    /// The client's address, by which it is counted and logged.
    pub client: IpAddr,
    /// What the client asked for by the word of trusted hops, if it has a span.
    pub asked: Option<Box<ForwardedTarget>>,
    /// Its id in logs, answers and upstream.
    pub request_id: HeaderValue,
    /// The values of the header fields that the log is configured to show.
    pub shown: record::Values,
    pub route: Option<RouteId>,
    /// Who sent it, if it was authenticated.
    pub identity: Option<Arc<Identity>>,
}

/// A server of an upstream, as the request's view has them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UpstreamServer {
    pub upstream: UpstreamId,
    pub server: ServerIndex,
}

/// A request's attempts at an upstream.
#[derive(Debug, Default)]
pub struct AttemptFacts {
    /// The server it went to last, or did not get to.
    pub server: Option<UpstreamServer>,
    /// How many times it was sent again.
    pub retries: u8,
    /// How many of these times no server had done anything with it. They count neither in `times` nor in `budget`.
    pub unprocessed: u8,
    /// Nor does one of these times, which was because a connection that was kept had died.
    pub is_anew: bool,
    /// It was sent, and nothing has come of it yet. Still set when the request ends only if its client left meanwhile.
    pub is_awaiting_head: bool,
    /// A good head has come, and nothing of the body behind it yet: a server that goes on to stall has not answered well.
    pub is_unjudged: bool,
    /// How long the upstream may take.
    pub allowed: TimeAllowance,
    /// Where its time went, including the steps before the first attempt.
    pub steps: StepTimings,
}

/// How long an upstream may take with one request: as its configuration, the route and the client's call say together.
#[derive(Clone, Copy, Debug, Default)]
pub struct TimeAllowance {
    /// From the end of the request to the answer's head.
    pub response: Duration,
    /// The same for a try that may be followed by another one. `None`: the same.
    pub per_try: Option<Duration>,
    /// From the request's start to the answer's last byte. `None`: no bound.
    pub total: Option<Duration>,
    /// Between two pieces of the answer's body.
    pub stall: Duration,
    /// How long a tunnel may carry nothing.
    pub tunnel_idle: Duration,
}

impl TimeAllowance {
    /// Whether a request that has taken so long is over in any case.
    pub fn is_past_total(&self, elapsed: Duration) -> bool {
        self.total.is_some_and(|total| elapsed >= total)
    }
}

/// How long each step took, in nanoseconds; 0 if it was not taken.
#[derive(Clone, Copy, Debug, Default)]
pub struct StepTimings {
    /// From the head to the decision on its limits.
    pub decide: u64,
    /// From the start until its credential was verified, if that took more than a lookup.
    pub verified: u64,
    /// Waiting for its turn in a leaky bucket's queue.
    pub delay: u64,
    /// From the start until the first bytes of its body were there, if they were waited for.
    pub gather: u64,
    /// Waiting for a free connection to the upstream.
    pub wait: u64,
    /// Opening a connection to the upstream.
    pub connect: u64,
    /// From the start until the last attempt was sent. If nothing was waited for, it is the end of the last step that read
    /// the clock, which saves a reading: of the decision on its limits, of verifying its credential, or the start.
    pub sent: u64,
    /// From the start to the head of the upstream's answer.
    pub answered: u64,
}

impl StepTimings {
    /// From the start until it could be sent: after its turn in a queue, and with the first bytes of its body.
    pub fn ready(&self) -> Duration {
        Duration::from_nanos(self.delay.max(self.gather))
    }

    /// From sending the request to the head of the answer.
    pub fn first_byte(&self) -> u64 {
        self.answered.saturating_sub(self.sent)
    }
}

/// How a request ends, as far as that is known yet.
#[derive(Debug)]
pub struct RequestOutcome {
    /// The status that was sent, or that is logged if none was.
    pub status: u16,
    /// Why it was refused or broke off; `None` if it went well.
    pub reason: Option<Reason>,
    /// The exact cause, only for operators.
    pub cause: Option<Cause>,
    /// The status of gRPC's that ended a call; `None` if it is no call, or ended without one.
    pub grpc_status: Option<u32>,
    /// Whether the last byte of the answer was handed to the client's connection.
    pub is_complete: bool,
    /// The state of its body, if it has one.
    pub upload: Option<Rc<UploadState>>,
    /// Bytes received that `upload` does not count: those of a tunnel.
    pub bytes_in: u64,
    /// Bytes of the answer's body, or of a tunnel, that were sent.
    pub bytes_out: u64,
}

impl RequestOutcome {
    /// The outcome at the begin: if the context is dropped before anything is answered, the client has gone.
    pub fn unanswered() -> RequestOutcome {
        RequestOutcome {
            status: CLIENT_GONE_STATUS,
            reason: Some(Reason::ClientGone),
            cause: None,
            grpc_status: None,
            is_complete: false,
            upload: None,
            bytes_in: 0,
            bytes_out: 0,
        }
    }

    /// Whether nothing was sent, not even a status.
    pub fn is_unanswered(&self) -> bool {
        self.reason == Some(Reason::ClientGone) && !self.is_complete
    }

    /// All bytes received after the head.
    pub fn received_bytes(&self) -> u64 {
        self.bytes_in + self.upload.as_ref().map_or(0, |upload| upload.bytes.get())
    }
}

/// Logged, as nginx does, for a client that left before it was answered; no such status is sent.
pub const CLIENT_GONE_STATUS: u16 = 499;
