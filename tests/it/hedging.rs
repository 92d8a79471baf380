//! `retry.hedge-after`: a second server is asked while the first has not answered, and the first answer wins.

use std::net::{SocketAddr, TcpListener};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

use crate::support::h2::{Connection, HEADERS, RST_STREAM};
use crate::support::named::Named;
use crate::support::upstream::receive;
use crate::support::{Client, Gateway, Upstream, eventually};

/// A server that answers a request when the test says so.
struct Held {
    upstream: Upstream,
    /// Requests that have come.
    requests: Arc<AtomicUsize>,
    /// Connections that were closed before their answer.
    left: Arc<AtomicUsize>,
    release: mpsc::Sender<()>,
}

impl Held {
    fn start(name: &'static str) -> Held {
        let (requests, left) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let (release, released) = mpsc::channel::<()>();
        let told = (Arc::clone(&requests), Arc::clone(&left), Mutex::new(released));
        let upstream = Upstream::raw(move |stream| {
            let (requests, left, released) = &told;
            let watched = stream.try_clone().expect("there are descriptors");
            let mut peer = Client::over(stream);
            while receive(&mut peer).is_some() {
                requests.fetch_add(1, Ordering::SeqCst);
                watched.set_nonblocking(true).expect("a socket need not block");
                loop {
                    let next = released.lock().expect("nobody panics with it");
                    if next.recv_timeout(Duration::from_millis(1)).is_ok() {
                        break;
                    }
                    drop(next);
                    if matches!(watched.peek(&mut [0]), Ok(0)) {
                        left.fetch_add(1, Ordering::SeqCst);
                        return;
                    }
                }
                watched.set_nonblocking(false).expect("a socket may block");
                peer.try_send(format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{name}", name.len()));
            }
        });
        Held { upstream, requests, left, release }
    }

    fn requests(&self) -> usize {
        self.requests.load(Ordering::SeqCst)
    }

    fn answer(&self) {
        self.release.send(()).expect("the server waits for it");
    }
}

/// A gateway whose requests go to the first of these, as long as there is no reason for another one.
fn gateway(servers: &[SocketAddr], retry: &str, keys: &str) -> Gateway {
    let weights = std::iter::once(1000).chain(std::iter::repeat(1));
    let servers = servers.iter().zip(weights);
    let servers: Vec<String> =
        servers.map(|(addr, weight)| format!("{{ url = \"http://{addr}\", weight = {weight} }}")).collect();
    Gateway::start(&format!(
        "workers = 1\n[upstream.u]\nservers = [{}]\nbalance = \"round-robin\"\nretry = {{ {retry} }}\n{keys}\n\
         [[route]]\nto = \"u\"\nupgrade = true",
        servers.join(", ")
    ))
}

fn counted(gateway: &Gateway, name: &str, label: &str) -> f64 {
    gateway.metric(&format!("sluicegate_upstream_{name}_total"), &[label])
}

/// The address of a server in `Named`.
fn addr(named: &Named) -> SocketAddr {
    named.url().trim_start_matches("http://").parse().expect("it is an address")
}

const HEDGE: &str = "hedge-after = \"50ms\", budget = \"100%\"";

#[test]
fn a_server_that_stalls_costs_a_moment_and_is_not_blamed() {
    let (stalled, good) = (Held::start("stalled"), Named::start("good"));
    let gateway = gateway(&[stalled.upstream.addr(), addr(&good)], HEDGE, "eject = { after = 1 }");
    let mut client = gateway.client();
    for number in 1..=5 {
        let began = Instant::now();
        let answer = client.get("/hedged");
        assert_eq!((answer.status, answer.text().as_str()), (200, "good"));
        assert!(began.elapsed() >= Duration::from_millis(50), "the first server has its time");
        assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
        // The one that lost hears that nobody listens, and its connection is not used again.
        eventually("the other try is cancelled", || {
            (stalled.left.load(Ordering::SeqCst) == number).then_some(())
        });
    }
    assert_eq!(stalled.requests(), 5);
    assert_eq!(counted(&gateway, "ejections", ""), 0.0);
    assert_eq!(counted(&gateway, "hedges", "result=\"won\""), 5.0);
    assert_eq!(counted(&gateway, "retries", "result=\"sent\""), 5.0);
    assert_eq!(counted(&gateway, "exchanges", "outcome=\"cancelled\""), 5.0);
    assert_eq!(counted(&gateway, "exchanges", "outcome=\"answered\""), 5.0);
    let line = gateway.logged("/hedged");
    assert_eq!((&line["retries"], &line["server"]), (&1.into(), &addr(&good).to_string().into()), "{line}");
    let first_byte_us = line["first_byte_us"].as_u64().expect("it is a number");
    assert!(first_byte_us < 50_000, "it is the second server's time: {line}");
}

#[test]
fn the_first_servers_answer_is_taken_if_it_comes_first() {
    let [first, second] = [Held::start("first"), Held::start("second")];
    let gateway = gateway(&[first.upstream.addr(), second.upstream.addr()], HEDGE, "");
    let mut client = gateway.client();
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    eventually("both are asked", || (first.requests() + second.requests() == 2).then_some(()));
    first.answer();
    assert_eq!(client.response().text(), "first");
    eventually("the other is cancelled", || (second.left.load(Ordering::SeqCst) == 1).then_some(()));
    assert_eq!(counted(&gateway, "hedges", "result=\"lost\""), 1.0);
}

#[test]
fn two_servers_that_stall_are_asked_once_each() {
    let servers = [Held::start("a"), Held::start("b"), Held::start("c")];
    let addrs = servers.each_ref().map(|server| server.upstream.addr());
    let gateway = gateway(&addrs, HEDGE, "timeouts = { response = \"300ms\" }");
    assert_eq!(gateway.get("/").status, 504);
    assert_eq!(servers.each_ref().map(Held::requests), [1, 1, 0]);
    assert_eq!(counted(&gateway, "exchanges", "outcome=\"response-timeout\""), 2.0);
}

#[test]
fn hedges_are_within_the_budget_of_retries() {
    let (slow, good) = (Held::start("slow"), Named::start("good"));
    let keys = "hedge-after = \"20ms\", budget = \"1%\"";
    let gateway = gateway(&[slow.upstream.addr(), addr(&good)], keys, "");
    let mut client = gateway.client();
    // A few always fit.
    for _ in 0..3 {
        assert_eq!(client.get("/").text(), "good");
    }
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    eventually("the budget is spent", || {
        (counted(&gateway, "retries", "result=\"over-budget\"") > 0.0).then_some(())
    });
    slow.answer();
    assert_eq!(client.response().text(), "slow");
    assert_eq!(counted(&gateway, "retries", "result=\"sent\""), 3.0);
}

#[test]
fn only_requests_that_may_be_sent_twice_are_hedged() {
    let (slow, good) = (Held::start("slow"), Named::start("good"));
    let servers = [slow.upstream.addr(), addr(&good)];
    let sticky = "sticky = { cookie = \"at\", secret = \"a secret of thirty-two bytes or more\" }";
    let plain = gateway(&servers, HEDGE, "timeouts = { response = \"300ms\" }");
    let kept = gateway(&servers, HEDGE, &format!("{sticky}\ntimeouts = {{ response = \"300ms\" }}"));
    let off = gateway(&servers, "budget = \"100%\"", "timeouts = { response = \"300ms\" }");
    let mut first = kept.client();
    first.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    eventually("it is there", || (slow.requests() == 1).then_some(()));
    slow.answer();
    let answer = first.response();
    let cookie = answer.header("set-cookie").and_then(|cookie| cookie.split(';').next()).expect("a session");
    let cookie = format!("Cookie: {cookie}");
    let upgrade = ["Connection: upgrade", "Upgrade: other"];
    for (gateway, method, fields, body) in [
        (&plain, "POST", &[][..], ""),
        (&plain, "PUT", &[], "x"),
        (&plain, "GET", &upgrade, ""),
        (&kept, "GET", &[cookie.as_str()], ""),
        (&off, "GET", &[], ""),
    ] {
        let status = gateway.client().request(method, "/", fields, body).status;
        assert_eq!(status, 504, "{method} {fields:?}");
        assert_eq!(counted(gateway, "retries", ""), 0.0, "{method} {fields:?}");
    }
    // Without another server that may be used there is nothing to ask.
    let alone = gateway(&servers[..1], HEDGE, "timeouts = { response = \"300ms\" }");
    assert_eq!(alone.get("/").status, 504);
    assert_eq!(counted(&alone, "retries", ""), 0.0);
}

#[test]
fn a_try_that_comes_to_nothing_leaves_the_request_to_the_other() {
    let gone = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a port");
    let bad = Upstream::answering("HTTP/1.1 503 No\r\nContent-Length: 0\r\n\r\n");
    for (second, outcome) in [(gone, "connect-failed"), (bad.addr(), "answered")] {
        let slow = Held::start("slow");
        let keys = "hedge-after = \"20ms\", on = [\"connect\", \"503\"], budget = \"100%\"";
        let gateway = gateway(&[slow.upstream.addr(), second], keys, "");
        let mut client = gateway.client();
        client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        eventually("the second try is over", || {
            let label = format!("outcome=\"{outcome}\"");
            (counted(&gateway, "exchanges", &label) == 1.0).then_some(())
        });
        slow.answer();
        assert_eq!(client.response().text(), "slow");
        assert_eq!(counted(&gateway, "hedges", "result=\"lost\""), 1.0);
    }
}

#[test]
fn a_stream_that_lost_is_reset_with_cancel() {
    let (told, code) = mpsc::channel();
    let told = Mutex::new(told);
    let stalled = Upstream::raw(move |stream| {
        let mut peer = Connection::serve(stream);
        while let Some(frame) = peer.frame() {
            if frame.kind == RST_STREAM {
                told.lock().expect("nobody panics with it").send(frame.payload).ok();
            }
        }
    });
    let good = Upstream::raw(|stream| {
        let mut peer = Connection::serve(stream);
        while let Some(frame) = peer.frame() {
            if frame.kind == HEADERS {
                // `:status: 204` of HPACK's static table.
                peer.send(HEADERS, 5, frame.stream, &[0x89]);
            }
        }
    });
    let gateway = gateway(&[stalled.addr(), good.addr()], HEDGE, "http = \"h2\"");
    assert_eq!(gateway.get("/").status, 204);
    let code = code.recv_timeout(crate::support::PATIENCE).expect("the stream is reset");
    assert_eq!(code, [0, 0, 0, 8], "CANCEL of RFC 9113 section 7");
}
