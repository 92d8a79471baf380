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
    leaves: OneTimeEvent,
    begins: OneTimeEvent,
    idle_closes: OneTimeEvent,
    tunnels_end: OneTimeEvent,
    cuts: OneTimeEvent,
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
struct OneTimeEvent {
    has_come: Cell<bool>,
    comes: Notify,
}

impl OneTimeEvent {
    fn come(&self) {
        if !self.has_come.replace(true) {
            self.comes.notify_waiters();
        }
    }

    async fn wait(&self) {
        // Made before the flag is read, because `notify_waiters` wakes only those that exist already.
        let comes = self.comes.notified();
        if !self.has_come.get() {
            comes.await;
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

    /// Waits until answers say that it ends; ready at once if they do.
    pub async fn leaves(&self) {
        self.leaves.wait().await;
    }

    /// Waits until the drain begins; ready at once if it has.
    pub async fn begins(&self) {
        self.begins.wait().await;
    }

    /// Ready once connections without a request are closed.
    pub async fn idle_closes(&self) {
        self.idle_closes.wait().await;
    }

    /// Ready once tunnels are told to end.
    pub async fn tunnels_end(&self) {
        self.tunnels_end.wait().await;
    }

    /// Ready at the deadline, as [`Drain::cut`] says.
    pub async fn cuts(&self) {
        self.cuts.wait().await;
    }

    /// Whether answers say that it ends, for a task that asks at every poll. `leaves` is [`Drain::leaves`]; it is polled once,
    /// which registers the task to be woken, and taken. After that reading the flag is enough.
    pub fn poll_leaves<F>(&self, leaves: &mut Option<Pin<&mut F>>, cx: &mut Context<'_>) -> bool
    where
        F: Future<Output = ()>,
    {
        poll(&self.leaves, leaves, cx)
    }

    /// The same as [`Drain::poll_leaves`], of [`Drain::idle_closes`].
    pub fn poll_idle_closes<F>(&self, closes: &mut Option<Pin<&mut F>>, cx: &mut Context<'_>) -> bool
    where
        F: Future<Output = ()>,
    {
        poll(&self.idle_closes, closes, cx)
    }

    /// The same as [`Drain::poll_leaves`], of [`Drain::cuts`].
    pub fn poll_cuts<F>(&self, cuts: &mut Option<Pin<&mut F>>, cx: &mut Context<'_>) -> bool
    where
        F: Future<Output = ()>,
    {
        poll(&self.cuts, cuts, cx)
    }
}

fn poll<F>(moment: &OneTimeEvent, comes: &mut Option<Pin<&mut F>>, cx: &mut Context<'_>) -> bool
where
    F: Future<Output = ()>,
{
    match comes.take() {
        Some(comes) => comes.poll(cx).is_ready(),
        None => moment.has_come.get(),
    }
}
