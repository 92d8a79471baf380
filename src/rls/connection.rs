//! One connection: HTTP/2 by hyper, each call a task of the thread that has the connection.

use std::cell::{Cell, RefCell};
use std::convert::Infallible;
use std::future::poll_fn;
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;

use http::header::DATE;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use super::limits::{
    CONNECTION_WINDOW_BYTES, GRACE, HEAD_BYTES_MAX, LOCAL_RESETS_MAX, PING_EVERY, PING_WITHIN, PRELUDE,
    READ_BYTES_MIN, READ_WITHIN, STREAM_WINDOW_BYTES, STREAMS_MAX,
};
use super::service::{RateLimits, RlsService};
use super::turn::{AnswerBody, Turn, UnreadAnswers};
use base::clock;
use net::wire::http2::{Excess, Meter, MeteredStream, Opening, PeerSide};
use upstream::connect::LocalExecutor;

/// Answers calls until the client leaves, says nothing at all, or does not read. After `stopped`, those under way are the last.
pub(super) async fn converse<R: RateLimits>(
    stream: impl AsyncRead + AsyncWrite + Unpin + 'static,
    service: Rc<RlsService<R>>,
    mut stopped: watch::Receiver<()>,
) {
    let meter = Rc::new(RefCell::new(Meter::new(PeerSide::Client, STREAMS_MAX, clock::instant())));
    let stream = MeteredStream::new(stream, Rc::clone(&meter), clock::instant);
    let stats = service.stats.clone();
    let (ours, mut unread) = (Rc::new(Cell::new(0)), UnreadAnswers::new(&service.unread));
    let service = service_fn(|request| {
        meter.borrow_mut().accepted();
        let (service, turn) = (Rc::clone(&service), Turn::ours(&ours));
        async move {
            let mut answer = service.answer(request).await;
            answer.headers_mut().entry(DATE).or_insert_with(clock::http_date);
            Ok::<_, Infallible>(answer.map(|body| AnswerBody::new(body, turn)))
        }
    });
    let mut connection = pin!(builder().serve_connection(TokioIo::new(stream), service));
    let mut stop = pin!(async { drop(stopped.changed().await) });
    let (mut timer, mut is_stopped) = (pin!(sleep_until(Instant::now() + PRELUDE)), false);
    // Bytes that had been sent when the client last read enough, while answers wait for it.
    let mut read = None;
    let ended = poll_fn(|cx| {
        if !is_stopped && stop.as_mut().poll(cx).is_ready() {
            is_stopped = true;
            timer.as_mut().reset(Instant::now() + GRACE);
            connection.as_mut().graceful_shutdown();
        }
        let polled = connection.as_mut().poll(cx);
        // Taken out and dropped, because nobody waits for what hyper has refused on its own.
        while meter.borrow_mut().take_refused().is_some() {}
        if let Poll::Ready(ended) = polled {
            return Poll::Ready(ended.err());
        }
        let meter = meter.borrow();
        let unread_now = (meter.unanswered() + meter.unended()).saturating_sub(ours.get());
        if !unread.set(unread_now) {
            return Poll::Ready(None);
        }
        let sent = meter.data_sent();
        if unread_now == 0 {
            read = None;
        } else if !is_stopped && read.is_none_or(|before| sent - before >= READ_BYTES_MIN) {
            read = Some(sent);
            timer.as_mut().reset(Instant::now() + READ_WITHIN);
        }
        // A client that has begun to speak and reads needs no deadline, because pings find out whether it is still there.
        let is_due = is_stopped || unread_now > 0 || meter.opening() != Opening::Settings;
        if is_due && timer.as_mut().poll(cx).is_ready() {
            return Poll::Ready(None);
        }
        Poll::Pending
    });
    if let Some(error) = ended.await {
        let excess = meter.borrow().excess();
        if excess.is_some() {
            stats.refused_connection();
        }
        tracing::debug!(%error, excess = excess.map_or("", Excess::name), "gRPC connection failed");
    }
}

/// hyper within the listener's bounds.
fn builder() -> http2::Builder<LocalExecutor> {
    let mut builder = http2::Builder::new(LocalExecutor);
    builder
        .auto_date_header(false)
        .timer(TokioTimer::new())
        .keep_alive_interval(PING_EVERY)
        .keep_alive_timeout(PING_WITHIN)
        .max_concurrent_streams(STREAMS_MAX)
        .initial_stream_window_size(STREAM_WINDOW_BYTES)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
        .max_header_list_size(HEAD_BYTES_MAX)
        .max_local_error_reset_streams(Some(LOCAL_RESETS_MAX));
    builder
}
