//! The table against what it promises: bounded, exact under threads, nothing forgotten that is over its limit.

use std::num::NonZeroU64;
use std::sync::atomic::{AtomicU64, Ordering};

use super::*;
use crate::limit::{Algorithm, Answer};

const SECOND: u64 = 1_000_000_000;
const NOW: u64 = 3_600 * SECOND;

fn quota(algorithm: Algorithm, limit: u64, seconds: u64, burst: u64) -> Quota {
    let positive = |number| NonZeroU64::new(number).expect("a positive number");
    Quota { algorithm, limit: positive(limit), period_ns: positive(seconds * SECOND), burst: positive(burst) }
}

fn charge(key: u128, quota: Quota) -> Charge {
    Charge { key, quota, cost: 1, policy: 0, window: 0, shadow: false, count_denied: false }
}

/// A key spread as a hash would spread it.
fn spread(number: u64) -> u128 {
    u128::from(number + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835)
}

#[test]
fn threads_on_one_key_admit_its_burst_and_no_more() {
    for algorithm in [Algorithm::TokenBucket, Algorithm::FixedWindow, Algorithm::SlidingWindow] {
        let table = Table::with_memory(1 << 20);
        let charge = charge(7, quota(algorithm, 1_000, 3_600, 1_000));
        let admitted = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..1_000 {
                        if table.take(&charge, NOW).is_admitted() {
                            admitted.fetch_add(1, Ordering::Relaxed);
                        }
                    }
                });
            }
        });
        assert_eq!(admitted.into_inner(), 1_000, "{algorithm:?}");
        assert_eq!(table.stats().used, 1);
    }
}

#[test]
fn threads_that_meet_new_keys_together_give_each_one_bucket() {
    let table = Table::with_memory(1 << 20);
    let quota = quota(Algorithm::TokenBucket, 10, 3_600, 10);
    let admitted = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for number in 0..2_000 {
                    for _ in 0..5 {
                        if table.take(&charge(spread(number), quota), NOW).is_admitted() {
                            admitted.fetch_add(1, Ordering::Relaxed);
                        }
                    }
                }
            });
        }
    });
    assert_eq!(admitted.into_inner(), 2_000 * 10);
    assert_eq!(table.stats().used, 2_000);
}

#[test]
fn a_full_table_forgets_full_buckets_first() {
    let table = Table::with_memory(0);
    let quota = quota(Algorithm::TokenBucket, 1, 1, 1);
    for number in 0..10_000 {
        let now = NOW + number * 2 * SECOND;
        assert!(table.take(&charge(spread(number), quota), now).is_admitted());
    }
    let stats = table.stats();
    assert_eq!((stats.overflow_decisions, stats.used), (0, stats.slots.min(stats.used)));
    assert!(stats.evictions >= 10_000 - stats.slots);
}

#[test]
fn a_table_of_callers_over_their_limit_forgets_none_and_gives_strangers_one_bucket() {
    let table = Table::with_memory(0);
    let quota = quota(Algorithm::TokenBucket, 1, 3_600, 1);
    table.declare([quota]);
    let mut own = Vec::new();
    let mut strangers_admitted = 0;
    for number in 0..1_000 {
        let before = table.stats().overflow_decisions;
        let admitted = table.take(&charge(spread(number), quota), NOW).is_admitted();
        if table.stats().overflow_decisions == before {
            assert!(admitted);
            own.push(number);
        } else {
            strangers_admitted += u64::from(admitted);
        }
    }
    assert_eq!(strangers_admitted, 1, "all strangers share one bucket of one");
    assert!(own.len() >= WINDOW);
    for number in own {
        assert!(
            !table.take(&charge(spread(number), quota), NOW + SECOND).is_admitted(),
            "{number} was forgotten"
        );
    }
    assert_eq!(table.stats().evictions, 0);
}

#[test]
fn a_changed_limit_carries_the_fill_over() {
    let table = Table::with_memory(1 << 16);
    let (before, after) =
        (quota(Algorithm::TokenBucket, 100, 3_600, 100), quota(Algorithm::TokenBucket, 10, 3_600, 10));
    table.declare([before]);
    for _ in 0..90 {
        assert!(table.take(&charge(1, before), NOW).is_admitted());
    }
    table.declare([after]);
    assert_eq!(
        table.peek(&charge(1, after), NOW).remaining,
        0,
        "a tenth was left: one, less the one asked for"
    );
    assert!(table.take(&charge(1, after), NOW).is_admitted());
    assert!(!table.take(&charge(1, after), NOW).is_admitted());
    let window = quota(Algorithm::SlidingWindow, 100, 3_600, 100);
    table.declare([window]);
    assert!(
        !table.take(&charge(1, window), NOW).is_admitted(),
        "nor does another algorithm give a fresh burst"
    );
}

#[test]
fn peeking_spends_nothing_and_leaves_no_trace() {
    let table = Table::with_memory(1 << 16);
    let charge = charge(1, quota(Algorithm::TokenBucket, 10, 60, 10));
    assert_eq!(table.peek(&charge, NOW).remaining, 9);
    assert_eq!(table.stats().used, 0);
    table.take(&charge, NOW);
    assert_eq!(table.peek(&charge, NOW).remaining, table.peek(&charge, NOW).remaining);
    assert_eq!(table.peek(&charge, NOW).remaining, 8);
}

#[test]
fn what_is_given_back_can_be_taken_again() {
    let table = Table::with_memory(1 << 16);
    let charge = charge(1, quota(Algorithm::SlidingWindow, 2, 60, 2));
    assert!(table.take(&charge, NOW).is_admitted() && table.take(&charge, NOW).is_admitted());
    assert!(matches!(table.take(&charge, NOW).answer, Answer::Later(_)));
    table.give_back(&charge, NOW);
    assert!(table.take(&charge, NOW).is_admitted());
}
