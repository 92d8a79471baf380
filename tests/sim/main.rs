//! The simulation of a fleet in virtual time, over the gateway's own limiter code.
//!
//! Without arguments: small scenes of many seeds, with every kind of trouble; what leases promise must hold in each of
//! them, and the goals on the average. `--seeds N` chooses how many, `--seed S` the first; a failure names its seed.
//!
//! `--table` prints the results of all traffic over 20, 100 and 200 nodes beside the goals, and fails where one is
//! missed by more than is known. `--long` does the same for what people configure most: windows of a minute to a day,
//! several of them, costs, thin traffic; units that get lost count most there. `--slow` plays stores that answer later
//! than a request waits, and `--windows` fixed and sliding windows of a second. `--only Hoard` plays one kind of traffic; `--nodes N`, `--limit N` (units a second) and
//! `--burst N` another fleet or limit,
//! `--exact` one that lends nothing; `--seconds N` says how long each. `--detail` prints a line a key or scene, with
//! what operations were sent for.

mod fleet;
mod judge;
mod ledger;
mod long;
mod scenes;
mod slow;
mod traffic;
mod windows;

use std::ops::Range;
use std::process::ExitCode;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::thread;

use base::random::Random;
use fleet::{Played, Scene};
use judge::Results;
use scenes::{GOALS, Goal, Other};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().collect();
    let is_asked = |name: &str| arguments.iter().any(|argument| argument == name);
    let word = |name: &str| {
        let at = arguments.iter().position(|argument| argument == name)?;
        arguments.get(at + 1)
    };
    let given = |name: &str| word(name).and_then(|word| word.parse::<u64>().ok());
    let number = |name: &str, default: u64| given(name).unwrap_or(default);
    let misses = if is_asked("--slow") {
        slow::table(number("--seed", 1), word("--only").map(String::as_str))
    } else if is_asked("--windows") {
        windows::table(number("--seed", 1), word("--only").map(String::as_str))
    } else if is_asked("--long") {
        long::table(number("--seed", 1), word("--only").map(String::as_str))
    } else if is_asked("--table") {
        let other = Other {
            nodes: given("--nodes").map(|nodes| nodes as usize),
            rate: given("--limit"),
            burst: given("--burst"),
            is_exact: is_asked("--exact"),
        };
        let mut scenes = scenes::table(number("--seed", 1), number("--seconds", 20), other);
        scenes.retain(|scene| word("--only").is_none_or(|kind| *kind == scene.name()));
        table(scenes, is_asked("--detail"))
    } else {
        let first = number("--seed", 1);
        let more = if given("--seed").is_none() { FOUND.as_slice() } else { &[] };
        small(first..first + number("--seeds", SEEDS), more, is_asked("--detail"))
    };
    for miss in &misses {
        println!("missed: {miss}");
    }
    if misses.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Many small scenes on two threads. What they promise and did not keep.
fn small(seeds: Range<u64>, more: &[u64], is_detailed: bool) -> Vec<String> {
    let scenes = seeds.chain(more.iter().copied()).map(scenes::small).collect();
    let done: Vec<(Results, Scene)> =
        on_two_threads(scenes).into_iter().map(|(scene, played)| (played.judge.results(), scene)).collect();
    let mut misses: Vec<String> = done.iter().filter_map(|(results, scene)| scene.promise(results)).collect();
    if is_detailed {
        done.iter().for_each(|(results, scene)| println!("{}", scene.line(results)));
    }
    let calm: Vec<&Results> =
        done.iter().filter(|(_, scene)| scene.is_calm()).map(|(results, _)| results).collect();
    let mean = |of: fn(&Results) -> f64| calm.iter().map(|f| of(f)).sum::<f64>() / calm.len().max(1) as f64;
    let (overage, false_deny) = (mean(|f| f.overage), mean(|f| f.false_deny));
    let requests: u64 = done.iter().map(|(results, _)| results.requests).sum();
    println!(
        "{} scenes, {requests} requests; {} without trouble: overage {overage:.4} %, false deny {false_deny:.2} %",
        done.len(),
        calm.len()
    );
    misses.extend((overage > 0.1).then(|| format!("overage {overage:.3} % on the average")));
    misses.extend((false_deny > 6.0).then(|| format!("false deny {false_deny:.2} % on the average")));
    misses
}

/// The table: every result beside its goal. The goals that are missed by more than is known.
fn table(scenes: Vec<Scene>, is_detailed: bool) -> Vec<String> {
    let played = on_two_threads(scenes);
    print!("{:8} {:>4}", "traffic", "N");
    GOALS.iter().for_each(|goal| print!(" {goal:>18}"));
    println!();
    for (scene, Played { judge, .. }) in &played {
        print!("{:8} {:>4}", scene.name(), scene.nodes);
        scene.goals(&judge.results()).iter().for_each(|goal| print!(" {:>18}", goal.to_string()));
        println!();
        if is_detailed {
            judge.detail();
        }
    }
    let goals: Vec<(&Scene, Goal)> = played
        .iter()
        .flat_map(|(scene, played)| scene.goals(&played.judge.results()).map(|goal| (scene, goal)))
        .collect();
    let missed = goals.iter().filter(|(_, goal)| !goal.is_met());
    println!("of {} goals {} are missed (!)", goals.len(), missed.count());
    let broken = goals.iter().filter(|(_, goal)| !goal.holds());
    broken
        .map(|(scene, goal)| {
            let known =
                goal.allowed.map_or(String::new(), |allowed| format!(", known to be up to {allowed}"));
            format!("{} over {} nodes: {} {goal}{known}", scene.name(), scene.nodes, GOALS[goal.index])
        })
        .collect()
}

/// Plays scenes; the judges in their order.
pub fn on_two_threads(scenes: Vec<Scene>) -> Vec<(Scene, Played)> {
    let next = AtomicUsize::new(0);
    let run = || {
        let mut done = Vec::new();
        while let index = next.fetch_add(1, Relaxed)
            && let Some(scene) = scenes.get(index)
        {
            done.push((index, fleet::run(scene)));
        }
        done
    };
    let mut done: Vec<_> = thread::scope(|scope| {
        let threads = [scope.spawn(run), scope.spawn(run)];
        threads
            .into_iter()
            .flat_map(|thread| thread.join().expect("a scene that panics fails the run"))
            .collect()
    });
    done.sort_by_key(|(index, _)| *index);
    scenes.into_iter().zip(done).map(|(scene, (_, played))| (scene, played)).collect()
}

/// A number from 0 to 1, without 1.
pub fn chance(random: &Random) -> f64 {
    (random.next() >> 11) as f64 / (1u64 << 53) as f64
}

/// Small scenes in a run of the test suite; a thousand take two minutes where nothing is optimised.
const SEEDS: u64 = 200;
/// Others in which more was admitted than is promised: units too old to be spent paid for what nodes owed, or came back
/// though the bucket had refilled in their place.
const FOUND: [u64; 3] = [1129, 1701, 3723];
