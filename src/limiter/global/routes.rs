//! From key to shard, from shard to node, from node to pipeline; and what all pipelines share.
//!
//! Finding the queue of a key takes no lock: a shard's node is one atomic number, and the list of nodes is replaced whole.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwap;
use redis::{Cmd, RedisError, ServerErrorKind};
use tokio::sync::Notify;
use tokio::sync::mpsc::error::TrySendError;

use base::ids::IdVec;
use base::log_lines::RareLine;
use limit::Key;
use limit::lease_messages::LinkError;

use super::batch::{Batch, Entry, QueueItem};
use super::condition::Condition;
use super::connection::Connector;
use super::name::Names;
use super::node::Node;
use super::probe::Probe;
use super::ring::Ring;
use super::shard::{NodeId, Shard, ShardId, clipped};

/// The state that all pipelines of the process share.
pub(super) struct RoutingState {
    /// How long a request waits for an answer; `None`: as the round trip of its shard says.
    deadline: Option<Duration>,
    /// Random number of this process: Redis tells its batches and permits from those of every other process, this
    /// node's earlier ones included.
    pub(super) incarnation: u64,
    pub(super) names: Names,
    pub(super) connector: Arc<Connector>,
    pub(super) probe: Probe,
    pub(super) shards: IdVec<ShardId, Shard>,
    /// Every server seen so far.
    pub(super) nodes: ArcSwap<IdVec<NodeId, Arc<Node>>>,
    pub(super) route: Route,
    /// Wakes [`super::cluster::SlotMap`] to ask for the map of slots again.
    pub(super) look: Notify,
    /// Addresses that calls were redirected to and that are no known node, because a node without slots is not in the
    /// map.
    pub(super) wanted: Mutex<Vec<(String, u16)>>,
    complaints: RareLine,
    /// When replaced keys were last logged, nanoseconds, and how many were replaced since.
    repairs: Mutex<(u64, u64)>,
}

pub(super) enum Route {
    One,
    /// By the ring, except that the key of a dedicated shard carries the shard's number in its lowest byte.
    Ring {
        ring: Ring,
        has_dedicated: bool,
        shared: usize,
    },
    /// By the hash tag, of which each is a shard.
    Tags,
}

impl RoutingState {
    pub(super) fn new(
        deadline: Option<Duration>,
        incarnation: u64,
        prefix: &str,
        connector: Connector,
        shards: Vec<Shard>,
        route: Route,
    ) -> RoutingState {
        RoutingState {
            deadline,
            incarnation,
            names: Names::new(prefix),
            connector: Arc::new(connector),
            probe: Probe::new(),
            shards: shards.into(),
            nodes: ArcSwap::default(),
            route,
            look: Notify::new(),
            wanted: Mutex::default(),
            complaints: RareLine::new(),
            repairs: Mutex::default(),
        }
    }

    #[inline]
    pub(super) fn deadline_ns(&self, shard: ShardId) -> u64 {
        self.deadline_of(&self.shards[shard])
    }

    /// How long a request waits for an answer of this shard, nanoseconds.
    pub(super) fn deadline_of(&self, shard: &Shard) -> u64 {
        // A second at most.
        self.deadline.unwrap_or_else(|| shard.deadline()).as_nanos() as u64
    }

    #[inline]
    pub(super) fn shard(&self, key: Key) -> ShardId {
        let index = match &self.route {
            Route::One => 0,
            Route::Ring { ring, has_dedicated, shared } => match (key.low() & 0xff) as usize {
                home if *has_dedicated && home > 0 => (shared + home - 1).min(self.shards.len() - 1),
                // The ring is made of the first shards.
                _ => ring.server(key).index(),
            },
            Route::Tags => key.high() as usize % self.shards.len(),
        };
        ShardId::new(index)
    }

    pub(super) fn is_dedicated(&self, shard: ShardId) -> bool {
        matches!(&self.route, Route::Ring { shared, .. } if shard.index() >= *shared)
    }

    /// Hands an entry to the pipeline of its key. If the queue is full, the entry is given up at once, because the
    /// thread that sends must not wait.
    pub(super) fn post(&self, entry: Entry, key: Key, now_ns: u64) {
        let node = self.shards[entry.shard].place();
        self.post_to(node, entry, key, now_ns);
    }

    fn post_to(&self, node: NodeId, entry: Entry, key: Key, now_ns: u64) {
        if let Some(QueueItem::Entry(entry)) = self.queue(node, key, QueueItem::Entry(entry)) {
            self.give_up(entry, now_ns);
        }
    }

    /// Puts an item into the queue of the key's pipeline. Returns it if no node is known or the queue is full.
    fn queue(&self, node: NodeId, key: Key, item: QueueItem) -> Option<QueueItem> {
        match self.nodes.load().get(node) {
            Some(node) => node.pipeline(key).try_send(item).err().map(TrySendError::into_inner),
            None => Some(item),
        }
    }

    /// Hands a batch that was sent before to the node that has its shard now. Returns it if no node is known or its
    /// queue is full.
    pub(super) fn hand_over(&self, batch: Box<Batch>) -> Option<Box<Batch>> {
        let key = batch.entries.first().map_or_else(Key::default, Entry::key);
        let node = self.shards[batch.shard].place();
        match self.queue(node, key, QueueItem::Batch(batch)) {
            Some(QueueItem::Batch(batch)) => Some(batch),
            _ => None,
        }
    }

    pub(super) fn give_up(&self, entry: Entry, now_ns: u64) {
        self.shards[entry.shard].count(|counts| counts.lost += 1);
        entry.asker.complete(Err(LinkError::Down), now_ns);
    }

    pub(super) fn shards_of(&self, node: &Node) -> impl Iterator<Item = ShardId> + use<> {
        let found: Vec<ShardId> =
            self.shards.ids().filter(|shard| self.shards[*shard].place() == node.id).collect();
        found.into_iter()
    }

    /// The call that tests whether a shard can be used.
    pub(super) fn probe(&self, shard: Option<ShardId>) -> Cmd {
        let tag = shard.and_then(|shard| self.shards[shard].tag.as_deref());
        self.probe.command(&self.connector.script, &self.names, tag, self.incarnation)
    }

    /// A write that tests whether a connection is alive, cheaper than a probe.
    pub(super) fn touch(&self, shard: ShardId) -> Cmd {
        let mut command = redis::cmd("SET");
        let name = self.names.own(self.shards[shard].tag.as_deref(), "up");
        command.arg(name).arg(1).arg("PX").arg(TOUCH_MS);
        command
    }

    pub(super) fn node_at(&self, host: &str, port: u16) -> Option<NodeId> {
        let is_there = |node: &&Arc<Node>| node.fixed().is_some_and(|it| it.host == host && it.port == port);
        self.nodes.load().iter().find(is_there).map(|node| node.id)
    }

    /// The cluster has redirected a batch, whose slot is on another node or moving there; nothing of the batch was
    /// applied. Its entries are sent to that node one by one, because while a slot moves, a call fails if only one of
    /// its keys has not arrived.
    pub(super) fn reroute(&self, batch: Batch, error: &RedisError, now_ns: u64) {
        let kind = error.kind();
        let is_asked = kind == redis::ErrorKind::Server(ServerErrorKind::Ask);
        let is_moved = kind == redis::ErrorKind::Server(ServerErrorKind::Moved);
        let node = self.follow(batch.shard, error);
        let shard = &self.shards[batch.shard];
        let node = match kind {
            redis::ErrorKind::Server(ServerErrorKind::TryAgain) => Some(shard.place()),
            _ => node,
        };
        // A probe without entries. Its slot is moving to a node we know, so the shard can be used there.
        if batch.entries.is_empty() && is_asked && node.is_some() {
            shard.recovered(now_ns);
        }
        let mut is_lost = false;
        for mut entry in batch.entries {
            entry.moves += 1;
            (entry.asking, entry.is_moving) = (is_asked, !is_moved);
            match node.filter(|_| entry.moves <= MOVES_MAX) {
                Some(node) => {
                    let key = entry.key();
                    self.post_to(node, entry, key, now_ns);
                }
                None => {
                    is_lost = kind != redis::ErrorKind::Server(ServerErrorKind::TryAgain);
                    shard.count(|counts| counts.refused += 1);
                    entry.asker.complete(Err(LinkError::Refused), now_ns);
                }
            }
        }
        if is_lost {
            shard.troubled(Condition::Uncovered, &error.to_string(), now_ns);
        }
    }

    /// Reads where the cluster has redirected a call, and returns that node if it is known. A slot that
    /// has moved for good takes its shard along.
    pub(super) fn follow(&self, shard: ShardId, error: &RedisError) -> Option<NodeId> {
        self.look.notify_one();
        let address = error.redirect_node().and_then(|(address, _)| address.rsplit_once(':'));
        let address = address.and_then(|(host, port)| Some((host, port.parse().ok()?)));
        let node = address.and_then(|(host, port)| self.node_at(host, port));
        if let (Some((host, port)), None) = (address.filter(|(host, _)| !host.is_empty()), node) {
            self.want(host, port);
        }
        let is_moved = error.kind() == redis::ErrorKind::Server(ServerErrorKind::Moved);
        if let Some(node) = node.filter(|_| is_moved) {
            self.shards[shard].move_to(node);
        }
        node
    }

    /// Remembers an address that a call was redirected to, so that [`super::cluster::SlotMap`] connects to it.
    fn want(&self, host: &str, port: u16) {
        let mut wanted = self.wanted.lock().unwrap_or_else(PoisonError::into_inner);
        if wanted.len() < WANTED_MAX && !wanted.iter().any(|(of, at)| of == host && *at == port) {
            wanted.push((host.to_owned(), port));
        }
    }

    /// Logs that keys of a type which no limit uses were replaced, at most once in ten seconds.
    pub(super) fn repaired(&self, shard: &str, count: u64, now_ns: u64) {
        let mut repairs = self.repairs.lock().unwrap_or_else(PoisonError::into_inner);
        let (logged_ns, since) = *repairs;
        if logged_ns > 0 && now_ns.saturating_sub(logged_ns) < COMPLAINT_NS {
            repairs.1 += count;
            return;
        }
        *repairs = (now_ns, 0);
        drop(repairs);
        let advice = "another program writes keys with this prefix; set another `prefix` in [redis]";
        tracing::warn!(shard, keys = count + since, advice, "Redis keys of a wrong type were replaced");
    }

    /// Logs an error of one operation, one line a minute, because every request may cause one.
    pub(super) fn complain(&self, shard: &str, error: &str, now_ns: u64) {
        if self.complaints.is_due(now_ns) {
            let error = clipped(error);
            tracing::warn!(shard, %error, "Redis refuses an operation: policies that need it follow their when-redis-down");
        }
    }
}

/// How long Redis keeps the key that [`RoutingState::touch`] writes, milliseconds.
const TOUCH_MS: u64 = 1_000;
/// The most unknown addresses remembered at a time.
const WANTED_MAX: usize = 16;
/// How often one operation may be redirected.
const MOVES_MAX: u8 = 5;
const COMPLAINT_NS: u64 = 10_000_000_000;
