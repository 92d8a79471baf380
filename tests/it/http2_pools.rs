//! Connections over HTTP/2 to upstreams: dead ones are left, idle ones are closed, and workers give each other way.

use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use crate::support::h2::{Connection, DATA, END_HEADERS, END_STREAM, HEADERS, fields};
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
