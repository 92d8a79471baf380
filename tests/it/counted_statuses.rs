//! `count` of a policy: only responses with some statuses are charged, whoever gives them, however many are in flight.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;

use serde_json::{Value, json};

use crate::auth::keys::hashed;
use crate::support::h2::{
    Connection, DATA, END_HEADERS, END_STREAM, HEADERS, RST_STREAM, WINDOW_UPDATE, fields,
};
use crate::support::redis::Redis;
use crate::support::upstream::Recorded;
use crate::support::{Client, Directory, Gateway, Response, Upstream, eventually};

const WRONG: &str = "count = { status = [401, 403] }";

/// A status of one's choice for every request: that in its body, 200 if it has none.
fn login() -> Upstream {
    Upstream::replying(reply)
}

fn reply(request: &Recorded) -> Vec<u8> {
    let status = String::from_utf8_lossy(&request.body).into_owned();
    let status = if status.is_empty() { "200".to_owned() } else { status };
    format!("HTTP/1.1 {status} So\r\nContent-Length: 0\r\n\r\n").into_bytes()
}

/// A route with the policy `login` before an upstream.
fn config(limit: &str, count: &str, to: impl std::fmt::Display, more: &str) -> String {
    format!(
        "[policy.login]\nby = []\nlimit = \"{limit}\"\n{count}\n\
         [upstream.u]\nservers = [\"http://{to}\"]\ntimeouts = {{ response = \"300ms\" }}\n\
         [[route]]\npath = \"/{{*rest}}\"\nlimit = \"login\"\nto = \"u\"\nupgrade = true\n{more}"
    )
}

/// One attempt that the upstream answers with this status.
fn attempt(gateway: &Gateway, status: &str) -> Response {
    gateway.client().request("POST", "/login", &[], status)
}

/// The status of an attempt, and what the response says is left.
fn told(gateway: &Gateway, status: &str) -> (u16, u64) {
    let response = attempt(gateway, status);
    let left = response.number("x-ratelimit-remaining");
    let shown = response.header("ratelimit").expect("the response has it");
    assert!(shown.contains(&format!(";r={left};")), "{shown} and {left}");
    (response.status, left)
}

fn costs(gateway: &Gateway, outcome: &str) -> f64 {
    gateway.metric("sluicegate_costs_total", &["policy=\"login\"", &format!("outcome=\"{outcome}\"")])
}

/// What is left if nothing is in flight.
fn left(gateway: &Gateway) -> u64 {
    let limit = gateway.admin("/v1/explain?url=/login").json()["limits"][0].clone();
    let remaining = limit["remaining"].as_u64().unwrap_or_else(|| panic!("{limit}"));
    remaining + u64::from(limit["admitted"] == true)
}

#[test]
fn a_wrong_password_costs_and_a_right_one_does_not() {
    for algorithm in ["token-bucket", "fixed-window", "sliding-window", "sliding-log"] {
        let upstream = login();
        let count = format!("{WRONG}\nalgorithm = \"{algorithm}\"");
        let gateway = Gateway::start(&config("3/d", &count, upstream.addr(), ""));
        for _ in 0..10 {
            assert_eq!(told(&gateway, "200"), (200, 3), "{algorithm}");
        }
        assert_eq!(told(&gateway, "401"), (401, 2), "{algorithm}");
        assert_eq!(told(&gateway, "404"), (404, 2), "{algorithm}");
        assert_eq!(told(&gateway, "403"), (403, 1), "{algorithm}");
        assert_eq!(left(&gateway), 1, "{algorithm}");
        assert_eq!(told(&gateway, "401"), (401, 0), "{algorithm}");
        assert_eq!(attempt(&gateway, "200").status, 429, "{algorithm}");
        eventually("costs are counted", || (costs(&gateway, "known") == 3.0).then_some(()));
        assert_eq!(costs(&gateway, "waived"), 11.0, "{algorithm}");
        let shown = gateway.logged_where("the 404", |line| line["status"] == 404);
        assert_eq!(shown["remaining"], 2, "{algorithm}: {shown}");
    }
}

#[test]
fn statuses_that_are_not_charged_are_named_too() {
    let upstream = login();
    let gateway = Gateway::start(&config("100/d", "count = { not-status = \"2xx\" }", upstream.addr(), ""));
    let left = ["200", "204", "302", "404", "500"].map(|status| told(&gateway, status).1);
    assert_eq!(left, [100, 100, 99, 98, 97]);
    let both = "count = { status = [429, \"5xx\"], not-status = 503 }";
    let gateway = Gateway::start(&config("100/d", both, upstream.addr(), ""));
    let left = ["200", "429", "502", "503", "401"].map(|status| told(&gateway, status).1);
    assert_eq!(left, [100, 99, 98, 98, 98]);
    let explained = gateway.admin("/v1/explain?url=/login").json();
    assert_eq!(explained["limits"][0]["counted-statuses"], "429, 500-599, but not 503");
    let text = explained["text"].as_str().expect("a text");
    assert!(text.contains("charges only responses with status 429, 500-599, but not 503"), "{text}");
}

#[test]
fn the_status_that_counts_is_the_one_the_client_gets() {
    let closed = std::net::TcpListener::bind("127.0.0.1:0").expect("loopback has a free port");
    let addr = closed.local_addr().expect("it is bound");
    drop(closed);
    let silent = Upstream::raw(|stream| {
        let mut peer = Client::over(stream);
        while crate::support::upstream::receive(&mut peer).is_some() {}
    });
    let broken = Upstream::answering("HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab");
    for (to, status) in [(addr, 502), (silent.addr(), 504), (broken.addr(), 502)] {
        let gateway = Gateway::start(&config("9/d", "count = { status = \"5xx\" }", to, ""));
        assert_eq!(told(&gateway, ""), (status, 8));
        let gateway = Gateway::start(&config("9/d", WRONG, to, ""));
        assert_eq!(told(&gateway, ""), (status, 9));
        let gateway = Gateway::start(&config("9/d", &format!("count = {{ status = {status} }}"), to, ""));
        assert_eq!(told(&gateway, ""), (status, 8));
    }
}

#[test]
fn a_route_without_an_upstream_counts_its_own_status() {
    let gateway = Gateway::start(
        "[policy.p]\nby = []\nlimit = \"9/d\"\ncount = { status = [401, \"3xx\"] }\n\
         [[route]]\npath = \"/login\"\nlimit = \"p\"\nrespond = { status = 401 }\n\
         [[route]]\npath = \"/moved\"\nlimit = \"p\"\nredirect = \"/login\"\n\
         [[route]]\npath = \"/fine\"\nlimit = \"p\"\nrespond = { status = 204 }\n\
         [[route]]\npath = \"/echo\"\nlimit = \"p\"\nto = \"echo\"\n",
    );
    let left =
        ["/login", "/fine", "/moved", "/echo"].map(|path| gateway.get(path).number("x-ratelimit-remaining"));
    assert_eq!(left, [8, 8, 7, 7]);
}

#[test]
fn what_other_policies_leave_binds_once_a_unit_is_given_back() {
    let upstream = login();
    let more = "[policy.all]\nby = []\nlimit = \"3/d\"\n\
                [[route]]\npath = \"/login\"\nlimit = [\"login\", \"all\"]\nto = \"u\"\n";
    let gateway = Gateway::start(&config("3/d", WRONG, upstream.addr(), more));
    let response = attempt(&gateway, "200");
    assert_eq!(response.header("ratelimit"), Some("\"all\";r=2;t=28800, \"login\";r=3;t=0"), "{response:?}");
    let response = attempt(&gateway, "401");
    assert!(response.header("ratelimit").is_some_and(|shown| shown.starts_with("\"all\";r=1;")));
}

/// An upstream that answers nothing before it may.
fn holding() -> (Upstream, Arc<AtomicUsize>, impl Fn()) {
    let (asked, gate) = (Arc::new(AtomicUsize::new(0)), Arc::new((Mutex::new(false), Condvar::new())));
    let (count, held) = (Arc::clone(&asked), Arc::clone(&gate));
    let upstream = Upstream::replying(move |request| {
        count.fetch_add(1, Ordering::SeqCst);
        let (is_open, opened) = &*held;
        let wait = opened.wait_while(is_open.lock().expect("nobody panics"), |is_open| !*is_open);
        drop(wait.expect("nobody panics"));
        reply(request)
    });
    let open = move || {
        *gate.0.lock().expect("nobody panics") = true;
        gate.1.notify_all();
    };
    (upstream, asked, open)
}

/// Twenty attempts at once, of which `limit` come to the upstream before one is answered, and the others are refused.
fn burst(nodes: &[&Gateway], (upstream, asked, open): (Upstream, Arc<AtomicUsize>, impl Fn()), limit: usize) {
    let (refused, passed) = (AtomicUsize::new(0), AtomicUsize::new(0));
    thread::scope(|scope| {
        for number in 0..20 {
            let (node, refused, passed) = (nodes[number % nodes.len()], &refused, &passed);
            scope.spawn(move || match attempt(node, "401").status {
                429 => refused.fetch_add(1, Ordering::SeqCst),
                status => {
                    assert_eq!(status, 401);
                    passed.fetch_add(1, Ordering::SeqCst)
                }
            });
        }
        eventually("the others are refused", || (refused.load(Ordering::SeqCst) == 20 - limit).then_some(()));
        eventually("the rest are sent", || (asked.load(Ordering::SeqCst) == limit).then_some(()));
        open();
    });
    assert_eq!(asked.load(Ordering::SeqCst), limit, "no more were sent");
    assert_eq!(passed.load(Ordering::SeqCst), limit);
    drop(upstream);
}

#[test]
fn attempts_in_flight_are_bounded() {
    let holding = holding();
    let patient = config("5/d", WRONG, holding.0.addr(), "").replace("300ms", "60s");
    burst(&[&Gateway::start(&patient)], holding, 5);
}

#[test]
fn an_attempt_that_its_client_aborts_is_charged() {
    let (upstream, asked, open) = holding();
    let patient = config("5/d", WRONG, upstream.addr(), "").replace("300ms", "60s");
    let gateway = Gateway::start(&patient);
    let mut client = gateway.client();
    client.send("POST /login HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\n200");
    eventually("the upstream has it", || (asked.load(Ordering::SeqCst) == 1).then_some(()));
    drop(client);
    eventually("it is over", || (costs(&gateway, "cut") == 1.0).then_some(()));
    assert_eq!((left(&gateway), costs(&gateway, "waived")), (4, 0.0));
    // Nor does it come back if only a part of the body was sent.
    for (index, (whole, sent)) in [(9, 3), (400_000, 300_000)].into_iter().enumerate() {
        let mut client = gateway.client();
        let body = "2".repeat(sent);
        client.send(format!("POST /login HTTP/1.1\r\nHost: a\r\nContent-Length: {whole}\r\n\r\n{body}"));
        drop(client);
        eventually("it is over", || (costs(&gateway, "cut") == index as f64 + 2.0).then_some(()));
    }
    assert_eq!((left(&gateway), costs(&gateway, "waived")), (2, 0.0));
    open();
}

#[test]
fn a_tunnel_counts_by_its_101_while_it_is_open() {
    let upstream = Upstream::raw(|stream| {
        let mut peer = Client::over(stream);
        peer.head_text();
        peer.send("HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: other\r\n\r\n");
        peer.rest();
    });
    let open = |count: &str| {
        let gateway = Gateway::start(&config("5/d", count, upstream.addr(), ""));
        let mut client = gateway.client();
        client.send("GET /login HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: other\r\n\r\n");
        let head = client.head_text();
        assert!(head.starts_with("HTTP/1.1 101 "), "{head}");
        left(&gateway)
    };
    assert_eq!(
        [open(WRONG), open("count = { status = 101 }"), open("count = { not-status = 101 }")],
        [5, 4, 5]
    );
}

/// An upstream of calls that end as their message says: `7` in trailers, `head 7` without a body, `0 then 7` with a status in
/// the head and another in trailers, `none` without a status, `reset` with a reset.
fn calls() -> Upstream {
    Upstream::raw(|stream| {
        let mut peer = Connection::serve(stream);
        let head = |more: &[(&str, &str)]| {
            fields(&[&[(":status", "200"), ("content-type", "application/grpc")], more].concat())
        };
        while let Some(frame) = peer.frame() {
            if frame.kind != DATA {
                continue;
            }
            let end = END_HEADERS | END_STREAM;
            let asked = String::from_utf8_lossy(&frame.payload).into_owned();
            if let Some(code) = asked.strip_prefix("head ") {
                peer.send(HEADERS, end, frame.stream, &head(&[("grpc-status", code)]));
                continue;
            }
            let (first, asked) =
                asked.split_once(" then ").map_or(("", &*asked), |(first, then)| (first, then));
            let first: &[_] = if first.is_empty() { &[] } else { &[("grpc-status", first)] };
            peer.send(HEADERS, END_HEADERS, frame.stream, &head(first));
            match asked {
                "none" => peer.send(DATA, END_STREAM, frame.stream, b""),
                "reset" => peer.send(RST_STREAM, 0, frame.stream, &[0, 0, 0, 2]),
                code => peer.send(HEADERS, end, frame.stream, &fields(&[("grpc-status", code)])),
            }
        }
    })
}

/// What is left after calls that end so.
fn left_after_calls(gateway: &Gateway, ends: &[&str]) -> Vec<u64> {
    left_after_calls_as(gateway, "application/grpc", ends)
}

/// The same of calls with this `Content-Type`.
fn left_after_calls_as(gateway: &Gateway, content_type: &str, ends: &[&str]) -> Vec<u64> {
    let mut h2 = Connection::open(gateway.plain());
    let head = [(":method", "POST"), (":scheme", "http"), (":authority", "a"), (":path", "/a.B/C")];
    let head = fields(&[&head[..], &[("content-type", content_type), ("te", "trailers")]].concat());
    let called = |(number, end): (usize, &&str)| {
        let stream = 2 * number as u32 + 1;
        h2.send(HEADERS, END_HEADERS, stream, &head);
        h2.data(stream, end.as_bytes(), true);
        loop {
            let frame = h2.frame().expect("the call ends");
            if frame.kind == RST_STREAM || frame.kind != WINDOW_UPDATE && frame.flags & END_STREAM != 0 {
                break;
            }
        }
        eventually("it is logged", || (gateway.access_log().len() > number).then_some(()));
        left(gateway)
    };
    ends.iter().enumerate().map(called).collect()
}

#[test]
fn a_call_counts_by_the_status_that_it_ends_with() {
    let upstream = calls();
    let ends = ["0", "7", "head 16", "head 0", "none", "reset", "99", "0 then 7", "7 then none"];
    for (count, expected) in [
        ("grpc-status = [7, \"unauthenticated\"]", [9, 8, 7, 7, 7, 7, 7, 6, 5]),
        ("not-grpc-status = \"ok\"", [9, 8, 7, 7, 6, 5, 4, 3, 2]),
        ("grpc-status = 2", [9, 9, 9, 9, 8, 7, 6, 6, 6]),
        ("status = 401, grpc-status = 7", [9, 8, 8, 8, 8, 8, 8, 7, 6]),
        ("status = \"2xx\"", [8, 7, 6, 5, 4, 3, 2, 1, 0]),
    ] {
        let text = config("9/d", &format!("count = {{ {count} }}"), upstream.addr(), "");
        let gateway = Gateway::start(&text.replace("timeouts", "http = \"h2\"\ntimeouts"));
        assert_eq!(left_after_calls(&gateway, &ends), expected, "{count}");
    }
    // The gateway's own: no upstream, UNAVAILABLE, which stands for a 503: whoever says that it calls escapes no count.
    let closed = std::net::TcpListener::bind("127.0.0.1:0").expect("loopback has a free port");
    let addr = closed.local_addr().expect("it is bound");
    drop(closed);
    for (count, expected) in [
        ("grpc-status = 14", 8),
        ("grpc-status = 2", 9),
        ("status = \"5xx\"", 8),
        ("not-status = [\"2xx\", \"5xx\"]", 9),
    ] {
        let gateway = Gateway::start(&config("9/d", &format!("count = {{ {count} }}"), addr, ""));
        assert_eq!(left_after_calls(&gateway, &["0"]), [expected], "{count}");
    }
}

/// The server decides what is a call of gRPC's: it answers one whatever it is asked with.
#[test]
fn a_call_counts_whatever_the_client_says_that_it_is() {
    let upstream = calls();
    let ends = ["0", "7", "head 16", "head 0", "none"];
    for (count, expected) in [
        ("grpc-status = [7, \"unauthenticated\"]", [9, 8, 7, 7, 7]),
        ("not-grpc-status = \"ok\"", [9, 8, 7, 7, 6]),
    ] {
        let text = config("9/d", &format!("count = {{ {count} }}"), upstream.addr(), "");
        let text = text.replace("timeouts", "http = \"h2\"\ntimeouts");
        for content_type in ["application/json", "application/grpc-web", "application/grpcx", ""] {
            let left = left_after_calls_as(&Gateway::start(&text), content_type, &ends);
            assert_eq!(left, expected, "{count} as {content_type:?}");
        }
        let gateway = Gateway::start(&text);
        let over_http1 = ends.map(|end| {
            let mut client = gateway.client();
            let length = end.len();
            client.send(format!("POST /a.B/C HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n\r\n{end}"));
            assert_eq!(client.response().status, 200);
            left(&gateway)
        });
        assert_eq!(over_http1, expected, "{count} over HTTP/1.1");
    }
}

/// Two gateways with one Redis.
fn fleet(redis: &Redis, config: &str) -> [Gateway; 2] {
    let shared = format!("{config}[redis]\nurl = \"redis://{}\"\ndeadline = \"1s\"\n", redis.addr());
    [(); 2].map(|()| {
        let node = Gateway::start(&shared);
        eventually("it is connected", || (node.metric("sluicegate_redis_up", &[]) > 0.0).then_some(()));
        node
    })
}

#[test]
fn a_fleet_counts_statuses_together() {
    let upstream = login();
    for algorithm in ["token-bucket", "fixed-window", "sliding-window", "sliding-log"] {
        let redis = Redis::start(&[]);
        let count = format!("{WRONG}\nalgorithm = \"{algorithm}\"");
        let nodes = fleet(&redis, &config("5/d", &count, upstream.addr(), ""));
        for number in 0..20 {
            assert_eq!(attempt(&nodes[number % 2], "200").status, 200, "{algorithm}");
        }
        for number in 0..5 {
            assert_eq!(attempt(&nodes[number % 2], "401").status, 401, "{algorithm}: {number}");
        }
        for node in &nodes {
            assert_eq!(attempt(node, "200").status, 429, "{algorithm}");
        }
    }
}

#[test]
fn a_burst_over_a_fleet_is_bounded() {
    let (redis, holding) = (Redis::start(&[]), holding());
    let patient = config("5/d", WRONG, holding.0.addr(), "").replace("300ms", "60s");
    let nodes = fleet(&redis, &patient);
    burst(&[&nodes[0], &nodes[1]], holding, 5);
}

#[test]
fn without_redis_what_does_not_count_comes_back() {
    let (mut redis, upstream) = (Redis::start(&[]), login());
    let [node, _other] = fleet(&redis, &config("8/d", WRONG, upstream.addr(), ""));
    redis.kill();
    eventually("Redis is away", || {
        let status = attempt(&node, "200").status;
        assert_eq!(status, 200);
        (node.metric("sluicegate_redis_up", &[]) == 0.0).then_some(())
    });
    for _ in 0..20 {
        assert_eq!(attempt(&node, "200").status, 200);
    }
    let wrong = (0..20).filter(|_| attempt(&node, "401").status == 401).count();
    assert!((1..=8).contains(&wrong), "{wrong} of 8 that two nodes share");
}

#[test]
fn usage_by_the_minute_has_only_what_was_charged() {
    let directory = Directory::new();
    directory.write("keys.toml", hashed("ann", &["--consumer", "ann"]));
    let copy = directory.join("control.json").display().to_string();
    let upstream = login();
    let text = config("100/d", "count = { status = 401 }\ncost = 3", upstream.addr(), "")
        .replace("by = []", "by = [\"consumer\"]")
        .replace("upgrade = true", "auth = \"keys\"");
    let gateway = Gateway::start_in(
        directory,
        &format!(
            "{text}[auth.keys]\nkind = \"api-key\"\nkeys = {{ file = \"keys.toml\" }}\n\
             [admin]\nbind = \"127.0.0.1:0\"\ntoken = \"secret\"\n\
             [database]\nurl = \"sqlite:state.db\"\ncopy = {copy:?}\n"
        ),
    );
    for status in ["200", "401", "200", "401", "404"] {
        gateway.client().request("POST", "/login", &["X-Api-Key: ann"], status);
    }
    let expected = json!([5, 0, 6]);
    eventually("usage is shown", || {
        let path = "/v1/usage/consumer/ann?minutes=5";
        let shown = gateway.ask("secret", "GET", path, &[], &Value::Null).json();
        let minutes = shown["items"][0]["minutes"].as_array()?.clone();
        let sum = |field: &str| minutes.iter().filter_map(|minute| minute[field].as_u64()).sum::<u64>();
        (json!(["admitted", "denied", "units"].map(sum)) == expected).then_some(())
    });
}
