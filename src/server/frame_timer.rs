//! The deadlines that only HTTP/2 has: a head that does not end, and answers that are not taken.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Instant;

use crate::clock;
use crate::service::activity::Activity;
use crate::service::config::Timeouts;
use crate::wire::http2::Meter;

/// Which of the two has passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameExpiry {
    /// A head takes too long.
    Head,
    /// Answers are not taken.
    Stall,
}

/// Deadlines of a head that does not end, and of answers that are not taken. Looked at now and then, like all of a
/// connection's.
#[derive(Debug)]
pub struct FrameTimer {
    meter: Rc<RefCell<Meter>>,
    /// How much of our bodies the client had taken, and when.
    taken: u64,
    taken_at: Instant,
    /// The number of the head that is under way, and since when.
    head: u64,
    head_at: Instant,
}

impl FrameTimer {
    pub fn new(meter: &Rc<RefCell<Meter>>) -> FrameTimer {
        let now = clock::instant();
        FrameTimer { meter: Rc::clone(meter), taken: 0, taken_at: now, head: 0, head_at: now }
    }

    /// Which of the two has passed.
    pub fn look(&mut self, activity: &Activity, timeouts: &Timeouts, now: Instant) -> Option<FrameExpiry> {
        let meter = self.meter.borrow();
        // A window that opens byte by byte holds as much of us as one that stays shut, and answers to PING go out
        // whatever the windows are.
        if !activity.is_reading_owed() || meter.data_sent() - self.taken >= DRAIN_BYTES_MIN {
            (self.taken, self.taken_at) = (meter.data_sent(), now);
        }
        let (head, is_under_way) = meter.head();
        if !is_under_way || head != self.head {
            (self.head, self.head_at) = (head, now);
        }
        if now.saturating_duration_since(self.taken_at) >= timeouts.body_stall {
            return Some(FrameExpiry::Stall);
        }
        (now.saturating_duration_since(self.head_at) >= timeouts.header).then_some(FrameExpiry::Head)
    }
}

/// What a client takes at least of what waits for it, within the deadline of a stalled body.
const DRAIN_BYTES_MIN: u64 = 16 * 1024;
