//! One request from its head to its last byte: its facts, its attempts at an upstream, its outcome, and its reservation.
//!
//! The handler owns the context, and later the answer's body. A request ends when its context is dropped: that gives back
//! its reservation and sends one event to the log and the metrics, whether the answer was sent, the client left, or the
//! handler panicked.

use std::cell::Cell;
use std::rc::Rc;
use std::time::{Duration, Instant};

use http::{HeaderMap, HeaderValue, StatusCode, Uri, Version, uri};
use tokio::time::sleep;

use super::events::{self, FinishedRequest};
use super::facts::{AttemptFacts, CLIENT_GONE_STATUS, RequestFacts, RequestOutcome, UpstreamServer};
use super::request::validate;
use super::reservation::{RequestUsage, Reservation};
use super::response::answer_reader::AnswerReader;
use super::response::{grpc, limit_fields};
use super::services::Services;
use super::snapshot::WorkerView;
use crate::service::conn::{Conn, SwitchedRequest};
use crate::service::form::ErrorForm;
use crate::service::problem;
use crate::service::reason::Reason;
use crate::service::refusal::Refusal;
use base::cause::Cause;
use base::clock;
use limit::Charge;
use limiter::Count;
use metrics::CostOutcome;
use net::in_place;
use observe::record;
use observe::trace::Trace;
use policy::definition::{Actual, GRPC_UNKNOWN};

/// One request and everything known about it.
#[derive(derive_more::Debug)]
#[debug("RequestContext({:?}, {:?})", facts.uri, outcome.status)]
pub struct RequestContext {
    pub conn: Rc<Conn>,
    /// The services of the worker that serves it.
    pub services: Rc<Services>,
    /// The snapshot in force when it began, kept to its end, so that no request is served by two configurations.
    pub view: Rc<WorkerView>,
    /// Facts of its head, and of its client.
    pub facts: RequestFacts,
    /// The deciding policy's verdict, for the log.
    pub verdict: Option<Count>,
    /// Whether its decision on limits is kept as a sample.
    pub is_sampled: bool,
    /// The trace that it is a part of, if requests are traced.
    pub trace: Option<Trace>,
    /// What is left of the limit that binds, for the log.
    pub left: Option<record::RemainingLimit>,
    /// What it must give back to its limits when it ends.
    pub held: Option<Box<Reservation>>,
    pub attempts: AttemptFacts,
    /// How it ends, as far as that is known.
    pub outcome: RequestOutcome,
    /// Bytes its head counts for in the connection's bound, until it is answered.
    weight: usize,
    /// Whether a status of gRPC's ends it: it is a call, or its answer is that of one.
    ends_as_call: bool,
    /// Whether the answer of a call goes on after its head, so that trailers may say another status than that.
    call_goes_on: bool,
}

impl RequestContext {
    /// Begins a request whose head has come.
    pub fn begin(services: Rc<Services>, conn: Rc<Conn>, head: &http::request::Parts) -> Box<RequestContext> {
        conn.activity.begin_exchange();
        in_place::boxed(|| RequestContext {
            view: services.view(),
            facts: RequestFacts {
                started: clock::instant(),
                method: head.method.clone(),
                uri: head.uri.clone(),
                version: head.version,
                stream: None,
                is_call: grpc::is_call(head),
                form: ErrorForm::default(),
                authority: HeaderValue::from_static(""),
                client: conn.peer.ip,
                asked: None,
                request_id: HeaderValue::from_static(""),
                shown: record::Values::new(),
                route: None,
                identity: None,
            },
            verdict: None,
            is_sampled: false,
            trace: None,
            left: None,
            held: None,
            attempts: AttemptFacts::default(),
            outcome: RequestOutcome::unanswered(),
            weight: 0,
            ends_as_call: grpc::is_call(head),
            call_goes_on: false,
            conn,
            services,
        })
    }

    /// Counts its head against the bound on all heads of the connection together, and refuses it if there is no room.
    /// Only over HTTP/2, because there a connection has many heads at once, and HPACK lets a client repeat a long field
    /// in one byte.
    pub fn weigh(&mut self, head: &http::request::Parts) -> Result<(), Refusal> {
        if head.version != Version::HTTP_2 {
            return Ok(());
        }
        let target = head.uri.path_and_query().map_or(0, |target| target.as_str().len());
        self.weight = validate::weight(&head.headers) + target;
        if self.weight > COPIED_BYTES_MIN {
            self.copy_target();
            record::detach(&mut self.facts.shown);
        }
        if self.conn.activity.hold_head(self.weight) > HEADS_BYTES_MAX {
            return Err(Refusal::HeadersTooLarge);
        }
        Ok(())
    }

    /// Copies the part of the target that the log shows. It is copied because the target is a slice of the buffer that
    /// the head was read from: keeping it until the answer is sent would keep a large head in memory.
    fn copy_target(&mut self) {
        let target = self.facts.uri.path_and_query().map_or("/", |target| target.as_str());
        let shown = target.get(..=record::PATH_BYTES_MAX).unwrap_or(target);
        let mut parts = uri::Parts::default();
        parts.path_and_query = shown.parse().ok();
        parts.authority = self.facts.uri.authority().and_then(|authority| authority.as_str().parse().ok());
        parts.scheme = parts.authority.as_ref().map(|_| uri::Scheme::HTTP);
        self.facts.uri = Uri::from_parts(parts).unwrap_or_default();
    }

    fn release_weight(&mut self) {
        self.conn.activity.release_head(std::mem::take(&mut self.weight));
    }

    /// Sets the answer's status. From here on the request has no reason to have failed.
    pub fn answer(&mut self, status: StatusCode) {
        self.release_weight();
        self.settle_status(status.as_u16(), self.outcome.grpc_status.filter(|_| !self.call_goes_on));
        self.outcome.status = status.as_u16();
        self.outcome.reason = None;
    }

    /// The gateway refuses it. `cause` is only for operators: it is not in the answer. `stands_for` is the status by which
    /// policies charge: a refusal of a call has the status 200 and means another one.
    pub fn refuse(&mut self, reason: Reason, cause: Option<Cause>, status: u16, stands_for: u16) {
        self.release_weight();
        // A client that breaks off stays charged, because otherwise it could end every attempt so.
        if !matches!(reason, Reason::ClientGone | Reason::BodyStall | Reason::BodySlow) {
            self.settle_status(stands_for, self.outcome.grpc_status);
        }
        self.outcome.cause = cause;
        self.outcome.status = status;
        self.outcome.reason = Some(reason);
    }

    /// The answer broke off after its head was sent.
    pub fn fail(&mut self, reason: Reason) {
        self.outcome.reason = Some(reason);
        self.outcome.is_complete = true;
    }

    /// A good answer's body has begun to come, or there is none: the server has answered well.
    pub fn judge_good(&mut self) {
        if std::mem::take(&mut self.attempts.is_unjudged)
            && let Some(UpstreamServer { upstream, server }) = self.attempts.server
        {
            self.view.pools[upstream].succeeded(server, self.attempts.steps.first_byte());
        }
    }

    /// The server let an answer stall, or broke it off.
    pub fn judge_failed(&mut self) {
        self.attempts.is_unjudged = false;
        if let Some(UpstreamServer { upstream, server }) = self.attempts.server {
            self.view.pools[upstream].failed(server, clock::now_ns());
        }
    }

    /// An upstream has answered with these header fields. Where a policy charges by the status of calls, the answer says
    /// whether this is one: otherwise, the client could choose whether it is charged. `is_whole`: nothing comes after them.
    pub fn headed(&mut self, fields: &HeaderMap, is_whole: bool) {
        let is_charged_by_status = self.held.as_ref().is_some_and(|held| held.by_status().is_some());
        self.ends_as_call |= is_charged_by_status && grpc::is_answer(fields);
        if self.ends_as_call {
            self.outcome.grpc_status = grpc::ended(fields);
            self.call_goes_on = !is_whole;
        }
    }

    /// The answer ends with these trailers.
    pub fn trailed(&mut self, trailers: &HeaderMap) {
        if self.ends_as_call {
            // Of the two the client's library takes that of the trailers.
            self.outcome.grpc_status = grpc::ended(trailers).or(self.outcome.grpc_status);
            self.settle_call();
        }
    }

    /// The last byte of the answer was handed to the client's connection.
    pub fn complete(&mut self) {
        self.outcome.is_complete = true;
    }

    /// Whether the answer's body is read for what the request cost.
    pub fn reads_answer(&self) -> bool {
        self.held.as_ref().is_some_and(|held| held.answer_paths().is_some())
    }

    /// Notes what the head of the upstream's answer says of the request's cost.
    pub fn reconcile(&mut self, status: StatusCode, answer: &HeaderMap) {
        if let Some(mut held) = self.held.take() {
            let (table, limiter) = (&self.view.snapshot.table, &self.services.shared.limiter);
            let count = |charge: &Charge, cost| self.count_cost(charge, cost);
            let slots = &self.services.compressions;
            held.answered(table, limiter, (status, answer), slots, clock::now_ns(), count);
            self.held = Some(held);
        }
    }

    /// A gRPC call has ended, with a status or without.
    fn settle_call(&mut self) {
        self.settle_status(self.outcome.status, self.outcome.grpc_status.or(Some(GRPC_UNKNOWN)));
    }

    /// Gives back what is not charged with this status, which the client gets, and the status of its call, if that has ended.
    fn settle_status(&mut self, status: u16, of_call: Option<u32>) {
        let Some(mut held) = self.held.take() else { return };
        let (table, limiter) = (&self.view.snapshot.table, &self.services.shared.limiter);
        let count = |charge: &Charge, cost| self.count_cost(charge, cost);
        let ended = (status, of_call, self.ends_as_call && of_call.is_none());
        if let Some(decided) = held.settle_status(table, limiter, ended, count) {
            let settled = decided.settled.borrow();
            self.left = settled.as_ref().and_then(|left| limit_fields::left(&decided.charges, left));
        }
        self.held = Some(held);
    }

    fn count_cost(&self, charge: &Charge, cost: CostOutcome) {
        let snapshot = &self.view.snapshot;
        snapshot.series.policies[charge.policy.index()].reconciled(&self.services.metrics, cost);
        let policy = &snapshot.table.policies()[charge.policy.index()];
        if policy.actual_cost().and_then(Actual::statuses).is_some() && cost != CostOutcome::Waived {
            events::charged(&self.services, self.facts.identity.as_deref(), policy, charge.cost);
        }
    }

    /// What reads the answer's body, if anything does.
    pub fn answer_reader(&self) -> Option<Rc<AnswerReader>> {
        self.held.as_ref()?.answer_reader()
    }

    /// The upstream gave no answer. If the request was never sent, an answer would have cost nothing.
    pub fn waive_unsent(&mut self) {
        if let Some(held) = &mut self.held
            && self.attempts.steps.sent == 0
        {
            held.waive();
        }
    }

    /// Reconciles estimates with what the request turned out to cost.
    fn settle(&mut self, ended: Instant) {
        if std::thread::panicking() {
            self.settle_status(PANIC_STATUS, self.ends_as_call.then_some(GRPC_UNKNOWN));
        } else if self.ends_as_call
            && self.outcome.is_complete
            && self.outcome.reason != Some(Reason::ClientGone)
        {
            self.settle_call();
        }
        let Some(mut held) = self.held.take() else { return };
        if held.has_estimates() {
            let steps = &self.attempts.steps;
            let elapsed = ended.saturating_duration_since(self.facts.started).as_nanos() as u64;
            let spent = RequestUsage {
                bytes_in: self.outcome.received_bytes(),
                bytes_out: self.outcome.bytes_out,
                nanos: elapsed.saturating_sub(steps.decide + steps.delay),
                now_ns: clock::ns_of(ended),
            };
            let count = |charge: &Charge, cost| self.count_cost(charge, cost);
            held.reconcile(&self.view.snapshot.table, &self.services.shared.limiter, &spent, count);
        }
        held.end(&self.services.shared.limiter);
    }

    /// Waits for the request's turn in a leaky bucket's queue, if it has to. The wait is bounded by the queue that the
    /// policy configures. A client that leaves, or the drain's deadline, drops it.
    pub async fn turn(&mut self) {
        let Some(delay_ns) = self.held.as_ref().map(|held| held.delay_ns()).filter(|delay_ns| *delay_ns > 0)
        else {
            return;
        };
        // The delay counts from when the place in the queue was taken: the request's begin.
        let left_ns = delay_ns.saturating_sub(self.elapsed_ns());
        sleep(Duration::from_nanos(left_ns)).await;
        self.attempts.steps.delay = self.elapsed_ns().saturating_sub(self.attempts.steps.decide).max(1);
        if let Some(held) = &mut self.held {
            held.turn_came();
        }
    }

    pub fn elapsed_ns(&self) -> u64 {
        clock::instant().saturating_duration_since(self.facts.started).as_nanos() as u64
    }

    /// Whether it has taken longer in all than the upstream may take.
    pub fn is_past_total(&self) -> bool {
        self.attempts.allowed.is_past_total(Duration::from_nanos(self.elapsed_ns()))
    }

    /// When its exchange with the upstream is over in any case.
    pub fn ends(&self) -> Option<Instant> {
        self.attempts.allowed.total.map(|total| self.facts.started + total)
    }

    /// The reason to log. Decided last, because only now it is known whether a missing end is the client's, a stall's,
    /// the drain's or a panic's.
    fn final_reason(&self) -> Option<Reason> {
        if std::thread::panicking() {
            return Some(Reason::Panic);
        }
        let RequestOutcome { reason, is_complete, .. } = self.outcome;
        match reason {
            Some(Reason::ClientGone) | None if !is_complete && self.conn.drain.is_cut() => {
                Some(Reason::Drain)
            }
            Some(Reason::ClientGone) | None if self.conn.stalled.get() => Some(Reason::BodyStall),
            Some(Reason::ClientGone) | None if !is_complete => Some(self.why_gone()),
            reason => reason,
        }
    }

    /// Why the request's stream is gone: the client left, or the server reset it because the client broke the protocol.
    /// The first that end take that reason, because the server knows only how many requests it reset, not which.
    fn why_gone(&self) -> Reason {
        match self.conn.broken.get().checked_sub(1) {
            None => Reason::ClientGone,
            Some(others) => {
                self.conn.broken.set(others);
                Reason::Malformed
            }
        }
    }

    fn final_status(&self, reason: Option<Reason>) -> u16 {
        match reason {
            Some(Reason::Panic) => {
                let RequestFacts { request_id, is_call, .. } = &self.facts;
                PANICKED.set(Some(PanicReply { request_id: request_id.clone(), is_call: *is_call }));
                PANIC_STATUS
            }
            Some(Reason::Malformed) if self.outcome.reason != reason => problem::BAD_REQUEST_STATUS,
            // Not the client's status, because the gateway broke it off.
            Some(Reason::Drain) if self.outcome.status == CLIENT_GONE_STATUS => NO_STATUS,
            _ => self.outcome.status,
        }
    }
}

impl Drop for RequestContext {
    fn drop(&mut self) {
        let ended = clock::instant();
        self.settle(ended);
        self.release_weight();
        self.conn.activity.end_exchange(ended);
        let reason = self.final_reason();
        let event = FinishedRequest {
            conn: &self.conn,
            snapshot: &self.view.snapshot,
            is_sampled: self.is_sampled,
            trace: self.trace.as_ref(),
            pools: &self.view.pools,
            request: &self.facts,
            attempts: &self.attempts,
            verdict: self.verdict,
            left: self.left,
            outcome: &self.outcome,
            status: self.final_status(reason),
            reason,
            ended,
            duration: ended.saturating_duration_since(self.facts.started),
            bytes_in: self.outcome.received_bytes(),
        };
        events::finished(&self.services, &event);
    }
}

impl SwitchedRequest for RequestContext {
    fn add_bytes(&mut self, from_client: u64, to_client: u64) {
        self.outcome.bytes_in += from_client;
        self.outcome.bytes_out += to_client;
    }

    fn complete(&mut self) {
        RequestContext::complete(self);
    }

    fn fail(&mut self, reason: Reason) {
        RequestContext::fail(self, reason);
    }
}

/// What the answer to a request that panicked needs.
#[derive(Debug)]
pub struct PanicReply {
    /// Empty if the request had no id yet.
    pub request_id: HeaderValue,
    /// Whether it was a gRPC call.
    pub is_call: bool,
}

/// The request that ended in the last panic of this thread. Its context is dropped while the stack unwinds, before the
/// panic is caught, and leaves this behind; it can be taken once.
pub fn panicked() -> PanicReply {
    PANICKED.take().unwrap_or(PanicReply { request_id: HeaderValue::from_static(""), is_call: false })
}

thread_local! {
    static PANICKED: Cell<Option<PanicReply>> = const { Cell::new(None) };
}

/// Bytes that the unanswered heads of one HTTP/2 connection may hold together.
const HEADS_BYTES_MAX: usize = 512 * 1024;
/// Above this weight the target is copied instead of keeping the head's buffer.
const COPIED_BYTES_MIN: usize = 4 * 1024;
const PANIC_STATUS: u16 = 500;
/// Logged, as nginx does, if the gateway broke off a request before it was answered.
const NO_STATUS: u16 = 0;
