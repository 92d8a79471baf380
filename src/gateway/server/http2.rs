//! An HTTP/2 connection: its prelude, then hyper, and logging the requests that hyper refuses on its own. The frames
//! themselves are hyper's; `wire::http2` counts them.

use std::cell::RefCell;
use std::pin::pin;
use std::rc::Rc;
use std::task::{Poll, ready};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{Request, Version};
use hyper::body::Incoming;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;

use super::connection::{ConnectionEnd, ConnectionTask};
use super::frame_timer::FrameTimer;
use super::stream::{ClientStream, TrackedStream};
use super::timer::{ConnectionTimer, Expiry};
use super::{linger, prelude};
use crate::service::problem;
use crate::service::reason::Reason;
use crate::service::{Service, config};
use base::clock;
use net::in_place;
use net::wire::http1::FramingFault;
use net::wire::http2::{Excess, HyperRefusal, Meter, MeteredStream, PeerSide};
use upstream::connect::LocalExecutor;

/// Serves a connection until it ends. hyper is built when the client sends its first request.
pub async fn serve<S: Service>(
    conn: &ConnectionTask<S>,
    stream: ClientStream,
    ahead: Bytes,
    accepted: Instant,
) {
    let meter = Meter::new(PeerSide::Client, conn.facts.config.max.streams, clock::instant());
    let meter = Rc::new(RefCell::new(meter));
    let io = TrackedStream::new(stream, ahead, Rc::clone(&conn.facts.activity));
    let io = MeteredStream::new(io, Rc::clone(&meter), clock::instant);
    match Box::pin(prelude::http2::wait(&conn.facts, &announced(&conn.facts.config.max), io, accepted)).await
    {
        prelude::http2::PreludeEnd::In(io) => Box::pin(drive(conn, io, meter)).await,
        prelude::http2::PreludeEnd::Gone(error) => conn.broken_http2(&error, &meter.borrow()),
        prelude::http2::PreludeEnd::Late => conn.late_http2(),
    }
}

/// One hyper connection from the first request to GOAWAY.
async fn drive<S: Service>(
    conn: &ConnectionTask<S>,
    io: prelude::http2::ReplayStream,
    meter: Rc<RefCell<Meter>>,
) {
    conn.facts.frames.get_or_init(|| Rc::clone(&meter));
    let service = service_fn(|request: Request<Incoming>| {
        let stream = meter.borrow_mut().accepted();
        // Boxed, because hyper spawns it with the stream, and a task's future is copied several times on its way there.
        let answer = || Rc::clone(&conn.worker.service).answer(Rc::clone(&conn.facts), request, stream);
        Box::into_pin(in_place::boxed(answer))
    });
    let mut served = pin!(builder(&conn.facts.config.max).serve_connection(TokioIo::new(io), service));
    let frames = FrameTimer::new(&meter, &conn.worker.shared.overload);
    let mut timer = ConnectionTimer::new(&conn.facts.config.timeouts, None, Some(frames));
    let (drain, cuts) = (pin!(conn.facts.drain.leaves.wait()), pin!(conn.facts.drain.cuts.wait()));
    let (mut drain, mut cuts, mut draining) = (Some(drain), Some(cuts), false);
    let end = std::future::poll_fn(|cx| {
        loop {
            let polled = served.as_mut().poll(cx);
            while let Some(refused) = meter.borrow_mut().take_refused() {
                conn.log_refused(refused);
            }
            conn.facts.broken.set(conn.facts.broken.get() + meter.borrow_mut().take_broken());
            if let Poll::Ready(result) = polled {
                return Poll::Ready(ConnectionEnd::Done(result));
            }
            if !draining && (conn.facts.leaving.get() || conn.facts.drain.leaves.poll(&mut drain, cx)) {
                draining = true;
                served.as_mut().graceful_shutdown();
                continue;
            }
            if draining && conn.facts.drain.cuts.poll(&mut cuts, cx) {
                return Poll::Ready(ConnectionEnd::Gone);
            }
            match ready!(timer.poll(&conn.facts.activity, cx)) {
                // An idle connection is told to go (GOAWAY) and given one more period to do so.
                Expiry::Idle if !draining => {
                    conn.deadline_passed(metrics::ConnectionDeadline::Idle);
                    draining = true;
                    served.as_mut().graceful_shutdown();
                    timer.wait(GOAWAY_WAIT);
                }
                Expiry::GivenUp if !draining => {
                    draining = true;
                    served.as_mut().graceful_shutdown();
                    timer.wait(GIVEN_UP_WAIT);
                }
                expiry => return Poll::Ready(ConnectionEnd::Expired(expiry)),
            }
        }
    })
    .await;
    match end {
        ConnectionEnd::Done(Err(error)) => conn.broken_http2(&error, &meter.borrow()),
        ConnectionEnd::Expired(Expiry::Stall) => {
            conn.facts.stalled.set(true);
            conn.deadline_passed(metrics::ConnectionDeadline::BodyStall);
        }
        // Said of requests that are left, because their client does not read.
        ConnectionEnd::Expired(Expiry::GivenUp) => conn.facts.stalled.set(true),
        ConnectionEnd::Expired(Expiry::Head) => conn.late_http2(),
        ConnectionEnd::Done(Ok(()))
        | ConnectionEnd::Refused(_)
        | ConnectionEnd::Expired(_)
        | ConnectionEnd::Gone => {}
    }
}

/// hyper as a listener's limits say.
fn builder(max: &config::Sizes) -> http2::Builder<LocalExecutor> {
    let mut builder = http2::Builder::new(LocalExecutor);
    builder
        .auto_date_header(false)
        .max_concurrent_streams(max.streams)
        .initial_stream_window_size(STREAM_WINDOW_BYTES)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
        .max_send_buf_size(SEND_BUFFER_BYTES)
        .max_header_list_size(header_list_bytes_max(max))
        .max_pending_accept_reset_streams(UNREAD_RESETS_MAX)
        .max_local_error_reset_streams(Some(LOCAL_RESETS_MAX));
    builder
}

/// The SETTINGS that hyper will send first, made from the same values that [`builder`] configures it with.
fn announced(max: &config::Sizes) -> Vec<u8> {
    prelude::http2::settings(&[
        (prelude::http2::MAX_CONCURRENT_STREAMS, max.streams),
        (prelude::http2::INITIAL_WINDOW_SIZE, STREAM_WINDOW_BYTES),
        (prelude::http2::MAX_FRAME_SIZE, FRAME_BYTES_MAX),
        (prelude::http2::MAX_HEADER_LIST_SIZE, header_list_bytes_max(max)),
    ])
}

/// Far above the configured limit, because the request pipeline refuses a head above that with a whole answer. hyper's
/// answer beyond this has neither body nor request id.
fn header_list_bytes_max(max: &config::Sizes) -> u32 {
    (max.header_bytes as u32).saturating_mul(2) + FRAME_BYTES_MAX * 4
}

impl<S: Service> ConnectionTask<S> {
    /// Closes a connection that does not begin with the preface on a listener that speaks only HTTP/2. No GOAWAY is
    /// sent, because the client is evidently not using HTTP/2 (RFC 9113 section 3.4).
    pub async fn refuse_preface(&self, mut stream: ClientStream) {
        self.refuse_unread(Version::HTTP_2, Reason::Malformed, problem::BAD_REQUEST_STATUS);
        linger::say(&mut stream, &[]).await;
        linger::linger(&stream).await;
    }

    /// Whether a first line that is not HTTP/1 may be a broken HTTP/2 preface. It gets no answer then, because a client
    /// that sent one would read an HTTP/1.1 answer as frames.
    pub fn may_be_preface(&self, fault: FramingFault) -> bool {
        let is_sniffed = self.facts.tls.is_empty() && self.facts.config.http2;
        fault == FramingFault::OtherProtocol && is_sniffed && self.facts.activity.last_status.get() == 0
    }

    /// Handles an error of hyper's: logs a refusal if the client broke the protocol or a budget, and nothing if it left.
    pub fn broken_http2(&self, error: &dyn std::fmt::Display, meter: &Meter) {
        let reason = match (meter.excess(), meter.goaway_sent()) {
            (Some(Excess::RapidReset), _) => Reason::RapidReset,
            // hyper's own bound on requests that it has not handed over yet.
            (None, Some(ENHANCE_YOUR_CALM)) if meter.taken_back() >= UNREAD_RESETS_MAX as u64 => {
                Reason::RapidReset
            }
            (Some(Excess::PseudoTrailers | Excess::Unannounced | Excess::PseudoAnswer), _) => {
                Reason::Malformed
            }
            (Some(_), _) | (None, Some(ENHANCE_YOUR_CALM)) => Reason::FrameFlood,
            (None, Some(code)) if code != NO_ERROR => Reason::Malformed,
            (None, _) => {
                tracing::debug!(peer = %self.facts.peer.ip, %error, "HTTP/2 connection failed");
                return;
            }
        };
        let excess = meter.excess().map_or("", Excess::name);
        tracing::debug!(peer = %self.facts.peer.ip, %error, excess, "HTTP/2 connection closed: too many or forbidden frames");
        self.refuse_unread(Version::HTTP_2, reason, problem::BAD_REQUEST_STATUS);
    }

    fn late_http2(&self) {
        self.deadline_passed(metrics::ConnectionDeadline::Header);
        self.refuse_unread(Version::HTTP_2, Reason::HeaderTimeout, problem::HEADER_TIMEOUT_STATUS);
    }

    /// Logs a request over HTTP/2 that hyper refused on its own.
    pub fn log_refused(&self, refused: HyperRefusal) {
        match refused {
            HyperRefusal::Reset(REFUSED_STREAM) => {
                self.refuse_unread(Version::HTTP_2, Reason::TooManyStreams, problem::UNAVAILABLE_STATUS)
            }
            HyperRefusal::Reset(_) => {
                self.refuse_unread(Version::HTTP_2, Reason::Malformed, problem::BAD_REQUEST_STATUS)
            }
            HyperRefusal::TooLarge => self.refuse_unread(
                Version::HTTP_2,
                Reason::HeadersTooLarge,
                problem::HEADERS_TOO_LARGE_STATUS,
            ),
        };
    }
}

/// Requests that a client may reset before they are read (hyper's default, against rapid reset, CVE-2023-44487).
const UNREAD_RESETS_MAX: usize = 20;
/// How long an idle client has to read the GOAWAY.
const GOAWAY_WAIT: Duration = Duration::from_secs(1);
/// The same while memory is short: most clients are within this round trip.
const GIVEN_UP_WAIT: Duration = Duration::from_millis(250);
/// The largest frame that hyper accepts by default, the least that RFC 9113 section 4.2 allows.
const FRAME_BYTES_MAX: u32 = 16 * 1024;
const STREAM_WINDOW_BYTES: u32 = 64 * 1024;
const CONNECTION_WINDOW_BYTES: u32 = 1024 * 1024;
/// Bytes of an answer that a stream may hold while the client does not read it.
const SEND_BUFFER_BYTES: usize = 64 * 1024;
/// Streams that may be reset because of the client's errors before the connection is closed.
const LOCAL_RESETS_MAX: usize = 100;
/// Error codes of HTTP/2 (RFC 9113 section 7).
const NO_ERROR: u32 = 0;
const REFUSED_STREAM: u32 = 7;
const ENHANCE_YOUR_CALM: u32 = 11;
