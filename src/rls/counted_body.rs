//! The body of a call, counted while it is held, so that what one thread's calls hold together is bounded.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use tonic::Status;

use super::limits::HELD_BYTES_MAX;

#[derive(Debug)]
pub(super) struct CountedBody {
    body: Incoming,
    /// Bytes that have come of it.
    bytes: usize,
    /// Bytes that the calls of one thread hold.
    all: Arc<AtomicUsize>,
}

impl CountedBody {
    /// `all`: what the calls of one thread hold.
    pub(super) fn new(body: Incoming, all: &Arc<AtomicUsize>) -> CountedBody {
        CountedBody { body, bytes: 0, all: Arc::clone(all) }
    }

    /// Counts bytes that have come. Returns what all calls hold then.
    fn add(&mut self, bytes: usize) -> usize {
        self.bytes += bytes;
        self.all.fetch_add(bytes, Ordering::Relaxed) + bytes
    }
}

impl Body for CountedBody {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let Some(frame) = ready!(Pin::new(&mut self.body).poll_frame(cx)) else { return Poll::Ready(None) };
        let frame = frame.map_err(|error| Status::cancelled(error.to_string()))?;
        if let Some(data) = frame.data_ref()
            && self.add(data.len()) > HELD_BYTES_MAX
        {
            return Poll::Ready(Some(Err(Status::resource_exhausted("too many large messages at once"))));
        }
        Poll::Ready(Some(Ok(frame)))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for CountedBody {
    fn drop(&mut self) {
        self.all.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}
