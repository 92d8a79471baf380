//! The gateway's own access log: a JSON object a line, as `record` writes it, under its own names or those of the Elastic
//! Common Schema.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::net::IpAddr;

use http::header::{REFERER, USER_AGENT};
use http::{HeaderMap, HeaderName, Method};
use serde::Deserialize;

use super::{common, time};
use crate::request::{Client, Line, NoLine, Request};
use base::identity::Identity;
use base::identity::NO_ADDRESS;
use gateway::service::reason::Reason;

/// The keys of a line that a decision may depend on.
#[derive(Deserialize)]
struct Entry<'l> {
    #[serde(borrow, alias = "@timestamp")]
    time: Cow<'l, str>,
    #[serde(borrow, alias = "sluicegate.listener")]
    listener: Option<Cow<'l, str>>,
    #[serde(borrow, alias = "client.ip", alias = "client.address")]
    client: Option<Cow<'l, str>>,
    #[serde(borrow, alias = "source.ip", alias = "source.address")]
    peer: Option<Cow<'l, str>>,
    #[serde(borrow, alias = "http.request.method")]
    method: Option<Cow<'l, str>>,
    #[serde(borrow, alias = "url.domain")]
    host: Option<Cow<'l, str>>,
    #[serde(borrow, alias = "url.original")]
    path: Option<Cow<'l, str>>,
    /// Of the host, if that has none in it.
    #[serde(rename = "url.port")]
    port: Option<u16>,
    #[serde(alias = "user.name")]
    consumer: Option<Box<str>>,
    #[serde(alias = "organization.id")]
    tenant: Option<Box<str>>,
    #[serde(alias = "sluicegate.tier")]
    tier: Option<Box<str>>,
    #[serde(borrow, alias = "http.request.referrer")]
    referer: Option<Cow<'l, str>>,
    #[serde(borrow, alias = "user_agent.original")]
    user_agent: Option<Cow<'l, str>>,
    #[serde(alias = "sluicegate.headers")]
    headers: Option<BTreeMap<String, String>>,
    #[serde(alias = "http.response.status_code")]
    status: u16,
    #[serde(borrow, alias = "error.code")]
    reason: Option<Cow<'l, str>>,
    #[serde(borrow, alias = "sluicegate.cause")]
    cause: Option<Cow<'l, str>>,
    #[serde(borrow, alias = "sluicegate.decision")]
    decision: Option<Cow<'l, str>>,
    total_us: Option<u64>,
    /// Nanoseconds.
    #[serde(rename = "event.duration")]
    duration: Option<u64>,
    #[serde(default, alias = "http.request.body.bytes")]
    bytes_in: u64,
    #[serde(default, alias = "http.response.body.bytes")]
    bytes_out: u64,
}

/// Reads a line.
///
/// # Errors
/// If it is none of this format.
pub fn read(line: &[u8]) -> Result<Line, NoLine> {
    // Before serde, whose error costs an allocation, because a few kilobytes can unpack to millions of lines `{}`.
    if line.len() < LINE_BYTES_MIN {
        return Err(NoLine::Form);
    }
    let entry: Entry<'_> = serde_json::from_slice(line).map_err(|_| NoLine::Form)?;
    let ended_ns = time::rfc3339(entry.time.as_bytes())?;
    let method = entry.method.as_deref().and_then(|method| Method::from_bytes(method.as_bytes()).ok());
    let (Some(method), Some(path)) = (method, &entry.path) else { return Ok(Line::NoRequest) };
    let mut headers = HeaderMap::new();
    let own = [(REFERER, &entry.referer), (USER_AGENT, &entry.user_agent)];
    for (name, value) in own {
        common::add(&mut headers, name, value.as_deref().unwrap_or_default().as_bytes());
    }
    for (name, value) in entry.headers.iter().flatten() {
        if let Ok(name) = HeaderName::from_bytes(name.as_bytes()) {
            common::add(&mut headers, name, value.as_bytes());
        }
    }
    let was_denied = entry.decision.as_deref().map(|decision| matches!(decision, "denied" | "penalised"));
    // Less the duration, because a line is written when its request is over.
    let total_ns = entry.duration.or(entry.total_us.map(|total_us| total_us.saturating_mul(1_000)));
    let lasted_ns = total_ns.unwrap_or(0).min(ended_ns);
    let by_hop = entry.peer.is_some();
    Ok(Line::Request(Box::new(Request {
        began_ns: ended_ns - lasted_ns,
        lasted_ns,
        has_duration: total_ns.is_some(),
        listener: entry.listener.as_deref().unwrap_or_default().into(),
        client: entry.client.as_deref().and_then(address).map(|ip| Client::Found { ip, by_hop }),
        method,
        host: entry.authority().into(),
        target: path.as_ref().into(),
        is_unrecognised: is_unrecognised(&entry),
        was_refused_before_limits: was_refused_before_limits(&entry),
        identity: Identity {
            consumer: entry.consumer,
            tenant: entry.tenant,
            tier: entry.tier,
            ..Identity::default()
        },
        headers,
        status: entry.status,
        bytes_in: entry.bytes_in,
        bytes_out: entry.bytes_out,
        was_denied,
    })))
}

impl Entry<'_> {
    fn authority(&self) -> Cow<'_, str> {
        let host = self.host.as_deref().unwrap_or_default();
        self.port.map_or(host.into(), |port| format!("{host}:{port}").into())
    }
}

/// Whether authentication did not recognise the client. One that a limit refused as well has a cause and no identity.
fn is_unrecognised(entry: &Entry<'_>) -> bool {
    entry.status == 401 || entry.status == 429 && entry.cause.is_some() && entry.consumer.is_none()
}

/// Whether the request never came to limits, and would not under others: they decided nothing, and the reason is one that
/// the gateway finds before them. A route or an address is another configuration's to refuse.
fn was_refused_before_limits(entry: &Entry<'_>) -> bool {
    let reason = Reason::ALL.into_iter().find(|reason| entry.reason.as_deref() == Some(reason.word()));
    let is_before = matches!(
        reason,
        Some(
            Reason::Malformed
                | Reason::HeaderTimeout
                | Reason::UriTooLong
                | Reason::HeadersTooLarge
                | Reason::BodyTooLarge
                | Reason::Misdirected
                | Reason::ExpectationFailed
                | Reason::Overload
                | Reason::TooManyStreams
                | Reason::RapidReset
                | Reason::FrameFlood
        )
    );
    is_before && entry.decision.is_none()
}

fn address(text: &str) -> Option<IpAddr> {
    if text == "unix" { Some(NO_ADDRESS) } else { text.parse().ok() }
}

/// The shortest line that has a time and a status.
const LINE_BYTES_MIN: usize = r#"{"time":"2026-11-20T10:00:00Z","status":200}"#.len();

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_the_gateway_is_a_request_that_began_before_it_ended() {
        let line = br#"{"time":"2024-02-29T00:00:01.500Z","request_id":"01J","listener":"edge","client":"192.0.2.200","peer":"10.0.0.1","protocol":"HTTP/2.0","method":"GET","host":"api.example.com","path":"/v1/orders/7?x=*","route":"orders","consumer":"ann","tenant":"acme","tier":"pro","user_agent":"a\u00e9b","headers":{"x-plan":"2"},"status":429,"reason":"over-limit","decision":"denied","decided":"local","policy":"per-tenant","retries":0,"total_us":500000,"bytes_in":10,"bytes_out":20}"#;
        let Ok(Line::Request(request)) = read(line) else { panic!("it is a request") };
        assert_eq!(request.began_ns, 1_709_164_801_000_000_000);
        assert_eq!(request.lasted_ns, 500_000_000);
        assert_eq!(request.client, Some(Client::Found { ip: [192, 0, 2, 200].into(), by_hop: true }));
        let Identity { consumer, tenant, tier, .. } = &request.identity;
        assert_eq!(
            [consumer, tenant, tier].map(|it| it.as_deref().unwrap_or_default()),
            ["ann", "acme", "pro"]
        );
        assert_eq!((&*request.host, &*request.target), ("api.example.com", "/v1/orders/7?x=*"));
        assert_eq!(request.headers.get("x-plan").expect("it is there"), "2");
        assert_eq!(request.headers.get(USER_AGENT).expect("it is there").as_bytes(), "aéb".as_bytes());
        assert_eq!(
            (request.status, request.was_denied, request.bytes_in, request.bytes_out),
            (429, Some(true), 10, 20)
        );
        assert!(!request.is_unrecognised);
    }

    #[test]
    fn a_line_under_the_names_of_the_elastic_common_schema_is_the_same_request() {
        let own = br#"{"time":"2024-02-29T00:00:01.500Z","listener":"edge","client":"192.0.2.200","peer":"10.0.0.1","method":"GET","host":"[2001:db8::1]:8443","path":"/a?b","consumer":"ann","tenant":"acme","tier":"pro","referer":"https://a/b","user_agent":"curl/8","headers":{"x-plan":"2"},"status":413,"reason":"body-too-large","cause":"x","total_us":1500,"bytes_in":10,"bytes_out":20}"#;
        let ecs = br#"{"ecs.version":"9.1.0","event.dataset":"sluicegate.access","@timestamp":"2024-02-29T00:00:01.500Z","http.request.id":"01J","sluicegate.listener":"edge","client.ip":"192.0.2.200","source.ip":"10.0.0.1","http.version":"2.0","http.request.method":"GET","url.domain":"[2001:db8::1]","url.port":8443,"url.original":"/a?b","user.name":"ann","organization.id":"acme","sluicegate.tier":"pro","http.request.referrer":"https://a/b","user_agent.original":"curl/8","sluicegate.headers":{"x-plan":"2"},"http.response.status_code":413,"error.code":"body-too-large","sluicegate.cause":"x","event.duration":1500000,"http.request.body.bytes":10,"http.response.body.bytes":20}"#;
        let request = read(own);
        assert!(
            matches!(&request, Ok(Line::Request(request)) if request.was_refused_before_limits && &*request.host == "[2001:db8::1]:8443")
        );
        assert_eq!(read(ecs), request);
        let unix = br#"{"@timestamp":"2024-02-29T00:00:01.500Z","client.address":"unix","http.request.method":"GET","url.original":"/","http.response.status_code":200}"#;
        let Ok(Line::Request(request)) = read(unix) else { panic!("it is a request") };
        assert_eq!(request.client, Some(Client::Found { ip: NO_ADDRESS, by_hop: false }));
    }

    #[test]
    fn lines_of_no_request_and_no_lines() {
        let handshake = br#"{"time":"2024-02-29T00:00:01.500Z","listener":"edge","client":"192.0.2.200","status":0,"reason":"tls-handshake","cause":"certificate-expired","retries":0,"bytes_in":0,"bytes_out":0}"#;
        assert_eq!(read(handshake), Ok(Line::NoRequest));
        for line in [
            &b"{}"[..],
            b"[]",
            br#"{"time":"2024-02-29T00:00:01.500Z"}"#,
            br#"{"time":"then","status":200}"#,
            br#"{"time":"2024-02-29T00:00:01.500Z","status":"200"}"#,
            br#"{"time":"2024-02-29T00:00:01.500Z","status":200,"path":"/","method":"GET","#,
            b"\xff\xfe",
        ] {
            assert!(read(line).is_err(), "{}", line.escape_ascii());
        }
    }

    #[test]
    fn a_client_that_nobody_recognised_is_known_by_the_answer() {
        let line = |rest: &str| {
            let line = format!(
                r#"{{"time":"2024-02-29T00:00:01.500Z","client":"unix","method":"GET","path":"/",{rest}}}"#
            );
            match read(line.as_bytes()) {
                Ok(Line::Request(request)) => request.is_unrecognised,
                other => panic!("{other:?}"),
            }
        };
        assert!(line(r#""status":401"#) && line(r#""status":429,"cause":"token-expired""#));
        assert!(!line(r#""status":200"#) && !line(r#""status":429"#));
        assert!(!line(r#""status":502,"cause":"refused""#));
    }

    #[test]
    fn what_was_refused_before_limits_is_known_by_its_reason() {
        let line = |rest: &str| {
            let line = format!(
                r#"{{"time":"2024-02-29T00:00:01.500Z","client":"unix","method":"GET","path":"/",{rest}}}"#
            );
            match read(line.as_bytes()) {
                Ok(Line::Request(request)) => request.was_refused_before_limits,
                other => panic!("{other:?}"),
            }
        };
        assert!(
            line(r#""status":400,"reason":"malformed""#) && line(r#""status":414,"reason":"uri-too-long""#)
        );
        assert!(line(r#""status":413,"reason":"body-too-large""#));
        assert!(!line(r#""status":413,"reason":"body-too-large","decision":"admitted""#));
        assert!(!line(r#""status":404,"reason":"no-route""#) && !line(r#""status":413"#));
    }
}
