//! Exact windows in a rush and over an outage: Redis decides every request, or counts afterwards what was decided without
//! it.

use std::net::SocketAddr;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use std::{slice, thread};

use crate::support::redis::Redis;
use crate::support::toxic::Toxic;
use crate::support::{Gateway, eventually, heavy, text};

/// A fleet with one policy `p`.
fn fleet(redis: SocketAddr, nodes: usize, policy: &str, deadline: &str) -> Vec<Gateway> {
    let start = |_| {
        let gateway = Gateway::start(&format!(
            "[[route]]\npath = \"/{{*rest}}\"\nlimit = \"p\"\nrespond = {{ status = 200, body = \"\" }}\n\
             [policy.p]\nby = []\n{policy}\n[redis]\nurl = \"redis://{}\"\ndeadline = \"{deadline}\"\n",
            redis
        ));
        eventually("it is connected", || (gateway.metric("sluicegate_redis_up", &[]) > 0.0).then_some(()));
        gateway
    };
    (0..nodes).map(start).collect()
}

/// Sends so many requests to each gateway at once: how many were admitted.
fn rush(gateways: &[Gateway], each: usize) -> usize {
    thread::scope(|scope| {
        let rushes: Vec<_> = gateways
            .iter()
            .map(|gateway| {
                scope.spawn(move || {
                    let output = Command::new("h2load")
                        .args(["-n", &each.to_string(), "-c", "10", "-m", "100", "-t", "1"])
                        .arg(format!("http://{}/", gateway.plain()))
                        .stderr(Stdio::null())
                        .output()
                        .expect("h2load is installed (tests/all does it)");
                    let said = text(&output.stdout);
                    let codes = said.lines().find_map(|line| line.strip_prefix("status codes: "));
                    let codes = codes.unwrap_or_else(|| panic!("h2load says of statuses: {said}"));
                    let count = |kind: &str| {
                        let code = codes.split(", ").find_map(|code| code.strip_suffix(kind));
                        code.and_then(|count| count.trim().parse::<usize>().ok()).expect("it counts them")
                    };
                    assert_eq!(count("2xx") + count("4xx"), each, "{said}");
                    count("2xx")
                })
            })
            .collect();
        rushes.into_iter().map(|rush| rush.join().expect("no rush panics")).sum()
    })
}

/// Requests that were decided without Redis.
fn fallback(gateways: &[Gateway]) -> f64 {
    gateways
        .iter()
        .map(|gateway| gateway.metric("sluicegate_decisions_by_total", &["tier=\"fallback\""]))
        .sum()
}

/// Starts a fleet, and lets 1,800 requests come at once: how many are admitted, how many of these are what comes back
/// meanwhile, and how many were decided without Redis; and whether all connections stayed.
fn burst(nodes: usize, policy: &str, deadline: &str) -> ((usize, f64, f64), bool) {
    let redis = Redis::start(&[]);
    let gateways = fleet(redis.addr(), nodes, &format!("{policy}\novershoot = 0"), deadline);
    eventually("they know each other", || {
        (redis.cli(&["ZCARD", "sg:!nodes"]).trim() == nodes.to_string()).then_some(())
    });
    let connects = || -> f64 {
        gateways.iter().map(|gateway| gateway.metric("sluicegate_redis_connects_total", &[])).sum()
    };
    let (begin, before) = (Instant::now(), connects());
    let admitted = rush(&gateways, 1_800 / nodes);
    let minutes = begin.elapsed().as_secs_f64() / 60.0;
    ((admitted, minutes, fallback(&gateways)), connects() == before)
}

/// The most that a limit by the minute admits, and one of a hundred.
fn most(algorithm: &str, limit: usize, minutes: f64) -> usize {
    let refilled = if algorithm == "token-bucket" { limit as f64 * minutes } else { 0.0 };
    (limit as f64 * 1.01 + refilled).ceil() as usize
}

/// By a minute, so that nothing to speak of comes back however busy the machine is.
fn policy(algorithm: &str, limit: usize) -> String {
    format!("limit = \"{limit}/m\"\nalgorithm = \"{algorithm}\"")
}

#[test]
fn a_rush_on_an_exact_window_admits_what_it_holds() {
    let _alone = heavy();
    for algorithm in ["sliding-log", "sliding-window", "token-bucket"] {
        for (nodes, limit) in [(1, 100), (3, 1_000), (3, 100)] {
            // A busy machine is slow, and that is not what is looked at.
            let ((admitted, minutes, fallback), _) = burst(nodes, &policy(algorithm, limit), "1s");
            let most = most(algorithm, limit, minutes);
            assert!(
                (limit..=most + fallback as usize).contains(&admitted),
                "{algorithm}: {admitted} of {limit}, {nodes} gateways"
            );
            assert!(fallback <= 18.0, "{algorithm}: {fallback} of 1,800 late");
        }
    }
}

#[test]
fn several_logs_of_one_policy_are_asked_for_together() {
    let _alone = heavy();
    let policy = "limit = [\"100/m\", \"1000/h\"]\nalgorithm = \"sliding-log\"";
    let ((admitted, _, fallback), _) = burst(3, policy, "1s");
    assert_eq!((admitted, fallback), (100, 0.0));
}

/// Spends 40 of 100 at a gateway that waits for no answer, and the rest at another: how many are left for that one, how
/// many were late, and whether all connections stayed.
fn spend_late(algorithm: &str) -> ((usize, f64), bool) {
    let redis = Redis::start(&[]);
    let toxic = Toxic::start(redis.addr());
    let policy = format!("limit = \"100/d\"\nalgorithm = \"{algorithm}\"\novershoot = 0");
    let slow = &fleet(toxic.addr(), 1, &policy, "5ms")[0];
    let other = &fleet(redis.addr(), 1, &policy, "1s")[0];
    eventually("they know each other", || (redis.cli(&["ZCARD", "sg:!nodes"]).trim() == "2").then_some(()));
    let spend = |gateway: &Gateway, requests: usize| {
        let mut client = gateway.client();
        (0..requests).filter(|_| client.get("/").status == 200).count()
    };
    let connects = || slow.metric("sluicegate_redis_connects_total", &[]);
    let before = connects();
    toxic.delay(Duration::from_millis(25));
    assert_eq!(spend(slow, 40), 40, "{algorithm}");
    toxic.delay(Duration::ZERO);
    eventually("answers come in time again", || {
        (slow.metric("sluicegate_redis_in_time", &[]) == 1.0).then_some(())
    });
    let is_certain = connects() == before;
    ((spend(other, 90), fallback(slice::from_ref(slow))), is_certain)
}

/// The first of five tries in which every connection stayed. Of what a connection carried that a busy machine made silent
/// nobody knows whether it was done.
fn certain<T>(what: &str, attempt: impl FnMut() -> (T, bool)) -> Option<T> {
    let certain =
        std::iter::repeat_with(attempt).take(5).find_map(|(seen, is_certain)| is_certain.then_some(seen));
    if certain.is_none() {
        eprintln!("{what}: connections broke in each of five tries on this machine");
    }
    certain
}

#[test]
fn what_is_late_is_counted_once() {
    let _alone = heavy();
    for algorithm in ["sliding-log", "sliding-window", "token-bucket"] {
        let Some((left, late)) = certain(algorithm, || spend_late(algorithm)) else { continue };
        // Not counted, each late one would leave room for one more; counted twice, for one less. A few are still to be told.
        assert!((50..=65).contains(&left), "{algorithm}: {left} of the 60 that are left, {late} late");
        assert!(late >= 20.0, "{algorithm}: {late} of 40 late");
    }
}

#[test]
fn a_rush_that_is_late_in_part_loses_nothing() {
    let _alone = heavy();
    for algorithm in ["sliding-log", "sliding-window", "token-bucket"] {
        for limit in [100, 1_000] {
            let rush = || burst(1, &policy(algorithm, limit), "2ms");
            let Some((admitted, minutes, fallback)) = certain(algorithm, rush) else { continue };
            // Redis may give what is left to some that wait while late ones take it here: one too many of each at most.
            let most = most(algorithm, limit, minutes) + fallback as usize;
            assert!(admitted <= most, "{algorithm}: {admitted} of {limit}, {fallback} late");
            assert!(admitted >= limit - limit / 20, "{algorithm}: {admitted} of {limit}, {fallback} late");
        }
    }
}

#[test]
fn few_questions_are_asked_however_many_requests_come() {
    let _alone = heavy();
    let redis = Redis::start(&[]);
    let gateways = fleet(redis.addr(), 1, &format!("{}\novershoot = 0", policy("sliding-log", 500)), "1s");
    let operations = || gateways[0].metric("sluicegate_redis_operations_total", &[]);
    let before = operations();
    assert_eq!(rush(&gateways, 1_800), 500);
    let asked = operations() - before;
    assert!(asked < 600.0, "{asked} operations");
}

#[test]
fn requests_admitted_in_an_outage_are_reported_after_it() {
    for algorithm in ["token-bucket", "fixed-window", "sliding-window", "sliding-log"] {
        let mut redis = Redis::start(&[]);
        let policy = format!("limit = \"200/d\"\nalgorithm = \"{algorithm}\"\novershoot = 0");
        let gateways = fleet(redis.addr(), 2, &policy, "1s");
        let spend = |gateway: &Gateway, requests: usize| {
            let mut client = gateway.client();
            (0..requests).filter(|_| client.get("/").status == 200).count()
        };
        redis.kill();
        let metric = |name: &'static str| move |gateway: &Gateway| gateway.metric(name, &[]);
        let (up, operations) = (metric("sluicegate_redis_up"), metric("sluicegate_redis_operations_total"));
        eventually("the gateways have noticed", || {
            gateways.iter().all(|gateway| up(gateway) == 0.0).then_some(())
        });
        let alone = spend(&gateways[0], 90) + spend(&gateways[1], 60);
        assert_eq!(alone, 150, "{algorithm}: each has its own part");
        let before: Vec<f64> = gateways.iter().map(operations).collect();
        redis.restart();
        eventually("each has told what it admitted", || {
            let has_told = |(gateway, before): (&Gateway, &f64)| operations(gateway) > *before;
            gateways.iter().zip(&before).all(has_told).then_some(())
        });
        eventually("requests are Redis's to decide", || {
            gateways.iter().all(|gateway| up(gateway) > 0.0).then_some(())
        });
        let after = spend(&gateways[0], 60) + spend(&gateways[1], 60);
        assert!((49..=52).contains(&after), "{algorithm}: {after} of the 50 that are left");
    }
}
