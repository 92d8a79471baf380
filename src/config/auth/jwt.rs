//! Reads and writes `[auth.*]` of `kind = "jwt"`. The rules of tokens are `auth::jwt`'s.

use std::time::Duration;

use super::{Fields, claim_name, file, places, show_file, show_places};
use crate::printer::{array, table as show_table, text, time};
use crate::reader::{Table, Value};
use crate::text::Text;
use crate::trust;
use auth::Kind;
use auth::jwt::remote;
use auth::jwt::{Algorithm, Config, Naming, Rules, Secret, Source};
use auth::place::Place;
use base::words::listed;
use net::fetch;
use net::trust::Trust;

pub(super) fn read(table: &Table<'_>) -> Option<Kind> {
    let source = source(table);
    let algorithms = match table.value("algorithms") {
        Some(value) => algorithms(&value),
        None => {
            table.wrong(
                "tokens need `algorithms`: the signatures that are accepted",
                "write `algorithms = [\"ES256\"]`",
            );
            Vec::new()
        }
    };
    let texts = |key| -> Vec<String> {
        let texts = table.value(key).map(|value| value.texts()).unwrap_or_default();
        texts.into_iter().map(|text| text.text).collect()
    };
    let (issuers, audiences) = (texts("issuer"), texts("audience"));
    if audiences.is_empty() {
        table.warn(
            "without `audience`, tokens that the issuer made for other services are accepted too",
            "write `audience = \"…\"`: what tokens for this gateway say in `aud`",
        );
    }
    let required = match table.value("required") {
        Some(value) => value.texts().into_iter().map(|text| text.text).collect(),
        None => vec!["exp".to_owned()],
    };
    let rules = Rules {
        issuers,
        audiences,
        typ: table.value("typ").and_then(|value| value.text()).map(|text| text.text),
        leeway: table.value("leeway").and_then(|value| value.duration(Duration::ZERO)).unwrap_or(LEEWAY),
        required,
    };
    let naming = Naming {
        consumer: claim_name(table, "consumer").or(Some("sub".to_owned())),
        tenant: claim_name(table, "tenant"),
        tier: claim_name(table, "tier"),
    };
    let places = table.value("in").map_or_else(|| vec![Place::Bearer], |value| places(&value));
    Some(Kind::Jwt(Box::new(Config { places, source: source?, algorithms, rules, naming })))
}

fn algorithms(value: &Value<'_>) -> Vec<Algorithm> {
    let texts = value.texts();
    if texts.is_empty() && value.is_array() {
        value.wrong("`algorithms` is empty: no token would be accepted", "write `[\"ES256\"]`");
    }
    texts.iter().filter_map(algorithm).collect()
}

/// The source of the keys: exactly one of `jwks`, `keys` and `secret`.
fn source(table: &Table<'_>) -> Option<Source> {
    let (jwks, secret) = (table.value("jwks"), table.value("secret"));
    let has_file = table.value("keys").is_some();
    if let Some(tls) = table.value("tls").filter(|_| jwks.is_none()) {
        tls.wrong_key("`tls` needs `jwks`", "only fetched keys come over TLS");
    }
    match (jwks, has_file, secret) {
        (Some(jwks), false, None) => {
            let mut config = url(&jwks.text()?)?;
            if let Some(tls) = table.value("tls") {
                config.trust = trust::read(&tls);
                if !config.is_tls() {
                    tls.wrong_key(
                        "`tls` needs a URL over TLS",
                        "write `jwks` as in `https://id.example.com/keys`",
                    );
                }
            }
            Some(Source::Url(Box::new(schedule(table, config))))
        }
        (None, true, None) => file(table, "keys", "jwks.json").map(Source::File),
        (None, false, Some(secret)) => {
            let text = secret.text()?;
            if !text.has_reference {
                let hint = "keep a secret out of it: `\"${NAME}\"` or `\"${file:/path}\"`";
                text.warn("`secret` is written in plain text", hint);
            }
            Some(Source::Secret(Secret(text.text)))
        }
        _ => {
            table.wrong(
                "tokens need exactly one of `jwks`, `keys` and `secret`",
                "write `jwks = \"https://id.example.com/.well-known/jwks.json\"`",
            );
            None
        }
    }
}

/// The URL of `jwks`. Plain http is accepted for loopback only, since anyone on the network path could replace the keys.
fn url(text: &Text<'_>) -> Option<remote::Config> {
    let parsed = text.text.parse::<http::Uri>().ok().filter(|uri| uri.host().is_some());
    let hint = "write it as in `https://id.example.com/.well-known/jwks.json`";
    let Some(uri) = parsed.filter(|uri| matches!(uri.scheme_str(), Some("http" | "https"))) else {
        text.wrong(format!("{} is not a URL", text.shown()), hint);
        return None;
    };
    if uri.authority().is_some_and(|authority| authority.as_str().contains('@')) {
        text.wrong("a URL of keys cannot hold a user name or a password", hint);
        return None;
    }
    if uri.authority().is_some_and(|authority| text.has_wrong_port(authority)) {
        return None;
    }
    if !fetch::is_private(&uri) {
        text.wrong("keys over plain http can be replaced by anyone on the network path", "write `https://`");
        return None;
    }
    Some(remote::Config { url: uri, trust: Trust::default(), every: EVERY, rest: PAUSE, timeout: TIMEOUT })
}

fn schedule(table: &Table<'_>, mut config: remote::Config) -> remote::Config {
    let Some(fetch) = table.table("fetch") else { return config };
    for (key, least, duration) in [
        ("every", PAUSE_MIN, &mut config.every),
        ("pause", PAUSE_MIN, &mut config.rest),
        ("timeout", Duration::from_millis(1), &mut config.timeout),
    ] {
        *duration = fetch.value(key).and_then(|value| value.duration(least)).unwrap_or(*duration);
    }
    fetch.finish(&[]);
    config
}

/// A name of RFC 7518 section 3.1. No similar name is suggested: `HS512` for `ES512` would accept other keys.
fn algorithm(text: &Text<'_>) -> Option<Algorithm> {
    let found = ALGORITHMS.iter().find(|(name, _)| *name == text.text);
    if found.is_none() {
        let names = ALGORITHMS.map(|(name, _)| name);
        let message = format!("signatures by {} are not verified here", text.shown());
        text.wrong(message, format!("write {}", listed(&names)));
    }
    found.map(|(_, algorithm)| *algorithm)
}

pub(super) fn show(config: &Config, fields: &mut Fields) {
    fields.push(("in", show_places(&config.places)));
    match &config.source {
        Source::Secret(Secret(secret)) => fields.push(("secret", text(secret))),
        Source::File(path) => fields.push(("keys", show_file(path))),
        Source::Url(remote) => {
            fields.push(("jwks", text(&remote.url.to_string())));
            let times = [("every", remote.every), ("pause", remote.rest), ("timeout", remote.timeout)];
            if remote.is_tls() {
                fields.push(("tls", trust::show(&remote.trust)));
            }
            fields.push(("fetch", show_table(times.map(|(key, duration)| (key, time(duration))))));
        }
    }
    let names = config.algorithms.iter().map(|algorithm| text(&format!("{algorithm:?}")));
    fields.push(("algorithms", array(names)));
    let rules = &config.rules;
    for (key, texts) in
        [("issuer", &rules.issuers), ("audience", &rules.audiences), ("required", &rules.required)]
    {
        fields.push((key, array(texts.iter().map(|it| text(it)))));
    }
    fields.extend(rules.typ.as_ref().map(|typ| ("typ", text(typ))));
    fields.push(("leeway", time(rules.leeway)));
    let naming = &config.naming;
    for (key, claim) in [("consumer", &naming.consumer), ("tenant", &naming.tenant), ("tier", &naming.tier)] {
        fields.extend(claim.as_ref().map(|claim| (key, text(&format!("claim:{claim}")))));
    }
}

const ALGORITHMS: [(&str, Algorithm); 12] = [
    ("HS256", Algorithm::HS256),
    ("HS384", Algorithm::HS384),
    ("HS512", Algorithm::HS512),
    ("RS256", Algorithm::RS256),
    ("RS384", Algorithm::RS384),
    ("RS512", Algorithm::RS512),
    ("PS256", Algorithm::PS256),
    ("PS384", Algorithm::PS384),
    ("PS512", Algorithm::PS512),
    ("ES256", Algorithm::ES256),
    ("ES384", Algorithm::ES384),
    ("EdDSA", Algorithm::EdDSA),
];

const LEEWAY: Duration = Duration::from_secs(5);
const EVERY: Duration = Duration::from_secs(300);
const PAUSE: Duration = Duration::from_secs(30);
/// The shortest accepted pause between two fetches, so that no configuration floods an issuer.
const PAUSE_MIN: Duration = Duration::from_secs(1);
const TIMEOUT: Duration = Duration::from_secs(5);
