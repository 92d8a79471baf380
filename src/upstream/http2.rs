//! HTTP/2 connections to upstreams: shared by requests up to the stream limit, the least loaded first. They are tasks
//! and drive themselves; one is opened at a time, which is the pool's business.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Instant;

use http_body::Body;
use hyper::client::conn::http2;

use super::pool::Open;

/// An HTTP/2 connection, shared by requests.
#[derive(Debug)]
pub(super) struct Http2<B> {
    pub(super) sender: http2::SendRequest<B>,
    streams: Cell<usize>,
    retires: Instant,
    _open: Open,
}

/// One worker's HTTP/2 connections to one server.
#[derive(Debug)]
pub(super) struct Shared<B> {
    connections: RefCell<Vec<Rc<Http2<B>>>>,
    /// Held by the request that opens a connection.
    pub(super) opening: tokio::sync::Mutex<()>,
}

impl<B> Default for Shared<B> {
    fn default() -> Self {
        Shared { connections: RefCell::default(), opening: tokio::sync::Mutex::default() }
    }
}

impl<B> Shared<B>
where
    B: Body + 'static,
    B::Data: Send,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    /// A stream on the least loaded HTTP/2 connection that has room for one.
    pub(super) fn share(&self, now: Instant, streams_max: usize) -> Option<Rc<Http2<B>>> {
        let mut shared = self.connections.borrow_mut();
        shared.retain(|connection| !connection.sender.is_closed() && now < connection.retires);
        let least = shared.iter().min_by_key(|connection| connection.streams.get())?;
        let room = least.streams.get() < streams_max;
        room.then(|| {
            least.streams.set(least.streams.get() + 1);
            Rc::clone(least)
        })
    }

    /// Takes in a connection that has just been opened, with one stream on it: the caller's.
    pub(super) fn add(&self, sender: http2::SendRequest<B>, retires: Instant, open: Open) -> Rc<Http2<B>> {
        let connection = Rc::new(Http2 { sender, streams: Cell::new(1), retires, _open: open });
        self.connections.borrow_mut().push(Rc::clone(&connection));
        connection
    }

    /// Lets go of what is closed, or too old and without a stream.
    pub(super) fn sweep(&self, now: Instant) {
        self.connections.borrow_mut().retain(|connection| {
            !connection.sender.is_closed() && (connection.streams.get() > 0 || now < connection.retires)
        });
    }
}

impl<B> Http2<B> {
    /// A stream on it is over.
    pub(super) fn leave(&self) {
        self.streams.set(self.streams.get().saturating_sub(1));
    }
}
