//! `/v1/limits/{key}/{action}`: the limit of one consumer for one policy, for good. It is an override like those of
//! `/v1/overrides`, found by whom and what it is for and not by an id.

use std::sync::Arc;

use axum::extract::State as Of;
use http::{Method, StatusCode};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::answer::{self, Answer};
use super::change::{ChangeRequest, JsonBody, RowReader};
use super::endpoint::{change, read};
use super::operations::Document;
use super::reading::fields::{At, Flaw};
use super::reading::path::PathValues;
use super::schema::Reason;
use crate::admin::access::AdminRole::{Operate, Read};
use crate::admin::refusal::AdminRefusal;
use crate::admin::state::AdminState;
use crate::database::{ABSOLUTE_MAX, NewOverride, OverrideKind, OverrideNames, OverrideRow, Time};
use policy::definition::Dimension;

/// A limit to set.
#[derive(Debug, Deserialize, JsonSchema)]
#[schemars(extend("examples" = [json!({ "limit": 600, "reason": "a contract" })]))]
struct LimitBody {
    /// Units of the policy's first window; its other windows and its bursts change in proportion. 0 refuses every request.
    #[schemars(range(max = ABSOLUTE_MAX))]
    limit: u64,
    /// Text for the audit log.
    reason: Reason,
}

/// A consumer's own limit for a policy.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(rename = "Limit")]
struct ConsumerLimit {
    /// The consumer.
    key: Option<String>,
    /// The policy.
    action: Option<String>,
    limit: Option<u64>,
    reason: String,
    /// The override that holds it.
    id: String,
    created_at: Time,
    created_by: String,
    version: i64,
}

pub(super) fn describe(document: &mut Document) {
    document
        .begin("limits", &[("key", "the consumer"), ("action", "the policy, which counts by `consumer`")]);
    document.endpoint("/v1/limits/{key}/{action}", "the limit of one consumer for one policy");
    document
        .operation(read(Read, show), "show-limit")
        .about("Shows a consumer's own limit for a policy.")
        .shows::<ConsumerLimit>("The limit.");
    document
        .operation(change(Method::PUT, Operate, put), "put-limit")
        .about("Sets the limit of a consumer for a policy, until it is deleted.")
        .writes::<LimitBody, ConsumerLimit>();
    document
        .operation(change(Method::DELETE, Operate, delete), "delete-limit")
        .about("Deletes a consumer's own limit for a policy. The policy's limit applies again.")
        .deletes();
}

async fn show(PathValues([key, action]): PathValues<2>, rows: RowReader) -> Answer {
    let Some(database) = rows.0 else { return Err(NOT_FOUND) };
    let found = database.lasting_override(&names(key, action)).await?.ok_or(NOT_FOUND)?;
    Ok(answer::row(StatusCode::OK, found.version, &shown(found)))
}

async fn put(
    Of(state): Of<Arc<AdminState>>,
    change: ChangeRequest,
    PathValues([key, action]): PathValues<2>,
    body: JsonBody,
) -> Answer {
    let LimitBody { limit, reason } = body.read()?;
    let reason = reason.0;
    // Refused, because it would have no effect, and whoever has misspelt the name would not notice.
    if !(state.counts.counts_by)(&action, &Dimension::Consumer) {
        let at = At::Parameter("action".to_owned());
        let detail = state.counts.uncounted(&action, "`consumer`");
        return Err(AdminRefusal::Unusable(vec![Flaw { at, detail }]));
    }
    if change.is_dry_run {
        let old = change.database.lasting_override(&names(key.clone(), action.clone())).await?;
        change.check_version(old.as_ref().map(|old| old.version))?;
        let new = json!({ "key": key, "action": action, "limit": limit, "reason": reason });
        return Ok(answer::dry_run(json!(old.map(shown)), new));
    }
    let new = NewOverride {
        user_id: Some(key),
        tenant_id: None,
        policy: Some(action),
        subject: None,
        kind: OverrideKind::Absolute(limit),
        reason,
        expires_at: None,
    };
    let put = change.database.put_override(&change.by, new, change.expected).await?;
    change.stored(StatusCode::OK, put.version, &shown(put)).await
}

async fn delete(change: ChangeRequest, PathValues([key, action]): PathValues<2>) -> Answer {
    let names = names(key, action);
    if change.is_dry_run {
        let old = change.database.lasting_override(&names).await?.ok_or(NOT_FOUND)?;
        change.check_version(Some(old.version))?;
        return Ok(answer::dry_run(json!(shown(old)), Value::Null));
    }
    let deleted = change.database.delete_lasting_override(&change.by, &names, change.expected).await;
    change.deleted(deleted, NOT_FOUND).await
}

fn names(key: String, action: String) -> OverrideNames {
    OverrideNames { user: Some(key), tenant: None, policy: Some(action) }
}

fn shown(row: OverrideRow) -> ConsumerLimit {
    let limit = match row.kind {
        OverrideKind::Absolute(limit) => Some(limit),
        // Never there, because the database looks for absolute ones alone.
        OverrideKind::Multiplicative(_) | OverrideKind::Block(_) | OverrideKind::Unlimited => None,
    };
    ConsumerLimit {
        key: row.user_id,
        action: row.policy,
        limit,
        reason: row.reason,
        id: row.id,
        created_at: row.created_at,
        created_by: row.created_by,
        version: row.version,
    }
}

const NOT_FOUND: AdminRefusal =
    AdminRefusal::NotFound("the database has no limit of this consumer for this policy");
