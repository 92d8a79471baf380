//! `sluicegate migrate`: what refused requests refuses them still, or is closed and listed.

use crate::migrate::Migrated;
use crate::support::{Client, Gateway};

/// A frontend with these lines, and two backends whose servers nobody is at.
fn haproxy(lines: &str) -> Migrated {
    let config = format!(
        "defaults\n mode http\nfrontend www\n bind 127.0.0.1:0\n{lines}\nbackend api\n server a 127.0.0.1:1\n\
         backend web\n server b 127.0.0.1:1\n"
    );
    Migrated::of("haproxy", &[("haproxy.cfg", &config)])
}

/// A file of Kong's with these routes of one service, and these lines below all.
fn kong(routes: &str, more: &str) -> Migrated {
    let config = format!(
        "_format_version: \"3.0\"\nservices:\n- name: web\n  url: http://127.0.0.1:1\n  routes:\n{routes}{more}"
    );
    Migrated::of("kong", &[("kong.yml", &config)])
}

/// The statuses of requests, each a method, a path and fields.
#[track_caller]
fn answers(migrated: &Migrated, requests: &[(&str, &str, &str, u16)]) {
    let config = migrated.text.replace("0.0.0.0:8000", "127.0.0.1:0");
    let gateway = Gateway::start(&config);
    let listener = if config.contains("[listener.www]") { "www" } else { "proxy" };
    for (method, path, fields, status) in requests {
        let mut client = Client::connect(gateway.listener(listener));
        let sent = format!("{method} {path} HTTP/1.1\r\nhost: a.test\r\ncontent-length: 0\r\n{fields}\r\n");
        let answer = client.send(sent).response().status;
        assert_eq!(answer, *status, "{method} {path} {fields:?} of\n{}", migrated.text);
    }
}

#[test]
fn rules_by_different_fields_all_hold() {
    let migrated = haproxy(
        "http-request deny if { hdr(x-a) -m found }\nhttp-request deny deny_status 405 if { hdr(x-b) -m found }\n\
         http-request deny deny_status 410 if { hdr(x-c) -m found }\nuse_backend api if { hdr(x-t) b }\ndefault_backend web",
    );
    let requests = [
        ("GET", "/", "x-a: 1\r\n", 403),
        ("GET", "/", "x-b: 1\r\n", 405),
        ("GET", "/", "x-b: 1\r\nx-t: b\r\n", 405),
        ("GET", "/", "x-b: 1\r\nx-c: 1\r\n", 405),
        ("GET", "/", "x-c: 1\r\nx-t: b\r\n", 410),
        ("GET", "/", "x-a: 1\r\nx-b: 1\r\nx-c: 1\r\nx-t: b\r\n", 403),
        ("GET", "/", "x-t: b\r\n", 502),
        ("GET", "/", "", 502),
    ];
    answers(&migrated, &requests);
    assert!(!migrated.text.contains("already"), "{}", migrated.text);
    // A host that is asked for later has them, too.
    let migrated = haproxy(
        "http-request deny if { hdr(x-a) -m found }\nuse_backend api if { hdr(host) a.test } { hdr(x-b) 1 }\n\
         http-request deny deny_status 405 if { hdr(x-b) -m found }\nuse_backend api if { hdr(host) a.test }\ndefault_backend web",
    );
    answers(&migrated, &[("GET", "/", "x-a: 1\r\nx-b: 1\r\n", 403), ("GET", "/", "x-b: 1\r\n", 405)]);
    let migrated = kong(
        "  - {name: b, paths: [/]}\n\
         \x20 - {name: d, paths: [/], headers: {x-a: [\"1\"]}, plugins: [{name: request-termination, config: {status_code: 403}}]}\n\
         \x20 - {name: e, paths: [/], headers: {x-b: [\"1\"]}, plugins: [{name: request-termination, config: {status_code: 405}}]}\n",
        "",
    );
    let both = ("GET", "/", "x-a: 1\r\nx-b: 1\r\n", 403);
    answers(&migrated, &[("GET", "/", "x-a: 1\r\n", 403), ("GET", "/", "x-b: 1\r\n", 405), both]);
}

#[test]
fn fields_of_which_none_tells_two_rules_apart_are_closed() {
    let migrated = haproxy(
        "http-request return status 204 if { hdr(x-a) 1 }\nhttp-request deny if { hdr(x-a) -m found }\ndefault_backend web",
    );
    let requests = [("GET", "/", "x-a: 1\r\n", 204), ("GET", "/", "x-a: 2\r\n", 501), ("GET", "/", "", 501)];
    answers(&migrated, &requests);
    assert!(migrated.said_of("haproxy.cfg:6").contains("closed (501)"), "{}", migrated.text);
    // More sets of fields than routes can be written for.
    let denied = |number: usize| format!("http-request deny if {{ hdr(x-{number}) 1 }}\n");
    let many: String = (0..14).map(denied).collect();
    let migrated = haproxy(&format!("{many}default_backend web"));
    assert!(migrated.text.contains("closed (501) for all headers"), "{}", migrated.text);
    assert!(!migrated.text.contains("to = \"web\""), "{}", migrated.text);
    let host = |number: usize| format!("use_backend api if {{ hdr(host) h{number}.test }}\n");
    let hosts: String = (0..600).map(host).collect();
    let migrated = haproxy(&format!(
        "http-request deny if {{ hdr(x-a) 1 }}\n{hosts}use_backend api if {{ hdr(host) a.test }}"
    ));
    answers(&migrated, &[("GET", "/", "x-a: 1\r\n", 501)]);
}

#[test]
fn methods_and_hosts_that_rules_share_leave_the_others() {
    let migrated = haproxy(
        "http-request deny if { method TRACE OPTIONS PUT }\nhttp-request deny deny_status 405 if { method PUT DELETE }\n\
         http-request deny deny_status 410 if { path /q } { method -i patch }\ndefault_backend web",
    );
    let requests =
        [("OPTIONS", "/", "", 403), ("PUT", "/", "", 403), ("DELETE", "/", "", 405), ("TRACE", "/", "", 501)];
    answers(&migrated, &requests);
    answers(&migrated, &[("PATCH", "/q", "", 410), ("GET", "/", "", 502)]);
    let routes = "  - {name: a, paths: [/], methods: [TRACE, PUT], plugins: [{name: request-termination, config: {status_code: 405}}]}\n";
    answers(&kong(routes, ""), &[("PUT", "/", "", 405)]);
}

#[test]
fn other_spellings_of_what_is_refused_are_not_let_in() {
    for rule in [
        "http-request deny if { path_beg -i /adm/ }",
        "http-request deny if { path -i /Admin /Secret }",
        "acl adm path_beg -i /adm\nhttp-request deny if adm",
        "http-request return status 403 if { path_beg -i /adm/ }",
    ] {
        let migrated = haproxy(&format!("{rule}\ndefault_backend web"));
        let requests = [("GET", "/ADM/x", "", 501), ("GET", "/admin", "", 501), ("GET", "/SECRET", "", 501)];
        answers(&migrated, &requests);
        assert_eq!(migrated.code, Some(3));
    }
    for flag in ["-i ", ""] {
        let migrated =
            haproxy(&format!("http-request deny if {{ hdr(x-c) {flag}Evil }}\ndefault_backend web"));
        let fields =
            ["EVIL", "Evil", "a, Evil", "Evil,", "a\r\nx-c: Evil"].map(|it| format!("x-c: {it}\r\n"));
        let refused = fields.iter().map(|fields| ("GET", "/", fields.as_str(), 501));
        let requests: Vec<_> = refused.chain([("GET", "/", "", 502)]).collect();
        answers(&migrated, &requests);
        assert!(migrated.said_of("haproxy.cfg:5").contains("closed (501)"), "{}", migrated.text);
    }
    // Where nothing is refused, it is said.
    let migrated = haproxy("use_backend api if { path_beg -i /api/ }\ndefault_backend web");
    assert!(
        migrated.said_of("haproxy.cfg:5").contains("values are case-sensitive here"),
        "{}",
        migrated.text
    );
    let routes = "  - {name: b, paths: [/]}\n\
         \x20 - {name: d, paths: [/], headers: {x-a: [evil]}, plugins: [{name: request-termination, config: {status_code: 403}}]}\n";
    let migrated = kong(routes, "");
    answers(&migrated, &[("GET", "/", "x-a: EVIL\r\n", 501), ("GET", "/", "", 502)]);
    assert!(migrated.said_of("kong.yml:7").contains("closed (501)"), "{}", migrated.text);
}

#[test]
fn guards_that_are_not_quite_the_same_are_listed() {
    let migrated = haproxy("use_backend api if { hdr(x-a) 1 }\ndefault_backend web");
    assert!(
        migrated.said_of("haproxy.cfg:5").contains("a header is compared as a whole"),
        "{}",
        migrated.text
    );
    assert_eq!(migrated.code, Some(3));
}

#[test]
fn prefixes_take_what_goes_on_within_the_segment() {
    let beyond = [("GET", "/admin", "", 403), ("GET", "/administrator", "", 403), ("GET", "/adm", "", 502)];
    let migrated = haproxy(
        "http-request deny if { path_beg /admin }\nuse_backend api if { path_beg /api }\ndefault_backend web",
    );
    assert_eq!(migrated.code, Some(0), "{}", migrated.text);
    answers(&migrated, &beyond);
    let routes = "  - {name: d, paths: [/admin], plugins: [{name: request-termination, config: {status_code: 403}}]}\n";
    let routes = format!("{routes}  - {{name: all, paths: [/]}}\n");
    let migrated = kong(&routes, "");
    assert_eq!(migrated.code, Some(0), "{}", migrated.text);
    answers(&migrated, &beyond);
}

#[test]
fn haproxy_guards_that_routes_cannot_have_close_what_they_guard() {
    let counted = "stick-table type ip size 1k expire 30s store http_req_rate(10s)\nhttp-request track-sc0 src\n\
                   http-request deny if { sc_http_req_rate(0) gt 3 } { path_beg /login/ }\ndefault_backend web";
    answers(&haproxy(counted), &[("GET", "/login/x", "", 501), ("GET", "/", "", 502)]);
    for rule in [
        "http-request track-sc0 url\nhttp-request deny if { sc_http_req_rate(0) gt 3 }",
        "http-response deny if { status 500 }",
        "http-request deny if { hdr(x-a,1) b }",
    ] {
        let migrated = haproxy(&format!("{rule}\ndefault_backend web"));
        answers(&migrated, &[("GET", "/", "", 501)]);
        assert!(migrated.text.contains("all routes of this section are closed"), "{}", migrated.text);
    }
    let config = "defaults base\n mode http\n http-request deny if { src 127.0.0.0/8 }\nfrontend www from base\n\
                  \x20bind 127.0.0.1:0\n bind 127.0.0.1:0 accept-proxy\n default_backend web\nbackend web from base\n server a 127.0.0.1:1\n";
    let migrated = Migrated::of("haproxy", &[("haproxy.cfg", config)]);
    answers(&migrated, &[("GET", "/", "", 403)]);
    assert!(migrated.said_of("haproxy.cfg:6").contains("left out until"), "{}", migrated.text);
    assert_eq!(migrated.text.matches("[listener.").count(), 1, "{}", migrated.text);
}

#[test]
fn haproxy_scripts_and_agents_that_may_refuse_close_their_section() {
    for rule in [
        "http-request lua.auth",
        "http-request lua.auth if { path_beg /a }",
        "http-request use-service lua.x",
        "http-request send-spoe-group guard ask",
        "http-request unheard-of",
        "tcp-request content lua.x",
        "tcp-request content use-service lua.x",
        "tcp-response content reject",
        "http-response lua.x",
        "filter spoe engine guard config spoe.conf",
        "block if { hdr(x-a) 1 }",
    ] {
        let migrated = haproxy(&format!("{rule}\ndefault_backend web"));
        assert!(
            migrated.section("[[route]]\nname = \"/{*rest}\"").contains("status = 501"),
            "{}",
            migrated.text
        );
        assert!(migrated.said_of("haproxy.cfg:5").contains("closed (501)"), "{}", migrated.text);
    }
    for rule in
        ["http-request set-var(txn.a) src", "http-request do-resolve(txn.a,dns) hdr(host)", "filter trace"]
    {
        let migrated = haproxy(&format!("{rule}\ndefault_backend web"));
        assert!(
            migrated.section("[[route]]\nname = \"/{*rest}\"").contains("to = \"web\""),
            "{}",
            migrated.text
        );
        assert_eq!(migrated.code, Some(3), "{}", migrated.text);
    }
    let migrated = haproxy("tcp-request connection expect-proxy layer4\ndefault_backend web");
    assert!(!migrated.text.contains("[listener."), "{}", migrated.text);
}

#[test]
fn haproxy_rules_that_send_clients_elsewhere_keep_them_out() {
    for (rule, is_closed) in [
        ("http-request redirect location /login unless { req.cook(sid) -m found }", true),
        ("http-request redirect location /login if { src 10.0.0.0/8 }", true),
        ("http-request redirect location /b if { path_reg ^/a }", false),
        ("use_backend none if { src 10.0.0.0/8 }", true),
        ("use_backend none if { req.cook(a) -m found }", true),
        ("use_backend api if { req.cook(a) -m found }", false),
        ("http-request set-src hdr(x-real)\nhttp-request deny if { src 10.0.0.0/8 }", true),
    ] {
        let migrated = haproxy(&format!("{rule}\ndefault_backend web\nbackend none\n errorfile 503 f"));
        let route = migrated.section("[[route]]\nname = \"/{*rest}\"");
        assert_eq!(route.contains("status = 501"), is_closed, "{rule}\n{}", migrated.text);
        assert_eq!(migrated.code, Some(3), "{rule}\n{}", migrated.text);
    }
    let migrated =
        haproxy("http-request return status 200 file f if { path /robots.txt }\ndefault_backend web");
    assert!(
        migrated.section("[[route]]\nname = \"/robots.txt\"").contains("status = 501"),
        "{}",
        migrated.text
    );
}

#[test]
fn haproxy_servers_whose_name_nobody_checked_are_listed() {
    let config = "defaults\n mode http\nlisten www\n bind 127.0.0.1:0\n server a 127.0.0.1:1 ssl verify required ca-file ca.pem\n";
    let directory = crate::support::Directory::new();
    crate::support::tls::certify(&directory, "ca", &["example.com"]);
    let ca = std::fs::read_to_string(directory.join("ca.pem")).expect("it was written");
    let migrated = Migrated::of("haproxy", &[("haproxy.cfg", config), ("ca.pem", &ca)]);
    assert!(migrated.said_of("haproxy.cfg:5").contains("verifyhost"), "{}", migrated.text);
}

#[test]
fn kong_guards_that_routes_cannot_have_close_what_they_guard() {
    let routes = "  - {name: a, paths: [/a]}\n\
         \x20 - {name: b, paths: [/b], plugins: [{name: ip-restriction, config: {allow: [127.0.0.0/8]}, enabled: false}]}\n";
    let all = "plugins:\n- {name: ip-restriction, config: {deny: [127.0.0.0/8]}}\n";
    answers(&kong(routes, all), &[("GET", "/a", "", 403), ("GET", "/b", "", 403)]);
    let routes = "  - {name: b, paths: [/]}\n\
         \x20 - {name: d, paths: ['~/(admin|root).*'], plugins: [{name: request-termination, config: {status_code: 403}}]}\n";
    let migrated = kong(routes, "");
    answers(&migrated, &[("GET", "/admin", "", 501), ("GET", "/rootx", "", 501)]);
    assert!(migrated.text.contains("all routes of its hosts are closed"), "{}", migrated.text);
    for condition in ["sources: [{ip: 127.0.0.1}]", "headers: {x-a: ['~*evil']}", "hosts: ['a.*']"] {
        let routes = format!(
            "  - {{name: b, paths: [/]}}\n  - {{name: d, {condition}, plugins: [{{name: request-termination, config: {{status_code: 403}}}}]}}\n"
        );
        answers(&kong(&routes, ""), &[("GET", "/", "x-a: evil\r\n", 501)]);
    }
    let migrated = kong("  - {name: b, paths: [/], protocols: [https]}\n", "");
    answers(&migrated, &[("GET", "/", "", 501)]);
    assert!(migrated.said_of("kong.yml:6").contains("the listener has no TLS"), "{}", migrated.text);
}

/// A bootstrap of one listener with these virtual hosts, in flow style.
fn envoy(hosts: &str) -> Migrated {
    let config = format!(
        "static_resources:\n  listeners:\n  - name: www\n    address: {{ socket_address: {{ address: 127.0.0.1, port_value: 0 }} }}\n\
         \x20   filter_chains:\n    - filters:\n      - name: envoy.filters.network.http_connection_manager\n        typed_config:\n\
         \x20         \"@type\": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager\n\
         \x20         route_config:\n            virtual_hosts:\n{hosts}"
    );
    Migrated::of("envoy", &[("envoy.yaml", &config)])
}

/// A virtual host for all, with these routes.
fn envoy_routes(routes: &str) -> Migrated {
    envoy(&format!("            - {{ name: all, domains: ['*'], routes: [{routes}] }}\n"))
}

#[test]
fn envoy_guards_that_routes_cannot_have_close_what_they_guard() {
    let all = "{ match: { prefix: / }, direct_response: { status: 200 } }";
    let migrated = envoy_routes(&format!(
        "{{ match: {{ prefix: /, headers: [{{ name: x-a, string_match: {{ exact: \"1\" }} }}] }}, direct_response: {{ status: 403 }} }}, \
         {{ match: {{ prefix: /, headers: [{{ name: x-b, present_match: true }}] }}, direct_response: {{ status: 405 }} }}, {all}"
    ));
    let both = ("GET", "/", "x-a: 1\r\nx-b: 1\r\n", 403);
    answers(&migrated, &[("GET", "/", "x-a: 1\r\n", 403), ("GET", "/", "x-b: 1\r\n", 405), both]);
    assert_eq!(migrated.code, Some(0), "{}", migrated.text);
    let refused = |matched: &str| {
        envoy_routes(&format!("{{ match: {{ {matched} }}, direct_response: {{ status: 403 }} }}, {all}"))
    };
    let migrated = refused("prefix: /adm/, case_sensitive: false");
    answers(&migrated, &[("GET", "/ADM/x", "", 501), ("GET", "/adm/x", "", 501)]);
    assert!(migrated.text.contains("paths are case-sensitive"), "{}", migrated.text);
    let migrated = refused("prefix: /admin");
    answers(
        &migrated,
        &[("GET", "/admin/x", "", 403), ("GET", "/admin10", "", 403), ("GET", "/adm", "", 200)],
    );
    let named =
        "prefix: /, headers: [{ name: ':method', string_match: { safe_regex: { regex: 'TRACE|PUT' } } }]";
    answers(&refused(named), &[("PUT", "/", "", 403), ("GET", "/", "", 200)]);
}

#[test]
fn envoy_hosts_that_routes_cannot_name_are_closed_if_they_refuse() {
    let host = |name: &str, domain: &str, more: &str, status: u16| {
        format!(
            "            - {{ name: {name}, domains: ['{domain}']{more}, routes: [{{ match: {{ prefix: / }}, direct_response: {{ status: {status} }} }}] }}\n"
        )
    };
    // The requests of this test are for a.test.
    for (domain, answer) in [("*a.test", 501), ("a.*", 501), ("b.*", 501), ("*-x.example", 200)] {
        let migrated = envoy(&(host("in", domain, "", 403) + &host("all", "*", "", 200)));
        answers(&migrated, &[("GET", "/", "", answer)]);
        assert!(migrated.text.contains(&format!("domains: {domain}")), "{}", migrated.text);
    }
    let migrated = envoy(&(host("in", "b.*", "", 200) + &host("all", "*", "", 204)));
    answers(&migrated, &[("GET", "/", "", 204)]);
    let migrated = envoy(&host("all", "*", ", require_tls: ALL", 200));
    answers(&migrated, &[("GET", "/", "", 501)]);
    assert!(migrated.text.contains("its host requires TLS"), "{}", migrated.text);
}
