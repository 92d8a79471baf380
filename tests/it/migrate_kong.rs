//! `sluicegate migrate kong`: what it prints routes, limits and admits as kong.yml said.

use std::os::unix::fs::PermissionsExt;

use crate::migrate::{Migrated, migrate};
use crate::support::{Client, Directory, Gateway, Upstream, text};

/// A file of one service, `web`, whose upstream is at this port, with these lines below it.
fn kong(port: u16, lines: &str) -> String {
    format!("_format_version: \"3.0\"\nservices:\n- name: web\n  url: http://127.0.0.1:{port}/base\n{lines}")
}

/// A gateway of what was printed, on any port, beside the files that were written.
fn started(migrated: Migrated) -> Gateway {
    let config = migrated.text.replace("0.0.0.0:8000", "127.0.0.1:0");
    Gateway::start_in(migrated.directory, &config)
}

#[test]
fn kong_routes_take_their_part_of_the_path_away() {
    let web = Upstream::ok();
    let lines = "  routes:\n  - { name: api, paths: [/api], hosts: [api.example.com] }\n\
                 \x20 - { name: kept, paths: [/kept], strip_path: false, preserve_host: true }\n\
                 \x20 - { name: user, paths: [\"~/users/(?<id>[^/]+)/posts$\"], strip_path: false, methods: [GET] }\n\
                 \x20 - { name: beta, headers: { x-beta: [\"1\", \"2\"] } }\n";
    let migrated = Migrated::of("kong", &[("kong.yml", &kong(web.addr().port(), lines))]);
    let addr = web.addr().to_string();
    let gateway = started(migrated);
    let mut client = Client::connect(gateway.listener("proxy"));
    let mut get = |host: &str, path: &str, more: &str| {
        client.send(format!("GET {path} HTTP/1.1\r\nhost: {host}\r\n{more}\r\n")).response().status
    };
    assert_eq!(get("api.example.com", "/api/a?b", ""), 200);
    let request = web.request();
    assert_eq!((request.line.as_str(), request.header("host")), ("GET /base/a?b HTTP/1.1", Some(addr)));
    assert_eq!(get("x.example", "/kept/a", ""), 200);
    let request = web.request();
    assert_eq!(
        (request.line.as_str(), request.header("host").as_deref()),
        ("GET /base/kept/a HTTP/1.1", Some("x.example"))
    );
    assert_eq!(get("x.example", "/users/7/posts", ""), 200);
    assert_eq!(web.request().line, "GET /base/users/7/posts HTTP/1.1");
    assert_eq!([get("x.example", "/z", "x-beta: 2\r\n"), get("x.example", "/z", "")], [200, 404]);
    assert_eq!(web.request().line, "GET /base/z HTTP/1.1");
}

#[test]
fn kong_limits_are_windows_of_the_clock_and_the_nearest_plugin_holds() {
    let web = Upstream::ok();
    let lines = "  routes:\n  - name: few\n    paths: [/few]\n    plugins:\n    - { name: rate-limiting, config: { hour: 2, limit_by: ip, policy: local } }\n\
                 \x20 - { name: rest, paths: [/] }\n  - { name: more, paths: [/more] }\n  plugins:\n\
                 \x20 - { name: rate-limiting, config: { second: 100, day: 3, month: 500, year: 6000, limit_by: header, header_name: X-User } }\n\
                 plugins:\n- { name: rate-limiting, config: { minute: 1 } }\n\
                 - { name: rate-limiting, consumer: ann, config: { minute: 7 } }\n";
    let migrated = Migrated::of("kong", &[("kong.yml", &kong(web.addr().port(), lines))]);
    migrated
        .has("[policy.few-rate-limiting]\nby = [\"ip\"]\nlimit = [\"2/h\"]\nalgorithm = \"fixed-window\"");
    migrated.has("[policy.web-rate-limiting]\nby = [\"header:x-user\"]\nlimit = [\"100/s\", \"3/d\", \"500/month\", \"6000/year\"]\nalgorithm = \"fixed-window\"");
    assert!(
        !migrated.text.contains("[policy.rate-limiting]"),
        "nothing is left for the one of all: {}",
        migrated.text
    );
    let gateway = started(migrated);
    let mut client = Client::connect(gateway.listener("proxy"));
    let mut admitted = |path: &str, user: &str| {
        (0..4)
            .filter(|_| client.request("GET", path, &[&format!("x-user: {user}")], "").status == 200)
            .count()
    };
    assert_eq!(
        [admitted("/few", "ann"), admitted("/a", "ann"), admitted("/more", "ann"), admitted("/more", "bob")],
        [2, 3, 0, 3]
    );
}

#[test]
fn kong_advanced_limits_slide_and_share_a_redis() {
    let lines = "  routes: [{ name: all, paths: [/] }]\n  plugins:\n  - name: rate-limiting-advanced\n    config:\n\
                 \x20     limit: [10, 100]\n      window_size: [60, 3600]\n      identifier: ip\n      strategy: redis\n      sync_rate: 0.5\n\
                 \x20     redis: { host: redis.internal, port: 6380, password: secret, database: 2 }\n";
    let migrated = Migrated::of("kong", &[("kong.yml", &kong(1, lines))]);
    migrated.has(
        "[policy.web-rate-limiting-advanced]\nby = [\"ip\"]\nlimit = [\"10/m\", \"100/h\"]\nalgorithm = \"sliding-window\"\ncount-denied = true",
    );
    migrated.has("[redis]\nurl = \"redis://:secret@redis.internal:6380/2\"");
    assert_eq!(migrated.code, Some(0), "{}", migrated.text);
}

#[test]
fn kong_consumers_keep_their_keys_and_groups() {
    let web = Upstream::ok();
    let lines = "  routes: [{ name: all, paths: [/] }]\n  plugins:\n  - { name: key-auth, config: { key_names: [X-Key], key_in_query: false, hide_credentials: true } }\n\
                 \x20 - { name: acl, config: { allow: [dev, ops] } }\n\
                 consumers:\n- username: ann\n  keyauth_credentials: [{ key: key-of-ann }]\n  acls: [{ group: dev }]\n- username: eve\n\
                 keyauth_credentials:\n- { consumer: eve, key: key-of-eve }\n";
    let migrated =
        Migrated::with("kong", &[("kong.yml", &kong(web.addr().port(), lines))], &["--keys", "keys.toml"]);
    let file = migrated.directory.join("keys.toml");
    let keys = std::fs::read_to_string(&file).expect("it was written");
    assert!(keys.contains("consumer = \"ann\"") && !keys.contains("key-of"), "{keys}");
    assert!(!migrated.text.contains("key-of"), "{}", migrated.text);
    let mode = std::fs::metadata(&file).expect("it is there").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let gateway = started(migrated);
    let mut client = Client::connect(gateway.listener("proxy"));
    let mut status = |key: &str| client.request("GET", "/", &[&format!("x-key: {key}")], "").status;
    assert_eq!([status("key-of-ann"), status("key-of-eve"), status("guess")], [200, 403, 401]);
    let request = web.request();
    assert_eq!(
        (request.header("x-consumer-username").as_deref(), request.header("x-key")),
        (Some("ann"), None)
    );
}

#[test]
fn kong_routes_behind_keys_are_closed_without_a_file_for_them() {
    let lines = "  routes: [{ name: all, paths: [/] }]\n  plugins: [{ name: key-auth }]\n\
                 consumers: [{ username: ann, keyauth_credentials: [{ key: key-of-ann }] }]\n";
    let migrated = Migrated::of("kong", &[("kong.yml", &kong(1, lines))]);
    assert!(migrated.section("[[route]]\nname = \"all\"").contains("status = 501"));
    assert!(
        migrated.text.contains("with `--keys FILE`, which writes the hashes")
            && !migrated.text.contains("key-of"),
        "{}",
        migrated.text
    );
    // A file that is there is not written over.
    migrated.directory.write("keys.toml", "mine");
    let output = migrate(&migrated.directory, &["migrate", "kong", "kong.yml", "--keys", "keys.toml"]);
    assert_eq!((output.status.code(), text(&output.stdout)), (Some(1), String::new()));
    assert!(
        text(&output.stderr).contains("cannot write keys.toml: it exists: name another file"),
        "{}",
        text(&output.stderr)
    );
}

#[test]
fn kong_tokens_are_checked_by_each_consumers_secret() {
    let secret = "a secret of more than thirty-two bytes";
    let lines = format!(
        "  routes: [{{ name: all, paths: [/] }}]\n  plugins: [{{ name: jwt, config: {{ claims_to_verify: [exp] }} }}]\n\
         consumers:\n- {{ username: ann, jwt_secrets: [{{ key: issuer-of-ann, secret: \"{secret}\" }}] }}\n\
         - {{ username: bob, jwt_secrets: [{{ key: short, secret: short }}] }}\n\
         - {{ username: eve, jwt_secrets: [{{ key: rsa, algorithm: RS256, rsa_public_key: x }}] }}\n"
    );
    let migrated = Migrated::of("kong", &[("kong.yml", &kong(1, &lines))]);
    let method = migrated.section("[auth.jwt-ann]\nkind = \"jwt\"");
    assert!(
        method
            .contains("issuer = \"issuer-of-ann\"\nrequired = [\"exp\", \"iss\"]\nconsumer = \"claim:iss\""),
        "{method}"
    );
    assert!(migrated.section("[[route]]\nname = \"all\"").contains("auth = \"jwt-ann\""));
    for said in ["jwt_secrets of bob", "jwt_secrets of eve"] {
        assert!(migrated.text.contains(said), "{}", migrated.text);
    }
}

#[test]
fn kong_upstreams_keep_weights_checks_and_balance() {
    let source = "_format_version: \"2.1\"\nservices:\n- { name: a, host: group, path: /v1, connect_timeout: 1000, retries: 0, routes: [{ name: a, paths: [/a] }] }\n\
                  upstreams:\n- name: group\n  algorithm: consistent-hashing\n  hash_on: header\n  hash_on_header: X-User\n  targets:\n\
                  \x20 - { target: \"10.0.0.1:80\", weight: 100 }\n  - { target: \"10.0.0.2:80\", weight: 50 }\n  - { target: \"10.0.0.3:80\", weight: 0 }\n\
                  \x20 healthchecks:\n    active: { http_path: /up, timeout: 1, healthy: { interval: 5, successes: 2 }, unhealthy: { interval: 2, http_failures: 3 } }\n\
                  \x20   passive: { unhealthy: { http_failures: 5 } }\n";
    let migrated = Migrated::of("kong", &[("kong.yml", source)]);
    migrated.has(
        "[upstream.group]\nservers = [{ url = \"http://10.0.0.1:80\", weight = 100 }, { url = \"http://10.0.0.2:80\", weight = 50 }]\n\
         balance = \"hash:header:x-user\"\nhost = \"server\"\ntimeouts = { connect = \"1s\", response = \"1m\", stall = \"1m\" }\n\
         retry = { times = 0 }\n\
         health = { path = \"/up\", status = [\"200\", \"302\"], every = \"2s\", timeout = \"1s\", unhealthy-after = 3, healthy-after = 2 }\n\
         eject = { after = 5, most = \"100%\" }",
    );
    assert!(migrated.text.contains("target 10.0.0.3:80"), "{}", migrated.text);
}

#[test]
fn kong_plugins_that_change_requests_and_answers() {
    let lines = "  routes: [{ name: all, paths: [/] }, { name: gone, paths: [/gone], plugins: [{ name: request-termination, config: { status_code: 410, message: gone } }] }]\n  plugins:\n\
                 \x20 - { name: ip-restriction, config: { allow: [10.0.0.0/8], deny: [10.1.2.3] } }\n\
                 \x20 - { name: cors, config: { origins: [\"https://app.example.com\"], methods: [GET], max_age: 3600, credentials: true } }\n\
                 \x20 - { name: request-size-limiting, config: { allowed_payload_size: 2 } }\n\
                 \x20 - { name: response-transformer, config: { remove: { headers: [Server] }, append: { headers: [\"x-a:1\", \"x-a:2\"] }, add: { json: [\"p:1\"] } } }\n\
                 \x20 - { name: correlation-id, config: { header_name: X-Trace, echo_downstream: true } }\n\
                 \x20 - { name: prometheus }\n  - { name: http-log, config: { http_endpoint: \"http://x\" } }\n";
    let migrated = Migrated::of("kong", &[("kong.yml", &kong(1, lines))]);
    migrated.has(
        "[[route]]\nname = \"all\"\npath = \"/{*rest}\"\nto = \"web\"\nupgrade = true\nrewrite = \"/base/{rest}\"\nallow = \"10.0.0.0/8\"\ndeny = \"10.1.2.3\"\n\
         cors = { origins = \"https://app.example.com\", methods = \"GET\", credentials = true, max-age = \"3600s\" }\n\
         max-body = \"2MiB\"\nheaders = { set = { x-trace = \"{request_id}\" } }\n\
         response-headers = { remove = \"server\", set = { x-trace = \"{request_id}\" }, add = { x-a = [\"1\", \"2\"] } }",
    );
    let gone = migrated.section("[[route]]\nname = \"gone\"");
    assert!(gone.contains("respond = { status = 410, body = \"{\\\"message\\\":\\\"gone\\\"}\""), "{gone}");
    assert!(migrated.text.contains("`config.add`: it has no counterpart"), "{}", migrated.text);
    assert!(migrated.text.contains("plugin http-log"));
}

#[test]
fn kong_routes_behind_what_is_not_known_are_closed() {
    for plugin in ["oauth2", "my-own-plugin", "ldap-auth", "pre-function", "basic-auth"] {
        let lines = format!("  routes: [{{ name: all, paths: [/] }}]\n  plugins: [{{ name: {plugin} }}]\n");
        let migrated = Migrated::of("kong", &[("kong.yml", &kong(1, &lines))]);
        assert!(migrated.section("[[route]]\nname = \"all\"").contains("status = 501"), "{plugin}");
        assert!(migrated.said_of("kong.yml:6").contains("closed (501)"), "{}", migrated.text);
    }
    // A plugin that is switched off is not there.
    let lines = "  routes: [{ name: all, paths: [/] }]\n  plugins: [{ name: oauth2, enabled: false }]\n";
    let migrated = Migrated::of("kong", &[("kong.yml", &kong(1, lines))]);
    assert!(migrated.section("[[route]]\nname = \"all\"").contains("to = \"web\""));
    assert_eq!(migrated.code, Some(0), "{}", migrated.text);
}

#[test]
fn what_is_not_read_of_a_kong_yml_is_listed_with_its_line() {
    let lines = "  routes: [{ name: all, paths: [/], odd: 7 }]\n  tags: [a]\ncertificates:\n- { cert: secret-pem, key: secret-pem }\nnew_thing:\n- a: 1\n";
    let migrated = Migrated::of("kong", &[("kong.yml", &kong(1, lines))]);
    assert!(migrated.said_of("kong.yml:5").contains("odd: 7"));
    assert!(
        migrated.said_of("kong.yml:8").contains("`certs` of the listener")
            && !migrated.text.contains("secret-pem")
    );
    assert!(migrated.said_of("kong.yml:10").contains("new_thing"));
    let directory = Directory::new();
    directory.write("kong.yml", "something: else\n");
    let output = migrate(&directory, &["migrate", "kong", "kong.yml"]);
    assert!(
        text(&output.stderr).contains("kong.yml:1: there is no `_format_version`"),
        "{}",
        text(&output.stderr)
    );
}

#[test]
fn kong_routes_that_ask_for_two_credentials_are_closed_unless_one_is_enough() {
    let secret = "a secret of more than thirty-two bytes";
    let consumers = format!(
        "consumers:\n- {{ username: ann, keyauth_credentials: [{{ key: key-of-ann }}], jwt_secrets: [{{ key: ann, secret: \"{secret}\" }}] }}\n\
         - {{ username: guest }}\n"
    );
    let route = "  routes: [{ name: all, paths: [/] }]\n";
    let both = format!("{route}  plugins: [{{ name: key-auth }}, {{ name: jwt }}]\n{consumers}");
    let migrated = Migrated::with("kong", &[("kong.yml", &kong(1, &both))], &["--keys", "keys.toml"]);
    assert!(migrated.section("[[route]]\nname = \"all\"").contains("status = 501"));
    assert!(migrated.text.contains("Kong requires every credential"), "{}", migrated.text);
    let any = both.replace("name: key-auth }", "name: key-auth, config: { anonymous: guest } }");
    let any = any.replace("name: jwt }", "name: jwt, config: { anonymous: guest } }");
    let migrated = Migrated::with("kong", &[("kong.yml", &kong(1, &any))], &["--keys", "keys.toml"]);
    let route = migrated.section("[[route]]\nname = \"all\"");
    assert!(route.contains("auth = [\"key-auth\", \"anonymous\", \"jwt-ann\"]"), "{route}");
}

#[test]
fn kong_values_that_cannot_be_read_are_named_with_what_is_assumed() {
    let source = "_format_version: '3.0'\nservices:\n- name: t\n  host: 127.0.0.1\n  port: abc\n\
                  \x20 routes: [{ name: r, paths: [/], strip_path: maybe }]\n\
                  \x20 plugins: [{ name: rate-limiting, config: { minute: five, hour: 5, limit_by: path } }]\n\
                  - name: u\n  url: http://127.0.0.1:1\n  routes: [{ name: tcp, protocols: [tcp] }]\n\
                  \x20 plugins: [{ name: key-auth }]\n";
    let migrated = Migrated::with("kong", &[("kong.yml", source)], &["--keys", "keys.toml"]);
    for said in [
        "port: abc`: this is not a number: the default is assumed",
        "strip_path: maybe`: this is neither true nor false: the default is assumed",
        "`minute: five`: this is not a number",
        "limits cannot count by `limit_by: path`",
        "`services[u].plugins`: no route that was taken over uses it",
    ] {
        assert!(migrated.text.contains(said), "{said} in\n{}", migrated.text);
    }
    assert!(!migrated.text.contains("or `migrate` does not know it"), "{}", migrated.text);
}

#[test]
fn kong_consumers_that_a_plugin_refuses_are_not_taken_over() {
    let web = Upstream::ok();
    let lines = "  routes: [{ name: all, paths: [/] }, { name: own, paths: [/own], plugins: [{ name: request-termination, consumer: ann }] }]\n\
                 \x20 plugins: [{ name: key-auth, config: { anonymous: guest } }]\n\
                 consumers:\n- { username: ann, keyauth_credentials: [{ key: key-of-ann }], plugins: [{ name: rate-limiting, config: { minute: 5 } }] }\n\
                 - { username: eve, keyauth_credentials: [{ key: key-of-eve }], plugins: [{ name: request-termination }] }\n- { username: guest }\n\
                 plugins: [{ name: request-termination, consumer: guest, config: { status_code: 401 } }]\n";
    let source = kong(web.addr().port(), lines);
    let migrated = Migrated::with("kong", &[("kong.yml", &source)], &["--keys", "keys.toml"]);
    for said in ["plugin request-termination of eve", "plugin request-termination of guest", "write a tier"] {
        assert!(migrated.text.contains(said), "{said} in\n{}", migrated.text);
    }
    let gateway = started(migrated);
    let mut client = Client::connect(gateway.listener("proxy"));
    let mut status = |path: &str, fields: &[&str]| client.request("GET", path, fields, "").status;
    assert_eq!(status("/", &["apikey: key-of-ann"]), 200);
    assert_eq!(
        [status("/", &["apikey: key-of-eve"]), status("/", &[]), status("/own", &["apikey: key-of-ann"])],
        [401, 401, 501]
    );
}
