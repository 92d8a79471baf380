//! What does not compile: every mistake at once, each with its place.

use std::num::NonZeroU64;

use http::{HeaderName, Method, StatusCode};

use super::{compile, header_match, policy, route};
use crate::RouteId;
use crate::definition::{
    ActionDefinition, DestinationDefinition, HeaderChangesDefinition, MatchesDefinition, PolicyDefinition,
    RespondDefinition, RouteDefinition,
};
use crate::error::{DefinitionPlace, DefinitionProblem, Error};
use crate::matching::{host, pattern};
use limit::PolicyId;

fn at_route(index: u32, key: &str, problem: DefinitionProblem) -> Error {
    Error { place: DefinitionPlace::Route(RouteId::new(index)), key: key.to_owned(), problem }
}

fn at_policy(index: u32, key: &str, problem: DefinitionProblem) -> Error {
    Error { place: DefinitionPlace::Policy(PolicyId::new(index)), key: key.to_owned(), problem }
}

fn mistakes(routes: &[RouteDefinition], policies: &[PolicyDefinition]) -> Vec<Error> {
    compile(routes, policies).expect_err("mistakes")
}

#[test]
fn a_fixed_host_that_is_none_is_a_mistake() {
    let setting = |host: &str| {
        let changes = HeaderChangesDefinition {
            set: vec![(http::header::HOST, host.into())],
            ..HeaderChangesDefinition::default()
        };
        compile(&[RouteDefinition { request_headers: changes, ..route("one", "/a") }], &[]).err()
    };
    for host in ["a.example", "A.example.:8443", "[::1]", "{host}", "{tenant}.example"] {
        assert_eq!(setting(host), None, "{host}");
    }
    for host in ["a b", "[", "a@b", "a:b", "http://a.example"] {
        let problem = DefinitionProblem::Template(crate::template::Error::NotHost);
        assert_eq!(setting(host), Some(vec![at_route(0, "headers.set", problem)]), "{host}");
    }
}

#[test]
fn all_mistakes_of_routes_come_at_once() {
    let name = HeaderName::from_static;
    let bad = RouteDefinition {
        hosts: vec!["a.test".into(), "a.test:80".into()],
        headers: vec![header_match("x", Some("1")), header_match("x", Some("2"))],
        limits: vec!["p".into(), "q".into(), "p".into()],
        ..route("one", "api")
    };
    let forward = ActionDefinition::Forward {
        to: DestinationDefinition::one("ordres".into()),
        rewrite: Some("x".into()),
    };
    let changes = HeaderChangesDefinition {
        remove: vec![name("content-length")],
        set: vec![(name("x"), "1".into()), (name("connection"), "close".into())],
        add: vec![(name("te"), "trailers".into())],
        ..HeaderChangesDefinition::default()
    };
    let second = RouteDefinition { action: forward, response_headers: changes, ..route("one", "/b") };
    let respond = RespondDefinition {
        status: StatusCode::OK,
        headers: vec![(name("content-length"), "9".into())],
        body: "ok".to_owned(),
    };
    let third = RouteDefinition { action: ActionDefinition::Respond(respond), ..route("", "/c") };
    let framing = |name: &str| DefinitionProblem::FramingHeader { name: name.into() };
    let found = mistakes(&[bad, second, third], &[policy("p", &["1/s"])]);
    let expected = [
        at_route(1, "name", DefinitionProblem::DuplicateName { name: "one".into(), other: 0 }),
        at_route(2, "name", DefinitionProblem::EmptyName),
        at_route(0, "host[1]", DefinitionProblem::Host(host::Error::SchemeOrPort)),
        at_route(0, "path", DefinitionProblem::Pattern(pattern::Error::NoSlash)),
        at_route(0, "match", DefinitionProblem::HeaderNeverMatches { name: "x".into() }),
        at_route(0, "limit[1]", DefinitionProblem::UnknownPolicy { name: "q".into() }),
        at_route(0, "limit[2]", DefinitionProblem::PolicyTwice { name: "p".into() }),
        at_route(1, "rewrite", DefinitionProblem::Template(crate::template::Error::NoSlash)),
        at_route(1, "to", DefinitionProblem::UnknownUpstream { name: "ordres".into() }),
        at_route(1, "response-headers.remove", framing("content-length")),
        at_route(1, "response-headers.set", framing("connection")),
        at_route(1, "response-headers.add", framing("te")),
        at_route(2, "respond.headers", framing("content-length")),
    ];
    assert_eq!(found, expected);
}

#[test]
fn all_mistakes_of_policies_come_at_once() {
    let mut costly = policy("a", &["100/m burst 20 by ip", "50/h"]);
    costly.cost.default = NonZeroU64::new(21).expect("not 0");
    costly.cost.rules = vec![
        (None, "/x/{a}".into(), 20),
        (Some(Method::GET), "/x/{b}".into(), 21),
        (None, "/x/{c}/".into(), 1),
        (None, "x".into(), 1),
    ];
    let mut second = policy("a", &["1/s by ip"]);
    second.by.push(second.by[0].clone());
    second.matches = MatchesDefinition { methods: vec![], path: Some("/a?b".into()) };
    let above = |cost| DefinitionProblem::CostAboveCapacity { cost, capacity: 20 };
    let expected = [
        at_policy(1, "name", DefinitionProblem::DuplicateName { name: "a".into(), other: 0 }),
        at_policy(0, "cost.default", above(21)),
        at_policy(0, "cost", above(21)),
        at_policy(0, "cost", DefinitionProblem::CostTwice { other: 0 }),
        at_policy(0, "cost", DefinitionProblem::Pattern(pattern::Error::NoSlash)),
        at_policy(1, "by[1]", DefinitionProblem::DimensionTwice),
        at_policy(
            1,
            "match.path",
            DefinitionProblem::Pattern(pattern::Error::NotPath { offset: 2, found: '?' }),
        ),
    ];
    assert_eq!(mistakes(&[], &[costly, second]), expected);
}

#[test]
fn a_parameter_that_no_route_of_a_policy_has_is_a_mistake() {
    let by_id = policy("p", &["5/s by ip param:id"]);
    let using = |name: &str, path: &str| RouteDefinition { limits: vec!["p".into()], ..route(name, path) };
    let expected = at_policy(0, "by[1]", DefinitionProblem::ParamNowhere { name: "id".into() });
    assert_eq!(mistakes(&[using("a", "/a/{x}"), using("b", "/b")], std::slice::from_ref(&by_id)), [expected]);
    assert!(compile(&[using("a", "/a/{id}"), using("b", "/b")], std::slice::from_ref(&by_id)).is_ok());
    assert!(compile(&[route("a", "/a")], &[by_id]).is_ok());
}

#[test]
fn routes_that_match_the_same_requests_tie() {
    let tie = |left: &RouteDefinition, right: &RouteDefinition| {
        let found = compile(&[left.clone(), right.clone()], &[]).err().unwrap_or_default();
        found.iter().any(|error| matches!(error.problem, DefinitionProblem::Tie { other: 0, .. }))
    };
    let base = route("a", "/x/{id}");
    let other = route("b", "/x/{name}/");
    assert!(tie(&base, &other));
    let methods = |methods: &[Method], route: &RouteDefinition| RouteDefinition {
        methods: methods.to_vec(),
        ..route.clone()
    };
    assert!(!tie(&methods(&[Method::GET], &base), &other));
    assert!(!tie(&methods(&[Method::GET], &base), &methods(&[Method::POST], &other)));
    assert!(!tie(&methods(&[Method::GET], &base), &methods(&[Method::HEAD], &other)));
    assert!(tie(
        &methods(&[Method::GET, Method::POST], &base),
        &methods(&[Method::PUT, Method::POST], &other)
    ));
    let hosts = |hosts: &[&str], route: &RouteDefinition| RouteDefinition {
        hosts: hosts.iter().map(|host| (*host).to_owned()).collect(),
        ..route.clone()
    };
    assert!(!tie(&hosts(&["a.test"], &base), &other));
    assert!(!tie(&hosts(&["a.test"], &base), &hosts(&["*.test"], &other)));
    assert!(tie(&hosts(&["a.test", "*.test"], &base), &hosts(&["*.TEST"], &other)));
    let headers = |value: Option<&str>, route: &RouteDefinition| RouteDefinition {
        headers: vec![header_match("x-version", value)],
        ..route.clone()
    };
    assert!(!tie(&headers(Some("1"), &base), &headers(Some("2"), &other)));
    assert!(tie(&headers(Some("1"), &base), &headers(None, &other)));
    assert!(!tie(&headers(Some("1"), &base), &other));
    let found = mistakes(&[base, route("c", "/c"), other], &[]);
    let (name, other_name) = ("b".into(), "a".into());
    let expected = DefinitionProblem::Tie { name, other: 0, other_name, method_any: true };
    assert_eq!(found, [at_route(2, "path", expected)]);
    assert_eq!(
        found[0].to_string(),
        "the routes `b` and `a` match the same requests, and neither is more specific; give one of them another host, path, `methods`, or one more header"
    );
}
