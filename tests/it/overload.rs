//! Memory that runs out: keep-alive goes first, then requests, then connections, and all of it comes back.

use crate::support::h2::{Connection, DATA, END_STREAM, End, GOAWAY, HEADERS, PING, SETTINGS, encoded};
use crate::support::{Client, Gateway, Upstream, eventually, heavy};

/// A configuration with these marks on a memory of a gibibyte, of which a test uses some percent.
fn config(upstream: &Upstream, marks: [&str; 3]) -> String {
    let [keep_alive, requests, connections] = marks;
    format!(
        "workers = 1\n[overload]\nmemory = \"1GiB\"\nkeep-alive = \"{keep_alive}\"\nrequests = \"{requests}\"\n\
         connections = \"{connections}\"\n[listener.plain]\nbind = \"127.0.0.1:0\"\ntimeouts = {{ header = \"1m\" }}\n\
         [[route]]\npath = \"/{{*rest}}\"\nto = \"http://{}\"",
        upstream.addr()
    )
}

const CALM: [&str; 3] = ["90%", "95%", "98%"];

/// Puts marks into force and waits until this step is.
fn reaches(gateway: &Gateway, upstream: &Upstream, marks: [&str; 3], step: f64) {
    gateway.reload(&config(upstream, marks));
    eventually("the step is in force", || {
        (gateway.metric("sluicegate_overload_step", &[]) == step).then_some(())
    });
}

#[test]
fn keep_alive_is_given_up_first_and_comes_back() {
    let upstream = Upstream::ok();
    let gateway = Gateway::start(&config(&upstream, CALM));
    let mut h2 = Connection::open(gateway.plain());
    h2.request(1, "GET", "/", true);
    assert_eq!(h2.answer(1), b"ok");
    let mut client = gateway.client();
    assert_eq!(client.get("/").status, 200);
    reaches(&gateway, &upstream, ["0.01%", "95%", "98%"], 1.0);
    let answer = client.get("/");
    assert_eq!((answer.status, answer.header("connection")), (200, Some("close")));
    assert!(client.is_closed());
    h2.request(3, "GET", "/", true);
    h2.until(GOAWAY);
    assert_eq!(h2.end(), End::Closed, "its request was answered, and no more are taken");
    reaches(&gateway, &upstream, CALM, 0.0);
    let mut client = gateway.client();
    for _ in 0..2 {
        assert_eq!(client.get("/").header("connection"), None);
    }
    let said = gateway.stderr();
    for (level, step) in [(" WARN ", "no keep-alive"), (" INFO ", "none")] {
        let line = ["load shedding", &format!("now=\"{step}\""), "limit_bytes=", level];
        assert!(said.iter().any(|said| line.iter().all(|part| said.contains(part))), "{step}: {said:?}");
    }
}

#[test]
fn idle_connections_over_http_2_are_given_up_first() {
    let upstream = Upstream::ok();
    let gateway = Gateway::start(&config(&upstream, CALM));
    let mut idle = [(); 2].map(|()| Connection::open(gateway.plain()));
    for h2 in &mut idle {
        h2.request(1, "GET", "/", true);
        assert_eq!(h2.answer(1), b"ok");
    }
    reaches(&gateway, &upstream, ["0.01%", "95%", "98%"], 1.0);
    // A byte now and then makes it no busier.
    idle[1].try_write(&encoded(PING, 0, 0, &[0; 8]));
    for h2 in &mut idle {
        h2.until(GOAWAY);
        assert_eq!(h2.end(), End::Closed);
    }
}

#[test]
fn a_connection_that_is_switched_is_not_one_that_is_kept() {
    let upstream = Upstream::answering(
        "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\nContent-Length: 4\r\n\r\nping",
    );
    let marks = |marks| config(&upstream, marks) + "\nupgrade = true";
    let gateway = Gateway::start(&marks(CALM));
    gateway.reload(&marks(["0.01%", "95%", "98%"]));
    eventually("the step is in force", || {
        (gateway.metric("sluicegate_overload_step", &[]) == 1.0).then_some(())
    });
    let mut client = gateway.client();
    let answer = client.request("GET", "/", &["Connection: upgrade", "Upgrade: x"], "");
    assert_eq!((answer.status, answer.header("connection")), (101, Some("upgrade")));
    assert_eq!(answer.header("content-length"), None, "no body comes before the next protocol");
    assert_eq!(client.bytes(4), b"ping");
}

#[test]
fn requests_are_refused_at_the_second_mark() {
    let upstream = Upstream::ok();
    let gateway = Gateway::start(&config(&upstream, CALM));
    reaches(&gateway, &upstream, ["0.01%", "0.02%", "98%"], 2.0);
    let answer = gateway.get("/refused");
    assert_eq!((answer.status, answer.header("connection")), (503, Some("close")));
    assert_eq!(answer.json()["reason"], "overload");
    assert!(answer.header("retry-after").is_some());
    assert_eq!(gateway.logged("/refused")["reason"], "overload");
    // A new one, because those without a request are closed.
    let mut h2 = Connection::open(gateway.plain());
    h2.request(1, "GET", "/h2", true);
    let body: serde_json::Value = serde_json::from_slice(&h2.answer(1)).expect("a problem");
    assert_eq!(body["status"], 503);
    assert_eq!(gateway.metric("sluicegate_refused_requests_total", &["reason=\"overload\""]), 2.0);
    reaches(&gateway, &upstream, CALM, 0.0);
    assert_eq!(gateway.get("/").status, 200);
}

#[test]
fn connections_are_closed_at_the_third_mark() {
    let upstream = Upstream::ok();
    let gateway = Gateway::start(&config(&upstream, CALM));
    let mut open = gateway.client();
    assert_eq!(open.get("/").status, 200);
    reaches(&gateway, &upstream, ["0.01%", "0.02%", "0.03%"], 3.0);
    let mut refused = Client::connect(gateway.plain());
    refused.try_send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    assert!(refused.is_closed());
    assert_eq!(open.get("/").status, 503, "one that is open is answered");
    assert!(gateway.metric("sluicegate_connections_refused_total", &["cap=\"overload\""]) >= 1.0);
    assert_eq!(gateway.admin("/healthz").status, 200, "the admin listener is not the data plane");
    reaches(&gateway, &upstream, CALM, 0.0);
    assert_eq!(gateway.get("/").status, 200);
}

#[test]
fn memory_that_clients_hold_comes_back_when_they_go() {
    let _alone = heavy();
    let upstream = Upstream::ok();
    let gateway = Gateway::start(&config(&upstream, CALM));
    assert_eq!(gateway.get("/").status, 200);
    let resident = || gateway.metric("sluicegate_memory_resident_bytes", &[]);
    let idle = eventually("memory is looked at", || Some(resident()).filter(|bytes| *bytes > 0.0));
    // Eight mebibytes more are too much.
    let limit = (idle / 0.98) as u64 + (8 << 20);
    let tight = config(&upstream, ["98%", "98%", "98%"]);
    gateway.reload(&tight.replace("\"1GiB\"", &limit.to_string()));
    let step = || gateway.metric("sluicegate_overload_step", &[]);
    let mut held = Vec::new();
    for _ in 0..600 {
        let mut link = Connection::open(gateway.plain());
        // A question, so that all of HTTP/2's buffers are there, and a head that does not end.
        link.try_write(&encoded(PING, 0, 0, &[0; 8]));
        link.try_write(&encoded(HEADERS, 0, 1, b"\x82"));
        held.push(link);
        if held.len() % 50 == 0 && step() > 0.0 {
            break;
        }
    }
    eventually("too much is held", || (step() == 3.0).then_some(()));
    drop(held);
    eventually("it is given back", || (step() == 0.0).then_some(()));
    assert_eq!(gateway.get("/").status, 200);
}

#[test]
fn what_holds_memory_for_nothing_is_given_up_first() {
    let upstream = Upstream::ok();
    let marks = |marks| config(&upstream, marks) + "\n[[route]]\npath = \"/fixed\"\nrespond = {}";
    let gateway = Gateway::start(&marks(CALM));
    let mut good = gateway.client();
    assert_eq!(good.get("/").status, 200);
    let mut owing = gateway.client();
    owing.send("POST /fixed HTTP/1.1\r\nHost: a\r\nContent-Length: 9000\r\n\r\n");
    assert_eq!(owing.response().status, 200);
    // While it is read by hyper still, and after.
    std::thread::sleep(std::time::Duration::from_millis(600));
    assert!(owing.is_taking("x"));
    gateway.reload(&marks(["0.01%", "95%", "98%"]));
    assert!(owing.is_closed(), "it owes a body that nobody wants");
    assert_eq!(good.get("/").status, 200, "it was idle, and is answered once more");
}

#[test]
fn a_client_that_does_not_read_is_given_up_first() {
    let upstream = Upstream::ok();
    let marks =
        |marks| config(&upstream, marks) + "\n[[route]]\npath = \"/fixed\"\nrespond = { body = \"ok\" }";
    let gateway = Gateway::start(&marks(CALM));
    let mut unread = Connection::open(gateway.plain());
    // Nothing of a body may be sent (SETTINGS_INITIAL_WINDOW_SIZE).
    unread.send(SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 0]);
    for stream in 0..20 {
        unread.request(2 * stream + 1, "GET", "/fixed", true);
    }
    for _ in 0..20 {
        unread.until(HEADERS);
    }
    gateway.reload(&marks(["0.01%", "95%", "98%"]));
    unread.until(GOAWAY);
    assert_eq!(unread.end(), End::Closed);
    assert_eq!(gateway.logged("/fixed")["reason"], "body-stall");
    assert_eq!(gateway.get("/").status, 200);
}

#[test]
fn an_idle_connection_that_served_many_streams_goes_before_a_request_is_refused() {
    let upstream = Upstream::ok();
    let gateway = Gateway::start(&config(&upstream, CALM));
    let mut narrow = Connection::open(gateway.plain());
    narrow.request(1, "GET", "/", true);
    narrow.answer(1);
    let mut wide = Connection::open(gateway.plain());
    for stream in 0..40 {
        wide.request(2 * stream + 1, "POST", "/", false);
    }
    for stream in 0..40 {
        wide.try_write(&encoded(DATA, END_STREAM, 2 * stream + 1, b""));
    }
    let resident = || gateway.metric("sluicegate_memory_resident_bytes", &[]);
    let used = eventually("memory is looked at", || Some(resident()).filter(|bytes| *bytes > 0.0));
    // Nine tenths of the first mark are passed, the mark itself is not.
    let limit = (used / 0.905) as u64;
    gateway.reload(&config(&upstream, ["99%", "99%", "99%"]).replace("\"1GiB\"", &limit.to_string()));
    wide.until(GOAWAY);
    assert_eq!(wide.end(), End::Closed);
    narrow.request(3, "GET", "/", true);
    assert_eq!(narrow.answer(3), b"ok");
}
