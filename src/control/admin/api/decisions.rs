//! `/v1/decisions`: what was decided about requests, as far as it was sampled.

use std::sync::Arc;

use axum::extract::State as Of;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::answer::{self, Answer};
use super::endpoint::read;
use super::operations::Document;
use super::reading::path::PathValues;
use super::reading::query::Query;
use super::schema::Name;
use crate::admin::access::AdminRole::Read;
use crate::admin::refusal::AdminRefusal;
use crate::admin::state::AdminState;
use crate::database::{Database, Time};
use base::words;
use observe::record::decisions::{DecisionSample, printable, told};

/// Which decisions to list.
#[derive(Debug, Deserialize, JsonSchema)]
pub(in crate::admin) struct DecisionQuery {
    /// Only requests of this consumer.
    consumer: Option<Name>,
    /// Only requests of this tenant.
    tenant: Option<Name>,
    /// Only decisions by this policy.
    policy: Option<Name>,
    /// True: only refusals.
    #[serde(default)]
    refused: bool,
    /// The most to show.
    #[schemars(range(min = 1, max = 1_000))]
    limit: Option<usize>,
}

/// The decisions on a request.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
struct DecisionOfRequest {
    request_id: String,
    /// The decisions, the oldest first; several if a trusted hop used the id again.
    items: Vec<DecisionItem>,
    /// The decisions in sentences.
    text: String,
}

/// Decisions, the newest first.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct DecisionList {
    /// The decisions, at most as many as requested.
    pub items: Vec<DecisionItem>,
}

/// A decision on the limits of one request.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub struct DecisionItem {
    /// When it was made.
    #[schemars(with = "Time")]
    pub time: String,
    /// Its `x-request-id`, if that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request_id: Option<String>,
    /// The gateway that decided.
    pub node: String,
    /// The route that matched.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub route: Option<String>,
    /// For a check by another proxy: the domain that it asked in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub domain: Option<String>,
    /// The consumer that sent it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub consumer: Option<String>,
    /// The tenant that the consumer acts for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// Whether the limits admitted the request.
    pub admitted: bool,
    /// The override that blocked it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub blocked: Option<String>,
    /// Whether it was refused because Redis was unavailable.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub redis_down: Option<bool>,
    /// When it would have passed if nothing else had been spent; missing if it did pass or never will.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Time>")]
    pub passes_at: Option<String>,
    /// Time from the request's headers to the decision.
    pub latency_us: u64,
    /// The windows that were checked, the refusing ones first.
    pub windows: Vec<DecidedWindow>,
    /// How many windows are not shown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub windows_left_out: Option<u64>,
}

/// One window of a decision.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub struct DecidedWindow {
    /// The policy of the window.
    pub policy: String,
    /// Its name in `RateLimit-Policy`.
    pub window: String,
    /// What was counted: addresses as `[privacy]` says, no credentials.
    pub key: String,
    /// The limit applied: units per period, or in flight.
    pub limit: u64,
    /// Units that it admits at once, if that is another number than the limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub burst: Option<u64>,
    /// The period of the limit; missing for a concurrency limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub period_ms: Option<u64>,
    /// Remaining units after it.
    pub remaining: u64,
    /// Units that the request costs.
    pub cost: u64,
    /// Whether this window admitted.
    pub allowed: bool,
    /// Whether the policy is in shadow, so that it refuses nobody.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shadow: Option<bool>,
    /// How long until it would have admitted; missing if it did or never will.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wait_ms: Option<u64>,
    /// Where it was decided: `local`, `hot`, `lease`, `redis`, `remembered`, `unasked` or `fallback`.
    #[schemars(example = &"lease")]
    pub tier: String,
    /// The age of the last response of Redis.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub age_ms: Option<u64>,
    /// The override that the limit comes from.
    #[serde(skip_serializing_if = "Option::is_none")]
    r#override: Option<String>,
    /// A penalty refused, because the client kept sending instead of waiting.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub penalty: Option<bool>,
    /// The day on which the client's own months begin, if `anchor-claim` named it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub anchor: Option<u8>,
}

pub(super) fn describe(document: &mut Document) {
    document.begin("decisions", &[("request-id", "its `x-request-id`")]);
    document
        .endpoint("/v1/decisions", "?consumer=&tenant=&policy=&limit=: the latest decisions of this node");
    document
        .operation(read(Read, list), "list-decisions")
        .about("Lists the last decisions of this gateway, the newest first.")
        .query::<DecisionQuery>()
        .answers::<DecisionList>("The decisions.");
    document.endpoint("/v1/decisions/{request-id}", "why a request was refused, by its x-request-id");
    document
        .operation(read(Read, show), "show-decision")
        .about("Shows the decisions on the request with this id, the oldest first.")
        .answers::<DecisionOfRequest>("The decisions on the request.");
}

async fn show(Of(state): Of<Arc<AdminState>>, PathValues([id]): PathValues<1>) -> Answer {
    // Escaped and cut, because samples have it so.
    let id = printable(id.as_bytes());
    let samples = state.decisions.find(&id);
    let mut items: Vec<Value> = samples.iter().map(|sample| sample.to_json()).collect();
    if items.is_empty()
        && let Some(database) = database(&state)
    {
        items = database.events_of(&id).await?;
    }
    if items.is_empty() {
        return Err(AdminRefusal::NotFound(if state.decisions.is_kept() { UNKNOWN } else { NOT_KEPT }));
    }
    cut_addresses(&state, &mut items);
    let text = items.iter().map(told).collect();
    Ok(answer::json(&DecisionOfRequest { request_id: id, items: shown(items), text }))
}

async fn list(Of(state): Of<Arc<AdminState>>, Query(listed): Query<DecisionQuery>) -> Answer {
    let name = |name: Option<Name>| name.map(|name| printable(name.0.as_bytes()));
    let (consumer, tenant) = (name(listed.consumer), name(listed.tenant));
    let (policy, only_refused) = (listed.policy.map(|name| name.0), listed.refused);
    let is = |wanted: &Option<String>, value: &str| wanted.as_deref().is_none_or(|wanted| wanted == value);
    let is_by = |sample: &DecisionSample| {
        policy.as_deref().is_none_or(|policy| sample.windows.iter().any(|window| &*window.policy == policy))
    };
    let holds = |sample: &DecisionSample| {
        is(&consumer, &sample.consumer)
            && is(&tenant, &sample.tenant)
            && is_by(sample)
            && !(only_refused && sample.is_admitted)
    };
    let samples = state.decisions.newest(holds, listed.limit.unwrap_or(MOST));
    let mut items: Vec<Value> = samples.iter().map(|sample| sample.to_json()).collect();
    // Not before, because decisions outlive a policy.
    let policies = (state.counts.names)().policies;
    if let Some(policy) = policy.filter(|policy| items.is_empty() && !policies.contains(policy)) {
        return Err(AdminRefusal::UnknownName(words::unknown("policy", &policy, &policies)));
    }
    cut_addresses(&state, &mut items);
    Ok(answer::json(&DecisionList { items: shown(items) }))
}

/// Decisions as they are answered. One that a later gateway has written in a way of its own is not shown.
fn shown(samples: Vec<Value>) -> Vec<DecisionItem> {
    samples.into_iter().filter_map(|sample| serde_json::from_value(sample).ok()).collect()
}

/// The last refusals of a consumer's requests, the newest first: those that this node remembers, and those that any
/// node has written to the database; and whether that has answered, or there is none.
pub(super) async fn refusals_of(
    state: &AdminState,
    consumer: &str,
    policy: Option<&str>,
) -> (Vec<Value>, bool) {
    let consumer = &*printable(consumer.as_bytes());
    let has_refused = |sample: &DecisionSample| {
        let mut windows = sample.windows.iter();
        policy.is_none_or(|policy| windows.any(|window| &*window.policy == policy && !window.is_allowed))
    };
    let is_refusal =
        |sample: &DecisionSample| !sample.is_admitted && &*sample.consumer == consumer && has_refused(sample);
    let own = state.decisions.newest(is_refusal, REFUSALS_MAX as usize);
    let mut refusals: Vec<Value> = own.iter().map(|sample| sample.to_json()).collect();
    let mut has_answered = true;
    if let Some(database) = database(state) {
        let kept = database.refusals_of(consumer, REFUSALS_MAX).await;
        has_answered = kept.is_ok();
        refusals.extend(kept.unwrap_or_default());
    }
    // Chosen here, because the database has given the last ones of all policies.
    let refuses = |refusal: &Value| {
        let mut windows = refusal["windows"].as_array().into_iter().flatten();
        policy.is_none_or(|policy| {
            windows.any(|window| window["policy"] == policy && window["allowed"] == false)
        })
    };
    refusals.retain(refuses);
    let moment = |refusal: &Value| {
        let text = |name: &str| refusal[name].as_str().unwrap_or_default().to_owned();
        (text("time"), text("request-id"), text("node"))
    };
    refusals.sort_by_key(|refusal| std::cmp::Reverse(moment(refusal)));
    refusals.dedup_by_key(|refusal| moment(refusal));
    cut_addresses(state, &mut refusals);
    (refusals, has_answered)
}

/// What this node decided last about requests of a consumer, the newest first.
pub(super) fn newest_of(state: &AdminState, consumer: &str) -> Vec<Value> {
    let consumer = &*printable(consumer.as_bytes());
    let newest = state.decisions.newest(|sample| &*sample.consumer == consumer, REFUSALS_MAX as usize);
    newest.iter().map(|sample| sample.to_json()).collect()
}

/// Cuts addresses in the names of keys as `[privacy]` says now, because a sample was made under what it said then.
fn cut_addresses(state: &AdminState, samples: &mut [Value]) {
    let windows = samples.iter_mut().filter_map(|sample| sample["windows"].as_array_mut()).flatten();
    for key in windows.filter_map(|window| window.get_mut("key")) {
        if let Some(name) = key.as_str() {
            *key = (state.shown_key)(name).into();
        }
    }
}

const REFUSALS_MAX: u32 = 100;

fn database(state: &AdminState) -> Option<Database> {
    (state.control.as_ref()?.database)()
}

const UNKNOWN: &str = "no decision about this request here: a node keeps its last 10,000 refusals, and admitted requests only if sampled. The \
    access log names the request by its id; if its `node` (or the header `X-Gateway-Node`) is another one, ask that node";
/// Said by all who look for a decision, if there are none.
pub(super) const NOT_KEPT: &str = "this gateway keeps no decisions: its [log] has `decisions = false`; set \
    `decisions = { denied = \"100%\" }`";
const MOST: usize = 100;
