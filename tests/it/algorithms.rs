//! Concurrency, the leaky bucket and the sliding log, as a client meets them.

use std::io::Write;
use std::net::TcpStream;
use std::sync::mpsc::{self, Sender};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::support::upstream::receive;
use crate::support::{Client, Gateway, Response, Upstream, eventually};

/// An upstream that sends a head and half a body at once, and the other half when it is told to.
fn half_at_a_time() -> (Upstream, Sender<()>) {
    let (tx, rx) = mpsc::channel();
    let rx = Mutex::new(rx);
    let upstream = Upstream::raw(move |stream| {
        let mut peer = Client::over(stream);
        while receive(&mut peer).is_some() {
            peer.try_send("HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\nhalf");
            if rx.lock().unwrap_or_else(PoisonError::into_inner).recv().is_err() {
                return;
            }
            peer.try_send("half");
        }
    });
    (upstream, tx)
}

fn routed(policies: &str, limit: &str, upstream: &Upstream) -> String {
    format!("{policies}\n[[route]]\npath = \"/a\"\nlimit = {limit}\nto = \"http://{}\"\n", upstream.addr())
}

/// Begins a request and reads the head of its answer.
fn begin(gateway: &Gateway) -> (Client<TcpStream>, Response) {
    let mut client = gateway.client();
    client.send("GET /a HTTP/1.1\r\nHost: a\r\n\r\n");
    let head = client.head();
    (client, head)
}

/// What `explain` says of the first limit of `/a`.
fn explained(gateway: &Gateway) -> Value {
    gateway.admin("/v1/explain?url=/a").json()["limits"][0].clone()
}

fn left(gateway: &Gateway) -> u64 {
    let limit = explained(gateway);
    limit["remaining"].as_u64().unwrap_or_else(|| panic!("{limit}"))
}

#[test]
fn a_permit_lasts_until_the_answer_has_ended() {
    let (upstream, finish) = half_at_a_time();
    let gateway = Gateway::start(&routed("", "\"2 in flight by ip\"", &upstream));
    let (mut first, head) = begin(&gateway);
    assert_eq!((head.status, head.header("ratelimit")), (200, Some("\"route:/a\";r=1")));
    assert_eq!(head.header("ratelimit-policy"), Some("\"route:/a\";q=2;qu=\"concurrent-requests\""));
    let (_second, head) = begin(&gateway);
    assert_eq!((head.status, head.number("x-ratelimit-remaining")), (200, 0));
    let refused = gateway.get("/a");
    assert_eq!((refused.status, refused.header("ratelimit")), (503, Some("\"route:/a\";r=0")));
    assert_eq!(refused.number("retry-after"), 1);
    let problem = refused.json();
    assert_eq!(problem["violated-policies"], serde_json::json!(["route:/a"]));
    assert_eq!(problem["detail"], "`route:/a` allows 2 in flight; try again in 1 s", "{problem}");
    assert_eq!(problem["violations"][0]["period-seconds"], Value::Null);
    assert_eq!(explained(&gateway)["admitted"], false);
    finish.send(()).expect("the upstream waits for it");
    finish.send(()).expect("the upstream waits for it");
    first.bytes(8);
    eventually("both permits are back", || (left(&gateway) == 1).then_some(()));
    assert_eq!(begin(&gateway).1.status, 200);
    assert_eq!(gateway.metric("sluicegate_decisions_total", &["outcome=\"denied\""]), 1.0);
}

#[test]
fn a_client_that_goes_leaves_its_permit() {
    let (upstream, _finish) = half_at_a_time();
    let gateway = Gateway::start(&routed("", "\"1 in flight by ip\"", &upstream));
    for _ in 0..3 {
        let (client, head) = begin(&gateway);
        assert_eq!(head.status, 200);
        assert_eq!(gateway.get("/a").status, 503);
        drop(client);
        eventually("the permit is back", || (explained(&gateway)["admitted"] == true).then_some(()));
    }
}

#[test]
fn a_tunnel_holds_its_permit_to_its_end() {
    let upstream = Upstream::raw(|stream| {
        let mut peer = Client::over(stream);
        if receive(&mut peer).is_some() {
            peer.send(
                "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
            );
            peer.rest();
        }
    });
    let gateway = Gateway::start(&(routed("", "\"1 in flight by ip\"", &upstream) + "upgrade = true"));
    let mut client = gateway.client();
    let upgrade = [
        "Connection: Upgrade",
        "Upgrade: websocket",
        "Sec-WebSocket-Version: 13",
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
    ];
    assert_eq!(client.request("GET", "/a", &upgrade, "").status, 101);
    assert_eq!(gateway.get("/a").status, 503);
    drop(client);
    eventually("the permit is back", || (explained(&gateway)["admitted"] == true).then_some(()));
}

#[test]
fn what_is_in_flight_refuses_costs_no_window_and_keeps_no_permit() {
    let (upstream, finish) = half_at_a_time();
    let policy = "[policy.both]\nby = [\"ip\"]\nlimit = [\"5/h\", \"1 in flight\"]\ncount-denied = true\n\
                  [policy.plain]\nby = [\"ip\"]\nlimit = [\"9/h\", \"1 in flight\"]\n";
    let config = format!(
        "{policy}{}{}",
        routed("", "\"plain\"", &upstream),
        routed("", "\"both\"", &upstream).replace("/a", "/counted")
    );
    let gateway = Gateway::start(&config);
    let (mut client, head) = begin(&gateway);
    assert_eq!(head.status, 200);
    assert_eq!([gateway.get("/a").status, gateway.get("/a").status], [503, 503]);
    assert_eq!(left(&gateway), 8, "one of nine is spent, and explain says what is left without this request");
    finish.send(()).expect("the upstream waits for it");
    client.bytes(8);
    eventually("the permit is back", || (explained(&gateway)["admitted"] == true).then_some(()));
    // Refused by the permit while it counts when denied: the window is charged, the permit is not.
    let mut first = gateway.client();
    first.send("GET /counted HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(first.head().status, 200);
    let statuses: Vec<u16> = (0..5).map(|_| gateway.get("/counted").status).collect();
    assert_eq!(statuses, [503, 503, 503, 503, 429], "at last the window is spent too");
    drop(first);
}

#[test]
fn permits_survive_a_reload() {
    let (upstream, finish) = half_at_a_time();
    let policy = |count: u32| {
        routed(&format!("[policy.p]\nby = []\nlimit = \"{count} in flight\""), "\"p\"", &upstream)
    };
    let gateway = Gateway::start(&policy(3));
    let mut clients: Vec<_> = (0..3).map(|_| begin(&gateway)).collect();
    assert!(clients.iter().all(|(_, head)| head.status == 200));
    gateway.reload(&policy(2));
    for _ in 0..2 {
        assert_eq!(gateway.get("/a").status, 503, "three are out, two are allowed");
        finish.send(()).expect("the upstream waits for it");
    }
    eventually("fewer than two are out", || (explained(&gateway)["admitted"] == true).then_some(()));
    clients.clear();
}

#[test]
fn a_shadow_of_a_concurrency_limit_refuses_no_request() {
    let (upstream, _finish) = half_at_a_time();
    let policy = "[policy.quiet]\nby = []\nlimit = \"1 in flight\"\nshadow = true";
    let gateway = Gateway::start(&routed(policy, "\"quiet\"", &upstream));
    let clients: Vec<_> = (0..3).map(|_| begin(&gateway)).collect();
    assert!(clients.iter().all(|(_, head)| head.status == 200 && head.header("ratelimit").is_none()));
    assert_eq!(gateway.metric("sluicegate_decisions_total", &["outcome=\"shadow-denied\""]), 2.0);
    drop(clients);
    eventually("its permit is back too", || (explained(&gateway)["admitted"] == true).then_some(()));
}

const SHAPED: &str = "[policy.shaped]\nby = [\"ip\"]\nalgorithm = \"leaky-bucket\"\nlimit = ";

fn shaped(limit: &str) -> String {
    format!(
        "{SHAPED}\"{limit}\"\n[[route]]\npath = \"/a\"\nlimit = \"shaped\"\nrespond = {{ status = 200, body = \"ok\" }}\n"
    )
}

#[test]
fn what_comes_too_fast_waits_for_its_turn() {
    let gateway = Gateway::start(&shaped("5/s burst 10"));
    let began = Instant::now();
    let mut clients: Vec<_> = (0..4).map(|_| gateway.client()).collect();
    for client in &mut clients {
        client.send("GET /a HTTP/1.1\r\nHost: a\r\n\r\n");
    }
    for client in &mut clients {
        assert_eq!(client.response().status, 200);
    }
    // Three waited behind the first, a fifth of a second each.
    assert!(began.elapsed() >= Duration::from_millis(600) - Duration::from_millis(50));
    eventually("all lines are written", || (gateway.access_log().len() == 4).then_some(()));
    let waited = gateway.access_log().iter().filter(|line| line["delay_us"].is_u64()).count();
    assert!((1..=3).contains(&waited), "the first went on at once");
}

#[test]
fn beyond_the_queue_it_is_refused() {
    // Nothing drains while the test lasts.
    let gateway = Gateway::start(&shaped("1/h burst 2"));
    assert_eq!(gateway.get("/a").status, 200);
    let mut waiting: Vec<_> = (0..2).map(|_| gateway.client()).collect();
    for client in &mut waiting {
        client.send("GET /a HTTP/1.1\r\nHost: a\r\n\r\n");
    }
    eventually("both wait", || (explained(&gateway)["admitted"] == false).then_some(()));
    let refused = gateway.get("/a");
    assert_eq!((refused.status, refused.header("ratelimit-policy")), (429, Some("\"shaped\";q=3;w=10800")));
    assert!((3_500..=3_960).contains(&refused.number("retry-after")));
    // A client that leaves while it waits frees its place.
    waiting.pop();
    eventually("a place is free", || (explained(&gateway)["admitted"] == true).then_some(()));
    assert!(explained(&gateway)["said"].as_str().is_some_and(|said| said.contains("after waiting")));
}

#[test]
fn a_drain_does_not_wait_for_a_turn() {
    let config = format!("{}[shutdown]\nready-delay = \"0s\"\ndrain = \"200ms\"\n", shaped("1/h burst 2"));
    let mut gateway = Gateway::start(&config);
    assert_eq!(gateway.get("/a").status, 200);
    let mut client = gateway.client();
    client.send("GET /a HTTP/1.1\r\nHost: a\r\n\r\n");
    eventually("it waits", || (left(&gateway) == 0).then_some(()));
    gateway.signal("TERM");
    assert!(gateway.wait().code().is_some());
    client.socket().flush().ok();
    assert!(client.is_closed());
}

#[test]
fn a_log_counts_to_the_unit_and_survives_a_reload() {
    let policy = |limit: &str| {
        format!(
            "[policy.billed]\nby = [\"ip\"]\nalgorithm = \"sliding-log\"\nlimit = \"{limit}\"\n\
             cost = {{ default = 1, \"/a/3\" = 3 }}\n[[route]]\npath = \"/a/{{*rest}}\"\nlimit = \"billed\"\n\
             respond = {{ status = 200 }}\n"
        )
    };
    let gateway = Gateway::start(&policy("10/h"));
    let remaining = |target: &str| gateway.get(target).number("x-ratelimit-remaining");
    assert_eq!([remaining("/a/1"), remaining("/a/3"), remaining("/a/3")], [9, 6, 3]);
    gateway.reload(&policy("13/h"));
    assert_eq!(remaining("/a/1"), 5, "seven of ten leave six of thirteen");
    assert_eq!([remaining("/a/3"), gateway.get("/a/3").status as u64, remaining("/a/1")], [2, 429, 1]);
    assert_eq!(gateway.metric("sluicegate_table_logs", &[]), 1.0);
    let refused = gateway.get("/a/3");
    assert!((3_500..=3_960).contains(&refused.number("retry-after")));
}
