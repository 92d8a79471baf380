//! `balance = "hash:<dimension>"`: a client keeps its server.

use std::collections::BTreeMap;

use crate::support::named::{HEALTH, Named, wait_for};
use crate::support::{Client, Gateway};

fn config(servers: &[Named]) -> String {
    let servers: Vec<String> = servers.iter().map(|server| format!("\"{}\"", server.url())).collect();
    format!(
        "workers = 2\n[upstream.u]\nservers = [{}]\nbalance = \"hash:header:x-user\"\n\
         {HEALTH}\n\
         [[route]]\npath = \"/{{*rest}}\"\nto = \"u\"\n",
        servers.join(", ")
    )
}

/// The server of each of 300 users.
fn users(client: &mut Client) -> Vec<String> {
    let ask = |user| client.request("GET", "/", &[&format!("X-User: u{user}")], "").text();
    (0..300).map(ask).collect()
}

#[test]
fn a_client_keeps_its_server_and_one_that_leaves_moves_only_its_own() {
    let mut servers = vec![Named::start("a"), Named::start("b"), Named::start("c")];
    let gateway = Gateway::start(&config(&servers));
    let before = users(&mut gateway.client());
    for name in ["a", "b", "c"] {
        let owned = before.iter().filter(|owner| *owner == name).count();
        assert!((65..=135).contains(&owned), "{name}: {owned} of 300");
    }
    assert_eq!(users(&mut gateway.client()), before, "on any connection");
    let other = Gateway::start(&config(&servers));
    assert_eq!(users(&mut other.client()), before, "at any node");

    servers[1].set_well(false);
    wait_for(&gateway, &["healthy", "unhealthy", "healthy"]);
    let without = users(&mut gateway.client());
    assert!(without.iter().all(|owner| owner != "b"));
    assert!(before.iter().zip(&without).all(|(was, is)| was == is || was == "b"));
    servers[1].set_well(true);
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
fn a_client_keeps_its_server_by_its_address_and_by_a_parameter_too() {
    let servers = [Named::start("a"), Named::start("b")];
    for by in ["ip", "query:user"] {
        let gateway = Gateway::start(&config(&servers).replace("header:x-user", by));
        let ask = |user: u8| {
            let mut client = Client::connect_from([127, 0, 7, user], gateway.plain());
            client.get(&format!("/?user={user}")).text()
        };
        let first: Vec<String> = (1..=40).map(ask).collect();
        assert!(["a", "b"].iter().all(|name| first.iter().filter(|it| it == name).count() >= 8), "{first:?}");
        assert_eq!((1..=40).map(ask).collect::<Vec<_>>(), first, "{by}");
    }
}

#[test]
fn requests_without_the_dimension_are_balanced_as_ever() {
    let servers = [Named::start("a"), Named::start("b")];
    let gateway = Gateway::start(&config(&servers));
    let mut client = gateway.client();
    let mut tally: BTreeMap<String, usize> = BTreeMap::new();
    (0..200).for_each(|_| *tally.entry(client.get("/").text()).or_default() += 1);
    assert!(tally.values().all(|count| (99..=101).contains(count)), "{tally:?}");
}
