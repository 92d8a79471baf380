//! IPv4 addresses inside IPv6 ones: the prefixes of translators (RFC 6052).

use std::cmp::Reverse;
use std::net::{IpAddr, Ipv4Addr};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

/// Prefixes of translators beside the well-known one, which [`carried_address`](super::request::carried_address) knows; the
/// longest first, because one within another is of a translator of its own.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Nat64(Vec<Ipv6Net>);

impl Nat64 {
    /// Whether a prefix of this length can carry an IPv4 address (RFC 6052 section 2.2).
    pub fn is_length(prefix_len: u8) -> bool {
        LENGTHS.contains(&prefix_len)
    }

    /// `prefixes` have lengths of which `is_length` holds.
    pub fn new(mut prefixes: Vec<Ipv6Net>) -> Nat64 {
        prefixes.sort_by_key(|prefix| Reverse(prefix.prefix_len()));
        Nat64(prefixes)
    }

    /// Whether addresses of a network are behind one of these translators.
    pub fn has(&self, network: &IpNet) -> bool {
        matches!(network, IpNet::V6(network) if self.0.iter().any(|prefix| prefix.contains(network)))
    }

    /// The IPv4 network whose clients a network behind one of these translators stands for; else the network itself. `None`:
    /// it is all that a translator has, which would be every IPv4 address.
    pub fn carried_network(&self, network: IpNet) -> Option<IpNet> {
        let Some(prefix) = self.0.iter().find(|prefix| IpNet::V6(**prefix).contains(&network)) else {
            return Some(network);
        };
        let IpAddr::V4(address) = self.carried(network.addr()) else { return Some(network) };
        let (length, of_prefix) = (network.prefix_len(), prefix.prefix_len());
        // Without the bits that are skipped.
        let skipped = if of_prefix == 96 { 0 } else { length.saturating_sub(64).min(8) };
        let bits = (length - skipped - of_prefix).min(32);
        let network = Ipv4Net::new(address, bits).ok().filter(|_| bits > 0)?;
        Some(IpNet::V4(network.trunc()))
    }

    /// The IPv4 address that a translator of these prefixes has put into an IPv6 one; else the address itself.
    pub fn carried(&self, address: IpAddr) -> IpAddr {
        let IpAddr::V6(ip) = address else { return address };
        let Some(prefix) = self.0.iter().find(|prefix| prefix.contains(&ip)) else { return address };
        let bits = ip.to_bits();
        // Bits 64 to 71 are skipped, because they are zero in every such address (RFC 6052 section 2.2).
        let kept = (bits >> 64 << 56) | (bits & ((1 << 56) - 1));
        let behind = match prefix.prefix_len() {
            96 => bits as u32,
            length => (kept << length >> 88) as u32,
        };
        IpAddr::V4(Ipv4Addr::from_bits(behind))
    }
}

const LENGTHS: [u8; 6] = [32, 40, 48, 56, 64, 96];

#[cfg(test)]
mod tests {
    use super::*;

    /// The examples of RFC 6052 section 2.4.
    #[test]
    fn every_length_carries_the_address_where_the_rfc_puts_it() {
        let carried = |prefix: &str, address: &str| {
            let nat64 = Nat64::new(vec![prefix.parse().expect("a prefix")]);
            nat64.carried(address.parse().expect("an address")).to_string()
        };
        for (prefix, address) in [
            ("2001:db8::/32", "2001:db8:c000:221::"),
            ("2001:db8:100::/40", "2001:db8:1c0:2:21::"),
            ("2001:db8:122::/48", "2001:db8:122:c000:2:2100::"),
            ("2001:db8:122:300::/56", "2001:db8:122:3c0:0:221::"),
            ("2001:db8:122:344::/64", "2001:db8:122:344:c0:2:2100::"),
            ("2001:db8:122:344::/96", "2001:db8:122:344::192.0.2.33"),
        ] {
            assert_eq!(carried(prefix, address), "192.0.2.33", "{prefix}");
        }
        assert_eq!(carried("64:ff9b:1::/48", "2001:db8::1"), "2001:db8::1", "of no translator");
        assert_eq!(carried("2001:db8::/32", "192.0.2.7"), "192.0.2.7");
    }

    #[test]
    fn the_longest_of_two_prefixes_is_that_of_the_translator() {
        let prefixes = ["2001:db8::/32", "2001:db8:122::/48"].map(|prefix| prefix.parse().expect("a prefix"));
        let nat64 = Nat64::new(prefixes.to_vec());
        let address = "2001:db8:122:c000:2:2100::".parse().expect("an address");
        assert_eq!(nat64.carried(address).to_string(), "192.0.2.33");
    }

    #[test]
    fn a_network_behind_a_translator_is_one_of_ipv4() {
        let carried = |prefix: &str, network: &str| {
            let nat64 = Nat64::new(vec![prefix.parse().expect("a prefix")]);
            let network = nat64.carried_network(network.parse().expect("a network"));
            network.map_or("all".to_owned(), |network| network.to_string())
        };
        for (prefix, network, said) in [
            ("2001:db8:64::/96", "2001:db8:64::c000:221/128", "192.0.2.33/32"),
            ("2001:db8:64::/96", "2001:db8:64::c000:200/120", "192.0.2.0/24"),
            ("2001:db8:64::/96", "2001:db8:64::/96", "all"),
            ("2001:db8:64::/96", "2001:db8::/32", "2001:db8::/32"),
            ("2001:db8:64::/96", "192.0.2.0/24", "192.0.2.0/24"),
            ("2001:db8::/32", "2001:db8:c000:200::/56", "192.0.2.0/24"),
            ("2001:db8::/32", "2001:db8:c000:221::9/128", "192.0.2.33/32"),
            ("2001:db8:122:300::/56", "2001:db8:122:3c0::/64", "192.0.0.0/8"),
            ("2001:db8:122:300::/56", "2001:db8:122:3c0:0:200::/88", "192.0.2.0/24"),
            ("2001:db8:122:344::/64", "2001:db8:122:344::/72", "all"),
        ] {
            assert_eq!(carried(prefix, network), said, "{network} of {prefix}");
        }
    }
}
