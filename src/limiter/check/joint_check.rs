//! Several subjects decided together: all of their charges are taken, or none. It is one check, so that a refusal
//! undoes nothing that somebody else could have seen.

use std::sync::Arc;

use crate::Limiter;
use crate::check::Check;
use crate::decision::ClientAddress;
use crate::holders::own_limits::OwnLimit;
use crate::waiting::Waiting;
use limit::Charge;
use policy::{PolicySelection, Subject};

/// One of several subjects that are decided together.
#[derive(Clone, Debug)]
pub struct CheckPart<'t, S> {
    /// The policies that decide about it.
    pub policies: PolicySelection<'t>,
    /// What is decided about: a request, or anything else with dimensions.
    pub subject: S,
    /// A limit in the place of that of its first policy.
    pub limit: Option<OwnLimit>,
}

impl Limiter {
    /// Decides several subjects, whose policies are all of one table. The charges of each have its number as their
    /// [`part`](Charge::part). `client` is the number of the subject whose address counts if Redis is down and a policy
    /// admits everybody. Returns what to wait for, by [`Limiter::finish_together`], if the decision is not made.
    pub fn check_together<'t, S: Subject>(
        self: &Arc<Self>,
        parts: &[CheckPart<'t, S>],
        client: usize,
        now_ns: u64,
        check: &mut Check<'t>,
    ) -> Option<Box<Waiting>> {
        check.policies = PolicySelection::together(parts.iter().map(|part| part.policies));
        check.begun_ns = now_ns;
        let mut trials = 0;
        for (number, part) in (0_u16..).zip(parts) {
            let first = check.charges.len();
            if check.has_standing(&self.holders, part.policies, (&part.subject, number)) {
                match &check.blocked {
                    Some(_) => {
                        check.charges.clear();
                        return None;
                    }
                    None => continue,
                }
            }
            let charged = part.policies.charges_beside(&part.subject, &mut trials, &mut check.charges);
            match charged {
                Ok(exempting) => check.event.exempt(&exempting, number),
                Err(missing) => {
                    check.charges.clear();
                    check.lack(missing, number);
                    return None;
                }
            }
            let charges = &mut check.charges[first..];
            if let Some(refusing) = self.holders.change(part.policies, &part.subject, charges, now_ns) {
                check.block(refusing, number);
                return None;
            }
            if let Some(limit) = part.limit {
                self.holders.limit(part.policies, (limit, now_ns), first, &mut check.charges);
            }
            check.charges[first..].iter_mut().for_each(|charge| charge.part = number);
        }
        if check.charges.is_empty() {
            return None;
        }
        check.penalties = check.policies.penalty_checks(&check.charges);
        let mut rest = check.charges.as_mut_slice();
        for (number, part) in (0_u16..).zip(parts) {
            let own = rest.iter().take_while(|charge: &&Charge| charge.part == number).count();
            let (own, others) = rest.split_at_mut(own);
            self.route_tenant(own, part.subject.tenant());
            rest = others;
        }
        let address = |policies: PolicySelection<'_>| match parts.get(client) {
            Some(part) => ClientAddress::from(policies.client_of(&part.subject)),
            None => ClientAddress::default(),
        };
        check.charge_routed(self, address)
    }

    /// Waits for Redis, at most `redis.deadline`, and completes the check.
    pub async fn finish_together(self: &Arc<Self>, waiting: Box<Waiting>, check: &mut Check<'_>) {
        let within = waiting.deadline();
        check.wait(self, *waiting, within).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::tests::{Job, NOW, limiter, policy, table};
    use limit::Penalty;
    use metrics::{self, Comparison};
    use policy::RouteTable;
    use policy::definition::{self, CandidateDefinition};

    fn part<'t>(table: &'t RouteTable, name: &str, consumer: &'static str, units: u64) -> CheckPart<'t, Job> {
        let policies = table.with_candidate(table.policy(name).expect("it is there"));
        CheckPart { policies, subject: Job { consumer, units, number: None }, limit: None }
    }

    fn check<'t>(limiter: &Arc<Limiter>, parts: &[CheckPart<'t, Job>], now_ns: u64) -> Check<'t> {
        let mut check = Check::default();
        let pending = limiter.check_together(parts, 0, now_ns, &mut check);
        assert!(pending.is_none(), "one node waits for nobody");
        check
    }

    fn left(check: &Check<'_>) -> Vec<(u16, u64)> {
        let windows = check.charges.iter().zip(&check.decision.outcomes);
        windows.map(|(charge, outcome)| (charge.part, outcome.remaining)).collect()
    }

    #[test]
    fn subjects_of_one_policy_are_charged_all_or_nothing() {
        let (limiter, table) = (limiter(), table(&[policy("jobs", "3/h by consumer")]));
        let ask = |parts: &[(&'static str, u64)]| {
            let parts: Vec<_> =
                parts.iter().map(|(consumer, units)| part(&table, "jobs", consumer, *units)).collect();
            check(&limiter, &parts, NOW)
        };
        let first = ask(&[("a", 2), ("b", 1)]);
        assert!(first.is_admitted());
        assert_eq!(left(&first), [(0, 1), (1, 2)]);
        let counts: Vec<_> = first.event.counts.iter().map(|count| (count.part, count.decision)).collect();
        let admitted = metrics::PolicyDecision::Admitted;
        assert_eq!(counts, [(0, admitted), (1, admitted)], "each is counted by itself");
        let second = ask(&[("b", 1), ("a", 2), ("c", 1)]);
        assert!(!second.is_admitted());
        assert_eq!(left(&second), [(0, 2), (1, 1), (2, 3)], "nobody was charged");
        let over: Vec<u16> =
            second.decision.violated(&second.charges).map(|(charge, _)| charge.part).collect();
        assert_eq!(over, [1]);
        assert_eq!(left(&ask(&[("b", 1), ("b", 1)])), [(0, 1), (1, 0)], "one twice is charged twice");
        assert!(!ask(&[("c", 2), ("c", 2)]).is_admitted());
        assert_eq!(left(&ask(&[("c", 3)])), [(0, 0)]);
    }

    #[test]
    fn one_subject_several_times_is_told_the_same_where_it_is_refused() {
        let (limiter, table) = (limiter(), table(&[policy("jobs", "3/h by consumer")]));
        let ask = |units: &[u64]| {
            let parts: Vec<_> = units.iter().map(|units| part(&table, "jobs", "a", *units)).collect();
            check(&limiter, &parts, NOW)
        };
        for units in [&[1, 1, 1, 1][..], &[1, 3, 1], &[2, 2], &[4, 1], &[3, 1, 1]] {
            let refused = ask(units);
            assert!(!refused.is_admitted(), "{units:?}");
            assert!(left(&refused).iter().all(|(_, left)| *left == 3), "{units:?}: {:?}", left(&refused));
        }
        assert_eq!(left(&ask(&[1, 1])), [(0, 2), (1, 1)]);
    }

    #[test]
    fn the_penalty_of_one_subject_is_not_anothers() {
        let second = 1_000_000_000;
        let penalty = Some(Penalty::new(1, 60 * second, 10, 3_600));
        let jobs = definition::PolicyDefinition { penalty, ..policy("jobs", "1/s by consumer") };
        let (limiter, table) = (limiter(), table(&[jobs]));
        let both = [part(&table, "jobs", "kind", 0), part(&table, "jobs", "bot", 1)];
        for _ in 0..4 {
            check(&limiter, &both, NOW);
        }
        let both = [part(&table, "jobs", "kind", 1), part(&table, "jobs", "bot", 1)];
        let refused = check(&limiter, &both, NOW);
        let kept_out: Vec<bool> = refused.charges.iter().map(|charge| refused.keeps_out(charge)).collect();
        assert_eq!(kept_out, [false, true]);
        let admitted: Vec<bool> = refused.decision.outcomes.iter().map(limit::Outcome::is_admitted).collect();
        assert_eq!(admitted, [true, false]);
        assert!(check(&limiter, &both[..1], NOW).is_admitted());
    }

    #[test]
    fn an_exempt_subject_is_charged_nothing_beside_others() {
        let exempt = definition::ExemptDefinition {
            consumers: vec!["monitor".to_owned()],
            ..definition::ExemptDefinition::default()
        };
        let jobs = definition::PolicyDefinition { exempt, ..policy("jobs", "1/h by consumer") };
        let (limiter, table) = (limiter(), table(&[jobs]));
        let exempt = metrics::PolicyDecision::Exempt;
        let ask = |consumers: &[&'static str]| {
            let parts: Vec<_> = consumers.iter().map(|consumer| part(&table, "jobs", consumer, 1)).collect();
            let check = check(&limiter, &parts, NOW);
            let counts = check.event.counts.iter().map(|count| (count.part, count.decision));
            let usage = |part: u16| check.usage(part, &table, Some("any"), None).count();
            assert!(counts.clone().all(|(part, decision)| (usage(part) == 0) == (decision == exempt)));
            (check.is_admitted(), counts.collect::<Vec<_>>())
        };
        let (admitted, denied) = (metrics::PolicyDecision::Admitted, metrics::PolicyDecision::Denied);
        assert_eq!(ask(&["monitor", "a", "monitor"]), (true, vec![(0, exempt), (2, exempt), (1, admitted)]));
        assert_eq!(ask(&["monitor"]), (true, vec![(0, exempt)]));
        assert_eq!(ask(&["a", "monitor"]), (false, vec![(1, exempt), (0, denied)]));
    }

    #[test]
    fn each_subject_has_a_trial_of_its_own() {
        let replaces = Some(CandidateDefinition { policy: "jobs".to_owned(), rollout_ppm: 0 });
        let tighter = definition::PolicyDefinition { replaces, ..policy("tighter", "1/h by consumer") };
        let (limiter, table) = (limiter(), table(&[policy("jobs", "2/h by consumer"), tighter]));
        let ask = |consumers: &[&'static str]| {
            let parts: Vec<_> = consumers.iter().map(|consumer| part(&table, "jobs", consumer, 1)).collect();
            check(&limiter, &parts, NOW)
        };
        assert!(ask(&["a"]).is_admitted());
        let second = ask(&["a", "b"]);
        assert!(second.is_admitted(), "a candidate refuses nothing");
        let compared: Vec<Comparison> = second.event.comparisons.iter().map(|(_, it)| *it).collect();
        assert_eq!(compared, [Comparison::of(false, true), Comparison::of(false, false)]);
        // More than there are numbers for: those beyond are decided, and not compared.
        let many: Vec<&'static str> = (0..40).map(|number| &*format!("many-{number}").leak()).collect();
        let many = ask(&many);
        assert!(many.is_admitted());
        assert_eq!((many.charges.len(), many.event.comparisons.len()), (71, 31));
        assert!(many.charges[62..].iter().all(|charge| charge.trial.is_none()));
    }

    #[test]
    fn a_subjects_own_limit_takes_the_place_of_its_first_policys_windows() {
        let two = definition::PolicyDefinition {
            windows: [policy("a", "2/h").windows, policy("a", "9/d").windows].concat(),
            ..policy("jobs", "2/h by consumer")
        };
        let (limiter, table) = (limiter(), table(&[two]));
        let limited = |limit: u64, units| {
            let positive = |number| std::num::NonZeroU64::new(number).expect("not zero");
            let own = OwnLimit { limit: positive(limit), period_ns: positive(60_000_000_000) };
            CheckPart { limit: Some(own), ..part(&table, "jobs", "a", units) }
        };
        let check = |part| check(&limiter, &[part], NOW);
        let own = check(limited(10, 4));
        assert_eq!((left(&own), own.charges[0].quota.limit().get()), (vec![(0, 6)], 10));
        assert!(!check(limited(10, 7)).is_admitted());
        assert!(check(limited(10, 6)).is_admitted());
        let usual = check(part(&table, "jobs", "b", 1));
        assert_eq!(left(&usual), [(0, 1), (0, 8)], "others have the policy's");
    }
}
