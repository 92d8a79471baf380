//! `/v1/why/{consumer}`: what may keep a consumer out, a line for each question of a support case: how many nodes count, what is
//! left, overrides, the tenant's limits, where windows begin, who refused lately. It reads what the other pages read.

use std::fmt::Write;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body as Sent;
use axum::extract::State as Of;
use http::{Response, Uri};
use serde_json::{Value, json};

use super::answer;
use super::decisions::refusals_of;
use super::described::{self, Name};
use super::path::{ID_CHARS_MAX, Values};
use super::query::Query;
use crate::admin::counts::{From, Holder, PolicyUsage, UsageAsked, WindowUsage};
use crate::admin::refusal::Refusal;
use crate::admin::state::State;
use crate::clock;
use crate::database::Time;
use crate::limit::Algorithm;
use crate::record::decisions::steady;

/// Says what may keep a consumer out, a line for each fact.
#[utoipa::path(get, path = "/v1/why/{consumer}", tag = "decisions", operation_id = "show-why",
    params(("consumer" = Name, Path, description = "its name"),
        ("policy" = Option<Name>, Query, description = "only this policy"),
        ("tenant" = Option<Name>, Query, description = "the tenant that it acts for; without it that of its last refusal"),
        ("tier" = Option<Name>, Query, description = "the tier that a credential would name")),
    responses((status = 200, description = "What is known.", body = described::Why)))]
pub(in crate::admin) async fn show(
    Of(state): Of<Arc<State>>,
    Values([consumer]): Values<1>,
    uri: Uri,
) -> Result<Response<Sent>, Refusal> {
    let mut query = Query::parse(uri.query().unwrap_or_default());
    let policy = query.text("policy", ID_CHARS_MAX);
    let tenant = query.text("tenant", ID_CHARS_MAX);
    let tier = query.text("tier", ID_CHARS_MAX);
    query.finish().map_err(Refusal::Invalid)?;
    let (refusals, has_answered) = refusals_of(&state, &consumer, policy.as_deref()).await;
    let known = || refusals.iter().find_map(|refusal| refusal["tenant"].as_str().map(str::to_owned));
    let tenant = tenant.or_else(known);
    let usage = |holder, policy: Option<String>, tenant| {
        (state.counts.usage)(UsageAsked {
            holder,
            policy,
            tenant,
            tier: tier.clone(),
            after: None,
            limit: POLICIES_MAX,
        })
    };
    let own = usage(Holder::Consumer(consumer.clone()), policy.clone(), tenant.clone()).await;
    let tenants = match &tenant {
        Some(tenant) => usage(Holder::Tenant(tenant.clone()), None, None).await,
        None => Vec::new(),
    };
    let mut lines = vec![nodes(&state, &own)];
    lines.extend(limits("limit", &own));
    lines.extend(overrides(&own));
    lines.extend(of_tenant(tenant.as_deref(), &own, &tenants));
    lines.extend(alignments(&own));
    lines.extend(refused(&refusals, policy.as_deref()));
    if !has_answered {
        lines.push(("refused", "the database does not answer: what only it knows is not shown".to_owned()));
    }
    let text = lines.iter().fold(String::new(), |mut text, (about, said)| {
        // Writing to a text does not fail.
        let _ = writeln!(text, "{about:<9} {}", steady(said));
        text
    });
    let lines: Vec<Value> =
        lines.into_iter().map(|(about, said)| json!({ "about": about, "said": said })).collect();
    Ok(answer::json(&json!({ "consumer": consumer, "lines": lines, "text": text })))
}

type Line = (&'static str, String);

/// Whether one count is looked at, or one of several.
fn nodes(state: &State, usage: &[PolicyUsage]) -> Line {
    let leased: u64 = windows(usage).map(|(_, window)| window.leased).sum();
    let is_away = windows(usage).any(|(_, window)| window.from == From::NodeWithoutRedis);
    let said = match (state.nodes)() {
        None => "this gateway counts alone: without [redis] every gateway has a count of its own".to_owned(),
        Some(nodes) if is_away => format!(
            "Redis does not answer now: each of {nodes} nodes decides on its own, and what is shown is this node's"
        ),
        Some(nodes) => format!(
            "{nodes} {} one count through Redis; {leased} units of it lie in leases of nodes, not spent yet",
            if nodes == 1 { "node has" } else { "nodes share" }
        ),
    };
    ("nodes", said)
}

/// What is left of each window.
fn limits(about: &'static str, usage: &[PolicyUsage]) -> Vec<Line> {
    let mut lines: Vec<Line> = usage
        .iter()
        .filter(|policy| policy.windows.is_none())
        .map(|policy| {
            let by = policy.by.join(", ");
            (
                about,
                format!(
                    "policy {} counts by {by}: it has a count for each, which the refusals name",
                    policy.policy
                ),
            )
        })
        .collect();
    lines.extend(windows(usage).map(|(policy, window)| {
        let shadow = if policy.is_shadow { ", in shadow: it refuses nobody" } else { "" };
        let leased = if window.leased > 0 { format!(", {} in leases", window.leased) } else { String::new() };
        (
            about,
            format!(
                "policy {}, window {}: {} of {} used{leased}, {} left{shadow}",
                policy.policy, window.window, window.used, window.capacity, window.remaining
            ),
        )
    }));
    if lines.is_empty() {
        lines.push((about, "no policy in force counts by it".to_owned()));
    }
    lines
}

fn overrides(usage: &[PolicyUsage]) -> Vec<Line> {
    let mut lines: Vec<Line> = windows(usage)
        .filter_map(|(policy, window)| {
            let of = window.overridden.as_ref()?;
            let ends = of["ends-in-seconds"]
                .as_f64()
                .map_or_else(String::new, |left| format!(", for {left:.0} s more"));
            let said = format!(
                "policy {}, window {}: {} instead of {} by override {}{ends}: {}",
                policy.policy,
                window.window,
                window.limit,
                of["instead-of"],
                of["id"].as_str().unwrap_or("-"),
                of["reason"].as_str().unwrap_or("-")
            );
            Some(("override", said))
        })
        .collect();
    if lines.is_empty() {
        lines.push(("override", "none: each limit is that of its policy".to_owned()));
    }
    lines
}

/// The limits of the tenant beneath.
fn of_tenant(tenant: Option<&str>, own: &[PolicyUsage], tenants: &[PolicyUsage]) -> Vec<Line> {
    let Some(tenant) = tenant else {
        return vec![("tenant", "none is known of it: --tenant asks about one".to_owned())];
    };
    let mut lines: Vec<Line> = windows(own)
        .filter_map(|(policy, window)| {
            let limit = window.tenant_limit?;
            let said = format!(
                "{tenant}: policy {}, window {} would have {limit} by the tenant's override, if the consumer had none",
                policy.policy, window.window
            );
            Some(("tenant", said))
        })
        .collect();
    let together = limits("tenant", tenants).into_iter().filter(|_| !tenants.is_empty());
    lines.extend(
        together.map(|(about, said)| (about, format!("{tenant}, all its consumers together: {said}"))),
    );
    if lines.is_empty() {
        lines.push(("tenant", format!("{tenant}: no policy in force counts by its tenant")));
    }
    lines
}

/// Where each window begins and ends.
fn alignments(usage: &[PolicyUsage]) -> Vec<Line> {
    let now = clock::unix();
    windows(usage)
        .map(|(_, window)| {
            let full = match window.reset_at {
                Some(at) if window.used + window.leased > 0 => format!("; full again at {at} at the latest"),
                _ => String::new(),
            };
            ("window", format!("{}: {}{full}", window.window, alignment(window, now)))
        })
        .collect()
}

fn alignment(window: &WindowUsage, now: Duration) -> String {
    let Some(seconds) = window.period_seconds.filter(|seconds| *seconds > 0.0) else {
        return "counts what is in flight, and has no period".to_owned();
    };
    let began = Duration::from_secs_f64((now.as_secs_f64() / seconds).floor() * seconds);
    let at = |time: Duration| Time(i64::try_from(time.as_micros()).unwrap_or(i64::MAX));
    let (begun, ends) = (at(began), at(began + Duration::from_secs_f64(seconds)));
    match window.algorithm {
        Algorithm::FixedWindow => {
            format!("a fixed window: the present one began at {begun} and ends at {ends}")
        }
        Algorithm::SlidingWindow => format!(
            "a sliding window: of the one before, which ended at {begun}, the share counts that lies within {seconds} s"
        ),
        Algorithm::SlidingLog => {
            format!("a sliding log: what was sent in the last {seconds} s counts, to the request")
        }
        Algorithm::TokenBucket | Algorithm::LeakyBucket => {
            let each = seconds / window.limit.max(1) as f64;
            format!(
                "a bucket without windows: a unit comes back every {each:.3} s, and none is held over {}",
                window.capacity
            )
        }
        Algorithm::Concurrency => "counts what is in flight, and has no period".to_owned(),
    }
}

/// The last refusals, and who refused; of a policy, if one was asked about.
fn refused(refusals: &[Value], policy: Option<&str>) -> Vec<Line> {
    if refusals.is_empty() {
        return vec![("refused", "no refusal of it is known here".to_owned())];
    }
    let text = |value: &Value| value.as_str().unwrap_or("-").to_owned();
    let line = |refusal: &Value| {
        let mut windows = refusal["windows"].as_array().into_iter().flatten();
        let is_asked = |window: &&Value| {
            policy.is_none_or(|policy| window["policy"] == policy && window["allowed"] == false)
        };
        let window = windows.find(is_asked).unwrap_or(&Value::Null);
        let tier = match window["tier"].as_str().unwrap_or_default() {
            "local" => "alone",
            "lease" => "by its lease",
            "redis" => "by Redis",
            "remembered" => "by what Redis said before",
            "unasked" => "without asking Redis",
            _ => "without Redis",
        };
        let said = format!(
            "at {} by node {}, {tier}: policy {}, window {}, key {}, {} of {} left; request {}",
            text(&refusal["time"]),
            text(&refusal["node"]),
            text(&window["policy"]),
            text(&window["window"]),
            text(&window["key"]),
            window["remaining"],
            window["limit"],
            text(&refusal["request-id"])
        );
        ("refused", said)
    };
    refusals.iter().take(REFUSALS_SHOWN).map(line).collect()
}

fn windows(usage: &[PolicyUsage]) -> impl Iterator<Item = (&PolicyUsage, &WindowUsage)> {
    usage.iter().flat_map(|policy| policy.windows.iter().flatten().map(move |window| (policy, window)))
}

/// Policies that are looked at.
const POLICIES_MAX: usize = 50;
/// Refusals that are shown.
const REFUSALS_SHOWN: usize = 5;

#[cfg(test)]
mod tests {
    use super::*;

    fn window(algorithm: Algorithm) -> WindowUsage {
        WindowUsage {
            window: "search-1h".to_owned(),
            algorithm,
            limit: 100,
            capacity: 100,
            period_seconds: Some(3_600.0),
            used: 40,
            leased: 0,
            remaining: 60,
            reset_at: None,
            from: From::Node,
            overridden: None,
            tenant_limit: None,
        }
    }

    #[test]
    fn a_fixed_window_says_when_it_began() {
        let said = alignment(&window(Algorithm::FixedWindow), Duration::from_secs(1_700_000_000));
        let expected = "a fixed window: the present one began at 2023-11-14T22:00:00.000000Z and ends at 2023-11-14T23:00:00.000000Z";
        assert_eq!(said, expected);
        let said = alignment(&window(Algorithm::TokenBucket), Duration::from_secs(1_700_000_000));
        assert_eq!(
            said,
            "a bucket without windows: a unit comes back every 36.000 s, and none is held over 100"
        );
    }

    #[test]
    fn what_is_not_known_is_said() {
        assert_eq!(refused(&[], None)[0].1, "no refusal of it is known here");
        assert_eq!(of_tenant(None, &[], &[])[0].1, "none is known of it: --tenant asks about one");
        assert_eq!(overrides(&[])[0].1, "none: each limit is that of its policy");
        assert_eq!(limits("limit", &[])[0].1, "no policy in force counts by it");
    }
}
