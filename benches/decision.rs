//! What a decision costs, beside the crate governor's keyed limiter (its DashMap store) in the same run with the
//! same keys: on one hot key, over many keys in random order, and in memory at ten million keys.
//!
//! Both read a clock for every decision, as they would for a request; `now given` is without that, for governor with
//! its own clock that stands still. Percentiles come from timing single decisions, less the median of timing nothing, and, where the timer would drown the
//! decision, from the means of 64. It measures one thread; what threads do to each other is for the tests.

use std::hint::black_box;
use std::num::{NonZeroU32, NonZeroU64};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::AcqRel;
use std::time::{Duration, Instant};

use base::clock;
use criterion::{BenchmarkId, Criterion};
use governor::RateLimiter;
use governor::clock::FakeRelativeClock;
use governor::middleware::NoOpMiddleware;
use governor::state::keyed::DashMapStateStore;
use limit::lease_messages::{Grant, Op, Reply};
use limit::{Algorithm, Calendar, CalendarUnit, Charge, Key, Plan, Quota, Sharing, WhenDown, Zone};
use limiter::local::Table;
use limiter::{ClientAddress, Decision, Done, Fleet, LeaseTable, Limiter, Link};
use siphasher::sip128::{Hasher128, SipHasher13};

#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// Where the local table's memory is not the subject: the shipped size.
const MEMORY_BYTES: usize = 640 << 20;
/// Room for ten million shares of 64 bytes, an eighth of it spare.
const SHARES_BYTES: usize = 720_000_000;
/// Units a second; never reached, so every decision is an admission, the dearer outcome of governor's.
const LIMIT: u32 = 1_000_000_000;
const KEYS: [u64; 3] = [1_000, 100_000, 10_000_000];
const SAMPLES: usize = 200_000;

type Governor = governor::DefaultKeyedRateLimiter<u128>;
type GovernorOfStillClock =
    RateLimiter<u128, DashMapStateStore<u128>, FakeRelativeClock, NoOpMiddleware<governor::nanos::Nanos>>;
type GovernorByName = governor::DefaultKeyedRateLimiter<String>;

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    if let Some(position) = arguments.iter().position(|argument| argument == "--memory-of") {
        return memory_child(&arguments[position + 1]);
    }
    let mut criterion = Criterion::default()
        .warm_up_time(Duration::from_millis(500))
        .measurement_time(Duration::from_secs(2))
        .sample_size(20)
        .configure_from_args();
    if arguments.iter().any(|argument| argument == "leased") {
        leased(&mut criterion);
        return criterion.final_summary();
    }
    hot(&mut criterion);
    other_quotas(&mut criterion);
    key(&mut criterion);
    for keys in KEYS {
        many(&mut criterion, keys);
    }
    leased(&mut criterion);
    flooded(&mut criterion);
    criterion.final_summary();
    memory();
}

/// One key, over and over.
fn hot(criterion: &mut Criterion) {
    let quota = ample();
    let (limiter, governor, still) = (ours(MEMORY_BYTES), governor(), governor_of_still_clock());
    let mut group = criterion.benchmark_group("hot key");
    group.bench_function("sluicegate", |bencher| {
        bencher.iter(|| decide(&limiter, &[charge(black_box(7), quota)], clock::now_ns()))
    });
    let mut now_ns = clock::now_ns();
    group.bench_function("sluicegate, now given", |bencher| {
        bencher.iter(|| {
            now_ns += 40;
            decide(&limiter, &[charge(black_box(7), quota)], now_ns)
        })
    });
    let two = [charge(7, quota), charge(8, quota)];
    group.bench_function("sluicegate, two windows, now given", |bencher| {
        bencher.iter(|| {
            now_ns += 40;
            decide(&limiter, black_box(&two), now_ns)
        })
    });
    group.bench_function("governor", |bencher| {
        bencher.iter(|| governor.check_key(&spread(black_box(7))).is_ok())
    });
    group.bench_function("governor, now given", |bencher| {
        bencher.iter(|| still.check_key(&spread(black_box(7))).is_ok())
    });
    group.finish();
    percentiles("hot key, sluicegate", || decide(&limiter, &[charge(7, quota)], clock::now_ns()));
    percentiles("hot key, sluicegate, now given", || {
        now_ns += 40;
        decide(&limiter, &[charge(7, quota)], now_ns)
    });
    percentiles("hot key, governor", || governor.check_key(&spread(7)).is_ok());
    percentiles("hot key, governor, now given", || still.check_key(&spread(7)).is_ok());
}

/// The same hot key refused, and under the other algorithms.
fn other_quotas(criterion: &mut Criterion) {
    let limiter = ours(1 << 20);
    let governor: Governor = RateLimiter::keyed(governor::Quota::per_hour(NonZeroU32::MIN));
    let mut now_ns = clock::now_ns();
    let mut group = criterion.benchmark_group("hot key, now given");
    let hourly = |algorithm| quota(algorithm, u64::from(LIMIT) * 3_600, 3_600);
    let fixed = hourly(Algorithm::FixedWindow);
    let month = Calendar::new(CalendarUnit::Month, Zone::utc(), clock::origin_s());
    let quotas = [
        ("token bucket, denied", quota(Algorithm::TokenBucket, 1, 3_600)),
        ("fixed window", fixed),
        ("month of the calendar", fixed.on_calendar(month)),
        ("sliding window", hourly(Algorithm::SlidingWindow)),
    ];
    for (key, (name, quota)) in quotas.into_iter().enumerate() {
        let charge = charge(key as u64, quota);
        group.bench_function(name, |bencher| {
            bencher.iter(|| {
                now_ns += 40;
                decide(&limiter, black_box(std::slice::from_ref(&charge)), now_ns)
            })
        });
    }
    group.bench_function("governor, denied, its own clock", |bencher| {
        bencher.iter(|| governor.check_key(&spread(black_box(7))).is_ok())
    });
    group.finish();
}

/// Making a key of 20 bytes, which comes before every decision.
fn key(criterion: &mut Criterion) {
    let input = *b"\x08per-user\x0auser-47110";
    criterion.bench_function("key: SipHash-1-3-128 of 20 bytes", |bencher| {
        bencher.iter(|| {
            let mut hasher = SipHasher13::new_with_keys(black_box(1), black_box(2));
            std::hash::Hasher::write(&mut hasher, black_box(&input));
            hasher.finish128().as_u128()
        })
    });
}

/// That many keys, all known, in random order.
fn many(criterion: &mut Criterion, keys: u64) {
    let mut group = criterion.benchmark_group(format!("{keys} keys"));
    let (quota, mut order) = (ample(), Order(1));
    {
        let limiter = ours(MEMORY_BYTES);
        (0..keys).for_each(|key| assert!(decide(&limiter, &[charge(key, quota)], clock::now_ns())));
        let mut decide = || decide(&limiter, &[charge(order.next(keys), quota)], clock::now_ns());
        group.bench_function(BenchmarkId::from_parameter("sluicegate"), |bencher| bencher.iter(&mut decide));
        percentiles(&format!("{keys} keys, sluicegate"), decide);
        let mut now_ns = clock::now_ns();
        percentiles(&format!("{keys} keys, sluicegate, now given"), || {
            now_ns += 40;
            self::decide(&limiter, &[charge(order.next(keys), quota)], now_ns)
        });
        println!("{:?}", limiter.table().stats());
    }
    {
        let governor = governor();
        (0..keys).for_each(|key| assert!(governor.check_key(&spread(key)).is_ok()));
        let mut decide = || governor.check_key(&spread(order.next(keys))).is_ok();
        group.bench_function(BenchmarkId::from_parameter("governor"), |bencher| bencher.iter(&mut decide));
        percentiles(&format!("{keys} keys, governor"), decide);
    }
    {
        let governor = governor_of_still_clock();
        (0..keys).for_each(|key| assert!(governor.check_key(&spread(key)).is_ok()));
        percentiles(&format!("{keys} keys, governor, now given"), || {
            governor.check_key(&spread(order.next(keys))).is_ok()
        });
    }
    group.bench_function("order and key alone", |bencher| bencher.iter(|| spread(order.next(keys))));
    group.finish();
}

/// The same with leases on: keys a fleet shares, of which this node holds more than it can spend.
fn leased(criterion: &mut Criterion) {
    let quota = ample();
    let limiter = in_fleet(SHARES_BYTES);
    let plans = limiter.fleet().expect("it is made in one").plans();
    let sharing = Sharing::new(&quota, 0.05, WhenDown::Local);
    let plan = plans.id(Plan { policy: "bench".into(), quota, sharing });
    let shared = |key: u64| [Charge { plan: Some(plan), ..charge(key, quota) }];
    let mut group = criterion.benchmark_group("leased");
    // The first touch waits for Redis, which answers at once.
    let touch = |key: u64| {
        let (mut decision, now_ns) = (Decision::default(), clock::now_ns());
        if let Some(waiting) = limiter.decide(&shared(key), ClientAddress::default(), now_ns, &mut decision) {
            waiting.resume(now_ns, &mut decision);
        }
        assert!(decision.is_admitted());
    };
    touch(7);
    let mut now_ns = clock::now_ns();
    let mut hot = || {
        now_ns += 40;
        decide(&limiter, &shared(7), now_ns)
    };
    group.bench_function("hot key, now given", |bencher| bencher.iter(&mut hot));
    percentiles("leased hot key, sluicegate, now given", hot);
    for keys in KEYS {
        (0..keys).for_each(touch);
        let (mut order, mut now_ns) = (Order(1), clock::now_ns());
        let mut any = || {
            now_ns += 40;
            decide(&limiter, &shared(order.next(keys)), now_ns)
        };
        group.bench_function(BenchmarkId::from_parameter(format!("{keys} keys, now given")), |bencher| {
            bencher.iter(&mut any)
        });
        percentiles(&format!("{keys} leased keys, sluicegate, now given"), any);
        println!("{:?}", limiter.inspect().leases().map(LeaseTable::stats));
    }
    group.finish();
    bare_memory();
}

/// One random cache line of as much memory, counted up: what no table of ten million keys can be faster than.
fn bare_memory() {
    const WORDS_PER_LINE: usize = 8;
    let words: Vec<AtomicU64> =
        (0..SHARES_BYTES / size_of::<AtomicU64>()).map(|_| AtomicU64::new(1)).collect();
    let (mut order, lines) = (Order(1), words.len() / WORDS_PER_LINE);
    percentiles(&format!("one of {lines} cache lines, nothing else"), || {
        let line = spread(order.next(lines as u64)) as usize % lines;
        words[line * WORDS_PER_LINE].fetch_add(1, AcqRel) > 0
    });
}

/// A fleet's node whose every question is answered at once, with more than it can spend.
fn in_fleet(bytes: usize) -> Arc<Limiter> {
    struct Generous;
    impl Link for Generous {
        fn send(&self, _: Op, done: Done) {
            let grant = Grant { epoch: 1, tokens: 1e12, lasts_ns: 1 << 46, level: 1e12, ..Grant::default() };
            done(Ok(Reply::Grant(grant)), clock::now_ns());
        }

        fn is_up(&self, _: Key) -> bool {
            true
        }

        fn round_trip_ns(&self, _key: Key) -> u64 {
            1_000_000
        }

        fn nodes(&self) -> u32 {
            200
        }
    }
    let fleet = Fleet::new(Arc::new(Generous), bytes);
    Arc::new(Limiter::in_fleet(Table::with_memory(1 << 20), fleet))
}

/// A table full of keys none of which can be given up, and only strangers that come.
fn flooded(criterion: &mut Criterion) {
    let table = Table::with_memory(4 << 20);
    let slow = quota(Algorithm::TokenBucket, 1, 3_600);
    let now_ns = clock::now_ns();
    for key in 0..4 * table.stats().slots {
        table.take(&charge(key, slow), now_ns);
    }
    let mut stranger = 1 << 40;
    criterion.bench_function("a stranger at a table full of spent keys", |bencher| {
        bencher.iter(|| {
            stranger += 1;
            table.take(&charge(stranger, slow), now_ns).outcome
        })
    });
    println!("{:?}", table.stats());
}

/// Prints p50 and p99 of single decisions and of means of 64.
fn percentiles(name: &str, mut decide: impl FnMut() -> bool) {
    let mut sample = |batch: u32| {
        let mut times: Vec<f64> = (0..SAMPLES / batch as usize)
            .map(|_| {
                let start = Instant::now();
                for _ in 0..batch {
                    black_box(decide());
                }
                start.elapsed().as_nanos() as f64
            })
            .collect();
        times.sort_by(f64::total_cmp);
        times
    };
    let (single, mean) = (sample(1), sample(64));
    let mut nothing: Vec<f64> =
        (0..SAMPLES).map(|_| Instant::now()).map(|start| start.elapsed().as_nanos() as f64).collect();
    nothing.sort_by(f64::total_cmp);
    let timer = nothing[nothing.len() / 2];
    let at = |times: &[f64], percent: usize| times[times.len() * percent / 100];
    println!(
        "{name}: single p50 {:.0} ns, p99 {:.0} ns (timer's {timer:.0} ns taken off); means of 64 p50 {:.1} ns, p99 {:.1} ns",
        at(&single, 50) - timer,
        at(&single, 99) - timer,
        at(&mean, 50) / 64.0,
        at(&mean, 99) / 64.0,
    );
}

/// Prints bytes of resident memory a key at ten million, each in a process of its own.
fn memory() {
    for subject in ["sluicegate-640", "sluicegate-440", "governor", "governor-by-name"] {
        let program = std::env::current_exe().expect("a running benchmark has a file");
        let child = Command::new(program).args(["--memory-of", subject]).output().expect("the child starts");
        print!("{}", String::from_utf8_lossy(&child.stdout));
    }
}

fn memory_child(subject: &str) {
    const COUNT: u64 = 10_000_000;
    let quota = ample();
    let before = resident_bytes();
    let start = Instant::now();
    let fill_ours = |megabytes: usize| {
        let limiter = ours(megabytes * 1_000_000);
        (0..COUNT).for_each(|key| assert!(decide(&limiter, &[charge(key, quota)], clock::now_ns())));
        (resident_bytes(), format!("{:?}", limiter.table().stats()))
    };
    let (after, remark) = match subject {
        "sluicegate-640" => fill_ours(640),
        "sluicegate-440" => fill_ours(440),
        "governor" => {
            let governor = governor();
            (0..COUNT).for_each(|key| assert!(governor.check_key(&spread(key)).is_ok()));
            (resident_bytes(), format!("{} keys of 16 bytes", governor.len()))
        }
        _ => {
            let governor: GovernorByName = RateLimiter::keyed(governor_quota());
            (0..COUNT).for_each(|key| assert!(governor.check_key(&format!("per-user:{key:011}")).is_ok()));
            (resident_bytes(), format!("{} keys, strings of 20 bytes", governor.len()))
        }
    };
    println!(
        "memory at 10M keys, {subject}: {:.1} bytes a key, filled in {:.1} s; {remark}",
        (after - before) as f64 / COUNT as f64,
        start.elapsed().as_secs_f64(),
    );
}

/// Resident memory of this process.
fn resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/statm").expect("the benchmark runs on Linux");
    let pages = status.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok());
    pages.expect("the second number of statm is the resident pages") * 4096
}

fn ours(bytes: usize) -> Arc<Limiter> {
    let limiter = Limiter::new(Table::with_memory(bytes));
    limiter.table().declare([ample()]);
    Arc::new(limiter)
}

/// Decides as the gateway does: a decision of its own for every request.
#[inline]
fn decide(limiter: &Arc<Limiter>, charges: &[Charge], now_ns: u64) -> bool {
    let mut decision = Decision::default();
    let waiting = limiter.decide(charges, ClientAddress::default(), now_ns, &mut decision);
    debug_assert!(waiting.is_none(), "one node has nobody to wait for");
    black_box(&decision).is_admitted()
}

fn governor() -> Governor {
    RateLimiter::keyed(governor_quota())
}

fn governor_of_still_clock() -> GovernorOfStillClock {
    RateLimiter::new(governor_quota(), DashMapStateStore::default(), FakeRelativeClock::default())
}

fn governor_quota() -> governor::Quota {
    governor::Quota::per_second(NonZeroU32::new(LIMIT).expect("not zero"))
}

/// A quota is made once, with the configuration, not for every request.
fn ample() -> Quota {
    quota(Algorithm::TokenBucket, u64::from(LIMIT), 1)
}

#[inline]
fn charge(key: u64, quota: Quota) -> Charge {
    Charge::one(Key::new(spread(key)), quota)
}

fn quota(algorithm: Algorithm, limit: u64, seconds: u64) -> Quota {
    let whole = |n| NonZeroU64::new(n).expect("not zero");
    let limit = whole(limit);
    Quota::new(algorithm, limit, whole(seconds * 1_000_000_000), limit)
}

/// 128 bits as a keyed hash would spread them, cheaper: splitmix64, once for each half.
fn spread(number: u64) -> u128 {
    let half = |salt: u64| {
        let mut word = number.wrapping_mul(2).wrapping_add(salt).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ (word >> 31)
    };
    (u128::from(half(1)) << 64) | u128::from(half(2))
}

/// Numbers below a bound in an order no cache foresees (xorshift).
struct Order(u64);

impl Order {
    fn next(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        ((u128::from(self.0) * u128::from(bound)) >> 64) as u64
    }
}
