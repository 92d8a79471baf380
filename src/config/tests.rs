//! Whole configurations, right and wrong: what they mean, and what is said of them.

use std::path::Path;
use std::time::Duration;

use proptest::prelude::{Just, Strategy, any, prop_oneof, proptest};

use super::report::Source;
use super::{Config, Definition, Loaded, read, source};
use crate::limit::Algorithm;
use crate::policy::definition::{Action, Dimension, Missing};

fn variables(name: &str) -> Option<String> {
    match name {
        "PORT" => Some("8081".to_owned()),
        "SECRET" => Some("hunter2".to_owned()),
        _ => None,
    }
}

fn sources(texts: &[&str]) -> Vec<Source> {
    let name =
        |index: usize| if index == 0 { "gateway.toml".to_owned() } else { format!("conf.d/{index}.toml") };
    texts.iter().enumerate().map(|(index, text)| source::of_text(&name(index), text)).collect()
}

fn load(texts: &[&str]) -> Result<Loaded, String> {
    read(sources(texts), Vec::new(), &variables).map_err(|errors| errors.to_string())
}

fn config(text: &str) -> Config {
    match load(&[text]) {
        Ok(loaded) => loaded.config,
        Err(errors) => panic!("{errors}"),
    }
}

/// What is said of a wrong configuration.
fn said(text: &str) -> String {
    match load(&[text]) {
        Ok(loaded) => panic!("this is valid: {:?}", loaded.config),
        Err(errors) => errors,
    }
}

/// One error: the text, then what must be said of it: the message, `line:column`, what stands beside the value.
type Wrong = (&'static str, &'static str, &'static str, &'static str);

#[track_caller]
fn each_says(cases: &[Wrong]) {
    for (text, message, at, hint) in cases {
        let said = said(text);
        assert_eq!(said.matches("error: ").count(), 1, "one error expected of:\n{text}\n{said}");
        assert!(said.starts_with(&format!("error: {message}\n")), "{text}\nexpected: {message}\n{said}");
        assert!(said.contains(&format!("--> gateway.toml:{at}\n")), "{text}\nexpected: {at}\n{said}");
        assert!(said.contains(hint), "{text}\nexpected: {hint}\n{said}");
    }
}

/// A file with every key there is.
const FULL: &str = r#"
workers = 2

[listener.plain]
bind = "[::]:0"
redirect = "https"

[listener.edge]
bind = "127.0.0.1:${PORT}"
http = ["h2"]
certs = [
  { cert = "certs/a.pem", key = "certs/a.key", self-signed = true },
  { cert = "/etc/b.pem", key = "/etc/b.key" },
]
max-connections = 1_000
max-connections-per-ip = 10
timeouts = { handshake = "1s", header = "2s", idle = "1m30s", body-stall = "4s" }
max = { header-bytes = "16KiB", headers = 50, uri-bytes = 4096, body = "10MB", streams = 7 }

[client-ip]
trust = ["10.0.0.0/8", "fd00::/8", "192.0.2.1"]
header = "forwarded"
ipv6-prefix = 56

[upstream.orders]
servers = ["http://10.0.1.10:8080", { url = "https://[fd00::1]/", weight = 2 }]
balance = "round-robin"
connections = { max = 256, idle = 64, idle-timeout = "4s", max-age = "10m", wait = "2s", waiting = 5, streams = 9 }
timeouts = { connect = "1s", response = "15s", stall = "20s", total = "60s" }
retry = { times = 0, on = ["connect"], budget = "10%" }
http = "h2"
host = "server"

[limits]
memory = "640MiB"
headers = "ietf"

[policy.search]
by = ["consumer", "route", "header:X-Key", "query:q", "param:id", "tenant", "method", "ip"]
limit = ["20/s burst 40", "1_000/h"]
cost = { default = 2, "GET /v1/search" = 5, "/v1/{*rest}" = 0 }
missing = "reject"
count-denied = true

[policy.login]
by = []
limit = "5/10s"
algorithm = "sliding-window"
match = { method = ["POST"], path = "/login" }
missing = "skip"
shadow = true

[[route]]
name = "orders"
host = ["API.example.com", "*.eu.example.com"]
path = "/v1/orders/{id}"
methods = ["GET", "POST"]
match = { header = { x-beta = "1", x-debug = true } }
limit = ["search", "100/m burst 20 by ip", "login", "5/d by consumer"]
to = "orders"
rewrite = "/orders/{id}"
headers = { set = { x-tenant = "{tenant}", authorization = "Basic ${SECRET}" }, add = { via = ["a", "b"] }, remove = ["x-debug"] }
response-headers = { set = { x-cost = "$${cost}" } }
max-body = "1GiB"
upgrade = false

[[route]]
path = "/url"
to = "http://127.0.0.1:3000/"

[[route]]
path = "/same-url"
to = "http://127.0.0.1:3000"

[[route]]
path = "/status"
respond = { status = 503, body = "no\n\"\u0007", headers = { retry-after = "5", link = ["a", "b"] } }

[[route]]
host = "old.example.com"
redirect = "https"

[admin]
bind = "unix:/run/sluicegate/admin.sock"
token = "${SECRET}"

[shutdown]
ready-delay = "5s"
drain = "10s"

[log]
level = "info,sluicegate::proxy=debug"
access = { to = "logs/access.log", format = "json", sample = { "2xx" = "10%", "429" = "0.01%" } }
"#;

#[test]
fn four_lines_are_a_configuration() {
    let config = config(
        r#"
[[route]]
path  = "/api/{*rest}"
to    = "http://127.0.0.1:3000"
limit = "100/m burst 20 by ip"
"#,
    );
    assert_eq!(config.listeners.len(), 1);
    assert_eq!(config.listeners[0].name, "default");
    assert_eq!(config.listeners[0].bind, ([127, 0, 0, 1], 8080).into());
    assert_eq!(config.limits_memory, 64 << 20);
    assert!(
        config
            .admin
            .is_some_and(|admin| admin.bind == crate::admin::Bind::Tcp(([127, 0, 0, 1], 9900).into()))
    );
    assert_eq!(config.upstreams[0].name, "http://127.0.0.1:3000");
    let policy = &config.policies[0];
    assert_eq!(policy.name, "route:/api/{*rest}");
    assert_eq!(policy.by, [Dimension::Ip]);
    assert_eq!(policy.missing, Missing::Ip);
    let window = policy.windows[0];
    assert_eq!((window.limit.get(), window.period_ns.get(), window.burst.get()), (100, 60_000_000_000, 20));
    assert_eq!(window.algorithm, Algorithm::TokenBucket);
    let route = &config.routes[0];
    assert_eq!(route.name, "/api/{*rest}");
    assert_eq!(route.limits, ["route:/api/{*rest}"]);
    let action = Action::Forward { upstream: "http://127.0.0.1:3000".to_owned(), rewrite: None };
    assert_eq!(route.action, action);
    assert!(route.upgrade);
}

#[test]
fn an_empty_file_is_a_configuration() {
    assert_eq!(config("").routes, []);
}

#[test]
fn the_shipped_file_is_valid() {
    let loaded = super::load(Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/gateway.toml")));
    let loaded = loaded.unwrap_or_else(|errors| panic!("{errors}"));
    assert!(loaded.report.is_empty(), "{}", loaded.report);
    assert!(loaded.config.listeners[1].certs[0].self_signed);
}

#[test]
fn every_key_is_read() {
    let config = config(FULL);
    let edge = &config.listeners[1];
    assert_eq!((edge.bind.port(), edge.http1, edge.http2), (8081, false, true));
    assert_eq!(edge.certs[1].cert, Path::new("/etc/b.pem"));
    assert!(edge.certs[0].cert.is_absolute() && edge.certs[0].cert.ends_with("certs/a.pem"));
    assert_eq!(edge.timeouts.idle, Duration::from_secs(90));
    assert_eq!((edge.max.uri_bytes, edge.max.body_bytes), (4_096, 10_000_000));
    let orders = &config.upstreams[0];
    let second = &orders.servers[1];
    assert_eq!((second.tls, second.host.as_str(), second.port, second.weight), (true, "fd00::1", 443, 2));
    assert_eq!(orders.retry.budget_percent, 10);
    assert!(orders.retry.on_connect && !orders.retry.on_reset);
    assert_eq!(config.upstreams.len(), 2, "a URL written twice is one upstream");
    let search = &config.policies[0];
    assert_eq!((search.windows.len(), search.cost.rules.len(), search.by.len()), (2, 2, 8));
    assert_eq!(config.policies[1].name, "login");
    let route = &config.routes[0];
    assert_eq!(route.hosts[0], "api.example.com");
    assert_eq!(route.limits, ["search", "route:orders", "login", "route:orders#2"]);
    assert_eq!(route.request_headers.add.len(), 2);
    assert_eq!(route.request_headers.set[1].1, "Basic hunter2");
    assert_eq!(route.response_headers.set[0].1, "${cost}");
    assert_eq!(config.routes[4].name, "old.example.com/{*rest}");
}

#[test]
fn the_effective_configuration_reads_the_same() {
    for text in [FULL, "", "admin = false", include_str!("../../gateway.toml")] {
        let first = config(text);
        let again = config(&first.effective());
        assert_eq!(again, first.masked());
        assert_eq!(again.effective(), first.effective());
    }
    assert!(!config(FULL).effective().contains("hunter2"));
}

#[test]
fn all_errors_are_shown_in_the_order_of_the_lines() {
    let said = said(
        "workers = 0\n\n[[route]]\npth = \"/a\"\nlimit = \"100/w\"\nto = \"ordres\"\n\n[upstream.orders]\nserver = 1\n",
    );
    let expected = r#"error: `workers` is out of range
 --> gateway.toml:1:11
  |
1 | workers = 0
  |           ^ write a whole number from 1 to 1024

error: unknown key `pth` in a route
 --> gateway.toml:4:1
  |
4 | pth = "/a"
  | ^^^ did you mean `path`?
"#;
    assert!(said.starts_with(expected), "{said}");
    let lines: Vec<_> = said.lines().filter(|line| line.contains("--> ")).collect();
    let places = ["1:11", "4:1", "5:14", "6:6", "8:11", "9:1"];
    assert_eq!(lines, places.map(|place| format!(" --> gateway.toml:{place}")), "{said}");
}

#[test]
fn a_name_given_twice_names_both_places() {
    let files =
        ["[policy.a]\nby = []\nlimit = \"1/s\"\n[log]", "\n[policy.a]\nby = []\nlimit = \"1/s\"\n[log]\n"];
    let said = load(&files).expect_err("two policies have one name");
    assert!(said.contains("error: the policy `a` is given twice\n --> conf.d/1.toml:2:9\n"), "{said}");
    assert!(said.contains("::: gateway.toml:1:9\n"), "{said}");
    assert!(said.contains("error: `log` is given twice\n"), "{said}");
}

#[test]
fn secrets_never_show() {
    for text in [
        "[admin]\ntoken = \"hunter2\"\nbind = 1",
        "admin = { token = \"hunter2\", bind = \"x\" }",
        "[admin]\ntoken = \"hunter2",
        "[upstream.a]\nservers = [\"http://me:hunter2@localhost\"]",
        "workers = \"${SECRET}\"",
        "[[route]]\npath = \"${SECRET}\"\nlimit = \"${SECRET}\"\nto = \"${SECRET}\"\nmethods = [\"${SECRET}\"]",
        "[[route]]\nhost = \"${SECRET}:1\"\nrewrite = \"${SECRET}\"\nlimit = \"1/${SECRET}\"\nto = \"${SECRET}://x\"",
        "[[route]]\nto = \"echo\"\nname = \"\\\"${SECRET}\"\nheaders = { set = { authorization = \"hunter2\\n\" } }",
        "[log]\nlevel = \"${SECRET}\"\naccess = { to = \"${SECRET}\" }\n[policy.a]\nby = \"${SECRET}\"\nlimit = \"${SECRET}\"",
        "[listener.a]\nbind = \"${SECRET}\"\nhttp = \"${SECRET}\"\ntimeouts = { idle = \"${SECRET}\" }",
        "[client-ip]\ntrust = \"${SECRET}\"\nheader = \"${SECRET}\"\n[limits]\nmemory = \"${SECRET}\"",
        "include = \"${SECRET}*/x\"",
    ] {
        let said = match load(&[text]) {
            Ok(loaded) => loaded.report.to_string(),
            Err(said) => said,
        };
        assert!(!said.contains("hunter2"), "{text}\n{said}");
    }
}

#[test]
fn literal_secrets_and_open_admins_draw_warnings() {
    let loaded = load(&["[admin]\ntoken = \"hunter2\"\nbind = \"0.0.0.0:1\""]).expect("it is valid");
    let said = loaded.report.to_string();
    assert!(
        said.starts_with("warning: `token` stands in the file itself\n --> gateway.toml:2:9\n"),
        "{said}"
    );
    assert!(said.contains("2 | token = \"*******\"\n"), "{said}");
    let loaded = load(&["[admin]\nbind = \"0.0.0.0:1\""]).expect("it is valid");
    assert!(loaded.report.to_string().starts_with("warning: the admin listener is open to other machines"));
    let loaded = load(&["[admin]\nbind = \"0.0.0.0:1\"\ntoken = \"${SECRET}\""]).expect("it is valid");
    assert!(loaded.report.is_empty());
}

#[test]
fn what_comes_up_later_finds_its_place() {
    let text =
        "[[route]]\npath = \"/a\"\nto = \"http://a\"\nlimit = \"1/s\"\n[policy.b]\nby = []\nlimit = \"1/s\"";
    for (definition, field, at) in [
        (Definition::Route(0), "path", "2:8"),
        (Definition::Route(0), "host", "1:1"),
        (Definition::Upstream(0), "servers", "3:6"),
        (Definition::Policy(0), "limit", "7:9"),
        (Definition::Policy(1), "limit", "4:9"),
    ] {
        let mut report = load(&[text]).expect("it is valid").report;
        report.reject(definition, field, "two routes tie", "change one");
        assert!(report.has_errors());
        let said = report.into_errors().to_string();
        assert!(said.starts_with(&format!("error: two routes tie\n --> gateway.toml:{at}\n")), "{said}");
        assert!(said.contains("change one"), "{said}");
    }
    let mut report = load(&[""]).expect("it is valid").report;
    report.reject(Definition::Listener(0), "bind", "the port is taken", "");
    assert_eq!(report.to_string(), "error: the port is taken");
}

#[test]
fn shapes_are_checked() {
    each_says(&[
        ("a = ", "this is not TOML: string values must be quoted, expected literal string", "1:4", ""),
        ("a = 1\na = 2", "this is not TOML: duplicate key", "2:1", ""),
        (
            "[route]\npath = \"/\"",
            "`route` is a list of tables",
            "1:2",
            "write `[[route]]` with two brackets",
        ),
        ("route = 1", "`route` must be an array, not an integer", "1:9", ""),
        ("route = [1]", "`route` must be a table, not an integer", "1:10", ""),
        ("listener = 1", "`listener` must be a table, not an integer", "1:12", ""),
        ("[listener]\na = 1", "`a` must be a table, not an integer", "2:5", ""),
        ("[listner.a]", "unknown key `listner` in the configuration", "1:2", "did you mean `listener`?"),
        (
            "[redis]",
            "`redis` belongs to the language, but this version does not have it",
            "1:2",
            "leave it out",
        ),
        ("zzzzzzzz = 1", "unknown key `zzzzzzzz` in the configuration", "1:1", "it takes `log`"),
        ("[policy.1a]", "`1a` cannot be a name", "1:9", "start with a letter"),
        ("workers = true", "`workers` must be a whole number, not a boolean", "1:11", ""),
        ("workers = \"many\"", "`workers` must be a whole number or \"auto\"", "1:11", "workers = \"auto\""),
        ("workers = \"${PORT}\"", "`workers` is out of range", "1:11", "from 1 to 1024"),
        ("workers = \"${NONE}\"", "the environment variable `NONE` is not set", "1:11", "${NONE:-default}"),
        ("workers = \"${NONE\"", "`${` is never closed", "1:11", "close it with `}`"),
        ("\"\\u0007\" = 1", "unknown key `\\u{7}` in the configuration", "1:1", ""),
    ]);
}
