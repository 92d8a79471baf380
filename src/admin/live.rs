//! `/v1/live`: server-sent events, one a second. Each is a summary of the gateway as JSON, made once for all who watch, and
//! not at all while nobody does.

use std::convert::Infallible;
use std::fmt;
use std::future::Future as _;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::Extension;
use axum::body::Body as Sent;
use axum::extract::State as Of;
use bytes::Bytes;
use http::{Response, StatusCode};
use http_body::{Body, Frame};
use tokio::time::{Instant, Sleep, sleep_until};

use super::gate::Client;
use super::readiness::Phase;
use super::reply;
use super::state::State;
use crate::clock;

/// Makes the summary of this moment, a line of JSON.
pub type Summary = Box<dyn FnMut() -> String + Send>;

/// What all who watch are shown.
pub struct Live {
    /// Beats are counted from here.
    began: Instant,
    made: Mutex<Made>,
}

struct Made {
    summary: Summary,
    /// The last event, and the beat that it was made in.
    event: Bytes,
    beat: Option<u64>,
}

impl Live {
    /// Shows these summaries.
    pub fn new(summary: Summary) -> Live {
        Live { began: Instant::now(), made: Mutex::new(Made { summary, event: Bytes::new(), beat: None }) }
    }

    /// The beat of now.
    fn beat(&self) -> u64 {
        self.began.elapsed().as_secs()
    }

    /// When a beat begins.
    fn start_of(&self, beat: u64) -> Instant {
        self.began + Duration::from_secs(beat)
    }

    /// The event of a beat: whoever asks first has it made.
    fn event(&self, beat: u64) -> Bytes {
        let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        if made.beat != Some(beat) {
            made.event = format!("data: {}\n\n", (made.summary)()).into();
            made.beat = Some(beat);
        }
        made.event.clone()
    }
}

impl fmt::Debug for Live {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Live").finish_non_exhaustive()
    }
}

/// `/v1/live`
pub(super) async fn show(Of(state): Of<Arc<State>>, Extension(client): Extension<Client>) -> Response<Sent> {
    let next = state.live.beat();
    let due = Box::pin(sleep_until(state.live.start_of(next)));
    let events = Events { state, next, due, expires: client.expires, is_over: false };
    reply::with_type(StatusCode::OK, "text/event-stream", Sent::new(events))
}

/// The body of one answer. A reader that takes its time misses events, and nothing waits for it.
struct Events {
    state: Arc<State>,
    /// The beat of the next event, and when it is due. The first is due at once.
    next: u64,
    due: Pin<Box<Sleep>>,
    /// When the client's credentials end, Unix seconds.
    expires: Option<i64>,
    is_over: bool,
}

impl Body for Events {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if self.is_over {
            return Poll::Ready(None);
        }
        ready!(self.due.as_mut().poll(cx));
        let now = i64::try_from(clock::unix().as_secs()).unwrap_or(i64::MAX);
        if self.expires.is_some_and(|expires| expires <= now) {
            self.is_over = true;
            return Poll::Ready(None);
        }
        let state = Arc::clone(&self.state);
        // The client asks again, and the next answer may be a successor's.
        self.is_over = state.readiness.phase() == Phase::Draining;
        let beat = state.live.beat().max(self.next);
        self.next = beat + 1;
        self.due.as_mut().reset(state.live.start_of(beat + 1));
        Poll::Ready(Some(Ok(Frame::data(state.live.event(beat)))))
    }
}
