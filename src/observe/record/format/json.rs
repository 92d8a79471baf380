//! An [`AccessEntry`] as one line of JSON. It is written by hand and not by serde, because it runs once a request.

use std::net::IpAddr;

use http::HeaderValue;

use super::bounds::{ID_BYTES_MAX, METHOD_BYTES_MAX, NAME_BYTES_MAX};
use super::date;
use super::escape::{self, Escape};
use super::names::FieldNames;
use super::target;
use super::value::{push_address, push_digits};
use crate::record::AccessEntry;
use base::hex;
use base::identity::NO_ADDRESS;

/// Appends one line without its line feed: less than [`super::bounds::LINE_BYTES_MAX`] bytes.
pub(super) fn push<N: FieldNames>(out: &mut Vec<u8>, second: &date::Text, entry: &AccessEntry<'_>) {
    out.extend_from_slice(N::TIME);
    date::push(out, second, entry.time);
    out.push(b'"');
    push_client::<N>(out, entry);
    push_request::<N>(out, entry);
    push_verdict::<N>(out, entry);
    push_upstream::<N>(out, entry);
    push_times::<N>(out, entry);
    out.push(b'}');
}

fn push_client<N: FieldNames>(out: &mut Vec<u8>, entry: &AccessEntry<'_>) {
    push_text(out, N::REQUEST_ID, entry.request_id, ID_BYTES_MAX);
    if let Some(trace) = entry.trace {
        out.extend_from_slice(N::TRACE_ID);
        out.extend_from_slice(&trace.digits);
        out.push(b'"');
        if let Some(span_id) = trace.span_id {
            out.extend_from_slice(N::SPAN_ID);
            out.extend_from_slice(&hex::digits(span_id.get()));
            out.push(b'"');
        }
    }
    push_text(out, N::NODE, entry.node.as_bytes(), NAME_BYTES_MAX);
    push_text(out, N::LISTENER, entry.listener.as_bytes(), NAME_BYTES_MAX);
    push_end(out, [N::CLIENT, N::CLIENT_UNIX], entry.client);
    push_end(out, [N::PEER, N::PEER_UNIX], entry.other_end());
    push_word(out, N::PROTOCOL, version::<N>(entry.protocol, "HTTP/"));
    push_word(out, N::TLS, version::<N>(entry.tls, "TLSv"));
    push_text(out, N::SNI, entry.sni, NAME_BYTES_MAX);
}

/// Appends an end of the connection: under the second key if it has no address.
fn push_end(out: &mut Vec<u8>, keys: [&[u8]; 2], address: Option<IpAddr>) {
    if let Some(address) = address {
        out.extend_from_slice(keys[usize::from(address == NO_ADDRESS)]);
        push_address(out, address);
        out.push(b'"');
    }
}

/// A version with or without the name before it.
fn version<N: FieldNames>(text: &'static str, name: &str) -> &'static str {
    match N::CUT_VERSIONS {
        true => text.strip_prefix(name).unwrap_or(text),
        false => text,
    }
}

fn push_request<N: FieldNames>(out: &mut Vec<u8>, entry: &AccessEntry<'_>) {
    push_text(out, N::METHOD, entry.method, METHOD_BYTES_MAX);
    let (host, port) = if N::SPLIT_HOST { host_and_port(entry.host) } else { (entry.host, None) };
    push_text(out, N::HOST, host, NAME_BYTES_MAX);
    push_number_if(out, N::PORT, port.map(u64::from));
    if !entry.path.is_empty() {
        out.extend_from_slice(N::PATH);
        target::push(out, entry, Escape::Json);
        out.push(b'"');
    }
    push_text(out, N::ROUTE, entry.route.as_bytes(), NAME_BYTES_MAX);
    push_text(out, N::CONSUMER, entry.consumer.as_bytes(), NAME_BYTES_MAX);
    push_text(out, N::TENANT, entry.tenant.as_bytes(), NAME_BYTES_MAX);
    push_text(out, N::TIER, entry.tier.as_bytes(), NAME_BYTES_MAX);
    push_fields::<N>(out, entry);
}

/// An authority without its port, and the port. The brackets of an address of IPv6 stay.
fn host_and_port(authority: &[u8]) -> (&[u8], Option<u16>) {
    let Some(colon) = authority.iter().rposition(|byte| *byte == b':') else { return (authority, None) };
    let digits = std::str::from_utf8(&authority[colon + 1..]).unwrap_or_default();
    match digits.parse() {
        Ok(port) if digits.bytes().all(|byte| byte.is_ascii_digit()) => (&authority[..colon], Some(port)),
        _ => (authority, None),
    }
}

/// Appends the configured header fields: first those with a key of their own, then the others under one key.
fn push_fields<N: FieldNames>(out: &mut Vec<u8>, entry: &AccessEntry<'_>) {
    let mut is_open = false;
    for (field, value) in entry.fields.iter().zip(entry.values) {
        let Some(value) = value.as_ref().map(HeaderValue::as_bytes).filter(|value| !value.is_empty()) else {
            continue;
        };
        if !field.is_own {
            out.extend_from_slice(if is_open { b"," } else { N::HEADERS });
            if !is_open {
                out.push(b'{');
            }
            is_open = true;
        }
        out.extend_from_slice(&field.key);
        target::push_field(out, value, field.is_url, entry.shown_query, Escape::Json);
        out.push(b'"');
    }
    if is_open {
        out.push(b'}');
    }
}

fn push_verdict<N: FieldNames>(out: &mut Vec<u8>, entry: &AccessEntry<'_>) {
    push_number(out, N::STATUS, u64::from(entry.status));
    push_number_if(out, N::GRPC_STATUS, entry.grpc_status.map(u64::from));
    push_word(out, N::REASON, entry.reason);
    push_word(out, N::CAUSE, entry.cause);
    if entry.decision.is_empty() {
        return;
    }
    push_word(out, N::DECISION, entry.decision);
    push_word(out, N::DECIDED, entry.decided);
    push_text(out, N::POLICY, entry.policy.as_bytes(), NAME_BYTES_MAX);
    if let Some(left) = entry.left {
        push_number(out, N::LIMIT, left.limit);
        push_number(out, N::REMAINING, left.remaining);
    }
}

fn push_upstream<N: FieldNames>(out: &mut Vec<u8>, entry: &AccessEntry<'_>) {
    push_text(out, N::UPSTREAM, entry.upstream.as_bytes(), NAME_BYTES_MAX);
    push_text(out, N::SERVER, entry.server.as_bytes(), NAME_BYTES_MAX);
    push_number(out, N::RETRIES, u64::from(entry.retries));
}

fn push_times<N: FieldNames>(out: &mut Vec<u8>, entry: &AccessEntry<'_>) {
    push_number_if(out, N::TOTAL, entry.total_us.map(|total_us| total_us.saturating_mul(N::TOTAL_TIMES)));
    push_number_if(out, N::DECIDE, entry.decide_us);
    push_number_if(out, N::DELAY, entry.delay_us);
    push_number_if(out, N::WAIT, entry.wait_us);
    push_number_if(out, N::CONNECT, entry.connect_us);
    push_number_if(out, N::FIRST_BYTE, entry.first_byte_us);
    push_number(out, N::BYTES_IN, entry.bytes_in);
    push_number(out, N::BYTES_OUT, entry.bytes_out);
}

fn push_text(out: &mut Vec<u8>, key: &[u8], text: &[u8], bytes_max: usize) {
    if text.is_empty() {
        return;
    }
    out.extend_from_slice(key);
    Escape::Json.push(out, text, bytes_max);
    out.push(b'"');
}

/// Appends a text without escapes, because it is one of ours.
fn push_word(out: &mut Vec<u8>, key: &[u8], word: &'static str) {
    if word.is_empty() {
        return;
    }
    debug_assert!(escape::is_plain(word.as_bytes()), "{word}");
    out.extend_from_slice(key);
    out.extend_from_slice(word.as_bytes());
    out.push(b'"');
}

fn push_number(out: &mut Vec<u8>, key: &[u8], number: u64) {
    out.extend_from_slice(key);
    push_digits(out, number);
}

fn push_number_if(out: &mut Vec<u8>, key: &[u8], number: Option<u64>) {
    if let Some(number) = number {
        push_number(out, key, number);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;
    use crate::record::format::LogFormat;
    use crate::record::format::bounds::LINE_BYTES_MAX;
    use crate::record::format::formatter::Formatter;
    use crate::record::format::target::PATH_BYTES_MAX;
    use crate::record::{
        AccessConfig, FIELD_NAME_BYTES_MAX, FIELDS_MAX, LoggedParts, QueryDetail, RemainingLimit, Style,
    };
    use crate::trace::TraceIds;

    fn shown(names: &[&str], format: LogFormat) -> LoggedParts {
        let headers = names.iter().map(|name| name.parse().expect("a name")).collect();
        LoggedParts::new(&AccessConfig { headers, format, ..AccessConfig::default() })
    }

    fn line(format: &LogFormat, entry: &AccessEntry<'_>) -> Vec<u8> {
        let mut out = Vec::new();
        let style = Style { format: format.clone(), ..Style::default() };
        Formatter::new().push(&mut out, &style, entry);
        out
    }

    fn parsed(entry: &AccessEntry<'_>) -> Value {
        serde_json::from_slice(&line(&LogFormat::Json, entry)).expect("a line is JSON")
    }

    #[test]
    fn a_full_entry_shows_every_field() {
        let shown = shown(&["x-trace", "referer", "user-agent", "x-plan"], LogFormat::Json);
        let values = ["https://a/b?c=d", "curl/8", "1", "2"].map(|text| HeaderValue::from_str(text).ok());
        let entry = AccessEntry {
            time: Duration::from_millis(1_709_164_800_007),
            request_id: b"01J",
            trace: TraceIds::new(0x0af7651916cd43dd8448eb211c80319c, 0xb7ad6b7169203331),
            node: "gw-1",
            listener: "edge",
            client: Some([192, 0, 2, 200].into()),
            peer: Some("2001:db8::1".parse().expect("an address")),
            protocol: "HTTP/2.0",
            tls: "TLSv1.3",
            sni: b"api.example.com",
            method: b"GET",
            host: b"api.example.com",
            path: b"/v1/orders/7",
            query: Some(b"x=\"1\""),
            shown_query: QueryDetail::Keep,
            route: "orders",
            consumer: "ann",
            tenant: "acme",
            tier: "pro",
            fields: &shown.fields,
            values: &values,
            status: 429,
            grpc_status: Some(8),
            reason: "over-limit",
            cause: "token-expired",
            decision: "denied",
            policy: "per-tenant",
            decided: "global",
            left: Some(RemainingLimit { limit: 100, remaining: 7 }),
            upstream: "orders",
            server: "10.0.1.10:8080",
            retries: 1,
            total_us: Some(1_234),
            decide_us: Some(2),
            delay_us: Some(3),
            wait_us: Some(0),
            connect_us: Some(400),
            first_byte_us: Some(800),
            bytes_in: 10,
            bytes_out: u64::MAX,
        };
        let expected = json!({
            "time": "2024-02-29T00:00:00.007Z", "request_id": "01J",
            "trace_id": "0af7651916cd43dd8448eb211c80319c", "span_id": "b7ad6b7169203331", "node": "gw-1", "listener": "edge",
            "client": "192.0.2.200", "peer": "2001:db8::1", "protocol": "HTTP/2.0", "tls": "TLSv1.3",
            "sni": "api.example.com", "method": "GET", "host": "api.example.com",
            "path": "/v1/orders/7?x=\"1\"", "route": "orders", "consumer": "ann", "tenant": "acme", "tier": "pro",
            "referer": "https://a/b?c=d", "user_agent": "curl/8", "headers": { "x-trace": "1", "x-plan": "2" },
            "status": 429, "grpc_status": 8, "reason": "over-limit", "cause": "token-expired",
            "decision": "denied", "decided": "global", "policy": "per-tenant", "limit": 100,
            "remaining": 7, "upstream": "orders", "server": "10.0.1.10:8080",
            "retries": 1, "total_us": 1234, "decide_us": 2, "delay_us": 3, "wait_us": 0, "connect_us": 400,
            "first_byte_us": 800, "bytes_in": 10, "bytes_out": u64::MAX,
        });
        assert_eq!(parsed(&entry), expected);
    }

    #[test]
    fn names_of_the_elastic_common_schema_are_its_own() {
        let shown = shown(&["user-agent", "referer", "x-plan"], LogFormat::Ecs);
        let values = ["curl/8", "https://a/b?c=d", "2"].map(|text| HeaderValue::from_str(text).ok());
        let entry = AccessEntry {
            time: Duration::from_millis(1_709_164_800_007),
            request_id: b"01J",
            trace: TraceIds::new(1, 2),
            node: "gw-1",
            client: Some([192, 0, 2, 200].into()),
            peer: Some([192, 0, 2, 1].into()),
            protocol: "HTTP/2.0",
            tls: "TLSv1.3",
            method: b"GET",
            host: b"api.example.com",
            path: b"/a",
            query: Some(b"b=c"),
            consumer: "ann",
            tenant: "acme",
            fields: &shown.fields,
            values: &values,
            status: 429,
            reason: "over-limit",
            decision: "denied",
            policy: "per-tenant",
            left: Some(RemainingLimit { limit: 100, remaining: 0 }),
            server: "10.0.1.10:8080",
            total_us: Some(1_234),
            bytes_in: 10,
            bytes_out: 20,
            ..AccessEntry::default()
        };
        let line: Value = serde_json::from_slice(&line(&LogFormat::Ecs, &entry)).expect("a line is JSON");
        let expected = json!({
            "ecs.version": "9.1.0", "event.dataset": "sluicegate.access", "@timestamp": "2024-02-29T00:00:00.007Z",
            "http.request.id": "01J", "trace.id": format!("{:032x}", 1), "span.id": format!("{:016x}", 2),
            "service.node.name": "gw-1", "client.ip": "192.0.2.200", "source.ip": "192.0.2.1", "http.version": "2.0",
            "tls.version": "1.3", "http.request.method": "GET", "url.domain": "api.example.com", "url.original": "/a?b=*",
            "user.name": "ann", "organization.id": "acme", "user_agent.original": "curl/8",
            "http.request.referrer": "https://a/b?c=*", "sluicegate.headers": { "x-plan": "2" },
            "http.response.status_code": 429, "error.code": "over-limit", "sluicegate.decision": "denied",
            "sluicegate.policy": "per-tenant", "sluicegate.limit": 100, "sluicegate.remaining": 0,
            "destination.address": "10.0.1.10:8080", "sluicegate.retries": 0, "event.duration": 1_234_000,
            "http.request.body.bytes": 10, "http.response.body.bytes": 20,
        });
        assert_eq!(line, expected);
    }

    #[test]
    fn a_client_without_an_address_has_none_of_the_schema_s() {
        let ecs = |entry: &AccessEntry<'_>| -> Value {
            serde_json::from_slice(&line(&LogFormat::Ecs, entry)).expect("a line is JSON")
        };
        let socket = ecs(&AccessEntry { client: Some(NO_ADDRESS), ..AccessEntry::default() });
        assert_eq!((&socket["client.ip"], &socket["client.address"]), (&Value::Null, &json!("unix")));
        let behind = AccessEntry {
            client: Some([192, 0, 2, 1].into()),
            peer: Some(NO_ADDRESS),
            ..AccessEntry::default()
        };
        let behind = ecs(&behind);
        assert_eq!((&behind["source.ip"], &behind["source.address"]), (&Value::Null, &json!("unix")));
        assert_eq!(behind["client.ip"], "192.0.2.1");
    }

    #[test]
    fn the_schema_has_host_and_port_apart() {
        let of = |host: &str| {
            let entry = AccessEntry { host: host.as_bytes(), ..AccessEntry::default() };
            let line: Value = serde_json::from_slice(&line(&LogFormat::Ecs, &entry)).expect("JSON");
            (line["url.domain"].as_str().unwrap_or_default().to_owned(), line["url.port"].as_u64())
        };
        for (host, domain, port) in [
            ("api.example.com:8443", "api.example.com", Some(8443)),
            ("api.example.com", "api.example.com", None),
            ("[2001:db8::1]:443", "[2001:db8::1]", Some(443)),
            ("[2001:db8::1]", "[2001:db8::1]", None),
            ("a:99999", "a:99999", None),
            ("a:", "a:", None),
        ] {
            assert_eq!(of(host), (domain.to_owned(), port), "{host}");
        }
        assert_eq!(parsed(&AccessEntry { host: b"a:8443", ..AccessEntry::default() })["host"], "a:8443");
    }

    #[test]
    fn what_is_not_known_is_left_out() {
        let expected = json!({
            "time": "1970-01-01T00:00:00.000Z", "status": 0, "retries": 0,
            "bytes_in": 0, "bytes_out": 0,
        });
        assert_eq!(parsed(&AccessEntry::default()), expected);
        let client = Some([127, 0, 0, 1].into());
        let entry = AccessEntry { client, peer: client, ..AccessEntry::default() };
        assert_eq!(parsed(&entry).get("peer"), None, "the peer is the client itself");
    }

    #[test]
    fn of_a_query_as_much_is_shown_as_is_wanted() {
        let path_of = |query: Option<&str>, shown_query| {
            let entry = AccessEntry {
                path: b"/a",
                query: query.map(str::as_bytes),
                shown_query,
                ..AccessEntry::default()
            };
            parsed(&entry)["path"].as_str().expect("a path").to_owned()
        };
        for (query, names) in [
            ("a=1&b=2", "/a?a=*&b=*"),
            ("a=", "/a?a="),
            ("a=&&b", "/a?a=&&*"),
            ("sk_live_73577357", "/a?*"),
            ("a=1=2&%61=\u{2028}", "/a?a=*&%61=*"),
            ("a;b=1;c=2", "/a?a;b=*"),
            ("", "/a?"),
        ] {
            assert_eq!(path_of(Some(query), QueryDetail::Names), names);
            assert_eq!(path_of(Some(query), QueryDetail::Keep), format!("/a?{query}"));
            assert_eq!(path_of(Some(query), QueryDetail::Drop), "/a");
        }
        assert_eq!(path_of(None, QueryDetail::Names), "/a");
        let long = format!("{}={}", "n".repeat(3_000), "v");
        assert_eq!(path_of(Some(&long), QueryDetail::Names), "/a?\u{2026}");
        assert_eq!(path_of(Some(&long), QueryDetail::Keep).len(), PATH_BYTES_MAX + "\u{2026}".len());
        let many = "a=1&".repeat(2_000);
        let shown = path_of(Some(&many), QueryDetail::Names);
        assert!(
            shown.ends_with("\u{2026}") && shown.len() <= PATH_BYTES_MAX + "\u{2026}".len(),
            "{}",
            shown.len()
        );
    }

    #[test]
    fn the_worst_line_fits_its_bound() {
        let (bytes, text) = ([0xff; 10_000], "\u{1}".repeat(10_000));
        let names: Vec<String> = (0..FIELDS_MAX)
            .map(|number| format!("{number}{}", "x".repeat(FIELD_NAME_BYTES_MAX - 1)))
            .collect();
        let names: Vec<_> = names.iter().map(String::as_str).collect();
        let (shown, ecs) = (shown(&names, LogFormat::Json), shown(&names, LogFormat::Ecs));
        let values: Vec<_> = names.iter().map(|_| HeaderValue::from_bytes(&bytes).ok()).collect();
        let entry = AccessEntry {
            time: Duration::MAX,
            request_id: &bytes,
            trace: TraceIds::new(u128::MAX, u64::MAX),
            node: &text,
            listener: &text,
            client: Some([0xff; 16].into()),
            peer: Some([0xee; 16].into()),
            protocol: "HTTP/1.1",
            tls: "TLSv1.3",
            sni: &bytes,
            method: &bytes,
            host: &bytes,
            path: &bytes,
            query: Some(&bytes),
            shown_query: QueryDetail::Names,
            route: &text,
            consumer: &text,
            tenant: &text,
            tier: &text,
            fields: &shown.fields,
            values: &values,
            status: u16::MAX,
            grpc_status: Some(u32::MAX),
            reason: "a-reason-of-common-length",
            cause: "a-cause-of-common-length",
            decision: "shadow-denied",
            policy: &text,
            decided: "fallback",
            left: Some(RemainingLimit { limit: u64::MAX, remaining: u64::MAX }),
            upstream: &text,
            server: &text,
            retries: u32::MAX,
            total_us: Some(u64::MAX),
            decide_us: Some(u64::MAX),
            delay_us: Some(u64::MAX),
            wait_us: Some(u64::MAX),
            connect_us: Some(u64::MAX),
            first_byte_us: Some(u64::MAX),
            bytes_in: u64::MAX,
            bytes_out: u64::MAX,
        };
        assert!(parsed(&entry).is_object());
        assert!(line(&LogFormat::Json, &entry).len() <= LINE_BYTES_MAX);
        let entry = AccessEntry { fields: &ecs.fields, ..entry };
        let line = line(&LogFormat::Ecs, &entry);
        assert!(line.len() <= LINE_BYTES_MAX);
        assert!(serde_json::from_slice::<Value>(&line).is_ok_and(|line| line.is_object()));
    }

    proptest! {
        #[test]
        fn any_bytes_in_any_field_give_one_line_that_parses_back(
            texts in prop::array::uniform5(prop::collection::vec(any::<u8>(), 1..32)),
            names in prop::array::uniform5("(?s).{1,40}"),
            status in 0u16..1000,
            numbers in any::<[u64; 3]>(),
            client in any::<std::net::IpAddr>(),
        ) {
            let entry = AccessEntry {
                request_id: &texts[0],
                sni: &texts[1],
                method: &texts[2],
                host: &texts[3],
                path: &texts[4],
                listener: &names[0],
                route: &names[1],
                decision: "denied",
            policy: &names[2],
                upstream: &names[3],
                server: &names[4],
                client: Some(client),
                status,
                total_us: Some(numbers[0]),
                bytes_in: numbers[1],
                wait_us: Some(numbers[2]),
                ..AccessEntry::default()
            };
            let line = line(&LogFormat::Json, &entry);
            let end = line.iter().position(|byte| *byte < 0x20 || *byte >= 0x7f);
            prop_assert_eq!(end, Some(line.len() - 1), "only the line feed at its end is not printable ASCII");
            let value = parsed(&entry);
            for (key, text) in ["request_id", "sni", "method", "host", "path"].into_iter().zip(&texts) {
                prop_assert_eq!(value[key].as_str(), Some(&*String::from_utf8_lossy(text)));
            }
            for (key, name) in ["listener", "route", "policy", "upstream", "server"].into_iter().zip(&names) {
                prop_assert_eq!(value[key].as_str(), Some(name.as_str()));
            }
            let shown = if client == NO_ADDRESS { "unix".to_owned() } else { client.to_string() };
            prop_assert_eq!(&value["client"], &json!(shown));
            prop_assert_eq!(value["status"].as_u64(), Some(u64::from(status)));
            let found = ["total_us", "bytes_in", "wait_us"].map(|key| value[key].as_u64());
            prop_assert_eq!(found, numbers.map(Some));
        }
    }
}
