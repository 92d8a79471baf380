//! What the configuration says of requests and answers, parsed and resolved: nothing in it can be wrong.

use ipnet::IpNet;

/// Whose word about a client's address is taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientIp {
    /// Trusted hops.
    pub trust: Vec<IpNet>,
    /// Which header they speak in.
    pub header: ForwardedHeader,
    /// Bits of an IPv6 address that make one client.
    pub ipv6_prefix: u8,
}

/// How a client's address is passed on, and read from trusted hops.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ForwardedHeader {
    /// `X-Forwarded-For`, `-Proto`, `-Host`.
    #[default]
    XForwarded,
    /// `Forwarded` (RFC 7239).
    Forwarded,
}

/// Which rate-limit fields responses carry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LimitHeaders {
    /// `RateLimit` and `RateLimit-Policy` (draft-ietf-httpapi-ratelimit-headers-11).
    Ietf,
    /// `X-RateLimit-Limit`, `-Remaining`, `-Reset`.
    Legacy,
    /// Both.
    #[default]
    Both,
    /// Neither.
    None,
}

impl Default for ClientIp {
    fn default() -> Self {
        ClientIp { trust: Vec::new(), header: ForwardedHeader::default(), ipv6_prefix: 64 }
    }
}
