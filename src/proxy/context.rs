//! What happened to one request, gathered on its way and told once: to the metrics and the access log, when the
//! context is dropped. Whoever holds it last (the handler, or the answer's body) decides when that is.

use std::cell::Cell;
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use http::{HeaderMap, HeaderValue, Method, StatusCode, Uri, Version, uri};
use tokio::time::sleep;

use super::grpc;
use super::request_body::Upload;
use super::reservation::Reservation;
use super::services::Services;
use super::snapshot::View;
use super::validate;
use crate::cause::Cause;
use crate::identity::Identity;
use crate::service::Ends;
use crate::service::activity::Phase;
use crate::service::conn::{Conn, SwitchedRequest};
use crate::service::problem;
use crate::service::reason::Reason;
use crate::service::refusal::Refusal;
use crate::{clock, limiter, metrics, record};

/// One request's story.
pub struct RequestContext {
    /// The connection it came on.
    pub conn: Rc<Conn>,
    /// What it is served with.
    pub services: Rc<Services>,
    /// What it is judged by.
    pub view: Rc<View>,
    /// When its head had come.
    pub started: Instant,
    /// Its method.
    pub method: Method,
    /// Its target.
    pub uri: Uri,
    /// Its protocol.
    pub version: Version,
    /// Whether it is a call of gRPC, which is refused as one.
    pub is_call: bool,
    /// The authority it names; empty where it names none that can be used.
    pub authority: HeaderValue,
    /// The client it is counted and logged as.
    pub client: IpAddr,
    /// Its id, here and upstream.
    pub request_id: HeaderValue,
    /// What its head says in the fields that the log shows.
    pub shown: record::Values,
    /// Index of the route that takes it.
    pub route: Option<usize>,
    /// Who sent it, where authentication was asked for and knows.
    pub identity: Option<Arc<Identity>>,
    /// What the limiter said of it.
    pub verdict: Option<limiter::Count>,
    /// What it holds of its limits while it lasts.
    pub held: Option<Box<Reservation>>,
    /// The server it went to: indices of upstream and server.
    pub server: Option<(usize, usize)>,
    /// How many times it was sent again.
    pub retries: u8,
    /// How long each step took.
    pub steps: Steps,
    /// What its body does.
    pub upload: Option<Rc<Upload>>,
    /// Bytes of body received, beside those of `upload`.
    pub bytes_in: u64,
    /// Bytes of body sent.
    pub bytes_out: u64,
    status: u16,
    reason: Option<Reason>,
    cause: Option<Cause>,
    complete: bool,
    /// What its head weighs on its connection, until it is answered.
    weight: usize,
}

/// How long each step took, nanoseconds. 0: it was not taken.
#[derive(Clone, Copy, Debug, Default)]
pub struct Steps {
    /// From the head to the decision on its limits.
    pub decide: u64,
    /// Waiting for its turn in a leaky bucket's queue.
    pub delay: u64,
    /// From the start until the first bytes of its body were there, where they were waited for.
    pub gather: u64,
    /// Waiting for a connection upstream to come free.
    pub wait: u64,
    /// Opening one.
    pub connect: u64,
    /// From the start to when the last try was sent: where nothing was waited for, the step before it.
    pub sent: u64,
    /// From the start to the head of the answer.
    pub answered: u64,
}

impl Steps {
    /// From the request's head sent to the answer's head.
    pub fn first_byte(&self) -> u64 {
        self.answered.saturating_sub(self.sent)
    }
}

impl std::fmt::Debug for RequestContext {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("RequestContext")
            .field("uri", &self.uri)
            .field("status", &self.status)
            .finish_non_exhaustive()
    }
}

impl RequestContext {
    /// A request whose head has come.
    pub fn begin(services: Rc<Services>, conn: Rc<Conn>, head: &http::request::Parts) -> Box<RequestContext> {
        conn.activity.begin_exchange();
        Box::new(RequestContext {
            view: services.view(),
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
            verdict: None,
            held: None,
            server: None,
            retries: 0,
            steps: Steps::default(),
            upload: None,
            bytes_in: 0,
            bytes_out: 0,
            status: CLIENT_GONE_STATUS,
            reason: Some(Reason::ClientGone),
            cause: None,
            complete: false,
            weight: 0,
            conn,
            services,
        })
    }

    /// Counts its head against what the heads of one connection may hold together: over HTTP/2 there can be many,
    /// and a client can name a field in one byte. Refused where there is no room.
    pub fn weigh(&mut self, head: &http::request::Parts) -> Result<(), Refusal> {
        if head.version != Version::HTTP_2 {
            return Ok(());
        }
        let target = head.uri.path_and_query().map_or(0, |target| target.as_str().len());
        self.weight = validate::weight(&head.headers) + target;
        if self.weight > COPIED_BYTES_MIN {
            self.keep_target_alone();
            record::keep_alone(&mut self.shown);
        }
        if self.conn.activity.hold_head(self.weight) > HEADS_BYTES_MAX {
            return Err(Refusal::HeadersTooLarge);
        }
        Ok(())
    }

    /// The target is a piece of the buffer that its head was read from, and is kept for the log until the answer is
    /// taken: a copy of what is logged of it does not keep a large head with it.
    fn keep_target_alone(&mut self) {
        let target = self.uri.path_and_query().map_or("/", |target| target.as_str());
        let shown = target.get(..=record::PATH_BYTES_MAX).unwrap_or(target);
        let mut parts = uri::Parts::default();
        parts.path_and_query = shown.parse().ok();
        parts.authority = self.uri.authority().and_then(|authority| authority.as_str().parse().ok());
        parts.scheme = parts.authority.as_ref().map(|_| uri::Scheme::HTTP);
        self.uri = Uri::from_parts(parts).unwrap_or_default();
    }

    fn lighten(&mut self) {
        self.conn.activity.release_head(std::mem::take(&mut self.weight));
    }

    /// The answer's status, once it is known; all is well from here on.
    pub fn answer(&mut self, status: StatusCode) {
        self.lighten();
        self.status = status.as_u16();
        self.reason = None;
    }

    /// The gateway refuses the request; `cause` is more than any client is told.
    pub fn refuse(&mut self, reason: Reason, cause: Option<Cause>, status: u16) {
        self.lighten();
        self.services.refused(reason);
        self.cause = cause;
        if let Some(cause) = cause {
            self.services.caused(cause);
        }
        self.status = status;
        self.reason = Some(reason);
    }

    /// The answer broke off after its head.
    pub fn fail(&mut self, reason: Reason) {
        self.reason = Some(reason);
        self.complete = true;
    }

    /// The last byte of the answer has gone to the client's connection.
    pub fn complete(&mut self) {
        self.complete = true;
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
        self.steps.delay = self.elapsed_ns().saturating_sub(self.steps.decide).max(1);
        if let Some(held) = &mut self.held {
            held.turn_came();
        }
    }

    /// Nanoseconds since it began.
    pub fn elapsed_ns(&self) -> u64 {
        clock::instant().saturating_duration_since(self.started).as_nanos() as u64
    }

    fn bytes_in(&self) -> u64 {
        self.bytes_in + self.upload.as_ref().map_or(0, |upload| upload.bytes.get())
    }

    /// How the context with the upstream ended, once the head of its answer had come; what failed before was
    /// counted where it failed.
    fn count_answer(&self, reason: Option<Reason>) {
        let Some((upstream, _)) = self.server.filter(|_| self.steps.answered > 0) else { return };
        let outcome = match reason {
            Some(Reason::UpstreamTimeout) if self.is_past_total(upstream) => metrics::Exchange::TotalTimeout,
            Some(Reason::UpstreamTimeout) => metrics::Exchange::StallTimeout,
            Some(Reason::UpstreamReset) => metrics::Exchange::Reset,
            Some(Reason::ClientGone | Reason::BodyStall | Reason::BodySlow | Reason::Drain) => {
                metrics::Exchange::ClientGone
            }
            Some(Reason::UpstreamBadResponse) => metrics::Exchange::BadAnswer,
            _ => metrics::Exchange::Answered,
        };
        self.view.snapshot.figures.upstreams[upstream].exchanged(&self.services.metrics, outcome);
    }

    /// Whether it has taken longer than exchanges with this upstream may in all.
    pub fn is_past_total(&self, upstream: usize) -> bool {
        let total = self.view.snapshot.upstreams[upstream].config.timeouts.total;
        total.is_some_and(|total| u128::from(self.elapsed_ns()) >= total.as_nanos())
    }

    /// Its line in the access log.
    fn entry(
        &self,
        now: Instant,
        status: u16,
        reason: Option<Reason>,
        duration_ns: u64,
        bytes_in: u64,
    ) -> record::Entry<'_> {
        let table = &self.view.snapshot.table;
        let policy = |verdict: &limiter::Count| &*table.policies()[verdict.policy as usize].name;
        let decision =
            self.verdict.as_ref().map_or(record::Decision::None, |verdict| match verdict.decision {
                metrics::Decision::Admitted => record::Decision::Admitted,
                metrics::Decision::ShadowDenied => record::Decision::ShadowDenied(policy(verdict)),
                metrics::Decision::Penalised => record::Decision::Penalised(policy(verdict)),
                metrics::Decision::ShadowPenalised => record::Decision::ShadowPenalised(policy(verdict)),
                metrics::Decision::Denied | metrics::Decision::MissingRejected => {
                    record::Decision::Denied(policy(verdict))
                }
            });
        let (upstream, server) = self.server.map_or(("", ""), |(upstream, server)| {
            let upstream = &self.view.snapshot.upstreams[upstream];
            (&*upstream.config.name, &*upstream.servers[server].authority)
        });
        let us = |ns: u64| (ns > 0).then_some(ns / 1_000);
        let peer = self.conn.tcp_peer;
        record::Entry {
            time: self.services.unix(now),
            request_id: self.request_id.as_bytes(),
            listener: &self.conn.config.name,
            client: Some(self.client),
            peer: (peer != self.client).then_some(peer),
            protocol: protocol(self.version),
            tls: self.conn.tls,
            sni: self.conn.sni.as_bytes(),
            method: self.method.as_str().as_bytes(),
            host: self.authority.as_bytes(),
            path: self.uri.path_and_query().map_or(b"", |target| target.path().as_bytes()),
            query: self.uri.query().map(str::as_bytes),
            shown_query: self.view.snapshot.shown.query,
            route: self.route.map_or("", |route| &*table.routes()[route].name),
            consumer: self.identity.as_ref().and_then(|identity| identity.consumer.as_deref()).unwrap_or(""),
            tenant: self.identity.as_ref().and_then(|identity| identity.tenant.as_deref()).unwrap_or(""),
            tier: self.identity.as_ref().and_then(|identity| identity.tier.as_deref()).unwrap_or(""),
            fields: &self.view.snapshot.shown.fields,
            values: &self.shown,
            status,
            reason: reason.map_or("", Reason::code),
            cause: self.cause.map_or("", Cause::word),
            decision,
            decided: self.verdict.as_ref().map_or("", |verdict| verdict.tier.label()),
            upstream,
            server,
            retries: u32::from(self.retries),
            total_us: Some(duration_ns / 1_000),
            decide_us: us(self.steps.decide),
            delay_us: us(self.steps.delay),
            wait_us: us(self.steps.wait),
            connect_us: us(self.steps.connect),
            first_byte_us: us(self.steps.first_byte()),
            bytes_in,
            bytes_out: self.bytes_out,
        }
    }

    /// Why it did not go well, where it did not.
    fn final_reason(&self) -> Option<Reason> {
        if std::thread::panicking() {
            return Some(Reason::Panic);
        }
        match self.reason {
            Some(Reason::ClientGone) | None if !self.complete && self.conn.drain.is_cut() => {
                Some(Reason::Drain)
            }
            Some(Reason::ClientGone) | None if self.conn.stalled.get() => Some(Reason::BodyStall),
            Some(Reason::ClientGone) | None if !self.complete => Some(self.why_gone()),
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
}

impl Drop for RequestContext {
    fn drop(&mut self) {
        if let Some(held) = &mut self.held {
            held.end(&self.services.shared.limiter);
        }
        let now = clock::instant();
        let duration_ns = now.saturating_duration_since(self.started).as_nanos() as u64;
        self.lighten();
        self.conn.activity.end_exchange(now);
        let reason = self.final_reason();
        let status = match reason {
            Some(Reason::Panic) => {
                PANICKED.set(Some(Panicked { request_id: self.request_id.clone(), is_call: self.is_call }));
                PANIC_STATUS
            }
            Some(Reason::Malformed) if self.reason != reason => {
                self.services.refused(Reason::Malformed);
                problem::BAD_REQUEST_STATUS
            }
            // It was not the client that went.
            Some(Reason::Drain) if self.status == CLIENT_GONE_STATUS => DRAIN_STATUS,
            _ => self.status,
        };
        let snapshot = &self.view.snapshot;
        let services = &self.services;
        let figures = self.route.map_or(&snapshot.figures.no_route, |route| &snapshot.figures.routes[route]);
        let bytes_in = self.bytes_in();
        figures.finished(
            &services.metrics,
            &metrics::Request { status, duration_ns, bytes_in, bytes_out: self.bytes_out },
        );
        self.count_answer(reason);
        if snapshot.sampler.is_off(status) {
            return;
        }
        services.log.write(&snapshot.sampler, &self.entry(now, status, reason, duration_ns, bytes_in));
    }
}

impl SwitchedRequest for RequestContext {
    fn add_bytes(&mut self, from_client: u64, to_client: u64) {
        self.bytes_in += from_client;
        self.bytes_out += to_client;
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
    /// Its id; empty where it had none yet.
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

/// Counts and logs a head that never came whole, or was none: nothing is said of what nobody has read.
pub fn tell_unread(
    services: &Services,
    conn: &Conn,
    version: Version,
    request_id: &HeaderValue,
    reason: Reason,
    status: u16,
) {
    let view = services.view();
    services.refused(reason);
    let began = match conn.activity.phase() {
        Phase::Head(since) => since,
        Phase::Idle(_) | Phase::Busy => clock::instant(),
    };
    let duration_ns = clock::instant().saturating_duration_since(began).as_nanos() as u64;
    let request = metrics::Request { status, duration_ns, ..metrics::Request::default() };
    view.snapshot.figures.no_route.finished(&services.metrics, &request);
    let entry = record::Entry {
        time: clock::unix(),
        request_id: request_id.as_bytes(),
        listener: &conn.config.name,
        client: Some(conn.peer.ip),
        peer: Some(conn.tcp_peer),
        protocol: protocol(version),
        tls: conn.tls,
        sni: conn.sni.as_bytes(),
        status,
        reason: reason.code(),
        ..record::Entry::default()
    };
    services.log.write(&view.snapshot.sampler, &entry);
}

/// Counts why a TLS handshake failed, and logs it where that was the client's certificate: an operator is asked about
/// those, and whoever only looks for open ports fills no log.
pub fn tell_handshake(services: &Services, listener: &str, ends: Ends, cause: Cause) {
    services.caused(cause);
    if !cause.is_of_certificate() {
        return;
    }
    services.refused(Reason::TlsHandshake);
    let entry = record::Entry {
        time: clock::unix(),
        listener,
        client: Some(ends.announced_peer.to_canonical()),
        peer: Some(ends.tcp_peer.to_canonical()),
        reason: Reason::TlsHandshake.code(),
        cause: cause.word(),
        ..record::Entry::default()
    };
    services.log.write(&services.view().snapshot.sampler, &entry);
}

fn protocol(version: Version) -> &'static str {
    match version {
        Version::HTTP_10 => "HTTP/1.0",
        Version::HTTP_2 => "HTTP/2.0",
        _ => "HTTP/1.1",
    }
}

/// What the heads of one HTTP/2 connection may hold while they wait for answers, bytes.
const HEADS_BYTES_MAX: usize = 512 * 1024;
/// From this weight on a head is not kept for its target.
const COPIED_BYTES_MIN: usize = 4 * 1024;
/// A client that went away is logged as nginx does: no such status was sent.
const CLIENT_GONE_STATUS: u16 = 499;
const PANIC_STATUS: u16 = 500;
const DRAIN_STATUS: u16 = 503;
