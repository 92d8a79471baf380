//! `/v1/openapi.json`: the OpenAPI 3.1 document of the endpoints in this directory. Each file says what its operations are;
//! what they take and answer comes from the types that are read and answered.

use std::sync::OnceLock;

use axum::body::Body as Sent;
use http::Response;
use serde_json::Value;

use super::endpoint::{AdminEndpoint, read};
use super::operations::Document;
use super::spellings::snake_overrides;
use super::{
    api_keys, audit, checks, consumers, decisions, hot_keys, limits, overrides, policies, tiers, usage, why,
};
use crate::admin::access::AdminRole::Read;
use crate::admin::reply;

async fn show() -> Response<Sent> {
    reply::json(document().to_string())
}

pub(in crate::admin) fn document() -> &'static Value {
    static DOCUMENT: OnceLock<Value> = OnceLock::new();
    DOCUMENT.get_or_init(|| described(true).whole())
}

pub(in crate::admin) fn endpoints() -> Vec<AdminEndpoint> {
    let mut all = described(false).endpoints();
    let own = AdminEndpoint::new("/v1/openapi.json", "the OpenAPI document of these endpoints");
    all.push(AdminEndpoint { operations: vec![read(Read, show)], ..own });
    all
}

fn described(is_written: bool) -> Document {
    let mut document = Document::new(is_written);
    for describe in [
        overrides::describe,
        snake_overrides::describe,
        policies::describe,
        tiers::describe,
        consumers::describe,
        api_keys::describe,
        limits::describe,
        usage::describe,
        checks::describe,
        decisions::describe,
        why::describe,
        hot_keys::describe,
        audit::describe,
    ] {
        describe(&mut document);
    }
    document
}
