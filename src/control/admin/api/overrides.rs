//! `/v1/overrides`: limits of single consumers and tenants, for a while.

use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::State as Of;
use http::header::LOCATION;
use http::{HeaderValue, StatusCode};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use super::answer;
use super::answer::Answer;
use super::change::{ChangeRequest, JsonBody, RowReader};
use super::operations::Document;
use super::page::{ListPage, PageQuery};
use super::reading::fields::{BodyFields, Flaw};
use super::reading::path::PathValues;
use super::reading::query::Query;
use super::schema::{DurationText, Name, Reason};
use crate::admin::refusal::AdminRefusal;
use crate::admin::state::AdminState;
use crate::database::{ABSOLUTE_MAX, Database, NewOverride, OverrideFilter, OverrideKind, OverrideRow, Time};
use base::units::DURATION_MAX;
use policy::definition::Dimension;

/// An override to add. It ends after `duration` or `duration-minutes`, at `expires-at`, or when it is deleted.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(extend("allOf" = NAMES.rules(), "examples" = [json!({
    "user-id": "alice", "override-type": "absolute", "value": 600, "reason": "a launch", "duration": "1h30m",
})]))]
pub(super) struct OverrideBody {
    /// The consumer; this or `tenant-id` is required.
    pub user_id: Option<Name>,
    /// The tenant.
    pub tenant_id: Option<Name>,
    /// The only policy that it applies to; default: all that count by the consumer or the tenant.
    pub policy: Option<Name>,
    /// How it changes a limit.
    pub override_type: OverrideType,
    /// The limit of a policy's first window, or the factor for all windows.
    pub value: f64,
    /// The reason, for the audit log.
    pub reason: Reason,
    /// The duration after which it ends.
    pub duration: Option<DurationText>,
    /// How many minutes it lasts, from now on.
    #[schemars(range(min = 1, max = MINUTES_MAX))]
    pub duration_minutes: Option<u64>,
    /// When it expires: a date and time.
    pub expires_at: Option<Time>,
}

/// How an override changes a limit.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(super) enum OverrideType {
    /// Sets it.
    Absolute,
    /// Multiplies it.
    Multiplicative,
}

/// Which overrides to list.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(in crate::admin) struct OverrideQuery {
    #[serde(flatten)]
    pub page: PageQuery,
    /// Only those of this consumer.
    pub user_id: Option<Name>,
    /// Only those of this tenant.
    pub tenant_id: Option<Name>,
    /// Only those for this policy alone.
    pub policy: Option<Name>,
    /// Include expired ones, which are kept for a day.
    #[serde(default)]
    pub expired: bool,
}

pub(super) fn describe(document: &mut Document) {
    document.begin("overrides", &[("id", "its id")]);
    document
        .operation("POST /v1/overrides", "make-override")
        .about("Adds an override. It applies from the next request of its consumer or tenant.")
        .makes::<OverrideBody, OverrideRow>();
    document
        .operation("GET /v1/overrides", "list-overrides")
        .about("Lists overrides, the oldest first.")
        .query::<OverrideQuery>()
        .answers::<ListPage<OverrideRow>>("A page.");
    document
        .operation("GET /v1/overrides/{id}", "show-override")
        .about("Shows an override.")
        .shows::<OverrideRow>("The override.");
    document
        .operation("DELETE /v1/overrides/{id}", "delete-override")
        .about("Deletes an override. The next request has the limit without it.")
        .deletes();
}

/// The names of an override's fields in one of the two forms in which they are written.
pub(super) struct OverrideFieldNames {
    pub user: &'static str,
    pub tenant: &'static str,
    pub kind: &'static str,
    /// What is said if neither user nor tenant is there.
    pub nobody: &'static str,
}

pub(super) const NAMES: OverrideFieldNames = OverrideFieldNames {
    user: "user-id",
    tenant: "tenant-id",
    kind: "override-type",
    nobody: "`user-id` and `tenant-id` are missing: write the one that the override is for",
};

const ENDS: [&str; 3] = ["duration", "duration-minutes", "expires-at"];

impl OverrideFieldNames {
    /// What properties of single fields do not say of a body.
    pub(super) fn rules(&self) -> Value {
        let text = |name: &str| json!({ "required": [name], "properties": { name: { "type": "string" } } });
        let not_both = |[one, other]: [&str; 2]| {
            let is_there = json!({ "not": { "type": "null" } });
            json!({ "not": { "required": [one, other], "properties": { one: is_there, other: is_there } } })
        };
        let [duration, minutes, end] = ENDS;
        json!([
            { "anyOf": [text(self.user), text(self.tenant)] },
            { "oneOf": [
                { "properties": {
                    self.kind: { "const": "absolute" },
                    "value": { "type": "integer", "minimum": 1, "maximum": ABSOLUTE_MAX },
                } },
                { "properties": {
                    self.kind: { "const": "multiplicative" },
                    "value": { "exclusiveMinimum": 0, "maximum": MULTIPLIER_MAX },
                } },
            ] },
            not_both([duration, minutes]),
            not_both([duration, end]),
            not_both([minutes, end]),
        ])
    }

    pub(super) fn check(&self, fields: &mut BodyFields) {
        if !fields.has(self.user) && !fields.has(self.tenant) {
            fields.wrong_together(self.nobody);
        }
        fields.exclude_each_other(&ENDS);
        let Some(value) = fields.get("value").and_then(Value::as_f64) else { return };
        match fields.get(self.kind).and_then(Value::as_str) {
            Some("absolute" | "multiplicative") if value == 0.0 => {
                fields.wrong("value", format!("`value` must be above 0: {}", instead_of_zero()));
            }
            Some("absolute") if !(value.fract() == 0.0 && (1.0..=ABSOLUTE_MAX as f64).contains(&value)) => {
                fields.wrong("value", format!("`value` must be a whole number from 1 to {ABSOLUTE_MAX}"));
            }
            Some("multiplicative") if !(value > 0.0 && value <= MULTIPLIER_MAX) => {
                fields.wrong("value", format!("`value` must be above 0 and at most {MULTIPLIER_MAX}"));
            }
            _ => {}
        }
    }
}

/// What to do instead of giving somebody a limit of 0.
pub(super) fn instead_of_zero() -> String {
    format!(
        "to block a consumer, disable its API keys (PATCH /v1/api-keys/{{digest}} with `disabled`); for \
         practically no limit, write an absolute one of {ABSOLUTE_MAX}"
    )
}

pub(in crate::admin) async fn add(
    Of(state): Of<Arc<AdminState>>,
    change: ChangeRequest,
    body: JsonBody,
) -> Answer {
    let change = change.with_body(&body);
    let new = new_override(body.fields, Time::now())?;
    must_have_effect(&state, &new)?;
    if change.is_dry_run {
        return Ok(answer::dry_run(Value::Null, json!(new)));
    }
    let made = change.database.add_override(&change.by, new).await?;
    let mut answer = change.stored(StatusCode::CREATED, made.version, &made).await?;
    if let Ok(location) = HeaderValue::try_from(format!("/v1/overrides/{}", made.id)) {
        answer.headers_mut().insert(LOCATION, location);
    }
    Ok(answer)
}

pub(in crate::admin) async fn list(Query(listed): Query<OverrideQuery>, rows: RowReader) -> Answer {
    Ok(answer::json(&page(rows, listed).await?))
}

pub(in crate::admin) async fn show(PathValues([id]): PathValues<1>, rows: RowReader) -> Answer {
    rows.show::<OverrideRow>(&id, not_found(&id)).await
}

pub(in crate::admin) async fn delete(change: ChangeRequest, PathValues([id]): PathValues<1>) -> Answer {
    change.delete::<OverrideRow>(&id, not_found(&id)).await
}

/// The page of overrides that a query asks for.
pub(super) async fn page(
    rows: RowReader,
    listed: OverrideQuery,
) -> Result<ListPage<OverrideRow>, AdminRefusal> {
    let text = |name: Option<Name>| name.map(|name| name.0);
    let filter = OverrideFilter {
        user_id: text(listed.user_id),
        tenant_id: text(listed.tenant_id),
        policy: text(listed.policy),
        live_at: (!listed.expired).then(Time::now),
    };
    let read = |database: Database, page| async move { database.overrides(&page, &filter).await };
    rows.page(&listed.page, read, |row| row.id.clone()).await
}

/// Reads an override to be made.
pub(super) fn new_override(mut fields: BodyFields, now: Time) -> Result<NewOverride, AdminRefusal> {
    NAMES.check(&mut fields);
    fields.read::<OverrideBody>().map_err(AdminRefusal::Invalid)?.made(now)
}

impl OverrideBody {
    pub(super) fn made(self, now: Time) -> Result<NewOverride, AdminRefusal> {
        let minutes = self.duration_minutes.map(|minutes| Duration::from_secs(60 * minutes));
        let after = self.duration.map(|duration| duration.0).or(minutes);
        let expires_at = after.map(|after| now.after(after)).or(self.expires_at);
        in_the_future(expires_at, now)?;
        let text = |name: Option<Name>| name.map(|name| name.0);
        let kind = match self.override_type {
            // Nothing is cut off, because it was looked at: a whole number above 0.
            OverrideType::Absolute => {
                OverrideKind::Absolute(NonZeroU64::new(self.value as u64).unwrap_or(NonZeroU64::MIN))
            }
            OverrideType::Multiplicative => OverrideKind::Multiplicative(self.value),
        };
        Ok(NewOverride {
            user_id: text(self.user_id),
            tenant_id: text(self.tenant_id),
            policy: text(self.policy),
            kind,
            reason: self.reason.0,
            expires_at,
        })
    }
}

/// Refuses an override for a policy that it would not change, because whoever has misspelt the name would not notice.
fn must_have_effect(state: &AdminState, new: &NewOverride) -> Result<(), AdminRefusal> {
    let Some(policy) = &new.policy else { return Ok(()) };
    let counts_by = |dimension| (state.counts.counts_by)(policy, &dimension);
    if counts_by(Dimension::Consumer) || new.tenant_id.is_some() && counts_by(Dimension::Tenant) {
        return Ok(());
    }
    let by = if new.tenant_id.is_some() { "`consumer` or `tenant`" } else { "`consumer`" };
    let detail = format!("no policy of this name that counts by {by} is in force");
    Err(AdminRefusal::Unusable(vec![Flaw::in_body("policy", detail)]))
}

/// Refuses an end that is over, because then the client's clock is wrong, or its time zone.
pub(super) fn in_the_future(end: Option<Time>, now: Time) -> Result<(), AdminRefusal> {
    match end {
        Some(end) if end <= now => Err(AdminRefusal::Unusable(vec![Flaw::in_body(
            "expires-at",
            format!("`expires-at` has passed: the gateway's clock shows {now}"),
        )])),
        _ => Ok(()),
    }
}

/// The word and the number of a kind.
pub(super) fn words(kind: OverrideKind) -> (&'static str, Value) {
    match kind {
        OverrideKind::Absolute(limit) => ("absolute", limit.get().into()),
        OverrideKind::Multiplicative(factor) => ("multiplicative", factor.into()),
    }
}

fn not_found(id: &str) -> AdminRefusal {
    AdminRefusal::UnknownName(format!(
        "there is no override `{id}`: `sluicegate ctl override list` shows them"
    ))
}

/// What a limit is multiplied by at most, because whoever means more means no limit at all.
pub(super) const MULTIPLIER_MAX: f64 = 1_000_000.0;
/// The most minutes that an override may last, as durations of gateway.toml.
pub(super) const MINUTES_MAX: u64 = DURATION_MAX.as_secs() / 60;
