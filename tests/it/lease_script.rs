//! The scripts of leases against their twin in Rust, in a real Redis: the same random histories, the same answers to
//! the bit, and the same record afterwards. Time is an argument of the tests' own prelude, not Redis's clock.

use std::sync::Arc;
use std::time::Duration;

use base::random::Random;
use limit::lease_messages::Renewal;
use limit::{
    Algorithm, Calendar, CalendarUnit, Key, LeaseDemand, Plan, Quota, ScriptModel, Sharing, WhenDown, Zone,
    script_model,
};
use redis::Commands;

use crate::support::scripts::{Store, numbers_of, quota};

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

/// Whatever a key holds counts as spent or as what it says, alike in both, and is whole again in its time.
#[test]
fn a_lease_record_that_no_script_left_denies_no_key_for_ever_and_admits_no_more_than_there_is() {
    let mut store = Store::ending(CALL);
    let eights =
        [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -1.0, 0.0, 1e15, 9e15, 1e17, 1e300, -1e15, -1e300];
    for algorithm in [Algorithm::TokenBucket, Algorithm::FixedWindow, Algorithm::SlidingWindow] {
        for limit in [100, 60, 200] {
            let (plan, now) = (second_of(algorithm, limit), second_of(algorithm, 100));
            let mut model = ScriptModel::default();
            model.renew(&wants(&plan, 3), NOW_US);
            let lent = model.to_bytes().expect("it was renewed");
            let floats = if lent.len() == BUCKET_BYTES { 16..36 } else { 24..40 };
            let plan_at = if lent.len() == BUCKET_BYTES { 44 } else { 48 };
            let doubles = (0..floats.start).chain(plan_at..lent.len()).step_by(8);
            let mut records: Vec<Vec<u8>> = doubles
                .flat_map(|at| eights.map(|number| with(&lent, at, &number.to_le_bytes())))
                .chain(
                    floats
                        .step_by(4)
                        .flat_map(|at| eights.map(|number| with(&lent, at, &(number as f32).to_le_bytes()))),
                )
                .collect();
            // A debt that its key does not outlast.
            records.push(with(&with(&lent, 8, &(-1e6_f64).to_le_bytes()), 36, &[0, 0, 16, 0]));
            records.extend([0, 1, 35, 63, 67, 69, 255].map(|length| vec![0x40; length]));
            for record in records {
                assert_sound_or_spent(&mut store, &now, &record);
            }
        }
    }
}

/// A record of an exact limit that becomes a leased one.
#[test]
fn an_exact_record_that_no_script_left_is_no_lease_for_ever() {
    let mut store = Store::ending(CALL);
    let index = (NOW_US / 1_000_000) as f64;
    let exact = |head: &[f64], until_s: u32, plan: &[f64]| {
        let bytes = |all: &[f64]| all.iter().flat_map(|one| one.to_le_bytes()).collect::<Vec<_>>();
        [bytes(head), until_s.to_le_bytes().to_vec(), bytes(plan)].concat()
    };
    let until_s = NOW_US as u32 / 1_000_000 + 20;
    for (algorithm, record, counts_at) in [
        (Algorithm::TokenBucket, exact(&[1e6, NOW_US as f64], until_s, &[100.0, 1e6, 100.0]), 0),
        (Algorithm::FixedWindow, exact(&[index, 3.0], until_s, &[100.0, 1e6]), 8),
        (Algorithm::SlidingWindow, exact(&[index, 3.0, 4.0], until_s, &[100.0, 1e6]), 16),
    ] {
        for number in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -1.0, 1e17, 1e300, -1e300] {
            for at in (0..record.len() - 7).filter(|at| at % 4 == 0 && *at != counts_at + 4) {
                let record = with(&record, at, &number.to_le_bytes());
                assert_denies_and_admits(&mut store, &second_of(algorithm, 100), &record);
            }
        }
        // As if the key were kept for ever.
        let record = with(&record, counts_at, &1e300_f64.to_le_bytes());
        let until_at = record.len() - if algorithm == Algorithm::TokenBucket { 28 } else { 20 };
        let record = with(&record, until_at, &[0xff; 4]);
        assert_denies_and_admits(&mut store, &second_of(algorithm, 100), &record);
    }
}

/// Periods of a year and more, up to what fits 64 bits of nanoseconds: what was spent is read under another plan, and a
/// denial ends.
#[test]
fn the_longest_periods_are_leased_alike_in_both_and_deny_no_longer_than_they_last() {
    let mut store = Store::ending(CALL);
    let year = 365 * 86_400_000_000;
    for period_us in
        [year, 10 * year, 72 * year, 292 * year, 500 * year, u64::MAX / 1_000_000_000 * 1_000_000]
    {
        for algorithm in [Algorithm::TokenBucket, Algorithm::FixedWindow, Algorithm::SlidingWindow] {
            let plan = |limit| {
                let quota = quota(algorithm, limit, period_us, limit);
                let sharing = Sharing::new(&quota, 0.05, WhenDown::Local);
                Arc::new(Plan { policy: "test".into(), quota, sharing })
            };
            let key = format!("{algorithm:?}-{period_us}");
            let (old, new) = (plan(100), plan(120));
            let mut model = ScriptModel::default();
            let mut ask = |plan: &Arc<Plan>, pending, at_us| {
                let wants = wants(plan, pending);
                let grant = model.renew(&wants, at_us);
                let ([_, tokens, rate, _, deny_us, level, wait_us], record, _) =
                    renew(&mut store, &key, &wants, at_us);
                let ours = [grant.tokens, grant.rate, grant.level].map(f64::to_bits);
                assert_eq!(ours, [tokens, rate, level].map(f64::to_bits), "{key}");
                assert_eq!(model.to_bytes(), record, "{key}");
                assert!(deny_us <= 2.0 * period_us as f64 && wait_us <= 2.0 * period_us as f64, "{key}");
                tokens
            };
            assert_eq!(ask(&old, 90, NOW_US), 90.0, "{key}");
            assert_eq!(ask(&new, 40, NOW_US + 4), 30.0, "{key}");
            assert_eq!(ask(&new, 1, NOW_US + 8), 0.0, "{key}");
            assert_eq!(ask(&new, 100, NOW_US + 3 * period_us), 100.0, "{key}");
        }
    }
}

/// What a look in Rust reads, the script reads as well; what it does not, the script takes for spent.
fn assert_sound_or_spent(store: &mut Store, plan: &Arc<Plan>, record: &[u8]) {
    set(store, record);
    let look = script_model::look(record, plan, NOW_US + 1_000);
    let release = Renewal { release: true, pending: 0, ..wants(plan, 0) };
    let ([.., level, _], ..) = renew(store, "k", &release, NOW_US + 1_000);
    let read = look.map_or(0.0, |(lent, _)| lent.level);
    let is_bucket = plan.quota.algorithm() == Algorithm::TokenBucket;
    // A release books what is held of the lease that it is not: nothing.
    assert!(level == read || is_bucket && (level - read).abs() < 1e-6, "{record:?}: {level} {look:?}");
    assert_denies_and_admits(store, plan, record);
}

fn assert_denies_and_admits(store: &mut Store, plan: &Arc<Plan>, record: &[u8]) {
    set(store, record);
    let mut granted = |pending, at_us: u64| {
        let ([_, tokens, rate, lasts_us, deny_us, level, wait_us], ..) =
            renew(store, "k", &wants(plan, pending), at_us);
        let all = [tokens, rate, lasts_us, deny_us, level, wait_us];
        assert!(all.into_iter().all(f64::is_finite), "{record:?}: {all:?}");
        assert!(deny_us < 60e6 && wait_us < 60e6, "{record:?}: {all:?}");
        tokens
    };
    let at_once: f64 = (0..3).map(|_| granted(300, NOW_US + 1_000)).sum();
    assert!(at_once <= 101.0, "{record:?}: {at_once} of 100");
    let later: f64 = (1..10).map(|three| granted(1, NOW_US + three * 3_000_000)).sum();
    assert!(later >= 3.0, "{record:?}: {later} in half a minute");
}

fn set(store: &mut Store, record: &[u8]) {
    redis::cmd("SET").arg("k").arg(record).exec(&mut store.connection).expect("Redis answers");
}

fn with(record: &[u8], at: usize, bytes: &[u8]) -> Vec<u8> {
    let mut record = record.to_vec();
    record[at..at + bytes.len()].copy_from_slice(bytes);
    record
}

/// So many units a second.
fn second_of(algorithm: Algorithm, limit: u64) -> Arc<Plan> {
    let quota = quota(algorithm, limit, 1_000_000, limit);
    let sharing = Sharing::new(&quota, 0.05, WhenDown::Local);
    Arc::new(Plan { policy: "test".into(), quota, sharing })
}

/// The renewal of a node without a lease.
fn wants(plan: &Arc<Plan>, pending: u64) -> Renewal {
    let mut renewal = Renewal::report(Key::new(7), Arc::clone(plan), 0.0);
    (renewal.release, renewal.demand, renewal.pending) = (false, 1.0, pending);
    renewal
}

/// The begin of an hour.
const NOW_US: u64 = 3_600_000_000 * 400_000;

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
        renewal.refilled,
        renewal.delta,
        renewal.keep,
        f64::from(u8::from(renewal.release)),
        f64::from(u8::from(renewal.ahead)),
        now_us as f64,
    ];
    let edges = quota.calendar().map(|calendar| numbers_of(calendar.edges(Duration::from_micros(now_us))));
    let numbers = numbers.into_iter().chain(edges.unwrap_or([-1.0; 5]));
    let costs = renewal.costs.iter().map(|cost| *cost as f64);
    let packed: Vec<u8> = numbers.chain(costs).flat_map(f64::to_le_bytes).collect();
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
        record[at + 2] |= 0xf8;
        record[at + 3] = 0xff;
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
local plan, costs, renewal = {}, nil, { struct.unpack('<ddddddddddddddddddddddd', ARGV[1]) }
plan.algorithm, plan.limit, plan.period_ns, plan.burst, plan.epoch_us = unpack(renewal, 1, 5)
now_us = renewal[18]
if renewal[19] >= 0 then
  plan.edges = { first = renewal[19], renewal[20], renewal[21], renewal[22], renewal[23] }
end
for at = 185, #ARGV[1], 8 do
  costs = costs or {}
  costs[#costs + 1] = struct.unpack('<d', ARGV[1], at)
end
local epoch, demand, reported, rate, pending, hint, spent, refilled, delta, keep, is_release, is_ahead =
  unpack(renewal, 6, 17)
read_keys()
local reply = struct.pack('<ddddddd', module(7)(1, plan, epoch, demand, reported, rate, pending, hint, spent, refilled, delta,
  keep, is_release == 1, is_ahead == 1, costs))
write_keys()
return reply
"#;

/// When histories begin, seconds since 1970.
const BEGUN_S: u64 = 1_790_000_000;

/// A zone in which days, and some other windows, begin a few seconds into each history; a second later clocks go back.
fn zone_of_edges() -> &'static Zone {
    let begins_s = BEGUN_S.cast_signed() + 3;
    let offset_s = (-begins_s).rem_euclid(86_400);
    Zone::new("Test/Edges", vec![(i64::MIN, offset_s), (begins_s + 1, offset_s - 3_600)])
}

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
            Algorithm::TokenBucket => pick(&[50_000_000, 333_332_000, 500_000_000, 1_500_000_000]),
            // At last a window of up to a second that is lent until it ends.
            _ => pick(&[
                50_000_000,
                100_000_000,
                333_333_000,
                if period_ns == 1_000_000_000 { period_ns } else { 500_000_000 },
            ]),
        };
        // The limit is no longer leased.
        let epoch_ns = if seed.is_multiple_of(7) { 0 } else { epoch_ns };
        let positive = |number| std::num::NonZeroU64::new(number).expect("none of them is zero");
        let quota = Quota::new(algorithm, positive(limit), positive(period_ns), positive(burst));
        let is_of_calendar = algorithm == Algorithm::FixedWindow && seed.is_multiple_of(3);
        let unit = CalendarUnit::ALL[pick(&[0, 1, 2, 3]) as usize];
        let zone = if seed.is_multiple_of(9) { Zone::utc() } else { zone_of_edges() };
        let calendar = Calendar::new(unit, zone, 0).anchored(1 + (seed % 31) as u8);
        let quota = if is_of_calendar { quota.on_calendar(calendar) } else { quota };
        let sharing = Sharing { epoch_ns, spare: 100, when_down: WhenDown::Local };
        let plan = Arc::new(Plan { policy: "test".into(), quota, sharing });
        History { seed, is_calm, random, plan, now_us: BEGUN_S * 1_000_000, nodes: [(0, 0.0, 0.5); 5] }
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
            let left_ns = quota.window_left_ns(Duration::from_micros(self.now_us));
            return left_ns / 1_000 + period_us + MARGIN_US;
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
            let epoch_s = (self.plan.sharing.epoch_ns as f64 / 1e9).max(0.05);
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
        let wanted =
            LeaseDemand::by((0..waiting).map(|_| 1 + whole(cost_max)).collect::<Vec<_>>().into_iter());
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
            refilled: if whole(2) == 0 { 0.0 } else { fraction() * rate },
            delta,
            keep: if whole(2) == 0 { 0.0 } else { fraction() * 4.0 },
            release: whole(8) == 0,
            ahead: whole(2) == 0,
        }
    }
}
