//! `/v1/tiers`: what each tier allows under each policy, or under all that are by tier. It goes before what gateway.toml and
//! the policies of the database say.

use std::num::NonZeroU64;

use http::Method;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::answer::{Answer, RowStatus};
use super::change::{ChangeRequest, JsonBody, RowReader};
use super::endpoint::{change, read};
use super::operations::Document;
use super::page::{ListPage, PageQuery};
use super::policies;
use super::reading::path::PathValues;
use super::reading::query::Query;
use crate::admin::access::AdminRole::{Operate, Read};
use crate::admin::control::Proposal;
use crate::admin::refusal::AdminRefusal;
use crate::database::tiers::{BURST_MULTIPLIER, key};
use crate::database::{self, NewTierLimit, TierLimit, Time};
use base::units::DURATION_MAX;
use limit::{Algorithm, CalendarUnit};
use policy::counting::shorthand::{self, Error};
use policy::definition::BY_CALENDAR;

/// A tier's limit to write.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(extend("examples" = [
    json!({ "limit-value": 1000, "window-seconds": 60, "algorithm": "token-bucket" }),
    json!({ "limit": "10_000/month" }),
]))]
struct TierLimitBody {
    /// The limit as in gateway.toml, in place of `limit-value`, `window-seconds` and `burst-multiplier`.
    limit: Option<String>,
    /// Units per window. Required without `limit`.
    #[schemars(range(min = 1, max = LIMIT_MAX))]
    limit_value: Option<NonZeroU64>,
    /// The length of a window. Required without `limit`.
    #[schemars(range(min = 1, max = DURATION_MAX.as_secs()))]
    window_seconds: Option<NonZeroU64>,
    /// Default: 1.2
    #[schemars(range(min = 0.000_001, max = BURST_MULTIPLIER_MAX))]
    burst_multiplier: Option<f64>,
    /// A word of `algorithm` in gateway.toml, or that of a window of the calendar.
    #[schemars(extend("enum" = [
        "token-bucket", "sliding-window", "fixed-window", "sliding-log", "leaky-bucket", "calendar-day", "calendar-week",
        "calendar-month", "calendar-year", null,
    ]))]
    algorithm: Option<String>,
    /// The tier, which must be that of the path. Like `resource` and the fields that are ignored, it is accepted so
    /// that a limit can be sent back as it was shown.
    tier: Option<String>,
    /// The resource, which must be that of the path.
    resource: Option<String>,
    /// When it was made; ignored.
    #[serde(rename = "created-at")]
    _created_at: Option<Time>,
    /// When it was last changed; ignored.
    #[serde(rename = "updated-at")]
    _updated_at: Option<Time>,
    /// The version; ignored. `If-Match` says which version a change is for.
    #[serde(rename = "version")]
    _version: Option<i64>,
}

/// A tier's limit that is written.
#[derive(Debug, Serialize, JsonSchema)]
struct WrittenTierLimit {
    #[serde(flatten)]
    limit: TierLimit,
    /// What may be a mistake, and what a decimal rate counts as.
    #[serde(skip_serializing_if = "Option::is_none")]
    hint: Option<String>,
    #[serde(flatten)]
    status: RowStatus,
}

pub(super) fn describe(document: &mut Document) {
    document.begin("tiers", &[("tier", "the tier"), ("resource", "the resource")]);
    document.list(
        "/v1/tiers",
        "limits of all tiers, by resource",
        "set the limit of a tier with `PUT /v1/tiers/{tier}/{resource}`",
    );
    document
        .operation(read(Read, list), "list-tiers")
        .about("Lists the limits of all tiers, by tier and resource.")
        .query::<PageQuery>()
        .answers::<ListPage<TierLimit>>("A page of the list.");
    document.endpoint("/v1/tiers/{tier}/{resource}", "the limit of a tier for a resource");
    document
        .operation(read(Read, show), "show-tier")
        .about("Shows a tier's limit for a resource.")
        .shows::<TierLimit>("The limit.");
    document
        .operation(change(Method::PUT, Operate, put), "put-tier")
        .about("Sets a tier's limit for a resource: a policy by its name, or `*` for `[tier.*]`, which \
                 every policy with `limit = \"tier\"` has. What gateway.toml would refuse is refused in the same words.")
        .writes::<TierLimitBody, WrittenTierLimit>();
    document
        .operation(change(Method::DELETE, Operate, delete), "delete-tier")
        .about(
            "Deletes a tier's limit for a resource; the limit in gateway.toml or in a policy of the database is \
                 in force again. Refused if something names the tier and there is no other limit for it.",
        )
        .unpublishes();
}

async fn list(Query(wanted): Query<PageQuery>, rows: RowReader) -> Answer {
    rows.list::<TierLimit>(&wanted).await
}

async fn show(PathValues([tier, resource]): PathValues<2>, rows: RowReader) -> Answer {
    rows.show::<TierLimit>(&key(&tier, &resource), NOT_FOUND).await
}

async fn put(
    change: ChangeRequest,
    PathValues([tier, resource]): PathValues<2>,
    mut body: JsonBody,
) -> Answer {
    if body.fields.get("limit-value").is_some_and(|units| units.as_u64() == Some(0)) {
        let hint = "`limit-value` must be 1 or more: to refuse every request of a client, block it with \
                    `POST /v1/overrides`";
        body.fields.wrong("limit-value", hint);
    }
    let counted = body.fields.get("limit").and_then(policies::counted_as);
    let new = body.read::<TierLimitBody>()?.of(tier, resource)?;
    change.check(proposal(&new.tier, &new.resource, Some(new.clone()))).await?;
    // Asked before it is written, because then it is a tier.
    let hints: Vec<String> = counted.into_iter().chain(change.of_new_tier(&new.tier)).collect();
    let hint = (!hints.is_empty()).then(|| hints.join("; "));
    if change.is_dry_run {
        let old: Option<TierLimit> = change.database.row(&key(&new.tier, &new.resource)).await?;
        return change.dry_run(old, shown(&new, hint));
    }
    let limit = change.database.put_tier(&change.by, new, change.expected).await?;
    change.published(limit.version, &WrittenTierLimit { limit, hint, status: RowStatus::default() }).await
}

async fn delete(change: ChangeRequest, PathValues([tier, resource]): PathValues<2>) -> Answer {
    let key = key(&tier, &resource);
    change.database.row::<TierLimit>(&key).await?.ok_or(NOT_FOUND)?;
    change.check(proposal(&tier, &resource, None)).await?;
    let hint = still_assigned(&change, &tier);
    change.unpublish::<TierLimit>(&key, NOT_FOUND, hint).await
}

async fn still_assigned(change: &ChangeRequest, tier: &str) -> Option<String> {
    change.of_new_tier(tier)?;
    // Without an error, because it is deleted.
    let consumers = database::consumers_of(&change.database, tier, CONSUMERS_SHOWN).await.unwrap_or_default();
    (!consumers.is_empty()).then(|| {
        format!(
            "no tier `{tier}` is in force any more, and consumers still have it, such as {}: they are limited as \
             clients without a tier until another is assigned",
            consumers.join(", ")
        )
    })
}

impl TierLimitBody {
    fn of(self, tier: String, resource: String) -> Result<NewTierLimit, AdminRefusal> {
        for (field, said, is) in [("tier", &self.tier, &tier), ("resource", &self.resource, &resource)] {
            if said.as_ref().is_some_and(|said| said != is) {
                return Err(AdminRefusal::in_field(field, "is another than that of the path"));
            }
        }
        let TierLimitBody { limit, limit_value, window_seconds, burst_multiplier, algorithm, .. } = self;
        let (limit_value, window_seconds, burst_multiplier, algorithm) = match (
            limit,
            limit_value,
            window_seconds,
        ) {
            (Some(limit), None, None) if burst_multiplier.is_none() => of_text(&limit, algorithm)?,
            (Some(_), ..) => {
                return Err(AdminRefusal::in_field(
                    "limit",
                    "`limit` cannot be combined with `limit-value`, `window-seconds` or `burst-multiplier`: write a \
                             burst as `100/m burst 20`",
                ));
            }
            (None, Some(units), Some(seconds)) => {
                let unit = algorithm.as_deref().and_then(|word| word.strip_prefix(BY_CALENDAR));
                let longest = unit.and_then(CalendarUnit::of_word).map(seconds_of);
                if longest.is_some_and(|longest| longest != seconds.get()) {
                    return Err(AdminRefusal::in_field(
                        "window-seconds",
                        "must be that of the longest such window of the calendar, or write `limit`",
                    ));
                }
                (units, seconds, burst_multiplier, algorithm)
            }
            (None, None, _) => return Err(missing("limit-value")),
            (None, _, None) => return Err(missing("window-seconds")),
        };
        Ok(NewTierLimit { tier, resource, limit_value, window_seconds, burst_multiplier, algorithm })
    }
}

/// Units, seconds, burst and algorithm of a limit as in gateway.toml.
fn of_text(
    limit: &str,
    algorithm: Option<String>,
) -> Result<(NonZeroU64, NonZeroU64, Option<f64>, Option<String>), AdminRefusal> {
    let wrong = |detail: &str| Err(AdminRefusal::in_field("limit", format!("`limit` {detail}")));
    let read = shorthand::parse(limit).map_err(|Error { problem, .. }| {
        let hint =
            problem.hint().replace(", \"1_000/10s by consumer\" or \"32 in flight\"", " or \"1_000/10s\"");
        AdminRefusal::in_field("limit", format!("`limit` is invalid: {problem}: {hint}"))
    })?;
    let quota = read.window;
    if !read.by.is_empty() || quota.algorithm() == Algorithm::Concurrency {
        return wrong("must be one limit over a period, such as `100/m`, without `by`");
    }
    let is_bucket = matches!(algorithm.as_deref(), None | Some("token-bucket" | "leaky-bucket"));
    if read.has_burst && (quota.calendar().is_some() || !is_bucket) {
        return wrong("needs a token bucket or a leaky bucket for its `burst`");
    }
    if quota.calendar().is_some() && algorithm.is_some() {
        return Err(AdminRefusal::in_field(
            "algorithm",
            "a window of the calendar is always a fixed window: leave `algorithm` out",
        ));
    }
    let unit = quota.calendar().map(|calendar| calendar.unit());
    let seconds = unit.map_or(quota.period_ns().get() / 1_000_000_000, seconds_of);
    let Some(seconds) = NonZeroU64::new(seconds) else {
        return wrong("must have a period of a second or more");
    };
    let burst = quota.burst().get() as f64 / quota.limit().get() as f64;
    if quota.limit().get() > LIMIT_MAX
        || seconds.get() > DURATION_MAX.as_secs()
        || burst > BURST_MULTIPLIER_MAX
    {
        return wrong(
            "must allow at most 1000000000 units, in at most 366 days, with a `burst` of at most 1000 times that",
        );
    }
    let algorithm = unit.map(|unit| format!("{BY_CALENDAR}{}", unit.word())).or(algorithm);
    Ok((quota.limit(), seconds, Some(burst), algorithm))
}

fn seconds_of(unit: CalendarUnit) -> u64 {
    unit.days() * 86_400
}

fn proposal(tier: &str, resource: &str, limit: Option<NewTierLimit>) -> Proposal {
    Proposal::Tier { tier: tier.to_owned(), resource: resource.to_owned(), limit }
}

fn shown(new: &NewTierLimit, hint: Option<String>) -> Value {
    let mut shown = json!({
        "tier": new.tier, "resource": new.resource, "limit-value": new.limit_value,
        "window-seconds": new.window_seconds, "algorithm": new.algorithm,
        "burst-multiplier": new.burst_multiplier.unwrap_or(BURST_MULTIPLIER),
    });
    hint.into_iter().for_each(|hint| shown["hint"] = hint.into());
    shown
}

const NOT_FOUND: AdminRefusal =
    AdminRefusal::NotFound("the database has no limit of this tier for this policy");

const CONSUMERS_SHOWN: i64 = 10;

fn missing(field: &str) -> AdminRefusal {
    AdminRefusal::in_field(
        field,
        format!("`{field}` is missing: write it, or `limit` alone, such as `100/m`"),
    )
}

/// A higher limit is refused, because it is surely a typing error, as a higher cost is in gateway.toml.
const LIMIT_MAX: u64 = 1_000_000_000;
const BURST_MULTIPLIER_MAX: f64 = 1_000.0;
