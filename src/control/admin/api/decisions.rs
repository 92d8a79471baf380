//! `/v1/decisions`: what was decided about requests, as far as it was sampled.

use std::sync::Arc;

use axum::body::Body as Sent;
use axum::extract::State as Of;
use http::{Response, Uri};
use serde_json::{Value, json};

use super::answer;
use super::described::{self, Name};
use super::path::{ID_CHARS_MAX, Values};
use super::query::Query;
use crate::admin::refusal::Refusal;
use crate::admin::state::State;
use crate::database::Database;
use observe::record::decisions::{Sample, printable, told};

type Answer = Result<Response<Sent>, Refusal>;

/// Shows what was decided about the request of this id, the oldest decision first.
#[utoipa::path(get, path = "/v1/decisions/{request-id}", tag = "decisions", operation_id = "show-decision",
    params(("request-id" = Name, Path, description = "its `x-request-id`")),
    responses((status = 200, description = "What is known of it.", body = described::DecisionOfRequest)))]
pub(in crate::admin) async fn show(Of(state): Of<Arc<State>>, Values([id]): Values<1>) -> Answer {
    // As samples have it.
    let id = printable(id.as_bytes());
    let samples = state.decisions.find(&id);
    let mut items: Vec<Value> = samples.iter().map(|sample| sample.to_json()).collect();
    if items.is_empty()
        && let Some(database) = database(&state)
    {
        items = database.events_of(&id).await?;
    }
    if items.is_empty() {
        return Err(Refusal::NotFound(if state.decisions.is_kept() { UNKNOWN } else { NOT_KEPT }));
    }
    cut_addresses(&state, &mut items);
    let text: String = items.iter().map(told).collect();
    Ok(answer::json(&json!({ "request-id": id, "items": items, "text": text })))
}

/// Lists what this gateway decided last, the newest first.
#[utoipa::path(get, path = "/v1/decisions", tag = "decisions", operation_id = "list-decisions",
    params(("consumer" = Option<Name>, Query, description = "about requests of this consumer"),
        ("tenant" = Option<Name>, Query, description = "about requests for this tenant"),
        ("policy" = Option<Name>, Query, description = "by this policy"),
        ("refused" = Option<bool>, Query, description = "true: only refusals"),
        ("limit" = Option<described::DecisionsMost>, Query, description = "the most to show")),
    responses((status = 200, description = "What is known.", body = described::DecisionList)))]
pub(in crate::admin) async fn list(Of(state): Of<Arc<State>>, uri: Uri) -> Answer {
    let mut query = Query::parse(uri.query().unwrap_or_default());
    let mut name = |name| query.text(name, ID_CHARS_MAX).map(|text| printable(text.as_bytes()));
    let (consumer, tenant) = (name("consumer"), name("tenant"));
    let policy = query.text("policy", ID_CHARS_MAX);
    let only_refused = query.boolean("refused");
    let most = query.integer("limit", 1..=described::DECISIONS_MAX).unwrap_or(MOST);
    query.finish().map_err(Refusal::Invalid)?;
    let is = |wanted: &Option<String>, value: &str| wanted.as_deref().is_none_or(|wanted| wanted == value);
    let is_by = |sample: &Sample| {
        policy.as_deref().is_none_or(|policy| sample.windows.iter().any(|window| &*window.policy == policy))
    };
    let holds = |sample: &Sample| {
        is(&consumer, &sample.consumer)
            && is(&tenant, &sample.tenant)
            && is_by(sample)
            && !(only_refused && sample.is_admitted)
    };
    let samples = state.decisions.newest(holds, usize::try_from(most).unwrap_or(usize::MAX));
    let mut items: Vec<Value> = samples.iter().map(|sample| sample.to_json()).collect();
    cut_addresses(&state, &mut items);
    Ok(answer::json(&json!({ "items": items })))
}

/// The last refusals of a consumer's requests, the newest first: those that this node remembers, and those that any node has
/// written to the database; and whether that has answered, or there is none.
pub(super) async fn refusals_of(state: &State, consumer: &str, policy: Option<&str>) -> (Vec<Value>, bool) {
    let consumer = &*printable(consumer.as_bytes());
    let has_refused = |sample: &Sample| {
        let mut windows = sample.windows.iter();
        policy.is_none_or(|policy| windows.any(|window| &*window.policy == policy && !window.is_allowed))
    };
    let is_refusal =
        |sample: &Sample| !sample.is_admitted && &*sample.consumer == consumer && has_refused(sample);
    let own = state.decisions.newest(is_refusal, REFUSALS_MAX as usize);
    let mut refusals: Vec<Value> = own.iter().map(|sample| sample.to_json()).collect();
    let mut has_answered = true;
    if let Some(database) = database(state) {
        let kept = database.refusals_of(consumer, REFUSALS_MAX).await;
        has_answered = kept.is_ok();
        refusals.extend(kept.unwrap_or_default());
    }
    // Of the database's, those among the last ones of all policies.
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
pub(super) fn newest_of(state: &State, consumer: &str) -> Vec<Value> {
    let consumer = &*printable(consumer.as_bytes());
    let newest = state.decisions.newest(|sample| &*sample.consumer == consumer, REFUSALS_MAX as usize);
    newest.iter().map(|sample| sample.to_json()).collect()
}

/// Cuts addresses in the names of keys as `[privacy]` says now: a sample was made under what it said then.
fn cut_addresses(state: &State, samples: &mut [Value]) {
    let windows = samples.iter_mut().filter_map(|sample| sample["windows"].as_array_mut()).flatten();
    for key in windows.filter_map(|window| window.get_mut("key")) {
        if let Some(name) = key.as_str() {
            *key = (state.shown_key)(name).into();
        }
    }
}

/// Decisions that are looked at.
const REFUSALS_MAX: u32 = 100;

fn database(state: &State) -> Option<Database> {
    (state.control.as_ref()?.database)()
}

const UNKNOWN: &str = "nothing is known here of such a request: a gateway keeps the last 10,000 decisions that were drawn, and without \
     a database only its own; `node` in the answer and `X-Gateway-Node` name who decided";
/// Said by all who look for a decision, if there are none.
pub(super) const NOT_KEPT: &str = "this gateway keeps no decisions: its [log] has `decisions = false`";
/// Decisions of a list if nothing is said.
const MOST: u64 = 100;
