//! Bodies on their way through: a request's, with its limit, and an answer's, with its deadlines. Both stream; what
//! one side does not take is not read from the other.

use std::cell::Cell;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::Method;
use http_body::{Body, Frame, SizeHint};

use super::context::RequestContext;
use super::gather::{Gathered, Room};
use super::headers;
use super::io::Activity;
use super::unread::Received;
use crate::service::reason::Reason;
use crate::upstream::checkout::UploadLook;
use crate::upstream::uploads::{LOOK_EVERY, Progress};
use crate::{clock, upstream};

/// Why a body ends before it is whole.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The client sends more than the route takes.
    #[error("request body over {max} bytes")]
    TooLarge {
        /// The limit, bytes.
        max: u64,
    },
    /// The answer stood still for too long, or the context took too long in all.
    #[error("the upstream's answer did not go on in time")]
    Timeout,
    /// The client sends too slowly, or gave its connection upstream up to other requests.
    #[error("the request's body comes too slowly")]
    Slow,
    /// The client's connection broke.
    #[error(transparent)]
    Broken(#[from] hyper::Error),
    /// The server's did.
    #[error(transparent)]
    Upstream(#[from] upstream::Error),
}

/// What is known of a request's body while it streams; shared with the context that logs it.
#[derive(Debug)]
pub struct Upload {
    /// Bytes taken from the client.
    pub bytes: Cell<u64>,
    /// Whether it went over the route's limit.
    pub too_large: Cell<bool>,
    /// Whether the client broke off.
    pub broken: Cell<bool>,
}

/// A request's body on its way to the upstream.
#[derive(Debug)]
pub enum RequestBody {
    /// There is none: most requests.
    Empty,
    /// What the client sends, counted against the limit. Boxed: most requests have none and are moved about.
    Streaming(Box<Streaming>),
}

/// A body as the client sends it.
#[derive(Debug)]
pub struct Streaming {
    incoming: Received,
    left: u64,
    max: u64,
    upload: Rc<Upload>,
    /// Told while more is owed.
    activity: Rc<Activity>,
    ended: bool,
    /// What was read before there was a connection for it.
    gathered: Option<Gathered>,
    /// Told how far it is, from when there was one.
    progress: Option<Arc<Progress>>,
}

impl RequestBody {
    /// Wraps what the client sends; `max` bytes may pass.
    pub fn streaming(incoming: Received, max: u64, activity: Rc<Activity>) -> (RequestBody, Rc<Upload>) {
        let upload =
            Rc::new(Upload { bytes: Cell::new(0), too_large: Cell::new(false), broken: Cell::new(false) });
        activity.begin_body();
        let body = Streaming {
            incoming,
            left: max,
            max,
            upload: Rc::clone(&upload),
            activity,
            ended: false,
            gathered: None,
            progress: None,
        };
        (RequestBody::Streaming(Box::new(body)), upload)
    }

    /// Whether the client has not sent all of it yet.
    pub fn is_on_its_way(&self) -> bool {
        matches!(self, RequestBody::Streaming(streaming) if !streaming.is_whole())
    }

    /// How far the rest of it is from now on; `None` where it is whole.
    pub fn progress(&mut self) -> Option<Arc<Progress>> {
        let RequestBody::Streaming(streaming) = self else { return None };
        if streaming.is_whole() {
            return None;
        }
        Some(Arc::clone(streaming.progress.get_or_insert_default()))
    }
}

impl Streaming {
    /// Reads ahead until `max` bytes are gathered or the body is whole.
    pub(super) fn poll_gather(
        &mut self,
        max: usize,
        room: &Arc<Room>,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), Error>> {
        while !self.is_gathered(max) {
            match self.poll_incoming(cx) {
                Poll::Ready(Some(frame)) => self.gathered.get_or_insert_default().push(frame?),
                Poll::Ready(None) => {
                    // A body that turned out to be empty goes as it came: in chunks, of which there are none.
                    self.gathered.get_or_insert_default();
                }
                Poll::Pending => {
                    if !self.gathered.as_mut().is_none_or(|gathered| gathered.settle(room)) {
                        return Poll::Ready(Ok(()));
                    }
                    return Poll::Pending;
                }
            }
        }
        Poll::Ready(Ok(()))
    }

    /// Whether so many bytes are there, or all that will be.
    pub(super) fn is_gathered(&self, max: usize) -> bool {
        self.is_whole() || self.gathered.as_ref().map_or(0, Gathered::len) >= max
    }

    /// Whether all of it has come.
    pub(super) fn is_whole(&self) -> bool {
        self.ended || self.incoming.is_end_stream()
    }

    /// What the client has sent since, counted against the limit.
    fn poll_incoming(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        if self.ended {
            return Poll::Ready(None);
        }
        let frame = match ready!(Pin::new(&mut self.incoming).poll_frame(cx)) {
            Some(Ok(frame)) => cleaned(frame),
            Some(Err(error)) => {
                self.upload.broken.set(true);
                return Poll::Ready(Some(Err(error.into())));
            }
            None => {
                self.ended = true;
                self.activity.end_body();
                return Poll::Ready(None);
            }
        };
        let count = frame.data_ref().map_or(0, Bytes::len) as u64;
        self.upload.bytes.set(self.upload.bytes.get() + count);
        if count > self.left {
            self.upload.too_large.set(true);
            return Poll::Ready(Some(Err(Error::TooLarge { max: self.max })));
        }
        self.left -= count;
        Poll::Ready(Some(Ok(frame)))
    }

    /// Tells how far the body is.
    fn tell(&self, polled: &Poll<Option<Result<Frame<Bytes>, Error>>>) {
        let Some(progress) = &self.progress else { return };
        match polled {
            Poll::Ready(Some(Ok(frame))) => {
                progress.move_on(frame.data_ref().map_or(0, Bytes::len) as u64);
                if self.is_whole() {
                    progress.end();
                }
            }
            Poll::Ready(None | Some(Err(_))) => progress.end(),
            Poll::Pending => progress.wait(),
        }
    }
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        let RequestBody::Streaming(streaming) = self.get_mut() else { return Poll::Ready(None) };
        if let Some(gathered) = &mut streaming.gathered {
            let frame = gathered.take();
            if gathered.is_empty() {
                streaming.gathered = None;
            }
            if let Some(frame) = frame {
                return Poll::Ready(Some(Ok(frame)));
            }
        }
        let polled = streaming.poll_incoming(cx);
        streaming.tell(&polled);
        polled
    }

    fn is_end_stream(&self) -> bool {
        match self {
            RequestBody::Empty => true,
            RequestBody::Streaming(streaming) => streaming.gathered.is_none() && streaming.is_whole(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            RequestBody::Empty => SizeHint::with_exact(0),
            RequestBody::Streaming(streaming) => {
                let gathered = streaming.gathered.as_ref().map_or(0, Gathered::len) as u64;
                let rest =
                    if streaming.ended { SizeHint::with_exact(0) } else { streaming.incoming.size_hint() };
                let mut whole = SizeHint::new();
                whole.set_lower(rest.lower() + gathered);
                if let Some(upper) = rest.upper() {
                    whole.set_upper(upper + gathered);
                }
                whole
            }
        }
    }
}

impl Drop for Streaming {
    fn drop(&mut self) {
        if let Some(progress) = &self.progress {
            progress.end();
        }
        if !self.ended {
            self.activity.end_body();
        }
    }
}

/// An answer's body on its way to the client. It owns the context, so that the log line is written when the last
/// byte has gone, or when nobody is left to take it.
#[derive(Debug)]
pub struct ResponseBody {
    source: Source,
    context: Option<Box<RequestContext>>,
    /// What was given out, or the head, is on its way to the client: the next move is the client's.
    is_held: bool,
}

#[derive(Debug)]
enum Source {
    Empty,
    Bytes(Bytes),
    Echo(RequestBody),
    Upstream(Box<Download>),
}

/// An upstream's answer as it comes.
#[derive(Debug)]
pub struct Download {
    /// Given back once the answer is whole.
    checkout: Option<upstream::Checkout<RequestBody>>,
    stall: Duration,
    ends: Option<Instant>,
    /// When the head came, until the task has slept since: the time of what is here already.
    now: Option<Instant>,
    moved: bool,
    /// Since when nothing moved, as far as anybody looked.
    still_since: Instant,
    /// Frames that came without a pause since the clock was last looked at.
    unbroken: u8,
    failed: Option<Error>,
}

impl Download {
    /// The rest of an answer whose head has come over `checkout`. It may not stand still for `stall`, nor go on after
    /// `ends`. `now` is when the head came.
    pub fn new(
        mut checkout: upstream::Checkout<RequestBody>,
        stall: Duration,
        ends: Option<Instant>,
        now: Instant,
    ) -> Download {
        let look = if checkout.look_at_upload(now).is_some() { LOOK_EVERY.min(stall) } else { stall };
        checkout.deadline().set(earlier(now + look, ends));
        Download {
            checkout: Some(checkout),
            stall,
            ends,
            now: Some(now),
            moved: false,
            still_since: now,
            unbroken: 0,
            failed: None,
        }
    }

    /// The next frame, or the end, or that it took too long. Deadlines are looked at when they fire, so a frame
    /// that comes in time costs no clock reading; standing still is noticed after one to two of `stall`.
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        if let Some(error) = self.failed.take() {
            return Poll::Ready(Some(Err(error)));
        }
        let Some(checkout) = &mut self.checkout else { return Poll::Ready(None) };
        let polled = checkout.poll_frame(cx);
        if let Poll::Ready(Some(Err(error))) = polled {
            // What came before the break is the client's: hyper sends it while this waits, and would not after.
            self.failed = Some(error.into());
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        if let Poll::Ready(frame) = polled {
            self.moved = true;
            if self.is_overdue() {
                return Poll::Ready(Some(Err(Error::Timeout)));
            }
            let is_last = match &frame {
                Some(Ok(frame)) => frame.is_trailers() || self.is_end_stream(),
                _ => frame.is_none(),
            };
            if is_last {
                self.finish();
            }
            return Poll::Ready(frame.map(|frame| frame.map(cleaned).map_err(Error::from)));
        }
        self.now = None;
        self.unbroken = 0;
        self.poll_deadlines(cx).map(|error| Some(Err(error)))
    }

    /// Whether the answer stands still for too long, or the request's body, which may still be on its way, is too slow.
    /// While that moves nothing stands still.
    fn poll_deadlines(&mut self, cx: &mut Context<'_>) -> Poll<Error> {
        let Some(checkout) = &mut self.checkout else { return Poll::Pending };
        if checkout.poll_give_way(cx).is_ready() {
            return Poll::Ready(Error::Slow);
        }
        while checkout.deadline().poll(cx).is_ready() {
            let now = clock::instant();
            let upload = checkout.look_at_upload(now);
            if upload == Some(UploadLook::Slow) {
                return Poll::Ready(Error::Slow);
            }
            if std::mem::take(&mut self.moved) || upload == Some(UploadLook::Moved) {
                self.still_since = now;
            }
            let is_still = now.saturating_duration_since(self.still_since) >= self.stall;
            if is_still || self.ends.is_some_and(|ends| now >= ends) {
                return Poll::Ready(Error::Timeout);
            }
            let look = if upload.is_some() { LOOK_EVERY.min(self.stall) } else { self.stall };
            checkout.deadline().set(earlier(now + look, self.ends));
        }
        Poll::Pending
    }

    /// Whether an answer that never pauses has gone on for too long: no deadline fires while there is more at hand.
    fn is_overdue(&mut self) -> bool {
        self.unbroken = (self.unbroken + 1) % FRAMES_UNBROKEN_MAX;
        self.unbroken == 0 && self.ends.is_some_and(|ends| clock::instant() >= ends)
    }

    /// Whether the last byte is here.
    fn is_end_stream(&self) -> bool {
        self.checkout.as_ref().is_none_or(upstream::Checkout::is_answered)
    }

    /// How long the rest is.
    fn size_hint(&self) -> SizeHint {
        self.checkout.as_ref().map_or_else(|| SizeHint::with_exact(0), upstream::Checkout::size_hint)
    }

    /// Gives the connection back as soon as the last byte is here, not when the client has taken it.
    fn finish(&mut self) {
        if let Some(checkout) = self.checkout.take() {
            checkout.finish(self.now.unwrap_or_else(clock::instant));
        }
    }
}

/// So many frames may come without a pause between two looks at the clock.
const FRAMES_UNBROKEN_MAX: u8 = 64;

/// A frame whose trailers, if it has any, are only that.
fn cleaned(mut frame: Frame<Bytes>) -> Frame<Bytes> {
    if let Some(trailers) = frame.trailers_mut() {
        headers::clean_trailers(trailers);
    }
    frame
}

fn earlier(at: Instant, ends: Option<Instant>) -> Instant {
    ends.map_or(at, |ends| ends.min(at))
}

impl ResponseBody {
    /// No body.
    pub fn empty(context: Option<Box<RequestContext>>) -> ResponseBody {
        ResponseBody::new(Source::Empty, context)
    }

    fn new(source: Source, context: Option<Box<RequestContext>>) -> ResponseBody {
        let mut body = ResponseBody { source, context, is_held: false };
        body.hold(!body.is_end_stream());
        body
    }

    /// Tells the connection's activity whose turn it is.
    fn hold(&mut self, is_held: bool) {
        if is_held == self.is_held {
            return;
        }
        let Some(context) = &self.context else { return };
        if is_held {
            context.conn.activity.begin_held()
        } else {
            context.conn.activity.end_held()
        }
        self.is_held = is_held;
    }

    /// These bytes.
    pub fn bytes(bytes: Bytes, context: Option<Box<RequestContext>>) -> ResponseBody {
        ResponseBody::new(Source::Bytes(bytes), context)
    }

    /// What the client sends, sent back.
    pub fn echo(body: RequestBody, context: Box<RequestContext>) -> ResponseBody {
        ResponseBody::new(Source::Echo(body), Some(context))
    }

    /// The end of an answer that has no body, whatever the server sends.
    pub fn without(
        checkout: upstream::Checkout<RequestBody>,
        now: Instant,
        context: Box<RequestContext>,
    ) -> ResponseBody {
        checkout.finish(now);
        ResponseBody::new(Source::Empty, Some(context))
    }

    /// What the upstream sends; see [`Download::new`]. A short answer has come with its head as a rule, and then the
    /// connection is free already.
    pub fn upstream(
        mut checkout: upstream::Checkout<RequestBody>,
        stall: Duration,
        ends: Option<Instant>,
        now: Instant,
        context: Box<RequestContext>,
    ) -> ResponseBody {
        let source = if checkout.is_answered() {
            checkout.finish(now);
            Source::Empty
        } else if let Some(whole) = checkout.take_whole() {
            checkout.finish(now);
            Source::Bytes(whole)
        } else {
            Source::Upstream(Box::new(Download::new(checkout, stall, ends, now)))
        };
        ResponseBody::new(source, Some(context))
    }

    fn note(&mut self, frame: &Option<Result<Frame<Bytes>, Error>>) {
        let Some(context) = &mut self.context else { return };
        match frame {
            Some(Ok(frame)) => context.bytes_out += frame.data_ref().map_or(0, Bytes::len) as u64,
            Some(Err(Error::Timeout)) => context.fail(Reason::UpstreamTimeout),
            Some(Err(Error::TooLarge { .. })) => context.fail(Reason::BodyTooLarge),
            Some(Err(Error::Slow)) => context.fail(Reason::BodySlow),
            Some(Err(Error::Broken(_))) => context.fail(Reason::ClientGone),
            Some(Err(Error::Upstream(_))) => context.fail(Reason::UpstreamReset),
            None => {}
        }
        let ended = match frame {
            // Nothing follows trailers, and hyper asks for nothing more; over HTTP/1 the body does not say so itself.
            Some(Ok(frame)) => frame.is_trailers() || self.is_end_stream(),
            Some(Err(_)) => false,
            None => true,
        };
        if ended && let Some(context) = &mut self.context {
            context.complete();
        }
    }
}

impl Body for ResponseBody {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        let polled = match &mut self.source {
            Source::Empty => Poll::Ready(None),
            Source::Bytes(bytes) if bytes.is_empty() => Poll::Ready(None),
            Source::Bytes(bytes) => Poll::Ready(Some(Ok(Frame::data(std::mem::take(bytes))))),
            Source::Echo(body) => Pin::new(body).poll_frame(cx),
            Source::Upstream(download) => download.poll_frame(cx),
        };
        let more_may_follow =
            matches!(&polled, Poll::Ready(Some(Ok(frame))) if !frame.is_trailers()) && !self.is_end_stream();
        self.hold(more_may_follow);
        let frame = ready!(polled);
        self.note(&frame);
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        match &self.source {
            Source::Empty => true,
            Source::Bytes(bytes) => bytes.is_empty(),
            Source::Echo(body) => body.is_end_stream(),
            Source::Upstream(download) => download.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.source {
            Source::Empty => SizeHint::with_exact(0),
            Source::Bytes(bytes) => SizeHint::with_exact(bytes.len() as u64),
            Source::Echo(body) => body.size_hint(),
            Source::Upstream(download) => download.size_hint(),
        }
    }
}

impl Drop for ResponseBody {
    fn drop(&mut self) {
        // An answer without a body (or to HEAD) is never polled: it is whole as it stands. So is one whose last
        // frame said so.
        let is_end = self.is_end_stream();
        if let Some(context) = &mut self.context
            && (is_end || (context.method == Method::HEAD && matches!(self.source, Source::Bytes(_))))
        {
            context.complete();
        }
        self.hold(false);
    }
}
