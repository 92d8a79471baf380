use std::num::NonZeroU64;

use proptest::prelude::*;

use super::*;
use crate::{Algorithm, Answer, Quota, State};

/// Midnight UTC of a date.
fn date(year: i64, month: i64, day: i64) -> i64 {
    (first_of_month(year, month - 1) + day - 1) * DAY_S
}

fn unix(at_s: i64) -> Duration {
    Duration::from_secs(at_s.unsigned_abs())
}

const HOUR: i64 = 3_600;

fn berlin() -> &'static Zone {
    let changes = [
        (i64::MIN, HOUR),
        (date(2024, 3, 31) + HOUR, 2 * HOUR),
        (date(2024, 10, 27) + HOUR, HOUR),
        (date(2025, 3, 30) + HOUR, 2 * HOUR),
        (date(2025, 10, 26) + HOUR, HOUR),
    ];
    Zone::new("Europe/Berlin", changes.to_vec())
}

/// Zones whose clocks change around midnight, or by a day.
fn odd_zones() -> [&'static Zone; 5] {
    let of = |name, changes: &[(i64, i64)]| Zone::new(name, changes.to_vec());
    [
        // At 0:00 to 1:00: there is no midnight. At 0:00 back to 23:00: the day before ends an hour later.
        of(
            "Asia/Beirut",
            &[
                (i64::MIN, 2 * HOUR),
                (date(2024, 3, 30) + 22 * HOUR, 3 * HOUR),
                (date(2024, 10, 26) + 21 * HOUR, 2 * HOUR),
            ],
        ),
        // At 1:00 back to 0:00: midnight comes twice.
        of("America/Havana", &[(i64::MIN, -4 * HOUR), (date(2024, 11, 3) + 5 * HOUR, -5 * HOUR)]),
        // At 0:01 back to 23:01 of the day before, which has ended by then.
        of("America/St_Johns", &[(i64::MIN, -9_000), (date(2010, 11, 7) + 9_060, -12_600)]),
        // No 30 December.
        of("Pacific/Apia", &[(i64::MIN, -10 * HOUR), (date(2011, 12, 30) + 10 * HOUR, 14 * HOUR)]),
        berlin(),
    ]
}

#[test]
fn days_and_months_are_those_of_the_gregorian_calendar() {
    assert_eq!((date(1970, 1, 1), date(2000, 3, 1), date(2038, 1, 19)), (0, 951_868_800, 2_147_472_000));
    let lengths =
        |year| (0..12).map(move |month| first_of_month(year, month + 1) - first_of_month(year, month));
    let usual = [31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30];
    assert!(lengths(2023).take(11).eq(usual));
    for (year, days) in [(2023, 28), (2024, 29), (1900, 28), (2000, 29), (2100, 28)] {
        assert_eq!(first_of_month(year, 2) - first_of_month(year, 1), days, "{year}");
    }
    let mut expected = (1970, 0);
    for day in 0..200_000 {
        if day == first_of_month(expected.0, expected.1) + 31 || month_of(day) != expected {
            expected = if expected.1 == 11 { (expected.0 + 1, 0) } else { (expected.0, expected.1 + 1) };
            assert_eq!(first_of_month(expected.0, expected.1), day);
        }
        assert_eq!(month_of(day), expected);
    }
}

#[test]
fn a_window_begins_and_ends_with_the_local_calendar() {
    let around = |unit, zone, at_s| {
        let (begins, ends) = Calendar::new(unit, zone, 0).around_s(unix(at_s));
        (i64::try_from(begins).expect("small"), i64::try_from(ends).expect("small"))
    };
    let (utc, berlin) = (Zone::utc(), berlin());
    let noon = date(2024, 2, 29) + 12 * HOUR;
    assert_eq!(around(CalendarUnit::Day, utc, noon), (date(2024, 2, 29), date(2024, 3, 1)));
    assert_eq!(around(CalendarUnit::Week, utc, noon), (date(2024, 2, 26), date(2024, 3, 4)));
    assert_eq!(around(CalendarUnit::Month, utc, noon), (date(2024, 2, 1), date(2024, 3, 1)));
    assert_eq!(around(CalendarUnit::Year, utc, noon), (date(2024, 1, 1), date(2025, 1, 1)));
    // 23 and 25 hours.
    let spring = (date(2024, 3, 30) + 23 * HOUR, date(2024, 3, 31) + 22 * HOUR);
    assert_eq!(around(CalendarUnit::Day, berlin, date(2024, 3, 31)), spring);
    let autumn = (date(2024, 10, 26) + 22 * HOUR, date(2024, 10, 27) + 23 * HOUR);
    assert_eq!(around(CalendarUnit::Day, berlin, date(2024, 10, 27)), autumn);
    let march = (date(2024, 2, 29) + 23 * HOUR, date(2024, 3, 31) + 22 * HOUR);
    assert_eq!(around(CalendarUnit::Month, berlin, date(2024, 3, 31)), march);
    // The last second of one window, and the first of the next.
    assert_eq!(around(CalendarUnit::Month, berlin, march.1 - 1), march);
    assert_eq!(around(CalendarUnit::Month, berlin, march.1).0, march.1);
    let [beirut, havana, st_johns, apia, _] = odd_zones();
    let day = |zone, at_s| around(CalendarUnit::Day, zone, at_s);
    let gap = date(2024, 3, 30) + 22 * HOUR;
    assert_eq!(day(beirut, gap), (gap, gap + 23 * HOUR));
    assert_eq!(
        day(beirut, date(2024, 10, 26)),
        (date(2024, 10, 25) + 21 * HOUR, date(2024, 10, 26) + 22 * HOUR)
    );
    let twice = date(2024, 11, 3) + 4 * HOUR;
    assert_eq!(day(havana, twice + HOUR), (twice, twice + 25 * HOUR));
    let ended = date(2010, 11, 7) + 9_000;
    assert_eq!(day(st_johns, ended + 1_800), (ended, ended + 25 * HOUR));
    let skipped = date(2011, 12, 30) + 10 * HOUR;
    assert_eq!((day(apia, skipped - 1).1, day(apia, skipped).0), (skipped, skipped));
    assert_eq!(
        around(CalendarUnit::Week, apia, skipped).1 - around(CalendarUnit::Week, apia, skipped).0,
        6 * DAY_S
    );
}

#[test]
fn months_begin_on_their_day_or_the_last_one_there_is() {
    let starts = |anchor, year: i64| -> Vec<i64> {
        let month = Calendar::new(CalendarUnit::Month, Zone::utc(), 0).anchored(anchor);
        let of = |index| (month.start_s(12 * (year - 1970) + index) - date(year, index + 1, 1)) / DAY_S + 1;
        (0..12).map(of).collect()
    };
    assert_eq!(starts(15, 2023), [15; 12]);
    assert_eq!(starts(31, 2023), [31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31]);
    assert_eq!(starts(30, 2024), [30, 29, 30, 30, 30, 30, 30, 30, 30, 30, 30, 30]);
    assert_eq!((starts(29, 2023)[1], starts(29, 2024)[1]), (28, 29));
    let last = Calendar::new(CalendarUnit::Month, Zone::utc(), 0).anchored(31);
    let around = |at_s| last.around_s(unix(at_s));
    let days = |from, until| (unix(from).as_secs(), unix(until).as_secs());
    assert_eq!(around(date(2023, 2, 28)), days(date(2023, 2, 28), date(2023, 3, 31)));
    assert_eq!(around(date(2023, 2, 28) - 1), days(date(2023, 1, 31), date(2023, 2, 28)));
    assert_eq!(around(date(2023, 3, 30)), days(date(2023, 2, 28), date(2023, 3, 31)));
    let day = Calendar::new(CalendarUnit::Day, Zone::utc(), 0);
    assert_eq!((day.anchored(9), last.anchored(0).anchor(), last.anchored(99).anchor()), (day, 1, 31));
}

#[test]
fn edges_are_the_starts_of_four_windows_in_a_row() {
    let month = Calendar::new(CalendarUnit::Month, berlin(), 0);
    let Edges { first, starts_us } = month.edges(unix(date(2024, 3, 15)));
    assert_eq!(first, 12 * 54 + 1);
    let starts = [(2024, 2, 1, -HOUR), (2024, 3, 1, -HOUR), (2024, 4, 1, -2 * HOUR), (2024, 5, 1, -2 * HOUR)];
    let starts =
        starts.map(|(year, month, day, more)| (date(year, month, day) + more).unsigned_abs() * 1_000_000);
    assert_eq!(starts_us, starts);
}

fn quota(limit: u64, calendar: &'static Calendar) -> Quota {
    let limit = NonZeroU64::new(limit).expect("not zero");
    Quota::new(Algorithm::TokenBucket, limit, limit, limit).on_calendar(calendar)
}

#[test]
fn a_limit_of_the_calendar_is_whole_again_when_its_window_ends() {
    let origin_s = 420 * DAY_S.unsigned_abs();
    let quota = quota(10, Calendar::new(CalendarUnit::Month, berlin(), origin_s));
    let at = |at_s: i64| (at_s.unsigned_abs() - origin_s) * SECOND_NS;
    let (now, ends) = (at(date(2024, 2, 20)), at(date(2024, 2, 29) + 23 * HOUR));
    let (state, taken) = State::default().take(&quota, 10, now);
    assert_eq!((taken.remaining, taken.reset_ns), (0, ends - now));
    let denied = state.take(&quota, 1, now + 1).1;
    assert_eq!(denied.answer(), Answer::Later { retry_after_ns: ends - now - 1 });
    assert!(!state.take(&quota, 1, ends - 1).1.is_admitted());
    assert_eq!(state.take(&quota, 1, ends).1.remaining, 9);
    // What is owed takes one limit of each month: 25 are owed until April ends.
    let owing = state.debit(&quota, 15, now);
    assert_eq!(owing.take(&quota, 0, now).1.reset_ns, at(date(2024, 4, 30) + 22 * HOUR) - now);
    // A clock that was set back over the edge finds the window in which it counts.
    let back = state.take(&quota, 10, ends).0.take(&quota, 1, ends - HOUR.unsigned_abs() * SECOND_NS).1;
    let next = at(date(2024, 3, 31) + 22 * HOUR);
    assert_eq!(
        back.answer(),
        Answer::Later { retry_after_ns: next - ends + HOUR.unsigned_abs() * SECOND_NS }
    );
    // Another zone, another unit, and a length of as many days are other limits, which keep what was spent.
    let utc = self::quota(10, Calendar::new(CalendarUnit::Month, Zone::utc(), origin_s));
    let day = self::quota(10, Calendar::new(CalendarUnit::Day, Zone::utc(), origin_s));
    let fixed = quota.counted_by(Algorithm::TokenBucket).counted_by(Algorithm::FixedWindow);
    for other in [utc, day, fixed] {
        assert_ne!(quota.fingerprint(), other.fingerprint());
        assert_eq!(state.rescale(&quota, &other, now).take(&other, 0, now).1.remaining, 0);
    }
    assert_eq!(
        (quota.multiplied(2.0).calendar(), quota.share_of(2).calendar()),
        (quota.calendar(), quota.calendar())
    );
}

/// What was spent under another anchor counts in the window in which it was spent, whether requests came in between or not.
#[test]
fn another_anchor_gives_no_fresh_quota_and_no_wait_beyond_the_window_of_now() {
    let month = Calendar::new(CalendarUnit::Month, Zone::utc(), 0);
    let of = |anchor| quota(10, month.anchored(anchor));
    let at = |day: i64| (date(2027, 3, 1) + day * DAY_S).unsigned_abs() * SECOND_NS;
    for (day, anchor, ends) in
        [(22, 20, 50), (22, 16, 46), (3, 10, 9), (22, 28, 27), (1, 31, 30), (29, 30, 60), (35, 15, 45)]
    {
        let spent = State::default().take(&of(1), 10, at(day.min(29))).0;
        let told = |now| spent.rescale(&of(1), &of(anchor), now).take(&of(anchor), 1, now).1;
        let wait = Answer::Later { retry_after_ns: at(ends) - at(day) };
        assert_eq!(
            (told(at(day)).answer(), told(at(day)).reset_ns),
            (wait, at(ends) - at(day)),
            "{day} {anchor}"
        );
        assert!(!told(at(ends) - 1).is_admitted(), "{day} {anchor}");
        assert_eq!(told(at(ends)).remaining, 9, "{day} {anchor}");
        // A refusal leaves it as it is.
        assert_eq!(spent.rescale(&of(1), &of(anchor), at(day)), spent, "{day} {anchor}");
        // And back again: what was spent under the new one counts under the old.
        let spent = spent.rescale(&of(1), &of(anchor), at(ends)).take(&of(anchor), 10, at(ends)).0;
        let back = spent.rescale(&of(anchor), &of(1), at(ends)).take(&of(1), 1, at(ends)).1;
        assert_eq!(back.remaining, 0, "{day} {anchor}");
    }
    // What was spent before the window of now began is over.
    let spent = State::default().take(&of(1), 10, at(1)).0;
    assert_eq!(spent.rescale(&of(1), &of(20), at(22)).take(&of(20), 1, at(22)).1.remaining, 9);
    // Of a debt each window takes its limit.
    let owing = State::default().debit(&of(1), 25, at(3)).rescale(&of(1), &of(15), at(40));
    assert_eq!(owing.used(&of(15), at(40)).0, 15);
    assert_eq!(owing.used(&of(15), at(45)).0, 5);
}

proptest! {
    /// Whatever the zone, each instant lies in the one window that its number names, and windows follow each other.
    #[test]
    fn every_instant_lies_in_one_window(
        unit in prop::sample::select(CalendarUnit::ALL.to_vec()), zone in 0usize..6, anchor in 1u8..32,
        at_s in 0i64..(1 << 33), near in prop::option::of((0usize..5, -200_000i64..200_000)),
    ) {
        let zone = odd_zones().get(zone).copied().unwrap_or(Zone::utc());
        let change = near.and_then(|(change, by)| zone.offsets().get(change)?.0.checked_add(by));
        let at_s = change.filter(|at_s| *at_s >= 0).unwrap_or(at_s);
        let calendar = Calendar::new(unit, zone, 0).anchored(anchor);
        let index = calendar.index_at(at_s);
        // The window that is known from before, of which there is one per calendar, beside the plain way.
        prop_assert_eq!((index, calendar.index_at(at_s)), (calendar.find_index_at(at_s), index));
        for index in index - 1..index + 3 {
            prop_assert_eq!(calendar.start_s(index), calendar.find_start_s(index));
        }
        prop_assert!(calendar.start_s(index) <= at_s && at_s < calendar.start_s(index + 1));
        prop_assert!(calendar.index_at(at_s + 1) - index <= 2 && calendar.index_at(at_s + 1) >= index);
        let length_s = calendar.start_s(index + 1) - calendar.start_s(index);
        let longest_s = calendar.unit.days().cast_signed() * DAY_S;
        prop_assert!((1..=longest_s + HOUR).contains(&length_s), "{length_s}");
        let edges = calendar.edges(unix(at_s));
        if index > 0 {
            prop_assert_eq!(edges.starts_us[1].cast_signed(), calendar.start_s(index) * 1_000_000);
            prop_assert!(edges.starts_us.is_sorted());
        }
        // The clock has numbers only for windows from 1970 on.
        if index >= 0 && let Some(now_ns) = at_s.unsigned_abs().checked_mul(SECOND_NS) {
            let window = calendar.window_at(now_ns);
            prop_assert!(calendar.start_ns(window) <= now_ns && now_ns < calendar.start_ns(window + 1));
        }
    }

    #[test]
    fn no_time_and_no_number_is_too_large(unit in prop::sample::select(CalendarUnit::ALL.to_vec()), word: u64) {
        let calendar = Calendar::new(unit, berlin(), 0);
        prop_assert!(calendar.start_ns(calendar.window_at(word)) <= word);
        prop_assert!(calendar.start_ns(word) <= calendar.start_ns(word.saturating_add(1)));
        let (begins_s, ends_s) = calendar.around_s(Duration::from_secs(word));
        prop_assert!(begins_s < ends_s);
        prop_assert!(calendar.edges(Duration::from_secs(word)).starts_us.is_sorted());
    }
}
