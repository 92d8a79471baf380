//! What a decision costs Redis, and how long it takes, beside the plain way: one `EVALSHA` a request of a token bucket
//! in two fields of a hash.
//!
//! It starts a redis-server of its own. What is compared is Redis' own processor time, so the machine may be busy.
//!
//! ```text
//! cargo bench --bench redis                 # decisions a second and core, latency
//! cargo bench --bench redis -- memory 1000000     # bytes a key
//! ```

use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use redis::aio::MultiplexedConnection;
use sluicegate::global::config::{Login, Server, Topology};
use sluicegate::global::{Config, Global};
use sluicegate::limit::central::{Op, Part, Renewal};
use sluicegate::limit::{Algorithm, Plan, Quota, Sharing, WhenDown};
use tokio::sync::{Semaphore, mpsc};

fn main() {
    let arguments: Vec<String> =
        std::env::args().skip(1).filter(|argument| !argument.starts_with('-')).collect();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
    let runtime = runtime.expect("threads can be had");
    match arguments.first().map(String::as_str) {
        Some("memory") => {
            let keys = arguments.get(1).and_then(|count| count.parse().ok()).unwrap_or(1_000_000);
            runtime.block_on(memory(keys));
        }
        _ => {
            runtime.block_on(throughput());
            runtime.block_on(latency());
        }
    }
}

/// Operations a second of Redis' processor time, each way.
async fn throughput() {
    let redis = Redis::start().await;
    println!("decisions a second of one Redis core, {OPERATIONS} operations on {KEYS} keys");
    let plain = redis.cost(plain(&redis)).await;
    println!("  plain, pipelined          {:>9.0}/s   1.00", plain);
    let global = redis.global();
    global.ready(Duration::from_secs(5)).await;
    type Make = fn(u128) -> Op;
    let ways: [(&str, Make); 3] = [("lease renewals", renew), ("exact charges", take), ("peeks", peek)];
    for (name, make) in ways {
        // What is in Redis already is not made again.
        batched(&global, make, OPERATIONS / 4).await;
        let before = global.status().remove(0);
        let rate = redis.cost(batched(&global, make, OPERATIONS)).await;
        let after = global.status().remove(0);
        let gathered = (after.operations - before.operations) as f64 / (after.calls - before.calls) as f64;
        println!(
            "  batched {name:<16} {rate:>9.0}/s   {:.2}   {gathered:.1} operations a call",
            rate / plain
        );
    }
    global.shutdown().await;
}

/// How long a waiting decision takes with 64 of them, beside a bare PING.
async fn latency() {
    let redis = Redis::start().await;
    let global = redis.global();
    global.ready(Duration::from_secs(5)).await;
    let connection = redis.connection().await;
    let (mut pings, mut decisions) = (Vec::new(), Vec::new());
    let begin = Instant::now();
    while begin.elapsed() < Duration::from_secs(5) {
        let ping = Instant::now();
        let answer: redis::RedisResult<()> = redis::cmd("PING").query_async(&mut connection.clone()).await;
        answer.expect("it answers");
        pings.push(ping.elapsed());
        let (tx, mut rx) = mpsc::unbounded_channel();
        for number in 0..64 {
            let (tx, sent) = (tx.clone(), Instant::now());
            global.send(
                take(key(number)),
                Box::new(move |answer, _| {
                    answer.expect("it answers");
                    tx.send(sent.elapsed()).expect("it is waited for");
                }),
            );
        }
        for _ in 0..64 {
            decisions.extend(rx.recv().await);
        }
    }
    println!("latency with 64 waiting      p50        p99");
    for (name, times) in [("PING", &mut pings), ("decision", &mut decisions)] {
        times.sort_unstable();
        let at = |share: f64| times[((times.len() - 1) as f64 * share) as usize];
        println!("  {name:<20} {:>9.1?}  {:>9.1?}", at(0.5), at(0.99));
    }
    global.shutdown().await;
}

/// Bytes of Redis a key takes.
async fn memory(keys: u64) {
    let redis = Redis::start().await;
    let global = redis.global();
    global.ready(Duration::from_secs(5)).await;
    let connection = redis.connection().await;
    let before = info(&connection, "memory", "used_memory").await;
    let permits = Arc::new(Semaphore::new(IN_FLIGHT));
    for number in 0..keys {
        let permit = Arc::clone(&permits).acquire_owned().await.expect("it is never closed");
        let op = lasting(u128::from(number.wrapping_mul(0x9e37_79b9_7f4a_7c15)) << 64 | u128::from(number));
        global.send(op, Box::new(move |_, _| drop(permit)));
    }
    let _all = permits.acquire_many(IN_FLIGHT as u32).await;
    let after = info(&connection, "memory", "used_memory").await;
    let held: u64 = redis::cmd("DBSIZE").query_async(&mut connection.clone()).await.expect("it answers");
    println!("{held} keys, {:.0} bytes each", (after - before) / held as f64);
    global.shutdown().await;
}

/// One call a request, pipelined: what most gateways with a shared limit do.
async fn plain(redis: &Redis) {
    let script = redis::Script::new(PLAIN);
    let connection = redis.connection().await;
    let load: redis::RedisResult<String> =
        redis::cmd("SCRIPT").arg("LOAD").arg(PLAIN).query_async(&mut connection.clone()).await;
    load.expect("the script is right");
    let permits = Arc::new(Semaphore::new(IN_FLIGHT / 64));
    for batch in 0..OPERATIONS / 64 {
        let permit = Arc::clone(&permits).acquire_owned().await.expect("it is never closed");
        let mut pipeline = redis::Pipeline::with_capacity(64);
        for number in 0..64 {
            let name = format!("plain:{:032x}", key(batch * 64 + number));
            pipeline.cmd("EVALSHA").arg(script.get_hash()).arg(1).arg(name).arg(100).arg(100).arg(1);
        }
        let mut connection = connection.clone();
        tokio::spawn(async move {
            let answers: redis::RedisResult<Vec<i64>> = pipeline.query_async(&mut connection).await;
            answers.expect("it answers");
            drop(permit);
        });
    }
    let _all = permits.acquire_many((IN_FLIGHT / 64) as u32).await;
}

async fn batched(global: &Global, make: fn(u128) -> Op, count: u64) {
    let permits = Arc::new(Semaphore::new(IN_FLIGHT));
    let failures = Arc::new(AtomicU64::new(0));
    for number in 0..count {
        let permit = Arc::clone(&permits).acquire_owned().await.expect("it is never closed");
        let failures = Arc::clone(&failures);
        global.send(
            make(key(number)),
            Box::new(move |answer, _| {
                failures.fetch_add(u64::from(answer.is_err()), Ordering::Relaxed);
                drop(permit);
            }),
        );
    }
    let _all = permits.acquire_many(IN_FLIGHT as u32).await;
    let failures = failures.load(Ordering::Relaxed);
    assert!(failures * 100 < count, "{failures} of {count} were not answered");
}

struct Redis {
    child: Child,
    port: u16,
}

impl Redis {
    async fn start() -> Redis {
        let port = std::net::TcpListener::bind("127.0.0.1:0").and_then(|socket| socket.local_addr());
        let port = port.expect("loopback has a free port").port();
        let child = Command::new("redis-server")
            .args(["--port", &port.to_string(), "--save", "", "--appendonly", "no"])
            .stdout(Stdio::null())
            .spawn()
            .expect("redis-server is installed");
        let redis = Redis { child, port };
        while std::net::TcpStream::connect(("127.0.0.1", port)).is_err() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        redis
    }

    fn global(&self) -> Arc<Global> {
        let server =
            Server { host: "127.0.0.1".to_owned(), port: self.port, tls: false, login: Login::default() };
        let config = Config {
            topology: Topology::Single(vec![server]),
            deadline: Duration::from_millis(2),
            prefix: "sg".to_owned(),
            key_secret: None,
            connections: 2,
            ca: None,
        };
        Global::start(&config).expect("nothing is encrypted")
    }

    async fn connection(&self) -> MultiplexedConnection {
        let client = redis::Client::open(("127.0.0.1", self.port)).expect("this is an address");
        client.get_multiplexed_async_connection().await.expect("it listens")
    }

    /// Operations a second of the processor time that Redis took for them.
    async fn cost(&self, work: impl Future<Output = ()>) -> f64 {
        let connection = self.connection().await;
        let seconds = async || {
            info(&connection, "cpu", "used_cpu_user").await + info(&connection, "cpu", "used_cpu_sys").await
        };
        let before = seconds().await;
        work.await;
        OPERATIONS as f64 / (seconds().await - before)
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

async fn info(connection: &MultiplexedConnection, section: &str, field: &str) -> f64 {
    let text: String =
        redis::cmd("INFO").arg(section).query_async(&mut connection.clone()).await.expect("it answers");
    let value = text.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
    value.and_then(|value| value.trim().parse().ok()).expect("the field is a number")
}

fn key(number: u64) -> u128 {
    u128::from((number % KEYS).wrapping_mul(0x9e37_79b9_7f4a_7c15)) << 64 | u128::from(number % KEYS)
}

fn plan(seconds: u64) -> Arc<Plan> {
    let number = |value| std::num::NonZeroU64::new(value).expect("a positive number");
    let quota = Quota::new(Algorithm::TokenBucket, number(100), number(seconds * 1_000_000_000), number(100));
    Arc::new(Plan { policy: "per-tenant".into(), quota, sharing: Sharing::new(&quota, 0.2, WhenDown::Local) })
}

thread_local! {
    static PLAN: Arc<Plan> = plan(1);
    static SLOW: Arc<Plan> = plan(3_600);
}

fn part(key: u128) -> Part {
    Part { key, plan: PLAN.with(Arc::clone), cost: 1, shadow: false, count_denied: false }
}

fn take(key: u128) -> Op {
    Op::Take([part(key ^ 1 << 100)].into_iter().collect())
}

fn peek(key: u128) -> Op {
    Op::Peek(part(key ^ 1 << 100))
}

fn renew(key: u128) -> Op {
    renewal(key, PLAN.with(Arc::clone))
}

/// A record that stays for an hour.
fn lasting(key: u128) -> Op {
    renewal(key, SLOW.with(Arc::clone))
}

fn renewal(key: u128, plan: Arc<Plan>) -> Op {
    Op::Renew(Renewal {
        key,
        plan,
        epoch: 0,
        demand: 50.0,
        reported: 0.0,
        rate: 0.0,
        pending: 1,
        hint: 0.0,
        spent: 0.0,
        delta: 0.0,
        keep: 0.0,
        release: false,
    })
}

const OPERATIONS: u64 = 256_000;
const KEYS: u64 = 100_000;
const IN_FLIGHT: usize = 512;

const PLAIN: &str = "
local time = redis.call('TIME')
local now = time[1] * 1000 + time[2] / 1000
local rate, burst, cost = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local state = redis.call('HMGET', KEYS[1], 'tokens', 'at')
local tokens, at = tonumber(state[1]) or burst, tonumber(state[2]) or now
tokens = math.min(burst, tokens + (now - at) * rate / 1000)
local admitted = 0
if tokens >= cost then
  tokens = tokens - cost
  admitted = 1
end
redis.call('HSET', KEYS[1], 'tokens', tokens, 'at', now)
redis.call('PEXPIRE', KEYS[1], math.ceil(burst / rate * 1000) + 1000)
return admitted
";
