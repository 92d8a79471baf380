//! [`Wait`]: where answers of Redis meet the request that waits for them. Answers come from another thread and may come
//! after the request was decided, so every answer and the end of the wait are ordered by one lock: an answer is either
//! used by the request or treated as [`LateAnswer`] by whoever brings it.

use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};

use smallvec::SmallVec;

use super::check::charge_state::{ChargeOutcome, ChargeState, unheard};
use limit::Charge;

/// An answer that came after its request was decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LateAnswer {
    /// Redis took the charge, at this time of its clock, microseconds since 1970.
    Taken { taken_us: u64 },
    /// Redis refused it.
    Untaken,
    /// Redis certainly never got it.
    Unheard,
    /// Whether Redis took it is unknown.
    Unknown,
}

/// How a charge was decided before Redis answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EarlyDecision {
    /// Its request was admitted, so it counts.
    Stands {
        /// When this node decided it by fallback, nanoseconds.
        decided_ns: Option<u64>,
    },
    /// Its request was refused or dropped.
    Refused,
}

/// A request that waits for units of one key.
#[derive(Clone, Debug)]
pub(super) struct Waiter {
    pub(super) wait: Arc<Wait>,
    pub(super) index: usize,
    pub(super) charge: Charge,
}

/// The result of [`Wait::try_resolve`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Attempt {
    Resolved,
    /// The answer did not decide it; the request goes on waiting.
    Open,
    /// Its request no longer waits, so the answer was not used.
    Over,
}

#[derive(Debug)]
pub(super) struct Wait(Mutex<State>);

#[derive(Debug)]
struct State {
    answers: SmallVec<[ChargeOutcome; 4]>,
    /// How many charges have no answer yet.
    open: usize,
    over: bool,
    /// How each charge without an answer was decided; empty until `tell_fates`.
    fates: SmallVec<[EarlyDecision; 4]>,
    /// Answers that came after the wait ended and before `fates` was known.
    late: SmallVec<[(usize, LateAnswer); 2]>,
    waker: Option<Waker>,
}

impl Wait {
    /// For a request with so many charges, of which `open` wait for an answer.
    pub(super) fn new(charges: usize, open: usize) -> Wait {
        let answers = SmallVec::from_elem(unheard(ChargeState::Asked), charges);
        Wait(Mutex::new(State {
            answers,
            open,
            over: false,
            fates: SmallVec::new(),
            late: SmallVec::new(),
            waker: None,
        }))
    }

    /// Whether a charge was admitted without its answer, or is being decided right now.
    pub(super) fn stands(&self, charge: usize) -> bool {
        let state = self.state();
        state.over && state.fates.get(charge) != Some(&EarlyDecision::Refused)
    }

    /// Resolves a charge with `answer` if its request still waits; else returns false without calling it. The lock is
    /// held during the call, so what `answer` spends cannot outlive the wait.
    pub(super) fn resolve(&self, charge: usize, answer: impl FnOnce() -> ChargeOutcome) -> bool {
        self.try_resolve(charge, || Some(answer())) != Attempt::Over
    }

    /// As `resolve`, for an `answer` that may leave the charge open.
    pub(super) fn try_resolve(
        &self,
        charge: usize,
        answer: impl FnOnce() -> Option<ChargeOutcome>,
    ) -> Attempt {
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

    pub(super) fn is_resolved(&self) -> bool {
        self.state().open == 0
    }

    pub(super) fn is_over(&self) -> bool {
        self.state().over
    }

    /// Ends the wait and returns the answers so far. From now on `resolve` returns false, and whoever brings an answer
    /// undoes it.
    pub(super) fn close(&self) -> SmallVec<[ChargeOutcome; 4]> {
        let mut state = self.state();
        state.over = true;
        std::mem::take(&mut state.answers)
    }

    /// Hands in an answer that came too late. Returns how the charge was decided. `None` if the request is being decided
    /// right now: then [`Wait::tell_fates`] returns the answer to the deciding thread.
    pub(super) fn resolve_late(&self, charge: usize, late: LateAnswer) -> Option<EarlyDecision> {
        let mut state = self.state();
        if let Some(fate) = state.fates.get(charge) {
            return Some(*fate);
        }
        state.late.push((charge, late));
        None
    }

    /// Publishes how the charges were decided, and returns the late answers that came before.
    pub(super) fn tell_fates(&self, fates: &[EarlyDecision]) -> SmallVec<[(usize, LateAnswer); 2]> {
        let mut state = self.state();
        state.fates = fates.into();
        std::mem::take(&mut state.late)
    }

    /// Done when every charge has its answer.
    pub(super) fn resolved(&self) -> impl Future<Output = ()> {
        poll_fn(|cx| {
            let mut state = self.state();
            if state.open == 0 {
                return Poll::Ready(());
            }
            if state.waker.as_ref().is_none_or(|waker| !waker.will_wake(cx.waker())) {
                state.waker = Some(cx.waker().clone());
            }
            Poll::Pending
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
