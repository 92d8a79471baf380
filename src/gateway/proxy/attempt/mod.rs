//! The attempts to have one request answered: tries at servers, one after the other, until the head of an answer comes that
//! the client gets. `hedging.rs` has two tries under way at once, `failures.rs` says what a failed try means.

mod failures;
mod hedge;
mod hedging;

use std::rc::Rc;
use std::time::{Duration, Instant};

use http::header::HOST;
use http::{HeaderMap, HeaderValue, StatusCode, Version};
use tokio::sync::OwnedSemaphorePermit;

use super::context::RequestContext;
use super::facts::{AttemptFacts, UpstreamServer};
use super::headers;
use super::request::gather;
use super::request::request_body::{RequestBody, ResendBuffer};
use super::response::early_hints::EarlyHints;
use super::response::grpc;
use crate::service::refusal::Refusal;
use base::clock;
use policy::UpstreamId;
use policy::retry::Retry;
use upstream::balance::ServerPreference;
use upstream::config::{HostHeader, HttpVersion as UpstreamVersion};
use upstream::error::{Error, SendError, UnsentRequest};
use upstream::pool::Terms;
use upstream::request::RequestHead;
use upstream::uploads::Bounds;
use upstream::{Checkout, Pool, ServerIndex};

/// The attempts to have one request answered.
pub struct UpstreamAttempt<'a> {
    pub pool: Rc<Pool<RequestBody>>,
    pub upstream: UpstreamId,
    /// Which server it is to go to.
    pub wish: ServerPreference,
    /// When it is sent a second time. `None`: when the upstream says so.
    pub retry: Option<&'a Retry>,
    pub context: &'a mut RequestContext,
    /// The permit to hold a connection although the first bytes of the body have not come.
    pub early: Option<OwnedSemaphorePermit>,
    /// The server that gets the request over a new connection, because one that was kept had died.
    pub anew: Option<ServerIndex>,
}

impl UpstreamAttempt<'_> {
    /// Reads the first bytes of the body before a connection is taken; see [`gather`].
    pub async fn gather(&mut self, body: &mut RequestBody) -> Result<(), Refusal> {
        if matches!(body, RequestBody::Empty) {
            return Ok(());
        }
        match gather::gather(self.context, body, &self.pool.upstream).await {
            Ok(early) => {
                self.early = early;
                Ok(())
            }
            Err(ended) => Err(gather::refusal(self.context, ended)),
        }
    }

    /// Sends until an answer's head comes. Its fields replace those in `head`: one map serves both ways.
    pub async fn send(
        &mut self,
        head: &mut RequestHead,
        mut body: RequestBody,
    ) -> Result<(StatusCode, Checkout<RequestBody>), Refusal> {
        // The server's own is named then, because an HTTP/1.0 client need not name a host, but HTTP/1.1 must have one
        // (RFC 9112 section 3.2).
        let is_nameless = self.context.facts.authority.is_empty() && !head.headers.contains_key(HOST);
        let names_server = is_nameless || self.pool.upstream.config.host == HostHeader::Server;
        let hints = EarlyHints::of(self.context).map(|hints| move |fields: &HeaderMap| hints.pass(fields));
        loop {
            self.look_for_servers();
            // A request with a body cannot be repeated, because what was sent of the body is not kept.
            let may_repeat = matches!(body, RequestBody::Empty) && headers::is_idempotent(&head.method);
            let may_try_again = may_repeat && self.may_retry();
            if let Some(after) = self.retry().hedge_after
                && may_try_again
                && self.may_hedge(head)
            {
                match Box::pin(self.hedged(after, head, names_server)).await? {
                    Some(answer) => return Ok(answer),
                    None => continue,
                }
            }
            // Copied, because the answer's fields take the place of the request's.
            let spare = (may_try_again && !self.retry().on_status.is_empty()).then(|| head.headers.clone());
            let now = self.context.facts.started + self.context.attempts.steps.ready();
            let anew = self.anew.take();
            let terms = Terms { is_upload: body.is_on_its_way(), is_new: anew.is_some() };
            let server = anew.unwrap_or_else(|| self.pool.choose(self.wish, now));
            let acquired = self.pool.acquire_at(server, terms, now, self.context.ends()).await;
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
            let used = TryConnection::of(&checkout);
            let until = self.response_deadline(may_try_again);
            self.watch(&mut checkout, &mut body);
            let kept = self.keep(&mut body);
            self.context.attempts.is_awaiting_head = true;
            let hear = hints.as_ref().map(|hints| hints as &dyn Fn(&HeaderMap));
            let mut sent = checkout.send(head, body, until).hearing(hear).await;
            if matches!(sent, Err(SendError::Timeout)) && self.is_last(may_try_again) {
                let until = self.response_deadline(false);
                sent = checkout.wait_on(head, until).hearing(hear).await;
            }
            self.context.attempts.is_awaiting_head = false;
            match self.conclude(used, sent, &head.headers, may_repeat, kept)? {
                TryOutcome::Answered(status) => return Ok((status, checkout)),
                TryOutcome::Again(again) => {
                    checkout.discard(clock::instant());
                    if let Some(fields) = spare {
                        head.headers = fields;
                    }
                    (body, self.wish.avoid) = (again, Some(used.server));
                }
            }
        }
    }

    fn retry(&self) -> &Retry {
        self.retry.unwrap_or(&self.pool.upstream.config.retry)
    }

    /// Whether one more try is within `times`.
    fn may_retry(&self) -> bool {
        let AttemptFacts { retries, unprocessed, is_anew, .. } = self.context.attempts;
        u32::from(retries - unprocessed - u8::from(is_anew)) < self.retry().times
    }

    fn is_h2(&self) -> bool {
        self.pool.upstream.config.http == UpstreamVersion::H2
    }

    /// What there will be of the body if this try turns out to be one that the server has done nothing with.
    fn keep(&self, body: &mut RequestBody) -> ResendBody {
        if matches!(body, RequestBody::Empty) {
            return ResendBody::Empty;
        }
        // Only over HTTP/2, because over HTTP/1.1 no server says so.
        let kept =
            if self.is_h2() { body.keep(self.pool.upstream.config.uploads.gather_bytes) } else { None };
        kept.map_or(ResendBody::Lost, ResendBody::Kept)
    }

    /// What a try has come to: an answer with these fields to go on with, or another try.
    fn conclude(
        &mut self,
        used: TryConnection,
        sent: Result<StatusCode, SendError<RequestBody>>,
        fields: &HeaderMap,
        may_repeat: bool,
        whole: ResendBody,
    ) -> Result<TryOutcome, Refusal> {
        let server = used.server;
        match sent {
            Ok(status) => {
                self.answered(server, status, fields);
                if !(may_repeat && self.is_to_be_sent_again(status)) {
                    return Ok(TryOutcome::Answered(status));
                }
                self.forgo_answer();
                Ok(TryOutcome::Again(RequestBody::Empty))
            }
            Err(SendError::Timeout) => {
                let on_timeout = self.retry().on_timeout;
                if !(self.timed_out(server) && may_repeat && on_timeout && self.again()) {
                    return Err(Refusal::UpstreamTimeout);
                }
                Ok(TryOutcome::Again(RequestBody::Empty))
            }
            Err(SendError::Slow) => {
                self.count().exchanged(self.cells(), metrics::ExchangeOutcome::ClientGone);
                Err(Refusal::BodySlow)
            }
            Err(SendError::Broken { error, unsent }) => {
                let is_free = error.tls_cause().is_none()
                    && match unsent {
                        UnsentRequest::Unprocessed { is_graceful } => is_graceful,
                        UnsentRequest::Request(_) => self.is_h2(),
                        UnsentRequest::Nothing | UnsentRequest::Answered => false,
                    };
                self.own_fault()?;
                let goes_anew = self.may_go_anew(used, &error, &unsent, may_repeat);
                if !goes_anew {
                    self.blame(server, &error, &unsent);
                }
                let again = self.broken(server, &error, unsent, may_repeat, whole)?;
                if goes_anew {
                    self.again_anew(server);
                }
                let goes_again = goes_anew || is_free && self.again_unprocessed() || self.again();
                let refusal = error.tls_cause().map_or(Refusal::UpstreamReset, Refusal::UpstreamConnect);
                if goes_again { Ok(TryOutcome::Again(again)) } else { Err(refusal) }
            }
        }
    }

    /// An answer's head has come, and is left for one of another try.
    fn forgo_answer(&mut self) {
        self.count().exchanged(self.cells(), metrics::ExchangeOutcome::Answered);
        self.context.judge_good();
        self.context.attempts.steps.answered = 0;
    }

    /// Goes on with the servers that there are now: some may have left their name while the request was waiting for its
    /// body, a connection or an answer.
    fn look_for_servers(&mut self) {
        let Some(view) = self.context.services.renewed(&self.context.view) else { return };
        let before = std::mem::replace(&mut self.pool, Rc::clone(&view.pools[self.upstream]));
        let index_now = |index: ServerIndex| self.pool.upstream.index_of(&before.upstream.servers[index]);
        self.context.view = view;
        let of_log = self.context.attempts.server.and_then(|index| index_now(index.server));
        self.context.attempts.server =
            of_log.map(|server| UpstreamServer { upstream: self.upstream, server });
        self.wish.kept = self.wish.kept.and_then(index_now);
        self.wish.avoid = self.wish.avoid.and_then(index_now);
        self.anew = self.anew.and_then(index_now);
    }

    /// The head of an answer has come. Whether a good one is followed by its body is for the body to say.
    fn answered(&mut self, server: ServerIndex, status: StatusCode, fields: &HeaderMap) {
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
        self.retry().on_status.contains(status.as_u16()) && !self.context.is_past_total() && self.again()
    }

    /// Watches a body that is still on its way for as long as it holds the connection.
    fn watch(&mut self, checkout: &mut Checkout<RequestBody>, body: &mut RequestBody) {
        let Some(progress) = body.progress() else { return };
        let config = &self.pool.upstream.config;
        let bounds = Bounds {
            rate_min: config.uploads.rate_min,
            stall: match self.context.facts.version {
                Version::HTTP_2 => self.context.conn.config.timeouts.body_stall,
                // Without a bound, because the client connection's timer watches for stalls.
                _ => Duration::MAX,
            },
            response: self.context.attempts.allowed.response,
            ends: self.context.ends(),
        };
        checkout.watch(progress, bounds, self.early.take(), clock::instant());
    }

    /// Whether a request that no server has done anything with goes again at no cost, because that adds no work to a
    /// server's: only a few such tries are counted, and not against the budget.
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

    /// Whether a request that died with a connection that was kept goes to the same server over a new one. It is no
    /// retry of `budget`, and happens once for each request, because a server closes such a connection at any time, and
    /// a firewall forgets it without a word: that says nothing of the server, and all that are kept may have died
    /// together.
    fn may_go_anew(
        &self,
        used: TryConnection,
        error: &Error,
        unsent: &UnsentRequest<RequestBody>,
        may_repeat: bool,
    ) -> bool {
        let retry = self.retry();
        let may_be_sent = match unsent {
            UnsentRequest::Request(_) => true,
            UnsentRequest::Nothing => may_repeat && retry.on_reset && retry.times > 0,
            UnsentRequest::Unprocessed { .. } | UnsentRequest::Answered => false,
        };
        let is_dead = !error.is_bad_answer() && error.tls_cause().is_none();
        used.is_kept && may_be_sent && is_dead && !self.context.attempts.is_anew
    }

    fn again_anew(&mut self, server: ServerIndex) {
        self.anew = Some(server);
        let attempts = &mut self.context.attempts;
        attempts.is_anew = true;
        attempts.retries += 1;
        self.count().retried(self.cells());
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
        let steps = &self.context.attempts.steps;
        // The clock is not read again if a connection was at hand, because the step before has just ended.
        let sent = if immediate { steps.decide.max(steps.verified) } else { self.context.elapsed_ns() };
        self.context.attempts.steps.sent = sent;
    }

    /// Notes a connection: to which server, and how long it took.
    fn connected(&mut self, checkout: &Checkout<RequestBody>) {
        let server = UpstreamServer { upstream: self.upstream, server: checkout.server };
        self.context.attempts.server = Some(server);
        if checkout.connect_ns > 0 {
            self.count().connected(self.cells());
        }
        if let Some(version) = checkout.around {
            self.count().went_around(self.cells(), version);
        }
        self.context.attempts.steps.wait += checkout.wait_ns;
        self.context.attempts.steps.connect += checkout.connect_ns;
    }

    /// Until when an answer's head is waited for.
    fn response_deadline(&self, may_follow: bool) -> Instant {
        // The deadline counts from this attempt, because time spent on connecting or an earlier attempt is not the
        // server's.
        let from = self.context.facts.started + Duration::from_nanos(self.context.attempts.steps.sent);
        let at = from + self.response_time(may_follow);
        self.context.ends().map_or(at, |ends| at.min(ends))
    }

    /// Whether a try whose own time has passed is the last one after all, because the budget has no room for another: then it
    /// is waited for as if no other could follow.
    fn is_last(&self, may_follow: bool) -> bool {
        let response = &self.context.attempts.allowed.response;
        let is_early = self.response_time(may_follow) < *response && !self.context.is_past_total();
        let is_last = is_early && !self.pool.budget.has_room(clock::now_ns());
        if is_last {
            self.count().retry_refused(self.cells());
        }
        is_last
    }

    /// How long an answer's head is waited for. Where another try may follow after a silence, this one has its own time.
    fn response_time(&self, may_follow: bool) -> Duration {
        let allowed = &self.context.attempts.allowed;
        allowed.per_try.filter(|_| may_follow && self.retry().on_timeout).unwrap_or(allowed.response)
    }

    fn count(&self) -> &metrics::UpstreamSeries {
        &self.context.view.snapshot.series.upstreams[self.upstream]
    }

    fn cells(&self) -> &metrics::WorkerToken {
        &self.context.services.metrics
    }
}

#[derive(Clone, Copy)]
struct TryConnection {
    server: ServerIndex,
    /// It had served a request before, see [`Checkout::is_kept`].
    is_kept: bool,
}

impl TryConnection {
    fn of(checkout: &Checkout<RequestBody>) -> TryConnection {
        TryConnection { server: checkout.server, is_kept: checkout.is_kept() }
    }
}

enum TryOutcome {
    /// The head of an answer has come that the client gets.
    Answered(StatusCode),
    /// The request is sent again, with this body.
    Again(RequestBody),
}

/// What there is of a request's body to send it again with.
enum ResendBody {
    Empty,
    /// What is sent of it is kept, as far as there is room.
    Kept(ResendBuffer),
    Lost,
}

impl ResendBody {
    fn again(self) -> Option<RequestBody> {
        match self {
            ResendBody::Empty => Some(RequestBody::Empty),
            ResendBody::Kept(kept) => kept.again(),
            ResendBody::Lost => None,
        }
    }
}

/// How often a request goes again at no cost if the server has done nothing with it. As Go's client.
const UNPROCESSED_MAX: u8 = 6;
