//! Where the answers of Redis meet the request that waits for them, and what becomes of those that come too late.

use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use smallvec::SmallVec;

use super::charge_state::{ChargeState, Refund, Said, unheard};
use crate::limit::{Charge, Outcome};

/// A charge that this node's own share has room for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reserved {
    pub(super) index: usize,
    pub(super) refund: Refund,
    pub(super) outcome: Outcome,
}

/// An answer to a request that waits no longer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Late {
    /// Redis took the charge, at this time of its clock, microseconds since 1970.
    Taken { taken_us: u64 },
    /// It certainly took nothing.
    Untaken,
    /// Nobody knows.
    Unknown,
}

/// What became of a charge that was decided without Redis's answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// Admitted: it counts.
    Stands,
    /// Its request was refused, or has gone.
    Refused,
}

/// A request that waits for units of one key.
#[derive(Clone, Debug)]
pub(super) struct Waiter {
    pub(super) wait: Arc<Wait>,
    /// Index of its charge.
    pub(super) index: usize,
    pub(super) charge: Charge,
}

/// What came of trying to resolve a charge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Attempt {
    Resolved,
    /// It waits on.
    Open,
    /// Its request waits no longer, and nothing was said of it.
    Over,
}

/// Where answers meet their request.
#[derive(Debug)]
pub(super) struct Wait(Mutex<State>);

#[derive(Debug)]
struct State {
    answers: SmallVec<[Said; 4]>,
    /// Charges without an answer.
    open: usize,
    /// Nobody waits any more.
    over: bool,
    /// Which charges this node's table counts already.
    reserved: SmallVec<[usize; 2]>,
    /// What became of each charge that was decided without its answer; empty: that is not known yet.
    fates: SmallVec<[Option<Fate>; 4]>,
    /// Answers that came after the wait and before that was known.
    late: SmallVec<[(usize, Late); 2]>,
    waker: Option<Waker>,
}

impl Wait {
    /// For a request of so many charges, of which `open` wait.
    pub(super) fn new(charges: usize, open: usize) -> Wait {
        let answers = SmallVec::from_elem(unheard(ChargeState::Asked), charges);
        Wait(Mutex::new(State {
            answers,
            open,
            over: false,
            reserved: SmallVec::new(),
            fates: SmallVec::new(),
            late: SmallVec::new(),
            waker: None,
        }))
    }

    /// Notes which charges this node's table counts already, before Redis is asked.
    pub(super) fn reserve(&self, reserved: &[Reserved]) {
        self.state().reserved = reserved.iter().map(|reserved| reserved.index).collect();
    }

    /// Whether this node's table counts a charge already.
    pub(super) fn is_reserved(&self, charge: usize) -> bool {
        self.state().reserved.contains(&charge)
    }

    /// Lets `answer` say what becomes of a charge, if its request still waits; else returns false.
    pub(super) fn resolve(&self, charge: usize, answer: impl FnOnce() -> Said) -> bool {
        self.try_resolve(charge, || Some(answer())) != Attempt::Over
    }

    /// The same, if `answer` may have nothing to say yet.
    pub(super) fn try_resolve(&self, charge: usize, answer: impl FnOnce() -> Option<Said>) -> Attempt {
        let mut state = self.state();
        if state.over {
            return Attempt::Over;
        }
        let Some(answer) = answer() else { return Attempt::Open };
        state.answers[charge] = answer;
        state.open -= 1;
        let waker = if state.open == 0 { state.waker.take() } else { None };
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
        Attempt::Resolved
    }

    /// Whether every charge has its answer.
    pub(super) fn is_resolved(&self) -> bool {
        self.state().open == 0
    }

    /// Whether nobody waits any more.
    pub(super) fn is_over(&self) -> bool {
        self.state().over
    }

    /// Ends the wait: answers that come later are undone by who brings them.
    pub(super) fn close(&self) -> SmallVec<[Said; 4]> {
        let mut state = self.state();
        state.over = true;
        std::mem::take(&mut state.answers)
    }

    /// Takes an answer to a charge that was decided without it: what became of the charge, or `None` where that is being
    /// decided, by who takes up the answer then.
    pub(super) fn resolve_late(&self, charge: usize, late: Late) -> Option<Fate> {
        let mut state = self.state();
        if let Some(fate) = state.fates.get(charge) {
            return *fate;
        }
        state.late.push((charge, late));
        None
    }

    /// Says what became of the charges; the answers that have come meanwhile.
    pub(super) fn tell_fates(&self, fates: SmallVec<[Option<Fate>; 4]>) -> SmallVec<[(usize, Late); 2]> {
        let mut state = self.state();
        state.fates = fates;
        std::mem::take(&mut state.late)
    }

    fn poll(&self, cx: &Context<'_>) -> Poll<()> {
        let mut state = self.state();
        if state.open == 0 {
            return Poll::Ready(());
        }
        if state.waker.as_ref().is_none_or(|waker| !waker.will_wake(cx.waker())) {
            state.waker = Some(cx.waker().clone());
        }
        Poll::Pending
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Done when every charge of a wait has its answer.
pub(super) struct Resolved<'w>(pub(super) &'w Wait);

impl Future for Resolved<'_> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        self.0.poll(cx)
    }
}
