//! What a decision costs Redis, and how long it takes, beside the plain way: one `EVALSHA` a request of a token bucket
//! in two fields of a hash.
//!
//! It starts a redis-server of its own. What is compared is Redis' own processor time, so the machine may be busy.
//!
//! Each way is measured in turns with the others, and the median of its turns is told.
//!
//! ```text
//! cargo bench --bench redis                 # decisions a second and core, latency
//! cargo bench --bench redis -- latency            # the latter alone
//! cargo bench --bench redis -- alone              # latency of decisions that come one at a time
//! cargo bench --bench redis -- beside             # the same beside leases, scrapes and overrides
//! cargo bench --bench redis -- memory 1000000     # bytes a key
//! ```

use std::collections::HashMap;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use base::clock;
use limit::lease_messages::{ExactCharge, Op, Renewal, Reply};
use limit::{Algorithm, Charge, Key, Plan, PlanId, Quota, ScriptModel, Sharing, WhenDown};
use limiter::global::config::{Login, Server, Topology};
use limiter::global::{Config, Global};
use limiter::local::Table;
use limiter::{Change, ClientAddress, Decision, Done, Fleet, Limiter, Link, Override};
use metrics::{Metrics, RequestCounts, ScrapeFormat};
use policy::Holder;
use redis::aio::MultiplexedConnection;
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
        Some("latency") => runtime.block_on(latency()),
        Some("alone") => runtime.block_on(alone()),
        Some("beside") => runtime.block_on(beside()),
        _ => {
            runtime.block_on(throughput());
            runtime.block_on(latency());
        }
    }
}

/// Operations a second of Redis' processor time, each way.
async fn throughput() {
    let redis = Redis::start().await;
    println!("a second of one Redis core, {TURNS} turns of {OPERATIONS} operations on {KEYS} keys");
    let global = redis.global();
    global.ready(Duration::from_secs(5)).await;
    type Make = fn(u64) -> Op;
    let ways: [(&str, Make); 5] = [
        ("exact charges", |number| take(key(number))),
        ("exact charges, ten hot keys", |number| take_much(key(number % 10))),
        ("exact charges, sliding window", |number| slide(key(number))),
        ("looks that spend nothing", |number| peek(key(number))),
        ("lease renewals", |number| renew(key(number))),
    ];
    let (mut plains, mut rates, mut gathered) = (Vec::new(), [const { Vec::new() }; 5], [0.0; 5]);
    for turn in 0..=TURNS {
        let rate = redis.cost(plain(&redis)).await;
        // The first makes the keys.
        plains.extend((turn > 0).then_some(rate));
        for (way, (_, make)) in ways.iter().enumerate() {
            let before = global.status().remove(0).counts;
            let rate = redis.cost(batched(&global, *make, OPERATIONS)).await;
            let after = global.status().remove(0).counts;
            rates[way].extend((turn > 0).then_some(rate));
            gathered[way] =
                (after.operations - before.operations) as f64 / (after.calls - before.calls) as f64;
        }
    }
    let plain = median(&mut plains);
    println!("  {:<32} {plain:>9.0}   1.00", "plain, pipelined");
    let mut renewals = 0.0;
    for ((name, _), (rates, gathered)) in ways.iter().zip(rates.iter_mut().zip(gathered)) {
        renewals = median(rates);
        let times = renewals / plain;
        println!("  {name:<32} {renewals:>9.0}   {times:.2}   {gathered:.1} operations a call");
    }
    global.shutdown().await;
    let asked = leased(&redis).await;
    let decisions = renewals / asked;
    println!(
        "  {:<32} {decisions:>9.0}   {:.0}   {asked:.5} operations a decision",
        "decisions of a leased hot key",
        decisions / plain
    );
}

fn median(rates: &mut [f64]) -> f64 {
    rates.sort_by(f64::total_cmp);
    rates[rates.len() / 2]
}

/// Operations a decision of one key that is lent to [`NODES`] gateways, each of which decides [`PACE`] a second.
async fn leased(redis: &Redis) -> f64 {
    let quota = quota(Algorithm::TokenBucket, 1_000_000, 1, 1_000_000);
    let sharing = Sharing::new(&quota, 0.05, WhenDown::Local);
    let mut nodes = Vec::new();
    for _ in 0..NODES {
        let global = redis.global();
        global.ready(Duration::from_secs(5)).await;
        let link = Arc::clone(&global) as Arc<dyn Link>;
        let fleet = Fleet::new(link, 1 << 20);
        let plan = fleet.plans().id(Plan { policy: "hot".into(), quota, sharing });
        let limiter = Arc::new(Limiter::in_fleet(Table::with_memory(1 << 20), fleet));
        nodes.push((global, limiter, plan));
    }
    let begin = Instant::now();
    let (mut decisions, mut admitted) = (0_u64, 0_u64);
    while begin.elapsed() < Duration::from_secs(5) {
        let due = (begin.elapsed().as_secs_f64() * PACE * NODES as f64) as u64;
        while decisions < due {
            let (_, limiter, plan) = &nodes[decisions as usize % NODES];
            let charge = charge(Key::new(7), quota, *plan);
            let mut decision = Decision::default();
            let waiting = limiter.decide(&[charge], ClientAddress::default(), clock::now_ns(), &mut decision);
            admitted += u64::from(waiting.is_none() && decision.is_admitted());
            decisions += 1;
        }
        nodes.iter().for_each(|(_, limiter, _)| limiter.sweep(clock::now_ns()));
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert!(admitted * 10 > decisions * 9, "{admitted} of {decisions} were admitted from a lease");
    let asked: u64 = nodes.iter().map(|(global, ..)| global.status().remove(0).counts.operations).sum();
    for (global, ..) in nodes {
        global.shutdown().await;
    }
    asked as f64 / decisions as f64
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

/// How long a decision takes that comes alone, so many a second, and how many share a call.
async fn alone() {
    let redis = Redis::start().await;
    println!("latency of what comes alone  p50        p99       operations a call");
    for pause in [1_000, 200, 50].map(Duration::from_micros) {
        let global = redis.global();
        global.ready(Duration::from_secs(5)).await;
        let (times, mut rx) = mpsc::unbounded_channel();
        let before = global.status().remove(0).counts;
        let asking = tokio::task::spawn_blocking({
            let global = Arc::clone(&global);
            move || ask_alone(&global, pause, &times)
        });
        let mut took = Vec::new();
        while let Some(time) = rx.recv().await {
            took.push(time);
        }
        let rate = asking.await.expect("it does not panic");
        let after = global.status().remove(0).counts;
        let gathered = (after.operations - before.operations) as f64 / (after.calls - before.calls) as f64;
        took.sort_unstable();
        let at = |share: f64| took[((took.len() - 1) as f64 * share) as usize];
        println!("  {rate:>8.0} a second    {:>9.1?}  {:>9.1?}  {gathered:.2}", at(0.5), at(0.99));
        global.shutdown().await;
    }
}

/// How long a decision takes that comes alone while the node has [`LEASES`] leases in use, encodes the metrics of [`ROUTES`]
/// routes and takes an override each second, beside the same without all that.
async fn beside() {
    let redis = Redis::start().await;
    let global = redis.global();
    global.ready(Duration::from_secs(5)).await;
    let lender = Arc::new(Lender { global: Arc::clone(&global), records: Mutex::default() });
    let fleet = Fleet::new(lender as Arc<dyn Link>, (LEASES as usize * 2 + 65_536) * 64);
    let quota = quota(Algorithm::TokenBucket, 100_000, 1, 100_000);
    let sharing = Sharing::new(&quota, 0.05, WhenDown::Local);
    let plan = fleet.plans().id(Plan { policy: "beside".into(), quota, sharing });
    let limiter = Arc::new(Limiter::in_fleet(Table::with_memory(1 << 16), fleet));
    let (metrics, workers) = Metrics::new(1);
    let routes: Vec<_> = (0..ROUTES).map(|number| metrics.route(&format!("route-{number}"))).collect();
    let request = RequestCounts { status: 200, duration_ns: 1_234_567, bytes_in: 0, bytes_out: 5_120 };
    routes.iter().for_each(|route| route.finished(&workers[0], &request));
    let mut took = [const { Vec::new() }; 2];
    let (mut most, mut scraped, mut lent) = (Duration::ZERO, 0, 0);
    for turn in 0..2 * TURNS {
        let is_busy = turn % 2 == 1;
        let stop = Arc::new(AtomicBool::new(!is_busy));
        // As in a gateway: the sweep is on the thread that Redis' answers come to, the others on threads of their own.
        let sweeps = tokio::spawn(sweep_until(Arc::clone(&stop), Arc::clone(&limiter)));
        let using = thread::spawn({
            let (stop, limiter) = (Arc::clone(&stop), Arc::clone(&limiter));
            move || use_leases(&stop, &limiter, quota, plan)
        });
        let control = thread::spawn({
            let (stop, limiter, metrics) = (Arc::clone(&stop), Arc::clone(&limiter), Arc::clone(&metrics));
            move || scrape_and_override(&stop, &limiter, &metrics)
        });
        tokio::time::sleep(Duration::from_secs(2)).await;
        let (times, mut answers) = mpsc::unbounded_channel();
        let asking = tokio::task::spawn_blocking({
            let global = Arc::clone(&global);
            move || ask_alone(&global, Duration::from_millis(1), &times)
        });
        while let Some(time) = answers.recv().await {
            took[usize::from(is_busy)].push(time);
        }
        asking.await.expect("it does not panic");
        lent = lent.max(limiter.inspect().leases().map_or(0, |leases| leases.stats().used));
        stop.store(true, Ordering::Relaxed);
        sweeps.await.expect("it does not panic");
        using.join().expect("it does not panic");
        let (bytes, longest) = control.join().expect("it does not panic");
        (most, scraped) = (most.max(longest), scraped.max(bytes));
    }
    println!("a decision that comes alone  p50        p99");
    let names = ["alone", "beside them"];
    let [alone, beside] = [0, 1].map(|way: usize| {
        took[way].sort_unstable();
        let at = |share: f64| took[way][((took[way].len() - 1) as f64 * share) as usize];
        println!("  {:<20} {:>9.1?}  {:>9.1?}", names[way], at(0.5), at(0.99));
        at(0.99).as_secs_f64()
    });
    println!(
        "  p99 beside {lent} leases, scrapes of {scraped} bytes ({most:.1?}) and overrides: {:.2}",
        beside / alone
    );
    global.shutdown().await;
}

async fn sweep_until(stop: Arc<AtomicBool>, limiter: Arc<Limiter>) {
    let mut ticks = tokio::time::interval(Duration::from_millis(50));
    while !stop.load(Ordering::Relaxed) {
        ticks.tick().await;
        limiter.sweep(clock::now_ns());
    }
}

/// Five requests for each key at first, then one within each second.
fn use_leases(stop: &AtomicBool, limiter: &Arc<Limiter>, quota: Quota, plan: PlanId) {
    let decide = |number: u64| {
        let mut decision = Decision::default();
        let charge = charge(Key::new(spread(number)), quota, plan);
        drop(limiter.decide(&[charge], ClientAddress::default(), clock::now_ns(), &mut decision));
    };
    let mut rounds = 0;
    while !stop.load(Ordering::Relaxed) {
        for part in 0..100 {
            let begin = Instant::now();
            for number in (part..LEASES).step_by(100) {
                (0..if rounds == 0 { 5 } else { 1 }).for_each(|_| decide(number));
            }
            thread::sleep(Duration::from_millis(10).saturating_sub(begin.elapsed()));
        }
        rounds += 1;
    }
}

/// Bytes of a scrape, and how long the longest took.
fn scrape_and_override(stop: &AtomicBool, limiter: &Limiter, metrics: &Metrics) -> (usize, Duration) {
    let (mut bytes, mut longest, mut version) = (0, Duration::ZERO, 0);
    while !stop.load(Ordering::Relaxed) {
        let begin = Instant::now();
        bytes = metrics.encode(ScrapeFormat::OpenMetrics).len();
        longest = longest.max(begin.elapsed());
        version += 1;
        let holder = Holder::Consumer("acme".into());
        limiter.overrides().put(&holder, Override::new("beside", Change::Absolute(500), "", version));
        thread::sleep(Duration::from_secs(1).saturating_sub(begin.elapsed()));
    }
    (bytes, longest)
}

/// Lends at once what is asked for, and leaves everything else to Redis: the leases of many keys cost it nothing here.
struct Lender {
    global: Arc<Global>,
    records: Mutex<HashMap<Key, ScriptModel>>,
}

impl Link for Lender {
    fn send(&self, op: Op, done: Done) {
        let Op::Renew(renewal) = op else { return self.global.send(op, done) };
        let now_ns = clock::now_ns();
        let grant = {
            let mut records = self.records.lock().expect("no holder panics");
            records.entry(renewal.key).or_default().renew(&renewal, now_ns / 1_000)
        };
        done(Ok(Reply::Grant(grant)), now_ns);
    }

    fn is_up(&self, key: Key) -> bool {
        self.global.is_up(key)
    }

    fn round_trip_ns(&self, key: Key) -> u64 {
        self.global.round_trip_ns(key)
    }

    fn nodes(&self) -> u32 {
        1
    }
}

/// Asks with pauses for three seconds; how often a second it was.
fn ask_alone(global: &Global, pause: Duration, times: &mpsc::UnboundedSender<Duration>) -> f64 {
    let begin = Instant::now();
    let mut number = 0;
    while begin.elapsed() < Duration::from_secs(3) {
        let (times, sent) = (times.clone(), Instant::now());
        global.send(
            take(key(number)),
            Box::new(move |answer, _| {
                // A machine that stands still for a while loses some.
                if answer.is_ok() {
                    times.send(sent.elapsed()).ok();
                }
            }),
        );
        number += 1;
        let until = sent + pause;
        while let Some(left) = until.checked_duration_since(Instant::now()).filter(|left| !left.is_zero()) {
            // Not for all of it, because sleeping takes longer than it says.
            match left.checked_sub(Duration::from_micros(200)) {
                Some(most) => thread::sleep(most),
                None => thread::yield_now(),
            }
        }
    }
    number as f64 / begin.elapsed().as_secs_f64()
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
        let op = lasting(spread(number));
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
            pipeline.cmd("EVALSHA").arg(script.get_hash()).arg(1).arg(name).arg("1.6667").arg(100).arg(1);
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

async fn batched(global: &Global, make: fn(u64) -> Op, count: u64) {
    let permits = Arc::new(Semaphore::new(IN_FLIGHT));
    let failures = Arc::new(AtomicU64::new(0));
    for number in 0..count {
        let permit = Arc::clone(&permits).acquire_owned().await.expect("it is never closed");
        let failures = Arc::clone(&failures);
        global.send(
            make(number),
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
            deadline: Some(Duration::from_millis(2)),
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
    spread(number % KEYS)
}

/// Spread over a table as the hashes of real keys are.
fn spread(number: u64) -> u128 {
    (u128::from(number) + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835)
}

fn charge(key: Key, quota: Quota, plan: PlanId) -> Charge {
    Charge { plan: Some(plan), ..Charge::one(key, quota) }
}

fn quota(algorithm: Algorithm, limit: u64, seconds: u64, burst: u64) -> Quota {
    let number = |value| std::num::NonZeroU64::new(value).expect("a positive number");
    Quota::new(algorithm, number(limit), number(seconds * 1_000_000_000), number(burst))
}

/// Of 100 units in so many seconds; of a million in one.
fn plan(algorithm: Algorithm, seconds: u64, overshoot: f64) -> Arc<Plan> {
    let units = if seconds == 1 { 1_000_000 } else { 100 };
    let quota = quota(algorithm, units, seconds, units);
    Arc::new(Plan {
        policy: "per-tenant".into(),
        quota,
        sharing: Sharing::new(&quota, overshoot, WhenDown::Local),
    })
}

thread_local! {
    static LENT: Arc<Plan> = plan(Algorithm::TokenBucket, 60, 0.05);
    static EXACT: Arc<Plan> = plan(Algorithm::TokenBucket, 60, 0.0);
    static MUCH: Arc<Plan> = plan(Algorithm::TokenBucket, 1, 0.0);
    static SLIDING: Arc<Plan> = plan(Algorithm::SlidingWindow, 60, 0.0);
    static SLOW: Arc<Plan> = plan(Algorithm::TokenBucket, 3_600, 0.05);
}

fn part(key: u128, plan: Arc<Plan>) -> ExactCharge {
    ExactCharge { key: Key::new(key), plan, cost: 1, shadow: false, count_denied: false }
}

fn take(key: u128) -> Op {
    Op::Take([part(key, EXACT.with(Arc::clone))].into_iter().collect())
}

fn take_much(key: u128) -> Op {
    Op::Take([part(key ^ 1 << 100, MUCH.with(Arc::clone))].into_iter().collect())
}

fn slide(key: u128) -> Op {
    Op::Take([part(key, SLIDING.with(Arc::clone))].into_iter().collect())
}

fn peek(key: u128) -> Op {
    Op::Peek(part(key, EXACT.with(Arc::clone)))
}

fn renew(key: u128) -> Op {
    renewal(key, LENT.with(Arc::clone))
}

/// A record that stays for an hour.
fn lasting(key: u128) -> Op {
    renewal(key, SLOW.with(Arc::clone))
}

fn renewal(key: u128, plan: Arc<Plan>) -> Op {
    Op::Renew(Renewal {
        key: Key::new(key),
        plan,
        epoch: 0,
        demand: 50.0,
        reported: 0.0,
        rate: 0.0,
        pending: 1,
        hint: 0.0,
        spent: 0.0,
        refilled: 0.0,
        delta: 0.0,
        keep: 0.0,
        release: false,
        ahead: false,
        costs: Default::default(),
    })
}

const OPERATIONS: u64 = 64_000;
const KEYS: u64 = 20_000;
const TURNS: usize = 5;
const LEASES: u64 = 100_000;
const ROUTES: usize = 4_000;
/// Gateways that share a hot key, and decisions of each a second.
const NODES: usize = 4;
const PACE: f64 = 50_000.0;
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
