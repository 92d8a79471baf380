//! `/v1/tiers`: what each tier allows under each policy, or under all that are by tier. It goes before what gateway.toml and
//! the policies of the database say.

use std::num::NonZeroU64;
use std::sync::Arc;

use axum::body::Body as Sent;
use axum::extract::State as Of;
use http::{Response, StatusCode};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use super::answer;
use super::change::{ChangeRequest, JsonBody, readable};
use super::operations::Document;
use super::page::{ListPage, PageQuery};
use super::reading::path::PathValues;
use super::reading::query::Query;
use crate::admin::control::Proposal;
use crate::admin::refusal::AdminRefusal;
use crate::admin::state::AdminState;
use crate::database::tiers::{BURST_MULTIPLIER, key};
use crate::database::{NewTierLimit, TierLimit};
use base::units::DURATION_MAX;

type Answer = Result<Response<Sent>, AdminRefusal>;

/// A tier's limit to be written.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(extend("examples" = [json!({ "limit-value": 1000, "window-seconds": 60, "algorithm": "token-bucket" })]))]
struct TierLimitBody {
    /// How many units one window has.
    #[schemars(range(min = 1, max = LIMIT_MAX))]
    limit_value: NonZeroU64,
    /// How long a window is.
    #[schemars(range(min = 1, max = DURATION_MAX.as_secs()))]
    window_seconds: NonZeroU64,
    /// 1.2 if it is left out
    #[schemars(range(min = 0.000_001, max = 1_000.0))]
    burst_multiplier: Option<f64>,
    /// A word of `algorithm` in gateway.toml.
    #[schemars(extend("enum" = [
        "token-bucket", "sliding-window", "fixed-window", "sliding-log", "leaky-bucket", null,
    ]))]
    algorithm: Option<String>,
}

pub(super) fn describe(document: &mut Document) {
    document.begin("tiers", &[("tier", "the tier"), ("resource", "the resource")]);
    document
        .operation("GET /v1/tiers", "list-tiers")
        .about("Lists the limits of all tiers, by tier and resource.")
        .query::<PageQuery>()
        .answers::<ListPage<TierLimit>>("A page.");
    document
        .operation("GET /v1/tiers/{tier}/{resource}", "show-tier")
        .about("Shows the limit of a tier for a resource.")
        .shows::<TierLimit>("The limit.");
    document
        .operation("PUT /v1/tiers/{tier}/{resource}", "put-tier")
        .about("Writes the limit of a tier for a resource: a policy by its name, or `*` for `[tier.*]`, which \
            every policy with `limit = \"tier\"` has. What gateway.toml would refuse is refused with the same \
            message.")
        .writes::<TierLimitBody, TierLimit>();
    document
        .operation("DELETE /v1/tiers/{tier}/{resource}", "delete-tier")
        .about(
            "Deletes the limit of a tier for a resource; the one of gateway.toml or of a policy of the database \
             is in force again. Refused if something names the tier and there is no other limit for it.",
        )
        .deletes();
}

pub(in crate::admin) async fn list(
    Of(state): Of<Arc<AdminState>>,
    Query(wanted): Query<PageQuery>,
) -> Answer {
    let Some(database) = readable(&state)? else {
        return Ok(answer::json(&ListPage::<TierLimit>::default()));
    };
    let rows = database.tiers(&wanted.rows()).await?;
    Ok(answer::json(&wanted.page(rows, |row| key(&row.tier, &row.resource))))
}

pub(in crate::admin) async fn show(
    Of(state): Of<Arc<AdminState>>,
    PathValues([tier, resource]): PathValues<2>,
) -> Answer {
    let Some(database) = readable(&state)? else { return Err(NOT_FOUND) };
    let found = database.tier(&tier, &resource).await?.ok_or(NOT_FOUND)?;
    Ok(answer::row(StatusCode::OK, found.version, &found))
}

pub(in crate::admin) async fn put(
    change: ChangeRequest,
    PathValues([tier, resource]): PathValues<2>,
    body: JsonBody,
) -> Answer {
    let TierLimitBody { limit_value, window_seconds, burst_multiplier, algorithm } = body.read()?;
    let new = NewTierLimit { tier, resource, limit_value, window_seconds, burst_multiplier, algorithm };
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

pub(in crate::admin) async fn delete(
    change: ChangeRequest,
    PathValues([tier, resource]): PathValues<2>,
) -> Answer {
    let old = change.database.tier(&tier, &resource).await?.ok_or(NOT_FOUND)?;
    change.check(proposal(&tier, &resource, None)).await?;
    if change.is_dry_run {
        change.check_version(Some(old.version))?;
        return Ok(answer::dry_run(json!(old), Value::Null));
    }
    let deleted = change.database.delete_tier(&change.by, &tier, &resource, change.expected).await;
    deleted.map_err(|error| AdminRefusal::of_row(error, NOT_FOUND))?;
    change.deletion_in_force().await;
    Ok(answer::nothing())
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

const NOT_FOUND: AdminRefusal = AdminRefusal::NotFound("there is no limit of this tier for this resource");

/// A higher limit is refused, because it is surely a typing error, as a higher cost is in gateway.toml.
const LIMIT_MAX: u64 = 1_000_000_000;
