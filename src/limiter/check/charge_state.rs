//! [`ChargeState`]: the state of one charge while its request is decided. [`Refund`]: where its units go back to.
//!
//! Plain values; what moves a charge from one state to another is in `attempt.rs` and `wait.rs`.

use crate::local::StateLocation;
use limit::{Answer, Outcome};

/// The state of one charge while its request is decided: on the first walk over the charges, while Redis is asked, and
/// at the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ChargeState {
    Taken {
        refund: Refund,
        /// Its lease runs low and should be renewed if the request is admitted.
        renews: bool,
    },
    Refused,
    /// It would fit, but was not taken because another charge refuses the request.
    Fits,
    Asked,
    /// Redis was asked, did not answer, and may have taken it.
    Unanswered,
    /// Redis was asked and certainly did not take it.
    Untaken,
}

pub(crate) type ChargeOutcome = (ChargeState, Outcome);

impl ChargeState {
    /// Taken, without a lease to renew.
    pub(crate) fn taken(refund: Refund) -> ChargeState {
        ChargeState::Taken { refund, renews: false }
    }

    /// The state that follows from an outcome: taken or refused.
    pub(crate) fn of(outcome: &Outcome, refund: Refund) -> ChargeState {
        if outcome.is_admitted() { ChargeState::taken(refund) } else { ChargeState::Refused }
    }

    pub(crate) fn is_decided(self) -> bool {
        matches!(self, ChargeState::Taken { .. } | ChargeState::Refused | ChargeState::Fits)
    }
}

/// An outcome with the state that follows from it.
pub(crate) fn said(outcome: Outcome, refund: Refund) -> ChargeOutcome {
    (ChargeState::of(&outcome, refund), outcome)
}

/// A state without an outcome; the placeholder says admitted with nothing left.
pub(crate) fn unheard(state: ChargeState) -> ChargeOutcome {
    (state, Outcome::new(Answer::Admitted, 0, 0))
}

/// The same, with the wait of a refusal raised to at least `wait_ns`.
pub(crate) fn not_before((state, outcome): ChargeOutcome, wait_ns: u64) -> ChargeOutcome {
    match (state, outcome.answer()) {
        (ChargeState::Refused, Answer::Later { retry_after_ns }) => {
            let retry_after_ns = retry_after_ns.max(wait_ns);
            let reset_ns = outcome.reset_ns.max(retry_after_ns);
            (state, Outcome::new(Answer::Later { retry_after_ns }, outcome.remaining, reset_ns))
        }
        _ => (state, outcome),
    }
}

/// Where the units of a charge go back to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refund {
    /// To this node's table, under the charge's own quota.
    Table(StateLocation),
    /// To this node's table, under this node's share of the quota: it was decided by fallback, perhaps after a wait.
    Fallback {
        /// Where in the table the units were taken.
        place: StateLocation,
        /// When they were taken, nanoseconds of the monotonic clock.
        taken_ns: u64,
    },
    /// To the lease.
    Lease,
    /// To Redis. It needs the time of its own clock, so that it finds the window in which it took the charge.
    Redis {
        /// Microseconds since 1970.
        taken_us: u64,
    },
    /// To this node's permits; Redis is told the new number.
    Permit,
    /// Not at all: nothing was counted.
    Nothing,
}

impl Default for Refund {
    fn default() -> Refund {
        Refund::Table(StateLocation::Slot)
    }
}
