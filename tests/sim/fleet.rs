//! A fleet in virtual time: nodes with shares, a centre, a network between them that delays and loses, and what may
//! happen to all of them. The arithmetic is the gateway's own; only time and messages are made up.

use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::sync::Arc;

use sluicegate::limit::central::{Grant, Renewal};
use sluicegate::limit::{Centre, Plan, Share, Told};
use sluicegate::random::Random;

use crate::chance;
use crate::judge::Judge;
use crate::traffic::Traffic;

/// What is simulated.
pub struct Scene {
    pub nodes: usize,
    pub seconds: u64,
    /// The limit of every key.
    pub plan: Arc<Plan>,
    pub traffic: Traffic,
    /// Share of messages that do not arrive.
    pub loss: f64,
    /// Mean time on the way, one way.
    pub delay_ns: f64,
    pub faults: Vec<(u64, Fault)>,
    pub seed: u64,
}

/// What happens to the fleet.
#[derive(Clone, Copy, Debug)]
pub enum Fault {
    /// A node loses its memory; its traffic goes elsewhere.
    Crash(usize),
    /// It is back, empty.
    Join(usize),
    /// What the store keeps is copied; the store will come back as of now.
    Copy,
    /// The store answers nobody.
    Away,
    /// It answers again, as of the last copy.
    Back,
}

/// Runs a scene to its end.
pub fn run(scene: &Scene) -> Judge {
    let mut fleet = Fleet::new(scene);
    while let Some(event) = fleet.queue.pop() {
        if event.at_ns >= fleet.end_ns {
            break;
        }
        fleet.now_ns = event.at_ns;
        fleet.happen(event.what);
    }
    fleet.judge
}

struct Fleet<'a> {
    scene: &'a Scene,
    random: Random,
    now_ns: u64,
    end_ns: u64,
    queue: BinaryHeap<Event>,
    events: u64,
    nodes: Vec<Node>,
    centres: Vec<Centre>,
    copy: Vec<Centre>,
    is_away: bool,
    judge: Judge,
}

struct Node {
    is_up: bool,
    /// Its clock: runs so much faster, and began elsewhere.
    drift: f64,
    offset_ns: u64,
    keys: Vec<Held>,
    /// Keys that may be idle.
    active: Vec<u32>,
}

#[derive(Clone, Default)]
struct Held {
    share: Share,
    /// Requests that wait: when each came.
    waiting: Vec<u64>,
    /// Which question is on its way.
    flight: u64,
    is_active: bool,
}

struct Event {
    at_ns: u64,
    number: u64,
    what: What,
}

enum What {
    Arrival { key: usize },
    Asked { node: usize, renewal: Renewal, sent_ns: u64, flight: u64 },
    Answered { node: usize, key: usize, grant: Grant, sent_ns: u64, flight: u64 },
    Unanswered { node: usize, renewal: Renewal, flight: u64 },
    Sweep { node: usize },
    Fault(Fault),
}

impl<'a> Fleet<'a> {
    fn new(scene: &'a Scene) -> Fleet<'a> {
        let random = Random::new(scene.seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        let keys = scene.traffic.keys();
        let nodes = (0..scene.nodes)
            .map(|_| Node {
                is_up: true,
                drift: (chance(&random) - 0.5) * 2.0 * DRIFT,
                offset_ns: HOUR_NS + (chance(&random) * 1e12) as u64,
                keys: vec![Held::default(); keys],
                active: Vec::new(),
            })
            .collect();
        let end_ns = scene.seconds * 1_000_000_000;
        let mut fleet = Fleet {
            scene,
            random,
            now_ns: 0,
            end_ns,
            queue: BinaryHeap::new(),
            events: 0,
            nodes,
            centres: vec![Centre::default(); keys],
            copy: Vec::new(),
            is_away: false,
            judge: Judge::new(&scene.plan, keys, scene.seconds),
        };
        for key in 0..keys {
            fleet.expect_arrival(key);
        }
        for node in 0..scene.nodes {
            fleet.push(SWEEP_NS * node as u64 / scene.nodes as u64, What::Sweep { node });
        }
        for (at_ns, fault) in &scene.faults {
            fleet.push(*at_ns, What::Fault(*fault));
        }
        fleet
    }

    fn push(&mut self, at_ns: u64, what: What) {
        self.events += 1;
        self.queue.push(Event { at_ns, number: self.events, what });
    }

    fn happen(&mut self, what: What) {
        match what {
            What::Arrival { key } => self.arrive(key),
            What::Asked { node, renewal, sent_ns, flight } => {
                self.ask_centre(node, &renewal, sent_ns, flight)
            }
            What::Answered { node, key, grant, sent_ns, flight } => {
                self.answered(node, key, &grant, sent_ns, flight);
            }
            What::Unanswered { node, renewal, flight } => self.unanswered(node, &renewal, flight),
            What::Sweep { node } => self.sweep(node),
            What::Fault(fault) => self.strike(fault),
        }
    }

    fn expect_arrival(&mut self, key: usize) {
        if let Some(at_ns) = self.scene.traffic.next(key, self.now_ns, &self.random) {
            self.push(at_ns, What::Arrival { key });
        }
    }

    fn arrive(&mut self, key: usize) {
        let mut node = self.scene.traffic.node(key, self.now_ns, self.scene.nodes, &self.random);
        while !self.nodes[node].is_up {
            node = (node + 1) % self.scene.nodes;
        }
        self.judge.offered(key, node, self.now_ns);
        let local_ns = self.nodes[node].local_ns(self.now_ns);
        let held = self.nodes[node].touch(key);
        match held.share.take(&self.scene.plan, 1, local_ns) {
            Told::Admitted { renew } => {
                self.judge.admitted(key, self.now_ns);
                if renew {
                    self.send(node, key);
                }
            }
            Told::Denied { .. } => {}
            Told::Ask => {
                held.waiting.push(self.now_ns);
                self.judge.waited(key);
                if !held.share.is_in_flight() {
                    self.send(node, key);
                }
            }
        }
        self.expect_arrival(key);
    }

    fn send(&mut self, node: usize, key: usize) {
        let local_ns = self.nodes[node].local_ns(self.now_ns);
        let (plan, sent_ns) = (&self.scene.plan, self.now_ns);
        let held = &mut self.nodes[node].keys[key];
        let renewal = held.share.renewal(plan, name(key), held.waiting.len() as u64, local_ns);
        held.flight += 1;
        let flight = held.flight;
        self.judge.operation(key, node);
        if let Some(way_ns) = self.way_ns() {
            let asked = What::Asked { node, renewal: renewal.clone(), sent_ns, flight };
            self.push(sent_ns + way_ns, asked);
        }
        self.push(sent_ns + DEADLINE_NS, What::Unanswered { node, renewal, flight });
    }

    fn ask_centre(&mut self, node: usize, renewal: &Renewal, sent_ns: u64, flight: u64) {
        if self.is_away {
            return;
        }
        let key = index(renewal.key);
        let grant = self.centres[key].renew(renewal, EPOCH_US + self.now_ns / 1_000);
        if renewal.release {
            return;
        }
        if let Some(way_ns) = self.way_ns() {
            self.push(self.now_ns + way_ns, What::Answered { node, key, grant, sent_ns, flight });
        }
    }

    fn answered(&mut self, node: usize, key: usize, grant: &Grant, sent_ns: u64, flight: u64) {
        let (local_ns, sent_ns) =
            (self.nodes[node].local_ns(self.now_ns), self.nodes[node].local_ns(sent_ns));
        let held = &mut self.nodes[node].keys[key];
        if held.flight != flight || !held.share.is_in_flight() {
            return;
        }
        held.share.granted(grant, sent_ns);
        let waiting = std::mem::take(&mut held.waiting);
        for came_ns in waiting {
            match held.share.take_again(&self.scene.plan, 1, local_ns) {
                Told::Admitted { .. } => self.judge.admitted(key, self.now_ns),
                Told::Denied { .. } => {}
                Told::Ask if self.now_ns - came_ns < PATIENCE_NS => held.waiting.push(came_ns),
                Told::Ask => {}
            }
        }
        if !held.waiting.is_empty() {
            self.send(node, key);
        }
    }

    /// The deadline of a question: nothing happens where it was answered.
    fn unanswered(&mut self, node: usize, renewal: &Renewal, flight: u64) {
        let key = index(renewal.key);
        let local_ns = self.nodes[node].local_ns(self.now_ns);
        let nodes = self.scene.nodes as u32;
        let held = &mut self.nodes[node].keys[key];
        if held.flight != flight || !held.share.is_in_flight() {
            return;
        }
        held.share.lost(renewal);
        for _ in std::mem::take(&mut held.waiting) {
            let told = held.share.take_alone(&self.scene.plan, 1, local_ns, nodes);
            if matches!(told, Told::Admitted { .. }) {
                self.judge.admitted(key, self.now_ns);
            }
        }
    }

    fn sweep(&mut self, node: usize) {
        let local_ns = self.nodes[node].local_ns(self.now_ns);
        let mut active = std::mem::take(&mut self.nodes[node].active);
        active.retain(|key| {
            let key = *key as usize;
            let held = &mut self.nodes[node].keys[key];
            let is_idle = held.share.is_idle(&self.scene.plan, local_ns);
            if let Some(renewal) =
                is_idle.then(|| held.share.release(&self.scene.plan, name(key), local_ns)).flatten()
            {
                self.judge.operation(key, node);
                if let Some(way_ns) = self.way_ns() {
                    let sent_ns = self.now_ns;
                    self.push(sent_ns + way_ns, What::Asked { node, renewal, sent_ns, flight: 0 });
                }
            }
            let held = &mut self.nodes[node].keys[key];
            held.is_active = !held.share.says_nothing(&self.scene.plan, local_ns);
            held.is_active
        });
        self.nodes[node].active = active;
        self.push(self.now_ns + SWEEP_NS, What::Sweep { node });
    }

    fn strike(&mut self, fault: Fault) {
        match fault {
            Fault::Crash(node) => {
                let flights: Vec<u64> = self.nodes[node].keys.iter().map(|held| held.flight).collect();
                for (held, flight) in self.nodes[node].keys.iter_mut().zip(flights) {
                    *held = Held { flight: flight + 1, ..Held::default() };
                }
                self.nodes[node].active.clear();
                self.nodes[node].is_up = false;
            }
            Fault::Join(node) => self.nodes[node].is_up = true,
            Fault::Copy => self.copy = self.centres.clone(),
            Fault::Away => self.is_away = true,
            Fault::Back => {
                self.centres = std::mem::take(&mut self.copy);
                self.is_away = false;
            }
        }
    }

    /// How long a message is on its way; `None`: for ever.
    fn way_ns(&self) -> Option<u64> {
        let is_lost = chance(&self.random) < self.scene.loss;
        (!is_lost).then(|| (self.scene.delay_ns * (0.6 + 0.8 * chance(&self.random))) as u64)
    }
}

impl Node {
    fn local_ns(&self, now_ns: u64) -> u64 {
        self.offset_ns + (now_ns as f64 * (1.0 + self.drift)) as u64
    }

    fn touch(&mut self, key: usize) -> &mut Held {
        let held = &mut self.keys[key];
        if !held.is_active {
            held.is_active = true;
            self.active.push(key as u32);
        }
        held
    }
}

impl Ord for Event {
    /// The earliest is the greatest; of two at once the one that was expected first.
    fn cmp(&self, other: &Event) -> Ordering {
        (other.at_ns, other.number).cmp(&(self.at_ns, self.number))
    }
}

impl PartialOrd for Event {
    fn partial_cmp(&self, other: &Event) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Event {
    fn eq(&self, other: &Event) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Event {}

fn name(key: usize) -> u128 {
    key as u128
}

fn index(name: u128) -> usize {
    name as usize
}

const HOUR_NS: u64 = 3_600_000_000_000;
/// The store's clock when the scene begins: a whole day, as the judge's a whole hour, so windows begin at once.
const EPOCH_US: u64 = 1_790_035_200_000_000;
/// How far apart clocks run.
const DRIFT: f64 = 2e-4;
const SWEEP_NS: u64 = 50_000_000;
/// A question without an answer is given up.
const DEADLINE_NS: u64 = 2_000_000;
/// A request waits no longer, however many answers come.
const PATIENCE_NS: u64 = 2_000_000;
