//! `/v1/consumers/{id}/tier`: which tier a consumer has.

use std::sync::Arc;

use axum::body::Body as Sent;
use axum::extract::State as Of;
use http::{Response, StatusCode};
use serde_json::{Value, json};

use super::answer::{self, DryRun};
use super::change::{Body, Change, readable};
use super::described::{self, Name};
use super::path::{ID_CHARS_MAX, Values};
use crate::admin::refusal::Refusal;
use crate::admin::state::State;

type Answer = Result<Response<Sent>, Refusal>;

/// Shows the tier of a consumer.
#[utoipa::path(get, path = "/v1/consumers/{id}/tier", tag = "tiers", operation_id = "show-consumer-tier",
    params(("id" = Name, Path, description = "the consumer")),
    responses((status = 200, description = "The tier.", body = described::Assignment, headers(("etag" = String)))))]
pub(in crate::admin) async fn show_tier(Of(state): Of<Arc<State>>, Values([id]): Values<1>) -> Answer {
    let Some(database) = readable(&state)? else { return Err(NOT_FOUND) };
    let found = database.assignment(&id).await?.ok_or(NOT_FOUND)?;
    Ok(answer::row(StatusCode::OK, found.version, &found))
}

/// Gives a consumer a tier, in the place of the one that it may have.
#[utoipa::path(put, path = "/v1/consumers/{id}/tier", tag = "tiers", operation_id = "put-consumer-tier",
    params(("id" = Name, Path, description = "the consumer"), answer::DryRunParameter, answer::IfMatch, answer::IfNoneMatch),
    request_body = described::AssignmentBody,
    responses((status = 200, description = "It is in force, or what would be done.",
        body = described::AssignmentPut, headers(("etag" = String)))))]
pub(in crate::admin) async fn put_tier(change: Change, Values([id]): Values<1>, body: Body) -> Answer {
    let mut fields = body.fields;
    fields.require("tier", "write the name of a tier");
    let tier = fields.text("tier", ID_CHARS_MAX);
    fields.finish().map_err(Refusal::Invalid)?;
    let tier = tier.unwrap_or_default();
    change.must_be_tier(&tier)?;
    if change.is_dry_run {
        let old = change.database.assignment(&id).await?;
        change.check_version(old.as_ref().map(|old| old.version))?;
        return Ok(answer::dry_run(json!(old), json!({ "user-id": id, "tier": tier })));
    }
    let put = change.database.put_assignment(&change.by, &id, &tier, change.expected).await?;
    change.in_force(put.version).await;
    Ok(answer::row(StatusCode::OK, put.version, &put))
}

/// Takes the tier of a consumer away. Its credential or the default decides then.
#[utoipa::path(delete, path = "/v1/consumers/{id}/tier", tag = "tiers", operation_id = "delete-consumer-tier",
    params(("id" = Name, Path, description = "the consumer"), answer::DryRunParameter, answer::IfMatch),
    responses(
        (status = 204, description = "It is deleted."),
        (status = 200, description = "What would be done.", body = DryRun),
    ))]
pub(in crate::admin) async fn delete_tier(change: Change, Values([id]): Values<1>) -> Answer {
    if change.is_dry_run {
        let old = change.database.assignment(&id).await?.ok_or(NOT_FOUND)?;
        change.check_version(Some(old.version))?;
        return Ok(answer::dry_run(json!(old), Value::Null));
    }
    let deleted = change.database.delete_assignment(&change.by, &id, change.expected).await;
    deleted.map_err(|error| Refusal::of_row(error, NOT_FOUND))?;
    change.deletion_in_force().await;
    Ok(answer::nothing())
}

const NOT_FOUND: Refusal = Refusal::NotFound("no tier is assigned to this consumer");
