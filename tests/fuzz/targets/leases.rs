//! A node's lease of a key: no words and no times are too strange for it, and it never holds more than it was given.

#![no_main]

use std::num::NonZeroU64;
use std::sync::Arc;

use libfuzzer_sys::arbitrary::{self, Arbitrary};
use libfuzzer_sys::fuzz_target;
use limit::lease_messages::{Grant, Renewal};
use limit::{Algorithm, Key, Lease, LeaseAnswer, LeaseDemand, Plan, Quota, Sharing, WhenDown};

#[derive(Arbitrary, Debug)]
struct Input {
    /// `None`: a key never seen.
    words: Option<[u64; 6]>,
    now_ns: u64,
    limit: NonZeroU64,
    period_ns: NonZeroU64,
    burst: NonZeroU64,
    is_window: bool,
    overshoot: u8,
    steps: Vec<(Time, Step)>,
}

#[derive(Arbitrary, Debug)]
enum Time {
    Same,
    Later { us: u32 },
    At { ns: u64 },
}

#[derive(Arbitrary, Debug)]
enum Step {
    Take { cost: u8 },
    TakeDear { cost: u64 },
    TakeAgain { cost: u64 },
    TakeAlone { cost: u64, nodes: u32 },
    GiveBack { cost: u64 },
    Owe { cost: u64 },
    Deny { cost: u64, wait_ns: u64 },
    Hear { remaining: u64 },
    Renew { pending: u64 },
    Granted { epoch: u32, tokens: f64, rate: f64, lasts_ns: u64, deny_ns: u64, level: f64 },
    Lost,
    Release,
}

fuzz_target!(|input: Input| {
    let algorithm = if input.is_window { Algorithm::SlidingWindow } else { Algorithm::TokenBucket };
    let quota = Quota::new(algorithm, input.limit, input.period_ns, input.burst);
    let sharing = Sharing::new(&quota, f64::from(input.overshoot) / 255.0, WhenDown::Local);
    let plan = Arc::new(Plan { policy: "p".into(), quota, sharing });
    let mut lease = input.words.map_or_else(Lease::default, Lease::from_words);
    let (mut now_ns, mut renewal) = (input.now_ns, None);
    let mut is_given = input.words.is_some();
    for (time, step) in &input.steps {
        now_ns = match time {
            Time::Same => now_ns,
            Time::Later { us } => now_ns.saturating_add(u64::from(*us) * 1_000),
            Time::At { ns } => *ns,
        };
        let before = lease;
        let told = match *step {
            Step::Take { cost } => lease.take(&plan, cost.into(), now_ns, 1 << (now_ns % 30)),
            Step::TakeDear { cost } => lease.take(&plan, cost, now_ns, 1 << (now_ns % 30)),
            Step::TakeAgain { cost } => lease.take_again(&plan, cost, now_ns, 1 << (now_ns % 30)),
            Step::TakeAlone { cost, nodes } => {
                is_given = true;
                let told = lease.take_fallback(&plan, cost, now_ns, nodes, cost % 2 == 0);
                assert!(!matches!(told, LeaseAnswer::Ask | LeaseAnswer::Denied { retry_after_ns: 0 }));
                continue;
            }
            Step::Renew { pending } => {
                let sent = lease.renewal(&plan, KEY, LeaseDemand::by_one(pending), now_ns);
                // What is owed is told, and is so much less owed here; a bucket of its own ends.
                let owed = sent.delta.max(0.0) * UNIT as f64;
                let most = held(before) as f64 + owed;
                // As far as doubles tell.
                let slack = 2.0 + (held(before) as f64).abs() * 1e-9;
                assert!(
                    held(lease) <= held(before).max(0) || held(lease) as f64 <= most + slack,
                    "{before:?} {lease:?} {sent:?}"
                );
                renewal = Some(sent);
                continue;
            }
            Step::Granted { epoch, tokens, rate, lasts_ns, deny_ns, level } => {
                is_given = true;
                let sent = renewal.clone().unwrap_or_else(|| nothing(&plan));
                lease.granted(
                    &sent,
                    &Grant { epoch, tokens, rate, lasts_ns, deny_ns, level, wait_ns: 0 },
                    now_ns,
                );
                continue;
            }
            _ => {
                others(step, &mut lease, &plan, renewal.as_ref(), now_ns);
                continue;
            }
        };
        let cost = cost_of(step);
        match told {
            LeaseAnswer::Admitted { .. } => {
                assert!(is_given, "nobody gave it anything");
                assert_eq!(held(lease), held(before).saturating_sub(fixed(cost)));
            }
            LeaseAnswer::Denied { retry_after_ns } => {
                assert!(retry_after_ns > 0 && held(lease) == held(before));
            }
            LeaseAnswer::Ask => assert_eq!(held(lease), held(before)),
        }
        assert!(lease.estimate(&plan, now_ns).0 as f64 <= plan.quota.capacity() as f64);
        let _ = (lease.is_idle(&plan, now_ns), lease.says_nothing(&plan, now_ns));
    }
});

/// A renewal that says nothing.
fn nothing(plan: &Arc<Plan>) -> Renewal {
    Lease::default().renewal(plan, KEY, LeaseDemand::default(), 0)
}

/// The steps that tell nothing.
fn others(step: &Step, lease: &mut Lease, plan: &Arc<Plan>, renewal: Option<&Renewal>, now_ns: u64) {
    let before = held(*lease);
    match *step {
        Step::GiveBack { cost } => {
            lease.give_back(cost);
            assert_eq!(held(*lease), before.saturating_add(fixed(cost)));
        }
        Step::Owe { cost } => {
            lease.owe(cost);
            assert_eq!(held(*lease), before.saturating_sub(fixed(cost)));
        }
        Step::Deny { cost, wait_ns } => {
            lease.refuse(cost, wait_ns, now_ns);
            assert!(lease.refused_for(plan, cost, now_ns).is_none_or(|left_ns| left_ns > 0));
            assert_eq!(held(*lease), before);
        }
        Step::Hear { remaining } => {
            lease.hear(remaining, remaining.saturating_mul(1_000_000), now_ns);
            // The rest of a lease that is over, less than a unit, is dropped: nobody could spend or return it.
            let is_rest = (0..UNIT).contains(&before);
            assert!(held(*lease) == before || is_rest && held(*lease) == 0, "{before} {lease:?}");
        }
        Step::Lost => {
            if let Some(renewal) = renewal {
                let is_unheard = held(*lease) % 2 == 0;
                lease.lost(renewal, is_unheard);
                assert!(is_unheard || held(*lease) <= before);
            }
        }
        _ => {
            if lease.release(plan, KEY, now_ns).is_some() {
                // A bucket of its own goes on until Redis answers a request, and has nothing more to tell.
                match lease.is_fallback() {
                    true => assert!(held(*lease) <= before && !lease.has_something_of_redis()),
                    false => assert_eq!(held(*lease), 0),
                }
            }
        }
    }
}

fn cost_of(step: &Step) -> u64 {
    match *step {
        Step::Take { cost } => cost.into(),
        Step::TakeDear { cost } | Step::TakeAgain { cost } => cost,
        _ => 0,
    }
}

/// The balance: the first word.
fn held(lease: Lease) -> i64 {
    lease.into_words()[0] as i64
}

/// Units as the balance has them.
fn fixed(units: u64) -> i64 {
    units.min(1 << 40) as i64 * UNIT
}

const KEY: Key = Key::new(7);
const UNIT: i64 = 1 << 20;
