//! The limiter as a request meets it: several charges, all or nothing.
//!
//! Charges are taken in the order of the policies; the first refusal gives back what the others took, so a refused
//! request costs nothing anywhere. Least-left-first would save a few give-backs and cost a look at every key of every
//! request; give-backs are as cheap as takes, so the order is kept. On one node the local tier is the whole limiter.

use smallvec::SmallVec;

use crate::limit::{Charge, Outcome, Quota};
use crate::local::Table;

/// Decides requests.
#[derive(Debug)]
pub struct Limiter {
    table: Table,
}

/// What was decided of one request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    /// Whether it may pass.
    pub admitted: bool,
    /// The answer to each charge, in their order. After a refusal the others say what they would have.
    pub outcomes: SmallVec<[Outcome; 4]>,
    /// The charge that says most to a client: of an admitted request the one with the least left, of a refused one
    /// that with the longest wait. Never a shadow's; `None` where there are only those.
    pub binding: Option<usize>,
}

impl Limiter {
    /// A limiter on this table.
    pub fn new(table: Table) -> Limiter {
        Limiter { table }
    }

    /// The local tier.
    pub fn table(&self) -> &Table {
        &self.table
    }

    /// Makes quotas known, once a configuration; see [`Table::declare`].
    pub fn declare(&self, quotas: impl IntoIterator<Item = Quota>) {
        self.table.declare(quotas);
    }

    /// Decides all charges together, and charges all or none.
    pub fn decide(&self, charges: &[Charge], now_ns: u64) -> Decision {
        let mut outcomes: SmallVec<[Outcome; 4]> = SmallVec::new();
        for charge in charges {
            let outcome = self.table.take(charge, now_ns);
            outcomes.push(outcome);
            if !outcome.is_admitted() && !charge.shadow {
                return self.refuse(charges, outcomes, now_ns);
            }
        }
        // A shadow that was over has charged nothing, unless it is to count that too.
        for (charge, _) in
            charges.iter().zip(&outcomes).filter(|(charge, outcome)| counts_denied(charge, outcome))
        {
            self.table.charge(charge, now_ns);
        }
        decision(charges, outcomes)
    }

    /// What [`Limiter::decide`] would say; spends nothing.
    pub fn peek(&self, charges: &[Charge], now_ns: u64) -> Decision {
        decision(charges, charges.iter().map(|charge| self.table.peek(charge, now_ns)).collect())
    }

    /// The last of `outcomes` is the refusal: the others give back, the rest are asked without spending.
    fn refuse(&self, charges: &[Charge], mut outcomes: SmallVec<[Outcome; 4]>, now_ns: u64) -> Decision {
        let refused = outcomes.len() - 1;
        for (charge, outcome) in charges[..refused].iter().zip(&mut outcomes) {
            // What counts denied requests keeps its charge; so does a shadow, which stands for a request let pass.
            if outcome.is_admitted() && !charge.count_denied {
                self.table.give_back(charge, now_ns);
                outcome.remaining += charge.cost;
            }
        }
        for charge in &charges[outcomes.len()..] {
            outcomes.push(self.table.peek(charge, now_ns));
        }
        for (index, charge) in charges.iter().enumerate() {
            if charge.count_denied && (index >= refused || !outcomes[index].is_admitted()) {
                self.table.charge(charge, now_ns);
            }
        }
        decision(charges, outcomes)
    }
}

fn counts_denied(charge: &Charge, outcome: &Outcome) -> bool {
    charge.count_denied && !outcome.is_admitted()
}

fn decision(charges: &[Charge], outcomes: SmallVec<[Outcome; 4]>) -> Decision {
    let shown = || charges.iter().zip(&outcomes).enumerate().filter(|(_, (charge, _))| !charge.shadow);
    let admitted = shown().all(|(_, (_, outcome))| outcome.is_admitted());
    let binding = match admitted {
        true => shown().min_by_key(|(_, (_, outcome))| outcome.remaining),
        // No wait at all is the longest: it never ends.
        false => shown().max_by_key(|(_, (_, outcome))| outcome.retry_after_ns().unwrap_or(u64::MAX)),
    };
    Decision { admitted, binding: binding.map(|(index, _)| index), outcomes }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limit::{Algorithm, Answer};
    use std::num::NonZeroU64;

    const NOW: u64 = 3_600_000_000_000;

    fn charge(key: u128, limit: u64) -> Charge {
        let limit = NonZeroU64::new(limit).expect("a positive number");
        let period_ns = NonZeroU64::new(60_000_000_000).expect("a positive number");
        let quota = Quota { algorithm: Algorithm::TokenBucket, limit, period_ns, burst: limit };
        Charge { key, quota, cost: 1, policy: key as u16, window: 0, shadow: false, count_denied: false }
    }

    fn limiter() -> Limiter {
        Limiter::new(Table::with_memory(1 << 20))
    }

    fn remaining(limiter: &Limiter, charge: &Charge) -> u64 {
        limiter.table.take(&Charge { cost: 0, ..*charge }, NOW).remaining
    }

    #[test]
    fn a_refusal_gives_back_what_the_others_took() {
        let limiter = limiter();
        let (wide, narrow, last) = (charge(1, 10), charge(2, 1), charge(3, 10));
        let all = [wide, narrow, last];
        assert!(limiter.decide(&all, NOW).admitted);
        for _ in 0..5 {
            let refused = limiter.decide(&all, NOW);
            assert!(!refused.admitted);
            assert_eq!(refused.binding, Some(1));
            assert_eq!(refused.outcomes.len(), 3);
        }
        assert_eq!((remaining(&limiter, &wide), remaining(&limiter, &last)), (9, 9));
    }

    #[test]
    fn every_violated_charge_is_reported() {
        let limiter = limiter();
        let all = [charge(1, 1), charge(2, 5), charge(3, 1)];
        limiter.decide(&all, NOW);
        let refused = limiter.decide(&all, NOW);
        let over: Vec<bool> = refused.outcomes.iter().map(|outcome| !outcome.is_admitted()).collect();
        assert_eq!(over, [true, false, true]);
    }

    #[test]
    fn a_shadow_counts_and_never_refuses() {
        let limiter = limiter();
        let shadow = Charge { shadow: true, ..charge(1, 2) };
        let live = charge(2, 10);
        let said: Vec<Decision> = (0..4).map(|_| limiter.decide(&[shadow, live], NOW)).collect();
        assert!(said.iter().all(|decision| decision.admitted && decision.binding == Some(1)));
        let shadows: Vec<bool> = said.iter().map(|decision| decision.outcomes[0].is_admitted()).collect();
        assert_eq!(shadows, [true, true, false, false]);
        assert_eq!(limiter.decide(&[shadow], NOW).binding, None);
    }

    #[test]
    fn the_binding_charge_has_the_least_left_or_the_longest_wait() {
        let limiter = limiter();
        let all = [charge(1, 10), charge(2, 3), charge(3, 7)];
        assert_eq!(limiter.decide(&all, NOW).binding, Some(1));
        let never = Charge { cost: 11, ..charge(4, 10) };
        let refused = limiter.decide(&[never, charge(2, 3)], NOW);
        assert_eq!((refused.binding, refused.outcomes[0].answer), (Some(0), Answer::Never));
    }

    #[test]
    fn denied_requests_count_where_they_are_to() {
        let limiter = limiter();
        let counted = Charge { count_denied: true, ..charge(1, 10) };
        let narrow = charge(2, 1);
        for _ in 0..4 {
            limiter.decide(&[counted, narrow], NOW);
        }
        assert_eq!(remaining(&limiter, &counted), 6);
        assert_eq!(remaining(&limiter, &narrow), 0);
    }
}
