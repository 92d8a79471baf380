//! `[upstream.*]`, and the URLs that stand for one.

use crate::upstream::Config;
use crate::upstream::config::{Balance, Connections, HostHeader, Retry, Server, Timeouts, Uploads, Version};

use super::listener::TIMEOUT_MIN;
use super::reader::{self, Named, Table, Text, Value};
use super::report::Fields;
use super::trust;
use crate::trust::Trust;

/// The name of the built-in upstream that answers with what it was sent.
pub(super) const ECHO: &str = "echo";

/// Reads every upstream that has a name.
pub(super) fn read_all(documents: &[Table<'_>]) -> (Vec<Config>, Vec<Fields>) {
    let mut upstreams = Vec::new();
    let mut places = Vec::new();
    for named in reader::named(documents, "upstream") {
        if named.name == ECHO {
            named.table.wrong("`echo` is the built-in upstream", "choose another name");
        }
        places.push(named.table.places());
        upstreams.push(read(named));
    }
    (upstreams, places)
}

/// The upstream that a URL stands for: one server, everything else as by default, named by the URL without
/// what it may leave out, so that two spellings of one server share its connections.
pub(super) fn of_url(text: &Text<'_>) -> Option<Config> {
    let server = server(text)?;
    let scheme = if server.tls { "https" } else { "http" };
    let host = if server.host.contains(':') { format!("[{}]", server.host) } else { server.host.clone() };
    let name = if server.port == default_port(server.tls) {
        format!("{scheme}://{host}")
    } else {
        format!("{scheme}://{host}:{}", server.port)
    };
    Some(Config { servers: vec![server], ..default(name) })
}

fn read(named: Named<'_>) -> Config {
    let table = named.table;
    let mut upstream = default(named.name);
    match table.value("servers") {
        Some(value) => upstream.servers = servers(&value),
        None => table.wrong("an upstream needs `servers`", "write `servers = [\"http://127.0.0.1:3000\"]`"),
    }
    if let Some(value) = table.value("balance") {
        let choices = [("p2c", Balance::P2c), ("round-robin", Balance::RoundRobin)];
        upstream.balance = value.choice(&choices, &["least-requests", "hash"]).unwrap_or_default();
    }
    if let Some(value) = table.value("http") {
        upstream.http = value.choice(&[("h1", Version::H1), ("h2", Version::H2)], &[]).unwrap_or_default();
    }
    if let Some(value) = table.value("tls") {
        upstream.tls = trust::read(&value);
        if !upstream.servers.is_empty() && !upstream.servers.iter().any(|server| server.tls) {
            value.wrong_key(
                "`tls` needs a server over TLS",
                "write the server as in `https://orders.internal`",
            );
        }
    }
    if let Some(value) = table.value("host") {
        let choices = [("client", HostHeader::Client), ("server", HostHeader::Server)];
        upstream.host = value.choice(&choices, &[]).unwrap_or_default();
    }
    if let Some(connections) = table.table("connections") {
        read_connections(connections, &mut upstream.connections);
    }
    if let Some(timeouts) = table.table("timeouts") {
        read_timeouts(timeouts, &mut upstream.timeouts);
    }
    if let Some(retry) = table.table("retry") {
        read_retry(retry, &mut upstream.retry);
    }
    if let Some(uploads) = table.table("uploads") {
        read_uploads(uploads, &mut upstream.uploads);
    }
    table.finish(&["health", "eject"]);
    upstream
}

fn servers(value: &Value<'_>) -> Vec<Server> {
    let values = match value.is_string() {
        true => vec![value.clone()],
        false => value.array().unwrap_or_default(),
    };
    if values.is_empty() && value.is_array() {
        value.wrong("an upstream needs at least one server", "write `[\"http://127.0.0.1:3000\"]`");
    }
    values.iter().filter_map(weighted).collect()
}

/// A server: a URL, or a table with the URL and a weight.
fn weighted(value: &Value<'_>) -> Option<Server> {
    if !value.is_table() {
        return server(&value.text()?);
    }
    let table = value.table("a server")?;
    let url = table.value("url");
    if url.is_none() {
        table.wrong("a server needs `url`", "write `{ url = \"http://127.0.0.1:3000\", weight = 2 }`");
    }
    let weight = table.value("weight").and_then(|value| value.integer(1..=WEIGHT_MAX)).unwrap_or(1);
    table.finish(&[]);
    let server = server(&url?.text()?)?;
    Some(Server { weight: u32::try_from(weight).unwrap_or(1), ..server })
}

/// `http://host:port` or `https://host:port`; the port may be left out.
fn server(text: &Text<'_>) -> Option<Server> {
    let wrong = |message: &str, hint: &str| {
        text.wrong(format!("{} {message}", text.shown()), hint);
        None
    };
    let (tls, authority) = match text.text.split_once("://") {
        Some(("http", rest)) => (false, rest),
        Some(("https", rest)) => (true, rest),
        _ => return wrong("is not an upstream's URL", "write it as in `http://127.0.0.1:3000`"),
    };
    let authority = authority.strip_suffix('/').unwrap_or(authority);
    if authority.contains('@') {
        // Not quoted: what stands before the @ is a password.
        text.wrong(
            "an upstream's URL cannot hold a user name or a password",
            "set the field on the route: `headers = { set = { authorization = \"${...}\" } }`",
        );
        return None;
    }
    if authority.contains(['/', '?', '#']) {
        return wrong("has a path", "end it after the port; the route's `rewrite` changes paths");
    }
    let Ok(authority) = authority.parse::<http::uri::Authority>() else {
        return wrong("is not an upstream's URL", "write it as in `http://127.0.0.1:3000`");
    };
    let host = authority.host().trim_start_matches('[').trim_end_matches(']').to_ascii_lowercase();
    let port = match (authority.port_u16(), authority.as_str().len() > authority.host().len()) {
        (Some(port), _) if port > 0 => port,
        (None, false) => default_port(tls),
        _ => return wrong("has a port that is none", "write a port from 1 to 65535"),
    };
    if host.is_empty() {
        return wrong("has no host", "write it as in `http://127.0.0.1:3000`");
    }
    Some(Server { tls, host, port, weight: 1 })
}

fn read_connections(table: Table<'_>, connections: &mut Connections) {
    for (key, min, bound) in [
        ("max", 1, &mut connections.max),
        ("idle", 0, &mut connections.idle),
        ("waiting", 0, &mut connections.waiting),
        ("streams", 1, &mut connections.streams),
    ] {
        if let Some(number) = table.value(key).and_then(|value| value.integer(min..=CONNECTIONS_MAX)) {
            *bound = usize::try_from(number).unwrap_or(usize::MAX);
        }
    }
    for (key, time) in [
        ("idle-timeout", &mut connections.idle_timeout),
        ("max-age", &mut connections.max_age),
        ("wait", &mut connections.wait),
    ] {
        if let Some(duration) = table.value(key).and_then(|value| value.duration(TIMEOUT_MIN)) {
            *time = duration;
        }
    }
    table.finish(&[]);
}

fn read_timeouts(table: Table<'_>, timeouts: &mut Timeouts) {
    for (key, timeout) in [
        ("connect", &mut timeouts.connect),
        ("response", &mut timeouts.response),
        ("stall", &mut timeouts.stall),
    ] {
        if let Some(duration) = table.value(key).and_then(|value| value.duration(TIMEOUT_MIN)) {
            *timeout = duration;
        }
    }
    timeouts.total = table.value("total").and_then(|value| value.duration(TIMEOUT_MIN));
    table.finish(&[]);
}

fn read_retry(table: Table<'_>, retry: &mut Retry) {
    if let Some(times) = table.value("times").and_then(|value| value.integer(0..=1)) {
        retry.times = u32::try_from(times).unwrap_or(0);
    }
    if let Some(value) = table.value("on") {
        (retry.on_connect, retry.on_reset) = (false, false);
        for text in value.texts() {
            match text.choice(&[("connect", false), ("reset-before-bytes", true)], &[]) {
                Some(true) => retry.on_reset = true,
                Some(false) => retry.on_connect = true,
                None => {}
            }
        }
    }
    if let Some(value) = table.value("budget")
        && let Some(ppm) = value.share_ppm()
    {
        if ppm % 10_000 != 0 {
            value.wrong("`budget` must be a whole number of percent", "write it as in `20%`");
        }
        retry.budget_percent = ppm / 10_000;
    }
    table.finish(&[]);
}

fn read_uploads(table: Table<'_>, uploads: &mut Uploads) {
    if let Some(bytes) = table.value("gather").and_then(|value| value.size(0..=GATHER_BYTES_MAX)) {
        uploads.gather_bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
    }
    if let Some(bytes) = table.value("least-rate").and_then(|value| value.size(0..=RATE_MAX)) {
        uploads.rate_min = bytes;
    }
    table.finish(&[]);
}

fn default(name: String) -> Config {
    Config {
        name,
        servers: Vec::new(),
        balance: Balance::default(),
        http: Version::default(),
        tls: Trust::default(),
        connections: Connections::default(),
        timeouts: Timeouts::default(),
        retry: Retry::default(),
        host: HostHeader::default(),
        uploads: Uploads::default(),
    }
}

fn default_port(tls: bool) -> u16 {
    if tls { 443 } else { 80 }
}

const GATHER_BYTES_MAX: u64 = 1 << 20;
const RATE_MAX: u64 = 1 << 30;
const WEIGHT_MAX: u64 = 1_000;
const CONNECTIONS_MAX: u64 = 1_000_000;
