//! Windows of minutes and hours over several nodes, from outside: no unit gets lost, no request is refused early, and
//! `Retry-After` and `Remaining` are true.
//!
//! The books are kept here: what was admitted, what Redis has left and what nodes hold are the whole window and what
//! it refilled. Traffic is faster than in real fleets; the windows are those that operators write.

mod costly;
mod first_refusal;
mod interrupted;
mod retry_after;
mod several;

use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde_json::Value;

use crate::support::redis::Redis;
use crate::support::{Client, Gateway, Response, eventually};

/// Algorithms of which nodes hold leases.
const LEASED: [&str; 3] = ["token-bucket", "fixed-window", "sliding-window"];

/// Nodes that share one Redis and know of each other.
struct Fleet {
    redis: Redis,
    nodes: Vec<Gateway>,
}

/// One window of a policy.
#[derive(Clone, Copy, Debug)]
struct Window<'w> {
    policy: &'w str,
    /// Its place in the policy.
    index: usize,
    algorithm: &'w str,
    size: u64,
    /// Units an hour.
    hourly: u64,
}

/// One client that is counted by its `x-key`, with a connection to each node.
struct Caller {
    key: String,
    addrs: Vec<SocketAddr>,
    /// Made with the first request: a node waits for that no longer than for any.
    clients: Vec<Option<Client>>,
    /// Units it was admitted.
    admitted: u64,
    /// What was not as it should be.
    wrong: Vec<String>,
    begun: Instant,
    last: Instant,
}

impl Fleet {
    /// Starts so many nodes of this configuration.
    fn start(count: usize, config: &str) -> Fleet {
        let redis = Redis::start(&[]);
        let addr = redis.addr();
        Fleet::at(redis, addr, count, config)
    }

    /// The same, with Redis at this address.
    fn at(redis: Redis, addr: SocketAddr, count: usize, config: &str) -> Fleet {
        let nodes = start_nodes(count, &shared(config, addr));
        acquainted(&redis, count);
        Fleet { redis, nodes }
    }

    /// Lets every node read this configuration, one after the other.
    fn reload(&self, config: &str) {
        self.nodes.iter().for_each(|node| self.reload_one(node, config));
    }

    fn reload_one(&self, node: &Gateway, config: &str) {
        node.reload(&shared(config, self.redis.addr()));
    }

    fn caller(&self, key: &str) -> Caller {
        let addrs: Vec<_> = self.nodes.iter().map(Gateway::plain).collect();
        let clients = addrs.iter().map(|_| None).collect();
        let now = Instant::now();
        Caller { key: key.to_owned(), addrs, clients, admitted: 0, wrong: Vec::new(), begun: now, last: now }
    }

    /// What a node shows of a window of a key.
    fn shown(&self, node: usize, policy: &str, index: usize, key: &str) -> Value {
        self.nodes[node].admin(&format!("/v1/keys/{policy}/{key}")).json()["windows"][index].clone()
    }

    /// Units that the nodes hold together; what they owe counts against it.
    fn held(&self, window: Window<'_>, key: &str) -> f64 {
        let of = |node| self.shown(node, window.policy, window.index, key)["lease"]["held"].as_f64();
        (0..self.nodes.len()).filter_map(of).sum()
    }

    /// Units that Redis has left.
    fn left(&self, window: Window<'_>, key: &str) -> f64 {
        let shown = self.shown(0, window.policy, window.index, key);
        shown["at-redis"]["left"].as_f64().unwrap_or_else(|| panic!("Redis has nothing of {key}: {shown}"))
    }

    /// Plays a scene under a key of its own. Two seconds after its last request no node holds anything, every unit is
    /// accounted for, and no check has failed.
    ///
    /// On a machine that stands still for a while nodes decide without Redis, which is not exact: then the scene is
    /// played again.
    fn play<'w>(&self, mut scene: impl FnMut(&str) -> Vec<(Window<'w>, Caller)>) {
        for round in 0..ROUNDS {
            let before = self.without_redis();
            let wrong = self.wrong(scene(&format!("r{round}")));
            if wrong.is_empty() {
                return;
            }
            let disturbed = self.without_redis() - before;
            assert!(disturbed > 0.0, "{} of {} nodes", wrong.join("\n"), self.nodes.len());
        }
        panic!("nodes decided without Redis in each of {ROUNDS} rounds");
    }

    /// What is not as it should be after a scene.
    fn wrong(&self, played: Vec<(Window<'_>, Caller)>) -> Vec<String> {
        let last = played.iter().map(|(_, caller)| caller.last).max().expect("somebody asked");
        let mut wrong = Vec::new();
        for (window, caller) in &played {
            // Looking takes its time, too.
            while self.held(*window, &caller.key).abs() >= 1.0 {
                if last.elapsed() > Duration::from_secs(4) {
                    let shown = |node| self.shown(node, window.policy, window.index, &caller.key);
                    let shown: Vec<_> = (0..self.nodes.len()).map(shown).collect();
                    wrong.push(format!("units of {} are held: {shown:?}", caller.key));
                    break;
                }
                caller.pause(Duration::from_millis(20));
            }
        }
        for (window, caller) in played {
            let lost = self.lost(window, &caller);
            if lost.abs() > self.nodes.len() as f64 {
                wrong.push(format!(
                    "{window:?}, {}: {lost:.2} lost, {} admitted",
                    caller.key, caller.admitted
                ));
            }
            wrong.extend(caller.wrong.into_iter().map(|what| format!("{window:?}, {}: {what}", caller.key)));
        }
        wrong
    }

    /// Decisions that nodes made without Redis.
    fn without_redis(&self) -> f64 {
        let of = |node: &Gateway| node.metric("sluicegate_decisions_by_total", &["tier=\"fallback\""]);
        self.nodes.iter().map(of).sum()
    }

    /// Units that should be left and are not; negative: too many.
    fn lost(&self, window: Window<'_>, caller: &Caller) -> f64 {
        let left = self.left(window, &caller.key);
        window.size as f64 + window.refilled(caller.begun.elapsed()) - caller.admitted as f64 - left
    }
}

impl Window<'_> {
    /// What it refills in that time, units.
    fn refilled(&self, time: Duration) -> f64 {
        match self.algorithm {
            "token-bucket" => self.hourly as f64 / 3_600.0 * time.as_secs_f64(),
            _ => 0.0,
        }
    }
}

impl Caller {
    /// One request of a unit.
    fn ask(&mut self, node: usize, path: &str) -> Response {
        self.ask_for(1, node, path)
    }

    /// One request of this cost.
    fn ask_for(&mut self, cost: u64, node: usize, path: &str) -> Response {
        let fields = [format!("x-key: {}", self.key), format!("x-cost: {cost}")];
        let answer = self.client(node).request("GET", path, &[&fields[0], &fields[1]], "");
        self.last = Instant::now();
        assert!(matches!(answer.status, 200 | 429), "{answer:?}");
        self.admitted += if answer.status == 200 { cost } else { 0 };
        answer
    }

    /// Its connection to a node.
    fn client(&mut self, node: usize) -> &mut Client {
        let addr = self.addrs[node];
        self.clients[node].get_or_insert_with(|| Client::connect(addr))
    }

    /// Whether a request of this cost is admitted.
    fn is_admitted(&mut self, cost: u64, node: usize, path: &str) -> bool {
        self.ask_for(cost, node, path).status == 200
    }

    /// The same, and a complaint where it is not so.
    fn expect(&mut self, admitted: bool, cost: u64, node: usize, path: &str) {
        let before = self.admitted;
        let is_admitted = self.is_admitted(cost, node, path);
        self.check(is_admitted == admitted, || format!("{cost} after {before}: admitted {is_admitted}"));
    }

    /// Complains where something does not hold.
    fn check(&mut self, holds: bool, what: impl FnOnce() -> String) {
        self.wrong.extend((!holds).then(what));
    }

    /// Lets traffic take its time.
    fn pause(&self, time: Duration) {
        thread::sleep(time);
    }
}

/// A configuration of a node that shares its limits. What is counted here is not to hang on how busy the machine is, so
/// its requests wait for Redis longer than an operator's should.
fn shared(config: &str, redis: SocketAddr) -> String {
    format!(
        "[client-ip]\ntrust = [\"127.0.0.1/32\"]\n{config}\n\
         [redis]\nurl = \"redis://{redis}\"\ndeadline = \"1s\"\n"
    )
}

/// A route `/{name}` that these policies limit.
fn route(name: &str, policies: &[&str]) -> String {
    format!(
        "[[route]]\nname = \"{name}\"\npath = \"/{name}\"\nlimit = {policies:?}\nrespond = {{ status = 200 }}\n"
    )
}

/// A policy by `x-key`, whose requests cost what `x-cost` says.
fn policy(name: &str, algorithm: &str, limits: &[&str], more: &str) -> String {
    format!(
        "[policy.{name}]\nby = [\"header:x-key\"]\nlimit = {limits:?}\nalgorithm = \"{algorithm}\"\n\
         cost = {{ default = 1, header = \"x-cost\" }}\n{more}\n"
    )
}

fn start_nodes(count: usize, config: &str) -> Vec<Gateway> {
    let start = || {
        let node = Gateway::start(config);
        let is = |name: &str| node.metric(name, &[]) > 0.0;
        eventually("it is connected", || {
            (is("sluicegate_redis_connects_total") && is("sluicegate_redis_up")).then_some(())
        });
        node
    };
    thread::scope(|scope| {
        let starting: Vec<_> = (0..count).map(|_| scope.spawn(start)).collect();
        starting.into_iter().map(|node| node.join().expect("it starts")).collect()
    })
}

/// Waits until every node has counted so many: each asks once a second.
fn acquainted(redis: &Redis, count: usize) {
    let members = eventually("there is a census", || {
        let keys = redis.cli(&["KEYS", "*nodes*"]);
        keys.lines().next().filter(|key| !key.is_empty()).map(str::to_owned)
    });
    eventually("all nodes are counted", || {
        (redis.cli(&["ZCARD", &members]).trim() == count.to_string()).then_some(())
    });
    let asked = || {
        let said = redis.cli(&["INFO", "commandstats"]);
        let line = said.lines().find_map(|line| line.strip_prefix("cmdstat_eval:calls=")).map(str::to_owned);
        line.and_then(|line| line.split(',').next()?.parse::<usize>().ok()).unwrap_or(0)
    };
    let before = asked();
    eventually("all nodes have counted again", || (asked() >= before + 2 * count).then_some(()));
}

/// A period of about an hour whose fixed window does not end in the next two minutes, in seconds.
fn about_an_hour() -> u64 {
    let unix = SystemTime::now().duration_since(UNIX_EPOCH).expect("it is later").as_secs();
    let is_far = |period: &u64| (1..period - 120).contains(&(unix % period));
    [3_600, 3_700, 3_800].into_iter().find(is_far).expect("they do not all end together")
}

/// How often a scene is played at most.
const ROUNDS: usize = 5;
