//! What a sweep costs with 10,000, 100,000 and a million leases of which 256 are due, in one thread and without Redis: what
//! is asked is answered at once by the scripts' twin.
//!
//! ```text
//! cargo bench --bench sweep
//! ```

use std::collections::HashMap;
use std::num::NonZeroU64;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use base::clock;
use limit::lease_messages::{LinkError, Op, Reply};
use limit::{Algorithm, Charge, Key, Plan, PlanId, Quota, ScriptModel, Sharing, WhenDown};
use limiter::local::Table;
use limiter::{ClientAddress, Decision, Done, Fleet, Limiter, Link};

fn main() {
    println!("a sweep that returns {DUE} leases, median of {SWEEPS}");
    for leases in [10_000, 100_000, 1_000_000] {
        println!("  {leases:>9} leases  {:>10.1?}", sweep(leases));
    }
}

/// The median processor time of a sweep with so many leases.
fn sweep(leases: u64) -> Duration {
    let redis = Arc::new(Redis::default());
    let fleet = Fleet::new(Arc::clone(&redis) as Arc<dyn Link>, (leases as usize * 2 + 65_536) * 64);
    let limit = NonZeroU64::new(100_000).expect("not zero");
    let second = NonZeroU64::new(SECOND_NS).expect("not zero");
    let quota = Quota::new(Algorithm::TokenBucket, limit, second, limit);
    let sharing = Sharing::new(&quota, 0.05, WhenDown::Local);
    let plan = fleet.plans().id(Plan { policy: "swept".into(), quota, sharing });
    let limiter = Arc::new(Limiter::in_fleet(Table::with_memory(1 << 16), fleet));
    // So often that it gets a lease.
    let decide = |number: u64, now_ns: u64| {
        let charge = charge(number, quota, plan);
        for earlier in (0..REQUESTS).rev() {
            let (now_ns, mut decision) = (now_ns - earlier * 10 * STEP_NS, Decision::default());
            drop(limiter.decide(&[charge], ClientAddress::default(), now_ns, &mut decision));
        }
    };
    (0..leases).for_each(|number| decide(number, NOW_NS));
    let mut took = Vec::new();
    for turn in 0..SWEEPS {
        // These have ended, and nobody has asked for them for a while.
        let first = leases + turn * DUE;
        (first..first + DUE).for_each(|number| decide(number, NOW_NS - 3 * SECOND_NS));
        let before = redis.returned.load(Ordering::Relaxed);
        let begin_ns = clock::thread_busy_ns();
        limiter.sweep(NOW_NS + turn * STEP_NS);
        took.push(Duration::from_nanos(clock::thread_busy_ns() - begin_ns));
        assert_eq!(redis.returned.load(Ordering::Relaxed) - before, DUE, "these and no others are returned");
    }
    took.sort_unstable();
    took[took.len() / 2]
}

fn charge(number: u64, quota: Quota, plan: PlanId) -> Charge {
    // Spread over the table as the hashes of real keys are.
    let mixed = (u128::from(number) + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835);
    Charge { plan: Some(plan), ..Charge::one(Key::new(mixed), quota) }
}

/// Lends what is asked for, at once.
#[derive(Default)]
struct Redis {
    records: Mutex<HashMap<Key, ScriptModel>>,
    returned: AtomicU64,
}

impl Link for Redis {
    fn send(&self, op: Op, done: Done) {
        let Op::Renew(renewal) = op else { return done(Err(LinkError::Lost), NOW_NS) };
        self.returned.fetch_add(u64::from(renewal.release), Ordering::Relaxed);
        let grant = {
            let mut records = self.records.lock().expect("there is one thread");
            records.entry(renewal.key).or_default().renew(&renewal, NOW_NS / 1_000)
        };
        done(Ok(Reply::Grant(grant)), NOW_NS);
    }

    fn is_up(&self, _key: Key) -> bool {
        true
    }

    fn round_trip_ns(&self, _key: Key) -> u64 {
        500_000
    }

    fn nodes(&self) -> u32 {
        1
    }
}

const SECOND_NS: u64 = 1_000_000_000;
const NOW_NS: u64 = 3_600 * SECOND_NS;
/// Between two sweeps. All of them are over before a lease of the others is due.
const STEP_NS: u64 = 1_000_000;
/// To each key, ten steps apart.
const REQUESTS: u64 = 5;
const SWEEPS: u64 = 21;
/// How many leases are due in each sweep.
const DUE: u64 = 256;
