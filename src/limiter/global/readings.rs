//! What servers say of themselves every few seconds, for the metrics; and whether their keys have vanished.
//!
//! All of it runs on the control runtime, over connections of its own, each question with a deadline, so that a server
//! that hangs holds nobody up, and no request waits for a reading. Keys have vanished (`FLUSHALL`, a restart without
//! persistence) when a marker that every node looks for is no longer the one that was there.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinSet;

use base::clock;
use base::ids::IdVec;
use base::random::Random;

use super::connection::{CONNECT_WITHIN, ConnectError, Connection};
use super::node::Node;
use super::routes::RoutingState;
use super::shard::{NodeId, ShardId};

#[derive(Debug, Default)]
pub(super) struct Readings {
    /// By server; one that does not answer has none.
    servers: Mutex<BTreeMap<String, Reading>>,
    /// How often the keys of each shard have vanished.
    vanished: IdVec<ShardId, AtomicU64>,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Reading {
    /// Keys in the database that limits are in, those of others included.
    pub(super) keys: u64,
    /// Memory in use, bytes: `used_memory` of its `INFO`.
    pub(super) memory: u64,
    /// Its `maxmemory`, bytes; 0: it has none.
    pub(super) memory_max: u64,
    /// Keys evicted since it started.
    pub(super) evicted: u64,
    pub(super) replicas: u64,
    /// How far the farthest replica is behind, bytes.
    pub(super) lag_bytes: u64,
    /// How long the most silent replica has confirmed nothing, seconds.
    pub(super) lag_seconds: u64,
    /// The share of the time in which its one thread that runs commands has worked since the reading before; `None` after
    /// the first.
    pub(super) saturation: Option<f64>,
    work: Work,
}

/// What tells how much a server works.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
enum Work {
    /// Time that its thread has worked since it started, seconds.
    Busy(f64),
    /// Commands a second, of a server that does not say the former.
    Rate(f64),
    /// Nothing does.
    #[default]
    Unknown,
}

impl Readings {
    pub(super) fn new(shards: usize) -> Readings {
        let vanished = (0..shards).map(|_| AtomicU64::new(0)).collect();
        Readings { servers: Mutex::default(), vanished }
    }

    pub(super) fn servers(&self) -> Vec<(String, Reading)> {
        self.known().iter().map(|(server, reading)| (server.clone(), reading.clone())).collect()
    }

    pub(super) fn vanished(&self, shard: ShardId) -> u64 {
        self.vanished.get(shard).map_or(0, |count| count.load(Ordering::Relaxed))
    }

    fn known(&self) -> MutexGuard<'_, BTreeMap<String, Reading>> {
        self.servers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Reads all servers until it is stopped.
pub(super) async fn keep(
    shared: Arc<RoutingState>,
    readings: Arc<Readings>,
    mut stop: watch::Receiver<bool>,
) {
    let mut open: HashMap<NodeId, Connection> = HashMap::new();
    let mut markers: HashMap<ShardId, String> = HashMap::new();
    let mut read_ns = 0;
    loop {
        let nodes = shared.nodes.load_full();
        let used: Vec<&Arc<Node>> = nodes.iter().filter(|node| node.is_used()).collect();
        let mut asked = JoinSet::new();
        for node in &used {
            asked.spawn(read(Arc::clone(&shared), Arc::clone(node), open.remove(&node.id)));
        }
        let now_ns = clock::now_ns();
        let since = Duration::from_nanos(now_ns.saturating_sub(read_ns));
        read_ns = now_ns;
        let mut known = BTreeMap::new();
        while let Some(answer) = asked.join_next().await {
            // A panic of a question is logged by its hook; the server has no reading.
            let Ok(Some(Answer { node, connection, reading, found })) = answer else { continue };
            if let Some(mut reading) = reading {
                let before = readings.known().get(&node.name).map(|before| before.work);
                reading.saturation = before.and_then(|before| reading.work.saturation(before, since));
                known.insert(node.name.clone(), reading);
            }
            look_for_markers(&shared, &readings, &mut markers, found);
            open.insert(node.id, connection);
        }
        let is_found = !used.is_empty() && used.iter().all(|node| node.place().is_some());
        *readings.known() = known;
        tokio::select! {
            () = tokio::time::sleep(if is_found { EVERY } else { EVERY_UNFOUND }) => {}
            _ = stop.changed() => return,
        }
    }
}

struct Answer {
    node: Arc<Node>,
    connection: Connection,
    /// `None`: our user may not ask.
    reading: Option<Reading>,
    found: Vec<(ShardId, String)>,
}

async fn read(shared: Arc<RoutingState>, node: Arc<Node>, kept: Option<Connection>) -> Option<Answer> {
    let server = node.place()?.0.clone();
    let connector = &shared.connector;
    let connection = connector.again(kept, &server).await?;
    let info = tokio::time::timeout(CONNECT_WITHIN, connector.info(&connection)).await.ok()?;
    let mut found = Vec::new();
    for shard in shared.shards_of(&node) {
        let mut mark = redis::cmd("EVAL");
        mark.arg(MARK).arg(1).arg(shared.names.own(shared.shards[shard].tag.as_deref(), "marker"));
        mark.arg(format!("{:x}", Random::seeded().next())).arg(MARKER_LASTS_MS);
        match connection.ask(&mark).await {
            Ok(marker) => found.extend(redis::from_redis_value(marker).ok().map(|marker| (shard, marker))),
            Err(ConnectError::Timeout(_)) => return None,
            // A shard that has just moved, or a server that may not be written to: it is looked at again later.
            Err(_) => {}
        }
    }
    let reading = info.map(|info| Reading::of(&info, server.login.db));
    Some(Answer { node, connection, reading, found })
}

/// Compares the markers with those of before, and says where keys have vanished.
fn look_for_markers(
    shared: &RoutingState,
    readings: &Readings,
    markers: &mut HashMap<ShardId, String>,
    found: Vec<(ShardId, String)>,
) {
    let mut vanished = Vec::new();
    for (shard, marker) in found {
        if markers.insert(shard, marker.clone()).is_some_and(|before| before != marker) {
            readings.vanished[shard].fetch_add(1, Ordering::Relaxed);
            vanished.push(shard);
        }
    }
    if let Some(first) = vanished.first() {
        let (shard, shards) = (&shared.shards[*first].name, vanished.len());
        let advice = "shared limits start from zero; look for FLUSHALL or a restart without persistence";
        tracing::warn!(shard, shards, advice, "all keys of Redis are gone");
    }
}

impl Reading {
    /// From the reply to INFO: lines of `name:value`.
    fn of(info: &str, db: impl std::fmt::Display) -> Reading {
        let field = |name: &str| {
            let mut values = info.lines().filter_map(|line| line.split_once(':'));
            values.find(|(found, _)| *found == name).map(|(_, value)| value.trim())
        };
        let number = |name: &str| field(name).and_then(|value| value.parse::<u64>().ok()).unwrap_or(0);
        let seconds = |name: &str| field(name).and_then(|value| value.parse::<f64>().ok());
        let both = |system: &str, user: &str| Some(seconds(system)? + seconds(user)?);
        // The thread that runs commands says its own share since Redis 6.2; before, there is hardly another one.
        let busy = both("used_cpu_sys_main_thread", "used_cpu_user_main_thread")
            .or_else(|| both("used_cpu_sys", "used_cpu_user"));
        let work = match (busy, seconds("instantaneous_ops_per_sec")) {
            (Some(busy), _) => Work::Busy(busy),
            (None, Some(rate)) => Work::Rate(rate),
            (None, None) => Work::Unknown,
        };
        let keys = field(&format!("db{db}")).and_then(|counts| part(counts, "keys")).unwrap_or(0);
        let written = number("master_repl_offset");
        let replicas = number("connected_slaves");
        let lines = (0..replicas.min(REPLICAS_MAX)).filter_map(|index| field(&format!("slave{index}")));
        let (mut lag_bytes, mut lag_seconds) = (0, 0);
        for replica in lines {
            let offset = part(replica, "offset").unwrap_or(written);
            lag_bytes = written.saturating_sub(offset).max(lag_bytes);
            lag_seconds = part(replica, "lag").unwrap_or(0).max(lag_seconds);
        }
        Reading {
            keys,
            memory: number("used_memory"),
            memory_max: number("maxmemory"),
            evicted: number("evicted_keys"),
            replicas,
            lag_bytes,
            lag_seconds,
            saturation: None,
            work,
        }
    }
}

impl Work {
    /// The share of its time that a server has worked since it said `before`.
    fn saturation(self, before: Work, since: Duration) -> Option<f64> {
        match (self, before) {
            // A server that was restarted has worked less than before.
            (Work::Busy(now), Work::Busy(before)) if now >= before && !since.is_zero() => {
                Some((now - before) / since.as_secs_f64())
            }
            (Work::Rate(rate), _) => Some(rate / COMMANDS_PER_SECOND),
            _ => None,
        }
    }
}

/// The number behind `name=` in a list as `keys=12,expires=3`.
fn part(list: &str, name: &str) -> Option<u64> {
    let mut pairs = list.split(',').filter_map(|pair| pair.split_once('='));
    pairs.find(|(found, _)| *found == name).and_then(|(_, value)| value.parse().ok())
}

/// Sets the marker if there is none, lets it last, and returns it. Because nothing else writes it, another one means
/// that the keys beside it are gone as well.
const MARK: &str = "local found = redis.call('GET', KEYS[1]) \
    if not found then redis.call('SET', KEYS[1], ARGV[1]) found = ARGV[1] end \
    redis.call('PEXPIRE', KEYS[1], ARGV[2]) return found";
/// A week: a fleet that is off for longer finds no marker and misses nothing.
const MARKER_LASTS_MS: u64 = 7 * 86_400 * 1_000;
const EVERY: Duration = Duration::from_secs(5);
/// The pause until the pipelines have found every server.
const EVERY_UNFOUND: Duration = Duration::from_millis(200);
/// What a server that does not say how long it works is assumed to be able to do.
const COMMANDS_PER_SECOND: f64 = 120_000.0;
/// Replicas of a server that are looked at.
const REPLICAS_MAX: u64 = 64;

#[cfg(test)]
mod tests {
    use super::*;

    const INFO: &str = "# Server\r\nredis_version:7.0.15\r\n# Memory\r\nused_memory:1048576\r\nmaxmemory:4194304\r\n\
        # Stats\r\ninstantaneous_ops_per_sec:60000\r\nevicted_keys:7\r\n# Replication\r\nrole:master\r\nconnected_slaves:2\r\n\
        slave0:ip=10.0.0.2,port=6379,state=online,offset=900,lag=0\r\nslave1:ip=10.0.0.3,port=6379,state=online,offset=400,lag=3\r\n\
        master_repl_offset:1000\r\n# CPU\r\nused_cpu_sys:9.0\r\nused_cpu_user:9.0\r\nused_cpu_sys_main_thread:1.5\r\n\
        used_cpu_user_main_thread:2.5\r\n# Keyspace\r\ndb0:keys=12,expires=3,avg_ttl=0\r\ndb3:keys=5,expires=0,avg_ttl=0\r\n";

    #[test]
    fn a_reading_is_of_its_database_and_its_worst_replica() {
        let reading = Reading::of(INFO, 3);
        assert_eq!(
            (reading.keys, reading.memory, reading.memory_max, reading.evicted),
            (5, 1 << 20, 1 << 22, 7)
        );
        assert_eq!((reading.replicas, reading.lag_bytes, reading.lag_seconds), (2, 600, 3));
        assert_eq!(Reading::of(INFO, 0).keys, 12);
        assert_eq!(Reading::of(INFO, 1).keys, 0, "a database without keys has no line");
        assert_eq!(Reading::of("", 0), Reading::default());
    }

    #[test]
    fn saturation_is_the_share_of_time_that_the_thread_of_commands_works() {
        let work = Reading::of(INFO, 0).work;
        assert_eq!(work, Work::Busy(4.0));
        let since = Duration::from_secs(10);
        let close =
            |found: Option<f64>, wanted: f64| found.is_some_and(|found| (found - wanted).abs() < 1e-9);
        assert!(close(Work::Busy(6.5).saturation(work, since), 0.25));
        assert_eq!(Work::Busy(1.0).saturation(work, since), None, "it was restarted");
        assert_eq!(work.saturation(Work::Unknown, since), None, "the first reading");
        let older = INFO.replace("_main_thread", "_of_others");
        assert_eq!(Reading::of(&older, 0).work, Work::Busy(18.0));
        let silent = older.replace("used_cpu", "unknown");
        assert!(close(Reading::of(&silent, 0).work.saturation(Work::Unknown, since), 0.5));
    }
}
