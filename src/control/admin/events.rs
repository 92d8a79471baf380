//! `/v1/live`: server-sent events, one a second, until the client goes, its credentials end, or the gateway drains.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use axum::Extension;
use axum::body::Body as Sent;
use axum::extract::State as Of;
use bytes::Bytes;
use http::{Response, StatusCode};
use http_body::{Body, Frame};
use tokio::time::{Sleep, sleep_until};

use super::gate::RequestAuthor;
use super::readiness::ProcessPhase;
use super::reply;
use super::state::AdminState;
use base::clock;

pub(super) async fn show(
    Of(state): Of<Arc<AdminState>>,
    Extension(client): Extension<RequestAuthor>,
) -> Response<Sent> {
    let next = state.live.beat();
    let due = Box::pin(sleep_until(state.live.start_of(next)));
    let draining = Box::pin(state.readiness.draining());
    let events = EventStreamBody { state, next, due, draining, expires: client.expires, is_over: false };
    reply::with_type(StatusCode::OK, "text/event-stream", Sent::new(events))
}

/// The body of one answer. A reader that takes its time misses events, and nothing waits for it.
struct EventStreamBody {
    state: Arc<AdminState>,
    /// The beat of the next event, and when it is due. The first is due at once.
    next: u64,
    due: Pin<Box<Sleep>>,
    /// The last event is due when the process drains, whatever the beat: it may end before the next one.
    draining: Pin<Box<dyn Future<Output = ()> + Send>>,
    /// When the client's credentials end, Unix seconds.
    expires: Option<i64>,
    is_over: bool,
}

impl Body for EventStreamBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if self.is_over {
            return Poll::Ready(None);
        }
        if self.draining.as_mut().poll(cx).is_pending() {
            ready!(self.due.as_mut().poll(cx));
        }
        let now = clock::unix_s();
        if self.expires.is_some_and(|expires| expires <= now) {
            self.is_over = true;
            return Poll::Ready(None);
        }
        let state = Arc::clone(&self.state);
        // Over, because the client asks again, and the next answer may be a successor's.
        self.is_over = state.readiness.phase() == ProcessPhase::Draining;
        let beat = state.live.beat().max(self.next);
        self.next = beat + 1;
        self.due.as_mut().reset(state.live.start_of(beat + 1));
        Poll::Ready(Some(Ok(Frame::data(state.live.event(beat, self.is_over)))))
    }
}
