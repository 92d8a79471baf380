//! The table of endpoints: each path, its methods, the role each method needs, and its handler.
//!
//! A new endpoint is a line in [`endpoints`]. `gate.rs` checks what the table requires, so a handler need not.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::handler::Handler;
use axum::middleware::from_fn_with_state;
use axum::routing::{MethodFilter, MethodRouter, any, on};
use http::{Method, Response, StatusCode};
use tokio::sync::Semaphore;

use super::access::Role;
use super::gate::{self, Gate, Permit};
use super::refusal::Refusal;
use super::state::State;
use super::{pages, reply};

pub(super) struct Endpoint {
    /// The path as `/` lists it.
    pub shown: &'static str,
    /// The paths in axum's syntax.
    pub paths: &'static [&'static str],
    pub about: &'static str,
    pub operations: Vec<Operation>,
}

/// One method of an endpoint.
pub(super) struct Operation {
    pub permit: Permit,
    pub handler: MethodRouter<Arc<State>>,
}

/// All endpoints, in the order in which `/` lists them.
pub(super) fn endpoints() -> Vec<Endpoint> {
    let one = |path: &'static [&'static str; 1], about, operation| Endpoint {
        shown: path[0],
        paths: path,
        about,
        operations: vec![operation],
    };
    vec![
        one(&["/"], "this list", read(Role::Viewer, list)),
        one(&["/healthz"], "200 while the process lives", read(Role::Probe, pages::health)),
        one(
            &["/readyz"],
            "200 while the process takes requests, else 503",
            read(Role::Probe, pages::readiness),
        ),
        one(&["/metrics"], "metrics for Prometheus", read(Role::Viewer, pages::metrics)),
        one(&["/config"], "the configuration in force, secrets masked", read(Role::Viewer, pages::config)),
        one(&["/v1/explain"], ABOUT_EXPLAIN, read(Role::Viewer, pages::explain)),
        one(&["/v1/upstreams"], "upstreams and how their servers are", read(Role::Viewer, pages::upstreams)),
        Endpoint {
            shown: "/v1/keys/{policy}/{value}",
            // A policy without dimensions has no value, and a value may be empty.
            paths: &["/v1/keys/", "/v1/keys/{*key}"],
            about: "what is left of a policy's windows for one key; a value for each dimension",
            operations: vec![read(Role::Viewer, pages::key)],
        },
    ]
}

/// `/`: lists every endpoint, a line each.
async fn list() -> Response<Body> {
    let line = |Endpoint { shown, about, .. }| format!("{shown:<12} {about}\n");
    reply::text(StatusCode::OK, endpoints().into_iter().map(line).collect::<String>())
}

/// An operation for GET and HEAD.
fn read<H, T>(role: Role, handler: H) -> Operation
where
    H: Handler<T, Arc<State>>,
    T: 'static,
{
    Operation {
        permit: Permit { method: Method::GET, role, body_bytes_max: 0 },
        handler: on(MethodFilter::GET, handler),
    }
}

pub(super) fn router(
    endpoints: Vec<Endpoint>,
    state: &Arc<State>,
    pages_max: usize,
    body_deadline: Duration,
) -> Router {
    let places = Arc::new(Semaphore::new(pages_max));
    let gate = |operations: Arc<[Permit]>| Gate {
        state: Arc::clone(state),
        places: Arc::clone(&places),
        body_deadline,
        operations,
    };
    let gated = |operations: Vec<Operation>| {
        let permits = operations.iter().map(|operation| operation.permit.clone()).collect();
        // The gate refuses methods without an operation. This fallback is never called, but without one axum adds an
        // `Allow` of its own to those refusals, which would tell a client without the token the methods.
        let none: MethodRouter<Arc<State>> = any(async || Refusal::NoSuchPage);
        let methods = operations.into_iter().fold(none, |methods, one| methods.merge(one.handler));
        methods.layer(from_fn_with_state(gate(permits), gate::pass))
    };
    let mut router = Router::new().fallback(gated(Vec::new()));
    for Endpoint { paths, operations, .. } in endpoints {
        let methods = gated(operations);
        router = paths.iter().fold(router, |router, path| router.route(path, methods.clone()));
    }
    router.with_state(Arc::clone(state))
}

const ABOUT_EXPLAIN: &str =
    "?method=GET&url=/path&from=IP&header=name:value&all=true: route, identity and limits of a request";
