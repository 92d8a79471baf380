//! Address ranges, among which an address is found by halving: among 100,000 it takes 18 steps.

use std::net::IpAddr;

use ipnet::IpNet;

/// Address ranges in their order, none within another.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Networks(Box<[IpNet]>);

impl Networks {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn all(&self) -> &[IpNet] {
        &self.0
    }

    /// The range that contains an address.
    pub fn containing(&self, address: IpAddr) -> Option<IpNet> {
        covering(&self.0, address, IpNet::network)
    }
}

impl From<Vec<IpNet>> for Networks {
    fn from(mut networks: Vec<IpNet>) -> Networks {
        // A network comes right before those within it, because it has the same first address or a lower one, and is
        // wider.
        networks.sort_unstable();
        networks.dedup_by(|inner, outer| outer.contains(&*inner));
        Networks(networks.into())
    }
}

/// The network that contains an address. `first` gives the first address of one.
fn covering(networks: &[IpNet], address: IpAddr, first: impl Fn(&IpNet) -> IpAddr) -> Option<IpNet> {
    let end = networks.partition_point(|network| first(network) <= address);
    networks[..end].last().filter(|network| network.contains(&address)).copied()
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::net::Ipv4Addr;

    use super::*;

    #[test]
    fn an_address_among_a_hundred_thousand_networks_takes_eighteen_steps() {
        let first = |number: u32| Ipv4Addr::from_bits(0x0a00_0000 + 2 * number);
        let networks: Vec<IpNet> = (0..100_000).map(|number| IpAddr::V4(first(number)).into()).collect();
        let networks = Networks::from(networks);
        assert_eq!(networks.0.len(), 100_000);
        for number in [0, 1, 49_999, 77_777, 99_999] {
            for (address, is_exempt) in
                [(first(number), true), (Ipv4Addr::from_bits(first(number).to_bits() + 1), false)]
            {
                let steps = Cell::new(0);
                let counted = |network: &IpNet| {
                    steps.set(steps.get() + 1);
                    network.network()
                };
                let found = covering(&networks.0, address.into(), counted);
                assert_eq!(found, is_exempt.then(|| IpAddr::V4(address).into()), "{address}");
                assert!(steps.get() <= 18, "{} steps for {address}", steps.get());
            }
        }
    }

    #[test]
    fn a_network_within_another_hides_nothing_of_it() {
        let networks =
            ["10.1.0.0/16", "10.0.0.0/8", "10.1.2.3/32", "2001:db8::/32", "10.0.0.0/8", "9.0.0.0/8"];
        let networks = Networks::from(networks.map(|text| text.parse().expect("a network")).to_vec());
        let found = |address: &str| {
            let address = address.parse().expect("an address");
            networks.containing(address).map(|network| network.to_string())
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
