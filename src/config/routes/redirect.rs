//! Reads `redirect`, of listeners and of routes. Whether a target is valid is checked where routes are compiled.

use http::StatusCode;
use http::uri::Authority;

use policy::definition::{ActionDefinition, HTTPS_PORT, HttpsRedirect};

use crate::load::text::Text;
use crate::reader::Value;
use crate::routes::headers;

/// The redirect of a listener: `"https"`, `"https:8443"`, `"https://www.example.com{path}"`, or a table with a `status`.
pub(crate) fn of_listener(value: &Value<'_>) -> Option<HttpsRedirect> {
    let (to, status) = parts(value)?;
    let redirect = match to.text.strip_prefix("https://") {
        Some(rest) => elsewhere(&to, rest)?,
        None => same_host(&to, &["https:8443", "https://www.example.com{path}"])?,
    };
    to.spell(show(&redirect));
    Some(HttpsRedirect { status, ..redirect })
}

/// The redirect of a route: the same, or any path or URL with `{...}`.
pub(crate) fn of_route(value: &Value<'_>) -> Option<ActionDefinition> {
    let (to, status) = parts(value)?;
    headers::warn_of_variables(&to);
    if to.text.starts_with(['/', '{']) || to.text.contains("://") {
        return Some(ActionDefinition::Redirect { to: to.text, status });
    }
    let redirect = same_host(&to, &["/new/{id}", "https://www.example.com{path}"])?;
    to.spell(show(&redirect));
    Some(ActionDefinition::RedirectHttps(HttpsRedirect { status, ..redirect }))
}

/// Where to, and with which status.
fn parts<'c>(value: &Value<'c>) -> Option<(Text<'c>, StatusCode)> {
    if !value.is_table() {
        return Some((value.text()?, DEFAULT));
    }
    let table = value.table()?;
    let to = table.value("to");
    let status = table.value("status").and_then(|value| {
        let code = value.integer()?;
        let known = STATUSES.iter().find(|status| u64::from(status.as_u16()) == code);
        if known.is_none() {
            value.wrong("no client follows a redirect with this status", "write 301, 302, 303, 307 or 308");
        }
        known.copied()
    });
    Some((to?.text()?, status.unwrap_or(DEFAULT)))
}

/// `https`, perhaps with a port; `others` are what else may be written.
fn same_host(text: &Text<'_>, others: &[&str]) -> Option<HttpsRedirect> {
    let port = match text.text.split_once(':') {
        Some(("https", port)) => port,
        _ => {
            let port = text.choice_beside(&[("https", HTTPS_PORT)], others)?;
            return Some(HttpsRedirect { host: None, port, status: DEFAULT });
        }
    };
    // Digits alone, because `parse` would take a sign; and not 0, because nothing can connect to it.
    let is_number = !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
    let Some(port) = port.parse().ok().filter(|port| is_number && *port > 0) else {
        let hint = "write a port from 1 to 65535, for example `https:8443`, or `https` for 443";
        text.wrong(format!("the port in {} is not valid", text.shown()), hint);
        return None;
    };
    Some(HttpsRedirect { host: None, port, status: DEFAULT })
}

/// `www.example.com{path}`, perhaps with a port. It keeps path and query, because a listener knows no route.
fn elsewhere(text: &Text<'_>, rest: &str) -> Option<HttpsRedirect> {
    let authority = rest.strip_suffix("{path}").and_then(|host| host.parse::<Authority>().ok());
    let authority = authority.filter(|authority| !authority.as_str().contains('@'));
    let Some(authority) = authority else {
        let hint = "write `https` for the host of the request, or `https://www.example.com{path}`; a route's `redirect` can go elsewhere";
        text.wrong(format!("a listener cannot redirect to {}", text.shown()), hint);
        return None;
    };
    if text.has_wrong_port(&authority) {
        return None;
    }
    let port = authority.port_u16().unwrap_or(HTTPS_PORT);
    let host = authority.host().trim_start_matches('[').trim_end_matches(']').to_owned();
    Some(HttpsRedirect { host: Some(host), port, status: DEFAULT })
}

/// A redirect to https as both read it.
fn show(redirect: &HttpsRedirect) -> String {
    let port = match redirect.port {
        HTTPS_PORT => String::new(),
        port => format!(":{port}"),
    };
    match &redirect.host {
        None => format!("https{port}"),
        Some(host) if host.contains(':') => format!("https://[{host}]{port}{{path}}"),
        Some(host) => format!("https://{host}{port}{{path}}"),
    }
}

/// 308, because clients keep method and body (RFC 9110 section 15.4.9).
const DEFAULT: StatusCode = StatusCode::PERMANENT_REDIRECT;
const STATUSES: [StatusCode; 5] = [
    StatusCode::MOVED_PERMANENTLY,
    StatusCode::FOUND,
    StatusCode::SEE_OTHER,
    StatusCode::TEMPORARY_REDIRECT,
    StatusCode::PERMANENT_REDIRECT,
];
