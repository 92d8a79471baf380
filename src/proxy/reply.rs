//! The answers the gateway gives itself: the only file that picks a status, of HTTP and of gRPC.
//!
//! Every refusal is problem+json (RFC 9457) with a stable `reason`, the same word the access log and the metrics
//! use. What a client sent is never repeated to it.

use bytes::Bytes;
use http::header::{ALLOW, CACHE_CONTROL, CONNECTION, CONTENT_TYPE, LOCATION, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{HeaderMap, HeaderValue, Response, StatusCode, Version};

use super::body::ResponseBody;
use super::context::{Panicked, RequestContext};
use super::framing::Fault;
use super::grpc::{self, Code};
use super::headers::X_REQUEST_ID;
use super::reason::Reason;
use crate::cause::Cause;
use crate::policy::cors::Cors;
use crate::policy::request::Values;
use crate::policy::route::Respond;

/// Why a request is refused, with what the answer says of it.
#[derive(Debug)]
pub enum Refusal {
    /// The head is not a request we may pass on.
    Malformed(&'static str),
    /// Where the message ends cannot be told, or it is of no version we speak.
    Framing(Fault),
    /// The method is none a gateway forwards (CONNECT, TRACE).
    MethodNotServed,
    /// The request names another host than the TLS connection is for.
    Misdirected,
    /// It expects something else than to be told to continue.
    ExpectationFailed,
    /// The target is too long.
    UriTooLong,
    /// Too many or too long fields.
    HeadersTooLarge,
    /// The body is over the route's limit.
    BodyTooLarge,
    /// The body comes too slowly for the connection it holds upstream, or for any.
    BodySlow,
    /// No route fits.
    NoRoute,
    /// Routes fit for these methods.
    MethodNotAllowed(HeaderValue),
    /// Authentication does not recognise the caller; how it is asked for, and what was wrong, which no client is told.
    Unauthenticated(Vec<HeaderValue>, Cause),
    /// Too many passwords are being looked at.
    AuthBusy,
    /// The caller is known and may not use the route.
    Forbidden(Cause),
    /// The client's address may not come in.
    AddressDenied,
    /// A script of that origin may not use the route.
    OriginDenied,
    /// Over these limits.
    Limited(Box<Limited>),
    /// A policy admits nothing while Redis is away.
    RedisDown(Box<Limited>),
    /// A policy wants this dimension.
    MissingKey(String),
    /// The upstream's name has no address.
    UpstreamUnresolved,
    /// No connection to the upstream.
    UpstreamConnect(Cause),
    /// No connection to the upstream in time.
    UpstreamConnectTimeout,
    /// No connection came free.
    UpstreamPoolFull,
    /// No answer in time.
    UpstreamTimeout,
    /// The upstream broke off.
    UpstreamReset,
    /// The upstream's answer is not HTTP.
    UpstreamBadResponse,
    /// The client broke off within its body.
    ClientGone,
    /// Memory runs out.
    Overloaded,
    /// A fault of ours.
    Panic,
}

/// Which limits a request is over.
#[derive(Debug)]
pub struct Limited {
    /// Every violated window.
    pub violated: Vec<Violation>,
    /// Seconds to wait, jitter included. `None`: the request can never be admitted.
    pub retry_after_seconds: Option<u64>,
}

/// One violated window.
#[derive(Debug)]
pub struct Violation {
    /// Its name, as `RateLimit-Policy` has it.
    pub window: String,
    /// The policy's name.
    pub policy: String,
    /// Units in one period.
    pub limit: u64,
    /// The period, seconds. `None`: units at once, in no period.
    pub period_seconds: Option<u64>,
    /// Seconds until it may admit the request, jitter included. `None`: it costs more than the window ever holds.
    pub retry_after_seconds: Option<u64>,
    /// Where it was decided: `local`, `global` or `fallback`.
    pub decided: &'static str,
    /// Whether the caller is kept out for longer, because it did not wait when it was told to.
    pub is_penalty: bool,
}

impl Refusal {
    /// The status it is answered with.
    pub fn status(&self) -> StatusCode {
        match self {
            Refusal::Malformed(_) | Refusal::MissingKey(_) | Refusal::ClientGone => StatusCode::BAD_REQUEST,
            Refusal::Framing(Fault::TargetTooLong) => StatusCode::URI_TOO_LONG,
            Refusal::Framing(Fault::HeadTooLong) => StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
            Refusal::Framing(Fault::Version) => StatusCode::HTTP_VERSION_NOT_SUPPORTED,
            Refusal::MethodNotServed | Refusal::Framing(Fault::CodingUnknown) => StatusCode::NOT_IMPLEMENTED,
            Refusal::Framing(
                Fault::BareLineFeed
                | Fault::RequestLine
                | Fault::OtherProtocol
                | Fault::Fragment
                | Fault::Folded
                | Fault::Length
                | Fault::Coding
                | Fault::LengthAndCoding
                | Fault::ChunkSize
                | Fault::ChunkEnd,
            ) => StatusCode::BAD_REQUEST,
            Refusal::Misdirected => StatusCode::MISDIRECTED_REQUEST,
            Refusal::ExpectationFailed => StatusCode::EXPECTATION_FAILED,
            Refusal::UriTooLong => StatusCode::URI_TOO_LONG,
            Refusal::HeadersTooLarge => StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
            Refusal::BodyTooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Refusal::BodySlow => StatusCode::REQUEST_TIMEOUT,
            Refusal::NoRoute => StatusCode::NOT_FOUND,
            Refusal::MethodNotAllowed(_) => StatusCode::METHOD_NOT_ALLOWED,
            Refusal::Unauthenticated(..) => StatusCode::UNAUTHORIZED,
            Refusal::Forbidden(_) | Refusal::AddressDenied | Refusal::OriginDenied => StatusCode::FORBIDDEN,
            // Too much at once says something of the service, too much in a time of the caller.
            Refusal::Limited(limited) if limited.is_in_flight() => StatusCode::SERVICE_UNAVAILABLE,
            Refusal::Limited(_) => StatusCode::TOO_MANY_REQUESTS,
            Refusal::RedisDown(_)
            | Refusal::AuthBusy
            | Refusal::UpstreamUnresolved
            | Refusal::UpstreamPoolFull
            | Refusal::Overloaded => StatusCode::SERVICE_UNAVAILABLE,
            Refusal::UpstreamConnect(_) | Refusal::UpstreamReset | Refusal::UpstreamBadResponse => {
                StatusCode::BAD_GATEWAY
            }
            Refusal::UpstreamConnectTimeout | Refusal::UpstreamTimeout => StatusCode::GATEWAY_TIMEOUT,
            Refusal::Panic => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }

    /// What exactly was wrong, for logs and metrics alone; where its reason does not say it already.
    fn cause(&self) -> Option<Cause> {
        match self {
            Refusal::Unauthenticated(_, cause)
            | Refusal::Forbidden(cause)
            | Refusal::UpstreamConnect(cause) => Some(*cause),
            Refusal::UpstreamConnectTimeout => Some(Cause::ConnectTimeout),
            _ => None,
        }
    }

    /// Its reason, for logs, metrics and the problem.
    pub fn reason(&self) -> Reason {
        match self {
            Refusal::Framing(Fault::TargetTooLong) => Reason::UriTooLong,
            Refusal::Framing(Fault::HeadTooLong) => Reason::HeadersTooLarge,
            Refusal::Malformed(_) | Refusal::Framing(_) => Reason::Malformed,
            Refusal::MethodNotServed | Refusal::MethodNotAllowed(_) => Reason::MethodNotAllowed,
            Refusal::Misdirected => Reason::Misdirected,
            Refusal::ExpectationFailed => Reason::ExpectationFailed,
            Refusal::UriTooLong => Reason::UriTooLong,
            Refusal::HeadersTooLarge => Reason::HeadersTooLarge,
            Refusal::BodyTooLarge => Reason::BodyTooLarge,
            Refusal::BodySlow => Reason::BodySlow,
            Refusal::NoRoute => Reason::NoRoute,
            Refusal::Unauthenticated(..) => Reason::Unauthenticated,
            Refusal::AuthBusy => Reason::AuthBusy,
            Refusal::Forbidden(_) => Reason::Forbidden,
            Refusal::AddressDenied => Reason::AddressDenied,
            Refusal::OriginDenied => Reason::OriginDenied,
            Refusal::Limited(_) => Reason::Limited,
            Refusal::RedisDown(_) => Reason::RedisDown,
            Refusal::MissingKey(_) => Reason::MissingKey,
            Refusal::UpstreamUnresolved => Reason::UpstreamUnresolved,
            Refusal::UpstreamConnect(_) => Reason::UpstreamConnect,
            Refusal::UpstreamPoolFull => Reason::UpstreamPoolFull,
            Refusal::UpstreamConnectTimeout | Refusal::UpstreamTimeout => Reason::UpstreamTimeout,
            Refusal::UpstreamReset => Reason::UpstreamReset,
            Refusal::UpstreamBadResponse => Reason::UpstreamBadResponse,
            Refusal::ClientGone => Reason::ClientGone,
            Refusal::Overloaded => Reason::Overload,
            Refusal::Panic => Reason::Panic,
        }
    }

    /// What a call of gRPC is told: what only gRPC has a word for, and of the rest what a client of gRPC makes of the
    /// status (gRPC's "HTTP to gRPC status code mapping").
    fn code(&self) -> Code {
        match self {
            Refusal::Malformed(_) | Refusal::MissingKey(_) | Refusal::ClientGone => Code::Internal,
            Refusal::Framing(_)
            | Refusal::MethodNotServed
            | Refusal::Misdirected
            | Refusal::ExpectationFailed
            | Refusal::UriTooLong
            | Refusal::HeadersTooLarge
            | Refusal::BodyTooLarge
            | Refusal::MethodNotAllowed(_)
            | Refusal::Panic => Code::Unknown,
            Refusal::NoRoute => Code::Unimplemented,
            Refusal::Unauthenticated(..) => Code::Unauthenticated,
            Refusal::Forbidden(_) | Refusal::AddressDenied | Refusal::OriginDenied => Code::PermissionDenied,
            Refusal::Limited(_) => Code::ResourceExhausted,
            Refusal::RedisDown(_)
            | Refusal::AuthBusy
            | Refusal::UpstreamUnresolved
            | Refusal::UpstreamPoolFull
            | Refusal::Overloaded
            | Refusal::UpstreamConnect(_)
            | Refusal::UpstreamReset
            | Refusal::UpstreamBadResponse => Code::Unavailable,
            Refusal::BodySlow | Refusal::UpstreamConnectTimeout | Refusal::UpstreamTimeout => {
                Code::DeadlineExceeded
            }
        }
    }

    /// When to come back, seconds.
    fn retry_after_seconds(&self) -> Option<u64> {
        match self {
            Refusal::Limited(limited) | Refusal::RedisDown(limited) => limited.retry_after_seconds,
            Refusal::AuthBusy
            | Refusal::UpstreamUnresolved
            | Refusal::UpstreamPoolFull
            | Refusal::Overloaded => Some(1),
            _ => None,
        }
    }

    /// One sentence for the client.
    fn detail(&self) -> String {
        match self {
            Refusal::Malformed(what) => (*what).to_owned(),
            Refusal::Framing(fault) => fault.to_string(),
            Refusal::MethodNotServed => "this gateway does not serve the method".to_owned(),
            Refusal::Misdirected => "this connection was made to another host".to_owned(),
            Refusal::ExpectationFailed => "the expectation is not one this gateway meets".to_owned(),
            Refusal::UriTooLong => "the request target is too long".to_owned(),
            Refusal::HeadersTooLarge => "the header fields are too many or too long".to_owned(),
            Refusal::BodyTooLarge => "the request body is larger than this route takes".to_owned(),
            Refusal::BodySlow => "the request body comes too slowly".to_owned(),
            Refusal::NoRoute => "no route matches host and path".to_owned(),
            Refusal::MethodNotAllowed(_) => "the route does not serve the method".to_owned(),
            // One text for every cause: what is wrong with a credential is not told.
            Refusal::Unauthenticated(..) => "this route asks for valid credentials".to_owned(),
            Refusal::AuthBusy => "too many callers are being authenticated".to_owned(),
            Refusal::Forbidden(_) => "the caller may not use this route".to_owned(),
            Refusal::AddressDenied => "the client's address may not come in".to_owned(),
            Refusal::OriginDenied => "scripts of this origin may not use this route".to_owned(),
            Refusal::Limited(limited) => limited.detail(),
            Refusal::RedisDown(_) => "the limit cannot be checked at the moment".to_owned(),
            Refusal::MissingKey(dimension) => {
                format!("the request has no {dimension}, or several, and its limit counts by it")
            }
            Refusal::UpstreamUnresolved => "the upstream's name does not resolve".to_owned(),
            Refusal::UpstreamConnect(_) => "the upstream cannot be reached".to_owned(),
            Refusal::UpstreamConnectTimeout => "the upstream cannot be reached in time".to_owned(),
            Refusal::UpstreamPoolFull => "all connections to the upstream are in use".to_owned(),
            Refusal::UpstreamTimeout => "the upstream did not answer in time".to_owned(),
            Refusal::UpstreamReset => "the upstream closed the connection before it answered".to_owned(),
            Refusal::UpstreamBadResponse => "the upstream's answer is not valid HTTP".to_owned(),
            Refusal::ClientGone => "the request body ended early".to_owned(),
            Refusal::Overloaded => "the gateway is short of memory or file descriptors".to_owned(),
            Refusal::Panic => "an internal error".to_owned(),
        }
    }

    /// The problem's type: registered ones where there are any.
    fn kind(&self) -> &'static str {
        if matches!(self, Refusal::Limited(_)) { QUOTA_EXCEEDED } else { "about:blank" }
    }
}

impl Limited {
    /// Whether nothing but what is in flight stood in the way.
    fn is_in_flight(&self) -> bool {
        self.violated.iter().all(|violation| violation.period_seconds.is_none())
    }

    fn detail(&self) -> String {
        let windows: Vec<String> = self
            .violated
            .iter()
            .map(|Violation { policy, limit, period_seconds, is_penalty, .. }| match period_seconds {
                Some(_) if *is_penalty => format!("{policy} keeps out callers that do not wait"),
                Some(seconds) => format!("{policy} allows {limit} in {seconds} s"),
                None => format!("{policy} allows {limit} in flight"),
            })
            .collect();
        match self.retry_after_seconds {
            Some(seconds) => format!("{}; try again in {seconds} s", windows.join(", ")),
            None => format!("{}; the request costs more than that", windows.join(", ")),
        }
    }
}

/// Refuses a request: problem+json, or to a call of gRPC a status of its own; a line in the log, a count.
pub fn refuse(context: Box<RequestContext>, refusal: &Refusal) -> Response<ResponseBody> {
    match context.is_call {
        true => refuse_call(context, refusal),
        false => refuse_request(context, refusal),
    }
}

/// Refuses a call of gRPC. Its answer is 200, and is logged and counted as that, with the reason.
fn refuse_call(mut context: Box<RequestContext>, refusal: &Refusal) -> Response<ResponseBody> {
    context.refuse(refusal.reason(), refusal.cause(), StatusCode::OK.as_u16());
    let id = context.request_id.clone();
    call_refused(ResponseBody::empty(Some(context)), refusal, id)
}

fn call_refused(body: ResponseBody, refusal: &Refusal, id: HeaderValue) -> Response<ResponseBody> {
    let mut response = Response::new(body);
    let headers = response.headers_mut();
    grpc::tell(headers, refusal.code(), &refusal.detail(), refusal.retry_after_seconds());
    if !id.is_empty() {
        headers.insert(X_REQUEST_ID, id);
    }
    response
}

fn refuse_request(mut context: Box<RequestContext>, refusal: &Refusal) -> Response<ResponseBody> {
    let status = refusal.status();
    context.refuse(refusal.reason(), refusal.cause(), status.as_u16());
    let id = context.request_id.clone();
    let h2 = context.version == Version::HTTP_2;
    let body = problem(refusal, status, &id);
    let mut response = Response::new(ResponseBody::bytes(body, Some(context)));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, PROBLEM_JSON);
    headers.insert(CACHE_CONTROL, NO_STORE);
    if !id.is_empty() {
        headers.insert(X_REQUEST_ID, id);
    }
    match refusal {
        Refusal::MethodNotAllowed(allow) => drop(headers.insert(ALLOW, allow.clone())),
        Refusal::Unauthenticated(challenges, _) => {
            for challenge in challenges {
                headers.append(WWW_AUTHENTICATE, challenge.clone());
            }
        }
        // Where one request ends and the next begins is not to be trusted any more. HTTP/2 knows it by its frames.
        // Nor is the rest of a body waited for (RFC 9110 section 15.5.9).
        Refusal::Malformed(_) | Refusal::Framing(_) | Refusal::BodySlow if !h2 => {
            drop(headers.insert(CONNECTION, CLOSE))
        }
        _ => {}
    }
    if let Some(seconds) = refusal.retry_after_seconds() {
        headers.insert(RETRY_AFTER, seconds.into());
    }
    response
}

/// The answer to a request under which the gateway itself failed; its context went down with it and left its id.
pub fn panicked(request: Panicked) -> Response<ResponseBody> {
    let (refusal, id) = (Refusal::Panic, request.request_id);
    if request.is_call {
        return call_refused(ResponseBody::empty(None), &refusal, id);
    }
    let body = problem(&refusal, refusal.status(), &id);
    let mut response = Response::new(ResponseBody::bytes(body, None));
    *response.status_mut() = refusal.status();
    response.headers_mut().insert(CONTENT_TYPE, PROBLEM_JSON);
    if !id.is_empty() {
        response.headers_mut().insert(X_REQUEST_ID, id);
    }
    response
}

/// A route's fixed answer.
pub fn respond(
    mut context: Box<RequestContext>,
    fixed: &Respond,
    values: &Values<'_, '_>,
) -> Response<ResponseBody> {
    context.answer(fixed.status);
    let mut response = Response::new(ResponseBody::bytes(fixed.body.clone(), Some(context)));
    *response.status_mut() = fixed.status;
    for (name, template) in &fixed.headers {
        if let Some(value) = template.render(values) {
            response.headers_mut().append(name, value);
        }
    }
    response
}

/// What a browser asks before a script's request: answered here, charged nowhere.
pub fn preflight(
    mut context: Box<RequestContext>,
    cors: &Cors,
    granted: HeaderValue,
    asked: &HeaderMap,
) -> Response<ResponseBody> {
    context.answer(StatusCode::NO_CONTENT);
    let mut response = Response::new(ResponseBody::empty(Some(context)));
    *response.status_mut() = StatusCode::NO_CONTENT;
    cors.tell_preflight(granted, asked, response.headers_mut());
    response
}

/// The answer to `OPTIONS *` (RFC 9110 section 9.3.7): what a gateway can do for any of its upstreams.
pub fn server_options(mut context: Box<RequestContext>) -> Response<ResponseBody> {
    context.answer(StatusCode::OK);
    let mut response = Response::new(ResponseBody::empty(Some(context)));
    response.headers_mut().insert(ALLOW, METHODS);
    response
}

/// The same URL over https. `location` is `None` where the request names no host to send it to.
pub fn redirect(mut context: Box<RequestContext>, location: Option<HeaderValue>) -> Response<ResponseBody> {
    let Some(location) = location else {
        return refuse(context, &Refusal::Malformed("the request names no host"));
    };
    // 308 keeps method and body (RFC 9110 section 15.4.9).
    context.answer(StatusCode::PERMANENT_REDIRECT);
    let mut response = Response::new(ResponseBody::empty(Some(context)));
    *response.status_mut() = StatusCode::PERMANENT_REDIRECT;
    response.headers_mut().insert(LOCATION, location);
    response
}

/// The built-in echo upstream's answer.
pub fn echo(
    mut context: Box<RequestContext>,
    body: super::body::RequestBody,
    kind: Option<HeaderValue>,
) -> Response<ResponseBody> {
    context.answer(StatusCode::OK);
    let mut response = Response::new(ResponseBody::echo(body, context));
    response.headers_mut().insert(CONTENT_TYPE, kind.unwrap_or(OCTETS));
    response
}

/// The built-in echo upstream's answer to a request without a body: the head as an upstream would have seen it.
pub fn echo_head(mut context: Box<RequestContext>, head: String) -> Response<ResponseBody> {
    context.answer(StatusCode::OK);
    let mut response = Response::new(ResponseBody::bytes(Bytes::from(head), Some(context)));
    response.headers_mut().insert(CONTENT_TYPE, TEXT);
    response
}

/// Why hyper answered a head by itself, told by the status it chose.
pub fn reason_of_parse_status(status: u16) -> Reason {
    match status {
        414 => Reason::UriTooLong,
        431 => Reason::HeadersTooLarge,
        _ => Reason::Malformed,
    }
}

fn problem(refusal: &Refusal, status: StatusCode, id: &HeaderValue) -> Bytes {
    let mut problem = serde_json::json!({
        "type": refusal.kind(),
        "title": status.canonical_reason().unwrap_or("Error"),
        "status": status.as_u16(),
        "detail": refusal.detail(),
        "reason": refusal.reason().code(),
    });
    if let (false, Ok(id)) = (id.is_empty(), id.to_str()) {
        problem["request-id"] = id.into();
    }
    if let Refusal::Limited(limited) | Refusal::RedisDown(limited) = refusal {
        problem["violated-policies"] =
            limited.violated.iter().map(|violation| violation.window.as_str()).collect();
        problem["violations"] = limited.violated.iter().map(Violation::to_json).collect();
    }
    Bytes::from(problem.to_string() + "\n")
}

impl Violation {
    fn to_json(&self) -> serde_json::Value {
        let mut violation = serde_json::json!({
            "policy": self.policy,
            "window": self.window,
            "limit": self.limit,
            "period-seconds": self.period_seconds,
            "decided": self.decided,
            "retry-after-seconds": self.retry_after_seconds,
        });
        if self.is_penalty {
            violation["penalty"] = true.into();
        }
        violation
    }
}

/// The answer to a head that does not come (RFC 9110 section 15.5.9), for a socket no parser stands behind any more.
pub fn header_timeout(id: &HeaderValue) -> Vec<u8> {
    let mut head =
        b"HTTP/1.1 408 Request Timeout\r\nconnection: close\r\ncontent-length: 0\r\nx-request-id: ".to_vec();
    head.extend_from_slice(id.as_bytes());
    head.extend_from_slice(b"\r\n\r\n");
    head
}

/// The whole answer to a head that is refused before it is read, for a socket no parser stands behind any more.
pub fn unread(refusal: &Refusal, id: &HeaderValue) -> Vec<u8> {
    let status = refusal.status();
    let body = problem(refusal, status, id);
    let mut answer = format!(
        "HTTP/1.1 {status}\r\nconnection: close\r\ncontent-type: application/problem+json\r\n\
         cache-control: no-store\r\ncontent-length: {}\r\nx-request-id: ",
        body.len()
    )
    .into_bytes();
    answer.extend_from_slice(id.as_bytes());
    answer.extend_from_slice(b"\r\n\r\n");
    answer.extend_from_slice(&body);
    answer
}

/// The status of [`header_timeout`].
pub const HEADER_TIMEOUT_STATUS: u16 = 408;

/// What is logged of a request or a connection over HTTP/2 that the protocol refused by a reset.
pub const BAD_REQUEST_STATUS: u16 = 400;
/// What hyper answers to a head over HTTP/2 that is too long for it.
pub const HEADERS_TOO_LARGE_STATUS: u16 = 431;
/// What is logged of a request over HTTP/2 that was refused for want of room.
pub const UNAVAILABLE_STATUS: u16 = 503;

/// draft-ietf-httpapi-ratelimit-headers-11, section 5.
const QUOTA_EXCEEDED: &str = "https://iana.org/assignments/http-problem-types#quota-exceeded";
/// The methods that every server knows (RFC 9110 section 9) and PATCH, but for those a gateway does not serve.
const METHODS: HeaderValue = HeaderValue::from_static("GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS");
const PROBLEM_JSON: HeaderValue = HeaderValue::from_static("application/problem+json");
const CLOSE: HeaderValue = HeaderValue::from_static("close");
const NO_STORE: HeaderValue = HeaderValue::from_static("no-store");
const OCTETS: HeaderValue = HeaderValue::from_static("application/octet-stream");
const TEXT: HeaderValue = HeaderValue::from_static("text/plain; charset=utf-8");
