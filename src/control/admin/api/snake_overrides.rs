//! `/api/v1/rate-limits/overrides`: the same overrides as `/v1/overrides`, in the form that clients of older control planes
//! know: names in snake case, a duration in minutes, and answers of their own to POST and DELETE.

use std::sync::Arc;

use axum::body::Body as Sent;
use axum::extract::State as Of;
use http::{Response, StatusCode, Uri};
use serde_json::{Value, json};

use super::answer::{self, DryRun};
use super::change::{Body, Change};
use super::described::{self, Name};
use super::overrides::{self, Names};
use super::page::{Page, Wanted};
use super::path::Values;
use crate::admin::refusal::Refusal;
use crate::admin::state::State;
use crate::database::{Override, Time};

type Answer = Result<Response<Sent>, Refusal>;

pub(super) const NAMES: Names = Names {
    user: "user_id",
    tenant: "tenant_id",
    kind: "override_type",
    minutes: "duration_minutes",
    nobody: "Must specify user_id or tenant_id",
    more: None,
};

/// Makes an override.
#[utoipa::path(post, path = "/api/v1/rate-limits/overrides", tag = "overrides", operation_id = "make_override",
    params(answer::DryRunParameter, answer::IdempotencyKey),
    request_body = described::SnakeOverrideBody,
    responses(
        (status = 201, description = "It is made and in force.", body = described::SnakeOverrideMade),
        (status = 200, description = "What would be done.", body = DryRun),
    ))]
pub(in crate::admin) async fn add(change: Change, body: Body) -> Answer {
    let change = change.with_body(&body);
    let new = overrides::new_override(body.fields, &NAMES, Time::now())?;
    if change.is_dry_run {
        let (word, value) = overrides::words(new.kind);
        let shown = json!({
            "user_id": new.user_id, "tenant_id": new.tenant_id, "override_type": word, "value": value,
            "reason": new.reason, "expires_at": new.expires_at,
        });
        return Ok(answer::dry_run(Value::Null, shown));
    }
    let made = change.database.add_override(&change.by, new).await?;
    change.in_force(made.version).await;
    let shown = json!({ "id": made.id, "expires_at": made.expires_at });
    Ok(answer::row(StatusCode::CREATED, made.version, &shown))
}

/// Lists overrides, the oldest first.
#[utoipa::path(get, path = "/api/v1/rate-limits/overrides", tag = "overrides", operation_id = "list_overrides",
    params(Wanted,
        ("user_id" = Option<Name>, Query, description = "those of this consumer"),
        ("tenant_id" = Option<Name>, Query, description = "those of this tenant"),
        ("policy" = Option<Name>, Query, description = "those for this policy alone"),
        ("expired" = Option<bool>, Query, description = "also those whose time is over, which are kept for a day")),
    responses((status = 200, description = "A page.", body = Page<described::SnakeOverride>)))]
pub(in crate::admin) async fn list(Of(state): Of<Arc<State>>, uri: Uri) -> Answer {
    Ok(answer::json(&overrides::rows(&state, &uri, &NAMES).await?.map(|row| shown(&row))))
}

/// Shows an override.
#[utoipa::path(get, path = "/api/v1/rate-limits/overrides/{id}", tag = "overrides", operation_id = "show_override",
    params(("id" = Name, Path, description = "its id")),
    responses((status = 200, description = "The override.", body = described::SnakeOverride)))]
pub(in crate::admin) async fn show(Of(state): Of<Arc<State>>, Values([id]): Values<1>) -> Answer {
    let found = overrides::one(&state, &id).await?;
    Ok(answer::row(StatusCode::OK, found.version, &shown(&found)))
}

/// Deletes an override.
#[utoipa::path(delete, path = "/api/v1/rate-limits/overrides/{id}", tag = "overrides", operation_id = "delete_override",
    params(("id" = Name, Path, description = "its id"), answer::DryRunParameter, answer::IfMatch),
    responses((status = 200, description = "It is deleted, or what would be done.",
        body = described::SnakeOverrideDeletion)))]
pub(in crate::admin) async fn delete(change: Change, Values([id]): Values<1>) -> Answer {
    if change.is_dry_run {
        return overrides::dry_delete(&change, &id, shown).await;
    }
    overrides::remove(&change, &id).await?;
    Ok(answer::json(&json!({ "status": "deleted" })))
}

fn shown(row: &Override) -> Value {
    let (word, value) = overrides::words(row.kind);
    json!({
        "id": row.id, "user_id": row.user_id, "tenant_id": row.tenant_id, "override_type": word, "value": value,
        "reason": row.reason, "expires_at": row.expires_at, "created_at": row.created_at,
        "created_by": row.created_by,
    })
}
