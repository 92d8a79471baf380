//! Answers as people read them: a list as a table, a row as a line for each of its fields.

use std::iter;

use serde_json::{Map, Value};

use super::call::Column;
use crate::columns::aligned;
use base::words;

/// The rows of a page, of what is called `of`, under their headings.
pub(super) fn list(of: &str, columns: &[Column], page: &Map<String, Value>) -> String {
    let rows = page.get("items").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    if rows.is_empty() {
        return match page.get("without-database").and_then(Value::as_bool) {
            Some(true) => format!("this gateway has no database, so there are no {of}\n"),
            _ => format!("no {of}\n"),
        };
    }
    let headings = columns.iter().map(|(heading, _)| (*heading).to_owned()).collect();
    let cells = rows.iter().map(|row| columns.iter().map(|(_, field)| shown(&row[*field])).collect());
    let mut text = aligned(iter::once(headings).chain(cells).collect());
    if page.contains_key("next") {
        text += "more rows exist: raise --limit\n";
    }
    if page.get("others").and_then(Value::as_array).is_some_and(|others| !others.is_empty()) {
        text += "some decisions were counted without a name: --json shows in which minutes\n";
    }
    text
}

/// A page with a row for each of what its rows have several of, beside their own fields; a row that has none stays.
pub(super) fn flat(of: &str, page: &Map<String, Value>) -> Map<String, Value> {
    let rows = page.get("items").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_object);
    let items = rows.flat_map(|row| {
        let inner = row.get(of).and_then(Value::as_array).filter(|inner| !inner.is_empty());
        let inner = inner.cloned().unwrap_or_else(|| vec![Value::Null]);
        inner.into_iter().map(|one| {
            let own = row.iter().filter(|(name, _)| *name != of);
            let own = own.map(|(name, value)| (name.clone(), value.clone()));
            let one = one.as_object().cloned().unwrap_or_default();
            Value::Object(own.chain(one).collect())
        })
    });
    let mut flat = page.clone();
    flat.insert("items".to_owned(), items.collect());
    flat
}

/// The fields of a row, but for those without a value.
pub(super) fn row(fields: &Map<String, Value>) -> String {
    let mut lines = Vec::new();
    add("", fields, &mut lines);
    aligned(lines)
}

fn add(prefix: &str, fields: &Map<String, Value>, lines: &mut Vec<Vec<String>>) {
    for (name, value) in fields {
        match value {
            Value::Null => {}
            Value::Object(inner) => add(&format!("{prefix}{name}."), inner, lines),
            Value::Array(values) if values.iter().any(Value::is_object) => lines.extend(
                values.iter().map(|value| vec![words::plain(&format!("{prefix}{name}")), in_line(value)]),
            ),
            value => lines.push(vec![words::plain(&format!("{prefix}{name}")), shown(value)]),
        }
    }
}

/// The fields that an element of a list has.
fn in_line(value: &Value) -> String {
    let Some(fields) = value.as_object() else { return shown(value) };
    let fields = fields.iter().filter(|(_, value)| !value.is_null());
    let fields = fields.map(|(name, value)| format!("{} {}", words::plain(name), shown(value)));
    fields.collect::<Vec<_>>().join(", ")
}

/// A value in one line. What somebody else has written must not steer the terminal.
fn shown(value: &Value) -> String {
    let text = match value {
        Value::Null => "-".to_owned(),
        Value::Array(values) if values.is_empty() => "-".to_owned(),
        Value::String(text) => text.clone(),
        Value::Array(values) => values.iter().map(shown).collect::<Vec<_>>().join(", "),
        other => other.to_string(),
    };
    words::plain(&text)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn object(value: Value) -> Map<String, Value> {
        match value {
            Value::Object(fields) => fields,
            _ => Map::new(),
        }
    }

    #[test]
    fn lists_are_tables() {
        let page = object(json!({ "items": [
            { "id": "1", "user-id": "ann", "value": 1000.0 },
            { "id": "22", "user-id": null, "value": 2.5, "more": "x" },
        ], "next": "22" }));
        let columns = [("ID", "id"), ("CONSUMER", "user-id"), ("VALUE", "value")];
        assert_eq!(
            list("rows", &columns, &page),
            "ID  CONSUMER  VALUE\n1   ann       1000.0\n22  -         2.5\nmore rows exist: raise --limit\n"
        );
        assert_eq!(list("overrides", &columns, &object(json!({ "items": [] }))), "no overrides\n");
        let page = object(json!({ "items": [], "without-database": true }));
        let said = "this gateway has no database, so there are no overrides\n";
        assert_eq!(list("overrides", &columns, &page), said);
    }

    #[test]
    fn rows_with_rows_are_a_line_for_each() {
        let page = object(json!({ "items": [
            { "policy": "a", "windows": [{ "limit": 1 }, { "limit": 2 }] },
            { "policy": "b", "windows": null },
        ] }));
        let columns = [("POLICY", "policy"), ("LIMIT", "limit")];
        assert_eq!(
            list("windows", &columns, &flat("windows", &page)),
            "POLICY  LIMIT\na       1\na       2\nb       -\n"
        );
    }

    #[test]
    fn rows_are_lines_and_no_text_steers_the_terminal() {
        let fields =
            object(json!({ "a": null, "b": ["x", 1], "long": { "c": true }, "d": "\u{1b}[2J\nrow" }));
        assert_eq!(row(&fields), "b       x, 1\nd       \u{fffd}[2J\u{fffd}row\nlong.c  true\n");
        let violated =
            json!({ "violated": [{ "limit": 2, "policy": "p", "wait": null }, { "limit": 9 }], "none": [] });
        assert_eq!(row(&object(violated)), "none      -\nviolated  limit 2, policy p\nviolated  limit 9\n");
        let turned = object(json!({ "claims": { "x\u{202e}": ["\u{2066}y"] } }));
        assert_eq!(row(&turned), "claims.x\u{fffd}  \u{fffd}y\n");
        let page = object(json!({ "items": [{ "who": "ann\u{202e}", "what": { "a\u{200b}": 1 } }] }));
        let text = list("rows", &[("WHO", "who"), ("WHAT", "what")], &page);
        assert_eq!(text, "WHO   WHAT\nann\u{fffd}  {\"a\u{fffd}\":1}\n");
    }
}
