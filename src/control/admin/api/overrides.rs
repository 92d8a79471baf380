//! `/v1/overrides`: limits of single consumers and tenants, for a while.

use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body as Sent;
use axum::extract::State as Of;
use http::header::LOCATION;
use http::{HeaderValue, Response, StatusCode, Uri};
use serde_json::{Value, json};

use super::answer::{self, DryRun};
use super::change::{Body, Change, readable};
use super::described::{self, Name};
use super::fields::{Fields, Flaw};
use super::page::{Page, Wanted};
use super::path::{ID_CHARS_MAX, Values};
use super::query::Query;
use crate::admin::refusal::Refusal;
use crate::admin::state::State;
use crate::database::{ABSOLUTE_MAX, NewOverride, Override, OverrideFilter, OverrideKind, Time};
use base::units::DURATION_MAX;
use policy::definition::Dimension;

type Answer = Result<Response<Sent>, Refusal>;

/// The names of an override's fields in one of the two forms in which they are written.
pub(super) struct Names {
    pub user: &'static str,
    pub tenant: &'static str,
    pub kind: &'static str,
    pub minutes: &'static str,
    /// What is said if neither user nor tenant is there.
    pub nobody: &'static str,
    /// Fields that only one form has: policy, duration, when it ends.
    pub more: Option<[&'static str; 3]>,
}

pub(super) const NAMES: Names = Names {
    user: "user-id",
    tenant: "tenant-id",
    kind: "override-type",
    minutes: "duration-minutes",
    nobody: "whom it is for is missing: write `user-id` or `tenant-id`",
    more: Some(["policy", "duration", "expires-at"]),
};

/// Makes an override. The next request of its consumer or tenant has it.
#[utoipa::path(post, path = "/v1/overrides", tag = "overrides", operation_id = "make-override",
    params(answer::DryRunParameter, answer::IdempotencyKey),
    request_body = described::OverrideBody,
    responses(
        (status = 201, description = "It is made and in force.", body = described::Override,
            headers(("etag" = String), ("location" = String))),
        (status = 200, description = "What would be done.", body = DryRun),
    ))]
pub(in crate::admin) async fn add(Of(state): Of<Arc<State>>, change: Change, body: Body) -> Answer {
    let change = change.with_body(&body);
    let new = new_override(body.fields, &NAMES, Time::now())?;
    must_have_effect(&state, &new)?;
    if change.is_dry_run {
        return Ok(answer::dry_run(Value::Null, shown(&new)));
    }
    let made = change.database.add_override(&change.by, new).await?;
    change.in_force(made.version).await;
    let mut answer = answer::row(StatusCode::CREATED, made.version, &made);
    if let Ok(location) = HeaderValue::try_from(format!("/v1/overrides/{}", made.id)) {
        answer.headers_mut().insert(LOCATION, location);
    }
    Ok(answer)
}

/// Lists overrides, the oldest first.
#[utoipa::path(get, path = "/v1/overrides", tag = "overrides", operation_id = "list-overrides",
    params(Wanted,
        ("user-id" = Option<Name>, Query, description = "those of this consumer"),
        ("tenant-id" = Option<Name>, Query, description = "those of this tenant"),
        ("policy" = Option<Name>, Query, description = "those for this policy alone"),
        ("expired" = Option<bool>, Query, description = "also those whose time is over, which are kept for a day")),
    responses((status = 200, description = "A page.", body = Page<described::Override>)))]
pub(in crate::admin) async fn list(Of(state): Of<Arc<State>>, uri: Uri) -> Answer {
    Ok(answer::json(&rows(&state, &uri, &NAMES).await?))
}

/// Shows an override.
#[utoipa::path(get, path = "/v1/overrides/{id}", tag = "overrides", operation_id = "show-override",
    params(("id" = Name, Path, description = "its id")),
    responses((status = 200, description = "The override.", body = described::Override, headers(("etag" = String)))))]
pub(in crate::admin) async fn show(Of(state): Of<Arc<State>>, Values([id]): Values<1>) -> Answer {
    let found = one(&state, &id).await?;
    Ok(answer::row(StatusCode::OK, found.version, &found))
}

/// Deletes an override. The next request has the limit that would be without it.
#[utoipa::path(delete, path = "/v1/overrides/{id}", tag = "overrides", operation_id = "delete-override",
    params(("id" = Name, Path, description = "its id"), answer::DryRunParameter, answer::IfMatch),
    responses(
        (status = 204, description = "It is deleted."),
        (status = 200, description = "What would be done.", body = DryRun),
    ))]
pub(in crate::admin) async fn delete(change: Change, Values([id]): Values<1>) -> Answer {
    if change.is_dry_run {
        return dry_delete(&change, &id, |row| json!(row)).await;
    }
    remove(&change, &id).await?;
    Ok(answer::nothing())
}

/// What a deletion would delete.
pub(super) async fn dry_delete(change: &Change, id: &str, shown: impl FnOnce(&Override) -> Value) -> Answer {
    let found = change.database.override_by_id(id).await?.ok_or(NOT_FOUND)?;
    change.check_version(Some(found.version))?;
    Ok(answer::dry_run(shown(&found), Value::Null))
}

/// Deletes one in the database, and waits until that is in force.
pub(super) async fn remove(change: &Change, id: &str) -> Result<(), Refusal> {
    let deleted = change.database.delete_override(&change.by, id, change.expected).await;
    deleted.map_err(|error| Refusal::of_row(error, NOT_FOUND))?;
    change.deletion_in_force().await;
    Ok(())
}

/// One override, if it is there.
pub(super) async fn one(state: &State, id: &str) -> Result<Override, Refusal> {
    let Some(database) = readable(state)? else { return Err(NOT_FOUND) };
    database.override_by_id(id).await?.ok_or(NOT_FOUND)
}

/// The page of overrides that a query asks for.
pub(super) async fn rows(state: &State, uri: &Uri, names: &Names) -> Result<Page<Override>, Refusal> {
    let mut query = Query::parse(uri.query().unwrap_or_default());
    let wanted = Wanted::read(&mut query);
    let filter = OverrideFilter {
        user_id: query.text(names.user, ID_CHARS_MAX),
        tenant_id: query.text(names.tenant, ID_CHARS_MAX),
        policy: query.text("policy", ID_CHARS_MAX),
        live_at: (!query.boolean("expired")).then(Time::now),
    };
    query.finish().map_err(Refusal::Invalid)?;
    let Some(database) = readable(state)? else { return Ok(Page::default()) };
    let rows = database.overrides(&wanted.rows(), &filter).await?;
    Ok(wanted.page(rows, |row| row.id.clone()))
}

/// Reads an override to be made.
pub(super) fn new_override(mut fields: Fields, names: &Names, now: Time) -> Result<NewOverride, Refusal> {
    if !fields.has(names.user) && !fields.has(names.tenant) {
        fields.wrong_together(names.nobody);
    }
    let user_id = fields.text(names.user, ID_CHARS_MAX);
    let tenant_id = fields.text(names.tenant, ID_CHARS_MAX);
    let policy = names.more.and_then(|[policy, ..]| fields.text(policy, ID_CHARS_MAX));
    let kind = kind(&mut fields, names);
    fields.require("reason", "say why, for the audit");
    let reason = fields.text("reason", REASON_CHARS_MAX);
    let expires_at = expires_at(&mut fields, names, now);
    fields.finish().map_err(Refusal::Invalid)?;
    // Whatever is missing has been reported.
    let (Some(kind), Some(reason)) = (kind, reason) else { return Err(Refusal::Invalid(Vec::new())) };
    in_the_future(expires_at, now)?;
    Ok(NewOverride { user_id, tenant_id, policy, kind, reason, expires_at })
}

/// Refuses an override for a policy that it would not change: whoever has misspelt the name would not notice.
fn must_have_effect(state: &State, new: &NewOverride) -> Result<(), Refusal> {
    let Some(policy) = &new.policy else { return Ok(()) };
    let counts_by = |dimension| (state.counts.counts_by)(policy, &dimension);
    if counts_by(Dimension::Consumer) || new.tenant_id.is_some() && counts_by(Dimension::Tenant) {
        return Ok(());
    }
    let by = if new.tenant_id.is_some() { "`consumer` or `tenant`" } else { "`consumer`" };
    let detail = format!("no policy of this name that counts by {by} is in force");
    Err(Refusal::Unusable(vec![Flaw::in_body("policy", detail)]))
}

fn kind(fields: &mut Fields, names: &Names) -> Option<OverrideKind> {
    fields.require(names.kind, "write `absolute` or `multiplicative`");
    fields.require("value", "write the limit, or what it is multiplied by");
    match fields.choice(names.kind, &KINDS) {
        Some(Word::Absolute) => {
            let value = fields.integer("value", 1..=ABSOLUTE_MAX)?;
            NonZeroU64::new(value).map(OverrideKind::Absolute)
        }
        Some(Word::Multiplicative) => {
            let value = fields.number("value")?;
            if value > 0.0 && value <= MULTIPLIER_MAX {
                return Some(OverrideKind::Multiplicative(value));
            }
            fields.wrong("value", format!("`value` must be above 0 and at most {MULTIPLIER_MAX}"));
            None
        }
        None => {
            fields.value("value");
            None
        }
    }
}

/// When it ends, by one of three fields.
fn expires_at(fields: &mut Fields, names: &Names, now: Time) -> Option<Time> {
    let minutes_max = DURATION_MAX.as_secs() / 60;
    let Some([_, duration, end]) = names.more else {
        fields.require(names.minutes, "write for how many minutes it is");
        let minutes = fields.integer(names.minutes, 1..=minutes_max)?;
        return Some(now.after(Duration::from_secs(60 * minutes)));
    };
    if [duration, names.minutes, end].iter().filter(|name| fields.has(name)).count() > 1 {
        fields.wrong_together(format!("`{duration}`, `{}` and `{end}` exclude each other", names.minutes));
    }
    let after = fields.duration(duration);
    let minutes = fields.integer(names.minutes, 1..=minutes_max);
    let at = fields.instant(end);
    let after = after.or(minutes.map(|minutes| Duration::from_secs(60 * minutes)));
    after.map(|after| now.after(after)).or(at)
}

/// Refuses an end that is over: the client's clock is wrong, or its time zone.
pub(super) fn in_the_future(end: Option<Time>, now: Time) -> Result<(), Refusal> {
    match end {
        Some(end) if end <= now => Err(Refusal::Unusable(vec![Flaw::in_body(
            "expires-at",
            format!("`expires-at` is over: it is {now}"),
        )])),
        _ => Ok(()),
    }
}

/// What a new override would be.
fn shown(new: &NewOverride) -> Value {
    let mut shown = json!({
        "user-id": new.user_id, "tenant-id": new.tenant_id, "policy": new.policy,
        "reason": new.reason, "expires-at": new.expires_at,
    });
    let (word, value) = words(new.kind);
    shown["override-type"] = word.into();
    shown["value"] = value;
    shown
}

/// The word and the number of a kind.
pub(super) fn words(kind: OverrideKind) -> (&'static str, Value) {
    match kind {
        OverrideKind::Absolute(limit) => ("absolute", limit.get().into()),
        OverrideKind::Multiplicative(factor) => ("multiplicative", factor.into()),
    }
}

#[derive(Clone, Copy)]
enum Word {
    Absolute,
    Multiplicative,
}

const KINDS: [(&str, Word); 2] = [("absolute", Word::Absolute), ("multiplicative", Word::Multiplicative)];

/// Said in both forms of the API.
const NOT_FOUND: Refusal = Refusal::NotFound("Override not found");

/// What a limit is multiplied by at most: whoever means more means no limit at all.
pub(super) const MULTIPLIER_MAX: f64 = 1_000_000.0;
/// As the table's column.
pub(super) const REASON_CHARS_MAX: usize = 4_096;
