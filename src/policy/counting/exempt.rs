//! Which subjects a policy exempts: it neither charges nor refuses them, whatever else they are.
//!
//! Lists may be long, so each is searched by halving: 100,000 networks take 18 steps.

use std::collections::BTreeSet;
use std::fmt;
use std::hint::black_box;
use std::net::IpAddr;

use ipnet::IpNet;

use crate::definition::{Dimension, ExemptDefinition};
use crate::keys::credential::push_value;
use crate::keys::subject::{Encoded, Subject};
use crate::request::carried_address;

/// The exemptions of one policy.
#[derive(Clone, Debug)]
pub(crate) struct Exemptions {
    /// In their order, and none within another.
    networks: Box<[IpNet]>,
    consumers: BTreeSet<String>,
    tenants: BTreeSet<String>,
    tiers: BTreeSet<String>,
    /// Headers and their values, in the form that a subject writes them.
    headers: Box<[(Dimension, Encoded)]>,
}

/// Why a policy exempts a subject. The value of a header is not shown, because it is a secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExemptEntry<'t> {
    Network(IpNet),
    Consumer(&'t str),
    Tenant(&'t str),
    Tier(&'t str),
    Header(&'t Dimension),
}

impl fmt::Display for ExemptEntry<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ExemptEntry::Network(network) => write!(formatter, "ip {network}"),
            ExemptEntry::Consumer(name) => write!(formatter, "consumer {name}"),
            ExemptEntry::Tenant(name) => write!(formatter, "tenant {name}"),
            ExemptEntry::Tier(name) => write!(formatter, "tier {name}"),
            ExemptEntry::Header(header) => write!(formatter, "{header}"),
        }
    }
}

impl Exemptions {
    /// `None` if the definition exempts nobody.
    pub(crate) fn new(definition: &ExemptDefinition) -> Option<Box<Exemptions>> {
        if *definition == ExemptDefinition::default() {
            return None;
        }
        let mut networks = definition.networks.clone();
        // A network comes right before those within it, because it has the same first address or a lower one, and is
        // wider.
        networks.sort_unstable();
        networks.dedup_by(|inner, outer| outer.contains(&*inner));
        let names = |names: &[String]| names.iter().cloned().collect();
        let headers = definition.headers.iter().map(|(name, value)| {
            let mut encoded = Encoded::new();
            push_value(name, value.as_bytes(), &mut encoded);
            (Dimension::Header(name.clone()), encoded)
        });
        Some(Box::new(Exemptions {
            networks: networks.into(),
            consumers: names(&definition.consumers),
            tenants: names(&definition.tenants),
            tiers: names(&definition.tiers),
            headers: headers.collect(),
        }))
    }

    /// Whether a part of them depends on who sent the request.
    pub(super) fn needs_identity(&self) -> bool {
        [&self.consumers, &self.tenants, &self.tiers].iter().any(|names| !names.is_empty())
    }

    /// The first entry that a subject matches.
    pub(super) fn entry(&self, subject: &impl Subject) -> Option<ExemptEntry<'_>> {
        let network = || {
            let address = subject.known_address()?;
            // As limits count it, and otherwise as it is, for a list that names the translator's own range.
            let mut forms = [carried_address(address), address].into_iter();
            forms
                .find_map(|address| covering(&self.networks, address, IpNet::network))
                .map(ExemptEntry::Network)
        };
        let header = |(header, value): &&(Dimension, Encoded)| {
            let mut own = Encoded::new();
            subject.write(header, &mut own) && is_equal(&own, value)
        };
        (!self.networks.is_empty())
            .then(network)
            .flatten()
            .or_else(|| listed(&self.consumers, subject.consumer()).map(ExemptEntry::Consumer))
            .or_else(|| listed(&self.tenants, subject.tenant()).map(ExemptEntry::Tenant))
            .or_else(|| listed(&self.tiers, subject.tier()).map(ExemptEntry::Tier))
            .or_else(|| Some(ExemptEntry::Header(&self.headers.iter().find(header)?.0)))
    }
}

fn listed<'n>(names: &'n BTreeSet<String>, own: Option<&str>) -> Option<&'n str> {
    names.get(own?).map(String::as_str)
}

/// The network that contains an address. `first` gives the first address of one.
fn covering(networks: &[IpNet], address: IpAddr, first: impl Fn(&IpNet) -> IpAddr) -> Option<IpNet> {
    let end = networks.partition_point(|network| first(network) <= address);
    networks[..end].last().filter(|network| network.contains(&address)).copied()
}

/// Whether two values are the same. Compares all bytes, so that the time does not say how many of a guess are right.
fn is_equal(one: &[u8], other: &[u8]) -> bool {
    let differing =
        one.iter().zip(other).fold(0, |differing, (one, other)| black_box(differing | (one ^ other)));
    one.len() == other.len() && differing == 0
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::net::Ipv4Addr;

    use super::*;

    #[test]
    fn an_address_among_a_hundred_thousand_networks_takes_eighteen_steps() {
        let first = |number: u32| Ipv4Addr::from_bits(0x0a00_0000 + 2 * number);
        let networks = (0..100_000).map(|number| IpNet::from(IpAddr::V4(first(number)))).collect();
        let exempt = ExemptDefinition { networks, ..ExemptDefinition::default() };
        let exempt = Exemptions::new(&exempt).expect("it exempts somebody");
        assert_eq!(exempt.networks.len(), 100_000);
        for number in [0, 1, 49_999, 77_777, 99_999] {
            for (address, is_exempt) in
                [(first(number), true), (Ipv4Addr::from_bits(first(number).to_bits() + 1), false)]
            {
                let steps = Cell::new(0);
                let counted = |network: &IpNet| {
                    steps.set(steps.get() + 1);
                    network.network()
                };
                let found = covering(&exempt.networks, address.into(), counted);
                assert_eq!(found, is_exempt.then(|| IpAddr::V4(address).into()), "{address}");
                assert!(steps.get() <= 18, "{} steps for {address}", steps.get());
            }
        }
    }

    #[test]
    fn a_network_within_another_hides_nothing_of_it() {
        let networks =
            ["10.1.0.0/16", "10.0.0.0/8", "10.1.2.3/32", "2001:db8::/32", "10.0.0.0/8", "9.0.0.0/8"];
        let networks = networks.map(|text| text.parse().expect("a network")).to_vec();
        let exempt = Exemptions::new(&ExemptDefinition { networks, ..ExemptDefinition::default() });
        let exempt = exempt.expect("it exempts somebody");
        let found = |address: &str| {
            let address = address.parse().expect("an address");
            covering(&exempt.networks, address, IpNet::network).map(|network| network.to_string())
        };
        for (address, network) in [
            ("10.1.2.4", Some("10.0.0.0/8")),
            ("10.255.0.1", Some("10.0.0.0/8")),
            ("9.255.255.255", Some("9.0.0.0/8")),
            ("8.255.255.255", None),
            ("11.0.0.0", None),
            ("2001:db8::1", Some("2001:db8::/32")),
            ("2001:db9::", None),
            ("::a00:1", None),
        ] {
            assert_eq!(found(address).as_deref(), network, "{address}");
        }
    }
}
