//! The facts of a request that routes, limits and templates read: borrowed, sanitised by the proxy, cheap to copy.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use http::{HeaderMap, Method};

use super::matching::pattern::Pattern;
use crate::json::JsonFields;
use base::identity::Identity;

/// One request, as the proxy has sanitised it.
///
/// Headers have a lifetime of their own, because the found route must not borrow them: they are changed while it is in use.
#[derive(Clone, Copy, Debug)]
pub struct RoutingFacts<'r, 'h> {
    pub method: &'r Method,
    /// The host: lower case, without port and trailing dot; empty where the request has none.
    pub host: &'r str,
    /// The path: unreserved bytes decoded, others encoded with upper-case hex digits, slashes merged, dot
    /// segments resolved.
    pub path: &'r str,
    /// What follows `?`.
    pub query: Option<&'r str>,
    /// The header fields as they came.
    pub headers: &'h HeaderMap,
    /// The client, found past trusted hops only.
    pub client_ip: IpAddr,
    /// Whether a trusted hop sent it, whose fields about costs are believed.
    pub trusted_peer: bool,
    /// Who is calling; empty before authentication.
    pub identity: &'r Identity,
    /// Whether authentication was required and did not recognise the client. Only limits that need no identity count then.
    pub refused: bool,
    /// Fields of its body, if a policy of its route asks for some and it has one.
    pub body: Option<&'r JsonFields>,
}

/// The values of a route's path parameters in one request.
#[derive(Clone, Copy, Debug)]
pub struct Params<'t, 'r> {
    pattern: &'t Pattern,
    path: &'r str,
}

/// What `{...}` in header values and rewrites may stand for in one request. Borrows no headers.
#[derive(Clone, Copy, Debug)]
pub struct TemplateValues<'t, 'r> {
    pub route: &'t str,
    pub params: Params<'t, 'r>,
    pub method: &'r Method,
    pub host: &'r str,
    pub path: &'r str,
    /// The query, without `?`.
    pub query: Option<&'r str>,
    pub client_ip: IpAddr,
    pub identity: &'r Identity,
    pub request_id: &'r str,
}

impl<'t, 'r> Params<'t, 'r> {
    /// Parameters of a path that the pattern matches.
    pub fn new(pattern: &'t Pattern, path: &'r str) -> Params<'t, 'r> {
        Params { pattern, path }
    }

    /// A parameter as it stands in the path, encoded. `None` where the pattern has none of that name.
    pub fn raw(&self, name: &str) -> Option<&'r str> {
        self.pattern.param(name).map(|index| self.at(index))
    }

    /// What segment `index` of the pattern takes, encoded.
    pub(super) fn at(&self, index: usize) -> &'r str {
        self.pattern.value(index, self.path)
    }

    /// All of them, from the left, encoded.
    pub fn iter(&self) -> impl Iterator<Item = (&'t str, &'r str)> {
        let params = *self;
        params.pattern.params().map(move |name| (name, params.raw(name).unwrap_or("")))
    }
}

/// The IPv4 address that an IPv6 one carries, where it is mapped or a translator's (RFC 6052 section 2.1: `64:ff9b::/96`);
/// else the address itself.
pub fn carried_address(client: IpAddr) -> IpAddr {
    match client.to_canonical() {
        IpAddr::V6(address) if address.to_bits() >> 32 == NAT64_PREFIX => {
            IpAddr::V4(Ipv4Addr::from_bits(address.to_bits() as u32))
        }
        address => address,
    }
}

/// The first 96 bits of an address behind a translator.
const NAT64_PREFIX: u128 = 0x0064_ff9b_0000_0000_0000_0000;

/// The address that counts as one client: the IPv4 address that it carries, or IPv6 cut to `ipv6_prefix` bits.
pub fn counted_address(client: IpAddr, ipv6_prefix: u8) -> IpAddr {
    match carried_address(client) {
        IpAddr::V4(address) => IpAddr::V4(address),
        IpAddr::V6(address) => {
            let cut = 128 - u32::from(ipv6_prefix.min(128));
            let mask = u128::MAX.checked_shl(cut).unwrap_or(0);
            IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & mask))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ipv6_prefix_is_one_client_and_a_mapped_address_is_ipv4() {
        let counted =
            |text: &str, prefix| counted_address(text.parse().expect("an address"), prefix).to_string();
        assert_eq!(counted("2001:db8:1:2:3:4:5:6", 64), "2001:db8:1:2::");
        assert_eq!(counted("2001:db8:1:2:3:4:5:6", 128), "2001:db8:1:2:3:4:5:6");
        assert_eq!(counted("2001:db8:1:2:3:4:5:6", 0), "::");
        assert_eq!(counted("::ffff:192.0.2.7", 64), "192.0.2.7");
        assert_eq!(counted("192.0.2.7", 0), "192.0.2.7");
        assert_eq!(counted("64:ff9b::192.0.2.7", 64), "192.0.2.7");
        assert_eq!(counted("64:ff9b::1:c000:207", 64), "64:ff9b::", "no translator's");
        assert_eq!(counted("64:ff9b:1::c000:207", 96), "64:ff9b:1::", "a translator of another prefix");
    }
}
