//! From definitions to a table: names resolved, patterns read, every mistake collected.
//!
//! It deliberately stops at nothing: all mistakes of all definitions come back at once.

use std::collections::{HashMap, HashSet};
use std::num::NonZeroU64;

use super::access::Access;
use super::changes::{self, HeaderChanges};
use super::cors::Cors;
use super::counting::{Cost, CostRule, Matches, Memory, Policy, Tiers, Window};
use super::definition::{self, Dimension};
use super::error::{Change, Direction, Error, Place, PolicyField, Problem, RouteField};
use super::host::{Host, Hosts};
use super::key::Keys;
use super::method::Methods;
use super::pattern::Pattern;
use super::route::{Action, HeaderMatch, Route};
use super::table::{Table, join_items, precedence};
use super::template::{HeaderTemplate, Rewrite};
use super::tree::{ANY_HOST, Tree};
use crate::limit::{Algorithm, Quota};

/// What a table needs beside the definitions.
#[derive(Clone, Copy, Debug)]
pub struct Options<'o> {
    /// Keys of limits are hashed under it. The same salt after a reload keeps the same keys.
    pub salt: [u8; 16],
    /// Bits of an IPv6 address that make one caller, at most 128.
    pub ipv6_prefix: u8,
    /// Names of the upstreams; [`Action::Forward`] holds indices into them.
    pub upstreams: &'o [String],
    /// Names of the ways to authenticate; [`Access::auth`](super::access::Access::auth) holds indices into them.
    pub auth: &'o [String],
}

/// Routes a table may have.
pub const ROUTES_MAX: usize = 1_000_000;

/// Policies a table may have: what [`Charge::policy`](crate::limit::Charge::policy) holds.
pub const POLICIES_MAX: usize = u16::MAX as usize;

/// Dimensions a key may have.
pub const DIMENSIONS_MAX: usize = 16;

/// Tiers there may be.
pub const TIERS_MAX: usize = 256;

/// Windows a policy may have, for one tier.
pub const WINDOWS_MAX: usize = 16;

impl Table {
    /// Compiles routes and policies.
    ///
    /// # Errors
    /// Everything that is wrong, with its place; never empty.
    pub fn compile(
        routes: &[definition::Route],
        policies: &[definition::Policy],
        options: &Options<'_>,
    ) -> Result<Table, Vec<Error>> {
        let mut errors = Errors::default();
        check_counts(routes, policies, &mut errors);
        if !errors.found.is_empty() {
            return Err(errors.found);
        }
        let compiled_policies = compile_policies(policies, options, &mut errors);
        let mut compiled_routes = compile_routes(routes, policies, options, &mut errors);
        check_params(routes, policies, &compiled_routes, &mut errors);
        let (hosts, mut tree) = plant(&compiled_routes);
        check_ties(&mut tree, &compiled_routes, &mut errors);
        if !errors.found.is_empty() {
            return Err(errors.found);
        }
        let policies: Box<[Policy]> = compiled_policies.into_iter().flatten().collect();
        for route in compiled_routes.iter_mut().flatten() {
            let own = || route.policies.iter().map(|&policy| &policies[usize::from(policy)]);
            route.holds = own().any(Policy::holds);
            route.remembers = own().any(|policy| policy.idempotency.is_some());
            route.penalises = own().any(|policy| policy.penalty.is_some());
            // What a policy by tier charges depends on the caller: nothing to make beforehand.
            let is_by_tier = own().any(|policy| policy.tiers.is_some());
            let count = own().map(|policy| policy.windows.len()).sum();
            route.windows = if is_by_tier { usize::MAX } else { count };
            let shown = own().filter(|policy| !policy.shadow).flat_map(|policy| &policy.windows);
            route.limits_shown = join_items(shown.map(|window| &*window.item));
            let needs_nobody = |policy: &&u16| {
                !policies[usize::from(**policy)].by.iter().any(definition::Dimension::needs_identity)
            };
            route.strangers = route.policies.iter().filter(needs_nobody).copied().collect();
        }
        let routes: Box<[Route]> = compiled_routes.into_iter().flatten().collect();
        for leaf in tree.leaves() {
            leaf.sort_by_key(|&index| precedence(&routes[index as usize]));
        }
        Ok(Table { routes, policies, hosts, tree })
    }
}

/// Mistakes so far.
#[derive(Default)]
struct Errors {
    found: Vec<Error>,
}

impl Errors {
    fn route(&mut self, index: usize, field: RouteField, problem: impl Into<Problem>) {
        self.found.push(Error { place: Place::Route { index, field }, problem: problem.into() });
    }

    fn policy(&mut self, index: usize, field: PolicyField, problem: impl Into<Problem>) {
        self.found.push(Error { place: Place::Policy { index, field }, problem: problem.into() });
    }
}

// ── policies ──

fn compile_policies(
    policies: &[definition::Policy],
    options: &Options<'_>,
    errors: &mut Errors,
) -> Vec<Option<Policy>> {
    check_names(policies.iter().map(|policy| &*policy.name), |index, problem| {
        errors.policy(index, PolicyField::Name, problem);
    });
    let mut labels = HashSet::new();
    let numbered = policies.iter().zip(0_u16..);
    numbered.map(|(policy, index)| compile_policy(policy, index, options, &mut labels, errors)).collect()
}

fn compile_policy(
    policy: &definition::Policy,
    number: u16,
    options: &Options<'_>,
    labels: &mut HashSet<String>,
    errors: &mut Errors,
) -> Option<Policy> {
    let index = usize::from(number);
    for (dimension, by) in policy.by.iter().enumerate() {
        if policy.by[..dimension].contains(by) {
            errors.policy(index, PolicyField::By(dimension), Problem::DimensionTwice);
        }
    }
    if policy.by.len() > DIMENSIONS_MAX {
        let problem = Problem::TooMany { what: "dimensions", max: DIMENSIONS_MAX };
        errors.policy(index, PolicyField::By(DIMENSIONS_MAX), problem);
        return None;
    }
    let tiers = policy.tiers.as_ref();
    let most = tiers.map_or(policy.windows.len(), |tiers| {
        tiers.counts.iter().map(|(_, count)| *count).max().unwrap_or(0)
    });
    if tiers.is_some_and(|tiers| tiers.counts.len() > TIERS_MAX) {
        let problem = Problem::TooMany { what: "tiers", max: TIERS_MAX };
        errors.policy(index, PolicyField::Window(0), problem);
        return None;
    }
    if most > WINDOWS_MAX {
        let problem = Problem::TooMany { what: "windows", max: WINDOWS_MAX };
        errors.policy(index, PolicyField::Window(WINDOWS_MAX), problem);
        return None;
    }
    let path = match policy.matches.path.as_deref().map(Pattern::parse).transpose() {
        Ok(path) => path,
        Err(error) => {
            errors.policy(index, PolicyField::MatchPath, error);
            None
        }
    };
    let windows = compile_windows(policy, labels);
    let count = u16::try_from(most).expect("checked against WINDOWS_MAX above");
    Some(Policy {
        index: number,
        name: policy.name.as_str().into(),
        by: policy.by.clone().into(),
        missing: policy.missing,
        shadow: policy.shadow,
        count_denied: policy.count_denied,
        penalty: policy.penalty,
        matches: Matches { methods: Methods::new(&policy.matches.methods), path },
        cost: compile_cost(policy, index, errors),
        keys: Keys::new(&options.salt, &policy.name, count, &policy.by, policy.missing, options.ipv6_prefix),
        idempotency: policy.idempotency.as_ref().map(compile_memory),
        tiers: tiers.map(compile_tiers),
        windows,
    })
}

fn compile_tiers(tiers: &definition::Tiers) -> Tiers {
    let mut at = 0;
    let ranges: Box<[_]> = tiers
        .counts
        .iter()
        .map(|(name, count)| {
            at += count;
            (Box::from(name.as_str()), at - count..at)
        })
        .collect();
    let default = ranges.iter().find(|(name, _)| **name == *tiers.default);
    // A default that is not listed has no windows; a configuration names none such.
    let default = default.map_or(0..0, |(_, range)| range.clone());
    Tiers { ranges, default }
}

fn compile_memory(idempotency: &definition::Idempotency) -> Memory {
    let window_ns = u64::try_from(idempotency.window.as_nanos()).unwrap_or(u64::MAX);
    let window_ns = NonZeroU64::new(window_ns).unwrap_or(NonZeroU64::MIN);
    let quota = Quota::new(Algorithm::TokenBucket, NonZeroU64::MIN, window_ns, NonZeroU64::MIN);
    Memory { header: idempotency.header.clone(), quota, plan: 0 }
}

fn compile_windows(policy: &definition::Policy, labels: &mut HashSet<String>) -> Box<[Window]> {
    let tiers = policy.tiers.iter().flat_map(|tiers| &tiers.counts);
    let tier_of: Vec<(&str, usize)> =
        tiers.flat_map(|(name, count)| std::iter::repeat_n((name.as_str(), *count), *count)).collect();
    let windows = policy.windows.iter().enumerate().map(|(number, quota)| {
        // What may stand unescaped in a structured-fields string (RFC 9651, section 3.3.3).
        let is_plain = |char: char| char == ' ' || char.is_ascii_graphic() && !matches!(char, '"' | '\\');
        let mut label: String =
            policy.name.chars().map(|char| if is_plain(char) { char } else { '_' }).collect();
        let mut siblings = policy.windows.len();
        if let Some((tier, count)) = tier_of.get(number) {
            label.push('-');
            label.extend(tier.chars().filter(|char| is_plain(*char)));
            siblings = *count;
        }
        if siblings > 1 {
            label = match quota.algorithm() {
                Algorithm::Concurrency => format!("{label}-in-flight"),
                _ => format!("{label}-{}", period_text(quota.period_ns().get())),
            };
        }
        let mut unique = label.clone();
        for number in 2.. {
            if labels.insert(unique.clone()) {
                break;
            }
            unique = format!("{label}-{number}");
        }
        // Integers of structured fields have 15 digits (RFC 9651, section 3.3.1).
        let limit = quota.limit().get().min(999_999_999_999_999);
        // Whole seconds, rounded up: a client that believes it never comes too early.
        let seconds = quota.period_ns().get().div_ceil(SECOND_NS);
        let item = match quota.algorithm() {
            // What is in flight has no window, but a unit (the quota units of draft-ietf-httpapi-ratelimit-headers-11).
            Algorithm::Concurrency => format!("\"{unique}\";q={limit};qu=\"concurrent-requests\""),
            _ => format!("\"{unique}\";q={limit};w={seconds}"),
        };
        Window { quota: *quota, plan: 0, label: unique.into(), item: item.into() }
    });
    windows.collect()
}

fn compile_cost(policy: &definition::Policy, index: usize, errors: &mut Errors) -> Cost {
    let capacity = policy.windows.iter().map(Quota::capacity).min().unwrap_or(u64::MAX);
    let default = policy.cost.default.get();
    if default > capacity {
        errors.policy(
            index,
            PolicyField::CostDefault,
            Problem::CostAboveCapacity { cost: default, capacity },
        );
    }
    let max = policy.cost.max.map_or(capacity, NonZeroU64::get);
    if max > capacity {
        errors.policy(index, PolicyField::CostMax, Problem::CostAboveCapacity { cost: max, capacity });
    }
    let (header, response_header) = (policy.cost.header.clone(), policy.cost.response_header.clone());
    let mut rules: Vec<CostRule> = Vec::new();
    for (number, (method, path, units)) in policy.cost.rules.iter().enumerate() {
        let field = PolicyField::CostRule(number);
        if *units > capacity {
            errors.policy(index, field, Problem::CostAboveCapacity { cost: *units, capacity });
        }
        match Pattern::parse(path) {
            Ok(path) => {
                rules.push(CostRule { methods: Methods::new(method.as_slice()), path, units: *units })
            }
            Err(error) => {
                errors.policy(index, field, error);
                return Cost { default, rules: Box::default(), header, response_header, max };
            }
        }
        let (this, earlier) = rules.split_last().expect("pushed just above");
        let same =
            |rule: &CostRule| rule.path.cmp_specific(&this.path).is_eq() && rule.methods == this.methods;
        if let Some(other) = earlier.iter().position(same) {
            errors.policy(index, field, Problem::CostTwice { other });
        }
    }
    rules.sort_by(|left, right| left.path.cmp_specific(&right.path));
    Cost { default, rules: rules.into(), header, response_header, max }
}

/// A period in its largest whole unit: `1m`, `90s`, `1500ms`.
fn period_text(period_ns: u64) -> String {
    let units = [
        (86_400 * SECOND_NS, "d"),
        (3_600 * SECOND_NS, "h"),
        (60 * SECOND_NS, "m"),
        (SECOND_NS, "s"),
        (1_000_000, "ms"),
    ];
    let whole = units.into_iter().find(|(unit_ns, _)| period_ns.is_multiple_of(*unit_ns));
    let (unit_ns, unit) = whole.unwrap_or((1, "ns"));
    format!("{}{unit}", period_ns / unit_ns)
}

// ── routes ──

fn compile_routes(
    routes: &[definition::Route],
    policies: &[definition::Policy],
    options: &Options<'_>,
    errors: &mut Errors,
) -> Vec<Option<Route>> {
    check_names(routes.iter().map(|route| &*route.name), |index, problem| {
        errors.route(index, RouteField::Name, problem);
    });
    let names = Names {
        policies: policies.iter().map(|policy| &*policy.name).zip(0..).collect(),
        upstreams: options.upstreams.iter().map(String::as_str).zip(0..).collect(),
        auth: options.auth.iter().map(String::as_str).zip(0..).collect(),
    };
    routes.iter().enumerate().map(|(index, route)| compile_route(route, index, &names, errors)).collect()
}

/// What routes refer to.
struct Names<'d> {
    policies: HashMap<&'d str, u16>,
    upstreams: HashMap<&'d str, usize>,
    auth: HashMap<&'d str, u16>,
}

/// `None` where its host or path is no such thing, so that nothing more can be said of it.
fn compile_route(
    route: &definition::Route,
    index: usize,
    names: &Names<'_>,
    errors: &mut Errors,
) -> Option<Route> {
    let hosts = compile_hosts(route, index, errors);
    let pattern =
        Pattern::parse(&route.path).map_err(|error| errors.route(index, RouteField::Path, error)).ok();
    let headers = compile_header_matches(route, index, errors);
    let policies = compile_limits(route, index, names, errors);
    let methods = Methods::new(&route.methods);
    let access = compile_access(&route.access, &methods, index, names, errors);
    let (hosts, pattern) = (hosts?, pattern?);
    let action = compile_action(&route.action, index, &pattern, names, errors)?;
    let mut changes = |changes, direction| compile_changes(changes, index, direction, &pattern, errors);
    Some(Route {
        index,
        name: route.name.as_str().into(),
        action,
        policies,
        request_headers: changes(&route.request_headers, Direction::Request),
        response_headers: changes(&route.response_headers, Direction::Response),
        body_bytes_max: route.body_bytes_max,
        upgrade: route.upgrade,
        holds: false,
        penalises: false,
        path_escapes: route.path_escapes,
        remembers: false,
        access,
        strangers: Box::default(),
        hosts,
        pattern,
        methods,
        headers,
        limits_shown: None,
        windows: 0,
    })
}

fn compile_hosts(route: &definition::Route, index: usize, errors: &mut Errors) -> Option<Box<[Host]>> {
    let mut hosts = Vec::new();
    for (number, text) in route.hosts.iter().enumerate() {
        match Host::parse(text) {
            Ok(host) if hosts.contains(&host) => {}
            Ok(host) => hosts.push(host),
            Err(error) => errors.route(index, RouteField::Host(number), error),
        }
    }
    (hosts.is_empty() == route.hosts.is_empty()).then(|| hosts.into())
}

fn compile_header_matches(
    route: &definition::Route,
    index: usize,
    errors: &mut Errors,
) -> Box<[HeaderMatch]> {
    let mut headers: Vec<HeaderMatch> = Vec::new();
    for (number, header) in route.headers.iter().enumerate() {
        let value = header.value.as_deref().map(|value| Box::from(value.as_bytes()));
        let header = HeaderMatch { name: header.name.clone(), value };
        match headers.iter_mut().find(|earlier| earlier.name == header.name) {
            None => headers.push(header),
            Some(earlier) if earlier.agrees_with(&header) => {
                // The one with a value asks for all that the other does.
                if earlier.value.is_none() {
                    *earlier = header;
                }
            }
            Some(_) => {
                let problem = Problem::HeaderNeverMatches { name: header.name.to_string() };
                errors.route(index, RouteField::Header(number), problem);
            }
        }
    }
    headers.into()
}

fn compile_limits(
    route: &definition::Route,
    index: usize,
    names: &Names<'_>,
    errors: &mut Errors,
) -> Box<[u16]> {
    let mut policies = Vec::new();
    for (number, name) in route.limits.iter().enumerate() {
        let problem = match names.policies.get(name.as_str()) {
            Some(policy) if !policies.contains(policy) => {
                policies.push(*policy);
                continue;
            }
            Some(_) => Problem::PolicyTwice { name: name.clone() },
            None => Problem::UnknownPolicy { name: name.clone() },
        };
        errors.route(index, RouteField::Limit(number), problem);
    }
    policies.into()
}

/// Ways to authenticate, by index. A name that is unknown or stands twice is reported.
fn compile_access(
    access: &definition::Access,
    methods: &Methods,
    route: usize,
    names: &Names<'_>,
    errors: &mut Errors,
) -> Access {
    let mut auth = Vec::new();
    for (number, name) in access.auth.iter().enumerate() {
        match names.auth.get(name.as_str()) {
            Some(method) if !auth.contains(method) => auth.push(*method),
            Some(_) => {}
            None => {
                let problem = Problem::UnknownAuth { name: name.clone() };
                errors.route(route, RouteField::Auth(number), problem);
            }
        }
    }
    Access {
        auth: auth.into(),
        require: access.require.clone().map(Box::new),
        addresses: access.addresses.clone(),
        cors: access.cors.as_ref().map(|cors| Box::new(Cors::new(cors, methods))),
    }
}

fn compile_action(
    action: &definition::Action,
    index: usize,
    pattern: &Pattern,
    names: &Names<'_>,
    errors: &mut Errors,
) -> Option<Action> {
    match action {
        definition::Action::Forward { upstream, rewrite } => {
            let rewrite = rewrite.as_deref().map(|text| Rewrite::parse(text, pattern)).transpose();
            let rewrite = rewrite.map_err(|error| errors.route(index, RouteField::Rewrite, error));
            let known = names.upstreams.get(upstream.as_str()).copied();
            if known.is_none() {
                let problem = Problem::UnknownUpstream { name: upstream.clone() };
                errors.route(index, RouteField::Upstream, problem);
            }
            Some(Action::Forward { upstream: known.unwrap_or(0), rewrite: rewrite.unwrap_or(None) })
        }
        definition::Action::Respond(respond) => {
            for (number, (name, _)) in respond.headers.iter().enumerate() {
                if changes::is_framing(name) {
                    let problem = Problem::FramingHeader { name: name.to_string() };
                    errors.route(index, RouteField::RespondHeader(number), problem);
                }
            }
            Some(Action::Respond(respond.clone()))
        }
        definition::Action::Echo => Some(Action::Echo),
        definition::Action::RedirectHttps => Some(Action::RedirectHttps),
    }
}

fn compile_changes(
    written: &definition::HeaderChanges,
    route: usize,
    direction: Direction,
    pattern: &Pattern,
    errors: &mut Errors,
) -> HeaderChanges {
    let mut check = |change, index, name: &http::HeaderName| {
        if changes::is_framing(name) {
            let problem = Problem::FramingHeader { name: name.to_string() };
            errors.route(route, RouteField::Change { direction, change, index }, problem);
        }
    };
    written.remove.iter().enumerate().for_each(|(index, name)| check(Change::Remove, index, name));
    written.set.iter().enumerate().for_each(|(index, (name, _))| check(Change::Set, index, name));
    written.add.iter().enumerate().for_each(|(index, (name, _))| check(Change::Add, index, name));
    let mut compiled = |change, list: &[(http::HeaderName, String)]| {
        let templates = list.iter().enumerate().filter_map(|(index, (name, text))| {
            let template = HeaderTemplate::parse(text, pattern);
            let field = RouteField::Change { direction, change, index };
            template
                .map(|template| (name.clone(), template))
                .map_err(|error| errors.route(route, field, error))
                .ok()
        });
        templates.collect()
    };
    HeaderChanges {
        remove: written.remove.clone().into(),
        set: compiled(Change::Set, &written.set),
        add: compiled(Change::Add, &written.add),
    }
}

// ── all of them together ──

/// Indices must fit. Where they do not, nothing else can be said.
fn check_counts(routes: &[definition::Route], policies: &[definition::Policy], errors: &mut Errors) {
    if policies.len() > POLICIES_MAX {
        let problem = Problem::TooMany { what: "policies", max: POLICIES_MAX };
        errors.policy(POLICIES_MAX, PolicyField::Name, problem);
    }
    if routes.len() > ROUTES_MAX {
        errors.route(ROUTES_MAX, RouteField::Name, Problem::TooMany { what: "routes", max: ROUTES_MAX });
    }
}

fn check_names<'d>(names: impl Iterator<Item = &'d str>, mut wrong: impl FnMut(usize, Problem)) {
    let mut taken = HashMap::new();
    for (index, name) in names.enumerate() {
        if name.is_empty() {
            wrong(index, Problem::EmptyName);
        } else if let Some(&other) = taken.get(name) {
            wrong(index, Problem::DuplicateName { name: name.to_owned(), other });
        } else {
            taken.insert(name, index);
        }
    }
}

/// A dimension `param:x` must be a parameter of at least one route that uses the policy; where another has
/// none, the policy's `missing` says what happens. Says nothing of a policy with a route that did not
/// compile.
fn check_params(
    routes: &[definition::Route],
    policies: &[definition::Policy],
    compiled: &[Option<Route>],
    errors: &mut Errors,
) {
    for (index, policy) in policies.iter().enumerate() {
        let params = policy.by.iter().enumerate().filter_map(|(number, dimension)| match dimension {
            Dimension::Param(name) => Some((number, name)),
            _ => None,
        });
        for (number, name) in params {
            let using = routes.iter().zip(compiled).filter(|(route, _)| route.limits.contains(&policy.name));
            let mut has = using
                .map(|(_, route)| route.as_ref().is_none_or(|route| route.pattern.param(name).is_some()));
            let is_used_without = has.next() == Some(false) && has.all(|has| !has);
            if is_used_without {
                errors.policy(index, PolicyField::By(number), Problem::ParamNowhere { name: name.clone() });
            }
        }
    }
}

fn plant(routes: &[Option<Route>]) -> (Hosts, Tree) {
    let (mut hosts, mut tree) = (Hosts::default(), Tree::default());
    for route in routes.iter().flatten() {
        let number = u32::try_from(route.index).expect("at most ROUTES_MAX routes, checked first");
        if route.hosts.is_empty() {
            tree.insert(ANY_HOST, &route.pattern, number);
        }
        for host in &route.hosts {
            let root = hosts.root(host, || tree.plant());
            tree.insert(root.get(), &route.pattern, number);
        }
    }
    (hosts, tree)
}

/// Two routes of one leaf tie where some request satisfies both, neither is more specific by its method or
/// number of headers, and no third route is more specific for all those requests. Each route is reported
/// once.
fn check_ties(tree: &mut Tree, routes: &[Option<Route>], errors: &mut Errors) {
    let mut reported = HashSet::new();
    for leaf in tree.leaves() {
        let leaf: Vec<&Route> = leaf.iter().filter_map(|&index| routes[index as usize].as_ref()).collect();
        for (position, later) in leaf.iter().enumerate() {
            let tied = |earlier: &&&Route| {
                ties(earlier, later) && !leaf.iter().any(|third| settles(third, earlier, later))
            };
            let Some(earlier) = leaf[..position].iter().find(tied) else { continue };
            if reported.insert(later.index) {
                let problem = Problem::Tie {
                    other: earlier.index,
                    other_name: earlier.name.to_string(),
                    method_any: later.methods.is_any(),
                };
                errors.route(later.index, RouteField::Path, problem);
            }
        }
    }
}

fn ties(left: &Route, right: &Route) -> bool {
    let agree = |header: &HeaderMatch| right.headers.iter().all(|other| header.agrees_with(other));
    left.headers.len() == right.headers.len()
        && left.methods.ties(&right.methods)
        && left.headers.iter().all(agree)
}

/// Whether `third` answers every request over which the other two tie.
fn settles(third: &Route, left: &Route, right: &Route) -> bool {
    let asked = || left.headers.iter().chain(&right.headers);
    third.headers.len() > left.headers.len()
        && third.methods.covers(&left.methods, &right.methods)
        && third.headers.iter().all(|header| asked().any(|asked| header.follows_from(asked)))
}

const SECOND_NS: u64 = 1_000_000_000;
