//! Logs changes of the condition of shards: one line for all shards that change together on one node, because a cluster
//! has 64 of them.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

use base::clock;

use super::condition::Condition;
use super::routes::RoutingState;
use super::shard::{Change, NodeId};

/// Runs until it is stopped, and logs every change until then.
pub(super) async fn keep(shared: Arc<RoutingState>, mut stop: watch::Receiver<bool>) {
    let mut tick = tokio::time::interval(PAUSE);
    let mut logged = HashMap::new();
    loop {
        tokio::select! {
            _ = tick.tick() => {}
            _ = stop.changed() => return log_changes(&shared, &mut HashMap::new(), clock::now_ns()),
        }
        log_changes(&shared, &mut logged, clock::now_ns());
    }
}

/// Logs what has changed. `logged` holds when trouble of a node, or its end, was last logged, nanoseconds. The tags of
/// a cluster's node change one after another, so they are logged again after a second at the earliest.
fn log_changes(shared: &RoutingState, logged: &mut HashMap<(NodeId, bool), u64>, now_ns: u64) {
    logged.retain(|_, at_ns| now_ns.saturating_sub(*at_ns) < AGAIN_NS);
    // A node, the change of its first shard, and how many shards changed so.
    let mut changes: Vec<(NodeId, Change, usize)> = Vec::new();
    for shard in &shared.shards {
        let node = shard.place();
        // A line for another tag of this node was just logged.
        if shard.tag.is_some() && logged.contains_key(&(node, shard.condition().is_trouble())) {
            continue;
        }
        let Some(change) = shard.change(now_ns) else { continue };
        match changes.iter_mut().find(|(of, known, _)| *of == node && known.now == change.now) {
            Some((_, _, count)) => *count += 1,
            None => changes.push((node, change, 1)),
        }
    }
    log_lateness(shared, now_ns);
    let nodes = shared.nodes.load();
    for (node, change, shards) in changes {
        let shard = nodes.get(node).map_or("cluster", |node| &*node.name);
        let Change { before, now, why, relapses } = change;
        logged.insert((node, now.is_trouble()), now_ns);
        let is_first = before == Condition::Unknown;
        let (before, condition, relapses) = (before.name(), now.name(), (relapses > 0).then_some(relapses));
        let shards = (shards > 1).then_some(shards);
        match now {
            // The line about the connection says it.
            Condition::Up if is_first => {}
            Condition::Up => tracing::info!(shard, shards, before, "Redis answers: limits are shared"),
            _ => {
                let what = match now.remedy() {
                    Some(_) => REFUSES,
                    None if now == Condition::Loading => LOADING,
                    None => AWAY,
                };
                let advice = now.remedy().or_else(|| Condition::remedy_unreached(&why));
                tracing::warn!(shard, shards, before, now = condition, why, relapses, advice, "{what}");
            }
        }
    }
}

/// Logs the nodes whose answers have begun, or ceased, to come late as a rule.
fn log_lateness(shared: &RoutingState, now_ns: u64) {
    // The node, whether it is late, and how long its slowest shard takes and is waited for.
    let mut changes: Vec<(NodeId, bool, (u64, u64))> = Vec::new();
    for shard in &shared.shards {
        let Some(is_late) = shard.lateness_change(now_ns) else { continue };
        let (node, takes) = (shard.place(), (shard.round_trip_ns(), shared.deadline_of(shard)));
        match changes.iter_mut().find(|(of, known, _)| *of == node && *known == is_late) {
            Some((_, _, slowest)) => *slowest = takes.max(*slowest),
            None => changes.push((node, is_late, takes)),
        }
    }
    let nodes = shared.nodes.load();
    for (node, is_late, (takes_ns, deadline_ns)) in changes {
        let shard = nodes.get(node).map_or("cluster", |node| &*node.name);
        let [round_trip, deadline] = [takes_ns, deadline_ns].map(Duration::from_nanos);
        if is_late {
            let advice = "requests do not wait for it; raise `deadline` of [redis] above the round trip";
            tracing::warn!(shard, ?round_trip, ?deadline, advice, "Redis answers after the deadline");
        } else {
            tracing::info!(shard, ?deadline, "Redis answers within the deadline again");
        }
    }
}

const AWAY: &str =
    "Redis does not answer: each policy follows its when-redis-down; nodes recover on their own";
const LOADING: &str = "Redis is loading its data: each policy follows its when-redis-down until it has";
const REFUSES: &str = "Redis refuses calls: each policy follows its when-redis-down until that is corrected; a change \
    of [redis] takes a restart";
/// A change of the same kind is logged again for a node after this, nanoseconds.
const AGAIN_NS: u64 = 1_000_000_000;
/// Long enough for a change of all shards of a node to be one line.
const PAUSE: Duration = Duration::from_millis(50);
