//! The keys of a route that restrict who may use it: `require`, `allow`, `deny`, `cors`. Checking requests against them is
//! `policy::access`.

use std::time::Duration;

use http::Method;

use policy::access::Require;
use policy::definition::{AccessDefinition, CorsDefinition};
use policy::response::cors::check_origin;

use crate::load::text::Text;
use crate::printer::{array, key, table as show_table, text};
use crate::process::listener;
use crate::reader::Value;
use crate::routes::{headers, method};
use crate::values::{Keys, Written};

/// `require = { consumers = [...], tenants = [...], tiers = [...], claims = { role = [...] } }`.
pub(crate) fn require(value: &Value<'_>) -> Option<Require> {
    let mut table = value.table()?;
    let mut require = Require::default();
    who(&mut table, &mut require);
    if require == Require::default() {
        value.wrong("`require` asks for nothing", "write it as in `{ tiers = [\"pro\"] }`, or leave it out");
    }
    Some(require)
}

fn who(keys: &mut impl Keys, require: &mut Require) {
    let Require { consumers, tenants, tiers, claims } = require;
    for (key, texts) in [("consumers", consumers), ("tenants", tenants), ("tiers", tiers)] {
        keys.handle(key, texts, |value| Some(self::texts(&value)), |texts| shown(texts));
    }
    let read = |value: Value<'_>| {
        let claims = value.table()?.entries();
        Some(claims.iter().map(|claim| (claim.key.clone(), texts(claim))).collect())
    };
    keys.handle("claims", claims, read, |claims: &Vec<(String, Vec<String>)>| {
        let claims = claims.iter().filter_map(|(name, texts)| Some((key(name), shown(texts)?)));
        let claims: Vec<_> = claims.collect();
        (!claims.is_empty()).then(|| show_table(claims))
    });
}

/// A list; nothing for one that is empty.
fn shown(texts: &[String]) -> Option<String> {
    (!texts.is_empty()).then(|| array(texts.iter().map(|it| text(it))))
}

/// One or several texts. An empty list is an error, because it could mean nobody as well as everybody.
fn texts(value: &Value<'_>) -> Vec<String> {
    let texts = value.some_texts("write one at least, or leave it out");
    texts.into_iter().map(|text| text.text).collect()
}

/// `cors = { origins = [...], methods = [...], headers = [...], expose = [...], credentials = true, max-age = "1h" }`.
pub(crate) fn cors(value: &Value<'_>) -> Option<CorsDefinition> {
    let mut table = value.table()?;
    let mut cors = CorsDefinition {
        origins: Vec::new(),
        methods: Vec::new(),
        headers: vec![ANY.to_owned()],
        expose: Vec::new(),
        credentials: false,
        max_age: MAX_AGE,
    };
    others(&mut table, &mut cors);
    if cors.credentials
        && cors.origins.iter().any(|origin| origin == ANY)
        && let Some(value) = table.value("credentials")
    {
        value.wrong(
            "with credentials, `*` would let every web site act as its visitors",
            "name the origins that may, or leave `credentials` out",
        );
    }
    Some(cors)
}

fn others(keys: &mut impl Keys, cors: &mut CorsDefinition) {
    let list = |texts: &Vec<String>| Some(array(texts.iter().map(|it| text(it))));
    keys.handle("origins", &mut cors.origins, |value| Some(origins_of(&value)), list);
    let methods = |methods: &Vec<Method>| {
        let names = methods.iter().map(|method| text(method.as_str()));
        (!methods.is_empty()).then(|| array(names))
    };
    let read = |value: Value<'_>| Some(value.texts().iter().filter_map(method::read).collect());
    keys.handle("methods", &mut cors.methods, read, methods);
    keys.handle("headers", &mut cors.headers, |value| Some(names(&value, true)), list);
    keys.handle("expose", &mut cors.expose, |value| Some(names(&value, false)), list);
    keys.boolean("credentials", &mut cors.credentials);
    keys.duration("max-age", &mut cors.max_age);
}

fn origins_of(value: &Value<'_>) -> Vec<String> {
    let texts = value.some_texts("leave `cors` out: then no other origin may");
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
        let name = headers::header_name(&text.text, |message, hint| text.wrong(message, hint))?;
        Some(name.as_str().to_owned())
    };
    value.texts().iter().filter_map(name).collect()
}

/// Writes what [`require`], [`cors`] and the address lists read.
pub(crate) fn show(access: &AccessDefinition) -> Vec<(&'static str, String)> {
    let mut keys: Vec<_> = shown(&access.auth).into_iter().map(|auth| ("auth", auth)).collect();
    keys.extend(access.require.as_ref().map(|require| ("require", Written::table(require, who))));
    keys.extend(listener::show_addresses(&access.addresses));
    keys.extend(access.cors.as_ref().map(|cors| ("cors", Written::table(cors, others))));
    keys
}

const ANY: &str = "*";
const MAX_AGE: Duration = Duration::from_secs(600);
