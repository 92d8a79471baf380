//! Candidates: the next version of a limit, compared with the one in force and moved over to it share by share; at one
//! node, at two with Redis, and from the database while traffic runs.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use serde_json::{Value, json};

use crate::auth::keys::hashed;
use crate::support::redis::Redis;
use crate::support::{Client, Directory, Gateway, Response, Stop, Upstream, eventually};

/// A route under `search`, which counts by a header that clients choose.
const ROUTE: &str = "[[route]]\npath = \"/\"\nlimit = \"search\"\nrespond = {}\n";

/// `search` and its candidate, with these limits and with `more` beside.
fn config(search: &str, candidate: &str, more: &str) -> String {
    format!(
        "[policy.search]\nby = [\"header:x-user\"]\n{search}\n\
         [policy.new-search]\nreplaces = \"search\"\n{candidate}\n{more}"
    )
}

fn ask(client: &mut Client, user: &str) -> Response {
    client.send(format!("GET / HTTP/1.1\r\nHost: a\r\nx-user: {user}\r\n\r\n"));
    client.response()
}

/// How many of so many requests of a user are admitted.
fn admitted(client: &mut Client, user: &str, requests: usize) -> usize {
    (0..requests).filter(|_| ask(client, user).status == 200).count()
}

/// Which policy decides about a user, by the name that answers show.
fn decides(client: &mut Client, user: &str) -> String {
    let answer = ask(client, user);
    let shown = answer.header("ratelimit").expect("every answer has it");
    shown.trim_start_matches('"').split('"').next().unwrap_or_default().to_owned()
}

#[test]
fn a_candidate_is_counted_beside_the_policy_in_force_and_refuses_nobody() {
    for algorithm in ["token-bucket", "sliding-window", "fixed-window", "sliding-log"] {
        let candidate = format!("limit = [\"5/h\", \"7/d\"]\nalgorithm = {algorithm:?}");
        let gateway = Gateway::start(&config("limit = \"3/d\"", &candidate, ROUTE));
        let mut client = gateway.client();
        for number in 1..=9 {
            let answer = ask(&mut client, "ann");
            assert_eq!(answer.status, if number <= 3 { 200 } else { 429 });
            assert_eq!(answer.header("ratelimit-policy"), Some("\"search\";q=3;w=86400"));
            assert!(answer.header("ratelimit").is_some_and(|it| it.starts_with("\"search\";r=")));
        }
        // Three that both admit, two that the candidate alone does, four that both deny.
        assert_eq!(gateway.compared("new-search"), [7.0, 2.0, 0.0], "{algorithm}");
        assert_eq!(admitted(&mut client, "bob", 3), 3);
        assert_eq!(gateway.compared("new-search"), [10.0, 2.0, 0.0]);
        let shadow = ["policy=\"new-search\"", "outcome=\"shadow-denied\""];
        assert_eq!(gateway.metric("sluicegate_decisions_total", &shadow), 4.0);
    }
}

#[test]
fn what_the_candidate_alone_would_deny_is_told() {
    let gateway = Gateway::start(&config("limit = \"5/h\"", "limit = \"2/h\"", ROUTE));
    assert_eq!(admitted(&mut gateway.client(), "ann", 6), 5);
    assert_eq!(gateway.compared("new-search"), [3.0, 0.0, 3.0]);
    let explained = gateway.admin("/v1/explain?url=/&header=x-user:%20ann").json();
    let limits = explained["limits"].as_array().expect("a list");
    let told: Vec<_> = limits.iter().map(|limit| (&limit["policy"], &limit["trial"])).collect();
    let (live, new) = (json!("search"), json!("new-search"));
    assert_eq!(
        told,
        [
            (&live, &json!({ "candidate": "new-search", "decides": true })),
            (&new, &json!({ "replaces": "search", "decides": false })),
        ]
    );
    let text = explained["text"].as_str().expect("text");
    for part in [
        "limit    new-search (compared) by header:x-user",
        "decides about this key; its candidate new-search is compared with it",
        "is a candidate of search and is compared with it",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let key = |policy: &str| gateway.admin(&format!("/v1/keys/{policy}/ann")).json();
    assert_eq!((&key("search")["candidate"], &key("search")["decides"]), (&new, &json!(true)));
    assert_eq!((&key("new-search")["replaces"], &key("new-search")["decides"]), (&live, &json!(false)));
    assert_eq!(key("new-search")["windows"][0]["remaining"], 0);
}

#[test]
fn the_keys_of_a_share_are_the_candidates_and_stay_so() {
    let of = |rollout: &str| {
        config("limit = \"100/h\"", &format!("limit = \"200/h\"\nrollout = {rollout:?}"), ROUTE)
    };
    let users: Vec<String> = (0..60).map(|number| format!("user-{number}")).collect();
    let tried = |gateway: &Gateway| -> BTreeSet<&String> {
        let mut client = gateway.client();
        users.iter().filter(|user| decides(&mut client, user) == "new-search").collect()
    };
    let gateway = Gateway::start(&of("30%"));
    let some = tried(&gateway);
    assert!((6..=32).contains(&some.len()), "{some:?}");
    assert_eq!(tried(&Gateway::start(&of("30%"))), some, "another process, with another salt");
    gateway.reload(&of("70%"));
    let more = tried(&gateway);
    assert!(more.is_superset(&some) && (30..=54).contains(&more.len()), "{more:?}");
    gateway.reload(&of("100%"));
    assert_eq!(tried(&gateway).len(), users.len());
    gateway.reload(&of("0%"));
    assert_eq!(tried(&gateway).len(), 0);
    // Both have counted all along, whoever decided.
    let left = |policy: &str, user: &str| {
        gateway.admin(&format!("/v1/keys/{policy}/{user}")).json()["windows"][0]["remaining"].clone()
    };
    assert_eq!((left("search", "user-1"), left("new-search", "user-1")), (json!(96), json!(196)));
    assert_eq!(gateway.compared("new-search"), [240.0, 0.0, 0.0]);
}

#[test]
fn a_candidate_charges_what_its_policy_charges_and_is_told_the_cost_of_answers() {
    let upstream = Upstream::answering("HTTP/1.1 200 OK\r\nx-cost: 3\r\ncontent-length: 0\r\n\r\n");
    let route = format!("[[route]]\npath = \"/\"\nlimit = \"search\"\nto = \"http://{}\"\n", upstream.addr());
    let search = "limit = \"10/h\"\ncost = { response-header = \"x-cost\", max = 5 }";
    let gateway = Gateway::start(&config(search, "limit = [\"20/h\", \"6/d\"]", &route));
    let mut client = gateway.client();
    let left = |policy: &str, window: usize| {
        gateway.admin(&format!("/v1/keys/{policy}/ann")).json()["windows"][window]["remaining"].clone()
    };
    for (own, hour, day) in [(7, 17, 3), (4, 14, 0), (1, 14, 0)] {
        assert_eq!(ask(&mut client, "ann").status, 200);
        let told = || (left("search", 0), left("new-search", 0), left("new-search", 1));
        let expected = (json!(own), json!(hour), json!(day));
        eventually("the cost is reconciled", || (told() == expected).then_some(()));
    }
    assert_eq!(gateway.compared("new-search"), [2.0, 0.0, 1.0]);
}

/// Which the policy in force does not read.
#[test]
fn a_candidate_is_told_the_numbers_of_bodies() {
    let body = r#"{"usage":{"total_tokens":6,"prompt_tokens":2}}"#;
    let upstream = Upstream::answering(format!(
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    ));
    let route = format!("[[route]]\npath = \"/\"\nlimit = \"search\"\nto = \"http://{}\"\n", upstream.addr());
    let candidate = "limit = \"1_000/h\"\n\
                     cost = { response-json = \"usage.prompt_tokens\", estimate = \"body:max_tokens\" }";
    for search in ["cost = 10", "cost = { response-json = \"usage.total_tokens\" }"] {
        let gateway = Gateway::start(&config(&format!("limit = \"100/h\"\n{search}"), candidate, &route));
        let left = || gateway.admin("/v1/keys/new-search/ann").json()["windows"][0]["remaining"].clone();
        let request = ["x-user: ann", "content-type: application/json"];
        let answer = gateway.client().request("POST", "/", &request, r#"{"max_tokens":70}"#);
        assert_eq!((answer.status, answer.text()), (200, body.to_owned()));
        eventually("the cost is reconciled", || (left() == json!(998)).then_some(()));
    }
}

#[test]
fn a_candidate_that_makes_no_sense_is_refused_with_what_to_write() {
    let gateway = Gateway::start(&config("limit = \"5/h\"", "limit = \"9/h\"", ROUTE));
    for (candidate, more, said) in [
        ("replaces = \"serch\"", "", "no policy is called `serch`"),
        ("replaces = \"b\"", "", "a policy cannot replace itself"),
        ("replaces = \"new-search\"", "", "`new-search` is itself a candidate, of `search`"),
        ("replaces = \"search\"", "", "`search` has the candidate `new-search` already"),
        ("replaces = \"other\"\nby = [\"ip\", \"route\"]", "", "must count by the dimensions of `other`"),
        ("replaces = \"other\"\nshadow = true\nrollout = \"10%\"", "", "in shadow never refuses"),
        ("replaces = \"other\"\nrollout = \"110%\"", "", "is not a share"),
        ("by = []\nrollout = \"10%\"", "", "only a candidate has a `rollout`"),
        (
            "replaces = \"other\"",
            "[[route]]\npath = \"/b\"\nlimit = \"b\"\nrespond = {}\n",
            "name only `other`",
        ),
    ] {
        let more = format!(
            "{ROUTE}{more}[policy.other]\nby = [\"ip\"]\nlimit = \"5/m\"\n[policy.b]\nlimit = \"9/h\"\n{candidate}\n"
        );
        gateway.reload_refused(&config("limit = \"5/h\"", "limit = \"9/h\"", &more));
        let tells = || gateway.stderr().iter().any(|line| line.contains(said)).then_some(());
        eventually(&format!("{candidate} is refused: {said}"), tells);
    }
}

/// Two nodes, whose requests wait for Redis longer than a gateway's should: what is counted is not to hang on how busy the
/// machine is.
fn fleet(redis: &Redis, search: &str, candidate: &str) -> [Gateway; 2] {
    let more = format!("{ROUTE}[redis]\nurl = \"redis://{}\"\ndeadline = \"1s\"\n", redis.addr());
    [0; 2].map(|_| {
        let gateway = Gateway::start(&config(search, candidate, &more));
        eventually("it is connected", || (gateway.metric("sluicegate_redis_up", &[]) > 0.0).then_some(()));
        gateway
    })
}

#[test]
fn a_fleet_counts_a_candidate_together_as_it_counts_its_policy() {
    for (sharing, algorithm) in [
        ("overshoot = 0", "token-bucket"),
        ("overshoot = 0", "sliding-log"),
        ("", "token-bucket"),
        ("", "fixed-window"),
    ] {
        let redis = Redis::start(&[]);
        let search = format!("limit = \"20/d\"\nalgorithm = {algorithm:?}\n{sharing}");
        let nodes = fleet(&redis, &search, "limit = [\"50/d\", \"40/2d\"]");
        let mut clients = nodes.each_ref().map(Gateway::client);
        let passed: usize = (0..60).map(|number| admitted(&mut clients[number % 2], "ann", 1)).sum();
        assert_eq!(passed, 20, "{sharing} {algorithm}");
        let told = nodes.each_ref().map(|node| node.compared("new-search"));
        let sum: [f64; 3] = std::array::from_fn(|at| told[0][at] + told[1][at]);
        assert_eq!(sum, [40.0, 20.0, 0.0], "{sharing} {algorithm}");
        // The same keys on both nodes.
        let config = |node: &Gateway| {
            let more = format!("{ROUTE}[redis]\nurl = \"redis://{}\"\ndeadline = \"1s\"\n", redis.addr());
            node.reload(&config(&search, "limit = \"50/d\"\nrollout = \"40%\"", &more));
        };
        nodes.iter().for_each(config);
        for number in 0..20 {
            let user = format!("user-{number}");
            let [one, other] = clients.each_mut().map(|client| decides(client, &user));
            assert_eq!(one, other, "{user}");
        }
    }
}

/// A gateway with an API, an SQLite file and `search` in its file.
struct Node(Gateway);

impl Node {
    fn start() -> Node {
        let directory = Directory::new();
        let keys = ["ann", "bob"].map(|name| hashed(name, &["--consumer", name]) + "\n").concat();
        directory.write("keys.toml", keys);
        let config = format!(
            "[database]\nurl = \"sqlite:{}\"\n\
             [admin]\nbind = \"127.0.0.1:0\"\ntokens = [{{ name = \"a\", token = \"admin-1\", role = \"admin\" }}]\n\
             [auth.keys]\nkind = \"api-key\"\nkeys = {{ file = \"keys.toml\" }}\n\
             [policy.search]\nby = [\"consumer\"]\nlimit = \"5/h\"\n\
             [[route]]\npath = \"/\"\nauth = \"keys\"\nlimit = \"search\"\nrespond = {{}}\n",
            directory.join("state.db").display()
        );
        Node(Gateway::start_in(directory, &config))
    }

    fn ask(&self, method: &str, path: &str, body: &Value) -> Response {
        let headers = ["Authorization: Bearer admin-1", "Content-Type: application/json"];
        let text = if body.is_null() { String::new() } else { body.to_string() };
        Client::connect(self.0.listener("admin")).request(method, path, &headers, &text)
    }

    fn put(&self, policy: &str, document: &Value) {
        let answer = self.ask("PUT", &format!("/v1/policies/{policy}"), document);
        assert_eq!(answer.status, 200, "{answer:?}");
    }

    /// The limit that Ann's next answer names.
    fn limit(&self) -> String {
        let answer = self.0.client().request("GET", "/", &["X-Api-Key: ann"], "");
        answer.header("ratelimit-policy").unwrap_or_default().to_owned()
    }

    fn check(&self, body: &Value) -> Value {
        self.ask("POST", "/v1/limits:check", body).json()
    }
}

#[test]
fn checks_that_are_taken_back_together_give_back_only_what_they_were_charged() {
    let node = Node::start();
    node.put("new-search", &json!({ "replaces": "search", "limit": "1/h" }));
    let of = |consumer: &str, cost: u64| json!({ "policy": "search", "key": consumer, "cost": cost });
    assert_eq!(node.check(&of("ann", 1))["remaining"], 4);
    let together = json!({ "checks": [of("ann", 1), of("bob", 6)], "all_or_nothing": true });
    assert_eq!(node.check(&together)["allowed"], false);
    let left = |policy: &str| {
        let key = node.ask("GET", &format!("/v1/keys/{policy}/ann"), &Value::Null).json();
        key["windows"][0]["remaining"].clone()
    };
    assert_eq!((left("search"), left("new-search")), (json!(4), json!(0)));
}

#[test]
fn a_candidate_of_the_database_is_tried_and_takes_over_while_traffic_runs() {
    let node = Node::start();
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        let traffic = scope.spawn(|| {
            let mut client = node.0.client();
            let mut answers = 0;
            while !over.load(Ordering::Relaxed) {
                let answer = client.request("GET", "/", &["X-Api-Key: bob"], "");
                let limit = answer.header("ratelimit-policy").expect("somebody decides");
                assert!(matches!(answer.status, 200 | 429) && limit.contains("search"), "{answer:?}");
                answers += 1;
            }
            answers
        });
        let stop = Stop(&over);
        try_and_take_over(&node);
        drop(stop);
        assert!(traffic.join().expect("every request is answered") > 10);
    });
}

fn try_and_take_over(node: &Node) {
    let candidate = |rollout: &str| json!({ "replaces": "search", "limit": "20/h", "rollout": rollout });
    assert_eq!(node.limit(), "\"search\";q=5;w=3600");
    node.put("new-search", &candidate("0%"));
    assert_eq!(node.limit(), "\"search\";q=5;w=3600");
    node.put("new-search", &candidate("100%"));
    assert_eq!(node.limit(), "\"new-search\";q=20;w=3600");
    // Checks are decided as requests are, on the same counts.
    let named = json!({ "policy": "search", "key": "ann" });
    let verdict = node.check(&named);
    assert_eq!((&verdict["allowed"], &verdict["remaining"]), (&json!(true), &json!(17)), "{verdict}");
    assert_eq!(node.check(&json!({ "policy": "search", "key": "ann", "dry": true }))["remaining"], 16);
    let other = node.check(&json!({ "policy": "new-search", "key": "ann" }));
    assert!(other.to_string().contains("is a candidate of `search`"), "{other}");
    // What one consumer was given stays theirs.
    let raise = json!({
        "user-id": "ann", "policy": "search", "override-type": "multiplicative", "value": 2, "reason": "a sale",
    });
    let raised = node.ask("POST", "/v1/overrides", &raise);
    assert_eq!(raised.status, 201, "{raised:?}");
    assert_eq!(node.limit(), "\"new-search\";q=40;w=3600");
    // The policy in force is not deleted beneath its candidate, nor a candidate put that makes no sense.
    let wrong = node.ask("PUT", "/v1/policies/newer", &candidate("10%"));
    assert!(
        wrong.status == 400 && wrong.text().contains("has the candidate `new-search` already"),
        "{wrong:?}"
    );
    // The end of it: the candidate's limit becomes that of the policy, and the candidate goes.
    node.put("search", &json!({ "by": ["consumer"], "limit": "20/h" }));
    assert_eq!(node.ask("DELETE", "/v1/policies/new-search", &Value::Null).status, 204);
    assert_eq!(node.limit(), "\"search\";q=40;w=3600");
}
