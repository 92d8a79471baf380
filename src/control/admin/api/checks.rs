//! `/v1/limits:check` and `/v1/is-allowed`: whether a subject may spend units of a policy, on the counts that requests of
//! routes are counted on.
//!
//! Their names are not those of the other endpoints, because clients of other limiters know these forms.

use std::collections::BTreeMap;
use std::num::NonZeroU64;
use std::sync::Arc;

use axum::Extension;
use axum::extract::State as Of;
use http::{HeaderMap, Method, Uri};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::answer::{self, Answer};
use super::change::{JsonBody, reached};
use super::endpoint::change;
use super::operations::Document;
use super::reading::conditions::idempotency_key;
use super::reading::fields::{At, BodyFields, Flaw};
use super::reading::query::{NoParameters, Query};
use super::schema::{Name, Values};
use crate::admin::access::AdminRole::{self, Read};
use crate::admin::counts::{CheckQuestion, CheckVerdict};
use crate::admin::gate::RequestAuthor;
use crate::admin::refusal::AdminRefusal;
use crate::admin::state::AdminState;
use crate::database::{IdempotentRequest, Time};
use base::words;
use policy::SubjectValues;

/// One check, or up to 1,000 in `checks`.
#[derive(Debug, Deserialize, JsonSchema)]
#[schemars(extend("allOf" = check_rules(), "examples" = [json!({
    "policy": "calls", "dimensions": { "consumer": "alice" }, "cost": 3, "dry": true,
})]))]
struct CheckBody {
    /// The policy of a single check.
    policy: Option<Name>,
    #[serde(flatten)]
    about: CheckSubject,
    /// The checks, if there are several.
    #[schemars(length(min = 1, max = CHECKS_MAX))]
    checks: Option<Vec<PolicyCheck>>,
    /// Whether to charge all of `checks` or none.
    all_or_nothing: Option<bool>,
}

/// One of several checks.
#[derive(Debug, Deserialize, JsonSchema)]
#[schemars(extend("allOf" = [key_or_dimensions()]))]
struct PolicyCheck {
    /// The name of a policy.
    policy: Name,
    #[serde(flatten)]
    about: CheckSubject,
}

/// The subject of a check, and what it asks for.
#[derive(Debug, Deserialize, JsonSchema)]
struct CheckSubject {
    /// The values of all dimensions of the policy, in their order, joined by `:`.
    key: Option<Values>,
    /// Values by the names of dimensions, as in a policy's `by`. `consumer`, `tenant` and `ip` are also accepted if the
    /// policy does not count by them: the first two determine overrides.
    #[schemars(extend("maxProperties" = DIMENSIONS_MAX))]
    dimensions: Option<BTreeMap<String, Values>>,
    /// The tier that a credential would name; an assigned tier takes precedence.
    tier: Option<Name>,
    /// Units. Default: what the policy charges for a request without a rule of its own.
    #[schemars(range(min = 1, max = COST_MAX))]
    cost: Option<NonZeroU64>,
    /// Whether to decide without spending.
    dry: Option<bool>,
    /// The time of the check: only with `dry`, or if the gateway runs with `--test-time`.
    now: Option<Time>,
}

fn key_or_dimensions() -> Value {
    let is_there = json!({ "not": { "type": "null" } });
    json!({ "not": { "required": ["key", "dimensions"], "properties": { "key": is_there, "dimensions": is_there } } })
}

/// Either a single check or several.
fn check_rules() -> Value {
    let none = json!({ "type": "null" });
    let of_one = OF_ONE.iter().map(|name| ((*name).to_owned(), none.clone()));
    let mut of_many: Map<String, Value> = of_one.collect();
    of_many.insert("checks".to_owned(), json!({ "type": "array" }));
    json!([key_or_dimensions(), { "oneOf": [
        { "required": ["policy"], "properties": {
            "policy": { "type": "string" }, "checks": none, "all_or_nothing": none,
        } },
        { "required": ["checks"], "properties": of_many },
    ] }])
}

/// A check whether a key may spend one unit of a policy.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("examples" = [json!({ "policyId": "calls", "key": "alice", "now": "2027-01-31T12:00:00Z" })]))]
struct IsAllowedBody {
    /// The subject: the values of all dimensions of the policy, in their order, with `:` between them.
    key: Values,
    /// The name of a policy.
    policy_id: Name,
    /// The time of the check. Nothing is spent if it is set.
    now: Option<Time>,
}

/// Whether a key is admitted.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct IsAllowed {
    allowed: bool,
    remaining: Option<u64>,
    /// Seconds until it may be allowed; 0: it is allowed; `null`: never.
    retry_after: Option<u64>,
    reset_at: Option<Time>,
}

/// The response to a check: its verdict, or those of all.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(untagged)]
enum CheckAnswer {
    // First, because a single verdict's fields are among theirs.
    Many(CheckVerdicts),
    One(CheckVerdict),
}

/// The response to several checks.
#[derive(Debug, Serialize, JsonSchema)]
struct CheckVerdicts {
    /// Whether all checks are allowed.
    allowed: bool,
    /// The verdicts, in the order of the checks.
    verdicts: Vec<CheckVerdict>,
}

pub(super) fn describe(document: &mut Document) {
    document.begin("counts", &[]);
    // The role to read is enough here, because whether a check spends stands in its body, where the handler looks. Nor is
    // each one a line of the log.
    document.endpoint("/v1/limits:check", "checks up to 1,000 subjects against policies and spends units");
    document
        .operation(change(Method::POST, Read, check), "check-limits")
        .about("Decides one check, or up to 1,000, on the same counts as requests. The \
                 answer is 200 whether they are allowed or not, with a verdict for each in their order. Units are spent \
                 unless `dry` is true, which the role `read` may ask; otherwise it needs `operate`.")
        .once()
        .body::<CheckBody>()
        .answers::<CheckAnswer>("The verdict, or one for each of the checks.");
    document.endpoint("/v1/is-allowed", "checks one key and spends one unit");
    document
        .operation(change(Method::POST, Read, is_allowed), "is-allowed")
        .about(
            "Spends a unit of a policy for a key if one remains. With `now` it only says whether one would \
             remain at that time.",
        )
        .once()
        .body::<IsAllowedBody>()
        .answers::<IsAllowed>("Whether it is allowed.");
}

async fn check(
    Of(state): Of<Arc<AdminState>>,
    Extension(client): Extension<RequestAuthor>,
    _: Query<NoParameters>,
    uri: Uri,
    headers: HeaderMap,
    body: JsonBody,
) -> Answer {
    let once = repeatable(&headers, &uri, &body)?;
    let (asked, is_together) = asked(body.fields, state.counts.takes_time).map_err(AdminRefusal::Invalid)?;
    must_be_tiers(&state, &asked, is_together.is_some())?;
    may_spend(&state, &client, &asked)?;
    let decide = async {
        let mut verdicts = (state.counts.check)((asked, is_together == Some(true))).await;
        json!(match is_together {
            None => CheckAnswer::One(verdicts.pop().unwrap_or_default()),
            Some(_) => CheckAnswer::Many(CheckVerdicts {
                allowed: verdicts.iter().all(|verdict| verdict.allowed),
                verdicts,
            }),
        })
    };
    Ok(answer::json(&answered(&state, &client, once, decide).await?))
}

async fn is_allowed(
    Of(state): Of<Arc<AdminState>>,
    Extension(client): Extension<RequestAuthor>,
    _: Query<NoParameters>,
    uri: Uri,
    headers: HeaderMap,
    body: JsonBody,
) -> Answer {
    let once = repeatable(&headers, &uri, &body)?;
    let IsAllowedBody { key, policy_id, now } = body.read()?;
    let asked = CheckQuestion {
        policy: policy_id.0,
        named: SubjectValues::Key(key.0),
        tier: None,
        cost: None,
        is_dry: now.is_some(),
        at: now,
    };
    may_spend(&state, &client, std::slice::from_ref(&asked))?;
    let decide = async {
        let verdicts = (state.counts.check)((vec![asked], false)).await;
        verdicts.first().map_or(Value::Null, allowed)
    };
    let answer = answered(&state, &client, once, decide).await?;
    match answer["error"].as_str() {
        None => Ok(answer::json(&answer)),
        Some(why) => {
            let at = At::Body(String::new());
            Err(AdminRefusal::Unusable(vec![Flaw { at, detail: why.to_owned() }]))
        }
    }
}

/// The answer about one key; an `error` if nothing could be decided.
fn allowed(verdict: &CheckVerdict) -> Value {
    if let Some(why) = &verdict.error {
        return json!({ "error": why });
    }
    let (allowed, (remaining, reset_at)) = (verdict.allowed, verdict.binding);
    let retry_after = if allowed { Some(0) } else { verdict.retry_after_seconds.flatten() };
    json!(IsAllowed { allowed, remaining, retry_after, reset_at })
}

/// What tells a request under an `Idempotency-Key` from others; `None`: it has none.
fn repeatable(
    headers: &HeaderMap,
    uri: &Uri,
    body: &JsonBody,
) -> Result<Option<IdempotentRequest>, AdminRefusal> {
    let key = idempotency_key(headers).map_err(|flaw| AdminRefusal::Invalid(vec![flaw]))?;
    Ok(key.map(|key| IdempotentRequest { key, request: format!("{} {}", uri.path(), body.digest) }))
}

/// Decides, or answers as the same request was answered before.
async fn answered(
    state: &AdminState,
    client: &RequestAuthor,
    once: Option<IdempotentRequest>,
    decide: impl Future<Output = Value> + Send,
) -> Result<Value, AdminRefusal> {
    let Some(once) = once else { return Ok(decide.await) };
    let database = reached(state.control.as_ref().ok_or(AdminRefusal::NoDatabase)?)?;
    Ok(database.once(&client.who, &once, decide).await?)
}

/// Refuses checks that spend units to clients that may only look.
fn may_spend(
    state: &AdminState,
    client: &RequestAuthor,
    asked: &[CheckQuestion],
) -> Result<(), AdminRefusal> {
    let spends = asked.iter().any(|asked| !asked.is_dry);
    match client.role {
        has if !spends || has >= AdminRole::Operate => Ok(()),
        _ if !state.access.asks_for_credentials() => Err(AdminRefusal::ReadOnly),
        has => Err(AdminRefusal::RoleTooLow { has, needs: AdminRole::Operate }),
    }
}

/// Refuses tiers that are not in force, because such a check would be decided by the tier of others.
fn must_be_tiers(state: &AdminState, asked: &[CheckQuestion], is_many: bool) -> Result<(), AdminRefusal> {
    if asked.iter().all(|asked| asked.tier.is_none()) {
        return Ok(());
    }
    let tiers = (state.counts.names)().tiers;
    let flaw = |(number, asked): (usize, &CheckQuestion)| {
        let tier = asked.tier.as_ref().filter(|tier| !tiers.contains(tier))?;
        let at = if is_many { format!("/checks/{number}/tier") } else { "/tier".to_owned() };
        Some(Flaw { at: At::Body(at), detail: words::unknown("tier", tier, &tiers) })
    };
    let flaws: Vec<Flaw> = asked.iter().enumerate().filter_map(flaw).take(FLAWS_MAX).collect();
    if flaws.is_empty() { Ok(()) } else { Err(AdminRefusal::Unusable(flaws)) }
}

/// What is asked; whether several checks are to be charged together, `None` of a single one.
fn asked(mut fields: BodyFields, takes_time: bool) -> Result<(Vec<CheckQuestion>, Option<bool>), Vec<Flaw>> {
    let is_many = fields.has("checks");
    if is_many {
        let beside: Vec<&str> = OF_ONE.into_iter().filter(|name| fields.has(name)).collect();
        for name in beside {
            fields.wrong(name, format!("`{name}` belongs to a single check: write it in each of `checks`"));
        }
    } else {
        if !fields.has("policy") {
            fields.wrong("policy", "`policy` is missing: write the name of a policy");
        }
        if fields.has("all_or_nothing") {
            fields.wrong("all_or_nothing", "`all_or_nothing` needs `checks`: leave it out of a single check");
        }
    }
    let CheckBody { policy, about, checks, all_or_nothing } = fields.read()?;
    let one = policy.map(|policy| PolicyCheck { policy, about });
    let checks = checks.unwrap_or_else(|| one.into_iter().collect());
    let mut flaws = Vec::new();
    let checks = checks.into_iter().enumerate().map(|(number, PolicyCheck { policy, about: check })| {
        let within = if is_many { format!("/checks/{number}") } else { String::new() };
        let is_dry = check.dry.unwrap_or(false);
        if check.key.is_some() && check.dimensions.is_some() {
            let detail = "`key` and `dimensions` exclude each other".to_owned();
            flaws.push(Flaw { at: At::Body(within.clone()), detail });
        }
        if check.now.is_some() && !is_dry && !takes_time {
            let detail = "`now` is only allowed together with `dry`";
            flaws.push(Flaw { at: At::Body(format!("{within}/now")), detail: detail.to_owned() });
        }
        let named = match check.key {
            Some(key) => SubjectValues::Key(key.0),
            None => {
                let dimensions = check.dimensions.unwrap_or_default().into_iter();
                SubjectValues::Dimensions(dimensions.map(|(name, value)| (name, value.0)).collect())
            }
        };
        let tier = check.tier.map(|tier| tier.0);
        CheckQuestion { policy: policy.0, named, tier, cost: check.cost, is_dry, at: check.now }
    });
    let checks = checks.collect();
    flaws.truncate(FLAWS_MAX);
    if flaws.is_empty() { Ok((checks, is_many.then_some(all_or_nothing == Some(true)))) } else { Err(flaws) }
}

const OF_ONE: [&str; 7] = ["policy", "key", "dimensions", "tier", "cost", "dry", "now"];
const CHECKS_MAX: usize = 1_000;
/// The most that a request may cost in gateway.toml, too.
const COST_MAX: u64 = 1_000_000_000;
/// As many as a policy may count by, and those that it does not count by.
const DIMENSIONS_MAX: usize = 20;
const FLAWS_MAX: usize = 16;
