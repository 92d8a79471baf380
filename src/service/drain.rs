//! The state of a worker's drain, which its tasks watch. It ends nothing itself; `server::run` drives it.

use std::cell::Cell;
use std::future::Future;
use std::pin::Pin;
use std::task::Context;

use tokio::sync::Notify;

/// One worker's drain.
#[derive(Debug, Default)]
pub struct Drain {
    has_begun: Cell<bool>,
    is_cut: Cell<bool>,
    begins: Notify,
}

impl Drain {
    /// From now on the worker takes no new work.
    pub fn begin(&self) {
        self.has_begun.set(true);
        self.begins.notify_waiters();
    }

    /// The deadline has come: what still runs is about to be dropped, and logs that the drain ended it.
    pub fn cut(&self) {
        self.is_cut.set(true);
    }

    /// Whether [`Drain::begin`] was called.
    pub fn has_begun(&self) -> bool {
        self.has_begun.get()
    }

    /// Whether [`Drain::cut`] was called.
    pub fn is_cut(&self) -> bool {
        self.is_cut.get()
    }

    /// Waits until the drain begins; ready at once if it has.
    pub async fn begins(&self) {
        // Made before the flag is read: `notify_waiters` wakes only those that exist already.
        let begins = self.begins.notified();
        if !self.has_begun.get() {
            begins.await;
        }
    }

    /// Whether it has begun, for a task that asks at every poll. `begins` is [`Drain::begins`]; it is polled once, which
    /// registers the task to be woken, and taken. After that reading the flag is enough.
    pub fn poll_begun<F>(&self, begins: &mut Option<Pin<&mut F>>, cx: &mut Context<'_>) -> bool
    where
        F: Future<Output = ()>,
    {
        match begins.take() {
            Some(begins) => begins.poll(cx).is_ready(),
            None => self.has_begun.get(),
        }
    }
}
