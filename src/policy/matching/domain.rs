//! Domains: which rule another proxy's descriptor meets, and so which policies decide about it.
//!
//! A descriptor is a list of entries, each a key and a value (`envoy.extensions.common.ratelimit.v3.RateLimitDescriptor`). It
//! matches the rule that has exactly the same entries, found by the walk that Envoy's own rate limit service documents. Nothing is
//! decided or counted here.

pub mod definition;
pub(crate) mod descriptor_template;
mod subject;
pub(crate) mod tree;

#[cfg(test)]
mod tests;

use std::collections::BTreeSet;

use smallvec::SmallVec;

use crate::definition::Dimension;
use crate::nat64::Nat64;
use base::ids::IdVec;
use definition::RuleId;
use descriptor_template::DescriptorTemplate;
use limit::PolicyId;
use tree::DomainTree;

pub use definition::DescriptorEntry;
pub(crate) use subject::ADDRESSES;
pub use subject::DescriptorSubject;

#[derive(Clone, Debug)]
pub struct CompiledDomain {
    pub(crate) name: Box<str>,
    /// Whether a descriptor's own limit counts.
    pub overrides: bool,
    pub(crate) rules: IdVec<RuleId, CompiledRule>,
    pub(crate) tree: DomainTree,
    /// Whether some rule counts instead of others.
    pub(crate) replaces: bool,
}

/// What is done about some descriptors.
#[derive(Clone, Debug)]
pub struct CompiledRule {
    pub(crate) id: RuleId,
    pub(crate) name: Option<Box<str>>,
    pub(crate) instead_of: Box<[Box<str>]>,
    pub(crate) verdict: RuleVerdict,
    pub(crate) policies: Box<[PolicyId]>,
    pub(crate) given: Box<[(Dimension, DescriptorTemplate)]>,
    pub(crate) tier: Option<DescriptorTemplate>,
    /// Whether one of its policies penalises clients.
    pub(crate) penalises: bool,
    /// Whether one of its policies has a candidate.
    pub(crate) tries: bool,
    pub(crate) nat64: Nat64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RuleVerdict {
    /// Its policies decide.
    Limited,
    Unlimited,
    /// None passes.
    Denied,
}

/// What a domain says about a descriptor.
#[derive(Clone, Copy, Debug)]
pub enum DescriptorMatch<'d> {
    /// No rule is for it: it passes, and nothing is counted.
    Unknown,
    /// It passes, and nothing is counted.
    Unlimited,
    /// It does not pass, ever.
    Denied,
    /// Another descriptor of the same request counts instead of it: it passes, and nothing is counted.
    Replaced,
    /// The policies of this rule decide.
    Limited(&'d CompiledRule),
}

impl CompiledDomain {
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its rules, as they were written.
    pub fn rules(&self) -> &[CompiledRule] {
        &self.rules
    }

    /// What it says about the only descriptor of a request.
    pub fn find(&self, entries: &[DescriptorEntry<'_>]) -> DescriptorMatch<'_> {
        self.rule(entries).map_or(DescriptorMatch::Unknown, CompiledRule::matched)
    }

    /// What it says about each descriptor of a request. A rule replaces another only if both match the
    /// same request.
    pub fn find_all<'e>(
        &self,
        descriptors: impl IntoIterator<Item = &'e [DescriptorEntry<'e>]>,
    ) -> SmallVec<[DescriptorMatch<'_>; 4]> {
        if !self.replaces {
            // One after the other, because no rule takes the place of another.
            return descriptors.into_iter().map(|entries| self.find(entries)).collect();
        }
        let rules = descriptors.into_iter().map(|entries| self.rule(entries));
        let rules: SmallVec<[Option<&CompiledRule>; 4]> = rules.collect();
        let replaced: BTreeSet<&str> =
            rules.iter().flatten().flat_map(|rule| &rule.instead_of).map(|name| &**name).collect();
        let is_replaced =
            |rule: &CompiledRule| rule.name.as_ref().is_some_and(|name| replaced.contains(&**name));
        let matched = rules.iter().map(|rule| match rule {
            None => DescriptorMatch::Unknown,
            Some(rule) if rule.verdict != RuleVerdict::Unlimited && is_replaced(rule) => {
                DescriptorMatch::Replaced
            }
            Some(rule) => rule.matched(),
        });
        matched.collect()
    }

    fn rule(&self, entries: &[DescriptorEntry<'_>]) -> Option<&CompiledRule> {
        self.rules.get(self.tree.find(entries)?)
    }
}

impl CompiledRule {
    pub fn id(&self) -> RuleId {
        self.id
    }

    pub fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    /// The policies that decide, in the order in which they are charged; their candidates are asked beside them.
    pub fn policies(&self) -> &[PolicyId] {
        &self.policies
    }

    /// The value that it gives a dimension; `None` if the dimension is left to the entries.
    fn given(&self, dimension: &Dimension) -> Option<&DescriptorTemplate> {
        self.given.iter().find(|(known, _)| known == dimension).map(|(_, template)| template)
    }

    fn matched(&self) -> DescriptorMatch<'_> {
        match self.verdict {
            RuleVerdict::Limited => DescriptorMatch::Limited(self),
            RuleVerdict::Unlimited => DescriptorMatch::Unlimited,
            RuleVerdict::Denied => DescriptorMatch::Denied,
        }
    }
}
