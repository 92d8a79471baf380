//! The table from outside: keys, eviction, overflow, changed quotas, threads.

use std::num::NonZeroU64;
use std::thread;

use super::*;
use limit::{Algorithm, Answer, Calendar, CalendarUnit, Key, Zone};

const SECOND: u64 = 1_000_000_000;
const NOW: u64 = 3_600 * SECOND;
const ALGORITHMS: [Algorithm; 6] = Algorithm::ALL;

fn quota(algorithm: Algorithm, limit: u64) -> Quota {
    // A leaky bucket holds one more than its queue.
    let queue = if algorithm == Algorithm::LeakyBucket { (limit - 1).max(1) } else { limit };
    let whole = |number| NonZeroU64::new(number).expect("tests give no zero");
    Quota::new(algorithm, whole(limit), whole(SECOND), whole(queue))
}

fn charge(key: u64, quota: Quota) -> Charge {
    Charge::one(spread(key), quota)
}

/// 128 bits as a keyed hash would spread them: splitmix64, once for each half.
fn spread(number: u64) -> Key {
    let half = |salt: u64| {
        let mut word = number.wrapping_mul(2).wrapping_add(salt).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ (word >> 31)
    };
    Key::new(u128::from(half(1)) << 64 | u128::from(half(2)))
}

#[test]
fn every_key_has_its_own_limit() {
    for algorithm in ALGORITHMS {
        let table = Table::with_memory(1 << 22);
        for key in 0..1_000 {
            let charge = charge(key, quota(algorithm, 3));
            let remaining: Vec<u64> = (0..3).map(|_| table.take(&charge, NOW).outcome.remaining).collect();
            assert_eq!(remaining, [2, 1, 0]);
            assert!(!table.take(&charge, NOW).outcome.is_admitted());
        }
        assert_eq!(table.stats().used + table.stats().logs, 1_000);
    }
}

#[test]
fn peek_spends_nothing_and_claims_nothing() {
    let table = Table::with_memory(1 << 20);
    let charge = charge(1, quota(Algorithm::TokenBucket, 3));
    assert_eq!(table.peek(&charge, NOW).remaining, 2);
    assert_eq!(table.stats().used, 0);
    table.take(&charge, NOW);
    assert_eq!([table.peek(&charge, NOW).remaining, table.peek(&charge, NOW).remaining], [1, 1]);
}

#[test]
fn what_is_given_back_can_be_taken_again() {
    for algorithm in ALGORITHMS {
        let table = Table::with_memory(1 << 20);
        let charge = Charge { cost: 2, ..charge(1, quota(algorithm, 2)) };
        for _ in 0..5 {
            let taken = table.take(&charge, NOW);
            assert!(taken.outcome.is_admitted());
            table.give_back(&charge, taken.place, NOW);
        }
        assert!(table.take(&charge, NOW).outcome.is_admitted());
        assert!(!table.take(&charge, NOW).outcome.is_admitted());
    }
}

#[test]
fn a_denied_request_counts_only_where_that_is_asked_for() {
    let table = Table::with_memory(1 << 20);
    let plain = Charge { cost: 3, ..charge(1, quota(Algorithm::TokenBucket, 4)) };
    let counted = Charge { count_denied: true, ..plain };
    assert!(table.take(&plain, NOW).outcome.is_admitted());
    assert!(!table.take(&plain, NOW).outcome.is_admitted());
    assert_eq!(table.peek(&plain, NOW).remaining, 1);
    assert!(!table.take(&counted, NOW).outcome.is_admitted());
    assert_eq!(table.peek(&plain, NOW).remaining, 0);
}

#[test]
fn what_was_spent_stays_spent() {
    let limits = [1, 2, 3, 5, 10, 20, 50, 100, 10_000];
    for algorithm in ALGORITHMS.into_iter().filter(|algorithm| *algorithm != Algorithm::Concurrency) {
        for (old, new) in limits.into_iter().flat_map(|old| limits.map(|new| (old, new))) {
            let table = Table::with_memory(1 << 22);
            let [old, new] = [old, new].map(|limit| quota(algorithm, limit));
            table.declare([old]);
            table.declare([new]);
            let charged = |cost, quota| Charge { cost, ..charge(1, quota) };
            assert!(table.take(&charged(old.capacity(), old), NOW).outcome.is_admitted());
            let left = new.capacity().saturating_sub(old.capacity());
            assert_eq!(table.peek(&charged(0, new), NOW).remaining, left, "{old:?}, {new:?}");
            assert!(!table.take(&charged(left + 1, new), NOW).outcome.is_admitted());
            assert!(left == 0 || table.take(&charged(left, new), NOW).outcome.is_admitted());
            // There and back again hands out nothing.
            let spent = old.capacity() + left;
            let back = old.capacity().saturating_sub(spent);
            assert_eq!(table.peek(&charged(0, old), NOW).remaining, back, "{old:?}, {new:?}");
        }
    }
}

/// Whatever day a refused request has in its claim, a month's units are over with it.
#[test]
fn a_refusal_of_another_day_takes_no_unit_into_the_next_month() {
    let table = Table::with_memory(1 << 20);
    let month = Calendar::new(CalendarUnit::Month, Zone::utc(), 0);
    let of = |anchor| charge(1, quota(Algorithm::FixedWindow, 3).on_calendar(month.anchored(anchor)));
    table.declare((1..=31).map(|anchor| of(anchor).quota));
    let february = 31 * 86_400 * SECOND;
    (0..3).for_each(|_| assert!(table.take(&of(1), february - 2 * SECOND).outcome.is_admitted()));
    for anchor in 2..=31 {
        let refused = table.take(&of(anchor), february - SECOND).outcome;
        assert!(!refused.is_admitted(), "{anchor}");
        assert!(table.take(&of(1), february - SECOND).outcome.reset_ns <= SECOND, "{anchor}");
    }
    assert_eq!(table.take(&of(1), february).outcome.remaining, 2);
    // A refusal that counts is a use.
    let counted = Charge { cost: 3, count_denied: true, ..of(15) };
    assert!(!table.take(&counted, february + SECOND).outcome.is_admitted());
    assert_eq!(table.peek(&of(15), february + SECOND).remaining, 0);
}

#[test]
fn a_state_of_an_unknown_quota_counts_as_spent() {
    let table = Table::with_memory(1 << 20);
    table.take(&charge(1, quota(Algorithm::TokenBucket, 10)), NOW);
    let outcome = table.take(&charge(1, quota(Algorithm::TokenBucket, 20)), NOW).outcome;
    assert!(matches!(outcome.answer(), Answer::Later { .. }));
}

#[test]
fn a_full_table_gives_up_whole_keys_only() {
    let table = Table::with_memory(1 << 14);
    let slots = table.stats().slots;
    let (spent, other) = (quota(Algorithm::TokenBucket, 2), quota(Algorithm::TokenBucket, 5));
    table.declare([spent, other]);
    // Far more keys than slots, each taken empty: those with a slot stay denied, the rest share one bucket.
    let keys = 4 * slots;
    let admitted: u64 = (0..keys)
        .map(|key| {
            (0..2).filter(|_| table.take(&charge(key, spent), NOW).outcome.is_admitted()).count() as u64
        })
        .sum();
    let stats = table.stats();
    // The outermost slots lie in few windows, so one or two may stay empty.
    assert!(stats.used > slots - slots / 20 && stats.evictions == 0);
    assert_eq!(admitted, 2 * stats.used + 2, "each slot's two, and the overflow bucket's two");
    assert!((0..keys).all(|key| !table.take(&charge(key, spent), NOW).outcome.is_admitted()));
    // A stranger of another quota meets another overflow bucket; when all are whole again it gets a slot.
    assert_eq!(table.take(&charge(keys, other), NOW).place, StateLocation::Overflow);
    let later = NOW + SECOND;
    let taken = table.take(&charge(keys, other), later);
    assert_eq!((taken.place, taken.outcome.remaining), (StateLocation::Slot, 4));
    assert_eq!(table.stats().evictions, 1);
}

#[test]
fn what_the_overflow_bucket_gave_goes_back_to_it() {
    let table = Table::with_memory(1 << 12);
    let quota = quota(Algorithm::TokenBucket, 1);
    let slots = table.stats().slots;
    let full = |key: &u64| table.take(&charge(*key, quota), NOW).place == StateLocation::Overflow;
    let stranger = (0..100 * slots).find(full).expect("the table is full by now");
    assert!(!table.take(&charge(stranger, quota), NOW).outcome.is_admitted());
    assert!(!table.peek(&charge(stranger, quota), NOW).is_admitted());
    table.give_back(&charge(stranger, quota), StateLocation::Overflow, NOW);
    assert!(table.take(&charge(stranger, quota), NOW).outcome.is_admitted());
}

#[test]
fn half_full_no_key_is_without_a_slot() {
    let table = Table::with_memory(16 << 20);
    let quota = quota(Algorithm::TokenBucket, 2);
    for key in 0..table.stats().slots / 2 {
        table.take(&charge(key, quota), NOW);
    }
    assert_eq!(table.stats().overflow_decisions, 0);
}

#[test]
fn threads_on_one_key_share_one_bucket() {
    for algorithm in ALGORITHMS {
        let table = Table::with_memory(1 << 22);
        let charge = charge(1, quota(algorithm, 10_000));
        let spend = || (0..5_000).filter(|_| table.take(&charge, NOW).outcome.is_admitted()).count();
        let admitted: usize = thread::scope(|scope| {
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(spend)).collect();
            threads.into_iter().map(|thread| thread.join().expect("no thread panics")).sum()
        });
        assert_eq!(admitted, 10_000);
    }
}

#[test]
fn threads_on_many_keys_of_a_small_table_never_overspend() {
    // A table of about 500 slots and 2,000 keys, all of them spent to the end at one instant: what has a slot
    // admits its limit, all others together admit it once.
    let table = Table::with_memory(1 << 14);
    let quota = quota(Algorithm::TokenBucket, 3);
    let slots = table.stats().slots;
    let spend = |from: u64| {
        let keys = (0..4 * slots).map(move |key| (key * 7 + from) % (4 * slots));
        let spend_key = |key| {
            (0..4).filter(|_| table.take(&charge(key, quota), NOW).outcome.is_admitted()).count() as u64
        };
        keys.map(spend_key).sum::<u64>()
    };
    let admitted: u64 = thread::scope(|scope| {
        let threads: Vec<_> = (0..4).map(|thread| scope.spawn(move || spend(thread))).collect();
        threads.into_iter().map(|thread| thread.join().expect("no thread panics")).sum()
    });
    assert_eq!(admitted, 3 * table.stats().used + 3);
    assert_eq!(table.stats().evictions, 0);
}

#[test]
fn threads_that_evict_each_other_never_admit_past_the_refill() {
    // Keys come and go: time moves, so whole keys are replaced all the while. Each key's admitted units over the
    // run stay within its burst and its refill.
    const KEYS: u64 = 400;
    const TURNS: u64 = 200;
    let table = Table::with_memory(1 << 12);
    let quota = quota(Algorithm::TokenBucket, 4);
    let step = SECOND / 8;
    let run = |seed: u64| {
        let mut admitted = vec![0u64; KEYS as usize];
        for turn in 0..TURNS {
            for pick in 0..20 {
                let key = spread(turn * 1_000 + pick + seed % 2).low() % KEYS;
                let taken = table.take(&charge(key, quota), NOW + turn * step);
                if taken.outcome.is_admitted() && taken.place == StateLocation::Slot {
                    admitted[key as usize] += 1;
                }
            }
        }
        admitted
    };
    let admitted: Vec<Vec<u64>> = thread::scope(|scope| {
        let threads: Vec<_> = (0..4).map(|seed| scope.spawn(move || run(seed))).collect();
        threads.into_iter().map(|thread| thread.join().expect("no thread panics")).collect()
    });
    let refill = 4 * TURNS / 8;
    for key in 0..KEYS as usize {
        let total: u64 = admitted.iter().map(|thread| thread[key]).sum();
        assert!(total <= 4 + refill, "key {key}: {total}");
    }
    assert!(table.stats().evictions > 0);
}

#[test]
fn permits_survive_a_reload_and_come_back_once() {
    let table = Table::with_memory(1 << 20);
    let (old, new) = (quota(Algorithm::Concurrency, 10), quota(Algorithm::Concurrency, 4));
    let other = quota(Algorithm::TokenBucket, 10);
    table.declare([old]);
    table.declare([new, other]);
    let left = |quota| table.peek(&Charge { cost: 0, ..charge(1, quota) }, NOW).remaining;
    let places: Vec<StateLocation> = (0..6).map(|_| table.take(&charge(1, old), NOW).place).collect();
    assert_eq!((left(new), left(old)), (0, 4));
    assert!(!table.take(&charge(1, new), NOW).outcome.is_admitted());
    for place in &places[..3] {
        table.give_back(&charge(1, old), *place, NOW);
    }
    assert_eq!(left(new), 1);
    // The policy counts by a bucket now: what is still out is no unit of that.
    assert_eq!(table.take(&charge(1, other), NOW).outcome.remaining, 6);
    table.give_back(&charge(1, old), places[3], NOW);
    assert_eq!(left(other), 6);
}

#[test]
fn full_of_logs_no_key_gets_more_than_its_limit() {
    let table = Table::with_memory(1 << 16);
    let quota = quota(Algorithm::SlidingLog, 50);
    table.declare([quota]);
    let spend = |key: u64, now_ns| {
        (0..60).filter(|_| table.take(&charge(key, quota), now_ns).outcome.is_admitted()).count()
    };
    let admitted: Vec<usize> = (0..60).map(|key| spend(key, NOW)).collect();
    let stats = table.stats();
    assert!(stats.log_bytes <= (1 << 16) / 8 && stats.logs < 60, "{stats:?}");
    assert!(admitted.iter().all(|count| *count <= 50) && admitted[0] == 50);
    // Those without a log share one: together they had its limit.
    let shared: usize = admitted[stats.logs as usize..].iter().sum();
    assert!(stats.overflow_decisions > 0 && shared <= 50 * 2, "{admitted:?}");
    assert!((0..60).all(|key| spend(key, NOW) == 0), "whoever is held or shares is out of units");
    // When all of it is over, logs are given up and everybody has a whole one.
    let later = NOW + 2 * SECOND;
    let again: Vec<usize> = (0..15).map(|key| spend(100 + key, later)).collect();
    assert!(table.stats().evictions > 0, "{again:?}");
    assert_eq!(again[0], 50);
}
