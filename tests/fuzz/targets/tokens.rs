//! Tokens: none is believed without a good signature, and what is believed says one thing, to this reader and to
//! another.

#![no_main]

use std::sync::LazyLock;
use std::time::Duration;

use auth::cache::Cache;
use auth::credential_source::CredentialSource;
use auth::jwt::{Algorithm, ClaimNaming, ClaimRules, Config, KeySetSource};
use auth::{self, AuthRequest, MethodAnswer, MethodKind};
use aws_lc_rs::hmac;
use base::identity::{Claim, Identity};
use base::secret::Secret;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::{HeaderMap, HeaderValue};
use libfuzzer_sys::fuzz_target;
use serde_json::Value;

fuzz_target!(|input: (u8, u16, &[u8])| {
    let (mode, place, bytes) = input;
    let (header, payload) = bytes.split_at(bytes.iter().position(|byte| *byte == b'\n').unwrap_or(0));
    let payload = payload.get(1..).unwrap_or(payload);
    let mut token = match mode % 4 {
        0 => bytes.to_vec(),
        1 => signed(header, payload, b"another secret, which is no shorter than the own"),
        _ => signed(header, payload, SECRET.as_bytes()),
    };
    if mode % 4 == 3 {
        let at = usize::from(place) % token.len();
        token[at] = mode;
    }
    let Some(identity) = caller(&token) else {
        let is_good = mode % 4 == 2 && token.len() <= 8 * 1024;
        assert!(!(is_good && is_believed(header, payload).is_some()), "{:?}", String::from_utf8_lossy(bytes));
        return;
    };
    let (message, signature) = split(&token).expect("three parts");
    let key = hmac::Key::new(hmac::HMAC_SHA256, SECRET.as_bytes());
    let signature = URL_SAFE_NO_PAD.decode(signature).expect("a signature");
    hmac::verify(&key, message, &signature).expect("it is signed");
    let mut parts = message.split(|byte| *byte == b'.').map(|part| URL_SAFE_NO_PAD.decode(part));
    let mut part = || parts.next().and_then(Result::ok).expect("two parts");
    let (header, payload) = (part(), part());
    let claims = is_believed(&header, &payload).expect("another reader believes it too");
    assert_eq!(identity.consumer.as_deref(), scalar(&claims["sub"]).as_deref());
    let role = identity.claims.find("role").filter(|role| matches!(role, Claim::One(_)));
    let said = claims.get("role").and_then(scalar).map(|text| Claim::One(text.into()));
    assert_eq!(role.cloned(), said);
});

const SECRET: &str = "a secret of at least 32 bytes, as HS256 wants it";
const NOW: i64 = 1_700_000_000;

static METHOD: LazyLock<auth::Method> = LazyLock::new(|| {
    let config = Config {
        places: vec![CredentialSource::Bearer],
        source: KeySetSource::Secret(Secret(SECRET.to_owned())),
        algorithms: vec![Algorithm::HS256, Algorithm::ES256],
        rules: ClaimRules {
            issuers: Vec::new(),
            audiences: vec!["api".to_owned()],
            typ: None,
            leeway: Duration::from_secs(5),
            required: vec!["sub".to_owned()],
        },
        naming: ClaimNaming { consumer: Some("sub".to_owned()), tenant: None, tier: None },
    };
    let config =
        auth::Config { name: "tokens".to_owned(), kind: MethodKind::Jwt(Box::new(config)), pass: false };
    auth::Method::new(config, &["role".into()]).expect("a long secret")
});

/// Who a token speaks for.
fn caller(token: &[u8]) -> Option<std::sync::Arc<Identity>> {
    let value = HeaderValue::from_bytes(&[b"Bearer ", token].concat()).ok()?;
    let headers = HeaderMap::from_iter([(http::header::AUTHORIZATION, value)]);
    let now = Duration::from_secs(NOW.unsigned_abs());
    let asked = AuthRequest { headers: &headers, query: None, certificate: None, now };
    let cache = Cache::new(0);
    match METHOD.verify(&asked, &cache) {
        MethodAnswer::Known(identity) => {
            let again = METHOD.check(&asked, &cache);
            assert!(matches!(again, MethodAnswer::Known(again) if again == identity), "believed once");
            Some(identity)
        }
        MethodAnswer::Refused(_) | MethodAnswer::Absent => None,
        other => panic!("{other:?}"),
    }
}

fn signed(header: &[u8], payload: &[u8], secret: &[u8]) -> Vec<u8> {
    let message = format!("{}.{}", URL_SAFE_NO_PAD.encode(header), URL_SAFE_NO_PAD.encode(payload));
    let signature = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, secret), message.as_bytes());
    format!("{message}.{}", URL_SAFE_NO_PAD.encode(signature)).into_bytes()
}

/// The token as the field's value has it, without what stands around it.
fn split(token: &[u8]) -> Option<(&[u8], &[u8])> {
    let token = token.trim_ascii();
    let dot = token.iter().rposition(|byte| *byte == b'.')?;
    Some((&token[..dot], &token[dot + 1..]))
}

/// The claims of a signed token, where it is one to believe: the rules said again, over another reader of JSON.
fn is_believed(header: &[u8], payload: &[u8]) -> Option<Value> {
    let (header, claims) = (object(header)?, object(payload)?);
    let text = |name: &str| header.get(name).is_none_or(Value::is_string);
    let is_known = ["crit", "jwk", "enc", "zip"].iter().all(|name| header.get(name).is_none());
    let is_short = header.get("kid").and_then(Value::as_str).is_none_or(|kid| kid.len() <= 256);
    let date = |name: &str| match claims.get(name) {
        None => Some(None),
        Some(Value::Number(number)) => {
            number.as_i64().or_else(|| number.as_f64().map(|seconds| seconds as i64)).map(Some)
        }
        Some(_) => None,
    };
    let begins = [date("nbf")?, date("iat")?];
    let is_own = |aud: &Value| aud.as_str() == Some("api");
    let is_meant = claims
        .get("aud")
        .is_some_and(|aud| is_own(aud) || aud.as_array().is_some_and(|all| all.iter().any(is_own)));
    let is_good = header.get("alg")?.as_str() == Some("HS256")
        && is_known
        && text("kid")
        && text("typ")
        && is_short
        && claims.get("sub").is_some_and(is_name)
        && is_meant
        && begins.iter().flatten().all(|begins| *begins <= NOW + 5)
        && date("exp")?.is_none_or(|exp| NOW < exp.saturating_add(5));
    is_good.then_some(claims)
}

/// A text that says something, or a whole number.
fn is_name(value: &Value) -> bool {
    value.as_str().is_some_and(|text| !text.is_empty()) || value.is_u64() || value.is_i64()
}

/// An object, where no name stands twice in any: each member has one colon outside of texts, and twice the same name
/// leaves one member.
fn object(text: &[u8]) -> Option<Value> {
    let value: Value = serde_json::from_slice(text).ok().filter(Value::is_object)?;
    let (mut colons, mut in_text, mut escaped) = (0, false, false);
    for byte in text {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b'"' => in_text = !in_text,
            b':' if !in_text => colons += 1,
            _ => {}
        }
    }
    (members(&value)? == colons).then_some(value)
}

/// Members of all objects in a value; `None` where one has too many.
fn members(value: &Value) -> Option<usize> {
    match value {
        Value::Object(inner) if inner.len() > 256 => None,
        Value::Object(inner) => {
            inner.values().try_fold(inner.len(), |sum, value| Some(sum + members(value)?))
        }
        Value::Array(values) => values.iter().try_fold(0, |sum, value| Some(sum + members(value)?)),
        _ => Some(0),
    }
}

fn scalar(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        Value::Bool(boolean) => Some(boolean.to_string()),
        _ => None,
    }
}
