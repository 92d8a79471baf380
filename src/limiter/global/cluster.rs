//! Redis Cluster: keeps the map of which node has which slots, by asking any node that answers again and again.
//!
//! A call that finds its slot elsewhere wakes [`SlotMap`] at once, and is sent on by [`super::routes::RoutingState::reroute`];
//! this file only keeps the map.

use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use redis::Value;
use tokio::sync::watch;
use tokio::task::JoinSet;

use base::clock;

use super::condition::Condition;
use super::config::{Login, Server};
use super::connection::{ConnectError, Connector, first_of};
use super::node::Locator;
use super::pipeline;
use super::routes::RoutingState;
use super::shard::NodeId;
pub(super) mod slot;

pub(super) struct SlotMap {
    pub(super) shared: Arc<RoutingState>,
    /// The configured servers: the map is asked for there at first, and all nodes take the same login.
    pub(super) seeds: Vec<Server>,
    pub(super) connections: usize,
    pub(super) stop: watch::Receiver<bool>,
    /// Nodes without slots to which calls were redirected, and until when they stay connected, nanoseconds.
    pub(super) wanted: HashMap<NodeId, u64>,
}

/// A range of slots, ends included, and the primary that has them.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Range {
    first: u16,
    last: u16,
    host: String,
    port: u16,
}

impl SlotMap {
    /// Runs until it is stopped and every pipeline has ended.
    pub(super) async fn keep(mut self) {
        let mut pipelines = JoinSet::new();
        loop {
            let shared = Arc::clone(&self.shared);
            match self.ask().await {
                Ok(ranges) => self.apply(&ranges, &mut pipelines),
                Err(why) => self.note_unreachable(&why),
            }
            let is_well = shared.shards.iter().all(|shard| shard.is_closed());
            let pause = if is_well { PAUSE } else { PAUSE_TROUBLED };
            tokio::select! {
                () = shared.look.notified() => tokio::time::sleep(PAUSE_MIN).await,
                () = tokio::time::sleep(pause) => {}
                _ = self.stop.changed() => break,
            }
        }
        while pipelines.join_next().await.is_some() {}
    }

    /// The map of the first node that answers. Nodes in use are asked first, then the configured servers.
    async fn ask(&self) -> Result<Vec<Range>, String> {
        let nodes = self.shared.nodes.load_full();
        let known = nodes.iter().filter(|node| node.is_used()).filter_map(|node| node.fixed().cloned());
        let servers: Vec<Server> = known.chain(self.seeds.iter().cloned()).collect();
        let maps = servers.into_iter().map(|server| map_of(Arc::clone(&self.shared.connector), server));
        match first_of(maps).await {
            Some(answer) => answer.map_err(|error| error.to_string()),
            None => Err(String::new()),
        }
    }

    /// Sets the node of every shard, and opens pipelines to nodes that are new.
    fn apply(&mut self, ranges: &[Range], pipelines: &mut JoinSet<()>) {
        self.add_wanted(pipelines);
        let shared = &self.shared;
        for shard in &shared.shards {
            let slot = slot::slot(shard.tag.as_deref().unwrap_or("").as_bytes());
            let Some(range) = ranges.iter().find(|range| (range.first..=range.last).contains(&slot)) else {
                shard.troubled(Condition::Uncovered, "no node of the cluster has its slot", clock::now_ns());
                continue;
            };
            let known = shared.node_at(&range.host, range.port);
            let node = known.unwrap_or_else(|| self.add(&range.host, range.port, pipelines));
            shard.move_to(node);
        }
        for node in shared.nodes.load().iter() {
            let is_used = shared.shards.iter().any(|shard| shard.place() == node.id);
            node.is_used.store(is_used || self.wanted.contains_key(&node.id), Ordering::Relaxed);
        }
    }

    /// Opens pipelines to nodes that calls were redirected to. A node that is being given its first slot has calls
    /// redirected to it before the map names it.
    fn add_wanted(&mut self, pipelines: &mut JoinSet<()>) {
        let now_ns = clock::now_ns();
        self.wanted.retain(|_, until_ns| now_ns < *until_ns);
        let wanted = std::mem::take(&mut *self.shared.wanted.lock().unwrap_or_else(PoisonError::into_inner));
        for (host, port) in wanted {
            let known = self.shared.node_at(&host, port);
            let node = known.unwrap_or_else(|| self.add(&host, port, pipelines));
            self.wanted.insert(node, now_ns + WANTED_NS);
        }
    }

    fn add(&self, host: &str, port: u16, pipelines: &mut JoinSet<()>) -> NodeId {
        let server = Server { host: host.to_owned(), port, ..self.seeds[0].clone() };
        let server = Server { login: Login { db: 0, ..server.login }, ..server };
        let named = (server.to_string(), Locator::Fixed(vec![server]));
        pipeline::start(&self.shared, named, self.connections, &self.stop, pipelines)
    }

    /// No node gives a map. Shards that have a node keep it; the others are unreachable until one does.
    fn note_unreachable(&self, why: &str) {
        for shard in self.shared.shards.iter().filter(|shard| shard.condition() == Condition::Unknown) {
            let said = format!("no node returned the cluster's members: {why}");
            shard.troubled(Condition::of_answer(why), &said, clock::now_ns());
        }
    }
}

async fn map_of(connector: Arc<Connector>, server: Server) -> Result<Vec<Range>, ConnectError> {
    let slots = connector.plain(&server).await?.ask(redis::cmd("CLUSTER").arg("SLOTS")).await?;
    let ranges = ranges(&slots, &server).filter(|ranges| !ranges.is_empty());
    ranges
        .ok_or_else(|| ConnectError::Probe(format!("{server} reports no slots: is it part of the cluster?")))
}

/// Reads the reply to CLUSTER SLOTS: `[first, last, [host, port, …], replica…]` for each range. A node that does not
/// know its own address leaves it empty, and then it is the address that was asked.
fn ranges(slots: &Value, asked: &Server) -> Option<Vec<Range>> {
    let entries = slots.as_sequence()?;
    entries
        .iter()
        .map(|entry| {
            let [first, last, primary, ..] = entry.as_sequence()? else { return None };
            let [host, port, ..] = primary.as_sequence()? else { return None };
            let host: Option<String> = redis::from_redis_value_ref(host).ok()?;
            Some(Range {
                first: redis::from_redis_value_ref(first).ok()?,
                last: redis::from_redis_value_ref(last).ok()?,
                host: host
                    .filter(|host| !host.is_empty() && host != "?")
                    .unwrap_or_else(|| asked.host.clone()),
                port: redis::from_redis_value_ref(port).ok()?,
            })
        })
        .collect()
}

/// How often the map is asked for.
const PAUSE: Duration = Duration::from_secs(1);
/// The same while a shard is away.
const PAUSE_TROUBLED: Duration = Duration::from_millis(100);
/// How long a node without slots stays connected after a call was redirected to it, nanoseconds.
const WANTED_NS: u64 = 60_000_000_000;
/// The shortest pause, because a moving slot redirects many calls at once.
const PAUSE_MIN: Duration = Duration::from_millis(10);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_map_is_read_whatever_a_node_knows_of_itself() {
        let text = |text: &str| Value::BulkString(text.as_bytes().to_vec());
        let node = |host: Value, port| Value::Array(vec![host, Value::Int(port), text("id")]);
        let range = |first, last, node| Value::Array(vec![Value::Int(first), Value::Int(last), node]);
        let slots = Value::Array(vec![
            range(0, 5, node(text("10.0.0.1"), 7000)),
            range(6, 9, node(Value::Nil, 7001)),
            // `?`: the node is set to announce a host name and has none.
            range(10, 16_383, node(text("?"), 7002)),
        ]);
        let asked = Server { host: "seed".to_owned(), port: 1, tls: false, login: Login::default() };
        let read = ranges(&slots, &asked).expect("this is a map");
        let of = |first, last, host: &str, port| Range { first, last, host: host.to_owned(), port };
        let expected = [of(0, 5, "10.0.0.1", 7000), of(6, 9, "seed", 7001), of(10, 16_383, "seed", 7002)];
        assert_eq!(read, expected);
        assert_eq!(ranges(&Value::Okay, &asked), None);
        assert_eq!(ranges(&Value::Array(vec![Value::Int(1)]), &asked), None);
    }
}
