//! Hints that nodes give each other by Redis' pub/sub: something beside the limits has changed.
//!
//! A hint can only cause a look: what it says is not read, and one that is lost is made up for by looks without one. They come
//! and go over connections of their own, never those of decisions. Nodes listen on the first shard that answers, and tell
//! every shard, because two nodes may disagree on which one is the first; a cluster passes a hint on to all of its nodes.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use redis::Value;
use tokio::sync::{mpsc, watch};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::sleep;

use super::Global;
use super::condition::Condition;
use super::config::Server;
use super::connection::{ConnectError, Connection, Connector};
use super::node::Node;
use super::routes::{Route, RoutingState};
use super::shard::NodeId;

/// The hints of one fleet. Nobody listens any more when this is dropped.
pub struct Hints {
    shared: Arc<RoutingState>,
    heard: watch::Receiver<bool>,
    may: Arc<AtomicBool>,
    task: JoinHandle<()>,
}

/// Tells the other nodes that something has changed.
pub struct HintSender {
    shared: Arc<RoutingState>,
    channel: String,
    /// Whether this node's user is known to be allowed to: what it may not do is not tried.
    may: Arc<AtomicBool>,
    /// By the node they lead to.
    connections: HashMap<NodeId, Connection>,
}

impl Global {
    /// Listens for hints on the runtime this is called on.
    pub fn hints(&self) -> Hints {
        let (tell, heard) = watch::channel(false);
        let (shared, may) = (Arc::clone(&self.shared), Arc::new(AtomicBool::default()));
        let channel = shared.names.channel(CHANNEL);
        let listener =
            Listener { shared: Arc::clone(&shared), channel, tell, may: Arc::clone(&may), is_said: false };
        Hints { shared, heard, may, task: tokio::spawn(listener.keep()) }
    }
}

impl Hints {
    /// Waits for the next hint, or until hints can be heard or no longer can; whether they can now. Many hints at once are one.
    /// Nothing is lost if the wait is given up.
    pub async fn next(&mut self) -> bool {
        if self.heard.changed().await.is_err() {
            // The task ends only with this; if it has panicked there is nothing to wait for.
            std::future::pending::<()>().await;
        }
        *self.heard.borrow_and_update()
    }

    /// What tells the other nodes of changes on this one.
    pub fn teller(&self) -> HintSender {
        let channel = self.shared.names.channel(CHANNEL);
        let may = Arc::clone(&self.may);
        HintSender { shared: Arc::clone(&self.shared), channel, may, connections: HashMap::new() }
    }
}

impl Drop for Hints {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl HintSender {
    /// Tells the other nodes that there is this version. It reaches those it can, and says nothing of the others.
    pub async fn tell(&mut self, version: i64) {
        if !self.may.load(Ordering::Relaxed) {
            return;
        }
        let mut nodes = reachable(&self.shared);
        if matches!(self.shared.route, Route::Tags) {
            nodes.truncate(1);
        }
        let mut telling = JoinSet::new();
        for node in nodes {
            let kept = self.connections.remove(&node.id);
            let connector = Arc::clone(&self.shared.connector);
            let publish = redis::cmd("PUBLISH").arg(&self.channel).arg(version).to_owned();
            telling.spawn(async move { (node.id, publish_to(&connector, &node, kept, &publish).await) });
        }
        while let Some(told) = telling.join_next().await {
            if let Ok((node, Some(connection))) = told {
                self.connections.insert(node, connection);
            }
        }
    }

    /// Closes the connections, for a time in which there is nothing to tell.
    pub fn rest(&mut self) {
        self.connections.clear();
    }
}

/// Publishes on one server, once more on a new connection if the one that was kept has ended. The connection, if it was good.
async fn publish_to(
    connector: &Connector,
    node: &Node,
    kept: Option<Connection>,
    publish: &redis::Cmd,
) -> Option<Connection> {
    let place = node.place()?;
    for kept in [kept, None] {
        let connection = connector.again(kept, &place.0).await?;
        if connection.ask(publish).await.is_ok() {
            return Some(connection);
        }
    }
    None
}

/// The servers of the shards that answer, in the order of the shards.
fn reachable(shared: &RoutingState) -> Vec<Arc<Node>> {
    let nodes = shared.nodes.load();
    let mut found: Vec<Arc<Node>> = Vec::new();
    for node in shared.shards.iter().filter_map(|shard| nodes.get(shard.place())) {
        if !node.is_away() && !found.iter().any(|known| known.id == node.id) {
            found.push(Arc::clone(node));
        }
    }
    found
}

struct Listener {
    shared: Arc<RoutingState>,
    channel: String,
    /// Holds whether hints can be heard; changes with each hint.
    tell: watch::Sender<bool>,
    may: Arc<AtomicBool>,
    /// Whether the log has it that the right is missing.
    is_said: bool,
}

enum End {
    /// The connection is lost, another server is the one to listen on, or no shard answers.
    Lost,
    /// Our user may not.
    Refused,
}

impl Listener {
    async fn keep(mut self) {
        let mut pause = PAUSE_MIN;
        loop {
            let end = self.listen().await;
            self.tell.send_if_modified(|is_open| std::mem::replace(is_open, false));
            pause = match end {
                Ok(End::Lost) => PAUSE_MIN,
                Ok(End::Refused) => PAUSE_REFUSED,
                Err(_) => (pause * 2).min(PAUSE_MAX),
            };
            sleep(pause).await;
        }
    }

    async fn listen(&mut self) -> Result<End, ConnectError> {
        let Some(place) = self.place() else { return Ok(End::Lost) };
        let (pushed, pushes) = mpsc::unbounded_channel();
        let connection = self.shared.connector.connect(&place, 0, Some(pushed)).await?;
        if !self.may_use(&connection).await? {
            return Ok(End::Refused);
        }
        let mut hints = match connection.subscribe(&self.channel, pushes).await {
            Ok(hints) => hints,
            Err(ConnectError::Redis(error)) if Condition::of(&error) == Some(Condition::Refusing) => {
                self.refused(&connection);
                return Ok(End::Refused);
            }
            Err(error) => return Err(error),
        };
        self.may.store(true, Ordering::Relaxed);
        self.is_said = false;
        self.tell.send_replace(true);
        while let Some(is_hint) = hints.next(LOOK).await {
            if is_hint {
                self.tell.send_modify(|_| {});
            }
            if self.place().is_some_and(|place| place != connection.server) {
                break;
            }
        }
        Ok(End::Lost)
    }

    fn place(&self) -> Option<Server> {
        Some(reachable(&self.shared).first()?.place()?.0.clone())
    }

    /// Whether our user may tell and listen, as far as the server can say: before version 7 it can only be tried.
    async fn may_use(&mut self, connection: &Connection) -> Result<bool, ConnectError> {
        let ask = redis::cmd("EVAL").arg(MAY_USE).arg(0).arg(&self.channel).to_owned();
        let may = connection.ask(&ask).await? != Value::Int(0);
        if !may {
            self.refused(connection);
        }
        Ok(may)
    }

    fn refused(&mut self, connection: &Connection) {
        self.may.store(false, Ordering::Relaxed);
        if !std::mem::replace(&mut self.is_said, true) {
            let (server, channel) = (&connection.server, &self.channel);
            let advice = format!("give the Redis user the permissions `&{channel} +subscribe +publish`");
            tracing::warn!(
                %server, channel, advice,
                "Redis does not allow this node to publish and subscribe: it polls for changes"
            );
        }
    }
}

/// What stands behind the prefix in the channel's name.
const CHANNEL: &str = "config";
/// Answers 1 or 0, or 2 if the server is too old to say. It leaves no entry in the ACL log.
const MAY_USE: &str = "if not redis.acl_check_cmd then return 2 end \
     return redis.acl_check_cmd('SUBSCRIBE', ARGV[1]) and redis.acl_check_cmd('PUBLISH', ARGV[1], '') and 1 or 0";
/// How often a quiet connection is tested, and the server to listen on looked for.
const LOOK: Duration = Duration::from_secs(2);
/// How soon a lost connection is opened again. The pause doubles for as long as that fails.
const PAUSE_MIN: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_secs(5);
/// How soon a right that is missing is looked for again.
const PAUSE_REFUSED: Duration = Duration::from_secs(30);
