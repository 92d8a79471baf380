//! Answers of the admin listener: text, JSON, and what is wrong as problem+json (RFC 9457).

use axum::body::Body;
use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use http::{HeaderValue, Response, StatusCode};
use serde_json::json;

/// Plain text.
pub(super) fn text(status: StatusCode, body: impl Into<Body>) -> Response<Body> {
    with_type(status, "text/plain; charset=utf-8", body)
}

/// JSON that stands as text already.
pub(super) fn json(body: String) -> Response<Body> {
    with_type(StatusCode::OK, "application/json", body)
}

/// What is wrong, in words.
pub(super) fn problem(status: StatusCode, detail: &str) -> Response<Body> {
    let title = status.canonical_reason().unwrap_or_default();
    let body = json!({ "title": title, "status": status.as_u16(), "detail": detail });
    with_type(status, "application/problem+json", body.to_string())
}

/// A body of this type. No cache keeps it: the next answer may differ.
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
