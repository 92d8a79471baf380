use std::sync::Arc;

use proptest::prelude::*;

use super::*;
use crate::lease_messages::{Grant, Renewal};
use crate::{Algorithm, Key, ScriptModel, Sharing, WhenDown, quota};

const KEY: Key = Key::new(7);
const SECOND: u64 = 1_000_000_000;
const MS: u64 = 1_000_000;
const NOW: u64 = 3_600 * SECOND;
const LEAD: u64 = LEAD_MIN_NS;
const ADMITTED: LeaseAnswer = LeaseAnswer::Admitted { renew: false };

fn plan_of(limit: u64, period_ns: u64, burst: u64, spare: u32) -> Arc<Plan> {
    let quota = quota::tests::quota(Algorithm::TokenBucket, limit, period_ns, burst);
    let sharing = Sharing { epoch_ns: 500 * MS, spare, when_down: WhenDown::Local };
    Arc::new(Plan { policy: "test".into(), quota, sharing })
}

/// 1,000 units a second.
fn plan() -> Arc<Plan> {
    plan_of(1_000, SECOND, 1_000, 100)
}

fn is_admitted(told: LeaseAnswer) -> bool {
    matches!(told, LeaseAnswer::Admitted { .. })
}

/// A lease that was granted this at `NOW`.
fn granted(plan: &Arc<Plan>, grant: Grant) -> Lease {
    let mut lease = Lease::default();
    lease.take(plan, 1, NOW, LEAD);
    let asked = lease.renewal(plan, KEY, LeaseDemand::by_one(1), NOW);
    lease.granted(&asked, &grant, NOW);
    lease
}

/// Takes a grant for a renewal that kept nothing and that nobody waited for.
fn give(lease: &mut Lease, plan: &Arc<Plan>, grant: &Grant, sent_ns: u64) {
    let asked = Lease::default().renewal(plan, KEY, LeaseDemand::default(), NOW);
    lease.granted(&asked, grant, sent_ns);
}

fn admitted_of(lease: &mut Lease, plan: &Plan, asked: u64, now_ns: u64) -> usize {
    (0..asked).filter(|_| is_admitted(lease.take(plan, 1, now_ns, LEAD))).count()
}

#[test]
fn a_first_touch_asks_and_spends_what_it_is_given() {
    let plan = plan_of(1_000, SECOND, 1_000, 0);
    let mut lease = Lease::default();
    assert_eq!(lease.take(&plan, 1, NOW, LEAD), LeaseAnswer::Ask);
    let renewal = lease.renewal(&plan, KEY, LeaseDemand::by_one(1), NOW);
    assert_eq!((renewal.pending, renewal.demand, renewal.epoch), (1, 0.5, 0));
    give(
        &mut lease,
        &plan,
        &Grant { epoch: 9, tokens: 3.0, rate: 10.0, lasts_ns: 400 * MS, ..Grant::default() },
        NOW,
    );
    assert_eq!(admitted_of(&mut lease, &plan, 5, NOW + MS), 3);
    assert_eq!(admitted_of(&mut lease, &plan, 5, NOW + 101 * MS), 1);
    // The rest of the lease accrues three more, and this plan lets nothing be overdrawn.
    assert_eq!(admitted_of(&mut lease, &plan, 9, NOW + 401 * MS), 3);
    assert_eq!(lease.take(&plan, 1, NOW + 401 * MS, LEAD), LeaseAnswer::Ask);
}

proptest! {
    #[test]
    fn spending_is_taking_where_there_is_plenty(
        tokens in 0.0f64..50.0, rate in 0.0f64..2_000.0, level in 0.0f64..1_500.0,
        steps in prop::collection::vec((0u64..40, 1u64..30, prop::bool::weighted(0.1)), 1..60),
    ) {
        let plan = plan_of(1_000, SECOND, 20, 100);
        let grant = Grant { epoch: 9, tokens, rate, level, lasts_ns: 500 * MS, ..Grant::default() };
        let (mut lease, mut now_ns) = (granted(&plan, grant), NOW);
        let starts_rich = tokens >= 2.0 && steps[0].0 == 0 && steps[0].1 == 1;
        let mut spent = 0;
        for (step_ms, cost, is_renewed) in steps {
            now_ns += step_ms * MS;
            if is_renewed {
                lease.renewal(&plan, KEY, LeaseDemand::by_one(0), now_ns);
                give(&mut lease, &plan, &grant, now_ns);
            }
            let before = lease;
            let left = lease.spend(&plan, cost, now_ns, LEAD);
            let mut taken = before;
            let told = taken.take(&plan, cost, now_ns, LEAD);
            match left {
                Some(left) => {
                    prop_assert_eq!((told, taken), (ADMITTED, lease));
                    prop_assert_eq!(left, taken.estimate(&plan, now_ns));
                    spent += 1;
                }
                None => {
                    prop_assert_eq!(lease, before);
                    lease = taken;
                }
            }
        }
        // Two units are more than a key whose demand nobody knows needs until its renewal.
        prop_assert!(spent > 0 || !starts_rich);
    }
}

#[test]
fn a_debt_without_end_stays_a_debt() {
    let plan = plan();
    let grant = Grant { epoch: 9, tokens: 5.0, rate: 400.0, lasts_ns: 500 * MS, ..Grant::default() };
    let mut lease = granted(&plan, grant);
    for _ in 0..10 {
        lease.owe(u64::MAX);
    }
    assert!(!is_admitted(lease.take(&plan, 1, NOW + MS, LEAD)));
    let renewal = lease.renewal(&plan, KEY, LeaseDemand::by_one(0), NOW + 2 * MS);
    assert!(renewal.delta > 8e12, "{renewal:?}");
    lease.owe(u64::MAX);
    lease.lost(&renewal, false);
    lease.lost(&renewal, false);
    assert!(!is_admitted(lease.take(&plan, 1, NOW + 3 * MS, LEAD)));
}

#[test]
fn one_unit_may_be_overdrawn_while_a_large_lease_is_renewed_and_is_reported() {
    let plan = plan();
    let grant = Grant { epoch: 9, tokens: 0.5, rate: 400.0, lasts_ns: 100 * MS, ..Grant::default() };
    let mut lease = granted(&plan, grant);
    assert_eq!(admitted_of(&mut lease, &plan, 100, NOW + 101 * MS), 41);
    let renewal = lease.renewal(&plan, KEY, LeaseDemand::by_one(1), NOW + 102 * MS);
    assert!((renewal.delta - 0.5).abs() < 0.01, "owed: {}", renewal.delta);
}

#[test]
fn a_unit_is_owed_once_until_redis_has_some_left() {
    let plan = plan();
    let mut lease = Lease::default();
    assert!(lease.overdraw(&plan, NOW) && !lease.overdraw(&plan, NOW));
    let told = lease.renewal(&plan, KEY, LeaseDemand::by_one(0), NOW);
    assert_eq!(told.delta, 1.0);
    let grant = Grant { epoch: 9, lasts_ns: 400 * MS, level: 9.0, ..Grant::default() };
    give(&mut lease, &plan, &grant, NOW);
    assert!(!lease.overdraw(&plan, NOW + MS), "all might owe again what all owe already");
    lease.renewal(&plan, KEY, LeaseDemand::by_one(0), NOW + MS);
    give(&mut lease, &plan, &Grant { level: 10.0, ..grant }, NOW + MS);
    assert!(lease.overdraw(&plan, NOW + 2 * MS));
}

/// The bucket may have refilled in their place, so Redis takes back fewer of them than it is owed for.
#[test]
fn units_too_old_to_be_spent_do_not_pay_for_a_unit_that_is_owed() {
    let plan = plan();
    for (late_ms, pending, spent, delta) in [(550, 1, 0.0, -8.0), (450, 0, 1.0, -6.0)] {
        let grant = Grant { epoch: 9, tokens: 9.0, lasts_ns: 400 * MS, level: 900.0, ..Grant::default() };
        let mut lease = granted(&plan, grant);
        let now_ns = NOW + late_ms * MS;
        assert!(is_admitted(lease.take_again(&plan, 1, NOW + MS, LEAD)) && lease.overdraw(&plan, now_ns));
        let most = { lease }.renewal(&plan, KEY, LeaseDemand::by_one(u64::MAX), now_ns);
        assert_eq!(most.pending, u64::MAX);
        let told = lease.renewal(&plan, KEY, LeaseDemand::default(), now_ns);
        assert_eq!((told.pending, told.spent, told.delta), (pending, spent, delta));
        // One that came back is not owed.
        let mut returned = granted(&plan, grant);
        assert!(
            is_admitted(returned.take_again(&plan, 1, NOW + MS, LEAD)) && returned.overdraw(&plan, now_ns)
        );
        returned.give_back(1);
        let renewal = returned.renewal(&plan, KEY, LeaseDemand::default(), now_ns);
        assert_eq!(renewal.pending, 0);
        // A refused unit is a debt.
        lease.granted(&told, &Grant { epoch: 10, tokens: 0.0, ..grant }, now_ns);
        let again = lease.renewal(&plan, KEY, LeaseDemand::default(), now_ns + MS);
        assert_eq!((again.pending, again.delta), (0, pending as f64));
    }
}

#[test]
fn a_denial_is_forgotten_when_its_demand_has_gone() {
    let plan = plan();
    let mut lease =
        granted(&plan, Grant { epoch: 9, lasts_ns: 400 * MS, deny_ns: 400 * MS, ..Grant::default() });
    admitted_of(&mut lease, &plan, 100, NOW + 50 * MS);
    lease.renewal(&plan, KEY, LeaseDemand::by_one(0), NOW + 50 * MS);
    give(
        &mut lease,
        &plan,
        &Grant { epoch: 9, lasts_ns: 350 * MS, deny_ns: 350 * MS, ..Grant::default() },
        NOW + 50 * MS,
    );
    lease.forgive(NOW + 70 * MS);
    assert!(matches!(lease.take_again(&plan, 1, NOW + 70 * MS, LEAD), LeaseAnswer::Denied { .. }));
    lease.forgive(NOW + 150 * MS);
    assert_eq!(lease.take_again(&plan, 1, NOW + 150 * MS, LEAD), LeaseAnswer::Ask);
}

#[test]
fn units_are_spent_a_fifth_of_a_life_beyond_the_end_and_no_longer() {
    let plan = plan();
    let grant = Grant { epoch: 9, tokens: 9.0, lasts_ns: 100 * MS, ..Grant::default() };
    let mut lease = granted(&plan, grant);
    assert_eq!(admitted_of(&mut lease, &plan, 1, NOW + 199 * MS), 1);
    assert_eq!(lease.take(&plan, 1, NOW + 201 * MS, LEAD), LeaseAnswer::Ask);
    let renewal = lease.renewal(&plan, KEY, LeaseDemand::by_one(1), NOW + 201 * MS);
    assert_eq!((renewal.delta, renewal.keep), (-8.0, 0.0));
    assert_eq!(renewal.spent, 0.0, "the one it spent was waited for");
}

/// A rate that rises from nothing accrues from then on, not from when the lease before it began.
#[test]
fn a_rate_accrues_from_when_it_was_asked_for() {
    let plan = plan();
    let grant = Grant { epoch: 9, lasts_ns: 400 * MS, ..Grant::default() };
    let mut lease = granted(&plan, grant);
    let sent_ns = NOW + 200 * MS;
    lease.renewal(&plan, KEY, LeaseDemand::by_one(0), sent_ns);
    give(&mut lease, &plan, &Grant { rate: 100.0, lasts_ns: 200 * MS, ..grant }, sent_ns);
    assert_eq!(admitted_of(&mut lease, &plan, 50, sent_ns + MS), 0);
    assert_eq!(admitted_of(&mut lease, &plan, 50, sent_ns + 101 * MS), 10);
}

/// However short the sample, it does not make one node look like the whole fleet.
#[test]
fn a_sample_shorter_than_20_ms_counts_as_one_of_20_ms() {
    let plan = plan();
    let mut lease = granted(&plan, Grant { epoch: 9, tokens: 21.0, lasts_ns: 400 * MS, ..Grant::default() });
    admitted_of(&mut lease, &plan, 21, NOW + 600_000);
    let renewal = lease.renewal(&plan, KEY, LeaseDemand::by_one(0), NOW + 600_000);
    assert!(renewal.demand <= 1_000.0, "{} units a second", renewal.demand);
}

/// Who comes while a renewal is on its way is not in it, and needs another, not a denial.
#[test]
fn who_comes_after_a_renewal_was_sent_asks_again() {
    let plan = plan();
    let mut lease = Lease::default();
    assert_eq!(lease.take(&plan, 1, NOW, LEAD), LeaseAnswer::Ask);
    let renewal = lease.renewal(&plan, KEY, LeaseDemand::by_one(1), NOW);
    assert_eq!(lease.take(&plan, 1, NOW + MS, LEAD), LeaseAnswer::Ask);
    give(
        &mut lease,
        &plan,
        &Grant { epoch: 9, tokens: 1.0, lasts_ns: 400 * MS, level: 900.0, ..Grant::default() },
        NOW,
    );
    assert!(is_admitted(lease.take_again(&plan, 1, NOW + MS, LEAD)));
    assert_eq!(lease.take_again(&plan, 1, NOW + MS, LEAD), LeaseAnswer::Ask);
    assert_eq!(renewal.pending, 1);
    // The same where a lease is held that accrues nothing.
    let grant = Grant { epoch: 9, tokens: 1.0, lasts_ns: 400 * MS, ..Grant::default() };
    let mut lease = granted(&plan, grant);
    assert!(is_admitted(lease.take(&plan, 1, NOW + MS, LEAD)));
    lease.renewal(&plan, KEY, LeaseDemand::by_one(0), NOW + 2 * MS);
    assert_eq!(lease.take(&plan, 1, NOW + 3 * MS, LEAD), LeaseAnswer::Ask);
}

/// What Redis had left may come with the answer in flight; if it had nothing, that brings no more than the rate.
#[test]
fn who_finds_a_lease_spent_waits_for_the_answer_in_flight_if_redis_had_the_cost_left() {
    let plan = plan_of(1_000, SECOND, 1_000, 0);
    for (level, cost, is_asked) in [(900.0, 1, true), (2.0, 1, true), (2.0, 3, false), (0.9, 1, false)] {
        let grant = Grant { epoch: 9, rate: 100.0, lasts_ns: 400 * MS, level, ..Grant::default() };
        let mut lease = granted(&plan, grant);
        lease.renewal(&plan, KEY, LeaseDemand::default(), NOW + 2 * MS);
        let told = lease.take(&plan, cost, NOW + 3 * MS, LEAD);
        assert_eq!(told == LeaseAnswer::Ask, is_asked, "{cost} of {level}: {told:?}");
    }
}

#[test]
fn a_denial_of_redis_is_kept_and_costs_nothing() {
    let plan = plan_of(10, SECOND, 10, 0);
    let mut lease =
        granted(&plan, Grant { epoch: 9, lasts_ns: 400 * MS, deny_ns: 300 * MS, ..Grant::default() });
    assert!(matches!(lease.take(&plan, 1, NOW + 299 * MS, LEAD), LeaseAnswer::Denied { .. }));
    assert_eq!(lease.take(&plan, 1, NOW + 301 * MS, LEAD), LeaseAnswer::Ask);
    let mut exact = Lease::default();
    exact.deny_until(NOW + 5 * MS);
    let LeaseAnswer::Denied { retry_after_ns } = exact.take(&plan, 1, NOW, LEAD) else {
        panic!("it is denied")
    };
    assert!(retry_after_ns <= 5 * MS && retry_after_ns > 5 * MS - 2_048, "{retry_after_ns} ns");
    assert_eq!(exact.take(&plan, 1, NOW + 5 * MS, LEAD), LeaseAnswer::Ask);
}

#[test]
fn a_denial_that_ended_holds_for_no_thread() {
    let plan = plan_of(1_000_000, 365 * 86_400 * SECOND, 1_000_000, 0);
    let mut exact = Lease::default();
    exact.refuse(5, SECOND, NOW);
    assert!(exact.refused_for(&plan, 50, NOW).is_some());
    exact.end_denial();
    // A request may have read the clock before the denial ended on another thread.
    for now_ns in [NOW - MS, NOW, NOW + MS] {
        assert_eq!(exact.refused_for(&plan, 50, now_ns), None);
        assert_eq!(exact.take(&plan, 1, now_ns, LEAD), LeaseAnswer::Ask);
    }
}

#[test]
fn an_idle_lease_goes_back_whole() {
    let plan = plan();
    let grant = Grant { epoch: 9, tokens: 9.0, rate: 10.0, lasts_ns: 400 * MS, ..Grant::default() };
    let mut lease = granted(&plan, grant);
    lease.take(&plan, 1, NOW, LEAD);
    assert!(!lease.is_idle(&plan, NOW + 100 * MS), "half a request a second may come any time");
    assert!(!lease.is_idle(&plan, NOW + SECOND), "the next request may tell it for nothing");
    assert!(lease.is_idle(&plan, NOW + 2 * SECOND) && lease.is_idle(&plan, NOW + 100 * SECOND));
    let release = lease.release(&plan, KEY, NOW + 100 * MS).expect("it holds a lease");
    assert!((release.delta + 12.0).abs() < 1e-3, "eight, and what accrues to the end: {}", release.delta);
    assert_eq!((release.rate, release.release), (10.0, true));
    assert_eq!(lease.take(&plan, 1, NOW + 101 * MS, LEAD), LeaseAnswer::Ask);
    assert!(lease.release(&plan, KEY, NOW + 101 * MS).is_none());
}

/// A lease that is asked 200 units a second for half a second, and has just said so.
fn wanted(plan: &Arc<Plan>) -> Lease {
    let grant = Grant { epoch: 9, tokens: 500.0, lasts_ns: 600 * MS, ..Grant::default() };
    let mut lease = granted(plan, grant);
    (0..100).for_each(|step| assert!(is_admitted(lease.take(plan, 1, NOW + step * 5 * MS, LEAD))));
    let renewal = lease.renewal(plan, KEY, LeaseDemand::by_one(0), NOW + 500 * MS);
    assert!((150.0..250.0).contains(&renewal.demand), "{renewal:?}");
    give(&mut lease, plan, &grant, NOW + 500 * MS);
    lease
}

#[test]
fn requests_that_come_further_apart_than_before_are_not_idle_between_two() {
    let plan = plan();
    // The last of 200 a second came at 495 ms.
    let gone = wanted(&plan);
    assert!(gone.is_idle(&plan, NOW + 560 * MS));
    let mut sparse = wanted(&plan);
    assert!(is_admitted(sparse.take(&plan, 1, NOW + 560 * MS, LEAD)));
    assert!(!sparse.is_idle(&plan, NOW + 740 * MS) && sparse.is_idle(&plan, NOW + 770 * MS));
    // What is told next knows of it.
    sparse.renewal(&plan, KEY, LeaseDemand::by_one(0), NOW + 780 * MS);
    give(
        &mut sparse,
        &plan,
        &Grant { epoch: 9, tokens: 50.0, lasts_ns: 600 * MS, ..Grant::default() },
        NOW + 780 * MS,
    );
    assert!(is_admitted(sparse.take(&plan, 1, NOW + 781 * MS, LEAD)));
    let quiet_ns = |ms: u64| NOW + (781 + ms) * MS;
    assert!(!sparse.is_idle(&plan, quiet_ns(100)) && sparse.is_idle(&plan, quiet_ns(500)));
}

#[test]
fn nothing_is_owed_beside_what_the_fleet_owes_already() {
    let plan = plan();
    let grant = |level| Grant { epoch: 9, lasts_ns: 400 * MS, level, ..Grant::default() };
    assert!(granted(&plan, grant(0.0)).overdraw(&plan, NOW + MS));
    assert!(!granted(&plan, grant(-1.0)).overdraw(&plan, NOW + MS));
}

/// A node that has to ask for every request measures the same demand as one that asks now and then.
#[test]
fn a_demand_is_the_same_however_often_it_is_reported() {
    let plan = plan();
    for every in [1, 2, 5, 20, 100] {
        let mut lease = granted(&plan, Grant { epoch: 1, lasts_ns: SECOND / 2, ..Grant::default() });
        let mut demand = 0.0;
        // 200 units a second, at uneven times.
        for number in 1..=600 {
            let now_ns = NOW + (number * 5 + number % 3 * 2) * MS;
            lease.take(&plan, 1, now_ns, LEAD);
            if number % every == 0 {
                let asked = lease.renewal(&plan, KEY, LeaseDemand::default(), now_ns);
                lease.granted(&asked, &Grant { epoch: 1, lasts_ns: SECOND / 2, ..Grant::default() }, now_ns);
                demand = asked.demand;
            }
        }
        // What changes by less than a third of a percent from one report to the next is rounded off.
        assert!((150.0..230.0).contains(&demand), "{demand} a second if every {every}th request reports");
    }
}

#[test]
fn a_demand_that_has_gone_is_reported_as_a_tenth_at_once() {
    let plan = plan();
    let asked_after = |quiet_ns| {
        let mut lease = wanted(&plan);
        lease.take(&plan, 1, NOW + 500 * MS + quiet_ns, LEAD);
        lease.renewal(&plan, KEY, LeaseDemand::by_one(0), NOW + 500 * MS + quiet_ns).demand
    };
    assert!(asked_after(10 * MS) > 150.0, "so short a time says nothing: {}", asked_after(10 * MS));
    assert!((15.0..25.0).contains(&asked_after(200 * MS)), "{}", asked_after(200 * MS));
    assert!((15.0..25.0).contains(&asked_after(550 * MS)), "{}", asked_after(550 * MS));
}

#[test]
fn what_is_given_back_forgets_its_denial_and_begins_with_its_silence() {
    let plan = plan();
    let mut lease = wanted(&plan);
    let grant = Grant { epoch: 9, tokens: 5.0, lasts_ns: 600 * MS, deny_ns: 600 * MS, ..Grant::default() };
    lease.renewal(&plan, KEY, LeaseDemand::by_one(0), NOW + 500 * MS);
    give(&mut lease, &plan, &grant, NOW + 500 * MS);
    assert!(is_admitted(lease.take(&plan, 1, NOW + 510 * MS, LEAD)));
    assert!(!lease.is_idle(&plan, NOW + 540 * MS) && lease.is_idle(&plan, NOW + 570 * MS));
    lease.release(&plan, KEY, NOW + 570 * MS).expect("it holds a lease");
    assert_eq!(
        lease.take(&plan, 1, NOW + 575 * MS, LEAD),
        LeaseAnswer::Ask,
        "what others gave back is there to be had"
    );
    // Five milliseconds after it was given back, but 65 after the last request.
    let demand = lease.renewal(&plan, KEY, LeaseDemand::by_one(1), NOW + 575 * MS).demand;
    assert!((15.0..60.0).contains(&demand), "{demand}");
}

#[test]
fn a_lost_renewal_tells_a_debt_again_and_a_return_never() {
    let plan = plan();
    let mut lease = granted(&plan, Grant { epoch: 9, rate: 400.0, lasts_ns: 100 * MS, ..Grant::default() });
    admitted_of(&mut lease, &plan, 100, NOW + 101 * MS);
    let renewal = lease.renewal(&plan, KEY, LeaseDemand::by_one(1), NOW + 102 * MS);
    lease.lost(&renewal, false);
    let again = lease.renewal(&plan, KEY, LeaseDemand::by_one(1), NOW + 105 * MS);
    assert!((again.delta - renewal.delta).abs() < 1e-3, "{} and {}", renewal.delta, again.delta);
    let mut lease = granted(&plan, Grant { epoch: 9, tokens: 50.0, lasts_ns: 100 * MS, ..Grant::default() });
    let renewal = lease.renewal(&plan, KEY, LeaseDemand::by_one(0), NOW + MS);
    assert_eq!((renewal.delta, renewal.keep), (-49.0, 1.0));
    lease.lost(&renewal, false);
    assert_eq!(lease.renewal(&plan, KEY, LeaseDemand::by_one(0), NOW + 2 * MS).delta, 0.0);
    let mut lease = granted(&plan, Grant { epoch: 9, tokens: 50.0, lasts_ns: 100 * MS, ..Grant::default() });
    admitted_of(&mut lease, &plan, 10, NOW + MS);
    let renewal = lease.renewal(&plan, KEY, LeaseDemand::by_one(0), NOW + MS);
    lease.lost(&renewal, false);
    let again = lease.renewal(&plan, KEY, LeaseDemand::by_one(0), NOW + 2 * MS);
    assert!(renewal.spent > 8.0 && renewal.spent <= 10.0, "{}", renewal.spent);
    assert!(again.spent.abs() < 0.2, "{}", again.spent);
    // Nor by reports that come after the lease is over.
    lease.lost(&again, false);
    let late = lease.renewal(&plan, KEY, LeaseDemand::by_one(0), NOW + 110 * MS);
    lease.lost(&late, false);
    let later = lease.renewal(&plan, KEY, LeaseDemand::by_one(0), NOW + 120 * MS);
    assert!(later.spent.abs() < 0.2, "{}", later.spent);
}

#[test]
fn unanswered_reports_are_sent_again() {
    let plan = plan();
    let mut lease = granted(&plan, Grant { epoch: 9, tokens: 50.0, lasts_ns: 100 * MS, ..Grant::default() });
    admitted_of(&mut lease, &plan, 10, NOW + MS);
    let renewal = lease.renewal(&plan, KEY, LeaseDemand::by_one(0), NOW + MS);
    lease.lost(&renewal, true);
    let again = lease.renewal(&plan, KEY, LeaseDemand::by_one(0), NOW + 2 * MS);
    assert_eq!((renewal.keep - renewal.delta, again.keep - again.delta), (40.0, 40.0));
    assert!((again.spent - renewal.spent).abs() < 0.3, "{} and {}", again.spent, renewal.spent);
    lease.lost(&again, true);
    // A lease that was given back without anybody hearing of it is held again, and goes back once more.
    let release = lease.release(&plan, KEY, NOW + 3 * MS).expect("it holds a lease");
    assert_eq!(release.delta, -40.0);
    lease.released(&release, Err(true));
    assert!(lease.is_idle(&plan, NOW + 3 * SECOND));
    assert_eq!(lease.release(&plan, KEY, NOW + 3 * SECOND).map(|release| release.delta), Some(-40.0));
}

#[test]
fn in_fallback_a_lease_keeps_its_rate_and_moves_to_twice_the_share() {
    let plan = plan();
    let mut lease = granted(&plan, Grant { epoch: 9, rate: 300.0, lasts_ns: 100 * MS, ..Grant::default() });
    let mut admitted = |from_s: u64, to_s: u64| {
        let steps = from_s * 1_000..to_s * 1_000;
        let taken = steps.filter(|ms| is_admitted(lease.take_fallback(&plan, 1, NOW + ms * MS, 100, true)));
        taken.count() as u64 / (to_s - from_s)
    };
    assert!((299..=301).contains(&admitted(0, 10)));
    // From 300 to 20 a second.
    assert!((150..=170).contains(&admitted(10, 20)));
    assert!((19..=21).contains(&admitted(20, 30)));
}

/// Otherwise, of eight units that are left, one here and seven in Redis, a request of eight would have none.
#[test]
fn what_is_held_goes_back_for_a_cost_that_only_redis_can_serve_whole() {
    let plan = plan();
    for (cost, keep, delta) in [(1, 1.0, 0.0), (8, 0.0, -1.0)] {
        let grant = Grant { epoch: 9, tokens: 1.0, level: 7.0, lasts_ns: 400 * MS, ..Grant::default() };
        let mut lease = granted(&plan, grant);
        let renewal = lease.renewal(&plan, KEY, LeaseDemand::by_one(cost), NOW + MS);
        assert_eq!((renewal.keep, renewal.delta), (keep, delta), "{cost}");
    }
}

#[test]
fn what_the_fleet_owes_comes_back_before_anything_is_left() {
    let plan = plan();
    for (level, left, reset_ms) in [(300.0, 300, 700), (0.0, 0, 1_000), (-500.0, 0, 1_500)] {
        let lease = granted(&plan, Grant { epoch: 9, level, lasts_ns: 400 * MS, ..Grant::default() });
        assert_eq!(lease.estimate(&plan, NOW), (left, reset_ms * MS), "{level}");
    }
}

#[test]
fn a_late_answer_ends_fallback_and_leaves_a_debt() {
    let plan = plan();
    let mut lease = Lease::default();
    lease.take(&plan, 1, NOW, LEAD);
    lease.renewal(&plan, KEY, LeaseDemand::by_one(1), NOW);
    assert_eq!(admitted_in_fallback(&mut lease, &plan, 1_000, NOW + 2 * MS), 20);
    give(&mut lease, &plan, &Grant { epoch: 9, tokens: 30.0, lasts_ns: 400 * MS, ..Grant::default() }, NOW);
    assert_eq!(admitted_of(&mut lease, &plan, 1_000, NOW + 3 * MS), 10);
}

/// Units that a renewal in flight keeps are Redis's until told otherwise: a request that falls back while its answer is
/// late spends them, and they are neither dropped nor reported as spent.
#[test]
fn what_a_late_answer_keeps_outlasts_fallback() {
    let plan = plan();
    for later_ms in [10, 90, 110, 150, 400] {
        let grant = Grant { epoch: 9, tokens: 9.0, lasts_ns: 100 * MS, ..Grant::default() };
        let mut lease = granted(&plan, grant);
        let asked = lease.renewal(&plan, KEY, LeaseDemand::default(), NOW + 100 * MS);
        let kept = asked.keep;
        assert!(kept >= 1.0, "{kept}");
        let late_ns = NOW + 100 * MS + later_ms * MS;
        assert!(is_admitted(lease.take_fallback(&plan, 1, late_ns, 100, false)));
        let grant = Grant { epoch: 10, tokens: 3.0, lasts_ns: 500 * MS, ..Grant::default() };
        lease.granted(&asked, &grant, NOW + 100 * MS);
        let told = lease.renewal(&plan, KEY, LeaseDemand::default(), late_ns + MS);
        assert!((told.keep - told.delta - (kept + 2.0)).abs() < 0.1, "{later_ms}: {told:?}");
        assert!((told.spent - 1.0).abs() < 0.1, "{later_ms}: {told:?}");
    }
}

/// A window ends in less than a lease's age: what was held before is not spent for longer by asking for more.
#[test]
fn a_grant_at_a_windows_end_lengthens_no_lease() {
    let plan = plan();
    let mut lease = granted(&plan, Grant { epoch: 9, tokens: 50.0, lasts_ns: 100 * MS, ..Grant::default() });
    for sent_ns in [NOW + 150 * MS, NOW + 190 * MS] {
        lease.renewal(&plan, KEY, LeaseDemand::by([1; 5].into_iter()), sent_ns);
        give(&mut lease, &plan, &Grant { epoch: 9, tokens: 5.0, ..Grant::default() }, sent_ns);
        assert_eq!(admitted_of(&mut lease, &plan, 5, sent_ns + MS), 5);
    }
    assert_eq!(admitted_of(&mut lease, &plan, 1, NOW + 199 * MS), 1);
    assert_eq!(lease.take(&plan, 1, NOW + 202 * MS, LEAD), LeaseAnswer::Ask);
}

#[test]
fn a_debt_after_a_lease_is_reported_without_another_request() {
    let plan = plan();
    let mut lease = granted(&plan, Grant { epoch: 9, tokens: 5.0, lasts_ns: 100 * MS, ..Grant::default() });
    lease.owe(8);
    assert!(!lease.is_idle(&plan, NOW + 199 * MS) && lease.is_idle(&plan, NOW + 202 * MS));
    let release = lease.release(&plan, KEY, NOW + 202 * MS).expect("it owes");
    assert_eq!((release.delta, release.release), (3.0, true));
    let mut heard = lease;
    heard.released(&release, Ok(0.0));
    assert!(!lease.says_nothing(&plan, NOW + SECOND) && heard.says_nothing(&plan, NOW + SECOND));
    lease.released(&release, Err(false));
    assert_eq!(lease.renewal(&plan, KEY, LeaseDemand::by_one(0), NOW + SECOND).delta, 3.0);
}

/// It answers, but not to this key.
#[test]
fn a_store_that_refuses_is_as_good_as_away() {
    let plan = plan();
    let mut lease = Lease::default();
    let (mut admitted, mut told) = (0, 0.0);
    for turn in 0..1_000 {
        let now_ns = NOW + turn * 10 * MS;
        assert_eq!(lease.take(&plan, 1, now_ns, LEAD), LeaseAnswer::Ask);
        let renewal = lease.renewal(&plan, KEY, LeaseDemand::by_one(1), now_ns);
        told = renewal.delta;
        lease.lost(&renewal, false);
        admitted += usize::from(is_admitted(lease.take_fallback(&plan, 1, now_ns, 100, true)));
    }
    // A burst and ten seconds of twice the share of a hundred nodes.
    assert!((218..=221).contains(&admitted), "{admitted}");
    assert!(told <= 21.0, "the rest has refilled: {told}");
}

/// Otherwise Redis would count what was spent as held, and show it so to operators.
#[test]
fn what_fallback_owes_is_reported_as_spent() {
    for release in [false, true] {
        let (plan, mut lease) = (plan(), Lease::default());
        let admitted = admitted_in_fallback(&mut lease, &plan, 100, NOW);
        let late = NOW + SECOND;
        let report = match release {
            true => lease.release(&plan, KEY, late).expect("it owes"),
            false => lease.renewal(&plan, KEY, LeaseDemand::by_one(0), late),
        };
        assert_eq!((report.spent, report.delta), (admitted as f64, admitted as f64));
        assert!(lease.is_fallback() && lease.is_in_flight());
        // Nothing is reported twice, and nothing is lost that no answer came to.
        assert!(!lease.has_something_of_redis());
        lease.released(&report, Err(false));
        assert!(lease.has_something_of_redis());
    }
}

#[test]
fn a_flapping_store_hands_out_one_burst() {
    let plan = plan();
    let mut lease = Lease::default();
    let mut admitted = admitted_in_fallback(&mut lease, &plan, 1_000, NOW);
    assert_eq!(admitted, 20, "twice the share of a hundred nodes");
    for round in 1..10 {
        let now_ns = NOW + round * MS;
        let renewal = lease.renewal(&plan, KEY, LeaseDemand::by_one(1), now_ns);
        lease.lost(&renewal, false);
        admitted += admitted_in_fallback(&mut lease, &plan, 1_000, now_ns);
    }
    // 9 ms of 20 units a second are nothing.
    assert_eq!(admitted, 20);
}

#[test]
fn units_spent_in_fallback_are_owed_unless_refilled_since() {
    let now_ns = NOW + 30 * SECOND;
    let spent_of = |plan: &Arc<Plan>| {
        let mut lease = Lease::default();
        let spent = admitted_in_fallback(&mut lease, plan, 1_000, NOW)
            + admitted_in_fallback(&mut lease, plan, 3, now_ns);
        (spent as f64, lease.renewal(plan, KEY, LeaseDemand::by_one(0), now_ns).delta)
    };
    let (spent, owed) = spent_of(&plan_of(60_000, 60 * SECOND, 1_000, 0));
    assert_eq!(owed, spent);
    let (_, owed) = spent_of(&plan());
    assert!(owed <= 3.0, "30 s later: {owed}");
}

#[test]
fn exact_keys_have_a_fallback_and_their_burst_refills() {
    let mut plan = (*plan_of(10, SECOND, 10, 0)).clone();
    plan.sharing = Sharing::new(&plan.quota, 0.0, WhenDown::Local);
    assert!(plan.sharing.is_exact());
    let mut lease = Lease::default();
    assert_eq!(admitted_in_fallback(&mut lease, &plan, 100, NOW), 5);
    // Redis is back and denies; then it is gone again.
    lease.deny_until(NOW + 51 * MS);
    assert!(matches!(lease.take(&plan, 1, NOW + 2 * MS, LEAD), LeaseAnswer::Denied { .. }));
    assert_eq!(admitted_in_fallback(&mut lease, &plan, 100, NOW + 3 * MS), 0);
    assert!(!lease.says_nothing(&plan, NOW + 500 * MS));
    assert_eq!(admitted_in_fallback(&mut lease, &plan, 100, NOW + 1_100 * MS), 5);
    assert!(lease.says_nothing(&plan, NOW + 3 * SECOND));
}

fn admitted_in_fallback(lease: &mut Lease, plan: &Plan, asked: u64, now_ns: u64) -> usize {
    (0..asked)
        .filter(|_| {
            is_admitted(lease.take_fallback(
                plan,
                1,
                now_ns,
                if plan.quota.capacity() == 10 { 4 } else { 100 },
                true,
            ))
        })
        .count()
}

proptest! {
    #[test]
    fn giving_back_is_as_if_never_taken(
        tokens in 0u32..1_000, rate in 0.0f64..1e6, costs in prop::collection::vec(1u64..50, 1..20), at in 0u64..400,
    ) {
        let plan = plan();
        let grant = Grant { epoch: 9, tokens: f64::from(tokens), rate, lasts_ns: 400 * MS, ..Grant::default() };
        let mut lease = granted(&plan, grant);
        let (before, now_ns) = (lease.held(NOW + 399 * MS), NOW + at * MS);
        let taken: Vec<u64> = costs.into_iter().filter(|cost| is_admitted(lease.take(&plan, *cost, now_ns, LEAD))).collect();
        taken.iter().for_each(|cost| lease.give_back(*cost));
        prop_assert_eq!(lease.held(NOW + 399 * MS), before);
    }

    /// The whole scheme in one property: whatever few nodes ask and whenever, with renewals that are lost on either
    /// way, a limit behind them all refuses nothing of what they admit, or has it within the time of a unit: what a node
    /// accrued while its answer was lost may be a part of a unit more.
    #[test]
    fn leases_never_admit_more_than_one_limit(
        steps in prop::collection::vec((0usize..4, 0u64..120_000, 1u64..9, 0u8..20), 1..400),
        algorithm in prop::sample::select(vec![Algorithm::TokenBucket, Algorithm::FixedWindow, Algorithm::SlidingWindow]),
        limit in prop::sample::select(vec![40u64, 200, 2_000, 20_000]), bursts in 1u64..4,
    ) {
        let mut plan = (*plan_of(limit, SECOND, limit * bursts / 2, 0)).clone();
        plan.quota = quota::tests::quota(algorithm, limit, SECOND, limit * bursts / 2);
        plan.sharing = Sharing::new(&plan.quota, 1e-9, WhenDown::Local);
        prop_assert!(!plan.sharing.is_exact());
        let plan = Arc::new(plan);
        let (mut model, mut nodes, mut behind) = (ScriptModel::default(), [Lease::default(); 4], crate::State::default());
        let mut now_ns = NOW;
        for (node, wait_us, times, fate) in steps {
            now_ns += wait_us * 1_000;
            let lease = &mut nodes[node];
            for _ in 0..times {
                let mut told = lease.take(&plan, 1, now_ns, LEAD);
                if matches!(told, LeaseAnswer::Ask | LeaseAnswer::Admitted { renew: true }) {
                    let wanted = LeaseDemand::by_one(u64::from(told == LeaseAnswer::Ask));
                    let renewal = lease.renewal(&plan, KEY, wanted, now_ns);
                    answer(&mut model, lease, &renewal, now_ns, fate);
                    told = if told == LeaseAnswer::Ask { lease.take_again(&plan, 1, now_ns, LEAD) } else { told };
                }
                if is_admitted(told) {
                    let (state, outcome) = behind.take(&plan.quota, 1, now_ns);
                    behind = state;
                    let unit_ns = SECOND / limit;
                    prop_assert!(outcome.is_admitted() || outcome.retry_after_ns() < Some(unit_ns.max(2 * MS)), "{:?}", outcome);
                }
            }
            if fate == 5 && let Some(release) = lease.release(&plan, KEY, now_ns) {
                model.renew(&release, now_ns / 1_000);
            }
        }
    }
}

/// Most renewals are answered; some are lost on the way there, some on the way back.
fn answer(model: &mut ScriptModel, lease: &mut Lease, renewal: &Renewal, now_ns: u64, fate: u8) {
    match fate {
        0 => lease.lost(renewal, false),
        1 => {
            model.renew(renewal, now_ns / 1_000);
            lease.lost(renewal, false);
        }
        _ => lease.granted(renewal, &model.renew(renewal, now_ns / 1_000), now_ns),
    }
}

#[test]
fn a_share_that_admits_says_whether_to_renew() {
    let plan = plan();
    let mut lease = granted(&plan, Grant { epoch: 9, tokens: 500.0, lasts_ns: 400 * MS, ..Grant::default() });
    assert_eq!(lease.take(&plan, 1, NOW + MS, LEAD), ADMITTED);
    admitted_of(&mut lease, &plan, 400, NOW + 100 * MS);
    lease.renewal(&plan, KEY, LeaseDemand::by_one(0), NOW + 100 * MS);
    assert_eq!(lease.take(&plan, 1, NOW + 100 * MS, LEAD), ADMITTED, "one is on its way");
}

#[test]
fn a_changed_limit_keeps_what_is_held_and_raises_no_rate() {
    let (old, lower) = (plan(), plan_of(600, SECOND, 600, 100));
    let grant =
        Grant { epoch: 9, tokens: 100.0, rate: 500.0, lasts_ns: 400 * MS, level: 300.0, ..Grant::default() };
    let mut lease = granted(&old, grant);
    let now = NOW + 100 * MS;
    let shown = |lease: &Lease| {
        let view = lease.view(now);
        (view.held.round() as i64, view.rate.round() as u64, view.level.round() as u64)
    };
    // What has accrued until now is held, too.
    assert_eq!(shown(&lease), (150, 500, 300));
    lease.adopt(&old, &lower, now);
    // Of a thousand 550 were spent: 50 are left of 600.
    assert_eq!(shown(&lease), (50, 300, 0));
    assert_eq!(admitted_of(&mut lease, &lower, 100, now), 50);
    lease.give_back(50);
    lease.adopt(&lower, &old, now);
    assert_eq!(shown(&lease), (50, 300, 400));
    // What was asked for under the old limit, too.
    let late = Grant { tokens: 40.0, rate: 200.0, level: 500.0, ..grant }.under(&old, &lower);
    assert_eq!((late.tokens, late.rate, late.level, late.epoch), (24.0, 120.0, 116.0, 9));
    let short = Grant { tokens: 40.0, level: 370.0, ..grant }.under(&old, &lower);
    assert_eq!((short.tokens, short.level), (10.0, 0.0));
    // A debt is as large as it was.
    let mut lease = Lease::default();
    lease.owe(30);
    lease.adopt(&old, &lower, now);
    assert_eq!(lease.held_or_owed(now), -30.0);
}

/// Otherwise the sweep would do nothing but repeat it as long as Redis refuses.
#[test]
fn a_return_that_nobody_took_is_sent_again_but_not_at_once() {
    let plan = plan();
    for is_away in [false, true] {
        let mut lease =
            granted(&plan, Grant { epoch: 9, tokens: 40.0, lasts_ns: 400 * MS, ..Grant::default() });
        if is_away {
            assert!(is_admitted(lease.take_fallback(&plan, 30, NOW, 2, true)));
        }
        let mut now = NOW + 5 * SECOND;
        for _ in 0..5 {
            assert!(lease.is_idle(&plan, now), "{is_away}");
            let release = lease.release(&plan, KEY, now).expect("there is something to return");
            lease.released(&release, Err(true));
            let is_due = |after_ms: u64| lease.is_idle(&plan, now + after_ms * MS);
            assert_eq!([0, 50, 190, 210].map(is_due), [false, false, false, true], "{is_away}");
            now += 300 * MS;
        }
        let release = lease.release(&plan, KEY, now).expect("all of it is there still");
        assert_eq!(release.delta.abs(), if is_away { 10.0 } else { 40.0 }, "{is_away}");
    }
}

/// Redis counts as lent a share of it under the new limit, and what was spent comes out of that: all but the unit that the
/// request of the grant waited for.
#[test]
fn under_a_lowered_limit_no_more_is_reported_as_spent_than_was() {
    let (old, lower) = (plan(), plan_of(250, SECOND, 250, 100));
    for spent in [0, 40] {
        let grant = Grant { epoch: 9, tokens: 100.0, lasts_ns: 400 * MS, level: 900.0, ..Grant::default() };
        let mut lease = granted(&old, grant);
        admitted_of(&mut lease, &old, spent, NOW + MS);
        lease.adopt(&old, &lower, NOW + 2 * MS);
        let told = lease.renewal(&lower, KEY, LeaseDemand::by_one(1), NOW + 3 * MS).spent;
        let right = spent.saturating_sub(1);
        assert!((told - right as f64).abs() < 0.5, "{told} of {spent} spent");
    }
}

/// Redis promises the rate anew when the shorter epoch ends.
#[test]
fn under_a_shorter_epoch_a_lease_ends_with_it() {
    let long = |limit| {
        let sharing = Sharing { epoch_ns: 1_500 * MS, ..plan().sharing };
        Arc::new(Plan { sharing, ..(*plan_of(limit, 60 * SECOND, limit, 100)).clone() })
    };
    let (old, new) = (long(60_000), plan_of(60_000, 60 * SECOND, 6_000, 100));
    let grant = Grant { epoch: 9, rate: 100.0, lasts_ns: 1_450 * MS, level: 58_000.0, ..Grant::default() };
    for (at_ms, lasts_ms) in [(100, 349), (1_000, 0)] {
        let now = NOW + at_ms * MS;
        let mut lease = granted(&old, grant);
        let held = lease.view(now).held;
        lease.adopt(&old, &new, now);
        assert_eq!(lease.view(now).lasts_ns / MS, lasts_ms, "{at_ms}");
        assert!((lease.view(now).held - held * 0.1).abs() < 0.01, "{at_ms}: {:?}", lease.view(now));
        let mut lease = granted(&new, Grant { lasts_ns: 450 * MS, ..grant });
        lease.adopt(&new, &old, now.min(NOW + 200 * MS));
        assert_eq!(lease.view(NOW).lasts_ns / MS, 449, "a longer one prolongs nothing");
    }
}

/// Otherwise a limit of fewer units than nodes is nobody's behind a Redis that answers late.
#[test]
fn less_than_a_unit_a_node_is_taken_one_by_one_in_the_order_of_ranks() {
    let plan = plan_of(10, SECOND, 10, 0);
    let takers = |level: f64, now_ns: u64, cost: u64| {
        let lease = granted(&plan, Grant { epoch: 9, level, lasts_ns: 400 * MS, ..Grant::default() });
        let taken = (0..20).map(|rank| {
            let mut lease = lease;
            (0..9).filter(|_| lease.advance(&plan, cost, now_ns, 20, || rank) == Some(true)).count()
        });
        taken.collect::<Vec<_>>()
    };
    for (level, after_ns, admitted) in
        [(0.0, 0, 0), (1.0, 0, 1), (5.5, 0, 11), (10.0, 0, 20), (-1.0, 450 * MS, 6)]
    {
        let now_ns = NOW + if after_ns == 0 { 0 } else { 400 * MS + after_ns };
        let taken = takers(level, now_ns, 1);
        let (first, others) = taken.split_at(admitted);
        assert!(first.iter().all(|taken| *taken == 1), "{level}: {taken:?}");
        assert!(others.iter().all(|taken| *taken == 0), "{level}: {taken:?}");
        assert_eq!(takers(level, now_ns, 2), [0; 20], "a cost of two is more than anybody's part");
    }
    assert_eq!(Lease::default().advance(&plan, 1, NOW, 20, || 0), None, "nothing is known of it");
}

/// Otherwise what Redis said is left would be spent here, in fallback, and once more while it hears of that.
#[test]
fn what_was_advanced_of_what_is_left_is_gone_until_redis_says_more() {
    for (nodes, part) in [(1, 8), (2, 4)] {
        for (is_reported, is_heard) in [(false, false), (true, false), (true, true)] {
            let plan = plan_of(20, 60 * SECOND, 20, 0);
            let grant = Grant { epoch: 9, level: 8.0, lasts_ns: 400 * MS, ..Grant::default() };
            let mut lease = granted(&plan, grant);
            lease.0.set_balance(0);
            let spend = |lease: &mut Lease| {
                let advanced =
                    (0..9).filter(|_| lease.advance(&plan, 1, NOW, nodes, || 0) == Some(true)).count();
                advanced
                    + (0..9).filter(|_| is_admitted(lease.take_fallback(&plan, 1, NOW, nodes, false))).count()
            };
            let mut again = lease;
            assert_eq!(spend(&mut again), part, "{nodes}");
            let mut before = 0;
            if is_reported {
                before =
                    (0..part).filter(|_| lease.advance(&plan, 1, NOW, nodes, || 0) == Some(true)).count();
                let renewal = lease.renewal(&plan, KEY, LeaseDemand::default(), NOW);
                assert_eq!(renewal.delta, before as f64);
                if is_heard {
                    lease.lost(&renewal, true);
                }
            }
            // A part of the rest, which is the others' as well.
            let most = before + if is_heard { 0 } else { (8 - before) / nodes as usize };
            assert_eq!(before + spend(&mut lease), most.max(part), "{nodes} {is_reported} {is_heard}");
        }
    }
}

/// What accrues while there is room for it is told beside what was spent; a burst after a pause had none.
#[test]
fn a_renewal_tells_how_much_of_what_was_spent_has_refilled_since() {
    let plan = plan();
    let grant = Grant { epoch: 9, tokens: 20.0, rate: 100.0, lasts_ns: 400 * MS, ..Grant::default() };
    let even: Vec<(u64, u64)> = (1..=30).map(|tenth| (tenth * 10, 1)).collect();
    for (spends, least, most) in [
        (even.as_slice(), 25.0, 30.0),
        // What is kept of it is rounded down to a 256th of what the bucket refills.
        (&[(1, 15)], 11.0, 15.0),
        (&[(150, 15)], 11.0, 15.0),
        (&[(299, 40)], 0.0, 1.0),
        (&[], 0.0, 0.0),
    ] {
        let mut lease = granted(&plan, grant);
        for (ms, cost) in spends {
            assert!(is_admitted(lease.take(&plan, *cost, NOW + ms * MS, LEAD)), "{spends:?}");
        }
        let refilled = lease.renewal(&plan, KEY, LeaseDemand::default(), NOW + 300 * MS).refilled;
        assert!((least..=most).contains(&refilled), "{spends:?}: {refilled}");
    }
}

/// A full bucket does not refill before it hears what was spent; in later epochs the rates are the whole refill.
#[test]
fn a_first_lease_of_a_fast_bucket_tells_early_what_it_spent() {
    let fast = plan();
    for (plan, level, requests, ms, is_later, tells) in [
        (&fast, 900.0, 9, 62, false, true),
        (&fast, 900.0, 8, 62, false, false),
        (&fast, 900.0, 9, 50, false, false),
        (&fast, 200.0, 9, 62, false, false),
        (&fast, 900.0, 9, 62, true, false),
        (&plan_of(1_000, SECOND, 60_000, 100), 59_900.0, 9, 62, false, false),
    ] {
        let grant = Grant { epoch: 9, tokens: 100.0, level, lasts_ns: 500 * MS, ..Grant::default() };
        let mut lease = granted(plan, grant);
        lease.0.set_demand(100.0);
        if is_later {
            let asked = lease.renewal(plan, KEY, LeaseDemand::default(), NOW);
            lease.granted(&asked, &Grant { epoch: 509, ..grant }, NOW);
        }
        for _ in 1..requests {
            assert!(is_admitted(lease.take(plan, 1, NOW + 2 * MS, LEAD)));
        }
        let at_ns = NOW + ms * MS;
        let is_spent = lease.spend(plan, 1, at_ns, LEAD).is_some();
        let told = LeaseAnswer::Admitted { renew: tells };
        assert!(is_spent || lease.take(plan, 1, at_ns, LEAD) == told, "{level} {requests} {ms} {is_later}");
        assert_eq!(
            has_to_tell(&lease, plan, 0, at_ns) && lease.0.has(Flag::Fresh),
            tells,
            "{level} {requests} {ms}"
        );
    }
}

/// Other nodes may need what this one holds.
#[test]
fn of_a_fast_bucket_of_which_an_eighth_is_gone_little_is_kept() {
    for (level, ahead, kept) in [(900.0, false, 50.0), (800.0, false, 8.0), (800.0, true, 50.0)] {
        let grant = Grant { epoch: 9, tokens: 80.0, level, lasts_ns: 500 * MS, ..Grant::default() };
        let mut lease = granted(&plan(), grant);
        lease.0.set_demand(400.0);
        let asked = lease.renewal(&plan(), KEY, LeaseDemand { ahead, ..LeaseDemand::default() }, NOW);
        let most = kept * asked.demand / 400.0;
        assert!((asked.keep - most).abs() < 0.01 && (asked.delta + 80.0 - most).abs() < 0.01, "{asked:?}");
    }
}
