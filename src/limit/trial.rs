//! [`Trial`]: two policies that are asked about one request, of which one decides and the other is compared with it.
//! [`TrialSet`]: for which of them a request is refused. Plain values; they decide nothing.
//!
//! A request is charged all or nothing. To find what the compared policy would do in the place of the one that decides,
//! the limiter follows one world more for each trial: the request's own world, in which the policy that decides is one of
//! its limits, and another in which the compared policy is. What any other limit refuses is refused in both. So each of the
//! two counts what it would have counted alone, as far as the other limits let it.

/// The part of a charge in a trial.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trial {
    number: u8,
    /// Whether its policy decides or is compared.
    pub side: Side,
}

/// What a policy of a trial does about a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// It decides whether the request is refused.
    Decides,
    /// It is charged as if it decided, and refuses nothing.
    Compared,
}

impl Trial {
    /// The most trials that one request can be in.
    pub const MAX: usize = 31;

    /// A side of the request's trial of this number, which begins with 0. Beyond [`Trial::MAX`] there is none: the
    /// configuration allows no more.
    pub fn new(number: usize, side: Side) -> Option<Trial> {
        let number = u8::try_from(number + 1).ok().filter(|number| usize::from(*number) <= Trial::MAX)?;
        Some(Trial { number, side })
    }

    /// Whether both are sides of one trial.
    pub fn is_of(self, other: Trial) -> bool {
        self.number == other.number
    }

    fn world(self) -> TrialSet {
        TrialSet(1 << self.number)
    }
}

/// A set of worlds: the request's own, and one for each of its trials.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct TrialSet(u32);

impl TrialSet {
    /// No world, not even the request's own.
    pub const NONE: TrialSet = TrialSet(0);
    /// The request's own, in which it is decided.
    pub const OWN: TrialSet = TrialSet(1);
    /// Every world: the request's own and those of all trials.
    pub const ALL: TrialSet = TrialSet(u32::MAX);

    /// Whether all of these are among them.
    #[inline]
    pub fn has(self, others: TrialSet) -> bool {
        self.0 & others.0 == others.0
    }

    /// Adds these worlds to the set.
    #[inline]
    pub fn add(&mut self, others: TrialSet) {
        self.0 |= others.0;
    }
}

/// The world in which a policy of this side counts.
#[inline]
pub fn world_of(trial: Option<Trial>) -> TrialSet {
    match trial {
        Some(trial) if trial.side == Side::Compared => trial.world(),
        _ => TrialSet::OWN,
    }
}

/// The worlds that are refused by a policy of this side.
#[inline]
pub fn refused_by(trial: Option<Trial>, shadow: bool) -> TrialSet {
    match trial {
        Some(trial) if trial.side == Side::Compared => trial.world(),
        _ if shadow => TrialSet::NONE,
        Some(trial) => TrialSet(!trial.world().0),
        None => TrialSet::ALL,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Algorithm, Charge, Key, Quota};

    fn charge(trial: Option<Trial>, shadow: bool) -> Charge {
        let one = std::num::NonZeroU64::MIN;
        let quota = Quota::new(Algorithm::TokenBucket, one, one, one);
        Charge { trial, shadow, ..Charge::one(Key::default(), quota) }
    }

    #[test]
    fn a_refusal_concerns_the_worlds_that_its_policy_is_in() {
        let side = |number, side| Trial::new(number, side);
        let plain = charge(None, false);
        let decides = charge(side(0, Side::Decides), false);
        let compared = charge(side(0, Side::Compared), true);
        let other = charge(side(1, Side::Compared), true);
        let refused_alone = |charge: &Charge| {
            let refused = charge.refuses();
            [&plain, &compared, &other].map(|charge| refused.has(charge.world()))
        };
        assert_eq!(refused_alone(&plain), [true, true, true]);
        assert_eq!(refused_alone(&decides), [true, false, true]);
        assert_eq!(refused_alone(&compared), [false, true, false]);
        assert_eq!(refused_alone(&charge(None, true)), [false, false, false]);
        assert_eq!(decides.world(), TrialSet::OWN);
        assert!(charge(None, true).is_lenient() && !compared.is_lenient() && !plain.is_lenient());
    }

    #[test]
    fn there_are_as_many_worlds_as_trials() {
        assert!(Trial::new(Trial::MAX - 1, Side::Compared).is_some());
        assert_eq!(Trial::new(Trial::MAX, Side::Compared), None);
        assert_eq!(Trial::new(usize::from(u8::MAX), Side::Compared), None);
    }
}
