//! Reads and writes the settings of the process as a whole: `workers`, `[limits]`, `[overload]`, `[shutdown]`.

use std::net::SocketAddr;
use std::time::Duration;

use gateway::proxy::config::LimitHeaders;
use gateway::service::config::{MemoryLimit, OverloadConfig};
use upstream::dns;

use crate::keys::process::LIMIT_HEADERS;
use crate::load::sections;
use crate::printer::{Page, array, size, text};
use crate::reader::Table;
use crate::settings::{Limits, Shutdown};
use crate::values::{Keys, Written};

/// Reads `workers`: a number, or `"auto"` for one for each core.
pub(crate) fn read_workers(documents: &[Table<'_>]) -> Option<usize> {
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
    value.integer().and_then(|workers| usize::try_from(workers).ok())
}

/// Reads `[limits]`.
pub(crate) fn read_limits(documents: &[Table<'_>]) -> Limits {
    let mut limits = Limits { memory: LIMITS_MEMORY, headers: LimitHeaders::default(), hot_keys: true };
    if let Some(mut table) = sections::table(documents, "limits") {
        limits_keys(&mut table, &mut limits);
    }
    limits
}

fn limits_keys(keys: &mut impl Keys, limits: &mut Limits) {
    keys.size("memory", &mut limits.memory);
    keys.word("headers", &LIMIT_HEADERS, &mut limits.headers);
    keys.boolean("hot-keys", &mut limits.hot_keys);
}

/// Reads `[dns]`: name servers instead of the system's.
pub(crate) fn read_dns(documents: &[Table<'_>]) -> dns::Config {
    let mut config = dns::Config::default();
    let Some(table) = sections::table(documents, "dns") else { return config };
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
    config
}

/// Writes `[dns]`; nothing if the system's name servers are asked.
pub(crate) fn show_dns(page: &mut Page, config: &dns::Config) {
    if !config.servers.is_empty() {
        page.heading("[dns]");
        page.key("servers", array(config.servers.iter().map(|server| text(&server.to_string()))));
    }
}

/// Reads `[shutdown]`.
pub(crate) fn read_shutdown(documents: &[Table<'_>]) -> Shutdown {
    let mut shutdown = default_shutdown();
    if let Some(mut table) = sections::table(documents, "shutdown") {
        shutdown_keys(&mut table, &mut shutdown);
    }
    shutdown
}

fn shutdown_keys(keys: &mut impl Keys, shutdown: &mut Shutdown) {
    keys.duration("ready-delay", &mut shutdown.ready_delay);
    keys.duration("drain", &mut shutdown.drain);
    keys.duration("drain-tunnels", &mut shutdown.drain_tunnels);
    keys.duration("upgrade", &mut shutdown.upgrade);
}

/// Writes `[shutdown]`.
pub(crate) fn show_shutdown(page: &mut Page, shutdown: &Shutdown) {
    page.heading("[shutdown]");
    page.keys(Written::of(shutdown, shutdown_keys));
}

/// Writes `workers`.
pub(crate) fn show_workers(page: &mut Page, workers: Option<usize>) {
    match workers {
        Some(workers) => page.key("workers", workers),
        None => page.key("workers", text("auto")),
    }
}

/// Writes `[limits]`.
pub(crate) fn show_limits(page: &mut Page, limits: &Limits) {
    page.heading("[limits]");
    page.keys(Written::of(limits, limits_keys));
}

/// Writes `[overload]`.
pub(crate) fn show_overload(page: &mut Page, overload: &OverloadConfig) {
    page.heading("[overload]");
    match overload.memory {
        MemoryLimit::Machine => page.key("memory", text("auto")),
        MemoryLimit::Bytes(bytes) => page.key("memory", size(bytes)),
        MemoryLimit::Unbounded => page.key("memory", false),
    }
    page.keys(Written::of(&overload.marks_ppm, overload_marks));
}

fn overload_marks(keys: &mut impl Keys, [keep_alive, requests, connections]: &mut [u32; 3]) {
    keys.share("keep-alive", keep_alive);
    keys.share("requests", requests);
    keys.share("connections", connections);
}

/// Reads `[overload]`: the memory, and the shares of it at which keep-alive, requests and connections are given up.
pub(crate) fn read_overload(documents: &[Table<'_>]) -> OverloadConfig {
    let mut overload = OverloadConfig::default();
    let Some(mut table) = sections::table(documents, "overload") else {
        return overload;
    };
    match table.value("memory") {
        Some(value) if value.as_boolean() == Some(false) => overload.memory = MemoryLimit::Unbounded,
        Some(value) if value.is_string() && value.text().is_some_and(|text| text.text == "auto") => {}
        Some(value) => {
            let bytes = value.size();
            overload.memory = bytes.map_or(overload.memory, MemoryLimit::Bytes);
        }
        None => {}
    }
    overload_marks(&mut table, &mut overload.marks_ppm);
    if !overload.marks_ppm.is_sorted() {
        let hint =
            "write them rising, as in `keep-alive = \"92%\"`, `requests = \"95%\"`, `connections = \"98%\"`";
        table.wrong("the marks of [overload] do not rise", hint);
    }
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
/// Name servers that may be written.
const DNS_SERVERS_MAX: usize = 8;
/// The default memory of the local table: two million slots of 32 bytes, for a million keys.
const LIMITS_MEMORY: usize = 64 << 20;
