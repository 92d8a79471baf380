//! Why a request was refused or its answer broke off: one stable word for each reason, the same in the log, the metrics
//! and the answer. [`super::problem`] chooses the status.

metrics::words! {
    /// Why a request was not answered by its route's action, or not to the end.
    pub enum Reason {
        /// The head is not valid HTTP, or not a request that a gateway may forward.
        Malformed: "malformed",
        /// The head did not come in time.
        HeaderTimeout: "header-timeout",
        UriTooLong: "uri-too-long",
        /// The head is too long, or has too many fields.
        HeadersTooLarge: "headers-too-large",
        /// The body is over the route's limit.
        BodyTooLarge: "body-too-large",
        /// The body did not come in time, or the answer was not read in time.
        BodyStall: "body-stall",
        /// The body came too slowly for the connection it held upstream, or made room for other requests.
        BodySlow: "body-slow",
        NoRoute: "no-route",
        /// Routes match the path, but for other methods.
        MethodNotAllowed: "method-not-allowed",
        /// The request names another host than the TLS connection is for.
        Misdirected: "misdirected",
        /// `Expect` asks for something else than `100-continue`.
        ExpectationFailed: "expectation-failed",
        /// No method of the route authenticated the client.
        Unauthenticated: "unauthenticated",
        /// Too many passwords are being verified.
        AuthBusy: "auth-busy",
        /// The client is authenticated but may not use the route.
        Forbidden: "forbidden",
        /// The client's address is not allowed by the listener or the route.
        AddressDenied: "address-denied",
        /// Scripts of that origin may not use the route (CORS).
        OriginDenied: "origin-denied",
        /// An operator has blocked whoever sent it.
        Blocked: "blocked",
        Limited: "limited",
        /// A policy whose `when-redis-down` is `deny` could not ask Redis.
        RedisDown: "redis-down",
        /// A policy counts by a dimension that the request does not have.
        MissingKey: "missing-key",
        /// The upstream's name has no address.
        UpstreamUnresolved: "upstream-unresolved",
        /// A connection to the upstream failed.
        UpstreamConnect: "upstream-connect",
        /// All connections to the upstream stayed in use.
        UpstreamPoolFull: "upstream-pool-full",
        /// The upstream did not answer in time.
        UpstreamTimeout: "upstream-timeout",
        /// The upstream closed the connection before its answer was whole.
        UpstreamReset: "upstream-reset",
        /// The upstream's answer is not valid HTTP.
        UpstreamBadResponse: "upstream-bad-response",
        ClientGone: "client-gone",
        Panic: "panic",
        /// The client reset requests over and over before they were answered; the connection was closed.
        RapidReset: "rapid-reset",
        /// The TLS handshake failed because of the client's certificate.
        TlsHandshake: "tls-handshake",
        /// Memory or file descriptors run out.
        Overload: "overload",
        /// More HTTP/2 requests at once than the listener allows.
        TooManyStreams: "too-many-streams",
        /// The client sent more HTTP/2 frames than a budget allows; the connection was closed.
        FrameFlood: "frame-flood",
        /// The drain's deadline came before the answer was whole.
        Drain: "drain",
    }
}
