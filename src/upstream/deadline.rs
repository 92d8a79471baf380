//! A timer that is cheap to push back.
//!
//! Almost no deadline of a proxy ever comes: each exchange sets one and then ends. Because entering and leaving the
//! runtime's timer wheel for each would cost more than the decision about a limit, a deadline moves later for
//! nothing: the underlying sleep stays where it is, fires early once, and is then set to what is wanted by then.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use tokio::time::{Instant as TokioInstant, Sleep, sleep_until};

#[derive(Debug)]
pub struct ReusableDeadline {
    sleep: Pin<Box<Sleep>>,
    at: Instant,
}

impl ReusableDeadline {
    pub fn new(at: Instant) -> ReusableDeadline {
        ReusableDeadline { sleep: Box::pin(sleep_until(TokioInstant::from_std(at))), at }
    }

    /// Moves it. Later than before costs nothing; earlier than the sleep stands costs a turn of the timer wheel.
    pub fn set(&mut self, at: Instant) {
        self.at = at;
        if at < self.sleep.deadline().into_std() {
            self.sleep.as_mut().reset(TokioInstant::from_std(at));
        }
    }

    /// Ready once the deadline has passed; else the task is woken when it may have.
    pub fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            if self.sleep.as_mut().poll(cx).is_pending() {
                // Looked at here, because a peer that never pauses uses up what a task may do in one turn, in every
                // turn, and then the runtime lets no timer be ready either.
                let is_hidden =
                    !tokio::task::coop::has_budget_remaining() && base::clock::instant() >= self.at;
                return if is_hidden { Poll::Ready(()) } else { Poll::Pending };
            }
            if self.sleep.deadline().into_std() >= self.at {
                return Poll::Ready(());
            }
            self.sleep.as_mut().reset(TokioInstant::from_std(self.at));
        }
    }
}

/// A bound so far away that it never comes: thirty years, as the runtime's own "far future".
pub const FAR: Duration = Duration::from_secs(86_400 * 365 * 30);

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::poll_fn;

    fn runtime() -> tokio::runtime::Runtime {
        tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .expect("a runtime")
    }

    #[test]
    fn a_later_deadline_is_not_met_early() {
        runtime().block_on(async {
            let start = TokioInstant::now();
            let mut deadline = ReusableDeadline::new(start.into_std() + Duration::from_secs(1));
            deadline.set(start.into_std() + Duration::from_secs(5));
            poll_fn(|cx| deadline.poll(cx)).await;
            assert!(start.elapsed() >= Duration::from_secs(5));
            assert!(start.elapsed() < Duration::from_secs(6));
        });
    }

    #[test]
    fn an_earlier_deadline_is_met_early() {
        runtime().block_on(async {
            let start = TokioInstant::now();
            let mut deadline = ReusableDeadline::new(start.into_std() + Duration::from_secs(60));
            deadline.set(start.into_std() + Duration::from_secs(2));
            poll_fn(|cx| deadline.poll(cx)).await;
            assert!(start.elapsed() < Duration::from_secs(3));
        });
    }
}
