//! The deadlines of one client's connection while hyper drives it: an idle connection, half a head, a body that does not
//! move.
//!
//! [`Activity`] knows what the connection is doing. The timer only says which deadline has passed; the connection decides
//! what follows from that.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use tokio::time::{Sleep, sleep};

use super::frame_timer::{FrameExpiry, FrameTimer};
use super::late_body::LATE_AFTER;
use crate::service::activity::{Activity, ConnectionPhase};
use crate::service::config::ClientTimeouts;
use base::clock;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expiry {
    /// It has been without a request for long enough to be taken out of hyper.
    IdleConnection,
    /// It has been without a request for so long that it is closed.
    Idle,
    /// It has no request, or its client hardly reads, and memory is short.
    GivenUp,
    Head,
    /// The client has neither sent what it owes nor read what was sent for too long.
    Stall,
    /// Nobody wants the rest of a body, and it is late.
    Rest,
    /// No deadline: it is time to check whether a client that waits for its answer is still connected.
    Presence,
}

/// Looks at the activity periodically instead of being set by every request, so that a request costs it nothing; a
/// deadline is met to within a quarter of itself. The first look comes early, because many connections have only one
/// request.
pub struct ConnectionTimer<'a> {
    timeouts: &'a ClientTimeouts,
    /// How long an idle connection stays in hyper; `None` over HTTP/2, where it always does.
    idle_after: Option<Duration>,
    period: Duration,
    sleep: Pin<Box<Sleep>>,
    /// Whether the sleep will wake the task: only then can a poll return early.
    is_set: bool,
    moved: u64,
    moved_at: Instant,
    /// Since when the client has owed us bytes, and how many had moved by then.
    owed: (Instant, u64),
    frames: Option<FrameTimer>,
}

impl<'a> ConnectionTimer<'a> {
    pub fn new(
        timeouts: &'a ClientTimeouts,
        idle_after: Option<Duration>,
        frames: Option<FrameTimer>,
    ) -> ConnectionTimer<'a> {
        let shortest = timeouts.header.min(timeouts.idle).min(timeouts.body_stall);
        let period = (shortest / 4).clamp(PERIOD_MIN, PERIOD_MAX);
        let moved_at = clock::instant();
        ConnectionTimer {
            timeouts,
            idle_after,
            period,
            sleep: Box::pin(sleep(idle_after.map_or(period, |after| after.min(period)))),
            is_set: false,
            moved: 0,
            moved_at,
            owed: (moved_at, 0),
            frames,
        }
    }

    /// Looks next when `time` has passed.
    pub fn wait(&mut self, time: Duration) {
        self.sleep.as_mut().reset(tokio::time::Instant::now() + time);
        self.is_set = false;
    }

    /// Polled at every poll of the connection's task: until the sleep is over, that costs one comparison.
    pub fn poll(&mut self, activity: &Activity, cx: &mut Context<'_>) -> Poll<Expiry> {
        loop {
            if self.is_set && !self.sleep.is_elapsed() {
                return Poll::Pending;
            }
            // Only with budget left, because without it tokio schedules the task again and does not register the
            // sleep's waker.
            self.is_set = tokio::task::coop::has_budget_remaining();
            ready!(self.sleep.as_mut().poll(cx));
            let now = clock::instant();
            if let Some(expiry) = self.look(activity, now) {
                return Poll::Ready(expiry);
            }
            let next = self.next_look(activity, now);
            self.sleep.as_mut().reset(next.into());
            if self.idle_after.is_some() && activity.is_busy() {
                self.is_set = false;
                return Poll::Ready(Expiry::Presence);
            }
        }
    }

    /// A connection without a request is looked at exactly when it becomes idle, even if the period is longer.
    fn next_look(&self, activity: &Activity, now: Instant) -> Instant {
        match (activity.phase(), self.idle_after) {
            (ConnectionPhase::Idle(since), Some(after)) => {
                (since + after).clamp(now + PERIOD_MIN, now + self.period)
            }
            (ConnectionPhase::Busy, Some(_)) if let Some(since) = activity.rest_since() => {
                (since + LATE_AFTER).clamp(now + PERIOD_MIN, now + self.period)
            }
            (ConnectionPhase::Busy, Some(_)) => now + self.period.min(activity.presence.get().look_after()),
            _ => now + self.period,
        }
    }

    fn look(&mut self, activity: &Activity, now: Instant) -> Option<Expiry> {
        let past = |since: Instant, limit: Duration| now.saturating_duration_since(since) >= limit;
        if activity.moved.get() != self.moved || !activity.is_owed() {
            self.moved = activity.moved.get();
            self.moved_at = now;
        } else if past(self.moved_at, self.timeouts.body_stall) {
            return Some(Expiry::Stall);
        }
        if self.is_dripping(activity, now) {
            return Some(Expiry::Stall);
        }
        match self.frames.as_mut().and_then(|frames| frames.look(activity, self.timeouts, now)) {
            Some(FrameExpiry::Head) => return Some(Expiry::Head),
            Some(FrameExpiry::Stall) => return Some(Expiry::Stall),
            Some(FrameExpiry::GivenUp) => return Some(Expiry::GivenUp),
            None => {}
        }
        match activity.phase() {
            ConnectionPhase::Busy => activity.rest_since().and_then(|since| {
                (!activity.write_blocked.get() && past(since, LATE_AFTER)).then_some(Expiry::Rest)
            }),
            // Not idle, because the client has not read everything yet; the stall above bounds that.
            _ if activity.write_blocked.get() => None,
            ConnectionPhase::Idle(since) if past(since, self.timeouts.idle) => Some(Expiry::Idle),
            ConnectionPhase::Idle(since) if self.idle_after.is_some_and(|after| past(since, after)) => {
                Some(Expiry::IdleConnection)
            }
            ConnectionPhase::Idle(_) => None,
            // Over HTTP/2 any byte counts as the begin of a head here (a PING, say), so only `idle` applies: the deadline
            // of real heads is the frame timer's.
            ConnectionPhase::Head(since) if self.idle_after.is_some() => {
                past(since, self.timeouts.header).then_some(Expiry::Head)
            }
            ConnectionPhase::Head(since) => past(since, self.timeouts.idle).then_some(Expiry::Idle),
        }
    }
}

impl ConnectionTimer<'_> {
    /// Whether a client moves just enough bytes to keep the stall's deadline from passing. Checked over HTTP/1 only,
    /// because an HTTP/2 stream may be open for hours and carry a message now and then.
    fn is_dripping(&mut self, activity: &Activity, now: Instant) -> bool {
        let (since, moved) = self.owed;
        let is_due = now.saturating_duration_since(since) >= self.timeouts.body_stall;
        if activity.is_owed() && self.idle_after.is_some() && !is_due {
            return false;
        }
        self.owed = (now, activity.moved.get());
        activity.is_owed()
            && self.idle_after.is_some()
            && activity.moved.get().wrapping_sub(moved) < OWED_BYTES_MIN
    }
}

/// Bytes that a client must at least move in each `body_stall` while it owes bytes; slower is an attack (slowloris).
const OWED_BYTES_MIN: u64 = 1024;
const PERIOD_MIN: Duration = Duration::from_millis(10);
const PERIOD_MAX: Duration = Duration::from_millis(500);

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_timer_that_was_set_in_a_poll_without_budget_fires() {
        let timeouts = ClientTimeouts { idle: Duration::from_millis(100), ..ClientTimeouts::default() };
        let activity = Activity::new(clock::instant() - timeouts.idle);
        let mut timer = ConnectionTimer::new(&timeouts, None, None);
        let mut polls = 0;
        let expired = poll_fn(|cx| {
            polls += 1;
            while polls == 1 && tokio::task::coop::has_budget_remaining() {
                let _ = std::pin::pin!(tokio::task::coop::consume_budget()).poll(cx);
            }
            timer.poll(&activity, cx)
        });
        tokio::select! {
            expiry = expired => assert_eq!(expiry, Expiry::Idle),
            () = tokio::task::unconstrained(sleep(Duration::from_secs(3_600))) => panic!("it never fires"),
        }
    }
}
