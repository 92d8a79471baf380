//! `/v1/hot-keys`: which keys use most of each policy.

use std::sync::Arc;

use axum::extract::State as Of;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::answer::{self, Answer};
use super::endpoint::read;
use super::operations::Document;
use super::reading::query::Query;
use super::schema::Name;
use crate::admin::access::AdminRole::Read;
use crate::admin::counts::HotKeysShown;
use crate::admin::refusal::AdminRefusal;
use crate::admin::state::AdminState;
use crate::database::Time;
use base::words;
use metrics::hot_keys::{EACH_MAX, FleetRow, HotKeyFilter, HotKeyReport, MINUTES_MAX, shown_name};

/// A query for hot keys.
#[derive(Debug, Deserialize, JsonSchema)]
pub(in crate::admin) struct HotKeyQuery {
    /// Only this policy.
    policy: Option<Name>,
    /// Over this number of last minutes; default: 1.
    #[schemars(range(min = 1, max = MINUTES_MAX))]
    minutes: Option<u64>,
    /// The most keys to show per policy; default: 5.
    #[schemars(range(min = 1, max = EACH_MAX))]
    limit: Option<usize>,
}

/// The busiest keys of each policy, by the policy's name, the busiest of a policy first.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct HotKeyList {
    /// The number of minutes that this covers.
    pub minutes: u64,
    /// The keys at this node.
    pub items: Vec<HotKey>,
    /// The keys at all nodes of the fleet together, over complete minutes; null without a fleet, or if Redis does not
    /// answer.
    pub fleet: Option<HotFleet>,
}

/// A heavy key.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub struct HotKey {
    /// The policy that counts it.
    pub policy: String,
    /// Who is counted: `consumer=alice, route=api`. Credentials are masked, and addresses are shown as `[privacy]`
    /// says.
    #[schemars(example = &"consumer=alice, route=api")]
    pub key: String,
    /// Distinguishes keys that have the same name.
    pub id: String,
    /// The shard of Redis that keeps it; null if this node does.
    pub shard: Option<String>,
    /// Whether it exceeds its share now.
    pub hot: bool,
    /// Requests per second in the last minute.
    pub requests_per_second: f64,
    /// Refused requests per second.
    pub denied_per_second: f64,
    /// Its share of the policy's decisions in the last minute, 0 to 1.
    pub of_policy: f64,
    /// Its share of its shard's decisions.
    pub of_shard: Option<f64>,
    /// The complete minutes in which it was among the first twenty of its policy.
    pub minutes: Vec<HotMinute>,
}

/// A key in a minute.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub struct HotMinute {
    /// When the minute began.
    pub at: Time,
    /// Requests per second in this minute.
    pub requests_per_second: f64,
    /// Refused requests per second.
    pub denied_per_second: f64,
}

/// Heavy keys of a fleet.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct HotFleet {
    /// How many nodes have reported these minutes.
    pub nodes: usize,
    /// The keys, the heaviest of a policy first.
    pub items: Vec<FleetKey>,
}

/// A heavy key of a fleet.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub struct FleetKey {
    /// The policy that counts it.
    pub policy: String,
    /// Who is counted.
    pub key: String,
    /// Distinguishes keys that have the same name.
    pub id: String,
    /// Requests per second at all nodes.
    pub requests_per_second: f64,
    /// Refused requests per second.
    pub denied_per_second: f64,
}

pub(super) fn describe(document: &mut Document) {
    document.begin("counts", &[]);
    document.endpoint("/v1/hot-keys", "?policy=&minutes=&limit=: the busiest keys of each policy");
    document
        .operation(read(Read, list), "list-hot-keys")
        .about("Shows the busiest keys of each policy, the busiest first.")
        .query::<HotKeyQuery>()
        .answers::<HotKeyList>("The keys.");
}

async fn list(Of(state): Of<Arc<AdminState>>, Query(listed): Query<HotKeyQuery>) -> Answer {
    let minutes = listed.minutes.unwrap_or(1);
    let policy = listed.policy.map(|name| name.0);
    let asked = HotKeyFilter { policy: policy.clone(), minutes, each: listed.limit.unwrap_or(EACH) };
    let Some(hot_keys) = &state.counts.hot_keys else {
        return Err(AdminRefusal::NotFound("hot keys are not recorded: write `hot-keys = true` in [limits]"));
    };
    let shown = hot_keys(asked).await;
    if !shown.is_known {
        let policies = (state.counts.names)().policies;
        return Err(AdminRefusal::UnknownName(words::unknown(
            "policy",
            &policy.unwrap_or_default(),
            &policies,
        )));
    }
    let items = shown.own.iter().map(|row| row_of(row, &shown)).collect();
    let fleet = shown.fleet.as_ref().map(|(nodes, rows)| HotFleet {
        nodes: *nodes,
        items: rows.iter().map(|row| fleet_row(row, minutes)).collect(),
    });
    Ok(answer::json(&HotKeyList { minutes, items, fleet }))
}

fn row_of(row: &HotKeyReport, all: &HotKeysShown) -> HotKey {
    let standing = row.standing.unwrap_or_default();
    let minutes = row.minutes.iter().map(|(minute, counts)| HotMinute {
        at: Time(i64::try_from(minute * MINUTE_SECONDS).unwrap_or(i64::MAX).saturating_mul(1_000_000)),
        requests_per_second: rate(counts.requests, 1),
        denied_per_second: rate(counts.denied, 1),
    });
    HotKey {
        policy: row.key.policy.to_string(),
        key: shown_name(&row.key.name).to_string(),
        id: id(row.key.key),
        shard: row.key.shard.and_then(|shard| all.shards.get(&shard)).cloned(),
        hot: row.is_hot,
        requests_per_second: rounded(row.requests_per_second),
        denied_per_second: rounded(row.denied_per_second),
        of_policy: rounded(standing.of_policy),
        of_shard: standing.of_shard.map(rounded),
        minutes: minutes.collect(),
    }
}

fn fleet_row(row: &FleetRow, minutes: u64) -> FleetKey {
    FleetKey {
        policy: row.policy.clone(),
        key: shown_name(&row.name).to_string(),
        id: id(row.key),
        requests_per_second: rate(row.requests, minutes),
        denied_per_second: rate(row.denied, minutes),
    }
}

/// A key's hash, because names may be masked or cut alike.
fn id(key: u64) -> String {
    format!("{key:016x}")
}

/// How many a second, of so many in these minutes.
fn rate(count: u64, minutes: u64) -> f64 {
    rounded(count as f64 / (minutes * MINUTE_SECONDS) as f64)
}

fn rounded(number: f64) -> f64 {
    (number * 1e3).round() / 1e3
}

const MINUTE_SECONDS: u64 = 60;
const EACH: usize = 5;
