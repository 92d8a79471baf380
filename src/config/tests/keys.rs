//! The keys' rows: what the reader takes, what the schema says and what docs/configuration.md shows is one.

use serde_json::Value;

use crate::keys::process::ROOT;
use crate::keys::schema::schema;
use crate::keys::{Kind, Section};

/// What a table must hold beside the key in question, so that it is read to its end.
const BESIDE: &[(&str, &str)] = &[
    ("listener", "bind = \"127.0.0.1:0\""),
    ("listener.certs acme", "acme = \"https://a\"\nnames = \"a.example\"\nagree = true"),
    ("policy", "by = \"ip\"\nlimit = \"tier\""),
    ("upstream.health", "path = \"/\""),
    ("redis", "topology = \"ring\""),
    ("redis.ring", "shards = [{ url = \"redis://a\" }]"),
    ("auth jwt", "jwks = \"https://a\"\nalgorithms = \"ES256\""),
];

/// Keys of which one stands in the place of the other.
const INSTEAD: &[(&str, &str)] = &[("keys", "jwks"), ("secret", "jwks"), ("tcp", "path"), ("grpc", "path")];

/// Makes a document of the value of a key.
type Around<'a> = &'a dyn Fn(toml::Value) -> toml::Value;

/// Each key in a value of a kind: its path, and a document in which it is a date, which no key takes.
fn walk(kind: &Kind, path: &str, around: Around<'_>, found: &mut Vec<(String, String)>) {
    match kind {
        Kind::Table(section) | Kind::Open(section, _) => walk_section(section, path, "", around, found),
        Kind::ByKind(several) => {
            several.iter().for_each(|(word, section)| walk_section(section, path, word, around, found));
        }
        Kind::Any(several) => several.iter().for_each(|one| walk(one, path, around, found)),
        Kind::List(of) => walk(of, path, &|value| around(toml::Value::Array(vec![value])), found),
        Kind::Map(of) => {
            let named = |value| around(toml::Value::Table([("n".to_owned(), value)].into_iter().collect()));
            walk(of, path, &named, found);
        }
        _ => {}
    }
}

fn walk_section(
    section: &Section,
    path: &str,
    kind: &str,
    around: Around<'_>,
    found: &mut Vec<(String, String)>,
) {
    let apart = if section.key("acme").is_some() { "acme" } else { kind };
    let name = if apart.is_empty() { path.to_owned() } else { format!("{path} {apart}") };
    let beside = BESIDE.iter().find(|(known, _)| *known == name).map_or("", |(_, beside)| beside);
    for key in section.keys().filter(|key| key.is_of_files()) {
        let inside = |value| {
            let mut table: toml::Table = beside.parse().expect("it is TOML");
            if !kind.is_empty() {
                table.insert("kind".to_owned(), kind.into());
            }
            if let Some((_, other)) = INSTEAD.iter().find(|(known, _)| *known == key.name) {
                table.remove(*other);
            }
            table.insert(key.name.to_owned(), value);
            around(table.into())
        };
        let path = format!("{name}.{}", key.name);
        walk(&key.kind, &path, &inside, found);
        found.push((path, toml::to_string(&inside(date())).expect("it is TOML")));
    }
}

fn date() -> toml::Value {
    toml::Value::Datetime("1979-05-27".parse().expect("it is a date"))
}

#[test]
fn every_key_of_the_rows_is_read() {
    let mut found = Vec::new();
    for key in ROOT.keys().filter(|key| key.is_of_files()) {
        let whole = |value| {
            let mut table: toml::Table = "tier = { t = { limit = \"1/s\" } }".parse().expect("it is TOML");
            table.insert(key.name.to_owned(), value);
            toml::Value::Table(table)
        };
        walk(&key.kind, key.name, &whole, &mut found);
        found.push((key.name.to_owned(), toml::to_string(&whole(date())).expect("it is TOML")));
    }
    assert!(found.len() > 250, "only {} keys were found", found.len());
    let mut unread = String::new();
    // Other files are looked for before anything is read.
    for (path, document) in found.iter().filter(|(path, _)| path != "include") {
        let said = crate::from_text("gateway.toml", document).err().map(|errors| errors.to_string());
        let said = said.unwrap_or_default();
        // Its line is drawn only if something is wrong with it, with a mask if it may be a secret.
        let is_drawn = said.contains("1979-05-27") || said.contains("= **********");
        if !is_drawn || said.contains("unknown key") {
            unread += &format!("{path} in {document}\n{said}\n");
        }
    }
    assert!(unread.is_empty(), "{unread}");
}

#[test]
fn every_key_has_its_sentence_in_the_schema() {
    fn walk(schema: &Value, path: &str, missing: &mut Vec<String>, count: &mut usize) {
        if let Some(properties) = schema.get("properties").and_then(Value::as_object) {
            for (name, property) in properties {
                *count += 1;
                let is_described = property["description"]
                    .as_str()
                    .is_some_and(|text| text.len() > 2 && !text.contains("]("));
                if !is_described {
                    missing.push(format!("{path}.{name}"));
                }
            }
        }
        match schema {
            Value::Object(inner) => {
                inner.iter().for_each(|(key, one)| walk(one, &format!("{path}.{key}"), missing, count))
            }
            Value::Array(inner) => inner.iter().for_each(|one| walk(one, path, missing, count)),
            _ => {}
        }
    }
    let (mut missing, mut count) = (Vec::new(), 0);
    walk(&schema(), "", &mut missing, &mut count);
    assert!(count > 300, "only {count} keys were found");
    assert!(missing.is_empty(), "{missing:?}");
}

#[test]
fn a_key_that_is_called_a_secret_is_one() {
    fn walk(kind: &'static Kind, path: &str, wrong: &mut Vec<String>) {
        let mut inside = |section: &'static Section| {
            for key in section.keys() {
                let path = format!("{path}.{}", key.name);
                let is_text = key.kind.each().iter().any(|kind| matches!(kind, Kind::Text | Kind::Texts));
                if is_text && crate::mask::is_secret_key(key.name) {
                    wrong.push(path.clone());
                }
                walk(&key.kind, &path, wrong);
            }
        };
        match kind {
            Kind::Table(section) | Kind::Open(section, _) => inside(section),
            Kind::ByKind(several) => several.iter().for_each(|(_, section)| inside(section)),
            Kind::Any(several) => several.iter().for_each(|one| walk(one, path, wrong)),
            Kind::List(of) | Kind::Map(of) => walk(of, path, wrong),
            _ => {}
        }
    }
    let mut wrong = Vec::new();
    ROOT.keys().for_each(|key| walk(&key.kind, key.name, &mut wrong));
    assert!(wrong.is_empty(), "{wrong:?}");
}
