//! Which upstream server a request goes to, and what becomes of the connections to it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use crate::support::upstream::receive;
use crate::support::{Client, Gateway, Upstream};

/// Requests of one measurement.
const REQUESTS: usize = 4_200;

/// An upstream that counts its requests.
fn counting() -> (Upstream, Arc<AtomicUsize>) {
    let count = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&count);
    let upstream = Upstream::raw(move |stream| {
        let mut peer = Client::over(stream);
        while receive(&mut peer).is_some() {
            counted.fetch_add(1, Ordering::Relaxed);
            peer.try_send("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
        }
    });
    (upstream, count)
}

/// The share of each server of these weights, of what so many clients ask one request after the other.
fn shares(weights: &[u32], clients: usize) -> Vec<f64> {
    let servers: Vec<_> = weights.iter().map(|_| counting()).collect();
    let list: Vec<String> = servers
        .iter()
        .zip(weights)
        .map(|((server, _), weight)| format!("{{ url = \"http://{}\", weight = {weight} }}", server.addr()))
        .collect();
    let gateway = Gateway::start(&format!(
        "workers = 2\n[upstream.u]\nservers = [{}]\n[[route]]\npath = \"/{{*rest}}\"\nto = \"u\"",
        list.join(", ")
    ));
    thread::scope(|scope| {
        for _ in 0..clients {
            scope.spawn(|| {
                let mut client = gateway.client();
                for _ in 0..REQUESTS / clients {
                    assert_eq!(client.get("/").status, 200);
                }
            });
        }
    });
    let all: usize = servers.iter().map(|(_, count)| count.load(Ordering::Relaxed)).sum();
    servers.iter().map(|(_, count)| count.load(Ordering::Relaxed) as f64 / all as f64).collect()
}

#[test]
fn the_balance_of_two_choices_gives_each_server_the_share_its_weight_asks_for() {
    let _alone = crate::support::heavy();
    for weights in [&[95, 5][..], &[1, 2], &[5, 3, 2]] {
        let total: u32 = weights.iter().sum();
        for clients in [1, 20, 60] {
            let shares = shares(weights, clients);
            for (share, weight) in shares.iter().zip(weights) {
                let asked = f64::from(*weight) / f64::from(total);
                assert!((share - asked).abs() < 0.005, "{weights:?}, {clients} clients: {shares:?}");
            }
        }
    }
}
