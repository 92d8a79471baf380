//! The control plane over real gateways: a limit that is changed while traffic runs, by whom, and how it ends.

use std::process::Command;

use serde_json::{Value, json};

use crate::auth::keys::hashed;
use crate::support::gateway::{binary, binary_off_by};
use crate::support::postgres::Postgres;
use crate::support::{Client, Directory, Gateway, Response, eventually};

/// Ann and Bob of the tenant acme, counted apart.
const CONFIG: &str = r#"
[database]
url = "sqlite:state.db"

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

[policy.calls]
limit = "2/h"
by = ["consumer"]

[[route]]
path = "/{*rest}"
auth = "keys"
limit = "calls"
respond = {}
"#;

struct Node(Gateway);

impl Node {
    fn start() -> Node {
        Node::start_in(Directory::new(), "sqlite:state.db")
    }

    /// One with a database of its own choice; a file's path starts from the directory.
    fn start_in(directory: Directory, url: &str) -> Node {
        Node::start_by(binary(), directory, url)
    }

    /// One whose clock is so far off.
    fn with_clock(offset: &str, url: &str) -> Node {
        Node::start_by(binary_off_by(offset), Directory::new(), url)
    }

    fn start_by(command: Command, directory: Directory, url: &str) -> Node {
        let keys = ["ann", "bob"]
            .map(|name| hashed(name, &["--consumer", name, "--tenant", "acme"]) + "\n")
            .concat();
        directory.write("keys.toml", keys);
        let copy = directory.join("control.json").display().to_string();
        let database = format!("url = {url:?}\ncopy = {copy:?}");
        Node(Gateway::start_by(command, directory, &CONFIG.replace("url = \"sqlite:state.db\"", &database)))
    }

    /// One request of a consumer.
    fn get(&self, consumer: &str) -> Response {
        self.0.client().request("GET", "/", &[&format!("X-Api-Key: {consumer}")], "")
    }

    /// The limit that a consumer's answers name.
    fn limit(&self, consumer: &str) -> u64 {
        self.get(consumer).limit()
    }

    /// A request of an operator to the admin listener.
    fn ask(&self, token: &str, method: &str, path: &str, body: &Value) -> Response {
        self.0.ask(token, method, path, &[], body)
    }

    fn override_one(&self, body: &Value) -> Value {
        let made = self.ask("operate-1", "POST", "/v1/overrides", body);
        assert_eq!(made.status, 201, "{made:?}");
        made.json()
    }
}

#[test]
fn the_next_request_has_a_limit_that_was_just_raised() {
    let node = Node::start();
    assert_eq!((node.limit("ann"), node.limit("ann"), node.get("ann").status), (2, 2, 429));
    let made = node.override_one(&json!({
        "user-id": "ann", "override-type": "absolute", "value": 1000, "duration": "10m", "reason": "a migration",
    }));
    // All was spent, and a raised limit hands out no burst: it refills at the new rate.
    assert_eq!(node.limit("ann"), 1000);
    assert_eq!(node.limit("bob"), 2);
    let explained =
        node.ask("read-1", "GET", "/v1/explain?url=/&from=127.0.0.1&header=X-Api-Key:ann", &Value::Null);
    let shown = &explained.json()["limits"][0];
    assert_eq!(shown["override"]["id"], made["id"], "{shown}");
    assert_eq!((&shown["limit"], &shown["override"]["instead-of"]), (&json!(1000), &json!(2)));
    assert_eq!(shown["override"]["reason"], "a migration");
    let key = node.ask("read-1", "GET", "/v1/keys/calls/ann", &Value::Null).json();
    assert_eq!(key["windows"][0]["override"]["id"], made["id"], "{key}");
    let audit = node.ask("read-1", "GET", "/v1/audit?who=alice", &Value::Null).json();
    let entry = audit.to_string();
    assert!(entry.contains("\"alice\"") && entry.contains("a migration"), "{entry}");
    let id = made["id"].as_str().expect("a text");
    assert_eq!(node.ask("read-1", "DELETE", &format!("/v1/overrides/{id}"), &Value::Null).status, 403);
    assert_eq!(node.ask("operate-1", "DELETE", &format!("/v1/overrides/{id}"), &Value::Null).status / 100, 2);
    assert_eq!(node.limit("ann"), 2);
}

#[test]
fn an_override_ends_by_itself() {
    let node = Node::start();
    node.override_one(&json!({
        "user-id": "ann", "override-type": "multiplicative", "value": 5.0, "duration": "1s", "reason": "a moment",
    }));
    assert_eq!(node.limit("ann"), 10);
    eventually("it has ended", || (node.limit("ann") == 2).then_some(()));
}

#[test]
fn clocks_that_differ_by_five_seconds_do_no_harm() {
    let server = Postgres::shared();
    let url = server.url(&server.database());
    let nodes = ["-5s", "+0s", "+5s"].map(|offset| Node::with_clock(offset, &url));
    let [behind, right, ahead] = &nodes;
    let one = |value: u64, duration: &str| {
        json!({
            "user-id": "ann", "override-type": "absolute", "value": value, "duration": duration, "reason": "a migration",
        })
    };
    let everywhere = |what: &str, limit: u64| {
        for node in &nodes {
            eventually(what, || (node.limit("ann") == limit).then_some(()));
        }
    };
    // What one writes whose clock is ahead begins at once for the others, too.
    ahead.override_one(&one(50, "10m"));
    everywhere("the first is in force", 50);
    // Later is what was written later, not what has the later time.
    behind.override_one(&one(40, "10m"));
    everywhere("the second is in force", 40);
    // A reset is one, whoever's clock says when it was.
    for (node, other) in [(behind, ahead), (ahead, behind)] {
        while other.get("bob").status == 200 {}
        let reset = json!({ "policy": "calls", "reason": "a mistake" });
        assert_eq!(node.ask("operate-1", "POST", "/v1/usage/consumer/bob/reset", &reset).status, 200);
        eventually("it is in force", || (other.get("bob").status == 200).then_some(()));
    }
    // Each lets an override end by its own clock, and whose clock is wrong is wrong by as much and no more.
    right.override_one(&one(30, "8s"));
    everywhere("the third is in force", 30);
    eventually("it ends five seconds early", || (ahead.limit("ann") == 40).then_some(()));
    assert_eq!((behind.limit("ann"), right.limit("ann")), (30, 30));
    eventually("it ends", || (right.limit("ann") == 40).then_some(()));
    assert_eq!(behind.limit("ann"), 30);
}

#[test]
fn a_tenants_override_is_for_consumers_without_their_own() {
    let node = Node::start();
    node.override_one(&json!({
        "tenant-id": "acme", "override-type": "multiplicative", "value": 3, "reason": "a bigger plan",
    }));
    assert_eq!((node.limit("ann"), node.limit("bob")), (6, 6));
    node.override_one(&json!({
        "user-id": "bob", "override-type": "absolute", "value": 1, "reason": "bob misbehaves",
    }));
    assert_eq!((node.limit("ann"), node.limit("bob"), node.get("bob").status), (6, 1, 429));
    let explained = node
        .ask("read-1", "GET", "/v1/explain?url=/&from=127.0.0.1&header=X-Api-Key:bob", &Value::Null)
        .json();
    let shown = &explained["limits"][0];
    assert_eq!((&shown["limit"], &shown["tenant-limit"]), (&json!(1), &json!(6)), "{shown}");
    let text = explained["text"].as_str().expect("a text");
    assert!(text.contains("the consumer's override replaces the tenant's: 6"), "{text}");
}

#[test]
fn a_restart_keeps_what_was_changed() {
    let kept = Directory::new();
    let url = format!("sqlite:{}", kept.join("state.db").display());
    let node = Node::start_in(Directory::new(), &url);
    node.override_one(&json!({
        "user-id": "ann", "override-type": "absolute", "value": 77, "reason": "for good",
    }));
    let bobs = json!({ "limit": "9/h", "by": ["consumer"] });
    assert_eq!(node.ask("admin-1", "PUT", "/v1/policies/calls", &bobs).status, 200);
    drop(node);
    let again = Node::start_in(Directory::new(), &url);
    assert_eq!((again.limit("ann"), again.limit("bob")), (77, 9));
    // What was there at the start is followed like what comes later.
    assert_eq!(again.ask("admin-1", "DELETE", "/v1/policies/calls", &Value::Null).status, 204);
    assert_eq!(again.limit("bob"), 2);
}

#[test]
fn a_policy_of_the_database_goes_before_that_of_the_file() {
    let node = Node::start();
    let put = |body: &Value| node.ask("admin-1", "PUT", "/v1/policies/calls", body);
    let shown = |name: &str| node.ask("read-1", "GET", &format!("/v1/policies/{name}"), &Value::Null);
    let of_file = shown("calls").json();
    assert_eq!((&of_file["id"], &of_file["version"]), (&json!("calls"), &Value::Null), "{of_file}");
    assert_eq!(of_file["document"]["by"], json!(["consumer"]), "{of_file}");
    let unknown = shown("callz");
    assert!(unknown.status == 404 && unknown.text().contains("did you mean `calls`?"), "{unknown:?}");
    for (more, pointer, said) in [
        (json!({ "algoritm": "fixed-window" }), "#/algoritm", "did you mean"),
        (json!({ "match": { "paht": "/a" } }), "#/match/paht", "did you mean"),
        (json!({ "limit": "7/fortnight" }), "#/limit", "fortnight"),
    ] {
        let mut body = json!({ "limit": "7/h", "by": ["consumer"] });
        body.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
        let wrong = put(&body);
        let error = wrong.json()["errors"][0].clone();
        let detail = error["detail"].as_str().unwrap_or_default();
        assert_eq!((wrong.status, &error["pointer"]), (400, &json!(pointer)), "{wrong:?}");
        // In words, and not as a drawing of a file that nobody has written.
        assert!(detail.contains(said) && !detail.contains(['\n', '|', '^']), "{detail}");
    }
    assert_eq!(
        put(&json!({ "limit": "7/h", "by": ["consumer"], "match": { "path": "${file:/etc/passwd}" } }))
            .status,
        400
    );
    assert_eq!(node.limit("ann"), 2);
    let made = put(&json!({ "limit": "7/h", "by": ["consumer"] }));
    assert_eq!((made.status, node.limit("ann")), (200, 7), "{made:?}");
    node.0.signal("HUP");
    let is_reloaded = |line: &String| line.contains("reloaded");
    eventually("it is reloaded", || node.0.stderr().iter().any(is_reloaded).then_some(()));
    assert_eq!(node.limit("ann"), 7, "a reload of the files keeps it");
    assert_eq!(node.ask("operate-1", "DELETE", "/v1/policies/calls", &Value::Null).status, 403);
    assert_eq!(node.ask("admin-1", "DELETE", "/v1/policies/calls", &Value::Null).status, 204);
    assert_eq!(node.limit("ann"), 2);
}

#[test]
fn a_consumer_has_the_tier_that_it_was_assigned() {
    let node = Node::start();
    let by_tier = json!({ "limit": "tier", "by": ["consumer"], "default-tier": "free" });
    let refused = node.ask("admin-1", "PUT", "/v1/policies/calls", &by_tier);
    assert_eq!(refused.status, 400, "the file has no tier: {refused:?}");
    let assign =
        |tier: &str| node.ask("operate-1", "PUT", "/v1/consumers/ann/tier", &json!({ "tier": tier }));
    let unknown = assign("pro");
    assert_eq!(unknown.status, 422, "nothing is by tier: {unknown:?}");
    assert!(unknown.text().contains("no tier is in force"), "{unknown:?}");
    let plans =
        json!({ "limit": { "pro": "9/h", "free": "8/h" }, "by": ["consumer"], "default-tier": "free" });
    assert_eq!(node.ask("admin-1", "PUT", "/v1/policies/plans", &plans).status, 200);
    let near = assign("pros");
    assert_eq!(near.status, 422, "{near:?}");
    assert!(near.text().contains("did you mean `pro`"), "{near:?}");
    let put = node.ask("operate-1", "PUT", "/v1/consumers/ann/tier", &json!({ "tier": "pro" }));
    assert_eq!(put.status, 200, "{put:?}");
    node.get("ann");
    assert_eq!(node.0.logged_where("a tier", |line| line["consumer"] == "ann")["tier"], "pro");
    assert_eq!(node.ask("operate-1", "DELETE", "/v1/consumers/ann/tier", &Value::Null).status, 204);
}

#[test]
fn warnings_of_the_files_are_logged_once_a_load_whatever_changes_over_the_api() {
    let config = CONFIG.replace(
        "respond = {}",
        "respond = {}\nresponse-headers = { set = { x-a = \"$http_host\", x-b = \"$request_uri\" } }",
    );
    let directory = Directory::new();
    directory.write("keys.toml", hashed("ann", &["--consumer", "ann"]));
    let node = Node(Gateway::start_in(directory, &config));
    let told = || {
        let lines = node.0.stderr();
        ["$http_host", "$request_uri"].map(|about| {
            lines.iter().filter(|line| line.contains("sent literally") && line.contains(about)).count()
        })
    };
    let once = told();
    for limit in 3..8 {
        let policy = json!({ "limit": { "pro": format!("{limit}/h"), "free": "2/h" }, "by": ["consumer"], "default-tier": "free" });
        assert_eq!(node.ask("admin-1", "PUT", "/v1/policies/calls", &policy).status, 200);
        let tier = json!({ "limit-value": limit, "window-seconds": 60 });
        assert_eq!(node.ask("admin-1", "PUT", "/v1/tiers/pro/calls", &tier).status, 200);
        let assigned = node.ask("operate-1", "PUT", "/v1/consumers/ann/tier", &json!({ "tier": "pro" }));
        assert_eq!((assigned.status, node.get("ann").status), (200, 200), "{assigned:?}");
    }
    assert_eq!(told(), once, "{:#?}", node.0.stderr());
    assert!(once.iter().all(|count| *count > 0), "{:#?}", node.0.stderr());
    node.0.signal("HUP");
    eventually("they are told again", || (told() == once.map(|count| 2 * count)).then_some(()));
}

#[test]
fn a_change_at_one_node_is_in_force_at_the_others() {
    let server = Postgres::shared();
    let url = server.url(&server.database());
    let nodes: Vec<Node> = (0..3).map(|_| Node::start_in(Directory::new(), &url)).collect();
    for limit in [100, 200, 300] {
        let made = nodes[limit / 100 - 1].override_one(&json!({
            "user-id": "ann", "override-type": "absolute", "value": limit, "reason": "a fleet",
        }));
        for node in &nodes {
            eventually("it is in force", || (node.limit("ann") == limit as u64).then_some(()));
        }
        let id = made["id"].as_str().expect("a text");
        let deleted = nodes[0].ask("operate-1", "DELETE", &format!("/v1/overrides/{id}"), &Value::Null);
        assert_eq!(deleted.status, 204);
        for node in &nodes {
            eventually("it is gone", || (node.limit("ann") == 2).then_some(()));
        }
    }
}

#[test]
fn nodes_serve_on_without_the_database_from_their_start_too() {
    let mut server = Postgres::start();
    let url = server.url(&server.database());
    let node = Node::start_in(Directory::new(), &url);
    node.override_one(&json!({
        "user-id": "ann", "override-type": "absolute", "value": 77, "reason": "an outage",
    }));
    let copy = node.0.file("control.json");
    eventually("it is kept on disk", || {
        std::fs::read_to_string(&copy).ok()?.contains("an outage").then_some(())
    });
    let kept = Directory::new();
    std::fs::copy(&copy, kept.join("control.json")).expect("it was written whole");
    server.stop();
    let write = json!({ "user-id": "bob", "override-type": "absolute", "value": 5, "reason": "x" });
    eventually("writes are refused", || {
        (node.ask("operate-1", "POST", "/v1/overrides", &write).status == 503).then_some(())
    });
    assert_eq!(node.limit("ann"), 77);
    let late = Node::start_in(kept, &url);
    assert_eq!((late.limit("ann"), late.limit("bob")), (77, 2));
    let verbose = Client::connect(late.0.listener("admin")).request("GET", "/readyz?verbose", &[], "");
    let said = String::from_utf8_lossy(&verbose.body).into_owned();
    assert!(
        verbose.status == 200 && said.contains("cannot be read") && said.contains("copy on disk"),
        "{said}"
    );
    server.restart();
    for node in [&node, &late] {
        eventually("writes work again", || {
            (node.ask("operate-1", "POST", "/v1/overrides", &write).status == 201).then_some(())
        });
        eventually("it catches up", || (node.limit("bob") == 5).then_some(()));
    }
}
