//! A descriptor as a subject of policies: its entries are its dimensions, and its rule gives what they do not say.
//!
//! Values are believed, because who sends descriptors is a proxy of the operator's own.

use std::net::IpAddr;
use std::num::NonZeroU64;
use std::sync::Arc;

use super::CompiledRule;
use super::definition::DescriptorEntry;
use super::descriptor_template::{DescriptorTemplate, write_values};
use crate::counting::rules::PolicyRules;
use crate::definition::Dimension;
use crate::keys::named_subject::stand_in;
use crate::keys::subject::{Encoded, Subject};
use crate::matching::host;
use base::identity::Identity;

#[derive(Clone, Debug)]
pub struct DescriptorSubject<'a> {
    rule: &'a CompiledRule,
    entries: &'a [DescriptorEntry<'a>],
    cost: Option<NonZeroU64>,
    /// `None` if the rule says nothing of one.
    identity: Option<Arc<Identity>>,
}

impl<'a> DescriptorSubject<'a> {
    /// The descriptor with these entries, which meets this rule; at this cost, or each policy's own.
    pub fn new(
        rule: &'a CompiledRule,
        entries: &'a [DescriptorEntry<'a>],
        cost: Option<NonZeroU64>,
    ) -> DescriptorSubject<'a> {
        let identity = says_who(rule).then(|| Arc::new(identity(rule, entries)));
        DescriptorSubject { rule, entries, cost, identity }
    }

    /// The same with the identity that `change` makes of it, if the rule says who it is.
    pub fn with_identity(self, change: impl FnOnce(Arc<Identity>) -> Arc<Identity>) -> DescriptorSubject<'a> {
        DescriptorSubject { identity: self.identity.map(change), ..self }
    }
}

impl Subject for DescriptorSubject<'_> {
    fn write(&self, dimension: &Dimension, out: &mut Encoded) -> bool {
        match (self.rule.given(dimension), dimension) {
            // Policies read `address` instead, because they cut it to their IPv6 prefix.
            (_, Dimension::Ip) => {}
            (Some(template), Dimension::Host) => {
                out.extend_from_slice(host::routed(&template.text(self.entries)).as_bytes());
            }
            (Some(template), _) => template.write(self.entries, out),
            (None, Dimension::Entry(key)) => write_values(key, self.entries, out),
            (None, _) => {}
        }
        true
    }

    /// The address that the rule or an entry says; of a descriptor without one an address that no other descriptor has.
    fn address(&self) -> IpAddr {
        let stand_in = || stand_in(self.entries.iter().map(|entry| (entry.key, entry.value)));
        self.known_address().unwrap_or_else(stand_in)
    }

    fn known_address(&self) -> Option<IpAddr> {
        let mut entries = self.entries.iter().filter(|entry| ADDRESSES.contains(&entry.key));
        let said = match self.rule.given(&Dimension::Ip) {
            Some(template) => address(&template.text(self.entries)),
            None => entries.find_map(|it| address(it.value)),
        };
        said.map(|address| self.rule.nat64.carried(address))
    }

    fn identity(&self) -> Option<&Identity> {
        self.identity.as_deref()
    }

    fn cost(&self, rules: &PolicyRules) -> u64 {
        self.cost.map_or(rules.cost.default, NonZeroU64::get)
    }
}

fn says_who(rule: &CompiledRule) -> bool {
    let says = |dimension| rule.given(&dimension).is_some();
    rule.tier.is_some() || says(Dimension::Consumer) || says(Dimension::Tenant)
}

fn identity(rule: &CompiledRule, entries: &[DescriptorEntry<'_>]) -> Identity {
    let text = |template: &DescriptorTemplate| {
        Some(template.text(entries).into_boxed_str()).filter(|it| !it.is_empty())
    };
    let given = |dimension| rule.given(&dimension).and_then(text);
    Identity {
        consumer: given(Dimension::Consumer),
        tenant: given(Dimension::Tenant),
        tier: rule.tier.as_ref().and_then(text),
        ..Identity::default()
    }
}

/// An address, or the first one of a network as `masked_remote_address` says it: `192.0.2.0/24`.
fn address(text: &str) -> Option<IpAddr> {
    let address = text.split_once('/').map_or(text, |(address, _)| address);
    address.parse().ok()
}

/// The entries that say the client's address.
pub(crate) const ADDRESSES: [&str; 2] = ["remote_address", "masked_remote_address"];
