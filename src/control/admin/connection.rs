//! One connection of the admin listener: HTTP/1.1 by hyper, kept alive, each part of it within its deadline.

use std::convert::Infallible;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use axum::Router;
use http::Request;
use http::header::DATE;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use tokio::sync::watch;
use tokio::{task, time};

use super::activity::{AdminActivity, TrackedBody};
use super::limits::{AdminLimits, HEAD_BYTES_MAX, HEADERS_MAX};
use super::watched_stream::WatchedStream;
use base::clock;
use net::any_stream::AnyStream;

/// Answers requests until the client or a deadline ends the connection. After `stopped`, the present answer is the last; a
/// head that is on its way is answered still, because its client cannot know.
pub(super) async fn converse(
    stream: AnyStream,
    router: Router,
    activity: Arc<AdminActivity>,
    limits: AdminLimits,
    mut stopped: watch::Receiver<()>,
) {
    let router = TowerToHyperService::new(router);
    let service = service_fn(|mut request: Request<Incoming>| {
        let (router, activity) = (router.clone(), Arc::clone(&activity));
        async move {
            activity.begin().await;
            // Without this, pipelined requests are answered in one poll, and the probes of other connections wait.
            task::yield_now().await;
            request.extensions_mut().insert(Arc::clone(&activity));
            let mut response = router.call(request).await?;
            response.headers_mut().entry(DATE).or_insert_with(clock::http_date);
            Ok::<_, Infallible>(response.map(|body| TrackedBody::new(body, activity)))
        }
    });
    let connection = http1::Builder::new()
        // Off, because hyper's deadline for heads also counts the idle time between two requests.
        .header_read_timeout(None)
        .auto_date_header(false)
        .max_headers(HEADERS_MAX)
        .max_buf_size(HEAD_BYTES_MAX)
        .serve_connection(TokioIo::new(WatchedStream::new(stream, Arc::clone(&activity))), service);
    let mut connection = pin!(connection);
    let mut timer = pin!(time::sleep_until(activity.deadline(&limits)));
    let mut stop = pin!(async { drop(stopped.changed().await) });
    let (mut is_stopped, mut is_last) = (false, false);
    let ended = poll_fn(|cx| {
        if let Poll::Ready(ended) = connection.as_mut().poll(cx) {
            return Poll::Ready(Some(ended));
        }
        is_stopped = is_stopped || stop.as_mut().poll(cx).is_ready();
        if is_stopped && !is_last && !activity.awaits_head() {
            is_last = true;
            connection.as_mut().graceful_shutdown();
            if let Poll::Ready(ended) = connection.as_mut().poll(cx) {
                return Poll::Ready(Some(ended));
            }
        }
        // Only polling the connection can move the deadline, so it is enough to read it after that.
        let deadline = activity.deadline(&limits);
        if timer.deadline() != deadline {
            timer.as_mut().reset(deadline);
        }
        timer.as_mut().poll(cx).map(|()| None)
    });
    match ended.await {
        Some(Ok(())) => {}
        Some(Err(error)) => tracing::debug!(%error, "admin connection failed"),
        None => tracing::debug!("admin connection closed: timeout"),
    }
}
