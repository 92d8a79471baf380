//! The body of an answer that would never end by itself: it ends when the listener does.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::HeaderMap;
use http_body::Frame;
use tokio::sync::watch;
use tonic::Status;
use tonic::body::Body;

/// A body until the listener ends; then the status that says so.
pub(super) struct EndingBody {
    /// `None` once the listener's end has ended it.
    body: Option<Body>,
    stop: Pin<Box<dyn Future<Output = ()> + Send>>,
}

impl EndingBody {
    pub(super) fn new(body: Body, mut stopped: watch::Receiver<()>) -> EndingBody {
        // Nothing is ever sent there: it ends with its sender.
        EndingBody { body: Some(body), stop: Box::pin(async move { drop(stopped.changed().await) }) }
    }
}

impl http_body::Body for EndingBody {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let Some(body) = &mut self.body else { return Poll::Ready(None) };
        // What is still to be said comes first.
        if let Poll::Ready(frame) = Pin::new(body).poll_frame(cx) {
            return Poll::Ready(frame);
        }
        if self.stop.as_mut().poll(cx).is_pending() {
            return Poll::Pending;
        }
        self.body = None;
        let mut trailers = HeaderMap::new();
        let written =
            Status::unavailable("the gateway is shutting down: call another node").add_header(&mut trailers);
        Poll::Ready(Some(written.map(|()| Frame::trailers(trailers))))
    }
}
