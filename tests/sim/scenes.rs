//! Which scenes are played, and what each must keep.

use std::fmt;
use std::num::NonZeroU64;
use std::sync::Arc;

use base::random::Random;
use limit::{Algorithm, Plan, Quota, Sharing, WhenDown};

use crate::chance;
use crate::fleet::{Fault, Scene};
use crate::judge::Results;
use crate::traffic::{Kind, Traffic};

/// The cells of the table: 1,000 units a second (of Zipf's 20,000 keys 100), with a burst of a second, over 20, 100 and
/// 200 nodes; or another fleet, limit and burst.
pub fn table(seed: u64, seconds: u64, other: Other) -> Vec<Scene> {
    let kinds = [Kind::Uniform, Kind::Sticky, Kind::Bursty, Kind::Zipf, Kind::Shifting, Kind::Hoard];
    let sizes = other.nodes.map_or(vec![20, 100, 200], |nodes| vec![nodes]);
    let cells = kinds.into_iter().flat_map(|kind| sizes.iter().map(move |nodes| (kind, *nodes)));
    cells
        .map(|(kind, nodes)| {
            let rate = other.rate.unwrap_or(if kind == Kind::Zipf { 100 } else { 1_000 });
            let burst = other.burst.unwrap_or(rate);
            let overshoot = if other.is_exact { 0.0 } else { 0.05 };
            let plan = plan(Algorithm::TokenBucket, rate, SECOND_NS, burst, overshoot);
            Scene { seconds, ..Scene::calm(nodes, plan, Traffic::at(kind, rate as f64), seed) }
        })
        .collect()
}

/// What is asked for in place of the table's own.
#[derive(Clone, Copy, Debug)]
pub struct Other {
    pub nodes: Option<usize>,
    /// Units a second.
    pub rate: Option<u64>,
    /// Units.
    pub burst: Option<u64>,
    /// Every admission is Redis's.
    pub is_exact: bool,
}

/// A scene in which everything is chosen by the seed.
pub fn small(seed: u64) -> Scene {
    let random = Random::new(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    // The first numbers of neighbouring seeds are alike.
    for _ in 0..8 {
        random.next();
    }
    let pick = |below: u64| random.next() % below;
    let kind = [Kind::Uniform, Kind::Sticky, Kind::Bursty, Kind::Shifting, Kind::Hoard][pick(5) as usize];
    let algorithm = match pick(5) {
        0 => Algorithm::FixedWindow,
        1 => Algorithm::SlidingWindow,
        _ => Algorithm::TokenBucket,
    };
    let nodes = [2, 5, 20, 60][pick(4) as usize];
    let rate = [100, 300, 1_000][pick(3) as usize];
    let period_ns = [1, 2, 10][pick(3) as usize] * SECOND_NS;
    let limit = rate * period_ns / SECOND_NS;
    let burst = (limit * [1, 5, 10][pick(3) as usize] / 5).max(20);
    // A sliding window that may be overshot by little is exact, and nothing to simulate.
    let overshoot =
        if algorithm == Algorithm::SlidingWindow { 0.2 } else { [0.001, 0.01, 0.05, 0.2][pick(4) as usize] };
    let plan = plan(algorithm, limit, period_ns, burst, overshoot);
    let mut scene = Scene::calm(nodes, plan, Traffic::at(kind, rate as f64), seed);
    scene.seconds = 2 + 600 / (rate * if kind == Kind::Hoard { 4 } else { 1 });
    match pick(4) {
        0 => scene.loss = 0.001 + 0.02 * chance(&random),
        // Two round trips, of which a request may see the second alone, never take as long as the deadline.
        1 => scene.delay_ns = 50_000.0 + 250_000.0 * chance(&random),
        2 => scene.faults = faults(nodes, scene.seconds * SECOND_NS, &random),
        _ => {}
    }
    scene
}

/// A node that crashes and comes back, and a Redis that fails over and has lost its last writes.
fn faults(nodes: usize, end_ns: u64, random: &Random) -> Vec<(u64, Fault)> {
    let node = random.next() as usize % nodes;
    let crash_ns = (chance(random) * 0.5 * end_ns as f64) as u64;
    let away_ns = (chance(random) * 0.8 * end_ns as f64) as u64;
    let lag_ns = (chance(random) * 5e6) as u64;
    let gone_ns = (chance(random) * 0.3 * end_ns as f64) as u64;
    vec![
        (crash_ns, Fault::Crash(node)),
        (crash_ns + end_ns / 4, Fault::Join(node)),
        (away_ns, Fault::Copy),
        (away_ns + lag_ns, Fault::Away),
        (away_ns + lag_ns + gone_ns, Fault::Back),
    ]
}

impl Scene {
    /// A scene without trouble.
    pub fn calm(nodes: usize, plan: Arc<Plan>, traffic: Traffic, seed: u64) -> Scene {
        Scene {
            nodes,
            seconds: 2,
            plans: vec![plan],
            traffic,
            loss: 0.0,
            delay_ns: 250_000.0,
            faults: Vec::new(),
            seed,
        }
    }

    /// Whether nothing goes wrong in it.
    pub fn is_calm(&self) -> bool {
        self.loss == 0.0 && self.faults.is_empty()
    }

    pub fn name(&self) -> String {
        format!("{:?}", self.traffic.kind)
    }

    /// The scene and its results on one line, to find the reason for a result.
    pub fn line(&self, f: &Results) -> String {
        let (quota, sharing) = (&self.plans[0].quota, &self.plans[0].sharing);
        format!(
            "seed {:4} {:8} {:?} {} nodes, {}/{}s burst {} epoch {} ms, calm {}: over {:.3} %, worst {}, deny {:.2} %, \
             ops {:.3}, waited {:.1} %",
            self.seed,
            self.name(),
            quota.algorithm(),
            self.nodes,
            quota.limit(),
            quota.period_ns().get() / SECOND_NS,
            quota.burst(),
            sharing.epoch_ns / 1_000_000,
            self.is_calm(),
            f.overage,
            f.worst_units,
            f.false_deny,
            f.operations,
            f.waited
        )
    }

    /// Checks what the plan promises for every second of every key; returns what was broken.
    pub fn promise(&self, results: &Results) -> Option<String> {
        let (with, without) = self.plans[0].sharing.worst_overshoot(&self.plans[0].quota, self.nodes as u32);
        let allowed = if self.is_calm() { with } else { with + without };
        let is_kept = results.worst_units <= allowed + ROUNDING;
        (!is_kept).then(|| {
            format!(
                "seed {}: {} units too many in one second, {allowed:.1} are allowed: {:?} over {} nodes, {:?}, {:?}",
                self.seed, results.worst_units, self.traffic.kind, self.nodes, self.plans[0], self.faults
            )
        })
    }

    /// The goals for the results.
    pub fn goals(&self, f: &Results) -> [Goal; GOALS.len()] {
        let is_wide = self.traffic.rate / self.nodes as f64 >= 10.0;
        let is_attack = self.traffic.kind == Kind::Hoard;
        let wanted = [
            (f.overage, if is_attack { 1.5 } else { 0.1 }),
            (f.worst, 5.0),
            (f.false_deny, if is_wide { 2.5 } else { 6.0 }),
            (f.operations, f.operations_goal),
            (f.waited, if is_wide { 4.0 } else { 100.0 }),
            (f.over_limit, 3.0),
        ];
        std::array::from_fn(|index| {
            let (result, most) = wanted[index];
            let is_this =
                |miss: &&Miss| (miss.kind, miss.nodes, miss.goal) == (self.traffic.kind, self.nodes, index);
            Goal { index, result, most, allowed: MISSED.iter().find(is_this).map(|miss| miss.allowed) }
        })
    }
}

/// One goal of one scene: the result may be at most `most`.
#[derive(Clone, Copy, Debug)]
pub struct Goal {
    /// In `GOALS`.
    pub index: usize,
    pub result: f64,
    pub most: f64,
    /// Known to be missed, by no more than this.
    pub allowed: Option<f64>,
}

impl Goal {
    pub fn is_met(&self) -> bool {
        self.result <= self.most
    }

    /// Whether it is as it was: met, or missed by no more than is known.
    pub fn holds(&self) -> bool {
        self.result <= self.most.max(self.allowed.unwrap_or(0.0))
    }
}

impl fmt::Display for Goal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mark = if self.is_met() { ' ' } else { '!' };
        let digits = if self.most < 0.1 { 4 } else { 2 };
        write!(f, "{:.digits$} of {:.digits$}{mark}", self.result, self.most)
    }
}

/// A goal that is missed, and by how much at most.
struct Miss {
    kind: Kind,
    nodes: usize,
    goal: usize,
    allowed: f64,
}

const fn miss(kind: Kind, nodes: usize, goal: usize, allowed: f64) -> Miss {
    Miss { kind, nodes, goal, allowed }
}

pub fn plan(algorithm: Algorithm, limit: u64, period_ns: u64, burst: u64, overshoot: f64) -> Arc<Plan> {
    let positive = |number| NonZeroU64::new(number).expect("none of them is zero");
    let quota = Quota::new(algorithm, positive(limit), positive(period_ns), positive(burst));
    let sharing = Sharing::new(&quota, overshoot, WhenDown::Local);
    Arc::new(Plan { policy: "sim".into(), quota, sharing })
}

pub const SECOND_NS: u64 = 1_000_000_000;
/// A unit of rounding on each side.
const ROUNDING: f64 = 2.0;

/// The goals of each scene, in the order in which [`Scene::goals`] gives them.
pub const GOALS: [&str; 6] =
    ["overage %", "worst second %", "false deny %", "ops a request", "waited %", "ops/s a node"];
/// What is still missed: by a twenty-fifth more than by the worst of eight seeds when it was written down, so that it
/// gets no worse.
const MISSED: [Miss; 11] = [
    miss(Kind::Uniform, 200, 3, 0.179),
    // The last units before the first refusal are not lent.
    miss(Kind::Sticky, 20, 3, 0.0039),
    miss(Kind::Sticky, 20, 5, 3.2),
    miss(Kind::Sticky, 100, 3, 0.0041),
    miss(Kind::Sticky, 200, 3, 0.0043),
    miss(Kind::Hoard, 20, 3, 0.0082),
    miss(Kind::Hoard, 20, 5, 3.19),
    miss(Kind::Hoard, 100, 2, 4.87),
    miss(Kind::Hoard, 100, 3, 0.0432),
    miss(Kind::Hoard, 100, 5, 3.39),
    miss(Kind::Hoard, 200, 3, 0.0711),
];
