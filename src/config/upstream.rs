//! Reads and writes `[upstream.*]`, and the URLs in routes that expand to an upstream. It resolves no name.

use upstream::Config;
use upstream::config::{
    Balance, Connections, Health, HostHeader, Place, RETRY_BUDGET_PERCENT, Server, Timeouts, Uploads, Version,
};

use super::keys::{Keys, Written};
use super::listener::TIMEOUT_MIN;
use super::printer::{Page, array, key, table, text, time, word};
use super::reader::{Table, Value};
use super::report::Fields;
use super::sections::{self, Named};
use super::socket;
use super::text::Text;
use super::{health, limit_text, retry, sticky, trust, windows};
use base::units::show_share;
use net::trust::Trust;
use policy::retry::Retry;

/// The name of the built-in upstream that answers with what it was sent.
pub(super) const ECHO: &str = "echo";

/// Reads every upstream that has a name.
pub(super) fn read_all(documents: &[Table<'_>]) -> (Vec<Config>, Vec<Fields>) {
    let mut upstreams = Vec::new();
    let mut places = Vec::new();
    for named in sections::named(documents, "upstream") {
        if named.name == ECHO {
            named.table.wrong("`echo` is the built-in upstream", "choose another name");
        }
        places.push(named.table.places());
        upstreams.push(read(named));
    }
    (upstreams, places)
}

/// The upstream that a URL expands to: one server and every default. Its name is the URL in its shortest spelling, so that
/// two spellings of one server share its connections.
pub(super) fn of_url(text: &Text<'_>) -> Option<Config> {
    let server = server(text)?;
    let name = match &server.place {
        Place::Tcp { .. } => format!("{}://{}", scheme(server.tls), server.authority()),
        Place::Service(_) | Place::Unix(_) => show_url(&server),
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
        upstream.balance = balance(&value).unwrap_or_default();
    }
    upstream.sticky = table.value("sticky").and_then(|value| sticky::read(&value));
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
    if let Some(mut table) = table.table("connections") {
        connections(&mut table, &mut upstream.connections);
        table.finish(&[]);
    }
    if let Some(mut table) = table.table("timeouts") {
        timeouts(&mut table, &mut upstream.timeouts);
        upstream.timeouts.per_try = table.value("try").and_then(|value| value.duration(TIMEOUT_MIN));
        upstream.timeouts.total = table.value("total").and_then(|value| value.duration(TIMEOUT_MIN));
        table.finish(&[]);
    }
    if let Some(keys) = table.table("retry") {
        if let Some(percent) = keys.value("budget").and_then(|value| value.percent()) {
            upstream.retry_budget_percent = percent;
        }
        upstream.retry = retry::read(&keys, upstream.retry_budget_percent);
        keys.finish(&[]);
    }
    if let Some(mut table) = table.table("uploads") {
        uploads(&mut table, &mut upstream.uploads);
        table.finish(&[]);
    }
    upstream.health = health::read(&table, upstream.http, &upstream.servers);
    table.finish(&[]);
    upstream
}

/// A word, or `hash:` and a dimension.
fn balance(value: &Value<'_>) -> Option<Balance> {
    let text = value.text()?;
    match text.text.split_once(':') {
        Some(("hash", by)) => {
            let by = by.to_owned();
            windows::dimension_of_choice(&Text { text: by, ..text }).map(Balance::Hash)
        }
        None if text.text == "hash" => {
            text.wrong("`hash` needs a dimension", "write it as in `hash:consumer`");
            None
        }
        _ => text.choice(&BALANCES, &[]),
    }
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

/// Whether a text means a server, and not an upstream by its name.
pub(super) fn is_url(text: &str) -> bool {
    text.contains("://") || socket::is_meant(text)
}

/// `http://host:port` or `https://host:port`; the port may be left out. `http+srv://_service._proto.name` for SRV records.
/// Or `unix:/path`.
fn server(text: &Text<'_>) -> Option<Server> {
    if socket::is_meant(&text.text) {
        let path = socket::path(text, "unix:/run/app.sock")?;
        return Some(Server { tls: false, place: Place::Unix(path), weight: 1 });
    }
    let wrong = |message: &str, hint: &str| {
        text.wrong(format!("{} {message}", text.shown()), hint);
        None
    };
    let (tls, authority) = match text.text.split_once("://") {
        Some(("http" | "http+srv", rest)) => (false, rest),
        Some(("https" | "https+srv", rest)) => (true, rest),
        _ => return wrong("is not an upstream's URL", "write it as in `http://127.0.0.1:3000`"),
    };
    if let (false, Some(path)) = (tls, authority.strip_prefix("unix:")) {
        return wrong("is not a Unix socket", &format!("write `unix:{path}`"));
    }
    let authority = authority.strip_suffix('/').unwrap_or(authority);
    if authority.contains('@') {
        // Not quoted, because the text before the @ is a password.
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
    if text.has_wrong_port(&authority) {
        return None;
    }
    let port = authority.port_u16().unwrap_or(default_port(tls));
    if host.is_empty() {
        return wrong("has no host", "write it as in `http://127.0.0.1:3000`");
    }
    if !text.text.starts_with("http+srv://") && !text.text.starts_with("https+srv://") {
        return Some(Server { tls, place: Place::Tcp { host, port }, weight: 1 });
    }
    if authority.port_u16().is_some() || !is_service(&host) {
        return wrong(
            "is not the name of a service",
            "write it as in `http+srv://_http._tcp.orders.internal`, without a port",
        );
    }
    Some(Server { tls, place: Place::Service(host), weight: 1 })
}

/// Whether it reads like `_http._tcp.orders.internal` (RFC 2782).
fn is_service(host: &str) -> bool {
    let mut labels = host.splitn(3, '.');
    let mut is_marked = || labels.next().is_some_and(|label| label.len() > 1 && label.starts_with('_'));
    is_marked() && is_marked() && labels.next().is_some_and(|name| !name.is_empty())
}

/// The URL of a server, with its port if an SRV record does not say it.
fn show_url(server: &Server) -> String {
    let scheme = scheme(server.tls);
    match &server.place {
        Place::Tcp { host, port } if host.contains(':') => format!("{scheme}://[{host}]:{port}"),
        Place::Tcp { host, port } => format!("{scheme}://{host}:{port}"),
        Place::Service(name) => format!("{scheme}+srv://{name}"),
        Place::Unix(_) => server.shown(),
    }
}

fn connections(keys: &mut impl Keys, connections: &mut Connections) {
    keys.number("max", 1..=CONNECTIONS_MAX, &mut connections.max);
    keys.number("idle", 0..=CONNECTIONS_MAX, &mut connections.idle);
    keys.duration("idle-timeout", TIMEOUT_MIN, &mut connections.idle_timeout);
    keys.duration("max-age", TIMEOUT_MIN, &mut connections.max_age);
    keys.duration("wait", TIMEOUT_MIN, &mut connections.wait);
    keys.number("waiting", 0..=CONNECTIONS_MAX, &mut connections.waiting);
    keys.number("streams", 1..=CONNECTIONS_MAX, &mut connections.streams);
}

fn timeouts(keys: &mut impl Keys, timeouts: &mut Timeouts) {
    keys.duration("connect", TIMEOUT_MIN, &mut timeouts.connect);
    keys.duration("response", TIMEOUT_MIN, &mut timeouts.response);
    keys.duration_or_off("stall", TIMEOUT_MIN, &mut timeouts.stall);
}

fn uploads(keys: &mut impl Keys, uploads: &mut Uploads) {
    keys.size("gather", 0..=GATHER_BYTES_MAX, &mut uploads.gather_bytes);
    keys.size("least-rate", 0..=RATE_MAX, &mut uploads.rate_min);
}

/// Writes `[upstream.*]`.
pub(super) fn show(page: &mut Page, upstream: &Config) {
    page.heading(&format!("[upstream.{}]", key(&upstream.name)));
    page.key(
        "servers",
        array(upstream.servers.iter().map(|server| {
            let url = text(&show_url(server));
            format!("{{ url = {url}, weight = {} }}", server.weight)
        })),
    );
    page.key(
        "balance",
        match &upstream.balance {
            Balance::Hash(by) => text(&format!("hash:{}", limit_text::show_dimension(by))),
            balance => text(word(&BALANCES, balance)),
        },
    );
    upstream.sticky.iter().for_each(|sticky| page.key("sticky", sticky::show(sticky)));
    page.key(
        "http",
        text(match upstream.http {
            Version::H1 => "h1",
            Version::H2 => "h2",
        }),
    );
    if upstream.servers.iter().any(|server| server.tls) {
        page.key("tls", trust::show(&upstream.tls));
    }
    page.key(
        "host",
        text(match upstream.host {
            HostHeader::Client => "client",
            HostHeader::Server => "server",
        }),
    );
    show_bounds(page, upstream);
}

fn show_bounds(page: &mut Page, upstream: &Config) {
    page.key("connections", Written::table(&upstream.connections, connections));
    let mut keys = Written::of(&upstream.timeouts, timeouts);
    keys.extend(upstream.timeouts.per_try.map(|per_try| ("try", time(per_try))));
    keys.extend(upstream.timeouts.total.map(|total| ("total", time(total))));
    page.key("timeouts", table(keys));
    let budget = text(&show_share(upstream.retry_budget_percent * 10_000));
    page.key("retry", table(retry::show(&upstream.retry).chain([("budget", budget)])));
    page.key("uploads", Written::table(&upstream.uploads, uploads));
    health::show(page, &upstream.health);
}

fn default(name: String) -> Config {
    Config {
        name,
        servers: Vec::new(),
        balance: Balance::default(),
        sticky: None,
        http: Version::default(),
        tls: Trust::default(),
        connections: Connections::default(),
        timeouts: Timeouts::default(),
        retry: Retry::default(),
        retry_budget_percent: RETRY_BUDGET_PERCENT,
        host: HostHeader::default(),
        uploads: Uploads::default(),
        health: Health::default(),
    }
}

fn scheme(tls: bool) -> &'static str {
    if tls { "https" } else { "http" }
}

fn default_port(tls: bool) -> u16 {
    if tls { 443 } else { 80 }
}

/// The words of `balance`; a dimension follows `hash:`.
const BALANCES: [(&str, Balance); 3] =
    [("p2c", Balance::P2c), ("round-robin", Balance::RoundRobin), ("least-requests", Balance::LeastRequests)];
const GATHER_BYTES_MAX: u64 = 1 << 20;
const RATE_MAX: u64 = 1 << 30;
/// The most a weight may be.
pub(super) const WEIGHT_MAX: u64 = 1_000;
const CONNECTIONS_MAX: u64 = 1_000_000;
