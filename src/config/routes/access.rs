//! The keys of a route that restrict who may use it: `require`, `allow`, `deny`, `cors`. Checking requests against them is
//! `policy::access`.

use std::time::Duration;

use policy::access::Require;
use policy::definition::CorsDefinition;
use policy::response::cors::check_origin;

use crate::load::text::Text;
use crate::reader::Value;
use crate::routes::{headers, method};

/// `require = { consumers = [...], tenants = [...], tiers = [...], claims = { role = [...] } }`.
pub(crate) fn require(value: &Value<'_>) -> Option<Require> {
    let table = value.table()?;
    let mut require = Require::default();
    let Require { consumers, tenants, tiers, claims } = &mut require;
    for (key, names) in [("consumers", consumers), ("tenants", tenants), ("tiers", tiers)] {
        table.set(key, names, |value| Some(texts(&value)));
    }
    let read = |value: Value<'_>| {
        let claims = value.table()?.entries();
        Some(claims.iter().map(|claim| (claim.key.clone(), texts(claim))).collect())
    };
    table.set("claims", claims, read);
    if require == Require::default() && !table.checkpoint().is_flawed() {
        value.wrong("`require` is empty", "write it like `{ tiers = [\"pro\"] }`, or leave it out");
    }
    Some(require)
}

/// One or several texts. An empty list is an error, because it could mean nobody as well as everybody.
fn texts(value: &Value<'_>) -> Vec<String> {
    let texts = value.some_texts("write at least one, or leave it out");
    texts.into_iter().map(|text| text.text).collect()
}

/// `cors = { origins = [...], methods = [...], headers = [...], expose = [...], credentials = true, max-age = "1h" }`.
pub(crate) fn cors(value: &Value<'_>) -> Option<CorsDefinition> {
    let table = value.table()?;
    let mut cors = CorsDefinition {
        origins: Vec::new(),
        methods: Vec::new(),
        headers: vec![ANY.to_owned()],
        expose: Vec::new(),
        credentials: false,
        max_age: MAX_AGE,
    };
    table.set("origins", &mut cors.origins, |value| Some(origins_of(&value)));
    table.set("methods", &mut cors.methods, |value| {
        Some(value.texts().iter().filter_map(method::read).collect())
    });
    table.set("headers", &mut cors.headers, |value| Some(names(&value, true)));
    table.set("expose", &mut cors.expose, |value| Some(names(&value, false)));
    table.boolean("credentials", &mut cors.credentials);
    table.duration("max-age", &mut cors.max_age);
    if cors.credentials
        && cors.origins.iter().any(|origin| origin == ANY)
        && let Some(value) = table.value("credentials")
    {
        value.wrong(
            "`credentials` with `*` would let every web site act as its visitors",
            "name the allowed origins, or leave `credentials` out",
        );
    }
    Some(cors)
}

fn origins_of(value: &Value<'_>) -> Vec<String> {
    let texts = value.some_texts("leave `cors` out to allow no other origin");
    let origin = |text: &Text<'_>| match check_origin(&text.text) {
        Ok(()) => {
            let origin = text.text.to_ascii_lowercase();
            text.spell(&origin);
            Some(origin)
        }
        Err(error) => {
            let hint = format!("{error}, or `https://*.example.com` or `*`");
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
        Some(headers::header_name_of(text)?.as_str().to_owned())
    };
    value.texts().iter().filter_map(name).collect()
}

const ANY: &str = "*";
const MAX_AGE: Duration = Duration::from_secs(600);
