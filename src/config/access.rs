//! The keys of a route that restrict who may use it: `require`, `allow`, `deny`, `cors`. Checking requests against them is
//! `policy::access`.

use std::time::Duration;

use http::HeaderName;

use policy::access::Require;
use policy::cors::check_origin;
use policy::definition::{Access, Cors};

use super::printer::{array, key, table as show_table, text, time};
use super::reader::Value;
use super::text::Text;
use super::{listener, method};

/// `require = { consumers = [...], tenants = [...], tiers = [...], claims = { role = [...] } }`.
pub(super) fn require(value: &Value<'_>) -> Option<Require> {
    let table = value.table("`require`")?;
    let list = |key| table.value(key).map(|value| texts(&value)).unwrap_or_default();
    let (consumers, tenants, tiers) = (list("consumers"), list("tenants"), list("tiers"));
    let claims = table.table("claims").map(|claims| claims.entries()).unwrap_or_default();
    let claims = claims.iter().map(|claim| (claim.key.clone(), texts(claim))).collect();
    table.finish(&[]);
    let require = Require { consumers, tenants, tiers, claims };
    if require == Require::default() {
        value.wrong("`require` asks for nothing", "write it as in `{ tiers = [\"pro\"] }`, or leave it out");
    }
    Some(require)
}

/// One or several texts. An empty list is an error, because it could mean nobody as well as everybody.
fn texts(value: &Value<'_>) -> Vec<String> {
    let texts = value.texts();
    if texts.is_empty() && value.is_array() {
        value.wrong(format!("`{}` is empty", value.key), "write one at least, or leave it out");
    }
    texts.into_iter().map(|text| text.text).collect()
}

/// `cors = { origins = [...], methods = [...], headers = [...], expose = [...], credentials = true, max-age = "1h" }`.
pub(super) fn cors(value: &Value<'_>) -> Option<Cors> {
    let table = value.table("`cors`")?;
    let origins = table.value("origins");
    if origins.is_none() {
        table.wrong("`cors` needs `origins`", "write `origins = [\"https://app.example.com\"]`");
    }
    let origins = origins.map(|value| origins_of(&value)).unwrap_or_default();
    let methods = table.value("methods").map(|value| value.texts()).unwrap_or_default();
    let headers = match table.value("headers") {
        Some(value) => names(&value, true),
        None => vec![ANY.to_owned()],
    };
    let expose = table.value("expose").map(|value| names(&value, false)).unwrap_or_default();
    let credentials = table.value("credentials");
    let with_credentials = credentials.as_ref().and_then(Value::boolean).unwrap_or_default();
    if let Some(value) =
        credentials.filter(|_| with_credentials && origins.iter().any(|origin| origin == ANY))
    {
        value.wrong(
            "with credentials, `*` would let every web site act as its visitors",
            "name the origins that may, or leave `credentials` out",
        );
    }
    let max_age = table.value("max-age").and_then(|value| value.duration(Duration::ZERO)).unwrap_or(MAX_AGE);
    table.finish(&[]);
    let methods = methods.iter().filter_map(method::read).collect();
    Some(Cors { origins, methods, headers, expose, credentials: with_credentials, max_age })
}

fn origins_of(value: &Value<'_>) -> Vec<String> {
    let texts = value.texts();
    if texts.is_empty() && value.is_array() {
        value.wrong("`origins` is empty", "leave `cors` out: then no other origin may");
    }
    let origin = |text: &Text<'_>| match check_origin(&text.text) {
        Ok(()) => Some(text.text.to_ascii_lowercase()),
        Err(error) => {
            let hint = format!("{error}: `https://app.example.com`, `https://*.example.com` or `*`");
            text.wrong(format!("{} is not an origin", text.shown()), hint);
            None
        }
    };
    texts.iter().filter_map(origin).collect()
}

/// Names of headers, in lower case; `*` only if `knows_any`.
fn names(value: &Value<'_>, knows_any: bool) -> Vec<String> {
    let name = |text: &Text<'_>| {
        if knows_any && text.text == ANY {
            return Some(ANY.to_owned());
        }
        let name = HeaderName::from_bytes(text.text.as_bytes());
        if name.is_err() {
            text.wrong(format!("{} is not a header's name", text.shown()), "write it as in `x-tenant`");
        }
        name.ok().map(|name| name.as_str().to_owned())
    };
    value.texts().iter().filter_map(name).collect()
}

/// Writes what [`require`], [`cors`] and the address lists read.
pub(super) fn show(access: &Access) -> Vec<(&'static str, String)> {
    let list = |texts: &[String]| array(texts.iter().map(|it| text(it)));
    let mut keys = Vec::new();
    if !access.auth.is_empty() {
        keys.push(("auth", list(&access.auth)));
    }
    if let Some(require) = &access.require {
        let lists =
            [("consumers", &require.consumers), ("tenants", &require.tenants), ("tiers", &require.tiers)];
        let lists = lists.into_iter().filter(|(_, texts)| !texts.is_empty());
        let mut inner: Vec<(&str, String)> = lists.map(|(key, texts)| (key, list(texts))).collect();
        if !require.claims.is_empty() {
            let claims = require.claims.iter().map(|(name, texts)| (key(name), list(texts)));
            inner.push(("claims", show_table(claims)));
        }
        keys.push(("require", show_table(inner)));
    }
    keys.extend(listener::show_addresses(&access.addresses));
    if let Some(cors) = &access.cors {
        let mut inner = vec![("origins", list(&cors.origins))];
        if !cors.methods.is_empty() {
            inner.push(("methods", array(cors.methods.iter().map(|method| text(method.as_str())))));
        }
        inner.push(("headers", list(&cors.headers)));
        inner.push(("expose", list(&cors.expose)));
        inner.push(("credentials", cors.credentials.to_string()));
        inner.push(("max-age", time(cors.max_age)));
        keys.push(("cors", show_table(inner)));
    }
    keys
}

const ANY: &str = "*";
const MAX_AGE: Duration = Duration::from_secs(600);
