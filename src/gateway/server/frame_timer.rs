//! The deadlines that only HTTP/2 has: a head that does not end, and answers that the client does not read; and
//! connections that are given up because memory is short. It sets no timer: [`super::timer`] asks it periodically.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

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
    /// It serves no request, or its client hardly reads, and memory is short.
    GivenUp,
}

#[derive(Debug)]
pub struct FrameTimer {
    overload: Arc<Overload>,
    meter: Rc<RefCell<Meter>>,
    read: ReadProgress,
    /// The same by the rate that counts while memory is short.
    read_lately: ReadProgress,
    /// The number of the head that is under way, and since when it is.
    head: u64,
    head_at: Instant,
}

impl FrameTimer {
    pub fn new(meter: &Rc<RefCell<Meter>>, overload: &Arc<Overload>) -> FrameTimer {
        let now = clock::instant();
        let overload = Arc::clone(overload);
        let (read, read_lately) = (ReadProgress::new(now), ReadProgress::new(now));
        FrameTimer { overload, meter: Rc::clone(meter), read, read_lately, head: 0, head_at: now }
    }

    /// Which deadline has passed, if one has.
    pub fn look(
        &mut self,
        activity: &Activity,
        timeouts: &ClientTimeouts,
        now: Instant,
    ) -> Option<FrameExpiry> {
        let meter = self.meter.borrow();
        let is_owed = activity.is_reading_owed(meter.unended());
        let unread = self.read.look(is_owed, meter.data_sent(), PROGRESS_BYTES_MIN, now);
        let unread_lately = self.read_lately.look(is_owed, meter.data_sent(), PROGRESS_LATELY_BYTES_MIN, now);
        let (head, is_under_way) = meter.head();
        if !is_under_way || head != self.head {
            (self.head, self.head_at) = (head, now);
        }
        if unread >= timeouts.body_stall {
            return Some(FrameExpiry::Stall);
        }
        if now.saturating_duration_since(self.head_at) >= timeouts.header {
            return Some(FrameExpiry::Head);
        }
        let is_idle = !activity.is_busy() && !is_under_way;
        let is_useless = is_idle || unread_lately >= LATELY;
        (is_useless && self.overload.gives_up(activity.exchanges_most.get())).then_some(FrameExpiry::GivenUp)
    }
}

/// When a client last made progress in reading what waits for it.
#[derive(Debug)]
struct ReadProgress {
    /// Bytes of answers that had been sent by then.
    sent: u64,
    at: Instant,
}

impl ReadProgress {
    fn new(now: Instant) -> ReadProgress {
        ReadProgress { sent: 0, at: now }
    }

    /// How long fewer than `least` bytes have been read while answers wait for the client. Only bytes of DATA frames
    /// count as progress, and only many of them, because a window that opens byte by byte holds as much memory as one
    /// that stays shut, and answers to PING go out whatever the windows are.
    fn look(&mut self, is_owed: bool, sent: u64, least: u64, now: Instant) -> Duration {
        if !is_owed || sent - self.sent >= least {
            *self = ReadProgress { sent, at: now };
        }
        now.saturating_duration_since(self.at)
    }
}

/// Bytes that a client must at least read in each `body_stall` while answers wait for it.
const PROGRESS_BYTES_MIN: u64 = 16 * 1024;
/// While memory is short, a client is given up that reads fewer bytes in this time: the same rate, looked at sooner,
/// because memory may not last as long as `body_stall`.
const PROGRESS_LATELY_BYTES_MIN: u64 = 1024;
const LATELY: Duration = Duration::from_secs(2);
