//! Upstreams that close, reset, stall, lie and babble: what the client gets, and what the access log says.

use std::net::TcpListener;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};

use crate::support::upstream::{receive, reset};
use crate::support::{Client, Gateway, Upstream, eventually, h2};

/// A gateway whose only upstream is at this address, with more lines of its table.
fn before(address: impl std::fmt::Display, more: &str) -> Gateway {
    Gateway::start(&format!(
        "workers = 1\n[upstream.u]\nservers = [\"http://{address}\"]\n{more}\n[[route]]\npath = \"/{{*rest}}\"\nto = \"u\""
    ))
}

/// One GET of `/x`: it must be answered with this status, and logged with this reason.
fn refused(gateway: &Gateway, status: u16, reason: &str) {
    let answer = gateway.get("/x");
    assert_eq!(answer.status, status, "{}", answer.text());
    assert_eq!(answer.header("content-type"), Some("application/problem+json"));
    assert_eq!(answer.json()["status"], status);
    let line = gateway.logged("/x");
    assert_eq!(
        (line["status"].as_u64(), line["reason"].as_str()),
        (Some(status.into()), Some(reason)),
        "{line}"
    );
}

/// An upstream that reads a request and then does this with the connection.
fn after_a_request(then: impl Fn(Client) + Send + Sync + 'static) -> Upstream {
    Upstream::raw(move |stream| {
        let mut peer = Client::over(stream);
        if receive(&mut peer).is_some() {
            then(peer);
        }
    })
}

#[test]
fn a_closed_port_is_a_bad_gateway() {
    let free = TcpListener::bind("127.0.0.1:0").and_then(|socket| socket.local_addr());
    let free = free.expect("loopback has a free port");
    let gateway = before(free, "");
    refused(&gateway, 502, "upstream-connect");
    let line = gateway.logged("/x");
    assert_eq!((line["upstream"].as_str(), line["server"].as_str()), (Some("u"), Some(&*free.to_string())));
}

#[test]
fn a_name_that_does_not_resolve_stops_nothing_but_its_requests() {
    refused(&before("no-such-host.invalid:80", ""), 503, "upstream-unresolved");
}

#[test]
fn a_connection_that_cannot_be_made_in_time_is_a_timeout() {
    // A backlog of one that is full: the kernel lets further handshakes hang.
    let socket =
        socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).expect("TCP is there");
    let any = std::net::SocketAddr::from(([127, 0, 0, 1], 0));
    socket.bind(&any.into()).and_then(|()| socket.listen(0)).expect("loopback has a free port");
    let addr = socket.local_addr().ok().and_then(|addr| addr.as_socket()).expect("it is bound");
    let _full: Vec<_> = (0..2)
        .map(|_| std::net::TcpStream::connect_timeout(&addr, std::time::Duration::from_millis(100)))
        .collect();
    refused(&before(addr, "timeouts = { connect = \"300ms\" }"), 504, "upstream-timeout");
}

#[test]
fn an_upstream_that_closes_without_an_answer_is_a_bad_gateway() {
    let upstream = after_a_request(drop);
    refused(&before(upstream.addr(), ""), 502, "upstream-reset");
}

#[test]
fn an_upstream_that_resets_is_a_bad_gateway() {
    let upstream = after_a_request(|peer| reset(peer.into_stream()));
    refused(&before(upstream.addr(), ""), 502, "upstream-reset");
}

#[test]
fn an_upstream_that_closes_within_its_head_is_a_bad_gateway() {
    let upstream = after_a_request(|mut peer| {
        peer.send("HTTP/1.1 200 OK\r\nContent-Le");
    });
    refused(&before(upstream.addr(), ""), 502, "upstream-reset");
}

#[test]
fn an_upstream_that_says_nothing_is_a_timeout() {
    let upstream = after_a_request(|mut peer| {
        peer.rest();
    });
    refused(&before(upstream.addr(), "timeouts = { response = \"300ms\" }"), 504, "upstream-timeout");
}

#[test]
fn an_exchange_has_a_total_deadline() {
    let upstream = after_a_request(|mut peer| {
        peer.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
        // Never stalls, never ends.
        while peer.is_taking("1\r\nx\r\n") {
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
    });
    let gateway = before(upstream.addr(), "timeouts = { total = \"500ms\" }");
    let mut client = gateway.client();
    client.send("GET /x HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(client.head().status, 200);
    assert!(!client.rest().ends_with(b"0\r\n\r\n"), "a body cut short must not look whole");
    assert_eq!(gateway.logged("/x")["reason"], "upstream-timeout");
    assert_eq!(outcomes(&gateway, "total-timeout"), 1.0);
    let silent = after_a_request(|mut peer| {
        peer.rest();
    });
    let gateway = before(silent.addr(), "timeouts = { total = \"300ms\", response = \"10s\" }");
    refused(&gateway, 504, "upstream-timeout");
    assert_eq!((outcomes(&gateway, "total-timeout"), outcomes(&gateway, "response-timeout")), (1.0, 0.0));
}

/// Exchanges with the upstream `u` that ended so.
fn outcomes(gateway: &Gateway, outcome: &str) -> f64 {
    let outcome = format!("outcome=\"{outcome}\"");
    gateway.metric("sluicegate_upstream_exchanges_total", &["upstream=\"u\"", &outcome])
}

#[test]
fn connections_upstream_show_in_the_metrics() {
    let (tx, rx) = mpsc::channel::<()>();
    let held = Mutex::new(rx);
    let upstream = Upstream::replying(move |_| {
        held.lock().expect("nobody panics with it").recv().ok();
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok".to_vec()
    });
    let gateway = before(upstream.addr(), "connections = { max = 1, wait = \"10s\", idle-timeout = \"1m\" }");
    let levels = || {
        let of =
            |name: &str, more: &[&str]| gateway.metric(&format!("sluicegate_upstream_{name}"), more) as u32;
        (
            of("connections", &["state=\"open\""]),
            of("connections", &["state=\"idle\""]),
            of("waiting_requests", &[]),
        )
    };
    assert_eq!(levels(), (0, 0, 0));
    let (mut one, mut two) = (gateway.client(), gateway.client());
    for client in [&mut one, &mut two] {
        client.send("GET /x HTTP/1.1\r\nHost: a\r\n\r\n");
    }
    eventually("one is open and one waits", || (levels() == (1, 0, 1)).then_some(()));
    for _ in 0..2 {
        tx.send(()).expect("the upstream waits for it");
    }
    assert_eq!((one.response().status, two.response().status), (200, 200));
    eventually("the connection is idle", || (levels() == (1, 1, 0)).then_some(()));
}

#[test]
fn an_answer_that_is_not_http_is_a_bad_response() {
    for answer in [
        "SSH-2.0-OpenSSH_9.2\r\n\r\n",
        "HTTP/1.1 OK\r\n\r\n",
        "HTTP/1.1 200 OK\r\nno colon\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
        "HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999999\r\n\r\n",
        "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n",
    ] {
        let upstream = Upstream::answering(answer);
        eprintln!("the upstream says {answer:?}");
        refused(&before(upstream.addr(), ""), 502, "upstream-bad-response");
    }
}

#[test]
fn a_head_without_end_is_a_bad_response() {
    let upstream = after_a_request(|mut peer| {
        peer.send("HTTP/1.1 200 OK\r\n");
        while peer.is_taking(format!("x-filler: {}\r\n", "x".repeat(8000))) {}
    });
    let gateway = before(upstream.addr(), "");
    let before = gateway.memory_peak_kib();
    refused(&gateway, 502, "upstream-bad-response");
    assert!(gateway.memory_peak_kib() - before < 16 * 1024);
}

/// What the client sees of an answer that breaks off: the head, then less than was promised, then the end.
fn breaks_off(upstream: &Upstream, more: &str, reason: &str) {
    let gateway = before(upstream.addr(), more);
    let mut client = gateway.client();
    client.send("GET /x HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(client.head().status, 200);
    let body = client.rest();
    assert!(body.len() < 100 && !body.ends_with(b"0\r\n\r\n"), "{:?}", crate::support::text(&body));
    assert_eq!(gateway.logged("/x")["reason"], reason);
}

#[test]
fn a_body_shorter_than_promised_does_not_look_whole() {
    let upstream = after_a_request(|mut peer| {
        peer.send("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf");
    });
    breaks_off(&upstream, "", "upstream-reset");
}

#[test]
fn chunks_that_break_off_do_not_look_whole() {
    let upstream = after_a_request(|mut peer| {
        peer.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n");
    });
    breaks_off(&upstream, "", "upstream-reset");
}

#[test]
fn a_body_that_is_reset_does_not_look_whole() {
    let upstream = after_a_request(|mut peer| {
        peer.send("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf");
        reset(peer.into_stream());
    });
    breaks_off(&upstream, "", "upstream-reset");
}

#[test]
fn invalid_chunks_do_not_look_whole() {
    let upstream = after_a_request(|mut peer| {
        peer.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\nzzz\r\n");
        peer.rest();
    });
    breaks_off(&upstream, "", "upstream-reset");
}

#[test]
fn a_body_that_stalls_is_given_up() {
    let upstream = after_a_request(|mut peer| {
        peer.send("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf");
        peer.rest();
    });
    breaks_off(&upstream, "timeouts = { stall = \"300ms\" }", "upstream-timeout");
}

#[test]
fn bytes_after_an_answer_are_not_the_next_answer() {
    let count = Arc::new(AtomicUsize::new(0));
    let number = Arc::clone(&count);
    let upstream = Upstream::replying(move |_| {
        let number = number.fetch_add(1, Ordering::SeqCst);
        format!(
            "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n{number}HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil"
        )
        .into_bytes()
    });
    let gateway = before(upstream.addr(), "");
    let mut client = gateway.client();
    for number in 0..5 {
        assert_eq!(client.get("/").text(), number.to_string());
    }
    assert_eq!(upstream.connections(), 5, "none of them can be used again");
}

#[test]
fn a_request_is_sent_again_when_no_byte_came_back() {
    let first = AtomicUsize::new(0);
    let (tx, requests) = mpsc::channel();
    let tx = Mutex::new(tx);
    let upstream = Upstream::raw(move |stream| {
        let mut peer = Client::over(stream);
        while let Some(request) = receive(&mut peer) {
            tx.lock().expect("nobody panics with it").send(request.line).ok();
            if first.fetch_add(1, Ordering::SeqCst) == 0 {
                return;
            }
            peer.send("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
        }
    });
    let gateway = before(upstream.addr(), "retry = { times = 1, budget = \"100%\" }");
    assert_eq!(gateway.get("/again").text(), "ok");
    assert_eq!(requests.try_iter().collect::<Vec<_>>(), ["GET /again HTTP/1.1", "GET /again HTTP/1.1"]);
}

#[test]
fn a_post_is_not_sent_again() {
    let (tx, requests) = mpsc::channel();
    let tx = Mutex::new(tx);
    let upstream = after_a_request(move |_| {
        tx.lock().expect("nobody panics with it").send(()).ok();
    });
    let gateway = before(upstream.addr(), "retry = { times = 1, budget = \"100%\" }");
    let answer = gateway.client().request("POST", "/once", &[], "pay 100");
    assert_eq!(answer.status, 502);
    assert_eq!(gateway.logged("/once")["reason"], "upstream-reset");
    assert_eq!(requests.try_iter().count(), 1);
}

#[test]
fn a_server_that_is_down_is_passed_over() {
    let free = TcpListener::bind("127.0.0.1:0").and_then(|socket| socket.local_addr());
    let upstream = Upstream::ok();
    let gateway = Gateway::start(&format!(
        "[upstream.u]\nservers = [\"http://{}\", \"http://{}\"]\nretry = {{ times = 1, budget = \"100%\" }}\n\
         [[route]]\npath = \"/{{*rest}}\"\nto = \"u\"",
        free.expect("loopback has a free port"),
        upstream.addr()
    ));
    for _ in 0..20 {
        assert_eq!(gateway.get("/").text(), "ok");
    }
}

#[test]
fn a_full_pool_makes_a_request_wait_and_then_refuses_it() {
    let (release, released) = mpsc::channel::<()>();
    let released = Mutex::new(released);
    let upstream = after_a_request(move |mut peer| {
        released.lock().expect("nobody panics with it").recv().ok();
        peer.send("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
        peer.rest();
    });
    let gateway = before(upstream.addr(), "connections = { max = 1, wait = \"200ms\" }");
    let mut first = gateway.client();
    first.send("GET /first HTTP/1.1\r\nHost: a\r\n\r\n");
    crate::support::eventually("the first is at the upstream", || {
        (upstream.connections() == 1).then_some(())
    });
    refused(&gateway, 503, "upstream-pool-full");
    let waited = gateway.logged("/x")["wait_us"].as_u64();
    assert!(waited.is_some_and(|waited| waited >= 200_000), "{waited:?}");
    release.send(()).expect("the upstream waits for it");
    assert_eq!(first.response().text(), "ok");
    assert_eq!(upstream.connections(), 1);
}

#[test]
fn an_idle_connection_that_the_upstream_closed_is_not_used() {
    let upstream = after_a_request(|mut peer| {
        peer.send("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
    });
    // Whether the close is seen before the request goes out or only by it is a race; the client sees neither.
    let gateway = before(upstream.addr(), "retry = { times = 1, budget = \"100%\" }");
    let mut client = gateway.client();
    for _ in 0..20 {
        assert_eq!(client.get("/").status, 200);
    }
}

#[test]
fn as_many_requests_wait_for_an_upstream_as_may_over_either_protocol() {
    for http in ["h1", "h2"] {
        // Connects, and never says a word.
        let upstream = Upstream::raw(|stream| drop(Client::over(stream).rest()));
        let gateway = before(
            upstream.addr(),
            &format!(
                "http = \"{http}\"\nconnections = {{ max = 1, streams = 1, waiting = 1, wait = \"20s\" }}\n\
                 timeouts = {{ response = \"20s\" }}"
            ),
        );
        let (mut served, mut waits) = (gateway.client(), gateway.client());
        served.send("GET /a HTTP/1.1\r\nHost: a\r\n\r\n");
        eventually("the first is at the upstream", || (upstream.connections() == 1).then_some(()));
        waits.send("GET /b HTTP/1.1\r\nHost: a\r\n\r\n");
        let waiting = || gateway.metric("sluicegate_upstream_waiting_requests", &[]);
        eventually("the second waits", || (waiting() == 1.0).then_some(()));
        refused(&gateway, 503, "upstream-pool-full");
    }
}

#[test]
fn requests_that_wait_at_once_wait_no_longer_than_one_does_over_either_protocol() {
    const WAITING: usize = 8;
    for http in ["h1", "h2"] {
        // Takes requests and never answers one.
        let upstream = Upstream::raw(move |stream| match http {
            "h2" => {
                let mut peer = h2::Connection::serve(stream);
                while peer.frame().is_some() {}
            }
            _ => drop(Client::over(stream).rest()),
        });
        let settings = format!(
            "http = \"{http}\"\nconnections = {{ max = 1, streams = 1, wait = \"300ms\" }}\n\
             timeouts = {{ response = \"30s\" }}"
        );
        let gateway = before(upstream.addr(), &settings);
        let mut served = gateway.client();
        served.send("GET /served HTTP/1.1\r\nHost: a\r\n\r\n");
        let is_open = || (gateway.metric("sluicegate_upstream_connections", &["u"]) == 1.0).then_some(());
        eventually("the first is at the upstream", is_open);
        let mut waiting: Vec<Client> = (0..WAITING).map(|_| gateway.client()).collect();
        for client in &mut waiting {
            client.send("GET /waits HTTP/1.1\r\nHost: a\r\n\r\n");
        }
        let statuses: Vec<u16> = waiting.iter_mut().map(|client| client.response().status).collect();
        assert_eq!(statuses, [503; WAITING], "{http} {:?}", gateway.access_log());
        let lines = eventually("all are logged", || {
            let lines = gateway.access_log();
            let lines: Vec<_> = lines.into_iter().filter(|line| line["path"] == "/waits").collect();
            (lines.len() == WAITING).then_some(lines)
        });
        // One after the other would be 2.4 s.
        let waits: Vec<_> = lines.iter().filter_map(|line| line["wait_us"].as_u64()).collect();
        assert!(
            waits.len() == WAITING && waits.iter().all(|&us| (300_000..1_200_000).contains(&us)),
            "{waits:?}"
        );
    }
}
