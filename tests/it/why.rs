//! What operators are told of a consumer is what its requests meet: penalties, tiers, who made an override, an outage of Redis.

use serde_json::{Value, json};

use crate::auth::keys::hashed;
use crate::decisions::said;
use crate::support::gateway::binary;
use crate::support::redis::Redis;
use crate::support::{Directory, Gateway, eventually, text};

const BASE: &str = r#"
[admin]
bind = "127.0.0.1:0"
tokens = [{ name = "carol", token = "secret", role = "admin" }]

[client-ip]
trust = ["127.0.0.1/32"]

[auth.keys]
kind = "api-key"
keys = { file = "keys.toml" }
"#;

/// A node with API keys of Ann and Bob, who is of the tier pro.
fn start(name: &str, policies: &str, redis: Option<&Redis>) -> Gateway {
    let directory = Directory::new();
    let bob = hashed("bob", &["--consumer", "bob", "--tier", "pro"]);
    directory.write("keys.toml", hashed("ann", &["--consumer", "ann"]) + "\n" + &bob);
    let shared = redis.map_or_else(String::new, |redis| {
        format!("[redis]\nurl = \"redis://{}\"\ndeadline = \"500ms\"\n", redis.addr())
    });
    let config = format!("{BASE}\n[node]\nname = \"{name}\"\n{shared}{policies}");
    let gateway = Gateway::start_in(directory, &config);
    if redis.is_some() {
        eventually("Redis answers", || {
            page(&gateway, "/metrics").contains("condition=\"up\"} 1").then_some(())
        });
    }
    gateway
}

fn route(path: &str, limits: &str) -> String {
    format!("[[route]]\npath = \"{path}\"\nauth = \"keys\"\nlimit = {limits}\nrespond = {{}}\n")
}

fn page(gateway: &Gateway, path: &str) -> String {
    gateway.ask("secret", "GET", path, &[], &Value::Null).text()
}

fn shown(gateway: &Gateway, path: &str) -> Value {
    gateway.ask("secret", "GET", path, &[], &Value::Null).json()
}

fn call(gateway: &Gateway, path: &str, consumer: &str, id: &str) -> u16 {
    let fields = [format!("X-Api-Key: {consumer}"), format!("x-request-id: {id}")];
    gateway.client().request("GET", path, &[&fields[0], &fields[1]], "").status
}

fn why(gateway: &Gateway, arguments: &[&str]) -> String {
    let (succeeded, said) = said(gateway, &[&["why"], arguments].concat());
    assert!(succeeded, "{said}");
    said
}

/// The only decision on the request of this id.
fn decision(gateway: &Gateway, id: &str) -> Value {
    eventually("the decision is known", || {
        let answer = gateway.ask("secret", "GET", &format!("/v1/decisions/{id}"), &[], &Value::Null);
        (answer.status == 200).then(|| answer.json()["items"][0].clone())
    })
}

#[track_caller]
fn has_line(said: &str, about: &str, part: &str) {
    let found = said.lines().any(|line| line.starts_with(about) && line.contains(part));
    assert!(found, "no {about} with {part:?} in\n{said}");
}

#[test]
fn a_penalty_is_told_wherever_operators_look() {
    let policy = "[policy.pc]\nby = [\"consumer\"]\nlimit = \"1/2s\"\n\
                  penalty = { after = 2, within = \"1m\", factor = 30 }\n";
    let policies = format!("{policy}{}", route("/a", "\"pc\""));
    let redis = Redis::start(&[]);
    for redis in [None, Some(&redis)] {
        let gateway = start("edge-1", &policies, redis);
        let statuses = [(); 5].map(|()| call(&gateway, "/a", "bob", "first"));
        assert_eq!((statuses[0], statuses[4]), (200, 429));
        let usage = || shown(&gateway, "/v1/usage/consumer/bob?policy=pc")["items"][0].clone();
        let usage = eventually("the window is whole again", || {
            Some(usage()).filter(|usage| usage["windows"][0]["remaining"] == 1)
        });
        assert_eq!(usage["penalty"]["node"], "edge-1", "{usage}");
        assert!(usage["penalty"]["ends-at"].is_string(), "{usage}");
        let key = shown(&gateway, "/v1/keys/pc/bob");
        assert_eq!(key["penalty"]["node"], "edge-1", "{key}");
        assert!(key["penalty"]["ends-in-seconds"].as_f64().is_some_and(|left| left > 30.0), "{key}");
        assert_eq!(call(&gateway, "/a", "bob", "kept-out"), 429);
        let window = decision(&gateway, "kept-out")["windows"][0].clone();
        assert_eq!((&window["penalty"], &window["tier"]), (&true.into(), &"local".into()), "{window}");
        let said = why(&gateway, &["bob"]);
        has_line(
            &said,
            "limit",
            "policy pc, window pc: 0 of 1 used, 1 left for other requests; a penalty refuses this caller",
        );
        has_line(&said, "penalty", "policy pc: node edge-1 refuses it until 2");
        has_line(&said, "refused", "by node edge-1, by its penalty: policy pc");
        has_line(&said, "refused", ", a penalty until 2");
        has_line(&why(&gateway, &["ann"]), "penalty", "none is in force on node edge-1");
        let ann = shown(&gateway, "/v1/usage/consumer/ann?policy=pc")["items"][0].clone();
        assert_eq!((&ann["penalty"], &ann["windows"][0]["remaining"]), (&Value::Null, &1.into()), "{ann}");
        assert_eq!(shown(&gateway, "/v1/keys/pc/ann").get("penalty"), None);
        if redis.is_some() {
            let other = start("edge-2", &policies, redis);
            eventually("it has heard of the penalty", || {
                shown(&other, "/v1/keys/pc/bob").get("penalty").is_some().then_some(())
            });
            let said = why(&other, &["bob"]);
            has_line(&said, "penalty", "policy pc: node edge-2 refuses it until 2");
            assert_eq!(shown(&other, "/v1/keys/pc/bob")["penalty"]["node"], "edge-2");
            let ann = why(&other, &["ann"]);
            has_line(&ann, "penalty", "edge-2; those of other nodes hold here within a second");
        }
    }
}

#[test]
fn what_redis_never_said_is_not_told_as_remembered() {
    let policies = "[policy.two]\nby = [\"ip\"]\nlimit = [\"1/m\", \"3/h\"]\novershoot = 0\n\
         [policy.other]\nby = [\"ip\"]\nlimit = \"1/h\"\novershoot = 0\n\
         [[route]]\npath = \"/two\"\nlimit = [\"two\", \"other\"]\nrespond = {}\n";
    let redis = Redis::start(&[]);
    let gateway = start("edge-1", policies, Some(&redis));
    let ask = |id: &str, more: &[&str]| {
        let id = format!("x-request-id: {id}");
        let fields = [&[id.as_str()], more].concat();
        gateway.client().request("GET", "/two", &fields, "")
    };
    let known = ["x-forwarded-for: 198.51.100.9"];
    assert_eq!(
        [ask("k1", &known).status, ask("k2", &known).status, ask("k3", &known).status],
        [200, 429, 429]
    );
    let by_tier = |id: &str, tier: &str| {
        let decision = decision(&gateway, id);
        let windows = decision["windows"].as_array().expect("its windows").clone();
        windows.iter().filter(|window| window["allowed"] == false && window["tier"] == tier).count()
    };
    // One window refuses by what Redis said a moment ago, of the other Redis said so, too.
    assert_eq!((by_tier("k2", "redis"), by_tier("k3", "remembered")), (2, 2));
    redis.signal("STOP");
    ask("warm", &["x-forwarded-for: 198.51.100.99"]);
    eventually("the outage is noticed", || {
        page(&gateway, "/metrics").contains("condition=\"silent\"} 1").then_some(())
    });
    assert_eq!(ask("n1", &[]).status, 200);
    for id in ["n2", "n3"] {
        let refused = ask(id, &[]);
        assert_eq!(refused.status, 429);
        let debug = refused.header("ratelimit-debug").expect("the caller is trusted").to_owned();
        assert!(debug.contains("decided=fallback") && debug.contains("window=\"other\""), "{debug}");
        assert_eq!(
            (by_tier(id, "fallback"), by_tier(id, "remembered")),
            (2, 0),
            "{}",
            decision(&gateway, id)
        );
        let (_, told) = said(&gateway, &["explain", "--request", id]);
        assert!(!told.contains("a remembered response of Redis"), "{told}");
    }
    // Of this one Redis had said so.
    assert_eq!(ask("k4", &known).status, 429);
    assert_eq!(by_tier("k4", "remembered"), 2, "{}", decision(&gateway, "k4"));
    redis.signal("CONT");
}

#[test]
fn an_outage_is_told_of_a_consumer_whose_windows_are_not_looked_at() {
    let policies = format!(
        "[policy.multi]\nby = [\"consumer\", \"header:x-plan\"]\nlimit = \"5/h\"\n{}",
        route("/multi", "\"multi\"")
    );
    let mut redis = Redis::start(&[]);
    let gateway = start("edge-1", &policies, Some(&redis));
    has_line(&why(&gateway, &["bob"]), "nodes", "1 node counts through Redis; 0 units are leased");
    redis.kill();
    eventually("the outage is told", || {
        why(&gateway, &["bob"]).starts_with("nodes     Redis does not answer: each of 1 nodes").then_some(())
    });
}

#[test]
fn policies_that_a_consumer_has_not_met_are_counted_and_not_listed() {
    let names = ["met", "other", "third"];
    let policy = |name: &str| format!("[policy.{name}]\nby = [\"consumer\"]\nlimit = \"3/h\"\n");
    let routes = names.map(|name| route(&format!("/{name}"), &format!("{name:?}")));
    let gateway = start("edge-1", &(names.map(policy).concat() + &routes.concat()), None);
    for name in names {
        has_line(&why(&gateway, &["bob"]), "limit", &format!("policy {name}, window {name}: 0 of 3 used"));
    }
    assert_eq!(call(&gateway, "/met", "bob", "one"), 200);
    let said = why(&gateway, &["bob"]);
    has_line(&said, "limit", "policy met, window met: 1 of 3 used, 2 left");
    has_line(&said, "limit", "2 more policies that it has not used lately: --policy shows one");
    assert!(!said.contains("other") && !said.contains("third"), "{said}");
    has_line(
        &why(&gateway, &["bob", "--policy", "other"]),
        "limit",
        "policy other, window other: 0 of 3 used",
    );
}

#[test]
fn a_tier_that_nobody_has_named_is_the_one_that_was_decided_by() {
    let policies = format!(
        "[tier.free]\nlimit = \"1/h\"\n[tier.pro]\nlimit = \"3/h\"\n\
         [policy.tiered]\nby = [\"consumer\"]\nlimit = \"tier\"\ndefault-tier = \"free\"\n{}",
        route("/tier", "\"tiered\"")
    );
    let gateway = start("edge-1", &policies, None);
    let limit = |arguments: &[&str], part: &str| has_line(&why(&gateway, arguments), "limit", part);
    limit(
        &["bob"],
        "window tiered-free: 0 of 1 used, 1 left; tier free, which is assumed: its credential may name another",
    );
    limit(&["bob", "--tier", "pro"], "window tiered-pro: 0 of 3 used, 3 left; tier pro");
    assert_eq!(["a", "b", "c", "d"].map(|id| call(&gateway, "/tier", "bob", id)), [200, 200, 200, 429]);
    decision(&gateway, "d");
    limit(&["bob"], "window tiered-pro: 3 of 3 used, 0 left; tier pro, as in the latest decision");
    let usage = shown(&gateway, "/v1/usage/consumer/bob")["items"][0].clone();
    assert_eq!(usage["tier"], json!({ "name": "free", "from": "assumed" }), "{usage}");
    for (arguments, expected) in [
        (
            ["bob", "--policy", "tierd"],
            "no policy of this name is in force: did you mean `tiered`? write `tiered`",
        ),
        (["bob", "--tier", "nosuch"], "no tier of this name is in force: write `free` or `pro`"),
    ] {
        let (succeeded, said) = said(&gateway, &[&["why"], &arguments[..]].concat());
        assert!(!succeeded && said.contains(" answers 404: ") && said.contains(expected), "{said}");
    }
    let other = Gateway::start(&route("/a", "[]").replace("auth = \"keys\"\nlimit = []\n", ""));
    let admin = format!("[admin]\nbind = \"{}\"\n", other.plain());
    let file = gateway.write("other.toml", admin);
    let output = binary().arg("--config").arg(file).args(["why", "bob"]).output().expect("the binary runs");
    let said = text(&output.stderr);
    assert!(said.contains("answers 404 and is not the admin listener"), "{said}");
}

#[test]
fn an_override_names_who_made_it() {
    let policies = format!(
        "[database]\nurl = \"sqlite:state.db\"\n[policy.calls]\nby = [\"consumer\"]\nlimit = \"1/h\"\n{}",
        route("/a", "\"calls\"")
    );
    let gateway = start("edge-1", &policies, None);
    let made = json!({
        "user-id": "bob", "override-type": "absolute", "value": 5, "duration": "10m", "reason": "a \"reason\""
    });
    assert_eq!(gateway.ask("secret", "POST", "/v1/overrides", &[], &made).status, 201);
    let said = why(&gateway, &["bob"]);
    has_line(&said, "override", "5 instead of 1 by override ");
    has_line(&said, "override", ", created by carol, for 6");
    assert_eq!(shown(&gateway, "/v1/keys/calls/bob")["windows"][0]["override"]["created-by"], "carol");
    let made = json!({ "user-id": "bob", "override-type": "multiplicative", "value": 9, "reason": "newer" });
    assert_eq!(gateway.ask("secret", "POST", "/v1/overrides", &[], &made).status, 201);
    let said = why(&gateway, &["bob"]);
    has_line(&said, "override", "5 instead of 1 by override ");
    has_line(&said, "override", "does not apply: an absolute one comes before a multiplicative one");
}

#[test]
fn decisions_that_are_not_kept_are_told_as_that() {
    let policies =
        format!("[policy.calls]\nby = [\"consumer\"]\nlimit = \"1/h\"\n{}", route("/a", "\"calls\""));
    let gateway = start("edge-1", &format!("{policies}[log]\naccess = false\ndecisions = false\n"), None);
    assert_eq!(["a", "b"].map(|id| call(&gateway, "/a", "bob", id)), [200, 429]);
    has_line(&why(&gateway, &["bob"]), "refused", "its [log] has `decisions = false`");
    let (succeeded, said) = said(&gateway, &["explain", "--request", "b"]);
    assert!(!succeeded && said.contains("404") && said.contains("`decisions = false`"), "{said}");
}
