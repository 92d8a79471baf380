//! Renewals, returns and debits are sent again until they are answered, over lost replies, broken connections and
//! servers that hang for far longer than a request waits. Each counts once, and its sender gets the answer.

use std::time::{Duration, Instant};

use limit::lease_messages::{LinkError, Op};
use limiter::global::config::Topology;

use crate::support::eventually;
use crate::support::fleet::Cluster;
use crate::support::redis::{Asked, Node, Redis, add, part, server};
use crate::support::toxic::Toxic;

/// Far longer than what is sent once is waited for.
const LONG: Duration = Duration::from_secs(5);

/// Base64url of the keys 1, 2 and 3.
const COUNTERS: [&str; 3] = ["AAAAAAAAAAAAAAAAAAAAAQ", "AAAAAAAAAAAAAAAAAAAAAg", "AAAAAAAAAAAAAAAAAAAAAw"];

/// What each counter stands at.
fn counters(redis: &Redis) -> [i64; 3] {
    COUNTERS.map(|key| redis.cli(&["GET", &format!("sg:pT:{key}")]).trim().parse().unwrap_or(0))
}

/// Renews five units of the first key, returns five of the second and debits five of the third.
fn ask_all(node: &Node) -> [Asked; 3] {
    let five = |key| [part(key, 5)].into_iter().collect();
    let ops = [add(1, 5), Op::Return { parts: five(2), taken_us: 1 << 52 }, Op::Debit(five(3))];
    ops.map(|op| node.ask(op))
}

/// Asks in the midst of trouble, ends it after a long time, and checks that each operation counts once.
fn counts_once(redis: &Redis, node: &Node, is_applied: bool, begin: impl Fn(), end: impl Fn()) {
    let asked = loop {
        node.add_at_last(9, 1);
        begin();
        let asked = ask_all(node);
        let are_answered = || asked.iter().any(Asked::has_answer);
        let is_sent = eventually("it is acted upon, or not sent", || match counters(redis) {
            [5, -5, 5] => Some(true),
            _ if !is_applied => Some(true),
            _ => are_answered().then_some(false),
        });
        if is_sent {
            break asked;
        }
        // An answer to something else ended the connection before these were all sent.
        end();
        asked.iter().for_each(|asked| drop(asked.answer()));
        COUNTERS.iter().for_each(|key| drop(redis.cli(&["DEL", &format!("sg:pT:{key}")])));
    };
    let since = Instant::now();
    eventually("what is sent once is given up long before", || {
        node.take(9, 1).is_err().then_some(())?;
        (since.elapsed() >= LONG).then_some(())
    });
    assert!(asked.iter().all(|asked| !asked.has_answer()), "there is no way to know yet");
    end();
    for asked in asked {
        assert!(asked.counted().is_ok());
    }
    assert_eq!(counters(redis), [5, -5, 5]);
}

#[test]
fn reports_survive_swallowed_replies() {
    let redis = Redis::start(&[]);
    let toxic = Toxic::start(redis.addr());
    let node = Node::start(Topology::Single(vec![server(toxic.addr())]));
    counts_once(&redis, &node, true, || toxic.swallow(true), || toxic.swallow(false));
}

#[test]
fn reports_survive_connections_reset_after_the_write() {
    let redis = Redis::start(&[]);
    let toxic = Toxic::start(redis.addr());
    let node = Node::start(Topology::Single(vec![server(toxic.addr())]));
    counts_once(&redis, &node, true, || toxic.cut(true), || toxic.cut(false));
}

#[test]
fn reports_survive_a_server_that_stands_still() {
    let redis = Redis::start(&[]);
    let node = Node::of(&redis);
    counts_once(&redis, &node, false, || redis.signal("STOP"), || redis.signal("CONT"));
}

#[test]
fn reports_survive_a_server_that_refuses_writes() {
    let redis = Redis::start(&[]);
    let toxic = Toxic::start(redis.addr());
    let node = Node::start(Topology::Single(vec![server(toxic.addr())]));
    assert_eq!(node.add(9, 1), Ok(1));
    toxic.freeze();
    let asked = node.ask(add(1, 5));
    redis.cli(&["CONFIG", "SET", "maxmemory", "1"]);
    eventually("it is full", || (!node.status().is_up).then_some(()));
    let since = Instant::now();
    eventually("for longer than anybody waits", || (since.elapsed() > Duration::from_secs(2)).then_some(()));
    assert!(!asked.has_answer(), "the first may have been acted upon");
    redis.cli(&["CONFIG", "SET", "maxmemory", "0"]);
    assert_eq!(asked.counted(), Ok(5));
    toxic.thaw();
    assert_eq!(node.add_at_last(1, 1), 6);
}

#[test]
fn reports_without_a_free_record_are_known_to_be_unsent() {
    let redis = Redis::start(&[]);
    let node = Node::of(&redis);
    assert_eq!(node.add(1, 1), Ok(1));
    redis.signal("STOP");
    let mut sent = Vec::new();
    eventually("there is no record left", || {
        let before = node.status().counts.calls;
        let asked = node.ask(add(1, 1));
        eventually("it is sent or not", || {
            (asked.has_answer() || node.status().counts.calls > before).then_some(())
        });
        if !asked.has_answer() {
            sent.push(asked);
            return None;
        }
        assert_eq!(asked.counted(), Err(LinkError::Down));
        Some(())
    });
    assert!((1..=8).contains(&sent.len()), "{} batches", sent.len());
    redis.signal("CONT");
    assert!(sent.iter().all(|asked| asked.counted().is_ok()));
    assert_eq!(node.add_at_last(1, 1), sent.len() as u64 + 2);
}

#[test]
fn reports_survive_the_death_of_a_clusters_primary() {
    let cluster = Cluster::start();
    let servers: Vec<_> = cluster.nodes.iter().map(|node| node.server()).collect();
    let node = Node::start(Topology::Cluster(servers));
    let keys: Vec<u128> = (0..64).map(|key| key << 64 | 1).collect();
    let levels: Vec<u64> = keys.iter().map(|key| node.add_at_last(*key, 1)).collect();
    eventually("replicas know of them", || {
        let acknowledged = |index: usize| cluster.nodes[index].cli(&["WAIT", "1", "100"]).trim() == "1";
        cluster.primaries().into_iter().all(acknowledged).then_some(())
    });
    let primary = cluster.primaries()[0];
    cluster.nodes[primary].signal("STOP");
    let asked: Vec<_> = keys.iter().map(|key| node.ask(add(*key, 1))).collect();
    let answers: Vec<_> = asked.iter().map(Asked::counted).collect();
    cluster.nodes[primary].signal("CONT");
    for ((key, before), answer) in keys.iter().zip(levels).zip(answers) {
        let told = before + u64::from(answer.is_ok());
        assert!(answer.is_ok() || answer.is_err_and(LinkError::is_undone), "{answer:?}");
        assert_eq!(node.add_at_last(*key, 0), told, "{key}: {answer:?}");
    }
}
