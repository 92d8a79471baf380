//! Reads `[auth.*]` of `kind = "jwt"`. The rules of tokens are `auth::jwt`'s.

use std::time::Duration;

use super::{claim_name, file, places};
use crate::load::text::Text;
use crate::reader::{Table, Value};
use crate::upstream::trust;
use auth::MethodKind;
use auth::credential_source::CredentialSource;
use auth::jwt::remote;
use auth::jwt::{Algorithm, ClaimNaming, ClaimRules, Config, KeySetSource};
use base::secret::Secret;
use base::words::listed;
use net::trust::Trust;

pub(super) fn read(table: &Table<'_>) -> Option<MethodKind> {
    let source = source(table);
    let algorithms = table.value("algorithms").map(|value| algorithms(&value)).unwrap_or_default();
    let mut rules = ClaimRules {
        issuers: Vec::new(),
        audiences: Vec::new(),
        typ: None,
        leeway: LEEWAY,
        required: vec!["exp".to_owned()],
    };
    table.texts("issuer", &mut rules.issuers);
    table.texts("audience", &mut rules.audiences);
    table.texts("required", &mut rules.required);
    table.text_if("typ", &mut rules.typ);
    table.duration("leeway", &mut rules.leeway);
    if rules.audiences.is_empty() {
        table.warn(
            "without `audience`, tokens that the issuer made for other services are accepted too",
            "write `audience = \"…\"`, the value of `aud` in tokens for this gateway",
        );
    }
    let naming = ClaimNaming {
        consumer: claim_name(table, "consumer").or(Some("sub".to_owned())),
        tenant: claim_name(table, "tenant"),
        tier: claim_name(table, "tier"),
    };
    let places = table.value("in").map_or_else(|| vec![CredentialSource::Bearer], |value| places(&value));
    Some(MethodKind::Jwt(Box::new(Config { places, source: source?, algorithms, rules, naming })))
}

fn algorithms(value: &Value<'_>) -> Vec<Algorithm> {
    let texts = value.texts();
    if texts.is_empty() && value.is_array() {
        value.wrong("`algorithms` is empty: no token would be accepted", "write `[\"ES256\"]`");
    }
    texts.iter().filter_map(algorithm).collect()
}

fn source(table: &Table<'_>) -> Option<KeySetSource> {
    let (jwks, secret) = (table.value("jwks"), table.value("secret"));
    let has_file = table.value("keys").is_some();
    for value in ["tls", "fetch"].into_iter().filter_map(|key| table.value(key)).filter(|_| jwks.is_none()) {
        let hint = "leave it out: only keys of `jwks` are fetched";
        value.wrong_key(format!("`{}` needs `jwks`", value.key), hint);
    }
    match (jwks, has_file, secret) {
        (Some(jwks), false, None) => {
            let mut config = url(&jwks.text()?)?;
            if let Some(tls) = table.value("tls") {
                config.trust = trust::read(&tls);
                if !config.is_tls() {
                    tls.wrong_key("`tls` needs an https URL in `jwks`", "write `https://` in `jwks`");
                }
            }
            if let Some(fetch) = table.table("fetch") {
                fetch.duration("every", &mut config.every);
                fetch.duration("pause", &mut config.rest);
                fetch.duration("timeout", &mut config.timeout);
            }
            Some(KeySetSource::Url(Box::new(config)))
        }
        (None, true, None) => file(table, "keys", "jwks.json").map(KeySetSource::File),
        (None, false, Some(secret)) => {
            let text = secret.text()?;
            text.warn_if_plain();
            Some(KeySetSource::Secret(Secret(text.text)))
        }
        (jwks, has_file, secret) => {
            let hint = match jwks.is_some() || has_file || secret.is_some() {
                true => "keep one of them, and remove the rest",
                false => "write `jwks = \"https://id.example.com/.well-known/jwks.json\"`",
            };
            table.wrong("tokens need exactly one of `jwks`, `keys` and `secret`", hint);
            None
        }
    }
}

/// The URL of `jwks`. Plain http is accepted for loopback only, because anyone on the network path could replace the
/// keys.
fn url(text: &Text<'_>) -> Option<remote::Config> {
    let uri = text.private_url(
        "write it like `https://id.example.com/.well-known/jwks.json`",
        "`jwks` cannot hold a user name or a password",
        "the keys come over plain http, so anyone on the network path can replace them",
    )?;
    if uri.path().ends_with("/openid-configuration") {
        text.warn("this document of the issuer has no keys", "write the URL that it has as `jwks_uri`");
    }
    text.spell(&uri);
    Some(remote::Config { url: uri, trust: Trust::default(), every: EVERY, rest: PAUSE, timeout: TIMEOUT })
}

/// A name of RFC 7518 section 3.1. No similar name is suggested, because `HS512` for `ES512` would accept other keys.
fn algorithm(text: &Text<'_>) -> Option<Algorithm> {
    let found = text.text.parse().ok().filter(|_| ALGORITHMS.contains(&text.text.as_str()));
    if found.is_none() {
        let message = format!("the gateway cannot verify signatures of the algorithm {}", text.shown());
        text.wrong(message, format!("write {}", listed(&ALGORITHMS)));
    }
    found
}

const ALGORITHMS: [&str; 12] = [
    "HS256", "HS384", "HS512", "RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384",
    "EdDSA",
];

const LEEWAY: Duration = Duration::from_secs(5);
const EVERY: Duration = Duration::from_secs(300);
const PAUSE: Duration = Duration::from_secs(30);
const TIMEOUT: Duration = Duration::from_secs(5);
