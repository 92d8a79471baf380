//! Blocks, exemptions and limits of 0 over real gateways: at once where they are made, soon at another node, and over a restart.

use std::fs;

use serde_json::{Value, json};

use crate::auth::keys::hashed;
use crate::support::postgres::Postgres;
use crate::support::{Directory, Gateway, Response, eventually};

/// Ann of the tenant acme and Bob. Whoever connects may say for whose address, and `/open` asks nobody for anything.
const CONFIG: &str = r#"
[admin]
bind = "127.0.0.1:0"
tokens = [{ name = "alice", token = "operate-1", role = "operate" }]

[client-ip]
trust = ["127.0.0.1/32"]

[auth.keys]
kind = "api-key"
keys = { file = "keys.toml" }

[policy.calls]
limit = "2/h"
by = ["consumer"]

[policy.devices]
limit = "50/h"
by = ["header:x-device"]
missing = "skip"

[[route]]
path = "/open"
respond = {}

[[route]]
path = "/{*rest}"
auth = "keys"
limit = ["calls", "devices"]
respond = {}
"#;

struct Node(Gateway);

impl Node {
    fn start(url: &str) -> Node {
        let directory = Directory::new();
        let keys = [
            hashed("ann", &["--consumer", "ann", "--tenant", "acme"]),
            hashed("bob", &["--consumer", "bob"]),
        ];
        directory.write("keys.toml", keys.join("\n"));
        let copy = directory.join("control.json").display().to_string();
        Node(Gateway::start_in(directory, &format!("[database]\nurl = {url:?}\ncopy = {copy:?}\n{CONFIG}")))
    }

    fn get(&self, path: &str, consumer: &str, more: &[&str]) -> Response {
        let key = format!("X-Api-Key: {consumer}");
        self.0.client().request("GET", path, &[&[&*key], more].concat(), "")
    }

    fn ask(&self, method: &str, path: &str, body: &Value) -> Response {
        self.0.ask("operate-1", method, path, &[], body)
    }

    fn make(&self, body: &Value) -> Value {
        let made = self.ask("POST", "/v1/overrides", body);
        assert_eq!(made.status, 201, "{made:?}");
        made.json()
    }

    /// The sum of what is counted under a name and these labels.
    fn metric(&self, name: &str, labels: &[&str]) -> f64 {
        let page = self.ask("GET", "/metrics", &Value::Null).text();
        let of = |line: &&str| line.starts_with(name) && labels.iter().all(|label| line.contains(label));
        let numbers = page.lines().filter(of).filter_map(|line| line.rsplit_once(' ')?.1.parse::<f64>().ok());
        numbers.sum()
    }

    fn delete(&self, made: &Value) {
        let id = made["id"].as_str().expect("it has an id");
        assert_eq!(self.ask("DELETE", &format!("/v1/overrides/{id}"), &Value::Null).status, 204);
    }
}

/// Runs a scenario over a PostgreSQL of its own and over a file.
fn over_both(scenario: impl Fn(&str)) {
    let server = Postgres::shared();
    scenario(&server.url(&server.database()));
    let directory = Directory::new();
    scenario(&format!("sqlite:{}", directory.join("state.db").display()));
}

fn block(of: &str, whom: &str, status: u16) -> Value {
    json!({ of: whom, "override-type": "block", "value": status, "duration": "10m", "reason": "abuse CHG-9" })
}

fn reason(answer: &Response) -> String {
    answer.json()["reason"].as_str().unwrap_or_default().to_owned()
}

#[test]
fn who_is_blocked_is_refused_everywhere_until_it_ends() {
    over_both(|url| {
        let [one, other] = [(); 2].map(|()| Node::start(url));
        let from = ["X-Forwarded-For: 203.0.113.9"];
        for (of, whom, path, fields) in [
            ("user-id", "ann", "/a", &[][..]),
            ("tenant-id", "acme", "/a", &[]),
            ("subject", "header:x-device=a7", "/a", &["X-Device: a7"]),
            ("subject", "ip=203.0.113.9", "/open", &from),
            ("subject", "ip=203.0.113.0/24", "/nowhere", &from),
        ] {
            let is_blocked = |node: &Node| node.get(path, "ann", fields).status == 403;
            assert!(!is_blocked(&one), "{whom}");
            let made = one.make(&block(of, whom, 403));
            let refused = one.get(path, "ann", fields);
            assert_eq!((refused.status, reason(&refused)), (403, "blocked".to_owned()), "{whom}");
            assert_eq!(refused.json()["request-id"].as_str(), refused.header("x-request-id"));
            assert_eq!(one.get("/open", "bob", &[]).status, 200, "others pass");
            eventually("another node knows", || is_blocked(&other).then_some(()));
            one.delete(&made);
            assert!(!is_blocked(&one), "{whom}");
            eventually("another node knows", || (!is_blocked(&other)).then_some(()));
        }
        assert_eq!(one.metric("sluicegate_refused_requests_total", &["reason=\"blocked\""]), 5.0);
        one.0.logged_where("a block", |line| line["reason"] == "blocked" && line["status"] == 403);
    });
}

#[test]
fn a_block_of_a_translators_address_is_one_of_the_ipv4_address_it_carries() {
    let directory = Directory::new();
    let node = Node::start(&format!("sqlite:{}", directory.join("state.db").display()));
    let is_refused = |from: &str| {
        let status = node.get("/open", "bob", &[&format!("X-Forwarded-For: {from}")]).status;
        assert!([200, 403].contains(&status), "{status}");
        status == 403
    };
    let refused = || ["2001:db8:64::203.0.113.9", "203.0.113.9", "203.0.114.9"].map(is_refused);
    let ranges = ["ip=2001:db8:64::203.0.113.9", "ip=2001:db8:64::cb00:7100/120"];
    let made = node.make(&block("subject", ranges[0], 403));
    assert_eq!(refused(), [true, false, false], "no translator has the prefix yet");
    let file = node.0.file("gateway.toml");
    let config = fs::read_to_string(&file).expect("it is there");
    let prefixes = "[client-ip]\nnat64 = [\"2001:db8::/32\", \"2001:db8:64::/96\"]";
    fs::write(&file, config.replace("[client-ip]", prefixes)).expect("it is ours");
    node.0.signal("HUP");
    eventually("the prefix is the translator's", || (refused() == [true, true, false]).then_some(()));
    node.delete(&made);
    assert_eq!(refused(), [false; 3]);
    let range = node.make(&block("subject", ranges[1], 403));
    assert_eq!(refused(), [true, true, false]);
    node.delete(&range);
    let all = node.ask("POST", "/v1/overrides", &block("subject", "ip=2001:db8:64::/96", 403));
    assert_eq!((all.status, all.text().contains("`nat64` turns them into IPv4")), (422, true), "{all:?}");
}

#[test]
fn a_second_value_beside_a_blocked_one_evades_nothing() {
    let directory = Directory::new();
    let node = Node::start(&format!("sqlite:{}", directory.join("state.db").display()));
    for whom in ["header:x-device=a7", "header:authorization=Bearer t", "cookie:sid=w1", "query:k=bad"] {
        node.make(&block("subject", whom, 403));
    }
    for (target, fields) in [
        ("/open", &["X-Device: a7", "X-Device: b"][..]),
        ("/open", &["X-Device:", "X-Device: a7"]),
        ("/open", &["Authorization: Basic eDp5", "Authorization: bearer  t"]),
        ("/open", &["Cookie: sid=x; sid=w1"]),
        ("/open", &["Cookie: sid=", "Cookie: a=b; sid=w1"]),
        ("/open", &["Cookie: sid = w1"]),
        ("/open", &["Cookie: sid=\t\"w1\""]),
        ("/open", &[r#"Cookie: sid="w\1""#]),
        ("/open", &[r#"Cookie: sid="w\061""#]),
        ("/open?k=x&k=bad", &[]),
        ("/open?k=bad;", &[]),
        ("/open?a=1;%6b=bad", &[]),
    ] {
        let refused = node.get(target, "bob", fields);
        assert_eq!((refused.status, reason(&refused)), (403, "blocked".to_owned()), "{target} {fields:?}");
    }
    let others =
        [("/open?k=good&a=bad", &["X-Device: a8", "Cookie: sid=w12; xsid=w1"][..]), ("/open?a=k=bad", &[])];
    for (target, fields) in others {
        assert_eq!(node.get(target, "bob", fields).status, 200, "{target} {fields:?}");
    }
}

#[test]
fn a_block_outlives_the_gateway_and_says_when_it_ends() {
    over_both(|url| {
        let first = Node::start(url);
        first.make(&block("subject", "ip=203.0.113.0/24", 429));
        let without_end =
            json!({ "user-id": "bob", "override-type": "block", "value": 429, "reason": "abuse" });
        first.make(&without_end);
        drop(first);
        let second = Node::start(url);
        // Before anybody is authenticated: nobody has this key.
        let get = || second.get("/a", "nobody", &["X-Forwarded-For: 203.0.113.9"]);
        eventually("it is in force", || (get().status == 429).then_some(()));
        let refused = get();
        assert!((500..=600).contains(&refused.number("retry-after")), "{refused:?}");
        let of_bob = second.get("/a", "bob", &[]);
        assert_eq!((of_bob.status, of_bob.header("retry-after")), (429, None));
        let listed = second.ask("GET", "/v1/overrides?override-type=block&newest=true", &Value::Null).json();
        let of = |row: &Value| (row["user-id"].clone(), row["subject"].clone(), row["created-by"].clone());
        let rows: Vec<_> = listed["items"].as_array().expect("a list").iter().map(of).collect();
        let (bob, range) = ((json!("bob"), Value::Null), (Value::Null, json!("ip=203.0.113.0/24")));
        assert_eq!(rows, [(bob.0, bob.1, json!("alice")), (range.0, range.1, json!("alice"))]);
        let audit = second.ask("GET", "/v1/audit?who=alice", &Value::Null).text();
        assert!(audit.contains("abuse CHG-9") && audit.contains("ip=203.0.113.0/24"), "{audit}");
    });
}

#[test]
fn who_is_unlimited_is_neither_charged_nor_refused() {
    over_both(|url| {
        let [one, other] = [(); 2].map(|()| Node::start(url));
        let made =
            one.make(&json!({ "user-id": "ann", "override-type": "unlimited", "reason": "a load test" }));
        eventually("another node knows", || {
            (other.get("/a", "ann", &[]).header("ratelimit-policy").is_none()).then_some(())
        });
        for _ in 0..5 {
            let passed = one.get("/a", "ann", &[]);
            assert_eq!((passed.status, passed.header("ratelimit")), (200, None));
        }
        assert_eq!(
            one.metric("sluicegate_decisions_total", &["policy=\"calls\"", "outcome=\"exempt\""]),
            5.0
        );
        assert_eq!(one.0.logged("/a")["decision"], "exempt");
        let explain = "/v1/explain?url=/a&from=127.0.0.1&header=X-Api-Key:ann";
        let explained = one.ask("GET", explain, &Value::Null).json();
        let entry = explained["exempt"][0]["entry"].as_str().unwrap_or_default();
        assert!(
            entry.contains(made["id"].as_str().expect("an id")) && entry.contains("a load test"),
            "{explained}"
        );
        one.delete(&made);
        let statuses: Vec<u16> = (0..3).map(|_| one.get("/a", "ann", &[]).status).collect();
        assert_eq!(statuses, [200, 200, 429], "nothing was charged");
    });
}

#[test]
fn a_limit_of_0_refuses_one_policy_alone() {
    over_both(|url| {
        let node = Node::start(url);
        let put = node.ask("PUT", "/v1/limits/ann/calls", &json!({ "limit": 0, "reason": "unpaid" }));
        assert_eq!((put.status, &put.json()["limit"]), (200, &json!(0)), "{put:?}");
        let refused = node.get("/a", "ann", &[]);
        assert_eq!((refused.status, reason(&refused)), (429, "blocked".to_owned()));
        assert_eq!(refused.header("retry-after"), None);
        assert_eq!((node.get("/open", "ann", &[]).status, node.get("/a", "bob", &[]).status), (200, 200));
        let denied = node.metric("sluicegate_decisions_total", &["policy=\"calls\"", "outcome=\"denied\""]);
        assert_eq!(denied, 1.0);
        let key = node.ask("GET", "/v1/keys/calls/ann", &Value::Null).json();
        let window = &key["windows"][0];
        assert_eq!((&window["limit"], &window["remaining"]), (&json!(0), &json!(0)), "{key}");
        let check = json!({ "policy": "calls", "key": "ann" });
        let checked = node.ask("POST", "/v1/limits:check", &check);
        assert_eq!(checked.json()["allowed"], json!(false), "{checked:?}");
        let blocked = checked.json()["blocked"].as_str().unwrap_or_default().to_owned();
        assert!(blocked.starts_with("override "), "{checked:?}");
    });
}

#[test]
fn operators_are_told_who_is_blocked_and_why() {
    over_both(|url| {
        let node = Node::start(url);
        let made = node.make(&block("user-id", "ann", 403));
        assert!(
            made["hint"].as_str().is_some_and(|hint| hint.contains("names the consumer `ann`")),
            "{made}"
        );
        let id = made["id"].as_str().expect("an id");
        let refused = node.get("/a", "ann", &[]);
        let request = refused.header("x-request-id").expect("it has one").to_owned();
        let why = node.ask("GET", "/v1/why/ann", &Value::Null).json();
        let text = why["text"].as_str().unwrap_or_default();
        for said in
            [format!("blocked   consumer=ann, by override {id}, created by alice"), "abuse CHG-9".to_owned()]
        {
            assert!(text.contains(&said), "{text}");
        }
        assert!(text.contains(&format!("blocked by override {id}; request {request}")), "{text}");
        let of_request = node.ask("GET", &format!("/v1/decisions/{request}"), &Value::Null).text();
        assert!(of_request.contains(id) && of_request.contains("it is blocked"), "{of_request}");
        let explain = "/v1/explain?url=/a&from=127.0.0.1&header=X-Api-Key:ann";
        let explained = node.ask("GET", explain, &Value::Null).json();
        assert_eq!(
            (&explained["blocked"]["id"], &explained["refused"]),
            (&json!(id), &json!("403: this client is blocked"))
        );
        // The caller's own address is blocked if that is asked for, and it is told.
        let own = node.make(&block("subject", "ip=127.0.0.0/8", 403));
        assert_eq!(own["own-address"], "127.0.0.1", "{own}");
        assert_eq!(node.get("/open", "bob", &[]).status, 403);
        node.delete(&own);
    });
}

#[test]
fn what_may_be_a_credential_is_kept_by_its_digest() {
    let directory = Directory::new();
    let node = Node::start(&format!("sqlite:{}", directory.join("state.db").display()));
    let made = node.make(&block("subject", "header:x-secret-token=hunter2", 403));
    let kept = made["subject"].as_str().expect("it is named");
    assert!(kept.starts_with("header:x-secret-token=sha256:f52fbd32b2b3b86f"), "{kept}");
    let get = |secret: &str| node.get("/a", "bob", &[&format!("X-Secret-Token: {secret}")]).status;
    assert_eq!((get("hunter2"), get("hunter3"), get(&kept[22..])), (403, 200, 200));
    assert!(!node.ask("GET", "/v1/audit", &Value::Null).text().contains("hunter2"));
}
