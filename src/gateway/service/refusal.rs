//! Why a request is refused: facts only. [`super::problem`] chooses the answer to each; [`super::reason`] is the coarser
//! word for logs and metrics.

use std::time::Duration;

use http::HeaderValue;

use base::cause::Cause;
use limit::{Algorithm, Quota};
use net::wire::http1::FramingFault;

/// Why a request is refused, with what the answer says of it.
#[derive(Debug)]
pub enum Refusal {
    /// The head is not a request that a gateway may forward; the text says why, for the client.
    Malformed(&'static str),
    /// It is unclear where the message ends, or its HTTP version is not supported.
    Framing(FramingFault),
    /// A gateway does not forward the method (CONNECT, TRACE).
    MethodNotServed,
    /// The request names another host than the TLS connection is for.
    Misdirected,
    /// `Expect` asks for something else than `100-continue`.
    ExpectationFailed,
    /// Its WebSocket handshake is of a version that the gateway does not know.
    WebSocketVersion,
    UriTooLong,
    /// Too many or too long fields.
    HeadersTooLarge,
    /// The body is over the route's limit.
    BodyTooLarge,
    /// The body comes too slowly to hold a connection upstream for it.
    BodySlow,
    NoRoute,
    /// Routes match the path, but only for these methods.
    MethodNotAllowed(HeaderValue),
    /// No method of the route authenticated the client. The challenges go into the answer; the cause only into the log,
    /// because it would tell an attacker how far a guess has come.
    Unauthenticated(Vec<HeaderValue>, Cause),
    /// The credential was not verified: too many are being verified, or for the cause that is named.
    AuthBusy(Option<Cause>),
    /// The client is authenticated but may not use the route.
    Forbidden(Cause),
    /// The client's address is not allowed by the listener or the route.
    AddressDenied,
    /// Scripts of that origin may not use the route (CORS).
    OriginDenied,
    /// An operator has blocked whoever sends it, who may not try again.
    Blocked,
    /// The same, and who may try again when the block ends, if it does.
    BlockedFor {
        retry_after_seconds: Option<u64>,
    },
    /// The request is over these limits.
    Limited(Box<LimitExceeded>),
    /// A policy whose `when-redis-down` is `deny` cannot ask Redis.
    RedisDown(Box<LimitExceeded>),
    /// A policy counts by this dimension, which the request does not have.
    MissingKey(String),
    /// The upstream's name has no address.
    UpstreamUnresolved,
    /// A connection to the upstream failed.
    UpstreamConnect(Cause),
    /// A connection to the upstream was not made in time.
    UpstreamConnectTimeout(Cause),
    /// All connections to the upstream stayed in use.
    UpstreamPoolFull,
    /// The upstream takes no requests over HTTP/2 now.
    UpstreamNoStreams,
    /// The upstream did not answer in time.
    UpstreamTimeout,
    /// The upstream closed the connection before its answer's head was whole.
    UpstreamReset,
    /// The upstream's answer is not valid HTTP.
    UpstreamBadResponse(Option<Cause>),
    /// The client left before its body was whole.
    ClientGone,
    /// Memory or file descriptors run out.
    Overloaded,
    Panic,
}

/// The limits that a request is over.
#[derive(Debug)]
pub struct LimitExceeded {
    pub violated: Vec<Violation>,
    /// Seconds to wait, jitter included. `None`: the request can never be admitted.
    pub retry_after_seconds: Option<u64>,
}

#[derive(Debug)]
pub struct Violation {
    /// The window's name, the same as in `RateLimit-Policy`.
    pub window: String,
    /// The name that clients know it by.
    pub policy: String,
    /// Whether the response does not mention it.
    pub is_hidden: bool,
    pub quota: Quota,
    /// Seconds until it may admit the request, jitter included. `None`: it costs more than the window ever holds.
    pub retry_after_seconds: Option<u64>,
    /// Where it was decided: `local`, `global` or `fallback`.
    pub decided: &'static str,
    /// Whether the wait is a penalty, because the client did not heed earlier refusals.
    pub is_penalty: bool,
}

impl Violation {
    /// Whether it has a period; a limit on requests in flight has none.
    pub fn is_timed(&self) -> bool {
        self.quota.algorithm() != Algorithm::Concurrency
    }

    /// The length of the period at this wall-clock time.
    pub fn period_seconds(&self, unix: Duration) -> Option<u64> {
        self.is_timed().then(|| self.quota.period_at_ns(unix).div_ceil(1_000_000_000))
    }
}

impl LimitExceeded {
    /// What the response says of it.
    pub fn shown(&self) -> impl Iterator<Item = &Violation> {
        self.violated.iter().filter(|violation| !violation.is_hidden)
    }

    /// Whether only limits on requests in flight were violated.
    pub fn is_in_flight(&self) -> bool {
        !self.violated.iter().any(Violation::is_timed)
    }
}
