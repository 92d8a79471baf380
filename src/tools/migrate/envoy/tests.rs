//! What keeps clients out in Envoy keeps them out here.

use super::super::{From, MigrationOutput, migrate_text};

/// A listener with these chains, each of which is a match, a transport socket and the answer to everything.
fn listener(chains: &[(&str, &str, u16)], more: &str) -> MigrationOutput {
    let mut text = format!(
        "static_resources:\n  listeners:\n  - name: www\n    address: {{ socket_address: {{ address: 127.0.0.1, port_value: 80 }} }}\n\
         {more}    filter_chains:\n"
    );
    for (matched, socket, status) in chains {
        text.push_str(&format!(
            "    - filter_chain_match: {{ {matched} }}\n{socket}      filters:\n      - name: m\n        typed_config:\n\
             \x20         \"@type\": a.HttpConnectionManager\n          route_config:\n            virtual_hosts:\n\
             \x20           - {{ name: all, domains: ['*'], routes: [{{ match: {{ prefix: / }}, direct_response: {{ status: {status} }} }}] }}\n"
        ));
    }
    read(&text)
}

fn read(text: &str) -> MigrationOutput {
    let migrated = migrate_text(From::Envoy, "envoy.yaml", text).expect("it can be parsed");
    assert!(migrated.errors.is_none(), "{:?}\n{}", migrated.errors, migrated.text);
    migrated
}

fn is_closed(migrated: &MigrationOutput) -> bool {
    !migrated.text.contains("status = 204") && migrated.text.contains("status = 501")
}

const TLS: &str = "      transport_socket: { name: tls, typed_config: { \"@type\": a.DownstreamTlsContext, common_tls_context: \
                   { tls_certificates: [{ certificate_chain: { filename: c.pem }, private_key: { filename: k.pem } }] } } }\n";

#[test]
fn addresses_that_a_chain_takes_are_those_that_may_come_in() {
    for kind in ["source_prefix_ranges", "directSourcePrefixRanges"] {
        let matched = format!("{kind}: [{{ address_prefix: 10.1.2.3, prefix_len: 8 }}]");
        let migrated = listener(&[(&matched, "", 204)], "");
        assert_eq!(migrated.text.matches("allow = \"10.0.0.0/8\"").count(), 2, "{}", migrated.text);
        assert!(
            !migrated.is_whole_but_paths() && migrated.text.contains("answered 403"),
            "{}",
            migrated.text
        );
    }
    // Closed behind the PROXY protocol, because they are other addresses there.
    let matched = "source_prefix_ranges: [{ address_prefix: 10.0.0.0, prefix_len: 8 }]";
    let proxied = "    listener_filters: [{ name: envoy.filters.listener.proxy_protocol }]\n";
    assert!(is_closed(&listener(&[(matched, "", 204)], proxied)));
    // Closed, because the same clients of two chains for the same names have two sets of routes.
    assert!(is_closed(&listener(&[(matched, "", 204), ("", "", 204)], "")));
}

#[test]
fn chains_that_ask_for_what_cannot_be_said_are_closed() {
    for matched in [
        "source_type: EXTERNAL",
        "source_ports: [7]",
        "destination_port: 81",
        "prefix_ranges: [{ address_prefix: 10.0.0.0, prefix_len: 8 }]",
        "application_protocols: [h2]",
        "transport_protocol: tls",
        "server_names: [a.test]",
        "address_suffix: x",
        "source_prefix_ranges: [{ address_prefix: x, prefix_len: 8 }]",
    ] {
        let migrated = listener(&[(matched, "", 204)], "");
        assert!(is_closed(&migrated) && !migrated.is_whole_but_paths(), "{matched}\n{}", migrated.text);
        assert!(migrated.text.contains("cannot express which connections it takes"), "{}", migrated.text);
    }
    let matcher = "    filter_chain_matcher: { on_no_match: {} }\n";
    assert!(is_closed(&listener(&[("", "", 204)], matcher)));
    for matched in [
        "source_type: ANY",
        "destination_port: 80",
        "prefix_ranges: [{ address_prefix: 127.0.0.0, prefix_len: 8 }]",
        "transport_protocol: raw_buffer",
        "",
    ] {
        let migrated = listener(&[(matched, "", 204)], "");
        assert!(
            migrated.is_whole_but_paths() && migrated.text.contains("status = 204"),
            "{matched}\n{}",
            migrated.text
        );
    }
}

#[test]
fn names_that_chains_are_for_are_hosts() {
    let ranges = "source_prefix_ranges: [{ address_prefix: 10.0.0.0, prefix_len: 8 }]";
    let first = format!("server_names: [a.test, '*.b.test'], transport_protocol: tls, {ranges}");
    let migrated = listener(&[(&first, TLS, 204), ("server_names: [c.test]", TLS, 205)], "");
    let route = |status: u16| {
        let mut sections = migrated.text.split("\n\n");
        sections.find(|section| section.contains(&format!("status = {status}"))).unwrap_or_default()
    };
    assert!(route(204).contains("host = [\"a.test\", \"*.b.test\"]"), "{}", migrated.text);
    assert!(route(204).contains("allow = \"10.0.0.0/8\""), "{}", migrated.text);
    assert!(route(205).contains("host = \"c.test\""), "{}", migrated.text);
    assert!(!route(205).contains("allow"), "{}", migrated.text);
    assert!(!migrated.is_whole_but_paths());
}

#[test]
fn routes_that_send_clients_elsewhere_keep_them_out() {
    let routes = |matched: &str, action: &str| {
        read(&format!(
            "static_resources:\n  listeners:\n  - name: www\n    address: {{ socket_address: {{ address: 127.0.0.1, port_value: 80 }} }}\n\
             \x20   filter_chains:\n    - filters:\n      - name: m\n        typed_config:\n          \"@type\": a.HttpConnectionManager\n\
             \x20         route_config:\n            virtual_hosts:\n            - {{ name: all, domains: ['*'], routes: [\
             {{ match: {{ prefix: /, {matched} }}, {action} }}, {{ match: {{ prefix: / }}, direct_response: {{ status: 204 }} }}] }}\n"
        ))
    };
    let login = "redirect: { path_redirect: /login }";
    for matched in [
        "headers: [{ name: x-key, string_match: { exact: v }, invert_match: true }]",
        "headers: [{ name: x-key, present_match: true, invert_match: true }]",
        "query_parameters: [{ name: debug, present_match: true }]",
    ] {
        for action in [login, "direct_response: { status: 200 }"] {
            let migrated = routes(matched, action);
            assert!(is_closed(&migrated) && !migrated.is_whole_but_paths(), "{matched}\n{}", migrated.text);
        }
    }
    let clear = "headers: [{ name: x-forwarded-proto, string_match: { exact: https }, invert_match: true }]";
    let migrated = routes(clear, "redirect: { https_redirect: true }");
    assert!(migrated.text.contains("status = 204") && !migrated.is_whole_but_paths(), "{}", migrated.text);
}

/// Listeners, each of them an address, a port, what its chain has beside its filters, and its routes.
fn listeners(all: &[(&str, u16, &str, &str)]) -> MigrationOutput {
    let mut text = "static_resources:\n  listeners:\n".to_owned();
    for (index, (address, port, socket, routes)) in all.iter().enumerate() {
        text.push_str(&format!(
            "  - name: l{index}\n    address: {{ socket_address: {{ address: '{address}', port_value: {port} }} }}\n    filter_chains:\n\
             {}      filters:\n      - name: m\n        typed_config:\n          \"@type\": a.HttpConnectionManager\n\
             \x20         stat_prefix: s{index}\n          route_config:\n            virtual_hosts:\n\
             \x20           - {{ name: all, domains: ['*'], routes: [{routes}] }}\n",
            if socket.is_empty() { "    - name: c\n".to_owned() } else { format!("    - name: c\n{socket}") },
        ));
    }
    read(&text)
}

/// What the route of this path says; empty if there is none.
fn route<'m>(migrated: &'m MigrationOutput, path: &str) -> &'m str {
    let path = format!("path = \"{path}\"");
    migrated.text.split("\n\n").find(|section| section.lines().any(|line| line == path)).unwrap_or_default()
}

const PUBLIC: &str = "{ match: { prefix: / }, direct_response: { status: 204 } }";
const INTERNAL: &str = "{ match: { path: /admin }, direct_response: { status: 205 } }";

#[test]
fn routes_of_an_internal_listener_do_not_answer_at_the_public_one() {
    for (public, internal) in [
        (("0.0.0.0", 80, "", PUBLIC), ("127.0.0.1", 9000, "", INTERNAL)),
        (("0.0.0.0", 443, TLS, PUBLIC), ("0.0.0.0", 9000, "", INTERNAL)),
        (("0.0.0.0", 8080, "", PUBLIC), ("10.0.0.1", 8080, "", INTERNAL)),
        (("::", 8080, "", PUBLIC), ("::1", 9000, "", INTERNAL)),
    ] {
        for order in [[public, internal], [internal, public]] {
            let migrated = listeners(&order);
            assert!(route(&migrated, "/{*rest}").contains("status = 204"), "{}", migrated.text);
            assert!(route(&migrated, "/admin").contains("status = 501"), "{}", migrated.text);
            assert!(!migrated.is_whole_but_paths() && migrated.text.contains("it has a port of its own"));
            assert_eq!(migrated.text.matches("\n[listener.").count(), 2, "{}", migrated.text);
        }
    }
}

#[test]
fn of_two_listeners_that_may_both_be_public_one_is_left_out() {
    for (one, other) in [("0.0.0.0", "0.0.0.0"), ("127.0.0.1", "127.0.0.1")] {
        let migrated = listeners(&[(one, 10_000, "", PUBLIC), (other, 10_001, "", INTERNAL)]);
        assert!(route(&migrated, "/{*rest}").contains("status = 204"), "{}", migrated.text);
        assert!(!migrated.text.contains("/admin") && !migrated.text.contains("10001"), "{}", migrated.text);
        assert!(
            !migrated.is_whole_but_paths()
                && migrated.text.contains("`listener l1`: all listeners serve all routes")
        );
    }
}

#[test]
fn listeners_of_the_same_routes_share_them() {
    for port in [81, 10_001] {
        let migrated = listeners(&[("0.0.0.0", 80, "", PUBLIC), ("0.0.0.0", port, TLS, PUBLIC)]);
        assert!(migrated.is_whole_but_paths(), "{}", migrated.text);
        assert_eq!(migrated.text.matches("\n[listener.").count(), 2, "{}", migrated.text);
        assert_eq!(migrated.text.matches("[[route]]").count(), 1, "{}", migrated.text);
    }
    // They do not count, because those that send clients to https have no routes.
    let moved = "{ match: { prefix: / }, redirect: { https_redirect: true } }";
    let migrated = listeners(&[("0.0.0.0", 8080, "", moved), ("0.0.0.0", 8443, TLS, PUBLIC)]);
    assert!(migrated.is_whole_but_paths() && migrated.text.contains("status = 204"), "{}", migrated.text);
}

#[test]
fn routes_behind_certificates_are_not_served_to_those_without() {
    let certified = TLS
        .replace("DownstreamTlsContext,", "DownstreamTlsContext, require_client_certificate: true, ")
        .replace(
            "common_tls_context: { ",
            "common_tls_context: { validation_context: { trusted_ca: { filename: ca.pem } }, ",
        );
    for (address, port) in [("0.0.0.0", 80), ("127.0.0.1", 9000)] {
        let migrated = listeners(&[("0.0.0.0", 443, &certified, PUBLIC), (address, port, "", INTERNAL)]);
        assert!(route(&migrated, "/{*rest}").contains("status = 501"), "{}", migrated.text);
        assert!(
            !migrated.is_whole_but_paths()
                && migrated.text.contains("another listener does not ask for a certificate"),
            "{}",
            migrated.text
        );
    }
    let migrated = listeners(&[("0.0.0.0", 443, &certified, PUBLIC)]);
    assert!(migrated.is_whole_but_paths() && migrated.text.contains("status = 204"), "{}", migrated.text);
}

#[test]
fn prefixes_go_on_within_a_segment_as_in_envoy() {
    for (matched, path, sent) in [
        ("prefix: /service/1", "/service/1{*rest}", "/v2{rest}"),
        ("prefix: /service/1/", "/service/1/{*rest}", "/v2{rest}"),
        ("prefix: /", "/{*rest}", "/v2{rest}"),
        ("path_separated_prefix: /service/1", "/service/1/{*rest}", "/v2/{rest}"),
        ("path: /service/1", "/service/1", "/v2"),
    ] {
        for (action, said) in [
            ("direct_response: { status: 204 }", "status = 204".to_owned()),
            ("direct_response: { status: 403 }", "status = 403".to_owned()),
            ("redirect: { prefix_rewrite: /v2 }", format!("to = \"{sent}\"")),
        ] {
            let route = format!("{{ match: {{ {matched} }}, {action} }}");
            let migrated = listeners(&[("127.0.0.1", 80, "", &route)]);
            assert!(migrated.is_whole_but_paths(), "{matched}\n{}", migrated.text);
            assert!(migrated.text.contains(&format!("path = \"{path}\"\n")), "{matched}\n{}", migrated.text);
            assert!(migrated.text.contains(&said), "{matched}\n{}", migrated.text);
        }
    }
}

/// A listener with these filters and a virtual host with this, whose routes lead to a cluster.
fn forwarding(filters: &str, host: &str, table: &str) -> MigrationOutput {
    read(&format!(
        "static_resources:\n  listeners:\n  - name: www\n    address: {{ socket_address: {{ address: 127.0.0.1, port_value: 80 }} }}\n\
         \x20   filter_chains:\n    - filters:\n      - name: m\n        typed_config:\n          \"@type\": a.HttpConnectionManager\n\
         \x20         http_filters: [{filters}]\n\
         \x20         route_config: {{ {table} virtual_hosts: [{{ name: v, domains: ['*'], {host} }}] }}\n\
         \x20 clusters:\n  - name: c\n    load_assignment: {{ cluster_name: c, endpoints: [{{ lb_endpoints: [{{ endpoint: \
         {{ address: {{ socket_address: {{ address: 127.0.0.1, port_value: 9 }} }} }} }}] }}] }}\n"
    ))
}

#[test]
fn fields_whose_value_cannot_be_said_are_removed() {
    let added = |how: &str| {
        let field = format!("{{ header: {{ key: X-User, value: '%DOWNSTREAM_PEER_SUBJECT%' }}, {how} }}");
        forwarding(
            "",
            &format!(
                "routes: [{{ match: {{ prefix: / }}, route: {{ cluster: c }}, request_headers_to_add: [{field}] }}]"
            ),
            "",
        )
    };
    for how in ["append_action: OVERWRITE_IF_EXISTS_OR_ADD", "append: false"] {
        let migrated = added(how);
        assert!(migrated.text.contains("headers = { remove = \"x-user\" }"), "{}", migrated.text);
        assert!(
            migrated.text.contains("no client can choose it") && !migrated.is_whole_but_paths(),
            "{}",
            migrated.text
        );
    }
    let appended = added("append_action: APPEND_IF_EXISTS_OR_ADD");
    assert!(!appended.text.contains("remove =") && !appended.is_whole_but_paths(), "{}", appended.text);
}

#[test]
fn filters_that_a_route_or_what_is_around_it_switches_on_close_it() {
    let on = |name: &str| {
        format!("typed_per_filter_config: {{ {name}: {{ \"@type\": a.FilterConfig, config: {{}} }} }},")
    };
    let route =
        |prefix: &str, own: &str| format!("{{ match: {{ {prefix} }}, {own} route: {{ cluster: c }} }}");
    let plain = route("prefix: /", "");
    for (name, kind) in
        [("envoy.filters.http.rbac", "RBAC"), ("authz", "ExtAuthz"), ("j", "JwtAuthentication"), ("l", "Lua")]
    {
        let filter = format!("{{ name: {name}, disabled: true, typed_config: {{ \"@type\": a.{kind} }} }}");
        let on = on(name);
        let guarded = route("prefix: /a", &on);
        let routed = forwarding(&filter, &format!("routes: [{guarded}, {plain}]"), "");
        let closed = "path = \"/a{*rest}\"\nrespond = { status = 501";
        assert!(routed.text.contains(closed) && routed.text.contains("to = \"c\""), "{}", routed.text);
        assert!(
            !routed.is_whole_but_paths() && routed.text.contains("which may refuse requests"),
            "{}",
            routed.text
        );
        // Its condition cannot be said, so its path is closed.
        let unsaid = route(
            "prefix: /a, runtime_fraction: { default_value: { numerator: 1 } }, headers: [{ name: x, safe_regex_match: { regex: a.b } }]",
            &on,
        );
        let unsaid = forwarding(&filter, &format!("routes: [{unsaid}, {plain}]"), "");
        assert!(unsaid.text.contains(closed), "{}", unsaid.text);
        let clusters = format!(
            "{{ match: {{ prefix: / }}, route: {{ weighted_clusters: {{ clusters: [{{ name: c, weight: 1, {on} }}] }} }} }}"
        );
        for (host, table) in [
            (format!("{on} routes: [{plain}]"), ""),
            (format!("routes: [{plain}]"), on.as_str()),
            (format!("routes: [{clusters}]"), ""),
        ] {
            let migrated = forwarding(&filter, &host, table);
            assert!(
                !migrated.text.contains("to = \"c\"") && !migrated.is_whole_but_paths(),
                "{}",
                migrated.text
            );
        }
        // Off again for one route.
        let off = on.replace("config: {}", "disabled: true");
        let lifted = forwarding(&filter, &format!("{on} routes: [{}]", route("prefix: /", &off)), "");
        assert!(lifted.text.contains("to = \"c\""), "{}", lifted.text);
        let unused = forwarding(&filter, &format!("routes: [{plain}]"), "");
        assert!(unused.text.contains("to = \"c\""), "{}", unused.text);
    }
}

#[test]
fn paths_that_are_read_otherwise_are_listed_unless_envoy_reads_them_so() {
    let plain = "routes: [{ match: { prefix: / }, route: { cluster: c } }]";
    let manager = |keys: &str| forwarding(&format!("]\n{keys}          upgrade_configs: ["), plain, "");
    let bare = manager("");
    assert!(bare.text.contains("#   `envoy.yaml`: paths with an encoded slash, "), "{}", bare.text);
    assert!(!bare.is_whole && bare.text.contains("`/%41` to `/A`"), "{}", bare.text);
    let normalized = manager("          normalize_path: true\n          merge_slashes: true\n");
    assert!(
        normalized.text.contains("an encoded slash") && !normalized.text.contains("/%41"),
        "{}",
        normalized.text
    );
    let rejected = manager("          path_with_escaped_slashes_action: REJECT_REQUEST\n");
    assert!(
        !rejected.text.contains("an encoded slash") && rejected.text.contains("`;`"),
        "{}",
        rejected.text
    );
}

#[test]
fn a_filter_that_changes_headers_of_requests_closes_its_listener() {
    let filter = |key: &str| {
        let mutations = format!("mutations: {{ {key}: [{{ remove: x-user }}] }}");
        let filter = format!("{{ name: h, typed_config: {{ \"@type\": a.HeaderMutation, {mutations} }} }}");
        forwarding(&filter, "routes: [{ match: { prefix: / }, route: { cluster: c } }]", "")
    };
    let requests = filter("request_mutations");
    assert!(!requests.text.contains("to = \"c\"") && !requests.is_whole, "{}", requests.text);
    let responses = filter("response_mutations");
    assert!(responses.text.contains("to = \"c\"") && !responses.is_whole_but_paths(), "{}", responses.text);
}
