//! Checks of a route against the client's address and identity. It does not authenticate; `auth` does.

use std::net::IpAddr;

use super::networks::Networks;
use super::request::carried_address;
use base::cause::Cause;
use base::identity::Identity;

/// What a route requires of an identity. Every list that is not empty must contain the identity's value.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Require {
    /// One of these. Empty: anyone.
    pub consumers: Vec<String>,
    /// Of one of these. Empty: of any.
    pub tenants: Vec<String>,
    /// On one of these. Empty: on any.
    pub tiers: Vec<String>,
    /// Claims, and what each must say one of.
    pub claims: Vec<(String, Vec<String>)>,
}

impl Require {
    /// Checks an identity.
    ///
    /// # Errors
    /// The first requirement that it does not meet.
    pub fn check(&self, identity: &Identity) -> Result<(), Cause> {
        let is_one = |wanted: &[String], own: Option<&str>| {
            wanted.is_empty() || own.is_some_and(|own| wanted.iter().any(|wanted| wanted == own))
        };
        let says = |(name, wanted): &(String, Vec<String>)| {
            identity.claims.find(name).is_some_and(|claim| wanted.iter().any(|wanted| claim.says(wanted)))
        };
        let asked = [
            (is_one(&self.consumers, identity.consumer.as_deref()), Cause::ConsumerNotAllowed),
            (is_one(&self.tenants, identity.tenant.as_deref()), Cause::TenantNotAllowed),
            (is_one(&self.tiers, identity.tier.as_deref()), Cause::TierNotAllowed),
            (self.claims.iter().all(says), Cause::ClaimNotAllowed),
        ];
        asked.into_iter().try_for_each(|(holds, cause)| if holds { Ok(()) } else { Err(cause) })
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AddressRules {
    /// Admits only these. Empty: all.
    pub allow: Networks,
    /// Denies these, even if `allow` has them.
    pub deny: Networks,
}

impl AddressRules {
    /// Whether a client is admitted. `client` must be canonical, that is, not an IPv4-mapped IPv6 address. Behind a
    /// translator both its address and the IPv4 address that this carries count.
    pub fn admit(&self, client: IpAddr) -> bool {
        let forms = [client, carried_address(client)];
        let has = |networks: &Networks| forms.iter().any(|ip| networks.containing(*ip).is_some());
        !has(&self.deny) && (self.allow.is_empty() || has(&self.allow))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::identity::Claim;

    fn networks(texts: &[&str]) -> Networks {
        texts.iter().map(|text| text.parse().expect("a network")).collect::<Vec<_>>().into()
    }

    #[test]
    fn deny_wins_over_allow_and_an_empty_list_allows_all() {
        let admits = |allow: &[&str], deny: &[&str], client: &str| {
            let addresses = AddressRules { allow: networks(allow), deny: networks(deny) };
            addresses.admit(client.parse().expect("an address"))
        };
        assert!(admits(&[], &[], "192.0.2.1"));
        assert!(!admits(&[], &["192.0.2.0/24"], "64:ff9b::192.0.2.1"), "behind a translator");
        assert!(!admits(&[], &["64:ff9b::/96"], "64:ff9b::192.0.2.1"));
        assert!(admits(&[], &["192.0.2.0/24"], "64:ff9b::198.51.100.1"));
        assert!(admits(&["192.0.2.0/24"], &[], "64:ff9b::192.0.2.1"));
        assert!(!admits(&["192.0.2.0/24"], &[], "64:ff9b::198.51.100.1"));
        assert!(admits(&["192.0.2.0/24"], &[], "192.0.2.1"));
        assert!(!admits(&["192.0.2.0/24"], &[], "198.51.100.1"));
        assert!(!admits(&["192.0.2.0/24"], &["192.0.2.1/32"], "192.0.2.1"));
        assert!(admits(&["192.0.2.0/24"], &["192.0.2.1/32"], "192.0.2.2"));
        assert!(!admits(&["0.0.0.0/0"], &[], "2001:db8::1"), "IPv6 is not in it");
    }

    #[test]
    fn everything_must_hold_and_of_a_list_any() {
        let caller = Identity {
            consumer: Some("ann".into()),
            tenant: Some("acme".into()),
            tier: None,
            claims: [("roles".into(), Claim::Many(["dev".into(), "ops".into()].into()))]
                .into_iter()
                .collect(),
        };
        let list = |texts: &[&str]| texts.iter().map(|&text| text.to_owned()).collect::<Vec<_>>();
        let claims = |name: &str, texts: &[&str]| vec![(name.to_owned(), list(texts))];
        let none = Require::default;
        assert!(none().check(&caller).is_ok() && none().check(&Identity::default()).is_ok());
        assert!(
            Require { consumers: list(&["bob", "ann"]), tenants: list(&["acme"]), ..none() }
                .check(&caller)
                .is_ok()
        );
        assert!(
            Require { consumers: list(&["ann"]), tenants: list(&["other"]), ..none() }
                .check(&caller)
                .is_err()
        );
        assert!(Require { tiers: list(&["pro"]), ..none() }.check(&caller).is_err(), "it has none");
        assert!(Require { claims: claims("roles", &["admin", "ops"]), ..none() }.check(&caller).is_ok());
        assert!(Require { claims: claims("roles", &["admin"]), ..none() }.check(&caller).is_err());
        assert!(Require { claims: claims("role", &["ops"]), ..none() }.check(&caller).is_err());
    }
}
