//! The rest of a request's body that nobody wants, over HTTP/1.1: read and thrown away behind the answer, so that the
//! client can go on with the connection.
//!
//! Many clients send the head of a POST and its body in two writes. A refusal is there before the second one; closed then,
//! the connection fails the request that the client sends next. What is too long to be read is not: its answer says
//! `Connection: close` (RFC 9112 section 9.6), and the server closes after a lingering close.

use std::cell::{Cell, RefCell};
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use http_body::Body;
use hyper::body::Incoming;

use super::activity::Activity;
use base::clock;

/// What is left of the body of a connection's current request.
#[derive(Debug, Default)]
pub struct BodyRest {
    body: RefCell<Option<Incoming>>,
    left: Cell<u64>,
    is_cut: Cell<bool>,
    waker: RefCell<Option<Waker>>,
}

impl BodyRest {
    /// Takes what is left of a body. `is_awaited`: the client waits for `100 Continue` before it sends any of it.
    pub fn leave(&self, body: Incoming, is_awaited: bool, activity: &Activity) {
        let length = body.size_hint().upper();
        if is_awaited || length.is_some_and(|length| length > READ_MAX) {
            self.is_cut.set(true);
            return;
        }
        activity.begin_rest();
        self.left.set(READ_MAX);
        self.body.replace(Some(body));
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }

    /// Whether a body was left that will not be read to its end, so that the connection ends with the answer.
    pub fn is_cut(&self) -> bool {
        self.is_cut.get()
    }

    /// Lets go of the body, whose rest is read without hyper from now on; how many bytes of it may come. `None`: it is not
    /// read.
    pub fn take(&self) -> Option<u64> {
        self.body.take().map(|_| self.left.get())
    }

    /// Reads what has come of it. Polled after every poll of hyper, which hands out the body.
    pub fn poll(&self, activity: &Activity, cx: &mut Context<'_>) {
        let mut body = self.body.borrow_mut();
        let Some(incoming) = body.as_mut() else {
            self.waker.borrow_mut().get_or_insert_with(|| cx.waker().clone());
            return;
        };
        let is_whole = loop {
            match Pin::new(&mut *incoming).poll_frame(cx) {
                Poll::Pending => return,
                Poll::Ready(None) => break true,
                Poll::Ready(Some(Err(_))) => break false,
                Poll::Ready(Some(Ok(frame))) => {
                    let bytes = frame.data_ref().map_or(0, Bytes::len) as u64;
                    let Some(left) = self.left.get().checked_sub(bytes) else { break false };
                    self.left.set(left);
                }
            }
        };
        *body = None;
        if is_whole {
            activity.end_rest(clock::instant());
        } else {
            // Never idle again, so that what is left of the body is not taken for a request. hyper ends the connection.
            self.is_cut.set(true);
        }
    }
}

/// The longest rest that is read, bytes; as Go's server.
const READ_MAX: u64 = 256 * 1024;
