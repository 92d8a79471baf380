//! What a request costs: stated by a trusted hop, reconciled with the upstream's answer, and charged once over retries.

use crate::support::{Gateway, Upstream, eventually};

/// An upstream whose answer costs what the request's `x-say` field says.
fn pricing() -> Upstream {
    Upstream::replying(|request| {
        let cost = request.header("x-say").map(|cost| format!("X-Cost: {cost}\r\n")).unwrap_or_default();
        format!("HTTP/1.1 200 OK\r\n{cost}Content-Length: 0\r\n\r\n").into_bytes()
    })
}

fn priced(policy: &str, upstream: &Upstream) -> Gateway {
    Gateway::start(&format!(
        "[policy.p]\nby = [\"ip\"]\n{policy}\n[[route]]\npath = \"/a\"\nlimit = \"p\"\nto = \"http://{}\"\n",
        upstream.addr()
    ))
}

/// What one more request of one unit would leave, and that one.
fn left(gateway: &Gateway) -> u64 {
    let limit = gateway.admin("/v1/explain?url=/a").json()["limits"][0].clone();
    let remaining = limit["remaining"].as_u64().unwrap_or_else(|| panic!("{limit}"));
    remaining + if limit["admitted"] == true { limit["cost"].as_u64().unwrap_or(0) } else { 0 }
}

fn say(gateway: &Gateway, cost: &str) -> u16 {
    gateway.client().request("GET", "/a", &[&format!("x-say: {cost}")], "").status
}

#[test]
fn an_answer_settles_what_its_request_cost() {
    for algorithm in ["token-bucket", "fixed-window", "sliding-window", "sliding-log"] {
        let upstream = pricing();
        let policy = format!(
            "limit = \"20/d\"\nalgorithm = \"{algorithm}\"\n\
             cost = {{ default = 2, response-header = \"x-cost\", max = 15 }}"
        );
        let gateway = priced(&policy, &upstream);
        assert_eq!((say(&gateway, "5"), left(&gateway)), (200, 15), "{algorithm}: three more");
        assert_eq!((say(&gateway, "0"), left(&gateway)), (200, 15), "{algorithm}: two come back");
        assert_eq!((say(&gateway, "much"), left(&gateway)), (200, 13), "{algorithm}: the estimate stays");
        assert_eq!(
            (gateway.get("/a").status, left(&gateway)),
            (200, 11),
            "{algorithm}: and where nothing is said"
        );
        assert_eq!(
            (say(&gateway, "99999999999999999999"), left(&gateway)),
            (200, 0),
            "{algorithm}: 15 at most"
        );
        assert_eq!(say(&gateway, "0"), 429, "{algorithm}: what is owed refuses");
        assert_eq!(left(&gateway), 0);
    }
}

#[test]
fn a_debt_is_waited_for() {
    let upstream = pricing();
    let gateway =
        priced("limit = \"10/h\"\ncost = { default = 1, response-header = \"x-cost\", max = 10 }", &upstream);
    assert_eq!(say(&gateway, "9"), 200);
    assert_eq!(say(&gateway, "10"), 200);
    // Nine are owed, and one has to be there: ten units at six minutes each.
    let refused = gateway.get("/a");
    assert_eq!(refused.status, 429);
    assert!((3_550..=3_960).contains(&refused.number("retry-after")), "{:?}", refused.header("retry-after"));
}

#[test]
fn only_a_trusted_hop_says_what_a_request_costs() {
    let policy = "limit = \"20/d\"\ncost = { default = 1, header = \"x-cost\", max = 10, \"/a\" = 3 }";
    let upstream = pricing();
    let ask = |gateway: &Gateway, cost: &str| {
        gateway
            .client()
            .request("GET", "/a", &[&format!("x-cost: {cost}")], "")
            .number("x-ratelimit-remaining")
    };
    let gateway = priced(policy, &upstream);
    assert_eq!(ask(&gateway, "1"), 17, "its own word makes nobody cheap");
    let trusted = priced(&format!("{policy}\n[client-ip]\ntrust = [\"127.0.0.1/32\"]"), &upstream);
    assert_eq!([ask(&trusted, "1"), ask(&trusted, "2"), ask(&trusted, "1000")], [19, 17, 7]);
    assert_eq!(ask(&trusted, "-1"), 4, "what is no number leaves the rule");
    let free = trusted.client().request("GET", "/a", &["x-cost: 0"], "");
    assert_eq!((free.status, free.header("ratelimit"), left(&trusted)), (200, None, 4));
}

#[test]
fn a_retry_is_charged_once() {
    let config = "[client-ip]\ntrust = [\"127.0.0.1/32\"]\n\
        [policy.billed]\nby = [\"ip\"]\nlimit = \"4/d\"\nidempotency-key = { key = \"header:idempotency-key\", by-address = true }\n\
        [policy.plain]\nby = [\"ip\"]\nlimit = \"9/d\"\n\
        [[route]]\npath = \"/a\"\nlimit = [\"billed\", \"plain\"]\nrespond = { status = 200 }\n\
        [[route]]\npath = \"/b\"\nlimit = \"billed\"\nrespond = { status = 200 }\n";
    let gateway = Gateway::start(config);
    let ask = |target: &str, client: &str, key: &str| {
        let fields = [format!("x-forwarded-for: {client}"), format!("idempotency-key: {key}")];
        let answer = gateway.client().request("GET", target, &[&fields[0], &fields[1]], "");
        let left = answer.header("x-ratelimit-remaining").map(|left| left.parse::<u64>().expect("a number"));
        (answer.status, left)
    };
    assert_eq!(ask("/b", "192.0.2.1", "one"), (200, Some(3)));
    for _ in 0..3 {
        assert_eq!(ask("/b", "192.0.2.1", "one"), (200, None), "no limit had a say");
    }
    assert_eq!(ask("/a", "192.0.2.1", "one"), (200, Some(2)), "of another path it is another key");
    assert_eq!(ask("/a", "192.0.2.1", "one"), (200, Some(7)), "the other policy knows no retries");
    assert_eq!(ask("/b", "192.0.2.2", "one"), (200, Some(3)), "another client's key is another key");
    assert_eq!(ask("/b", "192.0.2.1", "two"), (200, Some(1)));
    assert_eq!(ask("/b", "192.0.2.1", ""), (200, Some(0)), "an empty key is none");
    assert_eq!(ask("/b", "192.0.2.1", "").0, 429);
    assert_eq!(ask("/b", "192.0.2.1", "three").0, 429);
    assert_eq!(ask("/b", "192.0.2.1", "three").0, 429, "what was refused is not remembered");
    assert_eq!(ask("/b", "192.0.2.1", "two"), (200, None), "what was charged passes, spent or not");
    assert_eq!(
        gateway.metric("sluicegate_decisions_total", &["policy=\"billed\"", "outcome=\"denied\""]),
        3.0
    );
}

#[test]
fn a_key_stands_for_one_request_and_ten_repeats_of_it() {
    let config = "[policy.p]\nby = []\nlimit = \"100/d\"\nidempotency-key = { key = \"header:x-retry\", by-address = true }\n\
        [[route]]\npath = \"/{*rest}\"\nlimit = \"p\"\nrespond = { status = 200 }\n";
    let gateway = Gateway::start(config);
    let is_charged = |method: &str, target: &str| {
        let answer = gateway.client().request(method, target, &["x-retry: one"], "");
        assert_eq!(answer.status, 200);
        answer.header("x-ratelimit-remaining").is_some()
    };
    assert!(is_charged("POST", "/a") && !is_charged("POST", "/a"));
    assert!(!is_charged("POST", "/a?page=2"), "the path alone says what it is");
    for (method, target) in [("PUT", "/a"), ("POST", "/b"), ("GET", "/a/b")] {
        assert!(is_charged(method, target) && !is_charged(method, target), "{method} {target}");
    }
    let charged = (0..30).filter(|_| is_charged("POST", "/a")).count();
    // Two were made before; as the minute passes, an allowance grows.
    assert!((20..=22).contains(&charged), "{charged} of thirty");
}

#[test]
fn a_retry_is_forgotten_after_its_window() {
    let config = "[policy.p]\nby = []\nlimit = \"1_000/d\"\n\
        idempotency-key = { key = \"header:x-retry\", window = \"1s\", by-address = true }\n\
        [[route]]\npath = \"/a\"\nlimit = \"p\"\nrespond = { status = 200 }\n";
    let gateway = Gateway::start(config);
    let is_charged = || {
        let answer = gateway.client().request("GET", "/a", &["x-retry: again"], "");
        answer.header("x-ratelimit-remaining").is_some()
    };
    assert!(is_charged());
    eventually("it is charged again", || is_charged().then_some(()));
}
