//! The answers that the gateway gives itself: refusals, and the actions of routes without an upstream.
//!
//! [`problem`](crate::service::problem) chooses a refusal's status and text.

use bytes::Bytes;
use http::header::{ALLOW, CONTENT_TYPE, LOCATION};
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode, Version};

use crate::proxy::context::{PanicReply, RequestContext};
use crate::proxy::response::response_body::ResponseBody;

use crate::proxy::response::answer_fields;
use crate::proxy::response::grpc;
use crate::proxy::snapshot::Snapshot;
use crate::service::conn::Conn;
use crate::service::form::ErrorForm;
use crate::service::problem::RefusalProblem;
use crate::service::refusal::Refusal;
use base::identity::NOBODY;
use policy::matching::host::{is_authority, routed};
use policy::request::{Params, TemplateValues};
use policy::response::cors::Cors;
use policy::route::Respond;

/// Refuses a request: in the form that it prefers, or with a gRPC status if it is a gRPC call. It is logged and counted.
pub fn refuse(context: Box<RequestContext>, refusal: &Refusal) -> Response<ResponseBody> {
    match context.facts.is_call {
        true => refuse_call(context, &RefusalProblem::of(refusal)),
        false => refuse_request(context, &RefusalProblem::of(refusal)),
    }
}

/// Refuses a gRPC call. Its HTTP status is 200, as gRPC demands, and it is logged and counted as 200 with the reason.
fn refuse_call(mut context: Box<RequestContext>, problem: &RefusalProblem<'_>) -> Response<ResponseBody> {
    context.outcome.grpc_status = Some(problem.code as u32);
    context.refuse(problem.reason, problem.cause, StatusCode::OK.as_u16(), problem.status.as_u16());
    let mut headers = fields();
    grpc::tell(&mut headers, problem.code, &problem.detail, problem.retry_after_seconds);
    own(context, StatusCode::OK, headers, Bytes::new())
}

/// The fields of an answer of the gateway's own, with room for those that are added to it.
fn fields() -> HeaderMap {
    HeaderMap::with_capacity(FIELDS)
}

fn one(name: HeaderName, value: HeaderValue) -> HeaderMap {
    let mut headers = fields();
    headers.insert(name, value);
    headers
}

/// An answer of the gateway's own, with the fields that every answer has.
fn own(
    context: Box<RequestContext>,
    status: StatusCode,
    mut headers: HeaderMap,
    bytes: Bytes,
) -> Response<ResponseBody> {
    answer_fields::add(&context, &mut headers);
    response(status, headers, ResponseBody::bytes(bytes, Some(context)))
}

fn response(status: StatusCode, headers: HeaderMap, body: ResponseBody) -> Response<ResponseBody> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    *response.headers_mut() = headers;
    response
}

fn refuse_request(mut context: Box<RequestContext>, problem: &RefusalProblem<'_>) -> Response<ResponseBody> {
    let status = problem.status.as_u16();
    context.refuse(problem.reason, problem.cause, status, status);
    let may_close = context.facts.version != Version::HTTP_2;
    let form = context.facts.form;
    let mut headers = fields();
    problem.write_headers(form, may_close, &mut headers);
    let bytes = match operators_body(&context, problem.status) {
        Some((bytes, kind)) => {
            headers.insert(CONTENT_TYPE, kind);
            bytes
        }
        None => {
            let (snapshot, conn) = (&context.view.snapshot, &context.conn);
            let id = answer_fields::told_id(snapshot, conn, &context.facts.request_id);
            problem.body(form, &id, answer_fields::node(snapshot, conn))
        }
    };
    own(context, problem.status, headers, bytes)
}

/// The operator's own body for a request that is refused with this status, and its type; `None`: the gateway's own.
fn operators_body(context: &RequestContext, status: StatusCode) -> Option<(Bytes, HeaderValue)> {
    let (snapshot, facts) = (&context.view.snapshot, &context.facts);
    let pages = snapshot.error_pages.as_ref()?.load();
    let page = pages.find(status, facts.form)?;
    // Checked, because of a request that is refused for its authority it is whatever was sent.
    let authority = facts.authority.to_str().ok().filter(|text| is_authority(text)).unwrap_or_default();
    let (host, path) = (routed(authority), facts.uri.path());
    let values = TemplateValues {
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

/// The answer to a request that panicked. Its context is gone and has left its id in `request`.
pub fn panicked(request: &PanicReply, snapshot: &Snapshot, conn: &Conn) -> Response<ResponseBody> {
    let (problem, mut headers) = (RefusalProblem::of(&Refusal::Panic), fields());
    let id = answer_fields::told_id(snapshot, conn, &request.request_id);
    let (status, bytes) = match request.is_call {
        true => {
            grpc::tell(&mut headers, problem.code, &problem.detail, problem.retry_after_seconds);
            (StatusCode::OK, Bytes::new())
        }
        false => {
            problem.write_headers(ErrorForm::Json, false, &mut headers);
            (problem.status, problem.body(ErrorForm::Json, &id, None))
        }
    };
    if !id.is_empty() {
        answer_fields::tell_id(id, conn, &mut headers);
    }
    conn.config.response_headers.apply(&mut headers);
    response(status, headers, ResponseBody::bytes(bytes, None))
}

/// Gives the fixed answer of a route's `respond`.
pub fn respond(
    mut context: Box<RequestContext>,
    fixed: &Respond,
    values: &TemplateValues<'_, '_>,
) -> Response<ResponseBody> {
    context.answer(fixed.status);
    let mut headers = fields();
    for (name, template) in &fixed.headers {
        if let Some(value) = template.render(values) {
            headers.append(name, value);
        }
    }
    own(context, fixed.status, headers, fixed.body.render(values))
}

/// The answer to a CORS preflight.
pub fn preflight(
    mut context: Box<RequestContext>,
    cors: &Cors,
    granted: HeaderValue,
    asked: &HeaderMap,
) -> Response<ResponseBody> {
    context.answer(StatusCode::NO_CONTENT);
    let mut headers = fields();
    cors.tell_preflight(granted, asked, &mut headers);
    own(context, StatusCode::NO_CONTENT, headers, Bytes::new())
}

/// The answer to `OPTIONS *` (RFC 9110 section 9.3.7), which asks about the server as a whole and not about a route.
pub fn server_options(mut context: Box<RequestContext>) -> Response<ResponseBody> {
    context.answer(StatusCode::OK);
    own(context, StatusCode::OK, one(ALLOW, METHODS), Bytes::new())
}

/// The answer to an authority that checks who controls a name (RFC 8555 section 8.3).
pub fn challenge(mut context: Box<RequestContext>, text: String) -> Response<ResponseBody> {
    context.answer(StatusCode::OK);
    own(context, StatusCode::OK, one(CONTENT_TYPE, OCTETS), Bytes::from(text))
}

/// Redirects to `location` with this status; refuses the request if that is `None`, because it names no host.
pub fn redirect(
    mut context: Box<RequestContext>,
    location: Option<HeaderValue>,
    status: StatusCode,
) -> Response<ResponseBody> {
    let Some(location) = location else {
        return refuse(context, &Refusal::Malformed("`Host` is missing, and the redirect needs it"));
    };
    context.answer(status);
    own(context, status, one(LOCATION, location), Bytes::new())
}

/// The answer of a route's `echo` to a request with a body: the same body.
pub fn echo(
    mut context: Box<RequestContext>,
    body: crate::proxy::request::request_body::RequestBody,
    kind: Option<HeaderValue>,
) -> Response<ResponseBody> {
    context.answer(StatusCode::OK);
    let mut headers = one(CONTENT_TYPE, kind.unwrap_or(OCTETS));
    answer_fields::add(&context, &mut headers);
    response(StatusCode::OK, headers, ResponseBody::echo(body, context))
}

/// The answer of a route's `echo` to a request without a body: the head as an upstream would have seen it.
pub fn echo_head(mut context: Box<RequestContext>, head: String) -> Response<ResponseBody> {
    context.answer(StatusCode::OK);
    own(context, StatusCode::OK, one(CONTENT_TYPE, TEXT), Bytes::from(head))
}

/// So many fields an answer of the gateway's own has, about.
const FIELDS: usize = 8;
/// The methods of RFC 9110 section 9 and PATCH, without CONNECT and TRACE, which the gateway does not serve.
const METHODS: HeaderValue = HeaderValue::from_static("GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS");
const OCTETS: HeaderValue = HeaderValue::from_static("application/octet-stream");
const TEXT: HeaderValue = HeaderValue::from_static("text/plain; charset=utf-8");
