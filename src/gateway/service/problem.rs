//! The answer to each refusal. This is the only file that chooses an error's status, of HTTP and of gRPC.
//!
//! [`RefusalProblem::of`] is one table with a row for each refusal: status, reason, gRPC code, headers and text. A problem is
//! sent as problem+json (RFC 9457) with a stable `reason`, the same word as in the access log and the metrics, or to who
//! prefers that as a page or a line of text. Nothing that a client sent is repeated in it.

use std::borrow::Cow;

use bytes::Bytes;
use http::header::{
    ALLOW, CACHE_CONTROL, CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, RETRY_AFTER, SEC_WEBSOCKET_VERSION,
    UPGRADE, WWW_AUTHENTICATE,
};
use http::{HeaderMap, HeaderValue, StatusCode};

use super::config::ListenerConfig;
use super::form::ErrorForm;
use super::reason::Reason;
use super::refusal::{LimitExceeded, Refusal, Violation};
use base::{cause::Cause, clock};
use limit::Algorithm;
use net::wire::http1::FramingFault;
use policy::response::body::push_html;

/// How one refusal is answered, logged and counted.
#[derive(Debug)]
pub struct RefusalProblem<'r> {
    pub status: StatusCode,
    /// The word for logs, metrics and the body.
    pub reason: Reason,
    pub code: GrpcCode,
    /// One sentence for the client.
    pub detail: Cow<'r, str>,
    /// When the client may try again; `None`: trying again will not help, or nobody knows when.
    pub retry_after_seconds: Option<u64>,
    /// What exactly was wrong, only for logs and metrics, if the reason does not say it already.
    pub cause: Option<Cause>,
    extra: Extra<'r>,
}

/// The parts of an answer that only some refusals have.
#[derive(Debug)]
enum Extra<'r> {
    None,
    /// The methods that the route serves.
    Allow(&'r HeaderValue),
    /// The values of `WWW-Authenticate`.
    Challenges(&'r [HeaderValue]),
    /// The protocol and its version that a client may switch to (RFC 6455 section 4.2.2).
    WebSocketVersion,
    /// Over HTTP/1 the connection ends with the answer. HTTP/2 need not, because its frames say where a request ends.
    Close,
    Limits(&'r LimitExceeded),
}

/// The gRPC status codes that the gateway itself answers with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum GrpcCode {
    /// No other code fits.
    Unknown = 2,
    DeadlineExceeded = 4,
    /// The client is known and may not.
    PermissionDenied = 7,
    ResourceExhausted = 8,
    Unimplemented = 12,
    /// The request breaks the protocol.
    Internal = 13,
    /// Clients may try again.
    Unavailable = 14,
    Unauthenticated = 16,
}

impl<'r> RefusalProblem<'r> {
    /// The row of a refusal. The gRPC code is the closest that gRPC has; if none is close, the one that a gRPC client
    /// derives from the status (gRPC's "HTTP to gRPC Status Code Mapping").
    #[rustfmt::skip] // A row a line: it is a table.
    pub fn of(refusal: &'r Refusal) -> RefusalProblem<'r> {
        use GrpcCode as C;
        use Reason as R;
        use StatusCode as S;
        match refusal {
            // Closed, because after a malformed head it is not safe to say where the next request begins.
            Refusal::Malformed(what) => row(S::BAD_REQUEST, R::Malformed, C::Internal, *what).close(),
            Refusal::Framing(fault) => RefusalProblem::of_framing(*fault).close(),
            Refusal::MethodNotServed =>
                row(S::NOT_IMPLEMENTED, R::MethodNotAllowed, C::Unknown, "the gateway does not support this request method"),
            Refusal::Misdirected =>
                row(S::MISDIRECTED_REQUEST, R::Misdirected, C::Unknown, "this connection was opened for another host: open a new one for this host"),
            Refusal::ExpectationFailed =>
                row(S::EXPECTATION_FAILED, R::ExpectationFailed, C::Unknown, "the only `Expect` value that the gateway supports is `100-continue`"),
            Refusal::WebSocketVersion =>
                row(S::UPGRADE_REQUIRED, R::Malformed, C::Unknown, "`Sec-WebSocket-Version` must be 13")
                    .with(Extra::WebSocketVersion),
            Refusal::UriTooLong => row(S::URI_TOO_LONG, R::UriTooLong, C::Unknown, "the request target is too long"),
            Refusal::HeadersTooLarge =>
                row(S::REQUEST_HEADER_FIELDS_TOO_LARGE, R::HeadersTooLarge, C::Unknown, "the request headers are too many or too long"),
            Refusal::BodyTooLarge =>
                row(S::PAYLOAD_TOO_LARGE, R::BodyTooLarge, C::Unknown, "the request body is larger than this route allows"),
            // Closed, because the rest of the body will not be read (RFC 9110 section 15.5.9).
            Refusal::BodySlow =>
                row(S::REQUEST_TIMEOUT, R::BodySlow, C::DeadlineExceeded, "the request body arrives too slowly").close(),
            Refusal::ClientGone => row(S::BAD_REQUEST, R::ClientGone, C::Internal, "the request body ended before it was complete"),
            Refusal::NoRoute => row(S::NOT_FOUND, R::NoRoute, C::Unimplemented, "no route matches this host and path"),
            Refusal::MethodNotAllowed(allow) =>
                row(S::METHOD_NOT_ALLOWED, R::MethodNotAllowed, C::Unknown, format!("this route allows only {}", allow.to_str().unwrap_or_default()))
                    .with(Extra::Allow(allow)),
            // One text for every cause, because saying what is wrong with a credential would help to guess one.
            Refusal::Unauthenticated(challenges, cause) =>
                row(S::UNAUTHORIZED, R::Unauthenticated, C::Unauthenticated, "this route requires valid credentials")
                    .with(Extra::Challenges(challenges)).because(*cause),
            Refusal::AuthBusy(cause) => RefusalProblem {
                cause: *cause,
                ..row(S::SERVICE_UNAVAILABLE, R::AuthBusy, C::Unavailable, "the credentials cannot be verified at the moment: try again").soon()
            },
            Refusal::Forbidden(cause) => row(S::FORBIDDEN, R::Forbidden, C::PermissionDenied, "these credentials do not allow this route").because(*cause),
            Refusal::AddressDenied =>
                row(S::FORBIDDEN, R::AddressDenied, C::PermissionDenied, "this route does not allow the client's address"),
            Refusal::OriginDenied =>
                row(S::FORBIDDEN, R::OriginDenied, C::PermissionDenied, "this route does not allow the value of `Origin`"),
            // Without why and by whom, because that is the operators' business, and its request id tells them.
            Refusal::Blocked => row(S::FORBIDDEN, R::Blocked, C::PermissionDenied, "this client is blocked"),
            Refusal::BlockedFor { retry_after_seconds: after } =>
                row(S::TOO_MANY_REQUESTS, R::Blocked, C::ResourceExhausted, "this client is blocked").after(*after),
            // 503 and not 429, because too many requests in flight mean a slow service, not a client that is too fast.
            Refusal::Limited(limited) if limited.is_in_flight() =>
                row(S::SERVICE_UNAVAILABLE, R::Limited, C::ResourceExhausted, limits_text(limited)).over(limited),
            Refusal::Limited(limited) =>
                row(S::TOO_MANY_REQUESTS, R::Limited, C::ResourceExhausted, limits_text(limited)).over(limited),
            Refusal::RedisDown(limited) =>
                row(S::SERVICE_UNAVAILABLE, R::RedisDown, C::Unavailable, "the rate limit cannot be checked at the moment: try again later").over(limited),
            Refusal::MissingKey(dimension) => row(S::BAD_REQUEST, R::MissingKey, C::Internal, missing_text(dimension)),
            Refusal::UpstreamUnresolved =>
                row(S::SERVICE_UNAVAILABLE, R::UpstreamUnresolved, C::Unavailable, "the upstream's name does not resolve").soon(),
            Refusal::UpstreamConnect(cause) =>
                row(S::BAD_GATEWAY, R::UpstreamConnect, C::Unavailable, connect_text(*cause)).because(*cause),
            Refusal::UpstreamConnectTimeout(cause) =>
                row(S::GATEWAY_TIMEOUT, R::UpstreamTimeout, C::DeadlineExceeded, connect_text(*cause)).because(*cause),
            Refusal::UpstreamPoolFull =>
                row(S::SERVICE_UNAVAILABLE, R::UpstreamPoolFull, C::Unavailable, "all connections to the upstream are in use").soon(),
            Refusal::UpstreamNoStreams =>
                row(S::SERVICE_UNAVAILABLE, R::UpstreamPoolFull, C::Unavailable, "the upstream accepts no requests at the moment")
                    .soon().because(Cause::NoStreams),
            Refusal::UpstreamTimeout =>
                row(S::GATEWAY_TIMEOUT, R::UpstreamTimeout, C::DeadlineExceeded, "the upstream did not respond in time"),
            Refusal::UpstreamReset =>
                row(S::BAD_GATEWAY, R::UpstreamReset, C::Unavailable, "the upstream closed the connection before it responded"),
            Refusal::UpstreamBadResponse(cause) => RefusalProblem {
                cause: *cause,
                ..row(S::BAD_GATEWAY, R::UpstreamBadResponse, C::Unavailable, cause.map_or("the upstream's response is not valid HTTP", connect_text))
            },
            Refusal::Overloaded =>
                row(S::SERVICE_UNAVAILABLE, R::Overload, C::Unavailable, "the gateway is short of memory or file descriptors").soon(),
            Refusal::Panic =>
                row(S::INTERNAL_SERVER_ERROR, R::Panic, C::Unknown, "internal error of the gateway: report the request id to its operators"),
        }
    }

    fn of_framing(fault: FramingFault) -> RefusalProblem<'static> {
        let (status, reason) = match fault {
            FramingFault::TargetTooLong => (StatusCode::URI_TOO_LONG, Reason::UriTooLong),
            FramingFault::HeadTooLong => {
                (StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE, Reason::HeadersTooLarge)
            }
            FramingFault::Version => (StatusCode::HTTP_VERSION_NOT_SUPPORTED, Reason::Malformed),
            FramingFault::CodingUnknown => (StatusCode::NOT_IMPLEMENTED, Reason::Malformed),
            FramingFault::BareLineFeed
            | FramingFault::RequestLine
            | FramingFault::OtherProtocol
            | FramingFault::Fragment
            | FramingFault::Folded
            | FramingFault::Length
            | FramingFault::Coding
            | FramingFault::LengthAndCoding
            | FramingFault::ChunkSize
            | FramingFault::ChunkEnd => (StatusCode::BAD_REQUEST, Reason::Malformed),
        };
        row(status, reason, GrpcCode::Unknown, fault.to_string())
    }

    fn with(self, extra: Extra<'r>) -> RefusalProblem<'r> {
        RefusalProblem { extra, ..self }
    }

    fn close(self) -> RefusalProblem<'r> {
        self.with(Extra::Close)
    }

    fn because(self, cause: Cause) -> RefusalProblem<'r> {
        RefusalProblem { cause: Some(cause), ..self }
    }

    /// Trying again in a second may succeed.
    fn soon(self) -> RefusalProblem<'r> {
        self.after(Some(1))
    }

    fn after(self, retry_after_seconds: Option<u64>) -> RefusalProblem<'r> {
        RefusalProblem { retry_after_seconds, ..self }
    }

    fn over(self, limited: &'r LimitExceeded) -> RefusalProblem<'r> {
        RefusalProblem {
            retry_after_seconds: limited.retry_after_seconds,
            extra: Extra::Limits(limited),
            ..self
        }
    }

    /// Writes the header fields of the answer. `may_close` is false over HTTP/2, where `Connection` is forbidden.
    pub fn write_headers(&self, form: ErrorForm, may_close: bool, headers: &mut HeaderMap) {
        let kind = match form {
            ErrorForm::Json => PROBLEM_JSON,
            ErrorForm::Text => TEXT,
            ErrorForm::Html => HTML,
        };
        headers.insert(CONTENT_TYPE, kind);
        headers.insert(CACHE_CONTROL, NO_STORE);
        match self.extra {
            Extra::Allow(allow) => drop(headers.insert(ALLOW, allow.clone())),
            Extra::Challenges(challenges) => {
                for challenge in challenges {
                    headers.append(WWW_AUTHENTICATE, challenge.clone());
                }
            }
            Extra::WebSocketVersion => {
                headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
                headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
                headers.insert(SEC_WEBSOCKET_VERSION, HeaderValue::from_static("13"));
            }
            Extra::Close if may_close => drop(headers.insert(CONNECTION, CLOSE)),
            Extra::Close | Extra::Limits(_) | Extra::None => {}
        }
        if let Some(seconds) = self.retry_after_seconds {
            headers.insert(RETRY_AFTER, seconds.into());
        }
    }

    /// The body of the answer to the request of this id, by this node if the client may know it.
    pub fn body(&self, form: ErrorForm, id: &HeaderValue, node: Option<&HeaderValue>) -> Bytes {
        match form {
            ErrorForm::Json => self.json(id, node),
            ErrorForm::Text => self.text(id),
            ErrorForm::Html => self.html(id),
        }
    }

    fn text(&self, id: &HeaderValue) -> Bytes {
        let mut text = format!("{}\n\n{} ({})\n", self.status, self.detail, self.reason.word());
        if let (false, Ok(id)) = (id.is_empty(), id.to_str()) {
            text.push_str(&format!("request {id}\n"));
        }
        text.into()
    }

    /// A page without scripts, pictures or anything else to fetch.
    fn html(&self, id: &HeaderValue) -> Bytes {
        let status = self.status;
        let mut page = format!(
            "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n\
             <meta name=\"viewport\" content=\"width=device-width\">\n\
             <title>{status}</title>\n<h1>{status}</h1>\n<p>"
        );
        // Escaped, because names of policies stand in it, which the operator chose.
        push_html(&self.detail.replace('`', ""), &mut page);
        page.push_str(&format!("</p>\n<p><small>{}", self.reason.word()));
        if let (false, Ok(id)) = (id.is_empty(), id.to_str()) {
            page.push_str(", request ");
            push_html(id, &mut page);
        }
        page.push_str("</small></p>\n</html>\n");
        page.into()
    }

    fn json(&self, id: &HeaderValue, node: Option<&HeaderValue>) -> Bytes {
        // Only one of our problems has a type that is registered with IANA.
        let kind = if self.reason == Reason::Limited { QUOTA_EXCEEDED } else { "about:blank" };
        let mut problem = serde_json::json!({
            "type": kind,
            "title": self.status.canonical_reason().unwrap_or("Error"),
            "status": self.status.as_u16(),
            "detail": self.detail,
            "reason": self.reason.word(),
        });
        if let (false, Ok(id)) = (id.is_empty(), id.to_str()) {
            problem["request-id"] = id.into();
        }
        if let Some(node) = node.and_then(|node| node.to_str().ok()) {
            problem["node"] = node.into();
        }
        if let Extra::Limits(limited) = self.extra {
            problem["violated-policies"] =
                limited.shown().map(|violation| violation.window.as_str()).collect();
            problem["violations"] = limited.shown().map(violation_json).collect();
        }
        Bytes::from(problem.to_string() + "\n")
    }

    /// The whole answer as bytes, for a head that was refused before hyper read it.
    pub fn unread(&self, id: &HeaderValue, listener: &ListenerConfig) -> Vec<u8> {
        let mut headers = HeaderMap::new();
        self.write_headers(ErrorForm::Json, true, &mut headers);
        written(self.status, headers, (id, listener), &self.json(id, None))
    }
}

fn row<'r>(
    status: StatusCode,
    reason: Reason,
    code: GrpcCode,
    detail: impl Into<Cow<'r, str>>,
) -> RefusalProblem<'r> {
    let detail = detail.into();
    RefusalProblem {
        status,
        reason,
        code,
        detail,
        retry_after_seconds: None,
        cause: None,
        extra: Extra::None,
    }
}

fn connect_text(cause: Cause) -> &'static str {
    match cause {
        Cause::NotHttp2 => "the upstream does not speak HTTP/2",
        Cause::NotTls => "the upstream does not speak TLS",
        Cause::SpeaksTls => "the upstream speaks TLS, not plain HTTP",
        Cause::TlsTimeout => "the upstream did not answer the TLS handshake",
        Cause::ConnectTimeout => "connecting to the upstream timed out",
        Cause::HeadTooLong => "the upstream's response headers are too long",
        _ => "the upstream cannot be reached",
    }
}

fn missing_text(dimension: &str) -> String {
    let what = match dimension.split_once(':') {
        None if dimension == "tenant" => "the credentials of this request name no tenant".to_owned(),
        None if dimension == "consumer" => "this request has no credentials that name a consumer".to_owned(),
        Some(("claim", name)) => format!("the credentials have no claim `{name}` that can be counted"),
        Some(("header", name)) => format!("send the header `{name}` exactly once"),
        Some(("cookie", name)) => format!("send the cookie `{name}` exactly once"),
        Some(("query", name)) => {
            format!("send the query parameter `{name}` exactly once, in a query without `;`")
        }
        Some(("body", name)) => format!(
            "send uncompressed JSON (`Content-Type: application/json`) with the field `{name}` exactly once, as a string or number"
        ),
        _ => "the request must have exactly one".to_owned(),
    };
    format!("the rate limit counts by {dimension}: {what}")
}

fn limits_text(limited: &LimitExceeded) -> String {
    let mut windows: Vec<String> = limited
        .shown()
        .map(|violation| match violation.policy.as_str() {
            policy if violation.is_penalty && violation.is_timed() => {
                format!("`{policy}` penalises clients that do not wait for `Retry-After`")
            }
            policy => format!("`{policy}` allows {}", rate_text(violation)),
        })
        .collect();
    // The penalty of a policy with several windows is one. A policy's windows are adjacent.
    windows.dedup();
    if windows.is_empty() {
        windows.push("too many requests".to_owned());
    }
    match limited.retry_after_seconds {
        Some(seconds) => format!("{}; try again in {seconds} s", windows.join(", ")),
        None => format!("{}; this request costs more and is never admitted", windows.join(", ")),
    }
}

/// `60 per minute, 5 at once`, `5 in 10 s`, `3 per month`, `2 in flight`.
fn rate_text(violation: &Violation) -> String {
    let (quota, limit) = (&violation.quota, violation.quota.limit());
    let Some(seconds) = violation.period_seconds(clock::unix()) else { return format!("{limit} in flight") };
    let whole = |length: u64| seconds.is_multiple_of(length).then(|| seconds / length);
    let period = match (quota.calendar(), whole(86_400), whole(3_600), whole(60)) {
        (Some(calendar), ..) => format!("per {}", calendar.unit().word()),
        // One of them is 24 hours, because only a day of the calendar ends at midnight.
        (_, Some(days @ 2..), ..) => format!("in {days} days"),
        (_, _, Some(1), _) => "per hour".to_owned(),
        (_, _, Some(hours), _) => format!("in {hours} hours"),
        (.., Some(1)) => "per minute".to_owned(),
        (.., Some(minutes)) => format!("in {minutes} minutes"),
        _ if seconds == 1 => "per second".to_owned(),
        _ => format!("in {seconds} s"),
    };
    match quota.at_once() {
        Some(burst) if quota.algorithm() == Algorithm::LeakyBucket => {
            format!("{limit} {period}, evenly spaced, with at most {} waiting", burst - 1)
        }
        Some(burst) => format!("{limit} {period}, {burst} at once"),
        None => format!("{limit} {period}"),
    }
}

fn violation_json(violation: &Violation) -> serde_json::Value {
    let mut json = serde_json::json!({
        "policy": violation.policy,
        "window": violation.window,
        "limit": violation.quota.limit(),
        "period-seconds": violation.period_seconds(clock::unix()),
        "decided": violation.decided,
        "retry-after-seconds": violation.retry_after_seconds,
    });
    if let Some(burst) = violation.quota.at_once() {
        json["burst"] = burst.into();
    }
    if violation.is_penalty {
        json["penalty"] = true.into();
    }
    json
}

/// The whole answer as bytes to a head that does not come in time (RFC 9110 section 15.5.9).
pub fn header_timeout(id: &HeaderValue, listener: &ListenerConfig) -> Vec<u8> {
    let detail = "the headers of the request did not arrive in time";
    row(StatusCode::REQUEST_TIMEOUT, Reason::HeaderTimeout, GrpcCode::DeadlineExceeded, detail)
        .unread(id, listener)
}

/// An answer that ends its connection, as bytes. `id` is empty where the client may not know it.
fn written(
    status: StatusCode,
    mut headers: HeaderMap,
    (id, listener): (&HeaderValue, &ListenerConfig),
    body: &[u8],
) -> Vec<u8> {
    if !id.is_empty() {
        headers.insert("x-request-id", id.clone());
    }
    listener.response_headers.apply(&mut headers);
    headers.insert(CONNECTION, CLOSE);
    headers.insert(CONTENT_LENGTH, body.len().into());
    let mut answer = format!("HTTP/1.1 {status}\r\n").into_bytes();
    for (name, value) in &headers {
        answer.extend_from_slice(name.as_str().as_bytes());
        answer.extend_from_slice(b": ");
        answer.extend_from_slice(value.as_bytes());
        answer.extend_from_slice(b"\r\n");
    }
    answer.extend_from_slice(b"\r\n");
    answer.extend_from_slice(body);
    answer
}

pub const HEADER_TIMEOUT_STATUS: u16 = 408;
/// Logged for a malformed request over HTTP/2, which is refused by a reset and gets no status.
pub const BAD_REQUEST_STATUS: u16 = 400;
/// The status of hyper's answer to a head over HTTP/2 that is too long for it.
pub const HEADERS_TOO_LARGE_STATUS: u16 = 431;
/// Logged for a request over HTTP/2 that was refused because there were too many at once.
pub const UNAVAILABLE_STATUS: u16 = 503;
/// The problem type of draft-ietf-httpapi-ratelimit-headers-11, section 5.
const QUOTA_EXCEEDED: &str = "https://iana.org/assignments/http-problem-types#quota-exceeded";
const PROBLEM_JSON: HeaderValue = HeaderValue::from_static("application/problem+json");
const TEXT: HeaderValue = HeaderValue::from_static("text/plain; charset=utf-8");
const HTML: HeaderValue = HeaderValue::from_static("text/html; charset=utf-8");
const CLOSE: HeaderValue = HeaderValue::from_static("close");
const NO_STORE: HeaderValue = HeaderValue::from_static("no-store");

#[cfg(test)]
mod tests {
    use std::num::NonZeroU64;

    use limit::{Calendar, CalendarUnit, Quota, Zone};

    use super::*;

    #[test]
    fn limits_are_said_by_the_unit_of_their_period() {
        let quota = |algorithm, seconds: u64, burst| {
            let number = |number| NonZeroU64::new(number).expect("it is not zero");
            Quota::new(algorithm, number(60), number(seconds * 1_000_000_000), number(burst))
        };
        let bucket = |seconds| quota(Algorithm::TokenBucket, seconds, 60);
        let month = Calendar::new(CalendarUnit::Month, Zone::utc(), 0);
        for (quota, text) in [
            (bucket(1), "60 per second"),
            (bucket(10), "60 in 10 s"),
            (bucket(60), "60 per minute"),
            (bucket(90), "60 in 90 s"),
            (bucket(300), "60 in 5 minutes"),
            (bucket(3_600), "60 per hour"),
            (bucket(86_400), "60 in 24 hours"),
            (bucket(30 * 86_400), "60 in 30 days"),
            (bucket(60).on_calendar(month), "60 per month"),
            (quota(Algorithm::TokenBucket, 60, 5), "60 per minute, 5 at once"),
            (quota(Algorithm::LeakyBucket, 60, 2), "60 per minute, evenly spaced, with at most 2 waiting"),
            (quota(Algorithm::Concurrency, 1, 60), "60 in flight"),
        ] {
            let violation = Violation {
                window: String::new(),
                policy: String::new(),
                is_hidden: false,
                quota,
                retry_after_seconds: None,
                decided: "local",
                is_penalty: false,
            };
            assert_eq!(rate_text(&violation), text);
        }
    }
}
