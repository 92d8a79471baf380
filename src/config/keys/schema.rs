//! The JSON schema of gateway.toml, for editors and for checks without this program.
//!
//! It knows keys, types, words and ranges; what needs two keys or a file (names that exist, routes that tie) is for `check`.

use serde_json::{Value, json};

use super::process::ROOT;
use super::{Key, KeyDefault, Kind, Section};

pub fn schema() -> Value {
    let mut schema = of_section(&ROOT);
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema".into();
    schema["title"] = "gateway.toml".into();
    schema["description"] = "The keys of gateway.toml. None is required".into();
    schema
}

fn of_section(section: &Section) -> Value {
    let mut schema = json!({ "type": "object", "properties": {}, "additionalProperties": false });
    let mut required = Vec::new();
    for key in section.keys().filter(|key| key.is_of_files()) {
        schema["properties"][key.name] = of_key(key);
        match key.unwritten {
            KeyDefault::Required | KeyDefault::Needs(..) => required.push(key.name),
            KeyDefault::RequiredBut(other) => {
                schema["anyOf"] = json!([{ "required": [key.name] }, { "required": [other] }]);
            }
            KeyDefault::Beside(other) => schema["dependentRequired"] = json!({ key.name: [other] }),
            _ => {}
        }
    }
    if !required.is_empty() {
        schema["required"] = json!(required);
    }
    schema
}

fn of_key(key: &Key) -> Value {
    let mut schema = of_kind(&key.kind);
    let mut doc = without_links(&key.doc());
    match key.unwritten {
        KeyDefault::Value(text) | KeyDefault::ValueBeside(_, text) => schema["default"] = value(text),
        KeyDefault::Means(unwritten) => doc += &format!(" (if not written: {unwritten})"),
        _ => {}
    }
    schema["description"] = doc.into();
    schema
}

/// A value as a row has it.
pub fn value(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|_| text.into())
}

fn of_kind(kind: &Kind) -> Value {
    let any = |several: &[Value]| json!({ "anyOf": several });
    let text = json!({ "type": "string" });
    match kind {
        Kind::Text | Kind::Path | Kind::Secret | Kind::Url => text,
        Kind::Field(inner) | Kind::Entry(inner) => of_kind(inner),
        Kind::Texts => any(&[text.clone(), json!({ "type": "array", "items": text })]),
        Kind::Bool => json!({ "type": "boolean" }),
        Kind::Only(only) => json!({ "const": value(only) }),
        Kind::Word(word) => json!({ "const": word }),
        Kind::Words(words) => json!({ "enum": words() }),
        Kind::Pattern(pattern) => with_pattern(pattern),
        Kind::Number(min, max) => any(&[
            json!({ "type": "integer", "minimum": min, "maximum": max }),
            json!({ "type": "string", "pattern": r"\$\{" }),
        ]),
        Kind::Size(min, max) => any(&[
            json!({ "type": "integer", "minimum": min, "maximum": max }),
            with_pattern("^[0-9][0-9_]* ?([KMGT]i?)?B?$"),
        ]),
        Kind::Time(_) | Kind::TimeWithin(..) => with_pattern("^([0-9][0-9_]*(ms|s|m|h|d))+$"),
        Kind::TimeOrOff(_) => with_pattern("^(([0-9][0-9_]*(ms|s|m|h|d))+|off)$"),
        Kind::Share => with_pattern(r"^[0-9]+(\.[0-9]+)?%$"),
        Kind::Table(section) => of_section(section),
        Kind::Open(section, other) => {
            let mut schema = of_section(section);
            schema["additionalProperties"] = of_kind(other);
            schema
        }
        Kind::Map(inner) => json!({ "type": "object", "additionalProperties": of_kind(inner) }),
        Kind::Tagged(sections) => {
            let of_one = |(word, section): &(&str, &Section)| {
                let mut schema = of_section(section);
                schema["properties"]["kind"]["const"] = json!(word);
                schema
            };
            any(&sections.iter().map(of_one).collect::<Vec<_>>())
        }
        Kind::List(inner) => json!({ "type": "array", "items": of_kind(inner) }),
        Kind::Any(several) => any(&several.iter().map(of_kind).collect::<Vec<_>>()),
        Kind::Elsewhere(..) | Kind::Added(_) => json!(false),
    }
}

/// A text of a form. One with a reference may become anything.
fn with_pattern(pattern: &str) -> Value {
    json!({ "type": "string", "pattern": format!(r"{pattern}|\$\{{") })
}

/// Markdown without what it links to. The words of a link may have brackets of their own: [`[redis]`](redis.md).
fn without_links(text: &str) -> String {
    let Some((before, link)) = text.split_once("](") else { return text.to_owned() };
    let mut open = 1;
    let begins = before.rfind(|sign| {
        open += i32::from(sign == ']') - i32::from(sign == '[');
        open == 0
    });
    match (begins, link.split_once(')')) {
        (Some(begins), Some((_, behind))) => {
            format!("{}{}{}", &before[..begins], &before[begins + 1..], without_links(behind))
        }
        _ => text.to_owned(),
    }
}
