//! What `explain` says of limits beside what the gateway does with the next request.

use crate::support::redis::Redis;
use crate::support::upstream::{Upstream, receive};
use crate::support::{Client, Directory, Gateway, Response, eventually};

const ROUTE: &str = "[[route]]\npath = \"/{*rest}\"\nlimit = \"p\"\nrespond = {}\n";

/// A node with this policy `p`, connected to Redis.
fn node(redis: &Redis, policy: &str) -> Gateway {
    connected(redis, &format!("[policy.p]\nby = [\"ip\"]\n{policy}\n{ROUTE}"))
}

fn connected(redis: &Redis, config: &str) -> Gateway {
    let gateway =
        Gateway::start(&format!("[redis]\nurl = \"redis://{}\"\ndeadline = \"1s\"\n{config}", redis.addr()));
    eventually("it is connected", || {
        (gateway.metric("sluicegate_redis_connects_total", &[]) > 0.0).then_some(())
    });
    gateway
}

fn explained(gateway: &Gateway, fields: &str) -> serde_json::Value {
    gateway.admin(&format!("/v1/explain?url=/&from=127.0.0.1{fields}")).json()
}

/// The status that the request is explained to get, if it is refused.
fn refused(explained: &serde_json::Value) -> Option<u16> {
    explained["refused"].as_str()?.split(':').next()?.parse().ok()
}

/// Explains a request and sends it; both say the same. Returns the answer.
fn both(gateway: &Gateway) -> Response {
    let said = explained(gateway, "");
    let answer = gateway.get("/");
    assert_eq!(refused(&said).unwrap_or(200), answer.status, "{said}");
    let left = said["limits"][0]["remaining"].as_u64().expect("a gateway knows");
    assert_eq!(left, answer.number("x-ratelimit-remaining"), "{said} {answer:?}");
    answer
}

#[test]
fn explain_says_what_is_done_without_redis() {
    let cases = [
        ("limit = \"5/d\"\nwhen-redis-down = \"deny\"", 503),
        ("limit = \"100/d burst 20\"\nwhen-redis-down = \"deny\"", 503),
        ("limit = \"5/d\"\nwhen-redis-down = \"allow\"", 429),
        ("limit = \"5/d\"\novershoot = 0", 429),
        ("limit = \"100/d burst 20\"", 429),
        ("limit = \"60/d\"\nalgorithm = \"fixed-window\"", 429),
        ("limit = \"60/d\"\nalgorithm = \"sliding-window\"", 429),
    ];
    let mut redis = Redis::start(&[]);
    let nodes = cases.map(|(policy, _)| node(&redis, policy));
    redis.kill();
    for (node, (policy, status)) in nodes.iter().zip(cases) {
        eventually("it is noticed", || (node.metric("sluicegate_redis_up", &[]) == 0.0).then_some(()));
        let said = explained(node, "")["limits"][0]["said"].to_string();
        assert_eq!(said.contains("admitted, because when-redis-down is"), policy.contains("allow"), "{said}");
        let last = (0..60).map(|_| both(node)).find(|answer| answer.status != 200);
        assert_eq!(last.map(|answer| answer.status), Some(status), "{policy}");
        assert_eq!(both(node).status, status, "{policy}");
        let said = explained(node, "")["limits"][0]["said"].as_str().unwrap_or_default().to_owned();
        assert!(said.contains("Redis is down") && !said.contains("admitted,"), "{said}");
    }
}

#[test]
fn explain_says_what_redis_has_and_not_what_a_node_remembers() {
    let redis = Redis::start(&[]);
    let [first, second] = [0, 1].map(|_| node(&redis, "limit = \"100/d burst 20\""));
    assert_eq!(both(&first).status, 200);
    let mut client = second.client();
    eventually("it is spent", || (client.request("GET", "/", &[], "").status == 429).then_some(()));
    let said = eventually("it is known", || {
        let said = explained(&first, "");
        (refused(&said) == Some(429)).then_some(said)
    });
    assert_eq!(said["limits"][0]["admitted"], false, "{said}");
    assert_eq!(both(&first).status, 429);
}

#[test]
fn explain_counts_a_small_sliding_window_as_the_gateway_does() {
    let redis = Redis::start(&[]);
    let node = node(&redis, "limit = \"20/d\"\nalgorithm = \"sliding-window\"");
    let answers: Vec<_> = (0..22).map(|_| both(&node).status).collect();
    assert_eq!(answers, [[200; 20].as_slice(), &[429, 429]].concat());
}

#[test]
fn limits_refuse_before_authentication_in_explain_too() {
    let directory = Directory::new();
    directory.write("keys.toml", "");
    let config = "[auth.keys]\nkind = \"api-key\"\nkeys = { file = \"keys.toml\" }\n\
                  [policy.p]\nby = [\"ip\"]\nlimit = \"1/d\"\n\
                  [[route]]\npath = \"/\"\nauth = \"keys\"\nlimit = \"p\"\nrespond = {}\n";
    let gateway = Gateway::start_in(directory, config);
    for status in [401, 429, 429] {
        let said = explained(&gateway, "&header=x-api-key:none");
        let answer = gateway.client().request("GET", "/", &["x-api-key: none"], "");
        assert_eq!((refused(&said), answer.status), (Some(status), status), "{said}");
        let line = format!("refused  {status}: ");
        assert!(said["text"].as_str().is_some_and(|text| text.contains(&line)), "{said}");
    }
}

#[test]
fn explain_says_what_is_left_in_flight_and_promises_no_time() {
    let upstream = Upstream::raw(|stream| {
        let mut peer = Client::over(stream);
        while receive(&mut peer).is_some() {
            peer.try_send("HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\nhalf");
        }
    });
    let config = format!(
        "[policy.p]\nby = []\nlimit = \"3 in flight\"\n[[route]]\npath = \"/\"\nlimit = \"p\"\nto = \"http://{}\"\n",
        upstream.addr()
    );
    let redis = Redis::start(&[]);
    for gateway in [Gateway::start(&config), connected(&redis, &config)] {
        let mut held = Vec::new();
        for left in [2, 1, 0] {
            let said = explained(&gateway, "");
            assert_eq!(said["limits"][0]["remaining"], left, "{said}");
            let mut client = gateway.client();
            client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
            let head = client.head();
            assert_eq!(head.number("x-ratelimit-remaining"), left, "{said}");
            held.push(client);
        }
        let said = explained(&gateway, "");
        assert_eq!((refused(&said), gateway.get("/").status), (Some(503), 503), "{said}");
        let sentence = said["limits"][0]["said"].as_str().unwrap_or_default();
        assert!(sentence.starts_with("denied, admitted again once other requests have ended"), "{sentence}");
    }
}

#[test]
fn explain_foresees_a_strike_and_its_text_names_it_once() {
    let gateway = Gateway::start(&format!(
        "[policy.p]\nby = [\"ip\"]\nlimit = [\"2/d\", \"3/30d\"]\n\
         penalty = {{ after = 2, within = \"1h\", factor = 2, max = \"1d\" }}\n{ROUTE}"
    ));
    let mut penalised = 0;
    for _ in 0..9 {
        let said = explained(&gateway, "");
        let answer = gateway.get("/");
        assert_eq!(refused(&said).unwrap_or(200), answer.status, "{said}");
        if answer.status == 200 {
            continue;
        }
        let problem = answer.json();
        let is_penalty = problem["violations"][0]["penalty"] == true;
        assert_eq!(said["limits"][0]["penalty"], is_penalty, "{said} {problem}");
        if is_penalty {
            penalised += 1;
            let detail = problem["detail"].as_str().unwrap_or_default();
            assert_eq!(detail.matches("penalises").count(), 1, "{detail}");
        }
    }
    assert!(penalised > 0);
}

#[test]
fn a_penalised_client_is_told_the_waits_of_all_windows() {
    let gateway = Gateway::start(
        "[policy.burst]\nby = [\"ip\"]\nlimit = \"3/2s\"\nalgorithm = \"fixed-window\"\n\
         penalty = { after = 2, within = \"1h\", factor = 2, max = \"5h\" }\n\
         [policy.day]\nby = [\"ip\"]\nlimit = \"3/d\"\n\
         [[route]]\npath = \"/\"\nlimit = [\"day\", \"burst\"]\nrespond = {}\n",
    );
    // A window may end between: then the longer one refuses alone until the shorter is used up again, which it never is.
    let reverse = Gateway::start(
        "[policy.burst]\nby = [\"ip\"]\nlimit = \"1/h\"\npenalty = { after = 1, within = \"1h\", factor = 2, max = \"5h\" }\n\
         [policy.day]\nby = [\"ip\"]\nlimit = \"1/d\"\n\
         [[route]]\npath = \"/\"\nlimit = [\"burst\", \"day\"]\nrespond = {}\n",
    );
    for (gateway, windows) in [(&gateway, &["day"][..]), (&reverse, &["burst", "day"][..])] {
        let refusals: Vec<_> =
            (0..9).map(|_| gateway.get("/")).filter(|answer| answer.status == 429).collect();
        assert!(refusals.len() >= 6);
        for answer in refusals {
            let problem = answer.json();
            for window in windows {
                let violated = problem["violated-policies"].as_array().expect("a list");
                assert!(violated.contains(&serde_json::json!(window)), "{problem}");
            }
            // Of three a day one comes back every eight hours, of one a day after a day.
            assert!(answer.number("retry-after") > 7 * 3_600, "{problem}");
        }
    }
}

#[test]
fn a_denial_from_memory_names_what_else_is_known_to_be_used_up() {
    let redis = Redis::start(&[]);
    let config = "[policy.a]\nby = [\"ip\"]\nlimit = \"3/d\"\novershoot = 0\n\
                  [policy.b]\nby = [\"header:u\"]\nlimit = \"1/h\"\novershoot = 0\n\
                  [[route]]\npath = \"/\"\nlimit = [\"a\", \"b\"]\nrespond = {}\n";
    for algorithm in ["token-bucket", "fixed-window", "sliding-window", "sliding-log"] {
        redis.cli(&["FLUSHALL"]);
        let config = config.replace("overshoot = 0", &format!("overshoot = 0\nalgorithm = \"{algorithm}\""));
        let gateway = connected(&redis, &config);
        let ask = |user: &str| gateway.client().request("GET", "/", &[&format!("u: {user}")], "");
        assert_eq!(["x", "x", "y", "z"].map(|user| ask(user).status), [200, 429, 200, 200], "{algorithm}");
        let answer = ask("x");
        let problem = answer.json();
        assert_eq!(problem["violated-policies"], serde_json::json!(["a", "b"]), "{algorithm} {problem}");
        let waits = problem["violations"].as_array().expect("a list").iter();
        let longest = waits.filter_map(|it| it["retry-after-seconds"].as_u64()).max();
        assert_eq!(Some(answer.number("retry-after")), longest, "{problem}");
    }
}
