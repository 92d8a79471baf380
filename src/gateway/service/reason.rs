//! Why a request was refused or its answer broke off: one stable word for each reason, the same in the log, the metrics
//! and the answer. [`super::problem`] chooses the status.

/// Why a request was not answered by its route's action, or not to the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The head is not valid HTTP, or not a request that a gateway may forward.
    Malformed,
    /// The head did not come in time.
    HeaderTimeout,
    UriTooLong,
    /// The head is too long, or has too many fields.
    HeadersTooLarge,
    /// The body is over the route's limit.
    BodyTooLarge,
    /// The body did not come in time, or the answer was not read in time.
    BodyStall,
    /// The body came too slowly for the connection it held upstream, or made room for other requests.
    BodySlow,
    NoRoute,
    /// Routes match the path, but for other methods.
    MethodNotAllowed,
    /// The request names another host than the TLS connection is for.
    Misdirected,
    /// `Expect` asks for something else than `100-continue`.
    ExpectationFailed,
    /// No method of the route authenticated the client.
    Unauthenticated,
    /// Too many passwords are being verified.
    AuthBusy,
    /// The client is authenticated but may not use the route.
    Forbidden,
    /// The client's address is not allowed by the listener or the route.
    AddressDenied,
    /// Scripts of that origin may not use the route (CORS).
    OriginDenied,
    /// An operator has blocked whoever sent it.
    Blocked,
    Limited,
    /// A policy whose `when-redis-down` is `deny` could not ask Redis.
    RedisDown,
    /// A policy counts by a dimension that the request does not have.
    MissingKey,
    /// The upstream's name has no address.
    UpstreamUnresolved,
    /// A connection to the upstream failed.
    UpstreamConnect,
    /// All connections to the upstream stayed in use.
    UpstreamPoolFull,
    /// The upstream did not answer in time.
    UpstreamTimeout,
    /// The upstream closed the connection before its answer was whole.
    UpstreamReset,
    /// The upstream's answer is not valid HTTP.
    UpstreamBadResponse,
    ClientGone,
    Panic,
    /// The client reset requests over and over before they were answered; the connection was closed.
    RapidReset,
    /// The TLS handshake failed because of the client's certificate.
    TlsHandshake,
    /// Memory or file descriptors run out.
    Overload,
    /// More HTTP/2 requests at once than the listener allows.
    TooManyStreams,
    /// The client sent more HTTP/2 frames than a budget allows; the connection was closed.
    FrameFlood,
    /// The drain's deadline came before the answer was whole.
    Drain,
}

impl Reason {
    /// The word in logs, metrics and answers. It never changes, because operators' dashboards depend on it.
    pub fn code(self) -> &'static str {
        match self {
            Reason::Malformed => "malformed",
            Reason::HeaderTimeout => "header-timeout",
            Reason::UriTooLong => "uri-too-long",
            Reason::HeadersTooLarge => "headers-too-large",
            Reason::BodyTooLarge => "body-too-large",
            Reason::BodyStall => "body-stall",
            Reason::BodySlow => "body-slow",
            Reason::NoRoute => "no-route",
            Reason::MethodNotAllowed => "method-not-allowed",
            Reason::Misdirected => "misdirected",
            Reason::ExpectationFailed => "expectation-failed",
            Reason::Unauthenticated => "unauthenticated",
            Reason::AuthBusy => "auth-busy",
            Reason::Forbidden => "forbidden",
            Reason::AddressDenied => "address-denied",
            Reason::OriginDenied => "origin-denied",
            Reason::Blocked => "blocked",
            Reason::Limited => "limited",
            Reason::RedisDown => "redis-down",
            Reason::MissingKey => "missing-key",
            Reason::UpstreamUnresolved => "upstream-unresolved",
            Reason::UpstreamConnect => "upstream-connect",
            Reason::UpstreamPoolFull => "upstream-pool-full",
            Reason::UpstreamTimeout => "upstream-timeout",
            Reason::UpstreamReset => "upstream-reset",
            Reason::UpstreamBadResponse => "upstream-bad-response",
            Reason::ClientGone => "client-gone",
            Reason::Panic => "panic",
            Reason::RapidReset => "rapid-reset",
            Reason::TlsHandshake => "tls-handshake",
            Reason::Overload => "overload",
            Reason::TooManyStreams => "too-many-streams",
            Reason::FrameFlood => "frame-flood",
            Reason::Drain => "drain",
        }
    }

    /// Every reason, in declaration order, which is the index of its counter.
    pub const ALL: [Reason; 34] = [
        Reason::Malformed,
        Reason::HeaderTimeout,
        Reason::UriTooLong,
        Reason::HeadersTooLarge,
        Reason::BodyTooLarge,
        Reason::BodyStall,
        Reason::BodySlow,
        Reason::NoRoute,
        Reason::MethodNotAllowed,
        Reason::Misdirected,
        Reason::ExpectationFailed,
        Reason::Unauthenticated,
        Reason::AuthBusy,
        Reason::Forbidden,
        Reason::AddressDenied,
        Reason::OriginDenied,
        Reason::Blocked,
        Reason::Limited,
        Reason::RedisDown,
        Reason::MissingKey,
        Reason::UpstreamUnresolved,
        Reason::UpstreamConnect,
        Reason::UpstreamPoolFull,
        Reason::UpstreamTimeout,
        Reason::UpstreamReset,
        Reason::UpstreamBadResponse,
        Reason::ClientGone,
        Reason::Panic,
        Reason::RapidReset,
        Reason::TlsHandshake,
        Reason::Overload,
        Reason::TooManyStreams,
        Reason::FrameFlood,
        Reason::Drain,
    ];
}
