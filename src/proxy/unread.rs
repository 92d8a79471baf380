//! What a client still sends of a request that has its answer already, over HTTP/2.
//!
//! A body that is dropped before its end resets its stream (RFC 9113 section 8.1), and a client that meets the reset
//! while it sends takes the context for a failure, whatever the answer was. So the body is kept for a moment: the
//! client may send what its window holds, meets the answer, and stops on its own. Nothing of it is read, and how many
//! are kept is bounded. HTTP/1.1 ends by closing, which is hyper's.

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
    /// Where it is left if it is not read to its end; `None` if that needs no care.
    unread: Option<Rc<Unread>>,
}

impl Received {
    /// The body of a request. If it is dropped before its end, `unread` keeps it.
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
    /// Keeps a body; if too many are kept already, the oldest goes.
    fn keep(&self, incoming: Incoming) {
        let mut kept = self.kept.borrow_mut();
        let oldest = if kept.len() < KEPT_MAX { None } else { kept.pop_front() };
        kept.push_back((clock::instant(), incoming));
        drop(kept);
        drop(oldest);
    }

    /// Lets go of what has been kept long enough.
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
