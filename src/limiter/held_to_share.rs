//! Holds requests to their share of a key whose limit is divided. What is divided, and what a share is, is in `divided.rs`.

use super::divided::{Division, PartOfLimit, Shared};
use super::{Check, Decision, Limiter};
use limit::{Answer, Charge, Key, Outcome, Worlds};

impl Limiter {
    /// Begins to divide the limit of a key; `None` if somebody else does already.
    pub fn divide(&self, key: Key) -> Option<Division> {
        self.divided.begin(key)
    }

    /// What requests may take of a key, if its limit is divided; for operators.
    pub fn part_of_limit(&self, key: &Key, now_ns: u64) -> Option<PartOfLimit> {
        self.divided.with(key, |party| party.part(now_ns))
    }

    /// Takes what a check costs of what requests may take of its keys. If that is too little, it fills the decision, which
    /// refuses, and returns true.
    #[inline]
    pub(super) fn is_beyond_share(&self, check: &mut Check<'_>) -> bool {
        !self.divided.is_empty() && check.shared == Shared::Apart && self.take_of_shares(check)
    }

    #[cold]
    fn take_of_shares(&self, check: &mut Check<'_>) -> bool {
        let now_ns = check.begun_ns;
        for (index, charge) in check.charges.iter().enumerate().filter(|(_, charge)| can_refuse(charge)) {
            let wait_ns = self.divided.with(&charge.key, |party| party.take(charge.cost, now_ns)).flatten();
            if let Some(wait_ns) = wait_ns {
                self.return_to_shares(&check.charges[..index]);
                self.refuse_beyond(&check.charges, index, wait_ns, now_ns, &mut check.decision);
                return true;
            }
        }
        check.shared = Shared::Taken;
        false
    }

    /// Gives back to the shares what was taken of them for charges that something else refuses.
    #[cold]
    pub(super) fn return_to_shares(&self, charges: &[Charge]) {
        for charge in charges.iter().filter(|charge| can_refuse(charge)) {
            self.divided.with(&charge.key, |party| party.give_back(charge.cost));
        }
    }

    /// Refuses a check for the share of one of its charges: nothing is charged.
    fn refuse_beyond(
        &self,
        charges: &[Charge],
        over: usize,
        wait_ns: u64,
        now_ns: u64,
        decision: &mut Decision,
    ) {
        decision.clear();
        decision.refused = Worlds::OWN;
        charges.iter().for_each(|charge| decision.refused.add(charge.world()));
        decision.outcomes.extend(charges.iter().map(|charge| self.foresee_refused(charge, now_ns)));
        let outcome = &mut decision.outcomes[over];
        if let Some(told_ns) = outcome.retry_after_ns() {
            let retry_after_ns = told_ns.max(wait_ns);
            let reset_ns = outcome.reset_ns.max(retry_after_ns);
            *outcome = Outcome::new(Answer::Later { retry_after_ns }, 0, reset_ns);
        }
        decision.bind(charges);
    }
}

fn can_refuse(charge: &Charge) -> bool {
    charge.refuses().has(Worlds::OWN)
}

#[cfg(test)]
mod tests {
    use crate::check::tests::{Job, NOW, check, limiter, policy, table};

    fn job(consumer: &'static str) -> Job {
        Job { consumer, units: 1, number: None }
    }

    #[test]
    fn no_more_is_taken_than_a_share_has_until_nobody_divides() {
        let (limiter, table) = (limiter(), table(&[policy("jobs", "9/h by consumer")]));
        let key = check(&limiter, &table, &job("ann"), NOW).charges[0].key;
        let admitted = |consumer, now_ns| {
            let checks = (0..4).map(|_| check(&limiter, &table, &job(consumer), now_ns).is_admitted());
            checks.filter(|is_admitted| *is_admitted).count()
        };
        let division = limiter.divide(key).expect("nobody else divides it");
        assert!(limiter.divide(key).is_none());
        division.hold(2, NOW + 100);
        assert_eq!((admitted("ann", NOW), admitted("bob", NOW)), (2, 4), "others have all of theirs");
        assert_eq!((division.take_came(), division.take_came(), division.unspent(NOW)), (4, 0, 0));
        assert_eq!(admitted("ann", NOW + 100), 4, "who divides is late");
        division.hold(0, NOW + 1_000);
        let refused = check(&limiter, &table, &job("ann"), NOW + 200);
        assert_eq!(refused.decision.retry_after_ns(), Some(800));
        drop(division);
        assert_eq!(admitted("ann", NOW + 200), 2, "what was refused was not charged");
    }

    #[test]
    fn what_a_limit_refuses_takes_nothing_of_a_share() {
        let (limiter, table) = (limiter(), table(&[policy("jobs", "9/h by consumer"), policy("all", "3/h")]));
        let first = check(&limiter, &table, &job("ann"), NOW);
        let division = limiter.divide(first.charges[0].key).expect("nobody else divides it");
        division.hold(5, NOW + 100);
        let admitted = (0..4).filter(|_| check(&limiter, &table, &job("ann"), NOW).is_admitted()).count();
        assert_eq!((admitted, division.unspent(NOW), division.take_came()), (2, 3, 4));
    }
}
