//! The table of docs/choosing-an-algorithm.md: what a client that sends whenever it may gets through in one period.

use std::num::NonZeroU64;

use limit::{Algorithm, Log, Quota, State};

use crate::documents::documents;

const PAGE: &str = "docs/choosing-an-algorithm.md";
const PERIOD_NS: u64 = 1_000_000_000_000;
/// How often the client tries in a period.
const TRIES: u64 = 1_000;

fn quota(algorithm: Algorithm, limit: u64, burst: u64) -> Quota {
    let [limit, period, burst] =
        [limit, PERIOD_NS, burst].map(|number| NonZeroU64::new(number).expect("above 0"));
    Quota::new(algorithm, limit, period, burst)
}

/// When the client spent each unit over three periods, if its first request comes that long after the clock's begins.
fn spent(quota: &Quota, first_ns: u64) -> Vec<u64> {
    let (mut state, mut log) = (State::default(), Log::default());
    let mut take = |now_ns| {
        if quota.algorithm() == Algorithm::SlidingLog {
            return log.take(quota, 1, now_ns).is_admitted();
        }
        let (next, outcome) = state.take(quota, 1, now_ns);
        state = next;
        outcome.is_admitted()
    };
    let tries = (0..3 * TRIES).map(|number| 10 * PERIOD_NS + first_ns + number * (PERIOD_NS / TRIES));
    tries.flat_map(|now_ns| std::iter::repeat_n(now_ns, (0..).take_while(|_| take(now_ns)).count())).collect()
}

/// The most units in any stretch of this length, whatever the moment of the first request.
fn most_within(quota: &Quota, stretch_ns: u64) -> u64 {
    let begins = [0, PERIOD_NS / 2, PERIOD_NS - 1];
    let most = |times: Vec<u64>| {
        let ends = times.iter().map(|begin| times.partition_point(|time| *time < begin + stretch_ns));
        ends.enumerate().map(|(begin, end)| end - begin).max().expect("something passes")
    };
    begins.into_iter().map(|first_ns| most(spent(quota, first_ns)) as u64).max().expect("there are some")
}

fn at_once(quota: &Quota) -> u64 {
    most_within(quota, 1)
}

/// The cells of the row of the table that begins so.
fn row(begins: &str) -> Vec<String> {
    let (_, page) = documents().into_iter().find(|(name, _)| name == PAGE).expect("the page is there");
    let line =
        page.lines().find(|line| line.starts_with(begins)).unwrap_or_else(|| panic!("{begins} in {PAGE}"));
    line.trim_matches('|').split(" | ").map(|cell| cell.trim().to_owned()).collect()
}

#[test]
fn the_worst_day_of_each_algorithm_is_what_the_page_says() {
    let day = 100_000;
    let bucket = quota(Algorithm::TokenBucket, day, day);
    assert_eq!(at_once(&bucket), day);
    // The last of what refills comes with the end of the period.
    assert_eq!(most_within(&bucket, PERIOD_NS + 1), 2 * day);
    assert!(row("| `token-bucket` |")[3].contains("200,000"));
    let small = quota(Algorithm::TokenBucket, day, 1_000);
    assert_eq!((at_once(&small), most_within(&small, PERIOD_NS + 1)), (1_000, 101_000));
    assert_eq!(row("| `token-bucket` with")[3], "101,000");
    let fixed = quota(Algorithm::FixedWindow, day, day);
    assert_eq!((at_once(&fixed), most_within(&fixed, 2)), (day, day), "nobody tries twice at the boundary");
    assert_eq!(most_within(&fixed, PERIOD_NS), 2 * day);
    let windows = spent(&fixed, 0);
    let first = windows.partition_point(|time| *time < 11 * PERIOD_NS);
    assert_eq!(first as u64, day, "a window of the clock");
    assert!(row("| `fixed-window` |")[3].contains("100,000 per calendar day; 200,000"));
}

#[test]
fn the_worst_period_of_sliding_windows_and_logs_is_what_the_page_says() {
    let many = quota(Algorithm::SlidingWindow, 100_000, 100_000);
    assert_eq!(at_once(&many), 100_000);
    let most = most_within(&many, PERIOD_NS);
    assert!((195_000..200_000).contains(&most), "{most}");
    assert!(row("| `sliding-window`, more")[2].starts_with("almost `2 × N`"));
    let few = quota(Algorithm::SlidingWindow, 32, 32);
    assert_eq!((at_once(&few), most_within(&few, PERIOD_NS / 100 * 98)), (32, 32));
    assert!((33..=64).contains(&most_within(&few, PERIOD_NS)));
    assert!(row("| `sliding-window`, 15 to 32")[2].contains("at least 98 % of a period"));
    let fewer = quota(Algorithm::SlidingWindow, 14, 14);
    assert_eq!((at_once(&fewer), most_within(&fewer, PERIOD_NS / 1_000 * 995)), (14, 14));
    assert!(row("| `sliding-window`, up")[2].contains("99.5 % of a period"));
    let log = quota(Algorithm::SlidingLog, 1_000, 1_000);
    assert_eq!((at_once(&log), most_within(&log, PERIOD_NS)), (1_000, 1_000));
    assert_eq!(row("| `sliding-log` |")[2], "`N`, exactly");
}

#[test]
fn over_many_periods_each_algorithm_admits_its_limit() {
    for algorithm in
        [Algorithm::TokenBucket, Algorithm::FixedWindow, Algorithm::SlidingWindow, Algorithm::SlidingLog]
    {
        for limit in [20, 1_000] {
            let spent = spent(&quota(algorithm, limit, 1), 0).len() as u64;
            // Over three periods, and what may be at once.
            assert!((limit * 29 / 10..=limit * 4).contains(&spent), "{algorithm:?} {limit}: {spent}");
        }
    }
}
