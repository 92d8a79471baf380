//! The table of endpoints: each path, its methods, the role each method needs, and its handler.
//!
//! A new endpoint is a line in [`endpoints`]. `gate.rs` checks what the table requires, so a handler need not.

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::handler::Handler;
use axum::middleware::from_fn_with_state;
use axum::routing::{MethodFilter, MethodRouter, any, on};
use http::header::VARY;
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode};
use tokio::sync::Semaphore;

use super::access::Role;
use super::api::spellings::snake_overrides;
use super::api::{
    BODY_BYTES_MAX, api_keys, audit, checks, consumers, decisions, document, hot_keys, limits, overrides,
    policies, tiers, usage, why,
};
use super::gate::{self, Gate, OpenTo, Permit, Places, wants_html};
use super::limits::Limits;
use super::refusal::Refusal;
use super::state::State;
use super::{events, page, pages, reply};

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
    let mut all = vec![
        one(&["/"], "this list; to browsers a page", open(OpenTo::Browsers, root)),
        one(&["/healthz"], "200 while the process lives", read(Role::Probe, pages::health)),
        one(
            &["/readyz"],
            "200 while the process takes requests, else 503",
            read(Role::Probe, pages::readiness),
        ),
        one(&["/metrics"], "metrics for Prometheus", read(Role::Read, pages::metrics)),
    ];
    // Not by an attribute: what nothing calls is left out of the binary all the same.
    if cfg!(feature = "control") {
        all.extend(shown());
        all.extend(control());
    }
    all
}

fn one(path: &'static [&'static str; 1], about: &'static str, operation: Operation) -> Endpoint {
    endpoint(path, about, vec![operation])
}

fn endpoint(path: &'static [&'static str; 1], about: &'static str, operations: Vec<Operation>) -> Endpoint {
    Endpoint { shown: path[0], paths: path, about, operations }
}

/// What operators look at.
fn shown() -> Vec<Endpoint> {
    vec![
        one(&["/page/{file}"], "the parts of that page", open(OpenTo::Everybody, page::part)),
        one(&["/config"], "the configuration in force, secrets masked", read(Role::Read, pages::config)),
        one(
            &["/v1/live"],
            "what the gateway does, each second, as server-sent events",
            stream(Role::Read, events::show),
        ),
        one(&["/v1/whoami"], "who a token stands for, and its role", read(Role::Read, pages::whoami)),
        one(&["/v1/explain"], ABOUT_EXPLAIN, read(Role::Read, pages::explain)),
        one(&["/v1/upstreams"], "upstreams and how their servers are", read(Role::Read, pages::upstreams)),
        Endpoint {
            shown: "/v1/keys/{policy}/{value}",
            // A policy without dimensions has no value, and a value may be empty.
            paths: &["/v1/keys/", "/v1/keys/{*key}"],
            about: "what is left of a policy's windows for one key; a value for each dimension",
            operations: vec![read(Role::Read, pages::key)],
        },
    ]
}

/// The endpoints of the control plane.
pub(super) fn control() -> Vec<Endpoint> {
    vec![
        endpoint(
            &["/v1/overrides"],
            "limits of single consumers and tenants, for a while",
            vec![
                read(Role::Read, overrides::list),
                change(Method::POST, Role::Operate, on(MethodFilter::POST, overrides::add)),
            ],
        ),
        endpoint(
            &["/v1/overrides/{id}"],
            "one of them",
            vec![
                read(Role::Read, overrides::show),
                change(Method::DELETE, Role::Operate, on(MethodFilter::DELETE, overrides::delete)),
            ],
        ),
        endpoint(
            &["/api/v1/rate-limits/overrides"],
            "the same in snake case",
            vec![
                read(Role::Read, snake_overrides::list),
                change(Method::POST, Role::Operate, on(MethodFilter::POST, snake_overrides::add)),
            ],
        ),
        endpoint(
            &["/api/v1/rate-limits/overrides/{id}"],
            "one of them",
            vec![
                read(Role::Read, snake_overrides::show),
                change(Method::DELETE, Role::Operate, on(MethodFilter::DELETE, snake_overrides::delete)),
            ],
        ),
        endpoint(
            &["/v1/policies"],
            "policies that go before those of gateway.toml",
            vec![read(Role::Read, policies::list)],
        ),
        endpoint(
            &["/v1/policies/{id}"],
            "one of them",
            vec![
                read(Role::Read, policies::show),
                change(Method::PUT, Role::Admin, on(MethodFilter::PUT, policies::put)),
                change(Method::DELETE, Role::Admin, on(MethodFilter::DELETE, policies::delete)),
            ],
        ),
        endpoint(&["/v1/tiers"], "limits of all tiers, by resource", vec![read(Role::Read, tiers::list)]),
        endpoint(
            &["/v1/tiers/{tier}/{resource}"],
            "what a tier allows of a resource",
            vec![
                read(Role::Read, tiers::show),
                change(Method::PUT, Role::Operate, on(MethodFilter::PUT, tiers::put)),
                change(Method::DELETE, Role::Operate, on(MethodFilter::DELETE, tiers::delete)),
            ],
        ),
        endpoint(
            &["/v1/consumers/{id}/tier"],
            "the tier of a consumer",
            vec![
                read(Role::Read, consumers::show_tier),
                change(Method::PUT, Role::Operate, on(MethodFilter::PUT, consumers::put_tier)),
                change(Method::DELETE, Role::Operate, on(MethodFilter::DELETE, consumers::delete_tier)),
            ],
        ),
        endpoint(
            &["/v1/api-keys"],
            "API keys; a key itself is shown once, to who makes it",
            vec![
                read(Role::Read, api_keys::list),
                change(Method::POST, Role::Admin, on(MethodFilter::POST, api_keys::add)),
            ],
        ),
        endpoint(
            &["/v1/api-keys/{digest}"],
            "one of them, by its digest or the beginning of it",
            vec![
                read(Role::Read, api_keys::show),
                change(Method::PATCH, Role::Admin, on(MethodFilter::PATCH, api_keys::patch)),
                change(Method::DELETE, Role::Admin, on(MethodFilter::DELETE, api_keys::delete)),
            ],
        ),
        endpoint(
            &["/v1/limits/{key}/{action}"],
            "the limit of one consumer for one policy",
            vec![
                read(Role::Read, limits::show),
                change(Method::PUT, Role::Operate, on(MethodFilter::PUT, limits::put)),
                change(Method::DELETE, Role::Operate, on(MethodFilter::DELETE, limits::delete)),
            ],
        ),
        endpoint(
            &["/v1/usage/{kind}/{id}"],
            "what a consumer or a tenant has spent",
            vec![read(Role::Read, usage::show)],
        ),
        endpoint(
            &["/v1/usage/{kind}/{id}/reset"],
            "lets it begin anew",
            vec![change(Method::POST, Role::Operate, on(MethodFilter::POST, usage::reset))],
        ),
        endpoint(
            &["/v1/usage/{kind}/{id}/grant"],
            "gives units of a policy back to it",
            vec![change(Method::POST, Role::Operate, on(MethodFilter::POST, usage::grant))],
        ),
        endpoint(
            &["/v1/limits:check"],
            "whether subjects may spend units of policies; spends them",
            // Whether a check spends stands in its body, where the handler looks. Nor is each one a line of the log.
            vec![change(Method::POST, Role::Read, on(MethodFilter::POST, checks::check))],
        ),
        endpoint(
            &["/v1/is-allowed"],
            "the same for one key",
            vec![change(Method::POST, Role::Read, on(MethodFilter::POST, checks::is_allowed))],
        ),
        endpoint(
            &["/v1/decisions"],
            "?consumer=&tenant=&policy=&limit=: what this gateway decided last",
            vec![read(Role::Read, decisions::list)],
        ),
        endpoint(
            &["/v1/decisions/{request-id}"],
            "why a request was refused, by its x-request-id",
            vec![read(Role::Read, decisions::show)],
        ),
        endpoint(
            &["/v1/why/{consumer}"],
            "?policy=&tenant=&tier=: what may keep a consumer out",
            vec![read(Role::Read, why::show)],
        ),
        endpoint(
            &["/v1/hot-keys"],
            "?policy=&minutes=&limit=: the keys that use most of each policy",
            vec![read(Role::Read, hot_keys::list)],
        ),
        endpoint(&["/v1/audit"], "?who=&what=&since=: who changed what", vec![read(Role::Read, audit::list)]),
        endpoint(
            &["/v1/openapi.json"],
            "the OpenAPI document of these endpoints",
            vec![read(Role::Read, document::show)],
        ),
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
        permit: Permit {
            method: Method::GET,
            role,
            open_to: OpenTo::Nobody,
            is_stream: false,
            body_bytes_max: 0,
        },
        handler: on(MethodFilter::GET, handler),
    }
}

/// One that some clients need no role for.
fn open<H, T>(open_to: OpenTo, handler: H) -> Operation
where
    H: Handler<T, Arc<State>>,
    T: 'static,
{
    let mut operation = read(Role::Read, handler);
    operation.permit.open_to = open_to;
    operation
}

/// One whose answer does not end.
fn stream<H, T>(role: Role, handler: H) -> Operation
where
    H: Handler<T, Arc<State>>,
    T: 'static,
{
    let mut operation = read(role, handler);
    operation.permit.is_stream = true;
    operation
}

/// An operation that changes something. DELETE takes no body.
fn change(method: Method, role: Role, handler: MethodRouter<Arc<State>>) -> Operation {
    let body_bytes_max = if method == Method::DELETE { 0 } else { BODY_BYTES_MAX };
    let permit = Permit { method, role, open_to: OpenTo::Nobody, is_stream: false, body_bytes_max };
    Operation { permit, handler }
}

pub(super) fn router(endpoints: Vec<Endpoint>, state: &Arc<State>, limits: &Limits) -> Router {
    let places = Places {
        pages: Arc::new(Semaphore::new(limits.pages_max)),
        streams: Arc::new(Semaphore::new(limits.streams_max)),
    };
    let gate = |operations: Arc<[Permit]>| Gate {
        state: Arc::clone(state),
        places: places.clone(),
        body_deadline: limits.body,
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
