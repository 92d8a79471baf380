//! Reads `[auth.*]`, the authentication methods. Their files are read at a publication, not here.

mod jwt;

use std::time::Duration;

use auth::credential_source::CredentialSource;
use auth::mtls::{self, CertificateName};
use auth::{AnonymousIdentity, Config, MethodKind};
use auth::{basic, keys};

use super::load::report;
use super::load::sections;
use super::load::sections::NamedTable;
use super::load::text;
use super::load::text::Text;
use super::printer::{table, text as show_text};
use super::reader::{Table, Value};

/// Reads every method. Also returns all names, including those of methods with errors.
pub(super) fn read_all(documents: &[Table<'_>]) -> (Vec<Config>, Vec<report::Fields>, Vec<String>) {
    let (mut methods, mut places, mut names) = (Vec::new(), Vec::new(), Vec::new());
    for named in sections::named(documents, "auth") {
        names.push(named.name.clone());
        let fields = named.table.places();
        if let Some(method) = read(named) {
            methods.push(method);
            places.push(fields);
        }
    }
    (methods, places, names)
}

fn read(named: NamedTable<'_>) -> Option<Config> {
    let table = named.table;
    let Some(kind) = table.value("kind") else {
        table.lacks(&["kind"], "an authentication method needs `kind`", "write `kind = \"api-key\"`");
        return None;
    };
    let read: fn(&Table<'_>) -> Option<MethodKind> = kind.choice(&KINDS)?;
    let kind = read(&table);
    let mut pass = true;
    table.boolean("pass", &mut pass);
    Some(Config { name: named.name, kind: kind?, pass })
}

fn show_keys_source(source: &keys::ApiKeySource) -> String {
    let file = |file: &std::path::Path| ("file", show_text(&file.to_string_lossy()));
    match source {
        keys::ApiKeySource::File(path) => table([file(path)]),
        keys::ApiKeySource::Database => show_text(DATABASE),
        keys::ApiKeySource::Both(path) => table([file(path), (DATABASE, true.to_string())]),
    }
}

fn anonymous(table: &Table<'_>) -> Option<MethodKind> {
    let mut anybody = AnonymousIdentity { consumer: None, tenant: None, tier: None };
    table.text_if("consumer", &mut anybody.consumer);
    table.text_if("tenant", &mut anybody.tenant);
    table.text_if("tier", &mut anybody.tier);
    Some(MethodKind::Anonymous(anybody))
}

fn api_key(table: &Table<'_>) -> Option<MethodKind> {
    let places = match table.value("in") {
        Some(value) => places(&value),
        None => vec![CredentialSource::Header(X_API_KEY), CredentialSource::Bearer],
    };
    Some(MethodKind::ApiKey(keys::Config { places, source: keys_source(table)? }))
}

/// `{ file = "…" }`, `"database"`, or `{ file = "…", database = true }` for both.
fn keys_source(table: &Table<'_>) -> Option<keys::ApiKeySource> {
    const HINT: &str = "write `keys = { file = \"keys.toml\" }`, or `keys = \"database\"`";
    let value = table.value("keys")?;
    if value.is_string() {
        let text = value.text()?;
        if text.text != DATABASE {
            text.wrong(format!("keys cannot be read from {}", text.shown()), HINT);
            return None;
        }
        return Some(keys::ApiKeySource::Database);
    }
    let inner = value.table()?;
    let file = inner.value("file").map(|value| value.text());
    let has_database = inner.value(DATABASE).and_then(|value| value.boolean()).unwrap_or_default();
    if file.is_none() && !has_database {
        inner.lacks(&["file"], "`keys` needs `file`", HINT);
    }
    let source = match (file, has_database) {
        (Some(file), false) => keys::ApiKeySource::File(text::path(&file?)),
        (Some(file), true) => keys::ApiKeySource::Both(text::path(&file?)),
        (None, true) => keys::ApiKeySource::Database,
        (None, false) => return None,
    };
    value.spell(show_keys_source(&source));
    Some(source)
}

fn mtls(table: &Table<'_>) -> Option<MethodKind> {
    let name = |key| table.value(key).and_then(|value| value.choice(&CertificateName::ALL));
    let (consumer, tenant) = (name("consumer"), name("tenant"));
    let tier = table.value("tier").and_then(|value| value.text()).map(|text| text.text);
    Some(MethodKind::Mtls(mtls::Config { consumer: consumer?, tenant, tier }))
}

fn basic(table: &Table<'_>) -> Option<MethodKind> {
    let keep = table.value("keep").and_then(|value| value.duration()).unwrap_or(KEEP);
    Some(MethodKind::Basic(basic::Config { file: file(table, "users", "users.toml")?, keep }))
}

/// The file under `key = { file = "…" }`.
fn file(table: &Table<'_>, key: &'static str, example: &str) -> Option<std::path::PathBuf> {
    let hint = format!("write `{key} = {{ file = \"{example}\" }}`");
    let inner = table.value(key)?.table()?;
    let file = inner.value("file");
    if file.is_none() {
        inner.lacks(&["file"], format!("`{key}` needs `file`"), hint);
    }
    file.and_then(|value| value.path())
}

/// The claim that `consumer = "claim:sub"` names.
fn claim_name(table: &Table<'_>, key: &'static str) -> Option<String> {
    let text = table.value(key)?.text()?;
    match text.text.strip_prefix("claim:").filter(|name| !name.is_empty()) {
        Some(name) => Some(name.to_owned()),
        None => {
            text.wrong(format!("{} is not a claim", text.shown()), "write it like `claim:sub`");
            None
        }
    }
}

fn places(value: &Value<'_>) -> Vec<CredentialSource> {
    let texts = value.some_texts("write `[\"header:x-api-key\"]`");
    texts.iter().filter_map(place).collect()
}

/// `header:x-api-key`, `bearer`, `query:api_key`.
fn place(text: &Text<'_>) -> Option<CredentialSource> {
    let found = match text.text.split_once(':') {
        None if text.text == "bearer" => Some(CredentialSource::Bearer),
        Some(("header", name)) => {
            http::HeaderName::from_bytes(name.as_bytes()).ok().map(CredentialSource::Header)
        }
        Some(("query", name)) if !name.is_empty() => Some(CredentialSource::Query(name.to_owned())),
        _ => None,
    };
    if found.is_none() {
        let name = text.text.rsplit(':').next().unwrap_or_default().trim().to_ascii_lowercase();
        let is_header =
            !text.has_reference && name.contains('-') && http::HeaderName::try_from(&name).is_ok();
        let hint = match is_header {
            true => format!("write `header:{name}`"),
            false => "write `header:<name>`, `bearer` or `query:<name>`".to_owned(),
        };
        text.wrong(format!("a credential cannot be read from {}", text.shown()), hint);
    }
    found.iter().for_each(|place| text.spell(place));
    found
}

type ReadKind = fn(&Table<'_>) -> Option<MethodKind>;

const KINDS: [(&str, ReadKind); 5] =
    [("anonymous", anonymous), ("api-key", api_key), ("jwt", jwt::read), ("mtls", mtls), ("basic", basic)];
const DATABASE: &str = "database";
const KEEP: Duration = Duration::from_secs(60);
const X_API_KEY: http::HeaderName = http::HeaderName::from_static("x-api-key");
