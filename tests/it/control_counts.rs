//! Counts over the admin API of real gateways: checks on the same counts as routes.

use std::process::Command;

use serde_json::{Value, json};

use crate::auth::keys::hashed;
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
    fn with_test_time() -> Node {
        let mut command = Command::new("sh");
        command.args(["-c", "exec \"$0\" \"$@\" --test-time", env!("CARGO_BIN_EXE_sluicegate")]);
        Node(Gateway::start_by(command, directory(), CONFIG))
    }

    fn get(&self, consumer: &str) -> Response {
        self.0.client().request("GET", "/", &[&format!("X-Api-Key: {consumer}")], "")
    }

    /// The limit of `calls` that a consumer's answers name.
    fn limit(&self, consumer: &str) -> u64 {
        let answer = self.get(consumer);
        let shown = answer.header("ratelimit-policy").expect("every answer names it").to_owned();
        let (_, quota) = shown.split_once(";q=").expect("it names a quota");
        quota.split(';').next().and_then(|quota| quota.parse().ok()).expect("a number")
    }

    fn ask(&self, token: &str, method: &str, path: &str, body: &Value) -> Response {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let fields = [format!("Authorization: Bearer {token}"), "Content-Type: application/json".to_owned()];
        let fields: Vec<&str> = fields.iter().map(String::as_str).collect();
        Client::connect(self.0.listener("admin")).request(method, path, &fields, &body)
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
    assert_eq!(several["verdicts"][3]["error"], "no policy of this name is in force", "{several}");
    let together = |bobs: u64| {
        node.check(&json!({ "checks": [calls_of("bob", bobs), calls_of("ann", 1)], "all_or_nothing": true }))
    };
    // Ann has one unit left, bob four.
    let refused = together(5);
    assert_eq!((&refused["allowed"], &refused["verdicts"][1]["allowed"]), (&json!(false), &json!(false)));
    assert_eq!(refused["verdicts"][1]["violated"], json!([]), "it is refused with the other: {refused}");
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
    assert_eq!((ask("pairs", "ann").status, ask("nothing", "ann").status), (422, 422));
}

#[test]
fn checks_that_cannot_be_read_or_decided_say_why() {
    let node = Node::start("");
    for (check, why) in [
        (json!({ "policy": "pairs", "key": "ann" }), "has not exactly one value for each"),
        (
            json!({ "policy": "pairs", "dimensions": { "consumer": "ann" } }),
            "counts by `route`, which is missing",
        ),
        (
            json!({ "policy": "calls", "dimensions": { "user": "ann" } }),
            "does not count by `user`, but by `consumer`",
        ),
        (json!({ "policy": "open", "key": "ann" }), "ask with `dry`"),
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
        "by": ["consumer"], "limit": "30/60s", "algorithm": "sliding-window", "when-redis-down": "deny",
        "overshoot": 0,
    });
    assert_eq!(made.json()["document"], document);
    assert_eq!(node.limit("ann"), 30);
    let config = node.ask("read-1", "GET", "/config", &Value::Null).text();
    assert!(config.contains("when-redis-down = \"deny\"") && config.contains("overshoot = 0"), "{config}");
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
    assert_eq!(node.limit("ann"), 30);
}

#[test]
fn a_gateway_for_tests_takes_the_time_of_a_check() {
    let node = Node::with_test_time();
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
