//! The Redis that the nodes of a fleet share: one server, one behind sentinels, a cluster, or a ring.
//!
//! Any thread sends operations ([`Global::send`]) without waiting; the answer comes by a callback. Operations are gathered
//! into few script calls, and each is applied at most once, whatever happens to connections and servers. Nothing here
//! knows what a limit is or what to do without an answer: that is `limiter`'s.

mod batch;
mod cluster;
pub mod condition;
pub mod config;
mod connection;
mod failover;
mod families;
mod health_log;
mod membership;
mod moved;
mod name;
mod node;
mod pipeline;
mod probe;
mod ring;
mod round_trip;
mod routes;
mod script;
mod sentinel;
mod shard;
mod slot;
pub mod wire;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::clock;
use crate::limit::Key;
use crate::limit::lease_messages::{Op, Reply, Unanswered};
use crate::random::Random;

use batch::{Asker, Entry};
use cluster::SlotMap;
pub use condition::Condition;
pub use config::Config;
use config::{Server, Topology};
pub use connection::ConnectError;
use connection::Connector;
use membership::Membership;
use moved::Moves;
use node::{Locator, Node};
use pipeline::Pipeline;
use ring::Ring;
use routes::{Route, Shared};
use script::Script;
use sentinel::Sentinels;
use shard::Shard;

/// Redis, as one process sees it.
pub struct Global {
    shared: Arc<Shared>,
    /// What a ring was before.
    moves: Arc<Moves>,
    dedicated: Vec<(String, u8)>,
    nodes: Arc<AtomicU32>,
    stop: watch::Sender<bool>,
    tasks: Mutex<JoinSet<()>>,
}

/// How one shard is, and what was counted of it since the start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    /// A server, or a tag of a cluster.
    pub shard: String,
    /// Where it is now, once it was found.
    pub server: Option<String>,
    /// What that server calls itself, as in `redis 7.0.15`.
    pub version: Option<String>,
    /// It forgets keys when its memory is full (`maxmemory-policy` is not `noeviction`).
    pub evicts: bool,
    /// How it is.
    pub condition: Condition,
    /// Whether it is asked.
    pub is_up: bool,
    /// Its answers come within the deadline.
    pub is_quick: bool,
    /// How long nearly all calls take, nanoseconds; 0: none was answered yet.
    pub round_trip_ns: u64,
    /// Script calls made.
    pub calls: u64,
    /// Operations in them.
    pub operations: u64,
    /// Calls not answered within the deadline.
    pub late: u64,
    /// Operations without an answer.
    pub lost: u64,
    /// Operations answered with an error.
    pub refused: u64,
    /// Calls sent again.
    pub resent: u64,
    /// Connections opened.
    pub connects: u64,
    /// Times its breaker opened for trouble the shard reported.
    pub opened: u64,
}

impl Global {
    /// Reads what a start would read, the certificates of `ca`, and connects to nothing.
    ///
    /// # Errors
    /// As [`Global::start`].
    pub fn check(config: &Config) -> Result<(), ConnectError> {
        Connector::new(config, Arc::new(Script::new(script::OPERATIONS))).map(drop)
    }

    /// Connects to what `config` says, on the runtime of the caller, and keeps connected until [`Global::shutdown`].
    /// Returns at once; see [`Global::ready`].
    ///
    /// # Errors
    /// Where a server speaks TLS and there are no certificates to trust it by.
    pub fn start(config: &Config) -> Result<Arc<Global>, ConnectError> {
        Global::start_with(config, script::OPERATIONS)
    }

    /// The same for an observer: it is not counted among the nodes.
    ///
    /// # Errors
    /// As [`Global::start`].
    pub fn visit(config: &Config) -> Result<Arc<Global>, ConnectError> {
        Global::connect(config, script::OPERATIONS, false)
    }

    /// The same with `operations` in place of lua/take.lua: text that defines what lua/batch.lua calls.
    ///
    /// # Errors
    /// As [`Global::start`].
    pub fn start_with(config: &Config, operations: &str) -> Result<Arc<Global>, ConnectError> {
        Global::connect(config, operations, true)
    }

    fn connect(config: &Config, operations: &str, is_member: bool) -> Result<Arc<Global>, ConnectError> {
        let connector = Connector::new(config, Arc::new(Script::new(operations)))?;
        let deadline_ns = u64::try_from(config.deadline.as_nanos()).unwrap_or(u64::MAX);
        let (shards, locators, route, dedicated) = lay_out(&config.topology);
        let incarnation = Random::seeded().next();
        // An observer brings nothing.
        let moves = Arc::new(Moves::new(match &config.topology {
            Topology::Ring { shards, .. } if is_member => shards,
            _ => &[],
        }));
        let shared = Shared::new(deadline_ns, incarnation, &config.prefix, connector, shards, route);
        let shared = Arc::new(shared);
        let (stop, _) = watch::channel(false);
        let mut tasks = JoinSet::new();
        let mut nodes = Vec::new();
        let mut pipelines = Vec::new();
        for (index, (name, locator)) in locators.into_iter().enumerate() {
            let (node, queues) = Node::new(index, name, locator, config.connections);
            let node = Arc::new(node);
            pipelines.extend(queues.into_iter().enumerate().map(|(pipeline, queue)| {
                Pipeline::new(Arc::clone(&shared), Arc::clone(&node), pipeline, queue)
            }));
            nodes.push(node);
        }
        shared.nodes.store(Arc::new(nodes));
        for pipeline in pipelines {
            tasks.spawn(pipeline.run(stop.subscribe()));
        }
        if let Topology::Cluster(seeds) = &config.topology {
            let slot_map = SlotMap {
                shared: Arc::clone(&shared),
                seeds: seeds.clone(),
                connections: config.connections,
                stop: stop.subscribe(),
                wanted: HashMap::new(),
            };
            tasks.spawn(slot_map.keep());
        }
        if let Topology::Sentinel { .. } = &config.topology
            && let Some(node) = shared.nodes.load().first()
        {
            tasks.spawn(failover::follow(Arc::clone(&shared.connector), Arc::clone(node), stop.subscribe()));
        }
        tasks.spawn(health_log::keep(Arc::clone(&shared), stop.subscribe()));
        if !moves.is_known() {
            tasks.spawn(moved::ask(Arc::clone(&moves), Arc::clone(&shared), stop.subscribe()));
        }
        let nodes = Arc::new(AtomicU32::new(1));
        if is_member {
            tasks.spawn(Membership::new(Arc::clone(&shared), Arc::clone(&nodes)).keep(stop.subscribe()));
        }
        Ok(Arc::new(Global { shared, moves, dedicated, nodes, stop, tasks: Mutex::new(tasks) }))
    }

    /// Asks. `done` is called exactly once, on the control runtime or, where there is no room or no connection, on
    /// this thread: with the answer whenever it comes, be it after the deadline, or with what became of it. Of what is
    /// sent once that is within a second and a little; `Renew`, `Return` and `Debit` are told until they are answered,
    /// over an outage, too (see [`Unanswered`]). Neither waits nor takes a lock.
    pub fn send(&self, op: Op, done: Box<dyn FnOnce(Result<Reply, Unanswered>, u64) + Send>) {
        let now_ns = clock::now_ns();
        let asker = Asker::new(done);
        let keys = wire::keys(&op);
        let Some((key, _)) = keys.first() else { return asker.complete(Err(Unanswered::Refused), now_ns) };
        let (key, shard) = (*key, self.shared.shard(*key));
        let is_one_call = keys.len() <= wire::PARTS_MAX
            && keys.iter().skip(1).all(|(other, _)| self.shared.shard(*other) == shard);
        drop(keys);
        if !is_one_call {
            return asker.complete(Err(Unanswered::Refused), now_ns);
        }
        let entry = Entry { op, asker, shard, asked_ns: now_ns, moves: 0, asking: false, is_moving: false };
        if let Some(entry) = self.moves.hold(&self.shared, entry, key) {
            self.shared.post(entry, key, now_ns);
        }
    }

    /// Whether to ask for this key: its shard answers, or this call is one of the few that find out.
    #[inline]
    pub fn is_up(&self, key: Key) -> bool {
        self.shared.shards[self.shared.shard(key)].is_up()
    }

    /// Whether a request should wait for an answer for this key: answers come within the deadline, or this call is
    /// one of the few that find out. A shard that is up and not quick is worth asking for what can wait.
    #[inline]
    pub fn is_quick(&self, key: Key) -> bool {
        self.shared.shards[self.shared.shard(key)].is_quick()
    }

    /// How long nearly all calls for this key take, nanoseconds: the mean of the last second and four deviations. 0: none
    /// was answered yet.
    #[inline]
    pub fn round_trip_ns(&self, key: Key) -> u64 {
        self.shared.shards[self.shared.shard(key)].round_trip_ns()
    }

    /// The share of renewals that should go to this key's shard now, percent: 100, but for two seconds after it came
    /// back from an outage.
    pub fn ramp_percent(&self, key: Key) -> u32 {
        self.shared.shards[self.shared.shard(key)].ramp_percent(clock::now_ns())
    }

    /// Whether one operation may have parts of both keys.
    #[inline]
    pub fn same_shard(&self, one: Key, other: Key) -> bool {
        self.shared.shard(one) == self.shared.shard(other)
    }

    /// How many nodes share Redis, this one included; while Redis is down, the last count.
    #[inline]
    pub fn nodes(&self) -> u32 {
        self.nodes.load(Ordering::Relaxed)
    }

    /// Routes a key to its tenant's dedicated shard, if the tenant has one, by putting the shard's number into the key's
    /// lowest byte (0: the ring). With dedicated shards every key must pass here, with `None` if no tenant is known, or its
    /// own lowest byte would be read as a shard; without dedicated shards keys stay as they are.
    pub fn route(&self, key: Key, tenant: Option<&str>) -> Key {
        if self.dedicated.is_empty() {
            return key;
        }
        let home = tenant.and_then(|tenant| self.dedicated.iter().find(|(name, _)| name == tenant));
        Key::new(key.bits() & !0xff | u128::from(home.map_or(0, |(_, home)| *home)))
    }

    /// Waits until every shard has been connected to, or has said why not, at most `patience`.
    pub async fn ready(&self, patience: Duration) {
        let told = |shard: &Shard| shard.condition() != Condition::Unknown;
        let all = async {
            while !(self.shared.shards.iter().all(told) && self.moves.is_known()) {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        // The breaker finds a shard that is late.
        tokio::time::timeout(patience, all).await.ok();
    }

    /// How every shard is.
    pub fn status(&self) -> Vec<Status> {
        let nodes = self.shared.nodes.load();
        let status = |shard: &Shard| {
            let place = nodes.get(shard.node.load(Ordering::Relaxed)).and_then(|node| node.place());
            let stats = &shard.stats;
            let [calls, operations, late, lost, refused, resent, connects, opened] = [
                &stats.calls,
                &stats.operations,
                &stats.late,
                &stats.lost,
                &stats.refused,
                &stats.resent,
                &stats.connects,
                &stats.opened,
            ]
            .map(|count| count.load(Ordering::Relaxed));
            Status {
                shard: shard.name.clone(),
                server: place.as_ref().map(|place| place.0.to_string()),
                version: place.as_ref().map(|place| place.1.version.clone()),
                evicts: place.as_ref().is_some_and(|place| place.1.eviction.is_some()),
                condition: shard.condition(),
                is_up: shard.is_closed(),
                is_quick: shard.is_well(),
                round_trip_ns: shard.round_trip_ns(),
                calls,
                operations,
                late,
                lost,
                refused,
                resent,
                connects,
                opened,
            }
        };
        self.shared.shards.iter().map(status).collect()
    }

    /// Measures the round trip to every connected server: its name, and the median of some round trips.
    pub async fn measure(&self) -> Vec<(String, Duration)> {
        let mut measured = Vec::new();
        for node in self.shared.nodes.load_full().iter() {
            let Some(place) = node.place().filter(|_| node.is_used()) else { continue };
            let Ok(connection) = self.shared.connector.plain(&place.0).await else { continue };
            let mut trips = Vec::new();
            for _ in 0..MEASURED {
                let (begin_ns, ping) = (clock::now_ns(), redis::cmd("PING"));
                let patience = self.shared.connector.patience();
                if tokio::time::timeout(patience, connection.call(&ping)).await.is_err() {
                    break;
                }
                trips.push(Duration::from_nanos(clock::now_ns().saturating_sub(begin_ns)));
            }
            trips.sort_unstable();
            measured.extend(trips.get(trips.len() / 2).map(|median| (place.0.to_string(), *median)));
        }
        measured
    }

    /// Sends what is queued, waits for its answers for at most half a second, and closes the connections. What is
    /// asked from then on has no answer.
    pub async fn shutdown(&self) {
        self.stop.send_replace(true);
        let mut tasks = std::mem::take(&mut *self.tasks.lock().unwrap_or_else(PoisonError::into_inner));
        while tasks.join_next().await.is_some() {}
    }
}

/// Round trips of one measurement.
const MEASURED: usize = 9;

type Layout = (Vec<Shard>, Vec<(String, Locator)>, Route, Vec<(String, u8)>);

/// The shards and nodes of a topology.
fn lay_out(topology: &Topology) -> Layout {
    let one = |name: String, locator| {
        (vec![Shard::new(name.clone(), None, 0)], vec![(name, locator)], Route::One, Vec::new())
    };
    match topology {
        Topology::Single(servers) => one(names_of(servers), Locator::Fixed(servers.clone())),
        Topology::Cluster(_) => {
            // Nobody knows yet which node has them.
            let shard = |tag: String| Shard::new(format!("cluster {{{tag}}}"), Some(tag), usize::MAX);
            (slot::tags().into_iter().map(shard).collect(), Vec::new(), Route::Tags, Vec::new())
        }
        Topology::Sentinel { master, sentinels } => {
            let sentinels = Sentinels { master: master.as_str().into(), servers: sentinels.clone() };
            one(master.clone(), Locator::Sentinel(sentinels))
        }
        Topology::Ring { shards, dedicated } => {
            let names: Vec<String> = shards.iter().map(|shard| shard.server.to_string()).collect();
            let weights = shards.iter().map(|shard| shard.weight);
            let ring = Ring::new(names.iter().map(String::as_str).zip(weights));
            let route = Route::Ring { ring, has_dedicated: !dedicated.is_empty(), shared: shards.len() };
            let servers = shards.iter().map(|shard| &shard.server);
            let servers: Vec<&Server> = servers.chain(dedicated.iter().map(|shard| &shard.server)).collect();
            let tenants = (1..)
                .zip(dedicated)
                .flat_map(|(home, shard)| shard.tenants.iter().map(move |tenant| (tenant.clone(), home)));
            (
                servers.iter().enumerate().map(|(at, it)| Shard::new(it.to_string(), None, at)).collect(),
                servers.iter().map(|it| (it.to_string(), Locator::Fixed(vec![(*it).clone()]))).collect(),
                route,
                tenants.collect(),
            )
        }
    }
}

fn names_of(servers: &[Server]) -> String {
    servers.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
}
