//! Which route a request finds, and what is said where it finds none.

use crate::support::{Gateway, Response, Upstream};

/// A gateway whose routes answer with their own names.
fn routes(all: &[(&str, &str)]) -> Gateway {
    let tables: Vec<String> = all
        .iter()
        .map(|(name, keys)| {
            format!("[[route]]\nname = \"{name}\"\n{keys}\nrespond = {{ status = 200, body = \"{name}\" }}\n")
        })
        .collect();
    Gateway::start(&tables.concat())
}

fn ask(gateway: &Gateway, method: &str, host: &str, target: &str, fields: &[&str]) -> Response {
    let host = format!("Host: {host}");
    let mut all = vec![host.as_str()];
    all.extend(fields);
    gateway.client().request(method, target, &all, "")
}

#[test]
fn the_most_specific_route_wins_in_any_order() {
    let mut all = [
        ("any", "path = \"/{*rest}\""),
        ("id", "path = \"/o/{id}\""),
        ("new", "path = \"/o/new\""),
        ("rest", "path = \"/o/{*rest}\""),
        ("post", "path = \"/o/{id}\"\nmethods = [\"POST\"]"),
        ("wild", "host = \"*.example.com\"\npath = \"/{*rest}\""),
        ("deep", "host = \"*.eu.example.com\"\npath = \"/{*rest}\""),
        ("exact", "host = \"api.example.com\"\npath = \"/{*rest}\""),
        ("beta", "path = \"/o/{id}\"\nmatch = { header = { x-beta = \"1\" } }"),
    ];
    for _ in 0..2 {
        let gateway = routes(&all);
        for (method, host, target, expected) in [
            ("GET", "a", "/x/y/z", "any"),
            ("GET", "a", "/", "any"),
            ("GET", "a", "/o/7", "id"),
            ("GET", "a", "/o/new", "new"),
            ("GET", "a", "/o/", "rest"),
            ("GET", "a", "/o/7/8", "rest"),
            ("POST", "a", "/o/7", "post"),
            ("GET", "www.example.com", "/o/7", "wild"),
            ("GET", "x.eu.example.com", "/", "deep"),
            ("GET", "api.example.com", "/", "exact"),
            ("GET", "API.Example.COM:8080", "/", "exact"),
            ("GET", "api.example.com.", "/", "exact"),
            ("GET", "example.com", "/q", "any"),
        ] {
            assert_eq!(ask(&gateway, method, host, target, &[]).text(), expected, "{method} {host}{target}");
        }
        assert_eq!(ask(&gateway, "GET", "a", "/o/7", &["X-Beta: 1"]).text(), "beta");
        assert_eq!(ask(&gateway, "GET", "a", "/o/7", &["X-Beta: 2"]).text(), "id");
        all.reverse();
    }
}

#[test]
fn no_route_is_404_as_a_problem() {
    let gateway = routes(&[("a", "path = \"/a\"")]);
    let answer = gateway.get("/nowhere");
    assert_eq!((answer.status, answer.header("content-type")), (404, Some("application/problem+json")));
    assert_eq!(answer.json()["status"], 404);
    assert!(answer.json()["title"].is_string() && answer.json()["type"].is_string(), "{}", answer.text());
    let line = gateway.logged("/nowhere");
    assert_eq!((line["status"].as_u64(), line["reason"].as_str()), (Some(404), Some("no-route")));
}

#[test]
fn another_method_is_405_with_allow() {
    let gateway = routes(&[
        ("read", "path = \"/a\"\nmethods = [\"GET\"]"),
        ("write", "path = \"/a\"\nmethods = [\"POST\", \"PUT\"]"),
    ]);
    let answer = gateway.client().request("DELETE", "/a", &[], "");
    assert_eq!((answer.status, answer.header("content-type")), (405, Some("application/problem+json")));
    let mut allowed: Vec<&str> = answer.header("allow").unwrap_or_default().split(", ").collect();
    allowed.sort_unstable();
    assert_eq!(allowed, ["GET", "HEAD", "POST", "PUT"]);
    assert_eq!(gateway.logged("/a")["reason"], "method-not-allowed");
    let head = gateway.client().request("HEAD", "/a", &[], "");
    assert_eq!((head.status, head.number("content-length")), (200, 4));
}

#[test]
fn respond_answers_with_what_it_is_given() {
    let gateway = Gateway::start(
        "[[route]]\npath = \"/status\"\n\
         respond = { status = 203, body = \"grüße\\n\", headers = { content-type = \"text/plain; charset=utf-8\", x-a = \"1\" } }",
    );
    let answer = gateway.get("/status");
    assert_eq!((answer.status, answer.text().as_str(), answer.header("x-a")), (203, "grüße\n", Some("1")));
    assert_eq!(answer.header("content-type"), Some("text/plain; charset=utf-8"));
}

#[test]
fn the_echo_upstream_answers_with_what_came() {
    let gateway = Gateway::start("[[route]]\npath = \"/{*rest}\"\nto = \"echo\"");
    let answer = gateway.client().request("POST", "/x?y", &["X-Mine: 1"], "hello");
    assert_eq!(answer.status, 200);
    assert!(answer.text().contains("hello"), "{}", answer.text());
}

#[test]
fn a_redirecting_listener_sends_to_https() {
    let gateway = Gateway::start(
        "[listener.plain]\nbind = \"127.0.0.1:0\"\nredirect = \"https\"\n\
         [[route]]\npath = \"/{*rest}\"\nrespond = { status = 200, body = \"never\" }",
    );
    let answer = ask(&gateway, "GET", "api.example.com:8080", "/a?b=c", &[]);
    assert!(answer.status == 301 || answer.status == 308, "{}", answer.status);
    assert_eq!(answer.header("location"), Some("https://api.example.com/a?b=c"));
}

#[test]
fn every_answer_of_the_gateway_s_own_can_be_kept_alive() {
    let gateway = routes(&[("a", "path = \"/a\"\nmethods = [\"GET\"]")]);
    let mut client = gateway.client();
    for _ in 0..3 {
        assert_eq!(client.get("/nowhere").status, 404);
        assert_eq!(client.request("POST", "/a", &[], "body").status, 405);
        assert_eq!(client.get("/a").text(), "a");
    }
}

#[test]
fn every_spelling_of_a_path_is_one_route_one_limit_and_one_target() {
    let upstream = Upstream::ok();
    let gateway = Gateway::start(&format!(
        "[[route]]\nname = \"limited\"\npath = \"/limited/{{id}}\"\nto = \"http://{0}\"\nlimit = \"7/h by ip, param:id\"\n\
         [[route]]\nname = \"rest\"\npath = \"/{{*rest}}\"\nto = \"http://{0}\"",
        upstream.addr()
    ));
    for spelled in [
        "/limited/a?x=%2e//",
        "/limite%64/a",
        "//limited//a",
        "/./limited/./a",
        "/x/../limited/a",
        "/%2e/x/%2E%2e/limited/a",
        "/limited/%61",
    ] {
        assert_eq!(gateway.get(spelled).status, 200, "{spelled}");
        let query = spelled.split_once('?').map_or("", |_| "?x=%2e//");
        assert_eq!(upstream.request().line, format!("GET /limited/a{query} HTTP/1.1"), "{spelled}");
        assert_eq!(gateway.logged(spelled)["route"], "limited");
    }
    assert_eq!(gateway.get("/limited/a").status, 429, "all of them were counted as one");
    for ambiguous in ["/limited%2fa", "/limited%5Ca", "/limited/a%00", "/limited/%2561", "/limited/%zz"] {
        let answer = gateway.get(ambiguous);
        assert_eq!(
            (answer.status, answer.json()["reason"].as_str()),
            (400, Some("malformed")),
            "{ambiguous}"
        );
    }
    assert!(upstream.is_quiet());
}

#[test]
fn what_answers_a_head_here_is_whole() {
    let gateway = Gateway::start(
        "[[route]]\npath = \"/fixed\"\nrespond = { body = \"hello\" }\n[[route]]\npath = \"/echo\"\nto = \"echo\"",
    );
    for path in ["/fixed", "/echo"] {
        let answer = gateway.client().request("HEAD", path, &["Connection: close"], "");
        assert!(answer.status == 200 && answer.number("content-length") > 0, "{answer:?}");
        let line = gateway.logged(path);
        assert_eq!((&line["status"], line.get("reason")), (&200.into(), None), "{line}");
    }
}
