//! What operators are shown of a shared key: what Redis holds beside what the node knows, and nothing is spent for it.

use std::time::{Duration, Instant};

use crate::support::gateway::binary;
use crate::support::redis::Redis;
use crate::support::{Directory, Gateway, eventually, text};

fn config(redis: &Redis, policy: &str) -> String {
    format!(
        "[[route]]\npath = \"/{{*rest}}\"\nlimit = \"p\"\nto = \"echo\"\n[policy.p]\nby = [\"ip\"]\n{policy}\n\
         [redis]\nurl = \"redis://{}\"\ndeadline = \"1s\"\n",
        redis.addr()
    )
}

/// A gateway that is connected.
fn node(redis: &Redis, policy: &str) -> Gateway {
    let gateway = Gateway::start(&config(redis, policy));
    eventually("it is connected", || {
        (gateway.metric("sluicegate_redis_connects_total", &[]) > 0.0).then_some(())
    });
    gateway
}

fn spend(gateway: &Gateway, requests: usize) {
    let mut client = gateway.client();
    (0..requests).for_each(|_| assert_eq!(client.request("GET", "/", &[], "").status, 200));
}

/// What a node shows of the window of this key.
fn shown(gateway: &Gateway) -> serde_json::Value {
    gateway.admin("/v1/keys/p/127.0.0.1").json()["windows"][0].clone()
}

fn explained(gateway: &Gateway) -> serde_json::Value {
    gateway.admin("/v1/explain?url=/&from=127.0.0.1").json()["limits"][0].clone()
}

/// All that is kept of limits, as it is kept.
fn kept(redis: &Redis) -> Vec<String> {
    let keys = redis.cli(&["KEYS", "sg:p*"]);
    let mut kept: Vec<_> = keys.lines().map(|key| format!("{key} {}", redis.cli(&["DUMP", key]))).collect();
    kept.sort();
    kept
}

const EXACT: &str = "limit = \"10/d\"\novershoot = 0";

#[test]
fn a_gateway_that_saw_nothing_shows_what_others_spent() {
    let redis = Redis::start(&[]);
    let [first, second] = [0, 1].map(|_| node(&redis, EXACT));
    spend(&first, 3);
    let kept_before = kept(&redis);
    for _ in 0..3 {
        let window = shown(&second);
        assert_eq!(window["redis"], "answers", "{window}");
        assert_eq!(window["at-redis"]["left"], 7, "{window}");
        assert!(window["at-redis"]["changed-seconds-ago"].as_f64().is_some(), "{window}");
        let limit = explained(&second);
        assert_eq!((&limit["remaining"], &limit["admitted"]), (&6.into(), &true.into()), "{limit}");
        assert!(limit["said"].as_str().is_some_and(|said| said.contains("according to Redis")), "{limit}");
    }
    assert_eq!(kept(&redis), kept_before);
    spend(&first, 7);
    let limit = explained(&second);
    assert_eq!((&limit["remaining"], &limit["admitted"]), (&0.into(), &false.into()), "{limit}");
}

#[test]
fn a_leased_window_shows_who_holds_how_much() {
    let redis = Redis::start(&[]);
    let [first, second] = [0, 1].map(|_| node(&redis, "limit = \"5000/h\"\novershoot = \"5%\""));
    spend(&first, 500);
    let window = eventually("a lease is out", || {
        spend(&first, 1);
        let window = shown(&second);
        (window["at-redis"]["nodes"] == 1).then_some(window)
    });
    let number = |name: &str| window["at-redis"][name].as_f64().expect("a number");
    assert!(number("left") < 4_900.0 && number("left") + number("leased-to-nodes") <= 5_000.0, "{window}");
    assert_eq!(window["shared"], "leased");
    let limit = explained(&second);
    let said = limit["said"].as_str().expect("it is said");
    assert!(limit["remaining"].as_u64().is_some_and(|left| left < 4_900), "{limit}");
    assert!(said.contains("Redis has ") && said.contains(" are leased to 1 node"), "{said}");
}

#[test]
fn a_gateway_without_a_lease_admits_no_more_than_redis_has() {
    let redis = Redis::start(&[]);
    let [first, second] = [0, 1].map(|_| node(&redis, "limit = \"100/365d\"\nalgorithm = \"fixed-window\""));
    let mut client = first.client();
    eventually("it is spent", || (client.request("GET", "/", &[], "").status == 429).then_some(()));
    // Units that the first gateway holds may come back, until its leases are over.
    eventually("it is all spent", || {
        client.request("GET", "/", &[], "");
        let store = shown(&second)["at-redis"].clone();
        (store["leased-to-nodes"] == 0.0 && store["left"] == 0.0).then_some(())
    });
    let limit = explained(&second);
    assert_eq!((&limit["remaining"], &limit["admitted"]), (&0.into(), &false.into()), "{limit}");
    assert_eq!(shown(&second)["remaining"], 0);
    assert_eq!(second.get("/").status, 429);
}

#[test]
fn a_redis_that_is_away_or_slow_is_said_to_be() {
    let mut redis = Redis::start(&[]);
    let node = node(&redis, EXACT);
    spend(&node, 3);
    redis.cli(&["CLIENT", "PAUSE", "20000"]);
    let begin = Instant::now();
    assert_eq!(shown(&node)["redis"], "late");
    // The deadline of this configuration is a second.
    assert!(begin.elapsed() < Duration::from_secs(10), "{:?}", begin.elapsed());
    redis.kill();
    let window = eventually("it is noticed", || {
        let window = shown(&node);
        (window["redis"] == "away").then_some(window)
    });
    assert_eq!(window["at-redis"], serde_json::Value::Null);
    assert!(window["remaining"].as_u64().is_some_and(|left| left <= 7), "{window}");
    let limit = explained(&node);
    assert!(limit["said"].as_str().is_some_and(|said| said.contains("Redis is down")), "{limit}");
    redis.restart();
    eventually("it is back", || (shown(&node)["redis"] == "answers").then_some(()));
}

#[test]
fn explain_asks_redis_where_no_gateway_runs() {
    let mut redis = Redis::start(&[]);
    let config = config(&redis, EXACT);
    let first = node(&redis, EXACT);
    spend(&first, 4);
    let directory = Directory::new();
    let file = directory.write("gateway.toml", format!("admin = false\n{config}")).display().to_string();
    let explain = || {
        let arguments = ["explain", "GET", "/", "--from", "127.0.0.1", "--config", &file];
        let output = binary().args(arguments).output().expect("the binary under test can be started");
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        text(&output.stdout).to_string()
    };
    let kept_before = kept(&redis);
    for _ in 0..2 {
        let said = explain();
        assert!(said.contains("admitted, 5 left after it; according to Redis"), "{said}");
        assert!(said.contains("explained from the file and Redis"), "{said}");
    }
    assert_eq!(kept(&redis), kept_before);
    let members = redis.cli(&["KEYS", "*"]);
    let census = members.lines().find(|key| redis.cli(&["TYPE", key]).trim() == "zset").expect("a census");
    assert_eq!(redis.cli(&["ZCARD", census]).trim(), "1", "who only looks is no gateway");
    redis.kill();
    let said = explain();
    assert!(said.contains("only a running gateway knows how many units remain; Redis is down"), "{said}");
    assert!(said.contains("explained from the file only"), "{said}");
}
