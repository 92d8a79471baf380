//! The settings of requests and answers, parsed and resolved: nothing in them can be invalid. `config` fills them
//! from the file.

use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::sync::Arc;

use http::HeaderValue;
use ipnet::IpNet;
use policy::nat64::Nat64;

/// Which hops may report a client's address, and in which header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientIp {
    pub trust: Vec<IpNet>,
    /// Whoever connects over a Unix socket is a trusted hop, too.
    pub trusts_unix: bool,
    pub header: ForwardedHeader,
    /// Bits of an IPv6 address that count as one client.
    pub ipv6_prefix: u8,
    /// Translators whose clients are seen by their IPv4 addresses.
    pub nat64: Nat64,
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

/// A file that takes the place of the gateway's own body of the same kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ErrorPage {
    /// The statuses as they are written: `404`, `5xx`.
    pub key: String,
    pub statuses: RangeInclusive<u16>,
    /// The file; its name says of what kind it is.
    pub file: PathBuf,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LimitHeaders {
    /// `RateLimit` and `RateLimit-Policy` (draft-ietf-httpapi-ratelimit-headers-11).
    Ietf,
    /// `X-RateLimit-Limit`, `-Remaining`, `-Reset`.
    Legacy,
    #[default]
    Both,
    None,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldAudience {
    Always,
    /// Only answers to trusted hops carry it.
    Trusted,
    Never,
}

/// What this gateway is called among several, and what it tells of itself.
#[derive(Clone, Debug)]
pub struct NodeIdentity {
    /// Its name: letters, digits and few signs.
    pub name: Arc<str>,
    /// The same as it stands in a field.
    pub value: HeaderValue,
    pub shown: FieldAudience,
    /// Whose answers carry the request's id.
    pub ids_shown: FieldAudience,
}

impl NodeIdentity {
    /// A node of this name. One that no field can carry is not shown.
    pub fn new(name: &str, shown: FieldAudience, ids_shown: FieldAudience) -> NodeIdentity {
        let value = HeaderValue::from_str(name);
        let shown = if value.is_ok() { shown } else { FieldAudience::Never };
        NodeIdentity {
            name: name.into(),
            value: value.unwrap_or(HeaderValue::from_static("")),
            shown,
            ids_shown,
        }
    }
}

impl Default for ClientIp {
    fn default() -> Self {
        ClientIp {
            trust: Vec::new(),
            trusts_unix: false,
            header: ForwardedHeader::default(),
            ipv6_prefix: 64,
            nat64: Nat64::default(),
        }
    }
}
