//! Which route answers: by hand, and against a reference that tries every route.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use http::Method;
use proptest::prelude::*;
use proptest::sample::select;

use super::{TestRequest, compile, header_match, route, table};
use crate::definition::{HeaderMatchDefinition, RouteDefinition};
use crate::error::{DefinitionPlace, DefinitionProblem};
use crate::table::{Aspect, MatchVerdict};
use crate::{NotFound, RouteTable};

fn on(hosts: &[&str], name: &str, path: &str) -> RouteDefinition {
    RouteDefinition { hosts: hosts.iter().map(|host| (*host).to_owned()).collect(), ..route(name, path) }
}

fn with(methods: &[Method], name: &str, path: &str) -> RouteDefinition {
    RouteDefinition { methods: methods.to_vec(), ..route(name, path) }
}

#[test]
fn the_more_specific_host_wins_and_falls_back() {
    let table = table(
        &[
            on(&[], "any", "/{*rest}"),
            on(&["*.example.com"], "wide", "/{*rest}"),
            on(&["*.eu.example.com"], "eu", "/{*rest}"),
            on(&["api.example.com", "b.test"], "api", "/v1/{*rest}"),
        ],
        &[],
    );
    let by = |host: &str, path: &str| TestRequest::new(&format!("GET {path}")).host(host).answered_by(&table);
    assert_eq!(by("api.example.com", "/v1/x"), "api");
    assert_eq!(by("b.test", "/v1"), "api");
    assert_eq!(by("api.example.com", "/v2"), "wide");
    assert_eq!(by("a.eu.example.com", "/v1/x"), "eu");
    assert_eq!(by("eu.example.com", "/"), "wide");
    assert_eq!(by("example.com", "/"), "any");
    assert_eq!(by("", "/"), "any");
}

#[test]
fn a_less_specific_path_answers_where_the_method_of_a_better_one_does_not_hold() {
    let table = table(
        &[
            with(&[Method::POST], "create", "/orders/new"),
            with(&[Method::GET], "read", "/orders/{id}"),
            route("all", "/{*rest}"),
            with(&[Method::DELETE], "all-delete", "/{*rest}"),
        ],
        &[],
    );
    let by = |line: &str| TestRequest::new(line).answered_by(&table);
    assert_eq!(by("POST /orders/new"), "create");
    assert_eq!(by("GET /orders/new"), "read");
    assert_eq!(by("PUT /orders/new"), "all");
    assert_eq!(by("DELETE /orders/new"), "all-delete");
    assert_eq!(by("POST /orders/7"), "all");
    assert_eq!(by("GET /orders/7/items"), "all");
}

#[test]
fn head_is_answered_by_get_unless_it_is_listed() {
    let plain = table(&[with(&[Method::GET], "get", "/a"), route("any", "/a")], &[]);
    assert_eq!(TestRequest::new("HEAD /a").answered_by(&plain), "get");
    assert_eq!(TestRequest::new("OPTIONS /a").answered_by(&plain), "any");
    let own = table(&[with(&[Method::GET], "get", "/a"), with(&[Method::HEAD], "head", "/a")], &[]);
    assert_eq!(TestRequest::new("HEAD /a").answered_by(&own), "head");
    assert_eq!(TestRequest::new("GET /a").answered_by(&own), "get");
}

#[test]
fn allow_names_every_method_that_would_do() {
    let mut beta = with(&[Method::PATCH], "beta", "/a/{x}");
    beta.headers = vec![header_match("x-beta", None)];
    let table = table(
        &[
            with(&[Method::GET, Method::POST], "one", "/a/b"),
            with(&[Method::DELETE], "two", "/a/{x}"),
            with(&[Method::PUT], "elsewhere", "/c"),
            beta,
        ],
        &[],
    );
    assert_eq!(TestRequest::new("OPTIONS /a/b").answered_by(&table), "405 DELETE, GET, HEAD, POST");
    assert_eq!(TestRequest::new("GET /a/x").header("x-beta", "1").answered_by(&table), "405 DELETE, PATCH");
    assert_eq!(TestRequest::new("GET /nowhere").answered_by(&table), "404");
    assert_eq!(TestRequest::new("OPTIONS *").answered_by(&table), "404");
}

#[test]
fn headers_tell_routes_of_one_path_apart() {
    let matching =
        |name: &str, headers: Vec<HeaderMatchDefinition>| RouteDefinition { headers, ..route(name, "/a") };
    let table = table(
        &[
            matching("plain", vec![]),
            matching("v1", vec![header_match("x-version", Some("1"))]),
            matching("v2", vec![header_match("x-version", Some("2"))]),
            matching("v2-beta", vec![header_match("x-version", Some("2")), header_match("x-beta", None)]),
            matching("list", vec![header_match("x-version", Some("1, 2"))]),
        ],
        &[],
    );
    let ask = TestRequest::new("GET /a");
    assert_eq!(ask.answered_by(&table), "plain");
    assert_eq!(ask.clone().header("x-version", "1").answered_by(&table), "v1");
    assert_eq!(ask.clone().header("x-version", "2").answered_by(&table), "v2");
    assert_eq!(ask.clone().header("x-version", "2").header("x-beta", "").answered_by(&table), "v2-beta");
    assert_eq!(ask.clone().header("x-version", "1").header("x-version", "2").answered_by(&table), "list");
    assert_eq!(ask.clone().header("x-version", "1, 2").answered_by(&table), "list");
    assert_eq!(ask.header("x-version", "1, ").answered_by(&table), "plain");
}

#[test]
fn a_third_route_settles_a_tie_over_headers() {
    let matching =
        |name: &str, headers: Vec<HeaderMatchDefinition>| RouteDefinition { headers, ..route(name, "/a") };
    let one = matching("one", vec![header_match("x-one", None)]);
    let two = matching("two", vec![header_match("x-two", Some("2"))]);
    let both = matching("both", vec![header_match("x-two", None), header_match("x-one", None)]);
    let tied = compile(&[one.clone(), two.clone()], &[]).expect_err("a tie");
    assert!(matches!(tied[0].problem, DefinitionProblem::Tie { other: 0, .. }), "{tied:?}");
    assert_eq!(tied.len(), 1);
    let table = table(&[both, two, one], &[]);
    assert_eq!(
        TestRequest::new("GET /a").header("x-one", "").header("x-two", "2").answered_by(&table),
        "both"
    );
}

#[test]
fn explain_says_of_each_route_what_became_of_it() {
    let mut strict = with(&[Method::GET], "strict", "/a/b");
    strict.headers = vec![header_match("x-key", Some("1"))];
    let table = table(
        &[
            on(&["b.test"], "host", "/a/b"),
            route("path", "/a/c"),
            with(&[Method::PUT], "method", "/a/b"),
            strict,
            with(&[Method::GET], "winner", "/a/b"),
            route("by-method", "/a/b"),
            route("by-path", "/a/{x}"),
        ],
        &[],
    );
    let ask = TestRequest::new("GET /a/b");
    let considered = table.explain(&ask.facts());
    let verdicts: Vec<MatchVerdict<'_>> = considered.iter().map(|considered| considered.verdict).collect();
    assert!(matches!(verdicts[0], MatchVerdict::Host));
    assert!(matches!(verdicts[1], MatchVerdict::Path));
    assert!(matches!(verdicts[2], MatchVerdict::Method));
    assert!(matches!(verdicts[3], MatchVerdict::Header(name) if name == "x-key"));
    assert!(matches!(verdicts[4], MatchVerdict::Wins));
    assert!(
        matches!(verdicts[5], MatchVerdict::LessSpecific { than, by: Aspect::Method } if &*than.name == "winner")
    );
    assert!(matches!(verdicts[6], MatchVerdict::LessSpecific { by: Aspect::Path, .. }));
}

#[test]
fn a_path_of_thousands_of_segments_is_looked_at_only_as_far_as_patterns_go() {
    // Every way through this tree matches up to its last segment: the most backtracking six segments allow.
    let segments = |number: u32| (0..6).map(move |bit| if number >> bit & 1 == 0 { "a" } else { "{p}" });
    let name = |segment: &str, index: usize| segment.replace("{p}", &format!("{{p{index}}}"));
    let routes: Vec<RouteDefinition> = (0..64)
        .map(|number| {
            let path: String = segments(number)
                .enumerate()
                .map(|(index, segment)| format!("/{}", name(segment, index)))
                .collect();
            route(&number.to_string(), &format!("{path}/end"))
        })
        .collect();
    let table = table(&routes, &[]);
    assert_eq!(TestRequest::new(&format!("GET {}", "/a".repeat(4_000))).answered_by(&table), "404");
    assert_eq!(TestRequest::new(&format!("GET {}/end", "/a".repeat(6))).answered_by(&table), "0");
    assert_eq!(TestRequest::new("GET /a/b/a/b/a/a/end").answered_by(&table), "10");
}

// ── against a reference ──

/// How well a route matches a request; the least is the most specific. Written from the definitions alone.
type Rank = (HostRank, Vec<u8>, u8, Reverse<usize>);
type HostRank = (u8, Reverse<usize>);

fn rank(route: &RouteDefinition, ask: &TestRequest) -> Option<Rank> {
    let (host, path) = rank_elsewhere(route, ask)?;
    let listed = |method: &Method| route.methods.contains(method);
    let method = match () {
        () if listed(&ask.method) => 0,
        () if ask.method == Method::HEAD && listed(&Method::GET) => 1,
        () if route.methods.is_empty() => 2,
        () => return None,
    };
    Some((host, path, method, Reverse(route.headers.len())))
}

/// The rank by host and path where all but the method holds.
fn rank_elsewhere(route: &RouteDefinition, ask: &TestRequest) -> Option<(HostRank, Vec<u8>)> {
    let hosts = route.hosts.iter().filter_map(|host| match host.strip_prefix('*') {
        Some(suffix) => (ask.host.ends_with(suffix) && ask.host.len() > suffix.len())
            .then_some((1, Reverse(suffix.len()))),
        None => (*host == ask.host).then_some((0, Reverse(0))),
    });
    let host = if route.hosts.is_empty() { Some((2, Reverse(0))) } else { hosts.min() }?;
    let holds = |wanted: &HeaderMatchDefinition| {
        let lines: Vec<&str> =
            ask.headers.get_all(&wanted.name).iter().filter_map(|line| line.to_str().ok()).collect();
        !lines.is_empty() && wanted.value.as_ref().is_none_or(|value| *value == lines.join(", "))
    };
    let path = rank_path(&route.path, &ask.path)?;
    route.headers.iter().all(holds).then_some((host, path))
}

fn rank_path(pattern: &str, path: &str) -> Option<Vec<u8>> {
    let split = |text: &str| -> Vec<String> {
        let mut segments: Vec<String> = text[1..].split('/').map(str::to_owned).collect();
        segments.pop_if(|last| last.is_empty());
        segments
    };
    let (pattern, path) = (split(pattern), split(path));
    let mut rank = Vec::new();
    for (index, wanted) in pattern.iter().enumerate() {
        if wanted.starts_with("{*") {
            rank.push(9);
            return Some(rank);
        }
        let found = path.get(index)?;
        if let Some((begin, _)) = wanted.split_once("{*") {
            rank.push(7 - u8::try_from(begin.len()).ok()?);
            return found.starts_with(begin).then_some(rank);
        }
        match wanted.starts_with('{') {
            true if !found.is_empty() => rank.push(8),
            false if wanted == found => rank.push(0),
            _ => return None,
        }
    }
    (pattern.len() == path.len()).then_some(rank)
}

prop_compose! {
    fn any_route()(
        hosts in prop::collection::vec(select(&["a.test", "b.a.test", "*.a.test", "*.test"][..]), 0..3),
        segments in prop::collection::vec(select(&["a", "b", "{p}"][..]), 0..4),
        rest in select(&["", "", "/{*rest}", "/a{*rest}", "/ab{*rest}", "/b{*rest}"][..]),
        methods in prop::collection::vec(select(&[Method::GET, Method::HEAD, Method::POST][..]), 0..3),
        one in select(&[None, None, Some(None), Some(Some("1")), Some(Some("2"))][..]),
        two in select(&[None, None, Some(None)][..]),
    ) -> RouteDefinition {
        let named = |(index, segment): (usize, &&str)| format!("/{}", segment.replace('p', &format!("p{index}")));
        let mut path: String = segments.iter().enumerate().map(named).collect();
        path.push_str(if path.is_empty() && rest.is_empty() { "/" } else { rest });
        let headers = one.map(|value| header_match("x-one", value)).into_iter()
            .chain(two.map(|value| header_match("x-two", value)));
        RouteDefinition {
            hosts: hosts.into_iter().map(str::to_owned).collect(),
            methods,
            headers: headers.collect(),
            ..route("", &path)
        }
    }
}

prop_compose! {
    fn any_ask()(
        host in select(&["a.test", "b.a.test", "c.b.a.test", "test", "other"][..]),
        segments in prop::collection::vec(select(&["a", "b", "c", "ab", "abc", "ba", ""][..]), 0..5),
        method in select(&["GET", "HEAD", "POST", "PUT"][..]),
        one in select(&[None, Some("1"), Some("2"), Some("3")][..]),
        two in select(&[None, Some("1")][..]),
    ) -> TestRequest {
        let mut ask = TestRequest::new(&format!("{method} /{}", segments.join("/"))).host(host);
        if let Some(one) = one {
            ask = ask.header("x-one", one);
        }
        if let Some(two) = two {
            ask = ask.header("x-two", two);
        }
        ask
    }
}

/// Drops every route that is said to tie with an earlier one, until none is; each tie named must be one.
fn without_ties(
    mut routes: Vec<RouteDefinition>,
    asks: &[TestRequest],
) -> (Vec<RouteDefinition>, RouteTable) {
    loop {
        let errors = match compile(&routes, &[]) {
            Ok(table) => return (routes, table),
            Err(errors) => errors,
        };
        let mut dropped = BTreeSet::new();
        for error in errors {
            let (DefinitionPlace::Route(route), DefinitionProblem::Tie { other, .. }) =
                (error.place, error.problem)
            else {
                panic!("only ties are expected");
            };
            for ask in asks {
                let (left, right) = (rank(&routes[route.index()], ask), rank(&routes[other], ask));
                if let (Some(left), Some(right)) = (left, right) {
                    assert!(
                        (left.1, left.3) == (right.1, right.3),
                        "routes that differ in path or headers do not tie"
                    );
                }
            }
            dropped.insert(route.index());
        }
        let mut index = 0;
        routes.retain(|_| {
            index += 1;
            !dropped.contains(&(index - 1))
        });
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn the_winner_is_that_of_trying_every_route(
        mut routes in prop::collection::vec(any_route(), 0..24),
        asks in prop::collection::vec(any_ask(), 40),
        shuffle in any::<u64>(),
    ) {
        for (index, route) in routes.iter_mut().enumerate() {
            route.name = format!("r{index}");
        }
        let (routes, table) = without_ties(routes, &asks);
        let mut other_order = routes.clone();
        other_order.sort_by_key(|route| {
            route.name.bytes().fold(shuffle, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3))
        });
        let shuffled = super::table(&other_order, &[]);
        for ask in &asks {
            let mut ranked: Vec<(Rank, &str)> =
                routes.iter().filter_map(|route| Some((rank(route, ask)?, &*route.name))).collect();
            ranked.sort();
            if let [first, second, ..] = &ranked[..] {
                prop_assert!(first.0 != second.0, "a tie was let through: {first:?} {second:?} {ask:?}");
            }
            let answer = ask.answered_by(&table);
            prop_assert_eq!(&answer, &ask.answered_by(&shuffled), "the order decides for {:?}", ask);
            match ranked.first() {
                Some((_, winner)) => prop_assert_eq!(&answer, winner, "{:?}", ask),
                None => prop_assert!(answer.starts_with("40"), "{answer} for {ask:?}"),
            }
            check_refusal(&routes, &table, ask)?;
            for considered in table.explain(&ask.facts()) {
                let wins = matches!(considered.verdict, MatchVerdict::Wins);
                prop_assert_eq!(wins, *considered.route.name == *answer);
                let matches = wins || matches!(considered.verdict, MatchVerdict::LessSpecific { .. });
                prop_assert_eq!(matches, rank(&routes[considered.route.id.index()], ask).is_some());
            }
        }
    }
}

/// Where nothing answers, `Allow` names what would.
fn check_refusal(
    routes: &[RouteDefinition],
    table: &RouteTable,
    ask: &TestRequest,
) -> Result<(), TestCaseError> {
    let Err(refusal) = table.find(&ask.facts()) else { return Ok(()) };
    let mut allowed: BTreeSet<&str> = BTreeSet::new();
    for route in routes.iter().filter(|route| rank_elsewhere(route, ask).is_some()) {
        allowed.extend(route.methods.iter().map(Method::as_str));
        allowed.extend(route.methods.contains(&Method::GET).then_some("HEAD"));
    }
    let said = match refusal {
        NotFound::Route => String::new(),
        NotFound::Method { allow } => allow.to_str().expect("method names").to_owned(),
    };
    prop_assert_eq!(said, allowed.into_iter().collect::<Vec<_>>().join(", "));
    Ok(())
}
