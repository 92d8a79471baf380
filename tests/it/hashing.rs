//! `balance = "hash:<dimension>"`: a client keeps its server.

use std::collections::{BTreeMap, BTreeSet};

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
fn a_cookie_and_a_path_keep_their_server_at_every_node() {
    let servers = [Named::start("a"), Named::start("b"), Named::start("c")];
    let nodes = |by: &str| [(); 2].map(|()| Gateway::start(&config(&servers).replace("header:x-user", by)));
    let asked = |node: &Gateway, path: &str, cookie: &str| {
        node.client().request("GET", path, &[&format!("Cookie: {cookie}")], "").text()
    };
    let by_path = nodes("path");
    // The same path in other words, and with a query.
    let paths = |at: u32| [format!("/p{at}/x"), format!("/%70{at}/y/../x"), format!("//p{at}/x?v={at}")];
    let of_path = |at: u32| {
        let names = by_path.iter().flat_map(|node| paths(at).map(|path| asked(node, &path, "a=b")));
        names.collect::<BTreeSet<_>>()
    };
    spread_and_kept((0..60).map(of_path));

    let by_cookie = nodes("cookie:user");
    let cookies = |at: u32| {
        [format!("user=u{at}"), format!("theme=dark; user=u{at}; xuser=2"), format!("user=\"u{at}\"")]
    };
    let of_cookie = |at: u32| {
        let names = by_cookie.iter().flat_map(|node| cookies(at).map(|cookie| asked(node, "/", &cookie)));
        names.collect::<BTreeSet<_>>()
    };
    spread_and_kept((0..60).map(of_cookie));
}

/// Each of 60 callers has one server, and each server has its part of them.
fn spread_and_kept(servers: impl Iterator<Item = BTreeSet<String>>) {
    let mut tally: BTreeMap<String, usize> = BTreeMap::new();
    for names in servers {
        assert_eq!(names.len(), 1, "{names:?}");
        names.into_iter().for_each(|name| *tally.entry(name).or_default() += 1);
    }
    assert!(tally.len() == 3 && tally.values().all(|count| *count >= 8), "{tally:?}");
}

#[test]
fn requests_without_the_cookie_or_with_two_are_balanced_as_ever() {
    let servers = [Named::start("a"), Named::start("b")];
    let gateway = Gateway::start(&config(&servers).replace("header:x-user", "cookie:user"));
    for cookie in ["theme=dark", "user=", "user=a; user=b"] {
        let mut client = gateway.client();
        let mut tally: BTreeMap<String, usize> = BTreeMap::new();
        let field = format!("Cookie: {cookie}");
        let mut ask = || client.request("GET", "/", &[&field], "").text();
        (0..200).for_each(|_| *tally.entry(ask()).or_default() += 1);
        assert!(tally.values().all(|count| (99..=101).contains(count)), "{cookie}: {tally:?}");
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
