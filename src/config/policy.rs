//! `[policy.*]`, and the shorthands of routes that stand for one.

use std::num::NonZeroU64;

use crate::limit::{Algorithm, Quota};
use crate::policy::definition::{Cost, Dimension, Matches, Missing, Policy};
use crate::policy::shorthand::{self, Shorthand};

use super::method;
use super::reader::{self, Named, Table, Text, Value};
use super::report::{Fields, quoted};

/// Reads every policy that has a name.
pub(super) fn read_all(documents: &[Table<'_>]) -> (Vec<Policy>, Vec<Fields>) {
    let mut policies = Vec::new();
    let mut places = Vec::new();
    for named in reader::named(documents, "policy") {
        places.push(named.table.places());
        policies.push(read(named));
    }
    (policies, places)
}

/// The policy that a shorthand on a route stands for.
pub(super) fn of_shorthand(name: String, text: &Text<'_>) -> Option<Policy> {
    let (window, by) = window(text, Algorithm::TokenBucket)?;
    Some(Policy { by, windows: vec![window], ..default(name) })
}

fn read(named: Named<'_>) -> Policy {
    let table = named.table;
    let mut policy = default(named.name);
    match table.value("by") {
        Some(value) => policy.by = value.texts().iter().filter_map(dimension).collect(),
        None => table.wrong(
            "a policy needs `by`: who is counted",
            "write `by = [\"ip\"]`, or `by = []` to count everybody together",
        ),
    }
    let algorithm = table.value("algorithm").and_then(|value| value.choice(&ALGORITHMS, &ALGORITHMS_LATER));
    match table.value("limit") {
        Some(value) => policy.windows = windows(&value, algorithm.unwrap_or(Algorithm::TokenBucket)),
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
    table.finish(&["overshoot", "when-store-down", "idempotency-key", "penalty", "replaces", "rollout"]);
    policy
}

fn dimension(text: &Text<'_>) -> Option<Dimension> {
    match shorthand::dimension(&text.text) {
        Ok(dimension) => Some(dimension),
        Err(problem) => {
            let hint = reader::did_you_mean(&text.text, shorthand::DIMENSIONS);
            let hint = hint.unwrap_or_else(|| problem.hint().to_owned());
            text.wrong(format!("{} is not a dimension", text.shown()), hint);
            None
        }
    }
}

fn windows(value: &Value<'_>, algorithm: Algorithm) -> Vec<Quota> {
    let mut windows = Vec::new();
    for text in value.texts() {
        if text.text == "tier" || text.text.ends_with(" in flight") {
            text.wrong(
                format!("{} belongs to the language, but this version does not have it", text.shown()),
                "write a limit as in `100/m`",
            );
            continue;
        }
        let Some((window, by)) = window(&text, algorithm) else { continue };
        if !by.is_empty() {
            text.wrong("a policy's limit has no `by`", "write it as the policy's own key: `by = [...]`");
        }
        windows.push(window);
    }
    windows
}

/// One window, and the dimensions that a shorthand names with it.
fn window(text: &Text<'_>, algorithm: Algorithm) -> Option<(Quota, Vec<Dimension>)> {
    match shorthand::parse(&text.text) {
        Ok(Shorthand { window, by, has_burst }) => {
            if has_burst && algorithm != Algorithm::TokenBucket {
                text.wrong("only a token bucket has a burst", "leave `burst` out, or the `algorithm`");
            }
            Some((window.counted_by(algorithm), by))
        }
        // What is wrong quotes the text, which may be a secret here.
        Err(error) if text.has_reference => {
            text.wrong(format!("{} is not a limit", text.shown()), error.problem.hint());
            None
        }
        Err(error) => {
            text.wrong_within(error.span, error.problem.to_string(), error.problem.hint());
            None
        }
    }
}

fn read_matches(table: Table<'_>) -> Matches {
    let methods = table.value("method").map(|value| value.texts()).unwrap_or_default();
    let path = table.value("path").and_then(|value| value.text());
    table.finish(&[]);
    Matches { methods: methods.iter().filter_map(method::read).collect(), path: path.map(|text| text.text) }
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
            key @ ("response-header" | "max") => entry.wrong_key(
                format!("`{key}` belongs to the language, but this version does not have it"),
                "leave it out",
            ),
            key => {
                let rule = cost_rule(key);
                let units = entry.integer(0..=COST_MAX);
                match (rule, units) {
                    (Some((method, path)), Some(units)) => cost.rules.push((method, path, units)),
                    (None, _) => entry.wrong_key(
                        format!("{} is not what a cost can stand beside", quoted(key)),
                        "write `default`, `\"/path\"` or `\"METHOD /path\"`",
                    ),
                    (Some(_), None) => {}
                }
            }
        }
    }
    cost
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

fn default(name: String) -> Policy {
    Policy {
        name,
        by: Vec::new(),
        windows: Vec::new(),
        missing: Missing::default(),
        matches: Matches::default(),
        cost: Cost::default(),
        shadow: false,
        count_denied: false,
    }
}

/// The algorithms this version has, as the language spells them.
pub(super) const ALGORITHMS: [(&str, Algorithm); 3] = [
    ("token-bucket", Algorithm::TokenBucket),
    ("sliding-window", Algorithm::SlidingWindow),
    ("fixed-window", Algorithm::FixedWindow),
];

const ALGORITHMS_LATER: [&str; 2] = ["sliding-log", "leaky-bucket"];

/// A request that costs more is a slip.
const COST_MAX: u64 = 1_000_000_000;
