//! A real redis-server on a free port, and a gateway's global tier that talks to it without a gateway around it.

use std::net::{SocketAddr, TcpListener};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use limit::lease_messages::{ExactCharge, LinkError, Op, Renewal, Reply};
use limit::{Algorithm, Key, Plan, Quota, Sharing, WhenDown};
use limiter::Link;
use limiter::global::config::{Login, Server, Topology};
use limiter::global::{Condition, Config, ConnectError, Global, Status};

use super::{Directory, PATIENCE, end, eventually, signal};

/// A running redis-server. It is stopped when the test ends.
pub struct Redis {
    child: Child,
    program: &'static str,
    port: u16,
    arguments: Vec<String>,
    directory: Directory,
}

impl Redis {
    /// Starts one with these arguments beside its own.
    pub fn start(arguments: &[&str]) -> Redis {
        Redis::launch("redis-server", &[], free_port(), arguments, Directory::new())
    }

    /// Starts one whose clock a file sets, see [`Redis::set_clock`].
    pub fn with_clock() -> Redis {
        let directory = Directory::new();
        let file = directory.write("clock", "+0");
        // Its allocator asks for the time before libfaketime is ready; the C library's own does not.
        let before = [
            "LD_PRELOAD=/usr/$LIB/faketime/libfaketime.so.1 libc.so.6".to_owned(),
            format!("FAKETIME_TIMESTAMP_FILE={}", file.display()),
            "FAKETIME_NO_CACHE=1".to_owned(),
            "FAKETIME_DONT_FAKE_MONOTONIC=1".to_owned(),
            "redis-server".to_owned(),
        ];
        Redis::launch("env", &before, free_port(), &[], directory)
    }

    /// Sets its clock against the real one, as in `-1h`.
    pub fn set_clock(&self, offset: &str) {
        self.directory.write("clock", offset);
    }

    fn launch(
        program: &'static str,
        before: &[String],
        port: u16,
        arguments: &[&str],
        directory: Directory,
    ) -> Redis {
        let mut all: Vec<String> = before.to_vec();
        all.extend(["--port", &port.to_string(), "--bind", "127.0.0.1"].map(str::to_owned));
        all.extend(["--save", "", "--appendonly", "no", "--dir"].map(str::to_owned));
        all.push(directory.join("").display().to_string());
        all.extend(arguments.iter().map(ToString::to_string));
        let child = spawn(program, &all);
        let redis = Redis { child, program, port, arguments: all, directory };
        redis.answers();
        redis
    }

    /// Its address.
    pub fn addr(&self) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], self.port))
    }

    /// How the global tier names it.
    pub fn server(&self) -> Server {
        server(self.addr())
    }

    /// What redis-cli prints for a command.
    pub fn cli(&self, arguments: &[&str]) -> String {
        cli(self.port, arguments)
    }

    /// What INFO says of a field.
    pub fn info(&self, section: &str, field: &str) -> String {
        let text = self.cli(&["INFO", section]);
        let found = text.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
        found.unwrap_or_else(|| panic!("INFO {section} has no {field}: {text}")).trim().to_owned()
    }

    /// SIGKILL: what it held is gone.
    pub fn kill(&mut self) {
        end(&mut self.child);
    }

    /// Starts it again where it was, empty.
    pub fn restart(&mut self) {
        self.child = spawn(self.program, &self.arguments);
        self.answers();
    }

    /// Sends a signal, by its name.
    pub fn signal(&self, name: &str) {
        signal(self.child.id(), name);
    }

    fn answers(&self) {
        eventually("redis-server answers", || {
            let said = self.cli(&["PING"]);
            (said.contains("PONG") || said.contains("NOAUTH")).then_some(())
        });
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        end(&mut self.child);
    }
}

fn spawn(program: &str, arguments: &[String]) -> Child {
    Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("redis-server is installed (tests/all does it)")
}

/// What redis-cli prints for a command to a port.
pub fn cli(port: u16, arguments: &[&str]) -> String {
    let output = Command::new("timeout")
        .args(["10", "redis-cli", "-p", &port.to_string()])
        .args(arguments)
        .output()
        .expect("redis-cli comes with redis-server");
    super::text(&output.stdout) + &super::text(&output.stderr)
}

/// A port nobody listens on, handed out once. It is below those that the kernel gives to outgoing connections, so none
/// of these takes it before a server does; and so is the one 10,000 above it, a cluster node's bus.
pub fn free_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let begin = std::process::id() as u16 % PORTS;
    let candidates = std::iter::repeat_with(|| {
        FIRST_PORT + begin.wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed)) % PORTS
    });
    let mut free =
        candidates.take(PORTS.into()).filter(|port| TcpListener::bind(("127.0.0.1", *port)).is_ok());
    free.next().expect("loopback has a free port")
}

const FIRST_PORT: u16 = 10_000;
const PORTS: u16 = 10_000;

/// How the global tier names an address.
pub fn server(addr: SocketAddr) -> Server {
    Server { host: addr.ip().to_string(), port: addr.port(), tls: false, login: Login::default() }
}

/// A global tier on a runtime of its own, as the control runtime of a gateway.
pub struct Node {
    runtime: tokio::runtime::Runtime,
    pub global: Arc<Global>,
}

/// What is asked and not answered yet.
pub struct Asked(Arc<OnceLock<Answer>>);

type Answer = (Result<Reply, LinkError>, u64);

impl Node {
    /// One that knows these servers by this topology; operations are those of [`COUNTERS`].
    pub fn start(topology: Topology) -> Node {
        Node::configured(config(topology))
    }

    /// One with a whole configuration.
    pub fn configured(config: Config) -> Node {
        Node::with(|| Global::connect(&config, COUNTERS, true))
    }

    /// One with the operations that gateways have.
    pub fn shipped(config: Config) -> Node {
        Node::with(|| Global::start(&config))
    }

    fn with(start: impl FnOnce() -> Result<Arc<Global>, ConnectError>) -> Node {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = runtime.expect("threads can be had");
        let global = runtime.block_on(async {
            let global = start().expect("the configuration is right");
            global.ready(PATIENCE).await;
            // A handshake that a busy machine made too slow is followed by another.
            let is_slow = |status: &Status| status.condition == Condition::Silent;
            for _ in 0..100 {
                if !global.status().iter().any(is_slow) {
                    break;
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            global
        });
        Node { runtime, global }
    }

    /// One for a single server.
    pub fn of(redis: &Redis) -> Node {
        Node::start(Topology::Single(vec![redis.server()]))
    }

    /// Runs something beside the global tier.
    pub fn block_on<T>(&self, future: impl Future<Output = T>) -> T {
        self.runtime.block_on(future)
    }

    /// Asks, without waiting for the answer.
    pub fn ask(&self, op: Op) -> Asked {
        let asked = Arc::new(OnceLock::new());
        let told = Arc::clone(&asked);
        let done =
            move |result, now_ns| assert!(told.set((result, now_ns)).is_ok(), "an answer is told once");
        self.global.send(op, Box::new(done));
        Asked(asked)
    }

    /// Adds units to a counter, in a call that is sent again when its reply is lost.
    pub fn add(&self, key: u128, units: u64) -> Result<u64, LinkError> {
        self.ask(add(key, units)).counted()
    }

    /// Adds units in a call that is sent once.
    pub fn take(&self, key: u128, units: u64) -> Result<u64, LinkError> {
        self.ask(Op::Take([part(key, units)].into_iter().collect())).counted()
    }

    /// Adds units until that is answered.
    pub fn add_at_last(&self, key: u128, units: u64) -> u64 {
        eventually("the shard answers", || self.add(key, units).ok())
    }

    /// How the only shard is.
    pub fn status(&self) -> Status {
        self.global.status().remove(0)
    }

    /// Ends it, as a drain does. For how long its thread worked meanwhile.
    pub fn shutdown(self) -> Duration {
        let busy = || self.runtime.metrics().worker_total_busy_duration(0);
        let before = busy();
        self.runtime.block_on(self.global.shutdown());
        busy() - before
    }
}

impl Asked {
    /// The answer, and when it was given.
    pub fn answer(&self) -> (Result<Reply, LinkError>, u64) {
        eventually("every question has an answer when there is a way", || self.0.get().cloned())
    }

    /// Whether there is one yet.
    pub fn has_answer(&self) -> bool {
        self.0.get().is_some()
    }

    /// What the counter stands at.
    pub fn counted(&self) -> Result<u64, LinkError> {
        match self.answer().0? {
            Reply::Grant(grant) => Ok(grant.level as u64),
            Reply::Taken(taken) => Ok(taken.outcomes[0].remaining),
            Reply::Peeked(outcome) => Ok(outcome.remaining),
            Reply::Returned | Reply::Seen(_) => Ok(0),
        }
    }
}

/// A configuration without frills.
pub fn config(topology: Topology) -> Config {
    Config {
        topology,
        deadline: Some(Duration::from_millis(2)),
        prefix: "sg".to_owned(),
        key_secret: None,
        connections: 2,
        ca: None,
    }
}

/// Adds units to a counter, in a call that is sent again when its reply is lost.
pub fn add(key: u128, units: u64) -> Op {
    Op::Renew(Renewal {
        key: Key::new(key),
        plan: plan(),
        epoch: 0,
        demand: 1.0,
        reported: 0.0,
        rate: 0.0,
        pending: units,
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

/// One counter and what to add to it.
pub fn part(key: u128, units: u64) -> ExactCharge {
    ExactCharge { key: Key::new(key), plan: plan(), cost: units, shadow: false, count_denied: false }
}

/// A plan of some numbers.
pub fn plan() -> Arc<Plan> {
    let number = |value| std::num::NonZeroU64::new(value).expect("a positive number");
    let quota = Quota::new(Algorithm::TokenBucket, number(100), number(1_000_000_000), number(100));
    Arc::new(Plan { policy: "p".into(), quota, sharing: Sharing::new(&quota, 0.2, WhenDown::Local) })
}

/// Operations that count and nothing else: whether something was applied, and how often, is plain to see.
pub const COUNTERS: &str = "
local function module()
  return function(key, plan, epoch, demand, reported, rate, pending)
    return 1, pending, 0, 1, 0, redis.call('INCRBY', KEYS[key], pending), 0
  end
end
local function prepare(plan)
  plan.act = {}
  return plan.act
end
local function take(parts, count)
  for index = 1, count do
    local part = parts[index]
    part.wait_us, part.remaining, part.reset_us = 0, redis.call('INCRBY', KEYS[part.key], part.cost), 0
  end
  return true
end
local function give_back(parts, count)
  for index = 1, count do
    redis.call('DECRBY', KEYS[parts[index].key], parts[index].cost)
  end
end
local function debit(parts, count)
  take(parts, count)
end
local function peek(part)
  return 0, tonumber(redis.call('GET', KEYS[part.key]) or 0), 0
end
";
