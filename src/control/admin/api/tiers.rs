//! `/v1/tiers`: what each tier allows under each policy, or under all that are by tier. It goes before what gateway.toml and
//! the policies of the database say.

use std::num::NonZeroU64;
use std::sync::Arc;

use axum::body::Body as Sent;
use axum::extract::State as Of;
use http::{Response, StatusCode, Uri};
use serde_json::{Value, json};

use super::answer::{self, DryRun};
use super::change::{Body, Change, readable};
use super::described::{self, Name};
use super::fields::Fields;
use super::page::{Page, Wanted};
use super::path::Values;
use super::query::Query;
use crate::admin::control::Proposal;
use crate::admin::refusal::Refusal;
use crate::admin::state::State;
use crate::database::NewTierLimit;
use crate::database::tiers::{BURST_MULTIPLIER, key};
use base::units::DURATION_MAX;

type Answer = Result<Response<Sent>, Refusal>;

/// Lists the limits of all tiers, by tier and resource.
#[utoipa::path(get, path = "/v1/tiers", tag = "tiers", operation_id = "list-tiers",
    params(Wanted),
    responses((status = 200, description = "A page.", body = Page<described::TierLimit>)))]
pub(in crate::admin) async fn list(Of(state): Of<Arc<State>>, uri: Uri) -> Answer {
    let mut query = Query::parse(uri.query().unwrap_or_default());
    let wanted = Wanted::read(&mut query);
    query.finish().map_err(Refusal::Invalid)?;
    let Some(database) = readable(&state)? else { return Ok(answer::json(&Page::<Value>::default())) };
    let rows = database.tiers(&wanted.rows()).await?;
    Ok(answer::json(&wanted.page(rows, |row| key(&row.tier, &row.resource))))
}

/// Shows what a tier allows of a resource.
#[utoipa::path(get, path = "/v1/tiers/{tier}/{resource}", tag = "tiers", operation_id = "show-tier",
    params(("tier" = Name, Path, description = "the tier"), ("resource" = Name, Path, description = "the resource")),
    responses((status = 200, description = "The limit.", body = described::TierLimit, headers(("etag" = String)))))]
pub(in crate::admin) async fn show(Of(state): Of<Arc<State>>, Values([tier, resource]): Values<2>) -> Answer {
    let Some(database) = readable(&state)? else { return Err(NOT_FOUND) };
    let found = database.tier(&tier, &resource).await?.ok_or(NOT_FOUND)?;
    Ok(answer::row(StatusCode::OK, found.version, &found))
}

/// Writes what a tier allows of a resource: a policy by its name, or `*` for `[tier.*]`, which every policy with
/// `limit = "tier"` has. What gateway.toml would refuse is refused in the same words.
#[utoipa::path(put, path = "/v1/tiers/{tier}/{resource}", tag = "tiers", operation_id = "put-tier",
    params(("tier" = Name, Path, description = "the tier"), ("resource" = Name, Path, description = "the resource"),
        answer::DryRunParameter, answer::IfMatch, answer::IfNoneMatch),
    request_body = described::TierLimitBody,
    responses((status = 200, description = "It is in force, or what would be done.",
        body = described::TierLimitPut, headers(("etag" = String)))))]
pub(in crate::admin) async fn put(change: Change, Values([tier, resource]): Values<2>, body: Body) -> Answer {
    let new = tier_limit(tier, resource, body.fields)?;
    change.check(proposal(&new.tier, &new.resource, Some(new.clone()))).await?;
    if change.is_dry_run {
        let old = change.database.tier(&new.tier, &new.resource).await?;
        change.check_version(old.as_ref().map(|old| old.version))?;
        return Ok(answer::dry_run(json!(old), shown(&new)));
    }
    let put = change.database.put_tier(&change.by, new, change.expected).await?;
    change.in_force(put.version).await;
    Ok(answer::row(StatusCode::OK, put.version, &put))
}

/// Deletes what a tier allows of a resource; what gateway.toml or a policy of the database says is in force again. Refused
/// if something names the tier and there is no other limit for it.
#[utoipa::path(delete, path = "/v1/tiers/{tier}/{resource}", tag = "tiers", operation_id = "delete-tier",
    params(("tier" = Name, Path, description = "the tier"), ("resource" = Name, Path, description = "the resource"),
        answer::DryRunParameter, answer::IfMatch),
    responses(
        (status = 204, description = "It is deleted."),
        (status = 200, description = "What would be done.", body = DryRun),
    ))]
pub(in crate::admin) async fn delete(change: Change, Values([tier, resource]): Values<2>) -> Answer {
    let old = change.database.tier(&tier, &resource).await?.ok_or(NOT_FOUND)?;
    change.check(proposal(&tier, &resource, None)).await?;
    if change.is_dry_run {
        change.check_version(Some(old.version))?;
        return Ok(answer::dry_run(json!(old), Value::Null));
    }
    let deleted = change.database.delete_tier(&change.by, &tier, &resource, change.expected).await;
    deleted.map_err(|error| Refusal::of_row(error, NOT_FOUND))?;
    change.deletion_in_force().await;
    Ok(answer::nothing())
}

fn tier_limit(tier: String, resource: String, mut fields: Fields) -> Result<NewTierLimit, Refusal> {
    fields.require("limit-value", "write how many units a window has");
    fields.require("window-seconds", "write how long a window is");
    let limit_value = fields.integer("limit-value", 1..=LIMIT_MAX).and_then(NonZeroU64::new);
    let window_seconds =
        fields.integer("window-seconds", 1..=DURATION_MAX.as_secs()).and_then(NonZeroU64::new);
    let burst_multiplier = fields.number("burst-multiplier");
    if burst_multiplier.is_some_and(|factor| !(BURST_MIN..=BURST_MAX).contains(&factor)) {
        fields
            .wrong("burst-multiplier", format!("`burst-multiplier` must be from {BURST_MIN} to {BURST_MAX}"));
    }
    let algorithm = fields.choice("algorithm", &ALGORITHMS).map(str::to_owned);
    fields.finish().map_err(Refusal::Invalid)?;
    // Whatever is missing has been reported.
    let (Some(limit_value), Some(window_seconds)) = (limit_value, window_seconds) else {
        return Err(Refusal::Invalid(Vec::new()));
    };
    Ok(NewTierLimit { tier, resource, limit_value, window_seconds, burst_multiplier, algorithm })
}

fn proposal(tier: &str, resource: &str, limit: Option<NewTierLimit>) -> Proposal {
    Proposal::Tier { tier: tier.to_owned(), resource: resource.to_owned(), limit }
}

fn shown(new: &NewTierLimit) -> Value {
    json!({
        "tier": new.tier, "resource": new.resource, "limit-value": new.limit_value,
        "window-seconds": new.window_seconds, "algorithm": new.algorithm,
        "burst-multiplier": new.burst_multiplier.unwrap_or(BURST_MULTIPLIER),
    })
}

const NOT_FOUND: Refusal = Refusal::NotFound("there is no limit of this tier for this resource");

/// The words of `algorithm` in gateway.toml. The database keeps the word.
const ALGORITHMS: [(&str, &str); 5] = [
    ("token-bucket", "token-bucket"),
    ("sliding-window", "sliding-window"),
    ("fixed-window", "fixed-window"),
    ("sliding-log", "sliding-log"),
    ("leaky-bucket", "leaky-bucket"),
];

/// A higher limit is surely a typing error, as a higher cost is in gateway.toml.
const LIMIT_MAX: u64 = 1_000_000_000;
const BURST_MIN: f64 = 0.000_001;
const BURST_MAX: f64 = 1_000.0;
