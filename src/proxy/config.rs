//! The settings of requests and answers, parsed and resolved: nothing in them can be invalid. `crate::config` fills them
//! from the file.

use ipnet::IpNet;

/// Which hops may report a client's address, and in which header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientIp {
    /// Trusted hops.
    pub trust: Vec<IpNet>,
    /// Whoever connects over a Unix socket is a trusted hop, too.
    pub trusts_unix: bool,
    /// The header that they write.
    pub header: ForwardedHeader,
    /// Bits of an IPv6 address that count as one client.
    pub ipv6_prefix: u8,
}

/// The header in which a client's address is read from trusted hops and passed on to upstreams.
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
        ClientIp {
            trust: Vec::new(),
            trusts_unix: false,
            header: ForwardedHeader::default(),
            ipv6_prefix: 64,
        }
    }
}
