//! The deadlines that only HTTP/2 has: a head that does not end, and answers that the client does not read; and idle
//! connections that are given up because memory is short. It sets no timer: [`super::timer`] asks it periodically.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use crate::service::activity::Activity;
use crate::service::config::ClientTimeouts;
use crate::service::overload::Overload;
use base::clock;
use net::wire::http2::Meter;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameExpiry {
    Head,
    /// The client does not read its answers.
    Stall,
    /// It serves no request, and memory is short.
    GivenUp,
}

#[derive(Debug)]
pub struct FrameTimer {
    overload: Arc<Overload>,
    meter: Rc<RefCell<Meter>>,
    /// Bytes of answers that had been sent when the client last made progress, and when that was.
    sent: u64,
    sent_at: Instant,
    /// The number of the head that is under way, and since when it is.
    head: u64,
    head_at: Instant,
}

impl FrameTimer {
    pub fn new(meter: &Rc<RefCell<Meter>>, overload: &Arc<Overload>) -> FrameTimer {
        let now = clock::instant();
        let overload = Arc::clone(overload);
        FrameTimer { overload, meter: Rc::clone(meter), sent: 0, sent_at: now, head: 0, head_at: now }
    }

    /// Which deadline has passed, if one has.
    pub fn look(
        &mut self,
        activity: &Activity,
        timeouts: &ClientTimeouts,
        now: Instant,
    ) -> Option<FrameExpiry> {
        let meter = self.meter.borrow();
        // Only bytes of DATA frames count as progress, and only many of them, because a window that opens byte by byte
        // holds as much memory as one that stays shut, and answers to PING go out whatever the windows are.
        if !activity.is_reading_owed() || meter.data_sent() - self.sent >= PROGRESS_BYTES_MIN {
            (self.sent, self.sent_at) = (meter.data_sent(), now);
        }
        let (head, is_under_way) = meter.head();
        if !is_under_way || head != self.head {
            (self.head, self.head_at) = (head, now);
        }
        if now.saturating_duration_since(self.sent_at) >= timeouts.body_stall {
            return Some(FrameExpiry::Stall);
        }
        if now.saturating_duration_since(self.head_at) >= timeouts.header {
            return Some(FrameExpiry::Head);
        }
        let is_idle = !activity.is_busy() && !is_under_way;
        (is_idle && self.overload.gives_up(activity.exchanges_most.get())).then_some(FrameExpiry::GivenUp)
    }
}

/// Bytes that a client must at least read in each `body_stall` while answers wait for it.
const PROGRESS_BYTES_MIN: u64 = 16 * 1024;
