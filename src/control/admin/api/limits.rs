//! `/v1/limits/{key}/{action}`: the limit of one consumer for one policy, for good. It is an override like those of
//! `/v1/overrides`, found by whom and what it is for and not by an id.

use std::num::NonZeroU64;
use std::sync::Arc;

use axum::body::Body as Sent;
use axum::extract::State as Of;
use http::{Response, StatusCode};
use serde_json::{Value, json};

use super::answer::{self, DryRun};
use super::change::{Body, Change, readable};
use super::described::{self, Name};
use super::fields::{At, Fields, Flaw};
use super::overrides::REASON_CHARS_MAX;
use super::path::Values;
use crate::admin::refusal::Refusal;
use crate::admin::state::State;
use crate::database::{ABSOLUTE_MAX, Names, NewOverride, Override, OverrideKind};
use policy::definition::Dimension;

type Answer = Result<Response<Sent>, Refusal>;

/// Shows the limit that a consumer has of its own for a policy.
#[utoipa::path(get, path = "/v1/limits/{key}/{action}", tag = "limits", operation_id = "show-limit",
    params(("key" = Name, Path, description = "the consumer"), ("action" = Name, Path, description = "the policy")),
    responses((status = 200, description = "The limit.", body = described::Limit, headers(("etag" = String)))))]
pub(in crate::admin) async fn show(Of(state): Of<Arc<State>>, Values([key, action]): Values<2>) -> Answer {
    let Some(database) = readable(&state)? else { return Err(NOT_FOUND) };
    let found = database.lasting_override(&names(key, action)).await?.ok_or(NOT_FOUND)?;
    Ok(answer::row(StatusCode::OK, found.version, &shown(&found)))
}

/// Sets the limit of a consumer for a policy, until it is deleted.
#[utoipa::path(put, path = "/v1/limits/{key}/{action}", tag = "limits", operation_id = "put-limit",
    params(("key" = Name, Path, description = "the consumer"),
        ("action" = Name, Path, description = "the policy, which counts by `consumer`"),
        answer::DryRunParameter, answer::IfMatch, answer::IfNoneMatch),
    request_body = described::LimitBody,
    responses((status = 200, description = "It is in force, or what would be done.",
        body = described::LimitPut, headers(("etag" = String)))))]
pub(in crate::admin) async fn put(
    Of(state): Of<Arc<State>>,
    change: Change,
    Values([key, action]): Values<2>,
    body: Body,
) -> Answer {
    let (limit, reason) = limit(body.fields)?;
    // It would have no effect, and whoever has misspelt the name would not notice.
    if !(state.counts.counts_by)(&action, &Dimension::Consumer) {
        let at = At::Parameter("action".to_owned());
        let detail = "no policy of this name that counts by `consumer` is in force".to_owned();
        return Err(Refusal::Unusable(vec![Flaw { at, detail }]));
    }
    if change.is_dry_run {
        let old = change.database.lasting_override(&names(key.clone(), action.clone())).await?;
        change.check_version(old.as_ref().map(|old| old.version))?;
        let new = json!({ "key": key, "action": action, "limit": limit, "reason": reason });
        return Ok(answer::dry_run(old.as_ref().map_or(Value::Null, shown), new));
    }
    let new = NewOverride {
        user_id: Some(key),
        tenant_id: None,
        policy: Some(action),
        kind: OverrideKind::Absolute(limit),
        reason,
        expires_at: None,
    };
    let put = change.database.put_override(&change.by, new, change.expected).await?;
    change.in_force(put.version).await;
    Ok(answer::row(StatusCode::OK, put.version, &shown(&put)))
}

/// Takes the limit of a consumer for a policy away. It has the policy's again.
#[utoipa::path(delete, path = "/v1/limits/{key}/{action}", tag = "limits", operation_id = "delete-limit",
    params(("key" = Name, Path, description = "the consumer"), ("action" = Name, Path, description = "the policy"),
        answer::DryRunParameter, answer::IfMatch),
    responses(
        (status = 204, description = "It is deleted."),
        (status = 200, description = "What would be done.", body = DryRun),
    ))]
pub(in crate::admin) async fn delete(change: Change, Values([key, action]): Values<2>) -> Answer {
    let names = names(key, action);
    if change.is_dry_run {
        let old = change.database.lasting_override(&names).await?.ok_or(NOT_FOUND)?;
        change.check_version(Some(old.version))?;
        return Ok(answer::dry_run(shown(&old), Value::Null));
    }
    let deleted = change.database.delete_lasting_override(&change.by, &names, change.expected).await;
    deleted.map_err(|error| Refusal::of_row(error, NOT_FOUND))?;
    change.deletion_in_force().await;
    Ok(answer::nothing())
}

fn limit(mut fields: Fields) -> Result<(NonZeroU64, String), Refusal> {
    fields.require("limit", "write how many units the policy's first window has");
    fields.require("reason", "say why, for the audit");
    let limit = fields.integer("limit", 1..=ABSOLUTE_MAX).and_then(NonZeroU64::new);
    let reason = fields.text("reason", REASON_CHARS_MAX);
    fields.finish().map_err(Refusal::Invalid)?;
    // Whatever is missing has been reported.
    limit.zip(reason).ok_or(Refusal::Invalid(Vec::new()))
}

fn names(key: String, action: String) -> Names {
    Names { user: Some(key), tenant: None, policy: Some(action) }
}

fn shown(row: &Override) -> Value {
    let limit = match row.kind {
        OverrideKind::Absolute(limit) => Some(limit),
        // The database looks for absolute ones alone.
        OverrideKind::Multiplicative(_) => None,
    };
    json!({
        "key": row.user_id, "action": row.policy, "limit": limit, "reason": row.reason, "id": row.id,
        "created-at": row.created_at, "created-by": row.created_by, "version": row.version,
    })
}

const NOT_FOUND: Refusal = Refusal::NotFound("this consumer has no limit of its own for this policy");
