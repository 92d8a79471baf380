//! Which subjects a policy exempts: it neither charges nor refuses them, whatever else they are.

use std::collections::BTreeSet;

use ipnet::IpNet;
use subtle::ConstantTimeEq;

use crate::definition::{Dimension, ExemptDefinition};
use crate::keys::subject::{Encoded, Subject, push_value};
use crate::networks::Networks;
use crate::request::carried_address;

#[derive(Clone, Debug)]
pub(crate) struct Exemptions {
    networks: Networks,
    consumers: BTreeSet<String>,
    tenants: BTreeSet<String>,
    tiers: BTreeSet<String>,
    /// Headers and their values, in the form that a subject writes them.
    headers: Box<[(Dimension, Encoded)]>,
}

/// Why a policy exempts a subject. The value of a header is not shown, because it is a secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq, derive_more::Display)]
pub enum ExemptEntry<'t> {
    #[display("ip {_0}")]
    Network(IpNet),
    #[display("consumer {_0}")]
    Consumer(&'t str),
    #[display("tenant {_0}")]
    Tenant(&'t str),
    #[display("tier {_0}")]
    Tier(&'t str),
    Header(&'t Dimension),
}

impl Exemptions {
    /// `None` if the definition exempts nobody.
    pub(crate) fn new(definition: &ExemptDefinition) -> Option<Box<Exemptions>> {
        if *definition == ExemptDefinition::default() {
            return None;
        }
        let names = |names: &[String]| names.iter().cloned().collect();
        let headers = definition.headers.iter().map(|(name, value)| {
            let mut encoded = Encoded::new();
            push_value(name, value.as_bytes(), &mut encoded);
            (Dimension::Header(name.clone()), encoded)
        });
        Some(Box::new(Exemptions {
            networks: definition.networks.clone().into(),
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

    pub(super) fn entry(&self, subject: &impl Subject) -> Option<ExemptEntry<'_>> {
        let network = || {
            let address = subject.known_address()?;
            // As limits count it, and otherwise as it is, for a list that names the translator's own range.
            let mut forms = [carried_address(address), address].into_iter();
            forms.find_map(|address| self.networks.containing(address)).map(ExemptEntry::Network)
        };
        let header = |(header, value): &&(Dimension, Encoded)| {
            let mut own = Encoded::new();
            // Compares all bytes, so that the time does not say how many of a guess are right.
            subject.write(header, &mut own) && own.as_slice().ct_eq(value).into()
        };
        network()
            .or_else(|| Some(ExemptEntry::Consumer(self.consumers.get(subject.consumer()?)?)))
            .or_else(|| Some(ExemptEntry::Tenant(self.tenants.get(subject.tenant()?)?)))
            .or_else(|| Some(ExemptEntry::Tier(self.tiers.get(subject.tier()?)?)))
            .or_else(|| Some(ExemptEntry::Header(&self.headers.iter().find(header)?.0)))
    }
}
