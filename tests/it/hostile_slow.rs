//! Slow clients: heads, bodies, handshakes and readers in drips, many at once, in the clear and under TLS. Each ends at
//! its deadline, and no other client waits.

use std::io::{Read, Write};
use std::time::{Duration, Instant};

use crate::support::client::closes_within;
use crate::support::{Client, Directory, Gateway, Upstream, eventually, heavy, tls};

/// A gateway with short deadlines before an upstream that records.
fn before(upstream: &Upstream) -> Gateway {
    let directory = Directory::new();
    tls::certify(&directory, "a", &["localhost"]);
    let file = directory.join("a").display().to_string();
    let timeouts =
        "timeouts = { handshake = \"500ms\", header = \"500ms\", idle = \"5s\", body-stall = \"500ms\" }";
    let config = format!(
        "[listener.plain]\nbind = \"127.0.0.1:0\"\n{timeouts}\n\
         [listener.tls]\nbind = \"127.0.0.1:0\"\n{timeouts}\n\
         certs = [{{ cert = \"{file}.pem\", key = \"{file}.key\" }}]\n\
         [[route]]\npath = \"/{{*rest}}\"\nto = \"http://{}\"",
        upstream.addr()
    );
    Gateway::start_in(directory, &config)
}

fn secure(gateway: &Gateway) -> Client<tls::Stream> {
    let stream = tls::connect(gateway.listener("tls"), "localhost", &["http/1.1"]);
    Client::over(stream.expect("the handshake succeeds"))
}

/// Sends `begin`, then `drip` again and again: how long it is let.
fn drip<S: Read + Write>(mut client: Client<S>, begin: &str, drip: &str) -> Duration {
    let since = Instant::now();
    client.send(begin);
    // A write fails some time after the peer has closed: the kernel takes the first one behind it.
    while client.is_taking(drip) {
        std::thread::sleep(Duration::from_millis(50));
        assert!(since.elapsed() < Duration::from_secs(10), "the deadline moves with every drip");
    }
    since.elapsed()
}

/// How often a deadline of a listener has passed.
fn deadlines(gateway: &Gateway, listener: &str, deadline: &str) -> f64 {
    let labels = [format!("listener=\"{listener}\""), format!("deadline=\"{deadline}\"")];
    gateway.metric("sluicegate_connection_deadlines_total", &[&labels[0], &labels[1]])
}

#[test]
fn what_comes_in_drips_ends_at_its_deadline() {
    let upstream = Upstream::ok();
    let gateway = before(&upstream);
    let head = "GET /head HTTP/1.1\r\nHost: localhost\r\n";
    let body = "POST /body HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000\r\n\r\n";
    let chunks = "POST /chunks HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n";
    for (begin, piece) in [(head, "X: y\r\n"), ("", "\r\n"), ("G", "E"), (body, "x"), (chunks, "1\r\nx\r\n")]
    {
        drip(gateway.client(), begin, piece);
        drip(secure(&gateway), begin, piece);
    }
    for listener in ["plain", "tls"] {
        assert!(deadlines(&gateway, listener, "header") >= 2.0, "{listener}");
        assert_eq!(deadlines(&gateway, listener, "body-stall"), 2.0, "{listener}");
    }
    for path in ["/body", "/chunks"] {
        assert_eq!(gateway.logged(path)["reason"], "body-stall");
    }
}

#[test]
fn a_handshake_in_drips_ends_at_its_deadline() {
    let upstream = Upstream::ok();
    let gateway = before(&upstream);
    // The header of a record of 512 bytes, which then comes byte by byte.
    let client = Client::connect(gateway.listener("tls"));
    drip(client, "\u{16}\u{3}\u{1}\u{2}\u{0}", "\u{1}");
    assert_eq!(deadlines(&gateway, "tls", "handshake"), 1.0);
    // Behind the handshake the head has its own.
    let client = secure(&gateway);
    assert!(closes_within(&client.into_stream().sock, Duration::from_secs(10)));
    assert_eq!(deadlines(&gateway, "tls", "header"), 1.0);
}

#[test]
fn many_slow_clients_cost_the_others_nothing() {
    let _alone = heavy();
    let upstream = Upstream::raw(|stream| {
        let mut peer = Client::over(stream);
        while peer.try_head().is_some_and(|head| head.starts_with("GET")) {
            peer.send("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
        }
        peer.rest();
    });
    let gateway = before(&upstream);
    let memory = gateway.memory_peak_kib();
    let slow: Vec<Client> = (0..900)
        .map(|number| {
            let mut client = gateway.client();
            match number % 3 {
                0 => {}
                1 => drop(client.try_send("GET /slow HTTP/1.1\r\nHost: a\r\nX: ")),
                _ => drop(client.try_send("POST /slow HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\n")),
            }
            client
        })
        .collect();
    let mut good = gateway.client();
    for _ in 0..200 {
        assert_eq!(good.get("/good").text(), "ok");
    }
    for client in &slow {
        assert!(closes_within(client.socket(), Duration::from_secs(10)));
    }
    let spent = gateway.memory_peak_kib() - memory;
    // A third of them hold a connection upstream, too; without optimisation futures are larger than they will be.
    assert!(spent < 900 * 50, "{spent} KiB for 900 slow clients");
    eventually("all of them are counted", || {
        let all = deadlines(&gateway, "plain", "header") + deadlines(&gateway, "plain", "body-stall");
        (all == 900.0).then_some(())
    });
}

#[test]
fn what_is_no_handshake_is_closed_at_once() {
    let upstream = Upstream::ok();
    let gateway = before(&upstream);
    let addr = gateway.listener("tls");
    for bytes in [
        // A message of 16 MiB, one of no known kind, a record over its size, one of SSL 2, an alert, plain HTTP.
        &b"\x16\x03\x01\x00\x04\x01\xff\xff\xff"[..],
        b"\x16\x03\x01\x00\x04\xfe\x00\x00\x00",
        b"\x16\x03\x01\xff\xff",
        b"\x80\x2e\x01\x00\x02\x00\x15\x00\x00\x00\x10",
        b"\x15\x03\x01\x00\x02\x02\x28",
        b"\x17\x03\x03\x00\x01\x00",
        b"GET / HTTP/1.1\r\nHost: a\r\n\r\n",
    ] {
        let mut client = Client::connect(addr);
        client.try_send(bytes);
        assert!(closes_within(client.socket(), Duration::from_secs(5)), "{}", bytes.escape_ascii());
    }
    assert_eq!(secure(&gateway).get("/").status, 200);
    assert_eq!(gateway.metric("sluicegate_worker_panics_total", &[]), 0.0);
}

#[test]
fn a_client_may_not_negotiate_again() {
    let upstream = Upstream::ok();
    let gateway = before(&upstream);
    let addr = gateway.listener("tls").to_string();
    // `R` asks for it; TLS 1.3 has no such thing.
    let asked = format!("(printf 'R\\n'; sleep 2) | openssl s_client -connect {addr} -tls1_2 2>&1; true");
    let said = crate::support::stdout_of("sh", &["-c", &asked]);
    assert!(said.contains("RENEGOTIATING") && said.contains("no renegotiation"), "{said}");
    assert_eq!(secure(&gateway).get("/").status, 200);
}
