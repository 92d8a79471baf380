//! One worker's connections to one server, and the requests that wait for one of them.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use bytes::Bytes;
use http_body::Body;
use tokio::sync::oneshot;

use super::http1::Http1;
use super::http2::Http2Connections;
use super::server::SharedServer;
use super::tally::ServerTally;

#[derive(Debug)]
pub(super) struct ServerPool<B: Body + 'static> {
    pub(super) idle: RefCell<Vec<Box<Http1<B>>>>,
    pub(super) shared: Http2Connections<B>,
    pub(super) waiters: RefCell<VecDeque<oneshot::Sender<Box<Http1<B>>>>>,
    pub(super) exchanges: Cell<u32>,
    pub(super) waiting: Cell<usize>,
    /// Requests whose bodies are on their way and that wait; the first of them holds the turn.
    pub(super) uploads_waiting: Cell<usize>,
    pub(super) uploads_turn: tokio::sync::Mutex<()>,
    pub(super) idle_shown: IdleGauge,
    /// What its answers are like, as this worker sees it. `None`: servers are not compared.
    pub(super) tally: Option<ServerTally>,
}

impl<B: Body + 'static> ServerPool<B> {
    pub(super) fn new(server: &Arc<SharedServer>, is_compared: bool) -> ServerPool<B> {
        ServerPool {
            idle: RefCell::default(),
            shared: Http2Connections::default(),
            waiters: RefCell::default(),
            exchanges: Cell::default(),
            waiting: Cell::default(),
            uploads_waiting: Cell::default(),
            uploads_turn: tokio::sync::Mutex::default(),
            idle_shown: IdleGauge { server: Arc::clone(server), shown: Cell::default() },
            tally: is_compared.then(|| server.tallies.row()),
        }
    }

    /// A place among this worker's requests that wait for a connection; `None` where as many wait as may.
    pub(super) fn wait<'a>(&'a self, server: &'a SharedServer, max: usize) -> Option<WaitingCount<'a>> {
        (self.waiting.get() < max).then(|| WaitingCount::new(&self.waiting, server))
    }
}

impl<B> ServerPool<B>
where
    B: Body<Data = Bytes> + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    /// The last one used that still lives.
    pub(super) fn take_idle(&self, now: Instant) -> Option<Box<Http1<B>>> {
        let mut idle = self.idle.borrow_mut();
        while let Some(mut connection) = idle.pop() {
            if connection.is_usable(now) && connection.is_still_kept(now) && connection.is_idle() {
                return Some(connection);
            }
        }
        None
    }

    /// Its server has left: idle connections are closed. Those at work are when their exchanges are over.
    pub(super) fn close_idle(&self) {
        self.idle.borrow_mut().clear();
        self.idle_shown.set(0);
        self.shared.close_idle();
    }
}

/// This worker's part of the idle connections shown for a server: told at every sweep, so that requests pay nothing.
#[derive(Debug)]
pub(super) struct IdleGauge {
    server: Arc<SharedServer>,
    shown: Cell<usize>,
}

impl IdleGauge {
    pub(super) fn set(&self, idle: usize) {
        let before = self.shown.replace(idle);
        if before != idle {
            // Wraps where the number falls, and so does the sum.
            let rise = idle.wrapping_sub(before);
            self.server.idle.fetch_add(rise, Ordering::Relaxed);
        }
    }
}

impl Drop for IdleGauge {
    fn drop(&mut self) {
        self.set(0);
    }
}

/// Counts a request that waits, and shows the other workers that somebody does, for as long as it does.
pub(super) struct WaitingCount<'a> {
    _here: CountGuard<'a>,
    server: &'a SharedServer,
}

impl<'a> WaitingCount<'a> {
    pub(super) fn new(here: &'a Cell<usize>, server: &'a SharedServer) -> WaitingCount<'a> {
        server.waiting.fetch_add(1, Ordering::Relaxed);
        WaitingCount { _here: CountGuard::new(here), server }
    }
}

impl Drop for WaitingCount<'_> {
    fn drop(&mut self) {
        self.server.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Counts one more for as long as it lives.
pub(super) struct CountGuard<'a>(&'a Cell<usize>);

impl<'a> CountGuard<'a> {
    pub(super) fn new(count: &'a Cell<usize>) -> CountGuard<'a> {
        count.set(count.get() + 1);
        CountGuard(count)
    }
}

impl Drop for CountGuard<'_> {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}
