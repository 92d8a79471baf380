//! `/v1/usage`: what consumers and tenants have spent, and how that is given back.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::extract::State as Of;
use http::{Method, StatusCode};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::answer::{self, Answer};
use super::change::{ChangeRequest, JsonBody};
use super::endpoint::{change, read};
use super::operations::Document;
use super::page::{ListPage, PageQuery};
use super::reading::path::PathValues;
use super::reading::query::Query;
use super::schema::{BoundedText, Name, Reason};
use crate::admin::access::AdminRole::{Operate, Read};
use crate::admin::control::{ByMinute, MINUTES_MAX, MinutesQuery, UsageMinutes};
use crate::admin::counts::{GrantOutcome, PolicyUsage, UnitGrant, UsageQuestion};
use crate::admin::refusal::AdminRefusal;
use crate::admin::state::AdminState;
use crate::database::{self, ABSOLUTE_MAX, NewReset, ResetRow, Time};
use metrics::usage::Amount;
use policy::Holder;

/// Whether the usage is a consumer's or a tenant's.
#[derive(JsonSchema)]
#[schemars(rename_all = "lowercase")]
#[expect(dead_code, reason = "a `Holder` is made of the word and the name together")]
enum HolderKind {
    Consumer,
    Tenant,
}

/// A query for usage.
#[derive(Debug, Deserialize, JsonSchema)]
pub(in crate::admin) struct UsageQuery {
    #[serde(flatten)]
    page: PageQuery,
    /// Only this policy.
    policy: Option<Name>,
    /// The tenant that the consumer acts for.
    tenant: Option<Name>,
    /// The tier that a credential would name.
    tier: Option<Name>,
    /// Also show the decisions of each of this number of last minutes; pages then have fewer rows.
    #[schemars(range(min = 1, max = MINUTES_MAX))]
    minutes: Option<u64>,
}

/// A page of usage, by the names of policies.
#[derive(Debug, Serialize, JsonSchema)]
struct UsagePage {
    #[serde(flatten)]
    page: ListPage<PolicySpend>,
    /// Decisions on everybody for whom nodes had no row left, if `minutes` is set. For a minute that is listed here,
    /// the figures of others may be too low.
    #[serde(skip_serializing_if = "Option::is_none")]
    others: Option<Vec<MinuteUsage>>,
}

/// Usage of one policy.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Usage")]
struct PolicySpend {
    #[serde(flatten)]
    usage: PolicyUsage,
    /// Decisions per minute, for minutes that have any, if `minutes` is set.
    #[serde(skip_serializing_if = "Option::is_none")]
    minutes: Option<Vec<MinuteUsage>>,
}

/// Decisions of a policy in a minute.
#[derive(Debug, Serialize, JsonSchema)]
struct MinuteUsage {
    /// When the minute began.
    at: Time,
    admitted: u64,
    /// For a shadow policy: what it would have denied.
    denied: u64,
    /// Units that were charged, without costs that became known with responses.
    units: u64,
}

/// A reset of usage.
#[derive(Debug, Deserialize, JsonSchema)]
#[schemars(extend("examples" = [json!({ "policy": "calls", "reason": "a wrong bill" })]))]
struct ResetBody {
    /// Only this policy; default: all that count by the consumer or the tenant.
    policy: Option<Name>,
    /// Text for the audit log.
    reason: Reason,
}

/// Units to refund.
#[derive(Debug, Deserialize, JsonSchema)]
#[schemars(extend("examples" = [json!({ "units": 10, "policy": "calls", "reason": "our fault" })]))]
struct GrantBody {
    /// How many units to refund; units beyond those spent have no effect.
    #[schemars(range(min = 1, max = ABSOLUTE_MAX))]
    units: u64,
    /// The name of a policy.
    policy: Name,
    /// The tenant that a consumer acts for, if the policy counts by it, too, or its keys have a dedicated shard.
    tenant: Option<Name>,
    /// Text for the audit log.
    reason: Reason,
}

pub(super) fn describe(document: &mut Document) {
    document.begin("counts", &[("id", "its name")]);
    document.endpoint("/v1/usage/{kind}/{id}", "usage of a consumer or a tenant");
    document
        .operation(read(Read, show), "show-usage")
        .about(
            "Shows the usage of a consumer or a tenant for each policy that counts by it, by the name of the \
            policy.",
        )
        .at::<HolderKind>("kind", "whether `id` is a consumer or a tenant")
        .query::<UsageQuery>()
        .answers::<UsagePage>("A page of the list.");
    document.endpoint("/v1/usage/{kind}/{id}/reset", "resets its counts and ends its penalties");
    document
        .operation(change(Method::POST, Operate, reset), "reset-usage")
        .about(
            "Resets the counts of a consumer or a tenant and ends its penalties. Requests in flight stay counted.",
        )
        .at::<HolderKind>("kind", "whether `id` is a consumer or a tenant")
        .writes::<ResetBody, ResetRow>();
    document.endpoint("/v1/usage/{kind}/{id}/grant", "refunds units of a policy");
    document
        .operation(change(Method::POST, Operate, grant), "grant-usage")
        .about(
            "Refunds units of a policy to a consumer or a tenant: its usage falls by that many, but not below 0. The \
             policy must count by it alone.",
        )
        .at::<HolderKind>("kind", "whether `id` is a consumer or a tenant")
        .writes::<GrantBody, ResetRow>();
}

async fn show(
    Of(state): Of<Arc<AdminState>>,
    PathValues([kind, id]): PathValues<2>,
    Query(mut about): Query<UsageQuery>,
) -> Answer {
    let holder = holder(&kind, id)?;
    if let Some(minutes) = about.minutes {
        // Fewer rows, so that all minutes of a page together are bounded.
        let most = u32::try_from(MINUTE_ROWS_MAX / minutes).unwrap_or(u32::MAX);
        about.page.limit = about.page.limit.min(most);
    }
    let (wanted, minutes) = (about.page, about.minutes);
    let text = |name: Option<Name>| name.map(|name| name.0);
    let asked = UsageQuestion {
        holder: holder.clone(),
        policy: text(about.policy),
        tenant: text(about.tenant),
        tier: text(about.tier),
        seen: BTreeMap::new(),
        after: wanted.rows().after,
        limit: wanted.rows().limit as usize,
    };
    state.counts.must_know(None, asked.tier.as_deref())?;
    let (tenant, only) = (asked.tenant.clone(), asked.policy.clone());
    let rows = (state.counts.usage)(asked).await;
    if let Some(policy) = only.filter(|_| rows.is_empty()) {
        let by = format!("`{}`", holder.dimension());
        return Err(AdminRefusal::UnknownName(state.counts.uncounted(&policy, &by)));
    }
    let page = wanted.page(rows, |row| row.policy.clone());
    let Some(minutes) = minutes else {
        let page = page.map(|usage| PolicySpend { usage, minutes: None });
        return Ok(answer::json(&UsagePage { page, others: None }));
    };
    let name = |row: Option<&PolicyUsage>| row.map_or_else(String::new, |row| row.policy.clone());
    let policies = (name(page.items.first()), name(page.items.last()));
    let minutes = by_minute(&state, MinutesQuery { holder, tenant, policies, minutes }).await?;
    let page = page.map(|usage| {
        let listed = minutes.policies.get(&usage.policy).map(listed).unwrap_or_default();
        PolicySpend { usage, minutes: Some(listed) }
    });
    Ok(answer::json(&UsagePage { page, others: Some(listed(&minutes.others)) }))
}

/// What was decided minute by minute, as the database and this node know it.
async fn by_minute(state: &AdminState, asked: MinutesQuery) -> Result<UsageMinutes, AdminRefusal> {
    let Some(control) = &state.control else { return Err(AdminRefusal::NoMinutes) };
    let Some(minutes) = &control.minutes else { return Err(AdminRefusal::NoMinutes) };
    let database = (control.database)().ok_or(AdminRefusal::NotReached)?;
    Ok(minutes((database, asked)).await?)
}

fn listed(minutes: &ByMinute) -> Vec<MinuteUsage> {
    let minute = |(at, Amount { admitted, denied, units }): (&Time, &Amount)| MinuteUsage {
        at: *at,
        admitted: *admitted,
        denied: *denied,
        units: *units,
    };
    minutes.iter().map(minute).collect()
}

async fn reset(
    Of(state): Of<Arc<AdminState>>,
    change: ChangeRequest,
    PathValues([kind, id]): PathValues<2>,
    body: JsonBody,
) -> Answer {
    let change = change.with_body(&body);
    let holder = holder(&kind, id)?;
    let ResetBody { policy, reason } = body.read()?;
    let policy = policy.map(|policy| policy.0);
    if let Some(policy) = &policy {
        check_policy(&state, &holder, policy)?;
    }
    let new = new_reset(holder, policy, None, reason.0);
    if change.is_dry_run {
        return Ok(answer::dry_run(Value::Null, json!(new)));
    }
    let made = change.database.add_reset(&change.by, new, None).await?;
    change.stored(StatusCode::OK, made.version, &made).await
}

async fn grant(
    Of(state): Of<Arc<AdminState>>,
    change: ChangeRequest,
    PathValues([kind, id]): PathValues<2>,
    body: JsonBody,
) -> Answer {
    let change = change.with_body(&body);
    let holder = holder(&kind, id)?;
    let GrantBody { units, policy: BoundedText(policy), tenant, reason } = body.read()?;
    let tenant = tenant.map(|tenant| tenant.0);
    check_policy(&state, &holder, &policy)?;
    let new = new_reset(holder.clone(), Some(policy.clone()), Some(units), reason.0);
    let is_dry = change.is_dry_run;
    for _ in 0..ATTEMPTS_MAX {
        // Each attempt has an id of its own, because what another one has prepared is nobody's.
        let new = NewReset { id: NewReset::id(), ..new.clone() };
        let (holder, policy, tenant) = (holder.clone(), policy.clone(), tenant.clone());
        let grant = UnitGrant { holder, policy, tenant, units, id: new.id.clone(), is_dry };
        let after = match (state.counts.grant)(grant).await {
            GrantOutcome::Carried(after) => after,
            GrantOutcome::NoPolicy => {
                return Err(AdminRefusal::in_field("policy", NOT_ALONE));
            }
            GrantOutcome::NoTier => {
                return Err(AdminRefusal::in_field("policy", NO_TIER));
            }
            GrantOutcome::OwnMonths => {
                return Err(AdminRefusal::in_field("policy", OWN_MONTHS));
            }
            GrantOutcome::NoRedis => return Err(AdminRefusal::NoRedis),
        };
        if is_dry {
            return Ok(answer::dry_run(Value::Null, json!(new)));
        }
        match change.database.add_reset(&change.by, new, Some(after)).await {
            Ok(made) => return change.stored(StatusCode::OK, made.version, &made).await,
            // Tried again, because another reset came between, or has not come here yet.
            Err(database::Error::Conflict { version }) => change.in_force(version.unwrap_or_default()).await,
            Err(error) => return Err(error.into()),
        }
    }
    Err(AdminRefusal::Overtaken)
}

fn holder(kind: &str, id: String) -> Result<Holder, AdminRefusal> {
    match kind {
        "consumer" => Ok(Holder::Consumer(id.into())),
        "tenant" => Ok(Holder::Tenant(id.into())),
        _ => Err(AdminRefusal::NotFound(
            "usage is of a `consumer` or a `tenant`: write one of these in the path",
        )),
    }
}

/// Refuses a name that is misspelt, because it would reset nothing, and nobody would notice.
fn check_policy(state: &AdminState, holder: &Holder, policy: &str) -> Result<(), AdminRefusal> {
    let dimension = holder.dimension();
    if (state.counts.counts_by)(policy, &dimension) {
        return Ok(());
    }
    let detail = state.counts.uncounted(policy, &format!("`{dimension}`"));
    Err(AdminRefusal::in_field("policy", detail))
}

fn new_reset(holder: Holder, policy: Option<String>, units: Option<u64>, reason: String) -> NewReset {
    let (user_id, tenant_id) = match holder {
        Holder::Consumer(name) => (Some(name.into()), None),
        Holder::Tenant(name) => (None, Some(name.into())),
    };
    NewReset { id: NewReset::id(), user_id, tenant_id, policy, units, reason }
}

const MINUTE_ROWS_MAX: u64 = 20_000;
const NOT_ALONE: &str =
    "the policy counts by more dimensions than this: reset its counts, or add an override for a while";
const NO_TIER: &str = "the policy's limit depends on the tier, and this consumer has none assigned: assign one, or reset the \
     policy's counts";
const OWN_MONTHS: &str = "each consumer's months begin on a day of its own (`anchor-claim`): reset the policy's counts, or \
     add an override for a while";
/// How often a grant is prepared anew because another change came between.
const ATTEMPTS_MAX: usize = 4;
