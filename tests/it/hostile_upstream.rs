//! Upstreams that attack: answers written to be read in two ways, heads and interim answers without end, bytes nobody
//! asked for. The client gets 502 or a body that does not look whole, the connection is not used again, and requests
//! beside it notice nothing.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

use crate::support::h2::{Connection, DATA, End, HEADERS, SETTINGS};
use crate::support::upstream::receive;
use crate::support::{Client, Gateway, Upstream, eventually, text};

/// A gateway before this upstream, and a route to one that answers as it should.
fn before(upstream: &Upstream, good: &Upstream, more: &str) -> Gateway {
    Gateway::start(&format!(
        "workers = 1\n[upstream.u]\nservers = [\"http://{}\"]\n{more}\n\
         [[route]]\npath = \"/{{*rest}}\"\nto = \"u\"\nupgrade = true\n[[route]]\npath = \"/good\"\nto = \"http://{}\"",
        upstream.addr(),
        good.addr()
    ))
}

/// Answers every request with these bytes and keeps the connection open.
fn saying(answer: impl AsRef<[u8]>) -> Upstream {
    Upstream::answering(answer)
}

/// Hands out the number of the connection a request comes on, and answers the first one with these bytes.
fn first_saying(answer: &'static str) -> Upstream {
    let connections = AtomicUsize::new(0);
    Upstream::raw(move |stream| {
        let number = connections.fetch_add(1, Ordering::SeqCst);
        let mut peer = Client::over(stream);
        while receive(&mut peer).is_some() {
            if number == 0 {
                peer.try_send(answer);
            } else {
                peer.try_send("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nfresh");
            }
        }
    })
}

#[test]
fn an_answer_that_can_be_read_in_two_ways_is_a_bad_response() {
    let good = Upstream::ok();
    for answer in [
        "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 2\r\n\r\n0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 2\r\n\r\nok",
        "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nok",
        "HTTP/1.1 200 OK\r\nContent-Length: 2, 2\r\n\r\nok",
        "HTTP/1.1 200 OK\r\nContent-Length: +2\r\n\r\nok",
        "HTTP/1.1 200 OK\r\nContent-Length: 0x2\r\n\r\nok",
        "HTTP/1.1 200 OK\r\nContent-Length:\r\n\r\nok",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: xchunked\r\n\r\nok",
        "HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nX: a\r\n folded\r\nContent-Length: 2\r\n\r\nok",
        "HTTP/1.1 200 OK\r\nX : a\r\nContent-Length: 2\r\n\r\nok",
        "HTTP/1.1 200 OK\r\n: a\r\nContent-Length: 2\r\n\r\nok",
        "HTTP/1.1 200 OK\r\nX: a\u{0}b\r\nContent-Length: 2\r\n\r\nok",
        "HTTP/1.1 200 OK\r\nX: a\rb\r\nContent-Length: 2\r\n\r\nok",
        "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
        "HTTP/2.0 200 OK\r\nContent-Length: 2\r\n\r\nok",
        "HTTP/1.1 999999 OK\r\n\r\n",
        "HTTP/1.1 2x0 OK\r\n\r\n",
        "ICY 200 OK\r\n\r\n",
        "\u{0}\u{0}\r\n\r\n",
    ] {
        let bad = saying(answer);
        let gateway = before(&bad, &good, "");
        let mut client = gateway.client();
        for _ in 0..2 {
            let said = client.get("/bad");
            assert_eq!(
                (said.status, said.json()["reason"].as_str()),
                (502, Some("upstream-bad-response")),
                "{answer:?}"
            );
            assert_eq!(client.get("/good").text(), "ok", "the client's connection goes on");
        }
        assert_eq!(bad.connections(), 2, "a connection was used again after {answer:?}");
        let outcome = gateway
            .metric("sluicegate_upstream_exchanges_total", &["upstream=\"u\"", "outcome=\"bad-answer\""]);
        assert_eq!(outcome, 2.0, "{answer:?}");
    }
}

#[test]
fn a_switch_is_to_what_was_asked_for() {
    let good = Upstream::ok();
    let fields = [
        "Connection: Upgrade",
        "Upgrade: websocket",
        "Sec-WebSocket-Version: 13",
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
    ];
    for answer in [
        "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n",
        "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket, h2c\r\n\r\n",
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n\r\n",
        "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\n\r\n",
        "HTTP/1.1 101 Switching Protocols\r\n\r\n",
    ] {
        let bad = saying(answer);
        let gateway = before(&bad, &good, "");
        assert_eq!(gateway.client().request("GET", "/ws", &fields, "").status, 502, "{answer:?}");
    }
}

#[test]
fn bytes_on_an_idle_connection_are_no_answer() {
    let good = Upstream::ok();
    for early in ["HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil", "\r\n", "x"] {
        let (tx, sent) = mpsc::channel();
        let tx = Mutex::new(tx);
        let upstream = Upstream::raw(move |stream| {
            let mut peer = Client::over(stream);
            if receive(&mut peer).is_none() {
                return;
            }
            peer.send("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
            peer.try_send(early);
            tx.lock().expect("nobody panics with it").send(()).ok();
            // Whatever comes here would be answered by what was said before.
            if receive(&mut peer).is_some() {
                peer.try_send("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil");
            }
        });
        let gateway = before(&upstream, &good, "");
        let mut client = gateway.client();
        for _ in 0..4 {
            assert_eq!(client.get("/").text(), "ok", "{early:?}");
            sent.recv_timeout(crate::support::PATIENCE).expect("it is said");
        }
        assert_eq!(upstream.connections(), 4, "{early:?}");
    }
}

#[test]
fn a_body_with_bad_chunks_never_looks_whole() {
    let good = Upstream::ok();
    let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
    for body in [
        "-1\r\nx\r\n0\r\n\r\n".to_owned(),
        "0x1\r\nx\r\n0\r\n\r\n".to_owned(),
        "1\nx\n0\n\n".to_owned(),
        "fffffffffffffffff\r\nx\r\n0\r\n\r\n".to_owned(),
        "1\r\nxx\r\n0\r\n\r\n".to_owned(),
        format!("1;{}\r\nx\r\n0\r\n\r\n", "e".repeat(70_000)),
        format!("1\r\nx\r\n0\r\nX: {}\r\n\r\n", "t".repeat(70_000)),
    ] {
        let upstream = saying(format!("{head}{body}"));
        let gateway = before(&upstream, &good, "");
        let mut client = gateway.client();
        client.send("GET /x HTTP/1.1\r\nHost: a\r\n\r\n");
        let said = text(&client.rest());
        assert!(said.starts_with("HTTP/1.1 200 ") || said.starts_with("HTTP/1.1 502 "), "{said}");
        assert!(!said.ends_with("\r\n0\r\n\r\n"), "a bad body looks whole: {body:.40}: {said:.400}");
        assert_eq!(gateway.get("/good").text(), "ok");
    }
}

#[test]
fn what_follows_an_answer_is_not_the_next_one_s() {
    // A connection that has lied once is not asked again.
    for answer in [
        "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokHTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil",
        "HTTP/1.1 204 No Content\r\nContent-Length: 4\r\n\r\nevil",
        "HTTP/1.1 304 Not Modified\r\n\r\nevil",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nevil",
    ] {
        let upstream = first_saying(answer);
        let good = Upstream::ok();
        let gateway = before(&upstream, &good, "retry = { times = 1, budget = \"100%\" }");
        let mut client = gateway.client();
        let said = client.get("/x");
        assert!(!said.text().contains("evil"), "{answer:?}");
        assert_eq!(client.get("/x").text(), "fresh", "{answer:?}");
    }
    let upstream = first_saying("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil");
    let good = Upstream::ok();
    let gateway = before(&upstream, &good, "");
    let mut client = gateway.client();
    let head = client.request("HEAD", "/x", &[], "");
    assert_eq!(head.status, 200);
    assert_eq!(client.get("/x").text(), "fresh", "a body behind the answer to HEAD is no answer");
}

/// An upstream that says `begin` and then `more` for as long as anybody reads.
fn endless(
    begin: &'static str,
    more: impl Fn(u64) -> String + Send + Sync + 'static,
) -> (Upstream, Arc<AtomicUsize>) {
    let ended = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&ended);
    let upstream = Upstream::raw(move |stream| {
        let mut peer = Client::over(stream);
        if receive(&mut peer).is_some() {
            peer.try_send(begin);
            for number in 0.. {
                if !peer.is_taking(more(number)) {
                    break;
                }
            }
            count.fetch_add(1, Ordering::SeqCst);
        }
    });
    (upstream, ended)
}

#[test]
fn heads_and_interim_answers_without_end_are_bounded() {
    let good = Upstream::ok();
    let attacks: [(Upstream, Arc<AtomicUsize>); 5] = [
        endless("HTTP/1.1 200 OK\r\n", |number| format!("x-{number}: {}\r\n", "x".repeat(1000))),
        endless("HTTP/1.1 200 OK\r\n", |number| format!("x-{number}: y\r\n")),
        endless("HTTP/1.1 200 OK\r\nx: ", |_| "x".repeat(4000)),
        endless("HTTP/1.1 200 ", |_| "x".repeat(4000)),
        endless("", |_| "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n".repeat(50)),
    ];
    for (number, (upstream, ended)) in attacks.iter().enumerate() {
        let gateway = before(upstream, &good, "timeouts = { response = \"20s\" }");
        let memory = gateway.memory_peak_kib();
        let mut attacked = gateway.client();
        attacked.send("GET /x HTTP/1.1\r\nHost: a\r\n\r\n");
        for _ in 0..20 {
            assert_eq!(gateway.get("/good").text(), "ok", "attack {number} harms others");
        }
        assert_eq!(attacked.response().status, 502, "attack {number}");
        eventually("the attacker's connection is closed", || {
            (ended.load(Ordering::SeqCst) == 1).then_some(())
        });
        assert!(gateway.memory_peak_kib() - memory < 16 * 1024, "attack {number}");
    }
}

#[test]
fn an_answer_cannot_add_fields_or_answers_to_the_client_s() {
    let good = Upstream::ok();
    // A bare LF ends a field for hyper; written anew, it is two fields and never two answers.
    let upstream = saying("HTTP/1.1 200 OK\nX: a\nContent-Length: 2\n\nok");
    let gateway = before(&upstream, &good, "");
    let mut client = gateway.client();
    client.send("GET /x HTTP/1.1\r\nHost: a\r\n\r\n");
    let head = client.head_text();
    assert!(!head.replace("\r\n", "").contains(['\r', '\n']), "{head:?}");
    // Hop-by-hop fields of the server's connection stay there, named by it or known.
    let upstream = saying(
        "HTTP/1.1 200 OK\r\nConnection: keep-alive, X-Hop\r\nX-Hop: 1\r\nKeep-Alive: 9\r\nUpgrade: h2c\r\n\
         Proxy-Authenticate: Basic\r\nTrailer: X\r\nContent-Length: 2\r\n\r\nok",
    );
    let gateway = before(&upstream, &good, "");
    let answer = gateway.get("/x");
    for name in ["x-hop", "keep-alive", "upgrade", "proxy-authenticate", "trailer"] {
        assert!(answer.all(name).is_empty(), "{name}: {answer:?}");
    }
}

#[test]
fn a_body_without_pause_ends_at_the_total_deadline() {
    let good = Upstream::ok();
    let (upstream, ended) =
        endless("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", |_| "1\r\nx\r\n".repeat(2000));
    let gateway = before(&upstream, &good, "timeouts = { total = \"1s\" }");
    let mut client = gateway.client();
    client.send("GET /x HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(client.head().status, 200);
    let mut taken = 0;
    let begin = std::time::Instant::now();
    while let Ok(count) = std::io::Read::read(&mut client.socket(), &mut [0; 65_536]) {
        if count == 0 {
            break;
        }
        taken += count;
        assert!(begin.elapsed() < crate::support::PATIENCE, "it goes on after {taken} bytes");
    }
    assert_eq!(gateway.logged("/x")["reason"], "upstream-timeout");
    eventually("the attacker's connection is closed", || (ended.load(Ordering::SeqCst) == 1).then_some(()));
}

#[test]
fn a_connection_whose_request_was_not_taken_whole_is_not_used_again() {
    // It answers at once; what it has not read of the body would be its next request.
    let (tx, seen) = mpsc::channel();
    let tx = Mutex::new(tx);
    let upstream = Upstream::raw(move |stream| {
        let mut peer = Client::over(stream);
        while let Some(head) = peer.try_head() {
            let line = head.lines().next().unwrap_or_default().to_owned();
            tx.lock().expect("nobody panics with it").send(line).ok();
            peer.try_send("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
        }
    });
    let good = Upstream::ok();
    let gateway = before(&upstream, &good, "");
    let hidden = "GET /hidden HTTP/1.1\r\nHost: a\r\n\r\n";
    for round in 0..5 {
        let mut client = gateway.client();
        client.send(format!("POST /early HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n", hidden.len()));
        assert_eq!(client.response().status, 200);
        client.try_send(hidden);
        assert_eq!(seen.recv_timeout(crate::support::PATIENCE).as_deref(), Ok("POST /early HTTP/1.1"));
        assert_eq!(gateway.get("/next").status, 200);
        let next = seen.recv_timeout(crate::support::PATIENCE);
        assert_eq!(next.as_deref(), Ok("GET /next HTTP/1.1"), "round {round}");
    }
}

#[test]
fn what_came_before_a_break_has_time_to_be_read_over_http_2() {
    let short = "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 5000\r\n\r\n";
    let upstream = Upstream::raw(move |stream| {
        let mut peer = Client::over(stream);
        receive(&mut peer);
        peer.try_send([short.as_bytes(), &[b'a'; 2_400]].concat());
    });
    let gateway = before(&upstream, &Upstream::ok(), "retry = { times = 0 }");
    // The second client's window takes a part of it and is not opened again.
    for (path, window) in [("/all", 65_535_u32), ("/part", 1_000)] {
        let mut client = Connection::open(gateway.plain());
        client.send(SETTINGS, 0, 0, &[&[0, 4][..], &window.to_be_bytes()].concat());
        let asked = Instant::now();
        client.request(1, "GET", path, true);
        client.until(HEADERS);
        let came = client.until(DATA).payload.len();
        assert_eq!(came, 2_400.min(window as usize), "{path}");
        assert!(matches!(client.end(), End::Reset(_)), "{path}");
        // Clients that meet the reset in one read with what came before throw that away.
        assert!(asked.elapsed() >= Duration::from_millis(100), "{path}");
        assert_eq!(gateway.logged(path)["reason"], "upstream-reset");
    }
}
