//! Routes that divide their requests among several upstreams: by weight, exactly, and if asked so that a caller stays.

use std::collections::BTreeMap;

use crate::support::named::{HEALTH, Named, wait_for};
use crate::support::{Client, Gateway};

fn upstreams() -> [Named; 2] {
    [Named::start("a"), Named::start("b")]
}

/// A configuration that divides all requests among these as `to` and the keys after it say.
fn config(upstreams: &[Named; 2], route: &str) -> String {
    let [a, b] = upstreams.each_ref().map(Named::url);
    format!(
        "workers = 2\n[upstream.a]\nservers = \"{a}\"\n{HEALTH}\n\
         [upstream.b]\nservers = \"{b}\"\n{HEALTH}\n[[route]]\npath = \"/{{*rest}}\"\n{route}\n"
    )
}

fn weights(a: u32, b: u32) -> String {
    format!("to = [{{ upstream = \"a\", weight = {a} }}, {{ upstream = \"b\", weight = {b} }}]")
}

/// How many of these requests each upstream answered.
fn tally(answers: impl Iterator<Item = String>) -> BTreeMap<String, usize> {
    answers.fold(BTreeMap::new(), |mut tally, name| {
        *tally.entry(name).or_default() += 1;
        tally
    })
}

/// The upstream of each of so many users.
fn users(client: &mut Client, users: usize) -> Vec<String> {
    let ask = |user| client.request("GET", "/", &[&format!("X-User: u{user}")], "").text();
    (0..users).map(ask).collect()
}

#[test]
fn shares_are_exact_for_one_client_and_for_sixty() {
    let upstreams = upstreams();
    let gateway = Gateway::start(&config(&upstreams, &weights(95, 5)));
    for (clients, requests) in [(1, 4_000), (60, 100)] {
        let mut clients: Vec<Client> = (0..clients).map(|_| gateway.client()).collect();
        let rounds = (0..requests).flat_map(|_| 0..clients.len()).collect::<Vec<_>>();
        let total = rounds.len();
        let tally = tally(rounds.into_iter().map(|client| clients[client].get("/").text()));
        let share = tally["b"] as f64 / total as f64;
        assert!((share - 0.05).abs() <= 0.005, "{} clients: {tally:?}", clients.len());
        assert_eq!(tally["a"] + tally["b"], total);
    }
}

#[test]
fn a_cookie_keeps_its_upstream() {
    let upstreams = upstreams();
    let gateway =
        Gateway::start(&config(&upstreams, &format!("{}\nsticky = \"cookie:user\"", weights(1, 1))));
    let mut client = gateway.client();
    let mut ask =
        |user: usize| client.request("GET", "/", &[&format!("Cookie: a=b; user=u{user}")], "").text();
    let first: Vec<String> = (0..60).map(&mut ask).collect();
    let tally = tally(first.iter().cloned());
    assert!(tally["a"] >= 15 && tally["b"] >= 15, "{tally:?}");
    assert_eq!((0..60).map(&mut ask).collect::<Vec<_>>(), first);
}

#[test]
fn a_weight_of_zero_gets_nothing() {
    let upstreams = upstreams();
    let gateway = Gateway::start(&config(&upstreams, &weights(1, 0)));
    let mut client = gateway.client();
    assert!((0..200).all(|_| client.get("/").text() == "a"));
    upstreams[0].set_well(false);
    wait_for(&gateway, &["unhealthy", "healthy"]);
    assert!((0..20).all(|_| client.get("/").text() == "a"));
}

#[test]
fn an_upstream_without_a_usable_server_gives_its_share_to_the_others() {
    let upstreams = upstreams();
    let gateway = Gateway::start(&config(&upstreams, &weights(3, 1)));
    let mut client = gateway.client();
    let mut tally = |requests| tally((0..requests).map(|_| client.get("/").text()));
    let both = tally(400);
    assert!((98..=102).contains(&both["b"]), "{both:?}");
    upstreams[0].set_well(false);
    wait_for(&gateway, &["unhealthy", "healthy"]);
    assert_eq!(tally(100), BTreeMap::from([("b".to_owned(), 100)]));
    // Without any, all are asked, as their weights ask.
    upstreams[1].set_well(false);
    wait_for(&gateway, &["unhealthy", "unhealthy"]);
    let none = tally(400);
    assert!((98..=102).contains(&none["b"]), "{none:?}");
}

#[test]
fn a_caller_keeps_its_upstream() {
    let upstreams = upstreams();
    let route = |a, b| format!("{}\nsticky = \"header:x-user\"", weights(a, b));
    let first = Gateway::start(&config(&upstreams, &route(50, 50)));
    let second = Gateway::start(&config(&upstreams, &route(50, 50)));
    let before = users(&mut first.client(), 400);
    let owned = before.iter().filter(|name| *name == "b").count();
    assert!((160..=240).contains(&owned), "{owned} of 400");
    for _ in 0..3 {
        assert_eq!(users(&mut first.client(), 400), before, "on any connection");
    }
    assert_eq!(users(&mut second.client(), 400), before, "at any node");
    // A share that grows takes callers from the other, and sends none there.
    first.reload(&config(&upstreams, &route(40, 60)));
    let after = users(&mut first.client(), 400);
    assert!(before.iter().zip(&after).all(|(before, after)| before == after || after == "b"));
    let moved = before.iter().zip(&after).filter(|(before, after)| before != after).count();
    assert!((20..=65).contains(&moved), "{moved} of 400");
}

#[test]
fn callers_of_an_upstream_that_fails_come_back_to_it_and_others_never_move() {
    let upstreams = upstreams();
    let route = format!("{}\nsticky = \"header:x-user\"", weights(1, 1));
    let gateway = Gateway::start(&config(&upstreams, &route));
    let mut client = gateway.client();
    let before = users(&mut client, 100);
    upstreams[0].set_well(false);
    wait_for(&gateway, &["unhealthy", "healthy"]);
    assert!(users(&mut client, 100).iter().all(|name| name == "b"));
    upstreams[0].set_well(true);
    wait_for(&gateway, &["healthy", "healthy"]);
    assert_eq!(users(&mut client, 100), before);
}

#[test]
fn requests_without_the_dimension_are_divided_one_by_one() {
    let upstreams = upstreams();
    let route = format!("{}\nsticky = \"header:x-user\"", weights(1, 1));
    let gateway = Gateway::start(&config(&upstreams, &route));
    let mut client = gateway.client();
    let tally = tally((0..200).map(|_| client.get("/").text()));
    assert!((98..=102).contains(&tally["a"]), "{tally:?}");
    let explained = gateway.admin("/v1/explain?url=http://a/x").json();
    assert_eq!(explained["goes-to"], "one of 2 upstreams by weight (a 1, b 1), as /x");
    let kept = gateway.admin("/v1/explain?url=http://a/x&header=x-user:7").json();
    let user = gateway.client().request("GET", "/", &["x-user: 7"], "").text();
    let said = format!("upstream {user}, which keeps this client while it has a usable server, as /x");
    assert_eq!(kept["goes-to"], said);
}
