//! Templates: header changes and rewritten paths.

use http::{HeaderMap, HeaderName};
use proptest::prelude::*;
use proptest::sample::select;

use super::{TestRequest, compile, route, table};
use crate::definition::{self, HeaderChangesDefinition, RouteDefinition};
use crate::error::DefinitionProblem;
use crate::template;
use base::identity::Identity;

fn setting(path: &str, value: &str) -> RouteDefinition {
    let set = vec![(HeaderName::from_static("x-out"), value.to_owned())];
    RouteDefinition {
        request_headers: HeaderChangesDefinition { set, ..HeaderChangesDefinition::default() },
        ..route("my-route", path)
    }
}

/// What `x-out` becomes; a client's own was there before.
fn set_to(path: &str, value: &str, ask: &TestRequest) -> Option<String> {
    let table = table(&[setting(path, value)], &[]);
    let facts = ask.facts();
    let found = table.find(&facts).expect("a route");
    let mut headers = HeaderMap::new();
    headers.insert("x-out", "the client's own".parse().expect("a value"));
    found.route.request_headers.apply(&mut headers, &found.values(&facts, "req-1"));
    headers.get("x-out").map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned())
}

fn rewriting(path: &str, rewrite: &str) -> RouteDefinition {
    let action = definition::ActionDefinition::Forward {
        to: definition::DestinationDefinition::one("orders".to_owned()),
        rewrite: Some(rewrite.to_owned()),
    };
    RouteDefinition { action, ..route("r", path) }
}

fn rewritten(path: &str, rewrite: &str, ask: &TestRequest) -> String {
    let table = table(&[rewriting(path, rewrite)], &[]);
    let facts = ask.facts();
    let found = table.find(&facts).expect("a route");
    found.route.rewritten_path(&found.values(&facts, "req-1")).into_owned()
}

fn template_error(route: RouteDefinition) -> template::Error {
    let mut errors = compile(&[route], &[]).expect_err("a mistake");
    match errors.pop().map(|error| error.problem) {
        Some(DefinitionProblem::Template(error)) if errors.is_empty() => error,
        other => panic!("one mistake in a template is expected: {other:?} {errors:?}"),
    }
}

#[test]
fn a_header_value_takes_what_is_known_of_a_request() {
    let mut ask = TestRequest::new("GET /o/a%20b/x/y?q=1").consumer("ann").from("::ffff:192.0.2.9");
    ask.identity.tier = Some("pro".into());
    let all = "{id}|{rest}|{ip}|{host}|{method}|{path}|{query}|{route}|{consumer}|{tenant}|{tier}|{request_id}|{{}}";
    let expected = "a b|x/y|192.0.2.9|host.test|GET|/o/a%20b/x/y|q=1|my-route|ann||pro|req-1|{}";
    assert_eq!(set_to("/o/{id}/{*rest}", all, &ask).as_deref(), Some(expected));
    assert_eq!(set_to("/{*rest}", "fixed {{x}}", &ask).as_deref(), Some("fixed {x}"));
}

#[test]
fn what_no_header_may_hold_is_not_sent_and_the_clients_own_neither() {
    for id in ["a%0d%0aset-cookie:x", "%00", "%20", "a%09", "%7f"] {
        assert_eq!(set_to("/{id}", "{id}", &TestRequest::new(&format!("GET /{id}"))), None, "{id}");
    }
    assert_eq!(set_to("/{id}", "{tenant}", &TestRequest::new("GET /x")), None);
    assert_eq!(set_to("/{id}", "", &TestRequest::new("GET /x")).as_deref(), Some(""));
    assert_eq!(set_to("/{id}", "{id}", &TestRequest::new("GET /caf%C3%A9")).as_deref(), Some("caf\u{e9}"));
}

#[test]
fn a_literal_blank_at_an_end_is_a_mistake() {
    for value in [" {id}", "{id} ", "\t{id}", " x"] {
        assert_eq!(template_error(setting("/{id}", value)), template::Error::HeaderText, "{value}");
    }
    assert_eq!(set_to("/{id}", "{id} {id}", &TestRequest::new("GET /x")).as_deref(), Some("x x"));
}

fn redirecting(path: &str, to: &str) -> RouteDefinition {
    let action = definition::ActionDefinition::Redirect {
        to: to.to_owned(),
        status: http::StatusCode::PERMANENT_REDIRECT,
    };
    RouteDefinition { action, ..route("r", path) }
}

#[test]
fn no_client_chooses_the_host_of_a_redirect() {
    for to in ["https://{id}", "https://{id}.example.com/", "https://a.{tenant}/x", "http://{ip}/"] {
        assert_eq!(template_error(redirecting("/{id}", to)), template::Error::HostOfClient, "{to}");
    }
    // What follows the host without a slash would go on with its name.
    assert_eq!(template_error(redirecting("/{id}", "https://a.example{id}")), template::Error::HostOfClient);
    for to in [
        "",
        "x",
        "{id}",
        "//a.example/",
        "/\\a.example",
        "https://",
        "https:///x",
        "https://u@a.example/",
        "ftp://a/",
    ] {
        assert_eq!(template_error(redirecting("/{id}", to)), template::Error::NotLocation, "{to}");
    }
    for (to, known) in [("/new/$1", "id"), ("https://a.example/:id", "id"), ("/*", "id")] {
        let error = template_error(redirecting("/{id}", to));
        assert!(matches!(error, template::Error::Foreign { instead, .. } if instead == known), "{to}");
    }
    compile(&[redirecting("/{id}", "/a?price=$1&{id}/*")], &[]).expect("a query is the operator's own");
    for (to, found) in [("/a b", ' '), ("/a#b", '#'), ("/\u{e9}", '\u{e9}'), ("/a\n", '\n')] {
        assert_eq!(
            template_error(redirecting("/{id}", to)),
            template::Error::NotInLocation { found },
            "{to}"
        );
    }
}

#[test]
fn headers_are_removed_set_and_added_in_this_order() {
    let name = HeaderName::from_static;
    let changes = HeaderChangesDefinition {
        remove: vec![name("x-a"), name("x-b")],
        set: vec![(name("x-b"), "{method}".to_owned()), (name("x-c"), "1".to_owned())],
        add: vec![(name("x-c"), "2".to_owned()), (name("x-d"), "{tenant}".to_owned())],
        ..HeaderChangesDefinition::default()
    };
    let table = table(&[RouteDefinition { response_headers: changes, ..route("r", "/") }], &[]);
    let ask = TestRequest::new("GET /");
    let facts = ask.facts();
    let found = table.find(&facts).expect("a route");
    let mut headers = HeaderMap::new();
    for (header, value) in [("x-a", "0"), ("x-a", "0"), ("x-c", "0"), ("x-e", "0")] {
        headers.append(header, value.parse().expect("a value"));
    }
    assert!(found.route.request_headers.is_empty());
    found.route.response_headers.apply(&mut headers, &found.values(&facts, ""));
    let mut left: Vec<_> = headers.iter().map(|(name, value)| (name.as_str(), value.as_bytes())).collect();
    left.sort();
    assert_eq!(left, [("x-b", &b"GET"[..]), ("x-c", b"1"), ("x-c", b"2"), ("x-e", b"0")]);
}

#[test]
fn a_part_of_a_segment_makes_no_segment_of_dots_and_no_second_slash() {
    for (path, rewrite, expected) in [
        ("/files/a", "/new{rest}", "/new/a"),
        ("/files/a", "/new/{rest}", "/new/a"),
        ("/files/a", "/{rest}", "/a"),
        ("/files", "/new/{rest}", "/new/"),
        ("/files10/a", "/new{rest}", "/new10/a"),
        ("/files../a", "/new/{rest}", "/new/-/a"),
        ("/files./", "/new/{rest}", "/new/-/"),
        ("/files..", "/{rest}", "/-"),
        ("/files...", "/{rest}/.x", "/.../.x"),
        ("/files/", "/new{rest}..", "/new/-"),
        ("/files%2E./a", "/new/{rest}", "/new/-/a"),
    ] {
        let path = crate::matching::path::canonical(path).expect("a path").path;
        let ask = TestRequest::new(&format!("GET {path}"));
        assert_eq!(rewritten("/files{*rest}", rewrite, &ask), expected, "{path} {rewrite}");
    }
    let table = table(&[redirecting("/old{*rest}", "https://a.test/new/{rest}")], &[]);
    let ask = TestRequest::new("GET /old/x");
    let facts = ask.facts();
    let found = table.find(&facts).expect("a route");
    let crate::route::Action::Redirect { to, .. } = &found.route.action else { panic!("it redirects") };
    let to = to.render(&found.values(&facts, "")).expect("a place");
    assert_eq!(to, "https://a.test/new/x");
}

#[test]
fn a_rewritten_path_keeps_parameters_as_they_came() {
    let ask = TestRequest::new("GET /v1/orders/a%3Fb%20c?x=1");
    assert_eq!(rewritten("/v1/orders/{id}", "/orders/{id}", &ask), "/orders/a%3Fb%20c");
    assert_eq!(rewritten("/v1/{*rest}", "/{rest}", &ask), "/orders/a%3Fb%20c");
    assert_eq!(rewritten("/v1/orders/a%3fb c/{*rest}", "/new/{rest}", &ask), "/new/");
    assert_eq!(rewritten("/{*rest}", "{path}", &ask), "/v1/orders/a%3Fb%20c");
    assert_eq!(
        rewritten("/{*rest}", "/old{path}/caf\u{e9} {{x}}", &ask),
        "/old/v1/orders/a%3Fb%20c/caf%C3%A9%20%7Bx%7D"
    );
    assert_eq!(rewritten("/{a}/{b}/{c}", "/{c}-{a}.{b}", &ask), "/a%3Fb%20c-v1.orders");
    assert_eq!(rewritten("/{*rest}", "/{rest}", &TestRequest::new("GET //evil.test/x")), "/evil.test/x");
    let untouched = table(&[route("r", "/{*rest}")], &[]);
    let facts = ask.facts();
    let found = untouched.find(&facts).expect("a route");
    assert_eq!(found.route.rewritten_path(&found.values(&facts, "")), "/v1/orders/a%3Fb%20c");
}

#[test]
fn a_consumers_name_stays_within_its_segment() {
    let as_consumer =
        |name: &str| rewritten("/", "/users/{consumer}/x", &TestRequest::new("GET /").consumer(name));
    assert_eq!(as_consumer("ann"), "/users/ann/x");
    assert_eq!(as_consumer("../admin?x#y"), "/users/..%2Fadmin%3Fx%23y/x");
    assert_eq!(as_consumer(".."), "/users/-/x");
    assert_eq!(as_consumer(""), "/users/-/x");
    assert_eq!(as_consumer("\u{e9}%2f"), "/users/%C3%A9%252f/x");
    assert_eq!(
        rewritten("/", "/{host}/{method}", &TestRequest::new("POST /").host("h.test")),
        "/h.test/POST"
    );
}

#[test]
fn each_mistake_in_a_template_has_its_error() {
    use crate::braces;
    use template::Error;
    let header = |value: &str| template_error(setting("/{id}/{ip}", value));
    assert_eq!(header("a {id"), Error::Brace(braces::Error::Unclosed { offset: 2 }));
    assert_eq!(header("a } b"), Error::Brace(braces::Error::LoneBrace { offset: 2 }));
    assert!(
        matches!(header("{idd}"), Error::UnknownName { offset: 0, name, known } if name == "idd" && known[0] == "id")
    );
    assert!(matches!(header("{}"), Error::UnknownName { .. }));
    assert_eq!(header("x {ip}"), Error::Ambiguous { offset: 2, name: "ip".into() });
    assert_eq!(header("a\r\nb: c"), Error::HeaderText);
    assert_eq!(header(" padded"), Error::HeaderText);
    assert_eq!(header("{id}\n"), Error::HeaderText);
    let path = |rewrite: &str| template_error(rewriting("/{id}/{*rest}", rewrite));
    assert_eq!(path("orders/{id}"), Error::NoSlash);
    assert_eq!(path("{id}"), Error::NoSlash);
    assert_eq!(path(""), Error::NoSlash);
    assert_eq!(path("/a?{id}"), Error::NotPath { found: '?' });
    for dots in ["/a/../b", "/..{rest}", "/%2e%2e/x", "/a/.", "{path}.."] {
        assert_eq!(path(dots), Error::DotSegment, "{dots}");
    }
    assert_eq!(path("/50%"), Error::Percent);
    assert!(matches!(path("/{query}"), Error::UnknownName { .. }));
    assert!(matches!(path("/{request_id}"), Error::UnknownName { .. }));
}

proptest! {
    #[test]
    fn an_escaped_text_comes_out_as_it_was(text in "[!-~]([ -~]{0,30}[!-~])?") {
        let escaped = text.replace('{', "{{").replace('}', "}}");
        prop_assert_eq!(set_to("/", &escaped, &TestRequest::new("GET /")), Some(text));
    }

    #[test]
    fn text_and_values_come_out_in_their_order(
        parts in prop::collection::vec(
            prop_oneof![
                "[a-z{}]{1,5}".prop_map(|text| (text.replace('{', "{{").replace('}', "}}"), text)),
                select(&[("{id}", "i d"), ("{method}", "GET"), ("{tier}", ""), ("{request_id}", "req-1")][..])
                    .prop_map(|(written, value)| (written.to_owned(), value.to_owned())),
            ],
            1..8,
        ),
    ) {
        let (written, expected): (Vec<String>, Vec<String>) = parts.into_iter().unzip();
        let expected = Some(expected.concat()).filter(|value| !value.is_empty());
        prop_assert_eq!(set_to("/{id}", &written.concat(), &TestRequest::new("GET /i%20d")), expected);
    }

    #[test]
    fn a_rewritten_path_is_a_path_without_dot_segments(
        rewrite in select(&["/{consumer}", "/x/{a}{tenant}", "{path}", "/.{consumer}.", "/{rest}", "/{tenant}{consumer}/{a}", "/{a}.{rest}"][..]),
        a in select(&["a", "...", ".x", "%2F"][..]),
        rest in select(&["", "b", "b/c/", ".c"][..]),
        consumer in "\\PC{0,4}|[./]{0,3}",
        tenant in "[./%2Ee]{0,3}",
    ) {
        let mut ask = TestRequest::new(&format!("GET /{a}/{rest}"));
        ask.identity = Identity { consumer: Some(consumer.into()), tenant: Some(tenant.into()), tier: None, ..Identity::default() };
        let path = rewritten("/{a}/{*rest}", rewrite, &ask);
        prop_assert!(path.starts_with('/') && !path.starts_with("//"), "{path}");
        prop_assert!(path.parse::<http::uri::PathAndQuery>().is_ok_and(|uri| uri.path() == path), "{path}");
        let has_dots = path.split('/').any(|segment| matches!(&*segment.replace("%2E", "."), "." | ".."));
        prop_assert!(!has_dots, "{path}");
    }
}
