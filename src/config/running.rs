//! What belongs to the process as a whole: `workers`, `[limits]`, `[admin]`, `[shutdown]`, `[log]`.

use std::path::PathBuf;
use std::time::Duration;

use http::HeaderName;
use http::header::{COOKIE, REFERER, USER_AGENT};
use tracing_subscriber::EnvFilter;

use crate::admin::{self, Bind};
use crate::auth::place::Place;
use crate::proxy::config::LimitHeaders;
use crate::record::{AccessConfig, FIELD_NAME_BYTES_MAX, FIELDS_MAX, Query, Sink, StatusMatch};
use crate::service::config::{Memory, Overload};

use super::reader::{self, Table, Text, Value};
use super::report::Fields;
use super::{Shutdown, listener, mask};

/// Reads `workers`: a number, or `"auto"` for one a core.
pub(super) fn read_workers(documents: &[Table<'_>]) -> Option<usize> {
    let value = reader::single(documents, "workers")?;
    if value.is_string() {
        let text = value.text()?;
        if text.text == "auto" {
            return None;
        }
        if !text.has_reference {
            text.wrong("`workers` must be a whole number or \"auto\"", "write `workers = \"auto\"`");
            return None;
        }
    }
    value.integer(1..=WORKERS_MAX).and_then(|workers| usize::try_from(workers).ok())
}

/// Reads `[limits]`: memory in bytes, and the fields on responses.
pub(super) fn read_limits(documents: &[Table<'_>]) -> (usize, LimitHeaders) {
    let mut memory = LIMITS_MEMORY;
    let mut headers = LimitHeaders::default();
    let table = reader::single(documents, "limits").and_then(|value| value.table("[limits]"));
    if let Some(table) = table {
        let range = LIMITS_MEMORY_MIN..=LIMITS_MEMORY_MAX;
        memory = table.value("memory").and_then(|value| value.size(range)).unwrap_or(memory);
        if let Some(value) = table.value("headers") {
            headers = value.choice(&LIMIT_HEADERS, &[]).unwrap_or_default();
        }
        table.finish(&[]);
    }
    (usize::try_from(memory).unwrap_or(usize::MAX), headers)
}

/// Reads `[admin]`, or `admin = false`, which turns it off.
pub(super) fn read_admin(documents: &[Table<'_>]) -> (Option<admin::Config>, Fields) {
    let mut config = default_admin();
    let Some(value) = reader::single(documents, "admin") else { return (Some(config), Fields::default()) };
    if value.as_boolean() == Some(false) {
        return (None, Fields::default());
    }
    if value.as_boolean() == Some(true) {
        value.wrong("`admin` is on by itself", "leave it out, or write `admin = false` or a table");
        return (Some(config), Fields::default());
    }
    let Some(table) = value.table("[admin]") else { return (Some(config), Fields::default()) };
    let bind = table.value("bind").and_then(|value| value.text());
    if let Some(bind) = bind.as_ref().and_then(bind_address) {
        config.bind = bind;
    }
    if let Some(token) = table.value("token").and_then(|value| value.text()) {
        if token.text.is_empty() {
            token.wrong("`token` is empty", "leave it out, or write `\"${file:/path}\"`");
        } else if !token.has_reference {
            let hint = "keep a secret out of it: `\"${NAME}\"` or `\"${file:/path}\"`";
            token.warn("`token` stands in the file itself", hint);
        }
        config.token = Some(token.text);
    }
    if let Some(value) = table.value("hosts") {
        config.hosts = value.texts().iter().filter_map(admin_host).collect();
    }
    if let (Bind::Tcp(address), Some(bind), None) = (&config.bind, &bind, &config.token)
        && !address.ip().is_loopback()
    {
        let message = "the admin listener is open to other machines and asks for no token";
        bind.warn(message, "add `token = \"${file:/path}\"`, or bind 127.0.0.1");
    }
    let places = table.places();
    table.finish(&["grpc"]);
    (Some(config), places)
}

/// A name or an address, without a port: any port leads here.
fn admin_host(text: &Text<'_>) -> Option<String> {
    let bare = text.text.trim_start_matches('[').trim_end_matches(']');
    let is_address = bare.parse::<std::net::IpAddr>().is_ok();
    let is_name = || {
        let authority = text.text.parse::<http::uri::Authority>();
        authority.is_ok_and(|authority| authority.host() == text.text && !text.text.contains(['@', '*']))
    };
    if is_address || is_name() {
        return Some(admin::canonical_host(&text.text));
    }
    let hint = "write a name or an address without a port, as in `metrics.internal` or `10.0.0.1`";
    text.wrong(format!("{} is not a host", text.shown()), hint);
    None
}

/// Reads `[shutdown]`.
pub(super) fn read_shutdown(documents: &[Table<'_>]) -> Shutdown {
    let mut shutdown = default_shutdown();
    let table = reader::single(documents, "shutdown").and_then(|value| value.table("[shutdown]"));
    if let Some(table) = table {
        for (key, time) in [("ready-delay", &mut shutdown.ready_delay), ("drain", &mut shutdown.drain)] {
            if let Some(duration) = table.value(key).and_then(|value| value.duration(Duration::ZERO)) {
                *time = duration;
            }
        }
        table.finish(&[]);
    }
    shutdown
}

/// Reads `[overload]`: how much memory there is, and from which share of it on what is given up.
pub(super) fn read_overload(documents: &[Table<'_>]) -> Overload {
    let mut overload = Overload::default();
    let Some(table) = reader::single(documents, "overload").and_then(|value| value.table("[overload]"))
    else {
        return overload;
    };
    match table.value("memory") {
        Some(value) if value.as_boolean() == Some(false) => overload.memory = Memory::Unbounded,
        Some(value) if value.is_string() && value.text().is_some_and(|text| text.text == "auto") => {}
        Some(value) => {
            let bytes = value.size(OVERLOAD_MEMORY_MIN..=LIMITS_MEMORY_MAX);
            overload.memory = bytes.map_or(overload.memory, Memory::Bytes);
        }
        None => {}
    }
    for (key, mark) in OVERLOAD_MARKS.into_iter().zip(&mut overload.marks_ppm) {
        *mark = table.value(key).and_then(|value| value.share_ppm()).unwrap_or(*mark);
    }
    if !overload.marks_ppm.is_sorted() {
        let hint =
            "write them rising, as in `keep-alive = \"92%\"`, `requests = \"95%\"`, `connections = \"98%\"`";
        table.wrong("the marks of [overload] do not rise", hint);
    }
    table.finish(&[]);
    overload
}

/// Reads `[log]`: the level, and the access log.
pub(super) fn read_log(documents: &[Table<'_>], auth: &[crate::auth::Config]) -> (String, AccessConfig) {
    let mut log_level = "info".to_owned();
    let mut access_log = AccessConfig {
        to: Sink::Stdout,
        sample: Vec::new(),
        headers: vec![USER_AGENT, REFERER],
        query: Query::default(),
    };
    let table = reader::single(documents, "log").and_then(|value| value.table("[log]"));
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

/// `host:port`, or `unix:` and a path.
fn bind_address(text: &Text<'_>) -> Option<Bind> {
    let Some(socket) = text.text.strip_prefix("unix:") else {
        return listener::address(text).map(Bind::Tcp);
    };
    if !socket.starts_with('/') {
        let hint = "write it as in `unix:/run/sluicegate/admin.sock`";
        text.wrong(format!("{} needs an absolute path", text.shown()), hint);
        return None;
    }
    if socket.len() > SOCKET_PATH_BYTES_MAX {
        let hint = format!("a socket's path has at most {SOCKET_PATH_BYTES_MAX} bytes");
        text.wrong("`bind` is too long", hint);
    }
    Some(Bind::Unix(PathBuf::from(socket)))
}

/// A level, or directives as `tracing` reads them: `info,sluicegate::proxy=debug`.
fn directives(text: &Text<'_>) -> Option<String> {
    // `tracing` takes a lone word that is no level for a module's name, so a slip would pass unseen.
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
            path if path.contains('/') => access_log.to = Sink::File(reader::path(&to)),
            word => {
                let hint = reader::did_you_mean(word, &["stdout", "stderr", "off"])
                    .unwrap_or_else(|| "write `stdout`, `stderr`, `off` or a path with a `/`".to_owned());
                to.wrong(format!("{} is not a place for the access log", to.shown()), hint);
            }
        }
    }
    if let Some(format) = table.value("format") {
        // One format today; the key is there so that a file says what it means.
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

/// Fields of a head that the log shows. What may be a credential is none of them.
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

/// The admin listener where nothing is said of it.
fn default_admin() -> admin::Config {
    admin::Config { bind: Bind::Tcp(([127, 0, 0, 1], 9900).into()), token: None, hosts: Vec::new() }
}

fn default_shutdown() -> Shutdown {
    Shutdown { ready_delay: Duration::ZERO, drain: Duration::from_secs(30) }
}

/// What `query` of the access log can say.
pub(super) const QUERIES: [(&str, Query); 3] =
    [("keep", Query::Keep), ("drop", Query::Drop), ("names", Query::Names)];

/// What `headers` of `[limits]` can say.
pub(super) const LIMIT_HEADERS: [(&str, LimitHeaders); 4] = [
    ("ietf", LimitHeaders::Ietf),
    ("legacy", LimitHeaders::Legacy),
    ("both", LimitHeaders::Both),
    ("none", LimitHeaders::None),
];

const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];

/// Linux's `sockaddr_un` has 108, the last of them 0.
const SOCKET_PATH_BYTES_MAX: usize = 107;

/// More threads than any machine has cores for.
const WORKERS_MAX: u64 = 1_024;

/// Names of the marks of `[overload]`, rising.
pub(super) const OVERLOAD_MARKS: [&str; 3] = ["keep-alive", "requests", "connections"];
/// Less than the program itself takes.
const OVERLOAD_MEMORY_MIN: u64 = 1 << 20;

/// Memory of the local table unless written: two million slots of 32 bytes, for a million keys.
const LIMITS_MEMORY: u64 = 64 << 20;
const LIMITS_MEMORY_MIN: u64 = 64 << 10;
const LIMITS_MEMORY_MAX: u64 = 1 << 40;
