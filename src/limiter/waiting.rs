//! A request that waits for Redis, and who answers it.
//!
//! The request lives on a worker, answers come on another thread. What is said of a charge and whether the request
//! still waits is decided under one lock: an answer is either used by the request or undone by who brought it.

use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use smallvec::SmallVec;

use super::attempt::{Refund, Stand};
use super::exact::{Fate, Late};
use super::{Caller, Limiter};
use crate::limit::{Answer, Charge, Outcome};

/// A request whose decision is not made yet. Resume it with [`Limiter::resume`]; dropped, it gives back what it took.
#[must_use = "a request that waits holds what it has taken"]
pub struct Waiting {
    pub(super) limiter: Arc<Limiter>,
    pub(super) charges: SmallVec<[Charge; 4]>,
    pub(super) stands: SmallVec<[Stand; 4]>,
    pub(super) wait: Arc<Wait>,
    pub(super) caller: Caller,
    pub(super) started_ns: u64,
    /// What this node's table holds for charges that Redis is asked about: they are admitted where no answer comes.
    pub(super) reserved: SmallVec<[Reserved; 2]>,
}

/// A charge that this node's own share has room for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reserved {
    pub(super) index: usize,
    pub(super) undo: Refund,
    pub(super) outcome: Outcome,
}

/// What is said of one charge while its request waits.
#[derive(Clone, Copy, Debug)]
pub(super) enum Verdict {
    /// It is taken; so it is undone.
    Taken(Outcome, Refund),
    /// It would fit, but another part of the same question did not, so nothing was taken.
    Fits(Outcome),
    /// It does not fit.
    Refused(Outcome),
    /// There is no answer.
    Unanswered,
    /// There is none, and Redis took nothing.
    Undone,
}

impl Verdict {
    /// The same, where a refusal says to wait no less.
    pub(super) fn not_before(self, wait_ns: u64) -> Verdict {
        match self {
            Verdict::Refused(outcome) => match outcome.answer() {
                Answer::Later { retry_after_ns } => {
                    let retry_after_ns = retry_after_ns.max(wait_ns);
                    let reset_ns = outcome.reset_ns.max(retry_after_ns);
                    Verdict::Refused(Outcome::new(
                        Answer::Later { retry_after_ns },
                        outcome.remaining,
                        reset_ns,
                    ))
                }
                Answer::Admitted | Answer::Never => self,
            },
            _ => self,
        }
    }
}

/// What came of trying to settle a charge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Attempt {
    Settled,
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
    verdicts: SmallVec<[Option<Verdict>; 4]>,
    /// Charges without a verdict.
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
        let verdicts = SmallVec::from_elem(None, charges);
        Wait(Mutex::new(State {
            verdicts,
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

    /// Lets `verdict` say what becomes of a charge, if its request still waits; else returns false.
    pub(super) fn settle(&self, charge: usize, verdict: impl FnOnce() -> Verdict) -> bool {
        self.try_settle(charge, || Some(verdict())) != Attempt::Over
    }

    /// The same, where `verdict` may have nothing to say yet.
    pub(super) fn try_settle(&self, charge: usize, verdict: impl FnOnce() -> Option<Verdict>) -> Attempt {
        let mut state = self.state();
        if state.over {
            return Attempt::Over;
        }
        let Some(verdict) = verdict() else { return Attempt::Open };
        state.verdicts[charge] = Some(verdict);
        state.open -= 1;
        let waker = if state.open == 0 { state.waker.take() } else { None };
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
        Attempt::Settled
    }

    /// Whether every charge has its verdict.
    pub(super) fn is_settled(&self) -> bool {
        self.state().open == 0
    }

    /// Whether nobody waits any more.
    pub(super) fn is_over(&self) -> bool {
        self.state().over
    }

    /// Ends the wait: answers that come later are undone by who brings them.
    pub(super) fn close(&self) -> SmallVec<[Option<Verdict>; 4]> {
        let mut state = self.state();
        state.over = true;
        std::mem::take(&mut state.verdicts)
    }

    /// Takes an answer to a charge that was decided without it: what became of the charge, or `None` where that is being
    /// decided, by who takes up the answer then.
    pub(super) fn settle_late(&self, charge: usize, late: Late) -> Option<Fate> {
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

impl Waiting {
    /// Whether Redis has answered everything.
    pub fn is_settled(&self) -> bool {
        self.wait.is_settled()
    }

    /// Done when Redis has answered everything.
    pub fn settled(&self) -> impl Future<Output = ()> {
        Settled(&self.wait)
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let verdicts = self.wait.close();
        for reserved in self.reserved.drain(..) {
            // What Redis took, too, is undone with that.
            if !matches!(verdicts.get(reserved.index), Some(Some(Verdict::Taken(..)))) {
                self.stands[reserved.index] = Stand::taken(reserved.undo);
            }
        }
        for (stand, verdict) in self.stands.iter_mut().zip(verdicts) {
            if let Some(Verdict::Taken(_, undo)) = verdict {
                *stand = Stand::taken(undo);
            }
        }
        self.limiter.undo(&self.charges, &self.stands, self.started_ns);
        // Resumed, it has none.
        if !self.stands.is_empty() {
            let fates = SmallVec::from_elem(Some(Fate::Refused), self.charges.len());
            self.limiter.tell_fates(&self.wait, &self.charges, fates);
        }
    }
}

/// Done when every charge of a wait has its verdict.
pub(super) struct Settled<'w>(pub(super) &'w Wait);

impl Future for Settled<'_> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        self.0.poll(cx)
    }
}
