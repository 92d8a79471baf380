//! What becomes of leases when a limit changes under traffic, at three nodes that share it through Redis.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::control_spread::Node;
use crate::support::postgres::Postgres;
use crate::support::redis::Redis;
use crate::support::{Client, Stop, eventually, heavy};

/// Three nodes of one fleet, where Ann has this limit.
struct Fleet {
    nodes: Vec<Node>,
    _redis: Redis,
}

impl Fleet {
    fn start(limit: &str) -> Fleet {
        let (server, redis) = (Postgres::shared(), Redis::start(&[]));
        let (url, addr) = (server.url(&server.database()), redis.addr().to_string());
        let nodes: Vec<Node> = (0..3).map(|_| Node::limited(limit, &url, Some(&addr))).collect();
        for node in &nodes {
            node.hears("redis", true);
            let up = || node.ask("GET", "/metrics", &serde_json::Value::Null).text();
            eventually("Redis answers", || up().contains("condition=\"up\"} 1").then_some(()));
        }
        Fleet { nodes, _redis: redis }
    }

    /// Changes Ann's limit, and waits until all nodes have it.
    fn set(&self, limit: u64) {
        self.nodes[0].set(limit);
        for node in &self.nodes {
            // Not by a request, which would count.
            let path = "/v1/explain?url=/&from=127.0.0.1&header=X-Api-Key:ann";
            eventually("it is in force", || {
                let explained = node.ask("GET", path, &serde_json::Value::Null).json();
                (explained["limits"][0]["limit"] == limit).then_some(())
            });
        }
    }

    /// How many of so many requests are admitted, each at the next node.
    fn admitted(&self, requests: usize) -> usize {
        let mut clients: Vec<Client> = self.nodes.iter().map(|node| node.0.client()).collect();
        let mut ask = |turn: usize| clients[turn % 3].request("GET", "/", &["X-Api-Key: ann"], "").status;
        (0..requests).filter(|turn| ask(*turn) == 200).count()
    }

    /// Decisions so far that Redis answered too late for, as it may on a busy machine; a limit's overshoot does not have them.
    fn late(&self) -> usize {
        self.nodes.iter().map(|node| node.metric("decisions_by_total{tier=\"fallback\"}") as usize).sum()
    }
}

#[test]
fn a_limit_that_is_lowered_under_traffic_holds_at_once() {
    let _alone = heavy();
    let fleet = Fleet::start("600000/m burst 3000");
    // When each admitted request was answered, and under which limit.
    let (ended, admitted) = (AtomicBool::new(false), Mutex::new(Vec::new()));
    thread::scope(|scope| {
        let _stop = Stop(&ended);
        for node in &fleet.nodes {
            let (ended, admitted) = (&ended, &admitted);
            scope.spawn(move || {
                let mut client = node.0.client();
                while !ended.load(Ordering::SeqCst) {
                    let answer = client.request("GET", "/", &["X-Api-Key: ann"], "");
                    // Five hundred a second at most: the machine has other work, too.
                    thread::sleep(Duration::from_millis(2));
                    if answer.status == 200 {
                        admitted.lock().expect("nobody panics").push((Instant::now(), answer.limit()));
                    }
                }
            });
        }
        thread::sleep(Duration::from_secs(2));
        fleet.set(600);
        thread::sleep(Duration::from_secs(2));
    });
    let admitted = admitted.into_inner().expect("nobody panics");
    // What is told is what a bucket holds.
    let before = admitted.iter().filter(|(_, limit)| *limit == 3_000).count();
    assert!(before > 300, "leases are out: {before} in two seconds");
    let under: Vec<Instant> = admitted.iter().filter(|(_, limit)| *limit == 3).map(|(at, _)| *at).collect();
    let (Some(first), Some(last)) = (under.first(), under.last()) else { panic!("nothing is admitted") };
    let seconds = last.duration_since(*first).as_secs_f64();
    // A burst, what refills, the overshoot that a policy has unless it says otherwise (5 % of what a period admits), and a
    // unit that each node may owe.
    let most = 3.0 + 10.0 * seconds + 0.05 * 603.0 + fleet.nodes.len() as f64;
    let under = under.len();
    println!("{before} before, {under} in {seconds} s under ten a second");
    assert!(under as f64 <= most, "{under} in {seconds} s under ten a second, after {before}");
}

#[test]
fn a_limit_that_is_raised_hands_out_what_was_not_spent() {
    let fleet = Fleet::start("60/h");
    let spent = fleet.admitted(90);
    let late = fleet.late();
    assert!((60..=63 + late).contains(&spent), "{spent}, {late} late");
    fleet.set(120);
    let begin = Instant::now();
    let admitted = fleet.admitted(150);
    let left = 120 - spent;
    let refilled = (begin.elapsed().as_secs_f64() * 120.0 / 3_600.0).ceil() as usize;
    // Nodes looked at what is left before; each may owe a unit of the old limit and one of the new.
    assert!((left.saturating_sub(3)..=left + refilled + 6).contains(&admitted), "{admitted} of {left} left");
}

#[test]
fn the_units_that_are_used_stay_used_both_ways() {
    for (limit, spent, other, left) in [("600/h", 540, 60, 0), ("60/h", 30, 300, 270)] {
        let fleet = Fleet::start(limit);
        assert_eq!(fleet.admitted(spent), spent);
        fleet.set(other);
        let admitted = fleet.admitted(400);
        // What nodes held when it changed may be a hundredth of it, and each may owe a unit.
        let apart = 4 + left / 10;
        assert!(
            admitted.abs_diff(left) <= apart,
            "{limit}, {spent} spent, {other}/h: {admitted} and not {left}"
        );
    }
}
