//! What the nodes of a fleet do, as each leaves it for the others in Redis: some figures every five seconds, in one write.
//! They are read only while somebody watches, so a fleet that nobody looks at is told and not asked.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::{MissedTickBehavior, interval, timeout};

use super::rates::{Interval, tenth};
use super::reading::Sources;
use base::clock;
use base::random::Random;
use limiter::global::SharedValues;

/// The figures of all nodes, as far as they are known.
#[derive(Clone)]
pub(crate) struct Fleet(Arc<FleetState>);

struct FleetState {
    values: SharedValues,
    /// This process among all that leave figures: two nodes may have one name.
    own: String,
    /// What each node said last, by what it is called there.
    nodes: Mutex<BTreeMap<Vec<u8>, Value>>,
    watched_ns: AtomicU64,
}

impl Fleet {
    pub(crate) fn new(values: SharedValues) -> Fleet {
        Fleet(Arc::new(FleetState {
            values,
            own: Random::seeded().name(),
            nodes: Mutex::default(),
            watched_ns: AtomicU64::new(0),
        }))
    }

    /// Tells the others every few seconds, without end, and hears them while somebody watches.
    pub(crate) async fn follow(self, sources: Sources) {
        let mut ticks = interval(TOLD_EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
        let mut before = sources.reading();
        // The first tick is at once, when there is nothing to tell.
        ticks.tick().await;
        loop {
            ticks.tick().await;
            let now = sources.reading();
            let told = own(&sources, &Interval::between(&before, &now)).to_string();
            before = now;
            let at = clock::unix().as_secs();
            let name = note(at);
            let put = self.0.values.put_beside(&name, &self.0.own, told.as_bytes(), KEPT);
            // An outage of Redis has its lines in the log already.
            let _ = timeout(ANSWER_WITHIN, put).await;
            let watched_ns = self.0.watched_ns.load(Ordering::Relaxed);
            if watched_ns > 0 && clock::now_ns().saturating_sub(watched_ns) < WATCHED_NS {
                let _ = timeout(ANSWER_WITHIN, self.hear(at)).await;
            }
        }
    }

    /// Reads what was left in this period and in the one before: not everybody has written in this one yet.
    async fn hear(&self, at: u64) {
        let mut nodes = BTreeMap::new();
        for at in [at.saturating_sub(PERIOD_SECONDS), at] {
            let Ok(told) = self.0.values.all_beside(&note(at)).await else { return };
            let read = |(own, told): (Vec<u8>, Vec<u8>)| Some((own, serde_json::from_slice(&told).ok()?));
            nodes.extend(told.into_iter().filter_map(read));
        }
        *self.0.nodes.lock().unwrap_or_else(PoisonError::into_inner) = nodes;
    }

    /// All nodes, and what their policies decide together.
    pub(super) fn shown(&self, now_ns: u64) -> Value {
        self.0.watched_ns.store(now_ns.max(1), Ordering::Relaxed);
        let nodes = self.0.nodes.lock().unwrap_or_else(PoisonError::into_inner).clone();
        together(nodes.into_values())
    }
}

fn own(sources: &Sources, interval: &Interval<'_>) -> Value {
    let requests = interval.requests();
    let mut policies: Vec<(f64, f64, &str)> =
        interval.policies().into_iter().map(|row| (row.first, row.then, row.name)).collect();
    policies.retain(|(_, all, _)| *all > 0.0);
    policies.sort_by(|one, other| other.0.total_cmp(&one.0).then(other.1.total_cmp(&one.1)));
    let refused = policies.iter().map(|(refused, ..)| refused).sum::<f64>();
    let policy = |(refused, all, name): (f64, f64, &str)| json!({ "name": name, "refused": refused, "admitted": tenth(all - refused) });
    json!({
        "node": &*sources.current.load().node.name,
        "at": clock::unix().as_secs(),
        "version": env!("CARGO_PKG_VERSION"),
        "phase": sources.phase(),
        "generation": sources.current.load().generation + 1,
        "requests": requests["per-second"],
        "5xx": requests["5xx"],
        "p99": requests["p99"],
        "refused": tenth(refused),
        "open": interval.connections()["open"],
        "policies": policies.into_iter().take(POLICIES_TOLD).map(policy).collect::<Value>(),
    })
}

/// Nodes by name, and the sums of their policies, those that refuse first.
fn together(nodes: impl Iterator<Item = Value>) -> Value {
    let mut nodes: Vec<Value> = nodes.collect();
    nodes.sort_by_key(|node| node["node"].as_str().unwrap_or_default().to_owned());
    let mut sums: BTreeMap<String, [f64; 2]> = BTreeMap::new();
    for policy in nodes.iter().flat_map(|node| node["policies"].as_array().into_iter().flatten()) {
        let sum = sums.entry(policy["name"].as_str().unwrap_or_default().to_owned()).or_default();
        sum[0] += policy["refused"].as_f64().unwrap_or_default();
        sum[1] += policy["admitted"].as_f64().unwrap_or_default();
    }
    let mut policies: Vec<(String, [f64; 2])> = sums.into_iter().collect();
    policies.sort_by(|(_, one), (_, other)| other[0].total_cmp(&one[0]).then(other[1].total_cmp(&one[1])));
    let policy = |(name, [refused, admitted]): (String, [f64; 2])| json!({ "name": name, "refused": tenth(refused), "admitted": tenth(admitted) });
    let policies: Value = policies.into_iter().take(POLICIES_SHOWN).map(policy).collect();
    let count = nodes.len();
    nodes.truncate(NODES_SHOWN);
    for node in &mut nodes {
        if let Some(fields) = node.as_object_mut() {
            fields.remove("policies");
        }
    }
    json!({ "count": count, "nodes": nodes, "policies": policies })
}

/// What nodes leave in a period, all in one place.
fn note(at: u64) -> String {
    format!("live-{}", at / PERIOD_SECONDS)
}

const TOLD_EVERY: Duration = Duration::from_secs(5);
/// So that one who has gone is not in the next.
const PERIOD_SECONDS: u64 = 15;
const KEPT: Duration = Duration::from_secs(45);
/// For how long after an event others are heard.
const WATCHED_NS: u64 = 20_000_000_000;
const ANSWER_WITHIN: Duration = Duration::from_secs(1);
/// Policies of one node that others are told of: a kilobyte or two.
const POLICIES_TOLD: usize = 20;
const POLICIES_SHOWN: usize = 20;
const NODES_SHOWN: usize = 100;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policies_of_all_nodes_are_added_up_and_those_that_refuse_come_first() {
        let node = |name: &str, policies: Value| json!({ "node": name, "policies": policies });
        let policy = |name: &str, refused: f64, admitted: f64| json!({ "name": name, "refused": refused, "admitted": admitted });
        let shown = together(
            [
                node("b", json!([policy("p", 1.5, 2.0)])),
                node("a", json!([policy("q", 0.0, 100.0), policy("p", 0.5, 1.0)])),
            ]
            .into_iter(),
        );
        assert_eq!(shown["policies"], json!([policy("p", 2.0, 3.0), policy("q", 0.0, 100.0)]));
        assert_eq!(shown["nodes"], json!([{ "node": "a" }, { "node": "b" }]));
    }
}
