//! How a change at one node reaches the others: by two kinds of hints, without them, through outages, floods and forgeries,
//! and how long it takes among twenty.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use control::database::config::Url;
use control::database::{Database, Expect};
use serde_json::{Value, json};

use crate::database::lab::{alice, config, of_user, runtime};
use crate::database::relay::Relay;
use crate::support::postgres::Postgres;
use crate::support::redis::Redis;
use crate::support::toxic::Toxic;
use crate::support::{Client, Directory, Gateway, Response, Stop, eventually, heavy};

/// A gateway that counts by a field of the request, which whoever sends may write.
pub struct Node(pub Gateway);

impl Node {
    /// One with this database and the Redis at this URL.
    fn start(database: &str, redis: Option<&str>) -> Node {
        Node::limited("2/h", database, redis)
    }

    /// The same with another limit.
    pub fn limited(limit: &str, database: &str, redis: Option<&str>) -> Node {
        let directory = Directory::new();
        let copy = directory.join("control.json").display().to_string();
        let mut config = format!(
            "workers = 1\n[database]\nurl = {database:?}\ncopy = {copy:?}\n\
             [admin]\nbind = \"127.0.0.1:0\"\n\
             tokens = [{{ name = \"alice\", token = \"operate-1\", role = \"admin\" }}]\n\
             [auth.keys]\nkind = \"api-key\"\nkeys = {{ file = \"keys.toml\" }}\n\
             [policy.plans]\nlimit = {{ pro = \"9/h\", default = \"9/h\" }}\nby = [\"consumer\"]\n\
             [policy.calls]\nlimit = {limit:?}\nby = [\"consumer\"]\n\
             [[route]]\npath = \"/free\"\nrespond = {{}}\n\
             [[route]]\npath = \"/{{*rest}}\"\nauth = \"keys\"\nlimit = \"calls\"\nrespond = {{}}\n"
        );
        if let Some(redis) = redis {
            config.push_str(&format!("[redis]\nurl = \"redis://{redis}\"\n"));
        }
        directory.write("keys.toml", crate::auth::keys::hashed("ann", &["--consumer", "ann"]));
        Node(Gateway::start_in(directory, &config))
    }

    /// The limit that Ann's answers name.
    pub fn limit(&self) -> u64 {
        self.0.client().request("GET", "/", &["X-Api-Key: ann"], "").limit()
    }

    pub fn ask(&self, method: &str, path: &str, body: &Value) -> Response {
        self.0.ask("operate-1", method, path, &[], body)
    }

    /// Gives Ann another limit.
    pub fn set(&self, limit: u64) {
        // On a busy machine a connection may take longer than a change waits for one, which the answer says.
        let made = eventually("the change is taken", || {
            let made = self.ask("POST", "/v1/overrides", &of_ann(limit));
            (made.status != 503).then_some(made)
        });
        assert_eq!(made.status, 201, "{made:?}");
    }

    /// How long until Ann's limit is this.
    pub fn takes(&self, limit: u64, patience: Duration) -> Duration {
        let begin = Instant::now();
        while self.limit() != limit {
            assert!(begin.elapsed() < patience, "not {limit} within {patience:?}: {:?}", self.0.stderr());
            thread::sleep(Duration::from_millis(25));
        }
        begin.elapsed()
    }

    /// A sample of the control plane's metrics, by its name and labels as the page has them.
    pub fn metric(&self, series: &str) -> f64 {
        let page = self.ask("GET", "/metrics", &Value::Null);
        assert_eq!(page.status, 200, "{page:?}");
        let page = page.text();
        let samples = page.lines().filter_map(|line| line.strip_prefix("sluicegate_")?.rsplit_once(' '));
        let value = samples.filter(|(name, _)| *name == series).map(|(_, value)| value).next();
        value.map_or(0.0, |value| value.parse().expect("a sample ends with its value"))
    }

    fn reads(&self) -> f64 {
        self.metric("control_reads_total")
    }

    /// Changes that were in force here within so many seconds.
    fn lags(&self, bound: &str) -> u64 {
        self.metric(&format!("control_lag_seconds_bucket{{le=\"{bound}\"}}")) as u64
    }

    /// Waits until it hears hints from there, or does not.
    pub fn hears(&self, from: &str, can: bool) {
        eventually("hints are heard, or no longer", || {
            let heard = self.metric(&format!("control_hints{{from=\"{from}\"}}"));
            (heard == f64::from(u8::from(can))).then_some(())
        });
    }
}

pub fn of_ann(limit: u64) -> Value {
    json!({ "user-id": "ann", "override-type": "absolute", "value": limit, "reason": "a fleet" })
}

/// Takes the voice from what changes tell in a database: it succeeds, and nobody hears of them. What nodes tell themselves
/// is heard.
fn silence(server: &Postgres, database: &str) {
    let dumb = "CREATE FUNCTION public.pg_notify(text, text) RETURNS void LANGUAGE sql AS \
                $$ SELECT pg_catalog.pg_notify($1, $2) WHERE $1 <> 'sluicegate' $$";
    server.sql(database, dumb);
    server.sql(database, &format!("ALTER DATABASE {database} SET search_path = public, pg_catalog"));
}

#[test]
fn redis_tells_what_postgresql_cannot() {
    let _alone = heavy();
    let (server, redis) = (Postgres::shared(), Redis::start(&[]));
    let name = server.database();
    silence(server, &name);
    let addr = redis.addr().to_string();
    let nodes: Vec<Node> = (0..3).map(|_| Node::start(&server.url(&name), Some(&addr))).collect();
    nodes.iter().for_each(|node| node.hears("redis", true));
    for limit in 10..20 {
        nodes[limit as usize % 3].set(limit);
        for node in &nodes {
            // Without the hint it would be up to thirty.
            let took = node.takes(limit, Duration::from_secs(5));
            assert!(took < Duration::from_secs(3), "{took:?}");
        }
    }
}

#[test]
fn without_any_hints_a_change_is_found_each_second() {
    let _alone = heavy();
    let (server, redis) = (Postgres::shared(), Redis::start(&[]));
    redis.cli(&["ACL", "SETUSER", "gw", "on", ">word", "~*", "+@all", "resetchannels", "-@pubsub"]);
    let url = Url::postgres(&server.url(&server.database())).expect("it is a URL");
    let relay = Relay::start(&url);
    relay.refuse_listeners();
    let Url::Postgres(url) = &relay.config.url else { panic!("it is PostgreSQL") };
    let login = format!("gw:word@{}", redis.addr());
    let nodes: Vec<Node> = (0..2).map(|_| Node::start(url, Some(&login))).collect();
    for node in &nodes {
        node.hears("redis", false);
        node.hears("database", false);
    }
    for limit in 10..13 {
        nodes[0].set(limit);
        let took = nodes[1].takes(limit, Duration::from_secs(10));
        assert!(took < Duration::from_secs(3), "{took:?}");
    }
    for node in &nodes {
        let stderr = node.0.stderr();
        let said = stderr.iter().filter(|line| line.contains("&sg:config +subscribe +publish")).count();
        assert_eq!(said, 1, "{stderr:?}");
    }
    assert_eq!(redis.cli(&["ACL", "LOG"]).trim(), "", "nothing is tried that is not allowed");
}

#[test]
fn hints_that_are_cut_without_a_word_cost_thirty_seconds_at_most() {
    let (server, redis) = (Postgres::shared(), Redis::start(&[]));
    let name = server.database();
    silence(server, &name);
    let url = server.url(&name);
    let addr = redis.addr().to_string();
    let [mut writer, other] = [(); 2].map(|()| Node::start(&url, Some(&addr)));
    let way = Toxic::start(redis.addr());
    let cut = Node::start(&url, Some(&way.addr().to_string()));
    for node in [&writer, &other, &cut] {
        node.hears("redis", true);
        node.hears("database", true);
    }
    // One whose way to Redis is cut, while it thinks that it hears PostgreSQL.
    way.freeze_all();
    cut.hears("redis", false);
    writer.set(10);
    other.takes(10, Duration::from_secs(10));
    // A node that is killed between its commit and its hint leaves the commit alone.
    writer.0.signal("KILL");
    writer.0.wait();
    server.sql(
        &name,
        "BEGIN; UPDATE control_version SET version = version + 1; \
         UPDATE rate_limit_overrides SET value = 12, version = (SELECT version FROM control_version); \
         INSERT INTO changes (version, kind, id, at) SELECT version, 'override', id, now() \
         FROM rate_limit_overrides; COMMIT",
    );
    for node in [&other, &cut] {
        node.takes(12, Duration::from_secs(35));
    }
    // The way comes back, and what changed meanwhile is there at once.
    other.set(11);
    assert_eq!(cut.limit(), 12, "nothing told it");
    way.thaw();
    let took = cut.takes(11, Duration::from_secs(20));
    assert!(took < Duration::from_secs(10), "{took:?}");
}

#[test]
fn hints_that_are_forged_or_come_in_floods_cause_few_reads() {
    let _alone = heavy();
    let (server, redis) = (Postgres::shared(), Redis::start(&[]));
    let url = server.url(&server.database());
    let addr = redis.addr().to_string();
    let nodes: Vec<Node> = (0..2).map(|_| Node::start(&url, Some(&addr))).collect();
    nodes.iter().for_each(|node| node.hears("redis", true));
    let (before, begin) = (nodes[1].reads(), Instant::now());
    let ended = AtomicBool::new(false);
    thread::scope(|scope| {
        let _stop = Stop(&ended);
        let payloads = ["9223372036854775807", "-1", "", "\u{1}\u{0}"].map(str::to_owned);
        for payload in payloads.into_iter().chain(["x".repeat(60_000)]) {
            let (redis, ended) = (&redis, &ended);
            scope.spawn(move || {
                let mut client = std::net::TcpStream::connect(redis.addr()).expect("it listens");
                let length = payload.len();
                let one = format!("*3\r\n$7\r\nPUBLISH\r\n$9\r\nsg:config\r\n${length}\r\n{payload}\r\n");
                while !ended.load(Ordering::SeqCst) {
                    flood(&mut client, &one);
                    // Hundreds of times what a node reads, and something left for the other tests of this machine.
                    thread::sleep(Duration::from_millis(4));
                }
            });
        }
        // Changes go on being found in it.
        for limit in 10..15 {
            nodes[0].set(limit);
            let took = nodes[1].takes(limit, Duration::from_secs(10));
            assert!(took < Duration::from_secs(5), "{took:?}");
        }
        thread::sleep(Duration::from_secs(2));
    });
    let (reads, seconds) = (nodes[1].reads() - before, begin.elapsed().as_secs_f64());
    assert!(reads <= seconds * 10.0 + 2.0, "{reads} reads in {seconds} s");
    assert!(reads > seconds, "hints are heard: {reads} reads in {seconds} s");
    let published: u64 = redis
        .info("commandstats", "cmdstat_publish")
        .split(['=', ','])
        .nth(1)
        .map_or(0, |count| count.parse().expect("a number of calls"));
    assert!(published > 1_000, "{published}");
}

/// Sends a few and reads what comes back.
fn flood(client: &mut std::net::TcpStream, one: &str) {
    use std::io::{Read, Write};
    client.write_all(one.repeat(8).as_bytes()).expect("it takes them");
    let mut answers = 0;
    let mut bytes = [0; 1_024];
    while answers < 8 {
        let count = client.read(&mut bytes).expect("it answers");
        answers += bytes[..count].iter().filter(|byte| **byte == b'\n').count();
    }
}

#[test]
fn a_burst_of_a_thousand_changes_is_few_snapshots() {
    let _alone = heavy();
    let server = Postgres::shared();
    let url = server.url(&server.database());
    let node = Node::start(&url, None);
    node.hears("database", true);
    let reloads = || node.metric("config_reloads_total{result=\"succeeded\"}");
    let (before, reads, begin) = (reloads(), node.reads(), Instant::now());
    runtime().block_on(async {
        let url = Url::postgres(&url).expect("it is a URL");
        let database = Database::open(&config(url)).await.expect("it opens");
        let document = json!({ "limit": "7/h", "by": ["consumer"] });
        for number in 0..1_000 {
            let (name, document) = (format!("p{number}"), document.clone());
            database.put_policy(&alice(), &name, document, Expect::Anything).await.expect("it is made");
        }
    });
    eventually("all are in force", || (node.metric("control_version") == 1_000.0).then_some(()));
    eventually("all count for the lag", || {
        (node.metric("control_lag_seconds_count") == 1_000.0).then_some(())
    });
    let spans = begin.elapsed().as_secs_f64() * 10.0 + 2.0;
    let (reloads, reads) = (reloads() - before, node.reads() - reads);
    assert!(reloads <= spans && reads <= spans, "{reloads} snapshots, {reads} reads in {spans} spans");
    assert!((1.0..200.0).contains(&reloads), "{reloads} snapshots");
    assert_eq!(node.metric("config_reloads_total{result=\"failed\"}"), 0.0);
}

#[test]
fn followers_catch_up_after_a_restart_and_a_time_without_writes() {
    let _alone = heavy();
    let mut server = Postgres::start();
    let name = server.database();
    let nodes: Vec<Node> = (0..3).map(|_| Node::start(&server.url(&name), None)).collect();
    nodes[0].set(10);
    for node in &nodes {
        node.takes(10, Duration::from_secs(5));
    }
    server.stop();
    for node in &nodes {
        node.hears("database", false);
        assert_eq!(node.limit(), 10, "what is in force stays");
    }
    server.restart();
    eventually("writes work again", || {
        (nodes[1].ask("POST", "/v1/overrides", &of_ann(11)).status == 201).then_some(())
    });
    for node in &nodes {
        node.takes(11, Duration::from_secs(10));
        node.hears("database", true);
    }
    // As a server that is promoted later, or whose disk an operator has closed.
    server.sql("postgres", &format!("ALTER DATABASE {name} SET default_transaction_read_only = on"));
    let others = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid() \
                  AND backend_type = 'client backend'";
    server.sql("postgres", others);
    eventually("writes are refused", || {
        (nodes[2].ask("POST", "/v1/overrides", &of_ann(12)).status == 503).then_some(())
    });
    for node in &nodes {
        eventually("it follows all the same", || {
            let up = node.metric("control_up") == 1.0;
            (up && node.metric("control_unconfirmed_seconds") < 31.0).then_some(())
        });
        assert_eq!(node.limit(), 11);
    }
    server.sql("postgres", &format!("ALTER DATABASE {name} RESET default_transaction_read_only"));
    server.sql("postgres", others);
    eventually("writes work again", || {
        (nodes[2].ask("POST", "/v1/overrides", &of_ann(13)).status == 201).then_some(())
    });
    for node in &nodes {
        node.takes(13, Duration::from_secs(10));
    }
}

#[test]
fn a_change_reaches_twenty_nodes_under_load_within_a_second() {
    let _alone = heavy();
    let (server, redis) = (Postgres::shared(), Redis::start(&[]));
    let url = server.url(&server.database());
    let addr = redis.addr().to_string();
    let nodes: Vec<Node> = (0..NODES).map(|_| Node::start(&url, Some(&addr))).collect();
    nodes.iter().for_each(|node| node.hears("redis", true));
    let (ended, answered) = (AtomicBool::new(false), AtomicU64::new(0));
    thread::scope(|scope| {
        let _stop = Stop(&ended);
        for half in nodes.chunks(NODES / 2) {
            let (ended, answered) = (&ended, &answered);
            scope.spawn(move || {
                let mut clients: Vec<Client> = half.iter().map(|node| node.0.client()).collect();
                while !ended.load(Ordering::SeqCst) {
                    for client in &mut clients {
                        // Four hundred a second in all: other tests share the machine.
                        thread::sleep(Duration::from_millis(5));
                        let answer = client.request("GET", "/", &["X-Api-Key: ann"], "");
                        assert!([200, 429].contains(&answer.status), "{answer:?}");
                        answered.fetch_add(1, Ordering::Relaxed);
                    }
                }
            });
        }
        for change in 0..CHANGES {
            nodes[change % NODES].set(10 + change as u64);
        }
        for node in &nodes {
            eventually("every change is in force", || (node.lags("+Inf") == (CHANGES as u64)).then_some(()));
        }
    });
    let within = |bound: &str| nodes.iter().map(|node| node.lags(bound)).sum::<u64>();
    let all = (CHANGES * NODES) as u64;
    let bounds = ["0.025", "0.05", "0.1", "0.25", "0.5", "1.0", "2.5"];
    let shown = bounds.map(|bound| format!("{bound}: {}", within(bound))).join(", ");
    let answered = answered.load(Ordering::Relaxed);
    println!("of {all} lags within seconds: {shown}; {answered} requests meanwhile");
    assert!(within("1.0") * 100 >= all * 99, "{shown}");
    assert_eq!(within("5.0"), all, "{shown}");
    for node in &nodes {
        assert_eq!(node.limit(), 9 + CHANGES as u64);
    }
}

#[test]
fn a_change_by_another_program_is_heard() {
    let _alone = heavy();
    let server = Postgres::shared();
    let url = server.url(&server.database());
    let node = Node::start(&url, None);
    node.hears("database", true);
    runtime().block_on(async {
        let url = Url::postgres(&url).expect("it is a URL");
        let database = Database::open(&config(url)).await.expect("it opens");
        database.add_override(&alice(), of_user("ann", 33)).await.expect("it is made");
    });
    let took = node.takes(33, Duration::from_secs(5));
    assert!(took < Duration::from_secs(3), "{took:?}");
}

const NODES: usize = 20;
const CHANGES: usize = 200;
