//! The table of endpoints: each path, its methods, the role each method needs, and its handler.
//!
//! A new endpoint is a line in [`endpoints`], one of the control plane a line in `describe` of its file in `api`. `gate.rs` checks
//! what the table requires, so a handler need not.

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::middleware::from_fn_with_state;
use axum::routing::{MethodRouter, any};
use http::header::VARY;
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use tokio::sync::Semaphore;

use super::access::AdminRole::{Probe, Read};
use super::api::document;
use super::api::endpoint::{AdminEndpoint, EndpointMethod, open, read, stream};
use super::gate::{self, AnswerSlots, EndpointGate, OpenTo, Permit, wants_html};
use super::limits::AdminLimits;
use super::refusal::AdminRefusal;
use super::state::AdminState;
use super::{events, page, pages, reply};

/// All endpoints, in the order in which `/` lists them.
pub(super) fn endpoints() -> Vec<AdminEndpoint> {
    let mut all = vec![
        one("/", "this list; browsers get the live page", open(OpenTo::Browsers, root)),
        one("/healthz", "200 while the process is alive", read(Probe, pages::health)),
        one("/readyz", "200 while the process accepts requests, else 503", read(Probe, pages::readiness)),
        one("/metrics", "metrics for Prometheus", read(Read, pages::metrics)),
    ];
    // Not by an attribute, because what nothing calls is left out of the binary all the same.
    if cfg!(feature = "control") {
        all.extend(shown());
        all.extend(document::endpoints());
    }
    all
}

fn one(path: &'static str, about: &'static str, operation: EndpointMethod) -> AdminEndpoint {
    AdminEndpoint { operations: vec![operation], ..AdminEndpoint::new(path, about) }
}

fn shown() -> Vec<AdminEndpoint> {
    vec![
        one("/page/{file}", "the files of the live page", open(OpenTo::Everybody, page::part)),
        one("/config", "the configuration in force, secrets masked", read(Read, pages::config)),
        one(
            "/v1/live",
            "metrics of this node, each second, as server-sent events",
            stream(Read, events::show),
        ),
        one("/v1/whoami", "name and role of the credentials sent", read(Read, pages::whoami)),
        one("/v1/explain", ABOUT_EXPLAIN, read(Read, pages::explain)),
        one("/v1/upstreams", "upstreams and the state of their servers", read(Read, pages::upstreams)),
        AdminEndpoint {
            // Two paths, because a policy without dimensions has no value, and a value may be empty.
            paths: vec!["/v1/keys/", "/v1/keys/{*key}"],
            ..one(
                "/v1/keys/{policy}/{value}",
                "what remains of a policy's windows for one key; one value per dimension",
                read(Read, pages::key),
            )
        },
    ]
}

/// `/`: the page for browsers; for others every endpoint, a line each.
async fn root(headers: HeaderMap) -> Response<Body> {
    let mut response =
        if cfg!(feature = "control") && wants_html(&headers) { page::index(&headers) } else { list() };
    response.headers_mut().insert(VARY, HeaderValue::from_static("accept"));
    response
}

fn list() -> Response<Body> {
    let line = |AdminEndpoint { shown, about, .. }| format!("{shown:<12} {about}\n");
    reply::text(StatusCode::OK, endpoints().into_iter().map(line).collect::<String>())
}

pub(super) fn router(endpoints: Vec<AdminEndpoint>, state: &Arc<AdminState>, limits: &AdminLimits) -> Router {
    let places = AnswerSlots {
        pages: Arc::new(Semaphore::new(limits.pages_max)),
        streams: Arc::new(Semaphore::new(limits.streams_max)),
    };
    let gate = |operations: Arc<[Permit]>, instead| EndpointGate {
        state: Arc::clone(state),
        places: places.clone(),
        body_deadline: limits.body,
        operations,
        instead,
    };
    let gated = |operations: Vec<EndpointMethod>, instead| {
        let permits = operations.iter().map(|operation| operation.permit.clone()).collect();
        // The gate refuses methods without an operation, so that this fallback is never called. Otherwise axum adds
        // an `Allow` of its own to those refusals, which tells a client without the token the methods.
        let none: MethodRouter<Arc<AdminState>> = any(async || AdminRefusal::NoSuchPage);
        let methods = operations.into_iter().fold(none, |methods, one| methods.merge(one.handler));
        methods.layer(from_fn_with_state(gate(permits, instead), gate::pass))
    };
    let mut router = Router::new().fallback(gated(Vec::new(), None));
    for AdminEndpoint { paths, operations, instead, .. } in endpoints {
        let methods = gated(operations, instead);
        router = paths.iter().fold(router, |router, path| router.route(path, methods.clone()));
    }
    router.with_state(Arc::clone(state))
}

const ABOUT_EXPLAIN: &str =
    "?method=GET&url=/path&from=IP&header=name:value&all=true: route, identity and limits of a request";
