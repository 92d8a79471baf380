//! What one connection is doing, and until when it may go on doing that.
//!
//! hyper knows when a head is whole, but not when an answer has left; the stream and the answer's body, which pass through
//! here, tell both. Nothing is timed here: `connection.rs` asks for the deadline.

use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

use super::limits::Limits;

/// One connection, as far as others must know of it.
#[derive(Debug)]
pub(super) struct Activity(Mutex<Present>);

#[derive(Debug)]
struct Present {
    phase: Phase,
    since: Instant,
    /// Whether hyper has the whole answer. Some of it may still be in hyper's buffer, for a client that reads slowly.
    is_whole: bool,
    /// Among the pages being shown.
    place: Option<OwnedSemaphorePermit>,
    /// Wakes a request that was sent before the answer to the one before it was taken.
    next: Option<Waker>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// A head is on its way: the first of a connection, or a later one that has begun.
    Head,
    /// A request is being answered.
    Answer,
    /// Between two requests.
    Idle,
    /// The last answer is out, and the client is given a moment to read it.
    Closing,
}

impl Activity {
    /// A connection that was accepted just now.
    pub(super) fn new() -> Arc<Activity> {
        let since = Instant::now();
        Arc::new(Activity(Mutex::new(Present {
            phase: Phase::Head,
            since,
            is_whole: false,
            place: None,
            next: None,
        })))
    }

    /// Until when it may go on as it does.
    pub(super) fn deadline(&self, limits: &Limits) -> Instant {
        let present = self.present();
        present.since
            + match present.phase {
                Phase::Head => limits.head,
                Phase::Answer => limits.answer,
                Phase::Idle => limits.idle,
                Phase::Closing => limits.linger,
            }
    }

    /// Since when it has been doing this; `None` while it is being shown a page.
    pub(super) fn quiet_since(&self) -> Option<Instant> {
        let present = self.present();
        present.place.is_none().then_some(present.since)
    }

    /// Takes a place among the pages being shown, until the answer is sent; false if there is none.
    pub(super) fn takes_place(&self, places: &Arc<Semaphore>) -> bool {
        let place = Arc::clone(places).try_acquire_owned().ok();
        let is_there = place.is_some();
        self.present().place = place;
        is_there
    }

    /// Waits until the answer before is sent, then begins another. Else a client that sends many requests and takes no
    /// answer would have all the answers gathered in memory.
    pub(super) async fn begin(&self) {
        std::future::poll_fn(|cx| self.poll_begin(cx)).await;
    }

    fn poll_begin(&self, cx: &Context<'_>) -> Poll<()> {
        let mut present = self.present();
        if present.phase == Phase::Answer {
            present.next = Some(cx.waker().clone());
            return Poll::Pending;
        }
        present.enter(Phase::Answer);
        present.is_whole = false;
        Poll::Ready(())
    }

    /// Bytes came from the client.
    pub(super) fn received(&self) {
        let mut present = self.present();
        if present.phase == Phase::Idle {
            present.enter(Phase::Head);
        }
    }

    /// hyper has nothing left to write.
    pub(super) fn flushed(&self) {
        let mut present = self.present();
        if present.phase == Phase::Answer && present.is_whole {
            present.enter(Phase::Idle);
            present.place = None;
            if let Some(next) = present.next.take() {
                next.wake();
            }
        }
    }

    /// hyper ends the connection.
    pub(super) fn closing(&self) {
        let mut present = self.present();
        present.enter(Phase::Closing);
        present.place = None;
    }

    fn present(&self) -> MutexGuard<'_, Present> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Present {
    fn enter(&mut self, phase: Phase) {
        (self.phase, self.since) = (phase, Instant::now());
    }
}

/// An answer's body; dropped when hyper has taken all of it.
#[derive(Debug)]
pub(super) struct Answer {
    body: axum::body::Body,
    activity: Arc<Activity>,
}

impl Answer {
    pub(super) fn new(body: axum::body::Body, activity: Arc<Activity>) -> Answer {
        Answer { body, activity }
    }
}

impl Body for Answer {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        self.activity.present().is_whole = true;
    }
}
