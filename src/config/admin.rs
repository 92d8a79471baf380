//! Reads and writes `[admin]`, the listener for operators.

use crate::admin::{self, Bind, Config};

use super::listener;
use super::printer::{Page, array, text};
use super::reader::Table;
use super::report::Fields;
use super::sections;
use super::socket;
use super::text::Text;

/// Reads `[admin]`, or `admin = false`, which turns it off.
pub(super) fn read(documents: &[Table<'_>]) -> (Option<Config>, Fields) {
    let mut config = default_admin();
    let Some(value) = sections::single(documents, "admin") else { return (Some(config), Fields::default()) };
    if value.as_boolean() == Some(false) {
        return (None, Fields::default());
    }
    if value.as_boolean() == Some(true) {
        value.wrong(
            "`admin` is on unless it is turned off",
            "leave it out, or write `admin = false` or a table",
        );
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
            token.warn("`token` is written in plain text", hint);
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

/// Writes `[admin]`.
pub(super) fn show(page: &mut Page, config: Option<&Config>) {
    let Some(admin) = config else {
        // At the top, because a bare key after a table header would belong to that table.
        return page.at_the_top("admin", false);
    };
    page.heading("[admin]");
    match &admin.bind {
        Bind::Tcp(address) => page.key("bind", text(&address.to_string())),
        Bind::Unix(path) => page.key("bind", text(&format!("unix:{}", path.display()))),
    }
    if let Some(token) = &admin.token {
        page.key("token", text(token));
    }
    if !admin.hosts.is_empty() {
        page.key("hosts", array(admin.hosts.iter().map(|host| text(host))));
    }
}

/// A name or an address without a port, since the check of `Host` ignores ports.
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

/// `host:port`, or `unix:` and a path.
fn bind_address(text: &Text<'_>) -> Option<Bind> {
    if socket::is_meant(&text.text) {
        return socket::path(text, "unix:/run/sluicegate/admin.sock").map(Bind::Unix);
    }
    listener::address(text).map(Bind::Tcp)
}

/// The admin listener if the file does not mention it.
fn default_admin() -> Config {
    Config { bind: Bind::Tcp(([127, 0, 0, 1], 9900).into()), token: None, hosts: Vec::new() }
}
