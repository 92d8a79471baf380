//! The events of those who watch: a summary of the gateway as JSON, made once a second for all of them, and not at all while
//! nobody does. `events.rs` sends them.

use std::fmt;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;

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
    pub(super) fn beat(&self) -> u64 {
        self.began.elapsed().as_secs()
    }

    /// When a beat begins.
    pub(super) fn start_of(&self, beat: u64) -> Instant {
        self.began + Duration::from_secs(beat)
    }

    /// The event of a beat: whoever asks first has it made.
    pub(super) fn event(&self, beat: u64) -> Bytes {
        let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        if made.beat < Some(beat) {
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
