//! The answers that the endpoints share, and the parameters that many of them take.

use axum::body::Body;
use http::header::{ETAG, HeaderName};
use http::{Response, StatusCode};
use serde::Serialize;
use serde_json::Value;
use utoipa::{IntoParams, ToSchema};

use super::conditions::etag;
use crate::admin::reply;

/// What a change would do.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub(in crate::admin) struct DryRun {
    /// Always true.
    dry_run: bool,
    /// The row as it is; `null` if there is none.
    old: Value,
    /// The row as it would be, without what only a real change gives it; `null` if it would be deleted.
    new: Value,
}

/// `?dry-run=true`
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
#[expect(dead_code, reason = "it is described, never made")]
pub(in crate::admin) struct DryRunParameter {
    /// Answer what would be done, and do nothing
    #[param(rename = "dry-run", required = false)]
    dry_run: Option<bool>,
}

/// `Idempotency-Key`
#[derive(IntoParams)]
#[into_params(parameter_in = Header)]
#[expect(dead_code, reason = "it is described, never made")]
pub(in crate::admin) struct IdempotencyKey {
    /// A request that comes again within a day is answered as before, and does nothing
    #[param(
        rename = "idempotency-key",
        required = false,
        min_length = 1,
        max_length = 255,
        pattern = r"^[!-~]+$"
    )]
    key: String,
}

/// `If-Match`
#[derive(IntoParams)]
#[into_params(parameter_in = Header)]
#[expect(dead_code, reason = "it is described, never made")]
pub(in crate::admin) struct IfMatch {
    /// The tag that the row must still have, or `*`
    #[param(rename = "if-match", required = false, pattern = r#"^(\*|"[0-9]{1,18}")$"#)]
    tag: String,
}

/// `If-None-Match`
#[derive(IntoParams)]
#[into_params(parameter_in = Header)]
#[expect(dead_code, reason = "it is described, never made")]
pub(in crate::admin) struct IfNoneMatch {
    /// `*`: there must be no row yet
    #[param(rename = "if-none-match", required = false, pattern = r"^\*$")]
    tag: String,
}

/// A row, with its version as its tag.
pub(in crate::admin) fn row(status: StatusCode, version: i64, shown: &impl Serialize) -> Response<Body> {
    let mut answer = json(shown);
    *answer.status_mut() = status;
    answer.headers_mut().insert(ETAG, etag(version));
    answer
}

/// JSON.
pub(in crate::admin) fn json(shown: &impl Serialize) -> Response<Body> {
    // Cannot fail: the types of answers have only texts as names.
    reply::json(serde_json::to_string(shown).unwrap_or_default())
}

/// What would be done, with the version of the row as it is for its tag.
pub(in crate::admin) fn dry_run(old: Value, new: Value) -> Response<Body> {
    let version = old["version"].as_i64();
    let mut answer = json(&DryRun { dry_run: true, old, new });
    if let Some(version) = version {
        answer.headers_mut().insert(ETAG, etag(version));
    }
    answer
}

/// That it is done, and nothing is left to show.
pub(in crate::admin) fn nothing() -> Response<Body> {
    let mut answer = reply::text(StatusCode::NO_CONTENT, Body::empty());
    answer.headers_mut().remove(HeaderName::from_static("content-type"));
    answer
}
