//! An admitted request on its way to an upstream, and the answer's head on its way back.

use std::rc::Rc;
use std::time::{Duration, Instant};

use http::header::{CONNECTION, CONTENT_TYPE, EXPECT, HOST, TE, UPGRADE};
use http::uri::{Authority, PathAndQuery, Scheme};
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode, Uri, Version};
use hyper::body::Incoming;

use super::body::{Download, RequestBody, ResponseBody};
use super::exchange::Exchange;
use super::headers::{self, Client, Hop, Present, X_REQUEST_ID};
use super::reply::{self, Refusal};
use super::tunnel::Tunnel;
use super::upgrade;
use crate::policy::definition::PathEscapes;
use crate::policy::{Route, Values, path};
use crate::upstream::config::{HostHeader, Version as UpstreamVersion};
use crate::upstream::connect::ConnectError;
use crate::upstream::lease::SendError;
use crate::upstream::pool::AcquireError;
use crate::upstream::{Lease, Pool};
use crate::{clock, metrics};

/// What of a request its way to the upstream needs beside its headers and body.
#[derive(Debug)]
pub struct Outbound<'t, 'r> {
    /// Who sent it.
    pub client: Client,
    /// Which fields came that the gateway minds.
    pub present: Present,
    /// The route it takes.
    pub route: &'t Route,
    /// What the route's templates stand for.
    pub values: Values<'t, 'r>,
    /// Whether it came over TLS.
    pub tls: bool,
    /// The protocol it came by.
    pub version: Version,
}

impl Outbound<'_, '_> {
    /// Turns the headers that came into those that go: hop-by-hop ones away, forwarding ones and the id set, then
    /// what the route asks for.
    pub fn rewrite_headers(&self, headers: &mut HeaderMap, exchange: &Exchange) {
        headers::strip_hop_by_hop(headers, self.present);
        // The gateway answers the expectation itself, when the upstream takes the body.
        if self.present.expect {
            headers.remove(EXPECT);
        }
        let hop = Hop {
            peer: &exchange.conn.peer,
            trusted_peer: self.client.trusted_peer,
            tls: self.tls,
            authority: &exchange.authority,
            version: self.version,
        };
        headers::forward_client(headers, self.present, exchange.view.snapshot.client_ip.header, &hop);
        headers.insert(X_REQUEST_ID, exchange.request_id.clone());
        // HTTP/2 carries it elsewhere; HTTP/1.1 may have named it in its target (RFC 9112 section 3.2.2).
        if exchange.uri.authority().is_some() {
            headers.insert(HOST, exchange.authority.clone());
        }
        self.route.request_headers.apply(headers, &self.values);
    }

    /// The path and query to send. A rewritten path has its one form too: what a value ends in and what the rewrite
    /// goes on with may together be a dot segment, or encoded twice. `None` where it has none.
    fn target(&self, uri: &Uri) -> Option<PathAndQuery> {
        let came = uri.path_and_query().cloned();
        match self.route.rewritten_path(&self.values) {
            std::borrow::Cow::Borrowed(_) => came,
            std::borrow::Cow::Owned(path) => {
                let path::Canonical { path, doubt } = path::canonical(&path).ok()?;
                if doubt.is_some() && self.route.path_escapes == PathEscapes::Refuse {
                    return None;
                }
                match uri.query() {
                    Some(query) => PathAndQuery::from_maybe_shared(format!("{path}?{query}")).ok(),
                    None => PathAndQuery::from_maybe_shared(path.into_owned()).ok(),
                }
            }
        }
    }
}

/// Answers with what came.
pub fn echo(
    exchange: Box<Exchange>,
    outbound: &Outbound<'_, '_>,
    uri: &Uri,
    headers: HeaderMap,
    body: RequestBody,
) -> Response<ResponseBody> {
    if !matches!(body, RequestBody::Empty) {
        return reply::echo(exchange, body, headers.get(CONTENT_TYPE).cloned());
    }
    let target = outbound.target(uri);
    let mut head =
        format!("{} {} HTTP/1.1\n", exchange.method, target.as_ref().map_or("/", |target| target.as_str()));
    for (name, value) in &headers {
        head.push_str(name.as_str());
        head.push_str(": ");
        head.push_str(&value.as_bytes().escape_ascii().to_string());
        head.push('\n');
    }
    reply::echo_head(exchange, head)
}

/// Sends the request upstream and answers with what comes back; a second time where nothing was lost by the first.
pub async fn forward(
    mut exchange: Box<Exchange>,
    outbound: &Outbound<'_, '_>,
    upstream: usize,
    uri: Uri,
    mut headers: HeaderMap,
    body: RequestBody,
) -> Response<ResponseBody> {
    let view = Rc::clone(&exchange.view);
    let pool = &view.pools[upstream];
    pool.budget.request(clock::ns_of(exchange.started));
    let h2 = pool.upstream.config.http == UpstreamVersion::H2;
    let trailers = h2 && headers::accepts_trailers(&headers, outbound.present);
    let upgrade = if outbound.route.upgrade && !h2 {
        let has_body = !matches!(body, RequestBody::Empty);
        let asked = (outbound.version, &exchange.method);
        match upgrade::asked_for(asked, &headers, outbound.present, has_body) {
            Ok(upgrade) => upgrade,
            Err(refusal) => return reply::refuse(exchange, &refusal),
        }
    } else {
        None
    };
    if !h2 {
        headers::join_cookies(&mut headers);
    }
    outbound.rewrite_headers(&mut headers, &exchange);
    if trailers {
        headers.insert(TE, HeaderValue::from_static("trailers"));
    }
    if let Some(protocol) = &upgrade {
        headers.insert(CONNECTION, UPGRADE_TOKEN);
        headers.insert(UPGRADE, protocol.clone());
    }
    let Some(target) = outbound.target(&uri) else {
        return reply::refuse(exchange, &Refusal::Malformed("the rewritten path is not one"));
    };
    let mut request = Request::new(body);
    *request.method_mut() = exchange.method.clone();
    *request.uri_mut() = Uri::from(target);
    *request.headers_mut() = headers;

    let mut trip = Trip { pool, upstream, exchange: &mut exchange };
    match trip.send(request).await {
        Ok((answer, lease)) => accept(exchange, answer, lease, upgrade),
        Err(refusal) => reply::refuse(exchange, &refusal),
    }
}

/// The one or two tries to have a request answered.
struct Trip<'a> {
    pool: &'a Rc<Pool<RequestBody>>,
    upstream: usize,
    exchange: &'a mut Exchange,
}

impl Trip<'_> {
    async fn send(
        &mut self,
        request: Request<RequestBody>,
    ) -> Result<(Response<Incoming>, Lease<RequestBody>), Refusal> {
        let mut request = request;
        let mut avoid = None;
        loop {
            let may_retry = u32::from(self.exchange.retries) < self.pool.upstream.config.retry.times;
            let now = self.exchange.started + Duration::from_nanos(self.exchange.steps.delay);
            let mut lease = match self.pool.acquire(avoid, now).await {
                Ok(lease) => lease,
                Err(error) => {
                    avoid = self.not_acquired(&error, may_retry)?;
                    continue;
                }
            };
            self.acquired(&lease);
            let server = lease.server;
            let again = may_retry.then(|| replica(&request)).flatten();
            match lease.send(self.address(request, &lease), self.response_deadline()).await {
                Ok(answer) => {
                    self.exchange.steps.answered = self.exchange.elapsed_ns();
                    self.count().answered(self.cells(), self.exchange.steps.first_byte());
                    return Ok((answer, lease));
                }
                Err(SendError::Timeout) => {
                    self.count().exchanged(
                        self.cells(),
                        match self.exchange.is_past_total(self.upstream) {
                            true => metrics::Exchange::TotalTimeout,
                            false => metrics::Exchange::ResponseTimeout,
                        },
                    );
                    return Err(Refusal::UpstreamTimeout);
                }
                Err(SendError::TooLong) => {
                    self.count().exchanged(self.cells(), metrics::Exchange::BadAnswer);
                    return Err(Refusal::UpstreamBadResponse);
                }
                Err(SendError::Broken { error, unsent }) => {
                    request = self.broken(&error, unsent, again, may_retry)?;
                    avoid = Some(server);
                }
            }
        }
    }

    /// No connection: another server may be asked, for nothing was sent.
    fn not_acquired(&mut self, error: &AcquireError, may_retry: bool) -> Result<Option<usize>, Refusal> {
        tracing::debug!(upstream = %self.pool.upstream.config.name, %error, "no connection");
        let (refusal, outcome, index) = match error {
            AcquireError::Full { wait_ns, .. } => {
                self.exchange.steps.wait += wait_ns;
                (Refusal::UpstreamPoolFull, metrics::Exchange::PoolExhausted, None)
            }
            AcquireError::Connect { source, index, .. } => {
                self.count().connect_failed(self.cells());
                match source {
                    ConnectError::Unresolved => {
                        (Refusal::UpstreamUnresolved, metrics::Exchange::Unresolved, Some(*index))
                    }
                    ConnectError::Timeout(_) => {
                        (Refusal::UpstreamConnectTimeout, metrics::Exchange::ConnectTimeout, Some(*index))
                    }
                    ConnectError::Io(_) | ConnectError::Http(_) => {
                        (Refusal::UpstreamConnect, metrics::Exchange::ConnectFailed, Some(*index))
                    }
                }
            }
        };
        self.count().exchanged(self.cells(), outcome);
        if index.is_some() && may_retry && self.pool.upstream.config.retry.on_connect && self.budget() {
            return Ok(index);
        }
        Err(refusal)
    }

    /// The connection broke before an answer: the request goes again if it never went, or may go twice.
    fn broken(
        &mut self,
        error: &hyper::Error,
        unsent: Option<Box<Request<RequestBody>>>,
        again: Option<Box<Request<RequestBody>>>,
        may_retry: bool,
    ) -> Result<Request<RequestBody>, Refusal> {
        tracing::debug!(upstream = %self.pool.upstream.config.name, %error, "exchange broke");
        let upload = self.exchange.upload.as_ref();
        if upload.is_some_and(|upload| upload.too_large.get()) {
            return Err(Refusal::BodyTooLarge);
        }
        if upload.is_some_and(|upload| upload.broken.get()) {
            self.count().exchanged(self.cells(), metrics::Exchange::ClientGone);
            let fault = self.exchange.conn.gauge.body_fault();
            return Err(fault.map_or(Refusal::ClientGone, Refusal::Framing));
        }
        let is_answer = error.is_parse();
        self.count().exchanged(
            self.cells(),
            if is_answer { metrics::Exchange::BadAnswer } else { metrics::Exchange::Reset },
        );
        if is_answer {
            return Err(Refusal::UpstreamBadResponse);
        }
        let next = unsent.or_else(|| if self.pool.upstream.config.retry.on_reset { again } else { None });
        match next {
            Some(request) if may_retry && self.budget() => Ok(*request),
            _ => Err(Refusal::UpstreamReset),
        }
    }

    /// Whether one more retry fits the upstream's budget; counted if so.
    fn budget(&mut self) -> bool {
        let fits = self.pool.budget.retry(clock::now_ns());
        if fits {
            self.exchange.retries += 1;
            self.count().retried(self.cells());
        } else {
            self.count().retry_refused(self.cells());
        }
        fits
    }

    fn acquired(&mut self, lease: &Lease<RequestBody>) {
        self.exchange.server = Some((self.upstream, lease.server));
        if lease.connect_ns > 0 {
            self.count().connected(self.cells());
        }
        let waited = lease.wait_ns + lease.connect_ns + self.exchange.steps.delay;
        let immediate = waited == 0 && self.exchange.retries == 0;
        // Where a connection was at hand the clock need not be read again: the step before has just ended.
        let sent = if immediate { self.exchange.steps.decide } else { self.exchange.elapsed_ns() };
        let steps = &mut self.exchange.steps;
        steps.wait += lease.wait_ns;
        steps.connect += lease.connect_ns;
        steps.sent = sent;
    }

    /// The target and `Host` as this server wants them.
    fn address(&self, mut request: Request<RequestBody>, lease: &Lease<RequestBody>) -> Request<RequestBody> {
        let config = &self.pool.upstream.config;
        if config.host == HostHeader::Server
            && let Ok(host) = HeaderValue::from_str(lease.authority())
        {
            request.headers_mut().insert(HOST, host);
        }
        if config.http == UpstreamVersion::H2 {
            // HTTP/2 carries the authority in the target (RFC 9113 section 8.3.1), and never both.
            let host = request.headers_mut().remove(HOST);
            let authority = host
                .and_then(|host| {
                    Authority::from_maybe_shared(bytes::Bytes::copy_from_slice(host.as_bytes())).ok()
                })
                .or_else(|| lease.authority().parse().ok());
            let mut parts = std::mem::take(request.uri_mut()).into_parts();
            parts.scheme = Some(if config.servers[lease.server].tls { Scheme::HTTPS } else { Scheme::HTTP });
            parts.authority = authority;
            if let Ok(uri) = Uri::from_parts(parts) {
                *request.uri_mut() = uri;
            }
            *request.version_mut() = Version::HTTP_2;
        }
        request
    }

    fn response_deadline(&self) -> Instant {
        let timeouts = &self.pool.upstream.config.timeouts;
        let started = self.exchange.started;
        // Time spent connecting or on a first try is not the second answer's.
        let from = started + Duration::from_nanos(self.exchange.steps.sent);
        let at = from + timeouts.response;
        timeouts.total.map_or(at, |total| at.min(started + total))
    }

    fn count(&self) -> &metrics::Upstream {
        &self.exchange.view.snapshot.figures.upstreams[self.upstream]
    }

    fn cells(&self) -> &metrics::Worker {
        &self.exchange.conn.worker.metrics
    }
}

/// A second copy of a request that may be sent twice: idempotent, and without a body that would be gone.
fn replica(request: &Request<RequestBody>) -> Option<Box<Request<RequestBody>>> {
    if !headers::is_idempotent(request.method()) || !matches!(request.body(), RequestBody::Empty) {
        return None;
    }
    let mut copy = Request::new(RequestBody::Empty);
    *copy.method_mut() = request.method().clone();
    *copy.uri_mut() = request.uri().clone();
    *copy.headers_mut() = request.headers().clone();
    Some(Box::new(copy))
}

/// Takes an answer's head over: strips what belongs to the upstream's connection, and lets the body stream.
fn accept(
    mut exchange: Box<Exchange>,
    answer: Response<Incoming>,
    lease: Lease<RequestBody>,
    upgrade: Option<HeaderValue>,
) -> Response<ResponseBody> {
    let (mut head, incoming) = answer.into_parts();
    exchange.settle(&head.headers);
    if head.status == StatusCode::SWITCHING_PROTOCOLS {
        return match upgrade {
            Some(wanted) if upgrade::is_switched_to(&wanted, &head.headers) => {
                switch(exchange, head.headers, lease)
            }
            // A switch nobody asked for (RFC 9110 section 15.2.2): what follows it cannot be read as HTTP.
            _ => reply::refuse(exchange, &Refusal::UpstreamBadResponse),
        };
    }
    let present = Present::of(&head.headers);
    if !headers::is_framed_once(&head.headers, present) {
        return reply::refuse(exchange, &Refusal::UpstreamBadResponse);
    }
    headers::strip_hop_by_hop(&mut head.headers, present);
    exchange.answer(head.status);
    let pool = &exchange.view.pools[exchange.server.map_or(0, |(upstream, _)| upstream)];
    let timeouts = &pool.upstream.config.timeouts;
    let now = exchange.started + Duration::from_nanos(exchange.steps.answered);
    let ends = timeouts.total.map(|total| exchange.started + total);
    let download = Download::new(incoming, lease, timeouts.stall, ends, now);
    let mut response = Response::new(ResponseBody::upstream(download, exchange));
    *response.status_mut() = head.status;
    *response.headers_mut() = head.headers;
    response
}

/// Answers 101 and leaves the upstream's side for the connection to join, once the head is out.
fn switch(
    mut exchange: Box<Exchange>,
    mut headers: HeaderMap,
    lease: Lease<RequestBody>,
) -> Response<ResponseBody> {
    let protocol = headers.get(UPGRADE).cloned();
    let present = Present::of(&headers);
    headers::strip_hop_by_hop(&mut headers, present);
    let (Some(protocol), Some(upgraded)) = (protocol, lease.into_upgraded()) else {
        return reply::refuse(exchange, &Refusal::UpstreamBadResponse);
    };
    exchange.answer(StatusCode::SWITCHING_PROTOCOLS);
    headers.insert(CONNECTION, UPGRADE_TOKEN);
    headers.insert(UPGRADE, protocol);
    let conn = Rc::clone(&exchange.conn);
    conn.tunnel.replace(Some(Tunnel::new(upgraded, exchange)));
    let mut response = Response::new(ResponseBody::empty(None));
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    *response.headers_mut() = headers;
    response
}

const UPGRADE_TOKEN: HeaderValue = HeaderValue::from_static("upgrade");
