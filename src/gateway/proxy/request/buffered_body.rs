//! The first bytes of a body that has no connection upstream yet, and the bound on the memory of all such bodies.
//! `crate::proxy::request::gather` decides how long to wait for them. The copy of a body for a mirror is kept in the same way, with a bound
//! of its own (`crate::proxy::request::body_copy`).

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::{Buf, Bytes, BytesMut};
use http::HeaderMap;
use http_body::Frame;

/// What has been gathered of one body.
#[derive(Debug, Default)]
pub struct BufferedBody {
    /// The first piece, not copied; most bodies are one piece.
    first: Bytes,
    /// The pieces after it, copied: each small piece would otherwise keep the whole buffer that it was read into.
    rest: BytesMut,
    trailers: Option<HeaderMap>,
    held: Option<BufferReservation>,
}

impl BufferedBody {
    pub(in crate::proxy) fn len(&self) -> usize {
        self.first.len() + self.rest.len()
    }

    pub(in crate::proxy) fn is_empty(&self) -> bool {
        self.len() == 0 && self.trailers.is_none()
    }

    /// Its bytes, in the order they came.
    pub(in crate::proxy) fn pieces(&self) -> [&[u8]; 2] {
        [&self.first, &self.rest]
    }

    pub(in crate::proxy) fn push(&mut self, frame: Frame<Bytes>) {
        match frame.into_data() {
            Ok(data) if self.is_empty() => self.first = data,
            Ok(data) => self.rest.extend_from_slice(&data),
            Err(frame) => self.trailers = frame.into_trailers().ok(),
        }
    }

    /// Adds a copy of a frame and counts it in `room`. False if there is no room.
    pub(in crate::proxy) fn copy(&mut self, frame: &Frame<Bytes>, room: &Arc<BufferBudget>) -> bool {
        if let Some(data) = frame.data_ref() {
            self.rest.extend_from_slice(data);
        } else {
            self.trailers = frame.trailers_ref().cloned();
        }
        self.hold(room)
    }

    /// Copies what it holds into one small buffer, because more has to be waited for, and counts that buffer in `room`.
    /// False if there is no room.
    pub(in crate::proxy) fn compact(&mut self, room: &Arc<BufferBudget>) -> bool {
        if !self.first.is_empty() {
            let mut all = BytesMut::with_capacity(self.len());
            all.extend_from_slice(&self.first);
            all.extend_from_slice(&self.rest);
            (self.first, self.rest) = (Bytes::new(), all);
        }
        self.hold(room)
    }

    /// Counts its own buffer in `room`. False if there is no room.
    fn hold(&mut self, room: &Arc<BufferBudget>) -> bool {
        let held = self.held.get_or_insert_with(|| BufferReservation { room: Arc::clone(room), bytes: 0 });
        held.grow(self.rest.capacity())
    }

    /// Takes the next piece that was gathered.
    pub(in crate::proxy) fn take(&mut self) -> Option<Frame<Bytes>> {
        if self.first.has_remaining() {
            return Some(Frame::data(std::mem::take(&mut self.first)));
        }
        if !self.rest.is_empty() {
            return Some(Frame::data(std::mem::take(&mut self.rest).freeze()));
        }
        self.trailers.take().map(Frame::trailers)
    }
}

/// Bytes held by all bodies of one kind, over all workers.
#[derive(Debug)]
pub struct BufferBudget {
    held: AtomicUsize,
    max: usize,
}

impl BufferBudget {
    /// Room for bodies that wait for more before they have a connection.
    pub fn of_gathered() -> BufferBudget {
        BufferBudget { held: AtomicUsize::new(0), max: GATHERED_BYTES_MAX }
    }

    /// Room for copies of bodies. They have their own, so that no request finds none because of them.
    pub fn of_copies() -> BufferBudget {
        BufferBudget { held: AtomicUsize::new(0), max: COPIED_BYTES_MAX }
    }
}

/// The part of one body; given back when dropped.
#[derive(Debug)]
struct BufferReservation {
    room: Arc<BufferBudget>,
    bytes: usize,
}

impl BufferReservation {
    /// Holds `bytes` in all; false if that is beyond the bound.
    fn grow(&mut self, bytes: usize) -> bool {
        let more = bytes.saturating_sub(self.bytes);
        let before = self.room.held.fetch_add(more, Ordering::Relaxed);
        self.bytes += more;
        before + more <= self.room.max
    }
}

impl Drop for BufferReservation {
    fn drop(&mut self) {
        self.room.held.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// Bytes that all bodies that wait for more may hold together.
const GATHERED_BYTES_MAX: usize = 64 << 20;
/// Bytes that all copies of bodies may hold together, those included that are on their way to mirrors.
const COPIED_BYTES_MAX: usize = 64 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_come_back_in_order_and_small_ones_are_copied_once_more_is_waited_for() {
        let room = Arc::new(BufferBudget::of_gathered());
        let mut gathered = BufferedBody::default();
        let buffer = Bytes::from(vec![b'a'; 8 * 1024]);
        gathered.push(Frame::data(buffer.slice(..3)));
        assert!(!buffer.is_unique(), "what comes at once is not copied");
        assert!(gathered.compact(&room));
        assert!(buffer.is_unique(), "what waits does not keep the buffer it was read into");
        gathered.push(Frame::data(Bytes::from_static(b"bc")));
        gathered.push(Frame::trailers(HeaderMap::new()));
        assert!(gathered.compact(&room));
        let held = room.held.load(Ordering::Relaxed);
        assert!((5..64).contains(&held), "{held}");
        let data = gathered.take().and_then(|frame| frame.into_data().ok()).expect("data comes first");
        assert_eq!(data, "aaabc");
        assert!(gathered.take().is_some_and(|frame| frame.is_trailers()));
        assert!(gathered.take().is_none());
        drop(gathered);
        assert_eq!(room.held.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn room_is_bounded_over_all_bodies() {
        let room = Arc::new(BufferBudget::of_gathered());
        let held = |bytes| BufferReservation { room: Arc::clone(&room), bytes: 0 }.grow(bytes);
        assert!(held(GATHERED_BYTES_MAX));
        let mut first = BufferReservation { room: Arc::clone(&room), bytes: 0 };
        assert!(first.grow(GATHERED_BYTES_MAX));
        assert!(!held(1));
        drop(first);
        assert!(held(1));
    }
}
