//! A request's body on its way to the upstream, counted against its limit. It streams: if the upstream does not read, the
//! client is not read either. Nothing is buffered here except what `crate::proxy::request::gather` has read ahead.

use std::cell::{Cell, RefCell, RefMut};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};

use crate::proxy::headers;
use crate::proxy::request::body_copy::BodyCopy;
use crate::proxy::request::buffered_body::{BufferBudget, BufferedBody};
use crate::proxy::request::unread_bodies::ReceivedBody;
use crate::service::activity::Activity;
use upstream::uploads::Progress;

/// Why a body ends before it is whole.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The body is larger than the route allows.
    #[error("request body over {max} bytes")]
    TooLarge {
        /// The limit, bytes.
        max: u64,
    },
    /// The answer stalled, or the exchange took longer than `total`.
    #[error("the upstream's response stalled, or took longer than `total`")]
    Timeout,
    /// The client sends too slowly, or its connection to the upstream was needed for other requests.
    #[error("the client sends the request body too slowly")]
    Slow,
    /// The client's connection broke.
    #[error(transparent)]
    Broken(#[from] hyper::Error),
    /// The client ended its stream without the end of the body.
    #[error("the client ended its stream before the request body was complete")]
    Cut,
    /// The connection to the server broke.
    #[error(transparent)]
    Upstream(#[from] upstream::Error),
    /// It is sent again, and not here.
    #[error("the request is sent again, so this attempt ends")]
    SentAgain,
    /// A codec did not take an answer's bytes.
    #[error("the response could not be compressed: {0}")]
    Compress(std::io::Error),
}

/// The state of a request's body while it streams, shared with the request's context, which logs it.
#[derive(Debug)]
pub struct UploadState {
    /// Bytes taken from the client.
    pub bytes: Cell<u64>,
    /// Whether it went over the route's limit.
    pub too_large: Cell<bool>,
    /// Whether the client's connection or stream broke.
    pub broken: Cell<bool>,
    /// Counts the body as open until it is settled, so that the connection's timer expects bytes.
    activity: Rc<Activity>,
    is_settled: Cell<bool>,
}

impl UploadState {
    /// The client owes nothing more of it: it is whole, given up, or a stream beside its answer, which may be as silent as that.
    pub fn settle(&self) {
        if !self.is_settled.replace(true) {
            self.activity.end_body();
        }
    }
}

/// A request's body on its way to the upstream.
#[derive(Debug)]
pub enum RequestBody {
    /// Most requests have none.
    Empty,
    /// On the heap, so that requests without a body are cheap to move.
    Streaming(BodyHandle),
    /// The copy of one that has been sent elsewhere.
    Copied(Box<BufferedBody>),
}

/// Who sends a body. Over HTTP/2 that is a task of hyper's, which lets go of it only when it notices that the stream is over:
/// if the request is sent again meanwhile, its handle is void.
#[derive(Debug)]
pub struct BodyHandle {
    body: Rc<RefCell<StreamingBody>>,
    /// The sending that it belongs to.
    sending: u32,
}

/// Keeps the first bytes of a body that are sent, for as long as it lives, so that they can be sent again.
#[derive(Debug)]
pub struct ResendBuffer(Rc<RefCell<StreamingBody>>);

/// A body as the client sends it.
#[derive(Debug)]
pub struct StreamingBody {
    incoming: ReceivedBody,
    left: u64,
    max: u64,
    upload: Rc<UploadState>,
    ended: bool,
    /// What was read before there was a connection upstream.
    gathered: Option<BufferedBody>,
    /// What has been sent, as long as it is kept, and how many bytes that may be.
    kept: Option<BufferedBody>,
    kept_bytes_max: usize,
    /// How many times it has been sent again.
    sending: u32,
    /// Where the connection upstream watches the body's progress, once there is one.
    progress: Option<Arc<Progress>>,
    /// A copy that is made of it on its way.
    copy: Option<Box<BodyCopy>>,
}

impl RequestBody {
    /// Wraps a body of which at most `max` bytes may pass.
    pub fn streaming(
        incoming: ReceivedBody,
        max: u64,
        activity: Rc<Activity>,
    ) -> (RequestBody, Rc<UploadState>) {
        activity.begin_body();
        let upload = Rc::new(UploadState {
            bytes: Cell::new(0),
            too_large: Cell::new(false),
            broken: Cell::new(false),
            activity,
            is_settled: Cell::new(false),
        });
        let body = StreamingBody {
            incoming,
            left: max,
            max,
            upload: Rc::clone(&upload),
            ended: false,
            gathered: None,
            kept: None,
            kept_bytes_max: 0,
            sending: 0,
            progress: None,
            copy: None,
        };
        let handle = BodyHandle { body: Rc::new(RefCell::new(body)), sending: 0 };
        (RequestBody::Streaming(handle), upload)
    }

    /// Whether the client has not sent all of it yet.
    pub fn is_on_its_way(&self) -> bool {
        matches!(self, RequestBody::Streaming(handle) if !handle.body().is_whole())
    }

    /// Starts reporting its progress; `None` if all of it has come.
    pub fn progress(&mut self) -> Option<Arc<Progress>> {
        let RequestBody::Streaming(handle) = self else { return None };
        let mut streaming = handle.body();
        if streaming.is_whole() {
            return None;
        }
        Some(Arc::clone(streaming.progress.get_or_insert_default()))
    }

    /// Keeps what is sent of it, up to so many bytes. `None` if it has nothing to send, or nothing is to be kept.
    pub fn keep(&mut self, bytes_max: usize) -> Option<ResendBuffer> {
        let RequestBody::Streaming(handle) = self else { return None };
        let mut streaming = handle.body();
        (streaming.kept, streaming.kept_bytes_max) = ((bytes_max > 0).then(BufferedBody::default), bytes_max);
        drop(streaming);
        Some(ResendBuffer(Rc::clone(&handle.body)))
    }
}

impl BodyHandle {
    /// The body itself, which nobody else may hold at the same time.
    pub(in crate::proxy) fn body(&self) -> RefMut<'_, StreamingBody> {
        self.body.borrow_mut()
    }

    fn poll_frame(&self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        let mut streaming = self.body();
        if self.sending != streaming.sending {
            return Poll::Ready(Some(Err(Error::SentAgain)));
        }
        streaming.poll_next(cx)
    }
}

impl ResendBuffer {
    /// The whole body, to be sent again; `None` if more was sent than is kept.
    pub fn again(self) -> Option<RequestBody> {
        let mut streaming = self.0.borrow_mut();
        let mut whole = streaming.kept.take()?;
        // What was to be sent again once before, and was not.
        while let Some(frame) = streaming.gathered.as_mut().and_then(BufferedBody::take) {
            whole.push(frame);
        }
        streaming.gathered = Some(whole).filter(|whole| !whole.is_empty());
        streaming.sending += 1;
        let handle = BodyHandle { body: Rc::clone(&self.0), sending: streaming.sending };
        drop(streaming);
        Some(RequestBody::Streaming(handle))
    }
}

impl Drop for ResendBuffer {
    fn drop(&mut self) {
        self.0.borrow_mut().kept = None;
    }
}

impl StreamingBody {
    /// Copies it on its way, of which nothing has been sent yet.
    pub(in crate::proxy) fn copy_to(&mut self, copy: BodyCopy) {
        self.copy = Some(Box::new(copy));
    }

    /// Reads ahead until `max` bytes are gathered or the body is whole.
    pub(in crate::proxy) fn poll_gather(
        &mut self,
        max: usize,
        room: &Arc<BufferBudget>,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), Error>> {
        while !self.is_gathered(max) {
            match self.poll_incoming(cx) {
                Poll::Ready(Some(frame)) => self.gathered.get_or_insert_default().push(frame?),
                Poll::Ready(None) => {
                    // The body turned out to be empty. It is still sent as a body (zero chunks), as the client sent it.
                    self.gathered.get_or_insert_default();
                }
                Poll::Pending => {
                    if !self.gathered.as_mut().is_none_or(|gathered| gathered.compact(room)) {
                        return Poll::Ready(Ok(()));
                    }
                    return Poll::Pending;
                }
            }
        }
        Poll::Ready(Ok(()))
    }

    /// The first `max` bytes, as far as they have been read ahead: one piece, or two.
    pub(in crate::proxy) fn pieces(&self, max: usize) -> impl Iterator<Item = &[u8]> {
        let pieces = self.gathered.as_ref().map_or([&[][..], &[]], BufferedBody::pieces);
        pieces.into_iter().scan(max, |left, piece| {
            let piece = &piece[..piece.len().min(*left)];
            *left -= piece.len();
            Some(piece)
        })
    }

    /// Whether `max` bytes, or the whole body, have come.
    pub(in crate::proxy) fn is_gathered(&self, max: usize) -> bool {
        self.is_whole() || self.gathered.as_ref().map_or(0, BufferedBody::len) >= max
    }

    /// Whether all of it has come.
    pub(in crate::proxy) fn is_whole(&self) -> bool {
        self.ended || self.incoming.is_end_stream()
    }

    /// Reads the next frame from the client and counts it against the limit.
    fn poll_incoming(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        if self.ended {
            return Poll::Ready(None);
        }
        let frame = match ready!(Pin::new(&mut self.incoming).poll_frame(cx)) {
            Some(Ok(frame)) => cleaned(frame),
            Some(Err(error)) => {
                self.upload.broken.set(true);
                return Poll::Ready(Some(Err(error)));
            }
            None => {
                self.ended = true;
                self.upload.settle();
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

    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        if let Some(gathered) = &mut self.gathered {
            let frame = gathered.take();
            if gathered.is_empty() {
                self.gathered = None;
            }
            if let Some(frame) = frame {
                self.keep_sent(&frame);
                let polled = Poll::Ready(Some(Ok(frame)));
                // What is sent again has been copied.
                if self.sending == 0 {
                    self.note(&polled);
                }
                return polled;
            }
        }
        let polled = self.poll_incoming(cx);
        if let Poll::Ready(Some(Ok(frame))) = &polled {
            self.keep_sent(frame);
        }
        self.report(&polled);
        self.note(&polled);
        polled
    }

    /// Keeps a frame that is sent now, or lets go of all if there would be too much. The first piece is not copied.
    fn keep_sent(&mut self, frame: &Frame<Bytes>) {
        let Some(kept) = &mut self.kept else { return };
        let again = match (frame.data_ref(), frame.trailers_ref()) {
            (Some(data), _) if kept.len() + data.len() <= self.kept_bytes_max => Frame::data(data.clone()),
            (None, Some(trailers)) => Frame::trailers(trailers.clone()),
            _ => {
                self.kept = None;
                return;
            }
        };
        kept.push(again);
    }

    /// Copies what a poll came to.
    fn note(&mut self, polled: &Poll<Option<Result<Frame<Bytes>, Error>>>) {
        let Some(mut copy) = self.copy.take() else { return };
        let is_whole = self.gathered.is_none() && self.is_whole();
        match polled {
            // Who sends a body need not ask it again once it says that it is at its end.
            Poll::Ready(Some(Ok(frame))) => {
                if copy.push(frame) {
                    if is_whole { copy.end() } else { self.copy = Some(copy) }
                }
            }
            Poll::Ready(None) => copy.end(),
            // What is not sent to its end is not copied either.
            Poll::Ready(Some(Err(_))) => {}
            Poll::Pending => self.copy = Some(copy),
        }
    }

    /// Reports what a poll came to.
    fn report(&self, polled: &Poll<Option<Result<Frame<Bytes>, Error>>>) {
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
        match self.get_mut() {
            RequestBody::Streaming(handle) => handle.poll_frame(cx),
            RequestBody::Copied(copied) => Poll::Ready(copied.take().map(Ok)),
            RequestBody::Empty => Poll::Ready(None),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            RequestBody::Empty => true,
            RequestBody::Copied(copied) => copied.is_empty(),
            RequestBody::Streaming(handle) => {
                let streaming = handle.body();
                streaming.gathered.is_none() && streaming.is_whole()
            }
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            RequestBody::Empty => SizeHint::with_exact(0),
            RequestBody::Copied(copied) => SizeHint::with_exact(copied.len() as u64),
            RequestBody::Streaming(handle) => {
                let streaming = handle.body();
                let gathered = streaming.gathered.as_ref().map_or(0, BufferedBody::len) as u64;
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

impl Drop for StreamingBody {
    fn drop(&mut self) {
        if let Some(progress) = &self.progress {
            progress.end();
        }
        self.upload.settle();
    }
}

/// Removes trailers that must not pass ([`headers::clean_trailers`]).
pub fn cleaned(mut frame: Frame<Bytes>) -> Frame<Bytes> {
    if let Some(trailers) = frame.trailers_mut() {
        headers::clean_trailers(trailers);
    }
    frame
}
