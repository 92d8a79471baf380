//! The tier table of the database over real gateways: what it puts into force, under which policy, and what is refused.

use std::fs;

use serde_json::{Value, json};

use crate::auth::keys::hashed;
use crate::support::gateway::binary;
use crate::support::postgres::Postgres;
use crate::support::{Directory, Gateway, Response, eventually, text};

/// A consumer of each tier, and one without.
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

[tier.free]
limit = "2/h"

[tier.pro]
limit = ["20/h", "100/d"]

[policy.calls]
limit = "tier"
by = ["consumer"]

[policy.plain]
limit = "7/h"
by = ["consumer"]

[[route]]
path = "/plain"
auth = "keys"
limit = "plain"
respond = {}

[[route]]
path = "/{*rest}"
auth = "keys"
limit = "calls"
respond = {}
"#;

struct Node(Gateway);

impl Node {
    fn start() -> Node {
        Node::start_in(Directory::new(), "sqlite:state.db", CONFIG)
    }

    fn start_in(directory: Directory, url: &str, config: &str) -> Node {
        let keys = [("ann", "free"), ("bob", "pro"), ("eve", "gold")];
        let keys = keys.map(|(name, tier)| hashed(name, &["--consumer", name, "--tier", tier]) + "\n");
        directory.write("keys.toml", keys.concat());
        let copy = directory.join("control.json").display().to_string();
        let database = format!("url = {url:?}\ncopy = {copy:?}");
        Node(Gateway::start_in(directory, &config.replace("url = \"sqlite:state.db\"", &database)))
    }

    /// The limits that the answer to a consumer names: by the hour, of buckets that hold more, and else as they are named.
    fn limits(&self, consumer: &str, path: &str) -> Vec<u64> {
        let answer = self.0.client().request("GET", path, &[&format!("X-Api-Key: {consumer}")], "");
        let shown = answer.header("ratelimit-policy").unwrap_or_default().to_owned();
        let quotas = shown.split(";q=").skip(1);
        let numbers = |quota: &str| {
            let (units, rest) = quota.split_once(";w=")?;
            let seconds = rest.split(',').next()?;
            Some((units.parse::<u64>().ok()?, seconds.parse::<u64>().ok()?))
        };
        quotas
            .map(|quota| match numbers(quota).expect("a quota in a window") {
                (units, seconds) if (3_601..86_400).contains(&seconds) => units * 3_600 / seconds,
                (units, _) => units,
            })
            .collect()
    }

    fn ask(&self, token: &str, method: &str, path: &str, body: &Value) -> Response {
        self.0.ask(token, method, path, &[], body)
    }

    #[track_caller]
    fn put(&self, path: &str, limit: u64) {
        let body = json!({ "limit-value": limit, "window-seconds": 3600 });
        let put = self.ask("admin-1", "PUT", &format!("/v1/tiers/{path}"), &body);
        assert_eq!(put.status, 200, "{put:?}");
    }

    #[track_caller]
    fn delete(&self, path: &str) {
        let deleted = self.ask("admin-1", "DELETE", &format!("/v1/tiers/{path}"), &Value::Null);
        assert_eq!(deleted.status, 204, "{deleted:?}");
    }
}

#[test]
fn a_row_is_in_force_with_its_answer_and_gone_with_its_deletion() {
    let node = Node::start();
    assert_eq!((node.limits("ann", "/"), node.limits("bob", "/")), (vec![2], vec![20, 100]));
    // A tier of every policy by tier; one that the file does not have; one under a single policy; one where the file has
    // no tiers.
    node.put("pro/*", 30);
    node.put("gold/*", 500);
    assert_eq!((node.limits("bob", "/"), node.limits("eve", "/")), (vec![30], vec![500]));
    node.put("pro/calls", 40);
    node.put("pro/plain", 70);
    assert_eq!((node.limits("bob", "/"), node.limits("bob", "/plain")), (vec![40], vec![70]));
    assert_eq!((node.limits("ann", "/"), node.limits("ann", "/plain")), (vec![2], vec![7]));
    node.delete("pro/calls");
    assert_eq!((node.limits("bob", "/"), node.limits("bob", "/plain")), (vec![30], vec![70]));
    node.delete("pro/*");
    node.delete("gold/*");
    node.delete("pro/plain");
    assert_eq!((node.limits("bob", "/"), node.limits("bob", "/plain")), (vec![20, 100], vec![7]));
    assert_eq!(node.limits("eve", "/"), [2], "the tier is unknown again");
}

#[test]
fn a_new_tier_changes_nobody_elses_limit_and_its_answer_names_the_others() {
    let node = Node::start();
    let put = node.ask(
        "admin-1",
        "PUT",
        "/v1/tiers/prooo/calls",
        &json!({ "limit-value": 1, "window-seconds": 3_600 }),
    );
    assert_eq!((put.status, node.limits("eve", "/")), (200, vec![2]), "{put:?}");
    assert!(put.text().contains("write `free` or `pro` to change another"), "{put:?}");
}

#[test]
fn a_limit_of_nothing_and_one_without_end_say_what_to_use_instead() {
    let node = Node::start();
    for (path, body, said) in [
        ("tiers/pro/calls", json!({ "limit-value": 0, "window-seconds": 60 }), "`POST /v1/overrides`"),
        ("tiers/pro/calls", json!({ "limit": "0/m" }), "ctl block add"),
        ("policies/calls", json!({ "limit": "0/m", "by": ["ip"] }), "ctl block add"),
        ("policies/calls", json!({ "limit": "unlimited", "by": ["ip"] }), "ctl unlimited add"),
    ] {
        let put = node.ask("admin-1", "PUT", &format!("/v1/{path}"), &body);
        assert!(matches!(put.status, 400 | 422) && put.text().contains(said), "{body}: {put:?}");
    }
}

#[test]
fn a_limit_as_in_the_file_may_be_of_the_calendar() {
    let node = Node::start();
    let put = |path: &str, body: Value| node.ask("admin-1", "PUT", path, &body);
    let quota = |consumer: &str, path: &str| {
        let answer = node.0.client().request("GET", path, &[&format!("X-Api-Key: {consumer}")], "");
        answer.header("ratelimit-policy").unwrap_or_default().to_owned()
    };
    let months = [28, 29, 30, 31].map(|days| format!("q=10000;w={}", days * 86_400));
    let is_month = |quota: String| months.iter().any(|month| quota.contains(month));
    let row = put("/v1/tiers/pro/*", json!({ "limit": "10_000/month" }));
    assert_eq!((row.status, &row.json()["algorithm"]), (200, &json!("calendar-month")), "{row:?}");
    assert!(is_month(quota("bob", "/")), "{}", quota("bob", "/"));
    // Whatever the policy's own windows are; and the other way round.
    let sliding = json!({ "limit": "7/h", "by": ["consumer"], "algorithm": "sliding-window" });
    assert_eq!(put("/v1/policies/plain", sliding).status, 200);
    assert_eq!(put("/v1/tiers/pro/plain", json!({ "limit": "10_000 per month" })).status, 200);
    assert!(is_month(quota("bob", "/plain")), "{}", quota("bob", "/plain"));
    assert_eq!(put("/v1/tiers/pro/*", json!({ "limit": "600/m burst 60" })).status, 200);
    assert!(quota("bob", "/").contains("q=60;w=6"), "{}", quota("bob", "/"));
    let plan =
        json!({ "limit": "10_000/month", "by": ["consumer"], "time-zone": "Europe/Berlin", "anchor": 15 });
    assert_eq!(put("/v1/policies/plain", plan).status, 200);
    assert!(quota("ann", "/plain").contains("q=10000;w=2"), "{}", quota("ann", "/plain"));
    for wrong in [
        json!({}),
        json!({ "limit-value": 5 }),
        json!({ "limit": "5/month", "window-seconds": 60 }),
        json!({ "limit": "5/month", "algorithm": "sliding-window" }),
        json!({ "limit": "5/month burst 2" }),
        json!({ "limit": "5/m burst 9", "algorithm": "sliding-window" }),
        json!({ "limit": "1000000001/m" }),
        json!({ "limit": "5/400d" }),
        json!({ "limit": "1/m burst 1001" }),
        json!({ "limit": "5/fortnight" }),
        json!({ "limit": "5/m by ip" }),
        json!({ "limit": "5 in flight" }),
    ] {
        let refused = put("/v1/tiers/pro/*", wrong.clone());
        assert!(matches!(refused.status, 400 | 422), "{wrong}: {refused:?}");
    }
}

/// What is shown can be sent back, whatever limit it is.
#[test]
fn a_limit_is_put_as_it_is_shown() {
    let node = Node::start();
    let path = "/v1/tiers/pro/plain";
    let ask = |method: &str, body: &Value| node.ask("admin-1", method, path, body);
    for limit in [
        json!({ "limit": "1000/day" }),
        json!({ "limit": "1000/week" }),
        json!({ "limit": "10_000/month" }),
        json!({ "limit": "10_000/year" }),
        json!({ "limit": "600/m" }),
        json!({ "limit": "600/m burst 7" }),
        json!({ "limit": "5/90s", "algorithm": "sliding-window" }),
        json!({ "limit": "5/m burst 2", "algorithm": "leaky-bucket" }),
        json!({ "limit-value": 3, "window-seconds": 86_400 }),
        json!({ "limit-value": 3, "window-seconds": 1, "burst-multiplier": 2.5, "algorithm": "token-bucket" }),
        json!({ "limit-value": 3, "window-seconds": 60, "algorithm": "fixed-window" }),
        json!({ "limit-value": 3, "window-seconds": 60, "algorithm": "sliding-log" }),
    ] {
        assert_eq!(ask("PUT", &limit).status, 200, "{limit}");
        let shown = ask("GET", &json!({})).json().clone();
        let back = ask("PUT", &shown);
        assert_eq!(back.status, 200, "{limit}: {back:?}");
        let without = |row: &Value| {
            let mut row = row.clone();
            ["updated-at", "version"]
                .iter()
                .for_each(|key| drop(row.as_object_mut().map(|row| row.remove(*key))));
            row
        };
        assert_eq!(without(&ask("GET", &json!({})).json()), without(&shown), "{limit}");
    }
    for wrong in [
        json!({ "limit": "5/m", "tier": "free" }),
        json!({ "limit": "5/m", "resource": "*" }),
        json!({ "limit-value": 5, "window-seconds": 60, "algorithm": "calendar-month" }),
        json!({ "limit-value": 5, "window-seconds": 60, "algorithm": "calendar-era" }),
    ] {
        let refused = ask("PUT", &wrong);
        assert!(matches!(refused.status, 400 | 422), "{wrong}: {refused:?}");
    }
}

/// A mistake that is taken back: whom it had not counted yet it does not concern.
#[test]
fn a_deleted_limit_of_the_calendar_refuses_no_new_client() {
    let node = Node::start();
    let get = |consumer: &str| {
        node.0.client().request("GET", "/plain", &[&format!("X-Api-Key: {consumer}")], "").status
    };
    let put = node.ask("admin-1", "PUT", "/v1/tiers/pro/plain", &json!({ "limit": "1/month" }));
    assert_eq!(put.status, 200, "{put:?}");
    node.delete("pro/plain");
    assert_eq!([0; 3].map(|_| get("bob")), [200; 3]);
}

#[test]
fn it_goes_before_the_policy_of_the_database_and_behind_assignment_and_override() {
    let node = Node::start();
    let by_tier = json!({ "limit": { "free": "3/h", "default": "4/h" }, "by": ["consumer"] });
    assert_eq!(node.ask("admin-1", "PUT", "/v1/policies/plain", &by_tier).status, 200);
    assert_eq!((node.limits("ann", "/plain"), node.limits("bob", "/plain")), (vec![3], vec![4]));
    node.put("free/plain", 50);
    assert_eq!((node.limits("ann", "/plain"), node.limits("bob", "/plain")), (vec![50], vec![4]));
    let assigned = node.ask("operate-1", "PUT", "/v1/consumers/bob/tier", &json!({ "tier": "free" }));
    assert_eq!((assigned.status, node.limits("bob", "/plain")), (200, vec![50]));
    let twice =
        json!({ "user-id": "bob", "override-type": "multiplicative", "value": 2, "reason": "a test" });
    assert_eq!(node.ask("operate-1", "POST", "/v1/overrides", &twice).status, 201);
    assert_eq!(node.limits("bob", "/plain"), [100]);
}

#[test]
fn explain_and_keys_say_where_a_window_comes_from() {
    let node = Node::start();
    let explain = || {
        let path = "/v1/explain?url=/plain&from=127.0.0.1&header=X-Api-Key:bob";
        node.ask("read-1", "GET", path, &Value::Null).json()
    };
    assert_eq!(
        (&explain()["limits"][0]["from"], &explain()["limits"][0]["tier"]),
        (&json!("file"), &Value::Null)
    );
    node.put("pro/plain", 70);
    let explained = explain();
    let limit = &explained["limits"][0];
    assert_eq!(
        (&limit["from"], &limit["tier"], &limit["limit"]),
        (&json!("tier-table"), &json!("pro"), &json!(70))
    );
    let text = explained["text"].as_str().expect("a text");
    assert!(text.contains("\n         from the tier table of the database\n"), "{text}");
    let key = node.ask("read-1", "GET", "/v1/keys/plain/bob", &Value::Null).json();
    let windows: Vec<(&Value, &Value)> =
        key["windows"].as_array().expect("a list").iter().map(|it| (&it["tier"], &it["from"])).collect();
    assert_eq!(
        windows,
        [(&json!("default"), &json!("file")), (&json!("pro"), &json!("tier-table"))],
        "{key}"
    );
    let config = node.ask("read-1", "GET", "/config", &Value::Null);
    let config = String::from_utf8_lossy(&config.body).into_owned();
    assert!(config.contains("# limit.pro: from the tier table of the database"), "{config}");
}

#[test]
fn check_prints_what_is_in_force_with_the_database() {
    let node = Node::start();
    let check = |arguments: &[&str]| {
        let config = node.0.file("gateway.toml");
        let done =
            binary().arg("check").args(arguments).arg("--config").arg(config).output().expect("it runs");
        (done.status.code(), text(&done.stdout), text(&done.stderr))
    };
    node.put("pro/plain", 70);
    assert_eq!(node.limits("bob", "/plain"), [70]);
    let (code, alone, _) = check(&["--effective"]);
    assert!(code == Some(0) && !alone.contains("70/h"), "{alone}");
    let (code, whole, said) = check(&["--effective", "--database"]);
    assert_eq!(code, Some(0), "{said}");
    for line in [
        "# limit.pro: from the tier table of the database",
        "limit = { default = [\"7/h burst 7\"], pro = [\"70/h burst 84\"] }",
    ] {
        assert!(whole.lines().any(|printed| printed == line), "{line}: {whole}");
    }
    assert_eq!(check(&["--database"]).0, Some(0));
    // What a start refuses is refused: a policy of the database is none that a route of the file can name.
    let file = fs::read_to_string(node.0.file("gateway.toml")).expect("it is there");
    let late = json!({ "limit": "9/h", "by": ["consumer"] });
    assert_eq!(node.ask("admin-1", "PUT", "/v1/policies/late", &late).status, 200);
    node.0.write("gateway.toml", file + "[[route]]\npath = \"/late\"\nlimit = \"late\"\nrespond = {}\n");
    let (code, _, said) = check(&["--database"]);
    assert!(code == Some(78) && said.contains("late"), "{said}");
    // One that nobody has made is not made by looking.
    let directory = Directory::new();
    let other = directory.write("gateway.toml", "[database]\nurl = \"sqlite:absent.db\"\n");
    let done = binary().args(["check", "--database", "--config"]).arg(other).output().expect("it runs");
    assert_eq!(done.status.code(), Some(0), "{}", text(&done.stderr));
    assert!(
        !directory.join("absent.db").exists() && text(&done.stderr).contains("absent.db does not exist yet")
    );
}

#[test]
fn what_check_would_say_is_said() {
    let node = Node::start();
    let put = |path: &str, body: &Value| {
        let refused = node.ask("admin-1", "PUT", &format!("/v1/tiers/{path}"), body);
        assert_eq!(refused.status, 400, "{refused:?}");
        refused.json()["detail"].as_str().expect("a text").to_owned()
    };
    let minute = json!({ "limit-value": 5, "window-seconds": 60 });
    let unknown = put("pro/call", &minute);
    assert!(
        unknown.contains("there is no policy `call`") && unknown.contains("did you mean `calls`?"),
        "{unknown}"
    );
    assert!(put("2nd/calls", &minute).contains("cannot be the name of a tier"));
    let log = json!({ "limit-value": 100_000_000, "window-seconds": 60, "algorithm": "sliding-log" });
    assert!(put("pro/calls", &log).contains("a sliding log stores every unit"));
    // `default-tier` may name a tier that only the table has, which must stay then.
    node.put("gold/*", 50);
    let by_gold = json!({ "limit": "tier", "by": ["consumer"], "default-tier": "gold" });
    assert_eq!(node.ask("admin-1", "PUT", "/v1/policies/calls", &by_gold).status, 200);
    for path in ["/v1/tiers/gold/*", "/v1/tiers/gold/*?dry-run=true"] {
        let refused = node.ask("admin-1", "DELETE", path, &Value::Null);
        assert_eq!(refused.status, 400, "{refused:?}");
        assert!(refused.json().to_string().contains("there is no tier `gold`"), "{refused:?}");
    }
    assert_eq!(node.ask("read-1", "PUT", "/v1/tiers/pro/calls", &minute).status, 403);
    assert_eq!(node.limits("bob", "/"), [20, 100]);
}

#[test]
fn a_row_whose_policy_went_is_a_warning_and_no_outage() {
    let node = Node::start();
    node.put("pro/plain", 70);
    node.put("pro/calls", 40);
    let text = std::fs::read_to_string(node.0.file("gateway.toml")).expect("it is there");
    let text = text
        .replace("[policy.plain]", "[policy.renamed]")
        .replace("limit = \"plain\"", "limit = \"renamed\"");
    std::fs::write(node.0.file("gateway.toml"), text).expect("written");
    node.0.signal("HUP");
    eventually("it is reloaded", || {
        node.0.stderr().iter().any(|line| line.contains("reloaded")).then_some(())
    });
    let said = node.0.stderr().join("\n");
    assert!(said.contains("there is no policy `plain`") && said.contains("tier pro of plain"), "{said}");
    assert_eq!((node.limits("bob", "/plain"), node.limits("bob", "/")), (vec![7], vec![40]));
}

#[test]
fn a_row_that_does_not_fit_the_file_any_more_leaves_the_file_in_force_at_a_start() {
    let kept = Directory::new();
    let url = format!("sqlite:{}", kept.join("state.db").display());
    let node = Node::start_in(Directory::new(), &url, CONFIG);
    node.put("pro/plain", 4);
    assert_eq!(node.limits("bob", "/plain"), [4]);
    drop(node);
    // A request costs more than the row ever admits.
    let costly = CONFIG.replace("limit = \"7/h\"", "limit = \"7/h\"\ncost = 6");
    let node = Node::start_in(Directory::new(), &url, &costly);
    assert_eq!(node.limits("bob", "/plain"), [7]);
    let said = node.0.stderr().join("\n");
    for part in [
        "rows of the database are not in force, because they are invalid",
        "the limit of the tier `pro`, from the tier table of the database",
    ] {
        assert!(said.contains(part), "{said}");
    }
    let is_refused = |refused: u8| {
        let metrics = text(&node.ask("read-1", "GET", "/metrics", &Value::Null).body);
        metrics.contains(&format!("\nsluicegate_control_policies_refused {refused}\n"))
    };
    assert!(is_refused(1));
    node.delete("pro/plain");
    eventually("all is in force again", || is_refused(0).then_some(()));
    node.put("pro/plain", 70);
    assert_eq!(node.limits("bob", "/plain"), [70]);
}

#[test]
fn a_burst_of_changes_is_a_few_configurations() {
    let node = Node::start();
    let generation = || {
        let page = node.ask("read-1", "GET", "/v1/explain?url=/", &Value::Null).json();
        page["gateway"]["generation"].as_u64().expect("a number")
    };
    let before = generation();
    let began = std::time::Instant::now();
    std::thread::scope(|scope| {
        for writer in 0..8 {
            let node = &node;
            scope.spawn(move || (0..8).for_each(|number| node.put(&format!("t{writer}-{number}/calls"), 9)));
        }
    });
    let configurations = generation() - before;
    // One each 100 ms at most, and one that has begun.
    let most = began.elapsed().as_millis() as u64 / 100 + 1;
    assert!((1..=most).contains(&configurations) && configurations < 64, "{configurations} in {most}00 ms");
}

#[test]
fn a_row_written_at_one_node_is_in_force_at_the_others_and_from_the_copy_too() {
    let mut server = Postgres::start();
    let url = server.url(&server.database());
    let nodes: Vec<Node> = (0..2).map(|_| Node::start_in(Directory::new(), &url, CONFIG)).collect();
    nodes[0].put("pro/calls", 40);
    for node in &nodes {
        eventually("it is in force", || (node.limits("bob", "/") == [40]).then_some(()));
    }
    let copy = nodes[1].0.file("control.json");
    let kept = Directory::new();
    eventually("it is kept on disk", || {
        std::fs::read_to_string(&copy).ok()?.contains("\"calls\"").then_some(())
    });
    std::fs::copy(&copy, kept.join("control.json")).expect("it was written whole");
    server.stop();
    let late = Node::start_in(kept, &url, CONFIG);
    assert_eq!(late.limits("bob", "/"), [40], "from the first request");
}
