//! Reads and writes `[policy.*]`, and the shorthands of routes that expand to a policy.

use std::num::NonZeroU64;
use std::time::Duration;

use crate::limit::{Algorithm, Quota};
use crate::policy::definition::{Cost, Idempotency, Matches, Missing, Origin, Policy, Tier};

use super::printer::{Page, array, key, table, text, time, word};
use super::reader::{Table, Value};
use super::report::{Fields, quoted};
use super::sections::{self, Named};
use super::text::Text;
use super::tier_table::TierTable;
use super::tiers::{self, Base};
use super::windows::{self, ALGORITHMS, Counting, WHEN_DOWN, counting, dimension, overshoot, window};
use super::{limit_text, method, penalty};

/// Reads every policy that has a name.
pub(super) fn read_all(
    documents: &[Table<'_>],
    tiers: &[Tier],
    rows: &TierTable<'_>,
) -> (Vec<Policy>, Vec<Fields>) {
    let mut policies = Vec::new();
    let mut places = Vec::new();
    for named in sections::named(documents, "policy") {
        let (mut fields, since) = (named.table.places(), named.table.since_now());
        policies.push(read(named, tiers, rows));
        fields.is_flawed = since.is_flawed();
        places.push(fields);
    }
    let names: Vec<&str> = policies.iter().map(|policy| policy.name.as_str()).collect();
    rows.check(&names);
    (policies, places)
}

/// The policy that a shorthand on a route expands to.
pub(super) fn of_shorthand(name: String, text: &Text<'_>) -> Option<Policy> {
    let (window, by) = window(text, Counting::default())?;
    Some(Policy { by, ..Policy::new(name, vec![window]) })
}

fn read(named: Named<'_>, tiers: &[Tier], rows: &TierTable<'_>) -> Policy {
    let table = named.table;
    let mut policy = Policy::new(named.name, Vec::new());
    policy.origin = if table.is_added() { Origin::Database } else { Origin::File };
    match table.value("by") {
        Some(value) => policy.by = value.texts().iter().filter_map(dimension).collect(),
        None => table.wrong(
            "a policy needs `by`: who is counted",
            "write `by = [\"ip\"]`, or `by = []` to count everybody together",
        ),
    }
    if let Some(value) = table.value("overshoot") {
        policy.overshoot_ppm = overshoot(&value).unwrap_or_default();
    }
    if let Some(value) = table.value("when-redis-down") {
        policy.when_down = value.choice(&WHEN_DOWN, &[]).unwrap_or_default();
    }
    let base = Base {
        policy: &policy.name,
        counting: counting(&table, Counting::default()).unwrap_or_default(),
        overshoot_ppm: policy.overshoot_ppm,
        when_down: policy.when_down,
        origin: policy.origin,
    };
    match table.value("limit") {
        Some(limit) => {
            (policy.windows, policy.tiers) = tiers::divide(&table, &limit, &base, tiers, rows);
        }
        None => table.wrong("a policy needs `limit`", "write `limit = \"100/m\"`"),
    }
    if let Some(value) = table.value("missing") {
        let choices = [("ip", Missing::Ip), ("skip", Missing::Skip), ("reject", Missing::Reject)];
        policy.missing = value.choice(&choices, &[]).unwrap_or_default();
    }
    if let Some(matches) = table.table("match") {
        policy.matches = read_matches(matches);
    }
    if let Some(value) = table.value("cost") {
        policy.cost = cost(&value);
    }
    if let Some(value) = table.value("shadow") {
        policy.shadow = value.boolean().unwrap_or_default();
    }
    if let Some(value) = table.value("count-denied") {
        policy.count_denied = value.boolean().unwrap_or_default();
    }
    if let Some(value) = table.value("idempotency-key") {
        policy.idempotency = idempotency(&value);
    }
    if let Some(table) = table.table("penalty") {
        policy.penalty = penalty::read(table, &policy.windows);
    }
    table.finish(&["replaces", "rollout"]);
    policy
}

fn read_matches(table: Table<'_>) -> Matches {
    let methods = table.value("method").map(|value| method::list(&value)).unwrap_or_default();
    let path = table.value("path").and_then(|value| value.text());
    table.finish(&[]);
    Matches { methods, path: path.map(|text| text.text) }
}

/// A number, or a table of a default and `"METHOD /path"` or `"/path"` with a number each.
fn cost(value: &Value<'_>) -> Cost {
    let mut cost = Cost::default();
    if !value.is_table() {
        cost.default = default_cost(value).unwrap_or(cost.default);
        return cost;
    }
    for entry in value.table("`cost`").iter().flat_map(Table::entries) {
        match entry.key.as_str() {
            "default" => cost.default = default_cost(&entry).unwrap_or(cost.default),
            "header" => cost.header = entry.text().and_then(|text| header_name(&text)),
            "response-header" => cost.response_header = entry.text().and_then(|text| header_name(&text)),
            "max" => cost.max = default_cost(&entry),
            key => {
                let rule = cost_rule(key);
                let units = entry.integer(0..=COST_MAX);
                match (rule, units) {
                    (Some((method, path)), Some(units)) => cost.rules.push((method, path, units)),
                    (None, _) => entry.wrong_key(
                        format!("{} is not a key of `cost`", quoted(key)),
                        "write `default`, `header`, `response-header`, `max`, `\"/path\"` or `\"METHOD /path\"`",
                    ),
                    (Some(_), None) => {}
                }
            }
        }
    }
    cost
}

fn header_name(text: &Text<'_>) -> Option<http::HeaderName> {
    let name = http::HeaderName::from_bytes(text.text.as_bytes()).ok();
    if name.is_none() {
        text.wrong(format!("{} is not the name of a header", text.shown()), "write one as in `x-cost`");
    }
    name
}

/// `"header:idempotency-key"`, or a table of that as `key` and a `window`.
fn idempotency(value: &Value<'_>) -> Option<Idempotency> {
    let mut window = Idempotency::WINDOW;
    if !value.is_table() {
        return Some(Idempotency { header: value.text().and_then(|text| key_header(&text))?, window });
    }
    let table = value.table("`idempotency-key`")?;
    let header = table.value("key").and_then(|value| value.text()).and_then(|text| key_header(&text));
    if header.is_none() && table.value("key").is_none() {
        table.wrong("`idempotency-key` needs a `key`", "write `key = \"header:idempotency-key\"`");
    }
    if let Some(value) = table.value("window") {
        window = value.duration(Duration::from_secs(1)).unwrap_or(window).min(IDEMPOTENCY_WINDOW_MAX);
    }
    table.finish(&[]);
    Some(Idempotency { header: header?, window })
}

fn key_header(text: &Text<'_>) -> Option<http::HeaderName> {
    let name = text.text.strip_prefix("header:");
    let name = name.and_then(|name| http::HeaderName::from_bytes(name.as_bytes()).ok());
    if name.is_none() {
        text.wrong(format!("{} is not a header's key", text.shown()), "write `\"header:idempotency-key\"`");
    }
    name
}

fn cost_rule(key: &str) -> Option<(Option<http::Method>, String)> {
    let (method, path) = match key.split_once(' ') {
        Some((method, path)) => (Some(method::parse(method).ok()?), path.trim_start()),
        None => (None, key),
    };
    path.starts_with('/').then(|| (method, path.to_owned()))
}

fn default_cost(value: &Value<'_>) -> Option<NonZeroU64> {
    value.integer(1..=COST_MAX).and_then(NonZeroU64::new)
}

/// Writes `[policy.*]`.
pub(super) fn show(page: &mut Page, policy: &Policy) {
    page.heading(&format!("[policy.{}]", key(&policy.name)));
    if let Some(origin) = policy.origin.sentence() {
        page.comment(origin);
    }
    page.key("by", array(policy.by.iter().map(|by| text(&limit_text::show_dimension(by)))));
    let algorithm = match &policy.tiers {
        Some(tiers) => {
            tiers::show(page, tiers, &policy.windows, (policy.overshoot_ppm, policy.when_down));
            tiers.algorithm
        }
        None => {
            page.key("limit", windows::show(&policy.windows));
            // All windows have one algorithm, apart from concurrency limits.
            let mut algorithms = policy.windows.iter().map(Quota::algorithm);
            let algorithm = algorithms.find(|algorithm| *algorithm != Algorithm::Concurrency);
            algorithm.unwrap_or(Algorithm::TokenBucket)
        }
    };
    page.key("algorithm", text(word(&ALGORITHMS, &algorithm)));
    page.key(
        "missing",
        text(match policy.missing {
            Missing::Ip => "ip",
            Missing::Skip => "skip",
            Missing::Reject => "reject",
        }),
    );
    if policy.matches != Default::default() {
        let methods = &policy.matches.methods;
        let mut keys = vec![("method", array(methods.iter().map(|method| text(method.as_str()))))];
        keys.extend(policy.matches.path.as_ref().map(|path| ("path", text(path))));
        page.key("match", table(keys));
    }
    show_cost(page, &policy.cost);
    page.key("shadow", policy.shadow);
    page.key("count-denied", policy.count_denied);
    if let Some(Idempotency { header, window }) = &policy.idempotency {
        let keys = [("key", text(&format!("header:{header}"))), ("window", time(*window))];
        page.key("idempotency-key", table(keys));
    }
    if let Some(penalty) = &policy.penalty {
        page.key("penalty", penalty::show(penalty));
    }
    page.key("overshoot", windows::show_overshoot(policy.overshoot_ppm));
    page.key("when-redis-down", text(word(&WHEN_DOWN, &policy.when_down)));
}

fn show_cost(page: &mut Page, cost: &Cost) {
    let mut keys = vec![("default".to_owned(), cost.default.to_string())];
    for (method, path, units) in &cost.rules {
        let method = method.as_ref().map(|method| format!("{method} ")).unwrap_or_default();
        keys.push((key(&format!("{method}{path}")), units.to_string()));
    }
    let fields = [("header", &cost.header), ("response-header", &cost.response_header)];
    for (field, header) in fields {
        keys.extend(header.as_ref().map(|header| (field.to_owned(), text(header.as_str()))));
    }
    keys.extend(cost.max.map(|max| ("max".to_owned(), max.to_string())));
    page.key("cost", table(keys));
}

/// Longer than any client retries.
const IDEMPOTENCY_WINDOW_MAX: Duration = Duration::from_secs(30 * 86_400);

/// A higher cost is surely a typing error, and sums of costs stay far from overflow.
const COST_MAX: u64 = 1_000_000_000;
