//! The simulation of a fleet in virtual time, over the gateway's own limiter code.
//!
//! `cargo test --test sim` runs small scenes of many seeds; `cargo test --test sim -- --table` prints the table of
//! all traffic over 20, 100 and 200 nodes. `--seeds N`, `--seed S` and `--nodes N` choose.

mod fleet;
mod judge;
mod traffic;

use std::num::NonZeroU64;
use std::sync::Arc;

use fleet::Scene;
use judge::Figures;
use sluicegate::limit::{Algorithm, Plan, Quota, Sharing, WhenDown};
use sluicegate::random::Random;
use traffic::{Kind, Traffic};

fn main() {
    let seconds: u64 = std::env::args().nth(1).and_then(|s| s.parse().ok()).unwrap_or(10);
    let seed: u64 = std::env::args().nth(2).and_then(|s| s.parse().ok()).unwrap_or(1);
    println!(
        "{:10} {:>4} {:>8} {:>7} {:>7} {:>7} {:>7} {:>7} {:>6} {:>6}",
        "traffic", "N", "requests", "over%", "worst%", "deny%", "ops", "goal", "local%", "o/s/n"
    );
    for kind in [Kind::Uniform, Kind::Sticky, Kind::Bursty, Kind::Zipf, Kind::Shifting, Kind::Hoard] {
        for nodes in [20, 100, 200] {
            let rate = if kind == Kind::Zipf { 100 } else { 1_000 };
            let scene = Scene {
                nodes,
                seconds: if kind == Kind::Zipf { seconds.min(5) } else { seconds },
                plan: plan(rate),
                traffic: Traffic { kind, rate: rate as f64 },
                loss: 0.0,
                delay_ns: 250_000.0,
                faults: vec![],
                seed,
            };
            let judge = fleet::run(&scene);
            show(kind, nodes, &judge.figures());
            if std::env::var("DETAIL").is_ok() {
                judge.detail();
            }
        }
    }
}

fn show(kind: Kind, nodes: usize, f: &Figures) {
    println!(
        "{:10} {:>4} {:>8} {:>7.3} {:>7.2} {:>7.2} {:>7.4} {:>7.4} {:>6.2} {:>6.2}",
        format!("{kind:?}"),
        nodes,
        f.requests,
        f.overage,
        f.worst,
        f.false_deny,
        f.operations,
        f.operations_goal,
        f.local,
        f.over_limit
    );
}

fn plan(rate: u64) -> Arc<Plan> {
    let positive = |number| NonZeroU64::new(number).expect("none of them is zero");
    let quota = Quota::new(Algorithm::TokenBucket, positive(rate), positive(1_000_000_000), positive(rate));
    let sharing = Sharing { epoch_ns: 500_000_000, spare: 100, when_down: WhenDown::Local };
    Arc::new(Plan { policy: "sim".into(), quota, sharing })
}

/// A number from 0 to 1, without 1.
pub fn chance(random: &Random) -> f64 {
    (random.next() >> 11) as f64 / (1u64 << 53) as f64
}
