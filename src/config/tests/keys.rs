//! The keys' rows: what the reader takes, what the schema says and what docs/reference/configuration/ shows is one.

use serde_json::Value;

use crate::LoadedConfig;
use crate::reader::canonical_text::Canonical;
use crate::settings::Config;

use crate::keys::process::ROOT;
use crate::keys::schema::{schema, value};
use crate::keys::{KeyDefault, Kind, Section};
use base::units;

/// What a table must hold beside the key in question, so that it is read to its end.
const BESIDE: &[(&str, &str)] = &[
    ("listener", "bind = \"127.0.0.1:0\""),
    ("listener.certs acme", "acme = \"https://a\"\nnames = \"a.example\"\nagree = true"),
    ("listener.certs", "cert = \"a\"\nkey = \"b\""),
    ("listener.redirect", "to = \"https\""),
    ("admin.certs", "cert = \"a\"\nkey = \"b\""),
    ("admin.grpc", "bind = \"127.0.0.1:0\""),
    ("auth api-key", "keys = \"database\""),
    ("auth jwt", "jwks = \"https://a\"\nalgorithms = \"ES256\""),
    ("auth mtls", "consumer = \"san:email\""),
    ("auth basic", "users = { file = \"a\" }"),
    ("upstream", "servers = \"http://a\""),
    ("upstream.servers", "url = \"http://a\""),
    ("upstream.sticky", "cookie = \"a\"\nsecret = \"b\""),
    ("upstream.health", "path = \"/\""),
    ("policy", "by = \"ip\"\nlimit = \"tier\""),
    ("policy.idempotency-key", "key = \"header:a\"\nby-address = true"),
    ("policy.penalty", "after = 1"),
    ("route", "to = \"http://a\""),
    ("route.redirect", "to = \"/a\""),
    ("route.mirror", "to = \"http://b\""),
    ("route.cors", "origins = \"*\""),
    ("rls", "descriptors = []"),
    ("rls.descriptors", "entries = { a = \"*\" }\nlimit = \"1/s\""),
    ("redis", "url = \"redis://a\""),
    ("redis.ring", "shards = [{ url = \"redis://a\" }]"),
    ("redis.ring.shards", "url = \"redis://a\""),
    ("database", "url = \"sqlite:a\""),
    ("log.access.to", "syslog = \"syslog\""),
    ("log.decisions.to", "syslog = \"syslog\""),
    ("trace", "otlp = \"http://a\""),
];

/// Keys, and those that cannot stand beside them.
const INSTEAD: &[(&str, &str)] = &[
    ("keys", "jwks"),
    ("secret", "jwks"),
    ("tcp", "path"),
    ("grpc", "path"),
    ("ring", "url"),
    ("respond", "to"),
    ("redirect", "to"),
    ("unlimited", "limit"),
    ("deny", "limit"),
];

/// What `--effective` does not print where it is not written: a text says it all, or nothing uses it.
const UNSHOWN: &[&str] = &["compress", "route.compress", "auth jwt.tls"];

/// Makes a document of the value of a key.
type Around<'a> = &'a dyn Fn(toml::Value) -> toml::Value;

/// A key: its path, and documents in which it is a date, which no key takes; in which it has the value that holds if it is
/// not written, if there is one; and in which it is not written.
struct KeyCase {
    path: String,
    as_date: String,
    as_unwritten: Option<String>,
    /// The same value in other words.
    respelled: Vec<String>,
    absent: String,
    /// Documents in which it is, or holds, this secret.
    secrets: Vec<String>,
    /// Whether `--effective` shows the value where it is not written.
    is_shown: bool,
}

/// The keys in a value of a kind.
fn walk(kind: &'static Kind, path: &str, around: Around<'_>, found: &mut Vec<KeyCase>) {
    match kind {
        Kind::Table(section) | Kind::Open(section, _) => walk_section(section, path, "", around, found),
        Kind::Tagged(several) => {
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
    section: &'static Section,
    path: &str,
    kind: &str,
    around: Around<'_>,
    found: &mut Vec<KeyCase>,
) {
    let apart = if section.key("acme").is_some() { "acme" } else { kind };
    let name = if apart.is_empty() { path.to_owned() } else { format!("{path} {apart}") };
    let beside = BESIDE.iter().find(|(known, _)| *known == name).map_or("", |(_, beside)| beside);
    for key in section.keys().filter(|key| key.is_of_files()) {
        let with = |value: Option<toml::Value>| {
            let mut table: toml::Table = beside.parse().expect("it is TOML");
            if !kind.is_empty() {
                table.insert("kind".to_owned(), kind.into());
            }
            for (_, other) in INSTEAD.iter().filter(|(known, _)| *known == key.name) {
                table.remove(*other);
            }
            if key.name == "ring" {
                table.insert("topology".to_owned(), "ring".into());
            }
            table.extend(value.map(|value| (key.name.to_owned(), value)));
            around(table.into())
        };
        let path = format!("{name}.{}", key.name);
        walk(&key.kind, &path, &|value| with(Some(value)), found);
        let text = |value: Option<toml::Value>| toml::to_string(&with(value)).expect("it is TOML");
        let unwritten = unwritten(&key.unwritten);
        let respelled = unwritten.iter().flat_map(|value| respelled(&key.kind, value)).map(Some);
        let respelled = respelled.map(text).collect();
        let (as_unwritten, as_date) = (unwritten.map(|value| text(Some(value))), text(Some(date())));
        let is_shown = !matches!(key.unwritten, KeyDefault::ValueBeside(..));
        let secrets = SECRETS.iter().flat_map(|secret| secrets(&key.kind, secret));
        let secrets = secrets.map(|value| text(Some(value))).collect();
        let absent = text(None);
        found.push(KeyCase { path, as_date, as_unwritten, respelled, secrets, absent, is_shown });
    }
}

/// The value that holds if a key is not written.
fn unwritten(unwritten: &KeyDefault) -> Option<toml::Value> {
    let (KeyDefault::Value(text) | KeyDefault::ValueBeside(_, text)) = unwritten else { return None };
    toml::Value::try_from(value(text)).ok()
}

/// A secret as it may be written, in the file or elsewhere.
const SECRETS: [&str; 6] =
    ["hunter2", "redis-hunter2", "redis:/hunter2/redis", "${SECRET}", "${secret:PLAIN}", "a${LONG_SECRET}b"];

/// Values that are, or hold, a secret.
fn secrets(kind: &'static Kind, secret: &str) -> Vec<toml::Value> {
    match kind {
        Kind::Secret | Kind::Field(_) | Kind::Entry(_) => vec![secret.into()],
        Kind::Url => {
            let urls = [
                "redis://me:SECRET@h",
                "rediss://:SECRET@h/1",
                "redis://SECRET@h",
                "postgres://me:SECRET@h/d",
            ];
            let broken = ["redis//me:SECRET@h", "me:SECRET@h", "redis://me:SECRET@h:port"];
            urls.iter().chain(&broken).map(|url| url.replace("SECRET", secret).into()).collect()
        }
        Kind::Map(of) => {
            let named = |value| toml::Table::from_iter([("x-token".to_owned(), value)]).into();
            secrets(of, secret).into_iter().map(named).collect()
        }
        Kind::Any(several) => several.iter().flat_map(|one| secrets(one, secret)).collect(),
        _ => Vec::new(),
    }
}

/// Other words for a value, as its kind has them.
fn respelled(kind: &'static Kind, value: &toml::Value) -> Vec<toml::Value> {
    let text = value.as_str().unwrap_or_default();
    let one = |kind: &'static Kind| -> Option<toml::Value> {
        Some(match kind {
            Kind::Texts => match value.as_array().map(Vec::as_slice) {
                Some([only]) => only.clone(),
                Some(_) => return None,
                None => vec![value.clone()].into(),
            },
            Kind::Time(_) | Kind::TimeWithin(..) | Kind::TimeOrOff(_) => {
                format!("{}ms", units::duration(text).ok()?.as_millis()).into()
            }
            Kind::Size(..) => i64::try_from(units::size(text).ok()?).ok()?.into(),
            Kind::Share => text.strip_suffix('%').map(|number| format!("{number}.0%"))?.into(),
            _ => return None,
        })
    };
    let table = match kind.each() {
        [Kind::Text | Kind::Number(..), Kind::Table(section) | Kind::Open(section, _)] => {
            section.keys.first()
        }
        _ => None,
    };
    let table = table.map(|row| toml::Table::from_iter([(row.name.to_owned(), value.clone())]).into());
    kind.each().iter().filter_map(one).chain(table).collect()
}

fn date() -> toml::Value {
    toml::Value::Datetime("1979-05-27".parse().expect("it is a date"))
}

/// Every key but those of the whole file.
fn all() -> Vec<KeyCase> {
    let mut found = Vec::new();
    for key in ROOT.keys().filter(|key| key.is_of_files()) {
        let whole = |value| {
            let mut table: toml::Table = "tier = { t = { limit = \"1/s\" } }".parse().expect("it is TOML");
            table.insert(key.name.to_owned(), value);
            toml::Value::Table(table)
        };
        walk(&key.kind, key.name, &whole, &mut found);
    }
    assert!(found.len() > 250, "only {} keys were found", found.len());
    found
}

#[test]
fn every_key_of_the_rows_is_read() {
    let mut unread = String::new();
    for KeyCase { path, as_date, .. } in all() {
        let said = crate::from_text("gateway.toml", &as_date).err().map(|errors| errors.to_string());
        let said = said.unwrap_or_default();
        // Its line is drawn only if something is wrong with it, with a mask if it may be a secret.
        let is_drawn = said.contains("1979-05-27") || said.contains("= ********\n");
        if !is_drawn || said.contains("unknown key") {
            unread += &format!("{path} in {as_date}\n{said}\n");
        }
    }
    assert!(unread.is_empty(), "{unread}");
}

#[test]
fn what_holds_if_a_key_is_not_written_is_what_its_row_says() {
    let read = |text: &str| crate::from_text("gateway.toml", text).map(|loaded| loaded.config);
    let values = |config: &Config| Config { canonical: Canonical::default(), ..config.clone() };
    let (mut wrong, mut compared) = (String::new(), 0);
    for KeyCase { path, as_unwritten, respelled, absent, is_shown, .. } in all() {
        let Some(as_unwritten) = as_unwritten else { continue };
        match (read(&as_unwritten), read(&absent)) {
            (Ok(written), Ok(absent)) if values(&written) == values(&absent) => {
                compared += 1;
                let key = path.rsplit('.').next().unwrap_or_default();
                let is_shown = is_shown && !UNSHOWN.iter().any(|unshown| path.starts_with(unshown));
                if is_shown && !absent.page().contains(&format!("{key} = ")) {
                    wrong += &format!("{path} is not shown\n");
                }
                if is_shown && absent.page() != written.page() {
                    wrong += &format!("{path} is shown otherwise if it is written\n");
                }
                for other in respelled {
                    let other = read(&other).unwrap_or_else(|errors| panic!("{path}: {errors}"));
                    if other.page() != written.page() {
                        wrong += &format!("{path} is shown in two spellings: {}\n", other.page());
                    }
                }
                let again = read(&absent.page()).unwrap_or_else(|errors| panic!("{path}: {errors}"));
                if again != absent {
                    wrong += &format!("{path} is not read as it is shown\n");
                }
            }
            (Ok(_), Ok(_)) => wrong += &format!("{path} makes a difference in {as_unwritten}\n"),
            // One of the two needs more beside it, such as a server over TLS.
            _ => {}
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
    assert!(compared > 100, "only {compared} keys were compared");
}

#[test]
fn no_output_holds_a_secret() {
    let (mut positions, mut accepted) = (std::collections::HashSet::new(), 0);
    for KeyCase { path, secrets, .. } in all() {
        for text in secrets {
            positions.insert(path.clone());
            // What is no TOML any more, and a key that nobody knows beside the secret, show its line.
            let unclosed = text.replacen("hunter2\"", "hunter2", 1).replacen("}\"", "}", 1);
            let lines = text.lines().map(|line| match line.contains("hunter2") {
                true => format!("{line}, nonsense = 1\n"),
                false => format!("{line}\n"),
            });
            let beside: String = lines.collect();
            for text in [&text, &unclosed, &beside] {
                let (said, shown) = match super::load(&[text]) {
                    Ok(LoadedConfig { config, report, .. }) => {
                        accepted += 1;
                        (report.to_string(), config.effective())
                    }
                    Err(said) => (said, String::new()),
                };
                assert!(!said.contains("hunter2"), "{path} in\n{text}\n{said}");
                assert!(!shown.contains("hunter2"), "{path} in\n{text}\n{shown}");
            }
        }
    }
    assert!(positions.len() > 20, "secrets were only looked for in {positions:?}");
    assert!(accepted > 60, "only {accepted} configurations with a secret were valid");
}

#[test]
fn every_key_has_its_sentence_in_the_schema() {
    fn walk(schema: &Value, path: &str, missing: &mut Vec<String>, count: &mut usize) {
        if let Some(properties) = schema.get("properties").and_then(Value::as_object) {
            for (name, property) in properties {
                *count += 1;
                // Neither a link nor half of one: "[`redis]`".
                let is_described = property["description"]
                    .as_str()
                    .is_some_and(|text| text.len() > 2 && !text.contains("](") && !text.contains("[`"));
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
                if is_text && crate::load::mask::is_secret_key(key.name) {
                    wrong.push(path.clone());
                }
                walk(&key.kind, &path, wrong);
            }
        };
        match kind {
            Kind::Table(section) | Kind::Open(section, _) => inside(section),
            Kind::Tagged(several) => several.iter().for_each(|(_, section)| inside(section)),
            Kind::Any(several) => several.iter().for_each(|one| walk(one, path, wrong)),
            Kind::List(of) | Kind::Map(of) => walk(of, path, wrong),
            _ => {}
        }
    }
    let mut wrong = Vec::new();
    ROOT.keys().for_each(|key| walk(&key.kind, key.name, &mut wrong));
    assert!(wrong.is_empty(), "{wrong:?}");
}
