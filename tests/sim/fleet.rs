//! A fleet in virtual time: nodes with the gateway's own limiter, a model of Redis, a network between them that delays
//! and loses messages, and faults of all of them. Only time and the network are simulated.

use std::cmp::Ordering;
use std::collections::{BinaryHeap, HashMap};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use base::random::Random;
use limit::lease_messages::{ExactCharge, Grant, Op, Renewal, Reply, TakeReply};
use limit::{Charge, Key, Plan, PlanId, ScriptModel, State, script_model};
use limiter::local::Table;
use limiter::{ClientAddress, Decision, Done, Fleet as Shared, Limiter, Link, Waiting};
use metrics::DecidingTier;
use smallvec::SmallVec;

use crate::chance;
use crate::judge::Judge;
use crate::ledger::Ledger;
use crate::traffic::Traffic;

/// A fleet, its traffic and its faults.
#[derive(Clone)]
pub struct Scene {
    pub nodes: usize,
    pub seconds: u64,
    /// The windows of every key, in the order in which a request is charged for them.
    pub plans: Vec<Arc<Plan>>,
    pub traffic: Traffic,
    /// Share of messages that are lost and have to be sent again.
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
    /// The node is back, with an empty memory.
    Join(usize),
    /// Copies the state of Redis, which a later `Back` restores.
    Copy,
    /// Redis stops answering.
    Away,
    /// Redis answers again, with the state of the last copy.
    Back,
}

/// The outcome of a scene.
pub struct Played {
    pub judge: Judge,
    pub ledger: Ledger,
}

/// Runs a scene to its end, and as much longer as nodes may take to give everything back.
pub fn run(scene: &Scene) -> Played {
    let mut fleet = Fleet::new(scene);
    while let Some(event) = fleet.queue.pop() {
        if event.at_ns >= fleet.end_ns + REST_NS {
            break;
        }
        fleet.now_ns = event.at_ns;
        fleet.happen(event.what);
    }
    fleet.close();
    Played { judge: fleet.judge, ledger: fleet.ledger }
}

struct Fleet<'a> {
    scene: &'a Scene,
    random: Random,
    now_ns: u64,
    end_ns: u64,
    queue: BinaryHeap<Event>,
    events: u64,
    nodes: Vec<Node>,
    models: Vec<ScriptModel>,
    copy: Vec<ScriptModel>,
    /// Windows that are not lent, by name.
    exact: HashMap<Key, State>,
    is_away: bool,
    judge: Judge,
    ledger: Ledger,
}

struct Node {
    is_up: bool,
    /// Its clock: runs so much faster, and began elsewhere (`Wire::offset_ns`).
    drift: f64,
    limiter: Arc<Limiter>,
    wire: Arc<Wire>,
    /// The numbers it gave the plans.
    plans: Vec<PlanId>,
    waiting: Vec<Request>,
}

/// A request that waits.
struct Request {
    key: usize,
    /// Its number among those of its key.
    number: u64,
    cost: u64,
    since_ns: u64,
    decision: Decision,
    waiting: Waiting,
}

/// One node's way to Redis: what it sends is taken up by the simulation.
struct Wire {
    nodes: u32,
    /// Which of them this is.
    number: u32,
    /// Both ways at their longest, nanoseconds.
    round_trip_ns: u64,
    /// When the node's clock began, nanoseconds.
    offset_ns: u64,
    is_up: AtomicBool,
    sent: Mutex<Vec<(Op, Done)>>,
}

impl Link for Wire {
    fn send(&self, op: Op, done: Done) {
        self.sent.lock().expect("a scene has one thread").push((op, done));
    }

    fn is_up(&self, _key: Key) -> bool {
        self.is_up.load(Relaxed)
    }

    fn round_trip_ns(&self, _key: Key) -> u64 {
        self.round_trip_ns
    }

    fn shard_us(&self, _key: Key, at_ns: u64) -> u64 {
        DAY_US + at_ns.saturating_sub(self.offset_ns) / 1_000
    }

    fn deadline(&self, _key: Key) -> Duration {
        Duration::from_nanos(DEADLINE_NS)
    }

    fn is_quick(&self, key: Key) -> bool {
        self.is_up(key) && self.round_trip_ns <= DEADLINE_NS
    }

    fn nodes(&self) -> u32 {
        self.nodes
    }

    fn rank(&self, key: Key) -> u32 {
        (self.number + key.high() as u32) % self.nodes
    }
}

struct Event {
    at_ns: u64,
    number: u64,
    what: What,
}

enum What {
    Arrival {
        key: usize,
    },
    /// A question is at Redis.
    Asked {
        node: usize,
        renewal: Renewal,
        /// How long the answer is on its way.
        back_ns: u64,
        done: Done,
    },
    /// Something else than a renewal is at Redis.
    AskedExact {
        node: usize,
        op: Op,
        back_ns: u64,
        done: Done,
    },
    AnsweredExact {
        node: usize,
        reply: Reply,
        done: Done,
    },
    Answered {
        node: usize,
        key: Key,
        grant: Grant,
        done: Done,
    },
    Deadline {
        node: usize,
    },
    Sweep {
        node: usize,
    },
    Fault(Fault),
}

impl<'a> Fleet<'a> {
    fn new(scene: &'a Scene) -> Fleet<'a> {
        let random = Random::new(scene.seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        let keys = scene.traffic.keys();
        let end_ns = scene.seconds * 1_000_000_000;
        let nodes = (0..scene.nodes).map(|number| Node::new(scene, number, &random)).collect();
        let mut fleet = Fleet {
            scene,
            random,
            now_ns: 0,
            end_ns,
            queue: BinaryHeap::new(),
            events: 0,
            nodes,
            models: vec![ScriptModel::default(); keys * scene.plans.len()],
            copy: Vec::new(),
            exact: HashMap::new(),
            is_away: false,
            judge: Judge::new(&scene.plans[0], keys, scene.seconds),
            ledger: Ledger::new(&scene.plans, keys),
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
            What::Asked { node, renewal, back_ns, done } => self.ask_redis(node, renewal, back_ns, done),
            What::Answered { node, key, grant, done } => {
                if let Some(key) = self.judged(key) {
                    self.judge.granted(key, node, self.now_ns + grant.lasts_ns);
                }
                done(Ok(Reply::Grant(grant)), self.nodes[node].local_ns(self.now_ns));
                self.resume(node);
                self.carry(node);
            }
            What::AskedExact { node, op, back_ns, done } => {
                let reply = self.act(&op);
                self.push(self.now_ns + back_ns, What::AnsweredExact { node, reply, done });
            }
            What::AnsweredExact { node, reply, done } => {
                done(Ok(reply), self.nodes[node].local_ns(self.now_ns));
                self.resume(node);
                self.carry(node);
            }
            What::Deadline { node } => self.resume(node),
            What::Sweep { node } => {
                self.nodes[node].limiter.sweep(self.nodes[node].local_ns(self.now_ns));
                self.carry(node);
                self.push(self.now_ns + SWEEP_NS, What::Sweep { node });
            }
            What::Fault(fault) => self.strike(fault),
        }
    }

    fn expect_arrival(&mut self, key: usize) {
        if let Some(at_ns) = self.scene.traffic.next(key, self.now_ns, &self.random)
            && at_ns < self.end_ns
        {
            self.push(at_ns, What::Arrival { key });
        }
    }

    /// The key whose first window this is: what the judge looks at.
    fn judged(&self, name: Key) -> Option<usize> {
        let index = index(name);
        index.is_multiple_of(self.scene.plans.len()).then_some(index / self.scene.plans.len())
    }

    fn arrive(&mut self, key: usize) {
        let mut node = self.scene.traffic.node(key, self.now_ns, self.scene.nodes, &self.random);
        while !self.nodes[node].is_up {
            node = (node + 1) % self.scene.nodes;
        }
        let cost = self.scene.traffic.cost(&self.random);
        self.judge.offered(key, node, cost, self.now_ns);
        let number = self.ledger.offered(key, cost, self.now_ns);
        let here = &mut self.nodes[node];
        let charges = here.charges(self.scene, key, cost);
        let mut decision = Decision::default();
        let now_ns = here.local_ns(self.now_ns);
        match here.limiter.decide(&charges, ClientAddress::default(), now_ns, &mut decision) {
            Some(waiting) => {
                here.waiting.push(Request { key, number, cost, since_ns: self.now_ns, decision, waiting });
                self.judge.waited(key);
                self.push(self.now_ns + DEADLINE_NS, What::Deadline { node });
            }
            None => self.decided(key, number, cost, &decision),
        }
        self.carry(node);
        self.expect_arrival(key);
    }

    fn decided(&mut self, key: usize, number: u64, cost: u64, decision: &Decision) {
        if decision.tier == DecidingTier::Fallback {
            self.judge.fell_back();
        }
        if decision.is_admitted() {
            self.judge.admitted(key, cost, self.now_ns);
        }
        self.ledger.decided(key, number, cost, decision, self.now_ns);
    }

    /// Compares what is left everywhere with what one exact limit would have left.
    fn close(&mut self) {
        let at_us = EPOCH_US + self.now_ns / 1_000;
        for (index, model) in self.models.iter().enumerate() {
            let (key, window) = (index / self.scene.plans.len(), index % self.scene.plans.len());
            let plan = &self.scene.plans[window];
            let record = model.to_bytes();
            let level =
                record.and_then(|bytes| script_model::look(&bytes, plan, at_us)).map(|(lent, _)| lent.level);
            let held = self.nodes.iter().filter_map(|node| {
                let leases = node.limiter.inspect().leases()?;
                leases.view(name(index), node.local_ns(self.now_ns)).map(|view| view.held)
            });
            self.ledger.close(key, window, level, held.map(|held| held.max(0.0)).sum(), self.now_ns);
        }
    }

    /// Takes up what a node has sent, and decides what becomes of it on the way.
    fn carry(&mut self, node: usize) {
        let mut sent =
            std::mem::take(&mut *self.nodes[node].wire.sent.lock().expect("a scene has one thread"));
        // The limiter keeps what it watches in no order; a scene is the same each time it is played.
        sent.sort_by_key(|(op, _)| if let Op::Renew(renewal) = op { renewal.key } else { Key::default() });
        for (op, done) in sent {
            self.ledger.operation();
            let Op::Renew(renewal) = op else {
                self.judge.asked(&op, node);
                let (there_ns, back_ns) = (self.way_ns(), self.way_ns());
                self.push(self.now_ns + there_ns, What::AskedExact { node, op, back_ns, done });
                continue;
            };
            if let Some(key) = self.judged(renewal.key) {
                self.judge.operation(key, node, &renewal, self.now_ns);
            }
            let (there_ns, back_ns) = (self.way_ns(), self.way_ns());
            self.push(self.now_ns + there_ns, What::Asked { node, renewal, back_ns, done });
        }
    }

    /// What Redis does with windows that are not lent.
    fn act(&mut self, op: &Op) -> Reply {
        let at_us = DAY_US + self.now_ns / 1_000;
        let mut change = |part: &ExactCharge, change: &dyn Fn(State) -> State| {
            let state = self.exact.entry(part.key).or_default();
            *state = change(*state);
        };
        match op {
            Op::Take(parts) => {
                let state = |part: &ExactCharge| self.exact.get(&part.key).copied().unwrap_or_default();
                let taken =
                    parts.iter().map(|part| state(part).take(&part.plan.quota, part.cost, at_us * 1_000));
                let (states, outcomes): (Vec<_>, SmallVec<[_; 2]>) = taken.unzip();
                let admitted = outcomes.iter().all(|outcome| outcome.is_admitted());
                if admitted {
                    self.exact.extend(parts.iter().map(|part| part.key).zip(states));
                }
                return Reply::Taken(TakeReply { at_us, outcomes, admitted });
            }
            Op::Return { parts, taken_us } => parts.iter().for_each(|part| {
                change(part, &|state| state.give_back(&part.plan.quota, part.cost, taken_us * 1_000));
            }),
            Op::Repay(parts) => parts.iter().for_each(|part| {
                change(part, &|state| state.repay(&part.plan.quota, part.cost, at_us * 1_000));
            }),
            Op::Report { parts, spent_us } => parts.iter().for_each(|part| {
                let (spent_ns, at_ns) = (spent_us * 1_000, at_us * 1_000);
                change(part, &|state| state.report(&part.plan.quota, part.cost, spent_ns, at_ns));
            }),
            Op::Debit(parts) => parts.iter().for_each(|part| {
                change(part, &|state| state.debit(&part.plan.quota, part.cost, at_us * 1_000));
            }),
            _ => unreachable!("no scene asks that"),
        }
        Reply::Returned
    }

    /// A renewal for a Redis that is down is sent again until it is answered, as a numbered batch is.
    fn ask_redis(&mut self, node: usize, renewal: Renewal, back_ns: u64, done: Done) {
        if self.is_away {
            return self.push(self.now_ns + AGAIN_NS, What::Asked { node, renewal, back_ns, done });
        }
        let grant = self.models[index(renewal.key)].renew(&renewal, EPOCH_US + self.now_ns / 1_000);
        self.push(self.now_ns + back_ns, What::Answered { node, key: renewal.key, grant, done });
    }

    /// Ends the waits that are answered or over.
    fn resume(&mut self, node: usize) {
        let now_ns = self.now_ns;
        let here = &mut self.nodes[node];
        let local_ns = here.local_ns(now_ns);
        let mut done = Vec::new();
        for index in (0..here.waiting.len()).rev() {
            let request = &here.waiting[index];
            if request.waiting.is_resolved() || now_ns - request.since_ns >= DEADLINE_NS {
                done.push(here.waiting.swap_remove(index));
            }
        }
        for Request { key, number, cost, mut decision, waiting, .. } in done {
            waiting.resume(local_ns, &mut decision);
            self.decided(key, number, cost, &decision);
        }
    }

    fn strike(&mut self, fault: Fault) {
        match fault {
            Fault::Crash(node) => {
                let again = Node::new(self.scene, node, &self.random);
                self.nodes[node] = Node { is_up: false, ..again };
                self.nodes[node].wire.is_up.store(!self.is_away, Relaxed);
            }
            Fault::Join(node) => self.nodes[node].is_up = true,
            Fault::Copy => self.copy = self.models.clone(),
            Fault::Away | Fault::Back => {
                self.is_away = matches!(fault, Fault::Away);
                if !self.is_away {
                    self.models = std::mem::take(&mut self.copy);
                }
                self.nodes.iter().for_each(|node| node.wire.is_up.store(!self.is_away, Relaxed));
            }
        }
    }

    /// How long a message is on its way. One that is lost is sent again until it arrives.
    fn way_ns(&self) -> u64 {
        let mut way_ns =
            (self.scene.delay_ns * (WAY_MIN + (WAY_MAX - WAY_MIN) * chance(&self.random))) as u64;
        while chance(&self.random) < self.scene.loss {
            way_ns += AGAIN_NS;
        }
        way_ns
    }
}

impl Node {
    fn new(scene: &Scene, number: usize, random: &Random) -> Node {
        let nodes = scene.nodes as u32;
        let round_trip_ns = (scene.delay_ns * 2.0 * WAY_MAX) as u64;
        let (number, is_up, sent) = (number as u32, AtomicBool::new(true), Mutex::default());
        let drift = (chance(random) - 0.5) * 2.0 * DRIFT;
        let offset_ns = HOUR_NS + (chance(random) * 1e12) as u64;
        let wire = Arc::new(Wire { nodes, number, round_trip_ns, offset_ns, is_up, sent });
        let bytes = (scene.traffic.keys() * scene.plans.len() * 96).max(1 << 14);
        let link = Arc::clone(&wire) as Arc<dyn Link>;
        let shared = Shared::new(link, bytes);
        let limiter = Arc::new(Limiter::in_fleet(Table::with_memory(1 << 12), shared));
        let fleet = limiter.fleet().expect("it is one of a fleet");
        let plans = scene.plans.iter().map(|plan| fleet.plans().id(Plan::clone(plan))).collect();
        Node { is_up: true, drift, limiter, wire, plans, waiting: Vec::new() }
    }

    /// What a request is charged for.
    fn charges(&self, scene: &Scene, key: usize, cost: u64) -> Vec<Charge> {
        let windows = scene.plans.iter().zip(&self.plans).enumerate();
        windows
            .map(|(window, (plan, number))| Charge {
                cost,
                plan: Some(*number),
                ..Charge::one(name(key * scene.plans.len() + window), plan.quota)
            })
            .collect()
    }

    fn local_ns(&self, now_ns: u64) -> u64 {
        self.wire.offset_ns + (now_ns as f64 * (1.0 + self.drift)) as u64
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

/// A key's hash, both halves spread as real ones are, from whose lowest bits its number can be read back.
fn name(key: usize) -> Key {
    let number = key as u64 + 1;
    let spread = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    Key::new(u128::from(spread) << 64 | u128::from(spread & !NUMBER | number))
}

pub fn index(name: Key) -> usize {
    (name.low() & NUMBER) as usize - 1
}

/// A way takes between these parts of the mean.
const WAY_MIN: f64 = 0.6;
const WAY_MAX: f64 = 1.4;
/// Where a key's number stands in its name.
const NUMBER: u64 = (1 << 24) - 1;
const HOUR_NS: u64 = 3_600_000_000_000;
/// Redis's clock when the scene begins: a whole day, as the judge's a whole hour, so windows begin at once.
const EPOCH_US: u64 = 1_790_035_200_000_000;
/// The same of windows that are not lent, which this process counts by its own clock.
const DAY_US: u64 = 86_400_000_000;
/// How far apart clocks run.
const DRIFT: f64 = 2e-4;
const SWEEP_NS: u64 = 50_000_000;
/// After the last request nothing is held any more when so long has passed.
const REST_NS: u64 = 2_000_000_000;
/// A lost message is sent again after this time.
const AGAIN_NS: u64 = 100_000_000;
/// How long a request waits for Redis.
const DEADLINE_NS: u64 = 2_000_000;
