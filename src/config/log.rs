//! Reads and writes `[log]`: the process's own log and the access log.

use http::HeaderName;
use http::header::COOKIE;
use tracing_subscriber::EnvFilter;

use crate::auth::place::Place;
use crate::record::format::Template;
use crate::record::{AccessConfig, FIELD_NAME_BYTES_MAX, FIELDS_MAX, Format, Query, Sink, StatusMatch};

use super::mask;
use super::printer::{Page, array, table as show_table, text as show_text, word};
use super::reader::{Table, Value};
use super::sections;
use super::text::{self, Text};
use crate::units::show_share;
use crate::words;

/// Reads `[log]`: the level, and the access log.
pub(super) fn read(documents: &[Table<'_>], auth: &[crate::auth::Config]) -> (String, AccessConfig) {
    let mut log_level = "info".to_owned();
    let mut access_log = AccessConfig::default();
    let table = sections::single(documents, "log").and_then(|value| value.table("[log]"));
    if let Some(table) = table {
        if let Some(level) = table.value("level").and_then(|value| value.text()) {
            log_level = directives(&level).unwrap_or(log_level);
        }
        match table.value("access") {
            Some(value) if value.as_boolean() == Some(false) => access_log.to = Sink::Off,
            Some(value) => read_access(&value, auth, &mut access_log),
            None => {}
        }
        table.finish(&["decisions"]);
    }
    (log_level, access_log)
}

/// Writes `[log]`.
pub(super) fn show(page: &mut Page, level: &str, access: &AccessConfig) {
    page.heading("[log]");
    page.key("level", show_text(level));
    page.key("access", show_access(access));
}

/// A level, or directives as `tracing` reads them: `info,sluicegate::proxy=debug`.
fn directives(text: &Text<'_>) -> Option<String> {
    // `tracing` reads an unknown single word as a module's name, so a misspelt level would silence the log.
    if !text.text.contains(['=', ',']) {
        let levels = LEVELS.map(|level| (level, ()));
        return text.choice(&levels, &[]).map(|()| text.text.clone());
    }
    match EnvFilter::builder().parse(&text.text) {
        Ok(_) => Some(text.text.clone()),
        Err(_) => {
            let hint = "write a level, or directives as in `info,sluicegate::proxy=debug`";
            text.wrong(format!("{} is not a log level", text.shown()), hint);
            None
        }
    }
}

fn read_access(value: &Value<'_>, auth: &[crate::auth::Config], access_log: &mut AccessConfig) {
    let Some(table) = value.table("`access`") else { return };
    if let Some(to) = table.value("to").and_then(|value| value.text()) {
        match to.text.as_str() {
            "stdout" => access_log.to = Sink::Stdout,
            "stderr" => access_log.to = Sink::Stderr,
            "off" => access_log.to = Sink::Off,
            path if path.contains('/') => access_log.to = Sink::File(text::path(&to)),
            word => {
                let hint = words::did_you_mean(word, &["stdout", "stderr", "off"])
                    .unwrap_or_else(|| "write `stdout`, `stderr`, `off` or a path with a `/`".to_owned());
                to.wrong(format!("{} is not a place for the access log", to.shown()), hint);
            }
        }
    }
    if let Some(value) = table.value("headers") {
        access_log.headers = logged_headers(&value, auth);
    }
    if let Some(text) = table.value("format").and_then(|value| value.text()) {
        access_log.format = format(&text, &access_log.headers).unwrap_or_default();
    }
    if let Some(value) = table.value("query") {
        access_log.query = value.choice(&QUERIES, &[]).unwrap_or_default();
    }
    for entry in table.table("sample").iter().flat_map(Table::entries) {
        let status = status_match(&entry.key);
        if status.is_none() {
            let hint = "write a status as in `429`, or a class as in `2xx`";
            entry.wrong_key(format!("`{}` is not a status", entry.key.escape_debug()), hint);
        }
        if let (Some(status), Some(ppm)) = (status, entry.share_ppm()) {
            access_log.sample.push((status, ppm));
        }
    }
    table.finish(&[]);
}

/// A format by its name, or a text with `{...}`.
fn format(text: &Text<'_>, headers: &[HeaderName]) -> Option<Format> {
    if !text.text.contains(['{', '}']) {
        return text.choice(&FORMATS, &[]);
    }
    match Template::parse(&text.text, headers) {
        Ok(template) => Some(Format::Template(template)),
        Err(error) => {
            text.wrong_within(error.span(&text.text), "`format` cannot be written so", error.to_string());
            None
        }
    }
}

/// `headers` of the access log. Fields that may hold a credential are refused.
fn logged_headers(value: &Value<'_>, auth: &[crate::auth::Config]) -> Vec<HeaderName> {
    let mut names: Vec<HeaderName> = Vec::new();
    for text in value.texts() {
        let name = HeaderName::from_bytes(text.text.as_bytes()).ok();
        let Some(name) = name.filter(|name| name.as_str().len() <= FIELD_NAME_BYTES_MAX) else {
            text.wrong(format!("{} is not a header's name", text.shown()), "write it as in `x-trace-id`");
            continue;
        };
        let is_credential = |place: &Place| matches!(place, Place::Header(header) if *header == name);
        let is_secret = mask::is_secret_name(name.as_str())
            || name == COOKIE
            || auth.iter().flat_map(crate::auth::Config::places).any(is_credential);
        if is_secret {
            text.wrong(format!("`{name}` may hold a credential, which no log shows"), "leave it out");
        } else if names.contains(&name) {
            text.wrong(format!("`{name}` is named twice"), "name it once");
        }
        names.push(name);
    }
    if names.len() > FIELDS_MAX {
        value.wrong(format!("`headers` names more than {FIELDS_MAX}"), "each makes every line longer");
    }
    names
}

fn status_match(text: &str) -> Option<StatusMatch> {
    if let Some(class) = text.strip_suffix("xx") {
        return class.parse().ok().filter(|class| (1..=5).contains(class)).map(StatusMatch::Class);
    }
    let is_status = text.len() == 3 && text.bytes().all(|byte| byte.is_ascii_digit());
    let status = text.parse().ok().filter(|status| is_status && (100..=599).contains(status))?;
    Some(StatusMatch::Exact(status))
}

fn show_access(access: &AccessConfig) -> String {
    let to = match &access.to {
        Sink::Stdout => show_text("stdout"),
        Sink::Stderr => show_text("stderr"),
        Sink::Off => show_text("off"),
        Sink::File(path) => show_text(&path.to_string_lossy()),
    };
    let sample = access.sample.iter().map(|(status, ppm)| {
        let status = match status {
            StatusMatch::Exact(status) => format!("\"{status}\""),
            StatusMatch::Class(class) => format!("\"{class}xx\""),
        };
        (status, show_text(&show_share(*ppm)))
    });
    let format = match &access.format {
        Format::Template(template) => template.text(),
        known => word(&FORMATS, known),
    };
    let headers = array(access.headers.iter().map(|name| show_text(name.as_str())));
    let query = show_text(word(&QUERIES, &access.query));
    show_table([
        ("to", to),
        ("format", show_text(format)),
        ("headers", headers),
        ("query", query),
        ("sample", show_table(sample)),
    ])
}

/// The formats that have a name.
const FORMATS: [(&str, Format); 4] = [
    ("json", Format::Json),
    ("common", Format::Common),
    ("combined", Format::Combined),
    ("ecs", Format::Ecs),
];

/// The values of `query`.
const QUERIES: [(&str, Query); 3] = [("keep", Query::Keep), ("drop", Query::Drop), ("names", Query::Names)];

const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];
