//! Which upstream server a request goes to, and what becomes of the connections to it.

use std::fs;
use std::net::SocketAddr;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;

use crate::support::upstream::receive;
use crate::support::{Client, Directory, Gateway, PATIENCE, Upstream, eventually};

/// Requests of one measurement.
const REQUESTS: usize = 4_200;

/// Rounds of requests that are all on their way together: none is answered before the last of its round has come, so
/// that no server is the slower one on a machine that lets one wait.
struct Rounds {
    size: usize,
    arrived: Mutex<usize>,
    moved: Condvar,
}

impl Rounds {
    fn of(size: usize) -> Arc<Rounds> {
        Arc::new(Rounds { size, arrived: Mutex::new(0), moved: Condvar::new() })
    }

    /// Waits for the rest of the round.
    fn arrive(&self) {
        let mut arrived = self.arrived.lock().expect("nobody panics");
        *arrived += 1;
        let all = arrived.next_multiple_of(self.size);
        self.moved.notify_all();
        let whole = self.moved.wait_timeout_while(arrived, PATIENCE, |arrived| *arrived < all);
        drop(whole.expect("nobody panics"));
    }
}

/// An upstream that counts its requests, and answers them round by round.
fn counting(rounds: &Arc<Rounds>) -> (Upstream, Arc<AtomicUsize>) {
    let count = Arc::new(AtomicUsize::new(0));
    let (counted, rounds) = (Arc::clone(&count), Arc::clone(rounds));
    let upstream = Upstream::raw(move |stream| {
        let mut peer = Client::over(stream);
        while receive(&mut peer).is_some() {
            counted.fetch_add(1, Ordering::Relaxed);
            rounds.arrive();
            peer.try_send("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
        }
    });
    (upstream, count)
}

/// The share of each server of these weights, of what so many clients ask, each one request after the other.
fn shares(weights: &[u32], clients: usize) -> Vec<f64> {
    let rounds = Rounds::of(clients);
    let servers: Vec<_> = weights.iter().map(|_| counting(&rounds)).collect();
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

/// An upstream at this address that answers with a name, and how many connections to it are open.
fn named(addr: SocketAddr, name: &'static str) -> (Upstream, Arc<AtomicUsize>) {
    let open = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&open);
    let upstream = Upstream::raw_at(addr, move |stream| {
        counted.fetch_add(1, Ordering::SeqCst);
        let mut peer = Client::over(stream);
        while receive(&mut peer).is_some() {
            peer.try_send(format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{name}", name.len()));
        }
        counted.fetch_sub(1, Ordering::SeqCst);
    });
    (upstream, open)
}

/// Names are found in a file of the test's own: the gateway sees it in the place of /etc/hosts, in a mount namespace that
/// ends with it.
#[test]
fn a_changed_address_behind_a_name_is_followed_under_steady_traffic() {
    let (one, open) = named(SocketAddr::from(([127, 0, 0, 1], 0)), "one");
    let (_two, _) = named(SocketAddr::from(([127, 0, 0, 2], one.addr().port())), "two");
    let directory = Directory::new();
    let hosts = directory.write("hosts", "127.0.0.1 orders.internal\n");
    let mut command = Command::new("unshare");
    command.args(["--mount", "--map-root-user", "sh", "-c", "mount --bind \"$0\" /etc/hosts && exec \"$@\""]);
    command.arg(&hosts).arg(env!("CARGO_BIN_EXE_sluicegate"));
    let config = format!(
        "workers = 2\n[[route]]\npath = \"/{{*rest}}\"\nto = \"http://orders.internal:{}\"",
        one.addr().port()
    );
    let gateway = Gateway::start_by(command, directory, &config);
    let mut clients: Vec<Client> = (0..4).map(|_| gateway.client()).collect();
    for client in &mut clients {
        assert_eq!(client.get("/").text(), "one");
    }
    // The same file: another one in its place would not be seen.
    fs::write(&hosts, "127.0.0.2 orders.internal\n").expect("it was written before");
    eventually("requests go to the new address", || {
        let answers: Vec<String> = clients.iter_mut().map(|client| client.get("/").text()).collect();
        answers.contains(&"two".to_owned()).then_some(())
    });
    for client in &mut clients {
        assert_eq!(client.get("/").text(), "two");
    }
    eventually("no connection to the old one is left", || (open.load(Ordering::SeqCst) == 0).then_some(()));
}
