//! Whose turn it is in a call: ours, or that of a client that has to read. What clients do not read is bounded.

use std::cell::Cell;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use tonic::Status;

use super::limits::UNREAD_MAX;

/// A call, counted while it is our turn.
pub(super) struct Turn {
    ours: Rc<Cell<usize>>,
    is_ours: bool,
}

impl Turn {
    /// It is ours; `ours` counts those of a connection.
    pub(super) fn ours(ours: &Rc<Cell<usize>>) -> Turn {
        ours.set(ours.get() + 1);
        Turn { ours: Rc::clone(ours), is_ours: true }
    }

    fn set(&mut self, is_ours: bool) {
        match (self.is_ours, is_ours) {
            (false, true) => self.ours.set(self.ours.get() + 1),
            (true, false) => self.ours.set(self.ours.get() - 1),
            _ => {}
        }
        self.is_ours = is_ours;
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.set(false);
    }
}

/// The body of an answer. It is our turn while it waits for what it is made of.
pub(super) struct AnswerBody {
    body: tonic::body::Body,
    turn: Turn,
}

impl AnswerBody {
    pub(super) fn new(body: tonic::body::Body, mut turn: Turn) -> AnswerBody {
        turn.set(false);
        AnswerBody { body, turn }
    }
}

impl Body for AnswerBody {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let polled = Pin::new(&mut self.body).poll_frame(cx);
        self.turn.set(polled.is_pending());
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// The answers of one connection that wait for its client to read.
pub(super) struct UnreadAnswers {
    own: usize,
    /// Those of all connections of the thread.
    all: Rc<Cell<usize>>,
}

impl UnreadAnswers {
    pub(super) fn new(all: &Rc<Cell<usize>>) -> UnreadAnswers {
        UnreadAnswers { own: 0, all: Rc::clone(all) }
    }

    /// Takes how many there are now. Returns whether there may be so many; always if there are none, because closing this
    /// connection would free nothing.
    pub(super) fn set(&mut self, own: usize) -> bool {
        self.all.set(self.all.get() - self.own + own);
        self.own = own;
        own == 0 || self.all.get() <= UNREAD_MAX
    }
}

impl Drop for UnreadAnswers {
    fn drop(&mut self) {
        self.set(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_that_nobody_reads_are_bounded_together() {
        let all = Rc::new(Cell::new(0));
        let [mut first, mut second, mut third] = [(); 3].map(|()| UnreadAnswers::new(&all));
        assert!(first.set(UNREAD_MAX - 1) && second.set(1) && first.set(UNREAD_MAX - 1));
        assert!(!second.set(2), "one too many");
        assert!(third.set(0), "whose client reads is not concerned");
        drop(second);
        assert!(third.set(1) && first.set(3));
        assert_eq!(all.get(), 4);
    }
}
