//! Keeps request bodies over HTTP/2 that were not read to the end before the answer, for a moment.
//!
//! Dropping such a body resets its stream (RFC 9113 section 8.1), and many clients that meet the reset while they send
//! report an error and lose the answer. While the body is kept, the client may send what its window allows, reads the
//! answer, and stops on its own. Nothing is read from it, and the number of kept bodies is bounded. Over HTTP/1.1 the
//! connection is closed instead, by hyper and `server::linger`.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::Version;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;

use crate::clock;

/// A request's body as it is received.
pub struct Received {
    incoming: Option<Incoming>,
    /// Where it goes if it is dropped before its end; `None` if it can just be dropped.
    unread: Option<Rc<Unread>>,
}

impl Received {
    /// If the body is dropped before its end, `unread` keeps it.
    pub fn new(incoming: Incoming, version: Version, unread: &Rc<Unread>) -> Received {
        let may_linger = version == Version::HTTP_2 && !incoming.is_end_stream();
        Received { incoming: Some(incoming), unread: may_linger.then(|| Rc::clone(unread)) }
    }
}

impl std::fmt::Debug for Received {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_tuple("Received").field(&self.incoming).finish()
    }
}

impl Body for Received {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let received = self.get_mut();
        let Some(incoming) = &mut received.incoming else { return Poll::Ready(None) };
        let polled = Pin::new(incoming).poll_frame(cx);
        if matches!(polled, Poll::Ready(None | Some(Err(_)))) {
            received.unread = None;
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.incoming.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.incoming.as_ref().map_or_else(SizeHint::default, Body::size_hint)
    }
}

impl Drop for Received {
    fn drop(&mut self) {
        if let (Some(unread), Some(incoming)) = (&self.unread, self.incoming.take())
            && !incoming.is_end_stream()
        {
            unread.keep(incoming);
        }
    }
}

/// The bodies one worker keeps unread, the oldest first.
#[derive(Debug, Default)]
pub struct Unread {
    kept: RefCell<VecDeque<(Instant, Incoming)>>,
}

impl Unread {
    /// Keeps a body; drops the oldest if there are too many.
    fn keep(&self, incoming: Incoming) {
        let mut kept = self.kept.borrow_mut();
        let oldest = if kept.len() < KEPT_MAX { None } else { kept.pop_front() };
        kept.push_back((clock::instant(), incoming));
        drop(kept);
        drop(oldest);
    }

    /// Drops the bodies that have been kept for `KEPT_FOR`.
    pub fn sweep(&self, now: Instant) {
        let mut kept = self.kept.borrow_mut();
        let over = kept.partition_point(|(since, _)| *since + KEPT_FOR <= now);
        let over: Vec<_> = kept.drain(..over).collect();
        drop(kept);
        drop(over);
    }
}

/// How long a body is kept, at least.
const KEPT_FOR: Duration = Duration::from_secs(1);
/// Bodies a worker keeps; each holds at most a stream's window of bytes.
const KEPT_MAX: usize = 256;
