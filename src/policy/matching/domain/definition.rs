//! `[rls.<name>]` as a configuration defines it, before it is compiled: policies are still names, values still templates.

use crate::definition::Dimension;

base::id! {
    /// A domain: its position among the definitions that a table is compiled from.
    DomainId
}

base::id! {
    /// A rule: its position in its domain, as it is defined and compiled.
    RuleId
}

/// The descriptors that other proxies ask about under one name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DomainDefinition {
    /// Unique name, as requests have it.
    pub name: String,
    /// Whether a descriptor's own limit counts instead of those of its policies.
    pub overrides: bool,
    /// Its rules; their order decides nothing.
    pub rules: Vec<RuleDefinition>,
}

/// What is done about some descriptors.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RuleDefinition {
    pub name: Option<String>,
    /// Names of rules that do not count where a request matches them beside this one.
    pub instead_of: Vec<String>,
    /// What the entries of a descriptor must be, one for each.
    pub entries: Vec<EntryMatch>,
    /// Whether the entries must come in this order.
    pub is_ordered: bool,
    /// What the entries say beside themselves, as text with names of entries in braces.
    pub given: Vec<(DescriptorSlot, String)>,
    pub verdict: VerdictDefinition,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EntryMatch {
    pub key: String,
    pub value: ValueMatch,
}

/// An entry of a descriptor, as another proxy sends it. Nothing is read into its text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DescriptorEntry<'a> {
    pub key: &'a str,
    pub value: &'a str,
}

/// What the value of an entry must be.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, derive_more::Display)]
pub enum ValueMatch {
    Exact(String),
    /// A text that begins with this one.
    #[display("{_0}*")]
    Prefix(String),
    #[display("*")]
    Any,
}

impl ValueMatch {
    /// Reads it as it is written: `*` is any text, `static/*` any that begins so.
    pub fn parse(text: &str) -> ValueMatch {
        match text.strip_suffix('*') {
            Some("") => ValueMatch::Any,
            Some(prefix) => ValueMatch::Prefix(prefix.to_owned()),
            None => ValueMatch::Exact(text.to_owned()),
        }
    }
}

/// What a descriptor can be told to say.
#[derive(Clone, Debug, PartialEq, Eq, derive_more::Display)]
pub enum DescriptorSlot {
    Dimension(Dimension),
    #[display("tier")]
    Tier,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum VerdictDefinition {
    /// These policies decide, at least one.
    Limited(Vec<String>),
    Unlimited,
    #[default]
    Denied,
}
