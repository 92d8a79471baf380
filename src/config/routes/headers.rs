//! Reads header changes and a route's fixed answer: `headers`, `response-headers`, `respond`.

use http::header::HOST;
use http::{HeaderName, StatusCode};

use policy::definition::{HeaderChangesDefinition, RespondDefinition};
use policy::response::changes::{FixedChanges, is_framing};

use crate::load::mask;
use crate::load::report::quoted;
use crate::load::text::Text;
use crate::reader::{Table, Value};

/// `headers` or `response-headers` of a route.
pub(crate) fn changes(value: &Value<'_>) -> HeaderChangesDefinition {
    read(value, HeaderChangesDefinition::default())
}

/// `response-headers` of a listener, which are of every answer.
pub(crate) fn of_listener(value: &Value<'_>) -> FixedChanges {
    let checkpoint = value.table().map(|table| table.checkpoint());
    let written = read(value, HeaderChangesDefinition { always: true, ..HeaderChangesDefinition::default() });
    if !written.always {
        value.wrong(
            "`always` has no effect: a listener sets its headers on every response",
            "remove `always`",
        );
    }
    if let Some(name) = written.remove.iter().find(|name| is_framing(name)) {
        let message = format!("`{name}` cannot be changed: it frames the message, so the gateway writes it");
        value.wrong(message, "leave it out");
    }
    FixedChanges::new(written).unwrap_or_else(|error| {
        // Told once, because a value that no header may hold has been reported already.
        if !checkpoint.is_some_and(|it| it.is_flawed()) {
            value.wrong(error.to_string(), "write a literal value, or set the header at routes");
        }
        FixedChanges::default()
    })
}

fn read(value: &Value<'_>, mut changes: HeaderChangesDefinition) -> HeaderChangesDefinition {
    let Some(table) = value.table() else { return changes };
    if let Some(remove) = table.value("remove") {
        let names = remove.texts();
        changes.remove = names.iter().filter_map(header_name_of).collect();
        if value.key == "headers" && changes.remove.contains(&HOST) {
            remove.wrong("`host` cannot be removed: a request needs exactly one", "use `set` to change it");
        }
    }
    if let Some(set) = table.table("set") {
        changes.set = fields(&set);
        let hosts = changes.set.iter().filter(|(name, _)| *name == HOST).count();
        if let Some(host) = set.value("host").filter(|_| hosts > 1) {
            host.wrong("a request has exactly one `host`", "write one");
        }
    }
    if let Some(add) = table.table("add") {
        changes.add = fields(&add);
        if let Some(host) = add.value("host").filter(|_| value.key == "headers") {
            host.wrong_key("`host` cannot be added: a request has exactly one", "`set` it instead");
        }
    }
    if let Some(always) = table.value("always") {
        changes.always = always.boolean().unwrap_or(changes.always);
        if value.key == "headers" {
            always.wrong_key("`always` is a key of `response-headers` only", "leave it out");
        }
    }
    table.spell("always", if changes.always { "true" } else { "" });
    changes
}

/// Fields and their values; an array is one field several times.
fn fields(table: &Table<'_>) -> Vec<(HeaderName, String)> {
    let mut fields = Vec::new();
    for value in table.entries() {
        let Some(name) = header_name(&value.key, |message, hint| value.wrong_key(message, hint)) else {
            continue;
        };
        if is_framing(&name) {
            let message =
                format!("`{name}` cannot be changed: it frames the message, so the gateway writes it");
            value.wrong_key(message, "leave it out");
            continue;
        }
        for text in value.texts() {
            // ASCII alone, because other bytes have no agreed meaning in a field (RFC 9110 section 5.5).
            let is_plain = text.text.bytes().all(|byte| byte == b'\t' || (b' '..=b'~').contains(&byte));
            if !is_plain {
                let hint = "write one line of printable ASCII";
                text.wrong(format!("{} is not a valid header value", text.shown()), hint);
            }
            if mask::is_secret_name(name.as_str()) && mask::is_mask(&text.text) {
                text.wrong(format!("{} {}", quoted(&value.key), mask::MASKED), mask::WRITE_SECRET);
            }
            warn_of_variables(&text);
            if mask::is_secret_name(name.as_str()) && !text.has_reference && !text.text.contains('{') {
                text.warn(format!("`{name}` is written in plain text"), mask::OUT_OF_FILE);
            }
            fields.push((name.clone(), text.text));
        }
    }
    fields
}

/// Warns of a variable of another gateway, which would be sent literally.
pub(super) fn warn_of_variables(text: &Text<'_>) {
    if let Some((found, instead)) = foreign_value(&text.text).filter(|_| !text.has_reference) {
        text.warn(format!("`{found}` is sent literally"), format!("write {instead}"));
    }
}

/// A variable of another gateway in a value, and what to write instead.
fn foreign_value(text: &str) -> Option<(&'static str, &'static str)> {
    let found = FOREIGN_VALUES.iter().find(|(foreign, _)| {
        text.split_once(foreign).is_some_and(|(_, behind)| {
            !behind.starts_with(|next: char| next.is_ascii_alphanumeric() || next == '_')
        })
    });
    found.copied()
}

pub(crate) fn header_name_of(text: &Text<'_>) -> Option<HeaderName> {
    let wrong = |message, hint: &str| text.wrong(message, text.each().unwrap_or_else(|| hint.to_owned()));
    let name = header_name(&text.text, wrong)?;
    text.spell(&name);
    Some(name)
}

pub(crate) fn header_name(name: &str, wrong: impl Fn(String, &'static str)) -> Option<HeaderName> {
    let parsed = HeaderName::from_bytes(name.as_bytes());
    if parsed.is_err() {
        wrong(format!("{} is not a header's name", quoted(name)), "write it like `x-tenant`");
    }
    parsed.ok()
}

pub(crate) fn respond(value: &Value<'_>) -> Option<RespondDefinition> {
    let table = value.table()?;
    let (mut status, mut body) = (200, None);
    table.number("status", &mut status);
    table.text_if("body", &mut body);
    let (status, body) = (StatusCode::from_u16(status).unwrap_or(StatusCode::OK), body.unwrap_or_default());
    let is_bodiless =
        matches!(status, StatusCode::NO_CONTENT | StatusCode::RESET_CONTENT | StatusCode::NOT_MODIFIED);
    if is_bodiless && !body.is_empty() {
        table.wrong(format!("a response with status {} has no body", status.as_u16()), "leave `body` out");
    }
    let headers = table.table("headers").map(|headers| fields(&headers)).unwrap_or_default();
    Some(RespondDefinition { status, headers, body })
}

/// Variables of nginx, HAProxy and Envoy, and the `{...}` for each.
const FOREIGN_VALUES: [(&str, &str); 14] = [
    ("$remote_addr", "`{ip}`"),
    ("$proxy_add_x_forwarded_for", "nothing: the gateway sets `X-Forwarded-For`"),
    ("$host", "`{host}`"),
    ("$http_host", "`{host}`"),
    ("$request_method", "`{method}`"),
    ("$uri", "`{path}`"),
    ("$request_uri", "`{path}`, and `{query}` for what follows it"),
    ("$args", "`{query}`"),
    ("$query_string", "`{query}`"),
    ("$request_id", "`{request_id}`"),
    ("%[src]", "`{ip}`"),
    ("%[req.hdr(host)]", "`{host}`"),
    ("%DOWNSTREAM_REMOTE_ADDRESS_WITHOUT_PORT%", "`{ip}`"),
    ("%REQ(:PATH)%", "`{path}`"),
];
