//! What keeps clients out in Envoy keeps them out here.

use super::super::{From, Migrated, migrate_text};

/// A listener with these chains, each of which is a match, a transport socket and the answer to everything.
fn listener(chains: &[(&str, &str, u16)], more: &str) -> Migrated {
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

fn read(text: &str) -> Migrated {
    let migrated = migrate_text(From::Envoy, "envoy.yaml", text).expect("it can be parsed");
    assert!(migrated.errors.is_none(), "{:?}\n{}", migrated.errors, migrated.text);
    migrated
}

fn is_closed(migrated: &Migrated) -> bool {
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
        assert!(!migrated.is_whole && migrated.text.contains("answered 403"), "{}", migrated.text);
    }
    // Behind the PROXY protocol they are other addresses.
    let matched = "source_prefix_ranges: [{ address_prefix: 10.0.0.0, prefix_len: 8 }]";
    let proxied = "    listener_filters: [{ name: envoy.filters.listener.proxy_protocol }]\n";
    assert!(is_closed(&listener(&[(matched, "", 204)], proxied)));
    // The same clients of two chains for the same names have two sets of routes.
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
        assert!(is_closed(&migrated) && !migrated.is_whole, "{matched}\n{}", migrated.text);
        assert!(migrated.text.contains("`filter_chain_match`: which connections"), "{}", migrated.text);
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
        assert!(migrated.is_whole && migrated.text.contains("status = 204"), "{matched}\n{}", migrated.text);
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
    assert!(!migrated.is_whole);
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
            assert!(is_closed(&migrated) && !migrated.is_whole, "{matched}\n{}", migrated.text);
        }
    }
    let clear = "headers: [{ name: x-forwarded-proto, string_match: { exact: https }, invert_match: true }]";
    let migrated = routes(clear, "redirect: { https_redirect: true }");
    assert!(migrated.text.contains("status = 204") && !migrated.is_whole, "{}", migrated.text);
}
