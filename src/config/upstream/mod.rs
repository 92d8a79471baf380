//! Reads `[upstream.*]`, and the URLs in routes that expand to an upstream. It resolves no name.

pub(super) mod health;
pub(super) mod socket;
pub(super) mod sticky;
pub(super) mod trust;

use std::time::Duration;

use upstream::Config;
use upstream::config::{
    Balance, ConfiguredServer, HealthConfig, HostHeader, HttpVersion, PoolBounds, RETRY_BUDGET_PERCENT,
    ServerLocation, UploadConfig, UpstreamTimeouts,
};

use super::keys::foreign::foreign_key;
use super::keys::upstream::{BALANCES, HOSTS, VERSIONS};
use super::limits::windows;
use super::load::report::{Fields, Hint};
use super::load::sections;
use super::load::sections::NamedTable;
use super::load::text::Text;
use super::printer::{array, table as show_table, text as show_text};
use super::reader::{Table, Value};
use super::routes::retry;
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
        ServerLocation::Tcp { .. } => format!("{}://{}", scheme(server.tls), server.authority()),
        ServerLocation::Service(_) | ServerLocation::Unix(_) => show_url(&server),
    };
    Some(Config { servers: vec![server], ..default(name) })
}

fn read(named: NamedTable<'_>) -> Config {
    let table = named.table;
    let mut upstream = default(named.name);
    if let Some(value) = table.value("servers") {
        upstream.servers = servers(&value);
    }
    if let Some(value) = table.value("balance") {
        upstream.balance = balance(&value).unwrap_or_default();
    }
    upstream.sticky = table.value("sticky").and_then(|value| sticky::read(&value));
    table.word("http", &VERSIONS, &mut upstream.http);
    table.set("host", &mut upstream.host, |value| host(&value));
    if let Some(value) = table.value("tls") {
        upstream.tls = trust::read(&value);
        if !upstream.servers.is_empty() && !upstream.servers.iter().any(|server| server.tls) {
            value.wrong_key(
                "`tls` has no effect: no server has an https URL",
                "write servers like `https://orders.internal`, or leave `tls` out",
            );
        }
    }
    if let Some(table) = table.table("connections") {
        table.number("max", &mut upstream.connections.max);
        table.number("idle", &mut upstream.connections.idle);
        table.duration("idle-timeout", &mut upstream.connections.idle_timeout);
        table.duration("max-age", &mut upstream.connections.max_age);
        table.duration("wait", &mut upstream.connections.wait);
        table.number("waiting", &mut upstream.connections.waiting);
        table.number("streams", &mut upstream.connections.streams);
    }
    if let Some(table) = table.table("timeouts") {
        table.duration("connect", &mut upstream.timeouts.connect);
        table.duration("response", &mut upstream.timeouts.response);
        table.duration("stall", &mut upstream.timeouts.stall);
        table.duration_if("try", &mut upstream.timeouts.per_try);
        table.duration_if("total", &mut upstream.timeouts.total);
        warn_beyond(
            &table,
            upstream.timeouts.total,
            [("response", Some(upstream.timeouts.response)), ("try", upstream.timeouts.per_try)],
        );
    }
    if let Some(keys) = table.table("retry") {
        keys.percent("budget", &mut upstream.retry_budget_percent);
        upstream.retry = retry::read(&keys, upstream.retry_budget_percent);
    }
    if let Some(table) = table.table("uploads") {
        table.size("gather", &mut upstream.uploads.gather_bytes);
        table.size("least-rate", &mut upstream.uploads.rate_min);
    }
    upstream.health = health::read(&table, upstream.http, &upstream.servers);
    upstream
}

/// Whose host a server gets.
fn host(value: &Value<'_>) -> Option<HostHeader> {
    let text = value.text()?;
    if text.text.contains(['.', ':']) {
        let name = if text.has_reference { "…".to_owned() } else { show_text(&text.text) };
        let hint = format!("write `headers = {{ set = {{ host = {name} }} }}` at the routes");
        text.wrong("`host` is `client` or `server`, not a name", hint);
        return None;
    }
    text.choice(&HOSTS)
}

/// A word, or `hash:` and a dimension.
fn balance(value: &Value<'_>) -> Option<Balance> {
    let text = value.text()?;
    match text.text.split_once(':') {
        Some(("hash", by)) => {
            let by = by.to_owned();
            let by = windows::dimension_of_choice(&Text { text: by, ..text.clone() })?;
            text.spell(format!("hash:{by}"));
            Some(Balance::Hash(by))
        }
        None if text.text == "hash" => {
            text.wrong("`hash` needs a dimension", "write it like `hash:consumer`");
            None
        }
        _ => text.choice_beside(&BALANCES, &["hash:ip"]),
    }
}

fn servers(value: &Value<'_>) -> Vec<ConfiguredServer> {
    let values = match value.is_array() {
        true => value.array().unwrap_or_default(),
        false if value.is_string() => vec![value.clone()],
        false => {
            value.wrong_type("a URL or an array of them");
            return Vec::new();
        }
    };
    if values.is_empty() {
        value.wrong("an upstream needs at least one server", "write `[\"http://127.0.0.1:3000\"]`");
    }
    let mut servers: Vec<ConfiguredServer> = Vec::new();
    for value in &values {
        let Some(server) = weighted(value) else { continue };
        if servers.iter().any(|other| (other.tls, &other.place) == (server.tls, &server.place)) {
            value
                .warn("this server is listed twice", "list it once: `weight` sets its share of the requests");
        }
        servers.push(server);
    }
    servers
}

/// A server: a URL, or a table with the URL and a weight.
fn weighted(value: &Value<'_>) -> Option<ConfiguredServer> {
    if !value.is_table() {
        return server(&value.text()?);
    }
    let table = value.table()?;
    let url = table.value("url");
    let mut weight = 1;
    // Before the URL, so that errors of both are reported.
    table.number("weight", &mut weight);
    let server = server(&url?.text()?)?;
    Some(ConfiguredServer { weight, ..server })
}

/// Whether a text means a server, and not an upstream by its name.
pub(super) fn is_url(text: &str) -> bool {
    text.contains("://") || socket::is_meant(text)
}

/// `http://host:port` or `https://host:port`; the port may be left out. `http+srv://_service._proto.name` for SRV records.
/// Or `unix:/path`.
fn server(text: &Text<'_>) -> Option<ConfiguredServer> {
    let server = read_server(text);
    server.iter().for_each(|server| text.spell(show_url(server)));
    server
}

fn read_server(text: &Text<'_>) -> Option<ConfiguredServer> {
    if socket::is_meant(&text.text) {
        let path = socket::path(text, "unix:/run/app.sock")?;
        return Some(ConfiguredServer { tls: false, place: ServerLocation::Unix(path), weight: 1 });
    }
    let wrong = |message: &str, hint: &'static str| {
        let meant = if text.has_reference { None } else { url_meant(&text.text) };
        text.wrong(format!("{} {message}", text.shown()), meant.map_or(Hint::from(hint), Hint::from));
        None
    };
    let (tls, authority) = match text.text.split_once("://") {
        Some(("http" | "http+srv", rest)) => (false, rest),
        Some(("https" | "https+srv", rest)) => (true, rest),
        Some((scheme, _)) if let Some((_, hint)) = foreign_key("the scheme of a server", scheme) => {
            let meant = url_meant(&text.text).filter(|_| !text.has_reference);
            let or = meant.map(|meant| format!("; if the server speaks HTTP, {meant}")).unwrap_or_default();
            text.wrong(format!("{} is not an HTTP server", text.shown()), format!("{hint}{or}"));
            return None;
        }
        _ => return wrong("is not an upstream's URL", "write it like `http://127.0.0.1:3000`"),
    };
    if let (false, Some(path)) = (tls, authority.strip_prefix("unix:")) {
        // Without the path of the request that nginx writes after it.
        let path = path.split(':').next().unwrap_or_default();
        text.wrong(format!("{} is not a Unix socket", text.shown()), format!("write `unix:{path}`"));
        return None;
    }
    let authority = authority.strip_suffix('/').unwrap_or(authority);
    if authority.contains('@') {
        // Not quoted, because the text before the @ is a password.
        text.wrong(
            "an upstream's URL cannot hold a user name or a password",
            "set the header at the route: `headers = { set = { authorization = \"${NAME}\" } }`",
        );
        return None;
    }
    if authority.contains([',', ' ']) {
        return wrong("is more than one URL", "write one URL");
    }
    if authority.contains(['/', '?', '#']) {
        text.wrong(format!("{} has a path", text.shown()), path_meant(text));
        return None;
    }
    // Without `$` and the like, because those are variables of other programs.
    let authority =
        authority.parse::<http::uri::Authority>().ok().filter(|it| !it.as_str().contains(NOT_IN_HOSTS));
    let Some(authority) = authority else {
        return wrong("is not an upstream's URL", "write it like `http://127.0.0.1:3000`");
    };
    let host = authority.host().trim_start_matches('[').trim_end_matches(']').to_ascii_lowercase();
    if text.has_wrong_port(&authority) {
        return None;
    }
    let port = authority.port_u16().unwrap_or(default_port(tls));
    if host.is_empty() {
        return wrong("has no host", "write it like `http://127.0.0.1:3000`");
    }
    if !text.text.starts_with("http+srv://") && !text.text.starts_with("https+srv://") {
        return Some(ConfiguredServer { tls, place: ServerLocation::Tcp { host, port }, weight: 1 });
    }
    if authority.port_u16().is_some() || !is_service(&host) {
        let has_port = authority.port_u16().is_some();
        return wrong(
            if has_port { "has a port, which SRV records name" } else { "is not the name of a service" },
            "write it like `http+srv://_http._tcp.orders.internal`",
        );
    }
    Some(ConfiguredServer { tls, place: ServerLocation::Service(host), weight: 1 })
}

/// What to write for a server with a path, which a route's `rewrite` puts before that of the request.
fn path_meant(text: &Text<'_>) -> String {
    let whole = text.text.trim_end_matches('/');
    let path_at = whole.find("://").and_then(|at| Some(at + 3 + whole[at + 3..].find('/')?));
    let parts = path_at.map(|at| whole.split_at(at));
    match parts.filter(|_| !text.has_reference && !whole.contains(['{', '}', '?', '#', '$'])) {
        Some((server, path)) => format!("write `{server}`, and `rewrite = \"{path}{{path}}\"` at the route"),
        None => "end it after the port; the route's `rewrite` changes paths".to_owned(),
    }
}

/// What to write for a server as other programs have them: without a scheme, with another one, with a weight or other words
/// beside it, or several in one text. `None` if that is not clear.
pub(super) fn url_meant(text: &str) -> Option<String> {
    let url = |word: &str| {
        let parts = word.split_once("://").or_else(|| word.split_once(":/"));
        let (scheme, rest) = parts.unwrap_or(("http", word));
        let authority = rest.split('/').next().unwrap_or_default();
        let is_host = authority.contains(['.', ':']) && !authority.contains(NOT_IN_HOSTS);
        let parsed =
            authority.parse::<http::uri::Authority>().ok().filter(|it| is_host && !it.host().is_empty())?;
        let host = parsed.host();
        let has_records = scheme.contains("srv") && host.starts_with(|it: char| it.is_ascii_alphabetic());
        let is_tls = ["https", "grpcs", "wss"].iter().any(|it| scheme.contains(it));
        let scheme = if is_tls { "https" } else { "http" };
        Some(match is_service(host) {
            true => format!("{scheme}+srv://{host}"),
            false if has_records => format!("{scheme}+srv://_http._tcp.{host}"),
            false => format!("{scheme}://{authority}"),
        })
    };
    // Nothing before an `@`, because a part of it may be a password.
    let words = text.split([' ', '\t', ',']).filter(|word| !word.is_empty() && !text.contains('@'));
    let words: Vec<&str> = words.collect();
    let urls: Vec<String> = words.iter().filter_map(|word| url(word)).collect();
    let behind = words.iter().skip_while(|word| **word != "weight").nth(1).copied();
    let weight = words.iter().find_map(|word| word.strip_prefix("weight=")).or(behind);
    let weight = weight.and_then(|weight| weight.parse::<u16>().ok());
    let is_h2 = ["grpc://", "grpcs://", "h2c://"].iter().any(|scheme| text.starts_with(scheme));
    match (&*urls, weight) {
        ([url], Some(weight)) => Some(format!("write `{{ url = \"{url}\", weight = {weight} }}`")),
        ([url], None) if is_h2 => {
            Some(format!("write `{url}`, and `http = \"h2\"` in its `[upstream.NAME]`"))
        }
        ([url], None) => Some(format!("write `{url}`")),
        ([], _) => None,
        (several, _) => Some(format!("write `{}`", array(several.iter().map(|url| show_text(url))))),
    }
}

/// Characters that an authority may have, and no name of a host.
const NOT_IN_HOSTS: [char; 8] = ['$', '=', '\'', '(', ')', '*', ';', '~'];

/// Whether it reads like `_http._tcp.orders.internal` (RFC 2782).
fn is_service(host: &str) -> bool {
    let mut labels = host.splitn(3, '.');
    let mut is_marked = || labels.next().is_some_and(|label| label.len() > 1 && label.starts_with('_'));
    is_marked() && is_marked() && labels.next().is_some_and(|name| !name.is_empty())
}

/// The URL of a server, with its port if an SRV record does not say it.
fn show_url(server: &ConfiguredServer) -> String {
    let scheme = scheme(server.tls);
    match &server.place {
        ServerLocation::Tcp { host, port } if host.contains(':') => format!("{scheme}://[{host}]:{port}"),
        ServerLocation::Tcp { host, port } => format!("{scheme}://{host}:{port}"),
        ServerLocation::Service(name) => format!("{scheme}+srv://{name}"),
        ServerLocation::Unix(_) => server.shown(),
    }
}

/// The servers of an upstream that a route has written as a URL.
pub(super) fn show_servers(servers: &[ConfiguredServer]) -> String {
    array(servers.iter().map(|server| {
        show_table([("url", show_text(&show_url(server))), ("weight", server.weight.to_string())])
    }))
}

/// Warns of deadlines that the one for the whole makes meaningless.
pub(super) fn warn_beyond(
    keys: &Table<'_>,
    total: Option<Duration>,
    parts: [(&'static str, Option<Duration>); 2],
) {
    for (key, part) in parts {
        if let Some(value) = keys.value(key).filter(|_| total.is_some() && part > total) {
            value.warn(format!("`{key}` never expires: `total` is shorter"), "lower it, or raise `total`");
        }
    }
}

fn default(name: String) -> Config {
    Config {
        name,
        servers: Vec::new(),
        balance: Balance::default(),
        sticky: None,
        http: HttpVersion::default(),
        tls: Trust::default(),
        connections: PoolBounds::default(),
        timeouts: UpstreamTimeouts::default(),
        retry: Retry::default(),
        retry_budget_percent: RETRY_BUDGET_PERCENT,
        host: HostHeader::default(),
        uploads: UploadConfig::default(),
        health: HealthConfig::default(),
    }
}

fn scheme(tls: bool) -> &'static str {
    if tls { "https" } else { "http" }
}

fn default_port(tls: bool) -> u16 {
    if tls { 443 } else { 80 }
}
