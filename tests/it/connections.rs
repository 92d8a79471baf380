//! What a connection may cost: how many there may be, and how long one may do nothing.

use std::io::Read;
use std::thread;
use std::time::Duration;

use crate::support::client::closes_within;
use crate::support::{Client, Directory, Gateway, Nginx, PATIENCE, Upstream, eventually, tls};

fn config(listener: &str) -> String {
    format!(
        "[listener.plain]\nbind = \"127.0.0.1:0\"\n{listener}\n\
         [[route]]\npath = \"/{{*rest}}\"\nrespond = {{ status = 200, body = \"ok\" }}"
    )
}

/// Whether the gateway refuses to serve it.
fn is_refused(client: &mut Client) -> bool {
    client.try_send("GET / HTTP/1.1\r\nHost: a\r\n\r\n").try_head().is_none()
}

#[test]
fn connections_are_capped() {
    let gateway = Gateway::start(&config("max-connections = 2"));
    let mut open: Vec<Client> = (0..2).map(|_| gateway.client()).collect();
    for client in &mut open {
        assert_eq!(client.get("/").status, 200);
    }
    assert!(is_refused(&mut gateway.client()));
    assert_eq!(gateway.metric("sluicegate_connections_refused_total", &["listener=\"plain\""]), 1.0);
    assert_eq!(open[1].get("/").status, 200, "those that are open go on");
    open.pop();
    eventually("a place is free again", || (!is_refused(&mut gateway.client())).then_some(()));
}

#[test]
fn connections_of_one_address_are_capped() {
    let gateway = Gateway::start(&config("max-connections-per-ip = 2"));
    let addr = gateway.plain();
    let mut open: Vec<Client> = (0..2).map(|_| Client::connect_from([127, 0, 0, 2], addr)).collect();
    for client in &mut open {
        assert_eq!(client.get("/").status, 200);
    }
    assert!(is_refused(&mut Client::connect_from([127, 0, 0, 2], addr)));
    assert_eq!(Client::connect_from([127, 0, 0, 3], addr).get("/").status, 200);
}

#[test]
fn a_connection_without_a_request_is_closed() {
    let gateway = Gateway::start(&config("timeouts = { idle = \"300ms\", header = \"300ms\" }"));
    let silent = gateway.client();
    let mut used = gateway.client();
    assert_eq!(used.get("/").status, 200);
    assert!(closes_within(silent.socket(), PATIENCE));
    assert!(used.is_closed());
}

#[test]
fn a_connection_with_half_a_preface_is_closed() {
    let gateway = Gateway::start(&config("timeouts = { idle = \"2s\", header = \"300ms\" }"));
    for half in ["PRI", "PRI * HTTP/2.0\r\n\r\nSM", "G", "GET / HTTP/1.1"] {
        let mut client = gateway.client();
        client.send(half);
        assert!(closes_within(client.socket(), PATIENCE), "{half:?}");
    }
}

#[test]
fn an_http_2_connection_without_a_request_is_closed() {
    let gateway = Gateway::start(&config("timeouts = { idle = \"300ms\", header = \"300ms\" }"));
    let mut client = crate::support::h2::Connection::open(gateway.plain());
    client.request(1, "GET", "/", true);
    assert_eq!(client.answer(1), b"ok");
    while client.frame().is_some() {}
    let mut unused = crate::support::h2::Connection::open(gateway.plain());
    while unused.frame().is_some() {}
}

#[test]
fn a_tls_handshake_has_a_deadline() {
    let directory = Directory::new();
    tls::certify(&directory, "a", &["localhost"]);
    let file = directory.join("a").display().to_string();
    let text = config(&format!(
        "timeouts = {{ handshake = \"300ms\", idle = \"20s\", header = \"20s\" }}\n\
         certs = [{{ cert = \"{file}.pem\", key = \"{file}.key\" }}]"
    ));
    let gateway = Gateway::start_in(directory, &text);
    for begin in [&b""[..], b"\x16\x03\x01\x02\x00\x01"] {
        let mut client = gateway.client();
        client.send(begin);
        assert!(closes_within(client.socket(), Duration::from_secs(5)), "{begin:?}");
    }
}

#[test]
fn a_reader_that_does_not_read_is_given_up() {
    let large = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{}", 64 << 20, "x".repeat(64 << 20));
    let upstream = Upstream::answering(large);
    let gateway = Gateway::start(&format!(
        "[listener.plain]\nbind = \"127.0.0.1:0\"\ntimeouts = {{ body-stall = \"500ms\" }}\n\
         [[route]]\npath = \"/{{*rest}}\"\nto = \"http://{}\"",
        upstream.addr()
    ));
    let mut client = gateway.client();
    client.send("GET /unread HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(client.head().status, 200);
    let line = gateway.logged("/unread");
    assert!(matches!(line["reason"].as_str(), Some("body-stall" | "client-gone")), "{line}");
    assert!(client.rest().len() < 64 << 20);
}

#[test]
fn streams_of_one_connection_are_capped() {
    let upstream = Upstream::raw(|stream| {
        // Never answers, so that streams stay open until the client is gone.
        Client::over(stream).rest();
    });
    let gateway = Gateway::start(&format!(
        "[listener.plain]\nbind = \"127.0.0.1:0\"\nmax = {{ streams = 5 }}\n\
         [[route]]\npath = \"/{{*rest}}\"\nto = \"http://{}\"",
        upstream.addr()
    ));
    let mut client = crate::support::h2::Connection::open(gateway.plain());
    for number in 0..6 {
        client.request(2 * number + 1, "GET", "/", true);
    }
    let refusal = client.until(crate::support::h2::RST_STREAM);
    assert_eq!((refusal.stream, refusal.payload), (11, vec![0, 0, 0, 7]), "REFUSED_STREAM for the sixth");
}

#[test]
fn a_gateway_without_descriptors_counts_what_it_could_not_accept_and_recovers() {
    let gateway = Gateway::start(&config(""));
    gateway.allow_descriptors(Some(3));
    let mut client = gateway.client();
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    eventually("the log says so", || {
        gateway.stderr().iter().any(|line| line.contains("Too many open files")).then_some(())
    });
    gateway.allow_descriptors(None);
    assert_eq!(client.response().status, 200, "it waited in the kernel meanwhile");
    assert!(gateway.metric("sluicegate_accept_errors_total", &[]) > 0.0);
}

#[test]
fn a_client_that_reads_slowly_and_steadily_is_not_taken_for_one_that_does_not() {
    let upstream = Nginx::start("location / { }");
    upstream.file("large", 64 << 20);
    let gateway = Gateway::start(&format!(
        "workers = 1\n[listener.plain]\nbind = \"127.0.0.1:0\"\ntimeouts = {{ body-stall = \"4s\" }}\n\
         [[route]]\npath = \"/{{*rest}}\"\nto = \"http://{}\"",
        upstream.addr()
    ));
    let mut client = gateway.client();
    client.send("GET /large HTTP/1.1\r\nHost: a\r\n\r\n");
    let mut taken = 0;
    let mut bytes = vec![0; 16 * 1024];
    // 64 KiB a second for three times as long as a client may stand still.
    for _ in 0..48 {
        thread::sleep(Duration::from_millis(250));
        let mut socket = client.socket();
        taken += socket.read(&mut bytes).expect("it is served on");
    }
    assert!(taken > 600 * 1024, "{taken}");
    assert!(gateway.access_log().is_empty(), "{:?}", gateway.access_log());
}
