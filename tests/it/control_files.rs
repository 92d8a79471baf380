//! The control plane beside files that change: gateway.toml while it is edited, and the file of SQLite.

use std::fs;
use std::path::PathBuf;

use serde_json::{Value, json};

use crate::support::{Client, Directory, Gateway, Response, eventually};

const CONFIG: &str = r#"
[database]
url = "sqlite:state.db"

[admin]
bind = "127.0.0.1:0"
token = "admin-1"

[policy.calls]
limit = "100/h"
by = ["consumer"]

[policy.others]
limit = "100/h"
by = ["ip"]

[[route]]
path = "/{*rest}"
limit = ["others"]
respond = {}
"#;

struct Node(Gateway);

impl Node {
    fn start() -> Node {
        Node(Gateway::start(CONFIG))
    }

    fn limit(&self) -> String {
        self.0.get("/").header("ratelimit-policy").expect("it is shown").to_owned()
    }

    fn ask(&self, method: &str, path: &str, fields: &[&str], body: &Value) -> Response {
        self.0.ask("admin-1", method, path, fields, body)
    }

    fn put(&self, name: &str, limit: &str) -> Response {
        let policy = json!({ "limit": limit, "by": ["ip"] });
        self.ask("PUT", &format!("/v1/policies/{name}"), &[], &policy)
    }

    fn file(&self) -> PathBuf {
        self.0.file("gateway.toml")
    }

    fn edit(&self, change: impl Fn(String) -> String) {
        let text = fs::read_to_string(self.file()).expect("it is there");
        self.0.write("gateway.toml", change(text));
    }
}

#[test]
fn an_edit_of_a_file_waits_for_its_reload_whatever_the_api_changes() {
    let node = Node::start();
    assert_eq!(node.limit(), "\"others\";q=100;w=3600");
    node.edit(|text| text.replace("\"100/h\"\nby = [\"ip\"]", "\"7/h\"\nby = [\"ip\"]"));
    assert_eq!(node.put("unrelated", "5/m").status, 200);
    assert_eq!(node.limit(), "\"others\";q=100;w=3600");
    // Half an edit is no fault of whoever changes something else.
    let whole = fs::read_to_string(node.file()).expect("it is there");
    node.edit(|text| text.replace("7/h", "7/fortnight"));
    assert_eq!(node.put("unrelated", "6/m").status, 200);
    assert_eq!(node.limit(), "\"others\";q=100;w=3600");
    node.0.write("gateway.toml", whole);
    node.0.signal("HUP");
    eventually("the edit is in force", || (node.limit() == "\"others\";q=7;w=3600").then_some(()));
}

#[test]
fn a_row_waits_for_a_file_that_cannot_be_read_and_is_not_to_blame() {
    let directory = Directory::new();
    directory.write("404.html", "<h1>Nothing here</h1>");
    let node = Node(Gateway::start_in(directory, &format!("{CONFIG}\n[errors]\n404 = \"404.html\"\n")));
    fs::remove_file(node.0.file("404.html")).expect("it is there");
    let put = node.put("others", "9/h");
    assert_eq!((put.status, &put.json()["in-force"]), (200, &false.into()), "{put:?}");
    assert!(put.json()["in-force-error"].as_str().is_some_and(|why| why.contains("404.html")), "{put:?}");
    let line = eventually("it is said", || {
        node.0.stderr().into_iter().find(|line| line.contains("of the database are stored and not in force"))
    });
    assert!(line.contains("gateway.toml") && !line.contains("invalid"), "{line}");
    assert_eq!(node.limit(), "\"others\";q=100;w=3600");
    node.0.write("404.html", "<h1>Nothing here</h1>");
    eventually("it is in force without SIGHUP", || (node.limit() == "\"others\";q=9;w=3600").then_some(()));
    assert!(node.put("others", "8/h").json()["in-force"].is_null());
}

#[test]
fn a_database_that_was_never_read_has_nothing_in_force() {
    let gateway = Gateway::start(&CONFIG.replace("sqlite:state.db", "sqlite:nowhere/state.db"));
    let line = eventually("it is said", || {
        gateway.stderr().into_iter().find(|line| line.contains("database cannot be read"))
    });
    assert!(
        line.contains("until it can, its policies, overrides, blocks and API keys are not in force"),
        "{line}"
    );
    let ready = gateway.admin("/readyz?verbose").text();
    assert!(
        ready.contains(
            "database: cannot be read; its policies, overrides, blocks and API keys are not in force"
        ),
        "{ready}"
    );
    assert!(line.contains("cannot be opened or written: create the directory "), "{line}");
    assert_eq!(gateway.get("/").status, 200);
}

/// Or the next start would be the first to fail of it.
#[test]
fn a_mistake_in_a_policy_that_a_row_stands_for_refuses_the_reload() {
    let node = Node::start();
    assert_eq!(node.put("others", "9/h").status, 200);
    for wrong in ["limit = \"100/fortnight\"\nby = [\"ip\"]", "limit = \"100/h\"\nbuy = [\"ip\"]"] {
        let whole = fs::read_to_string(node.file()).expect("it is there");
        let refused = || node.0.stderr().iter().filter(|line| line.contains("not reloaded")).count();
        let before = refused();
        node.edit(|text| text.replace("limit = \"100/h\"\nby = [\"ip\"]", wrong));
        node.0.signal("HUP");
        eventually("the reload is refused", || (refused() > before).then_some(()));
        assert_eq!(node.limit(), "\"others\";q=9;w=3600");
        assert_eq!(node.put("more", "5/m").status, 200, "the files in force are whole");
        node.0.write("gateway.toml", whole);
    }
}

#[test]
fn a_file_of_sqlite_is_whole_once_the_gateway_has_stopped() {
    let mut node = Node::start();
    assert_eq!(node.put("others", "9/h").status, 200);
    node.0.signal("TERM");
    assert!(node.0.wait().success());
    let directory = Directory::new();
    fs::copy(node.0.file("state.db"), directory.join("state.db")).expect("copied");
    assert!(!node.0.file("state.db-wal").exists());
    let again = Node(Gateway::start_in(directory, CONFIG));
    assert_eq!(again.limit(), "\"others\";q=9;w=3600");
}

#[test]
fn a_row_that_fits_no_more_leaves_the_others_in_force_at_a_start_too() {
    let node = Node::start();
    assert_eq!(node.put("others", "9/h").status, 200);
    let tiered = json!({ "limit": "tier", "by": ["ip"], "default-tier": "gold" });
    node.edit(|text| format!("{text}\n[tier.gold]\nlimit = \"5/m\"\n"));
    node.0.signal("HUP");
    eventually("the tier is there", || {
        (node.ask("PUT", "/v1/policies/tiered", &[], &tiered).status == 200).then_some(())
    });
    node.edit(|text| text.replace("[tier.gold]\nlimit = \"5/m\"\n", ""));
    node.0.signal("HUP");
    eventually("it is said", || {
        let is_said = |line: &String| line.contains("rows of the database are not in force");
        node.0.stderr().iter().any(is_said).then_some(())
    });
    assert_eq!(node.limit(), "\"others\";q=9;w=3600");
    assert_eq!(node.put("more", "5/m").status, 200, "another row is not at fault");
    let refused = node.put("more", "5/fortnight").json();
    let detail = refused["detail"].as_str().expect("it says why");
    assert!(detail.contains("fortnight") && !detail.contains("warning"), "{detail}");
    // The same at a start.
    let directory = Directory::new();
    for name in ["state.db", "state.db-wal", "state.db-shm"] {
        fs::copy(node.0.file(name), directory.join(name)).expect("copied");
    }
    let again = Node(Gateway::start_in(directory, CONFIG));
    assert_eq!(again.limit(), "\"others\";q=9;w=3600");
    let metrics = again.ask("GET", "/metrics", &[], &Value::Null).text();
    assert!(metrics.contains("\nsluicegate_control_policies_refused 1\n"), "{metrics}");
}

#[test]
fn a_file_of_sqlite_that_went_takes_no_change_until_it_is_back() {
    let node = Node::start();
    let made = |value: u64| {
        let body =
            json!({ "user-id": "ann", "override-type": "absolute", "value": value, "reason": "a test" });
        node.ask("POST", "/v1/overrides", &[], &body)
    };
    assert_eq!(made(5).status, 201);
    let kept = node.0.file("kept");
    fs::create_dir(&kept).expect("made");
    let names = ["state.db", "state.db-wal", "state.db-shm"];
    names.iter().for_each(|name| fs::rename(node.0.file(name), kept.join(name)).expect("moved"));
    assert_eq!(made(6).status, 503, "nobody would ever see it again");
    names.iter().for_each(|name| fs::rename(kept.join(name), node.0.file(name)).expect("moved"));
    assert_eq!(made(7).status, 201);
    assert_eq!(
        node.ask("GET", "/v1/overrides", &[], &Value::Null).json()["items"].as_array().map(Vec::len),
        Some(2)
    );
}

#[test]
fn what_would_have_no_effect_is_refused_and_the_same_words_are_the_same_request() {
    let node = Node::start();
    let body = |policy: &str| json!({ "user-id": "ann", "policy": policy, "override-type": "absolute", "value": 5, "reason": "a test" });
    for (policy, status) in [("calls", 201), ("cals", 422), ("others", 422)] {
        assert_eq!(node.ask("POST", "/v1/overrides", &[], &body(policy)).status, status, "{policy}");
    }
    let once = |text: &str| {
        let fields =
            ["Authorization: Bearer admin-1", "Content-Type: application/json", "Idempotency-Key: k"];
        Client::connect(node.0.listener("admin")).request("POST", "/v1/overrides", &fields, text).json()
    };
    let first = once(r#"{"user-id":"bob","override-type":"absolute","value":5,"reason":"r"}"#);
    let again = once(r#"{ "value": 5, "reason": "r", "override-type": "absolute", "user-id": "bob" }"#);
    assert_eq!((first["id"].as_str().is_some(), &first["id"]), (true, &again["id"]));
}
