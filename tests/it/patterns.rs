//! What operators bring along from other gateways, and what `{...}` stands for.

use std::process::Output;

use crate::support::gateway::binary;
use crate::support::{Directory, Gateway, text};

fn check(config: &str) -> Output {
    let directory = Directory::new();
    let file = directory.write("gateway.toml", config);
    binary().args(["check", "--config"]).arg(file).output().expect("the binary under test can be started")
}

#[test]
fn patterns_of_other_gateways_draw_a_message_with_what_to_write() {
    for (pattern, instead) in [
        ("/api/*", "{*rest}"),
        ("/api/**", "{*rest}"),
        ("/*/x", "{name}"),
        ("/a/*.jpg", "{name}"),
        ("/files/*path", "{*path}"),
        ("/u/:id", "{id}"),
        ("/u/:id/x", "{id}"),
        ("/u/<id>", "{id}"),
        ("/u/<int:id>", "{name}"),
        ("/r/[0-9]+", "{name}"),
        ("/r/(a|b)", "{name}"),
        ("/r/.+", "{*rest}"),
        ("/^x", "{name}"),
        ("/x$", "{*rest}"),
        ("/{id:[0-9]+}", "{id}"),
        ("/{rest...}", "{*rest}"),
        ("~ ^/x", "{*rest}"),
        ("^~ /x", "{*rest}"),
        ("= /x", "{name}"),
    ] {
        let route = format!("[[route]]\npath = '{pattern}'\nto = \"echo\"\n");
        let output = check(&route);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(78), "{pattern}: {said}");
        assert!(said.contains("gateway.toml:2:8") && said.contains(instead), "{pattern}: {said}");
    }
    // Wherever a path is written.
    let policy = "[[route]]\npath = \"/{*rest}\"\nto = \"echo\"\nlimit = \"p\"\n[policy.p]\nby = []\nlimit = \"9/m\"\n";
    for (more, place) in
        [("match = { path = \"/a/*\" }\n", "8:18"), ("cost = { \"GET /u/:id\" = 2 }\n", "8:8")]
    {
        let said = text(&check(&format!("{policy}{more}")).stderr);
        assert!(said.contains(place) && said.contains("{="), "{more}: {said}");
    }
    let rewrite = "[[route]]\npath = \"/u/{id}/{*rest}\"\nto = \"http://127.0.0.1:1\"\nrewrite = ";
    for (path, instead) in [("/x/$1", "{id}"), ("/x/:id", "{id}"), ("/x/*", "{rest}")] {
        let said = text(&check(&format!("{rewrite}\"{path}\"\n")).stderr);
        assert!(said.contains("4:11") && said.contains(instead), "{path}: {said}");
    }
}

#[test]
fn variables_of_other_gateways_in_values_draw_a_warning() {
    let route = "[[route]]\npath = \"/\"\nto = \"http://127.0.0.1:1\"\n";
    let said = |key: &str, value: &str| {
        let output = check(&format!("{route}{key} = {{ set = {{ x-a = \"{value}\" }} }}\n"));
        assert_eq!(output.status.code(), Some(0), "{value}");
        text(&output.stderr)
    };
    for (value, instead) in [
        ("$remote_addr", "{ip}"),
        ("for=$remote_addr;host=$host", "{ip}"),
        ("$http_host", "{host}"),
        ("$request_uri", "{path}"),
        ("%[src]", "{ip}"),
    ] {
        for key in ["headers", "response-headers"] {
            let said = said(key, value);
            assert!(said.contains("is sent literally") && said.contains(instead), "{value}: {said}");
            assert!(said.contains("gateway.toml:4:"), "{said}");
        }
    }
    for value in ["$5", "$hosts", "{ip}", "a$", "100%"] {
        assert_eq!(said("headers", value), "", "{value}");
    }
}

#[test]
fn what_looks_like_a_pattern_can_be_meant_as_it_stands() {
    let routes = [
        "/stars/{=*}",
        "/u/{=:id}",
        "/r/{=[0-9]+}",
        // None of these is a pattern of anybody.
        "/v1/items:batch",
        "/odata/$metadata",
        "/Products(1)",
        "/~user/c++",
    ];
    let config: String = routes
        .iter()
        .map(|path| {
            format!("[[route]]\nname = \"at {path}\"\npath = \"{path}\"\nrespond = {{ body = \"{path}\" }}\n")
        })
        .collect();
    let gateway = Gateway::start(&config);
    for (target, body) in [
        ("/stars/*", Some("/stars/{=*}")),
        ("/stars/a", None),
        ("/u/:id", Some("/u/{=:id}")),
        ("/u/7", None),
        ("/r/%5B0-9%5D+", Some("/r/{=[0-9]+}")),
        ("/r/7", None),
        ("/v1/items:batch", Some("/v1/items:batch")),
        ("/odata/$metadata", Some("/odata/$metadata")),
        ("/Products(1)", Some("/Products(1)")),
        ("/~user/c++", Some("/~user/c++")),
    ] {
        let answer = gateway.get(target);
        assert_eq!((answer.status == 200).then(|| answer.text()).as_deref(), body, "{target}");
    }
    // What is shown as in force is read again as the same.
    assert!(gateway.admin("/config").text().contains("/u/{=:id}"));
}

#[test]
fn a_redirect_to_https_takes_a_port() {
    let gateway = Gateway::start(
        "[listener.plain]\nbind = \"127.0.0.1:0\"\n[listener.all]\nbind = \"127.0.0.1:0\"\nredirect = \"https:8443\"\n\
         [[route]]\npath = \"/usual\"\nredirect = \"https\"\n[[route]]\npath = \"/other\"\nredirect = \"https:9443\"\n",
    );
    let location = |listener: &str, target: &str, host: &str| {
        let mut client = crate::support::Client::connect(gateway.listener(listener));
        let answer = client.request("GET", target, &[&format!("Host: {host}")], "");
        assert_eq!(answer.status, 308);
        answer.header("location").expect("a redirect says where").to_owned()
    };
    assert_eq!(location("plain", "/usual?a=b", "a.example:80"), "https://a.example/usual?a=b");
    assert_eq!(location("plain", "/other", "a.example:80"), "https://a.example:9443/other");
    assert_eq!(location("all", "/x", "[::1]:80"), "https://[::1]:8443/x");
    let shown = gateway.admin("/config").text();
    assert!(shown.contains("to = \"https:8443\"") && shown.contains("to = \"https\""), "{shown}");
    for wrong in ["https:", "https:0", "https:65536", "https:+1", "https:x", "http:80"] {
        let output = check(&format!("[[route]]\npath = \"/\"\nredirect = \"{wrong}\"\n"));
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(78), "{wrong}");
        assert!(said.contains("gateway.toml:3:12") && said.contains("`https`"), "{wrong}: {said}");
    }
}

#[test]
fn fixed_answers_put_values_into_headers_and_body() {
    let gateway = Gateway::start(
        "[[route]]\npath = \"/u/{id}\"\n[route.respond]\nbody = \"{id} {{id}}\"\n\
         headers = { x-id = \"{id}\", x-where = \"{host} {ip}\", x-twice = [\"{method}\", \"b\"], x-brace = \"{{id}}\", \
         x-empty = \"{query}\" }\n",
    );
    let answer = gateway.client().request("GET", "/u/a%20b", &["Host: A.example:1"], "");
    assert_eq!(answer.header("x-id"), Some("a b"));
    assert_eq!(answer.header("x-where"), Some("a.example 127.0.0.1"));
    assert_eq!(answer.all("x-twice"), ["GET", "b"]);
    assert_eq!(answer.header("x-brace"), Some("{id}"));
    assert_eq!(answer.header("x-empty"), None);
    assert_eq!(answer.text(), "a b {id}");
    let output = check("[[route]]\npath = \"/\"\nrespond = { headers = { x-id = \"{id}\" } }\n");
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(78), "{said}");
    assert!(said.contains("`id` does not exist here") && said.contains("gateway.toml:3:"), "{said}");
}
