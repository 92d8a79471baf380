//! The handlers of the pages. `gate.rs` has checked before that the client may see the page.

use std::sync::Arc;

use axum::Extension;
use axum::body::Body;
use axum::extract::State as Of;
use http::{HeaderMap, Response, StatusCode, Uri};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

use super::api::{Name, Query};
use super::explain::ExplainRequest;
use super::gate::RequestAuthor;
use super::readiness::ProcessPhase;
use super::refusal::AdminRefusal;
use super::state::AdminState;
use super::{gzip, reply, scrape_format};
use base::{clock, words};
use net::descriptors;
use policy::percent::{self, Plus};

type Answer = Result<Response<Body>, AdminRefusal>;

/// `/healthz`: an answer at all means that the process lives. It depends on nothing, so that no fault elsewhere gets a
/// working process restarted.
pub(super) async fn health() -> Response<Body> {
    reply::text(StatusCode::OK, "ok\n")
}

/// `/readyz`; with `?verbose` a second line says how this node stands to its database, which decides nothing, because
/// a node serves on without it.
pub(super) async fn readiness(Of(state): Of<Arc<AdminState>>, uri: Uri) -> Response<Body> {
    let (status, word) = match state.readiness.phase() {
        _ if descriptors::is_short(clock::now_ns()) => {
            (StatusCode::SERVICE_UNAVAILABLE, "no file descriptors\n")
        }
        ProcessPhase::Starting => (StatusCode::SERVICE_UNAVAILABLE, "starting\n"),
        ProcessPhase::Ready => (StatusCode::OK, "ready\n"),
        ProcessPhase::Draining => (StatusCode::SERVICE_UNAVAILABLE, "draining\n"),
    };
    match &state.control {
        Some(control) if uri.query() == Some("verbose") => {
            reply::text(status, format!("{word}{}\n", (control.sentence)()))
        }
        _ => reply::text(status, word),
    }
}

pub(super) async fn metrics(Of(state): Of<Arc<AdminState>>, headers: HeaderMap) -> Response<Body> {
    let format = scrape_format::accepted(&headers);
    let page = state.metrics.encode(format);
    let (page, is_packed) = if gzip::is_liked(&headers) { gzip::packed(page).await } else { (page, false) };
    let mut response = reply::with_type(StatusCode::OK, format.content_type(), page);
    gzip::mark(&mut response, is_packed);
    response
}

pub(super) async fn config(Of(state): Of<Arc<AdminState>>) -> Response<Body> {
    reply::text(StatusCode::OK, (state.config)())
}

pub(super) async fn explain(Of(state): Of<Arc<AdminState>>, uri: Uri) -> Answer {
    let request = ExplainRequest::parse(uri.query().unwrap_or_default())?;
    Ok(reply::json((state.explain)(request).await))
}

pub(super) async fn upstreams(Of(state): Of<Arc<AdminState>>) -> Response<Body> {
    reply::json((state.upstreams)())
}

/// `/v1/whoami`: what the client may do, so that it offers nothing else.
pub(super) async fn whoami(Extension(client): Extension<RequestAuthor>) -> Response<Body> {
    let RequestAuthor { who, role, expires, .. } = client;
    reply::json(json!({ "who": who, "role": role.word(), "expires": expires }).to_string())
}

/// What is asked about a key.
#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct AboutKey {
    /// The tenant that the client acts for.
    tenant: Option<Name>,
}

/// `/v1/keys/{policy}/{value}…`. The path is split before each part is decoded, because a value may contain `/`.
pub(super) async fn key(Of(state): Of<Arc<AdminState>>, Query(asked): Query<AboutKey>, uri: Uri) -> Answer {
    let parts: Option<Vec<String>> = uri.path().split('/').skip(3).map(decoded).collect();
    let parts = parts.ok_or(AdminRefusal::Encoding)?;
    let (policy, values) = parts.split_first().ok_or(AdminRefusal::Encoding)?;
    let tenant = asked.tenant.as_ref().map(|tenant| tenant.0.as_str());
    let shown = (state.key)(policy, values, tenant).ok_or_else(|| {
        let policies = (state.counts.names)().policies;
        match policies.contains(policy) {
            true => AdminRefusal::NoSuchKey,
            false => AdminRefusal::UnknownName(words::unknown("policy", policy, &policies)),
        }
    })?;
    Ok(reply::json(shown.await))
}

fn decoded(part: &str) -> Option<String> {
    let bytes = percent::is_well_formed(part).then(|| percent::decode(part, Plus::Itself).collect())?;
    String::from_utf8(bytes).ok()
}
