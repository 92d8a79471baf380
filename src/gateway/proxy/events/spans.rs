//! Makes a span of each request that is sampled, under the names of OpenTelemetry's semantic conventions for HTTP (1.37);
//! what they have no name for is under `sluicegate.`. What the access log does not show is in no span either.

use std::borrow::Cow;
use std::num::NonZeroU128;
use std::time::Duration;

use http::{Method, Version};

use super::access_log;
use super::event::FinishedRequest;
use crate::proxy::facts::StepTimings;
use crate::proxy::services::Services;
use crate::service::reason::Reason;
use base::identity::NO_ADDRESS;
use observe::record;
use observe::trace::{Attributes, FinishedSpan, SampledSpan, Trace};

pub fn finished(services: &Services, event: &FinishedRequest<'_>) {
    if let Some(Trace { ids, sampled: Some(sampled), .. }) = event.trace {
        services.shared.spans.offer(span(services, event, ids.trace_id, sampled));
    }
}

fn span(
    services: &Services,
    event: &FinishedRequest<'_>,
    trace_id: NonZeroU128,
    sampled: &SampledSpan,
) -> FinishedSpan {
    let start = services.unix(event.request.started);
    let route = event.request.route.map(|route| &event.snapshot.table.routes()[route.index()]);
    let pattern = route.map(|route| route.pattern.to_string()).unwrap_or_default();
    let name = name(known_method(&event.request.method), &pattern);
    let mut span = FinishedSpan::new(trace_id, sampled, &name, (nanos(start), nanos(start + event.duration)));
    let error = error(event);
    let attributes = &mut span.attributes();
    request(attributes, event, &pattern);
    client(attributes, event);
    answer(attributes, event);
    attributes.text("sluicegate.route", route.map_or("", |route| &route.name).as_bytes());
    identity(attributes, event);
    verdict(attributes, event);
    upstream(attributes, event);
    if let Some(error) = &error {
        attributes.text("error.type", error.as_bytes());
    }
    add_steps(&mut span, start, &event.attempts.steps);
    if error.is_some() {
        span.fail();
    }
    span
}

/// What ended the request with an error; `None` if nothing did. Of a server's answers only 5xx are the server's error, and the
/// statuses of gRPC's that the conventions name: that a client is refused is none. But an answer that never came, or broke off
/// behind a good head, is one whatever its status.
fn error(event: &FinishedRequest<'_>) -> Option<Cow<'static, str>> {
    let of_grpc = GRPC_ERRORS.iter().find(|(code, _)| event.outcome.grpc_status == Some(*code));
    let is_error = event.status >= 500 || of_grpc.is_some() || is_broken_off(event);
    match (event.reason, of_grpc) {
        _ if !is_error => None,
        (Some(reason), _) => Some(reason.word().into()),
        (None, Some((_, word))) => Some((*word).into()),
        (None, None) => Some(event.status.to_string().into()),
    }
}

fn is_broken_off(event: &FinishedRequest<'_>) -> bool {
    match event.reason {
        None => false,
        // If one of these is refused with a status, it is one of 5xx.
        Some(
            Reason::ClientGone
            | Reason::UpstreamReset
            | Reason::UpstreamTimeout
            | Reason::UpstreamBadResponse
            | Reason::Drain
            | Reason::Panic,
        ) => true,
        // A call of gRPC is refused with 200, and a status of gRPC's.
        Some(_) => {
            let is_refused = event.status >= 400 || event.outcome.grpc_status.is_some();
            event.outcome.is_unanswered() || !is_refused
        }
    }
}

/// The method and the route's path; `HTTP` in the place of a method that the conventions do not know.
fn name(method: &str, pattern: &str) -> String {
    let method = if method == OTHER_METHOD { "HTTP" } else { method };
    if pattern.is_empty() { method.to_owned() } else { [method, " ", pattern].concat() }
}

fn request(attributes: &mut Attributes<'_>, event: &FinishedRequest<'_>, pattern: &str) {
    let facts = event.request;
    let method = known_method(&facts.method);
    attributes.text("http.request.method", method.as_bytes());
    if method == OTHER_METHOD {
        attributes.text("http.request.method_original", facts.method.as_str().as_bytes());
    }
    let asked = facts.asked.as_deref();
    let own_scheme = if event.conn.tls.is_empty() { "http" } else { "https" };
    let scheme = asked.and_then(|asked| asked.scheme).unwrap_or(own_scheme);
    attributes.text("url.scheme", scheme.as_bytes());
    // A slash for CONNECT, because its target has no path, but a span must.
    let path = Some(facts.uri.path()).filter(|path| !path.is_empty()).unwrap_or("/");
    attributes.text("url.path", path.as_bytes());
    if let Some(query) = facts.uri.query() {
        let shown = record::shown_query(query.as_bytes(), event.snapshot.shown.query);
        attributes.text("url.query", shown.as_bytes());
    }
    attributes.text("http.route", pattern.as_bytes());
    let asked = asked.and_then(|asked| asked.authority.as_deref()).or_else(|| facts.authority.to_str().ok());
    if let Some(authority) = asked.and_then(|text| text.parse::<http::uri::Authority>().ok()) {
        let host = authority.host().trim_start_matches('[').trim_end_matches(']');
        attributes.text("server.address", host.as_bytes());
        if let Some(port) = authority.port_u16() {
            attributes.number("server.port", u64::from(port));
        }
    }
    let version: &[u8] = match facts.version {
        Version::HTTP_10 => b"1.0",
        Version::HTTP_2 => b"2",
        _ => b"1.1",
    };
    attributes.text("network.protocol.version", version);
    attributes.number("http.request.body.size", event.bytes_in);
    attributes.text("sluicegate.request_id", facts.request_id.as_bytes());
    attributes.text("sluicegate.listener", event.conn.config.name.as_bytes());
}

fn client(attributes: &mut Attributes<'_>, event: &FinishedRequest<'_>) {
    for (key, address) in
        [("client.address", event.request.client), ("network.peer.address", event.conn.tcp_peer)]
    {
        if address != NO_ADDRESS {
            let mut text = Vec::with_capacity(ADDRESS_BYTES_USUAL);
            record::push_address(&mut text, address);
            attributes.text(key, &text);
        }
    }
    let shown = &event.snapshot.shown;
    if let Some(agent) = shown.user_agent(&event.request.shown) {
        attributes.text("user_agent.original", agent);
    }
}

fn answer(attributes: &mut Attributes<'_>, event: &FinishedRequest<'_>) {
    // After a panic, too, because its answer is sent when the request has ended.
    if !event.outcome.is_unanswered() || event.reason == Some(Reason::Panic) {
        attributes.number("http.response.status_code", u64::from(event.status));
    }
    attributes.number("http.response.body.size", event.outcome.bytes_out);
    if let Some(status) = event.outcome.grpc_status {
        attributes.text("rpc.system", b"grpc");
        attributes.number("rpc.grpc.status_code", u64::from(status));
    }
    attributes.text("sluicegate.reason", event.reason.map_or("", Reason::word).as_bytes());
    if let Some(cause) = event.outcome.cause {
        attributes.text("sluicegate.cause", cause.word().as_bytes());
    }
}

fn identity(attributes: &mut Attributes<'_>, event: &FinishedRequest<'_>) {
    let Some(identity) = event.request.identity.as_deref() else { return };
    let names = [
        ("sluicegate.consumer", &identity.consumer),
        ("sluicegate.tenant", &identity.tenant),
        ("sluicegate.tier", &identity.tier),
    ];
    for (key, name) in names {
        attributes.text(key, name.as_deref().unwrap_or_default().as_bytes());
    }
}

fn verdict(attributes: &mut Attributes<'_>, event: &FinishedRequest<'_>) {
    let Some(verdict) = event.verdict else { return };
    let table = &event.snapshot.table;
    let policy = &table.policies()[verdict.policy.index()].name;
    attributes.text("sluicegate.decision", access_log::decision(table, verdict).0.as_bytes());
    attributes.text("sluicegate.policy", policy.as_bytes());
    attributes.text("sluicegate.decided", verdict.tier.word().as_bytes());
    if let Some(left) = event.left {
        attributes.number("sluicegate.limit", left.limit);
        attributes.number("sluicegate.remaining", left.remaining);
    }
}

fn upstream(attributes: &mut Attributes<'_>, event: &FinishedRequest<'_>) {
    let Some(index) = event.attempts.server else { return };
    let upstream = &event.pools[index.upstream].upstream;
    attributes.text("sluicegate.upstream", upstream.config.name.as_bytes());
    attributes.text("sluicegate.server", upstream.servers[index.server].label.as_bytes());
    attributes.number("sluicegate.retries", u64::from(event.attempts.retries));
}

/// The steps of the request, each when it ended. None of them needs a reading of the clock that a request without a trace
/// does without.
fn add_steps(span: &mut FinishedSpan, start: Duration, steps: &StepTimings) {
    let ready = nanos(steps.ready()).max(steps.decide);
    let connected = if steps.sent > 0 { steps.sent } else { ready + steps.wait + steps.connect };
    let taken = [
        ("decide", steps.decide, steps.decide),
        ("delay", steps.delay + steps.decide, steps.delay),
        ("wait", connected.saturating_sub(steps.connect), steps.wait),
        ("connect", connected, steps.connect),
        ("first_byte", steps.answered, steps.first_byte()),
    ];
    for (name, at, took) in taken.into_iter().filter(|(_, at, took)| *at > 0 && *took > 0) {
        span.event(name, nanos(start) + at, |attributes| {
            attributes.number("sluicegate.duration_us", took / 1_000);
        });
    }
}

/// A method that the conventions know. All others are one, because clients can make them up, and each would be a value
/// of its own.
fn known_method(method: &Method) -> &str {
    match method.as_str() {
        known @ ("GET" | "HEAD" | "POST" | "PUT" | "DELETE" | "CONNECT" | "OPTIONS" | "TRACE" | "PATCH") => {
            known
        }
        _ => OTHER_METHOD,
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// The statuses of gRPC's that are a server's error.
const GRPC_ERRORS: [(u32, &str); 6] = [
    (2, "UNKNOWN"),
    (4, "DEADLINE_EXCEEDED"),
    (12, "UNIMPLEMENTED"),
    (13, "INTERNAL"),
    (14, "UNAVAILABLE"),
    (15, "DATA_LOSS"),
];
/// An address of IPv4 has room in it.
const ADDRESS_BYTES_USUAL: usize = 16;
const OTHER_METHOD: &str = "_OTHER";
