//! What was spent stays spent where a limit changes: whatever changes it, whichever way it goes, alone and over a Redis,
//! and whether the window is lent or decided exactly on either side.

use serde_json::json;

use crate::auth::keys::hashed;
use crate::support::gateway::complete;
use crate::support::redis::Redis;
use crate::support::{Directory, Gateway, eventually};

/// Spent of the limit of before, and the limit of now. A window of fewer than ten units is never lent, nor is a sliding one
/// of a few tens.
const CASES: [(u64, u64, u64); 5] = [(20, 20, 100), (5, 5, 50), (50, 50, 5), (60, 70, 50), (30, 100, 45)];
const SOURCES: [&str; 4] = ["override", "tier", "put", "reload"];

/// A policy for each case of each source; of those that a reload changes the limit of now, if `is_after`.
fn config(algorithm: &str, more: &str, redis: &str, is_after: bool) -> String {
    let mut config = format!(
        "[database]\nurl = \"sqlite:state.db\"\nsingle-node = true\n[admin]\nbind = \"127.0.0.1:0\"\n\
         tokens = [{{ name = \"a\", token = \"admin-1\", role = \"admin\" }}]\n\
         [auth.keys]\nkind = \"api-key\"\nkeys = {{ file = \"keys.toml\" }}\n{redis}\n"
    );
    for source in SOURCES {
        for (case, (_, before, now)) in CASES.into_iter().enumerate() {
            let limit = match source {
                "tier" => format!("{{ free = \"{before}/d\", pro = \"{now}/d\", default = \"{before}/d\" }}"),
                "reload" if is_after => format!("\"{now}/d\""),
                _ => format!("\"{before}/d\""),
            };
            config += &format!(
                "[policy.{source}-{case}]\nby = [\"consumer\"]\nalgorithm = \"{algorithm}\"\nlimit = {limit}\n{more}\n\
                 [[route]]\npath = \"/{source}/{case}\"\nauth = \"keys\"\nlimit = \"{source}-{case}\"\nrespond = {{}}\n"
            );
        }
    }
    config
}

fn whatever_changes_the_limit(algorithm: &str, more: &str, redis: Option<&Redis>) {
    let directory = Directory::new();
    directory.write("keys.toml", hashed("ann", &["--consumer", "ann", "--tier", "free"]) + "\n");
    let at = redis.map_or_else(String::new, |redis| {
        format!("[redis]\nurl = \"redis://{}\"\ndeadline = \"1s\"", redis.addr())
    });
    let database = format!("sqlite:{}", directory.join("state.db").display());
    let written = |is_after| config(algorithm, more, &at, is_after).replace("sqlite:state.db", &database);
    let after = complete(&written(true), &directory);
    let gateway = Gateway::start_in(directory, &written(false));
    let says = |text: &str| {
        eventually(text, || gateway.stderr().iter().any(|line| line.contains(text)).then_some(()))
    };
    if redis.is_some() {
        says("connected to Redis");
    }
    let mut client = gateway.client();
    let mut admitted = |source: &str, case: usize, asked: u64| {
        let path = format!("/{source}/{case}");
        let mut get = || client.request("GET", &path, &["X-Api-Key: ann"], "").status;
        (0..asked).filter(|_| get() == 200).count() as u64
    };
    for source in SOURCES {
        for (case, (spent, ..)) in CASES.into_iter().enumerate() {
            assert_eq!(admitted(source, case, spent), spent, "{algorithm} {more} {source}");
        }
    }
    let ask = |method: &str, path: &str, body| {
        let answer = gateway.ask("admin-1", method, path, &[], &body);
        assert_eq!(answer.status / 100, 2, "{answer:?}");
    };
    for (case, (_, _, now)) in CASES.into_iter().enumerate() {
        ask(
            "POST",
            "/v1/overrides",
            json!({
                "user-id": "ann", "policy": format!("override-{case}"), "override-type": "absolute", "value": now,
                "reason": "a test",
            }),
        );
        let mut policy = json!({ "by": ["consumer"], "limit": format!("{now}/d"), "algorithm": algorithm });
        if more.contains("overshoot") {
            policy["overshoot"] = json!(0);
        }
        ask("PUT", &format!("/v1/policies/put-{case}"), policy);
    }
    ask("PUT", "/v1/consumers/ann/tier", json!({ "tier": "pro" }));
    gateway.write("gateway.toml", after);
    gateway.signal("HUP");
    says(": reloaded generation");
    for source in SOURCES {
        for (case, (spent, before, now)) in CASES.into_iter().enumerate() {
            let left = now.saturating_sub(spent);
            let more_or_less = admitted(source, case, left + 4);
            // A node may owe a unit of a bucket of which it is lent some.
            let most = left + u64::from(redis.is_some() && algorithm == "token-bucket" && more.is_empty());
            assert!(
                (left..=most).contains(&more_or_less),
                "{algorithm} {more} {source}: {spent} of {before} leave {more_or_less} of {now}"
            );
        }
    }
}

const ALGORITHMS: [&str; 4] = ["token-bucket", "fixed-window", "sliding-window", "sliding-log"];

#[test]
fn what_was_spent_stays_spent_alone() {
    ALGORITHMS.iter().for_each(|algorithm| whatever_changes_the_limit(algorithm, "", None));
}

#[test]
fn what_was_spent_stays_spent_over_a_redis() {
    let redis = Redis::start(&[]);
    for algorithm in ALGORITHMS {
        for more in ["", "overshoot = 0"] {
            whatever_changes_the_limit(algorithm, more, Some(&redis));
            redis.cli(&["FLUSHALL"]);
        }
    }
}

/// A reload that changes how a window is shared.
#[test]
fn a_count_goes_on_however_it_is_shared() {
    let redis = Redis::start(&[]);
    for algorithm in &ALGORITHMS[..3] {
        let config = |overshoot: &str| {
            format!(
                "[[route]]\nlimit = \"p\"\nrespond = {{ status = 200 }}\n\
                 [policy.p]\nby = []\nlimit = \"60/d\"\nalgorithm = \"{algorithm}\"\novershoot = {overshoot}\n\
                 [redis]\nurl = \"redis://{}\"\ndeadline = \"1s\"\n",
                redis.addr()
            )
        };
        let node = Gateway::start(&config("0"));
        eventually("it is connected", || (node.metric("sluicegate_redis_up", &[]) > 0.0).then_some(()));
        let admitted = |asked: u64| (0..asked).filter(|_| node.get("/").status == 200).count();
        assert_eq!(admitted(20), 20);
        node.reload(&config("\"5%\""));
        assert_eq!(admitted(20), 20, "{algorithm}");
        node.reload(&config("0"));
        let last = admitted(30);
        assert!((19..=21).contains(&last), "{algorithm}: {last} of what was left");
        redis.cli(&["FLUSHALL"]);
    }
}
