//! Fixed and sliding windows of a second, which a node asks of once or twice in each: below their limit, near it and over it.

use limit::Algorithm::{FixedWindow, SlidingWindow};

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
        format!("{:?} {}/s, {:?} {}/s", quota.algorithm(), quota.limit(), traffic.kind, traffic.rate)
    }
}

/// Plays all rows; the goals that are missed.
pub fn table(seed: u64, only: Option<&str>) -> Vec<String> {
    let mut rows = rows(seed);
    rows.retain(|row| only.is_none_or(|only| row.name().contains(only)));
    println!(
        "{:44} {:>4} {:>8} {:>7} {:>8} {:>8} {:>14}",
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
            "{:44} {:>4} {:>8.3} {:>7} {:>8.2} {:>8.2} {:>6.4} of {:.3} {}",
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
    for algorithm in [FixedWindow, SlidingWindow] {
        for (limit, seconds) in [(1_000, 8), (100, 40)] {
            for nodes in [1, 2, 4, 20] {
                let mut row = |kind, load: f64, short| {
                    let rate = limit as f64 * load;
                    let plan = plan(algorithm, limit, SECOND_NS, limit, 0.05);
                    let scene = Scene::calm(nodes, plan, Traffic::at(kind, rate), seed);
                    // Once in a window, and half as often again.
                    let operations = (1.5 * nodes as f64 / rate).max(0.02);
                    rows.push(Row { scene: Scene { seconds, ..scene }, operations, short });
                };
                for load in [0.3, 0.6, 0.9, 1.1, 1.5, 3.0] {
                    row(Kind::Plain, load, 2.5);
                }
                for kind in [Kind::Uneven, Kind::Sticky, Kind::Shifting, Kind::Bursty, Kind::Hoard] {
                    row(kind, 1.0, 6.0);
                }
            }
        }
    }
    rows
}
