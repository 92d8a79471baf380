//! `/v1/overrides`: limits of single consumers and tenants, for a while, and who is blocked or unlimited.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State as Of;
use http::header::LOCATION;
use http::{HeaderValue, Method, StatusCode};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::answer::{self, Answer};
use super::change::{ChangeRequest, JsonBody, RowReader};
use super::endpoint::{change, read};
use super::operations::Document;
use super::page::{ListPage, PageQuery};
use super::reading::fields::BodyFields;
use super::reading::path::PathValues;
use super::reading::query::Query;
use super::schema::{BoundedText, DurationText, Name, Reason};
use crate::admin::access::AdminRole::{Operate, Read};
use crate::admin::refusal::AdminRefusal;
use crate::admin::state::AdminState;
use crate::database::{
    self, ABSOLUTE_MAX, Database, NewOverride, OverrideFilter, OverrideKind, OverrideRow, PageRange,
    SUBJECT_CHARS_MAX, Time,
};
use auth::keys::{self, digest_text};
use base::units::DURATION_MAX;
use policy::NamedValue;
use policy::definition::Dimension;
use policy::keys::named_value;
use policy::nat64::Nat64;
use policy::request::carried_address;

/// An override to add. It ends after `duration` or `duration-minutes`, at `expires-at`, or when it is deleted.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(extend("allOf" = NAMES.rules(), "examples" = [json!({
    "user-id": "alice", "override-type": "absolute", "value": 600, "reason": "a launch", "duration": "1h30m",
})]))]
pub(super) struct OverrideBody {
    /// The consumer; this, `tenant-id` or `subject` is required.
    pub user_id: Option<Name>,
    /// The tenant.
    pub tenant_id: Option<Name>,
    /// The only policy that it applies to; default: all that count by the consumer or the tenant.
    pub policy: Option<Name>,
    /// A dimension and its value, to block or to exempt what is neither consumer nor tenant. Of `ip`, an address or a range.
    #[schemars(example = &"ip=203.0.113.0/24")]
    pub subject: Option<BoundedText<SUBJECT_CHARS_MAX>>,
    /// How it changes limits.
    pub override_type: OverrideType,
    /// The limit of a policy's first window (0 refuses every request), the factor for all windows, or of a block the status of
    /// its responses: 403, which is the default, or 429.
    pub value: Option<f64>,
    /// Text for the audit log.
    pub reason: Reason,
    /// The duration after which it ends.
    pub duration: Option<DurationText>,
    /// How many minutes it lasts.
    #[schemars(range(min = 1, max = MINUTES_MAX))]
    pub duration_minutes: Option<u64>,
    /// The date and time at which it expires.
    pub expires_at: Option<Time>,
}

/// How an override changes a limit.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(in crate::admin) enum OverrideType {
    /// Sets the limit.
    Absolute,
    /// Multiplies the limit.
    Multiplicative,
    /// Refuses every request, before limits and upstreams.
    Block,
    /// No limit counts or refuses.
    Unlimited,
}

/// A new override.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(rename = "MadeOverride")]
struct MadeOverride<R> {
    #[serde(flatten)]
    made: R,
    /// The client's own address, if it is among those that are blocked.
    #[serde(skip_serializing_if = "Option::is_none")]
    own_address: Option<String>,
    /// What may be a mistake.
    #[serde(skip_serializing_if = "Option::is_none")]
    hint: Option<String>,
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
    /// Only overrides for this policy alone.
    pub policy: Option<Name>,
    /// Only those of this type.
    pub override_type: Option<OverrideType>,
    /// Include expired ones, which are kept for a day.
    #[serde(default)]
    pub expired: bool,
    /// List the newest first.
    #[serde(default)]
    pub newest: bool,
}

pub(super) fn describe(document: &mut Document) {
    document.begin("overrides", &[("id", "its id")]);
    document.list(
        "/v1/overrides",
        "overrides: limits of single consumers and tenants",
        "add an override with `POST /v1/overrides`, end one with `DELETE /v1/overrides/{id}`",
    );
    document
        .operation(read(Read, list), "list-overrides")
        .about("Lists overrides, the oldest or the newest first.")
        .query::<OverrideQuery>()
        .answers::<ListPage<OverrideRow>>("A page of the list.");
    document
        .operation(change(Method::POST, Operate, add), "make-override")
        .about("Adds an override, a block or an exemption. It applies from the next request.")
        .makes::<OverrideBody, MadeOverride<OverrideRow>>();
    document.endpoint("/v1/overrides/{id}", "an override");
    document
        .operation(read(Read, show), "show-override")
        .about("Shows an override.")
        .shows::<OverrideRow>("The override.");
    document
        .operation(change(Method::DELETE, Operate, delete), "delete-override")
        .about("Deletes an override. The next request has the limit without it.")
        .deletes();
}

/// The names of an override's fields in one of the two forms in which they are written.
pub(super) struct OverrideFieldNames {
    pub user: &'static str,
    pub tenant: &'static str,
    pub kind: &'static str,
    /// `None`: this form has none.
    pub subject: Option<&'static str>,
    /// What is said if none of these is there.
    pub nobody: &'static str,
}

pub(super) const NAMES: OverrideFieldNames = OverrideFieldNames {
    user: "user-id",
    tenant: "tenant-id",
    kind: "override-type",
    subject: Some("subject"),
    nobody: "the target is missing: write exactly one of `user-id`, `tenant-id` and `subject`",
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
        let none = json!({ "type": "null" });
        let limit = |kind: &str, value: Value| {
            let properties = json!({ self.kind: { "const": kind }, "value": value, "subject": none });
            json!({ "required": ["value"], "properties": properties })
        };
        let standing = |kind: &str, value: Value| json!({ "properties": { self.kind: { "const": kind }, "value": value, "policy": none } });
        let names = [Some(self.user), Some(self.tenant), self.subject].into_iter().flatten().map(text);
        let mut rules = vec![
            json!({ "anyOf": names.collect::<Vec<_>>() }),
            json!({ "oneOf": [
                limit("absolute", json!({ "type": "integer", "minimum": 0, "maximum": ABSOLUTE_MAX })),
                limit("multiplicative", json!({ "type": "number", "exclusiveMinimum": 0, "maximum": MULTIPLIER_MAX })),
                standing("block", json!({ "enum": [403, 429, null] })),
                standing("unlimited", none.clone()),
            ] }),
            not_both([duration, minutes]),
            not_both([duration, end]),
            not_both([minutes, end]),
        ];
        let subject = self.subject.into_iter();
        rules.extend(subject.flat_map(|it| [not_both([it, self.user]), not_both([it, self.tenant])]));
        rules.into()
    }

    pub(super) fn check(&self, fields: &mut BodyFields) {
        let subject = self.subject.filter(|subject| fields.has(subject));
        if !fields.has(self.user) && !fields.has(self.tenant) && subject.is_none() {
            fields.wrong_together(self.nobody);
        }
        fields.exclude_each_other(&ENDS);
        let kind = fields.get(self.kind).and_then(Value::as_str).unwrap_or_default().to_owned();
        let is_limit = matches!(&*kind, "absolute" | "multiplicative");
        if let Some(subject) = subject {
            fields.exclude_each_other(&[subject, self.user]);
            fields.exclude_each_other(&[subject, self.tenant]);
            if is_limit {
                fields.wrong(subject, "only `block` and `unlimited` are for a `subject`");
            }
        }
        if fields.has("policy") && matches!(&*kind, "block" | "unlimited") {
            fields.wrong("policy", format!("`{kind}` is for all policies: an absolute `value` changes one"));
        }
        let told = match (&*kind, fields.get("value").map(|value| value.as_f64().unwrap_or(f64::NAN))) {
            ("absolute" | "multiplicative", None) => "`value` is missing".to_owned(),
            ("absolute", Some(value))
                if !(value.fract() == 0.0 && (0.0..=ABSOLUTE_MAX as f64).contains(&value)) =>
            {
                format!("`value` must be a whole number from 0 to {ABSOLUTE_MAX}")
            }
            ("multiplicative", Some(value)) if !(value > 0.0 && value <= MULTIPLIER_MAX) => {
                format!(
                    "`value` must be above 0 and at most {MULTIPLIER_MAX}; to refuse every request, make the override absolute, with the value 0"
                )
            }
            ("block", Some(value)) if ![403.0, 429.0].contains(&value) => {
                "`value` of a block must be 403 or 429, the status of its responses".to_owned()
            }
            ("unlimited", Some(_)) => "`unlimited` has no `value`".to_owned(),
            _ => return,
        };
        fields.wrong("value", told);
    }
}

async fn add(Of(state): Of<Arc<AdminState>>, change: ChangeRequest, body: JsonBody) -> Answer {
    let change = change.with_body(&body);
    let new = new_override(body.fields, Time::now())?;
    must_have_effect(&state, &new)?;
    let own_address = own_address(&change, &new, &(state.counts.nat64)());
    let hint = hint(&change, &new).await?;
    if change.is_dry_run {
        return Ok(answer::dry_run(Value::Null, json!(MadeOverride { made: new, own_address, hint })));
    }
    let made = change.database.add_override(&change.by, new).await?;
    let (id, version) = (made.id.clone(), made.version);
    // A repeated request finds what it has made.
    let hint = hint.filter(|hint| !hint.contains(&id));
    let made = MadeOverride { made, own_address, hint };
    let mut answer = change.stored(StatusCode::CREATED, version, &made).await?;
    if let Ok(location) = HeaderValue::try_from(format!("/v1/overrides/{id}")) {
        answer.headers_mut().insert(LOCATION, location);
    }
    Ok(answer)
}

async fn list(Query(listed): Query<OverrideQuery>, rows: RowReader) -> Answer {
    Ok(answer::json(&page(rows, listed).await?))
}

async fn show(PathValues([id]): PathValues<1>, rows: RowReader) -> Answer {
    rows.show::<OverrideRow>(&id, not_found(&id)).await
}

async fn delete(change: ChangeRequest, PathValues([id]): PathValues<1>) -> Answer {
    change.delete::<OverrideRow>(&id, not_found(&id)).await
}

pub(super) async fn page(
    rows: RowReader,
    listed: OverrideQuery,
) -> Result<ListPage<OverrideRow>, AdminRefusal> {
    let text = |name: Option<Name>| name.map(|name| name.0);
    let filter = OverrideFilter {
        user_id: text(listed.user_id),
        tenant_id: text(listed.tenant_id),
        policy: text(listed.policy),
        kind: listed.override_type.map(OverrideType::word),
        live_at: (!listed.expired).then(Time::now),
        is_newest_first: listed.newest,
    };
    let read = |database: Database, page| async move { database.overrides(&page, &filter).await };
    rows.page(&listed.page, read, |row| row.id.clone()).await
}

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
        let value = self.value.unwrap_or(f64::from(FORBIDDEN));
        let kind = match self.override_type {
            // Nothing is cut off, because it was looked at: a whole number.
            OverrideType::Absolute => OverrideKind::Absolute(value as u64),
            OverrideType::Multiplicative => OverrideKind::Multiplicative(value),
            OverrideType::Block => OverrideKind::Block(value as u16),
            OverrideType::Unlimited => OverrideKind::Unlimited,
        };
        let subject = self.subject.map(|subject| subject_of(&subject.0)).transpose();
        let subject = subject.map_err(|told| AdminRefusal::in_field("subject", told))?;
        Ok(NewOverride {
            subject,
            user_id: text(self.user_id),
            tenant_id: text(self.tenant_id),
            policy: text(self.policy),
            kind,
            reason: self.reason.0,
            expires_at,
        })
    }
}

impl OverrideType {
    fn word(self) -> &'static str {
        match self {
            OverrideType::Absolute => "absolute",
            OverrideType::Multiplicative => "multiplicative",
            OverrideType::Block => "block",
            OverrideType::Unlimited => "unlimited",
        }
    }
}

/// A subject as it is kept: what may be a credential by its digest alone, because lists and the audit log show it.
fn subject_of(text: &str) -> Result<String, String> {
    let value: NamedValue = text.parse()?;
    match &value {
        NamedValue::Of(Dimension::Consumer, _) => Err("write it as `user-id`".to_owned()),
        NamedValue::Of(Dimension::Tenant, _) => Err("write it as `tenant-id`".to_owned()),
        // By the form in which requests have it, so that one digest stands for every spelling.
        value => Ok(match value.secret() {
            // As lists show it.
            Some((_, secret)) if keys::read(secret).is_some() => value.to_string(),
            Some((dimension, secret)) => {
                let mut bytes = Default::default();
                named_value::write(dimension, secret, &mut bytes);
                format!("{dimension}={}{}", named_value::DIGEST, digest_text(&bytes))
            }
            None => value.to_string(),
        }),
    }
}

/// The address of whoever makes an override, if it blocks that.
fn own_address(change: &ChangeRequest, new: &NewOverride, nat64: &Nat64) -> Option<String> {
    let from = change.by.from?.to_canonical();
    let subject = new.subject.as_deref()?.parse::<NamedValue>().ok()?.carried(nat64);
    let NamedValue::Network(network) = subject? else { return None };
    let covers = [from, carried_address(nat64.carried(from))].iter().any(|form| network.contains(form));
    (covers && matches!(new.kind, OverrideKind::Block(_))).then(|| from.to_string())
}

/// What may be a mistake in who is blocked or unlimited, or which limit it replaces.
async fn hint(change: &ChangeRequest, new: &NewOverride) -> Result<Option<String>, AdminRefusal> {
    if matches!(new.kind, OverrideKind::Absolute(_) | OverrideKind::Multiplicative(_)) {
        let filter = OverrideFilter {
            user_id: new.user_id.clone(),
            tenant_id: new.tenant_id.clone(),
            policy: new.policy.clone(),
            kind: Some(words(new.kind).0),
            live_at: Some(Time::now()),
            is_newest_first: true,
        };
        let others = change.database.overrides(&PageRange::first(database::ROWS_MAX), &filter).await?;
        let is_same = |row: &OverrideRow| {
            (&row.user_id, &row.tenant_id, &row.policy) == (&new.user_id, &new.tenant_id, &new.policy)
        };
        let other = others.into_iter().find(is_same);
        return Ok(other.map(|other| {
            format!("override `{}` does not apply while this one lasts, which is newer", other.id)
        }));
    }
    for (noun, name, is_tenant) in [("consumer", &new.user_id, false), ("tenant", &new.tenant_id, true)] {
        if let Some(name) = name
            && !database::knows(&change.database, name, is_tenant).await?
        {
            return Ok(Some(format!(
                "no API key or tier in the database and no count of the last day names the {noun} `{name}`: check the spelling, \
                 unless it is from a key file or a token"
            )));
        }
    }
    Ok(None)
}

/// Refuses an override that would change nothing, because whoever has made a mistake would not notice: one of addresses that
/// no client has, and one for a policy that does not count by its holder.
fn must_have_effect(state: &AdminState, new: &NewOverride) -> Result<(), AdminRefusal> {
    let subject = new.subject.as_deref().and_then(|subject| subject.parse::<NamedValue>().ok());
    if subject.is_some_and(|subject| subject.carried(&(state.counts.nat64)()).is_none()) {
        let detail = "no client has these addresses: `nat64` turns them into IPv4 addresses. Write the IPv4 range, such as \
                      `ip=203.0.113.0/24`";
        return Err(AdminRefusal::in_field("subject", detail));
    }
    let Some(policy) = &new.policy else { return Ok(()) };
    let counts_by = |dimension| (state.counts.counts_by)(policy, &dimension);
    if counts_by(Dimension::Consumer) || new.tenant_id.is_some() && counts_by(Dimension::Tenant) {
        return Ok(());
    }
    let by = if new.tenant_id.is_some() { "`consumer` or `tenant`" } else { "`consumer`" };
    let detail = state.counts.uncounted(policy, by);
    Err(AdminRefusal::in_field("policy", detail))
}

/// Refuses an end that is over, because then the client's clock is wrong, or its time zone.
pub(super) fn in_the_future(end: Option<Time>, now: Time) -> Result<(), AdminRefusal> {
    match end {
        Some(end) if end <= now => Err(AdminRefusal::in_field(
            "expires-at",
            format!("`expires-at` has passed: the gateway's clock shows {now}"),
        )),
        _ => Ok(()),
    }
}

pub(super) fn words(kind: OverrideKind) -> (&'static str, Value) {
    match kind {
        OverrideKind::Absolute(limit) => ("absolute", limit.into()),
        OverrideKind::Block(status) => ("block", status.into()),
        OverrideKind::Unlimited => ("unlimited", Value::Null),
        OverrideKind::Multiplicative(factor) => ("multiplicative", factor.into()),
    }
}

fn not_found(id: &str) -> AdminRefusal {
    AdminRefusal::UnknownName(format!(
        "there is no override, block or exemption `{id}`: `sluicegate ctl override list`, `block list` and `unlimited list` show them"
    ))
}

const FORBIDDEN: u16 = 403;
/// What a limit is multiplied by at most, because whoever means more means no limit at all.
pub(super) const MULTIPLIER_MAX: f64 = 1_000_000.0;
/// The most minutes that an override may last, as durations of gateway.toml.
pub(super) const MINUTES_MAX: u64 = DURATION_MAX.as_secs() / 60;
