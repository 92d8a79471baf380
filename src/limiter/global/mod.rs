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
mod hints;
mod key_moves;
pub(crate) mod link;
mod membership;
mod name;
mod node;
mod pipeline;
mod probe;
mod readings;
mod ring;
mod round_trip;
mod routes;
mod script;
mod sentinel;
mod shard;
mod shared_values;
pub mod wire;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinSet;

use base::clock;
use base::random::Random;
use limit::Key;
use limit::lease_messages::{LinkError, Op};

use batch::{Asker, Entry};
use cluster::SlotMap;
pub use condition::Condition;
pub use config::Config;
use config::{Server, Topology};
pub use connection::ConnectError;
use connection::Connector;
pub use hints::{HintSender, Hints};
use key_moves::Moves;
use link::{Done, Link};
use membership::{Membership, Nodes};
use node::Locator;
use readings::Readings;
use ring::Ring;
use routes::{Route, RoutingState};
use script::Script;
use sentinel::Sentinels;
pub use shard::{Counts, ShardId};
use shard::{NodeId, Shard};
pub use shared_values::{SharedValueError, SharedValues};

/// Redis, as one process sees it.
pub struct Global {
    shared: Arc<RoutingState>,
    /// Brings keys from the servers that had them before the ring changed.
    moves: Arc<Moves>,
    dedicated: Vec<(String, u8)>,
    nodes: Arc<Nodes>,
    readings: Arc<Readings>,
    stop: watch::Sender<bool>,
    tasks: Mutex<JoinSet<()>>,
}

/// The state of one shard, and what was counted of it since the start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    /// The server's address, or in a cluster `cluster {tag}`.
    pub shard: String,
    /// The server that has the shard now; `None` before one was found.
    pub server: Option<String>,
    /// The server's own name and version, as in `redis 7.0.15`.
    pub version: Option<String>,
    /// Whether the server evicts keys when its memory is full (`maxmemory-policy` is not `noeviction`), which forgets
    /// limits.
    pub evicts: bool,
    /// What its answers and errors say of it, for logs and metrics.
    pub condition: Condition,
    /// Whether operations are sent to it: its breaker is closed.
    pub is_up: bool,
    /// Whether its answers come within the deadline, so that requests wait for them.
    pub is_quick: bool,
    /// How long nearly all calls take, nanoseconds; 0 before the first answer.
    pub round_trip_ns: u64,
    /// How long a request waits for it, nanoseconds.
    pub deadline_ns: u64,
    /// What was counted of it.
    pub counts: Counts,
}

impl Global {
    /// Reads the certificates of `ca`, as a start would, and connects to nothing: for `sluicegate check`.
    pub fn check(config: &Config) -> Result<(), ConnectError> {
        Connector::new(config, Arc::new(Script::new(script::OPERATIONS))).map(drop)
    }

    /// Connects to what `config` names, on the runtime this is called on, and stays connected until
    /// [`Global::shutdown`]. Returns at once; [`Global::ready`] waits for the connections.
    ///
    /// # Errors
    /// If a server speaks TLS and there are no certificates to trust it by.
    pub fn start(config: &Config) -> Result<Arc<Global>, ConnectError> {
        Global::connect(config, script::OPERATIONS, true)
    }

    /// The same for an observer, such as a command that only looks: it is not counted among the nodes, so that no
    /// node's even share shrinks.
    pub fn visit(config: &Config) -> Result<Arc<Global>, ConnectError> {
        Global::connect(config, script::OPERATIONS, false)
    }

    /// The same with `operations` in place of lua/take.lua: Lua text that defines the functions lua/batch.lua calls. Only a member
    /// is counted among the nodes.
    pub fn connect(config: &Config, operations: &str, is_member: bool) -> Result<Arc<Global>, ConnectError> {
        let connector = Connector::new(config, Arc::new(Script::new(operations)))?;
        let (shards, locators, route, dedicated) = lay_out(&config.topology);
        let incarnation = Random::seeded().next();
        // An observer moves no keys, because that is a write.
        let moves = Arc::new(Moves::new(match &config.topology {
            Topology::Ring { shards, .. } if is_member => shards,
            _ => &[],
        }));
        let shared =
            RoutingState::new(config.deadline, incarnation, &config.prefix, connector, shards, route);
        let shared = Arc::new(shared);
        let (stop, stopped) = watch::channel(false);
        let mut tasks = JoinSet::new();
        for named in locators {
            pipeline::start(&shared, named, config.connections, &stopped, &mut tasks);
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
            tasks.spawn(key_moves::ask(Arc::clone(&moves), Arc::clone(&shared), stop.subscribe()));
        }
        let nodes = Arc::new(Nodes::new(incarnation));
        let readings = Arc::new(Readings::new(shared.shards.len()));
        // An observer leaves no marker.
        if is_member {
            tasks.spawn(readings::keep(Arc::clone(&shared), Arc::clone(&readings), stop.subscribe()));
            tasks.spawn(Membership::new(Arc::clone(&shared), Arc::clone(&nodes)).keep(stop.subscribe()));
        }
        Ok(Arc::new(Global { shared, moves, dedicated, nodes, readings, stop, tasks: Mutex::new(tasks) }))
    }

    /// Waits, at most for `patience`, until every shard is connected or has failed with a reason.
    pub async fn ready(&self, patience: Duration) {
        let is_known = |shard: &Shard| shard.condition() != Condition::Unknown;
        let all = async {
            while !(self.shared.shards.iter().all(is_known) && self.moves.is_known()) {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        // A shard that is not ready by then is no error, because its breaker keeps requests from waiting for it.
        tokio::time::timeout(patience, all).await.ok();
    }

    /// Whether any shard has ever answered.
    pub fn has_answered(&self) -> bool {
        self.shared.shards.iter().any(|shard| shard.round_trip_ns() > 0)
    }

    /// The state of every shard, for the metrics and the admin listener.
    pub fn status(&self) -> Vec<Status> {
        let nodes = self.shared.nodes.load();
        let status = |shard: &Shard| {
            let place = nodes.get(shard.place()).and_then(|node| node.place());
            Status {
                shard: shard.name.clone(),
                server: place.as_ref().map(|place| place.0.to_string()),
                version: place.as_ref().map(|place| place.1.version.clone()),
                evicts: place.as_ref().is_some_and(|place| place.1.eviction.is_some()),
                condition: shard.condition(),
                is_up: shard.is_closed(),
                is_quick: shard.is_well(),
                round_trip_ns: shard.round_trip_ns(),
                deadline_ns: self.shared.deadline_of(shard),
                counts: shard.counts(),
            }
        };
        self.shared.shards.iter().map(status).collect()
    }

    /// The state of a shard that does not answer or refuses calls, and its error; the first of several.
    pub fn trouble(&self) -> Option<(Condition, String)> {
        self.shared.shards.iter().find_map(Shard::trouble)
    }

    /// Measures the round trip to every connected server: its name, and the median of a few `PING`s.
    pub async fn measure(&self) -> Vec<(String, Duration)> {
        let mut measured = Vec::new();
        for node in self.shared.nodes.load_full().iter() {
            let Some(place) = node.place().filter(|_| node.is_used()) else { continue };
            let Ok(connection) = self.shared.connector.plain(&place.0).await else { continue };
            let mut trips = Vec::new();
            for _ in 0..MEASURED {
                let begin_ns = clock::now_ns();
                if let Err(ConnectError::Timeout(_)) = connection.ask(&redis::cmd("PING")).await {
                    break;
                }
                trips.push(Duration::from_nanos(clock::now_ns().saturating_sub(begin_ns)));
            }
            trips.sort_unstable();
            measured.extend(trips.get(trips.len() / 2).map(|median| (place.0.to_string(), *median)));
        }
        measured
    }

    /// Sends what is queued, waits for its answers for at most half a second, and closes the connections. Operations
    /// sent after this have no answer.
    pub async fn shutdown(&self) {
        self.stop.send_replace(true);
        let mut tasks = std::mem::take(&mut *self.tasks.lock().unwrap_or_else(PoisonError::into_inner));
        while tasks.join_next().await.is_some() {}
    }
}

impl Link for Global {
    fn send(&self, op: Op, done: Done) {
        let now_ns = clock::now_ns();
        let asker = Asker::new(done);
        let keys = wire::keys(&op);
        let Some((key, _)) = keys.first() else { return asker.complete(Err(LinkError::Refused), now_ns) };
        let (key, shard) = (*key, self.shared.shard(*key));
        let is_one_call = keys.len() <= wire::PARTS_MAX
            && keys.iter().skip(1).all(|(other, _)| self.shared.shard(*other) == shard);
        drop(keys);
        if !is_one_call {
            return asker.complete(Err(LinkError::Refused), now_ns);
        }
        let entry = Entry { op, asker, shard, asked_ns: now_ns, moves: 0, asking: false, is_moving: false };
        if let Some(entry) = self.moves.hold(&self.shared, entry, key) {
            self.shared.post(entry, key, now_ns);
        }
    }

    #[inline]
    fn is_up(&self, key: Key) -> bool {
        self.shared.shards[self.shared.shard(key)].is_up()
    }

    #[inline]
    fn answers(&self, key: Key) -> bool {
        self.shared.shards[self.shared.shard(key)].is_closed()
    }

    fn refuses(&self, key: Key) -> bool {
        self.shared.shards[self.shared.shard(key)].condition().refuses()
    }

    #[inline]
    fn is_quick(&self, key: Key) -> bool {
        self.shared.shards[self.shared.shard(key)].is_quick()
    }

    #[inline]
    fn round_trip_ns(&self, key: Key) -> u64 {
        self.shared.shards[self.shared.shard(key)].round_trip_ns()
    }

    #[inline]
    fn deadline(&self, key: Key) -> Duration {
        Duration::from_nanos(self.shared.deadline_ns(self.shared.shard(key)))
    }

    fn shard_us(&self, key: Key, at_ns: u64) -> u64 {
        self.shared.shards[self.shared.shard(key)].clock_us(at_ns)
    }

    fn ramp_percent(&self, key: Key) -> u32 {
        self.shared.shards[self.shared.shard(key)].ramp_percent(clock::now_ns())
    }

    fn shard(&self, key: Key) -> ShardId {
        self.shared.shard(key)
    }

    fn shard_name(&self, shard: ShardId) -> Option<String> {
        self.shared.shards.get(shard).map(|shard| shard.name.clone())
    }

    #[inline]
    fn nodes(&self) -> u32 {
        self.nodes.count()
    }

    fn rank(&self, key: Key) -> u32 {
        self.nodes.rank(key)
    }

    fn route(&self, key: Key, tenant: Option<&str>) -> Key {
        if self.dedicated.is_empty() {
            return key;
        }
        let home = tenant.and_then(|tenant| self.dedicated.iter().find(|(name, _)| name == tenant));
        Key::new(key.bits() & !0xff | u128::from(home.map_or(0, |(_, home)| *home)))
    }
}

/// Round trips measured for one median.
const MEASURED: usize = 9;

type Layout = (Vec<Shard>, Vec<(String, Locator)>, Route, Vec<(String, u8)>);

/// The shards and nodes of a topology.
fn lay_out(topology: &Topology) -> Layout {
    let one = |name: String, locator| {
        (vec![Shard::new(name.clone(), None, NodeId::new(0))], vec![(name, locator)], Route::One, Vec::new())
    };
    match topology {
        Topology::Single(servers) => one(names_of(servers), Locator::Fixed(servers.clone())),
        Topology::Cluster(_) => {
            // The node of a tag is known only once the cluster has been asked for its slots.
            let shard =
                |tag: String| Shard::new(format!("cluster {{{tag}}}"), Some(tag), NodeId::new(usize::MAX));
            (cluster::slot::tags().into_iter().map(shard).collect(), Vec::new(), Route::Tags, Vec::new())
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
                servers
                    .iter()
                    .zip((0..).map(NodeId::new))
                    .map(|(it, at)| Shard::new(it.to_string(), None, at))
                    .collect(),
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
