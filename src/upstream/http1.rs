//! HTTP/1.1 connections to upstreams, driven by whoever holds them.
//!
//! A connection has no task of its own: the request that holds it polls hyper's side of it, so an exchange wakes
//! nobody but itself. Which connection a request gets, and what becomes of it afterwards, is the pool's.

use std::cell::Cell;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use http_body::Body;
use hyper::client::conn::http1;

use super::connect::{self, CountedStream};
use super::deadline::Deadline;
use super::pool::Open;

/// An HTTP/1.1 connection, held by at most one request.
#[derive(Debug)]
pub struct Http1<B: Body + 'static> {
    pub(super) sender: http1::SendRequest<B>,
    /// hyper's side of it; `None` once it has ended in an error or a close.
    driver: Option<http1::Connection<CountedStream, B>>,
    /// What the server has sent, bytes.
    received: Rc<Cell<u64>>,
    /// Of that, what it had sent when the last request went.
    received_before: u64,
    /// It has ended, and its stream can be taken out: the protocol was switched, or the server closed.
    ended: bool,
    /// Kept with the connection, so that a deadline costs no timer each time.
    pub(super) deadline: Deadline,
    pub(super) retires: Instant,
    pub(super) idle_since: Instant,
    _open: Open,
}

/// What is left of a connection whose protocol was switched: the stream, and bytes already read from it.
pub struct Upgraded {
    /// The stream.
    pub stream: Box<dyn connect::Stream>,
    /// What the server sent after its answer's head.
    pub read: bytes::Bytes,
}

impl std::fmt::Debug for Upgraded {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "Upgraded({} bytes read)", self.read.len())
    }
}

impl<B> Http1<B>
where
    B: Body + 'static,
    B::Data: Send,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    /// A connection that has just been opened.
    pub(super) fn new(
        (sender, driver, received): connect::Http1<B>,
        deadline: Deadline,
        retires: Instant,
        now: Instant,
        open: Open,
    ) -> Http1<B> {
        Http1 {
            sender,
            driver: Some(driver),
            received,
            received_before: 0,
            ended: false,
            deadline,
            retires,
            idle_since: now,
            _open: open,
        }
    }

    /// Notes that a request goes.
    pub(super) fn begin(&mut self) {
        self.received_before = self.received.get();
    }

    /// Whether more came since the last request went than the head of an answer may take.
    pub(super) fn is_flooded(&self) -> bool {
        self.received.get() - self.received_before > HEAD_BYTES_MAX
    }

    /// Lets the connection read and write what it can. Ended, it keeps its stream if it may have been switched.
    fn drive(&mut self, cx: &mut Context<'_>) {
        let Some(driver) = self.driver.as_mut().filter(|_| !self.ended) else { return };
        match Pin::new(driver).poll(cx) {
            Poll::Pending => {}
            Poll::Ready(Ok(())) => self.ended = true,
            Poll::Ready(Err(error)) => {
                tracing::debug!(%error, "upstream connection ended");
                self.driver = None;
            }
        }
    }

    /// Whether the last exchange is over to its end and the server has not closed. Nobody has looked since.
    pub(super) fn is_idle(&mut self) -> bool {
        self.drive(&mut Context::from_waker(Waker::noop()));
        self.driver.is_some() && !self.ended && self.sender.is_ready()
    }

    /// Asks `poll`, driving the connection that what is asked depends on. What comes from the connection comes within
    /// this call, so nobody need be woken for it: a waker there would only wake the task that is running.
    pub(super) fn poll_driven<T>(
        &mut self,
        cx: &mut Context<'_>,
        mut poll: impl FnMut(&mut Context<'_>) -> Poll<T>,
    ) -> Poll<T> {
        let mut here = Context::from_waker(Waker::noop());
        if let Poll::Ready(known) = poll(&mut here) {
            return Poll::Ready(known);
        }
        self.drive(cx);
        let mut polled = poll(&mut here);
        if polled.is_pending() && self.ended {
            // Nothing more will come: without its other end, what is asked says so.
            self.driver = None;
            polled = poll(&mut here);
        }
        if polled.is_pending() && !tokio::task::coop::has_budget_remaining() {
            // The runtime made it wait, not the connection, and would have woken nobody.
            cx.waker().wake_by_ref();
        }
        polled
    }

    /// Whether another request may follow: one whose answer came before it was whole leaves a connection of no use.
    pub(super) fn is_reusable(&self, now: Instant) -> bool {
        now < self.retires && self.driver.is_some() && self.sender.is_ready()
    }

    /// The stream under it, where the server has switched its protocol.
    pub(super) fn into_upgraded(self) -> Option<Upgraded> {
        let parts = self.driver.filter(|_| self.ended)?.into_parts();
        Some(Upgraded { stream: parts.io.into_inner().stream, read: parts.read_buf })
    }
}

/// What a server may send before the head of its answer is whole: one head is bounded by the buffer, and this bounds
/// interim ones before it.
const HEAD_BYTES_MAX: u64 = 2 * connect::BUFFER_BYTES as u64;
