//! Reads the settings of the process as a whole: `workers`, `[limits]`, `[dns]`, `[overload]`, `[shutdown]`, `[node]` and
//! `[privacy]`.

use std::net::SocketAddr;
use std::time::Duration;

use gateway::proxy::config::LimitHeaders;
use gateway::service::config::{MemoryLimit, OverloadConfig};
use policy::keys::naming::AddressDetail;
use upstream::dns;

use crate::keys::process::{ADDRESSES, LIMIT_HEADERS, SHOWN};
use crate::load::sections;
use crate::reader::Table;
use crate::settings::{Limits, Node, Shutdown};

/// Reads `workers`: a number, or `"auto"` for one for each core.
pub(crate) fn read_workers(documents: &[Table<'_>]) -> Option<usize> {
    let value = sections::single(documents, "workers")?;
    if value.is_string() {
        let text = value.text()?;
        if text.text == "auto" {
            return None;
        }
        if !text.has_reference {
            let meant = text.text.parse().map_or("\"auto\"".to_owned(), |number: u16| number.to_string());
            let hint = format!("write `workers = {meant}`");
            text.wrong("`workers` must be a whole number or \"auto\"", hint);
            return None;
        }
    }
    value.integer().and_then(|workers| usize::try_from(workers).ok())
}

pub(crate) fn read_limits(documents: &[Table<'_>]) -> Limits {
    let mut limits = Limits { memory: LIMITS_MEMORY, headers: LimitHeaders::default(), hot_keys: true };
    if let Some(table) = sections::table(documents, "limits") {
        table.size("memory", &mut limits.memory);
        table.word("headers", &LIMIT_HEADERS, &mut limits.headers);
        table.boolean("hot-keys", &mut limits.hot_keys);
    }
    limits
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
            Ok(address) if address.port() > 0 => {
                text.spell(address);
                config.servers.push(address);
            }
            _ => text.wrong(
                format!("{} is not the address of a name server", text.shown()),
                "write an address, and a port if it is not 53, for example `127.0.0.1:53`",
            ),
        }
    }
    if config.servers.len() > DNS_SERVERS_MAX {
        table.wrong(
            format!("the gateway asks at most {DNS_SERVERS_MAX} name servers"),
            format!("write {DNS_SERVERS_MAX} `servers` or fewer"),
        );
    }
    config
}

pub(crate) fn read_shutdown(documents: &[Table<'_>]) -> Shutdown {
    let mut shutdown = Shutdown {
        ready_delay: Duration::ZERO,
        drain: Duration::from_secs(30),
        drain_tunnels: Duration::ZERO,
        upgrade: Duration::from_secs(60),
    };
    if let Some(table) = sections::table(documents, "shutdown") {
        table.duration("ready-delay", &mut shutdown.ready_delay);
        table.duration("drain", &mut shutdown.drain);
        table.duration("drain-tunnels", &mut shutdown.drain_tunnels);
        table.duration("upgrade", &mut shutdown.upgrade);
    }
    shutdown
}

/// Reads `[overload]`: the memory, and the shares of it at which keep-alive, requests and connections are given up.
pub(crate) fn read_overload(documents: &[Table<'_>]) -> OverloadConfig {
    let mut overload = OverloadConfig::default();
    let Some(table) = sections::table(documents, "overload") else {
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
    let [keep_alive, requests, connections] = &mut overload.marks_ppm;
    table.share("keep-alive", keep_alive);
    table.share("requests", requests);
    table.share("connections", connections);
    if !overload.marks_ppm.is_sorted() {
        let hint = "raise each above the one before, such as `keep-alive = \"92%\"`, `requests = \"95%\"`, `connections = \
             \"98%\"`";
        table.wrong("the thresholds of [overload] must increase", hint);
    }
    overload
}

/// Reads `[node]`, what this gateway is called among several.
pub(crate) fn read_node(documents: &[Table<'_>]) -> Node {
    let mut node = Node::default();
    let Some(table) = sections::table(documents, "node") else {
        return node;
    };
    if let Some(name) = table.value("name").and_then(|value| value.text()) {
        match is_node_name(&name.text) {
            true => node.name = Some(name.text),
            false => name.wrong(format!("{} cannot be the name of a node", name.shown()), NODE_NAMES),
        }
    }
    table.word("header", &SHOWN, &mut node.shown);
    table.word("request-id", &SHOWN, &mut node.ids_shown);
    node
}

pub(crate) fn read_privacy(documents: &[Table<'_>]) -> AddressDetail {
    let Some(table) = sections::table(documents, "privacy") else { return AddressDetail::default() };
    let addresses = table.value("addresses").and_then(|value| value.choice(&ADDRESSES));
    addresses.unwrap_or_default()
}

/// Whether a text can name a node: it stands in a header field, in logs and in a database.
pub fn is_node_name(text: &str) -> bool {
    let is_known = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.:".contains(&byte);
    (1..=NODE_NAME_BYTES_MAX).contains(&text.len()) && text.bytes().all(is_known)
}

/// Bytes of a node's name: those of a host's.
pub const NODE_NAME_BYTES_MAX: usize = 255;
const NODE_NAMES: &str = "write up to 255 letters, digits, `-`, `_`, `.` and `:`, for example `edge-1`";
const DNS_PORT: u16 = 53;
/// Name servers that may be written.
const DNS_SERVERS_MAX: usize = 8;
/// The default memory of the local table: two million slots of 32 bytes, for a million keys.
const LIMITS_MEMORY: usize = 64 << 20;
