//! What the OpenAPI document says of bodies and rows.
//!
//! It is a second description, made of types that hold nothing: readers of bodies decide, and rows are the database's. A
//! test compares both with what is read and answered.

#![expect(dead_code, reason = "the types are described, never made")]

use std::collections::BTreeMap;

use serde_json::{Value, json};
use utoipa::openapi::schema::{
    AnyOfBuilder, ObjectBuilder, OneOfBuilder, Schema, SchemaFormat, SchemaType, Type,
};
use utoipa::openapi::{KnownFormat, Ref, RefOr};
use utoipa::{PartialSchema, ToSchema};

use super::checks::{DIMENSIONS_MAX, VALUE_CHARS_MAX};
use super::overrides::MULTIPLIER_MAX;
use super::path::ID_CHARS_MAX;
use crate::admin::control::MINUTES_MAX;
use crate::database::ABSOLUTE_MAX;
use metrics::hot_keys;

/// The name of a consumer, a tenant, a policy, a tier, a resource or a row.
pub(in crate::admin) struct Name(String);

/// Whole numbers with units, the largest first: "10m", "1h30m", "2d".
pub(in crate::admin) struct Time(String);

/// Decisions of one answer.
pub(in crate::admin) const DECISIONS_MAX: u64 = 1_000;

/// A date and time as RFC 3339 writes it.
pub(in crate::admin) struct Instant(String);

fn text() -> ObjectBuilder {
    ObjectBuilder::new().schema_type(SchemaType::Type(Type::String))
}

impl PartialSchema for Name {
    fn schema() -> RefOr<Schema> {
        let text = text().min_length(Some(1)).max_length(Some(ID_CHARS_MAX));
        text.pattern(Some(NO_CONTROL_CHARACTERS)).into()
    }
}

impl ToSchema for Name {}

impl PartialSchema for Time {
    fn schema() -> RefOr<Schema> {
        // Not all that is read: whatever matches is at least a second and at most 366 days.
        let pattern = "^([1-9][0-9]?d)?([1-9][0-9]{0,2}h)?([1-9][0-9]{0,3}m)?([1-9][0-9]{0,4}s)?$";
        text().min_length(Some(2)).pattern(Some(pattern)).into()
    }
}

impl ToSchema for Time {}

impl PartialSchema for Instant {
    fn schema() -> RefOr<Schema> {
        text().format(Some(SchemaFormat::KnownFormat(KnownFormat::DateTime))).into()
    }
}

impl ToSchema for Instant {}

/// What an override makes of a limit.
#[derive(ToSchema)]
#[schema(rename_all = "kebab-case")]
pub(in crate::admin) enum OverrideType {
    /// Sets it.
    Absolute,
    /// Multiplies it.
    Multiplicative,
}

/// A limit of one consumer, one tenant, or one consumer of one tenant.
#[derive(ToSchema)]
#[schema(rename_all = "kebab-case")]
pub(in crate::admin) struct Override {
    /// Later overrides have later ids.
    id: String,
    user_id: Option<Name>,
    tenant_id: Option<Name>,
    /// The only policy that it is for.
    policy: Option<Name>,
    override_type: OverrideType,
    value: f64,
    /// Why.
    reason: String,
    /// `null`: it does not end on its own.
    expires_at: Option<Instant>,
    created_at: Instant,
    /// The name of the token that made it.
    created_by: String,
    /// The version of the change that made it.
    version: u64,
}

/// An override to be made. It ends after `duration` or `duration-minutes`, or at `expires-at`, or when it is deleted.
#[derive(ToSchema)]
#[schema(rename_all = "kebab-case")]
pub(in crate::admin) struct OverrideBody {
    /// The consumer; this or `tenant-id` must be there.
    user_id: Option<Name>,
    tenant_id: Option<Name>,
    /// The only policy that it is for; without one it is for all that count by the consumer or the tenant.
    policy: Option<Name>,
    override_type: OverrideType,
    /// The limit of a policy's first window, or what all windows are multiplied by.
    #[schema(exclusive_minimum = 0)]
    value: f64,
    /// Why, for the audit.
    #[schema(min_length = 1, max_length = 4096, pattern = r"^[^\x00-\x1f\x7f-\x9f]*$")]
    reason: String,
    duration: Option<Time>,
    #[schema(minimum = 1, maximum = 527040)]
    duration_minutes: Option<u64>,
    expires_at: Option<Instant>,
}

/// An override in snake case.
#[derive(ToSchema)]
pub(in crate::admin) struct SnakeOverride {
    id: String,
    user_id: Option<Name>,
    tenant_id: Option<Name>,
    override_type: OverrideType,
    value: f64,
    reason: String,
    expires_at: Option<Instant>,
    created_at: Instant,
    created_by: String,
}

/// An override to be made, in snake case.
#[derive(ToSchema)]
pub(in crate::admin) struct SnakeOverrideBody {
    /// The consumer; this or `tenant_id` must be there.
    user_id: Option<Name>,
    tenant_id: Option<Name>,
    override_type: OverrideType,
    #[schema(exclusive_minimum = 0)]
    value: f64,
    #[schema(minimum = 1, maximum = 527040)]
    duration_minutes: u64,
    #[schema(min_length = 1, max_length = 4096, pattern = r"^[^\x00-\x1f\x7f-\x9f]*$")]
    reason: String,
}

/// What is answered to a new override in snake case.
#[derive(ToSchema)]
pub(in crate::admin) struct SnakeOverrideMade {
    id: String,
    expires_at: Instant,
}

/// What is answered to its deletion: `{"status": "deleted"}`, or what would be done.
pub(in crate::admin) struct SnakeOverrideDeletion;

impl PartialSchema for SnakeOverrideDeletion {
    fn schema() -> RefOr<Schema> {
        or_dry_run("SnakeOverrideDeleted")
    }
}

impl ToSchema for SnakeOverrideDeletion {}

/// What is answered to its deletion.
#[derive(ToSchema)]
pub(in crate::admin) struct SnakeOverrideDeleted {
    /// Always `deleted`.
    status: String,
}

/// What a tier allows of one resource.
#[derive(ToSchema)]
#[schema(rename_all = "kebab-case")]
pub(in crate::admin) struct TierLimit {
    tier: Name,
    /// The name of a policy, or `*` for every policy with `limit = "tier"`.
    resource: Name,
    /// Units in a window.
    limit_value: u64,
    window_seconds: u64,
    /// The burst as a multiple of the limit.
    burst_multiplier: f64,
    /// `null`: the policy's own.
    algorithm: Option<String>,
    created_at: Instant,
    updated_at: Instant,
    version: u64,
}

/// A tier's limit to be written.
#[derive(ToSchema)]
#[schema(rename_all = "kebab-case")]
pub(in crate::admin) struct TierLimitBody {
    #[schema(minimum = 1, maximum = 1000000000)]
    limit_value: u64,
    #[schema(minimum = 1, maximum = 31622400)]
    window_seconds: u64,
    /// 1.2 if it is left out
    #[schema(minimum = 0.000001, maximum = 1000)]
    burst_multiplier: Option<f64>,
    algorithm: Option<Algorithm>,
}

/// The words of `algorithm` in gateway.toml.
#[derive(ToSchema)]
#[schema(rename_all = "kebab-case")]
pub(in crate::admin) enum Algorithm {
    TokenBucket,
    SlidingWindow,
    FixedWindow,
    SlidingLog,
    LeakyBucket,
}

/// A policy of the database.
#[derive(ToSchema)]
#[schema(rename_all = "kebab-case")]
pub(in crate::admin) struct Policy {
    id: Name,
    document: PolicyDocument,
    version: u64,
    updated_at: Instant,
    updated_by: String,
    /// What a limit of the flat form was rounded to when it was written.
    #[schema(required = false)]
    note: String,
}

/// The keys of `[policy.*]` of gateway.toml, as its schema (`sluicegate schema`) has them.
pub(in crate::admin) struct PolicyDocument;

impl PartialSchema for PolicyDocument {
    fn schema() -> RefOr<Schema> {
        let example = json!({ "limit": "100/m burst 20", "by": ["consumer"] });
        ObjectBuilder::new().schema_type(SchemaType::Type(Type::Object)).examples([example]).into()
    }
}

impl ToSchema for PolicyDocument {}

/// A policy to be written: in the words of gateway.toml, or in the flat form.
pub(in crate::admin) struct PolicyWritten;

impl PartialSchema for PolicyWritten {
    fn schema() -> RefOr<Schema> {
        let any_of = AnyOfBuilder::new().item(Ref::from_schema_name("PolicyDocument"));
        any_of.item(Ref::from_schema_name("FlatPolicy")).into()
    }
}

impl ToSchema for PolicyWritten {}

/// The flat form of a policy.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
pub(in crate::admin) struct FlatPolicy {
    /// As in the path.
    policy_id: Option<Name>,
    /// `userId`, `apiKey`, `ip`, `endpoint`, or several of them with `:` between.
    #[schema(pattern = r"^(userId|apiKey|ip|endpoint)(:(userId|apiKey|ip|endpoint))*$")]
    key_type: String,
    /// The words of `algorithm` in gateway.toml, in any case and with `_` or `-`.
    algorithm: Option<String>,
    /// Times `windowSec` it is the limit, rounded to the nearest whole number.
    #[schema(exclusive_minimum = 0)]
    rate_per_sec: f64,
    #[schema(minimum = 1, maximum = 1000000000)]
    burst: Option<u64>,
    #[schema(minimum = 1, maximum = 31622400)]
    window_sec: Option<u64>,
    /// What `when-redis-down` says: `OPEN` is `allow`, `CLOSED` is `deny`.
    fail_mode: Option<FailMode>,
    /// 0: Redis decides each request, as with `overshoot = 0`. Without it nodes hold leases, which follow their demand.
    #[schema(minimum = 0, maximum = 0)]
    local_quota_fraction: Option<f64>,
}

/// What happens while Redis is down.
#[derive(ToSchema)]
#[schema(rename_all = "UPPERCASE")]
pub(in crate::admin) enum FailMode {
    Open,
    Closed,
}

/// What is answered to a written policy: the row, or what would be done.
pub(in crate::admin) struct PolicyPut;

impl PartialSchema for PolicyPut {
    fn schema() -> RefOr<Schema> {
        or_dry_run("Policy")
    }
}

impl ToSchema for PolicyPut {}

/// The tier of a consumer.
#[derive(ToSchema)]
#[schema(rename_all = "kebab-case")]
pub(in crate::admin) struct Assignment {
    user_id: Name,
    tier: Name,
    assigned_at: Instant,
    assigned_by: String,
    version: u64,
}

/// A tier to be given to a consumer.
#[derive(ToSchema)]
pub(in crate::admin) struct AssignmentBody {
    tier: Name,
}

/// An API key, by its digest.
#[derive(ToSchema)]
#[schema(rename_all = "kebab-case")]
pub(in crate::admin) struct ApiKey {
    /// SHA-256 of the key, in hex.
    digest: String,
    consumer: Name,
    tenant: Option<Name>,
    tier: Option<Name>,
    claims: BTreeMap<String, Value>,
    expires_at: Option<Instant>,
    disabled: bool,
    created_at: Instant,
    created_by: String,
    version: u64,
}

/// An API key that was made.
#[derive(ToSchema)]
#[schema(rename_all = "kebab-case")]
pub(in crate::admin) struct ApiKeyMade {
    /// The key itself. It is shown once; the answer to a repeated request is without it.
    key: Option<String>,
    digest: String,
    consumer: Name,
    tenant: Option<Name>,
    tier: Option<Name>,
    claims: BTreeMap<String, Value>,
    expires_at: Option<Instant>,
    disabled: bool,
    created_at: Instant,
    created_by: String,
    version: u64,
}

/// An API key to be made.
#[derive(ToSchema)]
#[schema(rename_all = "kebab-case")]
pub(in crate::admin) struct ApiKeyBody {
    consumer: Name,
    tenant: Option<Name>,
    tier: Option<Name>,
    claims: Option<Claims>,
    duration: Option<Time>,
    expires_at: Option<Instant>,
}

/// What else is known of a consumer: texts, numbers, `true`, `false`, and arrays of texts, by name.
pub(in crate::admin) struct Claims;

impl PartialSchema for Claims {
    fn schema() -> RefOr<Schema> {
        ObjectBuilder::new()
            .schema_type(SchemaType::Type(Type::Object))
            .max_properties(Some(CLAIMS_MAX))
            .into()
    }
}

impl ToSchema for Claims {}

/// What is to be changed of an API key. `expires-at` may be `null`: it does not end on its own.
#[derive(ToSchema)]
#[schema(rename_all = "kebab-case")]
pub(in crate::admin) struct ApiKeyChangeBody {
    /// Whether it is refused.
    disabled: Option<bool>,
    expires_at: Option<Instant>,
}

/// The most decisions to show.
pub(in crate::admin) struct DecisionsMost;

impl PartialSchema for DecisionsMost {
    fn schema() -> RefOr<Schema> {
        whole(DECISIONS_MAX as usize)
    }
}

impl ToSchema for DecisionsMost {}

/// What was decided about a request.
#[derive(ToSchema)]
#[schema(rename_all = "kebab-case")]
pub(in crate::admin) struct DecisionOfRequest {
    request_id: String,
    /// The oldest first: an id that a trusted hop chose may come again.
    items: Vec<Decision>,
    /// The same in sentences.
    text: String,
}

/// Decisions, the newest first.
#[derive(ToSchema)]
#[schema(rename_all = "kebab-case")]
pub(in crate::admin) struct DecisionList {
    items: Vec<Decision>,
}

/// What may keep a consumer out.
#[derive(ToSchema)]
#[schema(rename_all = "kebab-case")]
pub(in crate::admin) struct Why {
    consumer: String,
    lines: Vec<WhyLine>,
    /// The same as text.
    text: String,
}

/// One fact.
#[derive(ToSchema)]
#[schema(rename_all = "kebab-case")]
pub(in crate::admin) struct WhyLine {
    /// `nodes`, `limit`, `penalty`, `override`, `tenant`, `window` or `refused`.
    about: String,
    said: String,
}

/// A decision on the limits of one request.
#[derive(ToSchema)]
#[schema(rename_all = "kebab-case")]
pub(in crate::admin) struct Decision {
    time: Instant,
    request_id: String,
    /// The gateway that decided.
    node: String,
    route: Option<String>,
    consumer: Option<String>,
    tenant: Option<String>,
    admitted: bool,
    /// It was refused because Redis did not answer.
    redis_down: Option<bool>,
    /// When it would have passed, if nobody had spent in between; missing if it did, or never will.
    passes_at: Option<Instant>,
    /// From its head to the decision.
    latency_us: u64,
    /// Those that refused come first.
    windows: Vec<DecidedWindow>,
    /// How many windows are not shown.
    windows_left_out: Option<u64>,
}

/// One window of a decision.
#[derive(ToSchema)]
#[schema(rename_all = "kebab-case")]
pub(in crate::admin) struct DecidedWindow {
    policy: String,
    /// Its name in `RateLimit-Policy`.
    window: String,
    /// What was counted: addresses as `[privacy]` has them, no credentials.
    key: String,
    /// The limit applied.
    limit: u64,
    /// Missing of what is in flight.
    period_ms: Option<u64>,
    remaining: u64,
    cost: u64,
    /// Whether this window admitted.
    allowed: bool,
    /// It refuses nobody.
    shadow: Option<bool>,
    /// How long until it would have admitted; missing if it did, or never will.
    wait_ms: Option<u64>,
    /// Where it was decided: `local`, `hot`, `lease`, `redis`, `remembered`, `unasked` or `fallback`.
    tier: String,
    /// How old the last word of Redis was.
    age_ms: Option<u64>,
    /// The override that the limit comes from.
    r#override: Option<String>,
    /// A penalty refused: the client kept sending instead of waiting.
    penalty: Option<bool>,
}

/// A change, as it was recorded.
#[derive(ToSchema)]
#[schema(rename_all = "kebab-case")]
pub(in crate::admin) struct AuditEntry {
    /// Later entries have later ids.
    id: String,
    at: Instant,
    /// The name of the token.
    who: String,
    /// The address that the request came from; `null` over a Unix socket.
    from_address: Option<String>,
    /// `create`, `replace`, `delete` and the like.
    action: String,
    /// The kind of row and its key, as in `override/01H…`.
    what: String,
    /// The row before.
    old: Value,
    /// The row after.
    new: Value,
    request_id: String,
}

/// What is answered to a written limit of a tier: the row, or what would be done.
pub(in crate::admin) struct TierLimitPut;

impl PartialSchema for TierLimitPut {
    fn schema() -> RefOr<Schema> {
        or_dry_run("TierLimit")
    }
}

impl ToSchema for TierLimitPut {}

/// What is answered to a written assignment: the row, or what would be done.
pub(in crate::admin) struct AssignmentPut;

impl PartialSchema for AssignmentPut {
    fn schema() -> RefOr<Schema> {
        or_dry_run("Assignment")
    }
}

impl ToSchema for AssignmentPut {}

/// What is answered to a changed API key: the row, or what would be done.
pub(in crate::admin) struct ApiKeyPatched;

impl PartialSchema for ApiKeyPatched {
    fn schema() -> RefOr<Schema> {
        or_dry_run("ApiKey")
    }
}

impl ToSchema for ApiKeyPatched {}

/// The limit that a consumer has of its own for a policy.
#[derive(ToSchema)]
#[schema(rename_all = "kebab-case")]
pub(in crate::admin) struct Limit {
    /// The consumer.
    key: Name,
    /// The policy.
    action: Name,
    limit: u64,
    reason: String,
    /// The override that it is.
    id: String,
    created_at: Instant,
    created_by: String,
    version: u64,
}

/// A limit to be set.
#[derive(ToSchema)]
pub(in crate::admin) struct LimitBody {
    /// Of the policy's first window; its other windows and its bursts grow or shrink as that one does.
    #[schema(minimum = 1, maximum = 9007199254740991_u64)]
    limit: u64,
    /// Why, for the audit.
    #[schema(min_length = 1, max_length = 4096, pattern = r"^[^\x00-\x1f\x7f-\x9f]*$")]
    reason: String,
}

/// What is answered to a limit that was set: the row, or what would be done.
pub(in crate::admin) struct LimitPut;

impl PartialSchema for LimitPut {
    fn schema() -> RefOr<Schema> {
        or_dry_run("Limit")
    }
}

impl ToSchema for LimitPut {}

/// Whose usage it is.
#[derive(ToSchema)]
#[schema(rename_all = "lowercase")]
pub(in crate::admin) enum HolderKind {
    Consumer,
    Tenant,
}

/// What has been spent of one policy.
#[derive(ToSchema)]
#[schema(rename_all = "kebab-case")]
pub(in crate::admin) struct PolicyUsage {
    policy: Name,
    /// What it counts by.
    by: Vec<String>,
    /// Whether it never refuses.
    shadow: bool,
    /// The policy that it is a candidate for, if it is one.
    replaces: Option<Name>,
    /// The tier whose windows are shown; `null` of a policy without tiers.
    tier: Option<TierUsage>,
    /// The penalty that is in force at the node that answers; other nodes may have others.
    penalty: Option<PenaltyUsage>,
    /// `null`: it counts by more than what was asked about, so there are many counts.
    windows: Option<Vec<WindowUsage>>,
    /// What was decided in each minute in which anything was, if `minutes` was asked for.
    minutes: Option<Vec<MinuteUsage>>,
}

/// A tier, and who says that it is the one: it was `assigned`, or was `asked` for; the last `decision` about the consumer
/// was by it; or it is `assumed`, as that of whoever has none.
#[derive(ToSchema)]
pub(in crate::admin) struct TierUsage {
    name: String,
    from: TierSource,
}

/// Who says which tier it is.
#[derive(ToSchema)]
#[schema(rename_all = "lowercase")]
pub(in crate::admin) enum TierSource {
    Assigned,
    Asked,
    Decision,
    Assumed,
}

/// A penalty at one node.
#[derive(ToSchema)]
#[schema(rename_all = "kebab-case")]
pub(in crate::admin) struct PenaltyUsage {
    node: String,
    /// Until when that node denies.
    ends_at: Instant,
}

/// What a policy decided in a minute.
#[derive(ToSchema)]
pub(in crate::admin) struct MinuteUsage {
    /// When it began.
    at: Instant,
    admitted: u64,
    /// Of a shadow: what it would have denied.
    denied: u64,
    /// Units that were charged; costs that came with answers are not among them.
    units: u64,
}

/// A page of usage, by the names of policies.
#[derive(ToSchema)]
pub(in crate::admin) struct UsagePage {
    items: Vec<PolicyUsage>,
    /// What `after` must be for the next page; missing on the last one.
    next: Option<String>,
    /// What was decided of everybody for whom nodes had no row left, if `minutes` was asked for: of a minute that is listed
    /// here, figures of others may be too low.
    others: Option<Vec<MinuteUsage>>,
}

/// So many minutes back.
pub(in crate::admin) struct MinutesBack;

impl PartialSchema for MinutesBack {
    fn schema() -> RefOr<Schema> {
        whole(MINUTES_MAX as usize)
    }
}

impl ToSchema for MinutesBack {}

/// What has been spent of one window. `used`, `leased` and `remaining` are `capacity` together.
#[derive(ToSchema)]
#[schema(rename_all = "kebab-case")]
pub(in crate::admin) struct WindowUsage {
    /// Its name in `RateLimit-Policy`.
    window: String,
    /// Units in one period, under the override if there is one.
    limit: u64,
    /// Units that it holds when it is full.
    capacity: u64,
    /// `null`: it limits what is in flight.
    period_seconds: Option<f64>,
    used: u64,
    /// Units that nodes hold in leases and have not spent, as far as they have told.
    leased: u64,
    /// Units that anybody may spend.
    remaining: u64,
    /// When it is full again if nobody spends.
    reset_at: Option<Instant>,
    /// The override that its limit comes from.
    #[serde(rename = "override")]
    overridden: Option<Value>,
    /// The limit by the tenant's override, beneath the consumer's own.
    tenant_limit: Option<u64>,
    /// If the key is so hot that this node decides it alone by `limit`: what the policy has.
    hot_key: Option<HotKeyUsage>,
    /// Who has counted: Redis, for the fleet; this node, which counts on its own; or this node as far as it knows, because
    /// Redis does not answer.
    from: CountedBy,
}

/// A hot key that the node decides alone.
#[derive(ToSchema)]
#[schema(rename_all = "kebab-case")]
pub(in crate::admin) struct HotKeyUsage {
    /// The limit of the policy's own window.
    instead_of: u64,
}

/// Who has counted.
#[derive(ToSchema)]
#[schema(rename_all = "kebab-case")]
pub(in crate::admin) enum CountedBy {
    Redis,
    Node,
    NodeWithoutRedis,
}

/// A reset to be made.
#[derive(ToSchema)]
pub(in crate::admin) struct ResetBody {
    /// Only this policy; without it all that count by the consumer or the tenant.
    policy: Option<Name>,
    /// Why, for the audit.
    #[schema(min_length = 1, max_length = 4096, pattern = r"^[^\x00-\x1f\x7f-\x9f]*$")]
    reason: String,
}

/// Units to be given back.
#[derive(ToSchema)]
pub(in crate::admin) struct GrantBody {
    /// How many; beyond what is spent they have no effect.
    #[schema(minimum = 1, maximum = 9007199254740991_u64)]
    units: u64,
    policy: Name,
    /// The tenant that a consumer acts for, if the policy counts by it too, or its keys have a shard of their own.
    tenant: Option<Name>,
    #[schema(min_length = 1, max_length = 4096, pattern = r"^[^\x00-\x1f\x7f-\x9f]*$")]
    reason: String,
}

/// A reset or a grant.
#[derive(ToSchema)]
#[schema(rename_all = "kebab-case")]
pub(in crate::admin) struct Reset {
    id: String,
    user_id: Option<Name>,
    tenant_id: Option<Name>,
    policy: Option<Name>,
    /// Units that were given back; `null`: all that were spent.
    units: Option<u64>,
    reason: String,
    created_at: Instant,
    created_by: String,
    version: u64,
}

/// What is answered to a reset: the row, or what would be done.
pub(in crate::admin) struct ResetPosted;

impl PartialSchema for ResetPosted {
    fn schema() -> RefOr<Schema> {
        or_dry_run("Reset")
    }
}

impl ToSchema for ResetPosted {}

/// One check, or up to 1,000 in `checks`.
#[derive(ToSchema)]
pub(in crate::admin) struct CheckBody {
    /// The policy of a single check.
    policy: Option<Name>,
    /// The values of all dimensions of the policy, in their order, with `:` between them.
    #[schema(min_length = 1, max_length = 4096, pattern = r"^[^\x00-\x1f\x7f-\x9f]*$")]
    key: Option<String>,
    dimensions: Option<Dimensions>,
    /// The tier that a credential would name; one that was assigned goes before it.
    tier: Option<Name>,
    /// Units. Without it what the policy charges for a request that no rule is for.
    #[schema(minimum = 1, maximum = 1000000000)]
    cost: Option<u64>,
    /// Whether nothing is to be spent.
    dry: Option<bool>,
    /// When it is asked: with `dry`, or of a gateway that runs with `--test-time`.
    now: Option<Instant>,
    #[schema(min_items = 1, max_items = 1000)]
    checks: Option<Vec<Check>>,
    /// Whether all of `checks` are to be charged, or none.
    all_or_nothing: Option<bool>,
}

/// One of several checks.
#[derive(ToSchema)]
pub(in crate::admin) struct Check {
    policy: Name,
    #[schema(min_length = 1, max_length = 4096, pattern = r"^[^\x00-\x1f\x7f-\x9f]*$")]
    key: Option<String>,
    dimensions: Option<Dimensions>,
    tier: Option<Name>,
    #[schema(minimum = 1, maximum = 1000000000)]
    cost: Option<u64>,
    dry: Option<bool>,
    now: Option<Instant>,
}

/// Values by the names of dimensions, as `by` of a policy has them. `consumer`, `tenant` and `ip` may be there although the
/// policy does not count by them: overrides are found by the first two.
pub(in crate::admin) struct Dimensions;

impl PartialSchema for Dimensions {
    fn schema() -> RefOr<Schema> {
        ObjectBuilder::new()
            .schema_type(SchemaType::Type(Type::Object))
            .max_properties(Some(DIMENSIONS_MAX))
            .into()
    }
}

impl ToSchema for Dimensions {}

/// What is answered to a check: its verdict, or those of all.
pub(in crate::admin) struct CheckAnswer;

impl PartialSchema for CheckAnswer {
    fn schema() -> RefOr<Schema> {
        let any_of = AnyOfBuilder::new().item(Ref::from_schema_name("Verdict"));
        any_of.item(Ref::from_schema_name("Verdicts")).into()
    }
}

impl ToSchema for CheckAnswer {}

/// What is answered to several checks.
#[derive(ToSchema)]
pub(in crate::admin) struct Verdicts {
    /// Whether all of them are allowed.
    allowed: bool,
    /// In the order of the checks.
    verdicts: Vec<Verdict>,
}

/// Whether a subject may go on.
#[derive(ToSchema)]
pub(in crate::admin) struct Verdict {
    allowed: bool,
    /// Units left of the window that has the least; `null`: no window counts this subject.
    #[schema(required = false)]
    remaining: Option<u64>,
    /// When that window is full again.
    #[schema(required = false)]
    reset_at: Option<Instant>,
    /// How long it has to wait in a queue before it goes on.
    #[schema(required = false)]
    delay_seconds: f64,
    /// When it is worth another try; `null`: never.
    #[schema(required = false)]
    retry_after_seconds: Option<u64>,
    /// The windows that refuse; none if it is refused with others of its request.
    #[schema(required = false)]
    violated: Vec<Violated>,
    /// Why it cannot be decided.
    #[schema(required = false)]
    error: String,
}

/// A window that refuses.
#[derive(ToSchema)]
pub(in crate::admin) struct Violated {
    policy: Name,
    /// Its name in `RateLimit-Policy`.
    window: String,
    limit: u64,
    period_seconds: u64,
    retry_after_seconds: Option<u64>,
}

/// A question whether a key may spend one unit of a policy.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
pub(in crate::admin) struct IsAllowedBody {
    /// The values of all dimensions of the policy, in their order, with `:` between them.
    #[schema(min_length = 1, max_length = 4096, pattern = r"^[^\x00-\x1f\x7f-\x9f]*$")]
    key: String,
    policy_id: Name,
    /// When it is asked. Nothing is spent then.
    now: Option<Instant>,
}

/// Whether a key may.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
pub(in crate::admin) struct IsAllowed {
    allowed: bool,
    remaining: Option<u64>,
    /// Seconds; 0: it is allowed; `null`: never.
    retry_after: Option<u64>,
    reset_at: Option<Instant>,
}

/// Why a request was refused (RFC 9457).
#[derive(ToSchema)]
pub(in crate::admin) struct Problem {
    title: String,
    status: u16,
    detail: String,
    /// What is wrong, and where.
    #[schema(required = false)]
    errors: Vec<Error>,
}

/// One thing that is wrong.
#[derive(ToSchema)]
pub(in crate::admin) struct Error {
    detail: String,
    /// Where in the body (RFC 6901).
    #[schema(required = false)]
    pointer: String,
    /// Which parameter of the path or the query.
    #[schema(required = false)]
    parameter: String,
    /// Which header field.
    #[schema(required = false)]
    header: String,
}

/// A schema by its name, or `DryRun`.
fn or_dry_run(name: &str) -> RefOr<Schema> {
    let one_of = OneOfBuilder::new().item(Ref::from_schema_name(name));
    one_of.item(Ref::from_schema_name("DryRun")).into()
}

/// What the types above cannot say of bodies: keywords of JSON Schema beside `properties`.
pub(super) fn rules() -> Vec<(&'static str, Value)> {
    let text = |name: &str| json!({ "required": [name], "properties": { name: { "type": "string" } } });
    let is_absent = json!({ "type": "null" });
    let is_there = json!({ "not": is_absent });
    let not_both = |one: &str, other: &str| json!({ "not": { "required": [one, other], "properties": { one: is_there, other: is_there } } });
    let values = |kind: &str| {
        json!([
            { "properties": {
                kind: { "const": "absolute" },
                "value": { "type": "integer", "minimum": 1, "maximum": ABSOLUTE_MAX },
            } },
            { "properties": { kind: { "const": "multiplicative" }, "value": { "maximum": MULTIPLIER_MAX } } },
        ])
    };
    vec![
        (
            "OverrideBody",
            json!({
                "anyOf": [text("user-id"), text("tenant-id")],
                "oneOf": values("override-type"),
                "allOf": [
                    not_both("duration", "duration-minutes"),
                    not_both("duration", "expires-at"),
                    not_both("duration-minutes", "expires-at"),
                ],
            }),
        ),
        (
            "SnakeOverrideBody",
            json!({ "anyOf": [text("user_id"), text("tenant_id")], "oneOf": values("override_type") }),
        ),
        ("ApiKeyBody", json!({ "allOf": [not_both("duration", "expires-at")] })),
        (
            "CheckBody",
            json!({ "oneOf": [
                { "required": ["policy"], "properties": {
                    "policy": { "type": "string" }, "checks": is_absent, "all_or_nothing": is_absent,
                } },
                { "required": ["checks"], "properties": {
                    "checks": { "type": "array" }, "policy": false, "key": false, "dimensions": false, "tier": false,
                    "cost": false, "dry": false, "now": false,
                } },
            ], "allOf": [not_both("key", "dimensions")] }),
        ),
        ("FlatPolicy", json!({ "additionalProperties": false })),
        ("Check", json!({ "additionalProperties": false, "allOf": [not_both("key", "dimensions")] })),
        (
            "Dimensions",
            json!({ "additionalProperties": {
                "type": "string", "minLength": 1, "maxLength": VALUE_CHARS_MAX, "pattern": NO_CONTROL_CHARACTERS,
            } }),
        ),
        (
            "Claims",
            json!({ "propertyNames": { "minLength": 1, "maxLength": ID_CHARS_MAX, "pattern": NO_CONTROL_CHARACTERS },
            "additionalProperties": { "anyOf": [
                { "$ref": "#/components/schemas/Name" },
                { "type": ["number", "boolean"] },
                { "type": "array", "items": { "$ref": "#/components/schemas/Name" }, "maxItems": CLAIM_VALUES_MAX },
            ] } }),
        ),
    ]
}

/// Minutes of heavy keys.
pub(in crate::admin) struct HotMinutes;

impl PartialSchema for HotMinutes {
    fn schema() -> RefOr<Schema> {
        whole(hot_keys::MINUTES_MAX as usize)
    }
}

impl ToSchema for HotMinutes {}

/// Keys of each policy.
pub(in crate::admin) struct HotLimit;

impl PartialSchema for HotLimit {
    fn schema() -> RefOr<Schema> {
        whole(hot_keys::EACH_MAX)
    }
}

impl ToSchema for HotLimit {}

/// The keys that use most of each policy, by the policy's name, the heaviest of a policy first.
#[derive(ToSchema)]
#[schema(rename_all = "kebab-case")]
pub(in crate::admin) struct HotKeys {
    /// Over so many minutes.
    minutes: u64,
    /// At this node.
    items: Vec<HotKey>,
    /// At all nodes of a fleet together, over the minutes that are over; null without one, or if Redis does not answer.
    #[schema(required)]
    fleet: Option<HotFleet>,
}

/// A heavy key.
#[derive(ToSchema)]
#[schema(rename_all = "kebab-case")]
pub(in crate::admin) struct HotKey {
    policy: String,
    /// Who is counted: `consumer=alice, route=api`. Credentials are masked, addresses as `[privacy]` has them.
    key: String,
    /// Tells keys apart that are named alike.
    id: String,
    /// The shard of Redis that keeps it; null if this node does.
    #[schema(required)]
    shard: Option<String>,
    /// Whether it has more than its share now.
    hot: bool,
    requests_per_second: f64,
    denied_per_second: f64,
    /// Its part of the policy's decisions in the last minute, 0 to 1.
    of_policy: f64,
    /// Its part of its shard's.
    #[schema(required)]
    of_shard: Option<f64>,
    /// The minutes that are over in which it was among the first twenty of its policy.
    minutes: Vec<HotMinute>,
}

/// A key in a minute.
#[derive(ToSchema)]
#[schema(rename_all = "kebab-case")]
pub(in crate::admin) struct HotMinute {
    /// When it began.
    at: Instant,
    requests_per_second: f64,
    denied_per_second: f64,
}

/// Heavy keys of a fleet.
#[derive(ToSchema)]
#[schema(rename_all = "kebab-case")]
pub(in crate::admin) struct HotFleet {
    /// How many nodes have told of these minutes.
    nodes: u64,
    items: Vec<FleetKey>,
}

/// A heavy key of a fleet.
#[derive(ToSchema)]
#[schema(rename_all = "kebab-case")]
pub(in crate::admin) struct FleetKey {
    policy: String,
    key: String,
    id: String,
    requests_per_second: f64,
    denied_per_second: f64,
}

/// A whole number from 1 to this one.
fn whole(most: usize) -> RefOr<Schema> {
    let number = ObjectBuilder::new().schema_type(SchemaType::Type(Type::Integer));
    number.minimum(Some(1)).maximum(Some(most)).into()
}

/// PostgreSQL takes no NUL, and logs and terminals no control characters.
const NO_CONTROL_CHARACTERS: &str = r"^[^\x00-\x1f\x7f-\x9f]*$";
/// Claims of a key.
pub(super) const CLAIMS_MAX: usize = 64;
/// Texts of a claim.
pub(super) const CLAIM_VALUES_MAX: usize = 64;
