//! The first bytes of a request's body, read before there is a connection upstream for it: a client that sends in drips
//! holds no connection meanwhile.
//!
//! A body that comes with its head, as most do, passes through here without a copy, a timer or a count.

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use http::{HeaderMap, Version};
use http_body::{Body, Frame};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{sleep, timeout};

use super::body::{Error, RequestBody};
use super::context::RequestContext;
use crate::upstream::Upstream;

/// What has been gathered of one body.
#[derive(Debug, Default)]
pub struct Gathered {
    /// The piece that came first, as it was read; most bodies are one.
    first: Bytes,
    /// What came after it, copied: small pieces would each keep the buffer they were read into.
    rest: BytesMut,
    trailers: Option<HeaderMap>,
    held: Option<HeldRoom>,
}

impl Gathered {
    pub(super) fn len(&self) -> usize {
        self.first.len() + self.rest.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0 && self.trailers.is_none()
    }

    pub(super) fn push(&mut self, frame: Frame<Bytes>) {
        match frame.into_data() {
            Ok(data) if self.is_empty() => self.first = data,
            Ok(data) => self.rest.extend_from_slice(&data),
            Err(frame) => self.trailers = frame.into_trailers().ok(),
        }
    }

    /// Makes itself small while more is waited for, and counts what it holds. False where there is no room for that.
    pub(super) fn settle(&mut self, room: &Arc<Room>) -> bool {
        if !self.first.is_empty() {
            let mut all = BytesMut::with_capacity(self.len());
            all.extend_from_slice(&self.first);
            all.extend_from_slice(&self.rest);
            (self.first, self.rest) = (Bytes::new(), all);
        }
        self.held
            .get_or_insert_with(|| HeldRoom { room: Arc::clone(room), bytes: 0 })
            .grow(self.rest.capacity())
    }

    /// The next of what was gathered.
    pub(super) fn take(&mut self) -> Option<Frame<Bytes>> {
        if self.first.has_remaining() {
            return Some(Frame::data(std::mem::take(&mut self.first)));
        }
        if !self.rest.is_empty() {
            return Some(Frame::data(std::mem::take(&mut self.rest).freeze()));
        }
        self.trailers.take().map(Frame::trailers)
    }
}

/// The memory that all bodies that are being gathered share.
#[derive(Debug, Default)]
pub struct Room(AtomicUsize);

/// A part of it.
#[derive(Debug)]
struct HeldRoom {
    room: Arc<Room>,
    bytes: usize,
}

impl HeldRoom {
    /// Holds so many bytes, if there is room.
    fn grow(&mut self, bytes: usize) -> bool {
        let more = bytes.saturating_sub(self.bytes);
        let before = self.room.0.fetch_add(more, Ordering::Relaxed);
        self.bytes += more;
        before + more <= GATHERED_BYTES_MAX
    }
}

impl Drop for HeldRoom {
    fn drop(&mut self) {
        self.room.0.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// Why a request goes no further than the first bytes of its body.
#[derive(Debug)]
pub enum Ended {
    /// The body broke off, or is too large.
    Body(Error),
    /// Nothing came for too long.
    Stalled,
    /// There is no room for more bodies.
    NoRoom,
}

/// Reads the first bytes of `body`, or all of it where it is small. A body that takes long for that may go on before:
/// then a permit to hold a connection all the same comes back, of which there are few.
///
/// # Errors
/// Where the body ends before that.
pub async fn gather(
    context: &mut RequestContext,
    body: &mut RequestBody,
    upstream: &Upstream,
) -> Result<Option<OwnedSemaphorePermit>, Ended> {
    let max = upstream.config.uploads.gather_bytes;
    let RequestBody::Streaming(streaming) = &mut *body else { return Ok(None) };
    if max == 0 {
        return Ok(None);
    }
    let room = Arc::clone(&context.conn.worker.shared.gathered);
    let at_once = poll_fn(|cx| Poll::Ready(streaming.poll_gather(max, &room, cx))).await;
    match at_once {
        Poll::Ready(gathered) if streaming.is_gathered(max) => gathered.map(|()| None).map_err(Ended::Body),
        Poll::Ready(Err(error)) => Err(Ended::Body(error)),
        // Boxed: timers are large, and few wait.
        Poll::Ready(Ok(())) | Poll::Pending => Box::pin(wait(context, body, upstream, &room)).await,
    }
}

/// Gathers what does not come at once.
async fn wait(
    context: &mut RequestContext,
    body: &mut RequestBody,
    upstream: &Upstream,
    room: &Arc<Room>,
) -> Result<Option<OwnedSemaphorePermit>, Ended> {
    let max = upstream.config.uploads.gather_bytes;
    let is_small = body.size_hint().upper().is_some_and(|length| length <= max as u64);
    let early = if is_small { SMALL_EARLY_AFTER } else { EARLY_AFTER };
    // Over HTTP/1.1 the connection's own timer does that, and tells it apart from other silence.
    let stall = match context.version {
        Version::HTTP_2 => context.conn.config.timeouts.body_stall,
        _ => Duration::MAX,
    };
    let RequestBody::Streaming(streaming) = body else { return Ok(None) };
    let gathered = async {
        let mut target = 0;
        while !streaming.is_gathered(max) {
            target = max.min(target + STEP_BYTES);
            let step = poll_fn(|cx| streaming.poll_gather(target, room, cx));
            timeout(stall, step).await.map_err(|_| Ended::Stalled)?.map_err(Ended::Body)?;
            if !streaming.is_gathered(target) {
                // No room for more: what has come goes on as soon as it may.
                let permit = timeout(NO_ROOM_WAIT, Arc::clone(&upstream.early).acquire_owned()).await;
                return permit.ok().and_then(Result::ok).map(Some).ok_or(Ended::NoRoom);
            }
        }
        Ok(None)
    };
    let result = tokio::select! {
        biased;
        gathered = gathered => gathered,
        permit = early_permit(&upstream.early, early) => Ok(Some(permit)),
    };
    context.steps.gather = context.elapsed_ns();
    result
}

/// A permit to hold a connection before the first bytes are there, after that time and when one is free. It is asked for
/// now and then instead of waited for in a queue: whoever has gathered enough needs none any more.
async fn early_permit(early: &Arc<Semaphore>, after: Duration) -> OwnedSemaphorePermit {
    sleep(after).await;
    loop {
        if let Ok(permit) = Arc::clone(early).try_acquire_owned() {
            return permit;
        }
        sleep(EARLY_AFTER).await;
    }
}

/// What all gathered bodies may hold together, as far as they wait for more.
const GATHERED_BYTES_MAX: usize = 64 << 20;
/// Over HTTP/2 so much comes at least within the time a body may stand still.
const STEP_BYTES: usize = 1024;
/// A body that is known to be small may go on after this though it is not whole.
const SMALL_EARLY_AFTER: Duration = Duration::from_secs(10);
/// Another one: somebody may wait for each piece of it to be answered.
const EARLY_AFTER: Duration = Duration::from_secs(1);
/// How long a body waits to go on where there is no room to gather more of it.
const NO_ROOM_WAIT: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_come_back_in_order_and_small_ones_are_copied_once_more_is_waited_for() {
        let room = Arc::new(Room::default());
        let mut gathered = Gathered::default();
        let buffer = Bytes::from(vec![b'a'; 8 * 1024]);
        gathered.push(Frame::data(buffer.slice(..3)));
        assert!(!buffer.is_unique(), "what comes at once is not copied");
        assert!(gathered.settle(&room));
        assert!(buffer.is_unique(), "what waits does not keep the buffer it was read into");
        gathered.push(Frame::data(Bytes::from_static(b"bc")));
        gathered.push(Frame::trailers(HeaderMap::new()));
        assert!(gathered.settle(&room));
        let held = room.0.load(Ordering::Relaxed);
        assert!((5..64).contains(&held), "{held}");
        let data = gathered.take().and_then(|frame| frame.into_data().ok()).expect("data comes first");
        assert_eq!(data, "aaabc");
        assert!(gathered.take().is_some_and(|frame| frame.is_trailers()));
        assert!(gathered.take().is_none());
        drop(gathered);
        assert_eq!(room.0.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn there_is_room_for_so_much_and_no_more() {
        let room = Arc::new(Room::default());
        let held = |bytes| HeldRoom { room: Arc::clone(&room), bytes: 0 }.grow(bytes);
        assert!(held(GATHERED_BYTES_MAX));
        let mut first = HeldRoom { room: Arc::clone(&room), bytes: 0 };
        assert!(first.grow(GATHERED_BYTES_MAX));
        assert!(!held(1));
        drop(first);
        assert!(held(1));
    }
}
