//! The steps of a request in order: validate, route, authenticate, decide its limits, answer. Each step is a module of its
//! own; nothing is decided here but the order.

use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::Poll;

use http::header::{CONNECTION, CONTENT_LENGTH, DATE};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method, Request, Response, Uri, Version};
use http_body::Body;
use hyper::body::Incoming;
use hyper::ext::ReasonPhrase;

use super::context::{PanicReply, RequestContext};
use super::forward::{self, UpstreamRequest};
use super::headers::HeadersPresent;
use super::request::client::{ForwardedTarget, RequestClient};
use super::request::request_body::RequestBody;
use super::request::unread_bodies::ReceivedBody;
use super::request::{authenticate, client, gather, validate};
use super::response::answer_fields::keeps_names;
use super::response::compress::CompressionTerms;
use super::response::limit_fields::RateLimitFields;
use super::response::reply;
use super::response::response_body::ResponseBody;
use super::response::{answer_fields, compress};
use super::services::Services;
use super::snapshot::Snapshot;
use super::{context, headers, limits, load_shedding, sticky};
use crate::service::activity::AnswerProgress;
use crate::service::conn::Conn;
use crate::service::form::ErrorForm;
use crate::service::refusal::Refusal;
use base::clock;
use base::identity::NOBODY;
use net::wire::http2::StreamId;
use policy::definition::PathEscapes;
use policy::destination::{ChoiceId, Destination, PickedUpstream};
use policy::matching::path;
use policy::response::cors;
use policy::response::cors::Cors;
use policy::{Action, HttpSubject, NotFound, RouteMatch, RouteTable, RoutingFacts, UpstreamId};

/// Answers one request. A panic ends only this request, with 500; the worker goes on.
pub async fn handle(
    services: Rc<Services>,
    conn: Rc<Conn>,
    request: Request<Incoming>,
    stream: Option<StreamId>,
) -> Result<Response<ResponseBody>, Infallible> {
    let (served, connection, version) = (Rc::clone(&services), Rc::clone(&conn), request.version());
    let is_head = *request.method() == Method::HEAD;
    // Pinned here, because passed by value, the inner future would take its space in this one twice.
    let mut answer = catch_panic(pin!(serve(services, conn, request, stream)))
        .await
        .unwrap_or_else(|request| reply::panicked(&request, &served.last_view().snapshot, &connection));
    if is_head {
        leave_out_content(&mut answer);
    }
    if answer.status().canonical_reason().is_none() && answer.extensions().get::<ReasonPhrase>().is_none() {
        // An empty one, because without any hyper writes `<none>`. A phrase may be empty (RFC 9112 section 4).
        answer.extensions_mut().insert(NO_PHRASE);
    }
    answer.headers_mut().entry(DATE).or_insert_with(clock::http_date);
    answer_fields::tell_node(&served.last_view().snapshot, &connection, answer.headers_mut());
    load_shedding::shed(&served.shared.overload, &connection, version, &mut answer);
    connection.activity.answer.set(match version {
        Version::HTTP_10 => {
            announce_close(&mut answer, connection.activity.in_message.get());
            AnswerProgress::Begun
        }
        Version::HTTP_11 if is_unbounded(&answer) => AnswerProgress::Chunked,
        _ => AnswerProgress::Begun,
    });
    if connection.rest.is_cut() {
        answer.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    }
    Ok(answer)
}

/// Makes an answer one to HEAD: with the fields that GET would get, and without content (RFC 9110 section 9.3.2). hyper does
/// so over HTTP/1 only; over HTTP/2 it sends whatever body an answer has.
fn leave_out_content(answer: &mut Response<ResponseBody>) {
    let body = answer.body();
    if let (false, Some(length)) = (body.is_end_stream(), body.size_hint().exact()) {
        answer.headers_mut().entry(CONTENT_LENGTH).or_insert(length.into());
    }
    answer.body_mut().leave_out();
}

/// Tells an HTTP/1.0 client that the connection closes, if it does: because the answer has no length and the client knows
/// no chunks, or because its request was not read to the end. The version is set, too, because hyper would add
/// `keep-alive` to an answer of HTTP/1.1.
fn announce_close(answer: &mut Response<ResponseBody>, is_unread: bool) {
    if is_unread || is_unbounded(answer) || answer.headers().contains_key(CONNECTION) {
        answer.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        *answer.version_mut() = Version::HTTP_10;
    }
}

/// Whether the length of the answer's body is not known in advance.
fn is_unbounded(answer: &Response<ResponseBody>) -> bool {
    let body = answer.body();
    !body.is_end_stream()
        && body.size_hint().exact().is_none()
        && !answer.headers().contains_key(CONTENT_LENGTH)
}

async fn catch_panic(
    mut serving: Pin<&mut impl Future<Output = Response<ResponseBody>>>,
) -> Result<Response<ResponseBody>, PanicReply> {
    let answer = poll_fn(|cx| match catch_unwind(AssertUnwindSafe(|| serving.as_mut().poll(cx))) {
        Ok(answer) => answer.map(Ok),
        Err(_) => Poll::Ready(Err(context::panicked())),
    });
    answer.await
}

async fn serve(
    services: Rc<Services>,
    conn: Rc<Conn>,
    request: Request<Incoming>,
    stream: Option<StreamId>,
) -> Response<ResponseBody> {
    let (mut head, incoming) = request.into_parts();
    let incoming = ReceivedBody::new(incoming, &head, stream, &conn, &services.unread);
    let mut context = RequestContext::begin(Rc::clone(&services), Rc::clone(&conn), &head);
    context.facts.stream = stream;
    let view = Rc::clone(&context.view);
    let snapshot = &*view.snapshot;

    let present = HeadersPresent::of(&head.headers);
    let client = recognise(&mut context, (&services, snapshot), &mut head.headers, present);
    let doubt = match admit(&mut context, &mut head, present) {
        Ok(doubt) => doubt,
        Err(refusal) => {
            // As it was sent, for the log, because it may be what is refused.
            context.facts.authority = headers::authority(&head.uri, &head.headers);
            return reply::refuse(context, &refusal);
        }
    };
    let authority = headers::authority(&head.uri, &head.headers);
    context.facts.authority = authority.clone();
    let host = validate::host(&authority);
    if let (true, Err(refusal)) = (conn.config.sni_strict, validate::sni(&conn.sni, &host)) {
        return reply::refuse(context, &refusal);
    }
    let mut context = match answer_unrouted(context, &head, &host) {
        ControlFlow::Continue(context) => context,
        ControlFlow::Break(answer) => return answer,
    };

    let arrived = AcceptedHead {
        client,
        present,
        host: &host,
        method: &head.method,
        uri: &head.uri,
        version: head.version,
    };
    let facts = arrived.facts(&head.headers);
    if let Some(method) = cors::preflight(&head.method, &head.headers)
        && let Ok(asked) = route(&snapshot.table, &RoutingFacts { method: &method, ..facts }, doubt)
        && let Some(cors) = &asked.route.access.cors
    {
        return preflight(context, &asked, &facts, cors);
    }
    let found = match route(&snapshot.table, &facts, doubt) {
        Ok(found) => found,
        Err(refusal) => return reply::refuse(context, &refusal),
    };
    context.facts.route = Some(found.route.id);
    let Some(cors) = &found.route.access.cors else {
        return pass(context, &found, arrived, head.headers, incoming).await;
    };
    let granted = cors.grant(&head.headers);
    let mut response = pass(context, &found, arrived, head.headers, incoming).await;
    // On refusals, too, because without these fields a script cannot read a 401 or a 429 and sees only a network error.
    cors.tell(granted, response.headers_mut());
    response
}

/// Notes who sends the request: its address, its ids, and the form in which it wants to be told of errors.
fn recognise(
    context: &mut RequestContext,
    (services, snapshot): (&Services, &Snapshot),
    headers: &mut HeaderMap,
    present: HeadersPresent,
) -> RequestClient {
    let peer = context.conn.peer.ip;
    context.facts.shown = snapshot.shown.values(headers);
    authenticate::hide_parameters(context);
    let client = client::find(&snapshot.client_ip, peer, headers);
    context.facts.client = client.ip;
    let (request_id, own_id) = headers::request_id(headers, client.trusted_peer, || services.random());
    context.facts.request_id = request_id;
    if let Some(tracer) = &snapshot.tracer {
        let trace = tracer.begin(headers, present.trace, client.trusted_peer, own_id, || services.random());
        if trace.sampled.is_some() && client.trusted_peer {
            let asked = client::asked(&snapshot.client_ip, peer, headers);
            context.facts.asked = (asked != ForwardedTarget::default()).then(|| Box::new(asked));
        }
        context.trace = Some(trace);
    }
    if present.accept {
        context.facts.form = ErrorForm::of(headers);
    }
    client
}

/// Validates the head, normalises its target, and sheds it if memory is short. Returns why servers may read its path in
/// different ways, if they may.
fn admit(
    context: &mut RequestContext,
    head: &mut Parts,
    present: HeadersPresent,
) -> Result<Option<path::Error>, Refusal> {
    let config = &context.conn.config;
    validate::head(head, present, &config.max, config.underscores)?;
    let doubt = validate::normalise(&mut head.uri)?;
    context.weigh(head)?;
    load_shedding::admit(&context.services.shared.overload)?;
    Ok(doubt)
}

/// Answers what needs no route: a challenge of ACME, a request in the clear that belongs on HTTPS, one from an address
/// that sends too many, and `OPTIONS *`.
fn answer_unrouted(
    mut context: Box<RequestContext>,
    head: &Parts,
    host: &str,
) -> ControlFlow<Response<ResponseBody>, Box<RequestContext>> {
    if context.conn.tls.is_empty()
        && head.uri.path().starts_with(acme::PATH)
        && let Some(text) = context.services.shared.challenges.text(head.uri.path())
    {
        return ControlFlow::Break(reply::challenge(context, text));
    }
    let asks_server = validate::asks_server(head);
    if let Some(redirect) = context.conn.config.redirect_https.as_ref().filter(|_| !asks_server) {
        let (location, status) = (validate::https_location(host, redirect, &head.uri), redirect.status);
        return ControlFlow::Break(reply::redirect(context, location, status));
    }
    let client = context.facts.client;
    if let Err(refusal) = limits::admit_address(&mut context, client) {
        return ControlFlow::Break(reply::refuse(context, &refusal));
    }
    if asks_server {
        return ControlFlow::Break(reply::server_options(context));
    }
    ControlFlow::Continue(context)
}

/// The route that matches a request. A path that servers read in different ways (`doubt`) is refused unless the route
/// keeps such escapes.
///
/// # Errors
/// If none matches, or the path is refused.
pub fn route<'t, 'r>(
    table: &'t RouteTable,
    facts: &RoutingFacts<'r, '_>,
    doubt: Option<path::Error>,
) -> Result<RouteMatch<'t, 'r>, Refusal> {
    match (table.find(facts), doubt) {
        (Ok(found), None) => Ok(found),
        (Ok(found), Some(_)) if found.route.path_escapes == PathEscapes::Keep => Ok(found),
        (_, Some(doubt)) => Err(Refusal::Malformed(doubt.text())),
        (Err(NotFound::Route), None) => Err(Refusal::NoRoute),
        (Err(NotFound::Method { allow }), None) => Err(Refusal::MethodNotAllowed(allow)),
    }
}

/// Answers a CORS preflight. It is neither authenticated nor charged, because browsers send it without credentials.
fn preflight(
    mut context: Box<RequestContext>,
    found: &RouteMatch<'_, '_>,
    facts: &RoutingFacts<'_, '_>,
    cors: &Cors,
) -> Response<ResponseBody> {
    context.facts.route = Some(found.route.id);
    if !found.route.access.addresses.admit(context.facts.client) {
        return refused(context, &Refusal::AddressDenied, found, facts);
    }
    match cors.grant(facts.headers) {
        Some(granted) => reply::preflight(context, cors, granted, facts.headers),
        None => refused(context, &Refusal::OriginDenied, found, facts),
    }
}

/// The parts of a request that the steps after routing need.
#[derive(Clone, Copy)]
struct AcceptedHead<'r> {
    client: RequestClient,
    present: HeadersPresent,
    host: &'r str,
    method: &'r Method,
    uri: &'r Uri,
    version: Version,
}

impl<'r> AcceptedHead<'r> {
    /// What routes and policies see of it while nobody is authenticated and nothing of its body is read.
    fn facts<'h>(&self, headers: &'h HeaderMap) -> RoutingFacts<'r, 'h> {
        RoutingFacts {
            method: self.method,
            host: self.host,
            path: self.uri.path(),
            query: self.uri.query(),
            headers,
            client_ip: self.client.ip,
            trusted_peer: self.client.trusted_peer,
            identity: &NOBODY,
            refused: false,
            body: None,
        }
    }
}

/// Authenticates the client, decides the limits, and lets the route answer.
async fn pass(
    mut context: Box<RequestContext>,
    found: &RouteMatch<'_, '_>,
    arrived: AcceptedHead<'_>,
    headers: HeaderMap,
    incoming: ReceivedBody,
) -> Response<ResponseBody> {
    let route = found.route;
    let facts = arrived.facts(&headers);
    if !route.access.addresses.admit(facts.client_ip) {
        return refused(context, &Refusal::AddressDenied, found, &facts);
    }
    let passed = authenticate::identify(&mut context, found, &facts).await;
    let body_max = route.body_bytes_max.unwrap_or(context.conn.config.max.body_bytes);
    if passed.refusal.is_none() && incoming.size_hint().lower() > body_max {
        return refused(context, &Refusal::BodyTooLarge, found, &facts);
    }
    let refused_by_auth = passed.identity.is_none() && passed.refusal.is_some();
    let identity = passed.identity.as_deref().unwrap_or(&NOBODY);
    let mut body = UnsentBody::Unopened(incoming);
    let mut fields_of_body = None;
    if let Some(paths) = route.body_paths.as_ref().filter(|_| !refused_by_auth) {
        let mut opened = body.open(&mut context, body_max);
        // Boxed, because few routes have policies that read bodies.
        match Box::pin(gather::fields(&mut context, &mut opened, &headers, paths)).await {
            Ok(fields) => fields_of_body = Some(fields),
            Err(ended) => {
                let refusal = gather::refusal(&context, ended);
                return refused(context, &refusal, found, &facts);
            }
        }
        body = UnsentBody::Opened(opened);
    }
    let facts = RoutingFacts { identity, refused: refused_by_auth, body: fields_of_body.as_ref(), ..facts };
    let view = Rc::clone(&context.view);
    let table = &view.snapshot.table;
    let decided = match limits::begin(&mut context, table, found, &facts) {
        Ok(decided) => decided,
        // Boxed, because waiting is rare, and its future would make every request's larger.
        Err(wait) => Box::pin(wait.end(&mut context, table, found, &facts)).await,
    };
    let fields = match decided {
        limits::LimitDecision::Admitted(fields) => fields,
        limits::LimitDecision::Refused(refusal, fields) => {
            return refused_with(context, &refusal, found, &facts, fields);
        }
    };
    if context.held.is_some() {
        // Boxed, because a timer is large, and few requests wait for their turn.
        Box::pin(context.turn()).await;
    }
    // Only after the limits and the turn in the queue, so that guessing credentials is no faster than real requests.
    if let Some(refusal) = &passed.refusal {
        return refused_with(context, refusal, found, &facts, fields);
    }

    let request_id = context.facts.request_id.clone();
    let values = found.values(&facts, request_id.to_str().unwrap_or_default());
    if let Err(unfit) = route.fits(&values) {
        return refused_with(context, &authenticate::unfit(&view, route, unfit), found, &facts, fields);
    }
    let body = body.open(&mut context, body_max);
    let picked = choose(&context, found, &facts);
    let AcceptedHead { client, present, uri, version, .. } = arrived;
    let tls = !context.conn.tls.is_empty();
    let outbound = UpstreamRequest { client, present, route, picked, values, tls, version };
    answer(context, &outbound, uri, headers, body, fields).await
}

/// A request's body before it is sent anywhere.
enum UnsentBody {
    /// Nothing is read of it.
    Unopened(ReceivedBody),
    /// It is counted against its limit, and may have been read ahead.
    Opened(RequestBody),
}

impl UnsentBody {
    /// Begins to count it against its limit.
    fn open(self, context: &mut RequestContext, bytes_max: u64) -> RequestBody {
        match self {
            UnsentBody::Opened(body) => body,
            UnsentBody::Unopened(incoming) if incoming.is_end_stream() => RequestBody::Empty,
            UnsentBody::Unopened(incoming) => {
                let activity = Rc::clone(&context.conn.activity);
                let (body, upload) = RequestBody::streaming(incoming, bytes_max, activity);
                context.outcome.upload = Some(upload);
                body
            }
        }
    }
}

/// The upstream of this request and the key of its server, if its route chooses them anew for each request. Before
/// credentials are hidden, because what a client keeps them by may be one.
fn choose(
    context: &RequestContext,
    found: &RouteMatch<'_, '_>,
    facts: &RoutingFacts<'_, '_>,
) -> Option<PickedUpstream> {
    let Action::Forward { to: Destination { choice: Some(choice), .. }, .. } = &found.route.action else {
        return None;
    };
    let (view, now) = (&context.view, context.facts.started);
    if let Some(upstream) = sticky::upstream(view, choice, facts.headers, now) {
        return Some(PickedUpstream { upstream, key: None });
    }
    let turn = |id: ChoiceId| view.turns[id].next();
    let is_usable = |upstream: UpstreamId| view.pools[upstream].has_usable_server(now);
    Some(choice.choose(&HttpSubject::new(found, facts), turn, is_usable))
}

/// Answers an admitted request: hides its credentials, runs the route's action, and completes the answer's fields.
async fn answer(
    context: Box<RequestContext>,
    outbound: &UpstreamRequest<'_, '_>,
    uri: &Uri,
    mut headers: HeaderMap,
    body: RequestBody,
    fields: RateLimitFields,
) -> Response<ResponseBody> {
    let (route, values, conn) = (outbound.route, &outbound.values, Rc::clone(&context.conn));
    let uri = authenticate::hide_credentials(&context.view, route, uri, &mut headers);
    let wanted = route.compress.as_ref().map(|rules| {
        compress::ignore_false_range(&mut headers);
        CompressionTerms::of(rules, &context, &headers)
    });
    let mut response = match &route.action {
        Action::Respond(fixed) => reply::respond(context, fixed, values),
        Action::RedirectHttps(redirect) => {
            let location = validate::https_location(values.host, redirect, &uri);
            reply::redirect(context, location, redirect.status)
        }
        Action::Redirect { to, status } => reply::redirect(context, to.render(values), *status),
        Action::Echo => forward::echo(context, outbound, &uri, headers, body),
        Action::Forward { to, .. } => {
            let picked = outbound.picked.unwrap_or(PickedUpstream { upstream: to.upstream, key: None });
            forward::forward(context, outbound, picked, uri, headers, body).await
        }
    };
    route.response_headers.apply(response.headers_mut(), values);
    fields.insert(response.headers_mut(), keeps_names(&conn));
    let Some(wanted) = wanted else { return response };
    wanted.apply(response)
}

/// Refuses a request of a route before it is answered. What the route says of the fields of its answers holds of this one,
/// too, where it says always.
fn refused(
    context: Box<RequestContext>,
    refusal: &Refusal,
    found: &RouteMatch<'_, '_>,
    facts: &RoutingFacts<'_, '_>,
) -> Response<ResponseBody> {
    let changes = &found.route.response_headers;
    if !changes.always {
        return reply::refuse(context, refusal);
    }
    let (identity, id) = (context.facts.identity.clone(), context.facts.request_id.clone());
    let mut response = reply::refuse(context, refusal);
    let facts = RoutingFacts { identity: identity.as_deref().unwrap_or(&NOBODY), ..*facts };
    changes.apply(response.headers_mut(), &found.values(&facts, id.to_str().unwrap_or_default()));
    response
}

/// The same with the rate-limit fields of its decision.
fn refused_with(
    context: Box<RequestContext>,
    refusal: &Refusal,
    found: &RouteMatch<'_, '_>,
    facts: &RoutingFacts<'_, '_>,
    fields: RateLimitFields,
) -> Response<ResponseBody> {
    let kept = keeps_names(&context.conn);
    let mut response = refused(context, refusal, found, facts);
    fields.insert(response.headers_mut(), kept);
    response
}

const NO_PHRASE: ReasonPhrase = ReasonPhrase::from_static(b"");

#[cfg(test)]
mod tests {
    use std::cell::{Cell, OnceCell, RefCell};
    use std::net::IpAddr;
    use std::sync::Arc;

    use http_body_util::BodyExt;

    use super::*;
    use crate::proxy::headers::X_REQUEST_ID;
    use crate::proxy::services;
    use crate::service::activity::Activity;
    use crate::service::body_rest::BodyRest;
    use crate::service::config;
    use crate::service::conn::PeerAddress;

    fn conn() -> Rc<Conn> {
        let config = config::ListenerConfig {
            bind: net::listening::Bind::Tcp(([127, 0, 0, 1], 0).into()),
            connections_max: 1,
            connections_per_ip_max: 1,
            ..config::ListenerConfig::named("plain".to_owned())
        };
        Rc::new(Conn {
            config: Arc::new(config),
            peer: PeerAddress::new(IpAddr::from([192, 0, 2, 1])),
            tcp_peer: IpAddr::from([192, 0, 2, 1]),
            tls: "",
            sni: "".into(),
            certificate: None,
            activity: Rc::new(Activity::new(clock::instant())),
            drain: Rc::default(),
            stalled: Cell::new(false),
            broken: Cell::new(0),
            leaving: Cell::new(false),
            rest: BodyRest::default(),
            frames: OnceCell::new(),
            switched: RefCell::new(None),
        })
    }

    #[tokio::test]
    async fn the_answer_after_a_panic_has_the_request_id() {
        let (head, ()) = Request::new(()).into_parts();
        let (services, conn) = (services::tests::services().0, conn());
        let mut context = RequestContext::begin(Rc::clone(&services), Rc::clone(&conn), &head);
        context.facts.request_id = HeaderValue::from_static("0123");
        let failing = async move {
            let _exchange = context;
            panic!("in a request");
        };
        let panicked = catch_panic(pin!(failing)).await.expect_err("it panics");
        let answer = reply::panicked(&panicked, &services.last_view().snapshot, &conn);
        let (head, body) = answer.into_parts();
        assert_eq!(head.status.as_u16(), 500);
        assert_eq!(head.headers[X_REQUEST_ID], "0123");
        let body = body.collect().await.expect("its body is in memory").to_bytes();
        let problem: serde_json::Value = serde_json::from_slice(&body).expect("problem+json");
        assert_eq!(problem["request-id"], "0123");
    }
}
