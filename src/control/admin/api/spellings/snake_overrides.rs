//! `/api/v1/rate-limits/overrides`: the same overrides as `/v1/overrides`, in the form that clients of older control planes
//! know: names in snake case, a duration in minutes, and answers of their own to POST and DELETE.

use http::{Method, StatusCode};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::admin::access::AdminRole::{Operate, Read};
use crate::admin::api::answer::{self, Answer};
use crate::admin::api::change::{ChangeRequest, JsonBody, RowReader};
use crate::admin::api::endpoint::{change, read};
use crate::admin::api::operations::Document;
use crate::admin::api::overrides::{
    self, MINUTES_MAX, OverrideBody, OverrideFieldNames, OverrideQuery, OverrideType,
};
use crate::admin::api::page::{ListPage, PageQuery};
use crate::admin::api::reading::fields::BodyFields;
use crate::admin::api::reading::path::PathValues;
use crate::admin::api::reading::query::Query;
use crate::admin::api::schema::{Name, Reason};
use crate::admin::refusal::AdminRefusal;
use crate::database::{NewOverride, OverrideRow, Time};

/// As the programs that send this form expect it.
const NOT_FOUND: AdminRefusal = AdminRefusal::NotFound("Override not found");
const NAMES: OverrideFieldNames = OverrideFieldNames {
    user: "user_id",
    tenant: "tenant_id",
    kind: "override_type",
    subject: None,
    nobody: "Must specify user_id or tenant_id",
};

/// An override to add, in snake case.
#[derive(Debug, Deserialize, JsonSchema)]
#[schemars(extend("allOf" = NAMES.rules(), "examples" = [json!({
    "user_id": "alice", "override_type": "multiplicative", "value": 2, "duration_minutes": 90, "reason": "a launch",
})]))]
struct SnakeOverrideBody {
    /// The consumer; this or `tenant_id` is required.
    user_id: Option<Name>,
    /// The tenant.
    tenant_id: Option<Name>,
    /// How it changes a limit.
    override_type: OverrideType,
    /// The limit of a policy's first window, the factor for all windows, or the status of a block.
    value: Option<f64>,
    /// How many minutes it lasts.
    #[schemars(range(min = 1, max = MINUTES_MAX))]
    duration_minutes: u64,
    /// Text for the audit log.
    reason: Reason,
}

/// An override in snake case.
#[derive(Debug, Serialize, JsonSchema)]
struct SnakeOverride {
    id: String,
    user_id: Option<String>,
    tenant_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    subject: Option<String>,
    override_type: &'static str,
    #[schemars(with = "Option<f64>")]
    value: Value,
    reason: String,
    expires_at: Option<Time>,
    created_at: Time,
    created_by: String,
}

/// The response to a new override in snake case.
#[derive(Debug, Serialize, JsonSchema)]
struct SnakeOverrideMade {
    id: String,
    expires_at: Option<Time>,
}

/// The response to its deletion.
#[derive(Debug, Serialize, JsonSchema)]
struct SnakeOverrideDeleted {
    #[schemars(extend("const" = "deleted", "examples" = ["deleted"]))]
    status: &'static str,
}

/// Which overrides to list.
#[derive(Debug, Deserialize, JsonSchema)]
pub(in crate::admin) struct SnakeOverrideQuery {
    #[serde(flatten)]
    page: PageQuery,
    /// Only those of this consumer.
    user_id: Option<Name>,
    /// Only those of this tenant.
    tenant_id: Option<Name>,
    /// Only overrides for this policy alone.
    policy: Option<Name>,
    /// Include expired ones, which are kept for a day.
    #[serde(default)]
    expired: bool,
}

pub(in crate::admin::api) fn describe(document: &mut Document) {
    document.begin("overrides", &[("id", "its id")]);
    document.list(
        "/api/v1/rate-limits/overrides",
        "overrides in snake case",
        "add an override with `POST`, end one with `DELETE /api/v1/rate-limits/overrides/{id}`",
    );
    document
        .operation(read(Read, list), "list-snake-overrides")
        .about("Lists overrides, the oldest first.")
        .query::<SnakeOverrideQuery>()
        .answers::<ListPage<SnakeOverride>>("A page of the list.");
    document
        .operation(change(Method::POST, Operate, add), "make-snake-override")
        .about("Adds an override.")
        .makes::<SnakeOverrideBody, SnakeOverrideMade>();
    document.endpoint("/api/v1/rate-limits/overrides/{id}", "an override in snake case");
    document
        .operation(read(Read, show), "show-snake-override")
        .about("Shows an override.")
        .answers::<SnakeOverride>("The override.");
    document
        .operation(change(Method::DELETE, Operate, delete), "delete-snake-override")
        .about("Deletes an override.")
        .deletes_saying::<SnakeOverrideDeleted>();
}

async fn add(change: ChangeRequest, body: JsonBody) -> Answer {
    let change = change.with_body(&body);
    let new = new_override(body.fields, Time::now())?;
    if change.is_dry_run {
        let (word, value) = overrides::words(new.kind);
        let shown = json!({
            "user_id": new.user_id, "tenant_id": new.tenant_id, "override_type": word, "value": value,
            "reason": new.reason, "expires_at": new.expires_at,
        });
        return Ok(answer::dry_run(Value::Null, shown));
    }
    let made = change.database.add_override(&change.by, new).await?;
    let shown = SnakeOverrideMade { id: made.id, expires_at: made.expires_at };
    change.stored(StatusCode::CREATED, made.version, &shown).await
}

async fn list(Query(listed): Query<SnakeOverrideQuery>, rows: RowReader) -> Answer {
    let SnakeOverrideQuery { page, user_id, tenant_id, policy, expired } = listed;
    let listed =
        OverrideQuery { page, user_id, tenant_id, policy, override_type: None, expired, newest: false };
    Ok(answer::json(&overrides::page(rows, listed).await?.map(shown)))
}

async fn show(PathValues([id]): PathValues<1>, rows: RowReader) -> Answer {
    let found: OverrideRow = rows.row(&id, NOT_FOUND).await?;
    Ok(answer::row(StatusCode::OK, found.version, &shown(found)))
}

async fn delete(change: ChangeRequest, PathValues([id]): PathValues<1>) -> Answer {
    if change.is_dry_run {
        let old: OverrideRow = change.database.row(&id).await?.ok_or(NOT_FOUND)?;
        change.check_version(Some(old.version))?;
        return Ok(answer::dry_run(json!(shown(old)), Value::Null));
    }
    change.delete::<OverrideRow>(&id, NOT_FOUND).await?;
    Ok(answer::json(&SnakeOverrideDeleted { status: "deleted" }))
}

fn shown(row: OverrideRow) -> SnakeOverride {
    let (override_type, value) = overrides::words(row.kind);
    SnakeOverride {
        id: row.id,
        user_id: row.user_id,
        tenant_id: row.tenant_id,
        subject: row.subject,
        override_type,
        value,
        reason: row.reason,
        expires_at: row.expires_at,
        created_at: row.created_at,
        created_by: row.created_by,
    }
}

pub(in crate::admin::api) fn new_override(
    mut fields: BodyFields,
    now: Time,
) -> Result<NewOverride, AdminRefusal> {
    NAMES.check(&mut fields);
    let body: SnakeOverrideBody = fields.read().map_err(AdminRefusal::Invalid)?;
    let body = OverrideBody {
        user_id: body.user_id,
        tenant_id: body.tenant_id,
        policy: None,
        subject: None,
        override_type: body.override_type,
        value: body.value,
        reason: body.reason,
        duration: None,
        duration_minutes: Some(body.duration_minutes),
        expires_at: None,
    };
    body.made(now)
}
