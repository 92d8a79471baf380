//! Certificates that the nodes of a fleet share through Redis: one orders, whichever is asked answers the authority, and all
//! get the certificate.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use crate::support::authority::{Authority, DAY, Fault, now};
use crate::support::pebble::Pebble;
use crate::support::redis::{Redis, free_port};
use crate::support::{Directory, Gateway, eventually, tls};

const YEARS: u64 = 5 * 365 * 86_400;
const NAMES: &[&str] = &["api.example.com", "www.example.com"];
const SECRET: &[(&str, &str)] = &[("FLEET_SECRET", "jCr7Zk2mS0qv5n1wPp8uYb3hTfXeLd9a")];
const SHARED: &str = ", secret = \"${FLEET_SECRET}\"";

/// Listeners on these ports, of which the second one's certificate is ordered by these `certs`; the fleet's Redis.
fn config(certs: &str, redis: &str, plain: u16, https: u16) -> String {
    format!(
        "[listener.plain]\nbind = \"127.0.0.1:{plain}\"\n[listener.edge]\nbind = \"127.0.0.1:{https}\"\n{certs}\
         [redis]\nurl = \"redis://{redis}\"\n\
         [[route]]\npath = \"/{{*rest}}\"\nrespond = {{ status = 200, body = \"ok\" }}\n"
    )
}

fn node(text: &str) -> Gateway {
    Gateway::start_with(Directory::new(), text, SECRET)
}

/// The certificate of the authority with this mark, once it is presented.
fn issued_by(mark: &[u8], edge: SocketAddr) -> Vec<u8> {
    eventually("the certificate of the authority is presented", || {
        let shown = tls::presented(edge, "api.example.com");
        shown.windows(mark.len()).any(|part| part == mark).then_some(shown)
    })
}

fn orders(gateway: &Gateway, result: &str) -> f64 {
    gateway.metric("sluicegate_acme_orders_total", &[&format!("result=\"{result}\"")])
}

fn challenges_answered(gateway: &Gateway) -> usize {
    let is_challenge = |path: &str| path.starts_with("/.well-known/acme-challenge/");
    let lines = gateway.access_log();
    lines
        .iter()
        .filter(|line| line["status"] == 200 && line["path"].as_str().is_some_and(is_challenge))
        .count()
}

/// Where a node keeps the certificate for [`NAMES`] of this authority.
fn kept(directory: &str, state: &Path) -> PathBuf {
    let config = acme::Config {
        directory: directory.to_owned(),
        names: NAMES.iter().map(|&name| name.to_owned()).collect(),
        email: None,
        trust: net::trust::Trust::default(),
        challenge: None,
        state: state.to_owned(),
        secret: None,
    };
    config.file()
}

/// Has a node believe that it has failed lately, so that it leaves ordering to the others.
fn rests(directory: &str, state: &Path) {
    let file = kept(directory, state).with_extension("attempts.json");
    fs::create_dir_all(file.parent().expect("it has a folder")).expect("made");
    let attempts = serde_json::json!({ "failures": 1, "not-before": now() + 3_600 });
    fs::write(file, attempts.to_string()).expect("written");
}

/// Every value that the fleet keeps for its certificates.
fn notes(redis: &Redis) -> Vec<String> {
    let keys = redis.cli(&["KEYS", "sg:!acme.*"]);
    keys.lines().filter(|key| !key.is_empty()).map(|key| redis.cli(&["GET", key])).collect()
}

#[test]
fn a_node_that_did_not_order_answers_the_authority_and_all_get_the_certificate() {
    for challenge in ["http-01", "tls-alpn-01"] {
        let (pebble, redis) = (Pebble::start(YEARS), Redis::start(&[]));
        // No more than an operator is told to allow.
        let rights = ["~sg:*", "+@read", "+@write", "+@scripting", "+@connection", "+time"];
        redis.cli(&[&["ACL", "SETUSER", "gw", "on", ">word"], rights.as_slice()].concat());
        let redis_at = format!("gw:word@{}", redis.addr());
        let states = [(); 3].map(|()| Directory::new());
        let more = format!(", challenge = \"{challenge}\"{SHARED}");
        let certs = |index: usize| pebble.certs(NAMES, &states[index].join(""), &more);
        let directory = format!("https://127.0.0.1:{}/dir", pebble.port());
        // Pebble asks the first, which does not order; the second orders, and nobody asks it.
        rests(&directory, &states[0].join(""));
        let asked = node(&config(&certs(0), &redis_at, pebble.http, pebble.tls));
        let ordering = node(&config(&certs(1), &redis_at, free_port(), free_port()));
        let first = issued_by(b"Pebble", ordering.listener("edge"));
        assert_eq!(issued_by(b"Pebble", asked.listener("edge")), first, "{challenge}");
        assert_eq!((orders(&ordering, "issued"), orders(&asked, "issued")), (1.0, 0.0), "{challenge}");
        let is_http = challenge == "http-01";
        assert_eq!(challenges_answered(&asked) > 0, is_http);
        assert_eq!(challenges_answered(&ordering), 0);
        // One that comes later is given it, too.
        let later = node(&config(&certs(2), &redis_at, free_port(), free_port()));
        assert_eq!(issued_by(b"Pebble", later.listener("edge")), first);
        assert_eq!((orders(&later, "issued"), orders(&later, "failed")), (0.0, 0.0));
        let notes = notes(&redis);
        assert!(
            !notes.is_empty()
                && notes.iter().all(|note| !note.contains("PRIVATE") && !note.contains("BEGIN"))
        );
        assert_eq!(redis.cli(&["ACL", "LOG"]).trim(), "", "nothing is tried that is not allowed");
        // Nothing is being proved any more.
        assert!(asked.get("/.well-known/acme-challenge/x").text() == "ok");
    }
}

#[test]
fn nodes_that_start_at_once_order_once() {
    let (authority, redis) = (Authority::start(), Redis::start(&[]));
    let states = [(); 3].map(|()| Directory::new());
    let nodes = states.each_ref().map(|state| {
        let certs =
            authority.certs(NAMES, &state.join("")).replace("agree = true", &format!("agree = true{SHARED}"));
        node(&config(&certs, &redis.addr().to_string(), 0, 0))
    });
    let shown = nodes.each_ref().map(|node| issued_by(b"Test Authority", node.listener("edge")));
    assert!(shown.iter().all(|certificate| *certificate == shown[0]));
    assert_eq!(authority.book().orders, 1);
    assert_eq!(nodes.iter().map(|node| orders(node, "issued")).sum::<f64>(), 1.0);
}

#[test]
fn what_failed_at_one_node_is_not_tried_by_the_next() {
    let (authority, redis) = (Authority::start(), Redis::start(&[]));
    authority.book().fault = Some(Fault::NotProved);
    let states = [(); 2].map(|()| Directory::new());
    let certs = |index: usize| {
        authority
            .certs(NAMES, &states[index].join(""))
            .replace("agree = true", &format!("agree = true{SHARED}"))
    };
    let first = node(&config(&certs(0), &redis.addr().to_string(), 0, 0));
    eventually("it has failed", || (orders(&first, "failed") == 1.0).then_some(()));
    authority.book().fault = None;
    let count = authority.book().orders;
    drop(first);
    // It takes the turn, sees what failed, and gives the turn back.
    let taken = || redis.info("commandstats", "cmdstat_del");
    let before = taken();
    let second = node(&config(&certs(1), &redis.addr().to_string(), 0, 0));
    eventually("the turn was taken and given back", || (taken() != before).then_some(()));
    assert_eq!((authority.book().orders, orders(&second, "failed")), (count, 0.0));
    assert!(!kept(&authority.directory(), &states[1].join("")).with_extension("attempts.json").exists());
}

#[test]
fn without_redis_a_certificate_serves_on_and_a_node_without_one_orders_for_itself() {
    let (authority, mut redis) = (Authority::start(), Redis::start(&[]));
    let states = [(); 2].map(|()| Directory::new());
    let certs = |index: usize| {
        authority
            .certs(NAMES, &states[index].join(""))
            .replace("agree = true", &format!("agree = true{SHARED}"))
    };
    let redis_at = redis.addr().to_string();
    redis.kill();
    // Due for five days, and good for 25 more.
    let file = kept(&authority.directory(), &states[0].join(""));
    fs::create_dir_all(file.parent().expect("it has a folder")).expect("made");
    fs::write(file, authority.pem(NAMES, (-65 * DAY, 25 * DAY))).expect("written");
    let waiting = node(&config(&certs(0), &redis_at, 0, 0));
    let old = issued_by(b"Test Authority", waiting.listener("edge"));
    let alone = node(&config(&certs(1), &redis_at, 0, 0));
    let fresh = issued_by(b"Test Authority", alone.listener("edge"));
    assert_eq!((authority.book().orders, orders(&alone, "issued")), (1, 1.0));
    eventually("it says so", || {
        alone
            .stderr()
            .iter()
            .any(|line| line.contains("this node orders a certificate of its own"))
            .then_some(())
    });
    assert_eq!(tls::presented(waiting.listener("edge"), "api.example.com"), old);
    assert_ne!(old, fresh);
    assert_eq!(orders(&waiting, "issued") + orders(&waiting, "failed"), 0.0);
}
