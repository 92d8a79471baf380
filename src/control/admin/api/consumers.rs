//! `/v1/consumers/{id}/tier`: which tier a consumer has.

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
use super::reading::path::PathValues;
use super::schema::Name;
use crate::admin::refusal::AdminRefusal;
use crate::admin::state::AdminState;
use crate::database::Assignment;

type Answer = Result<Response<Sent>, AdminRefusal>;

/// A tier to be given to a consumer.
#[derive(Debug, Deserialize, JsonSchema)]
#[schemars(extend("examples" = [json!({ "tier": "pro" })]))]
struct AssignmentBody {
    /// The name of a tier.
    tier: Name,
}

pub(super) fn describe(document: &mut Document) {
    document.begin("tiers", &[("id", "the consumer")]);
    document
        .operation("GET /v1/consumers/{id}/tier", "show-consumer-tier")
        .about("Shows the tier of a consumer.")
        .shows::<Assignment>("The tier.");
    document
        .operation("PUT /v1/consumers/{id}/tier", "put-consumer-tier")
        .about("Assigns a tier to a consumer, instead of the one that it may have.")
        .writes::<AssignmentBody, Assignment>();
    document
        .operation("DELETE /v1/consumers/{id}/tier", "delete-consumer-tier")
        .about("Deletes the assignment of a tier. The consumer's credential or the default decides again.")
        .deletes();
}

pub(in crate::admin) async fn show_tier(
    Of(state): Of<Arc<AdminState>>,
    PathValues([id]): PathValues<1>,
) -> Answer {
    let Some(database) = readable(&state)? else { return Err(NOT_FOUND) };
    let found = database.assignment(&id).await?.ok_or(NOT_FOUND)?;
    Ok(answer::row(StatusCode::OK, found.version, &found))
}

pub(in crate::admin) async fn put_tier(
    change: ChangeRequest,
    PathValues([id]): PathValues<1>,
    body: JsonBody,
) -> Answer {
    let tier = body.read::<AssignmentBody>()?.tier.0;
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

pub(in crate::admin) async fn delete_tier(change: ChangeRequest, PathValues([id]): PathValues<1>) -> Answer {
    if change.is_dry_run {
        let old = change.database.assignment(&id).await?.ok_or(NOT_FOUND)?;
        change.check_version(Some(old.version))?;
        return Ok(answer::dry_run(json!(old), Value::Null));
    }
    let deleted = change.database.delete_assignment(&change.by, &id, change.expected).await;
    deleted.map_err(|error| AdminRefusal::of_row(error, NOT_FOUND))?;
    change.deletion_in_force().await;
    Ok(answer::nothing())
}

const NOT_FOUND: AdminRefusal = AdminRefusal::NotFound("no tier is assigned to this consumer");
