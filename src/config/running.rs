//! Reads and writes the settings of the process as a whole: `workers`, `[limits]`, `[overload]`, `[shutdown]`.

use std::net::SocketAddr;
use std::time::Duration;

use gateway::proxy::config::LimitHeaders;
use gateway::service::config::{Memory, Overload};
use upstream::dns;

use super::keys::{Keys, Written};
use super::listener::TIMEOUT_MIN;
use super::printer::{Page, array, size, text, word};
use super::reader::Table;
use super::sections;
use super::settings::Shutdown;
use base::units::show_share;

/// Reads `workers`: a number, or `"auto"` for one for each core.
pub(super) fn read_workers(documents: &[Table<'_>]) -> Option<usize> {
    let value = sections::single(documents, "workers")?;
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

/// What `[limits]` says.
pub(super) struct Limits {
    /// Of the local table, bytes.
    pub(super) memory: usize,
    pub(super) headers: LimitHeaders,
    pub(super) hot_keys: bool,
}

/// Reads `[limits]`.
pub(super) fn read_limits(documents: &[Table<'_>]) -> Limits {
    let mut memory = LIMITS_MEMORY;
    let mut headers = LimitHeaders::default();
    let mut hot_keys = true;
    let table = sections::single(documents, "limits").and_then(|value| value.table("[limits]"));
    if let Some(table) = table {
        let range = LIMITS_MEMORY_MIN..=LIMITS_MEMORY_MAX;
        memory = table.value("memory").and_then(|value| value.size(range)).unwrap_or(memory);
        if let Some(value) = table.value("headers") {
            headers = value.choice(&LIMIT_HEADERS, &[]).unwrap_or_default();
        }
        if let Some(value) = table.value("hot-keys") {
            hot_keys = value.boolean().unwrap_or(true);
        }
        table.finish(&[]);
    }
    Limits { memory: usize::try_from(memory).unwrap_or(usize::MAX), headers, hot_keys }
}

/// Reads `[dns]`: name servers instead of the system's.
pub(super) fn read_dns(documents: &[Table<'_>]) -> dns::Config {
    let mut config = dns::Config::default();
    let table = sections::single(documents, "dns").and_then(|value| value.table("[dns]"));
    let Some(table) = table else { return config };
    for text in table.value("servers").map(|value| value.texts()).unwrap_or_default() {
        let address = text.text.parse().or_else(|_| {
            let host = text.text.trim_start_matches('[').trim_end_matches(']');
            host.parse().map(|ip| SocketAddr::new(ip, DNS_PORT))
        });
        match address {
            Ok(address) if address.port() > 0 => config.servers.push(address),
            _ => text.wrong(
                format!("{} is not the address of a name server", text.shown()),
                "write an address, and a port if it is not 53, as in `127.0.0.1:53`",
            ),
        }
    }
    if config.servers.len() > DNS_SERVERS_MAX {
        table.wrong(
            format!("more than {DNS_SERVERS_MAX} name servers are never asked"),
            format!("write at most {DNS_SERVERS_MAX} `servers`"),
        );
    }
    table.finish(&[]);
    config
}

/// Writes `[dns]`; nothing if the system's name servers are asked.
pub(super) fn show_dns(page: &mut Page, config: &dns::Config) {
    if !config.servers.is_empty() {
        page.heading("[dns]");
        page.key("servers", array(config.servers.iter().map(|server| text(&server.to_string()))));
    }
}

/// Reads `[shutdown]`.
pub(super) fn read_shutdown(documents: &[Table<'_>]) -> Shutdown {
    let mut shutdown = default_shutdown();
    let table = sections::single(documents, "shutdown").and_then(|value| value.table("[shutdown]"));
    if let Some(mut table) = table {
        shutdown_keys(&mut table, &mut shutdown);
        if shutdown.upgrade > UPGRADE_MAX
            && let Some(value) = table.value("upgrade")
        {
            value.wrong("`upgrade` is too long", "write `\"1h\"` or less: two processes serve for so long");
        }
        table.finish(&[]);
    }
    shutdown
}

fn shutdown_keys(keys: &mut impl Keys, shutdown: &mut Shutdown) {
    keys.duration("ready-delay", Duration::ZERO, &mut shutdown.ready_delay);
    keys.duration("drain", Duration::ZERO, &mut shutdown.drain);
    keys.duration("drain-tunnels", Duration::ZERO, &mut shutdown.drain_tunnels);
    keys.duration("upgrade", TIMEOUT_MIN, &mut shutdown.upgrade);
}

/// Writes `[shutdown]`.
pub(super) fn show_shutdown(page: &mut Page, shutdown: &Shutdown) {
    page.heading("[shutdown]");
    Written::of(shutdown, shutdown_keys).into_iter().for_each(|(key, value)| page.key(key, value));
}

/// Writes `workers`.
pub(super) fn show_workers(page: &mut Page, workers: Option<usize>) {
    match workers {
        Some(workers) => page.key("workers", workers),
        None => page.key("workers", text("auto")),
    }
}

/// Writes `[limits]`.
pub(super) fn show_limits(page: &mut Page, limits: &Limits) {
    page.heading("[limits]");
    page.key("memory", size(limits.memory as u64));
    page.key("headers", text(word(&LIMIT_HEADERS, &limits.headers)));
    page.key("hot-keys", limits.hot_keys);
}

/// Writes `[overload]`.
pub(super) fn show_overload(page: &mut Page, overload: &Overload) {
    page.heading("[overload]");
    match overload.memory {
        Memory::Machine => page.key("memory", text("auto")),
        Memory::Bytes(bytes) => page.key("memory", size(bytes)),
        Memory::Unbounded => page.key("memory", false),
    }
    for (key, ppm) in OVERLOAD_MARKS.into_iter().zip(overload.marks_ppm) {
        page.key(key, text(&show_share(ppm)));
    }
}

/// Reads `[overload]`: the memory, and the shares of it at which keep-alive, requests and connections are given up.
pub(super) fn read_overload(documents: &[Table<'_>]) -> Overload {
    let mut overload = Overload::default();
    let Some(table) = sections::single(documents, "overload").and_then(|value| value.table("[overload]"))
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

fn default_shutdown() -> Shutdown {
    Shutdown {
        ready_delay: Duration::ZERO,
        drain: Duration::from_secs(30),
        drain_tunnels: Duration::ZERO,
        upgrade: Duration::from_secs(60),
    }
}

/// The port of DNS.
const DNS_PORT: u16 = 53;
/// The longest that `shutdown.upgrade` can be.
pub const UPGRADE_MAX: Duration = Duration::from_secs(3_600);
/// Name servers that may be written.
const DNS_SERVERS_MAX: usize = 8;
/// The values of `headers` in `[limits]`.
const LIMIT_HEADERS: [(&str, LimitHeaders); 4] = [
    ("ietf", LimitHeaders::Ietf),
    ("legacy", LimitHeaders::Legacy),
    ("both", LimitHeaders::Both),
    ("none", LimitHeaders::None),
];

/// More threads than any machine has cores for.
const WORKERS_MAX: u64 = 1_024;

/// Names of the marks of `[overload]`, rising.
const OVERLOAD_MARKS: [&str; 3] = ["keep-alive", "requests", "connections"];
/// Less than the program itself takes, so every request would be refused.
const OVERLOAD_MEMORY_MIN: u64 = 1 << 20;

/// The default memory of the local table: two million slots of 32 bytes, for a million keys.
const LIMITS_MEMORY: u64 = 64 << 20;
const LIMITS_MEMORY_MIN: u64 = 64 << 10;
const LIMITS_MEMORY_MAX: u64 = 1 << 40;
