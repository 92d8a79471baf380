//! One request from its head to its last byte: its facts, its way upstream, its outcome, and what it holds. Whoever holds
//! the context last (the handler, or the answer's body) decides when it is over: dropped, it gives back what it holds and
//! is told once, as an event.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use http::{HeaderMap, HeaderValue, StatusCode, Uri, Version, uri};
use tokio::time::sleep;

use super::events::{self, Finished};
use super::facts::{Attempts, CLIENT_GONE_STATUS, Outcome, RequestFacts};
use super::reservation::Reservation;
use super::services::Services;
use super::snapshot::View;
use super::{grpc, validate};
use crate::cause::Cause;
use crate::limiter::Count;
use crate::service::conn::{Conn, SwitchedRequest};
use crate::service::problem;
use crate::service::reason::Reason;
use crate::service::refusal::Refusal;
use crate::{clock, record};

/// A request, and what is known of it.
pub struct RequestContext {
    /// The connection it came on.
    pub conn: Rc<Conn>,
    /// What it is served with.
    pub services: Rc<Services>,
    /// The snapshot it is served by, to its end.
    pub view: Rc<View>,
    /// What its head says.
    pub facts: RequestFacts,
    /// What the limiter said of it.
    pub verdict: Option<Count>,
    /// What it must give back to its limits.
    pub held: Option<Box<Reservation>>,
    /// Its way to an upstream.
    pub attempts: Attempts,
    /// How it ends.
    pub outcome: Outcome,
    /// What its head weighs on its connection, until it is answered.
    weight: usize,
}

impl std::fmt::Debug for RequestContext {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("RequestContext")
            .field("uri", &self.facts.uri)
            .field("status", &self.outcome.status)
            .finish_non_exhaustive()
    }
}

impl RequestContext {
    /// A request whose head has come.
    pub fn begin(services: Rc<Services>, conn: Rc<Conn>, head: &http::request::Parts) -> Box<RequestContext> {
        conn.activity.begin_exchange();
        Box::new(RequestContext {
            view: services.view(),
            facts: RequestFacts {
                started: clock::instant(),
                method: head.method.clone(),
                uri: head.uri.clone(),
                version: head.version,
                is_call: grpc::is_call(head),
                authority: HeaderValue::from_static(""),
                client: conn.peer.ip,
                request_id: HeaderValue::from_static(""),
                shown: record::Values::new(),
                route: None,
                identity: None,
            },
            verdict: None,
            held: None,
            attempts: Attempts::default(),
            outcome: Outcome::unanswered(),
            weight: 0,
            conn,
            services,
        })
    }

    /// Counts its head against what the heads of one connection may hold together: over HTTP/2 there can be many,
    /// and a client can name a field in one byte. Refused if there is no room.
    pub fn weigh(&mut self, head: &http::request::Parts) -> Result<(), Refusal> {
        if head.version != Version::HTTP_2 {
            return Ok(());
        }
        let target = head.uri.path_and_query().map_or(0, |target| target.as_str().len());
        self.weight = validate::weight(&head.headers) + target;
        if self.weight > COPIED_BYTES_MIN {
            self.keep_target_alone();
            record::keep_alone(&mut self.facts.shown);
        }
        if self.conn.activity.hold_head(self.weight) > HEADS_BYTES_MAX {
            return Err(Refusal::HeadersTooLarge);
        }
        Ok(())
    }

    /// The target is a piece of the buffer that its head was read from, and is kept for the log until the answer is
    /// taken: a copy of what is logged of it does not keep a large head with it.
    fn keep_target_alone(&mut self) {
        let target = self.facts.uri.path_and_query().map_or("/", |target| target.as_str());
        let shown = target.get(..=record::PATH_BYTES_MAX).unwrap_or(target);
        let mut parts = uri::Parts::default();
        parts.path_and_query = shown.parse().ok();
        parts.authority = self.facts.uri.authority().and_then(|authority| authority.as_str().parse().ok());
        parts.scheme = parts.authority.as_ref().map(|_| uri::Scheme::HTTP);
        self.facts.uri = Uri::from_parts(parts).unwrap_or_default();
    }

    fn lighten(&mut self) {
        self.conn.activity.release_head(std::mem::take(&mut self.weight));
    }

    /// The answer's status, once it is known; all is well from here on.
    pub fn answer(&mut self, status: StatusCode) {
        self.lighten();
        self.outcome.status = status.as_u16();
        self.outcome.reason = None;
    }

    /// The gateway refuses the request; `cause` is more than any client is told.
    pub fn refuse(&mut self, reason: Reason, cause: Option<Cause>, status: u16) {
        self.lighten();
        self.services.refused(reason);
        if let Some(cause) = cause {
            self.services.caused(cause);
        }
        self.outcome.cause = cause;
        self.outcome.status = status;
        self.outcome.reason = Some(reason);
    }

    /// The answer broke off after its head.
    pub fn fail(&mut self, reason: Reason) {
        self.outcome.reason = Some(reason);
        self.outcome.is_complete = true;
    }

    /// The last byte of the answer has gone to the client's connection.
    pub fn complete(&mut self) {
        self.outcome.is_complete = true;
    }

    /// The head of the upstream's answer has come, which may say what the request cost.
    pub fn settle(&mut self, answer: &HeaderMap) {
        if let Some(held) = &mut self.held {
            let limiter = &self.services.shared.limiter;
            held.settle(&self.view.snapshot.table, limiter, answer, clock::now_ns());
        }
    }

    /// Waits for the request's turn, if it has to. The wait is no longer than a queue is, which the configuration
    /// bounds; a client that goes away meanwhile drops it, and the drain's deadline the worker.
    pub async fn turn(&mut self) {
        let Some(delay_ns) = self.held.as_ref().map(|held| held.delay_ns()).filter(|delay_ns| *delay_ns > 0)
        else {
            return;
        };
        // From when the place was taken, which is when the request began.
        let left_ns = delay_ns.saturating_sub(self.elapsed_ns());
        sleep(Duration::from_nanos(left_ns)).await;
        self.attempts.steps.delay = self.elapsed_ns().saturating_sub(self.attempts.steps.decide).max(1);
        if let Some(held) = &mut self.held {
            held.turn_came();
        }
    }

    /// Nanoseconds since it began.
    pub fn elapsed_ns(&self) -> u64 {
        clock::instant().saturating_duration_since(self.facts.started).as_nanos() as u64
    }

    /// Whether it has taken longer than exchanges with this upstream may in all.
    pub fn is_past_total(&self, upstream: usize) -> bool {
        let timeouts = &self.view.snapshot.upstreams[upstream].config.timeouts;
        timeouts.is_past_total(Duration::from_nanos(self.elapsed_ns()))
    }

    /// Why it did not go well, if it did not.
    fn final_reason(&self) -> Option<Reason> {
        if std::thread::panicking() {
            return Some(Reason::Panic);
        }
        let Outcome { reason, is_complete, .. } = self.outcome;
        match reason {
            Some(Reason::ClientGone) | None if !is_complete && self.conn.drain.is_cut() => {
                Some(Reason::Drain)
            }
            Some(Reason::ClientGone) | None if self.conn.stalled.get() => Some(Reason::BodyStall),
            Some(Reason::ClientGone) | None if !is_complete => Some(self.why_gone()),
            reason => reason,
        }
    }

    /// The client has left, or was made to: which of its requests that was is not known, how many is.
    fn why_gone(&self) -> Reason {
        match self.conn.broken.get().checked_sub(1) {
            None => Reason::ClientGone,
            Some(others) => {
                self.conn.broken.set(others);
                Reason::Malformed
            }
        }
    }

    /// The status it is told with; counts what is known only now.
    fn final_status(&self, reason: Option<Reason>) -> u16 {
        match reason {
            Some(Reason::Panic) => {
                let RequestFacts { request_id, is_call, .. } = &self.facts;
                PANICKED.set(Some(Panicked { request_id: request_id.clone(), is_call: *is_call }));
                PANIC_STATUS
            }
            Some(Reason::Malformed) if self.outcome.reason != reason => {
                self.services.refused(Reason::Malformed);
                problem::BAD_REQUEST_STATUS
            }
            // It was not the client that went.
            Some(Reason::Drain) if self.outcome.status == CLIENT_GONE_STATUS => DRAIN_STATUS,
            _ => self.outcome.status,
        }
    }
}

impl Drop for RequestContext {
    fn drop(&mut self) {
        if let Some(held) = &mut self.held {
            held.end(&self.services.shared.limiter);
        }
        let ended = clock::instant();
        self.lighten();
        self.conn.activity.end_exchange(ended);
        let reason = self.final_reason();
        let event = Finished {
            conn: &self.conn,
            snapshot: &self.view.snapshot,
            request: &self.facts,
            attempts: &self.attempts,
            verdict: self.verdict,
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

/// The request that went down in a panic.
#[derive(Debug)]
pub struct Panicked {
    /// Its id; empty if it had none yet.
    pub request_id: HeaderValue,
    /// Whether it was a call of gRPC.
    pub is_call: bool,
}

/// The request that went down in the last panic of this thread, for whoever catches it: once.
pub fn panicked() -> Panicked {
    PANICKED.take().unwrap_or(Panicked { request_id: HeaderValue::from_static(""), is_call: false })
}

thread_local! {
    static PANICKED: Cell<Option<Panicked>> = const { Cell::new(None) };
}

/// What the heads of one HTTP/2 connection may hold while they wait for answers, bytes.
const HEADS_BYTES_MAX: usize = 512 * 1024;
/// From this weight on a head is not kept for its target.
const COPIED_BYTES_MIN: usize = 4 * 1024;
const PANIC_STATUS: u16 = 500;
const DRAIN_STATUS: u16 = 503;
