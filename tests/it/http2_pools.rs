//! Connections over HTTP/2 to upstreams: dead ones are left, idle ones are closed, and workers give each other way.

use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::support::h2::{Connection, DATA, END_HEADERS, END_STREAM, HEADERS, SETTINGS, fields};
use crate::support::{Gateway, Nginx, Upstream, eventually};

fn before(upstream: SocketAddr, workers: usize, more: &str) -> Gateway {
    Gateway::start(&format!(
        "workers = {workers}\n[upstream.u]\nservers = [\"http://{upstream}\"]\nhttp = \"h2\"\nretry = {{ times = 0 }}\n{more}\n\
         [[route]]\npath = \"/{{*rest}}\"\nto = \"u\""
    ))
}

/// The stream of the next request; none of these has a body.
fn asked(peer: &mut Connection<TcpStream>) -> Option<u32> {
    loop {
        let frame = peer.frame()?;
        if frame.kind == HEADERS && frame.flags & END_STREAM != 0 {
            return Some(frame.stream);
        }
    }
}

fn answer(peer: &mut Connection<TcpStream>, stream: u32) {
    peer.send(HEADERS, END_HEADERS, stream, &fields(&[(":status", "200")]));
    peer.send(DATA, END_STREAM, stream, b"ok");
}

/// Answers at once, and counts the connections that are open.
fn answering(open: &Arc<AtomicUsize>) -> Upstream {
    let open = Arc::clone(open);
    Upstream::raw(move |stream| {
        let mut peer = Connection::serve(stream);
        open.fetch_add(1, Ordering::SeqCst);
        while let Some(stream) = asked(&mut peer) {
            answer(&mut peer, stream);
        }
        open.fetch_sub(1, Ordering::SeqCst);
    })
}

#[test]
fn a_connection_whose_other_end_has_died_is_left() {
    let has_died = AtomicBool::new(false);
    // As behind a balancer whose server is gone: the connection stays, and nothing comes any more.
    let upstream = Upstream::raw(move |stream| {
        let mut peer = Connection::serve(stream);
        let is_first = !has_died.swap(true, Ordering::SeqCst);
        let mut answered = 0;
        while let Some(stream) = asked(&mut peer) {
            if !is_first || answered == 0 {
                answer(&mut peer, stream);
            }
            answered += 1;
        }
    });
    let gateway = before(upstream.addr(), 1, "timeouts = { response = \"1100ms\" }");
    assert_eq!(gateway.get("/").status, 200);
    assert_eq!(gateway.get("/").status, 504);
    assert!((0..5).all(|_| gateway.get("/").status == 200));
    assert_eq!(upstream.connections(), 2);
}

#[test]
fn a_slow_answer_beside_others_costs_no_connection() {
    let upstream = Upstream::raw(|stream| {
        let mut peer = Connection::serve(stream);
        let mut slow = None;
        while let Some(stream) = asked(&mut peer) {
            // The first of all has no answer.
            if *slow.get_or_insert(stream) != stream {
                answer(&mut peer, stream);
            }
        }
    });
    let gateway = &before(upstream.addr(), 1, "timeouts = { response = \"1500ms\" }");
    thread::scope(|scope| {
        let slow = scope.spawn(|| gateway.get("/slow").status);
        eventually("it is at the server", || (upstream.connections() == 1).then_some(()));
        while !slow.is_finished() {
            assert_eq!(gateway.get("/").status, 200);
            thread::sleep(Duration::from_millis(50));
        }
        assert_eq!(slow.join().expect("it ends"), 504);
    });
    assert_eq!(gateway.get("/").status, 200);
    assert_eq!(upstream.connections(), 1);
}

#[test]
fn clients_that_do_not_read_hold_up_nobody_else_s_answers() {
    let upstream = Nginx::start("http2_max_concurrent_streams 128; location = /small { return 200 ok; }");
    upstream.file("large", 64 << 20);
    let gateway = before(upstream.addr(), 1, "");
    let unread: Vec<_> = (0..40)
        .map(|_| {
            let mut client = gateway.client();
            client.send("GET /large HTTP/1.1\r\nHost: a\r\n\r\n");
            client
        })
        .collect();
    for client in &unread {
        assert_eq!(client.socket().peek(&mut [0]).expect("its answer has begun"), 1);
    }
    assert!((0..20).all(|_| gateway.get("/small").status == 200));
}

#[test]
fn an_idle_connection_is_closed_in_its_time() {
    let open = Arc::default();
    let upstream = answering(&open);
    let gateway = before(upstream.addr(), 1, "connections = { idle-timeout = \"600ms\" }");
    for _ in 0..3 {
        assert_eq!(gateway.get("/").status, 200);
    }
    assert_eq!((upstream.connections(), open.load(Ordering::SeqCst)), (1, 1));
    eventually("it is closed", || (open.load(Ordering::SeqCst) == 0).then_some(()));
    assert_eq!(gateway.get("/").status, 200);
    assert_eq!(upstream.connections(), 2);
}

#[test]
fn a_worker_that_has_a_connection_it_does_not_need_gives_way_to_another() {
    let open = Arc::default();
    let upstream = answering(&open);
    let gateway = before(upstream.addr(), 2, "connections = { max = 1, wait = \"5s\" }");
    // Each over a connection of its own, which go to the workers by turns.
    let statuses: Vec<u16> = (0..20).map(|_| gateway.get("/").status).collect();
    assert_eq!(statuses, [200; 20]);
    assert!(open.load(Ordering::SeqCst) <= 1);
}

#[test]
fn a_worker_that_holds_all_connections_at_work_lets_one_end_for_another() {
    // Answers after a while.
    let upstream = Upstream::raw(|stream| {
        let mut peer = Connection::serve(stream);
        while let Some(stream) = asked(&mut peer) {
            thread::sleep(Duration::from_millis(100));
            answer(&mut peer, stream);
        }
    });
    let gateway = &before(upstream.addr(), 2, "connections = { max = 2, streams = 1, wait = \"20s\" }");
    // One client's requests are one worker's; there are always more of them than it has connections.
    let (mut client, is_over) = (Connection::open(gateway.plain()), AtomicBool::new(false));
    thread::scope(|scope| {
        scope.spawn(|| {
            for first in (0..).map(|round| 1 + 6 * round) {
                let streams = [first, first + 2, first + 4];
                streams.iter().for_each(|&stream| client.request(stream, "GET", "/busy", true));
                let mut answered = 0;
                while answered < streams.len() {
                    let frame = client.frame().expect("all are answered");
                    answered += usize::from(frame.kind == DATA && frame.flags & END_STREAM != 0);
                }
                if is_over.load(Ordering::SeqCst) {
                    break;
                }
            }
        });
        eventually("both are in use", || (upstream.connections() == 2).then_some(()));
        let statuses: Vec<u16> = (0..8).map(|_| gateway.get("/").status).collect();
        is_over.store(true, Ordering::SeqCst);
        assert_eq!(statuses, [200; 8]);
    });
}

/// SETTINGS_MAX_CONCURRENT_STREAMS of so many.
fn streams(count: u8) -> [u8; 6] {
    [0, 3, 0, 0, 0, count]
}

#[test]
fn a_server_that_takes_no_streams_is_left_for_another() {
    let one = Arc::new(AtomicUsize::new(0));
    let full = Arc::clone(&one);
    let open = Upstream::raw(|stream| {
        let mut peer = Connection::serve(stream);
        while let Some(frame) = peer.frame() {
            if matches!(frame.kind, HEADERS | DATA) && frame.flags & END_STREAM != 0 {
                answer(&mut peer, frame.stream);
            }
        }
    });
    let none = Upstream::raw(move |stream| {
        let mut peer = Connection::serve_with(stream, &streams(0));
        while let Some(frame) = peer.frame() {
            one.fetch_add(usize::from(frame.kind == HEADERS), Ordering::SeqCst);
        }
    });
    for eject in ["", "eject = { after = 1 }\n"] {
        let gateway = Gateway::start(&format!(
            "workers = 1\n[upstream.u]\nservers = [\"http://{}\", \"http://{}\"]\nhttp = \"h2\"\n\
             balance = \"round-robin\"\nretry = {{ times = 0 }}\n{eject}[[route]]\npath = \"/{{*rest}}\"\nto = \"u\"",
            none.addr(),
            open.addr()
        ));
        let began = Instant::now();
        let posts = |n: usize| gateway.client().request("POST", &format!("/{n}"), &[], "body").status;
        assert!((0..20).all(|n| gateway.get(&format!("/{n}")).status == 200 && posts(n) == 200));
        assert!(began.elapsed() < Duration::from_secs(3), "{:?}", began.elapsed());
        assert_eq!(full.load(Ordering::SeqCst), 0, "it was asked");
        let shown = gateway.admin("/v1/upstreams").json()[0]["servers"][0].clone();
        assert!(shown["connect-failure"].as_str().is_some_and(|why| why.contains("STREAMS is 0")), "{shown}");
        let state = if eject.is_empty() { "healthy" } else { "ejected" };
        assert_eq!(shown["state"], state, "{shown}");
    }
}

#[test]
fn a_server_that_takes_no_streams_for_good_costs_a_second_and_says_why() {
    let none = Upstream::raw(|stream| {
        let mut peer = Connection::serve_with(stream, &streams(0));
        while peer.frame().is_some() {}
    });
    let gateway = before(none.addr(), 1, "");
    let began = Instant::now();
    let mut clients: Vec<_> = (0..20).map(|_| gateway.client()).collect();
    for client in &mut clients {
        client.send("GET /a HTTP/1.1\r\nHost: a\r\n\r\n");
    }
    for client in &mut clients {
        let answer = client.response();
        assert_eq!((answer.status, answer.header("retry-after")), (503, Some("1")), "{answer:?}");
        assert_eq!(answer.json()["reason"], "upstream-pool-full");
    }
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    let line = gateway.logged("/a");
    assert_eq!(line["cause"], "no-streams", "{line}");
    assert!(none.connections() <= 4, "{} connections", none.connections());
    let shown = gateway.admin("/v1/explain?url=/a").json();
    assert!(shown["text"].as_str().is_some_and(|it| it.contains("STREAMS is 0")), "{shown}");
}

#[test]
fn a_server_that_takes_no_streams_for_a_while_is_waited_for() {
    // From the first, and after a request.
    for first in [0, 1] {
        let upstream = Upstream::raw(move |stream| {
            let mut peer = Connection::serve_with(stream, &streams(first));
            if first > 0 {
                let Some(stream) = asked(&mut peer) else { return };
                peer.send(SETTINGS, 0, 0, &streams(0));
                answer(&mut peer, stream);
            }
            thread::sleep(Duration::from_millis(400));
            peer.send(SETTINGS, 0, 0, &streams(7));
            while let Some(stream) = asked(&mut peer) {
                answer(&mut peer, stream);
            }
        });
        let gateway = before(upstream.addr(), 1, "");
        for path in ["/a", "/b", "/c"] {
            assert_eq!(gateway.get(path).status, 200, "{first} {path}");
        }
        assert_eq!(upstream.connections(), 1);
        let line = gateway.logged(if first == 0 { "/a" } else { "/b" });
        assert!(line["wait_us"].as_u64().is_some_and(|waited| waited > 100_000), "{line}");
        let shown = gateway.admin("/v1/upstreams").json()[0]["servers"][0].clone();
        assert!(shown.get("connect-failure").is_none(), "{shown}");
    }
}
