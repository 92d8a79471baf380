//! The state of one charge while it is decided, and where its units go back to.

use crate::limit::{Answer, Outcome};
use crate::local::Place;

/// The state of one charge while its request is decided: on the first walk over the charges, while Redis is asked, and
/// at the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ChargeState {
    /// It is spent.
    Taken {
        /// Where it goes back to.
        refund: Refund,
        /// The lease it came from should be renewed if the request passes.
        renews: bool,
    },
    /// It does not fit.
    Refused,
    /// Nothing was spent on it, because another charge refuses the request.
    Fits,
    /// Redis is asked, and has not answered.
    Asked,
    /// Redis was asked, and nobody knows what it did.
    Unanswered,
    /// Redis was asked, and certainly took nothing.
    Untaken,
}

/// A charge's state, and what its window says.
pub(super) type Said = (ChargeState, Outcome);

impl ChargeState {
    /// It is spent, and no lease is to be renewed for it.
    pub(super) fn taken(refund: Refund) -> ChargeState {
        ChargeState::Taken { refund, renews: false }
    }

    /// What a window's answer makes of it.
    pub(super) fn of(outcome: &Outcome, refund: Refund) -> ChargeState {
        if outcome.is_admitted() { ChargeState::taken(refund) } else { ChargeState::Refused }
    }

    /// Whether a window has said what becomes of it.
    pub(super) fn is_decided(self) -> bool {
        matches!(self, ChargeState::Taken { .. } | ChargeState::Refused | ChargeState::Fits)
    }
}

/// What a window's answer makes of a charge, with the answer.
pub(super) fn said(outcome: Outcome, refund: Refund) -> Said {
    (ChargeState::of(&outcome, refund), outcome)
}

/// The state of a charge of whose window nothing is known.
pub(super) fn unheard(state: ChargeState) -> Said {
    (state, Outcome::new(Answer::Admitted, 0, 0))
}

/// The same, where a refusal says to wait no less.
pub(super) fn not_before((state, outcome): Said, wait_ns: u64) -> Said {
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
    /// To this node's own table, under its own quota.
    Table(Place),
    /// To the same, under this node's share of the quota: it was decided without Redis, perhaps after a wait.
    Fallback {
        /// Where in the table.
        place: Place,
        /// When, nanoseconds.
        taken_ns: u64,
    },
    /// To the lease.
    Lease,
    /// To Redis, which took it at this time of its clock.
    Redis {
        /// Microseconds since 1970.
        taken_us: u64,
    },
    /// To this node's permits, which Redis is told of.
    Permit,
    /// Not at all: nothing was counted.
    Nothing,
}

impl Default for Refund {
    fn default() -> Refund {
        Refund::Table(Place::Slot)
    }
}
