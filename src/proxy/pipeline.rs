//! A request's life on one screen: judged, routed, decided, answered. Each step lives in a module of its own.

use std::convert::Infallible;
use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;

use http::{Request, Response};
use http_body::Body;
use hyper::body::Incoming;

use super::body::{RequestBody, ResponseBody};
use super::connection::Conn;
use super::exchange::Exchange;
use super::forward::{self, Outbound};
use super::headers::Present;
use super::reply::{self, Refusal};
use super::{decide, headers, held, judge};
use crate::identity::Identity;
use crate::policy::{Action, Facts, NotFound};

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
    let request_id = exchange.request_id.clone();

    if conn.config.redirect_https {
        return reply::redirect(exchange, judge::https_location(&host, &head.uri));
    }

    let identity = Identity::default();
    let facts = Facts {
        method: &head.method,
        host: &host,
        path: head.uri.path(),
        query: head.uri.query(),
        headers: &head.headers,
        client_ip: client.ip,
        trusted_peer: client.trusted_peer,
        identity: &identity,
    };
    let found = match snapshot.table.find(&facts) {
        Ok(found) => found,
        Err(NotFound::Route) => return reply::refuse(exchange, &Refusal::NoRoute),
        Err(NotFound::Method { allow }) => return reply::refuse(exchange, &Refusal::MethodNotAllowed(allow)),
    };
    let route = found.route;
    exchange.route = Some(route.index);
    let body_max = route.body_bytes_max.unwrap_or(conn.config.max.body_bytes);
    if incoming.size_hint().lower() > body_max {
        return reply::refuse(exchange, &Refusal::BodyTooLarge);
    }

    let fields = match decide::decide(&mut exchange, &found, &facts) {
        decide::Decided::Admitted(fields) => fields,
        decide::Decided::Refused(refusal, fields) => {
            let mut response = reply::refuse(exchange, &refusal);
            fields.insert(response.headers_mut());
            return response;
        }
    };

    if exchange.held.is_some() {
        // Boxed: a timer is large, and few wait.
        Box::pin(held::turn(&mut exchange)).await;
    }

    let values = found.values(&facts, request_id.to_str().unwrap_or_default());
    let body = if incoming.is_end_stream() {
        RequestBody::Empty
    } else {
        let (body, upload) = RequestBody::streaming(incoming, body_max, Rc::clone(&conn.gauge));
        exchange.upload = Some(upload);
        body
    };
    let outbound = Outbound {
        client,
        present: Present::of(&head.headers),
        route,
        values,
        tls: !conn.tls.is_empty(),
        version: head.version,
    };
    let mut response = match &route.action {
        Action::Respond(fixed) => reply::respond(exchange, fixed),
        Action::RedirectHttps => reply::redirect(exchange, judge::https_location(&host, &head.uri)),
        Action::Echo => {
            let mut headers = head.headers;
            outbound.rewrite_headers(&mut headers, &exchange);
            forward::echo(exchange, &outbound, &head.uri, headers, body)
        }
        Action::Forward { upstream, .. } => {
            forward::forward(exchange, &outbound, *upstream, head.uri.clone(), head.headers, body).await
        }
    };
    route.response_headers.apply(response.headers_mut(), &values);
    fields.insert(response.headers_mut());
    response
}
