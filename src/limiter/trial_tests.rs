//! Trials of two policies: each of the two decides, and counts, what it would have alone.

use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;

use super::Limiter;
use super::check::Check;
use super::check::tests::{Job, NOW, check, limiter, policy, table};
use crate::{Change, Override, Reset};
use ::policy::counting::shorthand;
use ::policy::definition::{self, CandidateDefinition, Idempotency};
use ::policy::{Holder, RouteTable};
use limit::{Algorithm, Penalty, PolicyId};
use metrics::Comparison;

const SECOND: u64 = 1_000_000_000;
/// The policies of the tables below: the one in force, and its candidate.
const LIVE: PolicyId = PolicyId::new(0);
const NEW: PolicyId = PolicyId::new(1);

fn job(consumer: &'static str) -> Job {
    Job { consumer, units: 1, number: None }
}

fn candidate(limits: &[&str], rollout_ppm: u32) -> definition::PolicyDefinition {
    let windows = limits.iter().map(|limit| shorthand::parse(limit).expect("a limit").window).collect();
    let replaces = Some(CandidateDefinition { policy: "live".to_owned(), rollout_ppm });
    definition::PolicyDefinition { windows, replaces, ..policy("new", "1/s by consumer") }
}

/// Whether the job is admitted, and how the two policies compare.
fn ask(limiter: &Arc<Limiter>, table: &RouteTable, job: &Job, now_ns: u64) -> (bool, Option<Comparison>) {
    told(&check(limiter, table, job, now_ns))
}

fn told(check: &Check<'_>) -> (bool, Option<Comparison>) {
    let comparisons = &check.event.comparisons;
    assert!(comparisons.iter().all(|(candidate, _)| *candidate == NEW));
    (check.is_admitted(), comparisons.first().map(|(_, comparison)| *comparison))
}

/// Units that a policy has left for a consumer.
fn left(limiter: &Limiter, table: &RouteTable, policy: PolicyId, consumer: &str) -> Vec<u64> {
    let policy = &table.policies()[policy.index()];
    let charges = policy.look_at(&[consumer.to_owned()]).expect("one dimension");
    charges.iter().map(|charge| limiter.foresee(charge, NOW).remaining).collect()
}

proptest! {
    /// Whatever is asked, and whoever of the two decides: the request gets the decision that the one policy alone would
    /// have made, and the comparison tells what the other alone would have.
    #[test]
    fn each_of_two_policies_decides_as_if_it_were_alone(
        asked in proptest::collection::vec((0..3_usize, 1..4_u64, 0..400_u64), 1..120),
        algorithms in (0..4_usize, 0..4_usize),
        rollout_ppm in prop_oneof![Just(0), Just(500_000), Just(1_000_000)],
    ) {
        const ALGORITHMS: [Algorithm; 4] = [
            Algorithm::TokenBucket, Algorithm::SlidingWindow, Algorithm::FixedWindow, Algorithm::SlidingLog,
        ];
        let with = |policy: definition::PolicyDefinition, algorithm: usize| {
            let windows = policy.windows.iter().map(|quota| {
                let (limit, period_ns) = (quota.limit(), quota.period_ns());
                limit::Quota::new(ALGORITHMS[algorithm], limit, period_ns, limit)
            });
            definition::PolicyDefinition { windows: windows.collect(), ..policy }
        };
        let live = with(policy("live", "6/s by consumer"), algorithms.0);
        let new = with(candidate(&["5/s", "12/5s"], rollout_ppm), algorithms.1);
        let alone = definition::PolicyDefinition { replaces: None, ..new.clone() };
        let both = table(&[live.clone(), new]);
        let (only_live, only_new) = (table(&[live]), table(&[alone]));
        let (tried, first, second) = (limiter(), limiter(), limiter());
        let mut now_ns = NOW;
        for (consumer, units, pause_ms) in asked {
            now_ns += pause_ms * 1_000_000;
            let job = Job { consumer: ["ann", "bob", "cleo"][consumer], units, number: None };
            let old = check(&first, &only_live, &job, now_ns).is_admitted();
            let new = check(&second, &only_new, &job, now_ns).is_admitted();
            let mut peeked = Check::default();
            let chosen = both.chosen(&both.routes()[0], false);
            tried.peek(chosen, &job, now_ns, &mut peeked).expect("nothing is missing");
            let decided = check(&tried, &both, &job, now_ns);
            prop_assert_eq!(&peeked.decision.outcomes, &decided.decision.outcomes);
            prop_assert_eq!(peeked.decision.binding, decided.decision.binding);
            let (is_admitted, comparison) = told(&decided);
            prop_assert_eq!(comparison, Some(Comparison::of(!old, !new)));
            let decides = both.policies()[NEW.index()].decides_about_key(&[job.consumer.to_owned()]);
            prop_assert_eq!(is_admitted, if decides { new } else { old });
        }
    }
}

#[test]
fn what_the_one_refuses_is_charged_to_the_other() {
    let (limiter, table) =
        (limiter(), table(&[policy("live", "2/m by consumer"), candidate(&["4/m", "3/h"], 0)]));
    let said = [0; 5].map(|_| ask(&limiter, &table, &job("ann"), NOW));
    let (agreed, old, new) = (Comparison::Agreed, Comparison::OnlyOldDenies, Comparison::OnlyNewDenies);
    assert_eq!(said.map(|(is_admitted, _)| is_admitted), [true, true, false, false, false]);
    assert_eq!(said.map(|(_, comparison)| comparison), [agreed, agreed, old, agreed, agreed].map(Some));
    // The hour is used up: a request that this refuses is not charged to the minute.
    assert_eq!(
        (left(&limiter, &table, LIVE, "ann"), left(&limiter, &table, NEW, "ann")),
        (vec![0], vec![1, 0])
    );
    // A minute later the policy in force admits again.
    assert_eq!(ask(&limiter, &table, &job("ann"), NOW + 60 * SECOND), (true, Some(new)));
}

#[test]
fn what_another_limit_refuses_is_charged_to_neither() {
    let other = policy("other", "1/m by consumer");
    let (limiter, table) =
        (limiter(), table(&[policy("live", "5/m by consumer"), candidate(&["5/m"], 0), other]));
    let said = [0; 3].map(|_| ask(&limiter, &table, &job("ann"), NOW));
    assert_eq!(said, [true, false, false].map(|is_admitted| (is_admitted, Some(Comparison::Agreed))));
    assert_eq!((left(&limiter, &table, LIVE, "ann"), left(&limiter, &table, NEW, "ann")), (vec![4], vec![4]));
}

#[test]
fn two_trials_of_one_request_are_told_apart() {
    let other = definition::PolicyDefinition {
        name: "newer".to_owned(),
        replaces: Some(CandidateDefinition { policy: "other".to_owned(), rollout_ppm: 0 }),
        ..candidate(&["9/m"], 0)
    };
    let policies = [
        policy("live", "2/m by consumer"),
        candidate(&["9/m"], 0),
        policy("other", "3/m by consumer"),
        other,
    ];
    let (limiter, table) = (limiter(), table(&policies));
    let newer = PolicyId::new(3);
    let said = [0; 4].map(|_| check(&limiter, &table, &job("ann"), NOW).event.comparisons.to_vec());
    let (agreed, old) = (Comparison::Agreed, Comparison::OnlyOldDenies);
    let expected = [(agreed, agreed), (agreed, agreed), (old, agreed), (old, agreed)];
    assert_eq!(said, expected.map(|(one, other)| vec![(NEW, one), (newer, other)]));
    let left = |policy| left(&limiter, &table, policy, "ann")[0];
    // What the first policy refuses is charged to its own candidate alone.
    assert_eq!((left(NEW), left(newer)), (5, 7));
}

#[test]
fn a_candidate_that_decides_refuses_and_the_policy_in_force_is_compared() {
    let (limiter, table) =
        (limiter(), table(&[policy("live", "2/m by consumer"), candidate(&["1/m"], 1_000_000)]));
    assert_eq!(ask(&limiter, &table, &job("ann"), NOW), (true, Some(Comparison::Agreed)));
    let refused = check(&limiter, &table, &job("ann"), NOW);
    assert!(!refused.is_admitted());
    assert_eq!(refused.event.comparisons.as_slice(), [(NEW, Comparison::OnlyNewDenies)]);
    let violated: Vec<_> =
        refused.decision.violated(&refused.charges).map(|(charge, _)| charge.policy).collect();
    assert_eq!(violated, [NEW]);
    assert_eq!(refused.decision.binding.map(|index| refused.charges[index].policy), Some(NEW));
    assert_eq!(left(&limiter, &table, LIVE, "ann"), [0]);
}

#[test]
fn requests_in_flight_are_no_more_than_were_let_through() {
    let (limiter, table) = (
        limiter(),
        table(&[policy("live", "1 in flight by consumer"), candidate(&["3 in flight", "2 in flight"], 0)]),
    );
    let first = check(&limiter, &table, &job("ann"), NOW);
    let taken: Vec<bool> =
        first.charges.iter().enumerate().map(|(at, charge)| first.decision.has_taken(at, charge)).collect();
    assert_eq!(taken, [true; 3]);
    // Refused by the policy in force: nobody waits for its end, so it holds nothing of the candidate either.
    for _ in 0..3 {
        assert_eq!(ask(&limiter, &table, &job("ann"), NOW), (false, Some(Comparison::OnlyOldDenies)));
    }
    assert_eq!(left(&limiter, &table, NEW, "ann"), [2, 1]);
}

#[test]
fn a_penalty_of_the_one_keeps_the_other_from_nothing() {
    let penalty = Some(Penalty::new(1, 60 * SECOND, 2, 3_600));
    let live = definition::PolicyDefinition { penalty, ..policy("live", "1/s by consumer") };
    let (limiter, table) = (limiter(), table(&[live, candidate(&["9/m"], 0)]));
    let ask = |now_ns| {
        let check = check(&limiter, &table, &job("ann"), now_ns);
        let comparison = check.event.comparisons.first().map(|(_, comparison)| *comparison);
        let waits = check.decision.retry_after_ns().map(|wait_ns| wait_ns / SECOND);
        (check.is_admitted(), check.is_penalised(LIVE), comparison, waits)
    };
    let old = Some(Comparison::OnlyOldDenies);
    assert_eq!(ask(NOW), (true, false, Some(Comparison::Agreed), Some(0)));
    assert_eq!(ask(NOW), (false, false, old, Some(1)));
    assert_eq!(ask(NOW), (false, true, old, Some(2)));
    assert_eq!(left(&limiter, &table, NEW, "ann"), [6]);
    // The limit is whole again, the penalty lasts.
    let (is_admitted, is_penalised, comparison, _) = ask(NOW + SECOND);
    assert_eq!((is_admitted, is_penalised, comparison), (false, true, old));
    assert_eq!(left(&limiter, &table, NEW, "ann"), [5], "the candidate is charged all the same");
}

#[test]
fn a_penalty_of_a_candidate_is_noted_and_refuses_nothing() {
    let penalty = Some(Penalty::new(1, 60 * SECOND, 2, 3_600));
    let new = definition::PolicyDefinition { penalty, ..candidate(&["1/s"], 0) };
    let (limiter, table) = (limiter(), table(&[policy("live", "9/m by consumer"), new]));
    for comparison in [Comparison::Agreed, Comparison::OnlyNewDenies, Comparison::OnlyNewDenies] {
        assert_eq!(ask(&limiter, &table, &job("ann"), NOW), (true, Some(comparison)));
    }
    assert_eq!(left(&limiter, &table, NEW, "ann"), [0]);
    let later = ask(&limiter, &table, &job("ann"), NOW + SECOND);
    assert_eq!(later, (true, Some(Comparison::OnlyNewDenies)), "its penalty lasts");
    assert_eq!(left(&limiter, &table, LIVE, "ann"), [5]);
}

#[test]
fn each_of_the_two_remembers_the_retries_that_it_has_admitted() {
    let header = http::HeaderName::from_static("idempotency-key");
    let idempotency = Some(Idempotency { header, window: Duration::from_secs(60), by_address: false });
    let live = definition::PolicyDefinition {
        idempotency: idempotency.clone(),
        ..policy("live", "1/m by consumer")
    };
    let new = definition::PolicyDefinition { idempotency, ..candidate(&["2/m"], 0) };
    let (limiter, table) = (limiter(), table(&[live, new]));
    let numbered = |number| Job { number: Some(number), ..job("ann") };
    assert_eq!(ask(&limiter, &table, &numbered("one"), NOW), (true, Some(Comparison::Agreed)));
    assert_eq!(ask(&limiter, &table, &numbered("one"), NOW), (true, None), "a retry for both");
    for _ in 0..2 {
        // A retry for the candidate from the second time on, which has admitted it; the policy in force has not.
        let said = ask(&limiter, &table, &numbered("two"), NOW);
        assert_eq!(said, (false, Some(Comparison::OnlyOldDenies)));
        assert_eq!(left(&limiter, &table, NEW, "ann"), [0]);
    }
    assert_eq!(ask(&limiter, &table, &numbered("three"), NOW), (false, Some(Comparison::Agreed)));
}

#[test]
fn overrides_and_resets_of_a_policy_are_its_candidates_too() {
    let (limiter, table) =
        (limiter(), table(&[policy("live", "1/m by consumer"), candidate(&["2/m"], 1_000_000)]));
    let ann = Holder::Consumer("ann".into());
    let raised =
        Override { policy: Some("live".into()), ..Override::new("o", Change::Multiplicative(3.0), "why", 1) };
    limiter.overrides().put(&ann, raised);
    let admitted = |consumer| (0..10).filter(|_| ask(&limiter, &table, &job(consumer), NOW).0).count();
    assert_eq!((admitted("ann"), admitted("bob")), (6, 2));
    limiter.resets().put(&ann, Reset::new("r", Some("live"), 2));
    assert_eq!(admitted("ann"), 6);
}
