//! Compiles definitions into a table: resolves names, parses patterns, collects every error.
//!
//! This file checks what concerns several definitions; checks of a single one are in `policies.rs` and `routes.rs`. No
//! error stops it: all errors of all definitions are returned at once.

mod candidates;
mod domains;
mod errors;
mod options;
mod outgoing;
mod policies;
mod routes;
mod ties;

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, OnceLock};

use super::counting::Policy;
use super::definition::{self, Dimension};
use super::error::{DefinitionPlace, DefinitionProblem, Error};
use super::list_field::join_items;
use super::matching::domain;
use super::matching::host::Hosts;
use super::matching::tree::{ANY_HOST, Tree};
use super::route::{Route, RouteId};
use super::table::{RouteTable, precedence};
use crate::json::JsonPath;
use errors::CompileErrors;
use limit::PolicyId;
use options::{POLICIES_MAX, ROUTES_MAX};

pub use options::CompileOptions;

impl RouteTable {
    /// Compiles routes and policies.
    ///
    /// # Errors
    /// Everything that is wrong, with its place; never empty.
    pub fn compile(
        routes: &[definition::RouteDefinition],
        policies: &[definition::PolicyDefinition],
        options: &CompileOptions<'_>,
    ) -> Result<RouteTable, Vec<Error>> {
        RouteTable::with_domains(routes, policies, &[], options)
    }

    /// Compiles routes, policies and domains of descriptors.
    ///
    /// # Errors
    /// Everything that is wrong, with its place; never empty.
    pub fn with_domains(
        routes: &[definition::RouteDefinition],
        policies: &[definition::PolicyDefinition],
        domains: &[domain::definition::DomainDefinition],
        options: &CompileOptions<'_>,
    ) -> Result<RouteTable, Vec<Error>> {
        let mut errors = CompileErrors::default();
        check_counts(routes.len(), policies.len(), &mut errors);
        if !errors.found.is_empty() {
            return Err(errors.found);
        }
        let mut compiled_policies = policies::compile(policies, options, &mut errors);
        candidates::join(policies, routes, &mut compiled_policies, &mut errors);
        let mut compiled_routes = routes::compile(routes, policies, options, &mut errors);
        check_params(routes, policies, &compiled_routes, &mut errors);
        domains::check_routes(routes, policies, &mut errors);
        let mut domains = domains::compile(domains, policies, &mut errors);
        let (hosts, mut tree) = plant(&compiled_routes);
        ties::check(&mut tree, &compiled_routes, &mut errors);
        if !errors.found.is_empty() {
            return Err(errors.found);
        }
        let policies: Box<[Policy]> = compiled_policies.into_iter().flatten().collect();
        domains::link(domains.iter_mut(), &policies);
        let domains = domains.into_iter().map(|domain| (domain.name.clone(), domain)).collect();
        let mut choices = 0;
        for route in compiled_routes.iter_mut().flatten() {
            route.number_choices(&mut choices);
            route.follow(&policies);
        }
        let routes: Box<[Route]> = compiled_routes.into_iter().flatten().collect();
        for leaf in tree.leaves() {
            leaf.sort_by_key(|id| precedence(&routes[id.index()]));
        }
        Ok(RouteTable {
            routes,
            policies,
            domains,
            hosts,
            tree,
            choices,
            over_ns: None,
            by_name: OnceLock::new(),
        })
    }
}

impl Route {
    /// Takes from its policies what a request has to know of them together.
    fn follow(&mut self, policies: &[Policy]) {
        let own = || self.policies.iter().map(|&policy| &policies[policy.index()]);
        let all = || candidates::with_candidates(&self.policies, policies);
        self.holds = all().any(Policy::holds);
        self.remembers = all().any(|policy| policy.idempotency.is_some());
        self.penalises = all().any(|policy| policy.penalty.is_some());
        self.tries = all().any(|policy| policy.tried.is_some() || policy.is_changing());
        // Not built beforehand, because the windows of a policy by tier depend on the identity, and those of one that
        // has a candidate on the key.
        let depends = self.tries || own().any(|policy| policy.tiers.is_some());
        let count = own().map(|policy| policy.own).sum();
        self.windows = if depends { usize::MAX } else { count };
        let shown = own()
            .filter(|policy| !policy.shadow && !policy.is_hidden)
            .flat_map(|policy| &policy.windows[..policy.own]);
        self.limits_shown = join_items(shown.map(|window| &*window.item));
        self.answer_paths = joined(all().flat_map(Policy::answer_paths));
        self.body_paths = joined(all().flat_map(Policy::body_paths));
        let needs_nobody = |policy: &&PolicyId| {
            policies[policy.index()].by.iter().all(definition::Dimension::is_of_strangers)
        };
        self.strangers = self.policies.iter().filter(needs_nobody).copied().collect();
    }
}

impl RouteTable {
    /// The same for all routes and domains, after policies have changed.
    pub(super) fn follow_policies(&mut self) {
        let RouteTable { routes, domains, policies, .. } = self;
        routes.iter_mut().for_each(|route| route.follow(policies));
        domains::link(domains.values_mut(), policies);
    }
}

/// These paths, each once; `None` if there are none.
fn joined<'p>(paths: impl Iterator<Item = &'p JsonPath>) -> Option<Arc<[JsonPath]>> {
    let paths: BTreeSet<&JsonPath> = paths.collect();
    (!paths.is_empty()).then(|| paths.into_iter().cloned().collect())
}

/// Checks that indices fit their types. Otherwise nothing else can be checked.
fn check_counts(routes: usize, policies: usize, errors: &mut CompileErrors) {
    let last_policy = DefinitionPlace::Policy(PolicyId::new(POLICIES_MAX as u32));
    let last_route = DefinitionPlace::Route(RouteId::new(ROUTES_MAX as u32));
    for (count, max, what, place) in
        [(policies, POLICIES_MAX, "policies", last_policy), (routes, ROUTES_MAX, "routes", last_route)]
    {
        if count > max {
            errors.at(place).add("name", DefinitionProblem::TooMany { what, max });
        }
    }
}

/// A dimension `param:x` must be a parameter of at least one route that uses the policy. On other routes the policy's
/// `missing` applies. A policy with a route that did not compile is not checked.
fn check_params(
    routes: &[definition::RouteDefinition],
    policies: &[definition::PolicyDefinition],
    compiled: &[Option<Route>],
    errors: &mut CompileErrors,
) {
    let params = |policy: &definition::PolicyDefinition| -> Vec<(usize, String)> {
        let numbered = policy.by.iter().enumerate();
        let params = numbered.filter_map(|(number, dimension)| match dimension {
            Dimension::Param(name) => Some((number, name.clone())),
            _ => None,
        });
        params.collect()
    };
    // One pass over the routes for all policies, because there may be a million of each.
    let mut using: HashMap<&str, Vec<RouteId>> = HashMap::new();
    // Candidates are left out, because they count by the parameters of the policy that they are to replace, which
    // routes name.
    let named = policies.iter().filter(|policy| policy.replaces.is_none());
    for policy in named.filter(|policy| !params(policy).is_empty()) {
        using.insert(&policy.name, Vec::new());
    }
    for (route, id) in routes.iter().zip((0..).map(RouteId::new)) {
        for name in &route.limits {
            if let Some(routes) = using.get_mut(name.as_str()) {
                routes.push(id);
            }
        }
    }
    let numbered = policies.iter().zip((0..).map(PolicyId::new));
    for (policy, id) in numbered.filter(|(policy, _)| policy.replaces.is_none()) {
        for (number, name) in params(policy) {
            let using = using.get(policy.name.as_str()).into_iter().flatten();
            let mut has = using.map(|route| {
                compiled[route.index()].as_ref().is_none_or(|route| route.pattern.param(&name).is_some())
            });
            let is_used_without = has.next() == Some(false) && has.all(|has| !has);
            if is_used_without {
                let problem = DefinitionProblem::ParamNowhere { name };
                errors.at(DefinitionPlace::Policy(id)).add(format!("by[{number}]"), problem);
            }
        }
    }
}

fn plant(routes: &[Option<Route>]) -> (Hosts, Tree) {
    let (mut hosts, mut tree) = (Hosts::default(), Tree::default());
    for route in routes.iter().flatten() {
        if route.hosts.is_empty() {
            tree.insert(ANY_HOST, &route.pattern, route.id);
        }
        for host in &route.hosts {
            let root = hosts.root(host, || tree.plant());
            tree.insert(root.get(), &route.pattern, route.id);
        }
    }
    (hosts, tree)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::DefinitionPlace;

    #[test]
    fn one_too_many_is_reported_with_its_place() {
        let said = |routes, policies| {
            let mut errors = CompileErrors::default();
            check_counts(routes, policies, &mut errors);
            errors.found
        };
        assert_eq!(said(ROUTES_MAX, POLICIES_MAX), []);
        let [route, policy] = [(ROUTES_MAX + 1, 0), (0, POLICIES_MAX + 1)]
            .map(|(routes, policies)| said(routes, policies).pop().expect("there is one too many"));
        assert_eq!((route.place, &*route.key), (DefinitionPlace::Route(RouteId::new(1_000_000)), "name"));
        assert_eq!((policy.place, &*policy.key), (DefinitionPlace::Policy(PolicyId::new(4_000_000)), "name"));
        assert_eq!(policy.to_string(), "there are more than 4000000 policies");
    }
}
