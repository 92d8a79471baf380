//! The deadlines of one client's connection while it is served: nothing said, half a head, a body that stands still.
//!
//! What the connection is doing is the [`Activity`]'s to know, what becomes of it then the connection's.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use tokio::time::{Sleep, sleep};

use super::frame_timer::{FrameExpiry, FrameTimer};
use crate::clock;
use crate::service::activity::{Activity, Phase};
use crate::service::config::Timeouts;

/// Which deadline passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expiry {
    /// It has been without a request long enough to rest.
    IdleConnection,
    /// It has been without a request too long.
    Idle,
    /// A head takes too long.
    Head,
    /// The client owes bytes, or the reading of ours, for too long.
    Stall,
    /// None: it is time to look whether a client that waits is there.
    Presence,
}

/// Looks at the activity now and then. One timer a connection, set a few times a minute: requests cost it nothing, and
/// a deadline is kept to a quarter of itself. The first look comes early: many connections have one request.
pub struct ConnectionTimer<'a> {
    timeouts: &'a Timeouts,
    rest: Option<Duration>,
    period: Duration,
    sleep: Pin<Box<Sleep>>,
    /// Whether the sleep will wake the task.
    is_set: bool,
    moved: u64,
    moved_at: Instant,
    /// Since when, and at what count of moved bytes, the client has owed us bytes.
    owed: (Instant, u64),
    /// The deadlines that only HTTP/2 has.
    frames: Option<FrameTimer>,
}

impl<'a> ConnectionTimer<'a> {
    pub fn new(
        timeouts: &'a Timeouts,
        rest: Option<Duration>,
        frames: Option<FrameTimer>,
    ) -> ConnectionTimer<'a> {
        let shortest = timeouts.header.min(timeouts.idle).min(timeouts.body_stall);
        let period = (shortest / 4).clamp(PERIOD_MIN, PERIOD_MAX);
        let moved_at = clock::instant();
        ConnectionTimer {
            timeouts,
            rest,
            period,
            sleep: Box::pin(sleep(rest.map_or(period, |rest| rest.min(period)))),
            is_set: false,
            moved: 0,
            moved_at,
            owed: (moved_at, 0),
            frames,
        }
    }

    /// Leaves everything be for `time`.
    pub fn give(&mut self, time: Duration) {
        self.sleep.as_mut().reset(tokio::time::Instant::now() + time);
        self.is_set = false;
    }

    /// Asked at every turn of the one task that serves the connection: until the sleep is over it costs a look at it.
    pub fn poll(&mut self, activity: &Activity, cx: &mut Context<'_>) -> Poll<Expiry> {
        loop {
            if self.is_set && !self.sleep.is_elapsed() {
                return Poll::Pending;
            }
            // Out of budget the runtime asks for another turn and leaves the sleep as it is.
            self.is_set = tokio::task::coop::has_budget_remaining();
            ready!(self.sleep.as_mut().poll(cx));
            let now = clock::instant();
            if let Some(expiry) = self.look(activity, now) {
                return Poll::Ready(expiry);
            }
            let next = self.next_look(activity, now);
            self.sleep.as_mut().reset(next.into());
            if self.rest.is_some() && activity.is_busy() {
                self.is_set = false;
                return Poll::Ready(Expiry::Presence);
            }
        }
    }

    /// A connection that has nothing to do is looked at when it may rest, however long a period is.
    fn next_look(&self, activity: &Activity, now: Instant) -> Instant {
        match (activity.phase(), self.rest) {
            (Phase::Idle(since), Some(rest)) => (since + rest).clamp(now + PERIOD_MIN, now + self.period),
            (Phase::Busy, Some(_)) => now + self.period.min(activity.presence().look_after()),
            _ => now + self.period,
        }
    }

    fn look(&mut self, activity: &Activity, now: Instant) -> Option<Expiry> {
        let past = |since: Instant, limit: Duration| now.saturating_duration_since(since) >= limit;
        if activity.moved() != self.moved || !activity.is_owed() {
            self.moved = activity.moved();
            self.moved_at = now;
        } else if past(self.moved_at, self.timeouts.body_stall) {
            return Some(Expiry::Stall);
        }
        if self.drips(activity, now) {
            return Some(Expiry::Stall);
        }
        match self.frames.as_mut().and_then(|frames| frames.look(activity, self.timeouts, now)) {
            Some(FrameExpiry::Head) => return Some(Expiry::Head),
            Some(FrameExpiry::Stall) => return Some(Expiry::Stall),
            None => {}
        }
        match activity.phase() {
            Phase::Busy => None,
            // What the client has not read yet is still ours to bring out: the stall above bounds that.
            _ if activity.is_write_blocked() => None,
            Phase::Idle(since) if past(since, self.timeouts.idle) => Some(Expiry::Idle),
            Phase::Idle(since) if self.rest.is_some_and(|rest| past(since, rest)) => {
                Some(Expiry::IdleConnection)
            }
            Phase::Idle(_) => None,
            // HTTP/2 frames are not a head: its connections have no rest, and no head to wait for.
            Phase::Head(since) if self.rest.is_some() => {
                past(since, self.timeouts.header).then_some(Expiry::Head)
            }
            Phase::Head(since) => past(since, self.timeouts.idle).then_some(Expiry::Idle),
        }
    }
}

impl ConnectionTimer<'_> {
    /// Whether a client moves so little that only the deadline is kept from passing. Over HTTP/1 alone: a stream of
    /// HTTP/2 may well be open for hours and carry a message now and then.
    fn drips(&mut self, activity: &Activity, now: Instant) -> bool {
        let (since, moved) = self.owed;
        let is_due = now.saturating_duration_since(since) >= self.timeouts.body_stall;
        if activity.is_owed() && self.rest.is_some() && !is_due {
            return false;
        }
        self.owed = (now, activity.moved());
        activity.is_owed() && self.rest.is_some() && activity.moved().wrapping_sub(moved) < OWED_BYTES_MIN
    }
}

/// What a client that owes bytes has to move in the time it may stand still: slower is an attack.
const OWED_BYTES_MIN: u64 = 1024;
const PERIOD_MIN: Duration = Duration::from_millis(10);
const PERIOD_MAX: Duration = Duration::from_millis(500);

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_timer_that_was_set_in_a_turn_without_budget_rings() {
        let timeouts = Timeouts { idle: Duration::from_millis(100), ..Timeouts::default() };
        let activity = Activity::new(clock::instant() - timeouts.idle);
        let mut watch = ConnectionTimer::new(&timeouts, None, None);
        let mut turns = 0;
        let expired = poll_fn(|cx| {
            turns += 1;
            while turns == 1 && tokio::task::coop::has_budget_remaining() {
                let _ = std::pin::pin!(tokio::task::coop::consume_budget()).poll(cx);
            }
            watch.poll(&activity, cx)
        });
        tokio::select! {
            expiry = expired => assert_eq!(expiry, Expiry::Idle),
            () = tokio::task::unconstrained(sleep(Duration::from_secs(3_600))) => panic!("it never rings"),
        }
    }
}
