//! The answers that the gateway gives itself: refusals, and the actions of routes without an upstream.
//!
//! [`problem`](crate::service::problem) chooses a refusal's status and text.

use bytes::Bytes;
use http::header::{ALLOW, CONTENT_TYPE, LOCATION};
use http::{HeaderMap, HeaderValue, Response, StatusCode, Version};

use super::context::{Panicked, RequestContext};
use super::response_body::ResponseBody;

use super::grpc;
use super::headers::X_REQUEST_ID;
use super::node;
use crate::service::form::Form;
use crate::service::problem::Problem;
use crate::service::refusal::Refusal;
use base::identity::NOBODY;
use policy::cors::Cors;
use policy::host::{is_authority, routed};
use policy::request::{Params, Values};
use policy::route::Respond;

/// Refuses a request: in the form that it prefers, or with a gRPC status if it is a gRPC call. It is logged and counted.
pub fn refuse(context: Box<RequestContext>, refusal: &Refusal) -> Response<ResponseBody> {
    match context.facts.is_call {
        true => refuse_call(context, &Problem::of(refusal)),
        false => refuse_request(context, &Problem::of(refusal)),
    }
}

/// Refuses a gRPC call. Its HTTP status is 200, as gRPC demands, and it is logged and counted as 200 with the reason.
fn refuse_call(mut context: Box<RequestContext>, problem: &Problem<'_>) -> Response<ResponseBody> {
    context.refuse(problem.reason, problem.cause, StatusCode::OK.as_u16());
    context.outcome.grpc_status = Some(problem.code as u32);
    let id = context.facts.request_id.clone();
    call_refused(ResponseBody::empty(Some(context)), problem, id)
}

fn call_refused(body: ResponseBody, problem: &Problem<'_>, id: HeaderValue) -> Response<ResponseBody> {
    let mut response = Response::new(body);
    let headers = response.headers_mut();
    grpc::tell(headers, problem.code, &problem.detail, problem.retry_after_seconds);
    if !id.is_empty() {
        headers.insert(X_REQUEST_ID, id);
    }
    response
}

fn refuse_request(mut context: Box<RequestContext>, problem: &Problem<'_>) -> Response<ResponseBody> {
    context.refuse(problem.reason, problem.cause, problem.status.as_u16());
    let id = context.facts.request_id.clone();
    let may_close = context.facts.version != Version::HTTP_2;
    let form = context.facts.form;
    let (bytes, kind) = match operators_body(&context, problem.status) {
        Some((bytes, kind)) => (bytes, Some(kind)),
        None => {
            let node = node::shown(&context.view.snapshot, &context.conn);
            (problem.body(form, &id, node), None)
        }
    };
    let mut response =
        request_refused(ResponseBody::bytes(bytes, Some(context)), problem, form, may_close, id);
    if let Some(kind) = kind {
        response.headers_mut().insert(CONTENT_TYPE, kind);
    }
    response
}

/// The operator's own body for a request that is refused with this status, and its type; `None`: the gateway's own.
fn operators_body(context: &RequestContext, status: StatusCode) -> Option<(Bytes, HeaderValue)> {
    let (snapshot, facts) = (&context.view.snapshot, &context.facts);
    let pages = snapshot.error_pages.as_ref()?.load();
    let page = pages.find(status, facts.form)?;
    // Of a request that is refused for its authority it is whatever was sent.
    let authority = facts.authority.to_str().ok().filter(|text| is_authority(text)).unwrap_or_default();
    let (host, path) = (routed(authority), facts.uri.path());
    let values = Values {
        route: facts.route.map_or("", |id| &snapshot.table.routes()[id.index()].name),
        params: Params::new(pages.pattern(), path),
        method: &facts.method,
        host: &host,
        path,
        query: facts.uri.query(),
        client_ip: facts.client,
        identity: facts.identity.as_deref().unwrap_or(&NOBODY),
        request_id: facts.request_id.to_str().unwrap_or_default(),
    };
    Some(page.render(&values))
}

fn request_refused(
    body: ResponseBody,
    problem: &Problem<'_>,
    form: Form,
    may_close: bool,
    id: HeaderValue,
) -> Response<ResponseBody> {
    let mut response = Response::new(body);
    *response.status_mut() = problem.status;
    let headers = response.headers_mut();
    problem.write_headers(form, may_close, headers);
    if !id.is_empty() {
        headers.insert(X_REQUEST_ID, id);
    }
    response
}

/// The answer to a request that panicked. Its context is gone and has left its id in `request`.
pub fn panicked(request: Panicked) -> Response<ResponseBody> {
    let (problem, id) = (Problem::of(&Refusal::Panic), request.request_id);
    if request.is_call {
        return call_refused(ResponseBody::empty(None), &problem, id);
    }
    let body = ResponseBody::bytes(problem.body(Form::Json, &id, None), None);
    request_refused(body, &problem, Form::Json, false, id)
}

/// A route's fixed answer.
pub fn respond(
    mut context: Box<RequestContext>,
    fixed: &Respond,
    values: &Values<'_, '_>,
) -> Response<ResponseBody> {
    context.answer(fixed.status);
    let mut response = Response::new(ResponseBody::bytes(fixed.body.render(values), Some(context)));
    *response.status_mut() = fixed.status;
    for (name, template) in &fixed.headers {
        if let Some(value) = template.render(values) {
            response.headers_mut().append(name, value);
        }
    }
    response
}

/// The answer to a CORS preflight.
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

/// The answer to `OPTIONS *` (RFC 9110 section 9.3.7), which asks about the server as a whole and not about a route.
pub fn server_options(mut context: Box<RequestContext>) -> Response<ResponseBody> {
    context.answer(StatusCode::OK);
    let mut response = Response::new(ResponseBody::empty(Some(context)));
    response.headers_mut().insert(ALLOW, METHODS);
    response
}

/// The answer to an authority that checks who controls a name (RFC 8555 section 8.3).
pub fn challenge(mut context: Box<RequestContext>, text: String) -> Response<ResponseBody> {
    context.answer(StatusCode::OK);
    let mut response = Response::new(ResponseBody::bytes(Bytes::from(text), Some(context)));
    response.headers_mut().insert(CONTENT_TYPE, OCTETS);
    response
}

/// Redirects to `location` with this status; refuses the request if that is `None`, because it names no host.
pub fn redirect(
    mut context: Box<RequestContext>,
    location: Option<HeaderValue>,
    status: StatusCode,
) -> Response<ResponseBody> {
    let Some(location) = location else {
        return refuse(context, &Refusal::Malformed("the request names no host"));
    };
    context.answer(status);
    let mut response = Response::new(ResponseBody::empty(Some(context)));
    *response.status_mut() = status;
    response.headers_mut().insert(LOCATION, location);
    response
}

/// The answer of a route's `echo` to a request with a body: the same body.
pub fn echo(
    mut context: Box<RequestContext>,
    body: super::request_body::RequestBody,
    kind: Option<HeaderValue>,
) -> Response<ResponseBody> {
    context.answer(StatusCode::OK);
    let mut response = Response::new(ResponseBody::echo(body, context));
    response.headers_mut().insert(CONTENT_TYPE, kind.unwrap_or(OCTETS));
    response
}

/// The answer of a route's `echo` to a request without a body: the head as an upstream would have seen it.
pub fn echo_head(mut context: Box<RequestContext>, head: String) -> Response<ResponseBody> {
    context.answer(StatusCode::OK);
    let mut response = Response::new(ResponseBody::bytes(Bytes::from(head), Some(context)));
    response.headers_mut().insert(CONTENT_TYPE, TEXT);
    response
}

/// The methods of RFC 9110 section 9 and PATCH, without CONNECT and TRACE, which the gateway does not serve.
const METHODS: HeaderValue = HeaderValue::from_static("GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS");
const OCTETS: HeaderValue = HeaderValue::from_static("application/octet-stream");
const TEXT: HeaderValue = HeaderValue::from_static("text/plain; charset=utf-8");
