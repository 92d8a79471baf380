//! Whole configurations, right and wrong: what they mean, and what is said of them.

mod acme;
mod auth;
mod calendar;
mod candidates;
mod compress;
mod costs;
mod database;
mod exempt;
mod features;
mod foreign;
mod keys;
mod manual;
mod mirror;
mod protocol;
mod rls;
mod sticky;
mod unix;

use std::path::Path;
use std::time::Duration;

use proptest::prelude::{Just, Strategy, any, prop_oneof, proptest};

use super::load::mask::Secrets;
use super::load::report::Source;
use super::load::source;
use super::{Config, Definition, LoadedConfig, MASK, Subject, compiled, read_sources};
use limit::{Algorithm, WhenDown};
use limiter::global::config::{Secret, Topology};
use policy::definition::{ActionDefinition, DestinationDefinition, Dimension, Missing, TierPart};

fn variables(name: &str) -> Option<String> {
    match name {
        "PORT" => Some("8081".to_owned()),
        "PLAIN" | "SECRET" => Some("hunter2".to_owned()),
        "LONG_SECRET" => Some("hunter2 hunter2 hunter2 hunter2 hunter2".to_owned()),
        _ => None,
    }
}

fn sources(texts: &[&str]) -> Vec<Source> {
    let name =
        |index: usize| if index == 0 { "gateway.toml".to_owned() } else { format!("conf.d/{index}.toml") };
    texts.iter().enumerate().map(|(index, text)| source::of_text(&name(index), text)).collect()
}

fn defined(texts: &[&str]) -> Result<Definition, String> {
    read_sources(sources(texts), Vec::new(), Secrets::default(), &variables)
        .map_err(|errors| errors.to_string())
}

fn load(texts: &[&str]) -> Result<LoadedConfig, String> {
    defined(texts).and_then(|definition| compiled(definition).map_err(|errors| errors.to_string()))
}

fn config(text: &str) -> Config {
    match load(&[text]) {
        Ok(loaded) => loaded.config,
        Err(errors) => panic!("{errors}"),
    }
}

/// Whether a configuration that is written with its secrets and read again is the same.
fn reads_the_same(first: &Config) -> bool {
    let again = config(&first.page());
    Config { secrets: first.secrets.clone(), ..again } == *first
}

/// The text of a configuration with another secret for each mask.
fn filled(effective: &str) -> String {
    let mut parts = effective.split(MASK).map(str::to_owned);
    let first = parts.next().unwrap_or_default();
    parts.enumerate().fold(first, |text, (number, part)| format!("{text}{number:s>64}{part}"))
}

/// What is said of a wrong configuration.
fn said(text: &str) -> String {
    match load(&[text]) {
        Ok(loaded) => panic!("{text}\nthis is valid: {:?}", loaded.config),
        Err(errors) => errors,
    }
}

/// One error: the text, then what must be said of it: the message, `line:column`, what stands beside the value.
type Wrong<'a> = (&'a str, &'a str, &'a str, &'a str);

#[track_caller]
fn each_says(cases: &[Wrong<'_>]) {
    let mut failures = String::new();
    for (text, message, at, hint) in cases {
        let said = said(text);
        let is_right = said.matches("error: ").count() == 1
            && said.starts_with(&format!("error: {message}\n"))
            && said.contains(&format!("--> gateway.toml:{at}\n"))
            && said.contains(hint);
        if !is_right {
            failures.push_str(&format!("{text}\nexpected: {message} at {at}: {hint}\n{said}\n\n"));
        }
    }
    assert!(failures.is_empty(), "{failures}");
}

const PATH_SEGMENT: &str =
    "an empty segment never matches: the gateway merges slashes of a request before it routes";
const HOST_STAR: &str = "`*` matches whole labels in front only: write `*.example.com`";

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
proxy-protocol = { from = ["10.0.0.0/8", "2001:db8::1"] }
max-connections = 1_000
max-connections-per-ip = 10
timeouts = { handshake = "1s", header = "2s", idle = "1m30s", body-stall = "4s" }
max = { header-bytes = "16KiB", headers = 50, uri-bytes = 4096, body = "10MB", streams = 7 }

[client-ip]
trust = ["10.0.0.0/8", "fd00::/8", "192.0.2.1"]
header = "forwarded"
ipv6-prefix = 56
nat64 = ["2001:db8:64::/96"]

[upstream.orders]
servers = ["http://10.0.1.10:8080", { url = "https://[fd00::1]/", weight = 2 }]
balance = "round-robin"
sticky = { cookie = "at", secret = "${SECRET}", max-age = "1h", path = "/a", same-site = "strict", secure = true }
connections = { max = 256, idle = 64, idle-timeout = "4s", max-age = "10m", wait = "2s", waiting = 5, streams = 9 }
timeouts = { connect = "1s", response = "15s", try = "1s", stall = "20s", total = "60s" }
retry = { times = 0, on = ["connect", "timeout", "503", "500-502"], budget = "10%" }
health = { path = "/h", status = [200, "3xx"], body = "ok", every = "2s", unhealthy-after = 2, healthy-after = 1, port = 81 }
eject = { after = 7, for = "20s", most = "100%", success-rate = "15%", latency = 3, every = "5s", requests = 50 }
slow-start = "9s"
panic = "0%"
http = "h2"
tls = { ca = "/etc/ca.pem", cert = "/etc/edge.pem", key = "/etc/edge.key", sni = "orders.internal", verify = true }
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

[tier.free]
limit = ["5/s burst 10", "10_000/d"]

[tier.internal]
limit = []

[tier.pro]
limit = ["100/s burst 200", "8 in flight"]

[policy.per-tenant]
by = ["tenant"]
limit = "tier"

[policy.by-tier]
by = ["tenant"]
limit = "tier"
default-tier = "pro"
algorithm = "sliding-window"
penalty = { after = 20, within = "90s", factor = 3, max = "6h" }

[tier.strict]
limit = "1_000/d"
algorithm = "fixed-window"
overshoot = 0
when-redis-down = "deny"

[policy.own-tiers]
by = ["consumer"]
limit = { free = "60/m", pro = ["600/m burst 120", "10_000/d"], none = [], default = "30/m", strict = { limit = ["5/s", "9/h"], algorithm = "sliding-window", overshoot = 0, when-redis-down = "deny" }, shaped = { limit = "10/s", algorithm = "leaky-bucket", max-delay = "500ms" } }
overshoot = "10%"
when-redis-down = "allow"

[tier.default]
limit = "1_000_000/d"

[policy.not-everybody]
by = ["consumer"]
limit = { pro = "600/m", default = "30/m" }
default-tier = "pro"

[policy.delayed]
by = ["consumer"]
limit = "tier"
algorithm = "leaky-bucket"
max-delay = "1h"

[policy.shaped]
by = ["ip"]
limit = ["10/s", "600/m burst 30", "8 in flight"]
idempotency-key = { key = "header:x-retry", by-address = true }
algorithm = "leaky-bucket"
max-delay = "2s"

[policy.billed]
by = ["consumer"]
limit = "10_000/d"
algorithm = "sliding-log"
cost = { default = 3, header = "X-Cost", response-header = "x-cost", max = 100 }
idempotency-key = { key = "header:Idempotency-Key", window = "1h30m" }
hot-keys = { above = "12.5%", then = "local-only:1_000/m" }

[policy.in-flight]
by = ["consumer"]
limit = "32 in flight"

[[route]]
name = "orders"
host = ["API.example.com", "*.eu.example.com"]
path = "/v1/orders/{id}"
methods = ["GET", "POST"]
match = { header = { x-beta = "1", x-debug = true } }
limit = ["search", "100/m burst 20 by ip", "login", "5/d by consumer", "shaped", "3 in flight by ip"]
to = "orders"
rewrite = "/orders/{id}"
headers = { set = { x-tenant = "{tenant}", authorization = "Basic ${SECRET}" }, add = { via = ["a", "b"] }, remove = ["x-debug"] }
response-headers = { set = { x-cost = "$${tenant}" }, always = true }
max-body = "1GiB"
upgrade = true
path-escapes = "keep"

[[route]]
path = "/url"
to = "http://127.0.0.1:3000/"
mirror = { to = "orders", share = "0.5%", max-body = "128KiB" }

[[route]]
path = "/same-url"
to = "http://127.0.0.1:3000"

[[route]]
path = "/status"
respond = { status = 503, body = "no\n\"\u0007", headers = { retry-after = "5", link = ["a", "b"] } }

[[route]]
host = "old.example.com"
redirect = "https"

[[route]]
host = "older.example.com"
redirect = { to = "https:8443", status = 301 }

[[route]]
host = "oldest.example.com"
redirect = { to = "https://new.example.com{path}", status = 302 }

[[route]]
path = "/slow"
to = "http://127.0.0.1:3000"
timeouts = { response = "1m", try = "10s", total = "2m", stall = "off", tunnel-idle = "10m" }
retry = { times = 1, on = ["timeout", "503"], hedge-after = "2s" }

[admin]
bind = "unix:/run/sluicegate/admin.sock"
hosts = ["metrics.example"]
token = "${SECRET}"
tokens = [{ name = "alice", token = "${SECRET}, alice's", role = "operate", expires = "2027-01-01T02:00:00+02:00" }]

[errors]
404 = "/srv/errors/404.html"
"5xx" = ["/srv/errors/sorry.html", "/srv/errors/sorry.json"]

[overload]
memory = "2GiB"
keep-alive = "80%"
requests = "90.5%"
connections = "99%"

[shutdown]
ready-delay = "5s"
drain = "10s"
upgrade = "90s"

[log]
level = "info,gateway::proxy=debug"
access = { to = "logs/access.log", format = "json", sample = { "2xx" = "10%", "429" = "0.01%" } }

[trace]
otlp = "https://collector.example.com/base"
protocol = "grpc"
tls = { ca = "ca.pem" }
headers = { x-team = "${SECRET}" }
sample = "0.5%"
decides = "ratio"
parent = "always"
service = "edge"
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
    assert_eq!(config.listeners[0].bind.tcp(), Some(([127, 0, 0, 1], 8080).into()));
    assert_eq!(config.limits.memory, 64 << 20);
    assert!(
        config
            .admin
            .is_some_and(|admin| admin.bind == net::listening::Bind::Tcp(([127, 0, 0, 1], 9900).into()))
    );
    assert_eq!(config.upstreams[0].name, "http://127.0.0.1:3000");
    let policy = &config.policies[0];
    assert_eq!(policy.name, "route:/api/{*rest}");
    assert_eq!(policy.by, [Dimension::Ip]);
    assert_eq!(policy.missing, Missing::Ip);
    let window = policy.windows[0];
    assert_eq!(
        (window.limit().get(), window.period_ns().get(), window.burst().get()),
        (100, 60_000_000_000, 20)
    );
    assert_eq!(window.algorithm(), Algorithm::TokenBucket);
    let route = &config.routes[0];
    assert_eq!(route.name, "/api/{*rest}");
    assert_eq!(route.limits, ["route:/api/{*rest}"]);
    let action = ActionDefinition::Forward {
        to: DestinationDefinition::one("http://127.0.0.1:3000".to_owned()),
        rewrite: None,
    };
    assert_eq!(route.action, action);
    assert!(!route.upgrade);
}

#[test]
fn an_empty_file_is_refused_and_one_that_asks_for_nothing_is_not() {
    for nothing in ["", "\n", "# to = \"echo\"\n"] {
        let said = said(nothing);
        assert!(said.contains("error: the file has no keys") && said.contains("`route = []`"), "{said}");
    }
    assert_eq!(config("route = []").routes, []);
}

#[test]
fn the_shipped_file_is_valid() {
    let loaded = super::load(Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../gateway.toml")));
    let loaded = loaded.unwrap_or_else(|errors| panic!("{errors}"));
    assert!(loaded.report.is_empty(), "{}", loaded.report);
    assert_eq!(loaded.config.listeners[1].certs[0].absent, net::tls::AbsentPair::MakeSelfSigned);
}

#[test]
fn every_key_is_read() {
    let config = config(FULL);
    let edge = &config.listeners[1];
    assert_eq!((edge.bind.tcp().map(|it| it.port()), edge.http1, edge.http2), (Some(8081), false, true));
    assert_eq!(edge.certs[1].cert, Path::new("/etc/b.pem"));
    assert!(edge.certs[0].cert.is_absolute() && edge.certs[0].cert.ends_with("certs/a.pem"));
    assert_eq!(edge.timeouts.idle, Duration::from_secs(90));
    assert_eq!((edge.max.uri_bytes, edge.max.body_bytes), (4_096, 10_000_000));
    let orders = &config.upstreams[0];
    let second = &orders.servers[1];
    assert_eq!(
        (second.tls, second.name(), &*second.authority(), second.weight),
        (true, "fd00::1", "[fd00::1]", 2)
    );
    assert_eq!(orders.retry_budget_percent, 10);
    assert!(orders.retry.on_connect && !orders.retry.on_reset);
    assert_eq!(config.upstreams.len(), 2, "a URL written twice is one upstream");
    let search = &config.policies[0];
    assert_eq!((search.windows.len(), search.cost.rules.len(), search.by.len()), (2, 2, 8));
    assert_eq!(config.policies[1].name, "login");
    let tiers = config.policies[2].tiers.as_ref().expect("it is by tier");
    assert_eq!((config.policies[2].windows.len(), tiers.default.as_str()), (6, "strict"), "the strictest");
    assert_eq!(config.policies[3].windows[0].algorithm(), Algorithm::SlidingWindow);
    assert_eq!(config.policies[3].tiers.as_ref().map(|tiers| tiers.default.as_str()), Some("pro"));
    let own = &config.policies[4];
    let tiers = own.tiers.as_ref().expect("it is by tier");
    assert_eq!(tiers.default, "default");
    let mut rest = &own.windows[..];
    let windows = |part: &TierPart| {
        let (windows, others) = rest.split_at(part.windows);
        rest = others;
        let windows = windows.iter().map(|it| (it.algorithm(), it.limit().get(), it.burst().get())).collect();
        (part.name.clone(), windows, part.overshoot_ppm, part.when_down)
    };
    let parts: Vec<(String, Vec<_>, _, _)> = tiers.parts.iter().map(windows).collect();
    let (bucket, window, leaky) = (Algorithm::TokenBucket, Algorithm::SlidingWindow, Algorithm::LeakyBucket);
    let part = |name: &str, windows: &[(Algorithm, u64, u64)], ppm, when_down| {
        (name.to_owned(), windows.to_vec(), ppm, when_down)
    };
    let wanted = [
        part("free", &[(bucket, 60, 60)], 100_000, WhenDown::Allow),
        part("pro", &[(bucket, 600, 120), (bucket, 10_000, 10_000)], 100_000, WhenDown::Allow),
        part("none", &[], 100_000, WhenDown::Allow),
        part("default", &[(bucket, 30, 30)], 100_000, WhenDown::Allow),
        part("strict", &[(window, 5, 5), (window, 9, 9)], 0, WhenDown::Deny),
        part("shaped", &[(leaky, 10, 5)], 100_000, WhenDown::Allow),
    ];
    assert_eq!(parts, wanted);
    let shared = config.policies[3].tiers.as_ref().expect("it is by tier");
    let strict = shared.parts.iter().find(|part| part.name == "strict").expect("it is shared");
    assert_eq!((strict.overshoot_ppm, strict.when_down), (0, WhenDown::Deny));
    let shared = &config.policies[3];
    let is_strict = |number: &usize| shared.part_of(*number).is_some_and(|part| part.name == "strict");
    let strict: Vec<_> = (0..shared.windows.len()).filter(is_strict).collect();
    assert_eq!(strict.len(), 1);
    assert_eq!(shared.windows[strict[0]].algorithm(), Algorithm::FixedWindow, "the tier's own");
    assert_eq!(shared.windows[0].algorithm(), Algorithm::SlidingWindow, "the policy's");
    let route = &config.routes[0];
    assert_eq!(route.hosts[0], "api.example.com");
    let shorthands = ["search", "route:orders", "login", "route:orders#2", "shaped", "route:orders#3"];
    assert_eq!(route.limits, shorthands);
    assert_eq!(route.request_headers.add.len(), 2);
    assert_eq!(route.request_headers.set[1].1, "Basic hunter2");
    assert_eq!(route.response_headers.set[0].1, "${tenant}");
    assert_eq!(config.routes[4].name, "old.example.com/{*rest}");
}

#[test]
fn the_effective_configuration_reads_the_same() {
    let choices = "[upstream.u]\nservers = [\"http://a\", \"http://b\"]\nbalance = \"hash:cookie:Session\"\n\
                   [upstream.v]\nservers = [\"http://a\", \"http://b\"]\nbalance = \"hash:path\"\n\
                   [[route]]\nto = [\"u\", \"v\"]\nsticky = \"cookie:a\"\n";
    assert!(config(choices).effective().contains("balance = \"hash:cookie:Session\""));
    assert!(config(choices).effective().contains("balance = \"hash:path\""));
    for text in [FULL, choices, "route = []", "admin = false", include_str!("../../gateway.toml")] {
        let first = config(text);
        assert!(reads_the_same(&first), "{}", first.page());
        let again = config(&filled(&first.effective()));
        assert_eq!(again.effective(), first.effective());
    }
    assert!(!config(FULL).effective().contains("hunter2"));
}

#[test]
fn two_spellings_of_one_configuration_are_one() {
    let upstreams = "[upstream.u]\nservers = \"http://a\"\n[upstream.v]\nservers = \"http://b\"\n";
    let route = |keys: &str| format!("{upstreams}[[route]]\nname = \"r\"\n{keys}\n");
    let policy = |keys: &str| format!("[policy.p]\nby = \"consumer\"\nlimit = \"9/m\"\n{keys}\n");
    let sections = [
        (
            "[upstream.w]\nservers = \"http://A/\"",
            "[upstream.w]\nservers = [{ url = \"http://a:80\", weight = 1 }]",
        ),
        ("[client-ip]\ntrust = \"10.0.0.1\"", "[client-ip]\ntrust = [\"10.0.0.1/32\"]"),
        ("[admin]\ngrpc = \"127.0.0.1:1\"", "[admin]\ngrpc = { bind = \"127.0.0.1:1\" }"),
        ("[redis]\nurl = \"redis://A\"", "[redis]\nurl = \"redis://a:6379/0\"\ntopology = \"single\""),
        ("[log]\naccess = { to = \"syslog\" }", "[log]\naccess = { to = { syslog = \"unix:/dev/log\" } }"),
        (
            "[listener.a]\nbind = \"[::1]:1\"\ncerts = { cert = \"a\", key = \"b\" }",
            "[listener.a]\nbind = \"[0:0::1]:1\"\ncerts = [{ key = \"b\", cert = \"a\" }]\nmin-version = \"1.2\"",
        ),
        ("[tier.t]\nlimit = \"60/1m\"", "[tier.t]\nlimit = [\"60/m burst 60\"]"),
        (
            "[database]\nurl = \"sqlite:a\"\n[auth.a]\nkind = \"api-key\"\nkeys = \"database\"",
            "[database]\nurl = \"sqlite:a\"\n[auth.a]\nkind = \"api-key\"\nkeys = { database = true }",
        ),
    ];
    let of_policies = [
        ("cost = 5", "cost = { estimate = 5 }"),
        ("idempotency-key = \"header:X-A\"", "idempotency-key = { key = \"header:x-a\", window = \"24h\" }"),
        ("overshoot = 0", "overshoot = \"0.0%\""),
        ("match.method = \"GET\"", "match = { method = [\"GET\"] }"),
        ("hot-keys.then = \"local-only: 5/1m\"", "hot-keys.then = \"local-only:5/m burst 5\""),
    ];
    let of_routes = [
        ("to = \"u\"", "to = [{ upstream = \"u\", weight = 1 }]"),
        ("to = [\"u\", \"v\"]", "to = [\"u\", { upstream = \"v\", weight = 1 }]"),
        ("to = \"u\"\nmirror = \"v\"", "to = \"u\"\nmirror = { to = \"v\", share = \"100%\" }"),
        ("redirect = \"https\"", "redirect = { to = \"https:443\", status = 308 }"),
        ("to = \"u\"\nheaders.set.X-A = \"1\"", "to = \"u\"\nheaders = { set = { x-a = [\"1\"] } }"),
        ("to = \"u\"\ncompress = true", "to = \"u\"\ncompress = { min = 1024 }"),
        ("to = \"u\"\nretry = {}", "to = \"u\"\nretry.times = 1"),
        ("to = \"u\"\nhost = \"A.b\"\nmatch = {}", "to = \"u\"\nhost = [\"a.b\"]\nlimit = []"),
    ];
    let sections = sections.map(|(one, other)| (one.to_owned(), other.to_owned()));
    let of_policies = of_policies.map(|(one, other)| (policy(one), policy(other)));
    let of_routes = of_routes.map(|(one, other)| (route(one), route(other)));
    for (one, other) in sections.into_iter().chain(of_policies).chain(of_routes) {
        assert_eq!(config(&one).effective(), config(&other).effective());
        assert!(reads_the_same(&config(&one)), "{}", config(&one).page());
    }
}

#[test]
fn every_topology_is_read_and_written_without_its_passwords() {
    for redis in [
        "url = \"redis://127.0.0.1\"",
        "url = \"rediss://gw:${SECRET}@R1,[fd00::1]:7/3\"\nca = \"/etc/ca.pem\"\nkey-secret = \"${SECRET}\"",
        "url = \"redis://:${SECRET}@s1,s2\"\ntopology = \"sentinel:main\"\nconnections = 4",
        "url = \"redis://c1,c2\"\ntopology = \"cluster\"\ndeadline = \"5ms\"\nprefix = \"gw:eu\"",
        "topology = \"ring\"\n[redis.ring]\nshards = [{ url = \"redis://:${SECRET}@a/1\" }, { url = \"redis://b\", \
         weight = 2 }]\ndedicated = [{ url = \"redis://:${SECRET}@vip\", tenants = [\"acme\"] }]",
    ] {
        let first = config(&format!("[redis]\n{redis}"));
        assert!(reads_the_same(&first), "{}", first.page());
        assert!(!first.effective().contains("hunter2") && !format!("{first:?}").contains("hunter2"));
    }
    let redis =
        config("[redis]\nurl = \"rediss://gw:a:b@c/${SECRET}@R1,r2:7/3\"").redis.expect("it is there");
    let Topology::Single(servers) = redis.topology else { panic!("it is one server by default") };
    assert_eq!(servers.iter().map(ToString::to_string).collect::<Vec<_>>(), ["r1:6379", "r2:7"]);
    let login = &servers[1].login;
    assert_eq!((login.username.as_deref(), login.db, servers[1].tls), (Some("gw"), 3, true));
    assert_eq!(login.password, Some(Secret("a:b@c/hunter2".to_owned())));
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
    let places = ["1:11", "4:1", "5:14", "6:6", "9:1"];
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
        "[admin]\ntokens = [{ token = \"hunter2\", name = 1 }]",
        "[upstream.a]\nservers = [\"http://me:hunter2@localhost\"]",
        "workers = \"${SECRET}\"",
        "[[route]]\npath = \"${SECRET}\"\nlimit = \"${SECRET}\"\nto = \"${SECRET}\"\nmethods = [\"${SECRET}\"]",
        "[[route]]\nhost = \"${SECRET}:1\"\nrewrite = \"${SECRET}\"\nlimit = \"1/${SECRET}\"\nto = \"${SECRET}://x\"",
        "[[route]]\nto = \"echo\"\nname = \"\\\"${SECRET}\"\nheaders = { set = { authorization = \"hunter2\\n\" } }",
        "[log]\nlevel = \"${SECRET}\"\naccess = { to = \"${SECRET}\" }\n[policy.a]\nby = \"${SECRET}\"\nlimit = \"${SECRET}\"",
        "[listener.a]\nbind = \"${SECRET}\"\nhttp = \"${SECRET}\"\ntimeouts = { idle = \"${SECRET}\" }",
        "[client-ip]\ntrust = \"${SECRET}\"\nheader = \"${SECRET}\"\n[limits]\nmemory = \"${SECRET}\"",
        "include = \"${SECRET}*/x\"",
        "[trace]\notlp = \"http://hunter2@h\"",
        "[upstream.a]\nservers = \"hunter2@h:80\"",
        "[redis]\nurl = \"hunter2@h\"",
    ] {
        let said = match load(&[text]) {
            Ok(loaded) => loaded.report.to_string(),
            Err(said) => said,
        };
        assert!(!said.contains("hunter2"), "{text}\n{said}");
    }
}

#[test]
fn the_name_of_an_included_file_is_not_shown_if_it_is_a_secret() {
    let folder = std::env::temp_dir().join(format!("sluicegate-included-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("made");
    std::fs::write(folder.join("name"), "hunter2").expect("written");
    let main = folder.join("gateway.toml");
    std::fs::write(&main, "include = [\"${file:name}\"]\n[[route]]\nto = \"echo\"\n").expect("written");
    let said = || super::read(&main).and_then(compiled).expect_err("it is wrong").to_string();
    assert!(said().contains("cannot read ") && !said().contains("hunter2"), "{}", said());
    std::fs::write(folder.join("hunter2"), "pth = 1").expect("written");
    assert!(said().contains("unknown key `pth`") && !said().contains("hunter2"), "{}", said());
    std::fs::remove_dir_all(folder).expect("cleaned");
}

#[test]
fn a_field_of_the_message_is_refused_among_a_collectors_headers() {
    let with = |name: &str| format!("[trace]\notlp = \"http://a\"\nheaders = {{ {name} = \"a\" }}\n");
    for name in
        ["Host", "TE", "connection", "content-type", "transfer-encoding", "upgrade", "content-encoding"]
    {
        let said = load(&[&with(name)]).expect_err("it is refused");
        assert!(said.contains(&format!("`{}` cannot be set", name.to_ascii_lowercase())), "{said}");
    }
    for name in ["authorization", "x-scope-orgid", "user-agent"] {
        assert!(load(&[&with(name)]).is_ok(), "{name}");
    }
}

#[test]
fn no_url_that_the_gateway_asks_has_a_port_out_of_range() {
    for text in [
        "[auth.a]\nkind = \"jwt\"\naudience = \"a\"\nalgorithms = [\"ES256\"]\njwks = \"https://a:70000/\"\n",
        "[listener.a]\nbind = \"127.0.0.1:1\"\n\
         certs = [{ acme = \"https://a:70000/\", names = \"a.example\", agree = true }]\n",
        "[listener.a]\nbind = \"127.0.0.1:1\"\nredirect = \"https://a.example:70000{path}\"\n",
    ] {
        let said = load(&[text]).expect_err("it is refused");
        assert!(said.contains("has no valid port") && said.contains("from 1 to 65535"), "{said}");
    }
}

#[test]
fn what_cannot_be_meant_draws_a_warning() {
    let tls = "[listener.a]\nbind = \"127.0.0.1:1\"\ncerts = [{ cert = \"c\", key = \"k\" }]\n";
    let staff = "[auth.staff]\nkind = \"mtls\"\nconsumer = \"san:email\"\n[[route]]\nto = \"echo\"\nauth = \"staff\"\n";
    let counted = "[[route]]\nto = \"echo\"\nlimit = \"1/s by consumer\"\n";
    let plain = "[listener.plain]\nbind = \"127.0.0.1:2\"\nredirect = \"https\"\n";
    let redirect = "[[route]]\nredirect = \"https\"\n";
    let sticky = "[[route]]\nto = [\"http://a\", \"http://b\"]\nsticky = \"tenant\"\n";
    let hashed = "[upstream.u]\nservers = [\"http://a\", \"http://b\"]\nbalance = \"hash:consumer\"\n[[route]]\nto = \"u\"\n";
    let (echo, upstream) = ("[[route]]\nto = \"echo\"\n", "[upstream.u]\nservers = \"http://a\"\n");
    let warned = |text: &str| load(&[text]).expect("it is valid").report.to_string();
    for (text, place, message) in [
        (format!("{tls}{redirect}"), "5:12", "over https it redirects to itself"),
        (staff.to_owned(), "1:7", "this method never recognises a client"),
        (counted.to_owned(), "3:9", "no client has the dimension that it counts by"),
        (
            "[client-ip]\nnat64 = \"2001:db8::/32\"\n[[route]]\nto = \"echo\"\ndeny = \"2001:db8:0:9::/64\"\n".to_owned(),
            "5:8",
            "`nat64` turns them into IPv4 addresses",
        ),
        (sticky.to_owned(), "3:10", "so no client keeps its upstream"),
        (hashed.to_owned(), "3:11", "so no client keeps its server"),
        (plain.to_owned(), "3:12", "no listener of this gateway serves https on port 443"),
        (redirect.to_owned(), "2:12", "no listener of this gateway serves https on port 443"),
        (format!("{plain}{tls}"), "3:12", "write `redirect = \"https:1\"`"),
        (
            "[trace]\notlp = \"http://a:4318/v1/traces\"\nprotocol = \"grpc\"\n".to_owned(),
            "2:8",
            "a path of OTLP over HTTP",
        ),
        (
            "[policy.p]\nby = [\"ip\"]\nalgorithm = \"sliding-window\"\nlimit = \"1.67/s\"\n".to_owned(),
            "4:9",
            "`1.67/s` is counted as 5/3s",
        ),
        ("[[route]]\nto = \"echo\"\nlimit = \"0.5/s by ip\"\n".to_owned(), "3:9", "write `1/2s by ip`"),
        (format!("[policy.p]\nby = []\nlimit = \"1/s\"\n{echo}"), "1:9", "no route uses the policy `p`"),
        (format!("[upstream.u]\nservers = \"http://a\"\n{echo}"), "1:11", "no route uses the upstream `u`"),
        (format!("[auth.m]\nkind = \"anonymous\"\n{echo}"), "1:7", "no route uses the method `m`"),
        (
            "[auth.a]\nkind = \"anonymous\"\n[auth.b]\nkind = \"anonymous\"\n[[route]]\nto = \"http://a\"\nauth = [\"a\", \"b\"]\n"
                .to_owned(),
            "7:9",
            "this method accepts every client, so the methods after it are never tried",
        ),
        (
            "[policy.p]\nby = []\nlimit = \"1/s\"\nmatch = { path = \"/b/{id}\" }\n\
             [[route]]\npath = \"/a/{id}\"\nto = \"http://a\"\nlimit = \"p\"\n"
                .to_owned(),
            "4:9",
            "no route with this policy has such requests, so it never counts one",
        ),
        (
            "[policy.p]\nby = []\nlimit = \"1/s\"\nmatch = { method = \"POST\" }\n\
             [[route]]\nmethods = [\"GET\"]\nto = \"http://a\"\nlimit = \"p\"\n"
                .to_owned(),
            "4:9",
            "no route with this policy has such requests, so it never counts one",
        ),
        (
            "[log]\nlevel = \"info,gateway::proxy=debug,sluicegate::proxy=trace\"\n".to_owned(),
            "2:9",
            "no part of the program that logs is called `sluicegate`",
        ),
        (
            "[log]\nlevel = \"info,rustls=debug\"\n".to_owned(),
            "2:9",
            "no part of the program that logs is called `rustls`",
        ),
        (
            "[[route]]\npath = \"/a\"\nredirect = \"/a\"\n".to_owned(),
            "3:12",
            "this route redirects to itself",
        ),
        (
            format!("{upstream}timeouts = {{ response = \"30s\", total = \"10s\" }}\n"),
            "3:25",
            "`response` never expires: `total` is shorter",
        ),
        (
            "[[route]]\nto = \"http://a\"\ntimeouts = { try = \"2s\", total = \"1s\" }\n".to_owned(),
            "3:20",
            "`try` never expires",
        ),
        (
            "[upstream.u]\nservers = [\"http://a\", \"http://A:80\"]\n".to_owned(),
            "2:24",
            "this server is listed twice",
        ),
        (
            "[[route]]\nto = \"http://127.0.0.1:8080\"\n".to_owned(),
            "2:6",
            "this upstream is the listener `default` of this gateway",
        ),
        (
            format!("[listener.l]\nbind = \"[::]:81\"\n{upstream}")
                .replace("http://a", "https://localhost:81"),
            "3:11",
            "this upstream is the listener `l` of this gateway",
        ),
        (
            "[admin]\nbind = \"127.0.0.1:97\"\n[[route]]\nto = \"http://localhost:97\"\n".to_owned(),
            "4:6",
            "this upstream is the admin listener: clients could read the configuration",
        ),
        (
            format!("[client-ip]\ntrust = [\"10.0.0.0/8\", \"::/0\"]\n{echo}"),
            "2:24",
            "every client may name any address",
        ),
        (
            "[policy.p]\nby = []\nlimit = [\"5/day\", \"6/day\"]\n".to_owned(),
            "3:19",
            "only the lower one ever refuses",
        ),
        (
            "[policy.p]\nby = []\nlimit = \"1/s\"\novershoot = \"1%\"\ncount = { status = 401 }\n".to_owned(),
            "4:13",
            "`overshoot` changes nothing",
        ),
        (tls.to_owned(), "1:11", "there is no route: every request gets 404"),
        (
            "[[route]]\npath = \"/{id}\"\nredirect = \"https://$host/x\"\n".to_owned(),
            "3:12",
            "`$host` is sent literally",
        ),
        (
            "[[route]]\nto = \"http://a\"\nrewrite = \"/x/$uri\"\n".to_owned(),
            "3:11",
            "`$uri` is sent literally",
        ),
        (format!("{echo}match = {{ header = {{ x-a = \"^x.*\" }} }}\n"), "3:28", "not as a pattern"),
        (
            format!("{echo}headers = {{ set = {{ x-a = \"{{consumer}}\" }} }}\n"),
            "3:11",
            "the route does not authenticate, so `{consumer}`",
        ),
        (
            "[[route]]\nto = \"http://a\"\nrewrite = \"/{claim:sub}\"\n".to_owned(),
            "3:11",
            "the route does not authenticate",
        ),
        (
            "[admin]\ntokens = [{ name = \"a\", token = \"${SECRET}\", role = \"read\", expires = \"2020-01-01\" }]\n"
                .to_owned(),
            "2:71",
            "this token has expired: it is refused",
        ),
        (
            "[auth.j]\nkind = \"jwt\"\naudience = \"a\"\nalgorithms = \"ES256\"\n\
             jwks = \"https://a/.well-known/openid-configuration\"\n"
                .to_owned(),
            "5:8",
            "write the URL that it has as `jwks_uri`",
        ),
    ] {
        let said = warned(&text);
        assert!(
            said.contains(message) && said.contains(&format!("gateway.toml:{place}\n")),
            "{text}\n{said}"
        );
    }
    for level in ["trace", "info,app=trace"] {
        let said = warned(&format!("{echo}[log]\nlevel = \"{level}\"\n"));
        assert_eq!(said.contains("`trace` adds nothing to `debug`"), !cfg!(debug_assertions), "{said}");
    }
    for text in [
        format!("{plain}{tls}{echo}").replace("\"https\"", "\"https:1\""),
        plain.replace("https", "https://a{path}"),
        format!(
            "{echo}headers = {{ set = {{ x-a = \"{{{{consumer}}}} $5\" }} }}\nmatch = {{ header = {{ x-a = \"a*\" }} }}\n"
        ),
        format!("{upstream}timeouts = {{ total = \"10s\" }}\n[policy.p]\nby = []\nlimit = \"1/s\"\n"),
        "[[route]]\npath = \"/a\"\nmethods = \"POST\"\nredirect = \"/a\"\n".to_owned(),
        "[policy.p]\nby = []\nlimit = \"1/s\"\nmatch = { method = \"HEAD\", path = \"/a/b\" }\n\
         [[route]]\npath = \"/a/{id}\"\nmethods = \"GET\"\nto = \"http://a\"\nlimit = \"p\"\n"
            .to_owned(),
        "[[route]]\nto = [\"http://10.0.0.1:8080\", \"http://127.0.0.1:8081\"]\n".to_owned(),
        format!("{tls}client-ca = \"ca\"\n{staff}"),
        format!("{staff}limit = \"1/s by consumer\"\n")
            .replace("mtls\"\nconsumer = \"san:email", "anonymous"),
    ] {
        assert_eq!(warned(&text), "", "{text}");
    }
}

#[test]
fn what_could_not_be_read_draws_no_warning() {
    for (text, error) in [
        (
            "[policy.a]\nby = \"ip\"\nlimit = \"10/month\"\nanchor = 15\nalgorithm = \"sliding-window\"",
            "error: a limit per calendar month must be a fixed window\n",
        ),
        ("[upstream.a]\nservers = \"http://a\"\neject = { most = \"50\" }", "error: `50` is not a share\n"),
    ] {
        let said = said(text);
        assert!(said.starts_with(error) && !said.contains("warning: "), "{said}");
    }
}

#[test]
fn literal_secrets_and_open_admins_draw_warnings() {
    let loaded = load(&["[admin]\ntoken = \"hunter2\"\nbind = \"0.0.0.0:1\""]).expect("it is valid");
    let said = loaded.report.to_string();
    assert!(said.starts_with("warning: `token` is written in plain text\n --> gateway.toml:2:9\n"), "{said}");
    assert!(said.contains("2 | token = \"********\"\n"), "{said}");
    let certificates = "[admin]\nbind = \"0.0.0.0:1\"\ncerts = [{ cert = \"a.pem\", key = \"a.key\" }]\n\
        client-ca = \"ca.pem\"\nclient-cert = \"require\"\n\
        certificates = [{ name = \"ann\", shows = \"san:uri=spiffe://a/b=c\", role = \"admin\" }]";
    let first = config(certificates);
    let admin = first.admin.clone().expect("it is on");
    assert_eq!(
        (admin.certificates[0].text.as_str(), admin.access().certificates.len()),
        ("spiffe://a/b=c", 1)
    );
    assert_eq!(config(&first.effective()).admin, first.admin);
    assert!(load(&[certificates]).expect("it is valid").report.is_empty(), "it asks for certificates");
    let loaded = load(&["[admin]\nbind = \"0.0.0.0:1\""]).expect("it is valid");
    assert!(loaded.report.to_string().starts_with("warning: the admin listener is open to other machines"));
    let loaded = load(&["[admin]\nbind = \"0.0.0.0:1\"\ntoken = \"${SECRET}\""]).expect("it is valid");
    assert!(loaded.report.is_empty());
}

#[test]
fn what_is_called_like_a_credential_is_masked_as_the_log_refuses_it() {
    let short = ["cookie", "x-jwt", "x-session", "x-signature", "x-auth", "x-key", "x-access-key", "sid"];
    let long = ["x-auth-key", "private-key", "x-hub-signature-256", "x-session-id", "x-otp"];
    for name in short.into_iter().chain(long) {
        for route in [
            format!("headers = {{ set = {{ {name} = \"hunter2\" }}, add = {{ {name} = \"hunter2\" }} }}"),
            format!("response-headers = {{ set = {{ {name} = [\"hunter2\"] }} }}"),
            format!("match = {{ header = {{ {name} = \"hunter2\" }} }}"),
        ] {
            let shown = config(&format!("[[route]]\nto = \"http://a\"\n{route}")).effective();
            assert!(!shown.contains("hunter2") && shown.contains(MASK), "{shown}");
        }
        let listener = "[listener.a]\nbind = \"[::1]:1\"\nresponse-headers.add";
        let shown = config(&format!("{listener}.{name} = \"hunter2\"")).effective();
        assert!(!shown.contains("hunter2") && shown.contains(MASK), "{shown}");
        let masked = format!("[[route]]\nto = \"echo\"\nheaders.set.{name} = \"{MASK}\"");
        assert!(load(&[&masked]).is_err_and(|said| said.contains("only asterisks")), "{name}");
        let logged = load(&[&format!("[log]\naccess = {{ headers = [\"{name}\"] }}")]);
        assert!(logged.is_err_and(|said| said.contains("may hold a credential")), "{name}");
        let broken = format!("[[route]]\nto = \"http://a\"\nheaders.set.{name} = \"hunter2\nlimit = 3");
        let said = load(&[&broken]).expect_err("it is not TOML");
        assert!(!said.contains("hunter2"), "{said}");
    }
}

#[test]
fn what_came_from_a_file_or_a_secret_variable_is_masked_wherever_it_goes() {
    let file = std::env::temp_dir().join(format!("sluicegate-hidden-{}", std::process::id()));
    std::fs::write(&file, "Hunter2/x\n").expect("written");
    let from_file = format!("${{file:{}}}", file.display());
    for reference in [from_file.as_str(), "${SECRET}", "${secret:PLAIN}"] {
        for text in [
            format!(
                "[[route]]\npath = \"/{reference}\"\nto = \"http://a\"\nheaders.set.x-tenant = \"a {reference}\""
            ),
            format!(
                "[[route]]\nhost = \"a\"\nmatch.header.x-plan = \"{reference}\"\nrespond = {{ body = \"{reference}\" }}"
            ),
            format!(
                "[listener.a]\nbind = \"127.0.0.1:1\"\ncerts = {{ cert = \"{reference}.pem\", key = \"{reference}.key\" }}"
            ),
        ] {
            let config = config(&text);
            let shown = config.effective();
            assert!(!shown.to_lowercase().contains("hunter2") && shown.contains(MASK), "{shown}");
            assert!(!format!("{:?}", config.secrets).to_lowercase().contains("hunter2"));
            for route in &config.routes {
                assert!(!route.name.to_lowercase().contains("hunter2"), "{}", route.name);
            }
        }
    }
    let text = "[[route]]\npath = \"/${SECRET}\"\nto = \"http://a\"\n\
        [[route]]\npath = \"/${file:PATH}\"\nto = \"http://a\"";
    let both = config(&text.replace("PATH", &file.display().to_string()));
    let names: Vec<_> = both.routes.iter().map(|route| route.name.as_str()).collect();
    assert_eq!(names, ["/********", "/******** 2"]);
    // What is found later, by code that does not see where a text came from, is told without it too.
    let mut definition =
        defined(&["[[route]]\npath = \"/a\"\nto = \"http://${SECRET}\""]).expect("it is valid");
    definition.reject(Subject::Route(0), "path", "cannot reach http://hunter2", "leave hunter2 out");
    let said = compiled(definition).expect_err("it was rejected").to_string();
    assert!(said.contains("cannot reach http://********") && !said.contains("hunter2"), "{said}");
    assert!(config("[[route]]\npath = \"/${PORT}\"\nto = \"http://a\"").effective().contains("/8081"));
    std::fs::remove_file(&file).expect("it was made above");
}

#[test]
fn the_hint_of_a_bare_limit_and_of_another_language_can_be_followed() {
    for text in ["[policy.a]\nby = []\nlimit = 300", "[[route]]\nto = \"echo\"\nlimit = 300"] {
        let said = load(&[text]).expect_err("it has no period");
        assert!(said.contains("write its period, for example `limit = \"300/m\"`"), "{said}");
        assert!(load(&[&text.replace("300", "\"300/m\"")]).is_ok());
    }
    for (text, language) in [
        ("{ \"listener\": {} }", "looks like JSON"),
        ("[\n  { \"listener\": {} }\n]", "looks like JSON"),
        ("[ {\"listener\": {} }]", "looks like JSON"),
        ("# ours\nlistener:\n  main:\n    bind: a\n", "looks like YAML"),
        ("---\nworkers: 2\n", "looks like YAML"),
        ("http {\n  server {\n", "looks like nginx or Caddy"),
        (":8080 {\n  reverse_proxy a\n", "looks like nginx or Caddy"),
        ("frontend web\n    bind *:80\n", "looks like HAProxy"),
        ("listener main\n", "this is not TOML"),
        ("[listener.a\nbind = 1\n", "end the name of the section with `]`"),
        ("[log]\nlevel = \"info\n", "end the text with `\"`"),
        ("[[route]]\nmethods = [\"GET\" \"POST\"]\n", "write a comma between the two"),
        ("[[route]]\nto = \"a\"; path = \"/b\"\n", "each key on a line of its own"),
        ("[[route]]\nupgrade = yes\n", "write `true` or `false`"),
        ("[limits]\nmemory: 5\n", "write each line as `KEY = VALUE`"),
        ("[rls.a]\n[[rls]]\n", "write `[rls.NAME]` for each"),
        ("[listener.a]\nbind = 127.0.0.1:80\n", "write the value in quotes"),
        ("[listener.a]\nbind = localhost\n", "write the value in quotes"),
        ("[log]\nlevel = \"C:\\path\"\n", "single quotes"),
    ] {
        let said = load(&[text]).expect_err("it is not TOML");
        assert!(said.contains(language), "{said}");
    }
    let said = load(&["[listener.a\nbind = 1"]).expect_err("a bracket is missing");
    assert!(!said.contains("looks like"), "{said}");
}

#[test]
fn what_is_said_of_a_wrong_limit_can_be_written_there() {
    let places = [
        "[policy.a]\nby = []\nlimit = LIMIT",
        "[policy.a]\nby = []\nlimit = { free = LIMIT, default = { limit = LIMIT } }",
        "[tier.a]\nlimit = LIMIT",
        "[[route]]\nto = \"echo\"\nlimit = LIMIT",
    ];
    let wrong = [
        "300",
        "0",
        "-5",
        "0x10",
        "1.5",
        "\"300\"",
        "\"5/\"",
        "\"5 per\"",
        "\"/m\"",
        "\"\"",
        "\"1.5 in flight\"",
        "\"0.000001/s\"",
        "\"10k/d\"",
        "\"10,000/d\"",
        "\"10 inflight\"",
        "\"300rpm\"",
        "\"300 a minute\"",
        "\"0/s\"",
        "\"5/0s\"",
        "\"5/s burst 0\"",
        "\"5/fortnight\"",
        "\"5/s now\"",
        "\"5/s by\"",
        "\"5/s by me\"",
    ];
    let mut followed = 0;
    for place in places {
        for written in wrong {
            let said = load(&[&place.replace("LIMIT", written)]).expect_err("it is no limit");
            let is_limit = |text: &&str| {
                text.starts_with(|first: char| first.is_ascii_digit())
                    && (text.contains('/') || text.ends_with(" in flight"))
                    && *text != written.trim_matches('"')
            };
            for limit in said.split(['`', '"']).filter(is_limit) {
                followed += 1;
                let followed = load(&[&place.replace("LIMIT", &format!("\"{limit}\""))]);
                assert!(followed.is_ok(), "{place} with {written}: {said}\n{limit}: {followed:?}");
            }
        }
    }
    assert!(followed > 60, "only {followed} hints have a limit to write");
}

/// The values of a document that hold no others, by their places.
fn leaves(value: &toml::Spanned<toml::de::DeValue<'_>>, found: &mut Vec<std::ops::Range<usize>>) {
    match value.get_ref() {
        toml::de::DeValue::Array(array) => {
            found.push(value.span());
            array.iter().for_each(|inner| leaves(inner, found));
        }
        toml::de::DeValue::Table(table) => table.values().for_each(|inner| leaves(inner, found)),
        _ => found.push(value.span()),
    }
}

#[test]
fn what_is_said_of_a_value_of_the_wrong_type_can_be_written_there() {
    let document = toml::de::DeTable::parse(FULL).expect("it is TOML");
    let mut places = Vec::new();
    document.get_ref().values().for_each(|value| leaves(value, &mut places));
    let mut followed = 0;
    for place in places {
        for written in ["7", "1.5", "true"] {
            let with = |value: &str| format!("{}{value}{}", &FULL[..place.start], &FULL[place.end..]);
            let Err(said) = load(&[&with(written)]) else { continue };
            let errors = said.split("\n\n").filter(|finding| finding.starts_with("error: "));
            let hints = errors.filter_map(|error| error.split_once("^ write `")?.1.split('`').next());
            let hints = hints.filter(|hint| hint.contains(" = ") && !hint.contains('…'));
            fn value(hint: &str) -> &str {
                let value = hint.split_once(" = ").filter(|_| !hint.starts_with('{'));
                value.map_or(hint, |(_, value)| value)
            }
            for value in hints.map(value) {
                followed += 1;
                let again = load(&[&with(value)]).err().unwrap_or_default();
                assert!(
                    !again.contains(" must be ") && !again.contains(" is not "),
                    "{said}\n{value}: {again}"
                );
            }
        }
    }
    assert!(followed > 20, "only {followed} hints have a value to write");
}

#[test]
fn a_wrong_path_of_a_health_check_hides_no_other_mistake() {
    let said = said("[upstream.a]\nservers = \"http://a\"\nhealth = { path = \"healthz\", every = 10 }");
    assert!(said.contains("`healthz` is not a path") && said.contains("`every` needs a unit"), "{said}");
}

#[test]
fn a_hint_that_is_followed_is_taken() {
    // A file, what is wrong in the place of the `@`, and what the hint has for it.
    for (file, wrong, meant) in [
        ("[redis]\ntopology = \"ring\"\n@", "", "ring = { shards = [{ url = \"redis://a\" }] }"),
        ("[[route]]\nto = \"echo\"\nlimit = \"@\"", "10/s per ip", "10/s by ip"),
        ("[[route]]\nto = \"echo\"\nlimit = \"@\"", "100 requests per minute per IP", "100 per minute by ip"),
        ("[[route]]\nto = \"echo\"\nlimit = \"5/s by @\"", "X-Api-Key", "header:x-api-key"),
        ("[policy.a]\nby = \"@\"\nlimit = \"1/s\"", "user", "consumer"),
        ("[policy.a]\nby = []\nlimit = { default = \"1/s\", @ }", "pro = 5", "pro = \"5/m\""),
        ("[policy.a]\nby = []\nlimit = \"1/s\"\nalgorithm = \"@\"", "gcra", "token-bucket"),
        ("[listener.a]\nbind = \"unix:/a\"\n@", "mode = 660", "mode = \"0660\""),
        ("[listener.a]\nbind = \"127.0.0.1:0\"\nhttp = \"@\"", "1.1", "http/1.1"),
        (
            "[listener.a]\nbind = \"127.0.0.1:0\"\nallow = @",
            "\"10.0.0.1, 10.0.0.2\"",
            "[\"10.0.0.1\", \"10.0.0.2\"]",
        ),
        (
            "[upstream.a]\nservers = [@]",
            "\"10.0.0.2:8080 weight=3\"",
            "{ url = \"http://10.0.0.2:8080\", weight = 3 }",
        ),
        ("[upstream.a]\nservers = \"@\"", "server web1 10.0.0.1:80 check", "http://10.0.0.1:80"),
        ("[upstream.a]\nservers = \"@\"", "tcp://10.0.0.1:80", "http://10.0.0.1:80"),
        ("[upstream.a]\nservers = \"http://b\"\n@", "connect = \"2s\"", "timeouts = { connect = \"2s\" }"),
        ("[upstream.a]\nservers = \"http://b\"\nbalance = \"@\"", "least_conn", "least-requests"),
        ("[[route]]\nto = \"http://b\"\nheaders = { @ }", "X-A = \"b\"", "set = { X-A = \"b\" }"),
        ("[[route]]\nto = \"echo\"\nhost = @", "\"a.example b.example\"", "[\"a.example\", \"b.example\"]"),
        ("[[route]]\nto = \"echo\"\npath = \"@\"", "*", "/{*rest}"),
        ("[auth.a]\nkind = \"api-key\"\nkeys = { file = \"a\" }\nin = \"@\"", "X-Key-Id", "header:x-key-id"),
        (
            "[redis]\ntopology = \"ring\"\n@",
            "shards = [\"redis://b\"]",
            "ring = { shards = [{ url = \"redis://a\" }] }",
        ),
        ("[admin]\ntoken = @", "\"\"", "\"${NAME}\""),
        (
            "[admin]\ntokens = [@]",
            "\"hunter2\"",
            "{ name = \"alice\", token = \"${NAME}\", role = \"operate\" }",
        ),
        (
            "[admin]\ncerts = [{ cert = \"a\", key = \"b\" }]\nclient-ca = \"c\"\ncertificates = [@]",
            "\"ann\"",
            "{ name = \"ann\", shows = \"san:email=alice@example.com\", role = \"operate\" }",
        ),
        (
            "[listener.a]\nbind = \"127.0.0.1:0\"\ncerts = [{ cert = \"a\", key = \"b\" }]\nmin-version = @",
            "1.2",
            "\"1.2\"",
        ),
        ("[upstream.a]\nservers = \"http://127.0.0.1:1\"\nhttp = @", "2", "\"h2\""),
        ("[upstream.a]\nservers = [{ @ }]", "host = \"b\"", "url = \"http://127.0.0.1:3000\""),
        ("[upstream.a]\nservers = \"@\"", "http://unix:/run/a.sock:/x", "unix:/run/a.sock"),
        (
            "[upstream.a]\nservers = \"http://a\"\nhealth = { path = \"/\", @ }",
            "interval = 5",
            "every = \"5s\"",
        ),
        (
            "[upstream.a]\nservers = \"http://a\"\nhealth = { path = \"/\", @ }",
            "expect = 204",
            "status = 204",
        ),
        ("[upstream.a]\nservers = \"http://a\"\nretry = { @ }", "attempts = 3", "times = 1"),
        ("[policy.a]\nby = \"ip\"\n@", "limit = \"100/m\"\nburst = 20", "limit = \"100/m burst 20\""),
        ("[policy.a]\nlimit = \"100/m\"\n@", "key = \"ip\"", "by = [\"ip\"]"),
        ("[policy.a]\nby = \"ip\"\n@", "per = \"m\"", "limit = \"100/m\""),
        ("[tier.a]\n@", "rate = 5", "limit = \"100/m\""),
        ("[[route]]\nto = \"echo\"\n@", "limit = { rate = 5 }", "limit = \"100/m\""),
        ("[[route]]\nto = \"echo\"\nhost = \"@\"", "https://API.example.com:8443/x", "api.example.com"),
        ("[[route]]\nto = \"echo\"\nmethods = @", "\"GET,POST\"", "[\"GET\", \"POST\"]"),
        ("[[route]]\nto = \"echo\"\n@", "prefix = \"/a\"", "path = \"/api/{*rest}\""),
        ("[[route]]\nto = \"http://a\"\n@", "timeout = \"5s\"", "timeouts = { response = \"5s\" }"),
        ("[[route]]\nto = \"http://a\"\nmirror = { @ }", "url = \"b\"", "to = \"http://127.0.0.1:3000\""),
        ("[[route]]\nto = \"http://a\"\nmirror = { to = \"http://b\", @ }", "percent = 5", "share = \"10%\""),
        ("[[route]]\nredirect = { @ }", "url = \"http://a\"", "to = \"https://www.example.com{path}\""),
        ("[[route]]\nredirect = { to = \"/b\", @ }", "code = 301", "status = 301"),
        ("[log]\naccess = { @ }", "path = \"a.log\"", "to = \"/var/log/sluicegate.log\""),
        ("[log]\naccess = { @ }", "sample = 0.1", "sample = { \"2xx\" = \"10%\" }"),
        ("[trace]\notlp = \"http://a\"\nheaders = @", "[\"a: b\"]", "{ x-name = \"value\" }"),
        ("[[route]]\nto = \"echo\"\nmatch = { header = @ }", "\"x-a\"", "{ x-name = \"value\" }"),
        ("[[route]]\nto = { @ }", "url = \"http://a\"", "upstream = \"http://127.0.0.1:3000\""),
        ("[[route]]\nrespond = { @ }", "code = 404", "status = 404"),
        ("[shutdown]\n@", "timeout = \"5s\"", "drain = \"5s\""),
        ("[trace]\n@", "endpoint = \"http://a\"", "otlp = \"http://127.0.0.1:4318\""),
        ("[client-ip]\n@", "trusted = \"10.0.0.0/8\"", "trust = [\"10.0.0.0/8\"]"),
    ] {
        let said = load(&[&file.replace('@', wrong)]).expect_err(wrong);
        assert!(said.contains(&format!("`{meant}`")) && !said.contains("hunter2"), "{meant}:\n{said}");
        let followed = load(&[&file.replace('@', &meant.replace("NAME", "SECRET"))]);
        assert!(followed.is_ok(), "{meant}:\n{followed:?}");
    }
}

#[test]
fn an_error_is_at_the_line_of_its_own_file() {
    let texts = ["workers = 1\n[[route]]\nto = \"echo\"", "\n\nworkrs = 2"];
    let read = read_sources(sources(&texts), Vec::new(), Secrets::default(), &variables).and_then(compiled);
    let errors = read.expect_err("a key is misspelt");
    let (place, _) = errors.lines().next().expect("it is there");
    assert_eq!(place, Some((Path::new("conf.d/1.toml"), 3)));
    let errors = super::load(Path::new("/nowhere/gateway.toml")).expect_err("it is not there");
    let (place, said) = errors.lines().next().expect("it is there");
    assert!(place.is_none() && said.contains("/nowhere/gateway.toml"), "{said}");
}

#[test]
fn a_lone_word_before_the_hosts_of_redis_may_be_its_password() {
    let shown = config("[redis]\nurl = \"redis://hunter2@r1,r2:7/3\"").effective();
    assert!(shown.contains("redis://********@r1:6379,r2:7/3") && !shown.contains("hunter2"), "{shown}");
    assert!(load(&["[redis]\nurl = \"redis://********@r1\""]).is_err(), "everybody knows the mask");
}

#[test]
fn a_token_by_its_digest_is_one_of_its_text() {
    use control::admin::{AdminRole, BearerToken};
    let digest = ::auth::keys::digest_text(b"hunter2");
    let text =
        format!("[admin]\ntokens = [{{ name = \"ann\", role = \"read\", digest = \"sha256:{digest}\" }}]");
    let config = config(&text);
    let shown = config.effective();
    assert!(shown.contains("digest = \"********\"") && !shown.contains(&digest), "{shown}");
    assert!(!format!("{config:?}").contains(&digest));
    let access = config.admin.expect("it is there").access();
    let [token] = access.tokens.as_slice() else { panic!("it has one token: {access:?}") };
    assert_eq!(token.digest, BearerToken::of_text("ann", "hunter2", AdminRole::Read, None).digest);
    assert_eq!(access.hosts, None, "behind a token any host is served");
}

#[test]
fn what_comes_up_later_finds_its_place() {
    let text =
        "[[route]]\npath = \"/a\"\nto = \"http://a\"\nlimit = \"1/s\"\n[policy.b]\nby = []\nlimit = \"1/s\"";
    for (subject, field, at) in [
        (Subject::Route(0), "path", "2:8"),
        (Subject::Route(0), "host", "1:1"),
        (Subject::Upstream(0), "servers", "3:6"),
        (Subject::Policy(0), "limit", "7:9"),
        (Subject::Policy(1), "limit", "4:9"),
    ] {
        let mut definition = defined(&[text]).expect("it is valid");
        definition.reject(subject, field, "two routes tie", "change one");
        let table = definition.compile();
        let said = definition.finish(table).expect_err("it was rejected").to_string();
        assert!(said.starts_with(&format!("error: two routes tie\n --> gateway.toml:{at}\n")), "{said}");
        assert!(said.contains("change one"), "{said}");
    }
}

#[test]
fn names_are_told_beside_a_text_that_a_variable_has() {
    let route = |name: &str| {
        format!("[[route]]\nname = \"{name}\"\npath = \"/${{PORT}}/{{{name}}}\"\nto = \"echo\"\n")
    };
    let said = said(&(route("a") + &route("b")));
    assert!(said.starts_with("error: the routes `b` and `a` match the same requests"), "{said}");
    let said = self::said("[[route]]\nname = \"a\"\npath = \"/${PORT}/{x\"\nto = \"echo\"");
    assert!(!said.contains("8081"), "{said}");
}

#[test]
fn what_no_file_holds_is_named_by_its_part() {
    let mut definition = defined(&["[[route]]\nto = \"echo\""]).expect("it is valid");
    definition.reject(Subject::Listener(0), "bind", "the port is taken", "choose another");
    let said = definition.finish(None).expect_err("it was rejected").to_string();
    assert_eq!(said, "error: listener \"default\", `bind`: the port is taken; choose another");

    let mut config = config("[[route]]\nname = \"a\"\npath = \"/\"\nto = \"echo\"");
    let mut again = config.routes[0].clone();
    again.name = "b".to_owned();
    config.routes.push(again);
    let mut definition = Definition::new(config);
    let table = definition.compile();
    assert!(table.is_none());
    let said = definition.finish(table).expect_err("two routes tie").to_string();
    assert!(said.starts_with("error: route \"b\", `path`: "), "{said}");
}

#[test]
fn shapes_are_checked() {
    each_says(&[
        ("a = ", "this is not TOML: string values must be quoted, expected literal string", "1:5", ""),
        ("a = 1\na = 2", "`a` is defined twice", "2:1", "first in line 1"),
        ("[upstream.a]\n\n[upstream.a]", "`[upstream.a]` is defined twice", "3:11", "first in line 1"),
        ("[route]\nto = 1\n[route]", "`[route]` is defined twice", "3:2", "write `[[route]]`"),
        (
            "[[route]]\nto = \u{201c}echo\u{201d}",
            "this is not TOML: string values must be quoted, expected literal string",
            "2:6",
            "write straight quotes",
        ),
        (
            "[route]\npath = \"/\"",
            "`route` is a list of tables",
            "1:2",
            "write `[[route]]` with two brackets",
        ),
        ("route = 1", "`route` must be an array, not an integer", "1:9", ""),
        ("route = [1]", "each of `route` must be a table, not an integer", "1:10", ""),
        ("listener = 1", "`listener` must be a table, not an integer", "1:12", ""),
        (
            "[listener]\na = 1",
            "`a` must be a table, not an integer",
            "2:5",
            "write `[listener.a]` with its keys",
        ),
        (
            "[listener]\nbind = \"127.0.0.1:80\"",
            "`bind` must be a table, not a string",
            "2:8",
            "write `[listener.NAME]` above it: every such section needs a name",
        ),
        (
            "[auth]\nissuer = \"a\"",
            "`issuer` must be a table, not a string",
            "2:10",
            "write `[auth.NAME]` above it: every such section needs a name",
        ),
        (
            "[[policy]]\nby = []",
            "`policy` must be a table, not an array",
            "1:1",
            "write `[policy.NAME]`: every such section needs a name",
        ),
        (
            "[[route]]\nto = \"echo\"\nworkers = 4",
            "unknown key `workers` in a route",
            "3:1",
            "it belongs at the top of the file, before the first `[…]`",
        ),
        (
            "[admin]\nredis = \"redis://a\"",
            "unknown key `redis` in [admin]",
            "2:1",
            "it is a section of its own: write `[redis]`",
        ),
        ("[listner.a]", "unknown key `listner` in the configuration", "1:2", "did you mean `listener`?"),
        ("[redis]", "`[redis]` needs `url`", "1:2", "write `url"),
        ("[redis]\nurl = \"http://a\"", "`url` is not a Redis URL", "2:7", "redis://127.0.0.1:6379"),
        (
            "[redis]\nurl = \"redis-cluster://a:6379\"",
            "`url` is not a Redis URL",
            "2:7",
            "write `redis://` in `url`, and `topology = \"cluster\"`",
        ),
        (
            "[redis]\nurl = \"redis+sentinel://a:26379\"",
            "`url` is not a Redis URL",
            "2:7",
            "and `topology = \"sentinel:mymaster\"`",
        ),
        (
            "[redis]\nurl = \"unix:///run/redis.sock\"",
            "`url` is not a Redis URL",
            "2:7",
            "the gateway reaches Redis only over TCP: write `redis://127.0.0.1:6379`",
        ),
        ("[redis]\nurl = \"redis://a:x\"", "`url` has an invalid host or port", "2:7", "r1:6379,r2:6379"),
        ("[redis]\nurl = \"redis://a/x\"", "`url` has an invalid database", "2:7", "`/0`"),
        (
            "[redis]\nurl = \"redis://a\"\ntopology = \"sentinel\"",
            "`sentinel` names no primary",
            "3:12",
            "mymaster",
        ),
        (
            "[redis]\nurl = \"redis://a\"\ntopology = \"clustr\"",
            "`clustr` is not a value of `topology`",
            "3:12",
            "`cluster`",
        ),
        (
            "[redis]\nurl = \"redis://a\"\ntopology = \"replica\"",
            "`replica` is not a value of `topology`",
            "3:12",
            "`sentinel:NAME`",
        ),
        ("[redis]\ntopology = \"ring\"", "a ring needs `[redis.ring]`", "1:2", "shards"),
        (
            "[redis]\nurl = \"redis://a\"\nprefix = \"{}\"",
            "`{}` is not a valid prefix of keys",
            "3:10",
            "no braces",
        ),
        (
            "[redis]\nurl = \"redis://a\"\ndeadline = \"2s\"",
            "`deadline` is too long",
            "3:12",
            "`\"1s\"` or less",
        ),
        ("[peers]", "`peers` is reserved: this version does not support it", "1:2", "leave it out"),
        (
            "zzzzzzzz = 1",
            "unknown key `zzzzzzzz` in the configuration",
            "1:1",
            "it takes `include`, `workers`",
        ),
        ("[policy.1a]", "`1a` cannot be a name", "1:9", "start with a letter"),
        ("workers = true", "`workers` must be a whole number, not a boolean", "1:11", ""),
        ("workers = \"many\"", "`workers` must be a whole number or \"auto\"", "1:11", "workers = \"auto\""),
        ("workers = \"4\"", "`workers` must be a whole number or \"auto\"", "1:11", "write `workers = 4`"),
        ("workers = \"${PORT}\"", "`workers` is out of range", "1:11", "from 1 to 1024"),
        ("workers = \"${NONE}\"", "the environment variable `NONE` is not set", "1:11", "${NONE:-default}"),
        ("workers = \"${NONE\"", "`${` is never closed", "1:11", "close it with `}`"),
        ("\"\\u0007\" = 1", "unknown key `\\u{7}` in the configuration", "1:1", ""),
    ]);
}

#[test]
fn listeners_are_checked() {
    each_says(&[
        ("[listener.a]", "a listener needs `bind`", "1:11", "write `bind = \"127.0.0.1:8080\"`"),
        (
            "[listener.a]\nbind = \":80\"",
            "`:80` is not an address to listen on",
            "2:8",
            "write `[::]:80` for every address",
        ),
        (
            "[listener.a]\nbind = \"localhost:80\"",
            "`localhost:80` is not an address to listen on",
            "2:8",
            "write `127.0.0.1:80`",
        ),
        (
            "[listener.a]\nbind = \"::1:80\"",
            "`::1:80` is not an address to listen on",
            "2:8",
            "write `[::1]:80`",
        ),
        (
            "[listener.a]\nbind = 18443",
            "`bind` must be a string, not an integer",
            "2:8",
            "write `bind = \"127.0.0.1:18443\"`, or `\"[::]:18443\"` for every address",
        ),
        (
            "[listener.a]\nbind = \"127.0.0.1:0\"\ncerts = \"a.pem\"",
            "`certs` must be a table or an array of tables, not a string",
            "3:9",
            "write `certs = [{ cert = \"certs/api.pem\", key = \"certs/api.key\" }]`",
        ),
        (
            "[listener.a]\nbind = \"127.0.0.1:0\"\ncerts = [\"a.pem\", \"a.key\"]",
            "`certs` must hold tables of two files each",
            "3:10",
            "write `certs = [{ cert = \"certs/api.pem\", key = \"certs/api.key\" }]`",
        ),
        (
            "[listener.a]\nbind = \"0.0.0.0:80\"\n[listener.b]\nbind = \"[::]:80\"",
            "[::]:80 is taken by the listener `a`",
            "4:8",
            "choose another address or port",
        ),
        (
            "[listener.a]\nbind = \"127.0.0.1:0\"\nhttp = [\"h3\"]",
            "`h3` is not a value of `http`",
            "3:9",
            "HTTP/3 is not supported: write `http/1.1` or `h2`",
        ),
        (
            "[listener.a]\nbind = \"*:80\"",
            "`*:80` is not an address to listen on",
            "2:8",
            "write `[::]:80` for every address",
        ),
        (
            "[listener.a]\nbind = \"127.0.0.1:99999\"",
            "`127.0.0.1:99999` is not an address to listen on",
            "2:8",
            "write a port from 0 to 65535, for example `127.0.0.1:8080`",
        ),
        (
            "[listener.a]\nbind = \"http://127.0.0.1:80\"",
            "`http://127.0.0.1:80` is not an address to listen on",
            "2:8",
            "leave the scheme out: `127.0.0.1:80`",
        ),
        (
            "[listener.a]\nbind = \"[::1]:1\"\nresponse-headers = { set = { x-a = \"b\\n\" } }",
            "`b\\n` is not a valid header value",
            "3:36",
            "one line of printable ASCII",
        ),
        (
            "[listener.a]\nbind = \"127.0.0.1:0\"\nhttp = []",
            "`http` is empty: the listener would speak no protocol",
            "3:8",
            "write `[\"h2\", \"http/1.1\"]`",
        ),
        (
            "[listener.a]\nbind = \"127.0.0.1:0\"\ncerts = [{ cert = \"a.pem\" }]",
            "a pair of `certs` needs `key`",
            "3:10",
            "`key = \"certs/api.key\"`",
        ),
        (
            "[listener.a]\nbind = \"127.0.0.1:0\"\ncerts = []",
            "`certs` is empty",
            "3:9",
            "leave it out for plain HTTP",
        ),
        (
            "[listener.a]\nbind = \"127.0.0.1:0\"\nredirect = \"http\"",
            "`http` is not a value of `redirect`",
            "3:12",
            "did you mean `https`?",
        ),
        (
            "[listener.a]\nbind = \"127.0.0.1:0\"\ntimeouts = { idle = 5 }",
            "`idle` needs a unit",
            "3:21",
            "write `\"5s\"` or `\"5ms\"`",
        ),
        (
            "[listener.a]\nbind = \"127.0.0.1:0\"\ntimeouts = { idle = \"0s\" }",
            "`idle` is too short",
            "3:21",
            "write `\"1ms\"` or more",
        ),
        (
            "[listener.a]\nbind = \"127.0.0.1:0\"\ntimeouts = { idle = \"5 min\" }",
            "`5 min` is not a duration",
            "3:21",
            "write `\"5m\"`",
        ),
        (
            "[listener.a]\nbind = \"127.0.0.1:0\"\nmax = { body = \"10mb\" }",
            "`10mb` is not a size",
            "3:16",
            "write `\"10MB\"`",
        ),
        (
            "[listener.a]\nbind = \"127.0.0.1:0\"\nmax = { header-bytes = 1 }",
            "`header-bytes` is out of range",
            "3:24",
            "write a whole number from 1024 to 1048576",
        ),
        (
            "[listener.a]\nbind = \"127.0.0.1:0\"\nproxy-protocol = { from = [] }",
            "`from` is empty",
            "3:27",
            "name the proxies that speak it, or leave `proxy-protocol` out",
        ),
        (
            "[listener.a]\nbind = \"127.0.0.1:0\"\nproxy-protocol = {}",
            "`proxy-protocol` needs `from`",
            "3:1",
            "`from = [\"10.0.0.0/8\"]`",
        ),
        (
            "[listener.a]\nbind = \"127.0.0.1:0\"\nproxy-protocol = { from = [\"10.0.0.1/8\"] }",
            "`10.0.0.1/8` has bits set after its prefix",
            "3:28",
            "write `10.0.0.0/8`",
        ),
        (
            "[client-ip]\ntrust = [\"10.0.0.0/33\"]",
            "`10.0.0.0/33` is not an address or a range",
            "2:10",
            "`10.0.0.0/8`",
        ),
        (
            "[client-ip]\ntrust = [\"10.0.0.1/8\"]",
            "`10.0.0.1/8` has bits set after its prefix",
            "2:10",
            "write `10.0.0.0/8`",
        ),
        ("[client-ip]\nipv6-prefix = 129", "`ipv6-prefix` is out of range", "2:15", "from 1 to 128"),
        (
            "[client-ip]\nnat64 = \"2001:db8::/95\"",
            "`2001:db8::/95` is no prefix of a NAT64 translator",
            "2:9",
            "32, 40, 48, 56, 64 or 96 bits",
        ),
        (
            "[client-ip]\nnat64 = [\"10.0.0.0/8\"]",
            "`10.0.0.0/8` is no prefix of a NAT64 translator",
            "2:10",
            "an IPv6 prefix",
        ),
    ]);
}

#[test]
fn whom_an_upstream_is_checked_by_is_checked() {
    let with = |tls: &str| format!("[upstream.a]\nservers = \"https://a\"\ntls = {tls}");
    let in_the_clear = "[upstream.a]\nservers = \"http://a\"\ntls = {}".to_owned();
    let cases = [
        (with("{ cert = \"a\" }"), "`cert` needs `key`", "3:9", "write both"),
        (with("{ key = \"a\" }"), "`key` needs `cert`", "3:9", "write both"),
        (
            with("{ sni = \"a b\" }"),
            "`a b` is not a name that a certificate can have",
            "3:15",
            "orders.internal",
        ),
        (
            with("{ verify = false, ca = \"a\" }"),
            "without `verify`, `ca` has no effect",
            "3:18",
            "keep one of the two",
        ),
        (with("{ caa = \"a\" }"), "unknown key `caa` in `tls`", "3:9", "did you mean `ca`?"),
        (with("true"), "`tls` must be a table, not a boolean", "3:7", ""),
        (in_the_clear, "`tls` has no effect: no server has an https URL", "3:1", "https://"),
    ];
    for (text, said, at, hint) in cases {
        each_says(&[(text.leak(), said, at, hint)]);
    }
    let loaded = load(&[&with("{ verify = false }")]).expect("it is valid");
    assert!(loaded.report.to_string().contains("anyone on the network path can pose as the server"));
}

#[test]
fn upstreams_are_checked() {
    each_says(&[
        ("[upstream.a]", "an upstream needs `servers`", "1:11", "write `servers = "),
        ("[upstream.a]\nservers = []", "an upstream needs at least one server", "2:11", "write `["),
        (
            "[upstream.echo]\nservers = \"http://a\"",
            "`echo` is the built-in upstream",
            "1:11",
            "another name",
        ),
        (
            "[upstream.a]\nservers = \"10.0.0.1:80\"",
            "`10.0.0.1:80` is not an upstream's URL",
            "2:11",
            "write `http://10.0.0.1:80`",
        ),
        (
            "[upstream.a]\nservers = \"http://a/b\"",
            "`http://a/b` has a path",
            "2:11",
            "write `http://a`, and `rewrite = \"/b{path}\"` at the route",
        ),
        (
            "[upstream.a]\nservers = \"tcp://10.0.0.1:5432\"",
            "`tcp://10.0.0.1:5432` is not an HTTP server",
            "2:11",
            "docs/not-included.md names alternatives; if the server speaks HTTP, write `http://10.0.0.1:5432`",
        ),
        (
            "[[route]]\npath = \"/\"\nto = \"fastcgi://10.0.0.1:9000\"",
            "`fastcgi://10.0.0.1:9000` is not an HTTP server",
            "3:6",
            "the gateway speaks only HTTP to upstreams: docs/not-included.md names alternatives",
        ),
        (
            "[[route]]\npath = \"/\"\nto = { a = 95, b = 5 }",
            "`to` takes weights in a list",
            "3:6",
            "write `to = [{ upstream = \"a\", weight = 95 }, { upstream = \"b\", weight = 5 }]`",
        ),
        (
            "[upstream.a]\nservers = \"wss://10.0.0.1:443\"",
            "`wss://10.0.0.1:443` is not an upstream's URL",
            "2:11",
            "write `https://10.0.0.1:443`",
        ),
        (
            "[upstream.a]\nservers = \"http://a\"\nhealth = { path = \"healthz\", status = \"2xx\" }",
            "`healthz` is not a path",
            "3:19",
            "write it like `/healthz`",
        ),
        (
            "[upstream.a]\nservers = \"http://a:99999\"",
            "`http://a:99999` has no valid port",
            "2:11",
            "from 1 to 65535",
        ),
        (
            "[upstream.a]\nservers = \"http://\"",
            "`http://` is not an upstream's URL",
            "2:11",
            "write it like",
        ),
        (
            "[upstream.a]\nservers = \"http://u:p@a\"",
            "an upstream's URL cannot hold a user name or a password",
            "2:11",
            "authorization",
        ),
        ("[upstream.a]\nservers = [{ weight = 1 }]", "a server needs `url`", "2:12", "{ url = "),
        (
            "[upstream.a]\nservers = \"http://a\"\nbalance = \"hash:adress\"",
            "`adress` is not a dimension",
            "3:11",
            "write consumer, tenant, ip",
        ),
        (
            "[upstream.a]\nservers = \"http://a\"\nbalance = \"hash:cookie:\"",
            "`cookie:` is not a dimension",
            "3:11",
            "write `hash:cookie:NAME`",
        ),
        (
            "[upstream.a]\nservers = \"http://a\"\nbalance = \"hash:cookie:a b\"",
            "`cookie:a b` is not a dimension",
            "3:11",
            "write `hash:cookie:NAME`",
        ),
        (
            "[upstream.a]\nservers = \"http://a\"\nbalance = \"hash:paht\"",
            "`paht` is not a dimension",
            "3:11",
            "did you mean `path`",
        ),
        ("[policy.a]\nby = \"path\"\nlimit = \"1/s\"", "`path` is not a dimension", "2:6", "route"),
        (
            "[upstream.a]\nservers = \"http://a\"\nbalance = \"hash\"",
            "`hash` needs a dimension",
            "3:11",
            "`hash:consumer`",
        ),
        (
            "[upstream.a]\nservers = \"http://a\"\nbalance = \"any\"",
            "`any` is not a value of `balance`",
            "3:11",
            "write `p2c`, `round-robin`, `least-requests` or `hash:ip`",
        ),
        (
            "[upstream.a]\nservers = \"http://a\"\nretry = { times = 3 }",
            "`times` is out of range",
            "3:19",
            "from 0 to 1",
        ),
        (
            "[upstream.a]\nservers = \"http://a\"\nretry = { budget = \"0.5%\" }",
            "`budget` must be a whole number of percent",
            "3:20",
            "write it like `\"20%\"`",
        ),
        (
            "[upstream.a]\nservers = \"http://a\"\nretry = { budget = \"20\" }",
            "`20` is not a share",
            "3:20",
            "from `0%` to `100%`",
        ),
        (
            "[upstream.a]\nservers = \"http://a\"\nhealth = {}",
            "`health` does not say what to check",
            "3:1",
            "write `health = { path = \"/healthz\" }`, `{ tcp = true }` or `{ grpc = true }`",
        ),
        (
            "[upstream.a]\nservers = \"http://a\"\nhealth = { path = \"/h\", tcp = true }",
            "`health` has more than one kind of check",
            "3:1",
            "keep one of `path`, `tcp` and `grpc`",
        ),
        (
            "[upstream.a]\nservers = \"http://a\"\nhealth = { grpc = true }",
            "`grpc` needs HTTP/2",
            "3:12",
            "write `http = \"h2\"` in the upstream",
        ),
        (
            "[upstream.a]\nservers = \"http://a\"\nhealth = { path = \"h z\" }",
            "`h z` is not a path",
            "3:19",
            "write it like `/healthz`",
        ),
        (
            "[upstream.a]\nservers = \"http://a\"\nhealth = { path = \"/h\", status = \"9xx\" }",
            "`9xx` is not a status",
            "3:34",
            "write it like `200`, `\"2xx\"` or `\"200-399\"`",
        ),
        (
            "[upstream.a]\nservers = \"http://a\"\nhealth = { tcp = true, body = \"ok\" }",
            "`body` needs `path`",
            "3:24",
            "leave it out",
        ),
        (
            "[upstream.a]\nservers = \"http://a\"\nslow-start = \"0s\"",
            "`slow-start` is too short",
            "3:14",
            "write `\"1ms\"` or more",
        ),
    ]);
}

#[test]
fn policies_are_checked() {
    each_says(&[
        (
            "[policy.a]\nlimit = \"1/s\"",
            "a policy needs `by`: the dimensions that it counts by",
            "1:9",
            "write `by = [\"ip\"]`",
        ),
        ("[policy.a]\nby = []", "a policy needs `limit`", "1:9", "write `limit = \"100/m\"`"),
        (
            "[policy.a]\nby = [\"consumr\"]\nlimit = \"1/s\"",
            "`consumr` is not a dimension",
            "2:7",
            "did you mean `consumer`?",
        ),
        (
            "[policy.a]\nby = [\"claims:sub\"]\nlimit = \"1/s\"",
            "`claims:sub` is not a dimension",
            "2:7",
            "write `claim:sub`",
        ),
        (
            "[policy.a]\nby = []\nlimit = \"1/s by ip\"",
            "a limit of a policy or a tier cannot name dimensions",
            "3:9",
            "the policy that uses it says `by = [\"ip\"]`",
        ),
        (
            "[policy.a]\nby = []\nlimit = \"tier\"",
            "a limit by tier needs a tier",
            "3:9",
            "write `[tier.free]`",
        ),
        (
            "[tier.free]\nlimit = \"1/s\"\n[policy.a]\nby = []\nlimit = [\"tier\", \"5/s\"]",
            "`tier` cannot be combined with other limits",
            "5:10",
            "limit = \"tier\"",
        ),
        (
            "[tier.free]\nlimit = \"1/s\"\n[policy.a]\nby = []\nlimit = \"tier\"\ndefault-tier = \"fre\"",
            "there is no tier `fre`",
            "6:16",
            "did you mean `free`?",
        ),
        ("[tier.free]", "a tier needs `limit`", "1:7", ""),
        (
            "[tier.free]\nlimit = \"1/s\"\novershot = 0",
            "unknown key `overshot` in [tier.free]",
            "3:1",
            "did you mean `overshoot`?",
        ),
        (
            "[tier.free]\nlimit = \"1/s\"\nmax-delay = \"1s\"",
            "only a leaky bucket lets requests wait",
            "3:1",
            "algorithm = \"leaky-bucket\"",
        ),
        ("[policy.a]\nby = []\nlimit = {}", "a limit by tier needs a tier", "3:9", "default = "),
        (
            "[policy.a]\nby = []\nlimit = { pro = { limits = \"5/s\", limit = \"6/s\" } }",
            "unknown key `limits` in `limit.pro`",
            "3:19",
            "did you mean `limit`?",
        ),
        (
            "[policy.a]\nby = []\nlimit = { pro = { overshoot = 0 } }",
            "the tier `pro` needs `limit`",
            "3:11",
            "limit = []",
        ),
        (
            "[policy.a]\nby = []\nlimit = { pro = { limit = \"5/s\", when-redis-down = \"denny\" } }",
            "`denny` is not a value of `when-redis-down`",
            "3:52",
            "did you mean `deny`?",
        ),
        (
            "[policy.a]\nby = []\nlimit = { pro = \"6/s\", free = \"5/s\" }\ndefault-tier = \"fre\"",
            "there is no tier `fre`",
            "4:16",
            "did you mean `free`?",
        ),
        (
            "[policy.a]\nby = []\nlimit = { 1st = \"6/s\" }",
            "`1st` cannot be the name of a tier",
            "3:11",
            "start with a letter",
        ),
        ("tier-table = {}", "unknown key `tier-table` in the configuration", "1:1", ""),
        (
            "[policy.a]\nby = []\nlimit = \"1/s burst 2\"\nalgorithm = \"fixed-window\"",
            "`burst` needs a token bucket or a leaky bucket",
            "3:9",
            "remove `burst` from the limit",
        ),
        (
            "[policy.a]\nby = [\"consumer\"]\nlimit = \"9/month\"\nanchor-claim = \"claim:day\"",
            "this is not the name of a claim",
            "4:16",
            "write `anchor-claim = \"day\"`",
        ),
        (
            "[policy.a]\nby = []\nlimit = \"100/day burst 10\"",
            "`burst` needs a token bucket or a leaky bucket",
            "3:9",
            "or write a period in `d`: `100/1d burst 10`",
        ),
        (
            "[[route]]\nto = \"echo\"\nhost = \"a.example b.example\"",
            "`a.example b.example` is not a host",
            "3:8",
            "write `[\"a.example\", \"b.example\"]`",
        ),
        (
            "[policy.a]\nby = []\nlimit = \"1/s\"\nalgorithm = \"sliding-logs\"",
            "`sliding-logs` is not a value of `algorithm`",
            "4:13",
            "did you mean `sliding-log`?",
        ),
        (
            "[policy.a]\nby = []\nlimit = \"1_000_000/d\"\nalgorithm = \"sliding-log\"",
            "a sliding log stores every unit, so its limit is at most 100000",
            "3:9",
            "sliding-window",
        ),
        (
            "[policy.a]\nby = []\nlimit = \"1/s\"\nmax-delay = \"2s\"",
            "only a leaky bucket lets requests wait",
            "4:1",
            "leave `max-delay` out",
        ),
        (
            "[policy.a]\nby = []\nlimit = \"1/m\"\nalgorithm = \"leaky-bucket\"\nmax-delay = \"2s\"",
            "`max-delay` is shorter than the time between two requests, so no request could wait",
            "3:9",
            "a longer `max-delay`",
        ),
        (
            "[policy.a]\nby = []\nlimit = \"1/s\"\novershoot = 0.05",
            "`overshoot` must be a string, not a float",
            "4:13",
            "write `overshoot = \"5%\"`",
        ),
        (
            "[policy.a]\nby = []\nlimit = \"1/s\"\nmissing = \"ipp\"",
            "`ipp` is not a value of `missing`",
            "4:11",
            "did you mean `ip`?",
        ),
        ("[policy.a]\nby = []\nlimit = \"1/s\"\ncost = 0", "`cost` is out of range", "4:8", "from 1 to"),
        (
            "[policy.a]\nby = []\nlimit = \"1/s\"\ncost = { \"GET v1\" = 1 }",
            "`GET v1` is not a key of `cost`",
            "4:10",
            "`\"METHOD /path\"`",
        ),
        (
            "[policy.a]\nby = []\nlimit = \"1/s\"\ncost = { header = \"x cost\" }",
            "`x cost` is not the name of a header",
            "4:19",
            "write one like `x-cost`",
        ),
        (
            "[policy.a]\nby = []\nlimit = \"1/s\"\npenalty = { within = \"1s\" }",
            "a penalty needs `after`, the number of refusals before it begins",
            "4:1",
            "write `after = 20`",
        ),
        (
            "[policy.a]\nby = []\nlimit = \"1/s\"\npenalty = { after = 2, within = \"2h\" }",
            "`within` is too long",
            "4:33",
            "or less",
        ),
        (
            "[policy.a]\nby = []\nlimit = \"1 in flight\"\npenalty = { after = 2 }",
            "`penalty` cannot be combined with a limit of requests in flight, whose refusals have no `Retry-After`",
            "4:1",
            "a limit over time",
        ),
        (
            "[policy.a]\nby = []\nlimit = \"9 in flight\"\ncost = { response-header = \"x-cost\" }",
            "a limit of requests in flight cannot have a cost that is known only after the response",
            "4:1",
            "to a policy of its own",
        ),
        (
            "[policy.a]\nby = []\nlimit = { a = \"1/s\", default = [\"5/s\", \"9 in flight\"] }\n\
             cost = { response-time = \"1ms\" }",
            "a limit of requests in flight cannot have a cost that is known only after the response",
            "4:1",
            "to a policy of its own",
        ),
        (
            "[policy.a]\nby = []\nlimit = \"1/s\"\nhot-keys = { then = \"block\" }",
            "`block` is not a valid action for hot keys",
            "4:21",
            "local-only:1000/m",
        ),
        (
            "[policy.a]\nby = []\nlimit = \"1/s\"\nhot-keys = { then = \"local-only:8 in flight\" }",
            "`local-only:8 in flight` is not a valid action for hot keys",
            "4:21",
            "local-only:1000/m",
        ),
        (
            "[policy.a]\nby = []\nlimit = \"1/s\"\nidempotency-key = \"idempotency-key\"",
            "`idempotency-key` does not name the header of an idempotency key",
            "4:19",
            "header:idempotency-key",
        ),
        (
            "[policy.a]\nby = [\"ip\", \"route\"]\nlimit = \"1/s\"\nidempotency-key = \"header:idempotency-key\"",
            "a policy that counts by address cannot have `idempotency-key`: anyone at an address could repeat one \
             key and never be charged again",
            "4:19",
            "by-address = true",
        ),
        (
            "[policy.a]\nby = [\"route\", \"host\"]\nlimit = \"1/s\"\nidempotency-key = \"header:idempotency-key\"",
            "a policy that counts all clients together cannot have `idempotency-key`: anyone could repeat one key and \
             never be charged again",
            "4:19",
            "by-address = true",
        ),
        (
            "[policy.a]\nby = []\nlimit = \"1/s\"\nidempotency-key = \"header:idempotency-key\"",
            "a policy that counts all clients together cannot have `idempotency-key`: anyone could repeat one key and \
             never be charged again",
            "4:19",
            "by-address = true",
        ),
        (
            "[policy.a]\nby = []\nlimit = \"1/s\"\nmatch = { method = \"get\" }",
            "`get` is not a method",
            "4:20",
            "write `GET`",
        ),
        (
            "[policy.a]\nby = []\nlimit = \"1/s\"\novershoot = \"a little\"",
            "`a little` is not a share",
            "4:13",
            "write a share from `0%` to `100%`, for example `20%`",
        ),
        (
            "[policy.a]\nby = []\nlimit = \"1/s\"\novershoot = 1",
            "`overshoot` must be a string, not an integer",
            "4:13",
            "write `overshoot = \"1%\"`",
        ),
        (
            "[policy.a]\nby = \"header:\"\nlimit = \"1/s\"",
            "`header:` is not a dimension",
            "2:6",
            "write `header:NAME`",
        ),
        (
            "[policy.a]\nby = []\nlimit = \"1/s\"\nshadow = 1",
            "`shadow` must be true or false, not an integer",
            "4:10",
            "",
        ),
    ]);
}

#[test]
fn a_value_in_the_place_of_a_table_stands_for_one_of_its_keys() {
    for (text, hint) in [
        ("redis = \"redis://a\"", "write `redis = { url = \"…\" }`"),
        (
            "[listener.a]\nbind = \"[::1]:1\"\nproxy-protocol = true",
            "`proxy-protocol = { from = [\"10.0.0.0/8\"] }`",
        ),
        ("[policy.p]\nby = []\nlimit = \"1/s\"\npenalty = true", "`penalty = { after = 20 }`"),
        ("[upstream.u]\nservers = \"http://a\"\nhealth = \"/healthz\"", "`health = { path = \"/healthz\" }`"),
        (
            "[upstream.u]\nservers = \"http://a\"\nsticky = \"cookie:s\"",
            "`sticky = { cookie = \"s\", secret = \"${NAME}\" }`",
        ),
        ("[upstream.u]\nservers = \"http://a\"\nretry = 3", "`retry = { times = 1 }`"),
        ("[upstream.u]\nservers = \"http://a\"\nconnections = 100", "`connections = { max = 100 }`"),
        ("[upstream.u]\nservers = \"http://a\"\ntimeouts = \"5s\"", "`timeouts = { response = \"5s\" }`"),
        ("[[route]]\nrespond = \"hello\"", "`respond = { body = \"hello\" }`"),
        ("[[route]]\nto = \"echo\"\ncors = true", "`cors = { origins = [\"https://app.example.com\"] }`"),
    ] {
        let said = said(text);
        assert!(said.contains(hint) && said.matches("error: ").count() == 1, "{said}");
    }
}

#[test]
fn a_misspelt_section_is_told_once_and_not_where_its_name_is_used() {
    for (section, used) in [
        ("[polcy.a]\nby = [\"ip\"]\nlimit = \"5/s\"", "to = \"echo\"\nlimit = \"a\""),
        ("[upstrem.a]\nservers = \"http://b\"", "to = \"a\""),
        ("[ath.a]\nkind = \"api-key\"", "to = \"echo\"\nauth = \"a\""),
    ] {
        let said = said(&format!("{section}\n[[route]]\n{used}"));
        assert!(said.contains("unknown key") && said.matches("error: ").count() == 1, "{said}");
    }
}

#[test]
fn sections_of_another_program_are_told_with_what_is_in_them() {
    let nginx =
        "[[server]]\nlisten = 80\nserver_name = \"a\"\n[[server.location]]\nproxy_pass = \"http://b\"";
    let traefik = "[http.routers.a]\nrule = \"Host(`a`)\"\n[http.services.a.loadBalancer]";
    let kong = "[[services]]\nurl = \"http://a\"\n[[services.routes]]\npaths = [\"/a\"]";
    let envoy = "[static_resources]\n[[static_resources.clusters]]\nlb_policy = \"LEAST_REQUEST\"";
    let haproxy = "[frontend.web]\ndefault_backend = \"a\"\n[backend.a]\nserver = \"s1 10.0.0.1:80\"";
    for (text, hints) in [
        (
            nginx,
            &["`[listener.NAME]`", "write `bind = ", "write `host = ", "write `[[route]]`", "write `to = "][..],
        ),
        (
            traefik,
            &[
                "`[listener.NAME]`",
                "write `[[route]]`",
                "write `host = ",
                "write `[upstream.NAME]`",
                "write `servers = ",
            ],
        ),
        (kong, &["`[upstream.NAME]`", "write `servers = ", "write `[[route]]`", "write `path = "]),
        (envoy, &["`[listener.NAME]`", "write `[upstream.NAME]`", "write `balance = "]),
        (haproxy, &["`[listener.NAME]`", "write `to = ", "`[upstream.NAME]`", "write `servers = "]),
        ("[\"a.example.com\"]\nreverse_proxy = \"b\"", &["write `[[route]]` with `host", "write `to = "]),
        ("[cors]\norigins = \"*\"", &["write `[route.cors]` below"]),
        ("[limits.a]\nlimit = \"1/s\"\nby = \"ip\"", &["its keys are those of `[policy.NAME]`"]),
    ] {
        let said = said(text);
        let mut rest = said.as_str();
        for hint in hints {
            rest = rest.split_once(hint).unwrap_or_else(|| panic!("{hint} is not in its place in {said}")).1;
        }
        assert_eq!(said.matches("error: ").count(), hints.len(), "{said}");
    }
}

#[test]
fn a_key_of_another_program_is_one_error() {
    for (text, hint) in [
        ("[redis]\npassword = \"a\"", "a login goes before the host"),
        ("[admin]\nport = 1", "write `bind = "),
        ("[listener.a]\nport = 1", "write `bind = "),
        ("[log]\nfile = \"/a\"", "write `access = { to = "),
        ("[[route]]\nto = \"echo\"\nrate_limit = \"1/s\"", "write `limit = "),
        ("[[route]]\nproxy_pass = \"http://a\"", "write `to = "),
        ("[upstream.u]\nservers = \"http://a\"\noutlier = 1", "write `eject = "),
        ("to = \"http://a\"", "write `[[route]]` above it"),
    ] {
        let said = said(text);
        assert!(said.contains(hint) && said.matches("error: ").count() == 1, "{said}");
    }
}

#[test]
fn a_misspelt_key_is_one_error() {
    for (text, key) in [
        ("[[route]]\ntoo = \"echo\"", "to"),
        ("[listener.a]\nbinds = \"127.0.0.1:1\"", "bind"),
        ("[policy.a]\nby = []\nlimt = \"1/s\"", "limit"),
        ("[policy.a]\nbuy = []\nlimit = \"1/s\"", "by"),
        ("[tier.a]\nlimits = \"1/s\"", "limit"),
        ("[redis]\nurls = \"redis://a\"", "url"),
        ("[auth.a]\nkind = \"api-key\"\nkeys = { files = \"a\" }", "file"),
    ] {
        let said = load(&[text]).expect_err("the key is unknown");
        assert!(said.contains(&format!("did you mean `{key}`?")), "{said}");
        assert_eq!(said.matches("error: ").count(), 1, "{said}");
    }
}

#[test]
fn routes_are_checked() {
    each_says(&[
        ("[[route]]\npath = \"/\"", "a route needs `to`, `respond` or `redirect`", "1:1", "write `to = "),
        (
            "[[route]]\nto = \"echo\"\nrespond = {}",
            "a route has only one of `to`, `respond` and `redirect`",
            "1:1",
            "leave the others out",
        ),
        ("[[route]]\nto = \"ech\"", "there is no upstream `ech`", "2:6", "did you mean `echo`?"),
        ("[[route]]\nto = \"ftp://a\"", "`ftp://a` is not an upstream's URL", "2:6", "http://127.0.0.1:3000"),
        (
            "[[route]]\nto = [{ upstream = \"a\" }]",
            "there is no upstream `a`",
            "2:20",
            "write a URL, or the name of an `[upstream.<name>]`",
        ),
        ("[[route]]\nto = []", "`to` is empty", "2:6", "name an upstream"),
        ("[[route]]\nto = [{ weight = 1 }]", "an entry of `to` needs `upstream`", "2:7", "weight = 95"),
        (
            "[[route]]\nto = [\"echo\", \"http://a\"]",
            "`echo` can be neither one of several upstreams nor a mirror",
            "2:7",
            "upstreams only",
        ),
        (
            "[[route]]\nto = [\"http://a\", \"http://a:80\"]",
            "the route names the upstream `http://a` twice",
            "2:6",
            "give it one weight",
        ),
        (
            "[[route]]\nto = [{ upstream = \"http://a\", weight = 1001 }]",
            "`weight` is out of range",
            "2:41",
            "from 0 to 1000",
        ),
        (
            "[[route]]\nto = [{ upstream = \"http://a\", weight = 0 }]",
            "all weights are 0",
            "2:6",
            "give one of the upstreams a `weight` from 1",
        ),
        (
            "[[route]]\nto = \"http://a\"\nsticky = \"ip\"",
            "`sticky` needs several upstreams",
            "3:1",
            "weight = 95",
        ),
        (
            "[[route]]\nto = [\"http://a\", \"http://b\"]\nsticky = \"param:id\"",
            "the route's path has no parameter `id`",
            "3:10",
            "",
        ),
        (
            "[[route]]\nto = [\"http://a\", \"http://b\"]\nsticky = \"adress\"",
            "`adress` is not a dimension",
            "3:10",
            "write consumer, tenant, ip",
        ),
        ("[[route]]\nto = \"echo\"\npath = \"a\"", "`a` does not start with `/`", "3:8", "write `/a`"),
        (
            "[[route]]\nto = \"http://a\"\npath = \"http://x/a\"",
            "`http://x/a` does not start with `/`",
            "3:8",
            "write the host and the path apart: `host = \"x\"` and `path = \"/a\"`",
        ),
        (
            "[[route]]\nto = \"http://a\"\nallow = []",
            "`allow` is empty",
            "3:9",
            "leave it out to admit every address; `deny = [\"0.0.0.0/0\", \"::/0\"]` admits none",
        ),
        (
            "[upstream.a]\nservers = \"https://a\"\ntls = { verify = \"no\" }",
            "`verify` must be true or false, not a string",
            "3:18",
            "write `true` or `false`",
        ),
        (
            "[upstream.a]\nservers = \"http://a\"\nretry = { times = \"x\" }",
            "`times` must be a whole number, not a string",
            "3:19",
            "write a whole number",
        ),
        (
            "[upstream.a]\nservers = \"http://a\"\nretry = { times = \"1\" }",
            "`times` must be a whole number, not a string",
            "3:19",
            "write it without quotes",
        ),
        (
            "[policy.a]\nby = \"ip\"\nlimit = \"1/s\"\ncost = \"x-cost\"",
            "`cost` must be a whole number, not a string",
            "4:8",
            "write `cost = { header = \"x-cost\" }`",
        ),
        (
            "[tier.gold]\nlimit = \"tier\"",
            "a tier's limit cannot be `tier`",
            "2:9",
            "write it, for example `limit = \"100/m\"`",
        ),
        (
            "[log]\naccess = \"file.log\"",
            "`access` must be a table, not a string",
            "2:10",
            "or `access = { to = \"/var/log/sluicegate.log\" }`",
        ),
        (
            "[redis]\nurl = \"redis://a\"\nhost = \"b\"",
            "unknown key `host` in [redis]",
            "3:1",
            "write `url = \"redis://127.0.0.1:6379\"`",
        ),
        ("shutdown = \"30s\"", "`shutdown` must be a table, not a string", "1:12", "{ drain = \"30s\" }"),
        (
            "[[route]]\nto = \"http://a\"\nheaders = \"x: y\"",
            "`headers` must be a table, not a string",
            "3:11",
            "write `{ set = { x-name = \"value\" } }`",
        ),
        (
            "client-ip = \"x-forwarded-for\"",
            "`client-ip` must be a table, not a string",
            "1:13",
            "trust = [\"10.0.0.0/8\"], header = \"x-forwarded-for\"",
        ),
        (
            "[[route]]\nto = \"http://a\"\nrewrite = \"/a?b\"",
            "`/a?b` has more than a path",
            "3:14",
            "the client's query stays",
        ),
        (
            "[[route]]\nto = \"127.0.0.1:3000\"",
            "there is no upstream `127.0.0.1:3000`",
            "2:6",
            "write `http://127.0.0.1:3000`",
        ),
        ("[[route]]\nredirect = \"\"", "an empty text is not a value of `redirect`", "2:12", "`/new/{id}`"),
        (
            "[[route]]\nto = \"http://a\"\nretry = { on = [\"foo\"] }",
            "`foo` is not a value of `on`",
            "3:17",
            "`5xx`",
        ),
        (
            "[[route]]\nto = \"http://a\"\ntimeouts = { stall = \"never\" }",
            "`never` is not a duration",
            "3:22",
            "or `\"off\"`",
        ),
        (
            "[[route]]\nto = [\"http://a\", \"http://b\"]\nsticky = \"cookie\"",
            "`cookie` is not a dimension",
            "3:10",
            "write `cookie:NAME`",
        ),
        (
            "[[route]]\nto = \"echo\"\nname = \"\"",
            "an empty text cannot be a name",
            "3:8",
            "start with a letter",
        ),
        (
            "[[route]]\nto = \"echo\"\nlimit = \"5 in flight burst 3 by ip\"",
            "a limit of requests in flight has no burst",
            "3:22",
            "write `5 in flight`",
        ),
        (
            "[[route]]\nto = \"echo\"\nlimit = \"5/s burst=10\"",
            "a space separates `burst` from its number",
            "3:14",
            "write `5/s burst 10`",
        ),
        (
            "[[route]]\nto = \"echo\"\nlimit = \"5/s by ip and route\"",
            "requests cannot be counted by `and`",
            "3:20",
            "separate dimensions with commas",
        ),
        (
            "[[route]]\nto = \"echo\"\npath = \"/a?b\"",
            "`/a?b` has more than a path",
            "3:11",
            "end the path before it",
        ),
        ("[[route]]\nto = \"echo\"\nhost = \"http://a\"", "`http://a` is not a host", "3:8", "write `a`"),
        ("[[route]]\nto = \"echo\"\nhost = \"a:80\"", "`a:80` is not a host", "3:8", "leave the port out"),
        ("[[route]]\nto = \"echo\"\nhost = []", "`host` is empty", "3:8", "leave it out for any host"),
        (
            "[[route]]\nto = \"echo\"\nmethods = [\"GTE\"]",
            "`GTE` is not a method",
            "3:12",
            "did you mean `GET`?",
        ),
        (
            "[[route]]\nto = \"echo\"\nlimit = \"100/m brust 20\"",
            "`brust` is not expected here",
            "3:16",
            "after the period write `burst` and a number",
        ),
        (
            "[[route]]\nto = \"echo\"\nlimit = \"per-tenant\"",
            "there is no policy `per-tenant`",
            "3:9",
            "the name of a `[policy.<name>]`",
        ),
        (
            "[[route]]\nto = \"echo\"\nlimit = \"tier\"",
            "there is no policy `tier`",
            "3:9",
            "only a policy has limits by tier",
        ),
        (
            "[[route]]\nto = \"echo\"\nlimit = \"-5/m\"",
            "a limit cannot be negative",
            "3:10",
            "write 1 or more",
        ),
        ("[[route]]\nto = \"echo\"\nlimit = \"\"", "the limit is empty", "3:10", "write it as \"100/m\""),
        (
            "[policy.a]\nby = []\nlimit = \"1/s\"\n[[route]]\nto = \"echo\"\nlimit = [\"a\", \"a\"]",
            "the policy `a` is named twice",
            "6:15",
            "name it once",
        ),
        (
            "[policy.\"route:x\"]\nby = []\nlimit = \"1/s\"\n[[route]]\nname = \"x\"\nto = \"echo\"\nlimit = \"1/s\"",
            "this limit defines the policy `route:x`, which exists already",
            "7:9",
            "write the policy's name instead of the limit",
        ),
        (
            "[[route]]\nto = \"echo\"\n[[route]]\nto = \"echo\"",
            "two routes match every request",
            "3:1",
            "give one of them a `host` or a `path`, or delete it",
        ),
        (
            "[[route]]\npath = \"/a\"\nto = \"echo\"\n[[route]]\npath = \"/a\"\nto = \"echo\"\nlimit = \"1/s\"",
            "two routes match the same requests, `/a`",
            "4:1",
            "give one of them another host, path or method, or delete it",
        ),
        (
            "[[route]]\nname = \"a\"\nto = \"echo\"\nlimit = \"1/s\"\n[[route]]\nname = \"a\"\npath = \"/b\"\nto = \"echo\"\nlimit = \"1/s\"",
            "two routes are named `a`",
            "6:8",
            "give each its own `name`",
        ),
        ("[[route]]\nto = \"echo\"\nby = \"ip\"", "a route has no `by`", "3:1", "`limit = \"300/m by ip\"`"),
        (
            "[[route]]\nto = \"echo\"\nmax-body-size = 1",
            "unknown key `max-body-size` in a route",
            "3:1",
            "write `max-body = \"10MB\"` at the route",
        ),
        (
            "[[route]]\nredirect = true",
            "`redirect` must be a string, not a boolean",
            "2:12",
            "write `redirect = \"https\"`",
        ),
        ("[[route]]\nto = \"echo\"\nname = \"1\"", "`1` cannot be a name", "3:8", "start with a letter"),
        (
            "[[route]]\nto = \"echo\"\nrewrite = \"/a\"",
            "`rewrite` has no effect with `to = \"echo\"`, which answers by itself",
            "3:1",
            "name another",
        ),
        (
            "[[route]]\nto = \"echo\"\nheaders = { set = { \"a b\" = \"c\" } }",
            "`a b` is not a header's name",
            "3:21",
            "write it like `x-tenant`",
        ),
        (
            "[[route]]\nto = \"echo\"\nheaders = { set = { a = \"b\\n\" } }",
            "`b\\n` is not a valid header value",
            "3:25",
            "one line of printable ASCII",
        ),
        (
            "[[route]]\nto = \"echo\"\nheaders = { add = { transfer-encoding = \"b\" } }",
            "`transfer-encoding` cannot be changed: it frames the message, so the gateway writes it",
            "3:21",
            "leave it out",
        ),
        (
            "[[route]]\nto = \"echo\"\nheaders = { set = { x-a = \"b\" }, always = true }",
            "`always` is a key of `response-headers` only",
            "3:34",
            "leave it out",
        ),
        (
            "[listener.a]\nbind = \"[::1]:1\"\nresponse-headers = { set = { x-a = \"{ip}\" } }",
            "`{ip}` differs by request, and these headers are the same in every response",
            "3:20",
            "at routes",
        ),
        (
            "[listener.a]\nbind = \"[::1]:1\"\nresponse-headers = { remove = \"te\" }",
            "`te` cannot be changed: it frames the message, so the gateway writes it",
            "3:20",
            "leave it out",
        ),
        (
            "[listener.a]\nbind = \"[::1]:1\"\nresponse-headers = { always = false }",
            "`always` has no effect: a listener sets its headers on every response",
            "3:20",
            "remove `always`",
        ),
        (
            "[[route]]\nto = \"echo\"\nmatch = { header = { x-a = false } }",
            "a route cannot match the absence of a header",
            "3:28",
            "write `true` or the exact value",
        ),
        (
            "[[route]]\nto = \"echo\"\nmatch = { path = \"/\" }",
            "`path` is a key of the route itself",
            "3:11",
            "write it beside `match`: `path = …`",
        ),
        (
            "[[route]]\nto = \"echo\"\nmatch = { query = \"/\" }",
            "unknown key `query` in `match`",
            "3:11",
            "leave it out",
        ),
        (
            "[[route]]\nto = \"echo\"\nheaders = { remove = [\"x-a\", \"host\"] }",
            "`host` cannot be removed: a request needs exactly one",
            "3:22",
            "use `set` to change it",
        ),
        (
            "[[route]]\nto = \"echo\"\nheaders = { add = { host = \"a\" } }",
            "`host` cannot be added: a request has exactly one",
            "3:21",
            "`set` it instead",
        ),
        (
            "[[route]]\nto = \"${SECRET}\"",
            "there is no upstream that the value of `to` names",
            "2:6",
            "write a URL",
        ),
        ("[[route]]\nrespond = { status = 99 }", "`status` is out of range", "2:22", "from 200 to 599"),
        (
            "[[route]]\nredirect = { to = \"/a\", status = 304 }",
            "no client follows a redirect with this status",
            "2:34",
            "write 301, 302, 303, 307 or 308",
        ),
        ("[[route]]\nredirect = { status = 301 }", "a redirect needs `to`", "2:1", "write `{ to = "),
        (
            "[listener.a]\nbind = \"127.0.0.1:0\"\nredirect = \"https://a.example/x\"",
            "a listener cannot redirect to `https://a.example/x`",
            "3:12",
            "write `https` for the host",
        ),
        (
            "[[route]]\nto = \"echo\"\ntimeouts = { total = \"1s\" }",
            "`timeouts` has no effect with `to = \"echo\"`, which answers by itself",
            "3:1",
            "name another upstream",
        ),
        (
            "[[route]]\nto = \"echo\"\nretry = { times = 0 }",
            "`retry` has no effect with `to = \"echo\"`, which answers by itself",
            "3:1",
            "name another upstream",
        ),
        (
            "[[route]]\nto = \"http://127.0.0.1:1\"\nretry = { budget = \"10%\" }",
            "`budget` is a key of the upstream's `retry`",
            "3:11",
            "move it into `retry` of the upstream",
        ),
        (
            "[[route]]\nrespond = { status = 204, body = \"a\" }",
            "a response with status 204 has no body",
            "2:1",
            "leave `body` out",
        ),
        (
            "[[route]]\nrespond = { status = 205, body = \"a\" }",
            "a response with status 205 has no body",
            "2:1",
            "leave `body` out",
        ),
        (
            "[[route]]\nto = \"echo\"\nauth = \"jwt\"",
            "no `[auth.<name>]` is called `jwt`",
            "3:8",
            "write `[auth.jwt]` with",
        ),
        ("[[route]]\nto = \"echo\"\nmax-body = -1", "`max-body` is out of range", "3:12", "from 0 to"),
    ]);
}

#[test]
fn references_are_not_nested() {
    each_says(&[
        (
            "[admin]\ntoken = \"${NONE:-${SECRET}}\"",
            "the default in `${...}` cannot contain another `${...}`",
            "2:9",
            "write a plain default, or none",
        ),
        ("workers = \"${SECRET}\"", "the value of `workers` is not a whole number", "1:11", ""),
    ]);
}

#[test]
fn ranges_of_ipv4_are_written_as_such() {
    each_says(&[(
        "[client-ip]\ntrust = [\"::ffff:192.0.2.0/120\"]",
        "`::ffff:192.0.2.0/120` is an IPv4 range in IPv6 form, which never matches",
        "2:10",
        "write `192.0.2.0/24`",
    )]);
    let client_ip = config("[client-ip]\ntrust = [\"::ffff:192.0.2.7\", \"::/0\"]").client_ip;
    assert_eq!(client_ip.trust.iter().map(ToString::to_string).collect::<Vec<_>>(), ["192.0.2.7/32", "::/0"]);
}

#[test]
fn addresses_that_cannot_be_had_are_checked() {
    let taken = "127.0.0.1:9900 is taken by the admin listener";
    let long = format!("[admin]\nbind = \"unix:/{}\"", "a".repeat(107));
    each_says(&[
        ("[listener.a]\nbind = \"127.0.0.1:9900\"", taken, "2:8", "choose another"),
        (
            "[listener.a]\nbind = \"[::]:81\"\n[admin]\nbind = \"127.0.0.1:81\"",
            "[::]:81 is taken by the admin listener",
            "2:8",
            "choose another",
        ),
        (
            "[admin]\nbind = \"127.0.0.1:8080\"",
            "127.0.0.1:8080 is taken by the default listener, because the file has no [listener]",
            "2:8",
            "choose another, or write `[listener.NAME]`",
        ),
    ]);
    assert!(said(&long).starts_with("error: `bind` is too long\n"), "{}", said(&long));
    config("admin = false\n[listener.a]\nbind = \"127.0.0.1:9900\"");
    config("[listener.a]\nbind = \"127.0.0.1:0\"\n[admin]\nbind = \"127.0.0.1:0\"");
    config(&format!("[admin]\nbind = \"unix:/{}\"", "a".repeat(106)));
}

#[test]
fn methods_that_never_match_are_checked() {
    each_says(&[
        ("[[route]]\nto = \"echo\"\nmethods = []", "`methods` is empty", "3:11", "for any method"),
        ("[[route]]\nto = \"echo\"\nmethods = \"*\"", "`*` is not a method", "3:11", "for any method"),
        (
            "[[route]]\nto = \"echo\"\nmethods = [\"ANY\"]",
            "`ANY` is not a method",
            "3:12",
            "leave `methods` out",
        ),
        (
            "[[route]]\nto = \"echo\"\nmethods = [\"GET\", \"TRACE\"]",
            "`TRACE` never matches: the gateway answers 501",
            "3:19",
            "leave it out",
        ),
    ]);
}

#[test]
fn what_is_wrong_together_is_checked() {
    each_says(&[
        ("[[route]]\nto = \"echo\"\npath = \"//a\"", PATH_SEGMENT, "3:8", ""),
        (
            "[[route]]\nto = \"echo\"\npath = \"/a\\nb\"",
            "`a\\nb` never matches: the gateway refuses a request if the path has an encoded control character",
            "3:8",
            "",
        ),
        (
            "[[route]]\nto = \"echo\"\npath = \"/${SECRET};\"",
            "`…` never matches: the path has a semicolon, which only a parameter matches",
            "3:8",
            "write {name} in its place, and path-escapes = \"keep\"",
        ),
        (
            "[[route]]\nto = \"echo\"\npath = \"/{*}\"",
            "`{*}`: the name of a parameter has letters, digits, `_` and `-`, a letter or `_` first",
            "3:8",
            "write `{name}` for any one segment, or `{*rest}` at the end",
        ),
        (
            "[[route]]\nto = \"echo\"\npath = \"/{id:[0-9]+}\"",
            "`{id:[0-9]+}`: the name of a parameter has letters, digits, `_` and `-`, a letter or `_` first",
            "3:8",
            "write `{id}` for any one segment, or `{*rest}` at the end for all that follows: there are no regular",
        ),
        ("[[route]]\nto = \"echo\"\nhost = [\"a\", \"b.*\"]", "`b.*` is not a host", "3:14", HOST_STAR),
        (
            "[[route]]\nto = \"echo\"\npath = \"/{id}\"\nheaders = { set = { x-a = \"{di}\" } }",
            "`di` does not exist here",
            "4:19",
            "write one of id, ip, host, method, path, query, route, consumer, tenant, tier, request_id, or claim:<name>",
        ),
        (
            "[[route]]\nto = \"http://a\"\npath = \"/{*rest}\"\nrewrite = \"/a/{*rest}\"",
            "`*rest` does not exist here",
            "4:11",
            "write `{rest}`",
        ),
        (
            "[policy.a]\nby = [\"ip\"]\nlimit = \"5/s\"\ncost = { default = 6 }",
            "a request that costs 6 units is never admitted by a window of 5",
            "4:20",
            "lower the cost or raise the limit or burst",
        ),
        (
            "[policy.a]\nby = [\"ip\", \"param:id\"]\nlimit = \"5/s\"\n[[route]]\nto = \"echo\"\nlimit = \"a\"",
            "no route with this policy has a parameter `id` in its path: write one like `/{id}`",
            "2:13",
            "",
        ),
    ]);
    let said = said(
        "[[route]]\nname = \"a\"\npath = \"/{x}\"\nto = \"echo\"\n[[route]]\nname = \"b\"\npath = \"/{y}\"\nto = \"echo\"",
    );
    assert!(
        said.starts_with(
            "error: the routes `b` and `a` match the same requests, and neither is more specific\n"
        ),
        "{said}"
    );
    let places: Vec<_> = said.lines().filter(|line| line.contains("gateway.toml:")).collect();
    assert_eq!(places, [" --> gateway.toml:7:8", " ::: gateway.toml:3:8"], "{said}");
}

#[test]
fn the_process_is_checked() {
    each_says(&[
        ("[admin]\nhosts = \"a.example:9900\"", "`a.example:9900` is not a host", "2:9", "without a port"),
        ("[admin]\nhosts = [\"*\"]", "`*` is not a host", "2:10", "write a name or an address"),
        (
            "admin = true",
            "`admin = true` has no effect: the admin listener is on by default",
            "1:9",
            "write `admin = false` or a table",
        ),
        ("admin = 1", "`admin` must be a table, not an integer", "1:9", ""),
        (
            "[admin]\nbind = \"unix:a\"",
            "`unix:a` needs an absolute path",
            "2:8",
            "unix:/run/sluicegate/admin.sock",
        ),
        ("[admin]\ntoken = \"\"", "`token` is empty", "2:9", "write the secret itself"),
        (
            "[admin]\ncertificates = [{ name = \"a\", shows = \"subject:cn=a\", role = \"read\" }]",
            "`certificates` needs `client-ca`",
            "2:1",
            "the authorities",
        ),
        (
            "[admin]\ncerts = [{ cert = \"a\", key = \"b\" }]\nclient-ca = \"c\"\ncertificates = [{ name = \"a\", shows = \"cn=a\", role = \"read\" }]",
            "`shows` does not name a part of a certificate",
            "4:39",
            "`shows = \"san:email=alice@example.com\"` or `\"subject:cn=alice\"`",
        ),
        (
            "[admin]\ntokens = [{ name = \"a\", role = \"read\", token = \"${SECRET}\" }]\ncerts = [{ cert = \"a\", key = \"b\" }]\nclient-ca = \"c\"\ncertificates = [{ name = \"a\", shows = \"subject:cn=a\", role = \"read\" }]",
            "`a` is also the name of another token or certificate",
            "5:26",
            "write another: the audit identifies operators by name",
        ),
        ("[admin]\nclient-ca = \"c\"", "`client-ca` needs `certs`", "2:1", "only over TLS"),
        (
            "[admin]\nbind = \"unix:/a\"\ncerts = [{ cert = \"a\", key = \"b\" }]",
            "`certs` cannot be combined with a Unix socket",
            "3:1",
            "leave `certs` out",
        ),
        ("[admin]\ntokens = 1", "`tokens` must be an array, not an integer", "2:10", ""),
        (
            "[admin]\ntokens = [{ role = \"read\", token = \"${SECRET}\" }]",
            "a token needs `name`, which the audit shows",
            "2:11",
            "write `name = \"alice\"`",
        ),
        (
            "[admin]\ntokens = [{ name = \"a\", role = \"operat\", token = \"${SECRET}\" }]",
            "`operat` is not a value of `role`",
            "2:32",
            "did you mean `operate`?",
        ),
        (
            "[admin]\ntokens = [{ name = \"a\", role = \"read\", digest = \"sha256:12\" }]",
            "the value of `digest` is not a digest",
            "2:49",
            "`sluicegate hash-key` prints them",
        ),
        (
            "[admin]\ntokens = [{ name = \"token\", role = \"read\", token = \"${SECRET}\" }]",
            "`token` is the name of another token",
            "2:20",
            "write another: the audit identifies operators by name",
        ),
        (
            "[admin]\ntokens = [{ name = \"a\", role = \"read\", token = \"${SECRET}\", expires = \"12:00\" }]",
            "`12:00` is not a date",
            "2:71",
            "2027-01-01T00:00:00Z",
        ),
        (
            "[admin]\ntokens = [{ name = \"a\", role = \"read\", token = \"${SECRET}\", digest = \"x\" }]",
            "a token has `token` or `digest`, not both",
            "2:61",
            "remove one",
        ),
        ("[limits]\nmemory = \"1KiB\"", "`memory` is out of range", "2:10", "from `\"64KiB\"` to `\"1TiB\"`"),
        (
            "[limits]\nheaders = \"all\"",
            "`all` is not a value of `headers`",
            "2:11",
            "`ietf`, `legacy`, `both` or `none`",
        ),
        ("[overload]\nmemory = \"1KiB\"", "`memory` is out of range", "2:10", "from `\"1MiB\"`"),
        (
            "[overload]\nkeep-alive = \"97%\"",
            "the thresholds of [overload] must increase",
            "1:2",
            "raise each above the one before",
        ),
        ("[errors]\n302 = \"a.html\"", "`302` is not an error status", "2:1", "`\"5xx\"`"),
        (
            "[errors]\n404 = \"a.png\"",
            "`a.png` does not end in `.html`, `.json` or `.txt`",
            "2:7",
            "name it like `404.html`",
        ),
        (
            "[upstream.u]\nservers = \"http://a\"\neject = { every = \"1s\" }",
            "`every` and `requests` have no effect without `success-rate` or `latency`",
            "3:1",
            "write `success-rate = \"15%\"`",
        ),
        (
            "[upstream.u]\nservers = \"http://a\"\neject = { success-rate = \"0%\" }",
            "`success-rate` must be above 0: how far a server may fall below the others",
            "3:26",
            "`\"15%\"`",
        ),
        ("[shutdown]\ndrian = \"1s\"", "unknown key `drian` in [shutdown]", "2:1", "did you mean `drain`?"),
        ("[log]\nlevel = \"INFO\"", "`INFO` is not a value of `level`", "2:9", "did you mean `info`?"),
        ("[log]\nlevel = \"inof\"", "`inof` is not a value of `level`", "2:9", "did you mean `info`?"),
        ("[log]\nlevel = \"a=b=c,\"", "`a=b=c,` is not a log level", "2:9", "info,gateway::proxy=debug"),
        (
            "[log]\nlevel = \"info,h2[conn]=debug\"",
            "`info,h2[conn]=debug` is not a log level",
            "2:9",
            "write a level",
        ),
        (
            "[log]\naccess = { to = \"stduot\" }",
            "the access log cannot be written to `stduot`",
            "2:17",
            "`stdout`?",
        ),
        (
            "[log]\naccess = { to = \"tcp://a:514\" }",
            "the access log cannot be written to `tcp://a:514`",
            "2:17",
            "write `stdout`, `stderr`, `off`, `syslog`, `unix:/path`, `udp://host:514` or a path",
        ),
        (
            "[log]\naccess = { format = \"text\" }",
            "`text` is not a log format",
            "2:21",
            "write `json`, `common`, `combined`, `ecs` or a text with values in it: `{client} {status}`",
        ),
        (
            "[log]\naccess = { format = \"{client} {ip}\" }",
            "`format` is invalid",
            "2:31",
            "`{ip}` does not exist here; write one of time,",
        ),
        (
            "[log]\naccess = { headers = [], format = \"{header:cookie} {client}\" }",
            "`format` is invalid",
            "2:36",
            "`cookie` is not one of `headers`",
        ),
        ("[log]\naccess = { format = \"{client\" }", "`format` is invalid", "2:22", "`{` is not closed"),
        (
            "[log]\naccess = { to = \"udp://a:0\" }",
            "`udp://a:0` has no valid port",
            "2:17",
            "from 1 to 65535",
        ),
        (
            "[log]\naccess = { to = \"udp://127.0.0.1:70000\" }",
            "`udp://127.0.0.1:70000` has no valid port",
            "2:17",
            "from 1 to 65535",
        ),
        (
            "[log]\ndecisions = { to = { syslog = \"udp://[::1]:70000\" } }",
            "`udp://[::1]:70000` has no valid port",
            "2:31",
            "from 1 to 65535",
        ),
        (
            "[log]\naccess = { to = \"udp://:514\" }",
            "`udp://:514` is not the address of a syslog server",
            "2:17",
            "udp://127.0.0.1:514",
        ),
        ("[log]\naccess = { to = { facility = \"cron\" } }", "`to` needs `syslog`", "2:12", "{ syslog ="),
        (
            "[log]\naccess = { to = { syslog = \"syslog\", severity = \"warn\" } }",
            "`warn` is not a value of `severity`",
            "2:49",
            "write `emerg`, `alert`",
        ),
        ("[trace]\nsample = \"1%\"", "[trace] needs `otlp`", "1:2", "http://127.0.0.1:4318"),
        (
            "[trace]\notlp = \"grpc://a:4317\"",
            "`grpc://a:4317` is not the URL of a collector",
            "2:8",
            "write it like",
        ),
        (
            "[trace]\notlp = \"http://u:p@a\"",
            "`http://u:********@a` is not the URL of a collector",
            "2:8",
            "write it like",
        ),
        (
            "[trace]\notlp = \"http://127.0.0.1:99999\"",
            "`http://127.0.0.1:99999` has no valid port",
            "2:8",
            "from 1 to 65535",
        ),
        (
            "[trace]\notlp = \"http://a:4318/#b\"",
            "`http://a:4318/#b` is not the URL of a collector",
            "2:8",
            "write it like",
        ),
        (
            "[trace]\notlp = \"http://a\"\nheaders = { x-a = \"1\", Content-Length = \"3\" }",
            "`content-length` cannot be set: the gateway sets it for each message",
            "3:24",
            "leave it out",
        ),
        (
            "[trace]\notlp = \"http://a\"\nheaders = { grpc-timeout = \"1S\" }",
            "`grpc-timeout` cannot be set: the gateway sets it for each message",
            "3:13",
            "leave it out",
        ),
        (
            "[trace]\notlp = \"http://a\"\ntls = { verify = true }",
            "`tls` has no effect on plain http",
            "3:1",
            "https://",
        ),
        (
            "[trace]\notlp = \"http://a\"\nheaders = { \"x y\" = \"1\" }",
            "`x y` is not a header's name",
            "3:13",
            "",
        ),
        ("[log]\naccess = { sample = { \"9xx\" = \"1%\" } }", "`9xx` is not a status", "2:23", "`2xx`"),
        ("[log]\naccess = { sample = { \"2xx\" = \"1\" } }", "`1` is not a share", "2:31", "`20%`"),
    ]);
}

#[test]
fn files_are_included_by_name() {
    let directory = Directory::new("included");
    directory.write("conf.d/b.toml", "[[route]]\npath = \"/b\"\nto = \"one\"");
    directory.write("conf.d/a.toml", "[upstream.one]\nservers = \"http://a\"\n[listener.x]\nbind = \"127.0.0.1:0\"\ncerts = [{ cert = \"x.pem\", key = \"x.key\" }]");
    directory.write("conf.d/c.txt", "not TOML");
    let main = directory.write("gateway.toml", "include = [\"conf.d/*.toml\", \"conf.d/a.toml\"]");
    let config = super::load(&main).unwrap_or_else(|errors| panic!("{errors}")).config;
    let files = ["gateway.toml", "conf.d/a.toml", "conf.d/b.toml"].map(|name| directory.0.join(name));
    assert_eq!(config.files, files);
    assert_eq!((config.upstreams.len(), config.routes.len()), (1, 1));
    assert_eq!(config.listeners[0].certs[0].cert, directory.0.join("conf.d/x.pem"));
}

#[test]
fn includes_are_bounded() {
    let directory = Directory::new("bounded");
    directory.write("big.toml", &" ".repeat((8 << 20) + 1));
    directory.write("nested.toml", "include = \"other.toml\"");
    directory.write("wrong.toml", "\na = 1");
    for (include, message) in [
        ("gateway.toml", "`include` matches the main file itself"),
        ("nested.toml", "an included file cannot have `include`"),
        ("big.toml", "it is longer than 8 MiB"),
        ("none.toml", "none.toml: No such file or directory"),
        ("none/*.toml", "cannot read the directory"),
        ("*/a.toml", "only the file's name may have `*` or `?`"),
        (".", "not a regular file"),
        ("wrong.toml", "wrong.toml:2:1"),
    ] {
        let main = directory.write("gateway.toml", &format!("include = [\"{include}\"]"));
        let said = super::load(&main).expect_err("it is wrong").to_string();
        assert!(said.contains(message), "{include}\n{said}");
        assert!(!said.contains("--config"), "an included file has another remedy: {said}");
        assert_eq!(said.matches("error: ").count(), 1, "{said}");
    }
    let said = super::load(&directory.0.join("none.toml")).expect_err("it is not there").to_string();
    assert!(
        said.starts_with("error: cannot read ")
            && said.ends_with(
                "none.toml: No such file or directory (os error 2): put it there, or start with another --config"
            )
    );
}

/// A directory of one test, removed at its end.
struct Directory(std::path::PathBuf);

impl Directory {
    fn new(test: &str) -> Directory {
        let path = std::env::temp_dir().join(format!("sluicegate-config-{}-{test}", std::process::id()));
        std::fs::create_dir_all(path.join("conf.d")).expect("the temporary directory is writable");
        Directory(path)
    }

    fn write(&self, name: &str, text: &str) -> std::path::PathBuf {
        let path = self.0.join(name);
        std::fs::write(&path, text).expect("the temporary directory is writable");
        path
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A valid file with a few pieces cut out, doubled, or replaced.
fn mutated() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        "\\PC{0,6}",
        "[\\[\\]{}=\"'.,#$\\\\\n ]{1,4}",
        Just("\u{0}".to_owned()),
        Just("${PORT}".to_owned()),
        Just("${PORT".to_owned()),
        Just("99999999999999999999".to_owned()),
        Just("-1".to_owned()),
        Just("é".to_owned()),
    ];
    let file = prop_oneof![Just(FULL), Just(auth::FULL), Just(include_str!("../../gateway.toml"))];
    let edit = (any::<proptest::sample::Index>(), 0..40_usize, piece);
    (file, proptest::collection::vec(edit, 1..4)).prop_map(|(file, edits)| {
        let mut text = file.to_owned();
        for (at, length, piece) in edits {
            let start = text.floor_char_boundary(at.index(text.len() + 1));
            let end = text.ceil_char_boundary((start + length).min(text.len()));
            text.replace_range(start..end, &piece);
        }
        text
    })
}

proptest! {
    #[test]
    fn no_file_panics_and_what_is_valid_reads_the_same_again(text in mutated()) {
        match load(&[&text]) {
            Ok(loaded) => {
                assert!(reads_the_same(&loaded.config), "{}", loaded.config.page());
                config(&filled(&loaded.config.effective()));
            }
            Err(said) => assert!(said.starts_with("error: ") || said.starts_with("warning: "), "{said}"),
        }
    }

    #[test]
    fn no_text_panics(text in "\\PC{0,200}") {
        let _ = load(&[&text]);
    }
}

#[test]
fn the_longest_delay_bounds_the_queue() {
    let queue = |limit: &str, delay: &str| {
        let config = config(&format!(
            "[policy.a]\nby = []\nlimit = \"{limit}\"\nalgorithm = \"leaky-bucket\"\n{delay}\n[[route]]\nto = \"echo\"\nlimit = \"a\""
        ));
        config.policies[0].windows[0].burst().get()
    };
    assert_eq!(queue("10/s", ""), 10);
    assert_eq!(queue("10/s burst 50", ""), 50);
    assert_eq!(queue("10/s burst 50", "max-delay = \"2s\""), 20);
    assert_eq!(queue("10/s burst 5", "max-delay = \"2s\""), 5);
    assert_eq!(queue("7/m", "max-delay = \"30s\""), 3);
}

#[test]
fn a_server_on_a_unix_socket_is_a_path() {
    let read = config("[upstream.a]\nservers = [\"unix:/run/a.sock\"]\n[[route]]\nto = \"unix:/run/b.sock\"");
    let shown: Vec<_> = read.upstreams.iter().map(|upstream| upstream.servers[0].shown()).collect();
    assert_eq!(shown, ["unix:/run/a.sock", "unix:/run/b.sock"]);
    each_says(&[
        (
            "[upstream.a]\nservers = \"unix:run/a.sock\"",
            "`unix:run/a.sock` needs an absolute path",
            "2:11",
            "unix:/run/app.sock",
        ),
        (
            "[upstream.a]\nservers = \"http://unix:/run/a.sock\"",
            "`http://unix:/run/a.sock` is not a Unix socket",
            "2:11",
            "write `unix:/run/a.sock`",
        ),
        (
            "[upstream.a]\nservers = \"unix:/run/a\\n.sock\"",
            "`unix:/run/a\\n.sock` is not a socket's path",
            "2:11",
            "without control characters",
        ),
        (
            "[upstream.a]\nservers = \"unix:/a\"\nhealth = { tcp = true, port = 1 }",
            "`port` cannot be combined with a Unix socket",
            "3:24",
            "leave it out",
        ),
        (
            "[upstream.a]\nservers = \"unix:/a\"\ntls = { verify = false }",
            "`tls` has no effect: no server has an https URL",
            "3:1",
            "https",
        ),
    ]);
}
