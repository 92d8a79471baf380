//! The drain: requests in flight are finished, new ones are not accepted, and the deadline ends the rest.

use std::net::TcpStream;
use std::sync::{Mutex, mpsc};
use std::time::{Duration, Instant};

use crate::support::h2::{Connection, DATA, End, GOAWAY, HEADERS, SETTINGS};
use crate::support::upstream::receive;
use crate::support::{Client, Gateway, Upstream, eventually};

/// An upstream that answers when it is told to, and how to tell it.
fn held() -> (Upstream, mpsc::Sender<()>) {
    let (release, released) = mpsc::channel();
    let released = Mutex::new(released);
    let upstream = Upstream::raw(move |stream| {
        let mut peer = Client::over(stream);
        if receive(&mut peer).is_some() {
            released.lock().expect("nobody panics with it").recv().ok();
            peer.try_send("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ndone");
            peer.rest();
        }
    });
    (upstream, release)
}

fn before(upstream: &Upstream, shutdown: &str) -> Gateway {
    Gateway::start(&format!(
        "[shutdown]\n{shutdown}\n[[route]]\npath = \"/{{*rest}}\"\nto = \"http://{}\"",
        upstream.addr()
    ))
}

/// Sends a request that the upstream holds.
fn in_flight(gateway: &Gateway, upstream: &Upstream) -> Client {
    let mut client = gateway.client();
    client.send("GET /held HTTP/1.1\r\nHost: a\r\n\r\n");
    eventually("the request is at the upstream", || (upstream.connections() > 0).then_some(()));
    client
}

#[test]
fn a_drain_says_so_waits_and_ends() {
    let (upstream, release) = held();
    let mut gateway = before(&upstream, "ready-delay = \"1s\"\ndrain = \"20s\"");
    assert_eq!(gateway.admin("/readyz").status, 200);
    let mut client = in_flight(&gateway, &upstream);
    let mut idle = gateway.client();
    let mut h2 = Connection::open(gateway.plain());
    gateway.signal("TERM");
    let begin = Instant::now();
    eventually("/readyz is 503", || (gateway.admin("/readyz").status == 503).then_some(()));
    assert_eq!(gateway.admin("/healthz").status, 200);
    assert!(begin.elapsed() < Duration::from_secs(1), "it says so before it stops accepting");
    drop(TcpStream::connect(gateway.plain()).expect("it still accepts during the delay"));
    h2.until(GOAWAY);
    while h2.frame().is_some() {}
    assert!(idle.is_closed());
    eventually("it accepts no more", || TcpStream::connect(gateway.plain()).is_err().then_some(()));
    assert!(gateway.is_running(), "it waits for what is in flight");
    release.send(()).expect("the upstream waits for it");
    assert_eq!(client.response().text(), "done");
    assert_eq!(gateway.wait().code(), Some(0));
    assert_eq!(gateway.logged("/held")["status"], 200, "the log is written out");
}

#[test]
fn answers_say_from_its_beginning_that_it_ends() {
    let upstream = Upstream::ok();
    let mut gateway = before(&upstream, "ready-delay = \"30s\"\ndrain = \"20s\"");
    let mut kept = gateway.client();
    assert_eq!(kept.get("/kept").header("connection"), None);
    let (silent, mut asked) = (Connection::open(gateway.plain()), Connection::open(gateway.plain()));
    asked.request(1, "GET", "/asked", true);
    assert_eq!(asked.answer(1), b"ok");
    gateway.signal("TERM");
    eventually("/readyz is 503", || (gateway.admin("/readyz").status == 503).then_some(()));
    for mut told in [silent, asked] {
        told.until(GOAWAY);
        assert_eq!(told.end(), End::Closed, "nothing is asked of it");
    }
    for (what, mut client) in [("kept", kept), ("new", gateway.client())] {
        let answer = client.get("/last");
        assert_eq!((answer.status, answer.header("connection")), (200, Some("close")), "{what}");
        assert!(client.is_closed(), "{what}");
    }
    let refused = gateway.get("/%2F");
    assert_eq!((refused.status, refused.header("connection")), (400, Some("close")), "an answer of its own");
    // Its settings come before its request, so that it is told nothing in between.
    let mut late = Connection::open(gateway.plain());
    assert_eq!(late.any_frame().map(|frame| frame.kind), Some(SETTINGS));
    late.request(1, "GET", "/late", true);
    let said: Vec<u8> = std::iter::from_fn(|| late.frame()).map(|frame| frame.kind).collect();
    assert!(said.contains(&GOAWAY) && said.contains(&HEADERS) && said.contains(&DATA), "{said:?}");
    assert!(gateway.is_running());
    gateway.signal("TERM");
    gateway.wait();
}

#[test]
fn quit_drains_too() {
    let (upstream, release) = held();
    let mut gateway = before(&upstream, "ready-delay = \"0s\"\ndrain = \"20s\"");
    let mut client = in_flight(&gateway, &upstream);
    gateway.signal("QUIT");
    eventually("it accepts no more", || TcpStream::connect(gateway.plain()).is_err().then_some(()));
    release.send(()).expect("the upstream waits for it");
    let answer = client.response();
    assert_eq!((answer.text().as_str(), answer.header("connection")), ("done", Some("close")));
    assert_eq!(gateway.wait().code(), Some(0));
}

#[test]
fn a_drain_ends_at_its_deadline() {
    let (upstream, _release) = held();
    let mut gateway = before(&upstream, "ready-delay = \"0s\"\ndrain = \"500ms\"");
    let mut client = in_flight(&gateway, &upstream);
    gateway.signal("TERM");
    let begin = Instant::now();
    gateway.wait();
    assert!((400..5000).contains(&begin.elapsed().as_millis()), "{:?}", begin.elapsed());
    client.rest();
    let line = gateway.logged_where("reason drain", |line| line["reason"] == "drain");
    assert_eq!((&line["status"], &line["bytes_out"]), (&0.into(), &0.into()), "nobody answered it");
}

#[test]
fn a_second_signal_stops_at_once() {
    let (upstream, _release) = held();
    let mut gateway = before(&upstream, "ready-delay = \"30s\"\ndrain = \"30s\"");
    let _client = in_flight(&gateway, &upstream);
    gateway.signal("TERM");
    eventually("/readyz is 503", || (gateway.admin("/readyz").status == 503).then_some(()));
    gateway.signal("TERM");
    let begin = Instant::now();
    gateway.wait();
    assert!(begin.elapsed() < Duration::from_secs(5));
}

#[test]
fn requests_over_http_2_in_flight_are_finished() {
    let (upstream, release) = held();
    let mut gateway = before(&upstream, "ready-delay = \"0s\"\ndrain = \"20s\"");
    let mut h2 = Connection::open(gateway.plain());
    h2.request(1, "GET", "/held", true);
    eventually("the request is at the upstream", || (upstream.connections() > 0).then_some(()));
    gateway.signal("TERM");
    h2.until(GOAWAY);
    release.send(()).expect("the upstream waits for it");
    assert_eq!(h2.answer(1), b"done");
    assert_eq!(gateway.wait().code(), Some(0));
}
