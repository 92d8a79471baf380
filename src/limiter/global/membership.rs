//! Counts the nodes that share Redis: each reports once a second, on up to three shards, that it is there.
//!
//! The count is the median of the shards' counts. It rises at once and falls ten seconds later, so that no node takes a
//! larger share because others were slow for a moment. While no shard answers, it stays as it was.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use redis::RedisError;
use tokio::sync::watch;

use base::clock;
use base::rendezvous;
use limit::Key;

use super::connection::{ConnectError, Connection};
use super::routes::RoutingState;
use super::shard::ShardId;

pub(super) struct Membership {
    shared: Arc<RoutingState>,
    fleet: Arc<Nodes>,
    counts: Counts,
    places: Vec<MembershipShard>,
}

/// The nodes that share Redis, as far as this one knows.
#[derive(Debug)]
pub(super) struct Nodes {
    count: AtomicU32,
    /// Their incarnations.
    known: ArcSwap<Vec<u64>>,
    own: u64,
}

impl Nodes {
    pub(super) fn new(own: u64) -> Nodes {
        Nodes { count: AtomicU32::new(1), known: ArcSwap::default(), own }
    }

    #[inline]
    pub(super) fn count(&self) -> u32 {
        self.count.load(Ordering::Relaxed)
    }

    /// How many of them come before this one in an order that all nodes find for a key, each key another.
    pub(super) fn rank(&self, key: Key) -> u32 {
        let bid = |node: u64| rendezvous::mixed(key.high() ^ key.low(), node);
        let own = bid(self.own);
        self.known.load().iter().filter(|node| bid(**node) < own).count() as u32
    }
}

struct MembershipShard {
    shard: ShardId,
    connection: Option<Connection>,
}

enum ReportAnswer {
    Nodes(Vec<u64>),
    /// It answers with an error, such as a missing right.
    Refusal,
    Nothing,
}

/// The counts of the last ten seconds. It is pruned only when a count comes, so that a silence of any length keeps the
/// last ones.
#[derive(Debug, Default)]
struct Counts(VecDeque<(u64, u32)>);

impl Counts {
    /// Adds a count and returns the highest of the last ten seconds.
    fn add(&mut self, count: u32, now_ns: u64) -> u32 {
        self.0.retain(|(heard_ns, _)| now_ns.saturating_sub(*heard_ns) < FALLS_AFTER_NS);
        self.0.push_back((now_ns, count));
        self.0.iter().map(|(_, count)| *count).max().unwrap_or(1).max(1)
    }
}

impl Membership {
    pub(super) fn new(shared: Arc<RoutingState>, fleet: Arc<Nodes>) -> Membership {
        let count = shared.shards.len();
        let places = (0..count.min(PLACES)).map(|place| ShardId::new(place * count / count.min(PLACES)));
        let places = places.map(|shard| MembershipShard { shard, connection: None }).collect();
        Membership { shared, fleet, counts: Counts::default(), places }
    }

    /// Runs until it is stopped, and then takes this node out of the count.
    pub(super) async fn keep(mut self, mut stop: watch::Receiver<bool>) {
        loop {
            let (mut heard, mut is_answered) = (Vec::new(), false);
            for index in 0..self.places.len() {
                match self.hear(index, true).await {
                    ReportAnswer::Nodes(nodes) => heard.push(nodes),
                    ReportAnswer::Refusal => is_answered = true,
                    ReportAnswer::Nothing => {}
                }
            }
            is_answered |= !heard.is_empty();
            heard.sort_unstable_by_key(Vec::len);
            if !heard.is_empty() {
                let median = heard.swap_remove(heard.len() / 2);
                let count = u32::try_from(median.len()).unwrap_or(u32::MAX);
                self.fleet.count.store(self.counts.add(count, clock::now_ns()), Ordering::Relaxed);
                self.fleet.known.store(Arc::new(median));
            }
            tokio::select! {
                () = tokio::time::sleep(if is_answered { PAUSE } else { PAUSE_UNHEARD }) => {}
                _ = stop.changed() => break,
            }
        }
        for index in 0..self.places.len() {
            self.hear(index, false).await;
        }
    }

    /// Reports to one shard that this node is, or is no longer, there.
    async fn hear(&mut self, index: usize, is_there: bool) -> ReportAnswer {
        match self.ask(index, is_there).await {
            Some(Ok(nodes)) => ReportAnswer::Nodes(nodes),
            // Not connected anew, because the server has answered and would answer the same again.
            Some(Err(ConnectError::Redis(error)))
                if !error.is_io_error() && !error.is_connection_dropped() =>
            {
                let shard = &self.shared.shards[self.places[index].shard];
                // The outage of a shard that is away has a log line already.
                if shard.is_closed() {
                    let text = format!("the nodes of the fleet cannot be counted: {error}");
                    self.shared.complain(&shard.name, &text, clock::now_ns());
                }
                ReportAnswer::Refusal
            }
            Some(Err(_)) | None => {
                self.places[index].connection = None;
                ReportAnswer::Nothing
            }
        }
    }

    async fn ask(&mut self, index: usize, is_there: bool) -> Option<Result<Vec<u64>, ConnectError>> {
        let shared = Arc::clone(&self.shared);
        let place = &mut self.places[index];
        let shard = &shared.shards[place.shard];
        let node = shared.nodes.load().get(shard.place()).cloned()?;
        let found = node.place()?;
        place.connection = shared.connector.again(place.connection.take(), &found.0).await;
        let connection = place.connection.as_ref()?;
        let mut command = redis::cmd("EVAL");
        command.arg(SCRIPT).arg(1).arg(shared.names.own(shard.tag.as_deref(), "nodes"));
        command.arg(format!("{:x}", shared.incarnation)).arg(u8::from(is_there));
        let answer = connection.ask(&command).await;
        let names = answer.and_then(|value| Ok(redis::from_redis_value(value).map_err(RedisError::from)?));
        let number = |name: String| u64::from_str_radix(&name, 16).unwrap_or_default();
        Some(names.map(|names: Vec<String>| names.into_iter().map(number).collect()))
    }
}

const SCRIPT: &str = include_str!("../../../lua/membership.lua");
const PLACES: usize = 3;
const PAUSE: Duration = Duration::from_secs(1);
/// The pause while no shard answers.
const PAUSE_UNHEARD: Duration = Duration::from_millis(50);
const FALLS_AFTER_NS: u64 = 10_000_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND_NS: u64 = 1_000_000_000;

    #[test]
    fn a_key_names_as_many_nodes_as_it_has_units_and_each_node_as_often() {
        let nodes: Vec<u64> = (1..=20).map(|node| node * 7_919).collect();
        let of = |own: &u64| {
            let nodes = Nodes { known: ArcSwap::from_pointee(nodes.clone()), ..Nodes::new(*own) };
            let named = |key: &u64| nodes.rank(Key::new(u128::from(*key) << 64 | 5)) < 3;
            (0..2_000).filter(named).collect::<Vec<_>>()
        };
        let named: Vec<_> = nodes.iter().map(of).collect();
        for key in 0..2_000 {
            assert_eq!(named.iter().filter(|keys| keys.contains(&key)).count(), 3, "{key}");
        }
        assert!(
            named.iter().all(|keys| (240..360).contains(&keys.len())),
            "{:?}",
            named.iter().map(Vec::len)
        );
    }

    #[test]
    fn the_count_rises_at_once_and_falls_ten_seconds_later() {
        let mut counts = Counts::default();
        assert_eq!(counts.add(3, SECOND_NS), 3);
        assert_eq!(counts.add(5, 2 * SECOND_NS), 5);
        for second in 3..12 {
            assert_eq!(counts.add(2, second * SECOND_NS), 5);
        }
        assert_eq!(counts.add(2, 12 * SECOND_NS), 2);
        // A long silence changes nothing; the first count after it replaces the old ones.
        assert_eq!(counts.add(4, 900 * SECOND_NS), 4);
        assert_eq!(counts.add(0, 990 * SECOND_NS), 1);
    }
}
