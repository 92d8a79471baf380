//! Whose address nginx takes for a client's: `set_real_ip_from` and `real_ip_header`.
//!
//! The gateway trusts the same hops everywhere, and reads X-Forwarded-For alone. Lists of addresses that are about others
//! than the gateway's clients close their place.

use super::lexer::Directive;
use super::scope::Scope;
use super::values::network;

/// Where the address of a client comes from at a place.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct RealIp {
    /// Hops that are believed. Empty: none, the address is the connection's.
    pub(super) from: Vec<String>,
    /// In lower case; empty without hops.
    pub(super) header: String,
}

impl RealIp {
    pub(super) fn of(scope: &Scope<'_>) -> RealIp {
        let hop = |hop: &&Directive| match hop.arg(0) {
            "unix:" => "unix".to_owned(),
            address => network(address),
        };
        let from: Vec<String> = scope.all("set_real_ip_from").iter().map(hop).collect();
        if from.is_empty() {
            return RealIp::default();
        }
        let header = scope.last("real_ip_header").map_or("x-real-ip", |header| header.arg(0));
        RealIp { from, header: header.to_ascii_lowercase() }
    }

    /// Whether `client-ip.trust` says the same.
    pub(super) fn is_trust(&self) -> bool {
        let is_address = |hop: &String| {
            hop == "unix" || hop.parse::<ipnet::IpNet>().is_ok() || hop.parse::<std::net::IpAddr>().is_ok()
        };
        self.header == "x-forwarded-for" && self.from.iter().all(is_address)
    }
}
