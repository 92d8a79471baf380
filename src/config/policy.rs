//! Reads and writes `[tier.*]` and `[policy.*]`, and the shorthands of routes that expand to a policy.

use std::num::NonZeroU64;
use std::time::Duration;

use crate::limit::{Algorithm, Quota, WhenDown, sliding_log};
use crate::policy::definition::{Cost, Dimension, Idempotency, Matches, Missing, Policy, Tiers};
use crate::policy::shorthand::{self, Shorthand};

use super::printer::{Page, array, key, table, text, time, word};
use super::reader::{Table, Value};
use super::report::{Fields, quoted};
use super::sections::{self, Named};
use super::text::Text;
use super::{limit_text, method, penalty};
use crate::units::show_share;
use crate::words;

/// Reads every policy that has a name.
pub(super) fn read_all(documents: &[Table<'_>], tiers: &[TierWindows]) -> (Vec<Policy>, Vec<Fields>) {
    let mut policies = Vec::new();
    let mut places = Vec::new();
    for named in sections::named(documents, "policy") {
        let (mut fields, since) = (named.table.places(), named.table.since_now());
        policies.push(read(named, tiers));
        fields.is_flawed = since.is_flawed();
        places.push(fields);
    }
    (policies, places)
}

/// A tier's name and its windows, as token buckets or concurrency limits. A policy by tier may turn them into others.
pub(super) type TierWindows = (String, Vec<Quota>);

/// Reads every tier.
pub(super) fn read_tiers(documents: &[Table<'_>]) -> Vec<TierWindows> {
    let named = sections::named(documents, "tier").into_iter();
    named
        .map(|Named { name, table }| {
            let windows = match table.value("limit") {
                Some(value) => windows(&value, Counting::default()),
                None => {
                    table
                        .wrong("a tier needs `limit`", "write `limit = \"100/m\"`, or `limit = []` for none");
                    Vec::new()
                }
            };
            table.finish(&[]);
            (name, windows)
        })
        .collect()
}

/// The policy that a shorthand on a route expands to.
pub(super) fn of_shorthand(name: String, text: &Text<'_>) -> Option<Policy> {
    let (window, by) = window(text, Counting::default())?;
    Some(Policy { by, ..Policy::new(name, vec![window]) })
}

fn read(named: Named<'_>, tiers: &[TierWindows]) -> Policy {
    let table = named.table;
    let mut policy = Policy::new(named.name, Vec::new());
    match table.value("by") {
        Some(value) => policy.by = value.texts().iter().filter_map(dimension).collect(),
        None => table.wrong(
            "a policy needs `by`: who is counted",
            "write `by = [\"ip\"]`, or `by = []` to count everybody together",
        ),
    }
    let counting = counting(&table);
    match table.value("limit") {
        Some(value) => match by_tier(&value) {
            Some(text) => {
                let default = table.value("default-tier").and_then(|value| value.text());
                (policy.windows, policy.tiers) = tier_windows(&text, tiers, default, counting);
            }
            None => policy.windows = windows(&value, counting),
        },
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
    if let Some(value) = table.value("overshoot") {
        policy.overshoot_ppm = overshoot(&value).unwrap_or_default();
    }
    if let Some(value) = table.value("when-redis-down") {
        policy.when_down = value.choice(&WHEN_DOWN, &[]).unwrap_or_default();
    }
    if let Some(table) = table.table("penalty") {
        policy.penalty = penalty::read(table, &policy.windows);
    }
    table.finish(&["replaces", "rollout"]);
    policy
}

/// The word `tier`, if it is the whole limit.
fn by_tier<'c>(value: &Value<'c>) -> Option<Text<'c>> {
    // Only the type is looked at here; errors are reported when the value is read.
    if !value.is_string() {
        return None;
    }
    value.text().filter(|text| text.text == "tier")
}

/// The windows of all tiers, with the policy's algorithm.
fn tier_windows(
    text: &Text<'_>,
    tiers: &[TierWindows],
    default: Option<Text<'_>>,
    counting: Counting,
) -> (Vec<Quota>, Option<Tiers>) {
    let Some(strictest) = strictest(tiers) else {
        text.wrong("there is no tier", "write `[tier.free]` with a `limit`");
        return (Vec::new(), None);
    };
    let mut default_tier = strictest.clone();
    if let Some(default) = default {
        let names: Vec<&str> = tiers.iter().map(|(name, _)| name.as_str()).collect();
        if !names.contains(&default.text.as_str()) {
            let hint = words::did_you_mean(&default.text, &names);
            default.wrong(
                format!("there is no tier {}", default.shown()),
                hint.unwrap_or_else(|| format!("write {}", words::listed(&names))),
            );
        }
        default_tier = default.text;
    }
    let (mut windows, mut counts) = (Vec::new(), Vec::new());
    for (name, own) in tiers {
        let own: Vec<Quota> = own.iter().filter_map(|window| counted(text, *window, counting)).collect();
        counts.push((name.clone(), own.len()));
        windows.extend(own);
    }
    (windows, Some(Tiers { counts, default: default_tier }))
}

/// The tier whose slowest window admits least in the long run; of several equal ones the first by name. It is the default,
/// so that a client of unknown tier gets no more than any other.
fn strictest(tiers: &[TierWindows]) -> Option<&String> {
    let rate = |window: &Quota| window.limit().get() as f64 / window.period_ns().get() as f64;
    let slowest = |windows: &[Quota]| windows.iter().map(rate).fold(f64::INFINITY, f64::min);
    let by_rate = |(name, windows): &&TierWindows| (slowest(windows), name.clone());
    let ordered = tiers.iter().min_by(|left, right| {
        let (left, right) = (by_rate(left), by_rate(right));
        left.0.total_cmp(&right.0).then(left.1.cmp(&right.1))
    });
    ordered.map(|(name, _)| name)
}

/// How a policy's windows count.
#[derive(Clone, Copy)]
struct Counting {
    algorithm: Algorithm,
    /// The longest delay of a request by a leaky bucket.
    delay_max: Option<Duration>,
}

impl Default for Counting {
    fn default() -> Self {
        Counting { algorithm: Algorithm::TokenBucket, delay_max: None }
    }
}

fn counting(table: &Table<'_>) -> Counting {
    let algorithm = table.value("algorithm").and_then(|value| value.choice(&ALGORITHMS, &[]));
    let algorithm = algorithm.unwrap_or(Algorithm::TokenBucket);
    let delay_max = table.value("max-delay").and_then(|value| {
        if algorithm != Algorithm::LeakyBucket {
            value.wrong_key(
                "only a leaky bucket lets requests wait",
                "leave `max-delay` out, or write `algorithm = \"leaky-bucket\"`",
            );
            return None;
        }
        value.duration(Duration::from_millis(1))
    });
    Counting { algorithm, delay_max }
}

/// One dimension, as `by` names them.
pub(super) fn dimension(text: &Text<'_>) -> Option<Dimension> {
    match shorthand::dimension(&text.text) {
        Ok(dimension) => Some(dimension),
        Err(problem) => {
            // `header:` is a dimension without its name, so the hint asks for the name.
            let is_kind = shorthand::DIMENSIONS.contains(&text.text.as_str());
            let hint = words::did_you_mean(&text.text, shorthand::DIMENSIONS).filter(|_| !is_kind);
            let hint = hint.unwrap_or_else(|| problem.hint().to_owned());
            text.wrong(format!("{} is not a dimension", text.shown()), hint);
            None
        }
    }
}

fn windows(value: &Value<'_>, counting: Counting) -> Vec<Quota> {
    let mut windows = Vec::new();
    for text in value.texts() {
        if text.text == "tier" {
            text.wrong("`tier` cannot be combined with other limits", "write `limit = \"tier\"`");
            continue;
        }
        let Some((window, by)) = window(&text, counting) else { continue };
        if !by.is_empty() {
            text.wrong("a policy's limit has no `by`", "write it as the policy's own key: `by = [...]`");
        }
        windows.push(window);
    }
    windows
}

/// One window, and the dimensions that its text names after `by`.
fn window(text: &Text<'_>, counting: Counting) -> Option<(Quota, Vec<Dimension>)> {
    match shorthand::parse(&text.text) {
        // Concurrency limits have only one algorithm.
        Ok(Shorthand { window, by, .. }) if window.algorithm() == Algorithm::Concurrency => {
            Some((window, by))
        }
        Ok(Shorthand { window, by, has_burst }) => {
            if has_burst && !matches!(counting.algorithm, Algorithm::TokenBucket | Algorithm::LeakyBucket) {
                text.wrong(
                    "only a token bucket has a burst, and a leaky bucket a queue",
                    "leave `burst` out, or the `algorithm`",
                );
            }
            Some((counted(text, window, counting)?, by))
        }
        // The error would quote the text, which may be a secret if it came from outside the file.
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

/// The window with its policy's algorithm.
fn counted(text: &Text<'_>, window: Quota, counting: Counting) -> Option<Quota> {
    if window.algorithm() == Algorithm::Concurrency {
        return Some(window);
    }
    let limit = window.limit();
    if counting.algorithm == Algorithm::SlidingLog && limit.get() > sliding_log::LIMIT_MAX {
        text.wrong(
            format!("a sliding log keeps every unit, so its limit is at most {}", sliding_log::LIMIT_MAX),
            "write a smaller limit, or `algorithm = \"sliding-window\"`",
        );
        return None;
    }
    let Some(delay_max) = counting.delay_max else { return Some(window.counted_by(counting.algorithm)) };
    // The queue holds what drains within `max-delay`, so that even its last request waits no longer.
    let drains = delay_max.as_nanos() * u128::from(limit.get()) / u128::from(window.period_ns().get());
    let queue = u64::try_from(drains).unwrap_or(u64::MAX).min(window.burst().get());
    let Some(queue) = NonZeroU64::new(queue) else {
        text.wrong(
            "`max-delay` is shorter than the time between two requests, so no request could wait",
            "write a longer `max-delay`, or a higher limit",
        );
        return None;
    };
    Some(Quota::new(counting.algorithm, limit, window.period_ns(), queue))
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

/// `overshoot`: a share of the window, or the number 0.
fn overshoot(value: &Value<'_>) -> Option<u32> {
    if !value.is_integer() {
        return value.share_ppm();
    }
    if !value.is_zero() {
        value.wrong("`overshoot` is a share", "write it as in `\"1%\"`, or 0");
    }
    Some(0)
}

/// `when-redis-down`, as the language spells it.
/// Writes `[tier.*]`.
pub(super) fn show_tier(page: &mut Page, name: &str, limit: &[Quota]) {
    page.heading(&format!("[tier.{}]", key(name)));
    page.key("limit", show_windows(limit));
}

/// Writes `[policy.*]`.
pub(super) fn show(page: &mut Page, policy: &Policy) {
    page.heading(&format!("[policy.{}]", key(&policy.name)));
    page.key("by", array(policy.by.iter().map(|by| text(&limit_text::show_dimension(by)))));
    match &policy.tiers {
        Some(tiers) => {
            page.key("limit", text("tier"));
            page.key("default-tier", text(&tiers.default));
        }
        None => page.key("limit", show_windows(&policy.windows)),
    }
    // All windows of a policy have one algorithm, apart from concurrency limits.
    let mut algorithms = policy.windows.iter().map(Quota::algorithm);
    let algorithm = algorithms.find(|algorithm| *algorithm != Algorithm::Concurrency);
    let algorithm = algorithm.unwrap_or(Algorithm::TokenBucket);
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
    match policy.overshoot_ppm {
        0 => page.key("overshoot", 0),
        share => page.key("overshoot", text(&show_share(share))),
    }
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

fn show_windows(windows: &[Quota]) -> String {
    array(windows.iter().map(|window| text(&limit_text::show_window(window))))
}

pub(super) const WHEN_DOWN: [(&str, WhenDown); 3] =
    [("local", WhenDown::Local), ("allow", WhenDown::Allow), ("deny", WhenDown::Deny)];

/// The values of `algorithm`. Concurrency is not one of them: `in flight` in the limit selects it.
pub(super) const ALGORITHMS: [(&str, Algorithm); 5] = [
    ("token-bucket", Algorithm::TokenBucket),
    ("sliding-window", Algorithm::SlidingWindow),
    ("fixed-window", Algorithm::FixedWindow),
    ("sliding-log", Algorithm::SlidingLog),
    ("leaky-bucket", Algorithm::LeakyBucket),
];

/// Longer than any client retries.
const IDEMPOTENCY_WINDOW_MAX: Duration = Duration::from_secs(30 * 86_400);

/// A higher cost is surely a typing error, and sums of costs stay far from overflow.
const COST_MAX: u64 = 1_000_000_000;
