//! Records that the scripts did not leave as they find them: the clock was set meanwhile, or another program wrote them.

use base::random::Random;
use limit::Algorithm;
use limit::lease_messages::{LinkError, Op, Reply};
use limiter::global::Condition;
use limiter::global::config::Topology;

use crate::support::eventually;
use crate::support::redis as store;
use crate::support::redis::{Node, Redis, add, config};
use crate::support::scripts::{ALGORITHMS, Store, part, quota};

/// Time of Redis's clock, microseconds: the begin of an hour.
const NOW_US: u64 = 3_600_000_000 * 400_000;
const SECOND_US: u64 = 1_000_000;

#[test]
fn a_clock_set_back_denies_no_key_for_longer_than_a_window() {
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

/// Bytes that no script left: of one double over and over, and of chance.
fn garbage(length: usize, random: &Random) -> Vec<Vec<u8>> {
    let doubles = [
        f64::NAN,
        f64::INFINITY,
        f64::NEG_INFINITY,
        0.0,
        -1.0,
        1.0,
        1e15,
        9e15,
        1e17,
        1e300,
        -1e300,
        f64::MIN_POSITIVE,
    ];
    let mut all: Vec<Vec<u8>> =
        doubles.map(|double| double.to_le_bytes().into_iter().cycle().take(length).collect()).into();
    all.extend((0..10).map(|_| (0..length).map(|_| random.next() as u8).collect()));
    all.push(vec![0xff; length]);
    all.push(b"garbage".to_vec());
    all
}

#[test]
fn whatever_a_key_holds_is_spent_and_whole_again_in_its_time() {
    let mut store = Store::start();
    let random = Random::new(1);
    let lengths = [44, 36, 44, 0, 44];
    for (algorithm, length) in ALGORITHMS.into_iter().zip(lengths).filter(|(_, length)| *length > 0) {
        let ten = quota(algorithm, 10, SECOND_US, 10);
        let mut records = garbage(length, &random);
        // As a script left it, but for eight bytes: chance hardly ever makes a number that is likely.
        store.take(&["k"], &[part(ten, 3, 0)], NOW_US);
        let whole: Vec<u8> = redis::cmd("GET").arg("k").query(&mut store.connection).expect("it is text");
        for at in [0, 8, 16, 20, 28, 36].into_iter().filter(|at| at + 8 <= whole.len()) {
            for eight in garbage(8, &random).into_iter().filter(|eight| eight.len() == 8) {
                let mut record = whole.clone();
                record[at..at + 8].copy_from_slice(&eight);
                records.push(record);
            }
        }
        for record in records {
            redis::cmd("SET").arg("k").arg(&record).exec(&mut store.connection).expect("Redis answers");
            let mut admitted = |now_us: u64| {
                let taken = store.take(&["k"], &[part(ten, 1, 0)], now_us);
                assert!(
                    taken.parts[0].wait_us < 17 * SECOND_US as i64,
                    "{algorithm:?} {record:?}: {taken:?}"
                );
                taken.admitted
            };
            let first = (0..13).filter(|_| admitted(NOW_US + 1)).count();
            assert!(first <= 11, "{algorithm:?} {record:?}: {first} at once");
            let later = (1..=6).filter(|three| admitted(NOW_US + three * 3 * SECOND_US)).count();
            assert!(later >= 2, "{algorithm:?} {record:?}: {later} in eighteen seconds");
        }
    }
}

#[test]
fn a_log_and_permits_that_hold_something_else_are_right_again_in_their_time() {
    let mut store = Store::start();
    let log = quota(Algorithm::SlidingLog, 3, SECOND_US, 3);
    for times in
        [["x", "y", "z"], ["nan", "inf", "-inf"], ["-5", "1e400", "1"], ["99999999999999999", "1", "x"]]
    {
        redis::cmd("DEL").arg("k").exec(&mut store.connection).expect("Redis answers");
        redis::cmd("RPUSH").arg("k").arg(&times).exec(&mut store.connection).expect("Redis answers");
        store.call(1, &["k"], &[part(log, 1, 0)], &[NOW_US as f64, 0.0, 0.0, 0.0]).ok();
        let later = store.take(&["k"], &[part(log, 1, 0)], NOW_US + 2 * SECOND_US);
        assert!(later.admitted, "{times:?}: {later:?}");
    }
    let entries = [("abcdefgh", vec![0; 3]), ("abcdefgi", vec![0xff; 16]), ("x", vec![0xff; 40])];
    redis::cmd("HSET").arg("h").arg(&entries).exec(&mut store.connection).expect("Redis answers");
    let permits = quota(Algorithm::Concurrency, 10, SECOND_US, 10);
    let told = store.hold("h", &part(permits, 4, 0), 1, 0, 5 * SECOND_US, NOW_US);
    assert_eq!((told.wait_us, told.remaining), (0, 6));
}

#[test]
fn one_poisoned_lease_leaves_other_keys_unharmed() {
    let server = Redis::start(&[]);
    let node = Node::shipped(config(Topology::Single(vec![server.server()])));
    let random = Random::new(2);
    assert!(matches!(node.ask(add(1, 1)).answer().0, Ok(Reply::Grant(_))));
    for record in [44, 68].into_iter().flat_map(|length| garbage(length, &random)) {
        // Arguments of a program hold no zeros, so it is written by a script that is told numbers.
        let bytes = record.iter().map(u8::to_string).collect::<Vec<_>>().join(" ");
        let script = "local t = {} for n in string.gmatch(ARGV[1], '%d+') do t[#t + 1] = string.char(n) end \
                      return redis.call('SET', KEYS[1], table.concat(t))";
        server.cli(&["EVAL", script, "1", "sg:pT:AAAAAAAAAAAAAAAAAAAAAQ", &bytes]);
        // A look finds a record or none, and spoils no call either way.
        let look = node.ask(Op::Look(store::part(1, 1))).answer().0;
        assert!(matches!(look, Ok(Reply::Seen(_)) | Err(LinkError::Refused)), "{record:?}: {look:?}");
        for key in [1, 2, 1] {
            let answer = node.ask(add(key, 1)).answer().0;
            assert!(matches!(answer, Ok(Reply::Grant(_))), "{key} {record:?}: {answer:?}");
        }
    }
    assert_eq!((node.status().condition, node.status().counts.opened), (Condition::Up, 0));
    eventually("there is something to be had again", || match node.ask(add(1, 1)).answer().0 {
        Ok(Reply::Grant(grant)) => (grant.tokens >= 1.0).then_some(()),
        other => panic!("{other:?}"),
    });
}

#[test]
fn renewals_of_one_call_see_each_other() {
    let redis = Redis::start(&[]);
    let node = Node::shipped(config(Topology::Single(vec![redis.server()])));
    // 100 a second, burst 100.
    let asked: Vec<_> = (0..60).map(|_| node.ask(add(1, 50))).collect();
    let tokens: f64 = asked
        .iter()
        .map(|asked| match asked.answer().0 {
            Ok(Reply::Grant(grant)) => grant.tokens,
            other => panic!("{other:?}"),
        })
        .sum();
    assert!(tokens < 200.0, "{tokens} of 100");
}
