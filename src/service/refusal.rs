//! Why a request is refused: facts only. [`super::problem`] says what each of them is answered with.

use http::HeaderValue;

use crate::cause::Cause;
use crate::wire::http1::Fault;

/// Why a request is refused, with what the answer says of it.
#[derive(Debug)]
pub enum Refusal {
    /// The head is not a request we may pass on.
    Malformed(&'static str),
    /// Where the message ends cannot be told, or it is of no version we speak.
    Framing(Fault),
    /// A gateway does not forward the method (CONNECT, TRACE).
    MethodNotServed,
    /// The request names another host than the TLS connection is for.
    Misdirected,
    /// It expects something else than to be told to continue.
    ExpectationFailed,
    /// The target is too long.
    UriTooLong,
    /// Too many or too long fields.
    HeadersTooLarge,
    /// The body is over the route's limit.
    BodyTooLarge,
    /// The body comes too slowly for the connection it holds upstream, or for any.
    BodySlow,
    /// No route fits.
    NoRoute,
    /// Routes fit for these methods.
    MethodNotAllowed(HeaderValue),
    /// No way of authentication recognises the client: how to authenticate, and what was wrong, which no client is told.
    Unauthenticated(Vec<HeaderValue>, Cause),
    /// Too many passwords are being looked at.
    AuthBusy,
    /// The client is known and may not use the route.
    Forbidden(Cause),
    /// The client's address may not come in.
    AddressDenied,
    /// A script of that origin may not use the route.
    OriginDenied,
    /// Over these limits.
    Limited(Box<Limited>),
    /// A policy admits nothing while Redis is away.
    RedisDown(Box<Limited>),
    /// A policy wants this dimension.
    MissingKey(String),
    /// The upstream's name has no address.
    UpstreamUnresolved,
    /// No connection to the upstream.
    UpstreamConnect(Cause),
    /// No connection to the upstream in time.
    UpstreamConnectTimeout,
    /// No connection came free.
    UpstreamPoolFull,
    /// No answer in time.
    UpstreamTimeout,
    /// The upstream broke off.
    UpstreamReset,
    /// The upstream's answer is not HTTP.
    UpstreamBadResponse,
    /// The client broke off within its body.
    ClientGone,
    /// Memory runs out.
    Overloaded,
    /// A fault of ours.
    Panic,
}

/// Which limits a request is over.
#[derive(Debug)]
pub struct Limited {
    /// Every violated window.
    pub violated: Vec<Violation>,
    /// Seconds to wait, jitter included. `None`: the request can never be admitted.
    pub retry_after_seconds: Option<u64>,
}

/// One violated window.
#[derive(Debug)]
pub struct Violation {
    /// Its name, as `RateLimit-Policy` has it.
    pub window: String,
    /// The policy's name.
    pub policy: String,
    /// Units in one period.
    pub limit: u64,
    /// The period, seconds. `None`: units at once, in no period.
    pub period_seconds: Option<u64>,
    /// Seconds until it may admit the request, jitter included. `None`: it costs more than the window ever holds.
    pub retry_after_seconds: Option<u64>,
    /// Where it was decided: `local`, `global` or `fallback`.
    pub decided: &'static str,
    /// Whether the client is kept out for longer, because it did not wait when it was told to.
    pub is_penalty: bool,
}

impl Limited {
    /// Whether nothing but what is in flight stood in the way.
    pub fn is_in_flight(&self) -> bool {
        self.violated.iter().all(|violation| violation.period_seconds.is_none())
    }
}
