//! A copy of a request's body, made while it goes upstream. It knows nothing of where the copy goes.

use std::sync::Arc;

use bytes::Bytes;
use http_body::Frame;

use crate::proxy::request::buffered_body::{BufferBudget, BufferedBody};

/// What has been copied so far, and who is told of the end.
#[derive(derive_more::Debug)]
#[debug("BodyCopy({copied:?})")]
pub struct BodyCopy {
    copied: BufferedBody,
    bytes_max: usize,
    room: Arc<BufferBudget>,
    /// Called once; taken by then.
    end: Option<Box<End>>,
}

type End = dyn FnOnce(Result<BufferedBody, CopyFailure>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CopyFailure {
    /// The body is larger than may be copied.
    TooLarge,
    /// Copies of other bodies use up the memory for all.
    NoRoom,
    /// The body broke off, or was not taken to its end.
    Incomplete,
}

impl BodyCopy {
    /// A copy of at most so many bytes, which are counted in `room`. `end` is called once: when the body is whole, or when it
    /// is known that there will be no copy.
    pub fn new(
        bytes_max: usize,
        room: &Arc<BufferBudget>,
        end: impl FnOnce(Result<BufferedBody, CopyFailure>) + 'static,
    ) -> BodyCopy {
        let (copied, room) = (BufferedBody::default(), Arc::clone(room));
        BodyCopy { copied, bytes_max, room, end: Some(Box::new(end)) }
    }

    /// Adds the next frame of the body. False if it cannot be copied: what was copied before is let go at once.
    pub fn push(&mut self, frame: &Frame<Bytes>) -> bool {
        let bytes = frame.data_ref().map_or(0, Bytes::len);
        let lost = if self.copied.len() + bytes > self.bytes_max {
            CopyFailure::TooLarge
        } else if !self.copied.copy(frame, &self.room) {
            CopyFailure::NoRoom
        } else {
            return true;
        };
        self.copied = BufferedBody::default();
        self.tell(Err(lost));
        false
    }

    pub fn end(mut self) {
        let copied = std::mem::take(&mut self.copied);
        self.tell(Ok(copied));
    }

    fn tell(&mut self, copied: Result<BufferedBody, CopyFailure>) {
        if let Some(end) = self.end.take() {
            end(copied);
        }
    }
}

impl Drop for BodyCopy {
    fn drop(&mut self) {
        self.tell(Err(CopyFailure::Incomplete));
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::rc::Rc;

    use super::*;

    /// What a copy of at most four bytes comes to.
    fn told(pieces: &[&'static str], is_ended: bool) -> Vec<Result<String, CopyFailure>> {
        let ends = Rc::new(RefCell::new(Vec::new()));
        let seen = Rc::clone(&ends);
        let mut copy = BodyCopy::new(4, &Arc::new(BufferBudget::of_copies()), move |copied| {
            seen.borrow_mut().push(copied.map(|mut copied| {
                let data = copied.take().and_then(|frame| frame.into_data().ok()).unwrap_or_default();
                String::from_utf8_lossy(&data).into_owned()
            }));
        });
        let is_copied =
            pieces.iter().all(|piece| copy.push(&Frame::data(Bytes::from_static(piece.as_bytes()))));
        if is_copied && is_ended {
            copy.end()
        } else {
            drop(copy)
        }
        ends.take()
    }

    #[test]
    fn a_body_up_to_the_bound_is_copied_and_a_larger_one_is_let_go() {
        assert_eq!(told(&["ab", "cd"], true), [Ok("abcd".to_owned())]);
        assert_eq!(told(&["abcd"], true), [Ok("abcd".to_owned())]);
        assert_eq!(told(&[], true), [Ok(String::new())]);
        assert_eq!(told(&["abc", "de"], true), [Err(CopyFailure::TooLarge)]);
        assert_eq!(told(&["abc"], false), [Err(CopyFailure::Incomplete)]);
    }

    #[test]
    fn copies_of_all_bodies_have_one_bound() {
        let room = Arc::new(BufferBudget::of_copies());
        let piece = Frame::data(Bytes::from(vec![0; 16 << 20]));
        let mut copies: Vec<BodyCopy> = (0..4).map(|_| BodyCopy::new(16 << 20, &room, |_| ())).collect();
        assert!(copies.iter_mut().all(|copy| copy.push(&piece)));
        let one_more = || BodyCopy::new(16 << 20, &room, |_| ()).push(&piece);
        assert!(!one_more());
        copies.pop();
        assert!(one_more());
    }
}
