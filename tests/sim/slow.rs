//! A Redis that answers later than a request waits: leases are renewed ahead of need, and limits hold.

use limit::Algorithm::TokenBucket;

use crate::fleet::Scene;
use crate::scenes::{SECOND_NS, plan};
use crate::traffic::{Kind, Traffic};

/// Plays all rows; the goals that are missed.
pub fn table(seed: u64, only: Option<&str>) -> Vec<String> {
    let scenes: Vec<Scene> =
        scenes(seed).into_iter().filter(|scene| only.is_none_or(|only| name(scene).contains(only))).collect();
    println!(
        "{:40} {:>4} {:>8} {:>8} {:>8} {:>9} {:>7}",
        "limit, traffic, one way", "N", "over %", "worst %", "short %", "fallback", "ops"
    );
    let mut misses = Vec::new();
    let played = crate::on_two_threads(scenes);
    for (scene, played) in &played {
        let (f, books) = (played.judge.results(), played.ledger.books());
        // A node that has heard nothing of a key yet spends its even share, though others may have spent all: once.
        let burst = scene.plans[0].quota.capacity() as f64;
        let goals = [
            ("over", f.overage <= 5.0),
            ("worst", f.later <= f64::max(5.0, 100.0 / burst)),
            ("first", f.worst_units <= burst),
            ("lost", books.lost <= scene.nodes as f64),
            ("held", books.held <= scene.nodes as f64),
            // Each node has an even share of what is left, and what others do not use of theirs is missed.
            ("short", scene.traffic.kind != Kind::Plain || f.false_deny <= 20.0),
        ];
        let missed: Vec<&str> =
            goals.into_iter().filter(|(_, is_met)| !is_met).map(|(name, _)| name).collect();
        println!(
            "{:40} {:>4} {:>8.2} {:>8.2} {:>8.2} {:>9.2} {:>7.3} {}",
            name(scene),
            scene.nodes,
            f.overage,
            f.worst,
            f.false_deny,
            f.fell_back,
            f.operations,
            missed.join(" ")
        );
        misses
            .extend(missed.iter().map(|goal| format!("{} over {} nodes: {goal}", name(scene), scene.nodes)));
    }
    println!("of {} rows {} miss a goal", played.len(), misses.len());
    misses
}

fn name(scene: &Scene) -> String {
    let (limit, period_ns) = (scene.plans[0].quota.limit(), scene.plans[0].quota.period_ns());
    let period_s = period_ns.get() / SECOND_NS;
    format!(
        "{limit}/{period_s}s, {:?} {}/s, {} ms",
        scene.traffic.kind,
        scene.traffic.rate,
        scene.delay_ns / 1e6
    )
}

fn scenes(seed: u64) -> Vec<Scene> {
    let mut scenes = Vec::new();
    for nodes in [1, 3, 20] {
        for limit in [10, 100, 1_000] {
            for kind in [Kind::Uniform, Kind::Sticky, Kind::Bursty] {
                for way_ms in [2.0, 10.0, 25.0] {
                    let plan = plan(TokenBucket, limit, SECOND_NS, limit, 0.05);
                    let scene = Scene::calm(nodes, plan, Traffic::at(kind, limit as f64), seed);
                    scenes.push(Scene { seconds: 20, delay_ns: way_ms * 1e6, ..scene });
                }
            }
        }
    }
    // So little refills that no lease accrues.
    for nodes in [1, 3, 20] {
        for (limit, period) in [(1_000, 3_600), (100, 60)] {
            for way_ms in [2.0, 10.0, 25.0] {
                let plan = plan(TokenBucket, limit, period * SECOND_NS, limit, 0.05);
                let scene = Scene::calm(nodes, plan, Traffic::at(Kind::Plain, 20.0), seed);
                scenes.push(Scene { seconds: 30, delay_ns: way_ms * 1e6, ..scene });
            }
        }
    }
    // Fewer units than nodes, or few more, below the limit and at nearly twice of it.
    for (nodes, limit) in [(4, 20), (20, 10), (20, 20), (20, 50)] {
        for load in [0.9, 1.8] {
            for way_ms in [2.0, 10.0, 25.0] {
                let plan = plan(TokenBucket, limit, SECOND_NS, limit, 0.05);
                let scene = Scene::calm(nodes, plan, Traffic::at(Kind::Plain, limit as f64 * load), seed);
                scenes.push(Scene { seconds: 60, delay_ns: way_ms * 1e6, ..scene });
            }
        }
    }
    scenes
}
