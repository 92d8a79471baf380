//! The scripts of leases against their twin in Rust, in a real Redis: the same random histories, the same answers to
//! the bit, and the same record afterwards. Time is an argument of the tests' own prelude, not Redis's clock.

use std::sync::Arc;

use base::random::Random;
use limit::lease_messages::Renewal;
use limit::{Algorithm, Key, Plan, Quota, ScriptModel, Sharing, Wanted, WhenDown};
use redis::Commands;

use crate::support::scripts::Store;

#[test]
fn a_bucket_lease_is_the_same_in_both() {
    let mut store = Store::ending(CALL);
    for seed in 1..=40 {
        History::new(seed, Algorithm::TokenBucket).run(&mut store);
    }
}

#[test]
fn a_window_lease_is_the_same_in_both() {
    let mut store = Store::ending(CALL);
    for seed in 1..=40 {
        History::new(seed, Algorithm::FixedWindow).run(&mut store);
        History::new(seed, Algorithm::SlidingWindow).run(&mut store);
    }
}

/// What the script answers, what it keeps, without until when, and until when.
fn renew(
    store: &mut Store,
    key: &str,
    renewal: &Renewal,
    now_us: u64,
) -> ([f64; 7], Option<Vec<u8>>, Option<Kept>) {
    let quota = &renewal.plan.quota;
    let numbers = [
        f64::from(quota.algorithm().number()),
        quota.limit().get() as f64,
        quota.period_ns().get() as f64,
        quota.capacity() as f64,
        (renewal.plan.sharing.epoch_ns / 1_000) as f64,
        f64::from(renewal.epoch),
        renewal.demand,
        renewal.reported,
        renewal.rate,
        renewal.pending as f64,
        renewal.hint,
        renewal.spent,
        renewal.delta,
        renewal.keep,
        f64::from(u8::from(renewal.release)),
        f64::from(u8::from(renewal.ahead)),
        now_us as f64,
    ];
    let costs = renewal.costs.iter().map(|cost| *cost as f64);
    let packed: Vec<u8> = numbers.into_iter().chain(costs).flat_map(f64::to_le_bytes).collect();
    let reply = store.invoke(&[key], &packed).expect("the script runs");
    let mut answer = [0.0; 7];
    for (number, bytes) in answer.iter_mut().zip(reply.chunks_exact(8)) {
        *number = f64::from_le_bytes(bytes.try_into().expect("a chunk of eight"));
    }
    let mut record: Option<Vec<u8>> = store.connection.get(key).expect("Redis answers");
    let kept = record.as_mut().map(|record| Kept::taken_from(record));
    (answer, record, kept)
}

/// For how long a record says that its key is kept.
#[derive(Clone, Copy, Debug)]
struct Kept {
    /// Until when, seconds since 1970.
    until_s: u64,
    /// It says no more than this.
    is_most: bool,
}

impl Kept {
    /// Takes it out of a record, which is then as its twin has it.
    fn taken_from(record: &mut [u8]) -> Kept {
        let at = if record.len() == BUCKET_BYTES { BUCKET_SINCE } else { WINDOW_SINCE };
        let seconds = u64::from(u16::from_le_bytes([record[at + 2], record[at + 3]]) >> 3);
        record[at + 2] &= 0x07;
        record[at + 3] = 0;
        let at_us = f64::from_le_bytes(*record.first_chunk().expect("it begins with when"));
        Kept { until_s: at_us as u64 / 1_000_000 + seconds, is_most: seconds == SECONDS_MAX }
    }
}

/// Where the time since the epoch began stands: 32 bits, of which the upper 13 say for how long the key is kept.
const BUCKET_SINCE: usize = 36;
const WINDOW_SINCE: usize = 40;
const BUCKET_BYTES: usize = 68;
const SECONDS_MAX: u64 = (1 << 13) - 1;
/// A key stays for so much longer than its record is needed.
const MARGIN_US: u64 = 200_000;

/// Decodes what the tests send, calls the script, encodes what it returned.
const CALL: &str = r#"
local plan, costs, renewal = {}, nil, { struct.unpack('<ddddddddddddddddd', ARGV[1]) }
plan.algorithm, plan.limit, plan.period_ns, plan.burst, plan.epoch_us = unpack(renewal, 1, 5)
now_us = renewal[17]
for at = 137, #ARGV[1], 8 do
  costs = costs or {}
  costs[#costs + 1] = struct.unpack('<d', ARGV[1], at)
end
local epoch, demand, reported, rate, pending, hint, spent, delta, keep, is_release, is_ahead = unpack(renewal, 6, 16)
read_keys()
local reply = struct.pack('<ddddddd', module(7)(1, plan, epoch, demand, reported, rate, pending, hint, spent, delta, keep,
  is_release == 1, is_ahead == 1, costs))
write_keys()
return reply
"#;

/// A few nodes that ask of one key, in no sensible order.
struct History {
    seed: u64,
    /// They ask often, and mostly for about what they are due of a limit that has debts: what a node is denied depends on
    /// more then than where all want more than there is.
    is_calm: bool,
    random: Random,
    plan: Arc<Plan>,
    now_us: u64,
    /// What each node was last told, and what it said: epoch, rate, demand.
    nodes: [(u32, f64, f64); 5],
}

impl History {
    fn new(seed: u64, algorithm: Algorithm) -> History {
        let random = Random::new(seed);
        let pick = |numbers: &[u64]| numbers[(random.next() % numbers.len() as u64) as usize];
        let is_calm = seed.is_multiple_of(2);
        let limit = pick(&[1, 3, 10, 30, 100, 300, 1_000, 50_000, 7_000_000]);
        let burst = match (is_calm, algorithm) {
            (true, Algorithm::TokenBucket) => (limit * pick(&[1, 3, 10]) / 10).max(1),
            _ => limit * pick(&[1, 2, 10]),
        };
        let period_ns = pick(&[1, 10, 60, 86_400]) * 1_000_000_000;
        let epoch_ns = match algorithm {
            // Beyond half a second a record counts in longer ticks.
            Algorithm::TokenBucket => pick(&[50_000_000, 333_333_000, 500_000_000, 1_500_000_000]),
            _ => pick(&[50_000_000, 100_000_000, 333_333_000, 500_000_000]),
        };
        let positive = |number| std::num::NonZeroU64::new(number).expect("none of them is zero");
        let quota = Quota::new(algorithm, positive(limit), positive(period_ns), positive(burst));
        let sharing = Sharing { epoch_ns, spare: 100, when_down: WhenDown::Local };
        let plan = Arc::new(Plan { policy: "test".into(), quota, sharing });
        History { seed, is_calm, random, plan, now_us: 1_790_000_000_000_000, nodes: [(0, 0.0, 0.5); 5] }
    }

    fn run(mut self, store: &mut Store) {
        let key = format!("{:?}-{}", self.plan.quota.algorithm(), self.seed);
        let (mut model, mut is_changed) = (ScriptModel::default(), false);
        for step in 0..150 {
            self.advance();
            // The limit changes now and then. What a lower one does not hold goes on as before.
            if self.random.next().is_multiple_of(40) {
                self.plan = History::new(self.random.next(), self.plan.quota.algorithm()).plan;
                is_changed = true;
            }
            let node = (self.random.next() % 5) as usize;
            let renewal = self.renewal(node);
            let grant = model.renew(&renewal, self.now_us);
            let (told, record, kept) = renew(store, &key, &renewal, self.now_us);
            let [epoch, tokens, rate, lasts_us, deny_us, level, wait_us] = told;
            let context = format!("seed {}, step {step}: {renewal:?}\n{grant:?}\n{told:?}", self.seed);
            assert_eq!(u64::from(grant.epoch), epoch as u64, "{context}");
            let ours = [grant.tokens, grant.rate, grant.level].map(f64::to_bits);
            assert_eq!(ours, [tokens, rate, level].map(f64::to_bits), "{context}");
            assert_eq!(
                [grant.lasts_ns, grant.deny_ns, grant.wait_ns],
                [lasts_us, deny_us, wait_us].map(|us| us as u64 * 1_000),
                "{context}"
            );
            assert_eq!(model.to_bytes(), record, "{context}");
            let kept = kept.expect("a renewal leaves a record");
            let needed_us = self.now_us + self.needed_us(grant.level);
            let is_long = kept.is_most || kept.until_s * 1_000_000 >= needed_us;
            assert!(is_long || is_changed, "{kept:?}, {context}");
            // The first says what it means to; what comes later may find that it is enough.
            let most_us = needed_us + self.needed_us(grant.level).clamp(4_000_000, 600_000_000);
            assert!(step > 0 || kept.until_s * 1_000_000 <= most_us, "{kept:?}, {context}");
            self.nodes[node] = (grant.epoch, f64::from(grant.rate as f32), renewal.demand);
        }
    }

    /// For how long a record is needed: until the bucket is full again, or until the next window is over.
    fn needed_us(&self, level: f64) -> u64 {
        let quota = &self.plan.quota;
        let period_us = quota.period_ns().get() / 1_000;
        if quota.algorithm() != Algorithm::TokenBucket {
            return 2 * period_us - self.now_us % period_us + MARGIN_US;
        }
        let refill = quota.limit().get() as f64 * 1e6 / period_us as f64;
        ((quota.capacity() as f64 - level) / refill * 1e6) as u64
            + self.plan.sharing.epoch_ns / 500
            + MARGIN_US
    }

    /// Mostly a little later; sometimes much, sometimes back.
    fn advance(&mut self) {
        let step_us = self.random.next();
        match step_us % 20 {
            0 => self.now_us += step_us % 5_000_000,
            1 => self.now_us -= step_us % 2_000,
            2 => self.now_us -= step_us % 3_000_000,
            _ if self.is_calm => self.now_us += step_us % 8_000,
            _ => self.now_us += step_us % 60_000,
        }
    }

    fn renewal(&self, node: usize) -> Renewal {
        let whole = |below: u64| self.random.next() % below;
        let fraction = || (self.random.next() >> 11) as f64 / (1u64 << 53) as f64;
        let (epoch, rate, reported) = self.nodes[node];
        let limit = self.plan.quota.limit().get() as f64;
        let mut demand = if whole(4) == 0 { 0.5 } else { 0.01 + fraction() * limit * 3.0 };
        let mut delta = match whole(4) {
            0 => fraction() * 3.0,
            1 if !self.is_calm => -fraction() * limit / 10.0,
            _ => 0.0,
        };
        if self.is_calm {
            let per_s = limit * 1e9 / self.plan.quota.period_ns().get() as f64;
            let epoch_s = self.plan.sharing.epoch_ns as f64 / 1e9;
            delta *= (per_s * epoch_s / 8.0).max(1.0);
            demand = match whole(6) {
                0 => 1e-9,
                1 => 0.6 / epoch_s,
                2 => per_s * fraction() / 2.0,
                3 => per_s * (0.2 + fraction() * 0.2),
                4 => per_s * fraction() * 2.0,
                _ => demand,
            };
        }
        let waiting = if whole(2) == 0 { 0 } else { whole(5) };
        let cost_max = [1, 1, 4, limit as u64][whole(4) as usize];
        let wanted = Wanted::by((0..waiting).map(|_| 1 + whole(cost_max)).collect::<Vec<_>>().into_iter());
        Renewal {
            key: Key::new(7),
            plan: Arc::clone(&self.plan),
            epoch,
            demand,
            reported,
            rate,
            pending: wanted.units,
            costs: wanted.costs,
            hint: if whole(3) == 0 { (1 << whole(8)) as f64 } else { 0.0 },
            spent: if whole(2) == 0 { 0.0 } else { fraction() * limit - limit / 16.0 },
            delta,
            keep: if whole(2) == 0 { 0.0 } else { fraction() * 4.0 },
            release: whole(8) == 0,
            ahead: whole(2) == 0,
        }
    }
}
