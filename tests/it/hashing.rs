//! `balance = "hash:<dimension>"`: a client keeps its server.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::support::upstream::receive;
use crate::support::{Client, Gateway, Upstream, eventually};

/// A server that answers with its name, and whether its checks succeed.
struct Server {
    upstream: Upstream,
    is_well: Arc<AtomicBool>,
}

impl Server {
    fn start(name: &'static str) -> Server {
        let is_well = Arc::new(AtomicBool::new(true));
        let told = Arc::clone(&is_well);
        let upstream = Upstream::raw(move |stream| {
            let mut peer = Client::over(stream);
            while let Some(request) = receive(&mut peer) {
                let is_refused = request.line.starts_with("GET /healthz") && !told.load(Ordering::SeqCst);
                let status = if is_refused { 503 } else { 200 };
                peer.try_send(format!("HTTP/1.1 {status} X\r\nContent-Length: {}\r\n\r\n{name}", name.len()));
            }
        });
        Server { upstream, is_well }
    }
}

fn config(servers: &[Server]) -> String {
    let servers: Vec<String> =
        servers.iter().map(|server| format!("\"http://{}\"", server.upstream.addr())).collect();
    format!(
        "workers = 2\n[upstream.u]\nservers = [{}]\nbalance = \"hash:header:x-user\"\n\
         health = {{ path = \"/healthz\", every = \"50ms\", unhealthy-after = 1, healthy-after = 1 }}\n\
         [[route]]\npath = \"/{{*rest}}\"\nto = \"u\"\n",
        servers.join(", ")
    )
}

/// The server of each of 300 users.
fn users(client: &mut Client) -> Vec<String> {
    let ask = |user| client.request("GET", "/", &[&format!("X-User: u{user}")], "").text();
    (0..300).map(ask).collect()
}

fn wait_for(gateway: &Gateway, wanted: &[&str]) {
    eventually(&format!("servers are {wanted:?}"), || {
        let shown = gateway.admin("/v1/upstreams").json();
        let states = shown[0]["servers"].as_array()?.iter().map(|server| server["state"].clone());
        (states.collect::<Vec<_>>() == wanted).then_some(())
    });
}

#[test]
fn a_client_keeps_its_server_and_one_that_leaves_moves_only_its_own() {
    let mut servers = vec![Server::start("a"), Server::start("b"), Server::start("c")];
    let gateway = Gateway::start(&config(&servers));
    let before = users(&mut gateway.client());
    for name in ["a", "b", "c"] {
        let owned = before.iter().filter(|owner| *owner == name).count();
        assert!((65..=135).contains(&owned), "{name}: {owned} of 300");
    }
    assert_eq!(users(&mut gateway.client()), before, "on any connection");
    let other = Gateway::start(&config(&servers));
    assert_eq!(users(&mut other.client()), before, "at any node");

    servers[1].is_well.store(false, Ordering::SeqCst);
    wait_for(&gateway, &["healthy", "unhealthy", "healthy"]);
    let without = users(&mut gateway.client());
    assert!(without.iter().all(|owner| owner != "b"));
    assert!(before.iter().zip(&without).all(|(was, is)| was == is || was == "b"));
    servers[1].is_well.store(true, Ordering::SeqCst);
    wait_for(&gateway, &["healthy", "healthy", "healthy"]);
    assert_eq!(users(&mut gateway.client()), before);

    // The same if it is taken from the list, wherever the others stand there.
    let removed = servers.remove(1);
    servers.reverse();
    gateway.reload(&config(&servers));
    assert_eq!(users(&mut gateway.client()), without);
    drop(removed);
}

#[test]
fn requests_without_the_dimension_are_balanced_as_ever() {
    let servers = [Server::start("a"), Server::start("b")];
    let gateway = Gateway::start(&config(&servers));
    let mut client = gateway.client();
    let mut tally: BTreeMap<String, usize> = BTreeMap::new();
    (0..200).for_each(|_| *tally.entry(client.get("/").text()).or_default() += 1);
    assert!(tally.values().all(|count| (99..=101).contains(count)), "{tally:?}");
}
