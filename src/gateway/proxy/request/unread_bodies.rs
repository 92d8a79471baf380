//! What becomes of a request's body that was not read to its end before the answer.
//!
//! Over HTTP/2 it is kept for a moment, because dropping such a body resets its stream (RFC 9113 section 8.1), and many
//! clients that meet the reset while they send report an error and lose the answer. While the body is kept, the client
//! may send what its window allows, reads the answer, and stops on its own. Nothing is read from it, and the number of
//! kept bodies is bounded. Over HTTP/1.1 a short one is read behind the answer
//! ([`service::rest`](crate::service::body_rest)), so that the connection stays; a longer one ends it.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::Version;
use http::header::EXPECT;
use http::request::Parts;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;

use crate::proxy::request::request_body::Error;
use crate::service::conn::Conn;
use base::clock;
use net::wire::http2::StreamId;

/// A request's body as it is received.
#[derive(derive_more::Debug)]
#[debug("ReceivedBody({incoming:?})")]
pub struct ReceivedBody {
    incoming: Option<Incoming>,
    rest: DropTarget,
}

/// Where a body goes that is dropped before its end.
enum DropTarget {
    /// It can just be dropped.
    Dropped,
    /// Over HTTP/2. `awaited`: the client holds it back until `100 Continue`.
    Kept { unread: Rc<UnreadBodies>, awaited: Option<(Rc<Conn>, StreamId)> },
    /// Over HTTP/1.1. `is_awaited`: the client sends nothing of it before `100 Continue`.
    Read { conn: Rc<Conn>, is_awaited: bool },
}

impl ReceivedBody {
    /// The body of a request with this head; over HTTP/2 `unread` keeps what is dropped of it.
    pub fn new(
        incoming: Incoming,
        head: &Parts,
        stream: Option<StreamId>,
        conn: &Rc<Conn>,
        unread: &Rc<UnreadBodies>,
    ) -> ReceivedBody {
        let is_awaited = !incoming.is_end_stream() && head.headers.contains_key(EXPECT);
        let rest = match head.version {
            _ if incoming.is_end_stream() => DropTarget::Dropped,
            Version::HTTP_2 => {
                let awaited = stream.filter(|_| is_awaited).map(|stream| (Rc::clone(conn), stream));
                DropTarget::Kept { unread: Rc::clone(unread), awaited }
            }
            Version::HTTP_11 => DropTarget::Read { conn: Rc::clone(conn), is_awaited },
            _ => DropTarget::Dropped,
        };
        ReceivedBody { incoming: Some(incoming), rest }
    }
}

impl Body for ReceivedBody {
    type Data = Bytes;
    type Error = Error;

    /// Over HTTP/2 a body is whole only with END_STREAM (RFC 9113 section 8.1). That is looked at here, because hyper
    /// says of one whose client resets its stream with NO_ERROR that it has ended.
    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        let received = self.get_mut();
        let Some(incoming) = &mut received.incoming else { return Poll::Ready(None) };
        let polled = match (Pin::new(&mut *incoming).poll_frame(cx), &received.rest) {
            (Poll::Ready(None), DropTarget::Kept { .. }) if !incoming.is_end_stream() => {
                Poll::Ready(Some(Err(Error::Cut)))
            }
            (polled, _) => polled.map(|frame| frame.map(|frame| frame.map_err(Error::from))),
        };
        match (&polled, &mut received.rest) {
            (Poll::Ready(None | Some(Err(_))), rest) => *rest = DropTarget::Dropped,
            // It has been asked for now.
            (_, DropTarget::Read { is_awaited, .. }) => *is_awaited = false,
            // Said here, because hyper says so over HTTP/1 alone.
            (Poll::Pending, DropTarget::Kept { awaited, .. }) => {
                if let Some((conn, stream)) = awaited.take() {
                    conn.say_continue(stream);
                }
            }
            _ => {}
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

impl Drop for ReceivedBody {
    fn drop(&mut self) {
        let Some(incoming) = self.incoming.take().filter(|incoming| !incoming.is_end_stream()) else {
            return;
        };
        match &self.rest {
            DropTarget::Dropped => {}
            DropTarget::Kept { unread, .. } => unread.keep(incoming),
            DropTarget::Read { conn, is_awaited } => conn.rest.leave(incoming, *is_awaited, &conn.activity),
        }
    }
}

/// The bodies one worker keeps unread, the oldest first.
#[derive(Debug, Default)]
pub struct UnreadBodies {
    kept: RefCell<VecDeque<(Instant, Incoming)>>,
}

impl UnreadBodies {
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
