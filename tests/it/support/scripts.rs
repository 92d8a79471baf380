//! The scripts of exact charges in a real Redis, called one function at a time. Time is an argument, not the store's
//! clock.

use std::num::NonZeroU64;
use std::process::{Child, Command, Stdio};

use sluicegate::limit::{Algorithm, Quota};

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
    let algorithm = 1 + ALGORITHMS.iter().position(|known| *known == quota.algorithm()).unwrap_or(5);
    [
        algorithm as f64,
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
    _directory: Directory,
}

impl Store {
    /// One that keeps keys for an hour: the store's own clock runs beside the tests'.
    pub fn start() -> Store {
        Store::with("local function lasting_ms() return '3600000' end\n")
    }

    /// One that forgets keys when they may be forgotten.
    pub fn forgetful() -> Store {
        Store::with("")
    }

    fn with(prelude: &str) -> Store {
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
        let scripts = [SCRIPTS[0], prelude, &SCRIPTS[1..].concat(), CALL].concat();
        let script = redis::Script::new(&scripts);
        Store { child, connection, script, _directory: directory }
    }

    /// Calls one function: its number, its keys and parts, and four numbers it may want.
    pub fn call(
        &mut self,
        function: u8,
        keys: &[&str],
        parts: &[[f64; 6]],
        numbers: &[f64; 4],
    ) -> Result<Vec<f64>, String> {
        let mut call = self.script.prepare_invoke();
        for key in keys {
            call.key(*key);
        }
        let numbers =
            [f64::from(function)].into_iter().chain(*numbers).chain(parts.iter().flatten().copied());
        let packed: Vec<u8> = numbers.flat_map(f64::to_le_bytes).collect();
        let reply: Result<Vec<u8>, _> = call.arg(packed).invoke(&mut self.connection);
        let reply = reply.map_err(|error| error.to_string())?;
        Ok(reply.as_chunks().0.iter().map(|bytes| f64::from_le_bytes(*bytes)).collect())
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
        redis::cmd("EXISTS").arg(key).query(&mut self.connection).expect("the store answers")
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        end(&mut self.child);
    }
}

/// The files, in the order in which they build on each other.
const SCRIPTS: [&str; 8] = [
    include_str!("../../../lua/arithmetic.lua"),
    include_str!("../../../lua/token_bucket.lua"),
    include_str!("../../../lua/leaky_bucket.lua"),
    include_str!("../../../lua/fixed_window.lua"),
    include_str!("../../../lua/sliding_window.lua"),
    include_str!("../../../lua/sliding_log.lua"),
    include_str!("../../../lua/concurrency.lua"),
    include_str!("../../../lua/take.lua"),
];

/// Decodes what the tests send, calls a function, encodes what it returned.
const CALL: &str = r#"
local at, numbers = 1, {}
while at <= #ARGV[1] do
  numbers[#numbers + 1], at = struct.unpack('<d', ARGV[1], at)
end
local call, now_us, second, third, fourth = numbers[1], numbers[2], numbers[3], numbers[4], numbers[5]
local parts = {}
for index = 1, #KEYS do
  local n = index * 6
  local flags = numbers[n + 5]
  parts[index] = { algorithm = numbers[n], limit = numbers[n + 1], period_ns = numbers[n + 2],
    burst = numbers[n + 3], cost = numbers[n + 4], shadow = flags % 2 == 1, count_denied = flags >= 2 }
end
local told = { admitted = true }
if call == 1 then
  told = take(KEYS, parts, now_us)
elseif call == 2 then
  give_back(KEYS, parts, second, now_us)
elseif call == 3 then
  debit(KEYS, parts, now_us)
elseif call == 4 then
  told[1] = peek(KEYS[1], parts[1], now_us)
else
  told[1] = hold(KEYS[1], parts[1], string.format('%.0f', second), third, fourth, now_us)
end
local reply = { struct.pack('<d', told.admitted and 1 or 0) }
for index, part in ipairs(told) do
  reply[index + 1] = struct.pack('<ddd', part.wait_us, part.remaining, part.reset_us)
end
return table.concat(reply)
"#;
