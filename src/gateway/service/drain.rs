//! The state of a worker's drain, which its tasks watch. It ends nothing itself; `server::run` drives it.

use std::cell::Cell;
use std::future::Future;
use std::pin::Pin;
use std::task::Context;

use tokio::sync::Notify;

/// One worker's drain: five moments, each of which comes once. A process that stops lets the first two come together;
/// one whose sockets another process has taken over leaves idle clients a while to be served once more.
#[derive(Debug, Default)]
pub struct Drain {
    /// Answers say that it ends.
    pub leaves: OneTimeEvent,
    /// The worker takes no new work.
    pub begins: OneTimeEvent,
    /// Connections without a request are closed.
    pub idle_closes: OneTimeEvent,
    /// Tunnels are told to end.
    pub tunnels_end: OneTimeEvent,
    /// The deadline, as [`Drain::cut`] says.
    pub cuts: OneTimeEvent,
    /// Tunnels that stand: the worker waits for their farewell only if there are any.
    tunnels: Cell<usize>,
}

/// A tunnel that stands, until it is dropped.
#[derive(Debug)]
pub struct Tunnel<'a>(&'a Drain);

impl Drop for Tunnel<'_> {
    fn drop(&mut self) {
        self.0.tunnels.update(|tunnels| tunnels - 1);
    }
}

/// Something that happens once, and that tasks wait for.
#[derive(Debug, Default)]
pub struct OneTimeEvent {
    has_come: Cell<bool>,
    comes: Notify,
}

impl OneTimeEvent {
    fn come(&self) {
        if !self.has_come.replace(true) {
            self.comes.notify_waiters();
        }
    }

    /// Waits until it comes; ready at once if it has.
    pub async fn wait(&self) {
        // Made before the flag is read, because `notify_waiters` wakes only those that exist already.
        let comes = self.comes.notified();
        if !self.has_come.get() {
            comes.await;
        }
    }

    /// Whether it has come, for a task that asks at every poll. `wait` is [`OneTimeEvent::wait`]; it is polled once, which
    /// registers the task to be woken, and taken. After that reading the flag is enough.
    pub fn poll<F>(&self, wait: &mut Option<Pin<&mut F>>, cx: &mut Context<'_>) -> bool
    where
        F: Future<Output = ()>,
    {
        match wait.take() {
            Some(wait) => wait.poll(cx).is_ready(),
            None => self.has_come.get(),
        }
    }
}

impl Drain {
    /// From now on answers tell their clients to connect anew, and new connections are still taken.
    pub fn leave(&self) {
        self.leaves.come();
    }

    /// From now on the worker takes no new work.
    pub fn begin(&self) {
        self.leave();
        self.begins.come();
    }

    /// Connections without a request are closed from now on.
    pub fn close_idle(&self) {
        self.idle_closes.come();
    }

    /// Tunnels are told to end from now on.
    pub fn end_tunnels(&self) {
        self.tunnels_end.come();
    }

    /// Counts a tunnel for as long as the value lives.
    pub fn tunnel(&self) -> Tunnel<'_> {
        self.tunnels.update(|tunnels| tunnels + 1);
        Tunnel(self)
    }

    pub fn has_tunnels(&self) -> bool {
        self.tunnels.get() > 0
    }

    /// The deadline has come: what still runs is about to be dropped, and logs that the drain ended it.
    pub fn cut(&self) {
        self.cuts.come();
    }

    /// Whether another process accepts on the same sockets: it has begun, and idle clients are served once more.
    pub fn is_handed_over(&self) -> bool {
        self.begins.has_come.get() && !self.closes_idle()
    }

    /// Whether a connection has no place here once its answer is out.
    pub fn closes_idle(&self) -> bool {
        self.idle_closes.has_come.get()
    }

    /// Whether an answer is to tell its client to connect anew: idle connections stay open meanwhile, because a client's
    /// next request may be on its way already.
    pub fn wants_last_answers(&self) -> bool {
        self.leaves.has_come.get() && !self.closes_idle()
    }

    pub fn is_cut(&self) -> bool {
        self.cuts.has_come.get()
    }
}
