//! `sluicegate migrate envoy`: what it prints routes and limits as the bootstrap said.

use crate::migrate::{Migrated, migrate};
use crate::support::{Directory, Gateway, Upstream, eventually, text};

/// A bootstrap of one listener with these routes of a host for all, these filters and these clusters.
fn bootstrap(routes: &str, filters: &str, clusters: &str) -> String {
    format!(
        "static_resources:
  listeners:
  - name: ingress
    address: {{ socket_address: {{ address: 127.0.0.1, port_value: 0 }} }}
    filter_chains:
    - filters:
      - name: envoy.filters.network.http_connection_manager
        typed_config:
          \"@type\": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
          stat_prefix: ingress_http
          route_config:
            name: local_route
            virtual_hosts:
            - name: everything
              domains: [\"*\"]
              routes:
{routes}
          http_filters:
{filters}
          - name: envoy.filters.http.router
            typed_config: {{ \"@type\": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router }}
  clusters:
{clusters}
"
    )
}

/// A cluster of one server, with more keys.
fn cluster(name: &str, port: u16, more: &str) -> String {
    format!(
        "  - name: {name}\n    connect_timeout: 0.25s\n    load_assignment:\n      cluster_name: {name}\n      endpoints:\n\
         \x20     - lb_endpoints:\n        - endpoint: {{ address: {{ socket_address: {{ address: 127.0.0.1, port_value: {port} }} }} }}\n{more}"
    )
}

/// Routes, indented as `bootstrap` wants them.
fn routes(lines: &str) -> String {
    lines.lines().map(|line| format!("              {line}\n")).collect()
}

/// A local limit, in flow style.
fn limit(bucket: &str, more: &str) -> String {
    format!(
        "{{ \"@type\": type.googleapis.com/envoy.extensions.filters.http.local_ratelimit.v3.LocalRateLimit, stat_prefix: limit, \
         token_bucket: {bucket}, filter_enabled: {{ default_value: {{ numerator: 100 }} }}, \
         filter_enforced: {{ default_value: {{ numerator: 100 }} }}{more} }}"
    )
}

/// The filter without a bucket, and whatever stands in its place.
fn limit_filter(config: &str) -> String {
    format!("          - name: envoy.filters.http.local_ratelimit\n            typed_config: {config}")
}

#[test]
fn envoy_routes_and_rewrites_go_where_they_went() {
    let (orders, web) = (Upstream::ok(), Upstream::ok());
    let listed = routes(
        "- match: { prefix: /api/ }\n  route: { cluster: orders, prefix_rewrite: /v1/, timeout: 5s }\n\
         - match: { path: /exact }\n  route: { cluster: orders, host_rewrite_literal: orders.example }\n\
         - match: { path_separated_prefix: /only, headers: [{ name: \":method\", string_match: { exact: POST } }] }\n  route: { cluster: orders }\n\
         - match: { safe_regex: { regex: \"/users/[^/]+\" } }\n  route: { cluster: orders }\n\
         - match: { path_separated_prefix: /old }\n  redirect: { path_redirect: /new, response_code: FOUND }\n\
         - match: { path_separated_prefix: /ok }\n  direct_response: { status: 200, body: { inline_string: \"said {ip}\" } }\n\
         - match: { prefix: / }\n  route: { cluster: web }\n  request_headers_to_add:\n\
         \x20 - { header: { key: x-from, value: \"%DOWNSTREAM_REMOTE_ADDRESS_WITHOUT_PORT%\" }, append_action: OVERWRITE_IF_EXISTS_OR_ADD }",
    );
    let clusters = cluster("orders", orders.addr().port(), "")
        + &cluster("web", web.addr().port(), "    lb_policy: LEAST_REQUEST\n");
    let migrated = Migrated::of("envoy", &[("envoy.yaml", &bootstrap(&listed, "", &clusters))]);
    assert_eq!(migrated.code, Some(0), "{}", migrated.text);
    let gateway = Gateway::start(&migrated.text);
    let mut client = crate::support::Client::connect(gateway.listener("ingress"));
    let sent = |path: &str| format!("GET {path} HTTP/1.1");
    assert_eq!(client.get("/api/a?b=c").status, 200);
    assert_eq!(orders.request().line, sent("/v1/a?b=c"));
    assert_eq!(client.get("/exact").status, 200);
    assert_eq!(orders.request().header("host").as_deref(), Some("orders.example"));
    assert_eq!(client.get("/users/7").status, 200);
    assert_eq!(orders.request().line, sent("/users/7"));
    assert_eq!(client.get("/only").status, 200);
    let request = web.request();
    assert_eq!(
        (request.line.as_str(), request.header("x-from").as_deref()),
        ("GET /only HTTP/1.1", Some("127.0.0.1"))
    );
    assert_eq!(client.request("POST", "/only", &[], "x").status, 200);
    assert_eq!(orders.request().line, "POST /only HTTP/1.1");
    let redirected = client.get("/old");
    assert_eq!((redirected.status, redirected.header("location")), (302, Some("/new")));
    assert_eq!(client.get("/ok").text(), "said {ip}");
}

#[test]
fn envoy_fields_of_tables_go_before_those_of_routes_unless_told_otherwise() {
    let set = |value: &str| {
        format!(
            "[{{ header: {{ key: x-c, value: {value} }}, append_action: OVERWRITE_IF_EXISTS_OR_ADD }}, \
             {{ header: {{ key: x-all, value: {value} }} }}]"
        )
    };
    let listed = routes(&format!(
        "- match: {{ prefix: / }}\n  route: {{ cluster: web }}\n  request_headers_to_add: {}\n  \
         request_headers_to_remove: [x-gone]",
        set("route")
    ));
    let clusters = cluster("web", 8080, "");
    let whole = bootstrap(&listed, "", &clusters).replace(
        "              routes:",
        &format!("              request_headers_to_add: {}\n              routes:", set("host")),
    );
    for (key, last, all) in [
        ("", "table", "[\"route\", \"host\", \"table\"]"),
        (
            "            most_specific_header_mutations_wins: true\n",
            "route",
            "[\"table\", \"host\", \"route\"]",
        ),
    ] {
        let added =
            format!("            request_headers_to_add: {}\n{key}            virtual_hosts:", set("table"));
        let migrated =
            Migrated::of("envoy", &[("envoy.yaml", &whole.replace("            virtual_hosts:", &added))]);
        let expected = format!(
            "headers = {{ remove = \"x-gone\", set = {{ x-c = \"{last}\" }}, add = {{ x-all = {all} }} }}"
        );
        assert!(migrated.text.contains(&expected), "{}", migrated.text);
        assert_eq!(migrated.code, Some(0), "{}", migrated.text);
    }
}

#[test]
fn envoy_mirrors_get_their_share() {
    let (orders, next) = (Upstream::ok(), Upstream::ok());
    let listed = routes(
        "- match: { path: /all }\n  route: { cluster: orders, request_mirror_policies: [{ cluster: next }] }\n\
         - match: { path: /some }\n  route: { cluster: orders, request_mirror_policies: [{ cluster: next, \
         runtime_fraction: { runtime_key: a.b, default_value: { numerator: 5, denominator: TEN_THOUSAND } } }] }\n\
         - match: { path: /own }\n  route: { cluster: orders, request_mirror_policies: [{ cluster: orders }] }",
    );
    let clusters = cluster("orders", orders.addr().port(), "") + &cluster("next", next.addr().port(), "");
    let migrated = Migrated::of("envoy", &[("envoy.yaml", &bootstrap(&listed, "", &clusters))]);
    assert!(migrated.text.contains("mirror = { to = \"next\", share = \"0.05%\" }"), "{}", migrated.text);
    assert!(
        migrated.text.contains("a mirror must be another upstream than the route's"),
        "{}",
        migrated.text
    );
    let gateway = Gateway::start(&migrated.text);
    let mut client = crate::support::Client::connect(gateway.listener("ingress"));
    assert!(["/own", "/all"].iter().all(|path| client.get(path).status == 200));
    assert_eq!(next.request().line, "GET /all HTTP/1.1");
    assert!(next.is_quiet());
}

#[test]
fn envoy_buckets_admit_what_they_held() {
    let web = Upstream::ok();
    let listed = routes(&format!(
        "- match: {{ prefix: /few }}\n  route: {{ cluster: web }}\n  typed_per_filter_config:\n    envoy.filters.http.local_ratelimit: {}\n\
         - match: {{ prefix: / }}\n  route: {{ cluster: web }}",
        limit("{ max_tokens: 3, tokens_per_fill: 1, fill_interval: 3600s }", "")
    ));
    let all = limit("{ max_tokens: 5, tokens_per_fill: 5, fill_interval: 3600s }", "");
    let source = bootstrap(&listed, &limit_filter(&all), &cluster("web", web.addr().port(), ""));
    let migrated = Migrated::of("envoy", &[("envoy.yaml", &source)]);
    migrated
        .has("[policy.everything]\nby = []\nlimit = \"1/h burst 3\"".replace("everything", "limit").as_str());
    let gateway = Gateway::start(&migrated.text);
    let mut client = crate::support::Client::connect(gateway.listener("ingress"));
    let mut admitted = |path: &str| (0..10).filter(|_| client.get(path).status == 200).count();
    // A route's own bucket takes the place of the one for all.
    assert_eq!((admitted("/few"), admitted("/other")), (3, 5));
    assert_eq!(admitted("/another"), 0, "one bucket for all of the rest");
}

#[test]
fn envoy_descriptors_count_by_what_the_actions_name() {
    let route = "- match: { prefix: / }\n  route:\n    cluster: web\n    rate_limits:\n\
                 \x20   - actions: [{ request_headers: { header_name: X-User, descriptor_key: user } }]\n\
                 \x20   - actions: [{ generic_key: { descriptor_value: slow } }, { remote_address: {} }]";
    let more = ", descriptors: [\
        { entries: [{ key: user }], token_bucket: { max_tokens: 2, tokens_per_fill: 1, fill_interval: 3600s } }, \
        { entries: [{ key: generic_key, value: slow }, { key: remote_address }], token_bucket: { max_tokens: 9, fill_interval: 1s } }, \
        { entries: [{ key: generic_key, value: other }, { key: remote_address }], token_bucket: { max_tokens: 1, fill_interval: 1s } }, \
        { entries: [{ key: user, value: bob }], token_bucket: { max_tokens: 1, fill_interval: 1s } }]";
    let filter = limit("{ max_tokens: 100, tokens_per_fill: 100, fill_interval: 0.5s }", more);
    let web = Upstream::ok();
    let source = bootstrap(&routes(route), &limit_filter(&filter), &cluster("web", web.addr().port(), ""));
    let migrated = Migrated::of("envoy", &[("envoy.yaml", &source)]);
    migrated.has("[policy.limit]\nby = []\nlimit = \"200/s burst 100\"");
    migrated.has(
        "[policy.limit-descriptor]\nby = [\"header:x-user\"]\nlimit = \"1/h burst 2\"\nmissing = \"skip\"",
    );
    migrated.has("[policy.limit-descriptor-2]\nby = [\"ip\"]\nlimit = \"1/s burst 9\"");
    assert!(
        migrated.text.contains("write a route that `match`es it") && migrated.text.contains("no route makes")
    );
    let gateway = Gateway::start(&migrated.text);
    let mut client = crate::support::Client::connect(gateway.listener("ingress"));
    let mut status = |user: &str| client.request("GET", "/", &[&format!("x-user: {user}")], "").status;
    assert_eq!([status("ann"), status("ann"), status("ann"), status("eve")], [200, 200, 429, 200]);
}

#[test]
fn envoy_limits_that_are_off_or_not_enforced_are_not_either() {
    let bucket = "{ max_tokens: 1, tokens_per_fill: 1, fill_interval: 60s }";
    let route = routes("- match: { prefix: / }\n  route: { cluster: web }");
    let clusters = cluster("web", 1, "");
    let off = limit(bucket, "").replace("numerator: 100", "numerator: 0");
    let migrated = Migrated::of("envoy", &[("e.yaml", &bootstrap(&route, &limit_filter(&off), &clusters))]);
    assert!(!migrated.text.contains("[policy") && migrated.text.contains("it is off"), "{}", migrated.text);
    let shadow = limit(bucket, "")
        .replacen("numerator: 100", "numerator: 77", 2)
        .replacen("77", "100", 1)
        .replace("77", "0");
    let migrated =
        Migrated::of("envoy", &[("e.yaml", &bootstrap(&route, &limit_filter(&shadow), &clusters))]);
    migrated.has("[policy.limit]\nby = []\nlimit = \"1/m burst 1\"\nshadow = true");
}

#[test]
fn envoy_clusters_keep_servers_checks_and_bounds() {
    let more = "    lb_policy: RING_HASH\n    health_checks:\n    - { timeout: 1s, interval: 10s, unhealthy_threshold: 3, healthy_threshold: 2, \
                http_health_check: { path: /healthz, expected_statuses: [{ start: 200, end: 300 }] } }\n\
                \x20   outlier_detection: { consecutive_5xx: 3, base_ejection_time: 30s, max_ejection_percent: 40 }\n\
                \x20   circuit_breakers: { thresholds: [{ max_connections: 100, max_pending_requests: 10 }] }\n";
    let secure = "    typed_extension_protocol_options:\n      envoy.extensions.upstreams.http.v3.HttpProtocolOptions:\n\
                  \x20       \"@type\": type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions\n\
                  \x20       explicit_http_config: { http2_protocol_options: {} }\n    transport_socket:\n\
                  \x20     name: envoy.transport_sockets.tls\n      typed_config:\n\
                  \x20       \"@type\": type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext\n\
                  \x20       sni: api.example.com\n\
                  \x20       common_tls_context: { validation_context: { trusted_ca: { filename: certs/api.pem } } }\n";
    let listed = routes(
        "- match: { prefix: /a }\n  route: { cluster: plain, hash_policy: [{ header: { header_name: X-User } }], retry_policy: { retry_on: \"connect-failure,5xx\" } }\n\
         - match: { prefix: /b }\n  route:\n    weighted_clusters: { clusters: [{ name: plain, weight: 3000 }, { name: secure, weight: 1000 }] }\n\
         - match: { prefix: /c }\n  route: { cluster: absent }",
    );
    let clusters =
        cluster("plain", 81, more) + &cluster("secure", 82, secure) + "  - { name: unused, type: EDS }\n";
    let migrated = Migrated::of("envoy", &[("envoy.yaml", &bootstrap(&listed, "", &clusters))]);
    migrated.has(
        "[upstream.plain]\nservers = [\"http://127.0.0.1:81\"]\nbalance = \"hash:header:x-user\"\n\
         timeouts = { connect = \"250ms\" }\nconnections = { max = 100, waiting = 10 }\n\
         retry = { on = [\"connect\", \"reset-before-bytes\", \"timeout\", \"5xx\"] }\n\
         health = { path = \"/healthz\", status = [\"200-299\"], every = \"10s\", timeout = \"1s\", unhealthy-after = 3, healthy-after = 2 }\n\
         eject = { after = 3, for = \"30s\", most = \"100%\" }",
    );
    let secure = migrated.section("[upstream.secure]\nservers = [\"https://127.0.0.1:82\"]");
    assert!(
        secure.contains("http = \"h2\"") && secure.contains("certs/api.pem\", sni = \"api.example.com\" }"),
        "{secure}"
    );
    let weighted = migrated.section("[[route]]\nname = \"/b{*rest}\"");
    assert!(
        weighted
            .contains("{ upstream = \"plain-2\", weight = 1000 }, { upstream = \"secure\", weight = 334 }"),
        "{weighted}"
    );
    assert!(migrated.section("[[route]]\nname = \"/c{*rest}\"").contains("respond = { status = 503 }"));
    assert!(migrated.text.contains("`clusters[unused]`: no route leads to it"), "{}", migrated.text);
}

#[test]
fn envoy_routes_behind_a_guard_are_closed() {
    let filters = "          - name: envoy.filters.http.ext_authz\n            typed_config: { \"@type\": type.googleapis.com/envoy.extensions.filters.http.ext_authz.v3.ExtAuthz }";
    let route = routes("- match: { prefix: / }\n  route: { cluster: web }");
    let migrated =
        Migrated::of("envoy", &[("envoy.yaml", &bootstrap(&route, filters, &cluster("web", 1, "")))]);
    assert!(migrated.section("[[route]]\nname = \"/{*rest}\"").contains("status = 501"));
    assert!(
        migrated.text.contains("`envoy.filters.http.ext_authz`: it may refuse requests"),
        "{}",
        migrated.text
    );
    assert_eq!(migrated.code, Some(3));
}

#[test]
fn envoy_conditions_that_refuse_close_their_path() {
    let listed = routes(
        "- match: { prefix: /admin, query_parameters: [{ name: debug }] }\n  direct_response: { status: 403 }\n\
         - match: { prefix: / }\n  direct_response: { status: 200 }",
    );
    let migrated = Migrated::of("envoy", &[("envoy.yaml", &bootstrap(&listed, "", &cluster("web", 1, "")))]);
    assert!(
        migrated.section("[[route]]\nname = \"/admin{*rest}\"").contains("status = 501"),
        "{}",
        migrated.text
    );
    assert!(migrated.text.contains("it refuses requests: its whole path is closed"));
}

#[test]
fn envoy_listeners_that_ask_for_certificates_or_refuse_connections_do_not_open() {
    let route = routes("- match: { prefix: / }\n  direct_response: { status: 204 }");
    let plain = bootstrap(&route, "", &cluster("web", 1, ""));
    let context = |more: &str| {
        format!(
            "    - transport_socket:\n        name: envoy.transport_sockets.tls\n        typed_config:\n\
             \x20         \"@type\": type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.DownstreamTlsContext\n\
             \x20         require_client_certificate: true\n          common_tls_context:\n            tls_certificates: \
             [{{ certificate_chain: {{ filename: certs/api.pem }}, private_key: {{ filename: certs/api.key }} }}]\n{more}      filters:"
        )
    };
    // The authorities come from elsewhere: without them anybody would come in.
    let source = plain.replacen("    - filters:", &context(""), 1);
    let migrated = Migrated::of("envoy", &[("envoy.yaml", &source)]);
    assert!(migrated.section("[[route]]\nname = \"/{*rest}\"").contains("status = 501"), "{}", migrated.text);
    assert!(
        migrated.text.contains("`require_client_certificate`: the authorities of clients are not in a file")
    );
    let known = "            validation_context: { trusted_ca: { filename: certs/api.pem } }\n";
    let migrated =
        Migrated::of("envoy", &[("envoy.yaml", &plain.replacen("    - filters:", &context(known), 1))]);
    assert!(
        migrated.section("[listener.ingress]\nbind = \"127.0.0.1:0\"").contains("client-cert = \"require\"")
    );
    assert!(migrated.section("[[route]]\nname = \"/{*rest}\"").contains("status = 204"), "{}", migrated.text);
    let rbac = "    - filters:\n      - name: envoy.filters.network.rbac\n        typed_config: { \"@type\": type.googleapis.com/envoy.extensions.filters.network.rbac.v3.RBAC }";
    let migrated = Migrated::of("envoy", &[("envoy.yaml", &plain.replacen("    - filters:", rbac, 1))]);
    assert!(migrated.section("[[route]]\nname = \"/{*rest}\"").contains("status = 501"), "{}", migrated.text);
    assert!(migrated.text.contains("it may refuse connections"));
}

#[test]
fn envoy_first_routes_stay_first_and_hosts_keep_their_rest() {
    let source = bootstrap(
        &routes("- match: { prefix: / }\n  direct_response: { status: 200 }"),
        "",
        &cluster("web", 1, ""),
    );
    let hosts = "            - name: api\n              domains: [\"api.example.com\", \"api.example.com:8080\", \"api.*\"]\n              routes:\n\
                 \x20             - match: { prefix: /a }\n                direct_response: { status: 201 }\n\
                 \x20             - match: { prefix: /a/b }\n                direct_response: { status: 202 }\n\
                 \x20             - match: { prefix: /q, query_parameters: [{ name: x }] }\n                direct_response: { status: 203 }\n\
                 \x20           - name: everything";
    let migrated =
        Migrated::of("envoy", &[("envoy.yaml", &source.replace("            - name: everything", hosts))]);
    let gateway = Gateway::start(&migrated.text);
    let mut client = crate::support::Client::connect(gateway.listener("ingress"));
    let mut status = |host: &str, path: &str| {
        client.send(format!("GET {path} HTTP/1.1\r\nhost: {host}\r\n\r\n")).response().status
    };
    assert_eq!(
        [status("api.example.com", "/a/b"), status("api.example.com", "/z"), status("b.example", "/z")],
        [201, 404, 200]
    );
    for said in ["never reached", "domains: api.*", "its condition cannot be expressed"] {
        assert!(migrated.text.contains(said), "{said} in\n{}", migrated.text);
    }
}

#[test]
fn envoy_listeners_keep_tls_and_bounds() {
    let tls = "    - transport_socket:\n        name: envoy.transport_sockets.tls\n        typed_config:\n\
               \x20         \"@type\": type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.DownstreamTlsContext\n\
               \x20         common_tls_context:\n            alpn_protocols: [h2]\n            tls_params: { tls_minimum_protocol_version: TLSv1_3 }\n\
               \x20           tls_certificates: [{ certificate_chain: { filename: certs/api.pem }, private_key: { filename: certs/api.key } }]\n      filters:";
    let route = routes("- match: { prefix: / }\n  direct_response: { status: 204 }");
    let source = bootstrap(&route, "", &cluster("web", 1, ""))
        .replacen("    - filters:", tls, 1)
        .replace("          stat_prefix: ingress_http\n", "          stat_prefix: ingress_http\n          max_request_headers_kb: 64\n          common_http_protocol_options: { idle_timeout: 90s }\n          use_remote_address: false\n");
    let migrated = Migrated::of("envoy", &[("envoy.yaml", &source)]);
    let listener = migrated.section("[listener.ingress]\nbind = \"127.0.0.1:0\"");
    for key in [
        "http = [\"h2\"]",
        "min-version = \"1.3\"",
        "certs/api.key\" }]",
        "timeouts = { idle = \"1m30s\" }",
        "max = { header-bytes = \"64KiB\" }",
    ] {
        assert!(listener.contains(key), "{key} in\n{listener}");
    }
    assert!(migrated.text.contains("list the hops in `client-ip.trust`"));
}

#[test]
fn envoy_as_json_in_camel_case_is_the_same() {
    let json = "{\n\t\"staticResources\": {\"listeners\": [{\"name\": \"l\", \"address\": {\"socketAddress\": {\"address\": \"127.0.0.1\", \"portValue\": 0}},\n\
                \t\"filterChains\": [{\"filters\": [{\"name\": \"hcm\", \"typedConfig\": {\"@type\": \"type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager\",\n\
                \t\"routeConfig\": {\"virtualHosts\": [{\"name\": \"v\", \"domains\": [\"*\"], \"routes\": [{\"match\": {\"prefix\": \"/\"}, \"directResponse\": {\"status\": 204}}]}]}}}]}]}]}}\n";
    let migrated = Migrated::of("envoy", &[("envoy.json", json)]);
    migrated.has("[[route]]\nname = \"/{*rest}\"\npath = \"/{*rest}\"\nrespond = { status = 204 }");
    assert_eq!(migrated.code, Some(0), "{}", migrated.text);
}

#[test]
fn what_is_no_bootstrap_is_an_error_with_its_line() {
    let directory = Directory::new();
    for (content, said) in [
        ("a: 1\nb: [\n", "envoy.yaml:3: it is not valid YAML"),
        ("dynamic_resources: {}\n", "envoy.yaml:1: there is no `static_resources`"),
        ("a: &a [1]\nb: &a2 [*a, *a]\na: 2\n", "envoy.yaml:3: the key `a` is written twice"),
        ("", "envoy.yaml:1: it is empty"),
    ] {
        directory.write("envoy.yaml", content);
        let output = migrate(&directory, &["migrate", "envoy", "envoy.yaml"]);
        assert_eq!((output.status.code(), text(&output.stdout)), (Some(1), String::new()));
        assert!(text(&output.stderr).contains(said), "{}", text(&output.stderr));
    }
}

#[test]
fn what_has_no_meaning_here_is_closed_and_listed_not_printed() {
    // A weight beyond ours, a host with a blank, a name of a field that is none.
    let clusters = cluster("web", 1, "").replace("port_value: 1 }", "port_value: 70000 }");
    let listed = routes(
        "- match: { prefix: /a }\n  route: { cluster: web }\n- match: { prefix: /b }\n  direct_response: { status: 99 }",
    );
    let migrated = Migrated::of("envoy", &[("envoy.yaml", &bootstrap(&listed, "", &clusters))]);
    for name in ["/a{*rest}", "/b{*rest}"] {
        assert!(
            migrated.section(&format!("[[route]]\nname = \"{name}\"")).contains("status = 501"),
            "{}",
            migrated.text
        );
    }
    assert!(migrated.text.contains("routes to it are closed (501)"), "{}", migrated.text);
    let gateway = Gateway::start(&migrated.text);
    let closed = eventually("it answers", || Some(crate::support::get(gateway.listener("ingress"), "/a")));
    assert_eq!(closed.status, 501);
}
