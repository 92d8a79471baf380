//! Reads `[policy.*]`, and the shorthands of routes that expand to a policy.

use std::time::Duration;

use limit::{Algorithm, Penalty, Quota};
use policy::counting::{is_of_label, shorthand};
use policy::definition::{
    Dimension, HotKeyRules, Idempotency, LimitOrigin, MatchesDefinition, PolicyDefinition, TierDefinition,
};

use crate::keys::policy::{HEADERS, MISSING, WHEN_DOWN};
use crate::limits::tier_table::TierTable;
use crate::limits::tiers;
use crate::limits::tiers::Base;
use crate::limits::windows::{Counting, counting, dimension, overshoot, window};
use crate::limits::{candidate, cost, count, exempt, limit_text, time_zone};
use crate::load::report::Fields;
use crate::load::sections;
use crate::load::sections::NamedTable;
use crate::load::text::Text;
use crate::reader::{Table, Value};
use crate::routes::method;

pub(crate) fn read_all(
    documents: &[Table<'_>],
    tiers: &[TierDefinition],
    rows: &TierTable<'_>,
) -> (Vec<PolicyDefinition>, Vec<Fields>) {
    let mut policies = Vec::new();
    let mut places = Vec::new();
    for named in candidate::on_top(sections::named(documents, "policy")) {
        let (mut fields, checkpoint) = (named.table.places(), named.table.checkpoint());
        policies.push(read(named, tiers, rows));
        fields.is_flawed = checkpoint.is_flawed();
        places.push(fields);
    }
    let names: Vec<&str> = policies.iter().map(|policy| policy.name.as_str()).collect();
    rows.check(&names);
    (policies, places)
}

/// The policy that a shorthand on a route expands to.
pub(crate) fn of_shorthand(name: String, text: &Text<'_>) -> Option<PolicyDefinition> {
    let (window, by) = window(text, Counting::default(), |problem| problem.hint().into_owned())?;
    Some(PolicyDefinition { by, ..PolicyDefinition::new(name, vec![window]) })
}

fn read(named: NamedTable<'_>, tiers: &[TierDefinition], rows: &TierTable<'_>) -> PolicyDefinition {
    let table = named.table;
    let mut policy = PolicyDefinition::new(named.name, Vec::new());
    policy.origin = if table.is_added() { LimitOrigin::Database } else { LimitOrigin::File };
    policy.origin.sentence().into_iter().for_each(|origin| table.spell_comment(origin));
    match table.value("by") {
        Some(value) => policy.by = value.texts().iter().filter_map(dimension).collect(),
        // No error here, because a candidate of a policy that is not there is reported when both are compiled.
        None if table.has("replaces") => {}
        None => table.lacks(
            &["by"],
            "a policy needs `by`: the dimensions that it counts by",
            "write `by = [\"ip\"]`, or `by = []` to count all requests together",
        ),
    }
    if let Some(value) = table.value("overshoot") {
        policy.overshoot_ppm = overshoot(&value).unwrap_or_default();
    }
    table.word("missing", &MISSING, &mut policy.missing);
    table.boolean("shadow", &mut policy.shadow);
    table.word("headers", &HEADERS, &mut policy.is_hidden);
    policy.shown_as = table.value("shown-as").and_then(|value| shown_as(&value));
    table.boolean("count-denied", &mut policy.count_denied);
    table.word("when-redis-down", &WHEN_DOWN, &mut policy.when_down);
    let base = Base {
        policy: &policy.name,
        counting: counting(&table, Counting::default()),
        overshoot_ppm: policy.overshoot_ppm,
        when_down: policy.when_down,
        origin: policy.origin,
    };
    if let Some(limit) = table.value("limit") {
        (policy.windows, policy.tiers) = tiers::divide(&table, &limit, &base, tiers, rows);
        time_zone::warn_if_unused(&table, &policy.windows);
    }
    policy.anchor_claim = table.value("anchor-claim").and_then(|claim| claim_name(&claim.text()?));
    if let Some(matches) = table.table("match") {
        policy.matches = read_matches(matches);
    }
    if let Some(value) = table.value("cost") {
        read_cost(&value, &mut policy);
    }
    if let Some(exempted) = table.table("exempt") {
        policy.exempt = exempt::read(&exempted, tiers, &policy);
    }
    if let Some(value) = table.value("idempotency-key") {
        policy.idempotency = shared_idempotency(&value, &policy.by);
    }
    count::read(&table, &mut policy);
    if let Some(table) = table.table("penalty") {
        policy.penalty = penalty(table, &policy.windows);
    }
    if let Some(table) = table.table("hot-keys") {
        policy.hot_keys = hot_keys(table);
    }
    policy.replaces = candidate::read(&table);
    policy
}

/// Refused where clients share a key, because any of them could repeat it for ever.
fn shared_idempotency(value: &Value<'_>, by: &[Dimension]) -> Option<Idempotency> {
    let idempotency = idempotency(value);
    if idempotency.as_ref().is_some_and(|idempotency| !idempotency.by_address) && is_shared(by) {
        value.wrong(
            if by.contains(&Dimension::Ip) {
                "a policy that counts by address cannot have `idempotency-key`: anyone at an address could \
                 repeat one key and never be charged again"
            } else {
                "a policy that counts all clients together cannot have `idempotency-key`: anyone could repeat \
                 one key and never be charged again"
            },
            "count by `consumer`, or write `by-address = true` beside `key` if the upstream recognises repeated \
             keys",
        );
    }
    idempotency
}

fn read_cost(value: &Value<'_>, policy: &mut PolicyDefinition) {
    policy.cost = cost::read(value);
    let mut windows = policy.windows.iter();
    // An error, because what is in flight has no cost that is known only when it is over.
    if policy.cost.actual.is_some() && windows.any(|it| it.algorithm() == Algorithm::Concurrency) {
        value.wrong_key(
            "a limit of requests in flight cannot have a cost that is known only after the response",
            "move the limit of requests in flight to a policy of its own, without this cost",
        );
    }
}

/// The name of a claim, which has no prefix here, as it has where other things may stand beside it.
fn claim_name(text: &Text<'_>) -> Option<String> {
    let name = text.text.strip_prefix("claim:").unwrap_or(&text.text);
    if name.is_empty() || name != text.text {
        let example = if name.is_empty() { "billing-day" } else { name };
        text.wrong("this is not the name of a claim", format!("write `anchor-claim = \"{example}\"`"));
        return None;
    }
    Some(name.to_owned())
}

/// A name that may stand in a header as it is written.
fn shown_as(value: &Value<'_>) -> Option<String> {
    let text = value.text()?;
    if text.text.is_empty() || !text.text.chars().all(is_of_label) {
        text.wrong(
            format!("{} is not valid in a header", text.shown()),
            "write letters, digits and signs of ASCII, without quotation marks and backslashes",
        );
    }
    Some(text.text)
}

fn read_matches(table: Table<'_>) -> MatchesDefinition {
    let methods = table.value("method").map(|value| method::list(&value)).unwrap_or_default();
    let path = table.value("path").and_then(|value| value.text());
    MatchesDefinition { methods, path: path.map(|text| text.text) }
}

/// `"header:idempotency-key"`, or a table of that as `key` and a `window`.
fn idempotency(value: &Value<'_>) -> Option<Idempotency> {
    let mut window = Idempotency::WINDOW;
    if !value.is_table() {
        let header = value.text().and_then(|text| key_header(&text))?;
        return Some(Idempotency { header, window, by_address: false });
    }
    let table = value.table()?;
    let header = table.value("key").and_then(|value| value.text()).and_then(|text| key_header(&text));
    let mut by_address = false;
    table.duration("window", &mut window);
    table.boolean("by-address", &mut by_address);
    let window = window.min(IDEMPOTENCY_WINDOW_MAX);
    Some(Idempotency { header: header?, window, by_address })
}

/// Whether clients are known by nothing but their addresses, or by nothing at all.
fn is_shared(by: &[Dimension]) -> bool {
    let is_everybody_s =
        |it: &Dimension| matches!(it, Dimension::Route | Dimension::Method | Dimension::Host);
    (by.contains(&Dimension::Ip) && !by.iter().any(Dimension::needs_identity))
        || by.iter().all(is_everybody_s)
}

fn key_header(text: &Text<'_>) -> Option<http::HeaderName> {
    let name = text.text.strip_prefix("header:");
    let name = name.and_then(|name| http::HeaderName::from_bytes(name.as_bytes()).ok());
    if name.is_none() {
        text.wrong(
            format!("{} does not name the header of an idempotency key", text.shown()),
            "write `\"header:idempotency-key\"`",
        );
    }
    name.iter().for_each(|name| text.spell(format!("header:{name}")));
    name
}

/// `{ after = 20, within = "1m", factor = 2, max = "1h" }`, all but `after` with a default.
fn penalty(table: Table<'_>, windows: &[Quota]) -> Option<Penalty> {
    let (mut after, mut factor) = (0, 2);
    let (mut within, mut max) = (Duration::from_secs(60), Duration::from_secs(3_600));
    table.number("after", &mut after);
    table.duration("within", &mut within);
    table.number("factor", &mut factor);
    table.duration("max", &mut max);
    if !windows.is_empty() && windows.iter().all(|window| window.algorithm() == Algorithm::Concurrency) {
        table.wrong(
            "`penalty` cannot be combined with a limit of requests in flight, whose refusals have no `Retry-After`",
            "leave `penalty` out, or write a limit over time",
        );
    }
    let within_ns = u64::try_from(within.as_nanos()).unwrap_or(u64::MAX);
    // Penalties are whole seconds, because `Retry-After` is.
    let max_seconds = u32::try_from(max.as_millis().div_ceil(1_000)).unwrap_or(u32::MAX);
    (after > 0).then(|| Penalty::new(after, within_ns, factor, max_seconds))
}

/// `{ above = "5%", then = "report" }`, both with a default.
fn hot_keys(table: Table<'_>) -> HotKeyRules {
    let mut hot_keys = HotKeyRules::default();
    table.share("above", &mut hot_keys.above_ppm);
    table.set("then", &mut hot_keys.local_only, local_only);
    hot_keys
}

fn local_only(value: Value<'_>) -> Option<Option<Quota>> {
    let then = value.text()?;
    if then.text == REPORT {
        return Some(None);
    }
    let limit = then.text.strip_prefix(LOCAL_ONLY).and_then(|limit| shorthand::parse(limit.trim()).ok());
    let is_plain = |limit: &shorthand::Shorthand| {
        // By the calendar neither, because a key is hot for a short while.
        let window = &limit.window;
        limit.by.is_empty() && window.algorithm() != Algorithm::Concurrency && window.calendar().is_none()
    };
    let limit = limit.filter(is_plain);
    if limit.is_none() {
        let hint = "write `\"report\"`, or a limit for each node, for example `\"local-only:1000/m\"`";
        then.wrong(format!("{} is not a valid action for hot keys", then.shown()), hint);
    }
    let window = limit?.window;
    then.spell(format!("{LOCAL_ONLY}{}", limit_text::show_window(&window)));
    Some(Some(window))
}

const REPORT: &str = "report";
const LOCAL_ONLY: &str = "local-only:";
/// A longer window is cut to this, because no client retries for so long.
const IDEMPOTENCY_WINDOW_MAX: Duration = Duration::from_secs(30 * 86_400);
