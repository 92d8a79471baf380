//! The phase of one admin connection, and the deadline that follows from it.
//!
//! hyper knows when a head is complete, but does not report when an answer has been written. The stream (`watched.rs`)
//! and the answer's body report it here. This file runs no timer: `connection.rs` asks it for the deadline.

use std::net::IpAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

use super::access::CertificateHolder;
use super::limits::AdminLimits;

/// The state of a connection that its stream, its requests and the accept loop share.
#[derive(Debug)]
pub(super) struct AdminActivity {
    /// The client's address; `None` over a Unix socket.
    pub from: Option<IpAddr>,
    /// Whom its certificate stands for; unset if it has shown none that is listed.
    pub vouched: OnceLock<CertificateHolder>,
    present: Mutex<ActivityState>,
}

#[derive(Debug)]
struct ActivityState {
    phase: AdminPhase,
    since: Instant,
    /// Whether hyper has taken the whole body. Some of it may still be in hyper's buffer, if the client reads slowly.
    is_whole: bool,
    /// The permit of a page being shown, until the answer is written.
    place: Option<OwnedSemaphorePermit>,
    /// Whether the answer has no end of its own: its reader only has to go on reading.
    is_stream: bool,
    /// A pipelined request that waits for the answer before its own.
    next: Option<Waker>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AdminPhase {
    /// A head is being received: the first of the connection, or a later one of which a byte has come.
    Head,
    Answer,
    Idle,
    /// The last answer is written; the connection lingers so that the client can read it.
    Closing,
}

impl AdminActivity {
    pub(super) fn new(from: Option<IpAddr>) -> Arc<AdminActivity> {
        let since = Instant::now();
        let present = ActivityState {
            phase: AdminPhase::Head,
            since,
            is_whole: false,
            place: None,
            is_stream: false,
            next: None,
        };
        Arc::new(AdminActivity { from, vouched: OnceLock::new(), present: Mutex::new(present) })
    }

    pub(super) fn deadline(&self, limits: &AdminLimits) -> Instant {
        let present = self.present();
        present.since
            + match present.phase {
                AdminPhase::Head => limits.head,
                AdminPhase::Answer if present.is_stream => limits.stall,
                AdminPhase::Answer => limits.answer,
                AdminPhase::Idle => limits.idle,
                AdminPhase::Closing => limits.linger,
            }
    }

    /// Whether a head is on its way: the first of the connection, of which no byte needs to be here yet, or a later one.
    pub(super) fn awaits_head(&self) -> bool {
        self.present().phase == AdminPhase::Head
    }

    /// When the present phase began; `None` while a page is being shown, so that it is not closed as a quiet connection.
    pub(super) fn quiet_since(&self) -> Option<Instant> {
        let present = self.present();
        present.place.is_none().then_some(present.since)
    }

    /// Takes one of the `places` until the answer is written; false if none is free.
    pub(super) fn takes_place(&self, places: &Arc<Semaphore>, is_stream: bool) -> bool {
        let place = Arc::clone(places).try_acquire_owned().ok();
        let is_there = place.is_some();
        let mut present = self.present();
        (present.place, present.is_stream) = (place, is_stream && is_there);
        is_there
    }

    /// Waits until the previous answer is written, then begins the next. Otherwise a client that pipelines requests and
    /// reads nothing would fill memory with answers.
    pub(super) async fn begin(&self) {
        std::future::poll_fn(|cx| self.poll_begin(cx)).await;
    }

    fn poll_begin(&self, cx: &Context<'_>) -> Poll<()> {
        let mut present = self.present();
        if present.phase == AdminPhase::Answer {
            present.next = Some(cx.waker().clone());
            return Poll::Pending;
        }
        present.enter(AdminPhase::Answer);
        (present.is_whole, present.is_stream) = (false, false);
        Poll::Ready(())
    }

    /// Notes that bytes came from the client: an idle connection now has a head to finish.
    pub(super) fn received(&self) {
        let mut present = self.present();
        if present.phase == AdminPhase::Idle {
            present.enter(AdminPhase::Head);
        }
    }

    /// Notes that hyper has nothing left to write.
    pub(super) fn flushed(&self) {
        let mut present = self.present();
        if present.phase != AdminPhase::Answer {
            return;
        }
        if !present.is_whole && present.is_stream {
            // Begun anew, because a reader that has taken something is not stalled.
            present.since = Instant::now();
        } else if present.is_whole {
            present.enter(AdminPhase::Idle);
            present.place = None;
            if let Some(next) = present.next.take() {
                next.wake();
            }
        }
    }

    /// Notes that hyper ends the connection.
    pub(super) fn closing(&self) {
        let mut present = self.present();
        present.enter(AdminPhase::Closing);
        present.place = None;
    }

    fn present(&self) -> MutexGuard<'_, ActivityState> {
        self.present.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ActivityState {
    fn enter(&mut self, phase: AdminPhase) {
        (self.phase, self.since) = (phase, Instant::now());
    }
}

/// An answer's body. It is watched, because hyper drops it when it has taken all of it, which is the only sign of
/// that.
#[derive(Debug)]
pub(super) struct TrackedBody {
    body: axum::body::Body,
    activity: Arc<AdminActivity>,
}

impl TrackedBody {
    pub(super) fn new(body: axum::body::Body, activity: Arc<AdminActivity>) -> TrackedBody {
        TrackedBody { body, activity }
    }
}

impl Body for TrackedBody {
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

impl Drop for TrackedBody {
    fn drop(&mut self) {
        self.activity.present().is_whole = true;
    }
}
