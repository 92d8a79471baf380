//! What the nodes of a fleet tell each other of a minute: its heaviest keys, as one text, and their sum.

use std::collections::{BTreeMap, HashMap};

use serde::{Deserialize, Serialize};

use super::book::{HotKeyFilter, HotKeyStat, ROWS_MAX};
use super::named_key::{NAME_BYTES_MAX, cut};
use super::sketch::KeyCounts;

/// What a key did, at one node or at all of them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FleetRow {
    /// The key's hash, the same at every node.
    pub key: u64,
    /// The policy that counts by it.
    pub policy: String,
    pub name: String,
    pub requests: u64,
    /// Those of them that were denied.
    pub denied: u64,
}

/// The heaviest rows of a minute as a text, with their names as `name` has them.
pub fn encode(rows: &[HotKeyStat], name: impl Fn(&str) -> String) -> Vec<u8> {
    let mut heaviest: Vec<&HotKeyStat> = rows.iter().collect();
    heaviest.sort_by_key(|row| std::cmp::Reverse(row.counts.requests));
    let told = heaviest.into_iter().take(TOLD_MAX).map(|row| FleetRow {
        key: row.key.key,
        policy: row.key.policy.to_string(),
        name: cut(name(&row.key.name)),
        requests: row.counts.requests,
        denied: row.counts.denied,
    });
    // Cannot fail, because there are only texts and numbers.
    serde_json::to_vec(&told.collect::<Vec<_>>()).unwrap_or_default()
}

/// The rows of a text; none of one that no node has written.
pub fn decode(text: &[u8]) -> Vec<FleetRow> {
    let mut rows: Vec<FleetRow> = serde_json::from_slice(text).unwrap_or_default();
    rows.truncate(TOLD_MAX);
    rows.retain(|row| row.name.len() <= NAME_BYTES_MAX);
    rows
}

/// What all of these rows come to, key by key: the heaviest of each policy first, policies by name.
pub fn sum(rows: Vec<FleetRow>, asked: &HotKeyFilter) -> Vec<FleetRow> {
    let mut keys: HashMap<u64, FleetRow> = HashMap::new();
    for row in rows.into_iter().filter(|row| asked.policy.as_ref().is_none_or(|policy| row.policy == *policy))
    {
        match keys.get_mut(&row.key) {
            Some(known) => {
                let mut counts = KeyCounts { requests: known.requests, denied: known.denied };
                counts.add(KeyCounts { requests: row.requests, denied: row.denied });
                (known.requests, known.denied) = (counts.requests, counts.denied);
            }
            None => {
                keys.insert(row.key, row);
            }
        }
    }
    let mut policies: BTreeMap<String, Vec<FleetRow>> = BTreeMap::new();
    for (_, row) in keys {
        policies.entry(row.policy.clone()).or_default().push(row);
    }
    for rows in policies.values_mut() {
        rows.sort_by(|one, two| two.requests.cmp(&one.requests).then_with(|| one.name.cmp(&two.name)));
        rows.truncate(asked.each);
    }
    policies.into_values().flatten().take(ROWS_MAX).collect()
}

/// Keys that a node tells of a minute.
const TOLD_MAX: usize = 256;
