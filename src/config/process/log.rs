//! Reads `[log]`: the process's own log and the access log; samples of decisions are in `decisions.rs`.

use http::HeaderName;
use http::uri::Authority;
use tracing_subscriber::filter::{ParseError, Targets};

use auth::credential_source::CredentialSource;
use observe::record::decisions::DecisionsConfig;
use observe::record::format::LogTemplate;
use observe::record::syslog::{Syslog, SyslogAddress};
use observe::record::{AccessConfig, FIELD_NAME_BYTES_MAX, FIELDS_MAX, LogFormat, Sink, StatusMatch};

use crate::keys::log::QUERIES;
use crate::limits::decisions;
use crate::load::mask;
use crate::load::report::quoted;
use crate::load::sections;
use crate::load::text;
use crate::load::text::Text;
use crate::printer::{table as show_table, text as show_text};
use crate::reader::{Table, Value};
use crate::upstream::socket;
use base::words;

/// Reads `[log]`: the level, and the access log.
pub(crate) fn read(
    documents: &[Table<'_>],
    auth: &[auth::Config],
) -> (String, AccessConfig, DecisionsConfig) {
    let mut log_level = "info".to_owned();
    let mut access_log = AccessConfig::default();
    let mut decisions = decisions::unwritten();
    if let Some(table) = sections::table(documents, "log") {
        if let Some(level) = table.value("level").and_then(|value| value.text()) {
            log_level = directives(&level).unwrap_or(log_level);
            // Release builds are made without these lines (`release_max_level_debug` of tracing).
            let has_trace = log_level.split([',', '=']).any(|it| it.trim().eq_ignore_ascii_case("trace"));
            if has_trace && !cfg!(debug_assertions) {
                level.warn("`trace` adds nothing to `debug` in release builds", "write `debug`");
            }
        }
        match table.value("access") {
            Some(value) if value.as_boolean() == Some(false) => access_log.to = Sink::Off,
            Some(value) => read_access(&value, auth, &mut access_log),
            None => {}
        }
        if let Some(value) = table.value("decisions") {
            decisions = decisions::read(&value);
        }
    }
    (log_level, access_log, decisions)
}

/// What the process's own log shows: a level, or levels of modules.
///
/// # Errors
/// If a directive is not one.
pub fn log_filter(directives: &str) -> Result<Targets, ParseError> {
    let directives: Vec<&str> = directives.split(',').map(str::trim).filter(|one| !one.is_empty()).collect();
    directives.join(",").parse()
}

/// A level, or directives as `tracing` reads them: `info,gateway::proxy=debug`.
fn directives(text: &Text<'_>) -> Option<String> {
    // Checked here, because `tracing` reads an unknown word as a module's name: a misspelt level would silence the log.
    if !text.text.contains(['=', ',']) {
        let levels = LEVELS.map(|level| (level, ()));
        return text.choice(&levels).map(|()| text.text.clone());
    }
    match log_filter(&text.text) {
        Ok(_) if !text.text.contains('[') => {
            let names = text.text.split(',').filter_map(|one| one.trim().split(['=', ':', '[']).next());
            let parts: Vec<&str> = PARTS.split(' ').collect();
            let is_part = |name: &str| parts.contains(&name) || LEVELS.contains(&&*name.to_ascii_lowercase());
            if let Some(name) = names.filter(|name| !name.is_empty()).find(|name| !is_part(name)) {
                let hint = words::did_you_mean(name, &parts);
                let hint = hint.unwrap_or_else(|| format!("write {}", words::listed(&parts)));
                let called = if text.has_reference { text.shown() } else { quoted(name) };
                text.warn(format!("no part of the program that logs is called {called}"), hint);
            }
            Some(text.text.clone())
        }
        Ok(_) | Err(_) => {
            let hint = "write a level, or directives such as `info,gateway::proxy=debug`";
            text.wrong(format!("{} is not a log level", text.shown()), hint);
            None
        }
    }
}

fn read_access(value: &Value<'_>, auth: &[auth::Config], access_log: &mut AccessConfig) {
    let Some(table) = value.table() else { return };
    if let Some(to) = sink(&table, "the access log") {
        access_log.to = to;
    }
    if let Some(value) = table.value("headers") {
        access_log.headers = logged_headers(&value, auth);
    }
    if let Some(text) = table.value("format").and_then(|value| value.text()) {
        access_log.format = format(&text, &access_log.headers).unwrap_or_default();
    }
    table.word("query", &QUERIES, &mut access_log.query);
    for entry in table.table("sample").iter().flat_map(Table::entries) {
        let status = status_match(&entry.key);
        if status.is_none() {
            let hint = "write a status such as `429`, or a class such as `2xx`";
            entry.wrong_key(format!("`{}` is not a status", entry.key.escape_debug()), hint);
        }
        if let (Some(status), Some(ppm)) = (status, entry.share_ppm()) {
            access_log.sample.push((status, ppm));
        }
    }
}

/// `to` of a log: a text, or a table for a syslog.
pub(crate) fn sink(table: &Table<'_>, log: &str) -> Option<Sink> {
    let to = table.value("to")?;
    let sink = match to.is_table() {
        true => syslog(&to).map_or(Sink::Off, Sink::Syslog),
        false => sink_in_one(&to.text()?, log)?,
    };
    if let Sink::Syslog(syslog) = &sink {
        to.spell(show_syslog(syslog));
    }
    Some(sink)
}

/// Where lines go, as one text.
fn sink_in_one(to: &Text<'_>, log: &str) -> Option<Sink> {
    let word = match to.text.as_str() {
        "stdout" => return Some(Sink::Stdout),
        "stderr" => return Some(Sink::Stderr),
        "off" => return Some(Sink::Off),
        text if text == SYSLOG || socket::is_meant(text) || text.starts_with(UDP) => {
            return address(to).map(|to| Sink::Syslog(Syslog::new(to)));
        }
        url if url.contains("://") => {
            let hint = "write `stdout`, `stderr`, `off`, `syslog`, `unix:/path`, `udp://host:514` or a path";
            to.wrong(format!("{log} cannot be written to {}", to.shown()), hint);
            return None;
        }
        url if url.starts_with("file:") => {
            to.wrong(
                format!("{log} cannot be written to {}", to.shown()),
                "write the path alone, without `file:`",
            );
            return None;
        }
        path if path.contains('/') => return Some(Sink::File(text::path(to))),
        word => word,
    };
    let hint = words::did_you_mean(word, &["stdout", "stderr", "off", SYSLOG]).unwrap_or_else(|| {
        "write `stdout`, `stderr`, `off`, `syslog`, `udp://host:514` or a path with a `/`".to_owned()
    });
    to.wrong(format!("{log} cannot be written to {}", to.shown()), hint);
    None
}

/// `{ syslog = "udp://127.0.0.1:514", facility = "local0", severity = "info" }`.
fn syslog(value: &Value<'_>) -> Option<Syslog> {
    let table = value.table()?;
    let to = table.value(SYSLOG).and_then(|value| value.text()).and_then(|text| address(&text));
    let word = |key, words: &[&str]| -> Option<u8> {
        let choices: Vec<(&str, u8)> = words.iter().copied().zip(0..).collect();
        table.value(key)?.choice(&choices)
    };
    let (facility, severity) = (word("facility", &FACILITIES), word("severity", &SEVERITIES));
    let syslog = Syslog::new(to?);
    let facility = facility.unwrap_or(syslog.facility);
    Some(Syslog { facility, severity: severity.unwrap_or(syslog.severity), ..syslog })
}

/// Who takes messages of syslog.
fn address(text: &Text<'_>) -> Option<SyslogAddress> {
    if text.text == SYSLOG {
        return Some(SyslogAddress::Unix(DEV_LOG.into()));
    }
    if socket::is_meant(&text.text) {
        return socket::path(text, "unix:/dev/log").map(SyslogAddress::Unix);
    }
    let udp = text.text.strip_prefix(UDP).and_then(|rest| rest.parse::<Authority>().ok());
    let is_plain = |udp: &Authority| !udp.as_str().contains('@') && !udp.host().is_empty();
    let Some(udp) = udp.filter(is_plain) else {
        let hint = "write `syslog`, `unix:/dev/log` or `udp://127.0.0.1:514`";
        text.wrong(format!("{} is not the address of a syslog server", text.shown()), hint);
        return None;
    };
    if text.has_wrong_port(&udp) {
        return None;
    }
    let host = udp.host().trim_start_matches('[').trim_end_matches(']').to_owned();
    Some(SyslogAddress::Udp { host, port: udp.port_u16().unwrap_or(SYSLOG_PORT) })
}

fn show_syslog(syslog: &Syslog) -> String {
    let word =
        |words: &[&str], index: u8| show_text(words.get(usize::from(index)).copied().unwrap_or_default());
    show_table([
        (SYSLOG, show_text(&syslog.to.to_string())),
        ("facility", word(&FACILITIES, syslog.facility)),
        ("severity", word(&SEVERITIES, syslog.severity)),
    ])
}

/// A format by its name, or a text with `{...}`.
fn format(text: &Text<'_>, headers: &[HeaderName]) -> Option<LogFormat> {
    if !text.text.contains(['{', '}']) {
        let named = FORMATS.iter().find(|(name, _)| *name == text.text);
        if named.is_none() {
            let hint = words::did_you_mean(&text.text, &FORMATS.map(|(name, _)| name)).unwrap_or_else(|| {
                "write `json`, `common`, `combined`, `ecs` or a text with values in it: `{client} {status}`".to_owned()
            });
            text.wrong(format!("{} is not a log format", text.shown()), hint);
        }
        return named.map(|(_, format)| format.clone());
    }
    match LogTemplate::parse(&text.text, headers) {
        Ok(template) => Some(LogFormat::Template(template)),
        Err(error) => {
            text.wrong_within(error.span(&text.text), "`format` is invalid", error.to_string());
            None
        }
    }
}

/// `headers` of the access log. Fields that may hold a credential are refused.
fn logged_headers(value: &Value<'_>, auth: &[auth::Config]) -> Vec<HeaderName> {
    let mut names: Vec<HeaderName> = Vec::new();
    for text in value.texts() {
        let name = HeaderName::from_bytes(text.text.as_bytes()).ok();
        let is_taken = |name: &HeaderName| name.as_str().len() <= FIELD_NAME_BYTES_MAX && name != "*";
        let Some(name) = name.filter(is_taken) else {
            text.wrong(format!("{} is not a header's name", text.shown()), "write it like `x-trace-id`");
            continue;
        };
        text.spell(&name);
        let is_credential =
            |place: &CredentialSource| matches!(place, CredentialSource::Header(header) if *header == name);
        let is_secret = mask::is_secret_name(name.as_str())
            || auth.iter().flat_map(auth::Config::places).any(is_credential);
        if is_secret {
            text.wrong(format!("`{name}` may hold a credential, which no log shows"), "leave it out");
        } else if names.contains(&name) {
            text.wrong(format!("`{name}` is named twice"), "name it once");
        }
        names.push(name);
    }
    if names.len() > FIELDS_MAX {
        value.wrong(format!("`headers` names more than {FIELDS_MAX} headers"), "remove some: log lines grow");
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

/// The sockets of syslog, by how they are written.
const SYSLOG: &str = "syslog";
const UDP: &str = "udp://";
const DEV_LOG: &str = "/dev/log";
const SYSLOG_PORT: u16 = 514;

/// RFC 5424 section 6.2.1, by their numbers; the names are those of syslog.conf(5).
const FACILITIES: [&str; 24] = [
    "kern", "user", "mail", "daemon", "auth", "syslog", "lpr", "news", "uucp", "cron", "authpriv", "ftp",
    "ntp", "audit", "alert", "clock", "local0", "local1", "local2", "local3", "local4", "local5", "local6",
    "local7",
];
const SEVERITIES: [&str; 8] = ["emerg", "alert", "crit", "err", "warning", "notice", "info", "debug"];

/// The formats that have a name.
const FORMATS: [(&str, LogFormat); 4] = [
    ("json", LogFormat::Json),
    ("common", LogFormat::Common),
    ("combined", LogFormat::Combined),
    ("ecs", LogFormat::Ecs),
];

/// What stands first in the targets of log lines: crates that log, and those of others that do.
const PARTS: &str = "acme app auth cli control gateway limiter net observe rls upstream h2 hickory_net hickory_proto \
                     hickory_resolver sqlx";

const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];
