//! Why a request was not answered as its route has it: one word a cause, for the log, the metrics and the answer.
//! Which status a cause has is [`super::problem`]'s.

/// Why a request was not answered by what its route names, or not to the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The head is not HTTP, or not a request we may pass on.
    Malformed,
    /// The head did not come in time.
    HeaderTimeout,
    /// The target is too long.
    UriTooLong,
    /// The head is too long, or has too many fields.
    HeadersTooLarge,
    /// The body is over the route's limit.
    BodyTooLarge,
    /// The body did not come in time, or the answer was not read in time.
    BodyStall,
    /// The body came too slowly for the connection it held upstream, or gave way to other requests.
    BodySlow,
    /// No route fits.
    NoRoute,
    /// Routes fit, but for other methods.
    MethodNotAllowed,
    /// The request names another host than the TLS connection is for.
    Misdirected,
    /// It expects what is not done here.
    ExpectationFailed,
    /// No way of authentication recognises the client.
    Unauthenticated,
    /// Too many passwords are being looked at.
    AuthBusy,
    /// The client is known and may not use the route.
    Forbidden,
    /// The client's address may not come in.
    AddressDenied,
    /// A script of that origin may not use the route.
    OriginDenied,
    /// Over a limit.
    Limited,
    /// A policy that admits nothing while Redis is away.
    RedisDown,
    /// A policy wants a dimension the request does not have.
    MissingKey,
    /// The upstream's name has no address.
    UpstreamUnresolved,
    /// No connection to the upstream.
    UpstreamConnect,
    /// No connection came free.
    UpstreamPoolFull,
    /// The upstream did not answer in time.
    UpstreamTimeout,
    /// The upstream broke off.
    UpstreamReset,
    /// The upstream's answer is not HTTP.
    UpstreamBadResponse,
    /// The client went away first.
    ClientGone,
    /// A fault of ours.
    Panic,
    /// Requests were taken back over and over before they were answered: the connection was closed.
    RapidReset,
    /// The TLS handshake failed over the client's certificate.
    TlsHandshake,
    /// Memory runs out.
    Overload,
    /// More HTTP/2 requests at once than may be.
    TooManyStreams,
    /// HTTP/2 frames came beyond a budget: the connection was closed.
    FrameFlood,
    /// The drain's deadline came before its end.
    Drain,
}

impl Reason {
    /// As logs, metrics and problems have it.
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

    /// Every reason, in the order of their numbers.
    pub const ALL: [Reason; 33] = [
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
