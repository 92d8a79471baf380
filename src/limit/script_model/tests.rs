use std::sync::Arc;

use super::*;
use crate::lease_messages::Grant;
use crate::{Algorithm, Calendar, CalendarUnit, Key, Plan, Sharing, WhenDown, Zone, quota};

const SECOND: u64 = 1_000_000_000;
const NOW: u64 = 1_790_000_000_000_000;

fn plan(limit: u64, burst: u64) -> Arc<Plan> {
    let quota = quota::tests::quota(Algorithm::TokenBucket, limit, SECOND, burst);
    let sharing = Sharing { epoch_ns: SECOND / 2, spare: 0, when_down: WhenDown::Local };
    Arc::new(Plan { policy: "test".into(), quota, sharing })
}

/// The renewal of a node without a lease, with this demand.
fn wants(plan: &Arc<Plan>, demand: f64, pending: u64) -> Renewal {
    Renewal {
        key: Key::new(7),
        plan: Arc::clone(plan),
        epoch: 0,
        demand,
        reported: 0.0,
        rate: 0.0,
        pending,
        hint: 0.0,
        spent: 0.0,
        refilled: 0.0,
        delta: 0.0,
        keep: 0.0,
        release: false,
        ahead: false,
        costs: Default::default(),
    }
}

/// Units that come back when the limit is no longer leased.
#[test]
fn what_comes_back_under_an_exact_plan_is_no_longer_spent() {
    for algorithm in [Algorithm::TokenBucket, Algorithm::FixedWindow, Algorithm::SlidingWindow] {
        let plan = |limit, epoch_ns| {
            let quota = quota::tests::quota(algorithm, limit, 86_400 * SECOND, limit);
            let sharing = Sharing { epoch_ns, spare: 0, when_down: WhenDown::Local };
            Arc::new(Plan { policy: "test".into(), quota, sharing })
        };
        let (leased, exact) = (plan(6_000, SECOND / 2), plan(5, 0));
        let mut model = ScriptModel::default();
        let grant = model.renew(&wants(&leased, 200.0, 12), NOW);
        let back = grant.tokens - 12.0;
        assert!(back >= 1.0, "{algorithm:?}: {grant:?}");
        let release = Renewal {
            epoch: grant.epoch,
            rate: grant.rate,
            spent: 0.0,
            delta: -back,
            release: true,
            ..wants(&exact, 0.0, 0)
        };
        let told = model.renew(&release, NOW + 100_000);
        assert!((told.level - (5.0 - 12.0)).abs() < 0.1, "{algorithm:?}: {told:?}");
        let again = model.renew(&wants(&leased, 0.5, 0), NOW + 200_000);
        assert!((again.level - 5_988.0).abs() < 0.1, "{algorithm:?}: {again:?}");
    }
}

/// The first node takes no more beyond its need than leaves the next ones as much.
#[test]
fn one_node_does_not_take_all_that_may_be_lent_of_a_big_bucket() {
    for burst in [1_000, 10_000, 60_000, 1_000_000] {
        let plan = plan(1_000, burst);
        let mut model = ScriptModel::default();
        let granted = [0, 1].map(|ms| model.renew(&wants(&plan, 200.0, 1), NOW + ms * 1_000).tokens);
        assert!(granted[1] * 3.0 >= granted[0], "of {burst}: {granted:?}");
    }
}

/// Each node renews once a lease, so many nodes of a big bucket have long ones; its record, which counts their time in
/// longer ticks, is read as it was written.
#[test]
fn a_lease_of_a_big_bucket_is_long_and_its_record_is_read_back() {
    let cases = [
        (60_000, 60, 60_000, 1_500),
        (60_000, 60, 6_000, 500),
        (100_000, 86_400, 100_000, 1_500),
        (9_000, 86_400, 9_000, 500),
        (8_640_000, 86_400, 8_640_000, 1_500),
        (1_000, 1, 100_000, 500),
    ];
    for (limit, period_s, burst, lasts_ms) in cases {
        let quota = quota::tests::quota(Algorithm::TokenBucket, limit, period_s * SECOND, burst);
        let sharing = Sharing::new(&quota, 0.05, WhenDown::Local);
        assert_eq!(sharing.epoch_ns, lasts_ms * 1_000_000, "{limit}/{period_s}s burst {burst}");
        let plan = Arc::new(Plan { policy: "test".into(), quota, sharing });
        let mut model = ScriptModel::default();
        for at_us in [0, 100_001, 411_113] {
            let granted = model.renew(&wants(&plan, 50.0, 1), NOW + at_us);
            let record = model.to_bytes().expect("it was renewed");
            let (lent, _) = look(&record, &plan, NOW + at_us).expect("it is a record");
            assert!(granted.lasts_ns.abs_diff(lent.lasts_ns) < 4_000, "{granted:?} {lent:?}");
            assert!(granted.lasts_ns.abs_diff(lasts_ms * 1_000_000 - at_us * 1_000) < 4_000, "{granted:?}");
        }
    }
}

/// A record is read alike by plans of short and of long epochs.
#[test]
fn a_changed_burst_neither_loses_nor_repeats_what_refills() {
    let bucket = |burst| {
        let quota = quota::tests::quota(Algorithm::TokenBucket, 60_000, 60 * SECOND, burst);
        Arc::new(Plan { policy: "test".into(), quota, sharing: Sharing::new(&quota, 0.05, WhenDown::Local) })
    };
    for (old, new) in [(bucket(60_000), bucket(6_000)), (bucket(6_000), bucket(60_000))] {
        let mut model = ScriptModel::default();
        let spent = |model: &ScriptModel, plan: &Plan, later_us: u64| {
            let (lent, _) = look(&model.to_bytes().expect("kept"), plan, NOW + later_us).expect("read");
            plan.quota.capacity() as f64 - lent.level - lent.out
        };
        let rate = model.renew(&wants(&old, 800.0, 5_000), NOW).rate;
        assert!(rate >= 400.0, "{rate}");
        model.renew(&wants(&old, 0.01, 0), NOW + 400_000);
        let (before, after) = (spent(&model, &old, 400_000), spent(&model, &new, 400_000));
        assert!((before - after).abs() < 1.0, "{before} {after}");
        model.renew(&wants(&new, 0.01, 0), NOW + 400_000);
        let later = spent(&model, &new, 450_000);
        assert!((before - later - 50.0).abs() < 1.0, "{before} {later}");
    }
}

/// A bucket that hardly refills is lent of while plenty is left of it, and not of its last units.
#[test]
fn a_slow_bucket_is_lent_by_its_level() {
    for (limit, burst) in [(1, 100_000), (2, 10_000), (16, 1_000)] {
        let plan = plan(limit, burst);
        let mut model = ScriptModel::default();
        let granted = [0, 1].map(|ms| model.renew(&wants(&plan, 6.0, 1), NOW + ms * 1_000).tokens);
        assert!(granted[0] >= 8.0, "of {burst}: {granted:?}");
        assert!(granted.iter().sum::<f64>() <= burst as f64 / 50.0 + 2.0, "of {burst}: {granted:?}");
        let left = model.renew(&wants(&plan, 6.0, 1), NOW + 2_000).level;
        model.renew(&wants(&plan, 6.0, left as u64 - 150), NOW + 3_000);
        let held = model.renew(&wants(&plan, 6.0, 1), NOW + 4_000);
        assert_eq!(held.tokens, 1.0, "of {burst}");
    }
}

/// What other nodes hold of the last epoch does not come back with the units of an older lease, in whose place the bucket has
/// refilled.
#[test]
fn units_of_an_old_lease_come_back_unless_the_bucket_may_have_refilled_since() {
    for (burst, spent_at_once, returned) in [(1_000, 1, 0.0), (10_000, 9_000, 8.0)] {
        let plan = plan(1_000, burst);
        let mut model = ScriptModel::default();
        let old = model.renew(&wants(&plan, 50.0, spent_at_once), NOW);
        let begins_us = NOW + 500_000 * 3;
        model.renew(&wants(&plan, 50.0, 500), begins_us - 400_000);
        let lent = |model: &ScriptModel| {
            let (lent, _) = look(&model.to_bytes().expect("kept"), &plan, begins_us).expect("read");
            (lent.level, lent.out)
        };
        let (level, out) = lent(&model);
        assert!(out > 9.0, "{out}");
        let told = Renewal { epoch: old.epoch, release: true, delta: -8.0, ..wants(&plan, 0.0, 0) };
        model.renew(&told, begins_us);
        let (more, less) = (lent(&model).0 - level, out - lent(&model).1);
        assert!((more - returned).abs() < 0.01 && (less - returned).abs() < 0.01, "{burst}: {more} {less}");
    }
}

/// A bucket that `nodes` nodes lease, of which one has been granted `pending` units at once, and their grants.
fn leased(plan: &Arc<Plan>, nodes: u64, pending: u64) -> (ScriptModel, Vec<Grant>) {
    let mut model = ScriptModel::default();
    let grants = (0..nodes)
        .map(|node| model.renew(&wants(plan, 800.0, if node == 0 { pending } else { 1 }), NOW + node));
    let grants = grants.collect();
    (model, grants)
}

/// What a node says that it spent, and would have refilled since.
fn tells(plan: &Arc<Plan>, held: &Grant, units: f64) -> Renewal {
    let Grant { epoch, rate, .. } = *held;
    Renewal { epoch, rate, reported: 800.0, spent: units, refilled: units, ..wants(plan, 800.0, 0) }
}

/// What is left and lent of a bucket.
fn total(model: &ScriptModel, plan: &Plan, now_us: u64) -> f64 {
    let (lent, _) = look(&model.to_bytes().expect("kept"), plan, now_us).expect("read");
    lent.level + lent.out
}

/// What nodes hold and the level are one burst, so a full bucket does not refill before a node has told what it spent. Then it
/// refills as much as it would have, and no more than was due while it was full.
#[test]
fn what_a_node_has_spent_of_a_full_bucket_refills_when_it_tells_and_no_more() {
    let plan = plan(1_000, 1_000);
    for (pending, full_s) in [(1, 0.1), (80, 0.02), (400, 0.0)] {
        let (model, grants) = leased(&plan, 1, pending);
        let spent = grants[0].rate * 0.1;
        let told = tells(&plan, &grants[0], spent);
        let level = |refilled: f64| {
            let mut model = model.clone();
            model.renew(&Renewal { refilled, ..told.clone() }, NOW + 100_000);
            total(&model, &plan, NOW + 100_000)
        };
        let more = level(spent) - level(0.0);
        assert!((more - spent.min(1_000.0 * full_s)).abs() < 0.5, "{pending}: {more} of {spent}");
        assert!(level(1e6) <= 1_000.0 + 1e-3, "{pending}");
    }
}

/// What was due while the bucket was full is refilled once, whoever tells first: in this epoch, and in the next of the last one.
#[test]
fn what_was_due_to_a_full_bucket_refills_once() {
    let plan = plan(1_000, 1_000);
    for (told_us, due) in [(100_000, 100.0), (500_100, 500.0)] {
        let (mut model, grants) = leased(&plan, 4, 1);
        let told = NOW + told_us;
        let before = total(&model, &plan, told);
        let mut all = 0.0;
        for held in &grants {
            let spent = held.tokens - 1.0 + held.rate * told_us.min(500_000) as f64 / 1e6;
            all += spent;
            model.renew(&tells(&plan, held, spent), told);
        }
        assert!(all > due, "{all}");
        let refilled = total(&model, &plan, told) - before + all;
        assert!((due * 0.95..=due + 0.1).contains(&refilled), "{refilled} of {due} after {told_us} us");
    }
}

/// A node that has reported since is not given again what was due before its report.
#[test]
fn what_was_due_before_a_report_is_not_given_after_it() {
    let plan = plan(1_000, 1_000);
    let (mut model, grants) = leased(&plan, 1, 1);
    let held = model.renew(&tells(&plan, &grants[0], 0.0), NOW + 200_000);
    let level = |refilled: f64| {
        let mut model = model.clone();
        model.renew(&Renewal { refilled, ..tells(&plan, &held, 90.0) }, NOW + 250_000);
        total(&model, &plan, NOW + 250_000)
    };
    let more = level(90.0) - level(0.0);
    assert!((more - 50.0).abs() < 1.0, "{more} of 50");
}

/// The last units of a bucket that has not refused since it was full are not lent: a node that holds none is served while there
/// are any. After a refusal they are lent again, or nodes over their limit would ask for every request.
#[test]
fn the_last_units_are_not_lent_until_the_first_refusal() {
    let plan = plan(1_000, 1_000);
    let (mut model, _) = leased(&plan, 4, 1);
    let level = model.renew(&wants(&plan, 250.0, 0), NOW + 10).level;
    let low = model.renew(&wants(&plan, 250.0, level as u64 - 20), NOW + 11);
    assert!(low.tokens >= level - 21.0 && (19.0..22.0).contains(&low.level) && low.deny_ns == 0, "{low:?}");
    let last = model.renew(&wants(&plan, 250.0, 1), NOW + 12);
    assert!(last.tokens == 1.0 && last.deny_ns == 0, "{last:?}");
    let refused = model.renew(&wants(&plan, 250.0, 30), NOW + 13);
    assert!(refused.tokens < 30.0 && refused.deny_ns > 0, "{refused:?}");
    let later = model.renew(&wants(&plan, 250.0, 1), NOW + 200_000);
    assert!(later.tokens > 1.0, "{later:?}");
}

/// A renewal sent in one epoch that arrives in the next counts as the node's first there, so its rate is promised anew.
#[test]
fn a_renewal_across_the_end_of_an_epoch_is_the_first_of_the_next() {
    let plan = plan(1_000, 1_000);
    let mut model = ScriptModel::default();
    let held = model.renew(&wants(&plan, 5_000.0, 1), NOW);
    assert!(held.rate >= 400.0, "{held:?}");
    let late = Renewal { epoch: held.epoch, rate: held.rate, reported: 5_000.0, ..wants(&plan, 5_000.0, 1) };
    let renewed = model.renew(&late, NOW + 500_100);
    let other = model.renew(&wants(&plan, 5_000.0, 1), NOW + 500_200);
    let rates = renewed.rate + other.rate + model.renew(&wants(&plan, 5_000.0, 1), NOW + 500_300).rate;
    assert!(rates <= 1_000.0, "{rates} a second are promised");
}

/// A node's lease ends a little before its epoch. A renewal at that time is for the next epoch.
#[test]
fn what_is_asked_in_the_last_millisecond_of_an_epoch_is_for_the_next() {
    let plan = plan(1_000, 1_000);
    let mut model = ScriptModel::default();
    let held = model.renew(&wants(&plan, 5_000.0, 1), NOW);
    let again = Renewal { epoch: held.epoch, rate: held.rate, reported: 5_000.0, ..wants(&plan, 5_000.0, 1) };
    let early = model.clone().renew(&again, NOW + 498_900);
    assert_eq!((early.epoch, early.lasts_ns), (held.epoch, 1_100_000));
    let renewed = model.renew(&again, NOW + 499_100);
    assert_ne!(renewed.epoch, held.epoch);
    assert_eq!(renewed.lasts_ns, SECOND / 2);
    // The last millisecond must not refill twice, because the record was advanced to the end of the epoch.
    let other = model.renew(&wants(&plan, 5_000.0, 0), NOW + 499_900);
    assert_eq!((other.epoch, other.lasts_ns), (renewed.epoch, SECOND / 2));
}

/// After a rush, the first nodes to report less demand are not bound by what the others wanted during it.
#[test]
fn who_comes_after_a_rush_has_a_whole_share() {
    let plan = plan(1_000, 1_000);
    let mut model = ScriptModel::default();
    for _ in 0..20 {
        model.renew(&wants(&plan, 1_000.0, 1), NOW);
    }
    let after = model.renew(&wants(&plan, 40.0, 1), NOW + 510_000);
    assert!(after.rate >= 40.0, "{after:?}");
}

#[test]
fn a_greedy_node_does_not_ask_for_the_last_units_of_many() {
    let plan = plan(1_000, 1_000);
    let mut model = ScriptModel::default();
    for _ in 0..20 {
        model.renew(&wants(&plan, 40.0, 1), NOW);
    }
    let all = |model: &ScriptModel| look(&model.to_bytes().expect("kept"), &plan, NOW).expect("read").0.level;
    model.renew(&wants(&plan, 40.0, all(&model) as u64 - 10), NOW);
    let left = all;
    assert!((1.0..20.0).contains(&left(&model)), "{}", left(&model));
    assert_eq!(model.clone().renew(&wants(&plan, 40.0, 0), NOW).deny_ns, 0);
    assert!(model.renew(&wants(&plan, 1_000.0, 0), NOW).deny_ns > 0);
}

#[test]
fn a_look_finds_what_the_next_renewal_would() {
    let bucket = plan(1_000, 1_000);
    let quota = quota::tests::quota(Algorithm::SlidingWindow, 1_000, 60 * SECOND, 1_000);
    let window = Arc::new(Plan { policy: "test".into(), quota, sharing: bucket.sharing });
    for plan in [bucket, window] {
        assert_eq!(untouched(&plan), LentWindow { level: 1_000.0, ..LentWindow::default() });
        let mut model = ScriptModel::default();
        let held = model.renew(&wants(&plan, 800.0, 100), NOW);
        let nothing = Renewal { epoch: held.epoch, reported: 800.0, release: true, ..wants(&plan, 0.0, 0) };
        for later_us in [0, 60_000, 250_000, 700_000, 3_000_000] {
            let bytes = model.to_bytes().expect("it is kept");
            let (lent, unchanged_ns) = look(&bytes, &plan, NOW + later_us).expect("it can be read");
            assert_eq!(unchanged_ns, later_us * 1_000);
            let next = model.clone().renew(&nothing, NOW + later_us);
            assert!((lent.level - next.level).abs() < 1e-3, "{later_us}: {lent:?} {next:?}");
            assert!(lent.level + lent.out <= 1_000.0 + 1e-3, "{later_us}: {lent:?}");
            if later_us == 0 {
                assert_eq!((lent.nodes, lent.promised as u64), (1, held.rate as u64));
                assert!((lent.out - (held.tokens - 100.0)).abs() < 1.0, "{lent:?} {held:?}");
            }
        }
        for record in [&[][..], &[0xff; 44], &[0xff; 48], &[0; 43], &[0; 49]] {
            assert_eq!(look(record, &plan, NOW), None);
        }
    }
}

#[test]
fn debts_are_repaid_out_of_the_rates() {
    let plan = plan(1_000, 1_000);
    let mut model = ScriptModel::default();
    model.renew(&wants(&plan, 5_000.0, 1_000), NOW);
    let owing = Renewal { delta: 800.0, ..wants(&plan, 5_000.0, 0) };
    assert!(model.renew(&owing, NOW + 1_000).level < 0.0);
    let rate = |at_us| {
        let mut model = model.clone();
        (0..8).map(|_| model.renew(&wants(&plan, 5_000.0, 0), at_us).rate).sum::<f64>()
    };
    // The debt at the epoch's end is taken from the refill of the next.
    assert!(rate(NOW + 500_001) < 950.0, "{}", rate(NOW + 500_001));
    assert!(rate(NOW + 3_000_000) > 950.0, "{}", rate(NOW + 3_000_000));
}

#[test]
fn an_unknown_demand_gets_half_of_what_is_free_at_most() {
    let plan = plan(1_000, 1_000);
    let mut model = ScriptModel::default();
    let first = model.renew(&wants(&plan, 30_000.0, 1), NOW);
    assert!(first.rate <= 500.0, "{first:?}");
}

#[test]
fn the_demand_of_the_last_epoch_does_not_starve_who_is_new() {
    let plan = plan(1_000, 1_000);
    let mut model = ScriptModel::default();
    model.renew(&wants(&plan, 100_000.0, 1_000), NOW);
    let newcomer = model.renew(&wants(&plan, 20.0, 1), NOW + 500_001);
    assert!(newcomer.rate >= 20.0, "{newcomer:?}");
}

#[test]
fn who_is_short_by_chance_asks_again_before_the_epoch_ends() {
    let plan = plan(1_000, 1_000);
    let denied_of = |demand| {
        let mut model = ScriptModel::default();
        let mut held = Grant::default();
        // Ten nodes with equal demand share the whole refill, and the level is spent.
        for at_us in [NOW, NOW + 500_001] {
            for node in 0..10 {
                held = model.renew(&wants(&plan, demand, 0), at_us + node);
            }
        }
        let Grant { epoch, rate, .. } = held;
        let again = Renewal { epoch, rate, reported: demand, ..wants(&plan, demand, 0) };
        model.renew(&Renewal { delta: held.level, pending: 1, ..again.clone() }, NOW + 500_020);
        model.renew(&again, NOW + 500_021).deny_ns
    };
    assert_eq!(denied_of(110.0), 400_000_000);
    assert!(denied_of(1_000.0) > 450_000_000, "it is over its limit by far");
}

#[test]
fn who_has_reported_wants_what_it_says_now() {
    let plan = plan(1_000, 1_000);
    let mut model = ScriptModel::default();
    for node in 0..20 {
        model.renew(&wants(&plan, 1_000.0, 50), NOW + node);
    }
    let mut rate = 0.0;
    for node in 0..20 {
        rate = model.renew(&wants(&plan, 40.0, 0), NOW + 500_001 + node).rate;
    }
    assert!(rate >= 40.0, "the last of 20 that want 40 each is promised {rate}");
}

#[test]
fn who_gave_its_lease_back_and_comes_again_is_one_node() {
    let plan = plan(1_000, 1_000);
    let mut model = ScriptModel::default();
    let held = model.renew(&wants(&plan, 40.0, 1), NOW);
    let reporters = |model: &ScriptModel| model.to_bytes().map(|bytes| bytes[40]);
    assert_eq!(reporters(&model), Some(1));
    let Grant { epoch, rate, .. } = held;
    let back = Renewal { epoch, rate, reported: 40.0, release: true, ..wants(&plan, 0.0, 0) };
    model.renew(&back, NOW + 50_000);
    assert_eq!(reporters(&model), Some(0));
    model.renew(&wants(&plan, 40.0, 1), NOW + 100_000);
    assert_eq!(reporters(&model), Some(1));
}

#[test]
fn a_grant_near_the_limit_has_a_reserve_and_the_last_units_are_not_one_nodes() {
    let plan = plan(1_000, 1_000);
    let mut model = ScriptModel::default();
    model.renew(&wants(&plan, 10.0, 800), NOW);
    // Because the rate covers its demand, the units are two standard deviations of the four requests expected until the
    // next renewal.
    let near = model.renew(&wants(&plan, 10.0, 0), NOW + 1);
    assert!(near.rate >= 10.0 && near.tokens == 4.0, "{near:?}");
    for node in 0..10 {
        model.renew(&wants(&plan, 10.0, 0), NOW + 2 + node);
    }
    let level = model.renew(&wants(&plan, 10.0, 1), NOW + 200).level;
    model.renew(&wants(&plan, 10.0, level as u64 - 6), NOW + 201);
    let last = model.renew(&wants(&plan, 10.0, 0), NOW + 202);
    assert!(last.tokens == 2.0 && last.level >= 3.0, "{last:?}");
}

#[test]
fn a_flooded_node_does_not_ask_each_round_trip_for_what_has_refilled() {
    let plan = plan(10_000, 10_000);
    let mut model = ScriptModel::default();
    // The first request is served, and the second refused.
    model.renew(&Renewal { costs: [9_990, 20].into(), ..wants(&plan, 100_000.0, 10_010) }, NOW);
    // A key without earlier reports may promise at most half of its refill, so 5,000 units a second come to the level.
    let flooded = model.renew(&wants(&plan, 100_000.0, 0), NOW + 1_000);
    assert!(flooded.level > 1.0 && flooded.deny_ns == 20_000_000, "{flooded:?}");
    model.renew(&wants(&plan, 100_000.0, flooded.level as u64), NOW + 1_000);
    let emptied = model.renew(&wants(&plan, 100_000.0, 0), NOW + 1_001);
    assert!(emptied.level < 1.0 && emptied.deny_ns >= 20_000_000, "{emptied:?}");
}

#[test]
fn a_share_too_small_for_a_lease_is_served_first_come() {
    let plan = plan(100, 100);
    let mut model = ScriptModel::default();
    let mut given = 0.0;
    for node in 0..200 {
        let grant = model.renew(&wants(&plan, 0.5, 1), NOW + node);
        assert_eq!(grant.rate, 0.0);
        given += grant.tokens;
    }
    assert_eq!(given, 100.0);
}

#[test]
fn a_return_after_the_bucket_refilled_is_nothing_new() {
    let plan = plan(1_000, 1_000);
    let mut model = ScriptModel::default();
    let held = model.renew(&wants(&plan, 500.0, 300), NOW);
    let full = model.renew(&wants(&plan, 1.0, 0), NOW + 2_000_000).level;
    assert!(full > 950.0);
    let emptied = model.renew(&wants(&plan, 5_000.0, 1_000), NOW + 2_000_001);
    // Only the level matters, because all granted units are spent.
    let told = Renewal { epoch: emptied.epoch, spent: emptied.tokens, ..wants(&plan, 5_000.0, 0) };
    let emptied = model.renew(&told, NOW + 2_000_001);
    let back = Renewal { epoch: held.epoch, delta: -300.0, ..wants(&plan, 1.0, 0) };
    assert!(model.renew(&back, NOW + 2_000_002).level <= emptied.level + 0.01);
}

/// A key with one request a second: units granted beyond that are returned with the next renewal.
#[test]
fn a_slow_key_loses_nothing_of_its_grants() {
    let mut plan = (*plan(5_000, 5_000)).clone();
    plan.quota = quota::tests::quota(Algorithm::TokenBucket, 5_000, 86_400 * SECOND, 5_000);
    let plan = Arc::new(plan);
    for apart_us in [700_000, 1_000_000, 1_300_000, 7_000_000] {
        let (mut model, mut held, mut granted) = (ScriptModel::default(), 0.0, Grant::default());
        for turn in 0..100 {
            let asked = Renewal { delta: -held, ..wants(&plan, 1e6 / apart_us as f64, 1) };
            granted = model.renew(&asked, NOW + turn * apart_us);
            held = granted.tokens - 1.0;
        }
        let refilled = 0.1 * apart_us as f64 / 1e3;
        let spent = 5_000.0 - granted.level - held;
        assert!((99.0 - refilled..=130.0).contains(&spent), "{apart_us}: {spent} of 100");
    }
}

/// Units that a node keeps over a window's end count in the window in which they are spent.
#[test]
fn what_is_kept_over_a_windows_end_counts_in_the_next() {
    let quota = quota::tests::quota(Algorithm::FixedWindow, 100, SECOND, 100);
    let sharing = Sharing { epoch_ns: SECOND / 8, spare: 0, when_down: WhenDown::Local };
    let plan = Arc::new(Plan { policy: "test".into(), quota, sharing });
    let mut model = ScriptModel::default();
    let held = model.renew(&wants(&plan, 50.0, 1), NOW + 900_000);
    let kept = Renewal { epoch: held.epoch, keep: 3.0, ..wants(&plan, 50.0, 97) };
    assert_eq!(model.clone().renew(&kept, NOW + 1_000_100).tokens, 97.0);
    assert_eq!(model.renew(&Renewal { pending: 98, ..kept }, NOW + 1_000_100).tokens, 97.0);
}

#[test]
fn a_clock_that_went_far_back_does_not_stop_a_key() {
    let plan = plan(1_000, 1_000);
    let mut model = ScriptModel::default();
    model.renew(&wants(&plan, 1_000.0, 1_000), NOW + 3_600_000_000);
    assert!(model.renew(&wants(&plan, 1.0, 0), NOW).level < 1.0);
    assert!(model.renew(&wants(&plan, 1.0, 0), NOW + 2_000_000).level > 900.0);
}

/// Redis' clock goes back over the edge of a window, or a replica whose clock lags takes over.
#[test]
fn a_clock_that_went_back_over_an_edge_gives_no_window_twice() {
    let plans = [
        (Algorithm::FixedWindow, 100, 3_600, None),
        (Algorithm::FixedWindow, 1_000, 2, None),
        (Algorithm::SlidingWindow, 100, 3_600, None),
        (Algorithm::FixedWindow, 100, 1, Some(CalendarUnit::Month)),
        (Algorithm::FixedWindow, 1_000, 1, Some(CalendarUnit::Day)),
    ];
    // When June 2027 begins.
    let edge = 1_811_808_000_000_000;
    for (algorithm, limit, seconds, unit) in plans {
        let quota = quota::tests::quota(algorithm, limit, seconds * SECOND, limit);
        let quota =
            unit.map_or(quota, |unit| quota.on_calendar(Calendar::new(unit, Zone::utc(), 0).anchored(1)));
        let plan =
            Arc::new(Plan { policy: "p".into(), quota, sharing: Sharing::new(&quota, 0.3, WhenDown::Local) });
        for back_us in
            [1_500_000, 6_000_000].into_iter().filter(|back| *back < quota.period_ns().get() / 1_000)
        {
            let mut model = ScriptModel::default();
            let mut take = |units, at_us| {
                let grant = model.renew(&wants(&plan, 0.1, units), at_us);
                (grant.tokens, grant.wait_ns)
            };
            let name = format!("{algorithm:?} {limit} {unit:?} {back_us}");
            assert_eq!(take(limit / 2, edge + 1_000_000).0, (limit / 2) as f64, "{name}");
            let before = edge + 1_000_000 - back_us;
            // What is granted meanwhile counts in the window of what was granted before.
            assert_eq!(take(limit / 5, before).0, (limit / 5) as f64, "{name}");
            let (tokens, wait_ns) = take(limit / 2, before + 100_000);
            assert_eq!(tokens, (limit - limit / 2 - limit / 5) as f64, "{name}");
            let ends = edge + quota.period_ns().get() / 1_000;
            assert!(unit.is_some() || wait_ns >= (ends - before - 100_000) * 1_000, "{name}: {wait_ns}");
            assert_eq!(take(limit, edge - 1).0, 0.0, "{name}");
            assert_eq!(take(limit, edge + 500_000).0, 0.0, "{name}");
            assert_eq!(take(limit, edge + 1_100_000).0, 0.0, "{name}");
        }
    }
}

#[test]
fn what_was_spent_stays_spent_under_a_changed_limit() {
    let window = |algorithm, limit| {
        let quota = quota::tests::quota(algorithm, limit, 3_600 * SECOND, limit);
        Arc::new(Plan { policy: "test".into(), quota, sharing: Sharing::new(&quota, 0.05, WhenDown::Local) })
    };
    let bucket = |limit: u64| {
        let quota = quota::tests::quota(Algorithm::TokenBucket, limit, 3_600 * SECOND, limit);
        let sharing = Sharing { epoch_ns: SECOND / 2, spare: 0, when_down: WhenDown::Local };
        Arc::new(Plan { policy: "test".into(), quota, sharing })
    };
    let plans = |limit| {
        [bucket(limit), window(Algorithm::FixedWindow, limit), window(Algorithm::SlidingWindow, limit)]
    };
    // An hour's window begins with the hour.
    let now = NOW - NOW % 3_600_000_000 + 1_000_000;
    for (((old, higher), lower), lowest) in
        plans(1_000).into_iter().zip(plans(2_000)).zip(plans(990)).zip(plans(100))
    {
        let mut model = ScriptModel::default();
        model.renew(&wants(&old, 0.1, 950), now);
        let left = |model: &ScriptModel, plan: &Plan| {
            let bytes = model.to_bytes().expect("it is kept");
            look(&bytes, plan, now).expect("it can be read").0.level
        };
        let all = [&old, &higher, &lower, &lowest].map(|plan| left(&model, plan).round() as i64);
        assert_eq!(all, [50, 1_050, 40, -850], "{:?}", old.quota.algorithm());
        // A lowered limit holds at once, and one that goes up again hands out nothing.
        assert_eq!(model.renew(&wants(&lowest, 0.1, 1), now).tokens, 0.0);
        assert_eq!(model.renew(&wants(&lower, 0.1, 40), now).tokens, 40.0);
        assert!(model.renew(&wants(&old, 0.1, 11), now).tokens < 11.0);
        assert_eq!(left(&model, &higher).round(), left(&model, &old).round() + 1_000.0);
    }
}

/// 15 days of a month are more than half a window: a lease on it that was spent under another anchor gives no fresh one.
#[test]
fn what_was_spent_stays_spent_under_another_anchor_until_the_window_of_now_ends() {
    let month = Calendar::new(CalendarUnit::Month, Zone::utc(), 0);
    let of = |anchor| {
        let quota = quota::tests::quota(Algorithm::FixedWindow, 100, SECOND, 100);
        let quota = quota.on_calendar(month.anchored(anchor));
        Arc::new(Plan { policy: "test".into(), quota, sharing: Sharing::new(&quota, 0.05, WhenDown::Local) })
    };
    // When March 2027 begins.
    let at = |day: u64| 1_803_859_200_000_000 + day * 86_400_000_000;
    for (spent, day, anchor, ends) in
        [(20, 22, 20, 50), (17, 22, 16, 46), (3, 3, 10, 9), (1, 22, 28, 27), (1, 1, 31, 30), (29, 35, 15, 45)]
    {
        let mut model = ScriptModel::default();
        model.renew(&wants(&of(1), 0.1, 100), at(spent));
        let mut tokens = |anchor, at_us| {
            let grant = model.renew(&wants(&of(anchor), 0.1, 1), at_us);
            (grant.tokens, grant.wait_ns)
        };
        assert_eq!(tokens(anchor, at(day)), (0.0, (at(ends) - at(day)) * 1_000), "{day} {anchor}");
        assert_eq!(tokens(anchor, at(ends) - 1).0, 0.0, "{day} {anchor}");
        assert_eq!(tokens(anchor, at(ends)).0, 1.0, "{day} {anchor}");
        // Nor does it count for longer if no request came in between.
        let mut model = ScriptModel::default();
        model.renew(&wants(&of(1), 0.1, 100), at(spent));
        assert_eq!(model.renew(&wants(&of(anchor), 0.1, 1), at(ends)).tokens, 1.0, "{day} {anchor}");
    }
    // What is refused another day lets nothing count for longer.
    let mut model = ScriptModel::default();
    model.renew(&wants(&of(1), 0.1, 100), at(30));
    (2..=31).for_each(|anchor| assert_eq!(model.renew(&wants(&of(anchor), 0.1, 1), at(30) + 1).tokens, 0.0));
    assert_eq!(model.renew(&wants(&of(1), 0.1, 1), at(31) - 1).tokens, 0.0);
    assert_eq!(model.renew(&wants(&of(1), 0.1, 1), at(31)).tokens, 1.0);
}

/// Of another unit counts what the old window holds that is not over, as in the table in memory. A lease's record does not say
/// when that ends; only of a day it can be told.
#[test]
fn what_was_spent_of_a_leased_day_counts_in_a_month_until_the_day_is_over() {
    let berlin = Zone::new("of an hour", vec![(0, 3_600)]);
    let of = |unit, limit| {
        let quota = quota::tests::quota(Algorithm::FixedWindow, limit, SECOND, limit);
        let quota = quota.on_calendar(Calendar::new(unit, berlin, 0));
        Arc::new(Plan { policy: "test".into(), quota, sharing: Sharing::new(&quota, 0.05, WhenDown::Local) })
    };
    let [day, week, month, year] = CalendarUnit::ALL.map(|unit| of(unit, 100));
    let sliding = quota::tests::quota(Algorithm::SlidingWindow, 100, 86_400 * SECOND, 100);
    let sharing = Sharing::new(&sliding, 0.05, WhenDown::Local);
    let sliding = Arc::new(Plan { policy: "test".into(), quota: sliding, sharing });
    // Hours from when March 2027 begins there, which is a Monday.
    let at = |hour: u64| 1_803_859_200_000_000 - 3_600_000_000 + hour * 3_600_000_000;
    for (name, old, new, spent, now, left) in [
        ("the same day", &day, &month, 47, 47, 0.0),
        ("the next day", &day, &month, 47, 48, 99.0),
        ("the next day, a week", &day, &week, 25, 49, 99.0),
        ("the next month", &week, &month, 31 * 24 - 1, 31 * 24, 99.0),
        ("the same month", &month, &year, 30, 500, 0.0),
        ("the same month, a day", &month, &day, 30, 100, 0.0),
        ("a sliding window", &day, &sliding, 30, 40, 0.0),
    ] {
        let mut model = ScriptModel::default();
        assert_eq!(model.renew(&wants(old, 0.1, 100), at(spent)).tokens, 100.0, "{name}");
        assert_eq!(model.renew(&wants(new, 0.1, 1), at(now)).level, left, "{name}");
    }
}
