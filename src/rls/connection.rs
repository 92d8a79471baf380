//! One connection: HTTP/2 by hyper, each call a task of the thread that has the connection.

use std::convert::Infallible;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};

use http::header::DATE;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use super::limits::{
    CONNECTION_WINDOW_BYTES, GRACE, HEAD_BYTES_MAX, LOCAL_RESETS_MAX, PING_EVERY, PING_WITHIN, PRELUDE,
    STREAM_WINDOW_BYTES, STREAMS_MAX,
};
use super::service::{RateLimits, Service};
use base::clock;
use upstream::connect::LocalExecutor;

/// Answers calls until the client leaves or says nothing at all. After `stopped`, those under way are the last.
pub(super) async fn converse<R: RateLimits>(
    stream: impl AsyncRead + AsyncWrite + Unpin + 'static,
    service: Rc<Service<R>>,
    mut stopped: watch::Receiver<()>,
) {
    let heard = Arc::new(AtomicUsize::new(0));
    let stream = Heard { stream, bytes: Arc::clone(&heard) };
    let service = service_fn(move |request| {
        let service = Rc::clone(&service);
        async move {
            let mut answer = service.answer(request).await;
            answer.headers_mut().entry(DATE).or_insert_with(clock::http_date);
            Ok::<_, Infallible>(answer)
        }
    });
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
    let mut connection = pin!(builder.serve_connection(TokioIo::new(stream), service));
    let mut stop = pin!(async { drop(stopped.changed().await) });
    let (mut timer, mut is_stopped) = (pin!(sleep_until(Instant::now() + PRELUDE)), false);
    let ended = poll_fn(|cx| {
        if !is_stopped && stop.as_mut().poll(cx).is_ready() {
            is_stopped = true;
            timer.as_mut().reset(Instant::now() + GRACE);
            connection.as_mut().graceful_shutdown();
        }
        if let Poll::Ready(ended) = connection.as_mut().poll(cx) {
            return Poll::Ready(ended.err());
        }
        // Pings find out later whether the client is still there; only one that has not begun to speak needs a deadline.
        let is_due = is_stopped || heard.load(Ordering::Relaxed) < BEGINNING_BYTES;
        if is_due && timer.as_mut().poll(cx).is_ready() {
            return Poll::Ready(None);
        }
        Poll::Pending
    });
    if let Some(error) = ended.await {
        tracing::debug!(%error, "gRPC connection broke off");
    }
}

/// A stream that says how many bytes have come.
struct Heard<S> {
    stream: S,
    bytes: Arc<AtomicUsize>,
}

impl<S: AsyncRead + Unpin> AsyncRead for Heard<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        let before = buf.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(cx, buf);
        self.bytes.fetch_add(buf.filled().len() - before, Ordering::Relaxed);
        read
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Heard<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<std::io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[std::io::IoSlice<'_>],
    ) -> Poll<std::io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

/// What each client of HTTP/2 says first: its preface and the head of its settings (RFC 9113, sections 3.4 and 4.1).
const BEGINNING_BYTES: usize = 24 + 9;
