//! The compiled table: which route answers a request, why others do not, and which policies charge it.
//!
//! Of the routes that match a request the most specific wins: by host (an exact one, then the longest
//! wildcard, then any), then by path (segment by segment from the left: literal, `text{*rest}`, `{id}`, `{*rest}`), then by
//! method (listed, HEAD by GET, any), then by how many headers it asks for. The order in which routes were
//! written decides nothing; where it would have to, the table does not compile.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU32;
use std::slice;
use std::sync::{Arc, OnceLock};

use http::{HeaderName, HeaderValue};

use super::counting::selection::PolicySelection;
use super::counting::{Policy, is_shown};
use super::definition::Dimension;
use super::destination::Affinity;
use super::list_field::join_items;
use super::matching::domain::{CompiledDomain, CompiledRule};
use super::matching::host::{HostPattern, Hosts};
use super::matching::method::Fit;
use super::matching::tree::{ANY_HOST, Tree};
use super::nat64::Nat64;
use super::request::{Params, RoutingFacts};
use super::route::{Route, RouteId, RouteMatch};
use base::ids::IdVec;
use limit::{Charge, PlanId, PolicyId, Quota, Sharing};

/// Routes and policies, ready for requests.
#[derive(Clone, Debug)]
pub struct RouteTable {
    pub(super) routes: Box<[Route]>,
    pub(super) policies: Box<[Policy]>,
    pub(super) domains: BTreeMap<Box<str>, CompiledDomain>,
    pub(super) hosts: Hosts,
    /// Each leaf is sorted by [`precedence`].
    pub(super) tree: Tree,
    pub(super) choices: usize,
    /// When the first of the windows of before is over, on the limiter's clock; `None`: there are none.
    pub(super) over_ns: Option<u64>,
    /// The policies by name, once one was looked for.
    pub(super) by_name: OnceLock<Box<[PolicyId]>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotFound {
    /// None would, whatever the method: 404.
    Route,
    /// One would with another method: 405.
    Method { allow: HeaderValue },
}

#[derive(Clone, Copy, Debug)]
pub struct ConsideredRoute<'t> {
    pub route: &'t Route,
    pub verdict: MatchVerdict<'t>,
}

/// Whether a route answers a request, or the first reason why not.
#[derive(Clone, Copy, Debug)]
pub enum MatchVerdict<'t> {
    Wins,
    Host,
    Path,
    Method,
    /// A header it asks for is absent or has another value.
    Header(&'t HeaderName),
    /// It matches, but another is more specific.
    LessSpecific {
        than: &'t Route,
        by: Aspect,
    },
}

/// In what one route is more specific than another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Aspect {
    Host,
    Path,
    Method,
    Headers,
}

/// The table for clients behind these translators, whoever names their addresses.
pub fn translated(mut table: RouteTable, nat64: &Nat64) -> RouteTable {
    table.policies.iter_mut().for_each(|policy| policy.keys.nat64 = nat64.clone());
    let rules = table.domains.values_mut().flat_map(|domain| domain.rules.iter_mut());
    rules.for_each(|rule| rule.nat64 = nat64.clone());
    table
}

impl RouteTable {
    /// The same table with its keys under another salt. `check` and `explain` compile tables without the process's salt.
    pub fn salted(mut self, salt: &[u8; 16]) -> RouteTable {
        for policy in &mut self.policies {
            policy.keys = policy.keys.salted(salt, &policy.name);
        }
        self
    }

    /// The same table for upstreams whose servers are kept by a dimension; `by` has that of each upstream, in the order of
    /// [`super::CompileOptions::upstreams`].
    pub fn hashed(mut self, by: &[Option<&Dimension>], ipv6_prefix: u8) -> RouteTable {
        let affinity = |by: &Dimension| Arc::new(Affinity::new(by.clone(), ipv6_prefix));
        let affinities: IdVec<_, _> = by.iter().map(|by| by.map(affinity)).collect();
        if affinities.iter().any(Option::is_some) {
            self.routes.iter_mut().for_each(|route| route.hash(&affinities));
        }
        self
    }

    /// Lets windows of the calendar follow a clock that reads 0 at this time, seconds since 1970, in place of this process's.
    /// Returns whether there are any.
    pub fn follow_clock(&mut self, origin_s: u64) -> bool {
        let windows = self.policies.iter_mut().flat_map(|policy| &mut policy.windows);
        let moved = windows.filter_map(|window| {
            let calendar = window.quota.calendar()?;
            window.quota = window.quota.on_calendar(calendar.moved(calendar.zone(), origin_s));
            for (own, _) in &mut window.anchored {
                let calendar = own.calendar()?;
                *own = own.on_calendar(calendar.moved(calendar.zone(), origin_s));
            }
            Some(())
        });
        moved.count() > 0
    }

    pub fn routes(&self) -> &[Route] {
        &self.routes
    }

    /// How many choices among upstreams its routes make; each has a [`ChoiceId`](super::destination::ChoiceId) below it.
    pub fn choices(&self) -> usize {
        self.choices
    }

    pub fn policies(&self) -> &[Policy] {
        &self.policies
    }

    pub fn policy(&self, name: &str) -> Option<&Policy> {
        let by_name = self.by_name();
        let found = by_name.binary_search_by(|id| (*self.policies[id.index()].name).cmp(name)).ok()?;
        self.policies.get(by_name[found].index())
    }

    pub fn policies_by_name(&self) -> impl Iterator<Item = &Policy> {
        self.by_name().iter().map(|id| &self.policies[id.index()])
    }

    fn by_name(&self) -> &[PolicyId] {
        let name_of = |id: PolicyId| &self.policies[id.index()].name;
        self.by_name.get_or_init(|| {
            let mut ids: Box<[PolicyId]> = self.policies.iter().map(|policy| policy.id).collect();
            ids.sort_unstable_by(|one, other| name_of(*one).cmp(name_of(*other)));
            ids
        })
    }

    pub fn domain(&self, name: &str) -> Option<&CompiledDomain> {
        self.domains.get(name)
    }

    pub fn domains(&self) -> impl Iterator<Item = &CompiledDomain> {
        self.domains.values()
    }

    /// The policies of a domain's rule. A descriptor has no idempotency key, so none of them remembers it.
    pub fn chosen_by<'t>(&'t self, rule: &'t CompiledRule) -> PolicySelection<'t> {
        PolicySelection {
            policies: &self.policies,
            indices: &rule.policies,
            remembers: false,
            penalises: rule.penalises,
            tries: rule.tries,
        }
    }

    /// One policy of the table without its candidate, for a subject that no route has chosen policies for.
    pub fn only<'t>(&'t self, policy: &'t Policy) -> PolicySelection<'t> {
        PolicySelection {
            policies: &self.policies,
            indices: slice::from_ref(&policy.id),
            remembers: policy.idempotency.is_some(),
            penalises: policy.penalty.is_some(),
            tries: policy.is_changing(),
        }
    }

    /// One policy of the table with its candidate, for a subject that no route has chosen policies for.
    pub fn with_candidate<'t>(&'t self, policy: &'t Policy) -> PolicySelection<'t> {
        let candidate = policy.tried.map(|candidate| &self.policies[candidate.index()]);
        let Some(candidate) = candidate else { return self.only(policy) };
        PolicySelection {
            remembers: policy.idempotency.is_some() || candidate.idempotency.is_some(),
            penalises: policy.penalty.is_some() || candidate.penalty.is_some(),
            tries: true,
            ..self.only(policy)
        }
    }

    /// Gives every window, and what remembers retries, its plan, for a fleet that shares them.
    pub fn share(&mut self, mut plan: impl FnMut(&Policy, &Quota, Sharing) -> PlanId) {
        for policy in &mut self.policies {
            // Taken out, because the policy itself is lent to `plan` meanwhile.
            let mut windows = std::mem::take(&mut policy.windows);
            for (number, window) in windows.iter_mut().enumerate() {
                window.plan = Some(plan(policy, &window.quota, policy.sharing(number, &window.quota)));
                for (quota, own) in &mut window.anchored {
                    *own = Some(plan(policy, quota, policy.sharing(number, quota)));
                }
            }
            policy.windows = windows;
            if let Some(mut memory) = policy.idempotency.take() {
                memory.plan = Some(plan(policy, &memory.quota, policy.sharing_of_memory(&memory.quota)));
                policy.idempotency = Some(memory);
            }
        }
    }

    /// Claims of identities that policies, header values and rewritten paths ask for.
    pub fn claims(&self) -> BTreeSet<&str> {
        let dimensions = self.policies.iter().flat_map(|policy| policy.by.iter().chain(&policy.anchor_claim));
        let counted = dimensions.filter_map(|dimension| match dimension {
            Dimension::Claim(name) => Some(name.as_str()),
            _ => None,
        });
        counted.chain(self.routes.iter().flat_map(Route::claims)).collect()
    }

    /// The route that answers a request. Does not allocate where there is one.
    ///
    /// # Errors
    /// Where there is none.
    pub fn find<'t, 'r>(&'t self, facts: &RoutingFacts<'r, '_>) -> Result<RouteMatch<'t, 'r>, NotFound> {
        for root in self.roots(facts.host) {
            if let Some(route) = self.tree.walk(root, facts.path, |leaf| self.pick(leaf, facts)) {
                return Ok(RouteMatch { route, params: Params::new(&route.pattern, facts.path) });
            }
        }
        Err(self.refusal(facts))
    }

    /// The verdict of each route on a request, by index. It looks at every route: for operators, not for traffic.
    pub fn explain<'t>(&'t self, facts: &RoutingFacts<'_, '_>) -> Vec<ConsideredRoute<'t>> {
        let winner = self.find(facts).ok().map(|found| found.route);
        self.routes
            .iter()
            .map(|route| ConsideredRoute { route, verdict: verdict(route, winner, facts) })
            .collect()
    }

    /// The policies of a route; of a client that authentication did not recognise, those that need no identity. Its
    /// request is charged whatever key it names, because nobody knows whose retry that is.
    pub fn chosen<'t>(&'t self, route: &'t Route, is_unrecognised: bool) -> PolicySelection<'t> {
        PolicySelection {
            policies: &self.policies,
            indices: if is_unrecognised { &route.strangers } else { &route.policies },
            remembers: route.remembers && !is_unrecognised,
            penalises: route.penalises,
            tries: route.tries,
        }
    }

    /// The field `RateLimit-Policy` (draft-ietf-httpapi-ratelimit-headers-11, section 3) for what a request
    /// of this route was charged; `None` where there is nothing to show. Shadow policies are not shown. Made
    /// beforehand for the usual case that all policies of the route apply.
    /// Of a window of the calendar the length is that of this time's.
    pub fn rate_limit_policy(
        &self,
        route: &Route,
        charges: &[Charge],
        unix_seconds: u64,
    ) -> Option<HeaderValue> {
        let differs = |charge: &Charge| charge.is_overridden || charge.quota.calendar().is_some();
        if charges.len() == route.windows && !charges.iter().any(differs) {
            return route.limits_shown.clone();
        }
        self.rate_limit_policies(charges, unix_seconds)
    }

    /// The same for charges that no route has made. A window that several of them charge is shown once.
    pub fn rate_limit_policies(&self, charges: &[Charge], unix_seconds: u64) -> Option<HeaderValue> {
        let is_first = |index: usize, charge: &Charge| {
            let is_same = |other: &Charge| (other.policy, other.window) == (charge.policy, charge.window);
            charge.part == 0 || !charges[..index].iter().any(is_same)
        };
        let shown = charges.iter().enumerate();
        let shown = shown.filter(|(index, charge)| {
            is_shown(&self.policies[charge.policy.index()], charge) && is_first(*index, charge)
        });
        let item = |charge: &'_ Charge| self.policies[charge.policy.index()].item_of(charge, unix_seconds);
        join_items(shown.map(|(_, charge)| item(charge)))
    }

    /// The most specific of the routes of one path; the first that matches, as a leaf is sorted, but for
    /// HEAD: a later route that lists it goes before an earlier one that lists GET.
    fn pick(&self, leaf: &[RouteId], facts: &RoutingFacts<'_, '_>) -> Option<&Route> {
        let mut by_get = None;
        for &index in leaf {
            let route = &self.routes[index.index()];
            match route.methods.fit(facts.method) {
                Some(Fit::Listed) if route.asks_for(facts) => return Some(route),
                Some(Fit::ByGet) if by_get.is_none() && route.asks_for(facts) => by_get = Some(route),
                Some(Fit::Any) if by_get.is_none() && route.asks_for(facts) => return Some(route),
                _ => {}
            }
        }
        by_get
    }

    /// The roots of the trees that may answer, the most specific host first.
    fn roots(&self, host: &str) -> impl Iterator<Item = u32> {
        self.hosts.roots(host).map(NonZeroU32::get).chain([ANY_HOST])
    }

    fn refusal(&self, facts: &RoutingFacts<'_, '_>) -> NotFound {
        let mut allow = BTreeSet::new();
        for root in self.roots(facts.host) {
            self.tree.walk(root, facts.path, |leaf| {
                let routes = leaf.iter().map(|id| &self.routes[id.index()]);
                for route in routes.filter(|route| route.asks_for(facts)) {
                    allow.extend(route.methods.listed().map(|method| method.as_str()));
                }
                None::<()>
            });
        }
        match join_items(allow.into_iter()) {
            Some(allow) => NotFound::Method { allow },
            None => NotFound::Route,
        }
    }
}

impl Route {
    fn asks_for(&self, facts: &RoutingFacts<'_, '_>) -> bool {
        self.headers.iter().all(|header| header.holds(facts))
    }

    /// The most specific of its hosts that matches; `None`: it answers to any. `Err` where none does.
    fn host(&self, host: &str) -> Result<Option<&HostPattern>, ()> {
        if self.hosts.is_empty() {
            return Ok(None);
        }
        let matching = self.hosts.iter().filter(|own| own.matches(host));
        matching.max_by_key(|own| own.specificity()).map(Some).ok_or(())
    }
}

/// Sorts the routes of one path: what lists methods first, then what asks for more headers.
pub(super) fn precedence(route: &Route) -> (bool, usize) {
    (route.methods.is_any(), usize::MAX - route.headers.len())
}

fn verdict<'t>(
    route: &'t Route,
    winner: Option<&'t Route>,
    facts: &RoutingFacts<'_, '_>,
) -> MatchVerdict<'t> {
    let Ok(host) = route.host(facts.host) else { return MatchVerdict::Host };
    if !route.pattern.matches(facts.path) {
        return MatchVerdict::Path;
    }
    let Some(fit) = route.methods.fit(facts.method) else { return MatchVerdict::Method };
    if let Some(header) = route.headers.iter().find(|header| !header.holds(facts)) {
        return MatchVerdict::Header(&header.name);
    }
    let Some(than) = winner.filter(|winner| winner.id != route.id) else { return MatchVerdict::Wins };
    let by = if than.host(facts.host) != Ok(host) {
        Aspect::Host
    } else if than.pattern.cmp_specific(&route.pattern).is_ne() {
        Aspect::Path
    } else if than.methods.fit(facts.method) != Some(fit) {
        Aspect::Method
    } else {
        Aspect::Headers
    };
    MatchVerdict::LessSpecific { than, by }
}
