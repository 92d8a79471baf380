//! An [`Entry`] as one line of JSON. It is written by hand and not by serde, because it runs once a request.

use std::io::Write;
use std::net::IpAddr;

use http::HeaderValue;

use super::entry::{Decision, Entry};
use super::shown::FIELD_BYTES_MAX;
use super::{FIELD_NAME_BYTES_MAX, FIELDS_MAX, Query, date, escape};
use crate::unix_socket::NO_ADDRESS;

/// Formats lines, and keeps the text of the current second between them, which saves formatting the date again.
#[derive(Debug)]
pub(super) struct Formatter {
    unix_seconds: u64,
    date: date::Text,
}

impl Formatter {
    pub(super) fn new() -> Formatter {
        Formatter { unix_seconds: 0, date: date::text(0) }
    }

    /// Appends one line with its line feed: at most [`LINE_BYTES_MAX`] bytes.
    pub(super) fn push(&mut self, out: &mut Vec<u8>, entry: &Entry<'_>) {
        self.push_time(out, entry);
        push_client(out, entry);
        push_request(out, entry);
        push_verdict(out, entry);
        push_upstream(out, entry);
        push_times(out, entry);
        out.extend_from_slice(b"}\n");
    }

    fn push_time(&mut self, out: &mut Vec<u8>, entry: &Entry<'_>) {
        let seconds = entry.time.as_secs();
        if seconds != self.unix_seconds {
            *self = Formatter { unix_seconds: seconds, date: date::text(seconds) };
        }
        let mut fraction = *b".000Z\"";
        date::put(&mut fraction[1..4], u64::from(entry.time.subsec_millis()));
        out.extend_from_slice(b"{\"time\":\"");
        out.extend_from_slice(&self.date);
        out.extend_from_slice(&fraction);
    }
}

/// `,"name":` as bytes.
macro_rules! key {
    ($name:literal) => {
        concat!(",\"", $name, "\":").as_bytes()
    };
}

/// `,"name":"` as bytes. The opening quote of a text is part of its key, which saves one copy for each field.
macro_rules! text_key {
    ($name:literal) => {
        concat!(",\"", $name, "\":\"").as_bytes()
    };
}

fn push_client(out: &mut Vec<u8>, entry: &Entry<'_>) {
    push_text(out, text_key!("request_id"), entry.request_id, ID_BYTES_MAX);
    push_text(out, text_key!("listener"), entry.listener.as_bytes(), NAME_BYTES_MAX);
    push_address(out, text_key!("client"), entry.client);
    if entry.peer != entry.client {
        push_address(out, text_key!("peer"), entry.peer);
    }
    push_word(out, text_key!("protocol"), entry.protocol);
    push_word(out, text_key!("tls"), entry.tls);
    push_text(out, text_key!("sni"), entry.sni, NAME_BYTES_MAX);
}

fn push_request(out: &mut Vec<u8>, entry: &Entry<'_>) {
    push_text(out, text_key!("method"), entry.method, METHOD_BYTES_MAX);
    push_text(out, text_key!("host"), entry.host, NAME_BYTES_MAX);
    push_target(out, entry);
    push_text(out, text_key!("route"), entry.route.as_bytes(), NAME_BYTES_MAX);
    push_text(out, text_key!("consumer"), entry.consumer.as_bytes(), NAME_BYTES_MAX);
    push_text(out, text_key!("tenant"), entry.tenant.as_bytes(), NAME_BYTES_MAX);
    push_text(out, text_key!("tier"), entry.tier.as_bytes(), NAME_BYTES_MAX);
    push_fields(out, entry);
}

fn push_target(out: &mut Vec<u8>, entry: &Entry<'_>) {
    if entry.path.is_empty() {
        return;
    }
    out.extend_from_slice(text_key!("path"));
    escape::push(out, entry.path, PATH_BYTES_MAX);
    if let Some(query) = entry.query
        && let Some(left) = PATH_BYTES_MAX.checked_sub(entry.path.len())
    {
        push_query(out, query, entry.shown_query, left);
    }
    out.push(b'"');
}

/// Appends the part of a query that is shown, with its `?`: at most `left` bytes before escaping.
fn push_query(out: &mut Vec<u8>, query: &[u8], shown: Query, left: usize) {
    if shown == Query::Drop {
        return;
    }
    let Some(mut left) = left.checked_sub(1) else { return out.extend_from_slice(escape::CUT) };
    out.push(b'?');
    if shown == Query::Keep {
        return escape::push(out, query, left);
    }
    for (index, pair) in query.split(|byte| *byte == b'&').enumerate() {
        // A parameter without `=` may be a bare value, so it is masked.
        let equals = pair.iter().position(|byte| *byte == b'=');
        let (name, is_hidden) = match equals {
            Some(equals) => (&pair[..=equals], equals + 1 < pair.len()),
            None => (&pair[..0], !pair.is_empty()),
        };
        let bytes = usize::from(index > 0) + name.len() + usize::from(is_hidden);
        let Some(rest) = left.checked_sub(bytes) else { return out.extend_from_slice(escape::CUT) };
        left = rest;
        if index > 0 {
            out.push(b'&');
        }
        escape::push(out, name, name.len());
        if is_hidden {
            out.push(b'*');
        }
    }
}

/// Appends the configured header fields: first those with a key of their own, then the others under `headers`.
fn push_fields(out: &mut Vec<u8>, entry: &Entry<'_>) {
    let mut is_open = false;
    for (field, value) in entry.fields.iter().zip(entry.values) {
        let Some(value) = value.as_ref().map(HeaderValue::as_bytes).filter(|value| !value.is_empty()) else {
            continue;
        };
        if !field.is_own {
            out.extend_from_slice(if is_open { b"," } else { key!("headers") });
            if !is_open {
                out.push(b'{');
            }
            is_open = true;
        }
        out.extend_from_slice(&field.key);
        let query = value.iter().position(|byte| *byte == b'?').filter(|_| field.is_url);
        match query {
            Some(at) if at < FIELD_BYTES_MAX => {
                escape::push(out, &value[..at], FIELD_BYTES_MAX);
                push_query(out, &value[at + 1..], entry.shown_query, FIELD_BYTES_MAX - at);
            }
            _ => escape::push(out, value, FIELD_BYTES_MAX),
        }
        out.push(b'"');
    }
    if is_open {
        out.push(b'}');
    }
}

fn push_verdict(out: &mut Vec<u8>, entry: &Entry<'_>) {
    push_number(out, key!("status"), u64::from(entry.status));
    push_word(out, text_key!("reason"), entry.reason);
    push_word(out, text_key!("cause"), entry.cause);
    let (decision, policy) = match entry.decision {
        Decision::None => return,
        Decision::Admitted => ("admitted", ""),
        Decision::Denied(policy) => ("denied", policy),
        Decision::ShadowDenied(policy) => ("shadow-denied", policy),
        Decision::Penalised(policy) => ("penalised", policy),
        Decision::ShadowPenalised(policy) => ("shadow-penalised", policy),
    };
    push_word(out, text_key!("decision"), decision);
    push_word(out, text_key!("decided"), entry.decided);
    push_text(out, text_key!("policy"), policy.as_bytes(), NAME_BYTES_MAX);
}

fn push_upstream(out: &mut Vec<u8>, entry: &Entry<'_>) {
    push_text(out, text_key!("upstream"), entry.upstream.as_bytes(), NAME_BYTES_MAX);
    push_text(out, text_key!("server"), entry.server.as_bytes(), NAME_BYTES_MAX);
    push_number(out, key!("retries"), u64::from(entry.retries));
}

fn push_times(out: &mut Vec<u8>, entry: &Entry<'_>) {
    push_number_if(out, key!("total_us"), entry.total_us);
    push_number_if(out, key!("decide_us"), entry.decide_us);
    push_number_if(out, key!("delay_us"), entry.delay_us);
    push_number_if(out, key!("wait_us"), entry.wait_us);
    push_number_if(out, key!("connect_us"), entry.connect_us);
    push_number_if(out, key!("first_byte_us"), entry.first_byte_us);
    push_number(out, key!("bytes_in"), entry.bytes_in);
    push_number(out, key!("bytes_out"), entry.bytes_out);
}

fn push_text(out: &mut Vec<u8>, key: &[u8], text: &[u8], bytes_max: usize) {
    if text.is_empty() {
        return;
    }
    out.extend_from_slice(key);
    escape::push(out, text, bytes_max);
    out.push(b'"');
}

/// Appends a text that is one of ours and needs no escapes.
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
    out.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
}

fn push_number_if(out: &mut Vec<u8>, key: &[u8], number: Option<u64>) {
    if let Some(number) = number {
        push_number(out, key, number);
    }
}

fn push_address(out: &mut Vec<u8>, key: &[u8], address: Option<IpAddr>) {
    let Some(address) = address else {
        return;
    };
    out.extend_from_slice(key);
    match address {
        NO_ADDRESS => out.extend_from_slice(b"unix"),
        // By hand, because the standard formatter would take a fifth of the time of the whole line.
        IpAddr::V4(address) => {
            for (index, octet) in address.octets().into_iter().enumerate() {
                if index > 0 {
                    out.push(b'.');
                }
                out.extend_from_slice(itoa::Buffer::new().format(octet).as_bytes());
            }
        }
        IpAddr::V6(address) => write!(out, "{address}").expect("a Vec takes any bytes"),
    }
    out.push(b'"');
}

/// Bytes kept of path and query.
pub const PATH_BYTES_MAX: usize = 2048;
/// Bytes kept of a host or of any name.
const NAME_BYTES_MAX: usize = 256;
/// Bytes kept of a request id.
const ID_BYTES_MAX: usize = 128;
/// Bytes kept of a method.
const METHOD_BYTES_MAX: usize = 32;
/// The longest possible line: six times the bytes kept of each text, and room for everything else.
pub(super) const LINE_BYTES_MAX: usize = 6
    * (PATH_BYTES_MAX
        + ID_BYTES_MAX
        + METHOD_BYTES_MAX
        + 14 * NAME_BYTES_MAX
        + FIELDS_MAX * (FIELD_BYTES_MAX + FIELD_NAME_BYTES_MAX))
    + 1536;

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;
    use crate::record::{AccessConfig, Shown, Sink};

    fn shown(names: &[&str]) -> Shown {
        let headers = names.iter().map(|name| name.parse().expect("a name")).collect();
        let (to, query) = (Sink::Stdout, Query::Names);
        Shown::new(&AccessConfig { to, sample: Vec::new(), headers, query })
    }

    fn line(entry: &Entry<'_>) -> Vec<u8> {
        let mut out = Vec::new();
        Formatter::new().push(&mut out, entry);
        out
    }

    fn parsed(entry: &Entry<'_>) -> Value {
        serde_json::from_slice(&line(entry)).expect("a line is JSON")
    }

    #[test]
    fn a_full_entry_shows_every_field() {
        let shown = shown(&["x-trace", "referer", "user-agent", "x-plan"]);
        let values = ["https://a/b?c=d", "curl/8", "1", "2"].map(|text| HeaderValue::from_str(text).ok());
        let entry = Entry {
            time: Duration::from_millis(1_709_164_800_007),
            request_id: b"01J",
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
            shown_query: Query::Keep,
            route: "orders",
            consumer: "ann",
            tenant: "acme",
            tier: "pro",
            fields: &shown.fields,
            values: &values,
            status: 429,
            reason: "over-limit",
            cause: "token-expired",
            decision: Decision::Denied("per-tenant"),
            decided: "global",
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
            "time": "2024-02-29T00:00:00.007Z", "request_id": "01J", "listener": "edge",
            "client": "192.0.2.200", "peer": "2001:db8::1", "protocol": "HTTP/2.0", "tls": "TLSv1.3",
            "sni": "api.example.com", "method": "GET", "host": "api.example.com",
            "path": "/v1/orders/7?x=\"1\"", "route": "orders", "consumer": "ann", "tenant": "acme", "tier": "pro",
            "referer": "https://a/b?c=d", "user_agent": "curl/8", "headers": { "x-trace": "1", "x-plan": "2" },
            "status": 429, "reason": "over-limit", "cause": "token-expired",
            "decision": "denied", "decided": "global", "policy": "per-tenant", "upstream": "orders", "server": "10.0.1.10:8080",
            "retries": 1, "total_us": 1234, "decide_us": 2, "delay_us": 3, "wait_us": 0, "connect_us": 400,
            "first_byte_us": 800, "bytes_in": 10, "bytes_out": u64::MAX,
        });
        assert_eq!(parsed(&entry), expected);
    }

    #[test]
    fn what_is_not_known_is_left_out() {
        let expected = json!({
            "time": "1970-01-01T00:00:00.000Z", "status": 0, "retries": 0,
            "bytes_in": 0, "bytes_out": 0,
        });
        assert_eq!(parsed(&Entry::default()), expected);
        let client = Some([127, 0, 0, 1].into());
        let entry = Entry { client, peer: client, ..Entry::default() };
        assert_eq!(parsed(&entry).get("peer"), None, "the peer is the client itself");
    }

    #[test]
    fn the_second_is_kept_and_renewed() {
        let mut formatter = Formatter::new();
        let mut times = Vec::new();
        for millis in [999, 1_000, 1_001, 999] {
            let mut out = Vec::new();
            formatter.push(&mut out, &Entry { time: Duration::from_millis(millis), ..Entry::default() });
            times.push(String::from_utf8_lossy(&out[26..32]).into_owned());
        }
        assert_eq!(times, ["00.999", "01.000", "01.001", "00.999"]);
    }

    #[test]
    fn of_a_query_as_much_is_shown_as_is_wanted() {
        let path_of = |query: Option<&str>, shown_query| {
            let entry =
                Entry { path: b"/a", query: query.map(str::as_bytes), shown_query, ..Entry::default() };
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
            assert_eq!(path_of(Some(query), Query::Names), names);
            assert_eq!(path_of(Some(query), Query::Keep), format!("/a?{query}"));
            assert_eq!(path_of(Some(query), Query::Drop), "/a");
        }
        assert_eq!(path_of(None, Query::Names), "/a");
        let long = format!("{}={}", "n".repeat(3_000), "v");
        assert_eq!(path_of(Some(&long), Query::Names), "/a?\u{2026}");
        assert_eq!(path_of(Some(&long), Query::Keep).len(), PATH_BYTES_MAX + "\u{2026}".len());
        let many = "a=1&".repeat(2_000);
        let shown = path_of(Some(&many), Query::Names);
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
        let shown = shown(&names.iter().map(String::as_str).collect::<Vec<_>>());
        let values: Vec<_> = names.iter().map(|_| HeaderValue::from_bytes(&bytes).ok()).collect();
        let entry = Entry {
            time: Duration::MAX,
            request_id: &bytes,
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
            shown_query: Query::Names,
            route: &text,
            consumer: &text,
            tenant: &text,
            tier: &text,
            fields: &shown.fields,
            values: &values,
            status: u16::MAX,
            reason: "a-reason-of-common-length",
            cause: "a-cause-of-common-length",
            decision: Decision::ShadowDenied(&text),
            decided: "fallback",
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
        assert!(line(&entry).len() <= LINE_BYTES_MAX);
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
            let entry = Entry {
                request_id: &texts[0],
                sni: &texts[1],
                method: &texts[2],
                host: &texts[3],
                path: &texts[4],
                listener: &names[0],
                route: &names[1],
                decision: Decision::Denied(&names[2]),
                upstream: &names[3],
                server: &names[4],
                client: Some(client),
                status,
                total_us: Some(numbers[0]),
                bytes_in: numbers[1],
                wait_us: Some(numbers[2]),
                ..Entry::default()
            };
            let line = line(&entry);
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
