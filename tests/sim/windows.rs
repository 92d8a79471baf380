//! Fixed and sliding windows, below their limit, near it and over it: most requests are decided without Redis,
//! and a fleet refuses hardly more than one exact window.

use limit::Algorithm::{self, FixedWindow, SlidingWindow};

use crate::fleet::Scene;
use crate::scenes::{SECOND_NS, plan};
use crate::traffic::{Kind, Traffic};

/// A row of the table.
struct Row {
    scene: Scene,
    /// Operations of Redis a request, at most.
    operations: f64,
    /// What is refused of what an exact window admits, at most; percent.
    short: f64,
}

impl Row {
    fn name(&self) -> String {
        let (quota, traffic) = (&self.scene.plans[0].quota, &self.scene.traffic);
        let (algorithm, limit) = (quota.algorithm(), quota.limit());
        let period_s = quota.period_ns().get() / SECOND_NS;
        format!("{algorithm:?} {limit}/{period_s}s, {:?} {:.0}/s", traffic.kind, traffic.rate)
    }
}

/// Plays all rows; the goals that are missed.
pub fn table(seed: u64, only: Option<&str>) -> Vec<String> {
    let mut rows = rows(seed);
    rows.retain(|row| only.is_none_or(|only| row.name().contains(only)));
    println!(
        "{:40} {:>4} {:>8} {:>7} {:>8} {:>8} {:>14}",
        "limit, traffic", "N", "over %", "units", "short %", "waited %", "ops"
    );
    let played = crate::on_two_threads(rows.iter().map(|row| row.scene.clone()).collect());
    let mut misses = Vec::new();
    for (row, (scene, played)) in rows.iter().zip(&played) {
        let f = played.judge.results();
        let goals = [
            ("units", scene.promise(&f).is_none()),
            ("short", f.false_deny <= row.short),
            ("ops", f.operations <= row.operations),
        ];
        let missed: Vec<&str> =
            goals.into_iter().filter(|(_, is_met)| !is_met).map(|(name, _)| name).collect();
        println!(
            "{:40} {:>4} {:>8.3} {:>7} {:>8.2} {:>8.2} {:>6.4} of {:.3} {}",
            row.name(),
            scene.nodes,
            f.overage,
            f.worst_units,
            f.false_deny,
            f.waited,
            f.operations,
            row.operations,
            missed.join(" ")
        );
        misses.extend(missed.iter().map(|goal| format!("{} over {} nodes: {goal}", row.name(), scene.nodes)));
    }
    println!("of {} rows {} miss a goal", rows.len(), misses.len());
    misses
}

fn rows(seed: u64) -> Vec<Row> {
    let mut rows = Vec::new();
    let mut row =
        |(algorithm, limit, period_s): (Algorithm, u64, u64), nodes, kind, load: f64, operations, short| {
            let plan = plan(algorithm, limit, period_s * SECOND_NS, limit, 0.05);
            let scene =
                Scene::calm(nodes, plan, Traffic::at(kind, limit as f64 / period_s as f64 * load), seed);
            let seconds = if limit < 1_000 { 40 } else { 8 }.max(period_s * 4);
            rows.push(Row { scene: Scene { seconds, ..scene }, operations, short });
        };
    for (algorithm, limit, load, operations) in STEADY {
        for (nodes, operations) in NODES.into_iter().zip(operations) {
            // Of a share of few units a part is never spent.
            let units = limit as f64 / nodes as f64;
            let is_near = (0.9..=1.1).contains(&load);
            let short = if units < 10.0 {
                6.0
            } else if units <= 50.0 && is_near {
                4.0
            } else {
                2.5
            };
            row((algorithm, limit, 1), nodes, Kind::Plain, load, operations, short);
        }
    }
    for (algorithm, limit, operations) in MOVING {
        for (nodes, operations) in NODES.into_iter().zip(operations) {
            for kind in [Kind::Uneven, Kind::Sticky, Kind::Shifting, Kind::Bursty, Kind::Hoard] {
                row((algorithm, limit, 1), nodes, kind, 1.0, operations, 6.0);
            }
        }
    }
    for (limit, period_s, load, operations) in LONG {
        for (nodes, operations) in NODES.into_iter().zip(operations) {
            row((SlidingWindow, limit, period_s), nodes, Kind::Plain, load, operations, 2.5);
        }
    }
    rows
}

const NODES: [usize; 4] = [1, 2, 4, 20];
/// Limit, load; operations a request over so many nodes: a node asks at least once in each window. Few units that become free
/// as a sliding window ages are shared first come, first served.
const STEADY: [(Algorithm, u64, f64, [f64; 4]); 24] = [
    (FixedWindow, 1_000, 0.3, [0.020, 0.020, 0.025, 0.12]),
    (FixedWindow, 1_000, 0.6, [0.015, 0.020, 0.022, 0.075]),
    (FixedWindow, 1_000, 0.9, [0.010, 0.016, 0.022, 0.11]),
    (FixedWindow, 1_000, 1.1, [0.010, 0.020, 0.028, 0.11]),
    (FixedWindow, 1_000, 1.5, [0.010, 0.015, 0.020, 0.07]),
    (FixedWindow, 1_000, 3.0, [0.010, 0.010, 0.015, 0.035]),
    (FixedWindow, 100, 0.3, [0.050, 0.10, 0.19, 0.82]),
    (FixedWindow, 100, 0.6, [0.025, 0.055, 0.12, 0.67]),
    (FixedWindow, 100, 0.9, [0.035, 0.070, 0.18, 0.77]),
    (FixedWindow, 100, 1.1, [0.040, 0.080, 0.18, 0.74]),
    (FixedWindow, 100, 1.5, [0.025, 0.050, 0.12, 0.54]),
    (FixedWindow, 100, 3.0, [0.020, 0.030, 0.06, 0.28]),
    (SlidingWindow, 1_000, 0.3, [0.010, 0.020, 0.028, 0.12]),
    (SlidingWindow, 1_000, 0.6, [0.010, 0.010, 0.015, 0.11]),
    (SlidingWindow, 1_000, 0.9, [0.010, 0.010, 0.020, 0.43]),
    (SlidingWindow, 1_000, 1.1, [0.010, 0.010, 0.018, 0.75]),
    (SlidingWindow, 1_000, 1.5, [0.010, 0.010, 0.015, 0.81]),
    (SlidingWindow, 1_000, 3.0, [0.010, 0.010, 0.010, 0.67]),
    (SlidingWindow, 100, 0.3, [0.050, 0.10, 0.19, 0.86]),
    (SlidingWindow, 100, 0.6, [0.030, 0.062, 0.22, 0.95]),
    (SlidingWindow, 100, 0.9, [0.040, 0.090, 0.61, 1.0]),
    (SlidingWindow, 100, 1.1, [0.035, 0.072, 0.71, 1.0]),
    (SlidingWindow, 100, 1.5, [0.025, 0.065, 0.69, 1.0]),
    (SlidingWindow, 100, 3.0, [0.015, 0.025, 0.49, 1.0]),
];
/// The same of windows longer than a second: limit, seconds, load.
const LONG: [(u64, u64, f64, [f64; 4]); 9] = [
    (100, 2, 0.9, [0.36, 0.57, 0.84, 1.0]),
    (100, 2, 1.2, [0.68, 0.93, 1.0, 1.0]),
    (2_000, 2, 1.2, [0.054, 0.12, 0.27, 0.88]),
    (1_000, 10, 0.9, [0.047, 0.078, 0.14, 0.65]),
    (1_000, 10, 1.0, [0.071, 0.19, 0.38, 0.9]),
    (1_000, 10, 1.2, [0.089, 0.2, 0.48, 0.95]),
    (1_000, 10, 3.0, [0.039, 0.11, 0.33, 0.86]),
    (1_000, 60, 1.2, [0.24, 0.59, 0.89, 1.0]),
    (6_000, 60, 1.2, [0.045, 0.12, 0.28, 0.92]),
];
/// The same of traffic that moves between nodes, of loads up to eight times the limit.
const MOVING: [(Algorithm, u64, [f64; 4]); 4] = [
    (FixedWindow, 1_000, [0.010, 0.020, 0.025, 0.04]),
    (FixedWindow, 100, [0.035, 0.080, 0.17, 0.26]),
    (SlidingWindow, 1_000, [0.012, 0.013, 0.025, 0.12]),
    (SlidingWindow, 100, [0.050, 0.15, 0.37, 0.57]),
];
