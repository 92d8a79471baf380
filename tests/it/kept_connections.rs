//! Connections to an upstream that die while they are kept: a firewall forgets them, a server closes them as the next
//! request is on its way. No client sees it if its request may be sent twice.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Barrier};
use std::thread;

use crate::support::upstream::{receive, reset};
use crate::support::{Client, Gateway, Upstream};

/// A server that answers the first request of each connection together with `size` of them, and resets what comes second.
struct Forgetful {
    upstream: Upstream,
    /// Requests that have come.
    requests: Arc<AtomicUsize>,
    /// From now on new connections answer at once.
    alone: Arc<AtomicBool>,
}

impl Forgetful {
    fn start(size: usize) -> Forgetful {
        let (requests, alone) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
        let (counted, is_alone, all) =
            (Arc::clone(&requests), Arc::clone(&alone), Arc::new(Barrier::new(size)));
        let upstream = Upstream::raw(move |stream| {
            let kept = stream.try_clone().expect("there are descriptors");
            let mut peer = Client::over(stream);
            if receive(&mut peer).is_none() {
                return;
            }
            counted.fetch_add(1, Ordering::SeqCst);
            if !is_alone.load(Ordering::SeqCst) {
                all.wait();
            }
            peer.try_send("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
            if receive(&mut peer).is_some() {
                counted.fetch_add(1, Ordering::SeqCst);
                drop(peer);
                reset(kept);
            }
        });
        Forgetful { upstream, requests, alone }
    }

    fn requests(&self) -> usize {
        self.requests.load(Ordering::SeqCst)
    }

    fn gateway(&self, more: &str) -> Gateway {
        Gateway::start(&format!(
            "workers = 1\n[upstream.u]\nservers = [\"http://{}\"]\n{more}\n[[route]]\npath = \"/{{*rest}}\"\nto = \"u\"",
            self.upstream.addr()
        ))
    }
}

/// The statuses of one request with this method from each of so many clients at once.
fn statuses(gateway: &Gateway, method: &str, clients: usize) -> Vec<u16> {
    thread::scope(|scope| {
        let asked: Vec<_> = (0..clients)
            .map(|_| scope.spawn(move || gateway.client().request(method, "/", &[], "").status))
            .collect();
        asked.into_iter().map(|client| client.join().expect("it has an answer")).collect()
    })
}

#[test]
fn many_that_die_at_once_are_seen_by_no_client_and_cost_no_budget() {
    let server = Forgetful::start(20);
    let gateway = server.gateway("retry = { budget = \"0%\" }\neject = { after = 1 }");
    assert_eq!(statuses(&gateway, "GET", 20), [200; 20]);
    assert_eq!(server.upstream.connections(), 20);
    server.alone.store(true, Ordering::SeqCst);
    assert_eq!(statuses(&gateway, "GET", 20), [200; 20]);
    let sent = gateway.metric("sluicegate_upstream_retries_total", &["result=\"sent\""]);
    assert_eq!(sent as usize, server.requests() - 40, "each that died was sent once more");
    assert!(sent >= 15.0, "the connections had died: {sent}");
}

#[test]
fn a_connection_that_dies_is_replaced_where_no_second_one_is_allowed() {
    let server = Forgetful::start(1);
    let gateway = server.gateway("connections = { max = 1, wait = \"200ms\" }");
    let mut client = gateway.client();
    for _ in 0..20 {
        assert_eq!(client.get("/").status, 200);
    }
    assert_eq!(server.requests(), 20 + 19);
}

#[test]
fn what_may_not_be_sent_twice_is_not() {
    for (method, more) in
        [("POST", ""), ("GET", "retry = { times = 0 }"), ("GET", "retry = { on = \"connect\" }")]
    {
        let server = Forgetful::start(1);
        let gateway = server.gateway(more);
        assert_eq!(statuses(&gateway, method, 1), [200]);
        assert_eq!(statuses(&gateway, method, 1), [502], "{method} {more}");
        gateway.logged_where("the reset", |line| line["reason"] == "upstream-reset");
        assert_eq!(server.requests(), 2, "{method} {more}");
    }
}

#[test]
fn a_server_that_resets_new_connections_too_gets_a_request_thrice_at_most() {
    let requests = Arc::new(AtomicUsize::new(0));
    let (counted, healthy) = (Arc::clone(&requests), Arc::new(AtomicBool::new(true)));
    let is_healthy = Arc::clone(&healthy);
    let upstream = Upstream::raw(move |stream| {
        let kept = stream.try_clone().expect("there are descriptors");
        let mut peer = Client::over(stream);
        while receive(&mut peer).is_some() {
            counted.fetch_add(1, Ordering::SeqCst);
            if !is_healthy.load(Ordering::SeqCst) {
                drop(peer);
                return reset(kept);
            }
            peer.try_send("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
        }
    });
    let server = Forgetful { upstream, requests, alone: healthy };
    let gateway = server.gateway("retry = { budget = \"100%\" }");
    assert_eq!(statuses(&gateway, "GET", 1), [200]);
    server.alone.store(false, Ordering::SeqCst);
    assert_eq!(statuses(&gateway, "GET", 1), [502]);
    assert_eq!(server.requests(), 1 + 3, "over the one that was kept, over a new one, and the retry");
}
