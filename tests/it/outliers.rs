//! Servers that are left out for what they answer: they fail more than the others, take longer, stall, or end calls of gRPC
//! with a fault of their own.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use serde_json::Value;

use crate::support::h2::{self, END_HEADERS, END_STREAM, HEADERS};
use crate::support::upstream::receive;
use crate::support::{Client, Gateway, Stop, Upstream, eventually};

/// A server of which so many of ten requests fail, never five in a row, and whose answers take so long.
fn server(failing: usize, takes: Duration) -> Upstream {
    let count = Arc::new(AtomicUsize::new(0));
    Upstream::raw(move |stream| {
        let mut peer = Client::over(stream);
        while receive(&mut peer).is_some() {
            thread::sleep(takes);
            let turn = count.fetch_add(1, Ordering::SeqCst);
            let status = if turn * 3 % 10 < failing { 500 } else { 200 };
            peer.try_send(format!("HTTP/1.1 {status} X\r\nContent-Length: 2\r\n\r\nok"));
        }
    })
}

fn gateway(servers: &[Upstream], keys: &str) -> Gateway {
    let servers: Vec<String> = servers.iter().map(|server| format!("\"http://{}\"", server.addr())).collect();
    Gateway::start(&format!(
        "workers = 2\n[upstream.u]\nservers = [{}]\nbalance = \"round-robin\"\n{keys}\n\
         [[route]]\npath = \"/{{*rest}}\"\nto = \"u\"",
        servers.join(", ")
    ))
}

fn shown(gateway: &Gateway) -> Vec<Value> {
    gateway.admin("/v1/upstreams").json()[0]["servers"].as_array().expect("an upstream has servers").clone()
}

fn states(gateway: &Gateway) -> Vec<String> {
    shown(gateway).iter().map(|server| server["state"].as_str().expect("a word").to_owned()).collect()
}

/// Sends requests from several clients until what is asked for has come.
fn under_load<T>(gateway: &Gateway, what: &str, ask: impl FnMut() -> Option<T>) -> T {
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let _stop = Stop(&stop);
        for _ in 0..12 {
            scope.spawn(|| {
                let mut client = gateway.client();
                while !stop.load(Ordering::SeqCst) {
                    client.get("/");
                }
            });
        }
        eventually(what, ask)
    })
}

/// Waits until several intervals with requests have passed.
fn several_intervals(gateway: &Gateway, requests_min: u64) {
    let mut seen = Vec::new();
    under_load(gateway, "intervals pass", || {
        let servers = shown(gateway);
        let requests = servers.iter().map(|server| server["last-interval"]["requests"].as_u64());
        let requests: Vec<u64> = requests.map(Option::unwrap_or_default).collect();
        if requests.iter().all(|requests| *requests >= requests_min) && !seen.contains(&requests) {
            seen.push(requests);
        }
        (seen.len() > 3).then_some(())
    });
}

fn ejections(gateway: &Gateway, reason: &str) -> f64 {
    gateway.metric("sluicegate_upstream_ejections_total", &[&format!("reason=\"{reason}\"")])
}

const QUICK: Duration = Duration::from_millis(2);

#[test]
fn a_server_that_fails_more_than_the_others_is_left_out() {
    let servers = [server(0, QUICK), server(3, QUICK), server(0, QUICK), server(0, QUICK)];
    let gateway = gateway(
        &servers,
        "eject = { success-rate = \"15%\", every = \"500ms\", requests = 30, for = \"60s\" }",
    );
    under_load(&gateway, "the second is ejected", || {
        (states(&gateway) == ["healthy", "ejected", "healthy", "healthy"]).then_some(())
    });
    assert_eq!((ejections(&gateway, "success-rate"), ejections(&gateway, "failures")), (1.0, 0.0));
    let lines = gateway.stderr().into_iter().filter(|line| line.contains("server is ejected"));
    let lines: Vec<String> = lines.collect();
    assert!(
        lines.len() == 1 && lines[0].contains("of its requests succeed, 100.0 % of the other servers'"),
        "{lines:?}"
    );
    let mut client = gateway.client();
    assert!((0..40).all(|_| client.get("/").status == 200), "it gets no request");
    // The others are compared among themselves, and nobody stands out.
    several_intervals_of_the_others(&gateway);
    assert_eq!(states(&gateway), ["healthy", "ejected", "healthy", "healthy"]);
}

fn several_intervals_of_the_others(gateway: &Gateway) {
    let mut seen = Vec::new();
    under_load(gateway, "intervals pass", || {
        let requests = shown(gateway)[0]["last-interval"]["requests"].as_u64().unwrap_or_default();
        if requests > 30 && !seen.contains(&requests) {
            seen.push(requests);
        }
        (seen.len() > 2).then_some(())
    });
}

#[test]
fn a_server_that_takes_longer_than_the_others_is_left_out() {
    let slow = Duration::from_millis(100);
    let usual = Duration::from_millis(5);
    let servers = [server(0, usual), server(0, usual), server(0, usual), server(0, slow)];
    let gateway = gateway(&servers, "eject = { latency = 4, every = \"1s\", requests = 20, for = \"60s\" }");
    under_load(&gateway, "the last is ejected", || {
        (states(&gateway) == ["healthy", "healthy", "healthy", "ejected"]).then_some(())
    });
    assert_eq!(ejections(&gateway, "latency"), 1.0);
    let lines = gateway.stderr().into_iter().filter(|line| line.contains("server is ejected"));
    let lines: Vec<String> = lines.collect();
    assert!(lines.len() == 1 && lines[0].contains("its responses take 1"), "{lines:?}");
    let others = shown(&gateway);
    let first_byte = others[0]["last-interval"]["first-byte-seconds"].as_f64().expect("there were answers");
    assert!((0.004..0.1).contains(&first_byte), "{first_byte}");
}

#[test]
fn servers_that_are_all_alike_or_have_few_requests_stay() {
    let both = "success-rate = \"10%\", latency = 2, every = \"250ms\"";
    for (failing, takes, least) in [(3, QUICK, 20), (0, Duration::from_millis(30), 20), (0, QUICK, 1_000_000)]
    {
        // With few requests one may be as bad as it likes.
        let odd = if least > 20 { 8 } else { failing };
        let servers =
            [server(failing, takes), server(failing, takes), server(failing, takes), server(odd, takes)];
        let gateway = gateway(&servers, &format!("eject = {{ after = 1_000, {both}, requests = {least} }}"));
        several_intervals(&gateway, 20);
        assert_eq!(states(&gateway), ["healthy"; 4]);
        assert_eq!(gateway.metric("sluicegate_upstream_ejections_total", &[]), 0.0);
    }
}

#[test]
fn a_server_that_sends_a_head_and_stalls_is_ejected() {
    let stalling = Upstream::raw(|stream| {
        let mut peer = Client::over(stream);
        while receive(&mut peer).is_some() {
            peer.try_send("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n");
        }
    });
    let servers = [stalling, Upstream::ok()];
    let gateway = gateway(&servers, "eject = { after = 3 }\ntimeouts = { stall = \"100ms\" }");
    let mut broken = 0;
    while states(&gateway)[0] != "ejected" {
        let mut client = gateway.client();
        client.send("GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
        broken += usize::from(!client.rest().ends_with(b"ok"));
        assert!(broken <= 3, "each counts");
    }
    assert_eq!((broken, ejections(&gateway, "failures")), (3, 1.0));
}

#[test]
fn calls_of_grpc_that_end_with_a_servers_fault_count_as_failures() {
    let calls = |status: &'static str| {
        Upstream::raw(move |stream| {
            let mut peer = h2::Connection::serve(stream);
            while let Some(frame) = peer.frame() {
                if frame.kind == HEADERS {
                    let head =
                        [(":status", "200"), ("content-type", "application/grpc"), ("grpc-status", status)];
                    peer.send(HEADERS, END_HEADERS | END_STREAM, frame.stream, &h2::fields(&head));
                }
            }
        })
    };
    // UNAVAILABLE and INTERNAL say something of the server, NOT_FOUND and UNIMPLEMENTED of the call.
    for (status, is_ejected) in [("14", true), ("13", true), ("5", false), ("12", false)] {
        let servers = [calls(status), calls("0")];
        let gateway = gateway(&servers, "http = \"h2\"\neject = { after = 3 }");
        let mut h2 = h2::Connection::open(gateway.plain());
        for stream in (1..=21).step_by(2) {
            let head = [
                (":method", "POST"),
                (":scheme", "http"),
                (":authority", "a"),
                (":path", "/a.B/C"),
                ("content-type", "application/grpc"),
                ("te", "trailers"),
            ];
            h2.send(HEADERS, END_HEADERS | END_STREAM, stream, &h2::fields(&head));
            h2.until(HEADERS);
        }
        let expected = if is_ejected { "ejected" } else { "healthy" };
        assert_eq!(states(&gateway), [expected, "healthy"], "grpc-status {status}");
    }
}
