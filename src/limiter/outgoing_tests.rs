//! Policies whose algorithm changes: both algorithms count for a period, the stricter decides.

use std::sync::Arc;

use proptest::prelude::*;

use super::Limiter;
use super::check::tests::{Job, NOW, check, limiter, policy, table};
use ::policy::RouteTable;
use ::policy::counting::shorthand;
use ::policy::definition::{self, LimitOrigin, TierPart, TiersDefinition};
use limit::{Algorithm, Penalty, PolicyId, Quota};
use metrics::Comparison;

const SECOND: u64 = 1_000_000_000;
const ALGORITHMS: [Algorithm; 5] = [
    Algorithm::TokenBucket,
    Algorithm::SlidingWindow,
    Algorithm::FixedWindow,
    Algorithm::SlidingLog,
    Algorithm::LeakyBucket,
];

fn job(consumer: &'static str) -> Job {
    Job { consumer, units: 1, number: None }
}

fn counted_by(limits: &[&str], algorithm: Algorithm) -> definition::PolicyDefinition {
    let window = |limit: &&str| shorthand::parse(limit).expect("a limit").window.counted_by(algorithm);
    definition::PolicyDefinition {
        windows: limits.iter().map(window).collect(),
        ..policy("p", "1/s by consumer")
    }
}

fn counts(limits: &[&str], algorithm: Algorithm) -> RouteTable {
    table(&[counted_by(limits, algorithm)])
}

/// The table that comes into force after another.
fn after(before: &RouteTable, mut table: RouteTable, now_ns: u64) -> RouteTable {
    table.count_on(before, now_ns);
    table
}

fn admitted(limiter: &Arc<Limiter>, table: &RouteTable, now_ns: u64, asked: usize) -> usize {
    (0..asked).filter(|_| check(limiter, table, &job("ann"), now_ns).is_admitted()).count()
}

/// Tells a limiter the quotas of a table, as a publication does.
fn declare(limiter: &Limiter, table: &RouteTable) {
    let windows = table.policies().iter().flat_map(|policy| &policy.windows);
    limiter.table().declare(windows.map(|window| window.quota));
}

fn labels(table: &RouteTable) -> Vec<&str> {
    table.policies()[0].windows.iter().map(|window| &*window.label).collect()
}

proptest! {
    /// Whatever is asked: a request passes if the algorithm of before and that of now, which has seen nothing from before
    /// the change, both admit it, and only then it is charged to both.
    #[test]
    fn the_stricter_of_two_algorithms_decides(
        early in proptest::collection::vec((1..4_u64, 0..300_u64), 0..20),
        late in proptest::collection::vec((1..4_u64, 0..300_u64), 1..60),
        algorithms in (0..4_usize, 0..4_usize),
    ) {
        let (old, new) = (ALGORITHMS[algorithms.0], ALGORITHMS[algorithms.1]);
        let (before, now) = (counts(&["4/s", "20/10s"], old), counts(&["5/s", "30/10s"], new));
        // A limit that changes with the algorithm takes hold of both at once.
        let old_alone = counts(&["5/s", "30/10s"], old);
        let (tried, first, second) = (limiter(), limiter(), limiter());
        for limiter in [&tried, &first, &second] {
            [&before, &now, &old_alone].into_iter().for_each(|table| declare(limiter, table));
        }
        let mut now_ns = NOW;
        for (units, pause_ms) in early {
            now_ns += pause_ms * 1_000_000;
            let job = Job { units, ..job("ann") };
            let alone = check(&first, &before, &job, now_ns).is_admitted();
            prop_assert_eq!(check(&tried, &before, &job, now_ns).is_admitted(), alone);
        }
        let mut in_force = after(&before, now.clone(), now_ns);
        prop_assert_eq!(in_force.policies()[0].is_changing(), old != new);
        // A state follows the raised limit from when a request first looks at it. A refusal by one window leaves the next one
        // as it is: both are brought over at one moment here, or they refill by two rates for a while.
        for (limiter, table) in [(&tried, &in_force), (&first, if old == new { &now } else { &old_alone })] {
            for charge in table.policies()[0].look_at(&["ann".to_owned()]).expect("one dimension") {
                limiter.table().take(&limit::Charge { cost: 0, ..charge }, now_ns);
            }
        }
        for (units, pause_ms) in late {
            now_ns += pause_ms * 1_000_000;
            let job = Job { units, ..job("ann") };
            if in_force.has_over(now_ns) {
                in_force = in_force.without_over(now_ns);
            }
            // Nothing counts beside: it is one limiter under another limit, which refusals convert, too.
            if old == new {
                let alone = check(&first, &now, &job, now_ns).is_admitted();
                prop_assert_eq!(check(&tried, &in_force, &job, now_ns).is_admitted(), alone);
                continue;
            }
            // Which windows of before still count, as a policy without the others.
            let count_on: Vec<&str> = ["5/s", "30/10s"]
                .into_iter()
                .zip(["p-1s-before", "p-10s-before"])
                .filter_map(|(limit, label)| labels(&in_force).contains(&label).then_some(limit))
                .collect();
            let has_room = |limiter: &Arc<Limiter>, table: &RouteTable, only: &[&str]| {
                let charges = table.policies()[0].look_at(&["ann".to_owned()]).expect("one dimension");
                charges.iter().zip(["5/s", "30/10s"]).all(|(charge, limit)| {
                    let foreseen = limiter.foresee(&limit::Charge { cost: units, ..*charge }, now_ns);
                    !only.contains(&limit) || foreseen.is_admitted()
                })
            };
            let would =
                has_room(&first, &old_alone, &count_on) && has_room(&second, &now, &["5/s", "30/10s"]);
            prop_assert_eq!(check(&tried, &in_force, &job, now_ns).is_admitted(), would);
            if would {
                for charge in old_alone.policies()[0].look_at(&["ann".to_owned()]).expect("one dimension") {
                    let charge = limit::Charge { cost: units, ..charge };
                    first.table().take(&charge, now_ns);
                }
                for charge in now.policies()[0].look_at(&["ann".to_owned()]).expect("one dimension") {
                    let charge = limit::Charge { cost: units, ..charge };
                    second.table().take(&charge, now_ns);
                }
            }
        }
    }
}

#[test]
fn what_was_spent_stays_spent_and_differences_are_counted() {
    for (old, new) in ALGORITHMS.iter().flat_map(|old| ALGORITHMS.iter().map(move |new| (*old, *new))) {
        let before = counts(&["5/h"], old);
        // A queue takes one more: that which is served.
        let alone = admitted(&limiter(), &before, NOW, 9);
        let limiter = limiter();
        assert_eq!(admitted(&limiter, &before, NOW, 3), 3, "{old:?}");
        let table = after(&before, counts(&["5/h"], new), NOW);
        assert_eq!(admitted(&limiter, &table, NOW, 4), alone - 3, "{old:?} {new:?}");
        let refused = check(&limiter, &table, &job("ann"), NOW);
        let expected = [(PolicyId::default(), Comparison::OnlyOldDenies)];
        assert_eq!(refused.event.comparisons.as_slice(), if old == new { &[][..] } else { &expected });
        let fresh = check(&limiter, &table, &job("bob"), NOW);
        let expected = [(PolicyId::default(), Comparison::Agreed)];
        assert_eq!(fresh.event.comparisons.as_slice(), if old == new { &[][..] } else { &expected });
        assert_eq!(fresh.event.counts.len(), 1, "one policy");
    }
}

#[test]
fn the_algorithm_of_before_counts_for_one_period() {
    let limiter = limiter();
    let before = counts(&["5/h"], Algorithm::TokenBucket);
    assert_eq!(admitted(&limiter, &before, NOW, 5), 5);
    let table = after(&before, counts(&["5/h"], Algorithm::FixedWindow), NOW);
    assert_eq!(labels(&table), ["p", "p-before"]);
    let hour = 3_600 * SECOND;
    assert!(!table.has_over(NOW + hour - 1) && table.has_over(NOW + hour));
    assert_eq!(labels(&table.without_over(NOW + hour - 1)), ["p", "p-before"]);
    let over = table.without_over(NOW + hour);
    assert_eq!(labels(&over), ["p"]);
    assert!(!over.has_over(u64::MAX));
    // Nothing passed, so the window of now has all of its units.
    assert_eq!(admitted(&limiter, &table, NOW, 1), 0);
    assert_eq!(admitted(&limiter, &over, NOW, 9), 5);
    assert!(check(&limiter, &over, &job("ann"), NOW).event.comparisons.is_empty());
}

#[test]
fn a_change_is_told_once_and_not_at_each_table_that_carries_it_on() {
    let before = counts(&["5/h"], Algorithm::TokenBucket);
    let mut changed = counts(&["5/h"], Algorithm::FixedWindow);
    assert_eq!(changed.count_on(&before, NOW), 1);
    let mut same = counts(&["5/h"], Algorithm::FixedWindow);
    assert_eq!(same.count_on(&changed, NOW + SECOND), 0);
    assert_eq!(labels(&same), ["p", "p-before"]);
    let hour = 3_600 * SECOND;
    assert!(!same.has_over(NOW + hour - 1) && same.has_over(NOW + hour), "it is over when it was to be");
    let mut back = counts(&["5/h"], Algorithm::TokenBucket);
    assert_eq!(back.count_on(&same, NOW + SECOND), 1);
}

#[test]
fn a_bucket_counts_on_until_it_would_be_whole_again() {
    let limiter = limiter();
    let bucket = |algorithm| {
        table(&[definition::PolicyDefinition {
            windows: vec![shorthand::parse("1/s burst 20").expect("a limit").window.counted_by(algorithm)],
            ..policy("p", "1/s by consumer")
        }])
    };
    let before = bucket(Algorithm::TokenBucket);
    assert_eq!(admitted(&limiter, &before, NOW, 30), 20);
    let mut table = after(&before, bucket(Algorithm::FixedWindow), NOW);
    // A unit each second, as if nothing had changed.
    for second in 1..=19 {
        let now_ns = NOW + second * SECOND;
        assert!(!table.has_over(now_ns), "{second}");
        table = after(&table, bucket(Algorithm::FixedWindow), now_ns);
        assert_eq!(admitted(&limiter, &table, now_ns, 5), 1, "{second}");
    }
    assert!(table.has_over(NOW + 20 * SECOND));
}

#[test]
fn a_queue_stays_as_long_as_it_was() {
    let of = |limit: &str, algorithm| {
        table(&[definition::PolicyDefinition {
            windows: vec![shorthand::parse(limit).expect("a limit").window.counted_by(algorithm)],
            ..policy("p", "1/s by consumer")
        }])
    };
    let before = of("60/m burst 2", Algorithm::LeakyBucket);
    for (limit, capacity) in [("60/m", 2), ("120/m", 4), ("30/m", 1)] {
        let table = after(&before, of(limit, Algorithm::TokenBucket), NOW);
        assert_eq!(table.policies()[0].windows[1].quota.burst().get(), capacity, "{limit}");
    }
}

#[test]
fn changes_that_follow_each_other_all_count_and_one_that_is_taken_back_does_not() {
    let limiter = limiter();
    let bucket = counts(&["9/h"], Algorithm::TokenBucket);
    assert_eq!(admitted(&limiter, &bucket, NOW, 4), 4);
    let minute = 60 * SECOND;
    let log = after(&bucket, counts(&["9/h"], Algorithm::SlidingLog), NOW);
    assert_eq!(admitted(&limiter, &log, NOW, 3), 3);
    let fixed = after(&log, counts(&["9/h"], Algorithm::FixedWindow), NOW + minute);
    assert_eq!(labels(&fixed), ["p", "p-before", "p-before-2"]);
    // Another configuration with the same limit.
    let again = after(&fixed, counts(&["9/h"], Algorithm::FixedWindow), NOW + minute);
    assert_eq!(labels(&again), ["p", "p-before", "p-before-2"]);
    let hour = 60 * minute;
    assert_eq!(labels(&again.without_over(NOW + hour)), ["p", "p-before"], "the bucket is over first");
    assert_eq!(labels(&again.without_over(NOW + hour + minute)), ["p"]);
    // Two by the bucket, which a minute has given nothing yet: one unit takes more than six.
    assert_eq!(admitted(&limiter, &again, NOW + minute, 9), 2);
    let back = after(&again, counts(&["9/h"], Algorithm::TokenBucket), NOW + minute);
    assert_eq!(labels(&back), ["p", "p-before", "p-before-2"], "the fixed window and the log");
    assert_eq!(admitted(&limiter, &back, NOW + minute, 9), 0, "the bucket has not forgotten");
}

#[test]
fn a_limit_that_changes_with_the_algorithm_is_that_of_now() {
    let limiter = limiter();
    let before = counts(&["10/h"], Algorithm::TokenBucket);
    assert_eq!(admitted(&limiter, &before, NOW, 5), 5);
    // Five are spent, of twenty as of ten.
    let raised = after(&before, counts(&["20/h"], Algorithm::FixedWindow), NOW);
    [&before, &raised].into_iter().for_each(|table| declare(&limiter, table));
    assert_eq!(admitted(&limiter, &raised, NOW, 30), 15);
    // Another period is another limit, which what was has room for.
    let other = after(&before, counts(&["20/m"], Algorithm::FixedWindow), NOW);
    let raised = counts(&["20/h"], Algorithm::TokenBucket);
    assert_eq!(other.policies()[0].windows[1].quota, raised.policies()[0].windows[0].quota);
    let lower = after(&before, counts(&["5/m"], Algorithm::FixedWindow), NOW);
    assert_eq!(lower.policies()[0].windows[1].quota, before.policies()[0].windows[0].quota);
    // What a log cannot hold stays as it was.
    let log = counts(&["10/h"], Algorithm::SlidingLog);
    let large = after(&log, counts(&["10000000000/h"], Algorithm::TokenBucket), NOW);
    assert_eq!(large.policies()[0].windows[1].quota, log.policies()[0].windows[0].quota);
}

/// As when a limit of a tier is put by mistake, and deleted.
#[test]
fn a_longer_period_of_before_counts_for_one_of_now_and_only_for_keys_that_it_counted() {
    let limiter = limiter();
    let month = || table(&[policy("p", "2/month by consumer")]);
    let minute = || table(&[policy("p", "60/m burst 20 by consumer")]);
    let before = month();
    declare(&limiter, &before);
    let asks = |table: &RouteTable, consumer, now_ns, times: usize| {
        (0..times).filter(|_| check(&limiter, table, &job(consumer), now_ns).is_admitted()).count()
    };
    assert_eq!(asks(&before, "ann", NOW, 5), 2);
    let mut now = after(&before, minute(), NOW);
    declare(&limiter, &now);
    assert_eq!(labels(&now), ["p", "p-before"]);
    assert_eq!(asks(&now, "new", NOW, 30), 20, "as if there had been no month");
    assert_eq!(asks(&now, "ann", NOW, 30), 20, "58 of 60 are left");
    // Whatever is loaded meanwhile.
    now = after(&now, minute(), NOW + 30 * SECOND);
    assert_eq!(asks(&now, "ann", NOW + 30 * SECOND, 60), 20);
    assert!(!now.has_over(NOW + 60 * SECOND - 1) && now.has_over(NOW + 60 * SECOND));
    let over = now.without_over(NOW + 60 * SECOND);
    assert_eq!(labels(&over), ["p"]);
    assert_eq!(asks(&over, "ann", NOW + 60 * SECOND, 60), 20);
    // Taken back, the month goes on with its count.
    let again = after(&over, month(), NOW + 61 * SECOND);
    declare(&limiter, &again);
    assert_eq!(asks(&again, "ann", NOW + 61 * SECOND, 5), 0);
    assert_eq!(asks(&again, "eve", NOW + 61 * SECOND, 5), 2);
}

#[test]
fn what_is_in_flight_does_not_count_on() {
    let flight = |limit: u64| {
        let limit = std::num::NonZeroU64::new(limit).expect("it is none");
        let quota = Quota::new(Algorithm::Concurrency, limit, limit, limit);
        table(&[definition::PolicyDefinition { windows: vec![quota], ..policy("p", "1/s by consumer") }])
    };
    assert_eq!(labels(&after(&flight(5), counts(&["5/h"], Algorithm::TokenBucket), NOW)), ["p"]);
    let limiter = limiter();
    let before = counts(&["5/h"], Algorithm::TokenBucket);
    assert_eq!(admitted(&limiter, &before, NOW, 3), 3);
    let table = after(&before, flight(100), NOW);
    assert_eq!(admitted(&limiter, &table, NOW, 9), 9, "nor does anything beside it");
}

#[test]
fn a_penalty_outlives_the_algorithm() {
    let penalty = Some(Penalty::new(1, 60 * SECOND, 100, 3_600));
    let with =
        |algorithm| table(&[definition::PolicyDefinition { penalty, ..counted_by(&["2/s"], algorithm) }]);
    let limiter = limiter();
    let before = with(Algorithm::TokenBucket);
    assert_eq!(admitted(&limiter, &before, NOW, 6), 2);
    let now = after(&before, with(Algorithm::FixedWindow), NOW);
    let later = NOW + 2 * SECOND;
    let over = now.without_over(later);
    assert_eq!(labels(&over), ["p"]);
    for table in [&now, &over] {
        let refused = check(&limiter, table, &job("ann"), later);
        assert!(refused.is_penalised(PolicyId::default()) && !refused.is_admitted());
    }
}

#[test]
fn a_penalty_shows_other_windows_as_they_are() {
    let penalty = Some(Penalty::new(1, 60 * SECOND, 100, 3_600));
    let strict = definition::PolicyDefinition { penalty, ..policy("p", "1/h by consumer") };
    let (limiter, table) = (limiter(), table(&[strict, policy("seen", "5/h by consumer")]));
    let seen = || {
        let check = check(&limiter, &table, &job("ann"), NOW);
        (check.is_penalised(PolicyId::default()), check.decision.outcomes[1])
    };
    let (_, admitted) = seen();
    let refused: Vec<_> = (0..5).map(|_| seen()).collect();
    assert!(refused[4].0 && admitted.reset_ns > 0);
    for (_, outcome) in refused {
        assert_eq!((outcome.remaining, outcome.reset_ns), (4, admitted.reset_ns));
    }
}

#[test]
fn each_tier_counts_on_where_it_has_another_algorithm() {
    let with = |of_free: Algorithm, of_pro: Algorithm| {
        let part = |name: &str, windows| TierPart {
            name: name.to_owned(),
            windows,
            overshoot_ppm: 0,
            when_down: Default::default(),
            origin: LimitOrigin::default(),
        };
        let tiers = TiersDefinition {
            parts: vec![part("free", 1), part("pro", 2)],
            default: "free".to_owned(),
            algorithm: Algorithm::TokenBucket,
            are_shared: false,
        };
        let windows = [("5/h", of_free), ("10/h", of_pro), ("50/d", of_pro)];
        let window = |(limit, algorithm): (&str, Algorithm)| {
            shorthand::parse(limit).expect("a limit").window.counted_by(algorithm)
        };
        table(&[definition::PolicyDefinition {
            windows: windows.into_iter().map(window).collect(),
            tiers: Some(tiers),
            ..policy("p", "1/s by consumer")
        }])
    };
    let before = with(Algorithm::TokenBucket, Algorithm::TokenBucket);
    let limiter = limiter();
    // The job has no tier, so it has the default's.
    assert_eq!(admitted(&limiter, &before, NOW, 3), 3);
    let table = after(&before, with(Algorithm::TokenBucket, Algorithm::FixedWindow), NOW);
    let changed = ["p-pro-1h-before", "p-pro-1d-before"];
    assert_eq!(labels(&table), [&["p-free", "p-pro-1h", "p-pro-1d"], &changed[..]].concat());
    assert_eq!(admitted(&limiter, &table, NOW, 9), 2);
    let policy = &table.policies()[0];
    for (window, tier) in [(0, "free"), (1, "pro"), (3, "pro"), (4, "pro")] {
        assert_eq!(policy.tier_of(window), Some(tier));
    }
}
