//! `/v1/policies`: policies that go before those of gateway.toml, in its words.

use std::sync::Arc;

use axum::body::Body as Sent;
use axum::extract::State as Of;
use http::{Response, StatusCode, Uri};
use serde_json::{Value, json};

use super::answer::{self, DryRun};
use super::change::{Body, Change, readable};
use super::described::{self, Name};
use super::flat_policy;
use super::page::{Page, Wanted};
use super::path::Values;
use super::query::Query;
use crate::admin::control::Proposal;
use crate::admin::refusal::Refusal;
use crate::admin::state::State;

type Answer = Result<Response<Sent>, Refusal>;

/// Lists policies of the database, by name. Those of gateway.toml are at `/config`.
#[utoipa::path(get, path = "/v1/policies", tag = "policies", operation_id = "list-policies",
    params(Wanted),
    responses((status = 200, description = "A page.", body = Page<described::Policy>)))]
pub(in crate::admin) async fn list(Of(state): Of<Arc<State>>, uri: Uri) -> Answer {
    let mut query = Query::parse(uri.query().unwrap_or_default());
    let wanted = Wanted::read(&mut query);
    query.finish().map_err(Refusal::Invalid)?;
    let Some(database) = readable(&state)? else { return Ok(answer::json(&Page::<Value>::default())) };
    let rows = database.policies(&wanted.rows()).await?;
    Ok(answer::json(&wanted.page(rows, |row| row.id.clone())))
}

/// Shows a policy of the database.
#[utoipa::path(get, path = "/v1/policies/{id}", tag = "policies", operation_id = "show-policy",
    params(("id" = Name, Path, description = "its name")),
    responses((status = 200, description = "The policy.", body = described::Policy, headers(("etag" = String)))))]
pub(in crate::admin) async fn show(Of(state): Of<Arc<State>>, Values([id]): Values<1>) -> Answer {
    let Some(database) = readable(&state)? else { return Err(NOT_FOUND) };
    let found = database.policy_by_id(&id).await?.ok_or(NOT_FOUND)?;
    Ok(answer::row(StatusCode::OK, found.version, &found))
}

/// Writes a policy, in the words of `[policy.*]` of gateway.toml or in the flat form, which is kept in those words. It goes
/// before the one of its name in gateway.toml. What gateway.toml would refuse is refused in the same words.
#[utoipa::path(put, path = "/v1/policies/{id}", tag = "policies", operation_id = "put-policy",
    params(("id" = Name, Path, description = "its name"),
        answer::DryRunParameter, answer::IfMatch, answer::IfNoneMatch),
    request_body = described::PolicyWritten,
    responses((status = 200, description = "It is in force, or what would be done.",
        body = described::PolicyPut, headers(("etag" = String)))))]
pub(in crate::admin) async fn put(change: Change, Values([id]): Values<1>, body: Body) -> Answer {
    let (document, note) = match flat_policy::is_flat(&body.fields) {
        true => flat_policy::policy(&id, body.fields).map_err(Refusal::Invalid)?,
        false => (body.fields.whole(), None),
    };
    let noted = |mut shown: Value| {
        note.iter().for_each(|note| shown["note"] = note.as_str().into());
        shown
    };
    change.check(Proposal::Policy { name: id.clone(), document: Some(document.clone()) }).await?;
    if change.is_dry_run {
        let old = change.database.policy_by_id(&id).await?;
        change.check_version(old.as_ref().map(|old| old.version))?;
        return Ok(answer::dry_run(json!(old), noted(json!({ "id": id, "document": document }))));
    }
    let put = change.database.put_policy(&change.by, &id, document, change.expected).await?;
    change.in_force(put.version).await;
    Ok(answer::row(StatusCode::OK, put.version, &noted(json!(put))))
}

/// Deletes a policy of the database; the one of its name in gateway.toml is in force again. Refused if routes name it and
/// there is none.
#[utoipa::path(delete, path = "/v1/policies/{id}", tag = "policies", operation_id = "delete-policy",
    params(("id" = Name, Path, description = "its name"), answer::DryRunParameter, answer::IfMatch),
    responses(
        (status = 204, description = "It is deleted."),
        (status = 200, description = "What would be done.", body = DryRun),
    ))]
pub(in crate::admin) async fn delete(change: Change, Values([id]): Values<1>) -> Answer {
    let old = change.database.policy_by_id(&id).await?.ok_or(NOT_FOUND)?;
    change.check(Proposal::Policy { name: id.clone(), document: None }).await?;
    if change.is_dry_run {
        change.check_version(Some(old.version))?;
        return Ok(answer::dry_run(json!(old), Value::Null));
    }
    let deleted = change.database.delete_policy(&change.by, &id, change.expected).await;
    deleted.map_err(|error| Refusal::of_row(error, NOT_FOUND))?;
    change.deletion_in_force().await;
    Ok(answer::nothing())
}

const NOT_FOUND: Refusal = Refusal::NotFound("the database has no policy of this name");
