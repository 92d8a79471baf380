//! A request's life on one screen: judged, routed, decided, answered. Each step lives in a module of its own.

use std::convert::Infallible;
use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;

use http::{HeaderMap, Method, Request, Response, Uri, Version};
use http_body::Body;
use hyper::body::Incoming;

use super::body::{RequestBody, ResponseBody};
use super::connection::Conn;
use super::exchange::Exchange;
use super::forward::{self, Outbound};
use super::headers::{Client, Present};
use super::reply::{self, Refusal};
use super::{decide, guard, headers, judge};
use crate::identity::NOBODY;
use crate::policy::cors::{self, Cors};
use crate::policy::{Action, Facts, Found, NotFound, Route};

/// Answers one request. A panic under it is this request's alone: answered 500, and the worker goes on.
pub async fn handle(
    conn: Rc<Conn>,
    request: Request<Incoming>,
) -> Result<Response<ResponseBody>, Infallible> {
    let mut serving = pin!(serve(conn, request));
    let answer = poll_fn(|cx| {
        catch_unwind(AssertUnwindSafe(|| serving.as_mut().poll(cx)))
            .unwrap_or_else(|_| Poll::Ready(reply::panicked()))
    });
    Ok(answer.await)
}

async fn serve(conn: Rc<Conn>, request: Request<Incoming>) -> Response<ResponseBody> {
    let (mut head, incoming) = request.into_parts();
    let mut exchange = Exchange::begin(Rc::clone(&conn), &head);
    let view = Rc::clone(&exchange.view);
    let snapshot = &*view.snapshot;

    guard::hide_parameters(&mut exchange);
    let client = headers::client(&snapshot.client_ip, conn.peer.ip, &head.headers);
    exchange.client = client.ip;
    exchange.request_id = headers::request_id(&head.headers, client.trusted_peer, || conn.worker.random());
    let judged = judge::head(&head, &conn.config.max).and_then(|()| judge::normalise(&mut head.uri));
    if let Err(refusal) = judged {
        return reply::refuse(exchange, &refusal);
    }
    let authority = headers::authority(&head.uri, &head.headers);
    exchange.authority = authority.clone();
    let host = judge::host(&authority);
    if conn.config.redirect_https {
        return reply::redirect(exchange, judge::https_location(&host, &head.uri));
    }

    if !conn.config.addresses.admit(client.ip) {
        return reply::refuse(exchange, &Refusal::AddressDenied);
    }

    let facts = Facts {
        method: &head.method,
        host: &host,
        path: head.uri.path(),
        query: head.uri.query(),
        headers: &head.headers,
        client_ip: client.ip,
        identity: &NOBODY,
        refused: false,
    };
    if let Some(method) = cors::preflight(&head.method, &head.headers)
        && let Ok(asked) = snapshot.table.find(&Facts { method: &method, ..facts })
        && let Some(cors) = &asked.route.access.cors
    {
        return preflight(exchange, asked.route, cors, &head.headers);
    }
    let found = match snapshot.table.find(&facts) {
        Ok(found) => found,
        Err(NotFound::Route) => return reply::refuse(exchange, &Refusal::NoRoute),
        Err(NotFound::Method { allow }) => return reply::refuse(exchange, &Refusal::MethodNotAllowed(allow)),
    };
    exchange.route = Some(found.route.index);
    let arrived =
        Arrived { client, host: &host, method: &head.method, uri: &head.uri, version: head.version };
    let Some(cors) = &found.route.access.cors else {
        return pass(exchange, &found, arrived, head.headers, incoming).await;
    };
    let granted = cors.grant(&head.headers);
    let mut response = pass(exchange, &found, arrived, head.headers, incoming).await;
    // Refusals too: a script that may not read a 401 or a 429 sees only that something broke.
    cors.tell(granted, response.headers_mut());
    response
}

/// Answers what a browser asks before a script's request. Nobody is authenticated and nothing is charged.
fn preflight(
    mut exchange: Box<Exchange>,
    route: &Route,
    cors: &Cors,
    headers: &HeaderMap,
) -> Response<ResponseBody> {
    exchange.route = Some(route.index);
    if !route.access.addresses.admit(exchange.client) {
        return reply::refuse(exchange, &Refusal::AddressDenied);
    }
    match cors.grant(headers) {
        Some(granted) => reply::preflight(exchange, cors, granted, headers),
        None => reply::refuse(exchange, &Refusal::OriginDenied),
    }
}

/// What is known of a request that has a route.
#[derive(Clone, Copy)]
struct Arrived<'r> {
    client: Client,
    host: &'r str,
    method: &'r Method,
    uri: &'r Uri,
    version: Version,
}

/// Sees who is calling and whether they may, decides on their limits, and lets the route answer.
async fn pass(
    mut exchange: Box<Exchange>,
    found: &Found<'_, '_>,
    arrived: Arrived<'_>,
    mut headers: HeaderMap,
    incoming: Incoming,
) -> Response<ResponseBody> {
    let Arrived { client, host, method, uri, version } = arrived;
    let (route, conn) = (found.route, Rc::clone(&exchange.conn));
    if !route.access.addresses.admit(client.ip) {
        return reply::refuse(exchange, &Refusal::AddressDenied);
    }
    let body_max = route.body_bytes_max.unwrap_or(conn.config.max.body_bytes);
    if incoming.size_hint().lower() > body_max {
        return reply::refuse(exchange, &Refusal::BodyTooLarge);
    }
    let facts = Facts {
        method,
        host,
        path: uri.path(),
        query: uri.query(),
        headers: &headers,
        client_ip: client.ip,
        identity: &NOBODY,
        refused: false,
    };
    let passed = guard::identify(&mut exchange, found, &facts).await;
    let refused_by_auth = passed.identity.is_none() && passed.refusal.is_some();
    let identity = passed.identity.as_deref().unwrap_or(&NOBODY);
    let facts = Facts { identity, refused: refused_by_auth, ..facts };
    let fields = match decide::decide(&mut exchange, found, &facts) {
        decide::Decided::Admitted(fields) => fields,
        decide::Decided::Refused(refusal, fields) => return refused(exchange, &refusal, fields),
    };
    if let Some(refusal) = &passed.refusal {
        return refused(exchange, refusal, fields);
    }
    let request_id = exchange.request_id.clone();
    let values = found.values(&facts, request_id.to_str().unwrap_or_default());
    let body = if incoming.is_end_stream() {
        RequestBody::Empty
    } else {
        let (body, upload) = RequestBody::streaming(incoming, body_max, Rc::clone(&conn.gauge));
        exchange.upload = Some(upload);
        body
    };
    let uri = guard::hide_credentials(&exchange.view, route, uri, &mut headers);
    let present = Present::of(&headers);
    let outbound = Outbound { client, present, route, values, tls: !conn.tls.is_empty(), version };
    let mut response = answer(exchange, &outbound, uri, headers, body).await;
    route.response_headers.apply(response.headers_mut(), &values);
    fields.insert(response.headers_mut());
    response
}

/// What the route does with a request that may pass.
async fn answer(
    exchange: Box<Exchange>,
    outbound: &Outbound<'_, '_>,
    uri: Uri,
    mut headers: HeaderMap,
    body: RequestBody,
) -> Response<ResponseBody> {
    match &outbound.route.action {
        Action::Respond(fixed) => reply::respond(exchange, fixed),
        Action::RedirectHttps => reply::redirect(exchange, judge::https_location(outbound.values.host, &uri)),
        Action::Echo => {
            outbound.rewrite_headers(&mut headers, &exchange);
            forward::echo(exchange, outbound, &uri, headers, body)
        }
        Action::Forward { upstream, .. } => {
            forward::forward(exchange, outbound, *upstream, uri, headers, body).await
        }
    }
}

/// A refusal with the fields of the limits it was counted by.
fn refused(exchange: Box<Exchange>, refusal: &Refusal, fields: decide::Fields) -> Response<ResponseBody> {
    let mut response = reply::refuse(exchange, refusal);
    fields.insert(response.headers_mut());
    response
}
