//! Places that are told apart by the port they are reached through, which routes cannot say here.
//!
//! All listeners serve all routes. What one port alone served is closed, because it would be reached through every
//! port, unless it is what the other ports serve too.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};

use super::draft::{Draft, Route};
use super::notes::SourceLine;

/// The ports that a place is reached through; 80 and 443 are one, because a site has both.
pub(super) type Ports = BTreeSet<String>;

/// The port of an address, with the address if it is not every one of this host.
pub(super) fn port(address: &str) -> String {
    match address.parse::<SocketAddr>() {
        Ok(address) if address.ip().is_unspecified() && matches!(address.port(), 80 | 443) => WEB.to_owned(),
        Ok(address) if address.ip().is_unspecified() => address.port().to_string(),
        _ => address.to_owned(),
    }
}

/// The port whose places stay open: that of the web, or the first one that others than this host reach.
pub(super) fn main_port<'p>(places: impl Iterator<Item = &'p Ports> + Clone) -> Option<String> {
    let all = || places.clone().flatten();
    let web = all().find(|port| is_web(port));
    web.or_else(|| all().find(|port| !is_private(port))).or_else(|| all().next()).cloned()
}

/// Whether it is known that the main port is the one of the two that is for everybody. If it is not, the other one is
/// not opened, because it would serve the main one's routes.
pub(super) fn is_known(main: &str, port: &str) -> bool {
    is_web(main) || !is_private(main) && is_private(port)
}

/// Why a port is not opened beside the main one.
pub(super) const UNKNOWN: &str = "all listeners serve all routes here, and `migrate` cannot tell whether the routes of this listener are open \
    to every client; run a separate gateway for it";

/// Whether a port is that of the web, at every address.
fn is_web(port: &str) -> bool {
    port == WEB
}

/// Whether a port is reached from this host or its own network alone.
fn is_private(port: &str) -> bool {
    port.starts_with("unix:")
        || port.parse::<SocketAddr>().is_ok_and(|address| match address.ip().to_canonical() {
            IpAddr::V4(ip) => {
                // Those that providers share among their customers (RFC 6598), too.
                let is_shared = ip.octets()[0] == 100 && ip.octets()[1] & 0xc0 == 64;
                ip.is_loopback() || ip.is_private() || ip.is_link_local() || is_shared
            }
            IpAddr::V6(ip) => ip.is_loopback() || ip.is_unique_local() || ip.is_unicast_link_local(),
        })
}

impl Draft {
    /// Closes the routes of a place that is reached through another port than the main one. `first` are those that were
    /// there before it. A route that ties with one of them is not needed, because the earlier one takes its requests.
    pub(super) fn close_apart(&mut self, first: Vec<Route>, place: &SourceLine, what: &str) {
        let apart = std::mem::replace(&mut self.routes, first);
        let why = "it has a port of its own, and all listeners serve all routes here: requests for paths that other ports also serve go to the routes of those ports, and its remaining routes are closed (501); run a separate gateway for this port, or give its routes their own `host` and `allow`";
        self.notes.left_out(place, what, why);
        for mut route in apart {
            route.name.clear();
            route.close();
            if !self.routes.iter().any(|known| known.ties(&route)) {
                self.add_route(route, what);
            }
        }
    }
}

const WEB: &str = "80 and 443";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_that_the_internet_does_not_reach_are_private() {
        for private in
            ["127.0.0.1:80", "[::ffff:127.0.0.1]:80", "100.64.0.7:80", "169.254.1.1:80", "[fe80::1]:80"]
        {
            assert!(is_private(private), "{private}");
        }
        for public in ["203.0.113.1:80", "100.128.0.1:80", "[::ffff:203.0.113.1]:80", "[2001:db8::1]:80"] {
            assert!(!is_private(public), "{public}");
        }
    }
}
