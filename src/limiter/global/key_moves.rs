//! Moves keys after a ring has changed: a key that another server had before is fetched from there when it is first
//! asked about, so that it has no second burst.
//!
//! Nodes write on each server of a ring which servers the ring has; a node that starts with another ring reads there what
//! it was. Keys of servers that have left the ring are not fetched.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use redis::Value;
use tokio::runtime::Handle;
use tokio::sync::watch;

use base::clock;
use base::ids::IdVec;
use limit::{Key, Plan};

use super::batch::Entry;
use super::config::WeightedServer;
use super::connection::{CONNECT_WITHIN, Connection};
use super::ring::{Ring, RingServer};
use super::routes::RoutingState;
use super::shard::ShardId;
use super::wire;

/// The ring before this one, and which of its keys have been moved.
pub(super) struct Moves {
    /// This ring as text, one server and weight a line; empty if the topology is not a ring.
    layout: String,
    /// Every server has been asked at least once for the ring it was in.
    is_known: AtomicBool,
    before: ArcSwapOption<EarlierRing>,
    runtime: Handle,
    /// Keys that have been moved, or of which the old server had nothing.
    brought: Mutex<HashSet<Key>>,
    /// How many operations wait for their keys.
    waiting: AtomicUsize,
    connections: tokio::sync::Mutex<HashMap<ShardId, Connection>>,
}

/// The earlier ring, and which of the present shards its servers are.
struct EarlierRing {
    ring: Ring,
    shards: IdVec<RingServer, Option<ShardId>>,
}

/// A key, its name, and the shard that had it.
struct MovedKey {
    key: Key,
    name: Vec<u8>,
    from: ShardId,
}

impl Moves {
    /// For a ring of these servers, or with none for any other topology. Its tasks run on the runtime this is called
    /// on.
    pub(super) fn new(servers: &[WeightedServer]) -> Moves {
        let mut lines: Vec<_> = servers.iter().map(|it| format!("{} {}", it.server, it.weight)).collect();
        lines.sort();
        Moves {
            layout: lines.join("\n"),
            is_known: AtomicBool::new(lines.is_empty()),
            before: ArcSwapOption::empty(),
            runtime: Handle::current(),
            brought: Mutex::default(),
            waiting: AtomicUsize::new(0),
            connections: tokio::sync::Mutex::default(),
        }
    }

    pub(super) fn is_known(&self) -> bool {
        self.is_known.load(Ordering::Relaxed)
    }

    /// Takes the ring that a server remembers as the earlier one.
    fn learn(&self, shared: &RoutingState, layout: &str) {
        let parse = |line: &str| {
            let (name, weight) = line.rsplit_once(' ')?;
            Some((name.to_owned(), weight.parse::<u32>().ok().filter(|weight| (1..=100).contains(weight))?))
        };
        let servers: Vec<(String, u32)> = layout.lines().filter_map(parse).take(SERVERS_MAX).collect();
        if servers.is_empty() || self.before.load().is_some() {
            return;
        }
        let shard = |(name, _): &(String, u32)| shared.shards.find_id(|shard| shard.name == *name);
        let shards: IdVec<_, _> = servers.iter().map(shard).collect();
        let left = shards.iter().filter(|shard| shard.is_none()).count();
        let ring = Ring::new(servers.iter().map(|(name, weight)| (name.as_str(), *weight)));
        tracing::info!(
            servers_before = servers.len(),
            servers_removed = left,
            "the list of Redis servers has changed: keys move from their previous servers"
        );
        self.before.store(Some(Arc::new(EarlierRing { ring, shards })));
    }

    /// The shard that had a key before, if it is another one and still in the ring.
    fn from(&self, shared: &RoutingState, key: Key) -> Option<ShardId> {
        let before = self.before.load();
        let before = before.as_ref()?;
        let shard = shared.shard(key);
        let from = (*before.shards.get(before.ring.server(key))?)?;
        (from != shard && !shared.is_dedicated(shard)).then_some(from)
    }

    /// Keeps an operation whose keys have to be moved first; returns any other.
    pub(super) fn hold(
        self: &Arc<Moves>,
        shared: &Arc<RoutingState>,
        entry: Entry,
        key: Key,
    ) -> Option<Entry> {
        if self.before.load().is_none() {
            return Some(entry);
        }
        let keys = self.to_be_brought(shared, &entry);
        if keys.is_empty() {
            return Some(entry);
        }
        if self.waiting.fetch_add(1, Ordering::Relaxed) >= WAITING_MAX {
            self.waiting.fetch_sub(1, Ordering::Relaxed);
            return Some(entry);
        }
        let (moves, shared) = (Arc::clone(self), Arc::clone(shared));
        self.runtime.spawn(async move {
            moves.bring_all(&shared, keys).await;
            moves.waiting.fetch_sub(1, Ordering::Relaxed);
            shared.post(entry, key, clock::now_ns());
        });
        None
    }

    /// The keys of an operation that were on another server, which answers, and have not been moved yet.
    fn to_be_brought(&self, shared: &RoutingState, entry: &Entry) -> Vec<MovedKey> {
        let brought = self.brought.lock().unwrap_or_else(PoisonError::into_inner);
        let leaving = |(key, plan): (Key, &Plan)| {
            let from = self.from(shared, key).filter(|_| !brought.contains(&key))?;
            let mut name = Vec::new();
            shared.names.write_key(&mut name, None, plan, key);
            shared.shards[from].is_closed().then_some(MovedKey { key, name, from })
        };
        wire::keys(&entry.op).into_iter().filter_map(leaving).collect()
    }

    async fn bring_all(&self, shared: &RoutingState, keys: Vec<MovedKey>) {
        for MovedKey { key, name, from } in keys {
            let bring = self.bring(shared, from, shared.shard(key), &name);
            // If a key cannot be moved in time, its operation is sent anyway, and the next operation on the key tries
            // again.
            if tokio::time::timeout(CONNECT_WITHIN, bring).await.is_ok_and(|brought| brought.is_some()) {
                let mut brought = self.brought.lock().unwrap_or_else(PoisonError::into_inner);
                if brought.len() >= BROUGHT_MAX {
                    brought.clear();
                }
                brought.insert(key);
            }
        }
    }

    async fn bring(&self, shared: &RoutingState, from: ShardId, to: ShardId, name: &[u8]) -> Option<()> {
        let mut leave = redis::cmd("EVAL");
        leave.arg(LEAVE).arg(1).arg(name).arg(HAS_LEFT);
        let left = self.connection(shared, from).await?.call(&leave).await.ok()?;
        let (value, lasts_ms) = match left.as_sequence() {
            Some([Value::BulkString(value), Value::Int(lasts_ms)]) => (value, *lasts_ms),
            Some([]) => return Some(()),
            _ => return None,
        };
        let mut restore = redis::cmd("RESTORE");
        restore.arg(name).arg(lasts_ms).arg(value.as_slice());
        match self.connection(shared, to).await?.call(&restore).await {
            Ok(_) => Some(()),
            // Another node has moved the key already.
            Err(error) => (error.code() == Some("BUSYKEY")).then_some(()),
        }
    }

    async fn connection(&self, shared: &RoutingState, shard: ShardId) -> Option<Connection> {
        let mut connections = self.connections.lock().await;
        let node = shared.nodes.load().get(shared.shards[shard].place()).cloned()?;
        let connection = shared.connector.again(connections.remove(&shard), node.fixed()?).await?;
        connections.insert(shard, connection.clone());
        Some(connection)
    }
}

/// Asks every server of the ring once which ring it was in, and tells it the present one.
pub(super) async fn ask(moves: Arc<Moves>, shared: Arc<RoutingState>, mut stop: watch::Receiver<bool>) {
    let mut open: Vec<ShardId> = shared.shards.ids().filter(|shard| !shared.is_dedicated(*shard)).collect();
    while !open.is_empty() {
        let mut left = Vec::new();
        for shard in open {
            match ask_one(&moves, &shared, shard).await {
                Some((before, ago_s)) if ago_s < REMEMBERED_S => moves.learn(&shared, &before),
                Some(_) => {}
                None => left.push(shard),
            }
        }
        moves.is_known.store(true, Ordering::Relaxed);
        open = left;
        tokio::select! {
            () = tokio::time::sleep(ASK_AGAIN) => {}
            _ = stop.changed() => return,
        }
    }
}

async fn ask_one(moves: &Moves, shared: &RoutingState, shard: ShardId) -> Option<(String, u64)> {
    let connection = moves.connection(shared, shard).await?;
    let mut asked = redis::cmd("EVAL");
    let name = shared.names.own(None, "ring");
    asked.arg(RING).arg(1).arg(name).arg(&moves.layout).arg(clock::unix().as_secs());
    redis::from_redis_value(connection.ask(&asked).await.ok()?).ok()
}

const RING: &str = include_str!("../../../lua/ring.lua");
const LEAVE: &str = include_str!("../../../lua/leave.lua");
/// The value left on the old server for a key that has moved. It is not a valid record of any limit, so a node that
/// still has the old ring finds the limit spent.
const HAS_LEFT: &str = "moved";
/// How long after a change keys are moved, seconds: longer than a window of a day.
const REMEMBERED_S: u64 = 90_000;
/// How often a server that has not said which ring it was in is asked again.
const ASK_AGAIN: Duration = Duration::from_millis(10);
const SERVERS_MAX: usize = 256;
/// How many moved keys are remembered. When it is full it is emptied, and the old servers are asked again.
const BROUGHT_MAX: usize = 1 << 20;
/// How many operations may wait for their keys; any more are sent without moving them.
const WAITING_MAX: usize = 4_096;
