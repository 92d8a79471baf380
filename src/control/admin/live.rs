//! The events of those who watch: a summary of the gateway as JSON, made once a second for all of them, and not at all while
//! nobody does. `events.rs` sends them.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;

/// What all who watch are shown.
#[derive(derive_more::Debug)]
#[debug("LiveFeed")]
pub struct LiveFeed {
    /// When it was made; beats are counted from here.
    began: Instant,
    made: Mutex<LiveFrame>,
}

struct LiveFrame {
    /// Makes the summary of this moment, a line of JSON.
    summary: Box<dyn FnMut() -> String + Send>,
    /// The event that was made last, the beat that it is of, and whether it is the last of all.
    event: Bytes,
    made_for: Option<(u64, bool)>,
}

impl LiveFeed {
    pub fn new(summary: Box<dyn FnMut() -> String + Send>) -> LiveFeed {
        LiveFeed {
            began: Instant::now(),
            made: Mutex::new(LiveFrame { summary, event: Bytes::new(), made_for: None }),
        }
    }

    pub(super) fn beat(&self) -> u64 {
        self.began.elapsed().as_secs()
    }

    pub(super) fn start_of(&self, beat: u64) -> Instant {
        self.began + Duration::from_secs(beat)
    }

    /// The event of a beat: whoever asks first has it made. The last one is made anew, because what others were shown
    /// in the same beat does not say that it is.
    pub(super) fn event(&self, beat: u64, is_last: bool) -> Bytes {
        let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        if made.made_for < Some((beat, is_last)) {
            made.event = format!("data: {}\n\n", (made.summary)()).into();
            made.made_for = Some((beat, is_last));
        }
        made.event.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_are_shown_the_same_and_at_the_end_what_is_so_then() {
        let mut number = 0;
        let live = LiveFeed::new(Box::new(move || {
            number += 1;
            number.to_string()
        }));
        let shown = |beat, is_last| String::from_utf8(live.event(beat, is_last).to_vec()).expect("text");
        for (beat, is_last, number) in
            [(3, false, 1), (3, false, 1), (4, false, 2), (4, true, 3), (4, true, 3)]
        {
            assert_eq!(shown(beat, is_last), format!("data: {number}\n\n"));
        }
    }
}
