//! `/v1/openapi.json`: the OpenAPI 3.1 document of the endpoints in this directory, made from their code.

use std::sync::OnceLock;

use axum::body::Body as Sent;
use http::Response;
use serde_json::{Value, json};
use utoipa::OpenApi;

use super::answer::DryRun;
use super::{
    api_keys, audit, checks, consumers, decisions, described, hot_keys, limits, overrides, policies,
    snake_overrides, tiers, usage, why,
};
use crate::admin::reply;

#[derive(OpenApi)]
#[openapi(
    info(
        title = "Sluicegate",
        description = "The control plane, on the admin listener of a gateway: every endpoint that changes limits, counts or keys, and \
                       those that read what these have. Not described are pages that show a gateway at work, as JSON whose fields \
                       may grow: /v1/live (server-sent events), /v1/whoami, /v1/explain, /v1/upstreams and \
                       /v1/keys/{policy}/{value}."
    ),
    paths(
        overrides::add,
        overrides::list,
        overrides::show,
        overrides::delete,
        snake_overrides::add,
        snake_overrides::list,
        snake_overrides::show,
        snake_overrides::delete,
        policies::list,
        policies::show,
        policies::put,
        policies::delete,
        tiers::list,
        tiers::show,
        tiers::put,
        tiers::delete,
        consumers::show_tier,
        consumers::put_tier,
        consumers::delete_tier,
        api_keys::add,
        api_keys::list,
        api_keys::show,
        api_keys::patch,
        api_keys::delete,
        audit::list,
        limits::show,
        limits::put,
        limits::delete,
        usage::show,
        usage::reset,
        usage::grant,
        hot_keys::list,
        checks::check,
        checks::is_allowed,
        decisions::show,
        decisions::list,
        why::show,
    ),
    components(schemas(
        described::Problem,
        described::SnakeOverrideDeleted,
        described::Check,
        described::Verdict,
        described::Verdicts,
        described::FlatPolicy,
        described::Reset,
        described::HolderKind,
        described::PolicyDocument,
        DryRun
    ))
)]
struct Document;

/// `/v1/openapi.json`
pub(in crate::admin) async fn show() -> Response<Sent> {
    static TEXT: OnceLock<String> = OnceLock::new();
    reply::json(TEXT.get_or_init(|| document().to_string()).clone())
}

/// The document: what the macros make, and what holds for all operations or cannot be said by types.
pub(in crate::admin) fn document() -> Value {
    // Cannot fail: the document has only texts as names.
    let mut document = serde_json::to_value(Document::openapi()).unwrap_or_default();
    for (name, schema) in document["components"]["schemas"].as_object_mut().into_iter().flatten() {
        if name.ends_with("Body") {
            schema["additionalProperties"] = false.into();
        }
        for (_, keywords) in described::rules().into_iter().filter(|(of, _)| of == name) {
            for (keyword, value) in keywords.as_object().into_iter().flatten() {
                schema[keyword] = value.clone();
            }
        }
    }
    for operations in document["paths"].as_object_mut().into_iter().flatten().map(|(_, item)| item) {
        for (_, operation) in operations.as_object_mut().into_iter().flatten() {
            operation["responses"]["default"] = json!({
                "description": "It is refused, and nothing is done.",
                "content": { "application/problem+json": { "schema": { "$ref": "#/components/schemas/Problem" } } },
            });
        }
    }
    document["components"]["securitySchemes"] = json!({ "token": { "type": "http", "scheme": "bearer" } });
    document["security"] = json!([{ "token": [] }]);
    document
}
