//! Idle connections: nothing is kept of them but their sockets, and they are served again as before.

use std::time::{Duration, Instant};

use crate::support::client::closes_within;
use crate::support::h2::{Connection, GOAWAY};
use crate::support::{Client, Gateway, PATIENCE, Upstream, eventually};

/// A gateway with one worker and these lines of its listener, which answers by itself.
fn gateway(listener: &str) -> Gateway {
    Gateway::start(&format!(
        "workers = 1\n[listener.plain]\nbind = \"127.0.0.1:0\"\n{listener}\n\
         [[route]]\npath = \"/{{*rest}}\"\nrespond = {{ status = 200, body = \"ok\" }}"
    ))
}

/// Waits until so many connections rest.
fn until_resting(gateway: &Gateway, count: usize) {
    eventually(&format!("{count} connections rest"), || (gateway.resting() == count).then_some(()));
}

/// A connection that has had an answer, or none yet.
fn client(gateway: &Gateway, used: bool) -> Client {
    let mut client = gateway.client();
    if used {
        assert_eq!(client.get("/").status, 200);
    }
    client
}

#[test]
fn an_idle_connection_is_served_again() {
    let gateway = gateway("");
    for used in [false, true] {
        let mut one = client(&gateway, used);
        for _ in 0..2 {
            until_resting(&gateway, 1);
            assert_eq!(one.get("/again").status, 200);
        }
        until_resting(&gateway, 1);
        one.send("GET /piece");
        until_resting(&gateway, 0);
        one.send("s HTTP/1.1\r\nHost: a\r\n\r\nGET /behind HTTP/1.1\r\nHost: a\r\n\r\n");
        assert_eq!((one.response().status, one.response().status), (200, 200));
        until_resting(&gateway, 1);
        assert_eq!(one.send("GET / HTTP/1.1\r\n\r\n").response().status, 400);
        assert!(one.is_closed());
    }
    eventually("none is open", || {
        (gateway.metric("sluicegate_connections_open", &["listener=\"plain\""]) == 0.0).then_some(())
    });
}

#[test]
fn the_first_bytes_on_an_idle_connection_decide_the_protocol() {
    let gateway = gateway("");
    let silent = gateway.client();
    until_resting(&gateway, 1);
    let mut http2 = Connection::over(silent.into_stream());
    http2.request(1, "GET", "/", true);
    assert_eq!(http2.answer(1), b"ok");
    // A client that has spoken HTTP/1.1 cannot switch: other bytes get an HTTP/1.1 error.
    let mut http1 = client(&gateway, true);
    until_resting(&gateway, 1);
    http1.send("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
    assert_eq!(http1.response().status, 505);
}

#[test]
fn a_client_that_closes_while_idle_is_forgotten() {
    let gateway = gateway("");
    let open = || gateway.metric("sluicegate_connections_open", &["listener=\"plain\""]);
    let clients: Vec<Client> = (0..20).map(|number| client(&gateway, number % 2 == 0)).collect();
    until_resting(&gateway, 20);
    assert_eq!(open(), 20.0, "they are counted all the while");
    drop(clients);
    eventually("none is open", || (open() == 0.0).then_some(()));
    assert_eq!(gateway.resting(), 0);
}

#[test]
fn an_idle_connection_has_a_deadline() {
    let gateway = gateway("timeouts = { idle = \"3s\", header = \"1s\" }");
    let begin = Instant::now();
    let clients: Vec<Client> = [false, true].map(|used| client(&gateway, used)).into();
    until_resting(&gateway, 2);
    for (client, least) in clients.iter().zip([1, 3]) {
        assert!(closes_within(client.socket(), PATIENCE));
        assert!(begin.elapsed() >= Duration::from_secs(least), "after {:?}", begin.elapsed());
    }
    for deadline in ["header", "idle"] {
        let label = format!("deadline=\"{deadline}\"");
        eventually(&format!("{deadline} is counted"), || {
            let passed = gateway.metric("sluicegate_connection_deadlines_total", &[&label]);
            (passed == 1.0).then_some(())
        });
    }
}

#[test]
fn a_drain_does_not_wait_for_idle_connections() {
    let upstream = Upstream::ok();
    let mut gateway = Gateway::start(&format!(
        "[shutdown]\ndrain = \"1h\"\n[[route]]\npath = \"/{{*rest}}\"\nto = \"http://{}\"",
        upstream.addr()
    ));
    let mut clients: Vec<Client> = (0..10).map(|number| client(&gateway, number % 2 == 0)).collect();
    let mut http2 = Connection::open(gateway.plain());
    until_resting(&gateway, 10);
    gateway.signal("TERM");
    http2.until(GOAWAY);
    while http2.frame().is_some() {}
    assert!(clients.iter_mut().all(Client::is_closed));
    eventually("it has ended", || (!gateway.is_running()).then_some(()));
}

#[test]
fn thousands_of_idle_connections_take_a_few_mebibytes() {
    let gateway = gateway("");
    drop((0..50).map(|_| client(&gateway, true)).collect::<Vec<_>>());
    eventually("they are gone", || {
        (gateway.metric("sluicegate_connections_open", &["listener=\"plain\""]) == 0.0).then_some(())
    });
    let before = gateway.memory_kib();
    for used in [false, true] {
        let clients: Vec<Client> = (0..2_000).map(|_| client(&gateway, used)).collect();
        until_resting(&gateway, 2_000);
        eventually("what they held before is given back", || {
            // Held, they would be 50 MiB or more. What an allocator keeps of what was freed is its own affair.
            (gateway.memory_kib().saturating_sub(before) < 12_000).then_some(())
        });
        drop(clients);
        until_resting(&gateway, 0);
    }
}
