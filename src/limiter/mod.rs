//! All charges of one request, decided together: all are taken, or none.
//!
//! Charges are taken in the order given, not least left first: to know what is left costs a look at every key,
//! and giving back is exact and takes nanoseconds. Between a take and its return another thread may find the units
//! missing and be refused; it never finds too many.
//!
//! It knows nothing of policies' names, of headers, or of statuses.

use smallvec::SmallVec;

use crate::limit::{Algorithm, Charge, Outcome, Quota};
use crate::local::{Place, Table, Taken};

/// The limiter. On one node the local tier is the whole of it.
#[derive(Debug)]
pub struct Limiter {
    table: Table,
}

/// What was decided of one request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Decision {
    /// What each charge's window said, in the order of the charges. Where the request was refused, `remaining` is
    /// what is left without it.
    pub outcomes: SmallVec<[Outcome; 4]>,
    /// Index of the charge the client is told of: the one with the least left or, when refused, the one to wait for
    /// longest. Never a shadow's; `None` where there are only those.
    pub binding: Option<usize>,
    is_refused: bool,
    /// Indices of charges that were decided on a shared bucket: hardly ever any.
    overflowed: SmallVec<[u16; 4]>,
}

impl Decision {
    /// Whether the request may pass.
    #[inline]
    pub fn is_admitted(&self) -> bool {
        !self.is_refused
    }

    /// Nanoseconds until every violated window admits: 0 when admitted, `None` when one never does.
    pub fn retry_after_ns(&self) -> Option<u64> {
        if self.is_admitted() {
            return Some(0);
        }
        self.binding.and_then(|index| self.outcomes[index].retry_after_ns())
    }

    /// Nanoseconds an admitted request waits for its turn: in the slowest of its queues. A shadow's holds up nobody.
    pub fn delay_ns(&self, charges: &[Charge]) -> u64 {
        let enforced = charges.iter().zip(&self.outcomes).filter(|(charge, _)| !charge.shadow);
        enforced.map(|(_, outcome)| outcome.delay_ns()).max().unwrap_or(0)
    }

    /// Where the charge of this index was decided.
    pub fn place(&self, index: usize) -> Place {
        let has_overflowed = self.overflowed.iter().any(|overflowed| usize::from(*overflowed) == index);
        if has_overflowed { Place::Overflow } else { Place::Slot }
    }

    /// The charges that refused, of those that were decided, with what each said; shadows are not among them.
    pub fn violated<'c>(&'c self, charges: &'c [Charge]) -> impl Iterator<Item = (&'c Charge, &'c Outcome)> {
        charges
            .iter()
            .zip(&self.outcomes)
            .filter(|(charge, outcome)| !charge.shadow && !outcome.is_admitted())
    }
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

    /// Names the quotas of a configuration; see [`Table::declare`].
    pub fn declare(&self, quotas: impl IntoIterator<Item = Quota>) {
        self.table.declare(quotas);
    }

    /// Decides a request, over what `decision` said before: it is filled where it lies, because moving it about
    /// costs as much as deciding. Refused, a request costs nothing anywhere but on charges that count when denied.
    pub fn decide(&self, charges: &[Charge], now_ns: u64, decision: &mut Decision) {
        decision.outcomes.clear();
        decision.binding = None;
        decision.is_refused = false;
        decision.overflowed.clear();
        match charges {
            [charge] => self.decide_one(charge, now_ns, decision),
            _ => self.decide_all(charges, now_ns, decision),
        }
    }

    /// Gives back what an admitted request took with one charge: where it was taken, and when.
    pub fn give_back(&self, charge: &Charge, place: Place, taken_ns: u64) {
        self.table.give_back(charge, place, taken_ns);
    }

    /// Settles what an admitted request cost with what it was charged: the rest is owed, or comes back.
    pub fn settle(&self, charge: &Charge, place: Place, taken_ns: u64, cost: u64, now_ns: u64) {
        if cost > charge.cost {
            self.table.debit(&Charge { cost: cost - charge.cost, ..*charge }, place, now_ns);
        } else if cost < charge.cost {
            self.give_back(&Charge { cost: charge.cost - cost, ..*charge }, place, taken_ns);
        }
    }

    /// What `decide` would say, with nothing spent.
    pub fn peek(&self, charges: &[Charge], now_ns: u64) -> Decision {
        let mut decision = Decision::default();
        decision.outcomes.extend(charges.iter().map(|charge| self.table.peek(charge, now_ns)));
        let is_refused = decision.violated(charges).next().is_some();
        decision.is_refused = is_refused;
        if is_refused {
            self.say_without(charges, &mut decision.outcomes, now_ns);
        }
        decision.bind(charges);
        decision
    }

    /// One charge is the usual request, and has nothing to be weighed against.
    #[inline(always)]
    fn decide_one(&self, charge: &Charge, now_ns: u64, decision: &mut Decision) {
        let Taken { outcome, place } = self.table.take(charge, now_ns);
        if place == Place::Overflow {
            decision.overflowed.push(0);
        }
        if !charge.shadow {
            decision.binding = Some(0);
            decision.is_refused = !outcome.is_admitted();
        }
        decision.outcomes.push(outcome);
    }

    /// Decides any number of charges.
    #[inline(never)]
    fn decide_all(&self, charges: &[Charge], now_ns: u64, decision: &mut Decision) {
        let mut taken: SmallVec<[Option<Place>; 8]> = SmallVec::new();
        for charge in charges {
            if decision.is_refused && !charge.count_denied {
                decision.outcomes.push(self.table.peek(charge, now_ns));
                continue;
            }
            let Taken { outcome, place } = self.table.take(charge, now_ns);
            decision.is_refused |= !outcome.is_admitted() && !charge.shadow;
            if place == Place::Overflow {
                // A request has no more charges than a route has windows, far fewer than that.
                decision.overflowed.push(u16::try_from(decision.outcomes.len()).unwrap_or(u16::MAX));
            }
            taken.resize(decision.outcomes.len(), None);
            taken.push(outcome.is_admitted().then_some(place));
            decision.outcomes.push(outcome);
        }
        if decision.is_refused {
            self.return_all(charges, &taken, now_ns);
            self.say_without(charges, &mut decision.outcomes, now_ns);
        }
        decision.bind(charges);
    }

    /// Returns what a refused request had taken. What counts when denied stays taken; but a refused request is not in
    /// flight.
    fn return_all(&self, charges: &[Charge], taken: &[Option<Place>], now_ns: u64) {
        for (charge, place) in charges.iter().zip(taken) {
            let stays = charge.count_denied && charge.quota.algorithm() != Algorithm::Concurrency;
            if let Some(place) = place.filter(|_| !stays) {
                self.table.give_back(charge, place, now_ns);
            }
        }
    }

    /// Says what is left without a refused request. An answer stays what it was.
    fn say_without(&self, charges: &[Charge], outcomes: &mut [Outcome], now_ns: u64) {
        for (charge, outcome) in charges.iter().zip(outcomes) {
            let left = self.table.peek(&Charge { cost: 0, ..*charge }, now_ns);
            *outcome = Outcome::new(outcome.answer(), left.remaining, left.reset_ns);
        }
    }
}

impl Decision {
    /// Finds the charge a client is told of.
    fn bind(&mut self, charges: &[Charge]) {
        let enforced =
            charges.iter().zip(&self.outcomes).enumerate().filter(|(_, (charge, _))| !charge.shadow);
        let bound = if self.is_refused {
            // No wait at all is the longest: it never ends.
            enforced.max_by_key(|(_, (_, outcome))| outcome.retry_after_ns().unwrap_or(u64::MAX))
        } else {
            // Of two with as little left, the one that takes longer to be whole again.
            enforced.min_by_key(|(_, (_, outcome))| (outcome.remaining, u64::MAX - outcome.reset_ns))
        };
        self.binding = bound.map(|(index, _)| index);
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU64;
    use std::thread;

    use proptest::prelude::*;

    use super::*;
    use crate::limit::{Algorithm, Answer};

    const SECOND: u64 = 1_000_000_000;
    const NOW: u64 = 3_600 * SECOND;

    fn charge(key: u64, limit: u64) -> Charge {
        let limit = NonZeroU64::new(limit).expect("tests give no zero");
        let period_ns = NonZeroU64::new(SECOND).expect("not zero");
        let quota = Quota::new(Algorithm::TokenBucket, limit, period_ns, limit);
        let key = u128::from(key.wrapping_mul(0x9e37_79b9_7f4a_7c15)) << 64 | u128::from(key << 40);
        Charge { key, quota, cost: 1, policy: 0, window: 0, shadow: false, count_denied: false, plan: 0 }
    }

    fn decide(limiter: &Limiter, charges: &[Charge], now_ns: u64) -> Decision {
        let mut decision = Decision::default();
        limiter.decide(charges, now_ns, &mut decision);
        decision
    }

    /// Indices of the charges that were refused, shadows among them.
    fn over(decision: &Decision) -> Vec<usize> {
        (0..decision.outcomes.len()).filter(|index| !decision.outcomes[*index].is_admitted()).collect()
    }

    fn limiter() -> Limiter {
        Limiter::new(Table::with_memory(1 << 16))
    }

    fn left(limiter: &Limiter, charges: &[Charge]) -> Vec<u64> {
        charges
            .iter()
            .map(|charge| limiter.table.peek(&Charge { cost: 0, ..*charge }, NOW).remaining)
            .collect()
    }

    #[test]
    fn nothing_to_charge_is_admitted() {
        let decision = decide(&limiter(), &[], NOW);
        assert!(decision.is_admitted());
        assert_eq!((decision.binding, decision.retry_after_ns()), (None, Some(0)));
    }

    #[test]
    fn a_refused_request_costs_nothing_anywhere() {
        let limiter = limiter();
        let charges = [charge(1, 5), charge(2, 2), charge(3, 9)];
        assert!(decide(&limiter, &charges, NOW).is_admitted());
        assert!(decide(&limiter, &charges, NOW).is_admitted());
        let refused = decide(&limiter, &charges, NOW);
        assert_eq!(over(&refused), [1]);
        assert_eq!(refused.outcomes.iter().map(|outcome| outcome.remaining).collect::<Vec<_>>(), [3, 0, 7]);
        assert_eq!(left(&limiter, &charges), [3, 0, 7]);
    }

    #[test]
    fn every_violated_window_is_named_and_the_longest_wait_binds() {
        let limiter = limiter();
        let (slow, fast) = (charge(1, 1), charge(2, 10));
        let dear = Charge { cost: 10, ..fast };
        assert!(decide(&limiter, &[slow, dear], NOW).is_admitted());
        let refused = decide(&limiter, &[fast, slow], NOW);
        assert_eq!(over(&refused), [0, 1]);
        assert_eq!((refused.binding, refused.retry_after_ns()), (Some(1), Some(SECOND)));
        let never = decide(&limiter, &[slow, Charge { cost: 11, ..fast }], NOW);
        assert_eq!((never.binding, never.retry_after_ns()), (Some(1), None));
    }

    #[test]
    fn the_least_left_binds_an_admitted_request() {
        let limiter = limiter();
        let shadow = Charge { shadow: true, ..charge(3, 2) };
        let decision = decide(&limiter, &[charge(1, 9), charge(2, 4), shadow], NOW);
        assert_eq!(decision.binding, Some(1));
        assert_eq!(decide(&limiter, &[shadow], NOW).binding, None);
    }

    #[test]
    fn a_shadow_charge_counts_and_never_refuses() {
        let limiter = limiter();
        let charges = [Charge { shadow: true, ..charge(1, 1) }, charge(2, 3)];
        assert_eq!(over(&decide(&limiter, &charges, NOW)), [] as [usize; 0]);
        let second = decide(&limiter, &charges, NOW);
        assert!(second.is_admitted());
        assert_eq!((over(&second), second.violated(&charges).count()), (vec![0], 0));
        assert_eq!(left(&limiter, &charges), [0, 1]);
        assert!(decide(&limiter, &charges, NOW).is_admitted());
        // The enforced one refuses, so the shadow one is not charged either.
        let other = [Charge { shadow: true, ..charge(3, 5) }, charge(2, 3)];
        assert!(!decide(&limiter, &other, NOW).is_admitted());
        assert_eq!(left(&limiter, &other), [5, 0]);
    }

    #[test]
    fn a_charge_that_counts_when_denied_is_not_given_back() {
        let limiter = limiter();
        let counted = Charge { count_denied: true, ..charge(1, 5) };
        let last = Charge { count_denied: true, ..charge(3, 5) };
        let spent = charge(2, 1);
        assert!(decide(&limiter, &[spent], NOW).is_admitted());
        assert!(!decide(&limiter, &[counted, spent, last], NOW).is_admitted());
        assert_eq!(left(&limiter, &[counted, last]), [4, 4]);
    }

    #[test]
    fn peek_says_what_decide_would_and_spends_nothing() {
        let limiter = limiter();
        let charges = [charge(1, 1), charge(2, 2)];
        assert!(limiter.peek(&charges, NOW).is_admitted());
        assert!(decide(&limiter, &charges, NOW).is_admitted());
        let peeked = limiter.peek(&charges, NOW);
        assert_eq!(peeked, decide(&limiter, &charges, NOW));
        assert_eq!(peeked.outcomes[0].answer(), Answer::Later { retry_after_ns: SECOND });
    }

    #[test]
    fn threads_over_several_keys_admit_the_smallest_limit_at_most() {
        let limiter = limiter();
        let charges = [charge(1, 3_000), charge(2, 2_000), charge(3, 2_500)];
        let spend = || (0..2_000).filter(|_| decide(&limiter, &charges, NOW).is_admitted()).count();
        let admitted: usize = thread::scope(|scope| {
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(spend)).collect();
            threads.into_iter().map(|thread| thread.join().expect("no thread panics")).sum()
        });
        assert_eq!(admitted, 2_000);
        assert_eq!(left(&limiter, &charges), [1_000, 0, 500]);
    }

    proptest! {
        /// Beside plain counters that admit all or nothing, at one instant.
        #[test]
        fn equal_to_counters_that_take_all_or_nothing(
            requests in prop::collection::vec(prop::collection::vec((0usize..6, 1u64..4), 1..6), 1..60),
        ) {
            let limiter = limiter();
            let limit = |key: usize| key as u64 * 3 + 4;
            let mut spent = [0u64; 6];
            for request in requests {
                let charges: Vec<Charge> = request
                    .iter()
                    .map(|(key, cost)| Charge { cost: *cost, ..charge(*key as u64, limit(*key)) })
                    .collect();
                let mut wanted = spent;
                request.iter().for_each(|(key, cost)| wanted[*key] += cost);
                let fits = (0..6).all(|key| wanted[key] <= limit(key));
                prop_assert_eq!(decide(&limiter, &charges, NOW).is_admitted(), fits);
                spent = if fits { wanted } else { spent };
                for (key, spent) in spent.iter().enumerate() {
                    let remaining = left(&limiter, &[charge(key as u64, limit(key))])[0];
                    prop_assert_eq!(remaining, limit(key) - spent);
                }
            }
        }
    }
}
