//! Answers of the admin listener: text, JSON, and errors as problem+json (RFC 9457).

use axum::body::Body;
use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use http::{HeaderValue, Response, StatusCode};
use serde_json::{Value, json};

pub(super) fn text(status: StatusCode, body: impl Into<Body>) -> Response<Body> {
    with_type(status, "text/plain; charset=utf-8", body)
}

/// An answer of JSON that is serialised already.
pub(super) fn json(body: String) -> Response<Body> {
    with_type(StatusCode::OK, "application/json", body)
}

/// A problem; `places` are those in the request that are wrong.
pub(super) fn problem(status: StatusCode, detail: &str, places: Option<Value>) -> Response<Body> {
    let title = status.canonical_reason().unwrap_or_default();
    let mut body = json!({ "title": title, "status": status.as_u16(), "detail": detail });
    if let Some(places) = places {
        body["errors"] = places;
    }
    with_type(status, "application/problem+json", body.to_string())
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
