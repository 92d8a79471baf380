//! An answer's body on its way to the client, with its deadlines. It streams: if the client does not read, the upstream
//! is not read either. Rate-limit fields and other headers are set before this.

use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::Version;
use http_body::{Body, Frame, SizeHint};
use tokio::time::{Sleep, sleep};

use crate::proxy::context::RequestContext;
use crate::proxy::request::request_body::{Error, RequestBody, cleaned};
use crate::proxy::response::answer_reader::AnswerReader;
use crate::proxy::response::compressed_body::CompressedBody;
use crate::service::reason::Reason;
use base::clock;
use policy::response::compress::Coding;
use upstream::checkout::UploadLook;
use upstream::uploads::LOOK_EVERY;

/// An answer's body. It owns the request's context, so that the log line is written when the last byte has been sent or
/// the client has left.
#[derive(Debug)]
pub struct ResponseBody {
    source: BodySource,
    context: Option<Box<RequestContext>>,
    /// Whether it has nothing to send until its source has more.
    is_waiting: bool,
}

#[derive(Debug)]
pub enum BodySource {
    Empty,
    Bytes(Bytes),
    /// The client sends them, and gets them back.
    Echo(RequestBody),
    Upstream(Box<Download>),
    Compressed(Box<CompressedBody>),
    /// Nowhere any more: the client is told so a little later.
    Broken(Option<Box<BodyBreak>>),
}

/// The failure of a body over HTTP/2 that the client has not been told of.
#[derive(Debug)]
pub struct BodyBreak {
    error: Error,
    told: Pin<Box<Sleep>>,
}

impl BodySource {
    /// The next piece, or the trailers.
    pub fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        match self {
            BodySource::Empty => Poll::Ready(None),
            BodySource::Bytes(bytes) if bytes.is_empty() => Poll::Ready(None),
            BodySource::Bytes(bytes) => Poll::Ready(Some(Ok(Frame::data(std::mem::take(bytes))))),
            BodySource::Echo(body) => Pin::new(body).poll_frame(cx),
            BodySource::Upstream(download) => download.poll_frame(cx),
            BodySource::Compressed(compressed) => compressed.poll_frame(cx),
            BodySource::Broken(broken) => {
                if let Some(broken) = broken {
                    ready!(broken.told.as_mut().poll(cx));
                }
                Poll::Ready(broken.take().map(|broken| Err(broken.error)))
            }
        }
    }
}

/// An upstream's answer as it comes.
#[derive(Debug)]
pub struct Download {
    /// The connection, given back once the answer is whole.
    checkout: Option<upstream::Checkout<RequestBody>>,
    stall: Duration,
    ends: Option<Instant>,
    /// When the head came, as long as the task has not waited since: it saves a clock reading.
    now: Option<Instant>,
    moved: bool,
    /// The last look at which something had moved.
    still_since: Instant,
    /// Frames without a pause since the clock was last read.
    unbroken: u8,
    failed: Option<Error>,
    /// What reads the body as it passes.
    reader: Option<Rc<AnswerReader>>,
}

impl Download {
    /// The body of an answer whose head came over `checkout` at `now`. It fails if nothing moves for `stall`, or at
    /// `ends`.
    pub fn new(
        mut checkout: upstream::Checkout<RequestBody>,
        stall: Duration,
        ends: Option<Instant>,
        now: Instant,
        reader: Option<Rc<AnswerReader>>,
    ) -> Download {
        let look = look_after(stall, checkout.look_at_upload(now).is_some());
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
            reader,
        }
    }

    /// The next frame, or an error if a deadline has passed. The clock is read only when the timer fires, so that a
    /// frame that comes in time costs no clock reading; in exchange a stall is noticed up to a tenth late.
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        if let Some(error) = self.failed.take() {
            return Poll::Ready(Some(Err(error)));
        }
        let Some(checkout) = &mut self.checkout else { return Poll::Ready(None) };
        let polled = checkout.poll_frame(cx);
        if let Poll::Ready(Some(Err(error))) = polled {
            // The error is returned one poll later, after hyper has sent what came before the break, because hyper
            // drops what it has not sent yet when a body fails.
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
            if let (Some(reader), Some(Ok(frame))) = (&self.reader, &frame) {
                reader.push(frame.data_ref());
            }
            if is_last {
                if let Some(reader) = &self.reader {
                    reader.end();
                }
                self.finish();
            }
            return Poll::Ready(frame.map(|frame| frame.map(cleaned).map_err(Error::from)));
        }
        self.now = None;
        self.unbroken = 0;
        self.poll_deadlines(cx).map(|error| Some(Err(error)))
    }

    /// Whether the answer stalls, or the request's body, which may still be on its way, is too slow. While that body
    /// moves, the answer does not count as stalled, because a server may answer only what it has read.
    fn poll_deadlines(&mut self, cx: &mut Context<'_>) -> Poll<Error> {
        let Some(checkout) = &mut self.checkout else { return Poll::Pending };
        if checkout.poll_yield(cx).is_ready() {
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
            let look = now + look_after(self.stall, upload.is_some());
            checkout.deadline().set(earlier(look.min(self.still_since + self.stall), self.ends));
        }
        Poll::Pending
    }

    /// Whether an answer that never pauses is past its end. The timer does not fire then, because it is only polled when
    /// the upstream has nothing ready.
    fn is_overdue(&mut self) -> bool {
        self.unbroken = (self.unbroken + 1) % FRAMES_UNBROKEN_MAX;
        self.unbroken == 0 && self.ends.is_some_and(|ends| clock::instant() >= ends)
    }

    /// Whether the last byte has come from the server.
    fn is_end_stream(&self) -> bool {
        self.checkout.as_ref().is_none_or(upstream::Checkout::is_answered)
    }

    fn size_hint(&self) -> SizeHint {
        self.checkout.as_ref().map_or_else(|| SizeHint::with_exact(0), upstream::Checkout::size_hint)
    }

    /// Gives the connection back as soon as the last byte has come from the server, so that a slow client holds no
    /// connection.
    fn finish(&mut self) {
        if let Some(checkout) = self.checkout.take() {
            checkout.finish(self.now.unwrap_or_else(clock::instant));
        }
    }
}

/// Frames without a pause between two readings of the clock.
const FRAMES_UNBROKEN_MAX: u8 = 64;
/// A stall is noticed late by one part of so many at most.
const LOOKS_IN_STALL: u32 = 10;
/// How long a client over HTTP/2 has to read what came before its answer broke off.
const TOLD_AFTER: Duration = Duration::from_millis(100);

/// When an answer is looked at that may stall, and with it the request's body, if that may still be on its way.
fn look_after(stall: Duration, is_uploading: bool) -> Duration {
    let look = stall / LOOKS_IN_STALL;
    if is_uploading { LOOK_EVERY.min(look) } else { look }
}

fn earlier(at: Instant, ends: Option<Instant>) -> Instant {
    ends.map_or(at, |ends| ends.min(at))
}

impl ResponseBody {
    pub fn empty(context: Option<Box<RequestContext>>) -> ResponseBody {
        ResponseBody::new(BodySource::Empty, context)
    }

    fn new(source: BodySource, context: Option<Box<RequestContext>>) -> ResponseBody {
        ResponseBody { source, context, is_waiting: false }
    }

    /// Tells the connection's activity whose turn it is: the source's, or the client's.
    fn wait(&mut self, is_waiting: bool) {
        if is_waiting == self.is_waiting {
            return;
        }
        let Some(context) = &self.context else { return };
        if is_waiting {
            context.conn.activity.begin_waiting()
        } else {
            context.conn.activity.end_waiting()
        }
        self.is_waiting = is_waiting;
    }

    pub fn bytes(bytes: Bytes, context: Option<Box<RequestContext>>) -> ResponseBody {
        ResponseBody::new(BodySource::Bytes(bytes), context)
    }

    /// What the client sends, sent back.
    pub fn echo(body: RequestBody, context: Box<RequestContext>) -> ResponseBody {
        ResponseBody::new(BodySource::Echo(body), Some(context))
    }

    /// The end of an answer that has no body, whatever the server sends.
    pub fn without(
        checkout: upstream::Checkout<RequestBody>,
        now: Instant,
        mut context: Box<RequestContext>,
    ) -> ResponseBody {
        checkout.discard(now);
        context.judge_good();
        if let Some(reader) = context.answer_reader() {
            reader.end();
        }
        ResponseBody::new(BodySource::Empty, Some(context))
    }

    /// The upstream's body; see [`Download::new`]. A short one has usually come with its head: then the connection goes
    /// back at once.
    pub fn upstream(
        mut checkout: upstream::Checkout<RequestBody>,
        stall: Duration,
        ends: Option<Instant>,
        now: Instant,
        mut context: Box<RequestContext>,
    ) -> ResponseBody {
        let reader = context.answer_reader();
        let source = if checkout.is_answered() {
            checkout.finish(now);
            BodySource::Empty
        } else if let Some(whole) = checkout.take_whole() {
            checkout.finish(now);
            BodySource::Bytes(whole)
        } else {
            BodySource::Upstream(Box::new(Download::new(checkout, stall, ends, now, reader.clone())))
        };
        if let (Some(reader), BodySource::Empty | BodySource::Bytes(_)) = (reader, &source) {
            reader.push(if let BodySource::Bytes(whole) = &source { Some(whole) } else { None });
            reader.end();
        }
        if !matches!(source, BodySource::Upstream(_)) {
            context.judge_good();
        }
        ResponseBody::new(source, Some(context))
    }

    /// Leaves the content out, as an answer to HEAD does.
    pub fn leave_out(&mut self) {
        self.source = BodySource::Empty;
    }

    /// The same body in a coding; what has no bytes stays so.
    pub fn compressed(mut self, coding: (Coding, u32), slot: Rc<()>) -> ResponseBody {
        if !matches!(self.source, BodySource::Empty) {
            let source = std::mem::replace(&mut self.source, BodySource::Empty);
            self.source = BodySource::Compressed(Box::new(CompressedBody::new(source, coding, slot)));
        }
        self
    }

    /// Whether the client is told of a failure later than it is known. Over HTTP/2 the reset throws away what the
    /// stream has not sent, and many clients what they have not read: without a pause they would see nothing of the
    /// answer. It is a fixed one, because a client need not read at all.
    fn is_told_later(&self) -> bool {
        let is_known = matches!(self.source, BodySource::Broken(_));
        let is_http2 = |context: &RequestContext| context.facts.version == Version::HTTP_2;
        !is_known && self.context.as_deref().is_some_and(is_http2)
    }

    fn note(&mut self, frame: &Option<Result<Frame<Bytes>, Error>>) {
        let Some(context) = &mut self.context else { return };
        match frame {
            Some(Ok(frame)) => {
                context.judge_good();
                context.outcome.bytes_out += frame.data_ref().map_or(0, Bytes::len) as u64;
            }
            Some(Err(Error::Timeout)) => {
                // Not blamed otherwise, because the time of the whole exchange is the client's or the route's, not the
                // server's.
                if !context.is_past_total() {
                    context.judge_failed();
                }
                context.fail(Reason::UpstreamTimeout);
            }
            Some(Err(Error::TooLarge { .. })) => context.fail(Reason::BodyTooLarge),
            Some(Err(Error::Slow)) => context.fail(Reason::BodySlow),
            // A body that is sent again is no answer's.
            Some(Err(Error::Broken(_) | Error::Cut | Error::SentAgain)) => context.fail(Reason::ClientGone),
            Some(Err(Error::Upstream(_))) => {
                context.judge_failed();
                context.fail(Reason::UpstreamReset);
            }
            Some(Err(Error::Compress(_))) => context.fail(Reason::Panic),
            None => context.judge_good(),
        }
        let ended = match frame {
            // Trailers end it, because hyper does not poll again after them.
            Some(Ok(frame)) => match frame.trailers_ref() {
                Some(trailers) => {
                    context.trailed(trailers);
                    true
                }
                None => self.is_end_stream(),
            },
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
        let polled = self.source.poll_frame(cx);
        self.wait(polled.is_pending());
        let frame = ready!(polled);
        if !matches!(self.source, BodySource::Broken(_)) {
            self.note(&frame);
        }
        match frame {
            Some(Err(error)) if self.is_told_later() => {
                // What it was read from, and the connection it came on, is let go of at once.
                let told = Box::pin(sleep(TOLD_AFTER));
                self.source = BodySource::Broken(Some(Box::new(BodyBreak { error, told })));
                self.poll_frame(cx)
            }
            frame => Poll::Ready(frame),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.source {
            BodySource::Empty => true,
            BodySource::Bytes(bytes) => bytes.is_empty(),
            BodySource::Echo(body) => body.is_end_stream(),
            BodySource::Upstream(download) => download.is_end_stream(),
            BodySource::Compressed(compressed) => compressed.is_end_stream(),
            BodySource::Broken(_) => false,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.source {
            BodySource::Empty => SizeHint::with_exact(0),
            BodySource::Bytes(bytes) => SizeHint::with_exact(bytes.len() as u64),
            BodySource::Echo(body) => body.size_hint(),
            BodySource::Upstream(download) => download.size_hint(),
            BodySource::Compressed(_) | BodySource::Broken(_) => SizeHint::default(),
        }
    }
}

impl Drop for ResponseBody {
    fn drop(&mut self) {
        // Such answers are complete, too, because hyper never polls an empty body, nor again after a frame that was the
        // last.
        let is_end = self.is_end_stream();
        if is_end && let Some(context) = &mut self.context {
            context.complete();
        }
        self.wait(false);
    }
}
