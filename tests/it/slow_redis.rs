//! A Redis that answers later than a request may wait: leases are renewed ahead of need, and limits hold.

use std::thread;
use std::time::{Duration, Instant};

use crate::support::redis::Redis;
use crate::support::toxic::Toxic;
use crate::support::{Client, Gateway, eventually, heavy};

/// A gateway whose answers from Redis take so long.
fn node(toxic: &Toxic, policy: &str) -> Gateway {
    node_with(toxic, policy, "")
}

fn node_with(toxic: &Toxic, policy: &str, redis: &str) -> Gateway {
    let gateway = Gateway::start(&format!(
        "[[route]]\npath = \"/{{*rest}}\"\nlimit = \"p\"\nrespond = {{ status = 200, body = \"\" }}\n\
         [policy.p]\nby = []\n{policy}\n[redis]\nurl = \"redis://{}\"\n{redis}\n",
        toxic.addr()
    ));
    eventually("it is connected", || {
        (gateway.metric("sluicegate_redis_connects_total", &[]) > 0.0).then_some(())
    });
    gateway
}

/// Asks `rate` times a second over one connection for so long; how many were admitted, and how many asked for.
fn ask_steadily(mut client: Client, rate: u64, time: Duration) -> (u64, u64) {
    let (begun, gap) = (Instant::now(), Duration::from_nanos(1_000_000_000 / rate));
    let (mut admitted, mut asked) = (0, 0);
    while begun.elapsed() < time {
        client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        let status = client.response().status;
        assert_ne!(status, 503, "Redis is late, not down");
        admitted += u64::from(status == 200);
        asked += 1;
        // Its own pace, which no condition of the gateway's could give.
        thread::sleep((begun + gap * asked as u32).saturating_duration_since(Instant::now()));
    }
    (admitted, asked)
}

#[test]
fn a_slow_redis_keeps_limits_within_their_overshoot() {
    let _alone = heavy();
    let redis = Redis::start(&[]);
    let toxic = Toxic::start(redis.addr());
    for (limit, way_ms) in [(100, 4), (100, 40), (10, 20)] {
        toxic.delay(Duration::ZERO);
        let gateway = node(&toxic, &format!("limit = \"{limit}/s\""));
        toxic.delay(Duration::from_millis(way_ms));
        // It takes some answers to know that they come late.
        ask_steadily(gateway.client(), limit * 2, Duration::from_secs(2));
        let decided =
            |tier: &str| gateway.metric("sluicegate_decisions_by_total", &[&format!("tier=\"{tier}\"")]);
        let (seconds, mut said) = (4, Vec::new());
        // What waits for the processor is late, too, and decided without Redis: on a busy machine the best of three counts.
        let is_right = (0..3).any(|_| {
            let (begun, before) = (Instant::now(), decided("fallback"));
            let (admitted, asked) = ask_steadily(gateway.client(), limit * 2, Duration::from_secs(seconds));
            // A twentieth of a second's units and of the burst, beside what refilled; nothing was left before.
            let refilled = (limit as f64 * begun.elapsed().as_secs_f64()).ceil() as u64;
            let (least, most) = (limit * seconds * 8 / 10, refilled + limit / 10 + 2);
            let late = decided("fallback") - before;
            said.push(format!(
                "{admitted} of {asked}, from {least} to {most} are right, {late} without Redis"
            ));
            assert!(decided("local") + decided("fallback") >= asked as f64, "every decision has its tier");
            (least..=most).contains(&admitted) && late * 10.0 <= asked as f64
        });
        assert!(is_right, "{limit}/s, {way_ms} ms: {said:?}");
        redis.cli(&["FLUSHALL"]);
    }
}

#[test]
fn a_slow_redis_refuses_no_request_far_within_a_long_window() {
    let _alone = heavy();
    let redis = Redis::start(&[]);
    let toxic = Toxic::start(redis.addr());
    for algorithm in ["token-bucket", "fixed-window", "sliding-window"] {
        toxic.delay(Duration::ZERO);
        let gateway = node(&toxic, &format!("limit = \"1000/h\"\nalgorithm = \"{algorithm}\""));
        toxic.delay(Duration::from_millis(20));
        let (admitted, asked) = ask_steadily(gateway.client(), 60, Duration::from_secs(3));
        assert_eq!(admitted, asked, "{algorithm}");
        redis.cli(&["FLUSHALL"]);
    }
}

#[test]
fn an_exact_limit_is_one_for_nodes_that_redis_answers_late() {
    let _alone = heavy();
    let redis = Redis::start(&[]);
    let toxic = Toxic::start(redis.addr());
    for when_down in ["local", "deny"] {
        redis.cli(&["FLUSHALL"]);
        toxic.delay(Duration::ZERO);
        let policy = format!("limit = \"20/s\"\novershoot = 0\nwhen-redis-down = \"{when_down}\"");
        let nodes = [(); 2].map(|()| node_with(&toxic, &policy, "deadline = \"2ms\""));
        toxic.delay(Duration::from_millis(12));
        // It takes some answers to know that they come late.
        let ask = |node: &Gateway, time| ask_steadily(node.client(), 30, time);
        let ask_both = |time| {
            thread::scope(|scope| {
                let other = scope.spawn(|| ask(&nodes[1], time));
                ask(&nodes[0], time).0 + other.join().expect("it does not panic").0
            })
        };
        ask_both(Duration::from_secs(2));
        let begun = Instant::now();
        let admitted = ask_both(Duration::from_secs(4));
        let right = 20.0 * begun.elapsed().as_secs_f64();
        assert!((admitted as f64) <= right * 1.02 + 2.0, "{when_down}: {admitted} of {right}");
        assert!((admitted as f64) >= right * 0.9, "{when_down}: {admitted} of {right}");
    }
}
