//! Forwards an admitted request to an upstream, with at most the configured retries, and takes over the head of the
//! answer. Bodies are `request_body` and `response_body`; connections come from `crate::upstream`.

use std::rc::Rc;
use std::time::{Duration, Instant};

use http::header::{CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, EXPECT, HOST, TE, TRAILER, UPGRADE};
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderValue, Response, StatusCode, Uri, Version};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::timeout;

use super::client::Client;
use super::context::RequestContext;
use super::facts::{Allowed, Attempts, ServerIndex};
use super::gather::{self, Ended};
use super::headers::{self, Hop, Present, X_REQUEST_ID};
use super::hedge::{Tried, Try, Trying};
use super::request_body::{Kept, RequestBody};
use super::response_body::ResponseBody;
use super::{grpc, mirror, reply, sticky, upgrade};
use crate::cause::Cause;
use crate::policy::definition::PathEscapes;
use crate::policy::destination::Picked;
use crate::policy::{Route, Values, path};
use crate::service::conn::Switched;
use crate::service::refusal::Refusal;
use crate::upstream::balance::Wish;
use crate::upstream::config::{HostHeader, Version as UpstreamVersion};
use crate::upstream::connect::ConnectError;
use crate::upstream::error::{SendError, Unsent};
use crate::upstream::pool::AcquireError;
use crate::upstream::request::Head;
use crate::upstream::uploads::Bounds;
use crate::upstream::{Checkout, Error, Pool};
use crate::{clock, metrics};

/// The parts of a request that forwarding needs, apart from its headers and body.
#[derive(Debug)]
pub struct UpstreamRequest<'t, 'r> {
    /// The client's address.
    pub client: Client,
    /// Which of the fields that the gateway handles are present.
    pub present: Present,
    /// The route that matches it.
    pub route: &'t Route,
    /// The upstream that was chosen for it, if its route chooses.
    pub picked: Option<Picked>,
    /// The values for the route's templates.
    pub values: Values<'t, 'r>,
    /// Whether it came over TLS.
    pub tls: bool,
    /// The protocol it came by.
    pub version: Version,
}

impl UpstreamRequest<'_, '_> {
    /// Turns the client's headers into those for the upstream: removes hop-by-hop fields, sets forwarding fields and the
    /// request id, then applies the route's changes.
    pub fn rewrite_headers(&self, headers: &mut HeaderMap, context: &RequestContext) {
        headers::strip_hop_by_hop(headers, self.present);
        // The gateway answers `100-continue` itself, when the upstream begins to read the body.
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
        // HTTP/2 names the host in `:authority`, and HTTP/1.1 may in its target (RFC 9112 section 3.2.2).
        if context.facts.uri.authority().is_some() {
            headers.insert(HOST, context.facts.authority.clone());
        }
        self.route.request_headers.apply(headers, &self.values);
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
    headers: HeaderMap,
    body: RequestBody,
) -> Response<ResponseBody> {
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
    picked: Picked,
    uri: Uri,
    mut headers: HeaderMap,
    mut body: RequestBody,
) -> Response<ResponseBody> {
    let view = Rc::clone(&context.view);
    let Picked { upstream, key } = picked;
    let pool = &view.pools[upstream];
    let named = sticky::named(pool, &headers);
    pool.budget.request(clock::ns_of(context.facts.started));
    let h2 = pool.upstream.config.http == UpstreamVersion::H2;
    context.attempts.allowed = allowed(&context, outbound.route, pool, &headers);
    let wants_trailers = headers::accepts_trailers(&headers, outbound.present);
    let upgrade = if outbound.route.upgrade && !h2 {
        let has_body = !matches!(body, RequestBody::Empty);
        let asked = (outbound.version, &context.facts.method);
        match upgrade::asked_for(asked, &headers, outbound.present, has_body) {
            Ok(upgrade) => upgrade,
            Err(refusal) => return reply::refuse(context, &refusal),
        }
    } else {
        None
    };
    if !h2 && outbound.present.cookie {
        headers::join_cookies(&mut headers);
    }
    outbound.rewrite_headers(&mut headers, &context);
    if wants_trailers && h2 {
        headers.insert(TE, HeaderValue::from_static("trailers"));
    }
    if let Some(protocol) = &upgrade {
        headers.insert(CONNECTION, UPGRADE_TOKEN);
        headers.insert(UPGRADE, protocol.clone());
    }
    let Some(target) = outbound.target(&uri) else {
        return reply::refuse(context, &Refusal::Malformed("the rewritten path is not a valid path"));
    };
    let mut head = Head { method: context.facts.method.clone(), target, headers };
    let wish = Wish { kept: named, key, avoid: None };
    let mut attempt =
        UpstreamAttempt { pool: Rc::clone(pool), upstream, wish, context: &mut context, early: None };
    // Not over HTTP/2: a slow body holds no connection there, because requests share it, and each piece of a gRPC stream
    // may wait for the answer to the one before.
    let gathered = if h2 { Ok(()) } else { attempt.gather(&mut body).await };
    let sent = match gathered {
        Ok(()) => {
            // A request to switch the protocol is no copy without what follows it.
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
            accept(context, Answer { status, headers: head.headers, checkout }, upgrade, announces)
        }
        Err(refusal) => reply::refuse(context, &refusal),
    }
}

/// How long the upstream may take: what the route says goes before what the upstream says, and a gRPC call may ask for
/// less than both, never for more.
fn allowed(
    context: &RequestContext,
    route: &Route,
    pool: &Pool<RequestBody>,
    headers: &HeaderMap,
) -> Allowed {
    let timeouts = &pool.upstream.config.timeouts;
    let total = route.timeouts.total.or(timeouts.total);
    let asked = if context.facts.is_call { grpc::timeout(headers) } else { None };
    Allowed {
        response: route.timeouts.response.unwrap_or(timeouts.response),
        total: asked.map_or(total, |asked| Some(total.map_or(asked, |total| asked.min(total)))),
    }
}

/// The attempts to have one request answered.
struct UpstreamAttempt<'a> {
    pool: Rc<Pool<RequestBody>>,
    upstream: usize,
    /// Which server it is to go to.
    wish: Wish,
    context: &'a mut RequestContext,
    /// The permit to hold a connection although the first bytes of the body have not come.
    early: Option<OwnedSemaphorePermit>,
}

impl UpstreamAttempt<'_> {
    /// Reads the first bytes of the body before a connection is taken; see [`gather`].
    async fn gather(&mut self, body: &mut RequestBody) -> Result<(), Refusal> {
        if matches!(body, RequestBody::Empty) {
            return Ok(());
        }
        match gather::gather(self.context, body, &self.pool.upstream).await {
            Ok(early) => {
                self.early = early;
                Ok(())
            }
            Err(Ended::Stalled) => Err(Refusal::BodySlow),
            Err(Ended::NoRoom) => Err(Refusal::Overloaded),
            Err(Ended::Body(error)) => {
                tracing::debug!(%error, "a request's body ended early");
                Err(self.body_fault().unwrap_or(Refusal::ClientGone))
            }
        }
    }

    /// Sends until an answer's head comes. Its fields replace those in `head`: one map serves both ways.
    async fn send(
        &mut self,
        head: &mut Head,
        mut body: RequestBody,
    ) -> Result<(StatusCode, Checkout<RequestBody>), Refusal> {
        // An HTTP/1.0 client need not name a host, but HTTP/1.1 must have one (RFC 9112 section 3.2).
        let is_nameless = self.context.facts.authority.is_empty() && !head.headers.contains_key(HOST);
        let names_server = is_nameless || self.pool.upstream.config.host == HostHeader::Server;
        loop {
            self.look_for_servers();
            // A request with a body cannot be repeated: what was sent of the body is not kept.
            let may_repeat = matches!(body, RequestBody::Empty) && headers::is_idempotent(&head.method);
            let may_try_again = may_repeat && self.may_retry();
            let retry = &self.pool.upstream.config.retry;
            if let Some(after) = retry.hedge_after
                && may_try_again
                && self.may_hedge(head)
            {
                match Box::pin(self.hedged(after, head, names_server)).await? {
                    Some(answer) => return Ok(answer),
                    None => continue,
                }
            }
            // The answer's fields take the place of the request's.
            let spare = (may_try_again && !retry.on_status.is_empty()).then(|| head.headers.clone());
            let now = self.context.facts.started + self.context.attempts.steps.ready();
            let is_upload = body.is_on_its_way();
            let acquired = self.pool.acquire(self.wish, is_upload, now, self.context.ends()).await;
            let mut checkout = match acquired {
                Ok(checkout) => checkout,
                Err(error) => {
                    self.wish.avoid = self.not_acquired(&error)?;
                    continue;
                }
            };
            self.acquired(&checkout);
            if names_server && let Ok(host) = HeaderValue::from_str(checkout.host()) {
                head.headers.insert(HOST, host);
            }
            let server = checkout.server;
            let until = self.response_deadline(may_try_again);
            self.watch(&mut checkout, &mut body);
            let kept = self.keep(&mut body);
            self.context.attempts.is_awaiting_head = true;
            let sent = checkout.send(head, body, until).await;
            self.context.attempts.is_awaiting_head = false;
            match self.conclude(server, sent, &head.headers, may_repeat, kept)? {
                Next::Answered(status) => return Ok((status, checkout)),
                Next::Again(again) => {
                    checkout.discard(clock::instant());
                    if let Some(fields) = spare {
                        head.headers = fields;
                    }
                    (body, self.wish.avoid) = (again, Some(server));
                }
            }
        }
    }

    /// Whether one more try is within `times`.
    fn may_retry(&self) -> bool {
        let Attempts { retries, unprocessed, .. } = &self.context.attempts;
        u32::from(retries - unprocessed) < self.pool.upstream.config.retry.times
    }

    fn is_h2(&self) -> bool {
        self.pool.upstream.config.http == UpstreamVersion::H2
    }

    /// What there will be of the body if this try turns out to be one that the server has done nothing with.
    fn keep(&self, body: &mut RequestBody) -> Whole {
        if matches!(body, RequestBody::Empty) {
            return Whole::Empty;
        }
        // Over HTTP/1.1 no server says so.
        let kept =
            if self.is_h2() { body.keep(self.pool.upstream.config.uploads.gather_bytes) } else { None };
        kept.map_or(Whole::Lost, Whole::Kept)
    }

    /// What a try has come to: an answer with these fields to go on with, or another try.
    fn conclude(
        &mut self,
        server: usize,
        sent: Result<StatusCode, SendError<RequestBody>>,
        fields: &HeaderMap,
        may_repeat: bool,
        whole: Whole,
    ) -> Result<Next, Refusal> {
        match sent {
            Ok(status) => {
                self.answered(server, status, fields);
                if !(may_repeat && self.is_to_be_sent_again(status)) {
                    return Ok(Next::Answered(status));
                }
                self.forgo_answer();
                Ok(Next::Again(RequestBody::Empty))
            }
            Err(SendError::Timeout) => {
                let on_timeout = self.pool.upstream.config.retry.on_timeout;
                if !(self.timed_out(server) && may_repeat && on_timeout && self.again()) {
                    return Err(Refusal::UpstreamTimeout);
                }
                Ok(Next::Again(RequestBody::Empty))
            }
            Err(SendError::Slow) => {
                self.count().exchanged(self.cells(), metrics::Exchange::ClientGone);
                Err(Refusal::BodySlow)
            }
            Err(SendError::Broken { error, unsent }) => {
                let is_free = error.tls_cause().is_none()
                    && match unsent {
                        Unsent::Unprocessed { is_graceful } => is_graceful,
                        Unsent::Request(_) => self.is_h2(),
                        Unsent::Nothing | Unsent::Answered => false,
                    };
                let again = self.broken(server, &error, unsent, may_repeat, whole)?;
                let goes_again = is_free && self.again_unprocessed() || self.again();
                let refusal = error.tls_cause().map_or(Refusal::UpstreamReset, Refusal::UpstreamConnect);
                if goes_again { Ok(Next::Again(again)) } else { Err(refusal) }
            }
        }
    }

    /// An answer's head has come, and is left for one of another try.
    fn forgo_answer(&mut self) {
        self.count().exchanged(self.cells(), metrics::Exchange::Answered);
        self.context.judge_good();
        self.context.attempts.steps.answered = 0;
    }

    /// Whether a second server may be asked while the first has not answered. A client that a cookie keeps at its server stays
    /// there, and a switch of protocols is not begun twice.
    fn may_hedge(&self, head: &Head) -> bool {
        self.wish.kept.is_none() && !head.headers.contains_key(UPGRADE)
    }

    /// Tries a server, and one other as well if no head of an answer has come `after` that. `None`: the request is to be sent
    /// again.
    async fn hedged(
        &mut self,
        after: Duration,
        head: &mut Head,
        names_server: bool,
    ) -> Result<Option<(StatusCode, Checkout<RequestBody>)>, Refusal> {
        let now = self.context.facts.started + self.context.attempts.steps.ready();
        let server = self.pool.choose(self.wish, now);
        let mut first = self.try_at(server, head, names_server, now);
        // If the client leaves, that is where its request was.
        self.context.attempts.server = Some(ServerIndex { upstream: self.upstream, server });
        self.context.attempts.is_awaiting_head = true;
        let tried = match timeout(after, &mut first).await {
            Ok(tried) => tried,
            Err(_) => match self.hedge(server, head, names_server) {
                Some(second) => self.race(first, second).await,
                None => first.await,
            },
        };
        self.context.attempts.is_awaiting_head = false;
        let tried = match tried {
            Ok(tried) => tried,
            Err(error) => {
                self.wish.avoid = self.not_acquired(&error)?;
                return Ok(None);
            }
        };
        self.tried(&tried);
        let Tried { checkout, head: answered, result, .. } = tried;
        let server = checkout.server;
        match self.conclude(server, result, &answered.headers, true, Whole::Empty)? {
            Next::Answered(status) => {
                *head = answered;
                Ok(Some((status, checkout)))
            }
            Next::Again(_) => {
                checkout.discard(clock::instant());
                self.wish.avoid = Some(server);
                Ok(None)
            }
        }
    }

    fn try_at(&self, server: usize, head: &Head, names_server: bool, now: Instant) -> Trying {
        let tried = Try {
            pool: Rc::clone(&self.pool),
            server,
            head: Head {
                method: head.method.clone(),
                target: head.target.clone(),
                headers: head.headers.clone(),
            },
            names_server,
            response: self.response_time(self.may_retry()),
            ends: self.context.ends(),
        };
        tried.begin(now)
    }

    /// A second try at another server, if one may be used and the budget allows it.
    fn hedge(&mut self, first: usize, head: &Head, names_server: bool) -> Option<Trying> {
        let now = clock::instant();
        if !(self.pool.has_usable_server_beside(first, now) && self.again()) {
            return None;
        }
        let server = self.pool.choose(Wish { avoid: Some(first), ..self.wish }, now);
        Some(self.try_at(server, head, names_server, now))
    }

    /// The first of two tries that brings an answer to go on with. The other one is dropped, which closes its connection or
    /// resets its stream, and is not held against its server. If one comes to nothing, the other decides.
    async fn race(&mut self, mut first: Trying, mut second: Trying) -> Result<Tried, AcquireError> {
        let (ended, other, is_second) = tokio::select! {
            biased;
            tried = &mut first => (tried, second, false),
            tried = &mut second => (tried, first, true),
        };
        let on_status = &self.pool.upstream.config.retry.on_status;
        let is_good =
            |tried: &Tried| tried.result.as_ref().is_ok_and(|status| !on_status.contains(status.as_u16()));
        let (decides, is_hedge) = if ended.as_ref().is_ok_and(is_good) {
            drop(other);
            self.count().exchanged(self.cells(), metrics::Exchange::Cancelled);
            (ended, is_second)
        } else {
            self.came_to_nothing(ended);
            (other.await, !is_second)
        };
        let is_won = is_hedge && decides.as_ref().is_ok_and(|tried| tried.result.is_ok());
        self.count().hedged(self.cells(), is_won);
        decides
    }

    /// Counts a try that has failed while another one is under way.
    fn came_to_nothing(&mut self, ended: Result<Tried, AcquireError>) {
        let tried = match ended {
            Ok(tried) => tried,
            Err(error) => {
                self.no_connection(&error);
                return;
            }
        };
        self.tried(&tried);
        // The refusal would be the client's answer if there were no other try.
        let Tried { checkout, head, result, .. } = tried;
        if let Ok(Next::Answered(_)) =
            self.conclude(checkout.server, result, &head.headers, false, Whole::Empty)
        {
            self.forgo_answer();
            checkout.discard(clock::instant());
        }
    }

    /// Notes where the time of a try went.
    fn tried(&mut self, tried: &Tried) {
        self.connected(&tried.checkout);
        let sent = tried.sent_at.saturating_duration_since(self.context.facts.started);
        self.context.attempts.steps.sent = sent.as_nanos() as u64;
    }

    /// Goes on with the servers that there are now: some may have left their name while the request was waiting for its
    /// body, a connection or an answer.
    fn look_for_servers(&mut self) {
        let Some(view) = self.context.services.renewed(&self.context.view) else { return };
        let before = std::mem::replace(&mut self.pool, Rc::clone(&view.pools[self.upstream]));
        let index_now = |index: usize| self.pool.upstream.index_of(&before.upstream.servers[index]);
        self.context.view = view;
        let of_log = self.context.attempts.server.and_then(|index| index_now(index.server));
        self.context.attempts.server = of_log.map(|server| ServerIndex { upstream: self.upstream, server });
        self.wish.kept = self.wish.kept.and_then(index_now);
        self.wish.avoid = self.wish.avoid.and_then(index_now);
    }

    /// The head of an answer has come. Whether a good one is followed by its body is for the body to say.
    fn answered(&mut self, server: usize, status: StatusCode, fields: &HeaderMap) {
        self.context.attempts.steps.answered = self.context.elapsed_ns();
        self.count().answered(self.cells(), self.context.attempts.steps.first_byte());
        let is_failed =
            status.is_server_error() || self.context.facts.is_call && grpc::is_servers_fault(fields);
        self.context.attempts.is_unjudged = !is_failed;
        if is_failed {
            self.pool.failed(server, clock::now_ns());
        }
    }

    /// Whether an answer with this status is left for one of another try.
    fn is_to_be_sent_again(&mut self, status: StatusCode) -> bool {
        let on_status = &self.pool.upstream.config.retry.on_status;
        on_status.contains(status.as_u16()) && !self.context.is_past_total() && self.again()
    }

    /// No answer came in time; says whether there is time for another try.
    fn timed_out(&mut self, server: usize) -> bool {
        let is_past_total = self.context.is_past_total();
        if !is_past_total {
            self.pool.failed(server, clock::now_ns());
        }
        self.count().exchanged(
            self.cells(),
            match is_past_total {
                true => metrics::Exchange::TotalTimeout,
                false => metrics::Exchange::ResponseTimeout,
            },
        );
        !is_past_total
    }

    /// Handles a failure to get a connection. Nothing was sent, so another server may be tried: returns the one to avoid.
    fn not_acquired(&mut self, error: &AcquireError) -> Result<Option<usize>, Refusal> {
        let Some((refusal, server)) = self.no_connection(error) else { return Ok(self.wish.avoid) };
        if server.is_some() && self.pool.upstream.config.retry.on_connect && self.again() {
            return Ok(server);
        }
        Err(refusal)
    }

    /// Counts a failure to get a connection. Returns how a client is told, and the server that it is the fault of, if another
    /// one may do better; `None` if the servers there are now are to be asked.
    fn no_connection(&mut self, error: &AcquireError) -> Option<(Refusal, Option<usize>)> {
        tracing::debug!(upstream = %self.pool.upstream.config.name, %error, "no connection to the upstream");
        let (refusal, outcome, index) = match error {
            AcquireError::Full { wait_ns, .. } => {
                self.context.attempts.steps.wait += wait_ns;
                (Refusal::UpstreamPoolFull, metrics::Exchange::PoolExhausted, None)
            }
            AcquireError::Left { wait_ns } => {
                self.context.attempts.steps.wait += wait_ns;
                return None;
            }
            AcquireError::Late => (Refusal::UpstreamTimeout, metrics::Exchange::TotalTimeout, None),
            AcquireError::Connect { source, index, .. } => {
                self.count().connect_failed(self.cells());
                match source {
                    ConnectError::Unresolved => {
                        (Refusal::UpstreamUnresolved, metrics::Exchange::Unresolved, Some(*index))
                    }
                    ConnectError::Timeout(_) => {
                        (Refusal::UpstreamConnectTimeout, metrics::Exchange::ConnectTimeout, Some(*index))
                    }
                    ConnectError::Descriptors(_) => {
                        (Refusal::Overloaded, metrics::Exchange::ConnectFailed, None)
                    }
                    // The handshake would fail again at the same server. Another one is checked in the same way, so going there
                    // weakens nothing.
                    ConnectError::Tls { cause, .. } => {
                        let is_another = self.pool.has_usable_server_beside(*index, clock::instant());
                        let elsewhere = is_another.then_some(*index);
                        (Refusal::UpstreamConnect(*cause), metrics::Exchange::ConnectFailed, elsewhere)
                    }
                    ConnectError::Io(error) => {
                        let cause = Cause::of_connect(error);
                        (Refusal::UpstreamConnect(cause), metrics::Exchange::ConnectFailed, Some(*index))
                    }
                    ConnectError::Http(_) => {
                        let refusal = Refusal::UpstreamConnect(Cause::ConnectFailed);
                        (refusal, metrics::Exchange::ConnectFailed, Some(*index))
                    }
                }
            }
        };
        self.count().exchanged(self.cells(), outcome);
        Some((refusal, index))
    }

    /// Handles a connection that broke before an answer. Returns the body to send again with, if the request was never
    /// sent or may be sent twice.
    fn broken(
        &mut self,
        server: usize,
        error: &Error,
        unsent: Unsent<RequestBody>,
        may_repeat: bool,
        whole: Whole,
    ) -> Result<RequestBody, Refusal> {
        tracing::debug!(upstream = %self.pool.upstream.config.name, %error, "connection broke before an answer");
        if let Some(refusal) = self.body_fault() {
            if !matches!(refusal, Refusal::BodyTooLarge) {
                self.count().exchanged(self.cells(), metrics::Exchange::ClientGone);
            }
            return Err(refusal);
        }
        // A connection that was idle may be closed at any time, and one that is shared when it has served its time; what broke
        // then says nothing of the server.
        let is_unprocessed = matches!(unsent, Unsent::Request(_) | Unsent::Unprocessed { is_graceful: true });
        if !is_unprocessed || error.is_bad_answer() || error.tls_cause().is_some() {
            self.pool.failed(server, clock::now_ns());
        }
        // Over TLS 1.3 a server refuses our certificate only after our side has finished the handshake.
        if let Some(cause) = error.tls_cause() {
            self.count().exchanged(self.cells(), metrics::Exchange::ConnectFailed);
            self.pool.upstream.servers[server].last_connect.failed(cause);
            let is_another = self.pool.has_usable_server_beside(server, clock::instant());
            return match unsent {
                Unsent::Request(body) if is_another => Ok(body.unwrap_or(RequestBody::Empty)),
                Unsent::Nothing if is_another && may_repeat => Ok(RequestBody::Empty),
                _ => Err(Refusal::UpstreamConnect(cause)),
            };
        }
        let is_answer = error.is_bad_answer();
        self.count().exchanged(
            self.cells(),
            if is_answer { metrics::Exchange::BadAnswer } else { metrics::Exchange::Reset },
        );
        match unsent {
            _ if is_answer => Err(Refusal::UpstreamBadResponse),
            Unsent::Request(body) => Ok(body.unwrap_or(RequestBody::Empty)),
            Unsent::Unprocessed { .. } => whole.again().ok_or(Refusal::UpstreamReset),
            Unsent::Nothing if may_repeat && self.pool.upstream.config.retry.on_reset => {
                Ok(RequestBody::Empty)
            }
            Unsent::Nothing | Unsent::Answered => Err(Refusal::UpstreamReset),
        }
    }

    /// The refusal for the request's body, if that failed.
    fn body_fault(&self) -> Option<Refusal> {
        let upload = self.context.outcome.upload.as_ref()?;
        if upload.too_large.get() {
            return Some(Refusal::BodyTooLarge);
        }
        let fault = || self.context.conn.activity.body_fault().map_or(Refusal::ClientGone, Refusal::Framing);
        upload.broken.get().then(fault)
    }

    /// Watches a body that is still on its way for as long as it holds the connection.
    fn watch(&mut self, checkout: &mut Checkout<RequestBody>, body: &mut RequestBody) {
        let Some(progress) = body.progress() else { return };
        let config = &self.pool.upstream.config;
        let bounds = Bounds {
            rate_min: config.uploads.rate_min,
            stall: match self.context.facts.version {
                Version::HTTP_2 => self.context.conn.config.timeouts.body_stall,
                // The client connection's timer watches for stalls.
                _ => Duration::MAX,
            },
            response: self.context.attempts.allowed.response,
            ends: self.context.ends(),
        };
        checkout.watch(progress, bounds, self.early.take(), clock::instant());
    }

    /// Whether a request that no server has done anything with goes again at no cost: that adds no work to a server's, so only
    /// a few such tries are counted, and not against the budget.
    fn again_unprocessed(&mut self) -> bool {
        let attempts = &mut self.context.attempts;
        if attempts.unprocessed >= UNPROCESSED_MAX {
            return false;
        }
        attempts.unprocessed += 1;
        attempts.retries += 1;
        self.count().retried(self.cells());
        true
    }

    /// Whether one more try is within `times` and the upstream's budget; counts one that is due either way.
    fn again(&mut self) -> bool {
        if !self.may_retry() {
            return false;
        }
        let fits = self.pool.budget.retry(clock::now_ns());
        if fits {
            self.context.attempts.retries += 1;
            self.count().retried(self.cells());
        } else {
            self.count().retry_refused(self.cells());
        }
        fits
    }

    fn acquired(&mut self, checkout: &Checkout<RequestBody>) {
        self.connected(checkout);
        let before = self.context.attempts.steps.delay + self.context.attempts.steps.gather;
        let waited = checkout.wait_ns + checkout.connect_ns + before;
        let immediate = waited == 0 && self.context.attempts.retries == 0;
        // If a connection was at hand, the step before has just ended: no need to read the clock again.
        let sent = if immediate { self.context.attempts.steps.decide } else { self.context.elapsed_ns() };
        self.context.attempts.steps.sent = sent;
    }

    /// Notes a connection: to which server, and how long it took.
    fn connected(&mut self, checkout: &Checkout<RequestBody>) {
        let server = ServerIndex { upstream: self.upstream, server: checkout.server };
        self.context.attempts.server = Some(server);
        if checkout.connect_ns > 0 {
            self.count().connected(self.cells());
        }
        self.context.attempts.steps.wait += checkout.wait_ns;
        self.context.attempts.steps.connect += checkout.connect_ns;
    }

    /// Until when an answer's head is waited for.
    fn response_deadline(&self, may_follow: bool) -> Instant {
        // The deadline counts from this attempt: time spent on connecting or an earlier attempt is not the server's.
        let from = self.context.facts.started + Duration::from_nanos(self.context.attempts.steps.sent);
        let at = from + self.response_time(may_follow);
        self.context.ends().map_or(at, |ends| at.min(ends))
    }

    /// How long an answer's head is waited for. Where another try may follow after a silence, this one has its own time.
    fn response_time(&self, may_follow: bool) -> Duration {
        let config = &self.pool.upstream.config;
        let per_try = config.timeouts.per_try.filter(|_| may_follow && config.retry.on_timeout);
        per_try.unwrap_or(self.context.attempts.allowed.response)
    }

    fn count(&self) -> &metrics::Upstream {
        &self.context.view.snapshot.series.upstreams[self.upstream]
    }

    fn cells(&self) -> &metrics::Worker {
        &self.context.services.metrics
    }
}

/// What follows a try.
enum Next {
    /// The head of an answer has come that the client gets.
    Answered(StatusCode),
    /// The request is sent again, with this body.
    Again(RequestBody),
}

/// What there is of a request's body to send it again with.
enum Whole {
    /// It has none.
    Empty,
    /// What is sent of it is kept, as far as there is room.
    Kept(Kept),
    /// Nothing.
    Lost,
}

impl Whole {
    fn again(self) -> Option<RequestBody> {
        match self {
            Whole::Empty => Some(RequestBody::Empty),
            Whole::Kept(kept) => kept.again(),
            Whole::Lost => None,
        }
    }
}

/// An answer whose head has come.
struct Answer {
    status: StatusCode,
    headers: HeaderMap,
    checkout: Checkout<RequestBody>,
}

/// Takes over an answer's head: removes the fields of the upstream's connection and lets the body stream. If `announces`,
/// `Trailer` tells the client which trailers follow.
fn accept(
    mut context: Box<RequestContext>,
    answer: Answer,
    upgrade: Option<HeaderValue>,
    announces: bool,
) -> Response<ResponseBody> {
    let Answer { status, mut headers, checkout } = answer;
    context.reconcile(&headers);
    if status == StatusCode::SWITCHING_PROTOCOLS {
        return match upgrade {
            Some(wanted) if upgrade::is_switched_to(&wanted, &headers) => switch(context, headers, checkout),
            // A switch that was not asked for (RFC 9110 section 15.2.2): what follows cannot be read as HTTP.
            _ => reply::refuse(context, &Refusal::UpstreamBadResponse),
        };
    }
    let present = Present::of(&headers);
    let upstream = context.attempts.server.map_or(0, |index| index.upstream);
    let spoken = context.view.pools[upstream].upstream.config.http;
    if !may_go_on(status, &headers, present, spoken) {
        return reply::refuse(context, &Refusal::UpstreamBadResponse);
    }
    let announced = if announces { headers::announced_trailers(&headers, present) } else { None };
    headers::strip_hop_by_hop(&mut headers, present);
    headers::tidy_length(&mut headers, present, status);
    if let Some(names) = announced {
        headers.insert(TRAILER, names);
    }
    context.answer(status);
    let pool = &context.view.pools[upstream];
    let stall = pool.upstream.config.timeouts.stall;
    let now = context.facts.started + Duration::from_nanos(context.attempts.steps.answered);
    let ends = context.ends();
    let body = match status {
        // Neither has a body. A server can still send one over HTTP/2; then its stream is reset.
        StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED => ResponseBody::without(checkout, now, context),
        _ => ResponseBody::upstream(checkout, stall, ends, now, context),
    };
    let mut response = Response::new(body);
    *response.status_mut() = status;
    *response.headers_mut() = headers;
    response
}

/// Whether every client reads an answer's head in the same way: a status of HTTP (RFC 9110 section 15), unambiguous
/// framing, and fields that HTTP/1 can carry. The HTTP/1 parser has checked the last already.
fn may_go_on(status: StatusCode, headers: &HeaderMap, present: Present, spoken: UpstreamVersion) -> bool {
    let is_portable = || headers.iter().all(|(name, value)| headers::is_portable(name, value).is_ok());
    status.as_u16() < 600
        && headers::is_framed_once(headers, present)
        && (spoken == UpstreamVersion::H1 || is_portable())
}

/// Answers 101 and leaves the upstream's connection in [`Switched`]: the server runs the tunnel once the head is sent.
fn switch(
    mut context: Box<RequestContext>,
    mut headers: HeaderMap,
    checkout: Checkout<RequestBody>,
) -> Response<ResponseBody> {
    let protocol = headers.get(UPGRADE).cloned();
    let present = Present::of(&headers);
    headers::strip_hop_by_hop(&mut headers, present);
    // A 101 has no body. A client that believed the length would read the next protocol as one.
    headers.remove(CONTENT_LENGTH);
    let (Some(protocol), Some(upgraded)) = (protocol, checkout.into_upgraded()) else {
        return reply::refuse(context, &Refusal::UpstreamBadResponse);
    };
    context.judge_good();
    context.answer(StatusCode::SWITCHING_PROTOCOLS);
    headers.insert(CONNECTION, UPGRADE_TOKEN);
    let is_websocket = protocol.as_bytes().eq_ignore_ascii_case(b"websocket");
    headers.insert(UPGRADE, protocol);
    let conn = Rc::clone(&context.conn);
    conn.switched.replace(Some(Switched { upstream: upgraded, is_websocket, request: context }));
    let mut response = Response::new(ResponseBody::empty(None));
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    *response.headers_mut() = headers;
    response
}

const UPGRADE_TOKEN: HeaderValue = HeaderValue::from_static("upgrade");
/// How often a request goes again at no cost if the server has done nothing with it. As Go's client.
const UNPROCESSED_MAX: u8 = 6;
