//! The answers that the endpoints share, and the parameters that many of them take.

use axum::body::Body;
use http::header::{ETAG, HeaderName};
use http::{Response, StatusCode};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Value, json};

use super::reading::conditions::etag;
use crate::admin::gate::DryRunAnswer;
use crate::admin::refusal::AdminRefusal;
use crate::admin::reply;

/// What a handler answers, or why it refuses.
pub(in crate::admin) type Answer = Result<Response<Body>, AdminRefusal>;

/// What a change would do, as `?dry-run` shows it.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(in crate::admin) struct DryRun {
    /// Always true.
    #[schemars(example = true)]
    dry_run: bool,
    /// The row as it is; `null` if there is none.
    old: Value,
    /// The row as it would be, without what only a real change gives it; `null` if it would be deleted.
    new: Value,
}

/// Of a change that is stored but not in force. Written into the answer by [`published`](super::change::ChangeRequest::published).
#[derive(Debug, Default, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(in crate::admin) struct RowStatus {
    /// Whether the change is in force. `false`: it is stored, and takes effect once the file that `in-force-error` names can
    /// be used.
    #[serde(skip_serializing_if = "Option::is_none")]
    in_force: Option<bool>,
    /// Why it is not in force.
    #[serde(skip_serializing_if = "Option::is_none")]
    in_force_error: Option<String>,
}

/// The response to a deletion that needs a remark.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(extend("examples" = [json!({ "in-force": false, "in-force-error": "gateway.toml cannot be read" })]))]
pub(in crate::admin) struct Deletion {
    /// Whether the deletion is in force. `false`: it is stored, and takes effect once the file that `in-force-error`
    /// names can be used.
    pub in_force: bool,
    /// Why it is not in force.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub in_force_error: Option<String>,
    /// What may be a mistake.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
}

pub(super) fn dry_run_parameter() -> Value {
    json!({
        "name": "dry-run", "in": "query", "required": false, "schema": { "type": "boolean" },
        "description": "Show what the request would change, and change nothing",
    })
}

pub(super) fn idempotency_key() -> Value {
    let about =
        "A request repeated with this key within a day gets the first response again and changes nothing";
    let schema = json!({
        "type": "string", "minLength": 1, "maxLength": 255, "pattern": "^[!-~]+$", "examples": ["8e03978e-40d5"],
    });
    header("idempotency-key", about, &schema)
}

pub(super) fn if_match() -> Value {
    let schema = json!({ "type": "string", "pattern": r#"^(\*|"[0-9]{1,18}")$"#, "examples": ["*"] });
    header("if-match", "The tag that the row must still have, or `*`", &schema)
}

pub(super) fn if_none_match() -> Value {
    let schema = json!({ "type": "string", "pattern": r"^\*$", "examples": ["*"] });
    header("if-none-match", "`*`: there must be no row yet", &schema)
}

fn header(name: &str, about: &str, schema: &Value) -> Value {
    json!({ "name": name, "in": "header", "required": false, "description": about, "schema": schema })
}

pub(in crate::admin) fn row(status: StatusCode, version: i64, shown: &impl Serialize) -> Response<Body> {
    let mut answer = json(shown);
    *answer.status_mut() = status;
    answer.headers_mut().insert(ETAG, etag(version));
    answer
}

pub(in crate::admin) fn json(shown: &impl Serialize) -> Response<Body> {
    // Cannot fail, because the types of answers have only texts as names.
    reply::json(serde_json::to_string(shown).unwrap_or_default())
}

/// What would be done, with the version of the row as it is for its tag.
pub(in crate::admin) fn dry_run(old: Value, new: Value) -> Response<Body> {
    let version = old["version"].as_i64();
    let mut answer = json(&DryRun { dry_run: true, old, new });
    answer.extensions_mut().insert(DryRunAnswer);
    if let Some(version) = version {
        answer.headers_mut().insert(ETAG, etag(version));
    }
    answer
}

pub(in crate::admin) fn nothing() -> Response<Body> {
    let mut answer = reply::text(StatusCode::NO_CONTENT, Body::empty());
    answer.headers_mut().remove(HeaderName::from_static("content-type"));
    answer
}
