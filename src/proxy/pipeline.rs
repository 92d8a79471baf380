//! A request's life on one screen: judged, routed, decided, answered. Each step lives in a module of its own.

use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;

use http::{HeaderValue, Request, Response};
use http_body::Body;
use hyper::body::Incoming;

use super::body::{RequestBody, ResponseBody};
use super::connection::Conn;
use super::exchange::Exchange;
use super::forward::{self, Outbound};
use super::headers::Present;
use super::reply::{self, Refusal};
use super::unread::Received;
use super::{decide, exchange, headers, held, judge, overload};
use crate::identity::Identity;
use crate::policy::definition::PathEscapes;
use crate::policy::{Action, Facts, NotFound};

/// Answers one request. A panic under it is this request's alone: answered 500, and the worker goes on.
pub async fn handle(
    conn: Rc<Conn>,
    request: Request<Incoming>,
) -> Result<Response<ResponseBody>, Infallible> {
    let (connection, version) = (Rc::clone(&conn), request.version());
    let mut answer = caught(serve(conn, request)).await;
    overload::shed(&connection, version, &mut answer);
    Ok(answer)
}

async fn caught(serving: impl Future<Output = Response<ResponseBody>>) -> Response<ResponseBody> {
    let mut serving = pin!(serving);
    let answer = poll_fn(|cx| {
        catch_unwind(AssertUnwindSafe(|| serving.as_mut().poll(cx)))
            .unwrap_or_else(|_| Poll::Ready(reply::panicked(exchange::panicked().unwrap_or(UNKNOWN_ID))))
    });
    answer.await
}

async fn serve(conn: Rc<Conn>, request: Request<Incoming>) -> Response<ResponseBody> {
    let (mut head, incoming) = request.into_parts();
    let incoming = Received::new(incoming, head.version, &conn.worker);
    let mut exchange = Exchange::begin(Rc::clone(&conn), &head);
    let view = Rc::clone(&exchange.view);
    let snapshot = &*view.snapshot;

    let client = headers::client(&snapshot.client_ip, conn.peer.ip, &head.headers);
    exchange.client = client.ip;
    exchange.request_id = headers::request_id(&head.headers, client.trusted_peer, || conn.worker.random());
    let present = Present::of(&head.headers);
    let judged = judge::head(&head, present, &conn.config.max, conn.config.underscores)
        .and_then(|()| judge::normalise(&mut head.uri));
    let judged = judged.and_then(|doubt| exchange.weigh(&head).map(|()| doubt));
    let doubt = match judged.and_then(|doubt| overload::admit(&conn).map(|()| doubt)) {
        Ok(doubt) => doubt,
        Err(refusal) => return reply::refuse(exchange, &refusal),
    };
    let authority = headers::authority(&head.uri, &head.headers);
    exchange.authority = authority.clone();
    let host = judge::host(&authority);
    let request_id = exchange.request_id.clone();
    if let (true, Err(refusal)) = (conn.config.sni_strict, judge::sni(&conn.sni, &host)) {
        return reply::refuse(exchange, &refusal);
    }

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
    let found = match (snapshot.table.find(&facts), doubt) {
        (Ok(found), None) => found,
        (Ok(found), Some(_)) if found.route.path_escapes == PathEscapes::Keep => found,
        (_, Some(doubt)) => return reply::refuse(exchange, &Refusal::Malformed(doubt.text())),
        (Err(NotFound::Route), None) => return reply::refuse(exchange, &Refusal::NoRoute),
        (Err(NotFound::Method { allow }), None) => {
            return reply::refuse(exchange, &Refusal::MethodNotAllowed(allow));
        }
    };
    let route = found.route;
    exchange.route = Some(route.index);
    let body_max = route.body_bytes_max.unwrap_or(conn.config.max.body_bytes);
    if incoming.size_hint().lower() > body_max {
        return reply::refuse(exchange, &Refusal::BodyTooLarge);
    }

    let decided = match decide::begin(&mut exchange, &found, &facts) {
        decide::Begun::Decided(decided) => decided,
        // Boxed: it is rare, and would make every request's future larger.
        decide::Begun::Waits(wait) => Box::pin(wait.end(&mut exchange, &found)).await,
    };
    let fields = match decided {
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
    let outbound =
        Outbound { client, present, route, values, tls: !conn.tls.is_empty(), version: head.version };
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

/// Of a request that went down before it had one.
const UNKNOWN_ID: HeaderValue = HeaderValue::from_static("");

#[cfg(test)]
mod tests {
    use std::cell::{Cell, RefCell};
    use std::net::IpAddr;

    use http_body_util::BodyExt;

    use super::*;
    use crate::proxy::headers::{Peer, X_REQUEST_ID};
    use crate::proxy::io::Gauge;
    use crate::proxy::{listener, worker};

    /// A connection on which nothing is sent.
    fn conn() -> Rc<Conn> {
        let (worker, figures) = worker::tests::worker();
        let listener = listener::tests::listener(figures.listener("plain"));
        Rc::new(Conn {
            worker,
            config: listener.config.load_full(),
            listener,
            peer: Peer::new(IpAddr::from([192, 0, 2, 1])),
            tls: "",
            sni: "".into(),
            gauge: Rc::new(Gauge::new(crate::clock::instant())),
            stalled: Cell::new(false),
            leaving: Cell::new(false),
            tunnel: RefCell::new(None),
        })
    }

    #[tokio::test]
    async fn the_answer_after_a_panic_has_the_request_s_id() {
        let (head, ()) = Request::new(()).into_parts();
        let mut exchange = Exchange::begin(conn(), &head);
        exchange.request_id = HeaderValue::from_static("0123");
        let failing = async move {
            let _exchange = exchange;
            panic!("in a request");
        };
        let (head, body) = caught(failing).await.into_parts();
        assert_eq!(head.status.as_u16(), 500);
        assert_eq!(head.headers[X_REQUEST_ID], "0123");
        let body = body.collect().await.expect("its body is in memory").to_bytes();
        let problem: serde_json::Value = serde_json::from_slice(&body).expect("problem+json");
        assert_eq!(problem["request-id"], "0123");
    }
}
