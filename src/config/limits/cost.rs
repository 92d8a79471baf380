//! Reads `cost` of a policy: what a request costs, who says so, and when.

use std::num::NonZeroU64;

use policy::definition::{Actual, CostDefinition, MeasuredUnits};
use policy::json::{self, JsonPath, PathError};

use crate::load::report::quoted;
use crate::load::text::Text;
use crate::reader::Value;
use crate::routes::method;

/// A number, or a table of a default, `"METHOD /path"` or `"/path"` with a number each, and who else says it.
pub(crate) fn read(value: &Value<'_>) -> CostDefinition {
    let mut cost = CostDefinition::default();
    if !value.is_table() {
        cost.default = units(value).unwrap_or(cost.default);
        return cost;
    }
    let Some(table) = value.table() else { return cost };
    let (mut actual, mut measured) = (Vec::new(), MeasuredUnits::default());
    let mut default = None;
    let entries = table.entries();
    let has_default = entries.iter().any(|entry| entry.key == "default");
    for entry in entries {
        match entry.key.as_str() {
            "default" => default = units(&entry),
            "header" => cost.header = entry.text().and_then(|text| header_name(&text)),
            "max" => cost.max = units(&entry),
            "estimate" if !entry.is_integer() => {
                cost.estimate = entry.texts().iter().filter_map(body_path).collect();
            }
            "estimate" => {
                if has_default {
                    entry.wrong_key(
                        "`estimate` as a number and `default` say the same",
                        "remove one of them, or write `estimate = \"body:max_tokens\"`",
                    );
                }
                default = units(&entry);
                table.spell("estimate", "");
                table.spell("default", default.map(|units| units.to_string()).unwrap_or_default());
            }
            "response-header" => {
                let name = entry.text().and_then(|text| header_name(&text));
                actual.extend(name.map(Actual::ResponseHeader));
            }
            "response-json" => {
                let paths = Some(answer_paths(&entry)).filter(|paths| !paths.is_empty());
                actual.extend(paths.map(Actual::ResponseJson));
            }
            "request-bytes" => measured.request_bytes = entry.size().and_then(NonZeroU64::new),
            "response-bytes" => measured.response_bytes = entry.size().and_then(NonZeroU64::new),
            "response-time" => measured.response_time = entry.duration(),
            written => read_rule(&entry, written, &mut cost),
        }
    }
    cost.default = default.unwrap_or(cost.default);
    actual.extend(Some(measured).filter(|it| *it != MeasuredUnits::default()).map(Actual::Measured));
    if actual.len() > 1 {
        table.wrong(
            "a cost has one source: a response header, JSON of the response, or measurements",
            "keep `response-header`, `response-json` or the group of `request-bytes`, `response-bytes` and \
             `response-time`, or write a policy for each",
        );
    }
    cost.actual = actual.pop();
    cost
}

fn answer_paths(entry: &Value<'_>) -> Vec<JsonPath> {
    let texts = entry.texts();
    if texts.is_empty() || texts.len() > PATHS_MAX {
        entry.wrong(
            format!("`response-json` takes from 1 to {PATHS_MAX} paths"),
            "write `response-json = \"usage.total_tokens\"`",
        );
    }
    let parse = |text: &Text<'_>| path(text, &text.text, JsonPath::parse_with_lists);
    texts.iter().filter_map(parse).collect()
}

fn read_rule(entry: &Value<'_>, written: &str, cost: &mut CostDefinition) {
    let rule = cost_rule(written);
    let units = entry.integer();
    match (rule, units) {
        (Some((method, path)), Some(units)) => cost.rules.push((method, path, units)),
        (None, _) => entry.wrong_key(
            format!("{} is not a key of `cost`", quoted(written)),
            "write `default`, `estimate`, `header`, `response-header`, `response-json`, `request-bytes`, \
             `response-bytes`, `response-time`, `max`, `\"/path\"` or `\"METHOD /path\"`",
        ),
        (Some(_), None) => {}
    }
}

pub(crate) fn header_name(text: &Text<'_>) -> Option<http::HeaderName> {
    let name = http::HeaderName::from_bytes(text.text.as_bytes()).ok();
    if name.is_none() {
        text.wrong(format!("{} is not the name of a header", text.shown()), "write one like `x-cost`");
    }
    name.iter().for_each(|name| text.spell(name));
    name
}

fn body_path(text: &Text<'_>) -> Option<JsonPath> {
    let Some(field) = text.text.strip_prefix("body:") else {
        text.wrong(format!("{} is not a valid `estimate`", text.shown()), "write a number or `body:FIELD`");
        return None;
    };
    path(text, field, JsonPath::parse)
}

/// A path in JSON, which is all of a text or its end.
fn path(text: &Text<'_>, written: &str, parse: fn(&str) -> Result<JsonPath, PathError>) -> Option<JsonPath> {
    parse(written)
        .map_err(|error| {
            let message = format!("{} is not a path in JSON: {error}", text.shown());
            let meant = json::translated(written);
            let prefix = text.text.strip_suffix(written).unwrap_or_default();
            let hint = match parse(&meant).ok().filter(|_| error == PathError::Foreign) {
                Some(path) if path.adds_up_at().is_some() => {
                    format!("write `{prefix}{meant}`, where `*` adds up all elements of a list")
                }
                Some(_) if !meant.contains('*') => format!("write `{prefix}{meant}`"),
                _ => "write names with dots between, for example `usage.total_tokens`".to_owned(),
            };
            text.wrong(message, hint);
        })
        .ok()
}

fn cost_rule(key: &str) -> Option<(Option<http::Method>, String)> {
    let (method, path) = match key.split_once(' ') {
        Some((method, path)) => (Some(method::parse(method).ok()?), path.trim_start()),
        None => (None, key),
    };
    path.starts_with('/').then(|| (method, path.to_owned()))
}

fn units(value: &Value<'_>) -> Option<NonZeroU64> {
    value.integer().and_then(NonZeroU64::new)
}

/// More numbers than any answer adds up.
const PATHS_MAX: usize = 8;
