//! Forwards an admitted request to an upstream, with at most the configured retries, and takes over the head of the
//! answer. Bodies are `request_body` and `response_body`; connections come from `upstream`.

use std::rc::Rc;
use std::time::Duration;

use http::header::{
    ACCEPT_ENCODING, CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, EXPECT, HOST, TE, TRAILER, UPGRADE,
};
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode, Uri, Version};

use super::attempt::UpstreamAttempt;
use super::context::RequestContext;
use super::facts::TimeAllowance;
use super::headers::{self, HeadersPresent, Hop, X_REQUEST_ID};
use super::request::client::RequestClient;
use super::request::request_body::RequestBody;
use super::request::upgrade;
use super::response::answer_fields;
use super::response::response_body::ResponseBody;
use super::response::{grpc, reply};
use super::{mirror, sticky};
use crate::service::conn::UpstreamTunnel;
use crate::service::refusal::Refusal;
use base::clock;
use observe::trace::Trace;
use policy::definition::PathEscapes;
use policy::destination::PickedUpstream;
use policy::matching::path;
use policy::{Route, TemplateValues, UpstreamId};
use upstream::balance::ServerPreference;
use upstream::config::HttpVersion as UpstreamVersion;
use upstream::request::{RequestHead, Traceparent, put_traceparent};
use upstream::{Checkout, Pool};

/// The parts of a request that forwarding needs, apart from its headers and body.
#[derive(Debug)]
pub struct UpstreamRequest<'t, 'r> {
    pub client: RequestClient,
    /// Which of the fields that the gateway handles are present.
    pub present: HeadersPresent,
    pub route: &'t Route,
    /// The upstream that was chosen for it, if its route chooses.
    pub picked: Option<PickedUpstream>,
    /// The values for the route's templates.
    pub values: TemplateValues<'t, 'r>,
    pub tls: bool,
    pub version: Version,
}

/// How many fields the gateway adds to most requests.
const FIELDS_ADDED: usize = 6;

impl UpstreamRequest<'_, '_> {
    /// Turns the client's headers into those for the upstream: removes hop-by-hop fields, sets forwarding fields and the
    /// ids of the request and its trace, then applies the route's changes. Returns `traceparent` if it is not among them.
    pub fn rewrite_headers(&self, headers: &mut HeaderMap, context: &RequestContext) -> Option<Traceparent> {
        headers::strip_hop_by_hop(headers, self.present);
        // At once: on a new connection the map has room for what came and no more.
        headers.reserve(FIELDS_ADDED);
        // Removed, because the gateway answers `100-continue` itself, when the upstream begins to read the body.
        if self.present.expect {
            headers.remove(EXPECT);
        }
        let hop = Hop {
            peer: &context.conn.peer,
            trusted_peer: self.client.trusted_peer,
            tls: self.tls,
            authority: &context.facts.authority,
            version: self.version,
        };
        headers::forward_client(headers, self.present, context.view.snapshot.client_ip.header, &hop);
        headers.insert(X_REQUEST_ID, context.facts.request_id.clone());
        if context.reads_answer() {
            headers.insert(ACCEPT_ENCODING, IDENTITY);
        }
        // Set, because HTTP/2 names the host in `:authority`, and HTTP/1.1 may in its target (RFC 9112 section 3.2.2).
        if context.facts.uri.authority().is_some() {
            headers.insert(HOST, context.facts.authority.clone());
        }
        let changes = &self.route.request_headers;
        let mut traceparent = context.trace.as_ref().and_then(Trace::traceparent);
        // Put among the fields, so that the route may change this one, too.
        if !changes.is_empty()
            && let Some(traceparent) = traceparent.take()
        {
            put_traceparent(headers, &traceparent);
        }
        changes.apply(headers, &self.values);
        traceparent
    }

    /// The head to send, and the protocol that it asks to switch to, if it does.
    ///
    /// # Errors
    /// If the switch may not be asked for, or the rewritten path is not a valid one.
    #[inline]
    fn head(
        &self,
        context: &RequestContext,
        uri: &Uri,
        mut headers: HeaderMap,
        has_body: bool,
        wants_trailers: bool,
        h2: bool,
    ) -> Result<(RequestHead, Option<HeaderValue>), Refusal> {
        let upgrade = if self.route.upgrade && !h2 {
            let asked = (self.version, &context.facts.method);
            upgrade::asked_for(asked, &headers, self.present, has_body)?
        } else {
            None
        };
        if !h2 && self.present.cookie {
            headers::join_cookies(&mut headers);
        }
        let traceparent = self.rewrite_headers(&mut headers, context);
        if wants_trailers && h2 {
            headers.insert(TE, HeaderValue::from_static("trailers"));
        }
        if let Some(protocol) = &upgrade {
            headers.insert(CONNECTION, UPGRADE_TOKEN);
            headers.insert(UPGRADE, protocol.clone());
        }
        let target = self.target(uri);
        let target = target.ok_or(Refusal::Malformed("the rewritten path is not a valid path"))?;
        let method = context.facts.method.clone();
        Ok((RequestHead { method, target, headers, traceparent }, upgrade))
    }

    /// The path and query to send. A rewritten path is normalised again, because the end of a value and the text after it
    /// may together form a dot segment or a double encoding. `None` if it has no valid form.
    fn target(&self, uri: &Uri) -> Option<PathAndQuery> {
        let unchanged = uri.path_and_query().cloned();
        match self.route.rewritten_path(&self.values) {
            std::borrow::Cow::Borrowed(_) => unchanged,
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

/// Answers with the request's body, or with its head if it has no body.
pub fn echo(
    context: Box<RequestContext>,
    outbound: &UpstreamRequest<'_, '_>,
    uri: &Uri,
    mut headers: HeaderMap,
    body: RequestBody,
) -> Response<ResponseBody> {
    if let Some(traceparent) = outbound.rewrite_headers(&mut headers, &context) {
        put_traceparent(&mut headers, &traceparent);
    }
    if !matches!(body, RequestBody::Empty) {
        return reply::echo(context, body, headers.get(CONTENT_TYPE).cloned());
    }
    let target = outbound.target(uri);
    let mut head = format!(
        "{} {} HTTP/1.1\n",
        context.facts.method,
        target.as_ref().map_or("/", |target| target.as_str())
    );
    for (name, value) in &headers {
        head.push_str(name.as_str());
        head.push_str(": ");
        head.push_str(&value.as_bytes().escape_ascii().to_string());
        head.push('\n');
    }
    reply::echo_head(context, head)
}

/// Sends the request upstream and answers with what comes back. It is sent again if that is safe and the retry budget
/// allows it.
pub async fn forward(
    mut context: Box<RequestContext>,
    outbound: &UpstreamRequest<'_, '_>,
    picked: PickedUpstream,
    uri: Uri,
    headers: HeaderMap,
    mut body: RequestBody,
) -> Response<ResponseBody> {
    let view = Rc::clone(&context.view);
    let PickedUpstream { upstream, key } = picked;
    let pool = &view.pools[upstream];
    let named = sticky::named(pool, &headers);
    pool.budget.request(clock::ns_of(context.facts.started));
    let h2 = pool.upstream.config.http == UpstreamVersion::H2;
    context.attempts.allowed = allowed(&context, outbound.route, pool, &headers);
    let wants_trailers = headers::accepts_trailers(&headers, outbound.present);
    let has_body = !matches!(body, RequestBody::Empty);
    let (mut head, upgrade) = match outbound.head(&context, &uri, headers, has_body, wants_trailers, h2) {
        Ok(head) => head,
        Err(refusal) => return reply::refuse(context, &refusal),
    };
    let wish = ServerPreference { kept: named, key, avoid: None };
    let mut attempt = UpstreamAttempt {
        pool: Rc::clone(pool),
        upstream,
        wish,
        retry: outbound.route.retry.as_ref(),
        context: &mut context,
        early: None,
        anew: None,
    };
    // Not over HTTP/2: a slow body holds no connection there, because requests share it, and each piece of a gRPC stream
    // may wait for the answer to the one before.
    let gathered = if h2 { Ok(()) } else { attempt.gather(&mut body).await };
    let sent = match gathered {
        Ok(()) => {
            // Not a request to switch the protocol, because it is no copy without what follows it.
            if let (Some(mirror), None) = (outbound.route.mirror(), &upgrade) {
                mirror::copy(mirror, attempt.context, &head, &mut body, wants_trailers);
            }
            attempt.send(&mut head, body).await
        }
        Err(refusal) => Err(refusal),
    };
    if let (Ok((_, checkout)), Some(sticky)) = (&sent, attempt.pool.upstream.sticky.as_ref()) {
        sticky::keep(sticky, attempt.wish.kept, checkout.server, outbound.tls, &mut head.headers);
    }
    match sent {
        Ok((status, checkout)) => {
            // Over HTTP/1.1 trailers are announced; HTTP/2 can carry them after any answer.
            let announces = wants_trailers && outbound.version == Version::HTTP_11;
            accept(context, UpstreamResponse { status, headers: head.headers, checkout }, upgrade, announces)
        }
        Err(refusal) => {
            context.waive_unsent();
            reply::refuse(context, &refusal)
        }
    }
}

/// How long the upstream may take: what the route says goes before what the upstream says, and a gRPC call may ask for
/// less than both, never for more.
fn allowed(
    context: &RequestContext,
    route: &Route,
    pool: &Pool<RequestBody>,
    headers: &HeaderMap,
) -> TimeAllowance {
    let timeouts = &pool.upstream.config.timeouts;
    let total = route.timeouts.total.or(timeouts.total);
    let asked = if context.facts.is_call { grpc::timeout(headers) } else { None };
    TimeAllowance {
        response: route.timeouts.response.unwrap_or(timeouts.response),
        per_try: route.timeouts.per_try.or(timeouts.per_try),
        total: asked.map_or(total, |asked| Some(total.map_or(asked, |total| asked.min(total)))),
        stall: route.timeouts.stall.unwrap_or(timeouts.stall),
        tunnel_idle: route.timeouts.tunnel_idle.unwrap_or(TUNNEL_IDLE),
    }
}

/// An answer whose head has come.
struct UpstreamResponse {
    status: StatusCode,
    headers: HeaderMap,
    checkout: Checkout<RequestBody>,
}

/// Takes over an answer's head: removes the fields of the upstream's connection and lets the body stream. If `announces`,
/// `Trailer` tells the client which trailers follow.
fn accept(
    mut context: Box<RequestContext>,
    answer: UpstreamResponse,
    upgrade: Option<HeaderValue>,
    announces: bool,
) -> Response<ResponseBody> {
    let UpstreamResponse { status, mut headers, mut checkout } = answer;
    let phrase = checkout.take_phrase();
    context.reconcile(status, &headers);
    if status == StatusCode::SWITCHING_PROTOCOLS {
        return match upgrade {
            Some(wanted) if upgrade::is_switched_to(&wanted, &headers) => switch(context, headers, checkout),
            // A switch that was not asked for (RFC 9110 section 15.2.2) is refused, because what follows cannot be read
            // as HTTP.
            _ => reply::refuse(context, &Refusal::UpstreamBadResponse(None)),
        };
    }
    let present = HeadersPresent::of(&headers);
    let upstream = context.attempts.server.map_or(UpstreamId::new(0), |server| server.upstream);
    let spoken = context.view.pools[upstream].upstream.config.http;
    if !may_go_on(status, &headers, present, spoken) {
        return reply::refuse(context, &Refusal::UpstreamBadResponse(None));
    }
    let announced = if announces { headers::announced_trailers(&headers, present) } else { None };
    headers::strip_hop_by_hop(&mut headers, present);
    headers::tidy_length(&mut headers, present, status);
    if let Some(names) = announced {
        headers.insert(TRAILER, names);
    }
    answer_fields::add(&context, &mut headers);
    // None of these has a body. A server can still send one over HTTP/2, and with a 205; it goes no further.
    let is_bodiless = context.facts.method == Method::HEAD
        || matches!(status, StatusCode::NO_CONTENT | StatusCode::RESET_CONTENT | StatusCode::NOT_MODIFIED);
    context.headed(&headers, is_bodiless || checkout.is_answered());
    context.answer(status);
    let stall = context.attempts.allowed.stall;
    if let (Version::HTTP_2, Some(upload)) = (context.facts.version, &context.outcome.upload) {
        // Settled, because from now on the body is one half of a stream, which `stall` watches as a whole.
        upload.settle();
    }
    let now = context.facts.started + Duration::from_nanos(context.attempts.steps.answered);
    let ends = context.ends();
    let body = if is_bodiless {
        ResponseBody::without(checkout, now, context)
    } else {
        ResponseBody::upstream(checkout, stall, ends, now, context)
    };
    let mut response = Response::new(body);
    *response.status_mut() = status;
    *response.headers_mut() = headers;
    if let Some(phrase) = phrase {
        response.extensions_mut().insert(*phrase);
    }
    response
}

/// Whether every client reads an answer's head in the same way: a status of HTTP (RFC 9110 section 15), unambiguous
/// framing, and fields that HTTP/1 can carry. The HTTP/1 parser has checked the last already.
fn may_go_on(
    status: StatusCode,
    headers: &HeaderMap,
    present: HeadersPresent,
    spoken: UpstreamVersion,
) -> bool {
    let is_portable = || headers.iter().all(|(name, value)| headers::is_portable(name, value).is_ok());
    status.as_u16() < 600
        && headers::is_framed_once(headers, present)
        && (spoken == UpstreamVersion::H1 || is_portable())
}

/// Answers 101 and leaves the upstream's connection in [`UpstreamTunnel`]: the server runs the tunnel once the head is sent.
fn switch(
    mut context: Box<RequestContext>,
    mut headers: HeaderMap,
    checkout: Checkout<RequestBody>,
) -> Response<ResponseBody> {
    let protocol = headers.get(UPGRADE).cloned();
    let present = HeadersPresent::of(&headers);
    headers::strip_hop_by_hop(&mut headers, present);
    // Removed, because a 101 has no body: a client that believed the length would read the next protocol as one.
    headers.remove(CONTENT_LENGTH);
    let (Some(protocol), Some(upgraded)) = (protocol, checkout.into_upgraded()) else {
        return reply::refuse(context, &Refusal::UpstreamBadResponse(None));
    };
    context.judge_good();
    context.answer(StatusCode::SWITCHING_PROTOCOLS);
    headers.insert(CONNECTION, UPGRADE_TOKEN);
    let is_websocket = protocol.as_bytes().eq_ignore_ascii_case(b"websocket");
    headers.insert(UPGRADE, protocol);
    answer_fields::add(&context, &mut headers);
    let conn = Rc::clone(&context.conn);
    let idle = context.attempts.allowed.tunnel_idle;
    conn.switched.replace(Some(UpstreamTunnel { upstream: upgraded, is_websocket, idle, request: context }));
    let mut response = Response::new(ResponseBody::empty(None));
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    *response.headers_mut() = headers;
    response
}

/// No coding, because what an answer costs is read from it as it passes.
const IDENTITY: HeaderValue = HeaderValue::from_static("identity");
/// How long a tunnel may carry nothing unless its route says otherwise.
const TUNNEL_IDLE: Duration = Duration::from_secs(3_600);
const UPGRADE_TOKEN: HeaderValue = HeaderValue::from_static("upgrade");
