//! `/v1/limits:check` and `/v1/is-allowed`: whether a subject may spend units of a policy, on the counts that requests of
//! routes are counted on.
//!
//! Their names are not those of the other endpoints: clients of other limiters know these forms.

use std::num::NonZeroU64;
use std::sync::Arc;

use axum::Extension;
use axum::body::Body as Sent;
use axum::extract::State as Of;
use http::{HeaderMap, Response, Uri};
use serde_json::{Value, json};

use super::answer;
use super::change::{Body, readable};
use super::conditions::idempotency_key;
use super::described;
use super::fields::{At, Fields, Flaw, text_flaw};
use super::path::ID_CHARS_MAX;
use super::query::Query;
use crate::admin::access::Role;
use crate::admin::counts::{Asked, Verdict, Violated};
use crate::admin::gate::Client;
use crate::admin::refusal::Refusal;
use crate::admin::state::State;
use crate::database::Once;
use policy::Named;

type Answer = Result<Response<Sent>, Refusal>;

/// Decides one check, or up to 1,000 of them, on the counts that requests are counted on. The answer is 200 whether they
/// are allowed or not, with a verdict for each in their order. Units are spent unless `dry` is true, which the role `read`
/// may ask; otherwise it needs `operate`.
#[utoipa::path(post, path = "/v1/limits:check", tag = "counts", operation_id = "check-limits",
    params(answer::IdempotencyKey),
    request_body = described::CheckBody,
    responses((status = 200, description = "The verdict, or one for each of the checks.", body = described::CheckAnswer)))]
pub(in crate::admin) async fn check(
    Of(state): Of<Arc<State>>,
    Extension(client): Extension<Client>,
    uri: Uri,
    headers: HeaderMap,
    body: Body,
) -> Answer {
    no_parameters(&uri)?;
    let once = repeatable(&headers, &uri, &body)?;
    let mut fields = body.fields;
    let (listed, is_together) = (fields.value("checks"), fields.boolean("all_or_nothing"));
    let Some(listed) = listed else {
        if is_together.is_some() {
            fields.wrong("all_or_nothing", "`all_or_nothing` is about several `checks`");
        }
        let asked = one(fields, &state).map_err(Refusal::Invalid)?;
        may_spend(&state, &client, std::slice::from_ref(&asked))?;
        let decide = async {
            let verdicts = (state.counts.check)(vec![asked], false).await;
            json!(verdicts.first().map(shown))
        };
        return Ok(answer::json(&answered(&state, &client, once, decide).await?));
    };
    let asked = many(listed, &state);
    let asked = match (fields.finish(), asked) {
        (Ok(()), Ok(asked)) => asked,
        (read, asked) => {
            let flaws = read.err().into_iter().chain(asked.err()).flatten().collect();
            return Err(Refusal::Invalid(flaws));
        }
    };
    may_spend(&state, &client, &asked)?;
    let decide = async {
        let verdicts = (state.counts.check)(asked, is_together == Some(true)).await;
        let is_allowed = verdicts.iter().all(Verdict::is_allowed);
        let verdicts: Vec<Value> = verdicts.iter().map(shown).collect();
        json!({ "allowed": is_allowed, "verdicts": verdicts })
    };
    Ok(answer::json(&answered(&state, &client, once, decide).await?))
}

/// Spends a unit of a policy for a key, if it has one left. With `now` it says whether it had one then, and spends nothing.
#[utoipa::path(post, path = "/v1/is-allowed", tag = "counts", operation_id = "is-allowed",
    params(answer::IdempotencyKey),
    request_body = described::IsAllowedBody,
    responses((status = 200, description = "Whether it is allowed.", body = described::IsAllowed)))]
pub(in crate::admin) async fn is_allowed(
    Of(state): Of<Arc<State>>,
    Extension(client): Extension<Client>,
    uri: Uri,
    headers: HeaderMap,
    body: Body,
) -> Answer {
    no_parameters(&uri)?;
    let once = repeatable(&headers, &uri, &body)?;
    let mut fields = body.fields;
    fields.require("policyId", "write the name of a policy");
    fields.require("key", "write whom it is about");
    let policy = fields.text("policyId", ID_CHARS_MAX);
    let key = fields.text("key", VALUE_CHARS_MAX);
    let at = fields.instant("now");
    fields.finish().map_err(Refusal::Invalid)?;
    let asked = Asked {
        policy: policy.unwrap_or_default(),
        named: Named::Key(key.unwrap_or_default()),
        tier: None,
        cost: None,
        is_dry: at.is_some(),
        at,
    };
    may_spend(&state, &client, std::slice::from_ref(&asked))?;
    let decide = async {
        let verdicts = (state.counts.check)(vec![asked], false).await;
        verdicts.first().map_or(Value::Null, allowed)
    };
    let answer = answered(&state, &client, once, decide).await?;
    match answer["error"].as_str() {
        None => Ok(answer::json(&answer)),
        Some(why) => {
            let at = At::Body(String::new());
            Err(Refusal::Unusable(vec![Flaw { at, detail: why.to_owned() }]))
        }
    }
}

/// The answer about one key; an `error` if nothing could be decided.
fn allowed(verdict: &Verdict) -> Value {
    match verdict {
        Verdict::Allowed { remaining, reset_at, .. } => json!({
            "allowed": true, "remaining": remaining, "retryAfter": 0, "resetAt": reset_at,
        }),
        Verdict::Refused { remaining, reset_at, retry_after_seconds, .. } => json!({
            "allowed": false, "remaining": remaining, "retryAfter": retry_after_seconds, "resetAt": reset_at,
        }),
        Verdict::Undecided(why) => json!({ "error": why }),
    }
}

/// What tells a request under an `Idempotency-Key` from others; `None`: it has none.
fn repeatable(headers: &HeaderMap, uri: &Uri, body: &Body) -> Result<Option<Once>, Refusal> {
    let key = idempotency_key(headers).map_err(|flaw| Refusal::Invalid(vec![flaw]))?;
    Ok(key.map(|key| Once { key, request: format!("{} {}", uri.path(), body.digest) }))
}

/// Decides, or answers as the same request was answered before.
async fn answered(
    state: &State,
    client: &Client,
    once: Option<Once>,
    decide: impl Future<Output = Value> + Send,
) -> Result<Value, Refusal> {
    let Some(once) = once else { return Ok(decide.await) };
    let database = readable(state)?.ok_or(Refusal::NoDatabase)?;
    Ok(database.once(&client.who, &once, decide).await?)
}

/// Refuses checks that spend units to clients that may only look.
fn may_spend(state: &State, client: &Client, asked: &[Asked]) -> Result<(), Refusal> {
    let spends = asked.iter().any(|asked| !asked.is_dry);
    match client.role {
        has if !spends || has >= Role::Operate => Ok(()),
        _ if !state.access.asks_for_credentials() => Err(Refusal::ReadOnly),
        has => Err(Refusal::RoleTooLow { has, needs: Role::Operate }),
    }
}

fn many(listed: Value, state: &State) -> Result<Vec<Asked>, Vec<Flaw>> {
    let flaw = |detail: String| Err(vec![Flaw::in_body("checks", detail)]);
    let Value::Array(listed) = listed else { return flaw("`checks` must be an array".to_owned()) };
    if !(1..=CHECKS_MAX).contains(&listed.len()) {
        return flaw(format!("`checks` must have 1 to {CHECKS_MAX} checks"));
    }
    let mut checks = Vec::with_capacity(listed.len());
    let mut flaws = Vec::new();
    for (number, value) in listed.into_iter().enumerate() {
        let fields = Fields::within(format!("/checks/{number}"), value).map_err(|flaw| vec![flaw]);
        match fields.and_then(|fields| one(fields, state)) {
            Ok(asked) => checks.push(asked),
            Err(found) => flaws.extend(found),
        }
        // Whoever has made so many mistakes has made them all alike.
        if flaws.len() >= FLAWS_MAX {
            break;
        }
    }
    if flaws.is_empty() { Ok(checks) } else { Err(flaws) }
}

fn one(mut fields: Fields, state: &State) -> Result<Asked, Vec<Flaw>> {
    fields.require("policy", "write the name of a policy");
    let policy = fields.text("policy", ID_CHARS_MAX);
    let (has_key, has_dimensions) = (fields.has("key"), fields.has("dimensions"));
    if has_key && has_dimensions {
        fields.wrong_together("`key` and `dimensions` exclude each other");
    }
    let key = fields.text("key", VALUE_CHARS_MAX);
    let dimensions = dimensions(&mut fields);
    let tier = fields.text("tier", ID_CHARS_MAX);
    let cost = fields.integer("cost", 1..=COST_MAX).and_then(NonZeroU64::new);
    let is_dry = fields.boolean("dry").unwrap_or(false);
    if fields.has("now") && !is_dry && !state.counts.takes_time {
        fields.wrong("now", "`now` goes with `dry`: to spend at another time is for tests, of a gateway that runs with `--test-time`");
    }
    let at = fields.instant("now");
    fields.finish()?;
    let named = match key {
        Some(key) => Named::Key(key),
        None => Named::Dimensions(dimensions),
    };
    Ok(Asked { policy: policy.unwrap_or_default(), named, tier, cost, is_dry, at })
}

/// The values by the names of their dimensions.
fn dimensions(fields: &mut Fields) -> Vec<(String, String)> {
    let entries = match fields.value("dimensions") {
        None => return Vec::new(),
        Some(Value::Object(entries)) => entries,
        Some(_) => {
            fields.wrong("dimensions", "`dimensions` must be an object");
            return Vec::new();
        }
    };
    if entries.len() > DIMENSIONS_MAX {
        fields.wrong("dimensions", format!("`dimensions` must have {DIMENSIONS_MAX} values at most"));
        return Vec::new();
    }
    let mut values = Vec::with_capacity(entries.len());
    for (name, value) in entries {
        match value {
            Value::String(text) if text_flaw(&text, VALUE_CHARS_MAX).is_none() => values.push((name, text)),
            _ => fields.wrong(
                "dimensions",
                format!("each of `dimensions` must be a string of 1 to {VALUE_CHARS_MAX} characters, none a control character"),
            ),
        }
    }
    values
}

fn shown(verdict: &Verdict) -> Value {
    match verdict {
        Verdict::Allowed { remaining, reset_at, delay_seconds } => {
            let mut shown = json!({ "allowed": true, "remaining": remaining, "reset_at": reset_at });
            if *delay_seconds > 0.0 {
                shown["delay_seconds"] = (*delay_seconds).into();
            }
            shown
        }
        Verdict::Refused { retry_after_seconds, violated, .. } => json!({
            "allowed": false,
            "retry_after_seconds": retry_after_seconds,
            "violated": violated.iter().map(violation).collect::<Vec<_>>(),
        }),
        Verdict::Undecided(why) => json!({ "allowed": false, "error": why }),
    }
}

fn violation(violated: &Violated) -> Value {
    json!({
        "policy": violated.policy, "window": violated.window, "limit": violated.limit,
        "period_seconds": violated.period_seconds, "retry_after_seconds": violated.retry_after_seconds,
    })
}

fn no_parameters(uri: &Uri) -> Result<(), Refusal> {
    Query::parse(uri.query().unwrap_or_default()).finish().map_err(Refusal::Invalid)
}

/// Checks of one request.
pub(super) const CHECKS_MAX: usize = 1_000;
/// Characters of a value: a request may have longer ones, which nobody types.
pub(super) const VALUE_CHARS_MAX: usize = 4_096;
/// The most that a request may cost in gateway.toml, too.
pub(super) const COST_MAX: u64 = 1_000_000_000;
/// As many as a policy may count by, and those that it does not count by.
pub(super) const DIMENSIONS_MAX: usize = 20;
/// Mistakes of one body that are listed.
const FLAWS_MAX: usize = 16;
