//! What the scripts make of records that are not as they left them: of a clock that was set since, or of another make.

use sluicegate::limit::Algorithm;

use crate::support::scripts::{ALGORITHMS, Store, part, quota};

/// Time of the store's clock, microseconds: the begin of an hour.
const NOW_US: u64 = 3_600_000_000 * 400_000;
const SECOND_US: u64 = 1_000_000;

#[test]
fn a_clock_that_is_set_back_holds_nobody_up_for_longer_than_a_window() {
    for algorithm in ALGORITHMS {
        for back_us in [2 * SECOND_US + 1, 300 * SECOND_US, 3_600 * SECOND_US, 86_400 * SECOND_US] {
            let mut store = Store::start();
            let ten = quota(algorithm, 10, SECOND_US, 10);
            let mut admitted = |now_us: u64, asked: usize| {
                (0..asked).filter(|_| store.take(&["k"], &[part(ten, 1, 0)], now_us).admitted).count()
            };
            let all = admitted(NOW_US, 30);
            assert!((10..=11).contains(&all), "{algorithm:?}: {all}");
            let then_us = NOW_US - back_us;
            assert_eq!(admitted(then_us, 30), 0, "{algorithm:?}: nothing is had twice");
            // A sliding window forgets in two.
            let after: usize = (1..=30).map(|tenth| admitted(then_us + tenth * SECOND_US / 10, 30)).sum();
            assert!((10..=30).contains(&after), "{algorithm:?} {back_us} µs back: {after} in three seconds");
        }
    }
}

#[test]
fn permits_of_a_node_that_is_no_more_lapse_although_the_clock_went_back() {
    let mut store = Store::start();
    let mut hold = |node: u64, held: u64, more: u64, now_us: u64| {
        let permits = quota(Algorithm::Concurrency, 10, SECOND_US, 10);
        let told = store.hold("k", &part(permits, more, 0), node, held, 5 * SECOND_US, now_us);
        (told.wait_us, told.remaining)
    };
    assert_eq!(hold(1, 0, 10, NOW_US), (0, 0));
    let then_us = NOW_US - 3_600 * SECOND_US;
    assert_eq!(hold(2, 0, 4, then_us), (SECOND_US as i64, 0));
    assert_eq!(hold(2, 0, 4, then_us + 5 * SECOND_US), (0, 6), "the first has said nothing for five seconds");
}
