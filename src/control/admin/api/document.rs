//! `/v1/openapi.json`: the OpenAPI 3.1 document of the endpoints in this directory. Each file says what its operations are;
//! what they take and answer comes from the types that are read and answered.

use std::sync::OnceLock;

use axum::body::Body as Sent;
use http::Response;
use serde_json::Value;

use super::operations::Document;
use super::spellings::snake_overrides;
use super::{
    api_keys, audit, checks, consumers, decisions, hot_keys, limits, overrides, policies, tiers, usage, why,
};
use crate::admin::reply;

pub(in crate::admin) async fn show() -> Response<Sent> {
    reply::json(document().to_string())
}

pub(in crate::admin) fn document() -> &'static Value {
    static DOCUMENT: OnceLock<Value> = OnceLock::new();
    DOCUMENT.get_or_init(|| {
        let mut document = Document::new();
        for describe in [
            overrides::describe,
            snake_overrides::describe,
            policies::describe,
            tiers::describe,
            consumers::describe,
            api_keys::describe,
            audit::describe,
            limits::describe,
            usage::describe,
            hot_keys::describe,
            checks::describe,
            decisions::describe,
            why::describe,
        ] {
            describe(&mut document);
        }
        document.whole()
    })
}
