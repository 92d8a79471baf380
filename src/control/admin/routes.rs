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

use super::access::AdminRole;
use super::api::spellings::snake_overrides;
use super::api::{
    BODY_BYTES_MAX, api_keys, audit, checks, consumers, decisions, document, hot_keys, limits, overrides,
    policies, tiers, usage, why,
};
use super::gate::{self, AnswerSlots, EndpointGate, OpenTo, Permit, wants_html};
use super::limits::AdminLimits;
use super::refusal::AdminRefusal;
use super::state::AdminState;
use super::{events, page, pages, reply};

pub(super) struct AdminEndpoint {
    /// The path as `/` lists it.
    pub shown: &'static str,
    /// The paths as axum writes them, of which there may be several.
    pub paths: &'static [&'static str],
    pub about: &'static str,
    pub operations: Vec<EndpointMethod>,
}

pub(super) struct EndpointMethod {
    pub permit: Permit,
    pub handler: MethodRouter<Arc<AdminState>>,
}

/// All endpoints, in the order in which `/` lists them.
pub(super) fn endpoints() -> Vec<AdminEndpoint> {
    let mut all = vec![
        one(&["/"], "this list; browsers get the live page", open(OpenTo::Browsers, root)),
        one(&["/healthz"], "200 while the process is alive", read(AdminRole::Probe, pages::health)),
        one(
            &["/readyz"],
            "200 while the process accepts requests, else 503",
            read(AdminRole::Probe, pages::readiness),
        ),
        one(&["/metrics"], "metrics for Prometheus", read(AdminRole::Read, pages::metrics)),
    ];
    // Not by an attribute, because what nothing calls is left out of the binary all the same.
    if cfg!(feature = "control") {
        all.extend(shown());
        all.extend(control());
    }
    all
}

fn one(path: &'static [&'static str; 1], about: &'static str, operation: EndpointMethod) -> AdminEndpoint {
    endpoint(path, about, vec![operation])
}

fn endpoint(
    path: &'static [&'static str; 1],
    about: &'static str,
    operations: Vec<EndpointMethod>,
) -> AdminEndpoint {
    AdminEndpoint { shown: path[0], paths: path, about, operations }
}

fn shown() -> Vec<AdminEndpoint> {
    vec![
        one(&["/page/{file}"], "the files of the live page", open(OpenTo::Everybody, page::part)),
        one(&["/config"], "the configuration in force, secrets masked", read(AdminRole::Read, pages::config)),
        one(
            &["/v1/live"],
            "metrics of this node, each second, as server-sent events",
            stream(AdminRole::Read, events::show),
        ),
        one(&["/v1/whoami"], "name and role of the credentials sent", read(AdminRole::Read, pages::whoami)),
        one(&["/v1/explain"], ABOUT_EXPLAIN, read(AdminRole::Read, pages::explain)),
        one(
            &["/v1/upstreams"],
            "upstreams and the state of their servers",
            read(AdminRole::Read, pages::upstreams),
        ),
        AdminEndpoint {
            shown: "/v1/keys/{policy}/{value}",
            // Two paths, because a policy without dimensions has no value, and a value may be empty.
            paths: &["/v1/keys/", "/v1/keys/{*key}"],
            about: "what remains of a policy's windows for one key; one value per dimension",
            operations: vec![read(AdminRole::Read, pages::key)],
        },
    ]
}

/// The endpoints of the control plane.
pub(super) fn control() -> Vec<AdminEndpoint> {
    vec![
        endpoint(
            &["/v1/overrides"],
            "overrides: limits of single consumers and tenants",
            vec![
                read(AdminRole::Read, overrides::list),
                change(Method::POST, AdminRole::Operate, on(MethodFilter::POST, overrides::add)),
            ],
        ),
        endpoint(
            &["/v1/overrides/{id}"],
            "an override",
            vec![
                read(AdminRole::Read, overrides::show),
                change(Method::DELETE, AdminRole::Operate, on(MethodFilter::DELETE, overrides::delete)),
            ],
        ),
        endpoint(
            &["/api/v1/rate-limits/overrides"],
            "overrides in snake case",
            vec![
                read(AdminRole::Read, snake_overrides::list),
                change(Method::POST, AdminRole::Operate, on(MethodFilter::POST, snake_overrides::add)),
            ],
        ),
        endpoint(
            &["/api/v1/rate-limits/overrides/{id}"],
            "an override in snake case",
            vec![
                read(AdminRole::Read, snake_overrides::show),
                change(Method::DELETE, AdminRole::Operate, on(MethodFilter::DELETE, snake_overrides::delete)),
            ],
        ),
        endpoint(
            &["/v1/policies"],
            "policies of the database, which replace those of gateway.toml",
            vec![read(AdminRole::Read, policies::list)],
        ),
        endpoint(
            &["/v1/policies/{id}"],
            "a policy of the database or of gateway.toml",
            vec![
                read(AdminRole::Read, policies::show),
                change(Method::PUT, AdminRole::Admin, on(MethodFilter::PUT, policies::put)),
                change(Method::DELETE, AdminRole::Admin, on(MethodFilter::DELETE, policies::delete)),
            ],
        ),
        endpoint(
            &["/v1/tiers"],
            "limits of all tiers, by resource",
            vec![read(AdminRole::Read, tiers::list)],
        ),
        endpoint(
            &["/v1/tiers/{tier}/{resource}"],
            "the limit of a tier for a resource",
            vec![
                read(AdminRole::Read, tiers::show),
                change(Method::PUT, AdminRole::Operate, on(MethodFilter::PUT, tiers::put)),
                change(Method::DELETE, AdminRole::Operate, on(MethodFilter::DELETE, tiers::delete)),
            ],
        ),
        endpoint(
            &["/v1/consumers/{id}/tier"],
            "the tier of a consumer",
            vec![
                read(AdminRole::Read, consumers::show_tier),
                change(Method::PUT, AdminRole::Operate, on(MethodFilter::PUT, consumers::put_tier)),
                change(Method::DELETE, AdminRole::Operate, on(MethodFilter::DELETE, consumers::delete_tier)),
            ],
        ),
        endpoint(
            &["/v1/api-keys"],
            "API keys; the key itself is shown once, when it is made",
            vec![
                read(AdminRole::Read, api_keys::list),
                change(Method::POST, AdminRole::Admin, on(MethodFilter::POST, api_keys::add)),
            ],
        ),
        endpoint(
            &["/v1/api-keys/{digest}"],
            "an API key, by its digest or the beginning of it",
            vec![
                read(AdminRole::Read, api_keys::show),
                change(Method::PATCH, AdminRole::Admin, on(MethodFilter::PATCH, api_keys::patch)),
                change(Method::DELETE, AdminRole::Admin, on(MethodFilter::DELETE, api_keys::delete)),
            ],
        ),
        endpoint(
            &["/v1/limits/{key}/{action}"],
            "the limit of one consumer for one policy",
            vec![
                read(AdminRole::Read, limits::show),
                change(Method::PUT, AdminRole::Operate, on(MethodFilter::PUT, limits::put)),
                change(Method::DELETE, AdminRole::Operate, on(MethodFilter::DELETE, limits::delete)),
            ],
        ),
        endpoint(
            &["/v1/usage/{kind}/{id}"],
            "usage of a consumer or a tenant",
            vec![read(AdminRole::Read, usage::show)],
        ),
        endpoint(
            &["/v1/usage/{kind}/{id}/reset"],
            "resets its counts and ends its penalties",
            vec![change(Method::POST, AdminRole::Operate, on(MethodFilter::POST, usage::reset))],
        ),
        endpoint(
            &["/v1/usage/{kind}/{id}/grant"],
            "gives units of a policy back",
            vec![change(Method::POST, AdminRole::Operate, on(MethodFilter::POST, usage::grant))],
        ),
        endpoint(
            &["/v1/limits:check"],
            "checks up to 1,000 subjects against policies and spends units",
            // The role to read is enough here, because whether a check spends stands in its body, where the handler
            // looks. Nor is each one a line of the log.
            vec![change(Method::POST, AdminRole::Read, on(MethodFilter::POST, checks::check))],
        ),
        endpoint(
            &["/v1/is-allowed"],
            "the same for one key and one unit",
            vec![change(Method::POST, AdminRole::Read, on(MethodFilter::POST, checks::is_allowed))],
        ),
        endpoint(
            &["/v1/decisions"],
            "?consumer=&tenant=&policy=&limit=: the latest decisions of this node",
            vec![read(AdminRole::Read, decisions::list)],
        ),
        endpoint(
            &["/v1/decisions/{request-id}"],
            "why a request was refused, by its x-request-id",
            vec![read(AdminRole::Read, decisions::show)],
        ),
        endpoint(
            &["/v1/why/{consumer}"],
            "?policy=&tenant=&tier=: why a consumer is or may be refused",
            vec![read(AdminRole::Read, why::show)],
        ),
        endpoint(
            &["/v1/hot-keys"],
            "?policy=&minutes=&limit=: the busiest keys of each policy",
            vec![read(AdminRole::Read, hot_keys::list)],
        ),
        endpoint(
            &["/v1/audit"],
            "?who=&what=&since=: the audit log, who changed what",
            vec![read(AdminRole::Read, audit::list)],
        ),
        endpoint(
            &["/v1/openapi.json"],
            "the OpenAPI document of these endpoints",
            vec![read(AdminRole::Read, document::show)],
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
    let line = |AdminEndpoint { shown, about, .. }| format!("{shown:<12} {about}\n");
    reply::text(StatusCode::OK, endpoints().into_iter().map(line).collect::<String>())
}

/// An operation for GET and HEAD.
fn read<H, T>(role: AdminRole, handler: H) -> EndpointMethod
where
    H: Handler<T, Arc<AdminState>>,
    T: 'static,
{
    EndpointMethod {
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
fn open<H, T>(open_to: OpenTo, handler: H) -> EndpointMethod
where
    H: Handler<T, Arc<AdminState>>,
    T: 'static,
{
    let mut operation = read(AdminRole::Read, handler);
    operation.permit.open_to = open_to;
    operation
}

/// One whose answer does not end.
fn stream<H, T>(role: AdminRole, handler: H) -> EndpointMethod
where
    H: Handler<T, Arc<AdminState>>,
    T: 'static,
{
    let mut operation = read(role, handler);
    operation.permit.is_stream = true;
    operation
}

/// An operation that changes something. DELETE takes no body.
fn change(method: Method, role: AdminRole, handler: MethodRouter<Arc<AdminState>>) -> EndpointMethod {
    let body_bytes_max = if method == Method::DELETE { 0 } else { BODY_BYTES_MAX };
    let permit = Permit { method, role, open_to: OpenTo::Nobody, is_stream: false, body_bytes_max };
    EndpointMethod { permit, handler }
}

pub(super) fn router(endpoints: Vec<AdminEndpoint>, state: &Arc<AdminState>, limits: &AdminLimits) -> Router {
    let places = AnswerSlots {
        pages: Arc::new(Semaphore::new(limits.pages_max)),
        streams: Arc::new(Semaphore::new(limits.streams_max)),
    };
    let gate = |operations: Arc<[Permit]>| EndpointGate {
        state: Arc::clone(state),
        places: places.clone(),
        body_deadline: limits.body,
        operations,
    };
    let gated = |operations: Vec<EndpointMethod>| {
        let permits = operations.iter().map(|operation| operation.permit.clone()).collect();
        // The gate refuses methods without an operation, so that this fallback is never called. Otherwise axum adds
        // an `Allow` of its own to those refusals, which tells a client without the token the methods.
        let none: MethodRouter<Arc<AdminState>> = any(async || AdminRefusal::NoSuchPage);
        let methods = operations.into_iter().fold(none, |methods, one| methods.merge(one.handler));
        methods.layer(from_fn_with_state(gate(permits), gate::pass))
    };
    let mut router = Router::new().fallback(gated(Vec::new()));
    for AdminEndpoint { paths, operations, .. } in endpoints {
        let methods = gated(operations);
        router = paths.iter().fold(router, |router, path| router.route(path, methods.clone()));
    }
    router.with_state(Arc::clone(state))
}

const ABOUT_EXPLAIN: &str =
    "?method=GET&url=/path&from=IP&header=name:value&all=true: route, identity and limits of a request";
