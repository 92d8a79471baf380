//! Reads and writes `[log]`: the process's own log and the access log; samples of decisions are in `decisions.rs`.

use http::HeaderName;
use http::header::{COOKIE, REFERER, USER_AGENT};
use tracing_subscriber::EnvFilter;

use crate::auth::place::Place;
use crate::record::decisions::DecisionsConfig;
use crate::record::{AccessConfig, FIELD_NAME_BYTES_MAX, FIELDS_MAX, Query, Sink, StatusMatch};

use super::printer::{Page, array, table as show_table, text as show_text, word};
use super::reader::{Table, Value};
use super::sections;
use super::text::{self, Text};
use super::{decisions, mask};
use crate::units::show_share;
use crate::words;

/// Reads `[log]`: the level, and the access log.
pub(super) fn read(
    documents: &[Table<'_>],
    auth: &[crate::auth::Config],
) -> (String, AccessConfig, DecisionsConfig) {
    let mut log_level = "info".to_owned();
    let mut access_log = AccessConfig {
        to: Sink::Stdout,
        sample: Vec::new(),
        headers: vec![USER_AGENT, REFERER],
        query: Query::default(),
    };
    let mut decisions = decisions::unwritten();
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
        if let Some(value) = table.value("decisions") {
            decisions = decisions::read(&value);
        }
        table.finish(&[]);
    }
    (log_level, access_log, decisions)
}

/// Writes `[log]`.
pub(super) fn show(page: &mut Page, level: &str, access: &AccessConfig, decisions: &DecisionsConfig) {
    page.heading("[log]");
    page.key("level", show_text(level));
    page.key("access", show_access(access));
    page.key("decisions", decisions::show(decisions));
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
    if let Some(to) = sink(&table, "the access log") {
        access_log.to = to;
    }
    if let Some(format) = table.value("format") {
        // There is one format so far. The key exists so that a file can state it.
        let _ = format.choice(&[("json", ())], &[]);
    }
    if let Some(value) = table.value("headers") {
        access_log.headers = logged_headers(&value, auth);
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

/// `to` of a log.
pub(super) fn sink(table: &Table<'_>, log: &str) -> Option<Sink> {
    let to = table.value("to").and_then(|value| value.text())?;
    match to.text.as_str() {
        "stdout" => Some(Sink::Stdout),
        "stderr" => Some(Sink::Stderr),
        "off" => Some(Sink::Off),
        path if path.contains('/') => Some(Sink::File(text::path(&to))),
        word => {
            let hint = words::did_you_mean(word, &["stdout", "stderr", "off"])
                .unwrap_or_else(|| "write `stdout`, `stderr`, `off` or a path with a `/`".to_owned());
            to.wrong(format!("{} is not a place for {log}", to.shown()), hint);
            None
        }
    }
}

/// Writes `to`.
pub(super) fn show_sink(sink: &Sink) -> String {
    match sink {
        Sink::Stdout => show_text("stdout"),
        Sink::Stderr => show_text("stderr"),
        Sink::Off => show_text("off"),
        Sink::File(path) => show_text(&path.to_string_lossy()),
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
    let to = show_sink(&access.to);
    let sample = access.sample.iter().map(|(status, ppm)| {
        let status = match status {
            StatusMatch::Exact(status) => format!("\"{status}\""),
            StatusMatch::Class(class) => format!("\"{class}xx\""),
        };
        (status, show_text(&show_share(*ppm)))
    });
    let headers = array(access.headers.iter().map(|name| show_text(name.as_str())));
    let query = show_text(word(&QUERIES, &access.query));
    show_table([
        ("to", to),
        ("format", show_text("json")),
        ("headers", headers),
        ("query", query),
        ("sample", show_table(sample)),
    ])
}

/// The values of `query`.
const QUERIES: [(&str, Query); 3] = [("keep", Query::Keep), ("drop", Query::Drop), ("names", Query::Names)];

const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];
