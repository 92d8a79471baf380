//! Domains of descriptors: what their rules match, which policies they name, and whether a descriptor says all that these
//! policies count by.

use std::collections::{HashMap, HashSet};

use super::candidates;
use super::errors::{CompileErrors, PlaceErrors};
use crate::counting::Policy;
use crate::definition::{self, Dimension};
use crate::error::{DefinitionPlace, DefinitionProblem};
use crate::matching::domain::definition::{
    DescriptorSlot, DomainDefinition as Written, EntryMatch, RuleDefinition as WrittenRule,
    VerdictDefinition as WrittenVerdict,
};
use crate::matching::domain::definition::{DomainId, RuleId};
use crate::matching::domain::descriptor_template::DescriptorTemplate;
use crate::matching::domain::tree::DomainTree;
use crate::matching::domain::{ADDRESSES, CompiledDomain, CompiledRule, RuleVerdict};
use crate::nat64::Nat64;
use crate::route::RouteId;
use base::words::did_you_mean;
use limit::{Algorithm, PolicyId, Quota, Trial};

pub(super) fn compile(
    domains: &[Written],
    policies: &[definition::PolicyDefinition],
    errors: &mut CompileErrors,
) -> Vec<CompiledDomain> {
    let places = (0..).map(|id| DefinitionPlace::Domain(DomainId::new(id)));
    errors.check_names(domains.iter().map(|domain| &*domain.name).zip(places));
    if domains.is_empty() {
        return Vec::new();
    }
    let names = DomainNames::new(policies);
    domains
        .iter()
        .zip((0..).map(DomainId::new))
        .map(|(domain, id)| domain_of(domain, &names, &mut errors.at(DefinitionPlace::Domain(id))))
        .collect()
}

/// Reports routes with a policy that counts by entries of descriptors, because requests have none.
pub(super) fn check_routes(
    routes: &[definition::RouteDefinition],
    policies: &[definition::PolicyDefinition],
    errors: &mut CompileErrors,
) {
    let entry_of = |policy: &definition::PolicyDefinition| {
        policy.by.iter().find(|by| matches!(by, Dimension::Entry(_))).map(ToString::to_string)
    };
    let of_entries: HashMap<&str, String> =
        policies.iter().filter_map(|policy| Some((policy.name.as_str(), entry_of(policy)?))).collect();
    if of_entries.is_empty() {
        return;
    }
    for (route, id) in routes.iter().zip((0..).map(RouteId::new)) {
        for (number, name) in route.limits.iter().enumerate() {
            let Some(dimension) = of_entries.get(name.as_str()) else { continue };
            let problem =
                DefinitionProblem::EntryOnRoute { name: name.clone(), dimension: dimension.clone() };
            errors.at(DefinitionPlace::Route(id)).add(format!("limit[{number}]"), problem);
        }
    }
}

/// Tells each rule what its policies ask for.
pub(super) fn link<'d>(domains: impl Iterator<Item = &'d mut CompiledDomain>, policies: &[Policy]) {
    for rule in domains.flat_map(|domain| domain.rules.iter_mut()) {
        let all = || candidates::with_candidates(&rule.policies, policies);
        rule.penalises = all().any(|policy| policy.penalty.is_some());
        rule.tries = all().any(|policy| policy.replaces.is_some() || policy.is_changing());
    }
}

struct DomainNames<'d> {
    policies: &'d [definition::PolicyDefinition],
    by_name: HashMap<&'d str, PolicyId>,
    tried: HashSet<&'d str>,
}

impl<'d> DomainNames<'d> {
    fn new(policies: &'d [definition::PolicyDefinition]) -> DomainNames<'d> {
        let replaced = policies.iter().filter_map(|policy| policy.replaces.as_ref());
        DomainNames {
            policies,
            by_name: policies
                .iter()
                .map(|policy| policy.name.as_str())
                .zip((0..).map(PolicyId::new))
                .collect(),
            tried: replaced.map(|replaces| replaces.policy.as_str()).collect(),
        }
    }
}

/// A key of a rule, below its domain.
fn rule_key(rule: RuleId, key: &str) -> String {
    format!("descriptors[{}].{key}", rule.index())
}

fn domain_of(domain: &Written, names: &DomainNames<'_>, errors: &mut PlaceErrors<'_>) -> CompiledDomain {
    let mut tree = DomainTree::new();
    let named: Vec<&str> = domain.rules.iter().filter_map(|rule| rule.name.as_deref()).collect();
    let mut rules = Vec::with_capacity(domain.rules.len());
    for (rule, own) in domain.rules.iter().zip((0..).map(RuleId::new)) {
        let mut wrong = |key: &str, problem| errors.add(rule_key(own, key), problem);
        if let Err(problem) = plant(&mut tree, rule, own) {
            wrong("entries", problem);
        }
        for name in rule.instead_of.iter().filter(|name| !named.contains(&name.as_str())) {
            let problem = DefinitionProblem::UnknownRule { name: name.clone(), hint: hint(name, &named) };
            wrong("instead-of", problem);
        }
        if let Some(own) = rule.name.as_ref().filter(|own| rule.instead_of.contains(own)) {
            wrong("instead-of", DefinitionProblem::InsteadOfItself { name: own.clone() });
        }
        rules.push(rule_of(rule, own, names, errors));
    }
    tree.finish();
    CompiledDomain {
        name: domain.name.as_str().into(),
        overrides: domain.overrides,
        replaces: rules.iter().any(|rule| !rule.instead_of.is_empty()),
        rules: rules.into(),
        tree,
    }
}

/// Puts a rule into the tree: once, or in every order of its entries.
fn plant(tree: &mut DomainTree, rule: &WrittenRule, id: RuleId) -> Result<(), DefinitionProblem> {
    if rule.entries.is_empty() {
        return Err(DefinitionProblem::NoEntries);
    }
    if rule.entries.len() > ENTRIES_MAX {
        return Err(DefinitionProblem::TooMany { what: "entries in one rule", max: ENTRIES_MAX });
    }
    if rule.is_ordered || rule.entries.len() == 1 {
        return tree
            .insert(&rule.entries, id)
            .map_err(|other| DefinitionProblem::RuleTwice { other: other.index() });
    }
    if rule.entries.len() > UNORDERED_MAX {
        return Err(DefinitionProblem::UnorderedEntries { max: UNORDERED_MAX });
    }
    let mut entries: Vec<&EntryMatch> = rule.entries.iter().collect();
    permuted(&mut entries, 0, &mut |entries| tree.insert(entries.iter().copied(), id))
        .map_err(|other| DefinitionProblem::RuleTwice { other: other.index() })
}

/// Calls with every order of what stands from `from` on.
fn permuted<T, E>(
    items: &mut [T],
    from: usize,
    call: &mut impl FnMut(&[T]) -> Result<(), E>,
) -> Result<(), E> {
    if from == items.len() {
        return call(items);
    }
    for at in from..items.len() {
        items.swap(from, at);
        let called = permuted(items, from + 1, call);
        items.swap(from, at);
        called?;
    }
    Ok(())
}

fn rule_of(
    rule: &WrittenRule,
    id: RuleId,
    names: &DomainNames<'_>,
    errors: &mut PlaceErrors<'_>,
) -> CompiledRule {
    let given = given_of(rule, id, errors);
    let (verdict, limits): (_, &[String]) = match &rule.verdict {
        WrittenVerdict::Limited(limits) => (RuleVerdict::Limited, limits),
        WrittenVerdict::Unlimited => (RuleVerdict::Unlimited, &[]),
        WrittenVerdict::Denied => (RuleVerdict::Denied, &[]),
    };
    let mut policies: Vec<PolicyId> = Vec::new();
    let mut tried = 0;
    for (index, name) in limits.iter().enumerate() {
        let key = rule_key(id, &format!("limit[{index}]"));
        let mut wrong = |problem| errors.add(key.as_str(), problem);
        let Some(&policy) = names.by_name.get(name.as_str()) else {
            wrong(DefinitionProblem::UnknownPolicy { name: name.clone() });
            continue;
        };
        if policies.contains(&policy) {
            wrong(DefinitionProblem::PolicyTwice { name: name.clone() });
            continue;
        }
        policies.push(policy);
        tried += usize::from(names.tried.contains(name.as_str()));
        if tried == Trial::MAX + 1 {
            wrong(DefinitionProblem::TooMany {
                what: "policies of one rule that have a candidate",
                max: Trial::MAX,
            });
        }
        check_policy(rule, &names.policies[policy.index()], &mut wrong);
    }
    let used = |given: &DescriptorSlot| match given {
        // Always used, because an identity selects the override, and an address is counted while Redis is down.
        DescriptorSlot::Tier
        | DescriptorSlot::Dimension(Dimension::Consumer | Dimension::Tenant | Dimension::Ip) => true,
        DescriptorSlot::Dimension(dimension) => {
            policies.iter().any(|policy| names.policies[policy.index()].by.contains(dimension))
        }
    };
    // Only if all policies are known, because a missing one may be what uses it.
    let is_known = policies.len() == limits.len();
    for (given, _) in rule.given.iter().filter(|(given, _)| is_known && !used(given)) {
        let problem = DefinitionProblem::GivenInVain { dimension: given.to_string() };
        errors.add(rule_key(id, &format!("dimensions.{given}")), problem);
    }
    let tier =
        given.iter().find(|(given, _)| *given == DescriptorSlot::Tier).map(|(_, template)| template.clone());
    let dimensions = given.into_iter().filter_map(|(given, template)| match given {
        DescriptorSlot::Dimension(dimension) => Some((dimension, template)),
        DescriptorSlot::Tier => None,
    });
    CompiledRule {
        id,
        name: rule.name.as_deref().map(Box::from),
        instead_of: rule.instead_of.iter().map(|name| name.as_str().into()).collect(),
        verdict,
        policies: policies.into(),
        given: dimensions.collect(),
        tier,
        penalises: false,
        tries: false,
        nat64: Nat64::default(),
    }
}

/// The templates of a rule. One that is wrong, or names an entry that the rule does not have, is reported.
fn given_of(
    rule: &WrittenRule,
    id: RuleId,
    errors: &mut PlaceErrors<'_>,
) -> Vec<(DescriptorSlot, DescriptorTemplate)> {
    let keys = keys_of(rule);
    let mut all = Vec::with_capacity(rule.given.len());
    for (given, text) in &rule.given {
        let key_of_given = rule_key(id, &format!("dimensions.{given}"));
        let template = match DescriptorTemplate::parse(text) {
            Ok(template) => template,
            Err(error) => {
                errors.add(key_of_given.as_str(), error);
                // Empty, so that no second error is about what it would have given.
                DescriptorTemplate::default()
            }
        };
        for key in template.keys().filter(|key| !keys.contains(key)) {
            let problem = DefinitionProblem::UnknownEntry { key: key.to_owned(), hint: hint(key, &keys) };
            errors.add(key_of_given.as_str(), problem);
        }
        all.push((given.clone(), template));
    }
    all
}

/// Reports what a policy asks for that a descriptor of the rule does not say.
fn check_policy(
    rule: &WrittenRule,
    policy: &definition::PolicyDefinition,
    wrong: &mut impl FnMut(DefinitionProblem),
) {
    let name = || policy.name.clone();
    if let Some(replaces) = &policy.replaces {
        return wrong(DefinitionProblem::RouteNamesCandidate {
            name: name(),
            replaces: replaces.policy.clone(),
        });
    }
    let waits =
        |window: &Quota| matches!(window.algorithm(), Algorithm::Concurrency | Algorithm::LeakyBucket);
    if policy.windows.iter().any(waits) {
        wrong(DefinitionProblem::EndlessDescriptor { name: name() });
    }
    let keys = keys_of(rule);
    for dimension in &policy.by {
        let is_given =
            rule.given.iter().any(|(given, _)| *given == DescriptorSlot::Dimension(dimension.clone()));
        let is_said = match dimension {
            Dimension::Entry(key) => keys.contains(&key.as_str()),
            Dimension::Ip => keys.iter().any(|key| ADDRESSES.contains(key)),
            _ => false,
        };
        if is_given || is_said {
            continue;
        }
        let problem = match dimension {
            Dimension::Entry(key) => {
                DefinitionProblem::EntryNotInRule { policy: name(), key: key.clone(), hint: hint(key, &keys) }
            }
            _ => DefinitionProblem::DimensionNotGiven { policy: name(), dimension: dimension.to_string() },
        };
        wrong(problem);
    }
}

fn keys_of(rule: &WrittenRule) -> Vec<&str> {
    rule.entries.iter().map(|entry| entry.key.as_str()).collect()
}

fn hint(key: &str, keys: &[&str]) -> String {
    did_you_mean(key, keys).map(|hint| format!("; {hint}")).unwrap_or_default()
}

const ENTRIES_MAX: usize = 32;
/// Entries that may come in any order; no more, because each order is a branch of its own, 24 of four.
const UNORDERED_MAX: usize = 4;
