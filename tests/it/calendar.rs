//! Windows of the calendar in a real Redis: the script against the arithmetic of the table, and gateways over the edge of a
//! month. Time is an argument or the clock of Redis, which the tests set.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base::random::Random;
use limit::{Algorithm, Answer, Calendar, CalendarUnit, Quota, State, Zone};

use crate::auth::keys::hashed;
use crate::support::redis::Redis;
use crate::support::scripts::{Store, part, quota};
use crate::support::{Client, Directory, Gateway, Response, eventually};

/// As in Berlin: clocks change on 29 March and on 25 October 2026.
fn zone() -> &'static Zone {
    let changes = [(i64::MIN, 3_600), (1_774_746_000, 7_200), (1_792_890_000, 3_600)];
    Zone::new("Test/Berlin", changes.to_vec())
}

fn limited(limit: u64, unit: CalendarUnit, zone: &'static Zone) -> Quota {
    quota(Algorithm::FixedWindow, limit, 1, limit).on_calendar(Calendar::new(unit, zone, 0))
}

fn unix_us(at_us: u64) -> Duration {
    Duration::from_micros(at_us)
}

#[test]
fn the_script_counts_as_the_table_does() {
    let mut store = Store::start();
    store.zone = zone();
    let (mut admitted, mut refused, mut edges) = (0, 0, 0);
    for (seed, unit) in (0..40).map(|seed| (seed, CalendarUnit::ALL[(seed % 4) as usize])) {
        let random = Random::new(seed + 1);
        let below = |bound: u64| random.next() % bound;
        let key = format!("k{seed}");
        let (mut state, mut now_us) = (State::default(), 1_772_000_000_000_000 + below(30_000_000_000_000));
        let (mut of, mut quota) = (limited(10, unit, zone()), limited(10, unit, zone()));
        (store.zone, store.anchor) = (zone(), 1);
        for step in 0..80 {
            // Under which quota the table keeps the state, and that of now.
            let is_shifted = below(4) == 0;
            if is_shifted {
                let hours = below(24).cast_signed() * 3_600 - 11 * 3_600;
                store.zone =
                    if below(2) == 0 { zone() } else { Zone::new("Test/Far", vec![(i64::MIN, hours)]) };
                store.anchor = 1 + below(31) as u8;
                quota = of.on_calendar(Calendar::new(unit, store.zone, 0).anchored(store.anchor));
            }
            let before_us = now_us;
            let (_, ends_ns) = quota.window_around_ns(unix_us(now_us));
            now_us = match below(8) {
                0 => ends_ns / 1_000 - 1,
                1 => ends_ns / 1_000,
                2 => now_us + below(quota.period_ns().get() / 1_000),
                _ => now_us + below(3_600_000_000),
            };
            let is_edge = quota.window_at(before_us * 1_000) != quota.window_at(now_us * 1_000);
            edges += u32::from(is_edge);
            let (cost, context) = (1 + below(4), format!("{unit:?} seed {seed} step {step} at {now_us}"));
            let part = part(quota, cost, 0);
            let now_ns = now_us * 1_000;
            match below(6) {
                0 => {
                    store.debit(&[&key], &[part], now_us);
                    state = state.rescale(&of, &quota, now_ns).debit(&quota, cost, now_ns);
                    of = quota;
                }
                // Of a window that is over, only the script has carried the debt over by then.
                1 if !is_edge && !is_shifted => {
                    store.give_back(&[&key], &[part], before_us, now_us);
                    state = state.rescale(&of, &quota, now_ns).give_back(&quota, cost, before_us * 1_000);
                    of = quota;
                }
                _ => {}
            }
            let told = store.take(&[&key], &[part], now_us);
            let (after, outcome) = state.rescale(&of, &quota, now_ns).take(&quota, cost, now_ns);
            (state, of) = (after, quota);
            assert_eq!(told.admitted, outcome.is_admitted(), "{context}");
            assert_eq!(told.parts[0].remaining, outcome.remaining, "{context}");
            let calendar = quota.calendar().expect("it is of one");
            let near_us = calendar.edges(unix_us(now_us)).starts_us[3] - now_us;
            let assert_near = |told_us: u64, ns: u64| match told_us <= near_us {
                true => assert_eq!(told_us * 1_000, ns, "{context}"),
                // Of a debt over three windows the script knows the longest that they may last.
                false => assert!((0..4 * 86_400_000_000).contains(&(told_us - ns / 1_000)), "{context}"),
            };
            assert_near(told.parts[0].reset_us, outcome.reset_ns);
            if let Answer::Later { retry_after_ns } = outcome.answer() {
                assert_near(told.parts[0].wait_us.unsigned_abs(), retry_after_ns);
            }
            admitted += u32::from(told.admitted);
            refused += u32::from(!told.admitted);
        }
    }
    assert!(admitted > 1_000 && refused > 300 && edges > 500, "{admitted} {refused} {edges}");
}

#[test]
fn what_was_spent_stays_spent_under_another_zone_or_unit_until_it_ends() {
    let mut store = Store::start();
    // 15 February 2027, noon, and when March begins in Tokyo and in UTC.
    let (noon, tokyo_us, utc_us) = (1_802_692_800_000_000, 1_803_826_800_000_000, 1_803_859_200_000_000);
    let tokyo = Zone::new("Test/Tokyo", vec![(i64::MIN, 9 * 3_600)]);
    let days = |days: u64| quota(Algorithm::FixedWindow, 10, days * 86_400_000_000, 10);
    let [month, week, day] = [CalendarUnit::Month, CalendarUnit::Week, CalendarUnit::Day]
        .map(|unit| limited(10, unit, Zone::utc()));
    let mut left = |zone, key: &str, quota, cost, now_us| {
        store.zone = zone;
        store.take(&[key], &[part(quota, cost, 0)], now_us).parts[0].remaining
    };
    assert_eq!(left(Zone::utc(), "zone", month, 7, noon), 3);
    assert_eq!(left(tokyo, "zone", month, 1, noon), 2);
    assert_eq!(left(tokyo, "zone", month, 0, tokyo_us - 1), 2);
    assert_eq!(left(tokyo, "zone", month, 4, tokyo_us), 6);
    // Back again: in February for UTC, what counts is of March, and counts there, too.
    assert_eq!(left(Zone::utc(), "zone", month, 0, tokyo_us + 1), 6);
    assert_eq!(left(tokyo, "zone", month, 0, utc_us), 6);
    for (key, before, after) in [
        ("a", days(1), day),
        ("b", day, days(1)),
        ("c", month, day),
        ("d", day, month),
        ("e", days(30), month),
        ("f", week, month),
    ] {
        assert_eq!(left(Zone::utc(), key, before, 7, noon), 3, "{key}");
        assert_eq!(left(Zone::utc(), key, after, 1, noon + 1), 2, "{key}");
        // Noon of the next day.
        let expected = if after == month { 2 } else { 10 };
        assert_eq!(left(Zone::utc(), key, after, 0, noon + 86_400_000_000), expected, "{key}");
    }
    let over_us = utc_us + 3 * 86_400_000_000;
    for (key, before) in [("g", month), ("h", day), ("i", days(1))] {
        assert_eq!(left(Zone::utc(), key, before, 7, noon), 3, "{key}");
        assert_eq!(left(Zone::utc(), key, week, 0, over_us), 10, "{key} is over");
    }
    // A higher limit, a lower one, and back: units stay.
    assert_eq!(left(Zone::utc(), "limit", month, 7, noon), 3);
    let of = |limit| limited(limit, CalendarUnit::Month, Zone::utc());
    assert_eq!(left(Zone::utc(), "limit", of(20), 0, noon), 13);
    assert_eq!(left(Zone::utc(), "limit", of(5), 0, noon), 0);
    assert_eq!(left(Zone::utc(), "limit", month, 0, noon), 3);
    assert_eq!(left(Zone::utc(), "limit", of(5), 0, utc_us), 5);
}

/// 15 days of a month are more than half a window: that of before began long before that of now, or will begin long after it.
#[test]
fn another_anchor_or_zone_gives_no_fresh_quota_and_no_wait_beyond_the_window_of_now() {
    let mut store = Store::start();
    let (day_us, month) = (86_400_000_000, limited(10, CalendarUnit::Month, Zone::utc()));
    // When March 2027 begins.
    let march_us = 1_803_859_200_000_000_u64;
    let mut told = |anchor, key: &str, cost, day: u64| {
        store.anchor = anchor;
        let at_us = march_us + day * day_us;
        (store.take(&[key], &[part(month, cost, 0)], at_us).parts[0], at_us)
    };
    for (day, anchor, ends) in
        [(22, 20, 50), (22, 16, 46), (3, 10, 9), (22, 28, 27), (1, 31, 30), (29, 30, 60)]
    {
        let key = format!("{day} {anchor}");
        assert_eq!(told(1, &key, 10, day).0.remaining, 0, "{key}");
        let (refused, at_us) = told(anchor, &key, 1, day);
        let left_us = march_us + ends * day_us - at_us;
        assert_eq!((refused.remaining, refused.reset_us), (0, left_us), "{key}");
        assert_eq!(refused.wait_us, left_us.cast_signed(), "{key}");
        // Until the window of now ends, whether that of before has ended or not.
        assert!(told(anchor, &key, 1, ends - 1).0.wait_us > 0, "{key}");
        assert_eq!(told(anchor, &key, 1, ends).0.remaining, 9, "{key}");
        // Nor longer if no request came in between.
        let key = format!("alone {key}");
        assert_eq!(told(1, &key, 10, day).0.remaining, 0, "{key}");
        assert_eq!(told(anchor, &key, 1, ends).0.remaining, 9, "{key}");
        // And back again: what was spent under the new one counts under the old.
        assert_eq!(told(anchor, &key, 9, ends).0.remaining, 0, "{key}");
        assert!(told(1, &key, 1, ends).0.wait_us > 0, "{key}");
    }
}

#[test]
fn a_refusal_of_another_day_takes_no_unit_into_the_next_month() {
    let mut store = Store::start();
    let month = limited(10, CalendarUnit::Month, Zone::utc());
    let april_us = 1_803_859_200_000_000_u64 + 31 * 86_400_000_000;
    let mut left = |anchor, cost, at_us| {
        store.anchor = anchor;
        store.take(&["k"], &[part(month, cost, 0)], at_us).parts[0].remaining
    };
    assert_eq!(left(1, 10, april_us - 1_000_000), 0);
    for anchor in 2..=31 {
        assert_eq!(left(anchor, 1, april_us - 999_000), 0, "{anchor}");
    }
    assert_eq!(left(1, 1, april_us), 9);
}

/// A key is kept as long as it may count, and a period more in which it may count under another anchor.
#[test]
fn a_key_of_the_calendar_outlives_its_window_by_one() {
    let mut store = Store::forgetful();
    let now_us = now().as_micros() as u64;
    let month = limited(10, CalendarUnit::Month, Zone::utc());
    store.take(&["k"], &[part(month, 1, 0)], now_us);
    let lives_ms: u64 = redis::cmd("PTTL").arg("k").query(&mut store.connection).expect("it is kept");
    let needed_ms = (month.window_left_ns(unix_us(now_us)) / 1_000 + month.period_ns().get() / 1_000) / 1_000;
    assert!((needed_ms - 60_000..needed_ms + 60_000).contains(&lives_ms), "{lives_ms} {needed_ms}");
}

#[test]
fn a_clock_that_is_set_back_over_the_edge_gives_no_month_twice() {
    let mut store = Store::start();
    let month = limited(10, CalendarUnit::Month, Zone::utc());
    // When March 2027 begins, and April.
    let (edge_us, next_us) = (1_803_859_200_000_000_u64, 1_806_537_600_000_000_i64);
    let mut told = |cost, now_us| store.take(&["k"], &[part(month, cost, 0)], now_us).parts[0];
    assert_eq!(told(10, edge_us - 1).remaining, 0);
    assert_eq!(told(7, edge_us).remaining, 3);
    let back = told(4, edge_us - 60_000_000);
    assert_eq!((back.remaining, back.wait_us), (3, next_us - edge_us.cast_signed() + 60_000_000));
    assert_eq!(told(3, edge_us - 60_000_000).remaining, 0);
    assert!(told(1, edge_us).wait_us > 0);
    assert_eq!(told(10, next_us.cast_unsigned()).remaining, 0);
}

/// Whatever a key holds, it denies for a month at most.
#[test]
fn a_record_that_no_script_left_is_a_spent_month() {
    let mut store = Store::start();
    let month = limited(10, CalendarUnit::Month, Zone::utc());
    let (noon, ends_us) = (1_802_692_800_000_000, 1_803_859_200_000_000);
    store.take(&["k"], &[part(month, 7, 0)], noon);
    let record: Vec<u8> = redis::cmd("GET").arg("k").query(&mut store.connection).expect("it is kept");
    assert_eq!(record.len(), 44);
    for at in [0, 8, 16, 28, 36] {
        for number in [f64::NAN, f64::INFINITY, -1.0, 1e15, 9e15, 1e300, -1e300] {
            let mut record = record.clone();
            record[at..at + 8].copy_from_slice(&number.to_le_bytes());
            redis::cmd("SET").arg("k").arg(record).exec(&mut store.connection).expect("Redis answers");
            let told = store.take(&["k"], &[part(month, 1, 0)], noon + 1);
            assert!(told.parts[0].remaining <= 10, "{at} {number}: {told:?}");
            let later = store.take(&["k"], &[part(month, 1, 0)], ends_us + 1);
            assert!(later.admitted, "{at} {number}: {told:?}, {later:?}");
        }
    }
}

fn ask(client: &mut Client, user: &str) -> Response {
    client.send(format!("GET / HTTP/1.1\r\nHost: a\r\nx-user: {user}\r\n\r\n"));
    client.response()
}

fn now() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970")
}

fn set_clock(redis: &Redis, at_s: u64) {
    redis.set_clock(&format!("+{}", at_s - now().as_secs()));
    eventually("its clock is set", || {
        let said: u64 = redis.cli(&["TIME"]).lines().next()?.parse().ok()?;
        (said.abs_diff(at_s) < 60).then_some(())
    });
}

/// `t` of the first window of `RateLimit`.
fn reset_of(answer: &Response) -> u64 {
    let fields = answer.header("ratelimit").unwrap_or_default();
    let (_, rest) = fields.split_once(";t=").unwrap_or_default();
    rest.chars().take_while(char::is_ascii_digit).collect::<String>().parse().expect("it says when")
}

#[test]
fn an_outage_takes_nothing_from_the_next_day() {
    for is_killed in [false, true] {
        let mut redis = Redis::with_clock();
        let policy = |name: &str, limit: &str| {
            format!(
                "[policy.{name}]\nby = [\"header:x-user\"]\n{limit}\novershoot = 0\n\
                 [[route]]\npath = \"/{name}\"\nlimit = \"{name}\"\nrespond = {{}}\n"
            )
        };
        let config = [
            format!("[redis]\nurl = \"redis://{}\"\n", redis.addr()),
            policy("day", "limit = \"20/day\""),
            policy("counted", "limit = \"20/day\"\ncount = { not-status = 500 }"),
            policy("fixed", "limit = \"20/h\"\nalgorithm = \"fixed-window\""),
            policy("log", "limit = \"20/h\"\nalgorithm = \"sliding-log\""),
            policy("few", "limit = \"20/h\"\nalgorithm = \"sliding-window\""),
            policy("bucket", "limit = \"20/h\"\nalgorithm = \"token-bucket\""),
        ]
        .concat();
        let nodes: Vec<Gateway> = (0..3).map(|_| Gateway::start(&config)).collect();
        let asked = |node: usize, path: &str| {
            let mut client = nodes[node].client();
            client.send(format!("GET /{path} HTTP/1.1\r\nHost: a\r\nx-user: ann\r\n\r\n"));
            client.response()
        };
        let admitted = |requests: usize, of: &[usize], path: &str| {
            (0..requests).filter(|turn| asked(of[turn % of.len()], path).status == 200).count()
        };
        let paths = ["day", "counted", "fixed", "log", "few", "bucket"];
        let (_, ends_s) = Calendar::new(CalendarUnit::Day, Zone::utc(), 0).around_s(now());
        // Half an hour before the end of the next day.
        let edge_s = ends_s + 86_400;
        set_clock(&redis, edge_s - 1_800);
        let is_up = |node: &Gateway, is: f64| {
            eventually("that is noticed", || (node.metric("sluicegate_redis_up", &[]) == is).then_some(()));
        };
        nodes.iter().for_each(|node| is_up(node, 1.0));
        paths.iter().for_each(|path| assert_eq!(admitted(6, &[0, 1], path), 6, "{path}"));
        if is_killed {
            redis.kill()
        } else {
            redis.signal("STOP")
        }
        nodes.iter().for_each(|node| is_up(node, 0.0));
        for path in paths {
            let alone = admitted(60, &[0, 1], path);
            assert!(alone > 20, "{path}: {alone} without Redis, no more than exactly one limit");
        }
        if is_killed {
            redis.restart()
        } else {
            redis.signal("CONT")
        }
        nodes.iter().for_each(|node| is_up(node, 1.0));
        // What a busy Redis refuses after its deadline was admitted by then, and may be owed.
        let owed = paths.map(|path| {
            let mut owed = 0;
            eventually("it is used up", || {
                let status = asked(2, path).status;
                owed += usize::from(status == 200);
                (status == 429).then_some(())
            });
            let refused = asked(2, path);
            let (wait_s, reset_s) = (refused.number("retry-after"), reset_of(&refused));
            // A sliding window may have forgotten one of the units then; a tenth of a wait is jitter, at most a minute.
            let most_s = if path == "few" || path == "log" { 3_660 } else { 1_860 };
            assert!((1..=most_s).contains(&wait_s), "{path}: {wait_s}, killed: {is_killed}");
            assert!(wait_s <= reset_s + 61, "{path}: {wait_s}, {reset_s}");
            (path, owed)
        });
        // A server that was stopped may take a request late that was refused meanwhile.
        let least = if is_killed { 20 } else { 19 };
        // This node has asked for none of them yet, and remembers no refusal. What a busy Redis takes after its deadline for
        // a request that was refused comes back a little later.
        let spends_all = |(path, owed): (&str, usize)| {
            let mut count = 0;
            eventually(&format!("{least} of {path}, {owed} owed, killed: {is_killed}"), || {
                count += admitted(1, &[2], path);
                (count + owed >= least).then_some(())
            });
            count += admitted(60, &[2], path);
            assert!(count <= 20, "{path}: {count}, killed: {is_killed}");
        };
        set_clock(&redis, edge_s + 60);
        owed[..3].iter().copied().for_each(spends_all);
        set_clock(&redis, edge_s + 7_200);
        owed[3..].iter().copied().for_each(spends_all);
    }
}

#[test]
fn a_fleet_counts_anew_when_the_month_of_its_zone_begins() {
    let redis = Redis::with_clock();
    let config = format!(
        "[redis]\nurl = \"redis://{}\"\n\
         [policy.exact]\nby = [\"header:x-user\"]\nlimit = \"20/month\"\ntime-zone = \"America/New_York\"\novershoot = 0\n\
         [policy.leased]\nby = [\"header:x-user\"]\nlimit = \"300/month\"\ntime-zone = \"America/New_York\"\n\
         [[route]]\npath = \"/\"\nlimit = \"exact\"\nrespond = {{}}\n\
         [[route]]\npath = \"/leased\"\nlimit = \"leased\"\nrespond = {{}}\n",
        redis.addr()
    );
    let nodes: Vec<Gateway> = (0..3).map(|_| Gateway::start(&config)).collect();
    // The library's own database has the zone; its edge is five hours or four after that of UTC.
    let month = Calendar::new(CalendarUnit::Month, Zone::utc(), 0);
    let (begins_s, utc_s) = month.around_s(now());
    let told = ask(&mut nodes[0].client(), "shown");
    let policy = told.header("ratelimit-policy").unwrap_or_default().to_owned();
    let length_s: u64 = policy.rsplit_once("w=").and_then(|(_, length)| length.parse().ok()).unwrap_or(0);
    let usual_s = utc_s - begins_s;
    assert!(length_s.abs_diff(usual_s) <= 3_600 || now().as_secs() - begins_s < 6 * 3_600, "{policy}");
    let set = |at_s: u64| set_clock(&redis, at_s);
    for (path, limit) in [("/", 20), ("/leased", 300)] {
        let ask = |node: usize| {
            let mut client = nodes[node].client();
            client.send(format!("GET {path} HTTP/1.1\r\nHost: a\r\nx-user: ann\r\n\r\n"));
            client.response()
        };
        // In UTC the month has ended by then, in New York not.
        set(utc_s + 3 * 3_600);
        let admitted = |requests: usize, of: &[usize]| {
            (0..requests).filter(|turn| ask(of[turn % of.len()]).status == 200).count()
        };
        assert_eq!(admitted(2 * limit, &[0, 1]), limit, "{path}");
        let refused = ask(0);
        let wait_s = refused.number("retry-after");
        assert!((3_000..2 * 3_600 + 120).contains(&wait_s), "{path}: {wait_s}");
        let reset_s = reset_of(&refused);
        assert!(reset_s <= wait_s + 1 && wait_s <= reset_s + 61, "{path}: {reset_s} {wait_s}");
        set(utc_s + 5 * 3_600 + 60);
        assert_eq!(admitted(2 * limit, &[2]), limit, "{path}");
        let refused = ask(2);
        let (wait_s, reset_s) = (refused.number("retry-after"), reset_of(&refused));
        assert!(reset_s <= wait_s + 3 && wait_s <= reset_s + 61, "{path}: {reset_s} {wait_s}");
        assert!((27 * 86_400..32 * 86_400).contains(&wait_s), "{path}: {wait_s}");
    }
}

#[test]
fn another_anchor_gives_a_fleet_no_fresh_quota_and_no_longer_wait() {
    let redis = Redis::start(&[]);
    let around = |day: u8| Calendar::new(CalendarUnit::Month, Zone::utc(), 0).anchored(day).around_s(now());
    // The days of which the month began last, and of which it ends first: almost a month apart.
    let young = (1..=31).max_by_key(|day| around(*day).0).expect("there are days");
    let old = (1..=31).min_by_key(|day| around(*day).0).expect("there are days");
    for (sharing, limit) in [("overshoot = 0", 20), ("", 300)] {
        for (before, after) in [(old, young), (young, old)] {
            let name = format!("p{limit}-{before}");
            let config = |anchor: u8| {
                format!(
                    "[redis]\nurl = \"redis://{}\"\ndeadline = \"1s\"\n\
                     [policy.{name}]\nby = [\"header:x-user\"]\nlimit = \"{limit}/month\"\nanchor = {anchor}\n{sharing}\n\
                     [[route]]\npath = \"/\"\nlimit = \"{name}\"\nrespond = {{}}\n",
                    redis.addr()
                )
            };
            let nodes = [(); 2].map(|()| Gateway::start(&config(before)));
            nodes.iter().for_each(|node| {
                eventually("it is connected", || {
                    (node.metric("sluicegate_redis_up", &[]) == 1.0).then_some(())
                });
            });
            let admitted = |requests: usize| {
                let admits = |turn: &usize| ask(&mut nodes[turn % 2].client(), "ann").status == 200;
                (0..requests).filter(admits).count()
            };
            assert_eq!(admitted(2 * limit), limit, "{name}");
            nodes.iter().for_each(|node| node.reload(&config(after)));
            assert_eq!(admitted(20), 0, "{name}");
            let left_s = around(after).1 - now().as_secs();
            nodes.iter().for_each(|node| {
                eventually("the window of now ends in time", || {
                    let refused = ask(&mut node.client(), "ann");
                    assert_eq!(refused.status, 429, "{name}");
                    let is_right = |told_s: u64| (left_s - 60..=left_s + 61).contains(&told_s);
                    (is_right(reset_of(&refused)) && is_right(refused.number("retry-after"))).then_some(())
                });
            });
        }
    }
}

#[test]
fn another_anchor_ends_a_month_for_clients_that_stay_away() {
    let redis = Redis::with_clock();
    let ends_s = |day: u8| Calendar::new(CalendarUnit::Month, Zone::utc(), 0).anchored(day).around_s(now()).1;
    // The days whose months end last and first.
    let before = (1..=31).max_by_key(|day| ends_s(*day)).expect("there are days");
    let after = (1..=31).min_by_key(|day| ends_s(*day)).expect("there are days");
    let edge_s = ends_s(after);
    let config = |anchor: u8| {
        let policy = |name: &str, more: &str| {
            format!(
                "[policy.{name}]\nby = [\"header:x-user\"]\nanchor = {anchor}\n{more}\n\
                 [[route]]\npath = \"/{name}\"\nlimit = \"{name}\"\nrespond = {{}}\n"
            )
        };
        let exact = policy("exact", "limit = \"20/month\"\novershoot = 0");
        let url = redis.addr();
        format!("[redis]\nurl = \"redis://{url}\"\ndeadline = \"1s\"\n{exact}")
            + &policy("leased", "limit = \"300/month\"")
    };
    let node = Gateway::start(&config(before));
    eventually("it is connected", || (node.metric("sluicegate_redis_up", &[]) == 1.0).then_some(()));
    let admitted = |path: &str, requests: usize| {
        let request = || node.client().request("GET", path, &["x-user: ann"], "");
        (0..requests).filter(|_| request().status == 200).count()
    };
    assert_eq!((admitted("/exact", 25), admitted("/leased", 310)), (20, 300));
    node.reload(&config(after));
    set_clock(&redis, edge_s + 3_600);
    for (path, limit) in [("/exact", 20), ("/leased", 300)] {
        eventually("the new month has begun", || (admitted(path, 1) == 1).then_some(()));
        assert_eq!(admitted(path, limit + 10), limit - 1, "{path}");
    }
}

/// A node whose consumers have a billing day each: Ann the 15th, Bob the 31st. Joe's is no day, and Eve has none.
fn billed(more: &str) -> Gateway {
    let directory = Directory::new();
    let entry = |name: &str, claims: &str| hashed(name, &["--consumer", name]) + claims + "\n";
    let keys = [
        entry("ann", "claims = { billing_day = 15 }"),
        entry("bob", "claims = { billing_day = \"31\" }"),
        entry("joe", "claims = { billing_day = 32 }"),
        entry("eve", ""),
    ];
    directory.write("keys.toml", keys.concat());
    let config = format!(
        "[auth.keys]\nkind = \"api-key\"\nkeys = {{ file = \"keys.toml\" }}\n\
         [policy.plan]\nby = [\"consumer\"]\nlimit = [\"3/month\", \"900/h\"]\nanchor = 7\nanchor-claim = \"billing_day\"\novershoot = 0\n\
         [[route]]\npath = \"/\"\nauth = \"keys\"\nlimit = \"plan\"\nrespond = {{}}\n{more}"
    );
    Gateway::start_in(directory, &config)
}

fn call(node: &Gateway, consumer: &str) -> Response {
    node.client().request("GET", "/", &[&format!("x-api-key: {consumer}")], "")
}

const MONTH: [(&str, u8); 4] = [("ann", 15), ("bob", 31), ("joe", 7), ("eve", 7)];

#[test]
fn a_consumers_months_begin_on_its_own_day() {
    let node = billed("");
    for (consumer, day) in MONTH {
        let told = node.admin(&format!("/v1/why/{consumer}")).text();
        assert!(told.contains("this month is assumed"), "{consumer}: {told}");
        let month = Calendar::new(CalendarUnit::Month, Zone::utc(), 0).anchored(day);
        let (begins_s, ends_s) = month.around_s(now());
        let answer = call(&node, consumer);
        let policy = answer.header("ratelimit-policy").unwrap_or_default().to_owned();
        assert!(
            policy.contains(&format!("\"plan-month\";q=3;w={}", ends_s - begins_s)),
            "{consumer}: {policy}"
        );
        let left_s = ends_s - now().as_secs();
        assert!(left_s.abs_diff(reset_of(&answer)) < 60, "{consumer}: {answer:?}");
        assert_eq!([call(&node, consumer).status, call(&node, consumer).status], [200; 2]);
        let refused = call(&node, consumer);
        assert_eq!(refused.status, 429, "{consumer}");
        assert!(
            (left_s - 60..=left_s + 61).contains(&refused.number("retry-after")),
            "{consumer}: {refused:?}"
        );
        let explained = node.admin(&format!("/v1/explain?url=/&header=x-api-key:{consumer}"));
        let limit = explained.json()["limits"][0].clone();
        assert_eq!((&limit["anchor"], &limit["remaining"]), (&day.into(), &0.into()), "{consumer}: {limit}");
        let told = node.admin(&format!("/v1/why/{consumer}")).text();
        let shown = format!("a month of the calendar in UTC, anchor {day}:");
        assert!(told.contains(&shown) && !told.contains("assumed"), "{consumer}: {told}");
        assert!(told.contains("plan-month: 3 of 3 used"), "{consumer}: {told}");
    }
}

#[test]
fn a_fleet_counts_a_consumer_anew_on_its_own_day() {
    let redis = Redis::with_clock();
    let nodes = [(); 2]
        .map(|()| billed(&format!("[redis]\nurl = \"redis://{}\"\ndeadline = \"1s\"\n", redis.addr())));
    let edge_of =
        |day: u8| Calendar::new(CalendarUnit::Month, Zone::utc(), 0).anchored(day).around_s(now()).1;
    let mut edges: Vec<u64> = MONTH.map(|(_, day)| edge_of(day)).to_vec();
    edges.sort_unstable();
    edges.dedup();
    eventually("both are connected", || {
        nodes.iter().all(|node| node.metric("sluicegate_redis_up", &[]) == 1.0).then_some(())
    });
    let admitted =
        |consumer: &str| (0..6).filter(|turn| call(&nodes[turn % 2], consumer).status == 200).count();
    assert_eq!(MONTH.map(|(consumer, _)| admitted(consumer)), [3; 4]);
    for edge_s in edges {
        set_clock(&redis, edge_s + 3_600);
        let begins = |day: u8| edge_of(day) == edge_s;
        let first =
            MONTH.iter().find(|(_, day)| begins(*day)).map(|(consumer, _)| *consumer).expect("it is one's");
        eventually("a refusal is looked at again", || (call(&nodes[0], first).status == 200).then_some(()));
        for (consumer, day) in MONTH {
            let expected = if !begins(day) {
                0
            } else if consumer == first {
                2
            } else {
                3
            };
            assert_eq!(admitted(consumer), expected, "{consumer} at {edge_s}");
        }
    }
}
