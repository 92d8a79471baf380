//! The scripts of exact charges in a real Redis, called one function at a time. Time is an argument, not Redis's
//! clock.

use std::num::NonZeroU64;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use limit::calendar::Edges;
use limit::{Algorithm, Calendar, CalendarUnit, Quota, Zone};

use super::{Directory, end, eventually};

/// The algorithms that are taken, in the order of their numbers.
pub const ALGORITHMS: [Algorithm; 5] = [
    Algorithm::TokenBucket,
    Algorithm::FixedWindow,
    Algorithm::SlidingWindow,
    Algorithm::SlidingLog,
    Algorithm::LeakyBucket,
];

/// A quota of plain numbers, its period in microseconds.
pub fn quota(algorithm: Algorithm, limit: u64, period_us: u64, burst: u64) -> Quota {
    let positive = |number| NonZeroU64::new(number).expect("none of them is zero");
    Quota::new(algorithm, positive(limit), positive(period_us * 1_000), positive(burst))
}

/// One part as the script wants it: numbers in a row.
pub fn part(quota: Quota, cost: u64, flags: u8) -> [f64; 6] {
    [
        f64::from(quota.algorithm().number()),
        quota.limit().get() as f64,
        quota.period_ns().get() as f64,
        quota.burst().get() as f64,
        cost as f64,
        f64::from(flags),
    ]
}

/// What the script said of one part.
#[derive(Clone, Copy, Debug)]
pub struct Told {
    /// 0: it fits; above: until it does; -1: never; below: it fits, after -1 - this.
    pub wait_us: i64,
    /// Units.
    pub remaining: u64,
    /// Until it is whole.
    pub reset_us: u64,
}

/// What it said of all.
#[derive(Debug)]
pub struct Taken {
    /// Whether they were taken.
    pub admitted: bool,
    /// Each part.
    pub parts: Vec<Told>,
}

/// A redis-server on a socket of its own, with the scripts. It is stopped when the test ends.
pub struct Store {
    child: Child,
    /// For what the scripts do not do.
    pub connection: redis::Connection,
    script: redis::Script,
    /// Whose calendar the windows of the calendar follow, and the day on which its months begin.
    pub zone: &'static Zone,
    pub anchor: u8,
    _directory: Directory,
}

impl Store {
    /// One that keeps keys for an hour: Redis's own clock runs beside the tests'.
    pub fn start() -> Store {
        Store::with("local function lasting_ms() return 3600000 end\n")
    }

    /// One that forgets keys when they may be forgotten.
    pub fn forgetful() -> Store {
        Store::with("")
    }

    /// One with an end of the test's own: what is called, over [`library`].
    pub fn ending(call: &str) -> Store {
        Store::of(&[&library(""), call].concat())
    }

    fn with(prelude: &str) -> Store {
        Store::of(&[&library(prelude), include_str!("../../../lua/take.lua"), CALL].concat())
    }

    fn of(text: &str) -> Store {
        let directory = Directory::new();
        let socket = directory.join("redis.sock");
        let child = Command::new("redis-server")
            .args(["--port", "0", "--save", "", "--unixsocket"])
            .arg(&socket)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .expect("redis-server is installed (tests/all does it)");
        let client = redis::Client::open(format!("unix://{}", socket.display())).expect("it is a path");
        let connection = eventually("redis-server listens", || client.get_connection().ok());
        Store {
            child,
            connection,
            script: redis::Script::new(text),
            zone: Zone::utc(),
            anchor: 1,
            _directory: directory,
        }
    }

    /// Calls the script as it stands: keys, and one packed argument.
    pub fn invoke(&mut self, keys: &[&str], packed: &[u8]) -> Result<Vec<u8>, String> {
        let mut call = self.script.prepare_invoke();
        for key in keys {
            call.key(*key);
        }
        call.arg(packed).invoke(&mut self.connection).map_err(|error| error.to_string())
    }

    /// Calls one function: its number, its keys and parts, and four numbers it may want.
    pub fn call(
        &mut self,
        function: u8,
        keys: &[&str],
        parts: &[[f64; 6]],
        numbers: &[f64; 4],
    ) -> Result<Vec<f64>, String> {
        let unix = Duration::from_micros(numbers[0] as u64);
        let parts = parts.iter().flat_map(|part| part.iter().copied().chain(self.edges(part[2], unix)));
        let numbers = [f64::from(function)].into_iter().chain(*numbers).chain(parts);
        let packed: Vec<u8> = numbers.flat_map(f64::to_le_bytes).collect();
        let reply = self.invoke(keys, &packed)?;
        Ok(reply.as_chunks().0.iter().map(|bytes| f64::from_le_bytes(*bytes)).collect())
    }

    /// Where windows begin around a time, as the wire has it, if the period is one of the calendar; else -1 each.
    fn edges(&self, period_ns: f64, unix: Duration) -> [f64; 5] {
        let is_of = |unit: &CalendarUnit| {
            let limit = quota(Algorithm::FixedWindow, 1, 1, 1);
            limit.on_calendar(Calendar::new(*unit, self.zone, 0)).period_ns().get() as f64 == period_ns
        };
        let unit = CalendarUnit::ALL.into_iter().find(is_of);
        let calendar = |unit| Calendar::new(unit, self.zone, 0).anchored(self.anchor);
        unit.map_or([-1.0; 5], |unit| numbers_of(calendar(unit).edges(unix)))
    }

    fn told(&mut self, function: u8, keys: &[&str], parts: &[[f64; 6]], numbers: &[f64; 4]) -> Taken {
        let numbers = self.call(function, keys, parts, numbers).expect("the script runs");
        let parts = numbers[1..].as_chunks().0.iter().map(|[wait, remaining, reset]| Told {
            wait_us: *wait as i64,
            remaining: *remaining as u64,
            reset_us: *reset as u64,
        });
        Taken { admitted: numbers[0] == 1.0, parts: parts.collect() }
    }

    /// Takes all parts or none.
    pub fn take(&mut self, keys: &[&str], parts: &[[f64; 6]], now_us: u64) -> Taken {
        self.told(1, keys, parts, &[now_us as f64, 0.0, 0.0, 0.0])
    }

    /// Undoes it.
    pub fn give_back(&mut self, keys: &[&str], parts: &[[f64; 6]], taken_us: u64, now_us: u64) {
        self.told(2, keys, parts, &[now_us as f64, taken_us as f64, 0.0, 0.0]);
    }

    /// Spends what is known only now.
    pub fn debit(&mut self, keys: &[&str], parts: &[[f64; 6]], now_us: u64) {
        self.told(3, keys, parts, &[now_us as f64, 0.0, 0.0, 0.0]);
    }

    /// Counts what was admitted without Redis at `spent_us`.
    pub fn report(&mut self, keys: &[&str], parts: &[[f64; 6]], spent_us: u64, now_us: u64) {
        self.told(6, keys, parts, &[now_us as f64, spent_us as f64, 0.0, 0.0]);
    }

    /// Says what `take` would.
    pub fn peek(&mut self, key: &str, part: &[f64; 6], now_us: u64) -> Told {
        self.told(4, &[key], &[*part], &[now_us as f64, 0.0, 0.0, 0.0]).parts[0]
    }

    /// A node says what it holds, and asks for the part's cost more.
    pub fn hold(
        &mut self,
        key: &str,
        part: &[f64; 6],
        node: u64,
        held: u64,
        lasts_us: u64,
        now_us: u64,
    ) -> Told {
        let numbers = [now_us as f64, node as f64, held as f64, lasts_us as f64];
        self.told(5, &[key], &[*part], &numbers).parts[0]
    }

    /// 1 where there is such a key.
    pub fn exists(&mut self, key: &str) -> u8 {
        redis::cmd("EXISTS").arg(key).query(&mut self.connection).expect("Redis answers")
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        end(&mut self.child);
    }
}

/// Edges as the wire has them.
pub fn numbers_of(edges: Edges) -> [f64; 5] {
    let [first, second, third, fourth] = edges.starts_us;
    [edges.first, first, second, third, fourth].map(|number| number as f64)
}

/// What everything stands on, with `prelude` in the place of what keys and time have in common, and the files of
/// algorithms and leases, each a function as in the gateway's script.
fn library(prelude: &str) -> String {
    let keys = include_str!("../../../lua/keys.lua");
    let (before, after) = keys.split_once("local function kept_until").expect("keys.lua defines it");
    let mut text = [include_str!("../../../lua/arithmetic.lua"), before, prelude].concat();
    text += &["local function kept_until", after].concat();
    text += "local function module(number)\n";
    for (number, file) in (1..).zip(MODULES) {
        text += &format!("if number == {number} then\n{file}\nend\n");
    }
    text += "end\n";
    text
}

const MODULES: [&str; 7] = [
    include_str!("../../../lua/token_bucket.lua"),
    include_str!("../../../lua/fixed_window.lua"),
    include_str!("../../../lua/sliding_window.lua"),
    include_str!("../../../lua/sliding_log.lua"),
    include_str!("../../../lua/leaky_bucket.lua"),
    include_str!("../../../lua/concurrency.lua"),
    concat!(include_str!("../../../lua/window_lease.lua"), include_str!("../../../lua/lease.lua")),
];

/// Decodes what the tests send, calls a function, encodes what it returned.
const CALL: &str = r#"
local at, numbers = 1, {}
while at <= #ARGV[1] do
  numbers[#numbers + 1], at = struct.unpack('<d', ARGV[1], at)
end
local call, second, third, fourth = numbers[1], numbers[3], numbers[4], numbers[5]
now_us = numbers[2]
read_keys()
local parts = {}
for index = 1, #KEYS do
  local n = index * 11 - 5
  local plan = { algorithm = numbers[n], limit = numbers[n + 1], period_ns = numbers[n + 2], burst = numbers[n + 3] }
  if numbers[n + 6] >= 0 then
    plan.edges = { first = numbers[n + 6], numbers[n + 7], numbers[n + 8], numbers[n + 9], numbers[n + 10] }
  end
  parts[index] = { key = index, plan = plan, cost = numbers[n + 4], flags = numbers[n + 5] }
end
local part, is_admitted, told = parts[1], true, 0
if call == 1 then
  -- As the dispatcher does it: those that are alone are charged in a run.
  local is_fallback = #KEYS == 1 and part.flags == 0 and part.cost > 0
  local charges, run = is_fallback and prepare(part.plan).charges, { 1, 1, part.cost }
  local function one(_, _, said)
    is_admitted = take(parts, #KEYS)
    return said
  end
  if not charges then
    one()
  elseif select(2, charges(run, 1, 0, part.plan, one, false)) == 2 then
    part.wait_us, part.remaining, part.reset_us = 0, run[1], run[2]
  end
  told = #KEYS
elseif call == 2 then
  give_back(parts, #KEYS, second)
elseif call == 3 then
  debit(parts, #KEYS)
elseif call == 6 then
  report(parts, #KEYS, second)
elseif call == 4 then
  part.wait_us, part.remaining, part.reset_us = peek(part)
  told = 1
else
  part.wait_us, part.remaining, part.reset_us =
    module(6)(1, part.plan, part.cost, string.format('%.0f', second), third, fourth)
  told = 1
end
write_keys()
local reply = { struct.pack('<d', is_admitted and 1 or 0) }
for index = 1, told do
  part = parts[index]
  reply[index + 1] = struct.pack('<ddd', part.wait_us, part.remaining, part.reset_us)
end
return table.concat(reply)
"#;
