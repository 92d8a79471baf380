//! The body of a call, counted while it is held: what one thread's calls hold together is bounded.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use tonic::Status;

use super::limits::HELD_BYTES_MAX;

/// The body of a call.
#[derive(Debug)]
pub(super) struct Held {
    body: Incoming,
    bytes: HeldBytes,
}

/// What one call holds.
#[derive(Clone, Debug)]
pub(super) struct HeldBytes {
    own: Arc<AtomicUsize>,
    all: Arc<AtomicUsize>,
}

impl Held {
    /// `all`: what the calls of one thread hold.
    pub(super) fn new(body: Incoming, all: &Arc<AtomicUsize>) -> Held {
        Held { body, bytes: HeldBytes { own: Arc::default(), all: Arc::clone(all) } }
    }

    /// What it holds, for a call that has many messages.
    pub(super) fn bytes(&self) -> HeldBytes {
        self.bytes.clone()
    }
}

impl HeldBytes {
    /// Counts bytes that have come. Returns what all calls hold then.
    fn add(&self, bytes: usize) -> usize {
        self.own.fetch_add(bytes, Ordering::Relaxed);
        self.all.fetch_add(bytes, Ordering::Relaxed) + bytes
    }

    /// Counts out what has come: it is read. What has come of the next message stays uncounted; it is one buffer at most.
    pub(super) fn release(&self) {
        self.all.fetch_sub(self.own.swap(0, Ordering::Relaxed), Ordering::Relaxed);
    }
}

impl Body for Held {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let Some(frame) = ready!(Pin::new(&mut self.body).poll_frame(cx)) else { return Poll::Ready(None) };
        let frame = frame.map_err(|error| Status::cancelled(error.to_string()))?;
        if let Some(data) = frame.data_ref()
            && self.bytes.add(data.len()) > HELD_BYTES_MAX
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

impl Drop for Held {
    fn drop(&mut self) {
        self.bytes.release();
    }
}
