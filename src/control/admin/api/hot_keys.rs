//! `/v1/hot-keys`: which keys use most of each policy.

use std::sync::Arc;

use axum::body::Body as Sent;
use axum::extract::State as Of;
use http::{Response, Uri};
use serde_json::{Value, json};

use super::answer;
use super::described::{self, Name};
use super::path::ID_CHARS_MAX;
use super::query::Query;
use crate::admin::counts::HotKeysShown;
use crate::admin::refusal::Refusal;
use crate::admin::state::State;
use crate::database::Time;
use metrics::hot_keys::{Asked, EACH_MAX, FleetRow, MINUTES_MAX, Shown, shown_name};

/// Shows the keys that use most of each policy, the heaviest first.
#[utoipa::path(get, path = "/v1/hot-keys", tag = "counts", operation_id = "list-hot-keys",
    params(("policy" = Option<Name>, Query, description = "only this policy"),
        ("minutes" = Option<described::HotMinutes>, Query, description = "over the last so many minutes; 1 if none are asked for"),
        ("limit" = Option<described::HotLimit>, Query, description = "so many of each policy; 5 if none are asked for")),
    responses((status = 200, description = "The keys.", body = described::HotKeys)))]
pub(in crate::admin) async fn list(Of(state): Of<Arc<State>>, uri: Uri) -> Result<Response<Sent>, Refusal> {
    let mut query = Query::parse(uri.query().unwrap_or_default());
    let asked = Asked {
        policy: query.text("policy", ID_CHARS_MAX),
        minutes: query.integer("minutes", 1..=MINUTES_MAX).unwrap_or(1),
        each: query.integer("limit", 1..=EACH_MAX as u64).map_or(EACH, |each| each as usize),
    };
    query.finish().map_err(Refusal::Invalid)?;
    let Some(hot_keys) = &state.counts.hot_keys else {
        return Err(Refusal::NotFound("hot keys are not watched: write `hot-keys = true` in [limits]"));
    };
    let minutes = asked.minutes;
    let shown = hot_keys(asked).await;
    if !shown.is_known {
        return Err(Refusal::NotFound("no policy of this name is in force"));
    }
    let items: Vec<Value> = shown.own.iter().map(|row| row_of(row, &shown)).collect();
    let fleet = shown.fleet.as_ref().map(|(nodes, rows)| {
        let items: Vec<Value> = rows.iter().map(|row| fleet_row(row, minutes)).collect();
        json!({ "nodes": nodes, "items": items })
    });
    Ok(answer::json(&json!({ "minutes": minutes, "items": items, "fleet": fleet })))
}

fn row_of(row: &Shown, all: &HotKeysShown) -> Value {
    let standing = row.standing.unwrap_or_default();
    let minutes = row.minutes.iter().map(|(minute, counts)| {
        let at = Time(i64::try_from(minute * MINUTE_SECONDS).unwrap_or(i64::MAX).saturating_mul(1_000_000));
        json!({ "at": at, "requests-per-second": rate(counts.requests, 1), "denied-per-second": rate(counts.denied, 1) })
    });
    json!({
        "policy": row.key.policy, "key": shown_name(&row.key.name), "id": id(row.key.key),
        "shard": row.key.shard.and_then(|shard| all.shards.get(&shard)),
        "hot": row.is_hot,
        "requests-per-second": rounded(row.requests_per_second),
        "denied-per-second": rounded(row.denied_per_second),
        "of-policy": rounded(standing.of_policy), "of-shard": standing.of_shard.map(rounded),
        "minutes": minutes.collect::<Vec<_>>(),
    })
}

fn fleet_row(row: &FleetRow, minutes: u64) -> Value {
    json!({
        "policy": row.policy, "key": shown_name(&row.name), "id": id(row.key),
        "requests-per-second": rate(row.requests, minutes),
        "denied-per-second": rate(row.denied, minutes),
    })
}

/// A key's hash tells keys apart whose names are masked or cut alike.
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
/// Keys of a policy, if nobody says how many.
const EACH: usize = 5;
