//! The global tier against a real Redis: what it asks is done once, and answered.

use std::collections::BTreeSet;
use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::Duration;

use limit::lease_messages::{
    ExactCharge, Hold, LentWindow, LinkError, Op, Renewal, Reply, WindowBalance, WindowRecord,
};
use limit::{Algorithm, Plan, Quota, Sharing, WhenDown};
use limiter::global::config::{Login, Secret, Server, Topology};
use limiter::global::{Condition, Config};

use crate::support::redis::{Node, Redis, add, config, free_port, part};
use crate::support::scripts::ALGORITHMS;
use crate::support::{Directory, Gateway, eventually, tls};

#[test]
fn every_operation_is_answered_in_its_kind() {
    let redis = Redis::start(&[]);
    let node = Node::of(&redis);
    assert_eq!(node.add(1, 5), Ok(5));
    assert_eq!(node.take(1, 2), Ok(7));
    assert_eq!(node.ask(Op::Peek(part(1, 1))).counted(), Ok(7));
    let parts = [part(1, 3)].into_iter().collect();
    assert_eq!(node.ask(Op::Return { parts, taken_us: 1 << 52 }).counted(), Ok(0));
    assert_eq!(node.ask(Op::Peek(part(1, 1))).counted(), Ok(4));
    assert_eq!(redis.cli(&["GET", "sg:pT:AAAAAAAAAAAAAAAAAAAAAQ"]).trim(), "4");
    let status = node.status();
    assert_eq!((status.condition, status.is_up), (Condition::Up, true));
    assert!(status.version.is_some_and(|version| version.contains('.')));
    node.shutdown();
}

#[test]
fn what_waits_is_gathered_into_few_calls() {
    let redis = Redis::start(&[]);
    let node = Node::of(&redis);
    let before = node.status();
    let asked: Vec<_> = (0..2_000).map(|number| node.ask(add(number % 7, 1))).collect();
    assert!(asked.iter().all(|asked| asked.counted().is_ok()));
    let total: u64 = (0..7).map(|key| node.add_at_last(key, 0)).sum();
    assert_eq!(total, 2_000);
    let after = node.status();
    let calls = after.counts.calls - before.counts.calls;
    assert!(calls <= 2_000 / 4, "{calls} calls for 2,000 operations");
}

#[test]
fn a_key_of_the_wrong_type_spoils_only_its_own_operation() {
    let redis = Redis::start(&[]);
    let node = Node::of(&redis);
    redis.cli(&["RPUSH", "sg:pT:AAAAAAAAAAAAAAAAAAAAAg", "x"]);
    let asked: Vec<_> = (1..=3).map(|key| node.ask(add(key, 1)).counted()).collect();
    assert_eq!(asked, [Ok(1), Err(LinkError::Refused), Ok(1)]);
    assert_eq!(node.status().condition, Condition::Up);
    assert_eq!(node.status().counts.refused, 1);
}

#[test]
fn scripts_that_were_flushed_are_loaded_again() {
    let redis = Redis::start(&[]);
    let node = Node::of(&redis);
    for round in 1..=50 {
        if round % 10 == 0 {
            redis.cli(&["SCRIPT", "FLUSH", "SYNC"]);
        }
        assert_eq!(node.add(1, 1), Ok(round));
        assert_eq!(node.take(2, 1), Ok(round));
    }
}

#[test]
fn the_shipped_script_takes_leases_and_gives_back() {
    let redis = Redis::start(&[]);
    let node = Node::shipped(config(Topology::Single(vec![redis.server()])));
    // 100 a second, burst 100.
    let took = |units: u64| match node.ask(Op::Take([part(1, units)].into_iter().collect())).answer().0 {
        Ok(Reply::Taken(taken)) => taken,
        other => panic!("it is taken or not, but not {other:?}"),
    };
    let first = took(60);
    assert!(first.admitted && first.outcomes[0].remaining >= 40);
    assert!(!took(60).admitted, "60 and 60 are more than 100");
    let returned = Op::Return { parts: [part(1, 60)].into_iter().collect(), taken_us: first.at_us };
    assert_eq!(node.ask(returned).answer().0, Ok(Reply::Returned));
    assert!(took(60).admitted, "what was given back can be had again");
    let left = |op| match node.ask(op).answer().0 {
        Ok(Reply::Peeked(outcome)) => outcome.remaining,
        other => panic!("it is looked at, but {other:?}"),
    };
    assert!(left(Op::Peek(part(3, 1))) >= 99);
    assert_eq!(node.ask(Op::Debit([part(3, 90)].into_iter().collect())).answer().0, Ok(Reply::Returned));
    assert!(left(Op::Peek(part(3, 1))) < 60, "a debit is spent");
    let Ok(Reply::Grant(grant)) = node.ask(add(2, 5)).answer().0 else { panic!("a renewal is answered") };
    assert!(grant.tokens >= 5.0 && grant.epoch > 0 && grant.lasts_ns > 0, "{grant:?}");
}

/// What was admitted while Redis was away is counted up to one limit beyond; a cost that is known later whole.
#[test]
fn after_an_outage_one_limit_is_owed_at_most() {
    let redis = Redis::start(&[]);
    let node = Node::shipped(config(Topology::Single(vec![redis.server()])));
    let [limit, period_ns] =
        [100, 3_600_000_000_000].map(|number| NonZeroU64::new(number).expect("positive"));
    let algorithms = [Algorithm::TokenBucket, Algorithm::FixedWindow, Algorithm::SlidingWindow];
    for (algorithm, key) in algorithms.into_iter().zip((1..).step_by(2)) {
        let quota = Quota::new(algorithm, limit, period_ns, limit);
        let sharing = Sharing::new(&quota, 0.0, WhenDown::Local);
        let plan = Arc::new(Plan { policy: "p".into(), quota, sharing });
        let part = |key, cost| ExactCharge { plan: Arc::clone(&plan), ..part(key, cost) };
        let periods = |key| match node.ask(Op::Peek(part(key, 1))).answer().0 {
            Ok(Reply::Peeked(outcome)) => {
                outcome.retry_after_ns().unwrap_or_default() as f64 / period_ns.get() as f64
            }
            other => panic!("it is looked at, but {other:?}"),
        };
        for _ in 0..3 {
            let repaid = node.ask(Op::Repay([part(key, 400)].into_iter().collect()));
            assert_eq!(repaid.answer().0, Ok(Reply::Returned));
            let debited = node.ask(Op::Debit([part(key + 1, 400)].into_iter().collect()));
            assert_eq!(debited.answer().0, Ok(Reply::Returned));
        }
        assert!((0.5..2.1).contains(&periods(key)), "{algorithm:?}: {}", periods(key));
        assert!((9.0..13.0).contains(&periods(key + 1)), "{algorithm:?}: {}", periods(key + 1));
    }
}

/// A server that has lost its data gets no units back that were charged before.
#[test]
fn units_that_redis_has_lost_are_not_returned() {
    let mut redis = Redis::start(&[]);
    let node = Node::shipped(config(Topology::Single(vec![redis.server()])));
    let number = |number| NonZeroU64::new(number).expect("positive");
    let plan = |algorithm| {
        let quota = Quota::new(algorithm, number(100), number(3_600_000_000_000), number(100));
        let sharing = Sharing::new(&quota, 0.0, WhenDown::Local);
        Arc::new(Plan { policy: "p".into(), quota, sharing })
    };
    let of = |algorithm, cost| {
        let part = ExactCharge { plan: plan(algorithm), ..part(algorithm.number().into(), cost) };
        [part].into_iter().collect()
    };
    let take = |algorithm, cost| match node.ask(Op::Take(of(algorithm, cost))).answer().0 {
        Ok(Reply::Taken(taken)) => (taken.outcomes[0].remaining, taken.at_us),
        other => panic!("it is taken, but {other:?}"),
    };
    let give_back = |algorithm, cost, taken_us| {
        let parts = of(algorithm, cost);
        assert_eq!(node.ask(Op::Return { parts, taken_us }).answer().0, Ok(Reply::Returned));
    };
    for algorithm in ALGORITHMS {
        let whole = take(algorithm, 0).0;
        let (_, before_us) = take(algorithm, 40);
        give_back(algorithm, 3, before_us);
        assert_eq!(take(algorithm, 0).0, whole - 37, "{algorithm:?}");
        redis.kill();
        redis.restart();
        eventually("it is connected again", || node.ask(Op::Peek(part(1, 1))).answer().0.ok());
        let (left, taken_us) = take(algorithm, 40);
        assert_eq!(left, whole - 40, "{algorithm:?}");
        give_back(algorithm, 30, before_us);
        give_back(algorithm, 4, taken_us);
        assert_eq!(take(algorithm, 0).0, whole - 36, "{algorithm:?}");
        // Of keys that went without the server, what was taken since comes back.
        redis.cli(&["FLUSHALL"]);
        let (_, taken_us) = take(algorithm, 40);
        give_back(algorithm, 40, taken_us);
        assert_eq!(take(algorithm, 0).0, whole, "{algorithm:?}");
    }
}

/// What was admitted without Redis uses up what is left, and is never owed.
#[test]
fn after_an_outage_nothing_is_owed() {
    let redis = Redis::start(&[]);
    let node = Node::shipped(config(Topology::Single(vec![redis.server()])));
    let number = |number| NonZeroU64::new(number).expect("positive");
    let year_ns = 365 * 86_400 * 1_000_000_000;
    for (algorithm, key) in Algorithm::ALL[..5].iter().zip(1..) {
        let quota = Quota::new(*algorithm, number(100), number(year_ns), number(100));
        let sharing = Sharing::new(&quota, 0.0, WhenDown::Local);
        let plan = Arc::new(Plan { policy: "p".into(), quota, sharing });
        let part = |cost| ExactCharge { plan: Arc::clone(&plan), ..part(key, cost) };
        let take = || match node.ask(Op::Take([part(1)].into_iter().collect())).answer().0 {
            Ok(Reply::Taken(taken)) => taken,
            other => panic!("it is taken, but {other:?}"),
        };
        let report = |cost, spent_us| {
            let parts = [part(cost)].into_iter().collect();
            assert_eq!(node.ask(Op::Report { parts, spent_us }).answer().0, Ok(Reply::Returned));
        };
        let first = take();
        report(30, first.at_us);
        let left = take().outcomes[0].remaining;
        assert!(left.abs_diff(first.outcomes[0].remaining) == 31, "{algorithm:?}: {left}");
        // Of a window that is over.
        report(30, first.at_us - year_ns / 1_000);
        let is_fixed = *algorithm == Algorithm::FixedWindow;
        assert_eq!(take().outcomes[0].remaining, left - if is_fixed { 1 } else { 31 }, "{algorithm:?}");
        (0..3).for_each(|_| report(400, first.at_us));
        let outcome = take().outcomes[0];
        let wait_ns = outcome.retry_after_ns().unwrap_or_default();
        assert!((1..=year_ns * 11 / 10).contains(&wait_ns), "{algorithm:?}: {outcome:?}");
        assert!(wait_ns <= outcome.reset_ns, "{algorithm:?}: {outcome:?}");
    }
}

#[test]
fn a_look_tells_what_is_left_and_writes_nothing() {
    let redis = Redis::start(&[]);
    let node = Node::shipped(config(Topology::Single(vec![redis.server()])));
    let [limit, period_ns] =
        [100, 3_600_000_000_000].map(|number| NonZeroU64::new(number).expect("positive"));
    let look = |part: &ExactCharge| match node.ask(Op::Look(part.clone())).answer().0 {
        Ok(Reply::Seen(seen)) => seen,
        other => panic!("it is looked at, but {other:?}"),
    };
    let keys = || {
        let keys = redis.cli(&["KEYS", "sg:p*"]);
        let dumped = keys.lines().map(|key| format!("{key} {}", redis.cli(&["DUMP", key])));
        let mut dumped: Vec<_> = dumped.collect();
        dumped.sort();
        dumped
    };
    for algorithm in ALGORITHMS {
        let quota = Quota::new(algorithm, limit, period_ns, limit);
        let sharing = Sharing::new(&quota, 0.0, WhenDown::Local);
        let plan = Arc::new(Plan { policy: "p".into(), quota, sharing });
        let cost = ExactCharge { plan: Arc::clone(&plan), ..part(1, 70) };
        let before = look(&cost);
        assert_eq!(before.unchanged_ns, None, "{algorithm:?}");
        let WindowBalance::Exact(outcome) = before.left else { panic!("{algorithm:?} is exact: {before:?}") };
        assert!(outcome.is_admitted() && outcome.remaining <= 31, "{algorithm:?}: {outcome:?}");
        let took = node.ask(Op::Take([cost.clone()].into_iter().collect())).answer().0;
        assert!(matches!(took, Ok(Reply::Taken(taken)) if taken.admitted), "{algorithm:?}");
        let kept = keys();
        let WindowBalance::Exact(outcome) = look(&cost).left else { panic!("{algorithm:?} is exact") };
        assert!(!outcome.is_admitted() && outcome.remaining <= 31, "{algorithm:?}: {outcome:?}");
        assert_eq!(keys(), kept, "{algorithm:?}");
    }
    let hold = ExactCharge { plan: permits(limit), ..part(2, 60) };
    let taken = node.ask(Op::Hold(Hold { part: hold.clone(), held: 0, lasts_us: 10_000_000 })).answer().0;
    assert!(matches!(taken, Ok(Reply::Taken(taken)) if taken.admitted));
    let kept = keys();
    let WindowBalance::Exact(outcome) = look(&hold).left else { panic!("permits are exact") };
    assert_eq!((outcome.is_admitted(), outcome.remaining), (false, 40));
    // Slow, so that a busy machine finds it as it was left.
    let quota = Quota::new(Algorithm::TokenBucket, limit, period_ns, limit);
    let sharing = Sharing::new(&quota, 0.2, WhenDown::Local);
    let lent = ExactCharge { plan: Arc::new(Plan { policy: "p".into(), quota, sharing }), ..part(3, 1) };
    let whole = LentWindow { level: 100.0, ..LentWindow::default() };
    assert_eq!(look(&lent), WindowRecord { left: WindowBalance::Leased(whole), unchanged_ns: None });
    assert_eq!(keys(), kept);
    let Op::Renew(asked) = add(3, 40) else { panic!("it asks for a lease") };
    let asked = Op::Renew(Renewal { plan: Arc::clone(&lent.plan), ..asked });
    assert!(matches!(node.ask(asked).answer().0, Ok(Reply::Grant(_))));
    let kept = keys();
    let seen = look(&lent);
    let WindowBalance::Leased(lent) = seen.left else { panic!("it is lent: {seen:?}") };
    assert!(lent.level < 61.0 && seen.unchanged_ns.is_some(), "{seen:?}");
    assert_eq!(keys(), kept);
}

/// Until the first renewal a limit that is leased now has the record of its exact charges.
#[test]
fn a_look_reads_what_an_exact_limit_left_to_a_leased_one() {
    let redis = Redis::start(&[]);
    let node = Node::shipped(config(Topology::Single(vec![redis.server()])));
    let positive = |number| NonZeroU64::new(number).expect("positive");
    for algorithm in [Algorithm::TokenBucket, Algorithm::FixedWindow, Algorithm::SlidingWindow] {
        // A sliding window of 20 is a log of units.
        for (key, limit) in [(1, 100), (2, 20), (3, 400)] {
            let plan = |limit, overshoot| {
                let quota =
                    Quota::new(algorithm, positive(limit), positive(36_000_000_000_000), positive(limit));
                let sharing = Sharing::new(&quota, overshoot, WhenDown::Local);
                Arc::new(Plan { policy: "p".into(), quota, sharing })
            };
            let spent = ExactCharge { plan: plan(limit, 0.0), ..part(key, 15) };
            assert!(matches!(
                node.ask(Op::Take([spent].into_iter().collect())).answer().0,
                Ok(Reply::Taken(_))
            ));
            // In no order, as Redis lists keys.
            let kept =
                || redis.cli(&["KEYS", "sg:p*"]).lines().map(|key| redis.cli(&["DUMP", key])).collect();
            let before: BTreeSet<String> = kept();
            let seen = node.ask(Op::Look(ExactCharge { plan: plan(100, 0.2), ..part(key, 1) })).answer().0;
            let Ok(Reply::Seen(WindowRecord { left: WindowBalance::Leased(lent), unchanged_ns: None })) =
                seen
            else {
                panic!("{algorithm:?} {limit}: {seen:?}");
            };
            assert!((85.0..85.1).contains(&lent.level) && lent.out == 0.0, "{algorithm:?} {limit}: {lent:?}");
            assert_eq!(kept(), before);
        }
    }
}

#[test]
fn charges_of_one_call_see_each_other() {
    let redis = Redis::start(&[]);
    let node = Node::shipped(config(Topology::Single(vec![redis.server()])));
    let [limit, other, period_ns] =
        [50, 70, 36_000_000_000_000].map(|number| NonZeroU64::new(number).expect("positive"));
    for algorithm in ALGORITHMS {
        let plans = [limit, other].map(|limit| {
            let quota = Quota::new(algorithm, limit, period_ns, limit);
            let sharing = Sharing::new(&quota, 0.0, WhenDown::Local);
            Arc::new(Plan { policy: format!("p{limit}").into(), quota, sharing })
        });
        let charge =
            |number: usize, cost| ExactCharge { plan: Arc::clone(&plans[number % 2]), ..part(1, cost) };
        // Both windows in turn, alone, in pairs, and one that costs more than a byte says.
        let ops = (0..240).map(|number| match number % 40 {
            38 => Op::Take([charge(0, 1), charge(1, 1)].into_iter().collect()),
            39 => Op::Take([charge(1, 1_000)].into_iter().collect()),
            _ => Op::Take([charge(number, 1)].into_iter().collect()),
        });
        let asked: Vec<_> = ops.map(|op| node.ask(op)).collect();
        let mut lefts = [Vec::new(), Vec::new()];
        for (number, asked) in asked.iter().enumerate() {
            let Ok(Reply::Taken(taken)) = asked.answer().0 else { panic!("{algorithm:?} is taken") };
            let of = if taken.outcomes.len() == 2 { 0..2 } else { number % 2..number % 2 + 1 };
            for (number, outcome) in of.zip(&taken.outcomes).filter(|_| taken.admitted) {
                lefts[number].push(outcome.remaining);
            }
        }
        // Calls that are under way together are answered in any order.
        lefts.iter_mut().for_each(|lefts| lefts.sort_unstable_by(|one, other| other.cmp(one)));
        let left: [Vec<u64>; 2] = [(0..50).rev().collect(), (0..70).rev().collect()];
        match algorithm {
            // One is on its way beside those that wait.
            Algorithm::LeakyBucket => assert_eq!([lefts[0].len(), lefts[1].len()], [51, 71]),
            _ => assert_eq!(lefts, left, "{algorithm:?}"),
        }
    }
}

/// Commands that make a key of each type.
const TYPES: [(&str, &[&str]); 6] = [
    ("string", &["SET", "KEY", "x"]),
    ("list", &["RPUSH", "KEY", "x"]),
    ("hash", &["HSET", "KEY", "x", "y"]),
    ("set", &["SADD", "KEY", "x"]),
    ("zset", &["ZADD", "KEY", "1", "x"]),
    ("stream", &["XADD", "KEY", "*", "x", "y"]),
];

#[test]
fn a_key_of_a_wrong_type_is_a_spent_limit_that_begins_anew() {
    let redis = Redis::start(&[]);
    let node = Node::shipped(config(Topology::Single(vec![redis.server()])));
    let (ten, period) = (10.try_into().expect("positive"), 300_000_000.try_into().expect("positive"));
    for algorithm in ALGORITHMS {
        for overshoot in [0.0, 0.2] {
            let quota = Quota::new(algorithm, ten, period, ten);
            let plan =
                Plan { policy: "p".into(), quota, sharing: Sharing::new(&quota, overshoot, WhenDown::Local) };
            let plan = Arc::new(plan);
            let take = |key| {
                Op::Take([ExactCharge { plan: Arc::clone(&plan), ..part(key, 1) }].into_iter().collect())
            };
            let look = |key| Op::Look(ExactCharge { plan: Arc::clone(&plan), ..part(key, 1) });
            let name = format!("sg:p{}:AAAAAAAAAAAAAAAAAAAAAg", plan.mark() as char);
            for (kind, command) in TYPES {
                redis.cli(&["DEL", &name]);
                redis.cli(
                    &command
                        .iter()
                        .map(|word| if *word == "KEY" { &name } else { *word })
                        .collect::<Vec<_>>(),
                );
                let was = redis.cli(&["DUMP", &name]);
                let looked = node.ask(look(2)).answer().0;
                assert!(
                    looked.is_ok() || looked == Err(LinkError::Refused),
                    "{algorithm:?} {kind}: {looked:?}"
                );
                assert_eq!(redis.cli(&["DUMP", &name]), was, "a look changes nothing");
                // Its neighbours in a call know nothing of it.
                let asked: Vec<_> = (0..60).map(|number| node.ask(take(number % 3 + 1))).collect();
                let mut admitted = 0;
                for (number, asked) in asked.iter().enumerate() {
                    let Ok(Reply::Taken(taken)) = asked.answer().0 else { panic!("{algorithm:?} {kind}") };
                    admitted += usize::from(taken.admitted && number % 3 == 1);
                }
                // A busy machine takes its time.
                assert!(admitted <= 11, "{algorithm:?} {kind}: {admitted}");
                eventually("it begins anew", || match node.ask(take(2)).answer().0 {
                    Ok(Reply::Taken(taken)) => taken.admitted.then_some(()),
                    other => panic!("{algorithm:?} {kind}: {other:?}"),
                });
            }
        }
    }
    assert_eq!(node.status().condition, Condition::Up);
}

#[test]
fn permits_and_leases_of_a_wrong_type_begin_anew() {
    let redis = Redis::start(&[]);
    let node = Node::shipped(config(Topology::Single(vec![redis.server()])));
    let ten = NonZeroU64::new(10).expect("positive");
    for (kind, command) in TYPES {
        for name in ["sg:pc:AAAAAAAAAAAAAAAAAAAAAg", "sg:pT:AAAAAAAAAAAAAAAAAAAAAg"] {
            redis.cli(&["DEL", name]);
            redis.cli(
                &command.iter().map(|word| if *word == "KEY" { name } else { *word }).collect::<Vec<_>>(),
            );
        }
        let hold =
            Hold { part: ExactCharge { plan: permits(ten), ..part(2, 4) }, held: 0, lasts_us: 5_000_000 };
        let held = node.ask(Op::Hold(hold)).answer().0;
        assert!(
            matches!(&held, Ok(Reply::Taken(taken)) if taken.admitted) || kind == "hash",
            "{kind}: {held:?}"
        );
        let renewed = node.ask(add(2, 1)).answer().0;
        assert!(matches!(renewed, Ok(Reply::Grant(_))), "{kind}: {renewed:?}");
    }
    assert_eq!(node.status().counts.refused, 0);
}

#[test]
fn keys_that_were_replaced_are_one_line_in_the_log() {
    let redis = Redis::start(&[]);
    let gateway = Gateway::start(&format!(
        "[[route]]\npath = \"/{{name}}\"\nlimit = \"p\"\nrespond = {{ status = 200, body = \"\" }}\n\
         [policy.p]\nby = [\"param:name\"]\nlimit = \"2/s\"\novershoot = 0\n\
         [redis]\nurl = \"redis://{}\"\ndeadline = \"1s\"\n",
        redis.addr()
    ));
    eventually("it is up", || (gateway.metric("sluicegate_redis_up", &[]) > 0.5).then_some(()));
    for name in ["a", "b", "c"] {
        assert_eq!(gateway.get(&format!("/{name}")).status, 200);
    }
    let keys = redis.cli(&["KEYS", "sg:p*"]);
    for key in keys.lines() {
        redis.cli(&["DEL", key]);
        redis.cli(&["HSET", key, "x", "y"]);
    }
    let before = gateway.metric("sluicegate_decisions_by_total", &["tier=\"fallback\""]);
    for name in ["a", "b", "c"] {
        eventually("it begins anew", || (gateway.get(&format!("/{name}")).status == 200).then_some(()));
    }
    assert_eq!(gateway.metric("sluicegate_decisions_by_total", &["tier=\"fallback\""]), before);
    let lines = || gateway.stderr().iter().filter(|line| line.contains("Redis keys of a wrong type")).count();
    eventually("the log says so", || (lines() == 1).then_some(()));
}

fn permits(limit: NonZeroU64) -> Arc<Plan> {
    let second = NonZeroU64::new(1_000_000_000).expect("positive");
    let quota = Quota::new(Algorithm::Concurrency, limit, second, limit);
    Arc::new(Plan { policy: "p".into(), quota, sharing: Sharing::new(&quota, 0.0, WhenDown::Local) })
}

#[test]
fn a_policy_that_counts_in_another_way_goes_on_with_what_is_spent() {
    let redis = Redis::start(&[]);
    let node = Node::shipped(config(Topology::Single(vec![redis.server()])));
    let [limit, period_ns] =
        [100, 3_600_000_000_000].map(|number| NonZeroU64::new(number).expect("positive"));
    for algorithm in ALGORITHMS {
        // What is never lent has one plan, not two.
        let ways = if is_never_lent(algorithm) { &[0.0][..] } else { &[0.0, 0.2] };
        for (before, overshoot) in ways.iter().enumerate() {
            let quota = Quota::new(algorithm, limit, period_ns, limit);
            let sharing = Sharing::new(&quota, *overshoot, WhenDown::Local);
            let plan = Arc::new(Plan { policy: "p".into(), quota, sharing });
            let took =
                node.ask(Op::Take([ExactCharge { plan, ..part(1, 40) }].into_iter().collect())).answer().0;
            let Ok(Reply::Taken(taken)) = took else { panic!("{algorithm:?} is taken, but {took:?}") };
            let left = 60 - 40 * before as u64;
            let remaining = taken.outcomes[0].remaining;
            assert!(taken.admitted && (left..=left + 2).contains(&remaining), "{algorithm:?}: {taken:?}");
        }
    }
}

fn is_never_lent(algorithm: Algorithm) -> bool {
    matches!(algorithm, Algorithm::SlidingLog | Algorithm::LeakyBucket)
}

#[test]
fn a_server_is_spoken_to_over_tls_by_an_acl_user_with_no_more_rights_than_it_needs() {
    let directory = Directory::new();
    tls::certify(&directory, "redis", &["127.0.0.1"]);
    tls::certify(&directory, "stranger", &["127.0.0.1"]);
    let file = |name: &str| directory.join(name).display().to_string();
    let port = free_port();
    let redis = Redis::start(&[
        "--tls-port",
        &port.to_string(),
        "--tls-cert-file",
        &file("redis.pem"),
        "--tls-key-file",
        &file("redis.key"),
        "--tls-ca-cert-file",
        &file("redis.pem"),
        "--tls-auth-clients",
        "no",
    ]);
    let rights = ["~sg:*", "+@read", "+@write", "+@scripting", "+@connection", "+time"];
    redis.cli(&[&["ACL", "SETUSER", "gw", "on", ">word"], rights.as_slice()].concat());
    let login = Login { username: Some("gw".to_owned()), password: Some(Secret("word".to_owned())), db: 0 };
    let server = Server { host: "127.0.0.1".to_owned(), port, tls: true, login };
    let trusting = |ca: &str| {
        let topology = Topology::Single(vec![server.clone()]);
        Node::shipped(Config { ca: Some(directory.join(ca)), ..config(topology) })
    };
    let node = trusting("redis.pem");
    // A handshake may be too slow for a connection; the next is tried, and none of a stranger's is ever good.
    let ask = || node.ask(Op::Take([part(1, 1)].into_iter().collect())).answer().0;
    let taken = eventually("the server answers", || ask().ok());
    assert!(matches!(taken, Reply::Taken(taken) if taken.admitted));
    assert!(node.status().version.is_some_and(|version| version.contains('.')), "its version is known");
    // It is connected to again, and asked what it is, and asked again after a while.
    redis.cli(&["CLIENT", "KILL", "TYPE", "normal"]);
    eventually("the server answers", || ask().ok());
    assert_eq!(redis.cli(&["ACL", "LOG"]).trim(), "", "nothing is tried that is not allowed");
    let stranger = trusting("stranger.pem");
    eventually("who is not trusted is told so", || {
        let condition = stranger.status().condition;
        assert_ne!(condition, Condition::Up);
        (condition == Condition::Failing).then_some(())
    });
}

#[test]
fn permits_are_counted_over_all_gateways_and_lapse_with_them() {
    let redis = Redis::start(&[]);
    let nodes = [(); 2].map(|()| Node::shipped(config(Topology::Single(vec![redis.server()]))));
    // At most 100 in flight.
    let hold = |node: &Node, held: u64, more: u64, lasts: Duration| {
        let lasts_us = u64::try_from(lasts.as_micros()).expect("a short time");
        match node.ask(Op::Hold(Hold { part: part(1, more), held, lasts_us })).answer().0 {
            Ok(Reply::Taken(taken)) => (taken.admitted, taken.outcomes[0].remaining),
            other => panic!("it is held or not, but not {other:?}"),
        }
    };
    let long = Duration::from_secs(60);
    assert_eq!(hold(&nodes[0], 0, 70, long), (true, 30));
    assert_eq!(hold(&nodes[1], 0, 20, long), (true, 10));
    assert!(!hold(&nodes[1], 20, 20, long).0);
    // The last it hears of the first.
    assert_eq!(hold(&nodes[0], 70, 0, Duration::from_millis(300)), (true, 10));
    eventually("those of a gateway that is silent lapse", || hold(&nodes[1], 20, 20, long).0.then_some(()));
    assert_eq!(hold(&nodes[1], 5, 0, long), (true, 95));
}
