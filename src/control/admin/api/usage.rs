//! `/v1/usage`: what consumers and tenants have spent, and how that is given back.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::body::Body as Sent;
use axum::extract::State as Of;
use http::{Response, StatusCode, Uri};
use serde_json::{Value, json};

use super::answer;
use super::change::{Body, Change};
use super::described::{self, Name};
use super::fields::{At, Flaw};
use super::overrides::REASON_CHARS_MAX;
use super::page::Wanted;
use super::path::{ID_CHARS_MAX, Values};
use super::query::Query;
use crate::admin::control::{ByMinute, MINUTES_MAX, Minutes, MinutesAsked};
use crate::admin::counts::{
    self, Grant, Granted, Holder, PenaltyShown, PolicyUsage, TierFrom, TierShown, UsageAsked, WindowUsage,
};
use crate::admin::refusal::Refusal;
use crate::admin::state::State;
use crate::database::{self, ABSOLUTE_MAX, NewReset, Time};
use metrics::usage::Amount;
use policy::definition::Dimension;

type Answer = Result<Response<Sent>, Refusal>;

/// Shows what a consumer or a tenant has spent of each policy that counts by it, by the name of the policy.
#[utoipa::path(get, path = "/v1/usage/{kind}/{id}", tag = "counts", operation_id = "show-usage",
    params(("kind" = described::HolderKind, Path, description = "what `id` is"),
        ("id" = Name, Path, description = "its name"),
        Wanted,
        ("policy" = Option<Name>, Query, description = "only this policy"),
        ("tenant" = Option<Name>, Query, description = "the tenant that the consumer acts for"),
        ("tier" = Option<Name>, Query, description = "the tier that a credential would name"),
        ("minutes" = Option<described::MinutesBack>, Query,
            description = "show what was decided in each of the last so many minutes, too; pages have fewer rows then")),
    responses((status = 200, description = "A page.", body = described::UsagePage)))]
pub(in crate::admin) async fn show(
    Of(state): Of<Arc<State>>,
    Values([kind, id]): Values<2>,
    uri: Uri,
) -> Answer {
    let holder = holder(&kind, id)?;
    let mut query = Query::parse(uri.query().unwrap_or_default());
    let mut wanted = Wanted::read(&mut query);
    let minutes = query.integer("minutes", 1..=MINUTES_MAX);
    if let Some(minutes) = minutes {
        let most = u32::try_from(MINUTE_ROWS_MAX / minutes).unwrap_or(u32::MAX);
        wanted.limit = wanted.limit.min(most);
    }
    let asked = UsageAsked {
        holder: holder.clone(),
        policy: query.text("policy", ID_CHARS_MAX),
        tenant: query.text("tenant", ID_CHARS_MAX),
        tier: query.text("tier", ID_CHARS_MAX),
        seen: BTreeMap::new(),
        after: wanted.after.clone(),
        limit: wanted.rows().limit as usize,
    };
    query.finish().map_err(Refusal::Invalid)?;
    let (tenant, is_of_one) = (asked.tenant.clone(), asked.policy.is_some());
    let rows = (state.counts.usage)(asked).await;
    if is_of_one && rows.is_empty() {
        return Err(Refusal::NotFound(match holder {
            Holder::Consumer(_) => "no policy of this name that counts by `consumer` is in force",
            Holder::Tenant(_) => "no policy of this name that counts by `tenant` is in force",
        }));
    }
    let page = wanted.page(rows, |row| row.policy.clone());
    let Some(minutes) = minutes else { return Ok(answer::json(&page.map(|row| shown(&row)))) };
    let name = |row: Option<&PolicyUsage>| row.map_or_else(String::new, |row| row.policy.clone());
    let policies = (name(page.items.first()), name(page.items.last()));
    let minutes = by_minute(&state, MinutesAsked { holder, tenant, policies, minutes }).await?;
    let of_policy = |row: &PolicyUsage| minutes.policies.get(&row.policy).map(listed).unwrap_or_default();
    let page = page.map(|row| {
        let mut shown = shown(&row);
        shown["minutes"] = of_policy(&row).into();
        shown
    });
    let mut page = json!(page);
    page["others"] = listed(&minutes.others).into();
    Ok(answer::json(&page))
}

/// What was decided minute by minute, as the database and this node know it.
async fn by_minute(state: &State, asked: MinutesAsked) -> Result<Minutes, Refusal> {
    let Some(control) = &state.control else { return Err(Refusal::NoMinutes) };
    let Some(minutes) = &control.minutes else { return Err(Refusal::NoMinutes) };
    let database = (control.database)().ok_or(Refusal::NotReached)?;
    Ok(minutes(database, asked).await?)
}

fn listed(minutes: &ByMinute) -> Vec<Value> {
    let minute = |(at, amount): (&Time, &Amount)| json!({ "at": at, "admitted": amount.admitted, "denied": amount.denied, "units": amount.units });
    minutes.iter().map(minute).collect()
}

/// Lets a consumer or a tenant begin anew: nothing is spent, and penalties are over. What is in flight stays.
#[utoipa::path(post, path = "/v1/usage/{kind}/{id}/reset", tag = "counts", operation_id = "reset-usage",
    params(("kind" = described::HolderKind, Path, description = "what `id` is"),
        ("id" = Name, Path, description = "its name"), answer::DryRunParameter, answer::IdempotencyKey),
    request_body = described::ResetBody,
    responses((status = 200, description = "It is in force, or what would be done.", body = described::ResetPosted)))]
pub(in crate::admin) async fn reset(
    Of(state): Of<Arc<State>>,
    change: Change,
    Values([kind, id]): Values<2>,
    body: Body,
) -> Answer {
    let change = change.with_body(&body);
    let holder = holder(&kind, id)?;
    let mut fields = body.fields;
    fields.require("reason", "say why, for the audit");
    let (reason, policy) = (fields.text("reason", REASON_CHARS_MAX), fields.text("policy", ID_CHARS_MAX));
    fields.finish().map_err(Refusal::Invalid)?;
    if let Some(policy) = &policy {
        check_policy(&state, &holder, policy)?;
    }
    let new = new_reset(holder, policy, None, reason.unwrap_or_default());
    if change.is_dry_run {
        return Ok(answer::dry_run(Value::Null, would_be(&new)));
    }
    let made = change.database.add_reset(&change.by, new, None).await?;
    change.in_force(made.version).await;
    Ok(answer::row(StatusCode::OK, made.version, &made))
}

/// Gives units of a policy back to a consumer or a tenant: as many are spent less, and never more than all are left. The
/// policy must count by it alone.
#[utoipa::path(post, path = "/v1/usage/{kind}/{id}/grant", tag = "counts", operation_id = "grant-usage",
    params(("kind" = described::HolderKind, Path, description = "what `id` is"),
        ("id" = Name, Path, description = "its name"), answer::DryRunParameter, answer::IdempotencyKey),
    request_body = described::GrantBody,
    responses((status = 200, description = "It is in force, or what would be done.", body = described::ResetPosted)))]
pub(in crate::admin) async fn grant(
    Of(state): Of<Arc<State>>,
    change: Change,
    Values([kind, id]): Values<2>,
    body: Body,
) -> Answer {
    let change = change.with_body(&body);
    let holder = holder(&kind, id)?;
    let mut fields = body.fields;
    fields.require("units", "write how many units are given back");
    fields.require("policy", "write the name of a policy");
    fields.require("reason", "say why, for the audit");
    let units = fields.integer("units", 1..=ABSOLUTE_MAX);
    let (reason, policy) = (fields.text("reason", REASON_CHARS_MAX), fields.text("policy", ID_CHARS_MAX));
    let tenant = fields.text("tenant", ID_CHARS_MAX);
    fields.finish().map_err(Refusal::Invalid)?;
    let (units, policy) = (units.unwrap_or_default(), policy.unwrap_or_default());
    check_policy(&state, &holder, &policy)?;
    let new = new_reset(holder.clone(), Some(policy.clone()), Some(units), reason.unwrap_or_default());
    let is_dry = change.is_dry_run;
    for _ in 0..ATTEMPTS_MAX {
        // Each attempt has an id of its own: what another one has prepared is nobody's.
        let new = NewReset { id: NewReset::id(), ..new.clone() };
        let (holder, policy, tenant) = (holder.clone(), policy.clone(), tenant.clone());
        let grant = Grant { holder, policy, tenant, units, id: new.id.clone(), is_dry };
        let after = match (state.counts.grant)(grant).await {
            Granted::Carried { after, .. } => after,
            Granted::NoPolicy => return Err(Refusal::Unusable(vec![Flaw::in_body("policy", NOT_ALONE)])),
            Granted::NoTier => return Err(Refusal::Unusable(vec![Flaw::in_body("policy", NO_TIER)])),
            Granted::NoRedis => return Err(Refusal::NoRedis),
        };
        if is_dry {
            return Ok(answer::dry_run(Value::Null, would_be(&new)));
        }
        match change.database.add_reset(&change.by, new, Some(after)).await {
            Ok(made) => {
                change.in_force(made.version).await;
                return Ok(answer::row(StatusCode::OK, made.version, &made));
            }
            // Another reset came between, or has not come here yet.
            Err(database::Error::Conflict { version }) => change.in_force(version.unwrap_or_default()).await,
            Err(error) => return Err(error.into()),
        }
    }
    Err(Refusal::Overtaken)
}

fn holder(kind: &str, id: String) -> Result<Holder, Refusal> {
    match kind {
        "consumer" => Ok(Holder::Consumer(id)),
        "tenant" => Ok(Holder::Tenant(id)),
        _ => Err(Refusal::NotFound("usage is that of a `consumer` or of a `tenant`")),
    }
}

/// A misspelt name would reset nothing, and nobody would notice.
fn check_policy(state: &State, holder: &Holder, policy: &str) -> Result<(), Refusal> {
    let dimension = match holder {
        Holder::Consumer(_) => Dimension::Consumer,
        Holder::Tenant(_) => Dimension::Tenant,
    };
    if (state.counts.counts_by)(policy, &dimension) {
        return Ok(());
    }
    let detail = format!("no policy of this name that counts by `{dimension}` is in force");
    Err(Refusal::Unusable(vec![Flaw { at: At::Body("/policy".to_owned()), detail }]))
}

fn new_reset(holder: Holder, policy: Option<String>, units: Option<u64>, reason: String) -> NewReset {
    let (user_id, tenant_id) = match holder {
        Holder::Consumer(name) => (Some(name), None),
        Holder::Tenant(name) => (None, Some(name)),
    };
    NewReset { id: NewReset::id(), user_id, tenant_id, policy, units, reason }
}

fn would_be(new: &NewReset) -> Value {
    json!({
        "user-id": new.user_id, "tenant-id": new.tenant_id, "policy": new.policy, "units": new.units,
        "reason": new.reason,
    })
}

fn shown(usage: &PolicyUsage) -> Value {
    let windows = usage.windows.as_ref().map(|windows| windows.iter().map(window).collect::<Vec<_>>());
    json!({
        "policy": usage.policy, "by": usage.by, "shadow": usage.is_shadow, "replaces": usage.replaces,
        "tier": usage.tier.as_ref().map(tier), "penalty": usage.penalty.as_ref().and_then(penalty),
        "windows": windows,
    })
}

fn tier(tier: &TierShown) -> Value {
    let from = match tier.from {
        TierFrom::Assigned => "assigned",
        TierFrom::Asked => "asked",
        TierFrom::Decision => "decision",
        TierFrom::Assumed => "assumed",
    };
    json!({ "name": tier.name, "from": from })
}

fn penalty(penalty: &PenaltyShown) -> Option<Value> {
    penalty.ends_at.map(|ends_at| json!({ "node": penalty.node, "ends-at": ends_at }))
}

fn window(window: &WindowUsage) -> Value {
    json!({
        "window": window.window, "limit": window.limit, "capacity": window.capacity,
        "period-seconds": window.period_seconds, "used": window.used, "leased": window.leased,
        "remaining": window.remaining, "reset-at": window.reset_at, "override": window.overridden,
        "tenant-limit": window.tenant_limit,
        "hot-key": window.hot_instead_of.map(|own| json!({ "instead-of": own })),
        "from": match window.from {
            counts::From::Redis => "redis",
            counts::From::Node => "node",
            counts::From::NodeWithoutRedis => "node-without-redis",
        },
    })
}

/// Minutes of all policies of a page together.
const MINUTE_ROWS_MAX: u64 = 20_000;
const NOT_ALONE: &str =
    "the policy counts by more than this: reset it, or give the consumer another limit for a while";
const NO_TIER: &str =
    "the policy is by tier, and none is assigned to this consumer: assign one, or reset the policy";
/// How often a grant is prepared anew because another change came between.
const ATTEMPTS_MAX: usize = 4;
