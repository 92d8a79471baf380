//! Counts over the admin API of real gateways: checks on the same counts as routes.

use std::process::Command;

use serde_json::{Value, json};

use crate::auth::keys::hashed;
use crate::support::postgres::Postgres;
use crate::support::redis::Redis;
use crate::support::{Client, Directory, Gateway, Response, eventually};

const CONFIG: &str = r#"
[admin]
bind = "127.0.0.1:0"
tokens = [
  { name = "reader", token = "read-1", role = "read" },
  { name = "alice", token = "operate-1", role = "operate" },
  { name = "carol", token = "admin-1", role = "admin" },
]

[auth.keys]
kind = "api-key"
keys = { file = "keys.toml" }

[tier.free]
limit = "3/h"

[tier.pro]
limit = "30/h"

[policy.calls]
limit = "5/h"
by = ["consumer"]

[policy.pairs]
limit = "9/h"
by = ["consumer", "route"]

[policy.plans]
limit = "tier"
by = ["consumer"]
default-tier = "free"

[policy.open]
limit = "2 in flight"
by = ["consumer"]

[[route]]
path = "/{*rest}"
name = "all"
auth = "keys"
limit = "calls"
respond = {}
"#;

/// A gateway and its admin listener, which is asked over one connection.
struct Node(Gateway);

impl Node {
    /// With these sections beside the configuration above.
    fn start(more: &str) -> Node {
        Node(Gateway::start_in(directory(), &format!("{CONFIG}{more}")))
    }

    /// One that takes the time of a check from its body.
    fn with_test_time(more: &str) -> Node {
        let mut command = Command::new("sh");
        command.args(["-c", "exec \"$0\" \"$@\" --test-time", env!("CARGO_BIN_EXE_sluicegate")]);
        Node(Gateway::start_by(command, directory(), &format!("{CONFIG}{more}")))
    }

    fn get(&self, consumer: &str) -> Response {
        self.0.client().request("GET", "/", &[&format!("X-Api-Key: {consumer}")], "")
    }

    /// The limit of `calls` that a consumer's answers name.
    fn limit(&self, consumer: &str) -> u64 {
        self.get(consumer).limit()
    }

    fn ask(&self, token: &str, method: &str, path: &str, body: &Value) -> Response {
        self.0.ask(token, method, path, &[], body)
    }

    /// The answer to a check by who may spend.
    #[track_caller]
    fn check(&self, body: &Value) -> Value {
        let answer = self.ask("operate-1", "POST", "/v1/limits:check", body);
        assert_eq!(answer.status, 200, "{answer:?}");
        answer.json()
    }
}

fn directory() -> Directory {
    let directory = Directory::new();
    let keys =
        ["ann", "bob"].map(|name| hashed(name, &["--consumer", name, "--tenant", "acme"]) + "\n").concat();
    directory.write("keys.toml", keys);
    directory
}

fn calls_of(consumer: &str, cost: u64) -> Value {
    json!({ "policy": "calls", "key": consumer, "cost": cost })
}

#[test]
fn a_check_and_a_request_spend_of_one_count() {
    let node = Node::start("");
    assert_eq!(node.get("ann").status, 200);
    let allowed = node.check(&calls_of("ann", 3));
    assert_eq!((&allowed["allowed"], &allowed["remaining"]), (&json!(true), &json!(1)), "{allowed}");
    assert!(allowed["reset_at"].as_str().is_some_and(|at| at.ends_with('Z')), "{allowed}");
    let refused = node.check(&calls_of("ann", 2));
    assert_eq!(refused["allowed"], false);
    let wait = refused["retry_after_seconds"].as_u64().expect("a wait");
    assert!((1..=720).contains(&wait), "a unit comes back every twelve minutes: {refused}");
    let violated = &refused["violated"][0];
    assert_eq!((&violated["policy"], &violated["window"]), (&json!("calls"), &json!("calls")), "{refused}");
    assert_eq!((&violated["limit"], &violated["period_seconds"]), (&json!(5), &json!(3600)));
    assert_eq!([node.get("ann").status, node.get("ann").status], [200, 429], "one was left");
    assert_eq!(node.check(&calls_of("bob", 5))["remaining"], 0, "another consumer has a count of its own");
    assert_eq!(node.get("bob").status, 429);
    let never = node.check(&calls_of("bob", 6));
    assert_eq!((&never["allowed"], &never["retry_after_seconds"]), (&json!(false), &Value::Null), "{never}");
    let metrics = node.ask("read-1", "GET", "/metrics", &Value::Null).text();
    let admitted = "sluicegate_decisions_total{policy=\"calls\",outcome=\"admitted\"} 4";
    assert!(metrics.lines().any(|line| line == admitted), "checks are counted as requests are: {metrics}");
}

#[test]
fn a_dry_check_spends_nothing_and_only_it_is_for_readers() {
    let node = Node::start("");
    let dry = json!({ "policy": "calls", "key": "ann", "cost": 5, "dry": true });
    for _ in 0..2 {
        let answer = node.ask("read-1", "POST", "/v1/limits:check", &dry);
        assert_eq!((answer.status, &answer.json()["remaining"]), (200, &json!(0)));
    }
    for body in [calls_of("ann", 1), json!({ "checks": [dry, calls_of("ann", 1)] })] {
        assert_eq!(node.ask("read-1", "POST", "/v1/limits:check", &body).status, 403);
    }
    let is_allowed = json!({ "policyId": "calls", "key": "ann" });
    assert_eq!(node.ask("read-1", "POST", "/v1/is-allowed", &is_allowed).status, 403);
    assert_eq!(node.check(&calls_of("ann", 5))["allowed"], true, "nothing was spent before");
    let over = node.check(&dry);
    assert_eq!(
        (&over["allowed"], &over["violated"][0]["window"]),
        (&json!(false), &json!("calls")),
        "{over}"
    );
    assert!(
        over["retry_after_seconds"].as_u64().is_some_and(|wait| (3_500..=3_600).contains(&wait)),
        "{over}"
    );
}

#[test]
fn of_several_checks_each_has_its_verdict_or_all_are_charged_or_none() {
    let node = Node::start("");
    let checks =
        json!([calls_of("ann", 4), calls_of("ann", 4), calls_of("bob", 1), { "policy": "cals", "key": "a" }]);
    let several = node.check(&json!({ "checks": checks }));
    assert_eq!(several["allowed"], false);
    let allowed: Vec<&Value> =
        several["verdicts"].as_array().expect("a list").iter().map(|it| &it["allowed"]).collect();
    assert_eq!(allowed, [true, false, true, false]);
    let unknown = several["verdicts"][3]["error"].as_str().unwrap_or_default();
    assert!(unknown.starts_with("no policy of this name is in force: "), "{several}");
    let together = |bobs: u64| {
        node.check(&json!({ "checks": [calls_of("bob", bobs), calls_of("ann", 1)], "all_or_nothing": true }))
    };
    // Ann has one unit left, bob four.
    let refused = together(5);
    assert_eq!((&refused["allowed"], &refused["verdicts"][1]["allowed"]), (&json!(false), &json!(false)));
    assert_eq!(refused["verdicts"][1]["violated"], json!([]), "it is refused with the other: {refused}");
    // Bob's fifth unit comes back in its time, and ann waits with him.
    let waits: Vec<&Value> =
        refused["verdicts"].as_array().expect("a list").iter().map(|it| &it["retry_after_seconds"]).collect();
    assert!(waits[0].as_u64().is_some_and(|wait| wait > 0) && waits[0] == waits[1], "{refused}");
    assert_eq!(together(6)["verdicts"][1]["retry_after_seconds"], Value::Null, "six of five are never there");
    let taken = together(4);
    assert_eq!((&taken["allowed"], &taken["verdicts"][1]["remaining"]), (&json!(true), &json!(0)), "{taken}");
    assert_eq!([node.get("ann").status, node.get("bob").status], [429, 429]);
}

#[test]
fn overrides_and_assigned_tiers_hold_for_checks() {
    let node = Node::start("[database]\nurl = \"sqlite:state.db\"\n");
    let plan = |more: Value| {
        let mut body = json!({ "policy": "plans", "key": "ann", "dry": true });
        body.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
        node.check(&body)["remaining"].clone()
    };
    assert_eq!((plan(json!({})), plan(json!({ "tier": "pro" }))), (json!(2), json!(29)));
    let body = json!({ "policy": "plans", "key": "ann", "tier": "por" });
    let unknown = node.ask("operate-1", "POST", "/v1/limits:check", &body);
    assert!(unknown.status == 422 && unknown.text().contains("did you mean `pro`?"), "{unknown:?}");
    let unknown = node.ask("read-1", "GET", "/v1/usage/consumer/ann?tier=por", &Value::Null);
    assert!(unknown.status == 404 && unknown.text().contains("did you mean `pro`?"), "{unknown:?}");
    let put = node.ask("operate-1", "PUT", "/v1/consumers/ann/tier", &json!({ "tier": "pro" }));
    assert_eq!((put.status, plan(json!({})), plan(json!({ "tier": "free" }))), (200, json!(29), json!(29)));
    let by_tenant = |tenant: &str| {
        let dimensions = json!({ "consumer": "bob", "tenant": tenant });
        node.check(&json!({ "policy": "calls", "dimensions": dimensions, "dry": true }))["remaining"].clone()
    };
    for (holder, name, value) in [("user-id", "ann", 100), ("tenant-id", "acme", 50)] {
        let made = node.ask("operate-1", "POST", "/v1/overrides", &json!({
            holder: name, "override-type": "absolute", "value": value, "policy": "calls", "reason": "a test",
        }));
        assert_eq!(made.status, 201, "{made:?}");
    }
    assert_eq!(node.check(&calls_of("ann", 1))["remaining"], 99);
    assert_eq!((by_tenant("acme"), by_tenant("other")), (json!(49), json!(4)));
}

#[test]
fn a_key_is_allowed_until_it_has_spent_its_limit() {
    let node = Node::start("");
    let ask = |policy: &str, key: &str| {
        node.ask("operate-1", "POST", "/v1/is-allowed", &json!({ "policyId": policy, "key": key }))
    };
    for left in (0..9).rev() {
        let allowed = ask("pairs", "ann:search").json();
        assert_eq!((&allowed["allowed"], &allowed["remaining"]), (&json!(true), &json!(left)), "{allowed}");
        assert_eq!(allowed["retryAfter"], 0);
    }
    let refused = ask("pairs", "ann:search").json();
    assert_eq!((&refused["allowed"], &refused["remaining"]), (&json!(false), &json!(0)), "{refused}");
    assert!(refused["retryAfter"].as_u64().is_some_and(|wait| (1..=400).contains(&wait)), "{refused}");
    assert!(refused["resetAt"].is_string(), "{refused}");
    assert_eq!(ask("pairs", "ann:orders").json()["allowed"], true);
    let at = |token: &str, now: &str| {
        let body = json!({ "policyId": "pairs", "key": "ann:search", "now": now });
        node.ask(token, "POST", "/v1/is-allowed", &body).json()
    };
    let now = time::OffsetDateTime::now_utc();
    let in_a_day = (now + time::Duration::days(1)).date();
    for _ in 0..2 {
        let then = at("read-1", &format!("{in_a_day}T23:59:59Z"));
        assert_eq!(
            (&then["allowed"], &then["remaining"]),
            (&json!(true), &json!(8)),
            "nothing is spent: {then}"
        );
    }
    assert_eq!((ask("pairs", "ann").status, ask("nothing", "ann").status), (422, 422));
    let lines = node.0.stderr();
    assert!(
        !lines.iter().any(|line| line.contains("admin change")),
        "checks come as often as requests: {lines:?}"
    );
}

#[test]
fn checks_that_cannot_be_read_or_decided_say_why() {
    let node = Node::start("");
    for (check, why) in [
        (json!({ "policy": "pairs", "key": "ann" }), "give one value for each"),
        (
            json!({ "policy": "pairs", "dimensions": { "consumer": "ann" } }),
            "counts by `route`, which is missing",
        ),
        (
            json!({ "policy": "calls", "dimensions": { "user": "ann" } }),
            "does not count by `user`, but by `consumer`",
        ),
        (json!({ "policy": "open", "key": "ann" }), "only a dry check"),
        (json!({ "policy": "nothing" }), "no policy of this name"),
    ] {
        let said = node.check(&check);
        let error = said["error"].as_str().unwrap_or_default();
        assert!(said["allowed"] == false && error.contains(why), "{check}: {said}");
    }
    let open = node.check(&json!({ "policy": "open", "key": "ann", "dry": true }));
    assert_eq!(open["remaining"], 1, "{open}");
    for (body, pointer) in [
        (json!({ "policy": "calls", "key": "ann", "now": "2027-01-31T12:00:00Z" }), "#/now"),
        (
            json!({ "checks": [calls_of("ann", 1), { "policy": "calls", "key": "ann", "cots": 2 }] }),
            "#/checks/1/cots",
        ),
        (json!({ "checks": [calls_of("ann", 1), 7] }), "#/checks/1"),
        (json!({ "checks": [] }), "#/checks"),
        (json!({ "checks": vec![calls_of("ann", 1); 1_001] }), "#/checks"),
        (json!({ "checks": [calls_of("ann", 1)], "policy": "calls" }), "#/policy"),
        (json!({ "policy": "calls", "key": "ann", "dimensions": {} }), "#"),
        (json!({ "key": "ann" }), "#/policy"),
        (calls_of("ann", 0), "#/cost"),
    ] {
        let refused = node.ask("operate-1", "POST", "/v1/limits:check", &body);
        let errors = refused.json()["errors"].clone();
        let pointers: Vec<&Value> =
            errors.as_array().expect("a list").iter().map(|error| &error["pointer"]).collect();
        assert_eq!((refused.status, pointers), (400, vec![&json!(pointer)]), "{errors}");
    }
    let large = json!({ "policy": "calls", "key": "a".repeat(1 << 20) });
    assert_eq!(node.ask("operate-1", "POST", "/v1/limits:check", &large).status, 413);
    assert_eq!(node.ask("operate-1", "POST", "/v1/limits:check?dry=true", &calls_of("ann", 1)).status, 400);
    assert_eq!(node.check(&calls_of("ann", 5))["remaining"], 0, "none of these has spent anything");
}

#[test]
fn a_thousand_checks_wait_for_a_redis_that_hangs_no_longer_than_one() {
    let redis = Redis::start(&[]);
    let node = Node::start(&format!(
        "[policy.fleet]\nlimit = \"100/h\"\nby = [\"consumer\"]\novershoot = 0\nwhen-redis-down = \"deny\"\n[redis]\n\
         url = \"redis://{}\"\ndeadline = \"300ms\"\n",
        redis.addr()
    ));
    let checks: Vec<Value> =
        (0..1_000).map(|number| json!({ "policy": "fleet", "key": format!("c{number}") })).collect();
    eventually("Redis decides", || {
        (node.check(&json!({ "policy": "fleet", "key": "ann" }))["allowed"] == true).then_some(())
    });
    redis.signal("STOP");
    let started = std::time::Instant::now();
    let answer = node.check(&json!({ "checks": checks }));
    let took = started.elapsed();
    assert_eq!(answer["verdicts"].as_array().expect("a list").len(), 1_000);
    // Until it is noticed that Redis hangs, it is one that answers late, and a node decides within its part.
    let refused = eventually("it is noticed that Redis hangs", || {
        let verdict = node.check(&json!({ "policy": "fleet", "key": "bob" }));
        (verdict["allowed"] == false).then_some(verdict)
    });
    redis.signal("CONT");
    assert_eq!(refused["retry_after_seconds"], 1, "{refused}");
    assert!(
        took < std::time::Duration::from_secs(10),
        "one after the other they took five minutes: {took:?}"
    );
}

#[test]
fn a_consumer_has_the_limit_that_was_set_for_one_policy_until_it_is_deleted() {
    let node = Node::start("[database]\nurl = \"sqlite:state.db\"\n");
    let path = "/v1/limits/ann/calls";
    let put = |limit: u64| {
        node.ask("operate-1", "PUT", path, &json!({ "limit": limit, "reason": "a big customer" }))
    };
    assert_eq!(node.ask("read-1", "GET", path, &Value::Null).status, 404);
    let dry =
        node.ask("operate-1", "PUT", &format!("{path}?dry-run=true"), &json!({ "limit": 50, "reason": "x" }));
    assert_eq!((dry.status, &dry.json()["new"]["limit"]), (200, &json!(50)));
    let logged = |start: &str| node.0.stderr().iter().filter(|line| line.contains(start)).count();
    eventually("the dry run is logged as one", || {
        (logged("admin dry run, nothing changed") == 1).then_some(())
    });
    assert_eq!(logged("admin change"), 0);
    let made = put(50);
    assert_eq!((made.status, &made.json()["limit"]), (200, &json!(50)), "{made:?}");
    assert_eq!((node.limit("ann"), node.limit("bob")), (50, 5));
    let shown = node.ask("read-1", "GET", path, &Value::Null);
    assert_eq!((shown.json(), shown.header("etag")), (made.json(), made.header("etag")));
    let again = put(70);
    assert_eq!((&again.json()["id"], node.limit("ann")), (&made.json()["id"], 70));
    let listed = node.ask("read-1", "GET", "/v1/overrides?user-id=ann", &Value::Null).json();
    assert_eq!(listed["items"].as_array().map(Vec::len), Some(1), "it is an override: {listed}");
    let tag = format!("If-Match: {}", made.header("etag").expect("a tag"));
    let mut client = Client::connect(node.0.listener("admin"));
    let stale = client.request("DELETE", path, &["Authorization: Bearer operate-1", &tag], "");
    assert_eq!((stale.status, node.limit("ann")), (412, 70));
    assert_eq!(node.ask("read-1", "DELETE", path, &Value::Null).status, 403);
    assert_eq!(node.ask("operate-1", "DELETE", path, &Value::Null).status, 204);
    assert_eq!((node.limit("ann"), node.ask("operate-1", "DELETE", path, &Value::Null).status), (5, 404));
    let misspelt = node.ask("operate-1", "PUT", "/v1/limits/ann/cals", &json!({ "limit": 1, "reason": "x" }));
    assert_eq!(misspelt.status, 422, "{misspelt:?}");
    let without = Node::start("");
    let refused = without.ask("operate-1", "PUT", path, &json!({ "limit": 1, "reason": "x" }));
    assert_eq!((refused.status, without.ask("read-1", "GET", path, &Value::Null).status), (501, 404));
}

#[test]
fn a_policy_in_the_flat_form_is_kept_in_the_words_of_the_file() {
    let node = Node::start("[database]\nurl = \"sqlite:state.db\"\n");
    let put = |body: Value| node.ask("admin-1", "PUT", "/v1/policies/calls", &body);
    let made = put(json!({
        "policyId": "calls", "keyType": "userId", "algorithm": "SLIDING_WINDOW", "ratePerSec": 0.5,
        "failMode": "CLOSED", "localQuotaFraction": 0,
    }));
    assert_eq!(made.status, 200, "{made:?}");
    let document = json!({
        "by": ["consumer"], "limit": "1/2s", "algorithm": "sliding-window", "when-redis-down": "deny",
        "overshoot": 0,
    });
    assert_eq!(
        (&made.json()["document"], &made.json()["note"]),
        (&document, &json!("0.5 per second is counted as 1/2s"))
    );
    assert_eq!(node.limit("ann"), 1);
    let config = node.ask("read-1", "GET", "/config", &Value::Null).text();
    assert!(
        config.contains("when-redis-down = \"deny\"") && config.contains("overshoot = \"0%\""),
        "{config}"
    );
    for (body, said) in [
        (
            json!({ "keyType": "userId", "ratePerSec": 1, "localQuotaFraction": 0.1 }),
            "overshoot = \\\"1%\\\"",
        ),
        (json!({ "keyType": "userId", "ratePerSec": 1, "algorithm": "GCRA" }), "algorithm"),
        (json!({ "keyType": "userId", "ratePerSec": 1, "burst": 5, "algorithm": "fixed_window" }), "burst"),
        (json!({ "keyType": "userId", "ratePerSec": 1, "limit": "5/m" }), "unknown field"),
    ] {
        let refused = put(body.clone());
        assert!(refused.status == 400 && refused.text().contains(said), "{body}: {refused:?}");
    }
    assert_eq!(node.limit("ann"), 1);
    let rounded = put(json!({ "keyType": "userId", "ratePerSec": 1.67, "windowSec": 60 }));
    assert_eq!(rounded.json()["document"]["limit"], "100/60s", "{rounded:?}");
    assert!(
        rounded.json()["note"].as_str().is_some_and(|it| it.contains("counted as 100/60s")),
        "{rounded:?}"
    );
    let decimal = put(json!({ "by": ["consumer"], "limit": ["1.67/s", "100/m"] }));
    assert_eq!(decimal.json()["note"], "1.67/s is counted as 5/3s", "{decimal:?}");
}

/// The only window of a policy, as a node shows its usage.
#[track_caller]
fn window(node: &Node, holder: &str, policy: &str) -> Value {
    let shown = node.ask("read-1", "GET", &format!("/v1/usage/{holder}?policy={policy}"), &Value::Null);
    assert_eq!(shown.status, 200, "{shown:?}");
    let shown = shown.json();
    shown["items"][0]["windows"][0].clone()
}

#[test]
fn usage_is_what_a_consumer_has_spent_of_each_policy_under_its_limit() {
    let node = Node::start("[database]\nurl = \"sqlite:state.db\"\n");
    assert_eq!([node.get("ann").status, node.get("ann").status], [200, 200]);
    let all = node.ask("read-1", "GET", "/v1/usage/consumer/ann", &Value::Null).json();
    let names: Vec<&Value> =
        all["items"].as_array().expect("a list").iter().map(|it| &it["policy"]).collect();
    assert_eq!(names, ["calls", "open", "pairs", "plans"]);
    let calls = &all["items"][0]["windows"][0];
    assert_eq!((&calls["used"], &calls["remaining"], &calls["capacity"]), (&json!(2), &json!(3), &json!(5)));
    assert_eq!(
        (&calls["from"], &calls["leased"], &calls["override"]),
        (&json!("node"), &json!(0), &Value::Null)
    );
    assert!(calls["reset-at"].is_string(), "{calls}");
    assert_eq!(all["items"][2]["windows"], Value::Null, "pairs counts by route, too: {all}");
    assert_eq!(all["items"][3]["windows"][0]["limit"], 3, "{all}");
    let page = node.ask("read-1", "GET", "/v1/usage/consumer/ann?limit=2&after=calls", &Value::Null).json();
    assert_eq!((&page["items"][0]["policy"], &page["next"]), (&json!("open"), &json!("pairs")), "{page}");
    for (holder, name, value) in [("user-id", "ann", 100), ("tenant-id", "acme", 50)] {
        let made = node.ask("operate-1", "POST", "/v1/overrides", &json!({
            holder: name, "override-type": "absolute", "value": value, "policy": "calls", "reason": "a test",
        }));
        assert_eq!(made.status, 201, "{made:?}");
    }
    let calls = window(&node, "consumer/ann", "calls&tenant=acme");
    assert_eq!((&calls["limit"], &calls["override"]["reason"]), (&json!(100), &json!("a test")), "{calls}");
    assert_eq!(
        (&calls["override"]["instead-of"], &calls["tenant-limit"]),
        (&json!(5), &json!(50)),
        "{calls}"
    );
    assert_eq!(window(&node, "consumer/bob", "calls&tenant=acme")["limit"], 50);
    assert_eq!(node.ask("read-1", "GET", "/v1/usage/user/ann", &Value::Null).status, 404);
    assert_eq!(node.ask("read-1", "GET", "/v1/usage/consumer/ann?polici=x", &Value::Null).status, 400);
    for minutes in ["", "&minutes=5"] {
        let path = format!("/v1/usage/consumer/ann?policy=nosuch{minutes}");
        let unknown = node.ask("read-1", "GET", &path, &Value::Null);
        assert!(unknown.status == 404 && unknown.text().contains("no policy of this name"), "{unknown:?}");
    }
}

#[test]
fn a_reset_lets_a_consumer_begin_anew_and_is_in_the_audit_log() {
    let penalty = "[policy.strict]\nlimit = \"1/h\"\nby = [\"consumer\"]\npenalty = { after = 1, within = \"1m\", factor = 2, max = \"1h\" }\n";
    let node = Node::start(&format!("{penalty}[database]\nurl = \"sqlite:state.db\"\n"));
    let strict =
        |consumer: &str| node.check(&json!({ "policy": "strict", "key": consumer }))["allowed"].clone();
    for consumer in ["ann", "bob"] {
        assert_eq!(node.check(&calls_of(consumer, 5))["allowed"], true);
        assert_eq!(
            (strict(consumer), strict(consumer), strict(consumer)),
            (json!(true), json!(false), json!(false))
        );
    }
    let reset =
        |path: &str, body: Value| node.ask("operate-1", "POST", &format!("/v1/usage/{path}/reset"), &body);
    let because = |policy: Value| json!({ "policy": policy, "reason": "a mistake of ours" });
    let dry =
        node.ask("operate-1", "POST", "/v1/usage/consumer/ann/reset?dry-run=true", &because(Value::Null));
    assert_eq!((dry.status, node.get("ann").status), (200, 429));
    let made = reset("consumer/ann", because(json!("calls")));
    assert_eq!((made.status, &made.json()["units"]), (200, &Value::Null), "{made:?}");
    assert_eq!(
        (window(&node, "consumer/ann", "calls")["used"].clone(), node.get("ann").status),
        (json!(0), 200)
    );
    assert_eq!((node.get("bob").status, strict("ann")), (429, json!(false)), "others are not reset");
    assert_eq!(reset("consumer/ann", because(Value::Null)).status, 200);
    assert_eq!(window(&node, "consumer/ann", "calls")["remaining"], 5);
    assert_eq!((strict("ann"), strict("bob")), (json!(true), json!(false)), "the penalty is over, too");
    let key = node.ask("read-1", "GET", "/v1/keys/calls/ann", &Value::Null).json();
    assert_eq!(key["windows"][0]["remaining"], 5, "{key}");
    let audit = node.ask("read-1", "GET", "/v1/audit?what=usage/consumer/ann", &Value::Null).json();
    let entry = &audit["items"][0];
    assert_eq!((&entry["who"], &entry["action"]), (&json!("alice"), &json!("reset")), "{audit}");
    assert_eq!((&entry["new"]["reason"], &audit["items"][2]), (&json!("a mistake of ours"), &Value::Null));
    let refused = reset("consumer/ann", because(json!("cals")));
    assert_eq!((refused.status, reset("consumer/ann", json!({})).status), (422, 400), "{refused:?}");
    let reader = node.ask("read-1", "POST", "/v1/usage/consumer/ann/reset", &because(Value::Null));
    assert_eq!(reader.status, 403);
    let without = Node::start("");
    let refused = without.ask("operate-1", "POST", "/v1/usage/consumer/ann/reset", &because(Value::Null));
    assert_eq!(refused.status, 501);
}

#[test]
fn a_grant_gives_units_back_once_and_never_more_than_all() {
    let node = Node::start("[database]\nurl = \"sqlite:state.db\"\n");
    let grant = |units: u64, key: &str| {
        let body = json!({ "units": units, "policy": "calls", "reason": "an apology" }).to_string();
        let fields = [
            "Authorization: Bearer operate-1",
            "Content-Type: application/json",
            &format!("Idempotency-Key: {key}"),
        ];
        let mut client = Client::connect(node.0.listener("admin"));
        client.request("POST", "/v1/usage/consumer/ann/grant", &fields, &body)
    };
    let left = || window(&node, "consumer/ann", "calls")["remaining"].clone();
    assert_eq!(node.check(&calls_of("ann", 5))["remaining"], 0);
    let granted = grant(2, "one");
    assert_eq!((granted.status, &granted.json()["units"], left()), (200, &json!(2), json!(2)), "{granted:?}");
    assert_eq!((grant(2, "one").json(), left()), (granted.json(), json!(2)), "a repeated request acts once");
    assert_eq!(grant(3, "one").status, 422, "the key came with another body");
    assert_eq!([200, 200, 429].map(|_| node.get("ann").status), [200, 200, 429]);
    assert_eq!((grant(1, "two").status, left()), (200, json!(1)));
    assert_eq!((grant(100, "three").status, left()), (200, json!(5)), "no more than the limit holds");
    assert_eq!(node.check(&calls_of("ann", 5))["allowed"], true);
    let audit = node.ask("read-1", "GET", "/v1/audit?what=usage/consumer/ann", &Value::Null).json();
    let actions: Vec<&Value> =
        audit["items"].as_array().expect("a list").iter().map(|it| &it["action"]).collect();
    assert_eq!(actions, ["grant", "grant", "grant"]);
    let pairs = json!({ "units": 1, "policy": "pairs", "reason": "x" });
    let refused = node.ask("operate-1", "POST", "/v1/usage/consumer/ann/grant", &pairs);
    assert_eq!(refused.status, 422, "it counts by more than the consumer: {refused:?}");
    let plans = json!({ "units": 2, "policy": "plans", "reason": "x" });
    let of_plans = || node.ask("operate-1", "POST", "/v1/usage/consumer/ann/grant", &plans).status;
    assert_eq!(of_plans(), 422, "nobody knows the tier");
    let dry = "/v1/usage/consumer/ann/grant?dry-run=true";
    assert_eq!(node.ask("operate-1", "POST", dry, &plans).status, 422, "what it would do is nothing");
    assert_eq!(node.ask("operate-1", "PUT", "/v1/consumers/ann/tier", &json!({ "tier": "pro" })).status, 200);
    assert_eq!(node.check(&json!({ "policy": "plans", "key": "ann", "cost": 20 }))["remaining"], 10);
    assert_eq!((of_plans(), window(&node, "consumer/ann", "plans")["remaining"].clone()), (200, json!(12)));
}

/// Two nodes that share a database, and a Redis if there is one.
fn fleet(redis: Option<&Redis>, policy: &str) -> [Node; 2] {
    let server = Postgres::shared();
    let url = server.url(&server.database());
    let redis =
        redis.map(|redis| format!("[redis]\nurl = \"redis://{}\"\ndeadline = \"1s\"\n", redis.addr()));
    let redis = redis.unwrap_or_default();
    [1, 2].map(|_| {
        Node::start(&format!(
            "[policy.fleet]\nby = [\"consumer\"]\n{policy}\n[database]\nurl = {url:?}\n{redis}"
        ))
    })
}

/// How many of so many checks of one unit both nodes allow, in turn.
fn allowed(nodes: &[Node; 2], checks: usize) -> usize {
    let batch = json!({ "checks": vec![json!({ "policy": "fleet", "key": "ann" }); checks / 10] });
    let count = |node: &Node| {
        let answer = node.check(&batch);
        answer["verdicts"].as_array().expect("a list").iter().filter(|it| it["allowed"] == true).count()
    };
    (0..5).map(|_| nodes.iter().map(count).sum::<usize>()).sum()
}

/// Fleets' windows of every kind: leased and exact, buckets and windows, and the most that 40 units may become.
const SHARED: [(&str, usize); 6] = [
    ("limit = \"40/d\"", 42),
    ("limit = \"40/d\"\novershoot = 0", 40),
    ("limit = \"40/d\"\nalgorithm = \"sliding-window\"", 42),
    ("limit = \"40/d\"\nalgorithm = \"sliding-window\"\novershoot = 0", 40),
    ("limit = \"40/d\"\nalgorithm = \"fixed-window\"", 42),
    ("limit = \"40/d\"\nalgorithm = \"sliding-log\"", 40),
];

#[test]
fn a_reset_at_one_node_of_a_fleet_is_one_at_all_within_five_seconds() {
    for (policy, most) in SHARED {
        // However a window is shared, it is one count: each way has a Redis of its own.
        let redis = Redis::start(&[]);
        let nodes = fleet(Some(&redis), policy);
        assert!((40..=most).contains(&allowed(&nodes, 100)), "{policy}");
        assert_eq!(allowed(&nodes, 20), 0, "{policy}");
        let usage = window(&nodes[1], "consumer/ann", "fleet");
        assert_eq!((&usage["used"], &usage["from"]), (&json!(40), &json!("redis")), "{policy}: {usage}");
        let reset = time::OffsetDateTime::parse(
            usage["reset-at"].as_str().expect("a time"),
            &time::format_description::well_known::Rfc3339,
        );
        let ahead = reset.expect("RFC 3339") - time::OffsetDateTime::now_utc();
        let hours = if policy.contains("sliding-window") { 48 } else { 24 };
        assert!(ahead.is_positive() && ahead <= time::Duration::hours(hours), "{policy}: {usage}");
        let body = json!({ "policy": "fleet", "reason": "a test" });
        let started = std::time::Instant::now();
        assert_eq!(nodes[0].ask("operate-1", "POST", "/v1/usage/consumer/ann/reset", &body).status, 200);
        assert_eq!(window(&nodes[0], "consumer/ann", "fleet")["used"], 0, "{policy}");
        eventually("the other node has it", || {
            (nodes[1].check(&json!({ "policy": "fleet", "key": "ann" }))["allowed"] == true).then_some(())
        });
        assert!(started.elapsed() < std::time::Duration::from_secs(5), "{policy}");
        assert!((39..most).contains(&allowed(&nodes, 100)), "both count one new count: {policy}");
    }
}

#[test]
fn a_reset_at_one_node_of_a_fleet_ends_a_penalty_at_all() {
    let redis = Redis::start(&[]);
    let nodes = fleet(
        Some(&redis),
        "limit = \"1/h\"\npenalty = { after = 2, within = \"1m\", factor = 9, max = \"9h\" }",
    );
    let is_penalised = |node: &Node| {
        let usage = node.ask("read-1", "GET", "/v1/usage/consumer/ann?policy=fleet", &Value::Null).json();
        usage["items"][0]["penalty"]["ends-at"].is_string()
    };
    let is = |wanted: bool| {
        eventually("both nodes hear", || nodes.iter().all(|node| is_penalised(node) == wanted).then_some(()));
    };
    allowed(&nodes, 10);
    is(true);
    let body = json!({ "policy": "fleet", "reason": "a test" });
    assert_eq!(nodes[0].ask("operate-1", "POST", "/v1/usage/consumer/ann/reset", &body).status, 200);
    is(false);
    assert_eq!(nodes[1].check(&json!({ "policy": "fleet", "key": "ann" }))["allowed"], true);
}

#[test]
fn a_grant_in_a_fleet_gives_its_units_to_all_nodes_together() {
    for (policy, most) in SHARED {
        // However a window is shared, it is one count: each way has a Redis of its own.
        let redis = Redis::start(&[]);
        let nodes = fleet(Some(&redis), policy);
        assert!((40..=most).contains(&allowed(&nodes, 100)), "{policy}");
        let body = json!({ "policy": "fleet", "units": 10, "reason": "a test" });
        let granted = nodes[0].ask("operate-1", "POST", "/v1/usage/consumer/ann/grant", &body);
        assert_eq!(granted.status, 200, "{policy}: {granted:?}");
        eventually("the other node has it", || {
            (window(&nodes[1], "consumer/ann", "fleet")["remaining"] == 10).then_some(())
        });
        let usage = window(&nodes[0], "consumer/ann", "fleet");
        assert_eq!((&usage["used"], &usage["leased"]), (&json!(30), &json!(0)), "{policy}: {usage}");
        assert!((10..=10 + most - 40).contains(&allowed(&nodes, 100)), "{policy}");
    }
}

#[test]
fn a_node_that_is_cut_off_is_as_strict_as_before_a_reset_until_it_hears_of_it() {
    let redis = Redis::start(&[]);
    let server = Postgres::shared();
    let database = server.database();
    let url = server.url(&database);
    let socket = url.split("host=").nth(1).and_then(|rest| rest.split('&').next()).expect("it names one");
    // The second node has a way of its own to the server, which can be taken away.
    let ways = Directory::new();
    let way = ways.join("pg");
    let connect = || std::os::unix::fs::symlink(socket, &way).expect("the directory is ours");
    connect();
    let start = |url: &str| {
        Node::start(&format!(
            "[policy.fleet]\nby = [\"consumer\"]\nlimit = \"40/d\"\novershoot = 0\n[database]\nurl = {url:?}\n[redis]\n\
             url = \"redis://{}\"\ndeadline = \"1s\"\n",
            redis.addr()
        ))
    };
    let nodes = [start(&url), start(&url.replace(socket, &way.display().to_string()))];
    assert_eq!(allowed(&nodes, 100), 40);
    std::fs::remove_file(&way).expect("it is there");
    let end =
        format!("SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE datname = '{database}'");
    server.sql("postgres", &end);
    let body = json!({ "reason": "a test" });
    eventually("the first node has its way back", || {
        let made = nodes[0].ask("operate-1", "POST", "/v1/usage/consumer/ann/reset", &body);
        (made.status == 200).then_some(())
    });
    let one = json!({ "policy": "fleet", "key": "ann" });
    assert_eq!(
        (nodes[0].check(&one)["remaining"].clone(), nodes[1].check(&one)["allowed"].clone()),
        (json!(39), json!(false))
    );
    connect();
    eventually("the second node hears of it", || (nodes[1].check(&one)["allowed"] == true).then_some(()));
    assert_eq!(allowed(&nodes, 100), 38, "both count one new count");
}

#[test]
fn grants_at_two_nodes_at_once_add_up() {
    let redis = Redis::start(&[]);
    let nodes = fleet(Some(&redis), "limit = \"40/d\"");
    assert!(allowed(&nodes, 100) >= 40);
    let body = json!({ "policy": "fleet", "units": 3, "reason": "a test" });
    let grant = |node: &Node| {
        // One that loses every race is told so, and comes again.
        eventually("it is granted", || {
            let granted = node.ask("operate-1", "POST", "/v1/usage/consumer/ann/grant", &body);
            assert!(matches!(granted.status, 200 | 503), "{granted:?}");
            (granted.status == 200).then_some(())
        });
    };
    std::thread::scope(|scope| {
        for node in &nodes {
            scope.spawn(|| (0..3).for_each(|_| grant(node)));
        }
    });
    for node in &nodes {
        eventually("each of the six is there", || {
            (window(node, "consumer/ann", "fleet")["remaining"] == 18).then_some(())
        });
    }
}

#[test]
fn nodes_that_count_apart_each_give_a_grant_and_a_restart_keeps_a_reset() {
    let nodes = fleet(None, "limit = \"40/d\"");
    assert_eq!(allowed(&nodes, 100), 80, "each on its own");
    let body = json!({ "policy": "fleet", "units": 10, "reason": "a test" });
    assert_eq!(nodes[0].ask("operate-1", "POST", "/v1/usage/consumer/ann/grant", &body).status, 200);
    for node in &nodes {
        eventually("it has the grant", || {
            (window(node, "consumer/ann", "fleet")["remaining"] == 10).then_some(())
        });
    }
    assert_eq!(allowed(&nodes, 100), 20);

    let redis = Redis::start(&[]);
    let server = Postgres::shared();
    let more = format!(
        "[policy.fleet]\nby = [\"consumer\"]\nlimit = \"40/d\"\novershoot = 0\n[database]\nurl = {:?}\n[redis]\nurl = \
         \"redis://{}\"\ndeadline = \"1s\"\n",
        server.url(&server.database()),
        redis.addr()
    );
    let node = Node::start(&more);
    let body = json!({ "reason": "a test" });
    assert_eq!(node.ask("operate-1", "POST", "/v1/usage/consumer/ann/reset", &body).status, 200);
    assert_eq!(node.check(&json!({ "policy": "fleet", "key": "ann", "cost": 30 }))["allowed"], true);
    drop(node);
    let again = Node::start(&more);
    assert_eq!(window(&again, "consumer/ann", "fleet")["used"], 30, "it counts on under the same key");
}

#[test]
fn a_grant_without_redis_is_refused_and_a_reset_needs_none() {
    let mut redis = Redis::start(&[]);
    let nodes = fleet(Some(&redis), "limit = \"40/d\"\nwhen-redis-down = \"local\"");
    assert!(allowed(&nodes, 100) >= 40);
    redis.kill();
    let ask = |what: &str, body: Value| {
        nodes[0].ask("operate-1", "POST", &format!("/v1/usage/consumer/ann/{what}"), &body).status
    };
    assert_eq!(ask("grant", json!({ "policy": "fleet", "units": 10, "reason": "a test" })), 503);
    assert_eq!(window(&nodes[0], "consumer/ann", "fleet")["from"], "node-without-redis");
    assert_eq!(ask("reset", json!({ "reason": "a test" })), 200);
    let audit = nodes[0].ask("read-1", "GET", "/v1/audit?what=usage/consumer/ann", &Value::Null).json();
    assert_eq!(audit["items"].as_array().map(Vec::len), Some(1), "what was refused is not there: {audit}");
    assert_eq!(nodes[0].check(&json!({ "policy": "fleet", "key": "ann" }))["allowed"], true);
}

#[test]
fn the_edge_of_a_window_belongs_to_the_new_one() {
    for window in ["limit = \"3/day\"", "limit = \"3/d\"\nalgorithm = \"fixed-window\""] {
        let node = Node::start(&format!("[policy.edge]\nby = [\"consumer\"]\n{window}\n"));
        let short = |now: Value| {
            let body = json!({ "policyId": "edge", "key": "ann", "now": now });
            node.ask("operate-1", "POST", "/v1/is-allowed", &body).json()
        };
        let spent: Vec<Value> = (0..3).map(|_| short(Value::Null)).collect();
        let edge = spent[2]["resetAt"].as_str().expect("it resets").to_owned();
        assert!(edge.ends_with("T00:00:00.000000Z"), "{spent:?}");
        let after = edge.replace("T00:00:00.000000Z", "T00:00:00.000001Z");
        for now in [&edge, &after] {
            let then = short(json!(now));
            assert_eq!((&then["allowed"], &then["remaining"]), (&json!(true), &json!(2)), "{window}: {then}");
            let body = json!({ "policy": "edge", "key": "ann", "dry": true, "now": now });
            let dry = node.check(&body);
            assert_eq!((&dry["allowed"], &dry["reset_at"]), (&json!(true), &then["resetAt"]), "{dry}");
            assert_ne!(dry["reset_at"], edge, "the next window ends later");
        }
        assert_eq!(short(Value::Null)["allowed"], false);
    }
}

#[test]
fn an_override_on_who_is_exempt_is_told() {
    let more = "[policy.free]\nlimit = \"5/h\"\nby = [\"consumer\"]\nexempt = { consumer = [\"mon\"] }\n\
                [database]\nurl = \"sqlite:state.db\"\n";
    let node = Node::start(more);
    let made = json!({
        "user-id": "mon", "policy": "free", "override-type": "absolute", "value": 0, "reason": "a test"
    });
    assert_eq!(node.ask("operate-1", "POST", "/v1/overrides", &made).status, 201);
    let said = node.ask("read-1", "GET", "/v1/why/mon?policy=free", &Value::Null).json();
    let said = said["text"].as_str().expect("a text");
    assert!(said.contains("policy free charges it nothing"), "{said}");
    assert!(said.contains("matches, too, but does not apply: the policy exempts this caller"), "{said}");
    assert!(!said.contains("each limit is that of its policy"), "{said}");
}

#[test]
fn a_gateway_for_tests_takes_the_time_of_a_check() {
    let node = Node::with_test_time("");
    let at = |now: &str| {
        let mut body = calls_of("ann", 5);
        body["now"] = now.into();
        node.check(&body)
    };
    let year = time::OffsetDateTime::now_utc().year();
    let (first, later) = (format!("{}-01-01T00:00:00Z", year + 1), format!("{}-01-01T01:00:00Z", year + 1));
    let taken = at(&first);
    assert_eq!(
        (&taken["allowed"], &taken["reset_at"]),
        (&json!(true), &json!(later.replace('Z', ".000000Z")))
    );
    assert_eq!(at(&first)["retry_after_seconds"], 3_600);
    assert_eq!(at(&later)["allowed"], true, "an hour later the limit is whole again");
    assert!(at("2001-01-01T00:00:00Z")["error"].is_string());
}

#[test]
fn a_month_that_refuses_is_as_long_as_that_of_the_check() {
    let node = Node::with_test_time("[policy.month]\nby = [\"consumer\"]\nlimit = \"3/month\"\n");
    let first_of = |date: time::Date| date.replace_day(1).expect("months have it");
    let next = |first: time::Date| first_of(first + time::Duration::days(31));
    let mut first = first_of(time::OffsetDateTime::now_utc().date());
    for dry in [true, false, true, false] {
        first = next(first);
        let now = format!("{first}T12:00:00Z");
        let refused =
            node.check(&json!({ "policy": "month", "key": "ann", "cost": 4, "dry": dry, "now": now }));
        let length = (next(first) - first).whole_seconds();
        assert_eq!(refused["violated"][0]["period_seconds"], length, "{now}, {dry}: {refused}");
    }
}

#[test]
fn checks_at_two_nodes_of_a_fleet_spend_of_one_count() {
    let redis = Redis::start(&[]);
    for (overshoot, most) in [("0", 100), ("\"5%\"", 105)] {
        redis.cli(&["FLUSHALL"]);
        let more = format!(
            "[policy.fleet]\nlimit = \"100/h\"\nby = [\"consumer\"]\novershoot = {overshoot}\n[redis]\nurl = \
             \"redis://{}\"\ndeadline = \"1s\"\n",
            redis.addr()
        );
        let nodes = [Node::start(&more), Node::start(&more)];
        let checks = vec![json!({ "policy": "fleet", "key": "ann" }); 40];
        let mut allowed = 0;
        for _ in 0..3 {
            for node in &nodes {
                let verdicts = node.check(&json!({ "checks": checks }));
                let verdicts = verdicts["verdicts"].as_array().expect("a list").clone();
                allowed += verdicts.iter().filter(|it| it["allowed"] == true).count();
            }
        }
        assert!((100..=most).contains(&allowed), "{allowed} with overshoot {overshoot}");
        eventually("both know that nothing is left", || {
            let dry = json!({ "policy": "fleet", "key": "ann", "dry": true });
            nodes.iter().all(|node| node.check(&dry)["allowed"] == false).then_some(())
        });
        let later = json!({ "policyId": "fleet", "key": "ann", "now": "2027-01-31T12:00:00Z" });
        let undecided = nodes[0].ask("read-1", "POST", "/v1/is-allowed", &later);
        assert_eq!(undecided.status, 422, "Redis has its own clock: {undecided:?}");
        redis.cli(&["FLUSHALL"]);
        let batch = json!({ "policy": "fleet", "key": "bob", "cost": 60 });
        let together = json!({ "checks": [batch, batch], "all_or_nothing": true });
        assert_eq!(nodes[0].check(&together)["allowed"], false);
        eventually("all was given back", || {
            let whole = json!({ "policy": "fleet", "key": "bob", "cost": 100, "dry": true });
            (nodes[1].check(&whole)["allowed"] == true).then_some(())
        });
    }
}

#[test]
fn a_check_under_an_idempotency_key_spends_once_and_is_answered_alike() {
    let node = Node::start("[database]\nurl = \"sqlite:state.db\"\n");
    let ask = |token: &str, path: &str, key: &str, body: &Value| {
        let mut client = Client::connect(node.0.listener("admin"));
        let fields = [
            &format!("Authorization: Bearer {token}")[..],
            "Content-Type: application/json",
            &format!("Idempotency-Key: {key}"),
        ];
        client.request("POST", path, &fields, &body.to_string())
    };
    let check = |key: &str, body: &Value| ask("operate-1", "/v1/limits:check", key, body);
    let first = check("k1", &calls_of("ann", 2));
    assert_eq!((first.status, &first.json()["remaining"]), (200, &json!(3)), "{first:?}");
    // Once more, and at the same time.
    let again: Vec<Value> = std::thread::scope(|scope| {
        let asking: Vec<_> =
            (0..4).map(|_| scope.spawn(|| check("k1", &calls_of("ann", 2)).json())).collect();
        asking.into_iter().map(|it| it.join().expect("it is answered")).collect()
    });
    assert!(again.iter().all(|answer| *answer == first.json()), "{again:?}");
    let racing: Vec<Value> = std::thread::scope(|scope| {
        let asking: Vec<_> =
            (0..4).map(|_| scope.spawn(|| check("k2", &calls_of("ann", 1)).json())).collect();
        asking.into_iter().map(|it| it.join().expect("it is answered")).collect()
    });
    assert!(racing.iter().all(|answer| answer["remaining"] == 2), "{racing:?}");
    assert_eq!(window(&node, "consumer/ann", "calls")["used"], 3);
    // Another request under the key is refused, and the key is its sender's own.
    assert_eq!(check("k1", &calls_of("ann", 1)).status, 422);
    assert_eq!(ask("admin-1", "/v1/limits:check", "k1", &calls_of("ann", 1)).json()["remaining"], 1);
    let one = json!({ "policyId": "calls", "key": "ann" });
    let allowed = [(); 2].map(|()| ask("operate-1", "/v1/is-allowed", "k3", &one).json());
    assert_eq!((&allowed[0]["allowed"], &allowed[0]), (&json!(true), &allowed[1]));
    assert_eq!(window(&node, "consumer/ann", "calls")["remaining"], 0);
    let unknown = json!({ "policyId": "cals", "key": "ann" });
    assert_eq!([(); 2].map(|()| ask("operate-1", "/v1/is-allowed", "k4", &unknown).status), [422, 422]);
    let without = Node::start("");
    let fields = ["Authorization: Bearer operate-1", "Content-Type: application/json", "Idempotency-Key: k"];
    let refused = Client::connect(without.0.listener("admin")).request(
        "POST",
        "/v1/limits:check",
        &fields,
        &calls_of("ann", 1).to_string(),
    );
    assert_eq!(refused.status, 501, "{refused:?}");
}

#[test]
fn the_page_of_a_key_knows_the_override_of_a_tenant() {
    let node = Node::start("[database]\nurl = \"sqlite:state.db\"\n");
    let make = |holder: &str, name: &str, value: u64| {
        let body = json!({
            holder: name, "override-type": "absolute", "value": value, "policy": "calls", "reason": name,
        });
        assert_eq!(node.ask("operate-1", "POST", "/v1/overrides", &body).status, 201);
    };
    let page = |query: &str| {
        let shown = node.ask("read-1", "GET", &format!("/v1/keys/calls/ann{query}"), &Value::Null);
        assert_eq!(shown.status, 200, "{shown:?}");
        shown.json()["windows"][0].clone()
    };
    make("tenant-id", "acme", 50);
    assert_eq!(page("")["limit"], 5);
    let of_acme = page("?tenant=acme");
    assert_eq!(
        (&of_acme["limit"], &of_acme["override"]["reason"]),
        (&json!(50), &json!("acme")),
        "{of_acme}"
    );
    make("user-id", "ann", 70);
    let both = page("?tenant=acme");
    assert_eq!((&both["limit"], &both["tenant-limit"]), (&json!(70), &json!(50)), "{both}");
    assert_eq!(node.ask("read-1", "GET", "/v1/keys/calls/ann?tenat=x", &Value::Null).status, 400);
}

#[test]
fn what_would_be_done_has_the_tag_of_the_row_as_it_is() {
    let node = Node::start("[database]\nurl = \"sqlite:state.db\"\n");
    let put = |path: &str, body: &Value| node.ask("operate-1", "PUT", path, body);
    let limit = json!({ "limit": 7, "reason": "a test" });
    let tier = json!({ "tier": "pro" });
    for (path, body) in [("/v1/limits/ann/calls", &limit), ("/v1/consumers/ann/tier", &tier)] {
        let dry = format!("{path}?dry-run=true");
        assert_eq!(put(&dry, body).header("etag"), None, "there is no row yet");
        let made = put(path, body);
        let tag = made.header("etag").expect("a row has one").to_owned();
        assert_eq!(put(&dry, body).header("etag"), Some(&*tag), "{path}");
        let deletion = node.ask("operate-1", "DELETE", &dry, &Value::Null);
        assert_eq!(deletion.header("etag"), Some(&*tag), "{path}");
    }
}
