//! `/v1/why/{consumer}`: what may keep a consumer out, a line for each question of a support case: how many nodes count, what is
//! left, penalties, overrides, the tenant's limits, where windows begin, who refused lately. It reads what the other pages
//! read.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::State as Of;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::answer::{self, Answer};
use super::decisions::{NOT_KEPT, newest_of, refusals_of};
use super::endpoint::read;
use super::operations::Document;
use super::reading::path::PathValues;
use super::reading::query::Query;
use super::schema::Name;
use crate::admin::access::AdminRole::Read;
use crate::admin::counts::{CountSource, PolicyUsage, SeenWindow, TierFrom, UsageQuestion, WindowUsage};
use crate::admin::state::{AdminState, FleetNodes};
use crate::database::Time;
use base::clock;
use limit::{Algorithm, Calendar};
use observe::record::decisions::steady;
use policy::Holder;

/// A query about a consumer.
#[derive(Debug, Deserialize, JsonSchema)]
pub(in crate::admin) struct WhyQuery {
    /// Only this policy.
    policy: Option<Name>,
    /// The tenant that it acts for; default: that of its last refusal.
    tenant: Option<Name>,
    /// The tier that a credential would name.
    tier: Option<Name>,
}

/// Why a consumer's requests may be refused.
#[derive(Debug, Serialize, JsonSchema)]
struct WhyReport {
    consumer: String,
    lines: Vec<WhyLine>,
    /// The facts as text.
    text: String,
}

/// One fact.
#[derive(Debug, Serialize, JsonSchema)]
struct WhyLine {
    /// `nodes`, `limit`, `penalty`, `override`, `tenant`, `window` or `refused`.
    #[schemars(example = &"limit")]
    about: &'static str,
    said: String,
}

pub(super) fn describe(document: &mut Document) {
    document.begin("decisions", &[("consumer", "its name")]);
    document.endpoint("/v1/why/{consumer}", "?policy=&tenant=&tier=: why a consumer is or may be refused");
    document
        .operation(read(Read, show), "show-why")
        .about("Shows why a consumer's requests may be refused, with a line for each fact.")
        .query::<WhyQuery>()
        .answers::<WhyReport>("The facts.");
}

async fn show(
    Of(state): Of<Arc<AdminState>>,
    PathValues([consumer]): PathValues<1>,
    Query(about): Query<WhyQuery>,
) -> Answer {
    let [policy, tenant, tier] =
        [about.policy, about.tenant, about.tier].map(|name: Option<Name>| name.map(|name| name.0));
    state.counts.must_know(policy.as_deref(), tier.as_deref())?;
    let (refusals, has_answered) = refusals_of(&state, &consumer, policy.as_deref()).await;
    let known = || refusals.iter().find_map(|refusal| refusal["tenant"].as_str().map(str::to_owned));
    let tenant = tenant.or_else(known);
    let seen = seen(&refusals, &newest_of(&state, &consumer));
    let usage = |holder, policy: Option<String>, tenant| {
        (state.counts.usage)(UsageQuestion {
            holder,
            policy,
            tenant,
            tier: tier.clone(),
            seen: seen.clone(),
            after: None,
            limit: POLICIES_MAX,
        })
    };
    let all = usage(Holder::Consumer(consumer.as_str().into()), policy.clone(), tenant.clone()).await;
    let (own, others) = met(all, &seen, policy.is_some());
    let tenants = match &tenant {
        Some(tenant) => usage(Holder::Tenant(tenant.as_str().into()), None, None).await,
        None => Vec::new(),
    };
    let fleet = (state.nodes)();
    let mut lines = vec![nodes(fleet, &own)];
    lines.extend((state.counts.standing)(&consumer, tenant.as_deref()));
    lines.extend(limits("limit", &own));
    if others > 0 {
        let noun = if others == 1 { "policy" } else { "policies" };
        let said = format!("{others} more {noun} that it has not used lately: --policy shows one");
        lines.push(("limit", said));
    }
    lines.extend(penalties(fleet.is_some(), &own, &tenants, &refusals));
    lines.extend(overrides(&own));
    lines.extend(of_tenant(tenant.as_deref(), &own, &tenants));
    lines.extend(alignments(&own, &seen));
    lines.extend(refused(&consumer, &refusals, policy.as_deref(), state.decisions.is_kept()));
    if !has_answered {
        lines.push((
            "refused",
            "the database does not answer: decisions recorded only there are not shown".to_owned(),
        ));
    }
    let text = lines.iter().fold(String::new(), |mut text, (about, said)| {
        // The result is ignored, because writing to a text does not fail.
        let _ = writeln!(text, "{about:<9} {}", steady(said));
        text
    });
    let lines = lines.into_iter().map(|(about, said)| WhyLine { about, said }).collect();
    Ok(answer::json(&WhyReport { consumer, lines, text }))
}

type Line = (&'static str, String);

/// By the name of each policy the window that decided last about the consumer.
fn seen(refusals: &[Value], newest: &[Value]) -> BTreeMap<String, SeenWindow> {
    let time = |decision: &Value| decision["time"].as_str().unwrap_or_default().to_owned();
    let mut decisions: Vec<&Value> = refusals.iter().chain(newest).collect();
    decisions.sort_by_key(|decision| std::cmp::Reverse(time(decision)));
    let mut seen = BTreeMap::new();
    let windows = decisions.iter().flat_map(|decision| decision["windows"].as_array().into_iter().flatten());
    for window in windows {
        if let (Some(policy), Some(label)) = (window["policy"].as_str(), window["window"].as_str()) {
            let window = SeenWindow { label: label.to_owned(), anchor: window["anchor"].as_u64() };
            seen.entry(policy.to_owned()).or_insert(window);
        }
    }
    seen
}

/// The policies that have lately decided about the consumer, or would decide otherwise than they say, and how many
/// others there are: they tell nothing. If it has met none, or one is asked about, all are told.
fn met(
    mut all: Vec<PolicyUsage>,
    seen: &BTreeMap<String, SeenWindow>,
    is_asked: bool,
) -> (Vec<PolicyUsage>, usize) {
    let is_touched = |window: &WindowUsage| {
        window.used + window.leased > 0 || window.remaining == 0 || window.overridden.is_some()
    };
    let is_met = |usage: &PolicyUsage| {
        seen.contains_key(&usage.policy)
            || usage.penalty.as_ref().is_some_and(|penalty| penalty.ends_at.is_some())
            || !usage.outranked.is_empty()
            || usage.windows.iter().flatten().any(is_touched)
    };
    let known = all.len();
    if !is_asked && all.iter().any(is_met) {
        all.retain(is_met);
    }
    let others = known - all.len();
    (all, others)
}

fn nodes(nodes: Option<FleetNodes>, usage: &[PolicyUsage]) -> Line {
    let leased: u64 = windows(usage).map(|(_, window)| window.leased).sum();
    let is_away = windows(usage).any(|(_, window)| window.from == CountSource::NodeWithoutRedis);
    let Some(FleetNodes { count, shards, shards_away }) = nodes else {
        let said = "this node counts on its own: without [redis] every node has its own counts";
        return ("nodes", said.to_owned());
    };
    let counting = match count {
        1 => "1 node counts through Redis".to_owned(),
        count => format!("{count} nodes count through Redis"),
    };
    let leased = format!("{leased} {} leased", if leased == 1 { "unit is" } else { "units are" });
    let said = match shards_away {
        away if is_away || away > 0 && away == shards => format!(
            "Redis does not answer: each of {count} nodes uses its fallback, and this node's counts are shown"
        ),
        0 => format!("{counting}; {leased}"),
        away => format!(
            "{counting}, but {away} of {shards} shards do not answer: each node uses its fallback for their \
             keys; {leased}"
        ),
    };
    ("nodes", said)
}

fn limits(about: &'static str, usage: &[PolicyUsage]) -> Vec<Line> {
    let mut lines: Vec<Line> = usage
        .iter()
        .filter(|policy| policy.windows.is_none())
        .map(|policy| {
            let by = policy.by.join(", ");
            (
                about,
                format!(
                    "policy {} counts by {by}, so there can be several counts: the `refused` lines name their keys",
                    policy.policy
                ),
            )
        })
        .collect();
    lines.extend(windows(usage).map(|(policy, window)| {
        let shadow = if policy.is_shadow { ", in shadow: it refuses nothing" } else { "" };
        let leased = if window.leased > 0 { format!(", {} in leases", window.leased) } else { String::new() };
        let penalty =
            if keeps_out(policy, window) { " for other requests; a penalty refuses this caller" } else { "" };
        let hot = window.hot_key.map(|own| {
            let (limit, own) = (window.limit, own.instead_of);
            format!(
                "; the key is hot: this node counts it locally, against a limit of {limit} instead of {own}"
            )
        });
        let said = format!(
            "policy {}, window {}: {} of {} used{leased}, {} left{penalty}{}{shadow}{}",
            policy.policy,
            window.window,
            window.used,
            window.capacity,
            window.remaining,
            tier(policy),
            hot.unwrap_or_default()
        );
        (about, said)
    }));
    let is_free = |policy: &&PolicyUsage| policy.windows.as_ref().is_some_and(Vec::is_empty);
    let free = usage.iter().filter(is_free);
    lines.extend(free.map(|policy| (about, format!("policy {} charges it nothing", policy.policy))));
    if lines.is_empty() {
        lines.push((about, "no policy in force counts by this".to_owned()));
    }
    lines
}

fn tier(policy: &PolicyUsage) -> String {
    let Some(tier) = &policy.tier else { return String::new() };
    let from = match tier.from {
        TierFrom::Assigned => ", which is assigned",
        TierFrom::Asked => "",
        TierFrom::Decision => ", as in the latest decision",
        TierFrom::Default => ", because the policy has no limit for the caller's own tier",
        TierFrom::Assumed => ", which is assumed: its credential may name another, and --tier shows that one",
    };
    format!("; tier {}{from}", tier.name)
}

/// Whether a penalty refuses what a window would admit. What is in flight is not under it.
fn keeps_out(policy: &PolicyUsage, window: &WindowUsage) -> bool {
    let is_in_force = policy.penalty.as_ref().is_some_and(|penalty| penalty.ends_at.is_some());
    is_in_force && !policy.is_shadow && window.period_seconds.is_some()
}

/// The penalties that hold on this node, and those that refusals of others tell of, because while Redis is away each node has
/// its own.
fn penalties(is_fleet: bool, own: &[PolicyUsage], tenants: &[PolicyUsage], refusals: &[Value]) -> Vec<Line> {
    let now = Time::now();
    let ruled = || own.iter().chain(tenants).filter_map(|policy| Some((policy, policy.penalty.as_ref()?)));
    let in_force = ruled().filter_map(|(policy, penalty)| Some((policy, &penalty.node, penalty.ends_at?)));
    let mut lines: Vec<Line> = in_force
        .map(|(policy, node, ends_at)| {
            let refuses = if policy.is_shadow { "would refuse (it is in shadow)" } else { "refuses" };
            let (seconds, ends_at) = (now.until(ends_at).as_secs_f64(), in_seconds(ends_at));
            let said = format!(
                "policy {}: node {node} {refuses} it until {ends_at}, {seconds:.0} s more, because it kept \
                 sending instead of waiting",
                policy.policy
            );
            ("penalty", said)
        })
        .collect();
    let here = ruled().map(|(_, penalty)| penalty.node.clone()).next();
    if let (true, Some(node)) = (lines.is_empty(), &here) {
        let elsewhere = if is_fleet { "; those of other nodes hold here within a second" } else { "" };
        lines.push(("penalty", format!("none is in force on node {node}{elsewhere}")));
    }
    let is_shown = |node: &str, name: &str| {
        ruled().any(|(policy, penalty)| {
            policy.policy == *name && (here.as_deref() == Some(node) || penalty.ends_at.is_some())
        })
    };
    let mut told = Vec::new();
    for refusal in refusals {
        let ends_at = refusal["passes-at"].as_str().and_then(|at| at.parse::<Time>().ok());
        let Some(ends_at) = ends_at.filter(|ends_at| *ends_at > now) else { continue };
        let node = refusal["node"].as_str().unwrap_or_default();
        let refusing = refusal["windows"].as_array().into_iter().flatten().filter(|window| {
            window["penalty"] == true && window["allowed"] == false && window["shadow"] != true
        });
        for window in refusing {
            let text = |name: &str| window[name].as_str().unwrap_or("-");
            let of = (node, text("policy"), text("key"));
            if is_shown(node, of.1) || told.contains(&of) {
                continue;
            }
            told.push(of);
            let ends_at = in_seconds(ends_at);
            let said =
                format!("policy {}, key {}: a penalty on node {node} refuses it until {ends_at}", of.1, of.2);
            lines.push(("penalty", said));
        }
    }
    lines.truncate(PENALTIES_SHOWN);
    lines
}

fn overrides(usage: &[PolicyUsage]) -> Vec<Line> {
    let mut lines: Vec<Line> = windows(usage)
        .filter_map(|(policy, window)| {
            let of = window.overridden.as_ref()?;
            let ends = of["ends-in-seconds"]
                .as_f64()
                .map_or_else(String::new, |left| format!(", for {left:.0} s more"));
            let made = of["created-by"].as_str().filter(|by| !by.is_empty());
            let made = made.map_or_else(String::new, |by| format!(", created by {by}"));
            let said = format!(
                "policy {}, window {}: {} instead of {} by override {}{made}{ends}: {}",
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
    lines.extend(usage.iter().flat_map(|policy| {
        let said = |(id, why): &(String, &str)| {
            (
                "override",
                format!("policy {}: override {id} matches, too, but does not apply: {why}", policy.policy),
            )
        };
        policy.outranked.iter().map(said)
    }));
    if lines.is_empty() {
        let is_hot = windows(usage).any(|(_, window)| window.hot_key.is_some());
        let said = if is_hot { "none" } else { "none: each limit is that of its policy" };
        lines.push(("override", said.to_owned()));
    }
    lines
}

fn of_tenant(tenant: Option<&str>, own: &[PolicyUsage], tenants: &[PolicyUsage]) -> Vec<Line> {
    let Some(tenant) = tenant else {
        return vec![("tenant", "no tenant is known: name one with --tenant".to_owned())];
    };
    let mut lines: Vec<Line> = windows(own)
        .filter_map(|(policy, window)| {
            let limit = window.tenant_limit?;
            let said = format!(
                "{tenant}: policy {}, window {} would have the limit {limit} from the tenant's override, if the consumer \
                 had no override",
                policy.policy, window.window
            );
            Some(("tenant", said))
        })
        .collect();
    let together = limits("tenant", tenants).into_iter().filter(|_| !tenants.is_empty());
    lines.extend(
        together.map(|(about, said)| (about, format!("{tenant}, total of all its consumers: {said}"))),
    );
    if windows(tenants).next().is_none() {
        lines.push(("tenant", format!("{tenant}: no policy in force counts by the tenant alone")));
    }
    lines
}

/// Of a month if no decision has told on which day the client's own begin.
const ASSUMED: &str = "; this month is assumed: no decision is known that shows the client's day";

/// Where each window begins and ends: of a client whose own day no decision has shown, by the policy's.
fn alignments(usage: &[PolicyUsage], seen: &BTreeMap<String, SeenWindow>) -> Vec<Line> {
    let now = clock::unix();
    windows(usage)
        .map(|(policy, window)| {
            let is_month = window.quota.calendar().is_some_and(Calendar::is_monthly);
            let is_assumed = is_month && policy.has_own_months && !seen.contains_key(&policy.policy);
            let assumed = if is_assumed { ASSUMED } else { "" };
            let full = match window.reset_at {
                Some(at) if window.used + window.leased > 0 => format!("; full again at {at} at the latest"),
                _ => String::new(),
            };
            ("window", format!("{}: {}{assumed}{full}", window.window, alignment(window, now)))
        })
        .collect()
}

/// A time to the second, because what lies behind it is of the clock that the windows are counted by.
fn in_seconds(Time(micros): Time) -> String {
    const SECOND: i64 = 1_000_000;
    let whole = micros.saturating_add(SECOND / 2) / SECOND * SECOND;
    Time(whole).to_string().replace(".000000Z", "Z")
}

fn alignment(window: &WindowUsage, now: Duration) -> String {
    let quota = &window.quota;
    let seconds = quota.period_at_ns(now) as f64 / 1e9;
    let at = |ns: u64| in_seconds(Time(i64::try_from(ns / 1_000).unwrap_or(i64::MAX)));
    let (begun_ns, ends_ns) = quota.window_around_ns(now);
    let (begun, ends) = (at(begun_ns), at(ends_ns));
    if let Some(calendar) = quota.calendar() {
        let (unit, zone) = (calendar.unit().word(), calendar.zone().name());
        let zone = if calendar.anchor() == 1 {
            zone.to_owned()
        } else {
            format!("{zone}, anchor {}", calendar.anchor())
        };
        return format!(
            "a {unit} of the calendar in {zone}: the current one began at {begun} and ends at {ends}"
        );
    }
    let each = (seconds * 1_000.0 / window.limit.max(1) as f64).round() / 1_000.0;
    match quota.algorithm() {
        Algorithm::FixedWindow => {
            format!("a fixed window: the current one began at {begun} and ends at {ends}")
        }
        Algorithm::SlidingWindow => format!(
            "a sliding window: units of the last {seconds} s count; those before {begun} are estimated by how \
             much of their window lies within"
        ),
        Algorithm::SlidingLog => {
            format!("a sliding log: exactly the requests of the last {seconds} s count")
        }
        Algorithm::TokenBucket => {
            format!("a bucket: one unit comes back every {each} s, up to {}", window.capacity)
        }
        Algorithm::LeakyBucket => {
            let waiting = window.capacity.saturating_sub(1);
            format!("a leaky bucket: one unit passes every {each} s, and up to {waiting} wait")
        }
        Algorithm::Concurrency => "counts requests in flight, and has no period".to_owned(),
    }
}

/// The last refusals, and who refused; of a policy, if one was asked about.
fn refused(consumer: &str, refusals: &[Value], policy: Option<&str>, is_kept: bool) -> Vec<Line> {
    let unknown = match (is_kept, refusals) {
        (false, _) => Some(NOT_KEPT),
        (true, []) if consumer.parse::<IpAddr>().is_ok() => Some(OF_ADDRESS),
        (true, []) if is_request_id(consumer) => Some(OF_REQUEST),
        (true, []) => Some("no refusal of this consumer is recorded"),
        (true, _) => None,
    };
    let text = |value: &Value| value.as_str().unwrap_or("-").to_owned();
    let line = |refusal: &Value| {
        if let Some(by) = refusal["blocked"].as_str() {
            let [at, node, request] = ["time", "node", "request-id"].map(|name| text(&refusal[name]));
            return (
                "refused",
                format!("at {at} by node {node}: blocked by override {by}; request {request}"),
            );
        }
        let mut windows = refusal["windows"].as_array().into_iter().flatten();
        let is_asked = |window: &&Value| {
            policy.is_none_or(|policy| window["policy"] == policy && window["allowed"] == false)
        };
        let window = windows.find(is_asked).unwrap_or(&Value::Null);
        let tier = match window["tier"].as_str().unwrap_or_default() {
            "local" if window["penalty"] == true => "by its penalty",
            "local" => "by its local count",
            "hot" => "by its local count, because the key is hot",
            "lease" => "by its lease",
            "redis" => "by Redis",
            "remembered" => "by a remembered response of Redis",
            "unasked" => "without asking Redis",
            _ => "without Redis",
        };
        let penalty = match refusal["passes-at"].as_str() {
            _ if window["penalty"] != true => String::new(),
            Some(at) => format!(", a penalty until {at}"),
            None => ", a penalty".to_owned(),
        };
        let said = format!(
            "at {} by node {}, {tier}: policy {}, window {}, key {}, {} of {} left{penalty}; request {}",
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
    let unknown = unknown.map(|said| ("refused", said.to_owned()));
    unknown.into_iter().chain(refusals.iter().take(REFUSALS_SHOWN).map(line)).collect()
}

fn windows(usage: &[PolicyUsage]) -> impl Iterator<Item = (&PolicyUsage, &WindowUsage)> {
    usage.iter().flat_map(|policy| policy.windows.iter().flatten().map(move |window| (policy, window)))
}

/// Whether a text has the form of an id that the gateway, or a UUID that another server, gave a request.
fn is_request_id(text: &str) -> bool {
    let digits = || text.chars().filter(|sign| *sign != '-');
    digits().count() == 32 && digits().all(|sign| sign.is_ascii_hexdigit())
}

const OF_REQUEST: &str =
    "no consumer has this name, which looks like a request id: ask `sluicegate explain --request ID`";
const OF_ADDRESS: &str = "no consumer has this name, which looks like an address: ask `sluicegate explain GET URL --from ADDRESS`, or \
                          `sluicegate ctl decisions`";
const POLICIES_MAX: usize = 50;
const PENALTIES_SHOWN: usize = 10;
const REFUSALS_SHOWN: usize = 5;

#[cfg(test)]
mod tests {
    use std::num::NonZeroU64;

    use limit::{Calendar, CalendarUnit, Quota, Zone};
    use serde_json::json;

    use super::*;

    fn window(algorithm: Algorithm) -> WindowUsage {
        let [hundred, hour_ns] = [100, 3_600_000_000_000].map(|it| NonZeroU64::new(it).expect("above 0"));
        WindowUsage {
            window: "search-1h".to_owned(),
            quota: Quota::new(algorithm, hundred, hour_ns, hundred),
            limit: 100,
            capacity: 100,
            period_seconds: Some(3_600.0),
            used: 40,
            leased: 0,
            remaining: 60,
            reset_at: None,
            from: CountSource::Node,
            overridden: None,
            tenant_limit: None,
            hot_key: None,
        }
    }

    #[test]
    fn a_fixed_window_says_when_it_began() {
        let said = alignment(&window(Algorithm::FixedWindow), Duration::from_secs(1_700_000_000));
        let expected =
            "a fixed window: the current one began at 2023-11-14T22:00:00Z and ends at 2023-11-14T23:00:00Z";
        assert_eq!(said, expected);
        let fixed = window(Algorithm::FixedWindow);
        let calendar = Calendar::new(CalendarUnit::Month, Zone::utc(), 0);
        let month = WindowUsage { quota: fixed.quota.on_calendar(calendar), ..fixed };
        let said = alignment(&month, Duration::from_secs(1_700_000_000));
        let expected = "a month of the calendar in UTC: the current one began at 2023-11-01T00:00:00Z and ends at 2023-12-01T00:00:00Z";
        assert_eq!(said, expected);
        let said = alignment(&window(Algorithm::TokenBucket), Duration::from_secs(1_700_000_000));
        assert_eq!(said, "a bucket: one unit comes back every 36 s, up to 100");
    }

    #[test]
    fn a_redis_that_is_away_is_said_also_if_no_window_was_looked_at() {
        let said = |shards_away| nodes(Some(FleetNodes { count: 2, shards: 3, shards_away }), &[]).1;
        assert!(said(0).starts_with("2 nodes count through Redis; 0 units are leased"), "{}", said(0));
        assert!(said(1).contains("but 1 of 3 shards do not answer"), "{}", said(1));
        assert!(said(3).starts_with("Redis does not answer: each of 2 nodes"), "{}", said(3));
    }

    #[test]
    fn a_penalty_of_another_node_is_told_while_it_lasts() {
        let refusal = |node: &str, at: &str| {
            let window = json!({ "policy": "p", "key": "consumer=a", "allowed": false, "penalty": true });
            json!({ "node": node, "passes-at": at, "windows": [window] })
        };
        let refusals = [refusal("b", "2999-01-01T00:00:00.000Z"), refusal("c", "1999-01-01T00:00:00.000Z")];
        let lines = penalties(true, &[], &[], &refusals);
        let expected = "policy p, key consumer=a: a penalty on node b refuses it until 2999-01-01T00:00:00Z";
        assert_eq!(lines, [("penalty", expected.to_owned())]);
    }

    #[test]
    fn what_is_not_known_is_said() {
        assert_eq!(refused("ann", &[], None, true)[0].1, "no refusal of this consumer is recorded");
        assert_eq!(refused("203.0.113.9", &[], None, true)[0].1, OF_ADDRESS);
        for id in ["0f8fad5bd9cb469fa16570867728950e", "0f8fad5b-d9cb-469f-a165-70867728950e"] {
            assert_eq!(refused(id, &[], None, true)[0].1, OF_REQUEST);
        }
        let alone = format!("{}: no policy in force counts by the tenant alone", "acme");
        assert_eq!(of_tenant(Some("acme"), &[], &[])[0].1, alone);
        assert_eq!(refused("ann", &[], None, false)[0].1, NOT_KEPT);
        assert_eq!(of_tenant(None, &[], &[])[0].1, "no tenant is known: name one with --tenant");
        assert_eq!(overrides(&[])[0].1, "none: each limit is that of its policy");
        assert_eq!(limits("limit", &[])[0].1, "no policy in force counts by this");
    }
}
