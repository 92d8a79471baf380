//! [`Event`]: what each policy decided about one subject, as a plain value for metrics and logs. It writes to neither.

use smallvec::SmallVec;

use limit::PolicyId;
use metrics::{Comparison, DecidingTier, PolicyDecision};

/// What each policy decided about one subject, in the order in which that was known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Event {
    /// What each policy decided.
    pub counts: SmallVec<[Count; 4]>,
    /// How each candidate compares with the policy that it is to replace, and the algorithm of each policy that changes with
    /// that of before.
    pub comparisons: SmallVec<[(PolicyId, Comparison); 2]>,
}

/// What one policy decided, once however many windows it has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Count {
    /// The policy, by its place in its table.
    pub policy: PolicyId,
    /// Which of the subjects it decided about, if there are several; else 0.
    pub part: u16,
    /// What it decided, in one word for metrics and logs.
    pub decision: PolicyDecision,
    /// Which tier decided it, for metrics and logs.
    pub tier: DecidingTier,
}

impl Event {
    /// The one that decides what a log says of the subject: a penalty before a refusal, a refusal before a shadow's, a
    /// shadow's before an exemption, that before an admission; of several alike the first.
    pub fn deciding(&self) -> Option<Count> {
        // `max_by_key` takes the last of equals.
        self.counts.iter().rev().max_by_key(|count| weight(count.decision)).copied()
    }

    /// What a policy decides of one part before anything is charged.
    pub(crate) fn decide(&mut self, policy: PolicyId, part: u16, decision: PolicyDecision) {
        self.counts.push(Count { policy, part, decision, tier: DecidingTier::Local });
    }

    pub(crate) fn exempt(&mut self, exempting: &[PolicyId], part: u16) {
        exempting.iter().for_each(|policy| self.decide(*policy, part, PolicyDecision::Exempt));
    }
}

fn weight(decision: PolicyDecision) -> u8 {
    match decision {
        PolicyDecision::Admitted => 0,
        PolicyDecision::Exempt => 1,
        PolicyDecision::ShadowDenied | PolicyDecision::ShadowPenalised => 2,
        PolicyDecision::Denied | PolicyDecision::MissingRejected => 3,
        PolicyDecision::Penalised => 4,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Check;
    use crate::check::tests::{Job, NOW, check, limiter, policy, table};
    use limit::Penalty;
    use policy::definition::{ExemptDefinition, PolicyDefinition};

    fn decisions(check: &Check<'_>) -> Vec<(usize, PolicyDecision)> {
        check.event.counts.iter().map(|count| (count.policy.index(), count.decision)).collect()
    }

    #[test]
    fn an_exempt_subject_is_charged_refused_and_penalised_by_the_others_alone() {
        let penalty = Some(Penalty::new(1, 60_000_000_000, 10, 3_600));
        let exempt =
            ExemptDefinition { consumers: vec!["monitor".to_owned()], ..ExemptDefinition::default() };
        let jobs = PolicyDefinition { exempt, penalty, ..policy("jobs", "1/h") };
        let (limiter, table) = (limiter(), table(&[jobs, policy("each", "3/h by consumer")]));
        let ask = |consumer| check(&limiter, &table, &Job { consumer, units: 1, number: None }, NOW);
        let (admitted, denied) = (PolicyDecision::Admitted, PolicyDecision::Denied);
        let exempt = PolicyDecision::Exempt;
        // Others use the limit up, and get a penalty under the key that all share.
        assert_eq!(decisions(&ask("a")), [(0, admitted), (1, admitted)]);
        while !ask("a").is_penalised(PolicyId::default()) {}
        for left in [2, 1, 0] {
            let check = ask("monitor");
            assert_eq!((check.is_admitted(), decisions(&check)), (true, vec![(0, exempt), (1, admitted)]));
            assert_eq!(check.event.deciding().map(|count| count.decision), Some(exempt));
            assert_eq!((check.charges.len(), check.charges[0].policy.index()), (1, 1));
            assert_eq!(check.decision.outcomes[0].remaining, left);
        }
        let check = ask("monitor");
        assert_eq!((check.is_admitted(), decisions(&check)), (false, vec![(0, exempt), (1, denied)]));
        assert_eq!(check.event.deciding().map(|count| count.decision), Some(denied));
        let policies = table.chosen(&table.routes()[0], false);
        let mut peeked = Check::default();
        let monitor = Job { consumer: "monitor", units: 1, number: None };
        limiter.peek(policies, &monitor, NOW, &mut peeked).expect("nothing is missing");
        assert_eq!(peeked.charges.len(), 1);
        let stranger = Job { consumer: "a", ..monitor };
        assert!(limiter.has_room(policies, &stranger, NOW), "it may be the monitor once it is authenticated");
    }
}
