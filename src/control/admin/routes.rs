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

use super::access::AdminRole::{self, Admin, Operate, Probe, Read};
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
    /// Of a list whose rows are written one by one: what to send instead of a method that it does not have.
    pub instead: Option<&'static str>,
}

impl AdminEndpoint {
    fn instead(self, send: &'static str) -> AdminEndpoint {
        AdminEndpoint { instead: Some(send), ..self }
    }
}

pub(super) struct EndpointMethod {
    pub permit: Permit,
    pub handler: MethodRouter<Arc<AdminState>>,
}

/// All endpoints, in the order in which `/` lists them.
pub(super) fn endpoints() -> Vec<AdminEndpoint> {
    let mut all = vec![
        one(&["/"], "this list; browsers get the live page", open(OpenTo::Browsers, root)),
        one(&["/healthz"], "200 while the process is alive", read(Probe, pages::health)),
        one(&["/readyz"], "200 while the process accepts requests, else 503", read(Probe, pages::readiness)),
        one(&["/metrics"], "metrics for Prometheus", read(Read, pages::metrics)),
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
    AdminEndpoint { shown: path[0], paths: path, about, operations, instead: None }
}

fn shown() -> Vec<AdminEndpoint> {
    vec![
        one(&["/page/{file}"], "the files of the live page", open(OpenTo::Everybody, page::part)),
        one(&["/config"], "the configuration in force, secrets masked", read(Read, pages::config)),
        one(
            &["/v1/live"],
            "metrics of this node, each second, as server-sent events",
            stream(Read, events::show),
        ),
        one(&["/v1/whoami"], "name and role of the credentials sent", read(Read, pages::whoami)),
        one(&["/v1/explain"], ABOUT_EXPLAIN, read(Read, pages::explain)),
        one(&["/v1/upstreams"], "upstreams and the state of their servers", read(Read, pages::upstreams)),
        AdminEndpoint {
            shown: "/v1/keys/{policy}/{value}",
            // Two paths, because a policy without dimensions has no value, and a value may be empty.
            paths: &["/v1/keys/", "/v1/keys/{*key}"],
            about: "what remains of a policy's windows for one key; one value per dimension",
            operations: vec![read(Read, pages::key)],
            instead: None,
        },
    ]
}

/// The endpoints of the control plane.
pub(super) fn control() -> Vec<AdminEndpoint> {
    vec![
        endpoint(
            &["/v1/overrides"],
            "overrides: limits of single consumers and tenants",
            vec![read(Read, overrides::list), change(Method::POST, Operate, overrides::add)],
        )
        .instead("add an override with `POST /v1/overrides`, end one with `DELETE /v1/overrides/{id}`"),
        endpoint(
            &["/v1/overrides/{id}"],
            "an override",
            vec![read(Read, overrides::show), change(Method::DELETE, Operate, overrides::delete)],
        ),
        endpoint(
            &["/api/v1/rate-limits/overrides"],
            "overrides in snake case",
            vec![read(Read, snake_overrides::list), change(Method::POST, Operate, snake_overrides::add)],
        )
        .instead("add an override with `POST`, end one with `DELETE /api/v1/rate-limits/overrides/{id}`"),
        endpoint(
            &["/api/v1/rate-limits/overrides/{id}"],
            "an override in snake case",
            vec![read(Read, snake_overrides::show), change(Method::DELETE, Operate, snake_overrides::delete)],
        ),
        one(
            &["/v1/policies"],
            "policies of the database, which replace those of gateway.toml",
            read(Read, policies::list),
        )
        .instead("create or replace a policy with `PUT /v1/policies/{name}`"),
        endpoint(
            &["/v1/policies/{id}"],
            "a policy of the database or of gateway.toml",
            vec![
                read(Read, policies::show),
                change(Method::PUT, Admin, policies::put),
                change(Method::DELETE, Admin, policies::delete),
            ],
        ),
        one(&["/v1/tiers"], "limits of all tiers, by resource", read(Read, tiers::list))
            .instead("set the limit of a tier with `PUT /v1/tiers/{tier}/{resource}`"),
        endpoint(
            &["/v1/tiers/{tier}/{resource}"],
            "the limit of a tier for a resource",
            vec![
                read(Read, tiers::show),
                change(Method::PUT, Operate, tiers::put),
                change(Method::DELETE, Operate, tiers::delete),
            ],
        ),
        endpoint(
            &["/v1/consumers/{id}/tier"],
            "the tier of a consumer",
            vec![
                read(Read, consumers::show_tier),
                change(Method::PUT, Operate, consumers::put_tier),
                change(Method::DELETE, Operate, consumers::delete_tier),
            ],
        ),
        endpoint(
            &["/v1/api-keys"],
            "API keys; the key itself is shown once, when it is created",
            vec![read(Read, api_keys::list), change(Method::POST, Admin, api_keys::add)],
        )
        .instead(
            "create a key with `POST /v1/api-keys`, change or delete one with `PATCH` or `DELETE /v1/api-keys/{digest}`",
        ),
        endpoint(
            &["/v1/api-keys/{digest}"],
            "an API key, by its digest or the beginning of it",
            vec![
                read(Read, api_keys::show),
                change(Method::PATCH, Admin, api_keys::patch),
                change(Method::DELETE, Admin, api_keys::delete),
            ],
        ),
        endpoint(
            &["/v1/limits/{key}/{action}"],
            "the limit of one consumer for one policy",
            vec![
                read(Read, limits::show),
                change(Method::PUT, Operate, limits::put),
                change(Method::DELETE, Operate, limits::delete),
            ],
        ),
        one(&["/v1/usage/{kind}/{id}"], "usage of a consumer or a tenant", read(Read, usage::show)),
        one(
            &["/v1/usage/{kind}/{id}/reset"],
            "resets its counts and ends its penalties",
            change(Method::POST, Operate, usage::reset),
        ),
        one(
            &["/v1/usage/{kind}/{id}/grant"],
            "refunds units of a policy",
            change(Method::POST, Operate, usage::grant),
        ),
        // The role to read is enough here, because whether a check spends stands in its body, where the handler
        // looks. Nor is each one a line of the log.
        one(
            &["/v1/limits:check"],
            "checks up to 1,000 subjects against policies and spends units",
            change(Method::POST, Read, checks::check),
        ),
        one(
            &["/v1/is-allowed"],
            "checks one key and spends one unit",
            change(Method::POST, Read, checks::is_allowed),
        ),
        one(
            &["/v1/decisions"],
            "?consumer=&tenant=&policy=&limit=: the latest decisions of this node",
            read(Read, decisions::list),
        ),
        one(
            &["/v1/decisions/{request-id}"],
            "why a request was refused, by its x-request-id",
            read(Read, decisions::show),
        ),
        one(
            &["/v1/why/{consumer}"],
            "?policy=&tenant=&tier=: why a consumer is or may be refused",
            read(Read, why::show),
        ),
        one(
            &["/v1/hot-keys"],
            "?policy=&minutes=&limit=: the busiest keys of each policy",
            read(Read, hot_keys::list),
        ),
        one(&["/v1/audit"], "?who=&what=&since=: the audit log, who changed what", read(Read, audit::list))
            .instead("the audit log cannot be changed"),
        one(&["/v1/openapi.json"], "the OpenAPI document of these endpoints", read(Read, document::show)),
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
fn read<T: 'static>(role: AdminRole, handler: impl Handler<T, Arc<AdminState>>) -> EndpointMethod {
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
fn open<T: 'static>(open_to: OpenTo, handler: impl Handler<T, Arc<AdminState>>) -> EndpointMethod {
    let mut operation = read(Read, handler);
    operation.permit.open_to = open_to;
    operation
}

/// One whose answer does not end.
fn stream<T: 'static>(role: AdminRole, handler: impl Handler<T, Arc<AdminState>>) -> EndpointMethod {
    let mut operation = read(role, handler);
    operation.permit.is_stream = true;
    operation
}

/// An operation that changes something. DELETE takes no body.
fn change<T: 'static>(
    method: Method,
    role: AdminRole,
    handler: impl Handler<T, Arc<AdminState>>,
) -> EndpointMethod {
    // Never without a filter, because the table has only methods that axum knows.
    let filter = MethodFilter::try_from(method.clone()).unwrap_or(MethodFilter::OPTIONS);
    let body_bytes_max = if method == Method::DELETE { 0 } else { BODY_BYTES_MAX };
    let permit = Permit { method, role, open_to: OpenTo::Nobody, is_stream: false, body_bytes_max };
    EndpointMethod { permit, handler: on(filter, handler) }
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
