//! Tokens right and wrong: the public vectors, and what attackers have made of tokens over the years.

use std::sync::LazyLock;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::{HeaderMap, HeaderValue};
use jsonwebtoken::{EncodingKey, crypto};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::cache::Cache;
use base::identity::Claim;

const NOW: i64 = 1_700_000_000;
const SECRET: &str = "a secret of at least 32 bytes, as HS256 wants it";
/// A new pair of keys for P-256: the private one, the public one.
static PAIR: LazyLock<(String, String)> = LazyLock::new(pair);
static PRIVATE: LazyLock<&str> = LazyLock::new(|| &PAIR.0);
static PUBLIC: LazyLock<&str> = LazyLock::new(|| &PAIR.1);

fn pair() -> (String, String) {
    let pair = rcgen::KeyPair::generate().expect("a pair");
    (pair.serialize_pem(), pair.public_key_pem())
}

fn rules() -> ClaimRules {
    ClaimRules {
        issuers: vec!["https://id.example.com/".to_owned()],
        audiences: vec!["api".to_owned(), "web".to_owned()],
        typ: None,
        leeway: Duration::from_secs(5),
        required: vec!["exp".to_owned(), "sub".to_owned()],
    }
}

fn verifier(keys: KeySet, algorithms: &[Algorithm], rules: ClaimRules) -> Verifier {
    let naming = ClaimNaming {
        consumer: Some("sub".to_owned()),
        tenant: Some("org.name".to_owned()),
        tier: Some("plan".to_owned()),
    };
    let config = Config {
        places: vec![CredentialSource::Bearer],
        source: KeySetSource::Secret(Secret(SECRET.to_owned())),
        algorithms: algorithms.to_vec(),
        rules,
        naming,
    };
    let wanted = ["roles", "admin"].map(Box::from);
    Verifier { config, wanted: wanted.into(), keys: ArcSwap::from_pointee(keys), remote: None }
}

/// What ES256 is taken for, by one public key.
fn es256() -> Verifier {
    let keys = KeySet::of_text(&PUBLIC, &[Algorithm::ES256]).expect("a public key");
    verifier(keys, &[Algorithm::ES256, Algorithm::HS256], rules())
}

fn claims() -> Value {
    json!({
        "iss": "https://id.example.com/", "aud": "api", "sub": "ann", "exp": NOW + 60, "iat": NOW - 60,
        "org": { "name": "acme" }, "plan": "pro", "roles": ["a", 7], "admin": true, "secret": "x",
    })
}

fn with(changes: Value) -> Value {
    let mut claims = claims();
    for (name, value) in changes.as_object().expect("an object") {
        claims[name] = value.clone();
    }
    claims
}

fn without(name: &str) -> Value {
    let mut claims = claims();
    claims.as_object_mut().expect("an object").remove(name);
    claims
}

fn token_of(header: &str, payload: &str, algorithm: Algorithm, key: &EncodingKey) -> String {
    let signed = format!("{}.{}", URL_SAFE_NO_PAD.encode(header), URL_SAFE_NO_PAD.encode(payload));
    let signature = crypto::sign(signed.as_bytes(), key, algorithm).expect("the key fits");
    format!("{signed}.{signature}")
}

fn key(pem: &str) -> EncodingKey {
    EncodingKey::from_ec_pem(pem.as_bytes()).expect("a private key")
}

fn signed(claims: &Value) -> String {
    token_of(r#"{"alg":"ES256","typ":"JWT"}"#, &claims.to_string(), Algorithm::ES256, &key(&PRIVATE))
}

fn check(verifier: &Verifier, token: &str, cache: &Cache, now: i64) -> Option<Arc<Identity>> {
    let mut headers = HeaderMap::new();
    let value = HeaderValue::from_str(&format!("Bearer {token}")).expect("a field's value");
    headers.insert(http::header::AUTHORIZATION, value);
    let now = Duration::from_secs(now.unsigned_abs());
    match verifier.verify(&AuthRequest { headers: &headers, query: None, certificate: None, now }, cache) {
        MethodAnswer::Known(identity) => Some(identity),
        MethodAnswer::Refused(_) => None,
        other => panic!("{other:?}"),
    }
}

fn is_taken(verifier: &Verifier, token: &str) -> bool {
    check(verifier, token, &Cache::new(0), NOW).is_some()
}

#[test]
fn public_vectors_hold_and_one_bit_less_does_not() {
    let vectors: Vec<Value> =
        serde_json::from_str(include_str!("../../../tests/vectors/jws.json")).expect("JSON");
    let all = [Algorithm::HS256, Algorithm::RS256, Algorithm::PS384, Algorithm::ES256, Algorithm::EdDSA];
    for vector in vectors {
        let source = vector["source"].as_str().expect("a name");
        let keys = KeySet::of_text(&vector["jwk"].to_string(), &all).expect(source);
        let text = vector["token"].as_str().expect("a token");
        let verify = |text: &str| SignedToken::parse(text.as_bytes()).ok().map(|token| keys.verify(&token));
        assert_eq!(verify(text), Some(Signature::Valid), "{source}");
        let (message, signature) = text.rsplit_once('.').expect("three parts");
        let mut bytes = URL_SAFE_NO_PAD.decode(signature).expect("it is encoded");
        bytes[7] ^= 1;
        let changed = format!("{message}.{}", URL_SAFE_NO_PAD.encode(&bytes));
        assert_eq!(verify(&changed), Some(Signature::Invalid), "{source}");
        assert_eq!(verify(&format!("{message}.")), Some(Signature::Invalid), "{source}: no signature");
        let longer = format!("{message}A.{signature}");
        assert_ne!(verify(&longer), Some(Signature::Valid), "{source}: another payload");
    }
}

/// What is a JWS, or looks like one, and no token: each with why, and the key it would be checked by.
#[test]
fn public_vectors_of_what_is_no_token_are_refused() {
    let vectors: Vec<Value> =
        serde_json::from_str(include_str!("../../../tests/vectors/jws-refused.json")).expect("JSON");
    let all = [Algorithm::HS256, Algorithm::RS256, Algorithm::ES256, Algorithm::ES384, Algorithm::EdDSA];
    for vector in vectors {
        let (source, why) = (&vector["source"], &vector["why"]);
        let jwk = vector["jwk"].to_string();
        match KeySet::of_text(&jwk, &all) {
            Ok(keys) => {
                let text = vector["token"].as_str().expect("a token");
                let signature = SignedToken::parse(text.as_bytes()).ok().map(|token| keys.verify(&token));
                assert_ne!(signature, Some(Signature::Valid), "{source}: {why}");
            }
            Err(reason) => {
                assert_eq!(*why, "ES512 is not verified", "{source}: {reason}");
                assert!(jwk.contains("P-521"), "{source}");
            }
        }
        // Nor by keys that have nothing to do with it.
        assert!(!is_taken(&es256(), vector["token"].as_str().expect("a token")), "{source}: {why}");
    }
}

#[test]
fn a_good_token_says_who_calls() {
    let identity = check(&es256(), &signed(&claims()), &Cache::new(0), NOW).expect("a good token");
    let told = (identity.consumer.as_deref(), identity.tenant.as_deref(), identity.tier.as_deref());
    assert_eq!(told, (Some("ann"), Some("acme"), Some("pro")));
    let kept: Vec<_> = identity.claims.iter().collect();
    let roles = Claim::Many(["a".into(), "7".into()].into());
    assert_eq!(kept, [("roles", &roles), ("admin", &Claim::One("true".into()))], "only what is asked for");
}

#[test]
fn claims_are_believed_within_their_times_for_their_audience() {
    let verifier = es256();
    let cases = [
        (claims(), true),
        (with(json!({ "exp": NOW - 4 })), true),
        (with(json!({ "exp": NOW - 5 })), false),
        (with(json!({ "exp": (NOW - 5) as f64 + 0.5 })), false),
        (with(json!({ "exp": "tomorrow" })), false),
        (with(json!({ "exp": null })), false),
        (with(json!({ "exp": 1e300 })), true),
        (without("exp"), false),
        (with(json!({ "nbf": NOW + 5 })), true),
        (with(json!({ "nbf": NOW + 6 })), false),
        (with(json!({ "nbf": [NOW] })), false),
        (with(json!({ "iat": NOW + 5 })), true),
        (with(json!({ "iat": NOW + 6 })), false),
        (with(json!({ "iat": -1e300 })), true),
        (with(json!({ "aud": ["x", "web"] })), true),
        (with(json!({ "aud": ["x", "API"] })), false),
        (with(json!({ "aud": [] })), false),
        (with(json!({ "aud": { "api": 1 } })), false),
        (without("aud"), false),
        (with(json!({ "iss": "https://id.example.com" })), false),
        (with(json!({ "iss": ["https://id.example.com/"] })), false),
        (without("iss"), false),
        (without("sub"), false),
        (with(json!({ "sub": null })), false),
        (with(json!({ "sub": "" })), false),
        (with(json!({ "sub": 7 })), true),
        (with(json!({ "sub": 7.0 })), false),
        (with(json!({ "sub": true })), false),
        (with(json!({ "sub": ["ann"] })), false),
    ];
    for (claims, taken) in cases {
        assert_eq!(is_taken(&verifier, &signed(&claims)), taken, "{claims}");
    }
}

#[test]
fn typ_is_asked_for_where_that_is_written() {
    let rules = ClaimRules { typ: Some("at+jwt".to_owned()), ..rules() };
    let verifier = Verifier { config: Config { rules, ..es256().config }, ..es256() };
    for (typ, taken) in [
        (r#","typ":"at+jwt""#, true),
        (r#","typ":"AT+JWT""#, true),
        (r#","typ":"application/at+jwt""#, true),
        (r#","typ":"JWT""#, false),
        (r#","typ":7"#, false),
        ("", false),
    ] {
        let header = format!(r#"{{"alg":"ES256"{typ}}}"#);
        let token = token_of(&header, &claims().to_string(), Algorithm::ES256, &key(&PRIVATE));
        assert_eq!(is_taken(&verifier, &token), taken, "{header}");
    }
}

#[test]
fn headers_of_attackers_are_refused() {
    let verifier = es256();
    let own = URL_SAFE_NO_PAD.encode("x");
    let long = "k".repeat(300);
    for header in [
        r#"{"alg":"none"}"#.to_owned(),
        r#"{"alg":"nOnE"}"#.to_owned(),
        r#"{"alg":""}"#.to_owned(),
        r#"{"typ":"JWT"}"#.to_owned(),
        r#"{"alg":"ES384"}"#.to_owned(),
        r#"{"alg":"ES256","alg":"ES256"}"#.to_owned(),
        r#"{"alg":["ES256"]}"#.to_owned(),
        r#"{"alg":"ES256","crit":["exp"]}"#.to_owned(),
        r#"{"alg":"ES256","crit":[]}"#.to_owned(),
        r#"{"alg":"ES256","b64":false,"crit":["b64"]}"#.to_owned(),
        format!(r#"{{"alg":"ES256","jwk":{{"kty":"oct","k":"{own}"}}}}"#),
        r#"{"alg":"ES256","kid":7}"#.to_owned(),
        format!(r#"{{"alg":"ES256","kid":"{long}"}}"#),
        r#"{"alg":"ES256","enc":"A128GCM"}"#.to_owned(),
        r#"["ES256"]"#.to_owned(),
        String::new(),
    ] {
        let token = token_of(&header, &claims().to_string(), Algorithm::ES256, &key(&PRIVATE));
        assert!(!is_taken(&verifier, &token), "{header}");
    }
    // Names of keys are looked up and nothing else; a set whose keys have no names knows every name.
    for kid in ["../../etc/passwd", "' OR 1=1 --", "\u{0}", "http://a/"] {
        let header =
            json!({ "alg": "ES256", "kid": kid, "jku": "http://127.0.0.1:1/", "x5u": "http://127.0.0.1:1/" });
        let token = token_of(&header.to_string(), &claims().to_string(), Algorithm::ES256, &key(&PRIVATE));
        assert!(is_taken(&verifier, &token), "{kid}");
    }
}

#[test]
fn a_public_key_is_no_secret_and_another_key_is_another() {
    let verifier = es256();
    for secret in [*PUBLIC, PUBLIC.trim(), "", SECRET] {
        let key = EncodingKey::from_secret(secret.as_bytes());
        let token = token_of(r#"{"alg":"HS256"}"#, &claims().to_string(), Algorithm::HS256, &key);
        assert!(!is_taken(&verifier, &token), "{secret}");
    }
    let header = r#"{"alg":"ES256"}"#;
    let other = token_of(header, &claims().to_string(), Algorithm::ES256, &key(&pair().0));
    assert!(!is_taken(&verifier, &other));
    let token = token_of(
        r#"{"alg":"HS256"}"#,
        &claims().to_string(),
        Algorithm::HS256,
        &EncodingKey::from_secret(SECRET.as_bytes()),
    );
    assert!(is_taken(&hs256(&[Algorithm::HS256]), &token));
    assert!(!is_taken(&hs256(&[Algorithm::ES256]), &token), "the list is the configuration's");
}

/// What is taken by the secret.
fn hs256(algorithms: &[Algorithm]) -> Verifier {
    let keys = KeySet::of_secret(SECRET, &[Algorithm::HS256]).expect("long enough");
    verifier(keys, algorithms, rules())
}

#[test]
fn what_is_not_exactly_one_token_is_none() {
    let verifier = es256();
    let good = signed(&claims());
    let (message, signature) = good.rsplit_once('.').expect("three parts");
    let (header, payload) = message.split_once('.').expect("three parts");
    let der = format!("{message}.{}", URL_SAFE_NO_PAD.encode([0x30, 0x06, 2, 1, 1, 2, 1, 1]));
    for token in [
        message.to_owned(),
        format!("{message}."),
        format!("{good}."),
        format!("{good}.x.y"),
        format!("{good}="),
        format!("{header}=.{payload}.{signature}"),
        format!(" {header}.{payload} .{signature}"),
        format!(".{payload}.{signature}"),
        format!("{header}..{signature}"),
        format!("{header}.{payload}+.{signature}"),
        der,
        "a".repeat(9_000),
        "..".to_owned(),
        "...".to_owned(),
    ] {
        assert!(!is_taken(&verifier, &token), "{token}");
    }
    for payload in ["null", "[]", "\"a\"", "{", r#"{"sub":"ann","sub":"bob"}"#, ""] {
        let token = token_of(r#"{"alg":"ES256"}"#, payload, Algorithm::ES256, &key(&PRIVATE));
        assert!(!is_taken(&verifier, &token), "{payload}");
    }
    let twice = claims().to_string().replacen('{', "{\"sub\":\"bob\",", 1);
    assert!(!is_taken(&verifier, &token_of(r#"{"alg":"ES256"}"#, &twice, Algorithm::ES256, &key(&PRIVATE))));
}

#[test]
fn what_was_verified_is_believed_until_it_ends_or_the_keys_change() {
    let verifier = es256();
    let cache = Cache::new(0);
    let token = signed(&claims());
    let first = check(&verifier, &token, &cache, NOW).expect("a good token");
    let again = check(&verifier, &token, &cache, NOW + 64).expect("it is good for a minute and the leeway");
    assert!(Arc::ptr_eq(&first, &again), "it was not looked at again");
    assert_eq!(check(&verifier, &token, &cache, NOW + 65), None, "expired");

    check(&verifier, &token, &cache, NOW).expect("a good token");
    let same = KeySet::of_text(&PUBLIC, &[Algorithm::ES256]).expect("a public key");
    assert!(!verifier.replace(Arc::new(same)));
    let others = KeySet::of_secret(SECRET, &[Algorithm::HS256]).expect("long enough");
    assert!(verifier.replace(Arc::new(others)));
    assert_eq!(check(&verifier, &token, &cache, NOW), None, "its key is gone");
}

#[test]
fn keys_are_chosen_by_name_and_fitness() {
    let public: Value = serde_json::from_str(include_str!("../../../tests/vectors/jws.json")).expect("JSON");
    let mut set = Vec::new();
    for (index, kid) in [(1, "rsa"), (2, "ec"), (3, "ed")] {
        let mut jwk = public[index]["jwk"].clone();
        jwk["kid"] = kid.into();
        set.push(jwk);
    }
    set.push(json!({ "kty": "XX", "kid": "unknown" }));
    set.push(json!({ "kty": "EC", "crv": "P-521", "x": "AA", "y": "AA", "kid": "p521" }));
    let mut encryption = public[1]["jwk"].clone();
    encryption["use"] = "enc".into();
    encryption["kid"] = "enc".into();
    set.push(encryption);
    let all = [Algorithm::RS256, Algorithm::ES256, Algorithm::EdDSA, Algorithm::HS256];
    let keys = KeySet::of_text(&json!({ "keys": set }).to_string(), &all).expect("three keys");
    let token = |kid: &str| {
        let header = json!({ "alg": "ES256", "kid": kid });
        token_of(&header.to_string(), "{}", Algorithm::ES256, &key(&PRIVATE))
    };
    let verify = |kid: &str| keys.verify(&SignedToken::parse(token(kid).as_bytes()).expect("a token"));
    assert_eq!(verify("ec"), Signature::Invalid);
    assert_eq!(verify("rsa"), Signature::Invalid, "its family is another");
    for unknown in ["unknown", "p521", "enc", "EC"] {
        assert_eq!(verify(unknown), Signature::UnknownKey, "{unknown}");
    }
}

#[test]
fn keys_that_cannot_be_used_are_reported() {
    let of_text = |text: &str| KeySet::of_text(text, &[Algorithm::ES256]).map(|_| ()).expect_err("unusable");
    assert_eq!(of_text("{"), "not JSON, line 1");
    assert_eq!(of_text("{\"keys\":{}}"), "`keys` is not a list");
    assert!(of_text("{\"keys\":[]}").starts_with("it has no key"));
    assert!(of_text("junk").starts_with("it has neither public keys in PEM nor a JWK"));
    assert!(of_text("{}").starts_with("it is not a JWK"));
    let certificate = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    assert!(of_text(certificate).starts_with("it is a certificate: `openssl x509 -pubkey"));
    assert!(of_text(&PRIVATE).starts_with("only public keys are allowed"));
    assert!(
        of_text("-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n").starts_with("a public key")
    );
    assert!(KeySet::of_secret("short", &[Algorithm::HS256]).is_err());
    assert!(KeySet::of_secret(SECRET, &[Algorithm::HS512]).is_err());
    let other = KeySet::of_secret(SECRET, &[Algorithm::RS256]).map(|_| ()).expect_err("it takes no secret");
    assert!(other.contains("`algorithms` has none of them"), "{other}");
}

proptest! {
    #[test]
    fn no_bytes_panic_and_no_changed_token_is_taken(
        text in "\\PC{0,300}",
        place in any::<prop::sample::Index>(),
        byte in "[A-Za-z0-9._-]",
    ) {
        let _ = SignedToken::parse(text.as_bytes());
        let token = token_of(
            r#"{"alg":"HS256"}"#,
            &claims().to_string(),
            Algorithm::HS256,
            &EncodingKey::from_secret(SECRET.as_bytes()),
        );
        let at = place.index(token.len());
        let mut changed = token.clone();
        changed.replace_range(at..=at, &byte);
        let verifier = hs256(&[Algorithm::HS256]);
        prop_assert_eq!(is_taken(&verifier, &changed), changed == token);
    }
}
