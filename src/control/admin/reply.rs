//! Answers of the admin listener: text, JSON, and errors as problem+json (RFC 9457).

use axum::body::Body;
use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use http::{HeaderValue, Response, StatusCode};
use schemars::JsonSchema;
use serde::Serialize;

pub(super) fn text(status: StatusCode, body: impl Into<Body>) -> Response<Body> {
    with_type(status, "text/plain; charset=utf-8", body)
}

/// An answer of JSON that is serialised already.
pub(super) fn json(body: String) -> Response<Body> {
    with_type(StatusCode::OK, "application/json", body)
}

/// Why a request was refused (RFC 9457).
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Problem")]
pub(super) struct AdminProblem {
    #[schemars(example = &"Bad Request")]
    title: &'static str,
    #[schemars(example = 400)]
    status: u16,
    #[schemars(example = &"`reason` is missing: text for the audit log")]
    detail: String,
    /// What is wrong, and where.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    errors: Vec<RequestFault>,
}

/// One thing that is wrong with a request.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Fault")]
pub(super) struct RequestFault {
    #[schemars(example = &"`reason` is missing: text for the audit log")]
    pub detail: String,
    #[serde(flatten)]
    pub at: FaultLocation,
}

/// Where in the request the fault is.
#[derive(Debug, Default, Serialize, JsonSchema)]
#[schemars(rename = "Location")]
pub(super) struct FaultLocation {
    /// The place in the body that is wrong, a JSON pointer (RFC 6901).
    #[schemars(example = &"#/reason")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pointer: Option<String>,
    /// The parameter of the path or the query that is wrong.
    #[schemars(example = &"limit")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parameter: Option<String>,
    /// The header of the request that is wrong.
    #[schemars(example = &"if-match")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub header: Option<&'static str>,
}

/// A problem; `errors` are the places in the request that are wrong.
pub(super) fn problem(status: StatusCode, detail: String, errors: Vec<RequestFault>) -> Response<Body> {
    let title = status.canonical_reason().unwrap_or_default();
    let problem = AdminProblem { title, status: status.as_u16(), detail, errors };
    // Cannot fail, because it has only texts as names.
    with_type(status, "application/problem+json", serde_json::to_string(&problem).unwrap_or_default())
}

/// An answer with this content type. Caches must not keep it, because it shows the present state.
pub(super) fn with_type(
    status: StatusCode,
    content_type: &'static str,
    body: impl Into<Body>,
) -> Response<Body> {
    let mut response = Response::new(body.into());
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}
