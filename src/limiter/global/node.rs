//! One server as the shared tier addresses it: its present address, and the pipelines to it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use arc_swap::ArcSwapOption;
use tokio::sync::{mpsc, watch};

use super::batch::QueueItem;
use super::config::{CONNECTIONS_MAX, Server};
use super::connection::{ConnectError, Connection, Connector, ServerInfo};
use super::sentinel::Sentinels;
use super::shard::NodeId;
use limit::Key;

pub(super) type Queues = Vec<mpsc::Receiver<QueueItem>>;

pub(super) struct Node {
    pub(super) id: NodeId,
    pub(super) name: String,
    locator: Locator,
    /// Where it was found last, and what it calls itself.
    found: ArcSwapOption<(Server, Arc<ServerInfo>)>,
    /// Changes when the server moves, so that its pipelines connect to the new address.
    pub(super) moves: watch::Sender<u64>,
    pub(super) pipelines: Vec<mpsc::Sender<QueueItem>>,
    /// One bit for each pipeline that is connected.
    connected: AtomicU32,
    /// Whether a shard is on it, or a call was redirected to it. Otherwise its connections are closed.
    pub(super) is_used: AtomicBool,
}

/// How a node's address is found.
pub(super) enum Locator {
    /// It is one of these servers, which are tried in turn.
    Fixed(Vec<Server>),
    Sentinel(Sentinels),
}

impl Node {
    /// A node, and the receiving ends of its pipelines' queues.
    pub(super) fn new(id: NodeId, name: String, locator: Locator, pipelines: usize) -> (Node, Queues) {
        let (pipelines, queues) =
            (0..pipelines.clamp(1, CONNECTIONS_MAX)).map(|_| mpsc::channel(QUEUE)).unzip();
        let (moves, _) = watch::channel(0);
        let found = ArcSwapOption::empty();
        let node = Node {
            id,
            name,
            locator,
            found,
            moves,
            pipelines,
            connected: AtomicU32::new(0),
            is_used: AtomicBool::new(true),
        };
        (node, queues)
    }

    /// The server to connect to, after `attempt` failures in a row.
    pub(super) async fn locate(
        &self,
        connector: &Arc<Connector>,
        attempt: u32,
    ) -> Result<Server, ConnectError> {
        match &self.locator {
            Locator::Fixed(servers) => Ok(servers[attempt as usize % servers.len()].clone()),
            Locator::Sentinel(sentinels) if attempt.is_multiple_of(2) => {
                sentinels.primary(connector, attempt as usize / 2).await
            }
            Locator::Sentinel(sentinels) => sentinels.promoted(connector).await,
        }
    }

    /// The number of attempts after which every possible server was tried once.
    pub(super) fn places(&self) -> u32 {
        match &self.locator {
            Locator::Fixed(servers) => servers.len() as u32,
            Locator::Sentinel(_) => 2,
        }
    }

    /// Remembers and logs where a connection was opened.
    pub(super) fn found(&self, connection: &Connection) {
        let (server, about) = (connection.server.clone(), Arc::clone(&connection.about));
        let known = self.found.load();
        if known.as_deref().is_none_or(|(of, known)| *of != server || known.version != about.version) {
            tracing::info!(
                node = self.name,
                "connected to Redis {server} ({}): limits are shared",
                about.version
            );
        }
        drop(known);
        self.learn(server, about);
    }

    /// Remembers what the server says of itself, and warns if it evicts keys.
    pub(super) fn learn(&self, server: Server, about: Arc<ServerInfo>) {
        let known = self.found.load();
        if known.as_deref().is_some_and(|found| *found == (server.clone(), Arc::clone(&about))) {
            return;
        }
        let was = known.as_deref().and_then(|(of, known)| known.eviction.as_ref().filter(|_| *of == server));
        if let Some(policy) = about.eviction.as_ref().filter(|policy| Some(*policy) != was) {
            let advice = "limits are forgotten when its memory is full; set maxmemory-policy to noeviction";
            tracing::warn!(node = self.name, %server, policy, advice, "Redis evicts keys");
        }
        self.found.store(Some(Arc::new((server, about))));
    }

    pub(super) fn place(&self) -> Option<Arc<(Server, Arc<ServerInfo>)>> {
        self.found.load_full()
    }

    /// Its first configured address; `None` if sentinels name it.
    pub(super) fn fixed(&self) -> Option<&Server> {
        match &self.locator {
            Locator::Fixed(servers) => servers.first(),
            Locator::Sentinel(_) => None,
        }
    }

    pub(super) fn sentinels(&self) -> Option<&Sentinels> {
        match &self.locator {
            Locator::Fixed(_) => None,
            Locator::Sentinel(sentinels) => Some(sentinels),
        }
    }

    /// The queue of the key's pipeline, or of a connected one if that one is not.
    #[inline]
    pub(super) fn pipeline(&self, key: Key) -> &mpsc::Sender<QueueItem> {
        // Bits of the key that do not decide its shard, so that the keys of one shard spread over all pipelines.
        let mine = (key.high() >> 32) as usize % self.pipelines.len();
        let connected = self.connected.load(Ordering::Relaxed);
        match connected >> mine & 1 {
            0 if connected != 0 => {
                &self.pipelines[connected.trailing_zeros() as usize % self.pipelines.len()]
            }
            _ => &self.pipelines[mine],
        }
    }

    /// Notes that a pipeline has got or lost its connection.
    pub(super) fn set_connected(&self, pipeline: usize, is_connected: bool) {
        match is_connected {
            true => self.connected.fetch_or(1 << pipeline, Ordering::Relaxed),
            false => self.connected.fetch_and(!(1 << pipeline), Ordering::Relaxed),
        };
    }

    pub(super) fn is_away(&self) -> bool {
        self.connected.load(Ordering::Relaxed) == 0
    }

    pub(super) fn is_used(&self) -> bool {
        self.is_used.load(Ordering::Relaxed)
    }
}

/// Operations in the queue of a pipeline. If it is full, a new one is given up at once.
const QUEUE: usize = 4_096;
