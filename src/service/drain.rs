//! How far a worker's drain has come, for everything that runs on it.

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
    /// The worker takes no new work from now on.
    pub fn begin(&self) {
        self.has_begun.set(true);
        self.begins.notify_waiters();
    }

    /// The deadline has come: what still runs is broken off.
    pub fn cut(&self) {
        self.is_cut.set(true);
    }

    /// Whether the worker takes no new work.
    pub fn has_begun(&self) -> bool {
        self.has_begun.get()
    }

    /// Whether the deadline has come.
    pub fn is_cut(&self) -> bool {
        self.is_cut.get()
    }

    /// Ready once it begins.
    pub async fn begins(&self) {
        let begins = self.begins.notified();
        if !self.has_begun.get() {
            begins.await;
        }
    }

    /// Whether it has begun, asked at every turn of one task. `begins` is [`Drain::begins`], polled the first time so
    /// that it wakes the task then; after that a flag tells.
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
