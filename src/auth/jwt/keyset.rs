//! The keys that sign tokens, and which algorithms each may be used with: an algorithm fits one family of keys, and a public
//! key is never used as a shared secret (RFC 8725 section 3.1).

use std::sync::atomic::{AtomicU64, Ordering};

use jsonwebtoken::jwk::{AlgorithmParameters, EllipticCurve, Jwk, KeyOperations, PublicKeyUse};
use jsonwebtoken::{Algorithm, AlgorithmFamily, DecodingKey, crypto};

use super::token::SignedToken;

#[derive(Debug)]
pub(super) struct KeySet {
    /// Unique in the process, so that what was verified by one set is not taken for verified by another.
    pub(super) generation: u64,
    keys: Vec<VerifyingKey>,
}

#[derive(Debug)]
struct VerifyingKey {
    kid: Option<String>,
    /// What it may be used for, of what the configuration allows.
    algorithms: Vec<Algorithm>,
    key: DecodingKey,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Signature {
    Valid,
    Invalid,
    /// No key here is the one it names.
    UnknownKey,
}

impl KeySet {
    pub(super) fn empty() -> KeySet {
        KeySet::new(Vec::new())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    fn new(keys: Vec<VerifyingKey>) -> KeySet {
        static COUNT: AtomicU64 = AtomicU64::new(1);
        KeySet { generation: COUNT.fetch_add(1, Ordering::Relaxed), keys }
    }

    /// One shared secret.
    ///
    /// # Errors
    /// Where it is too short for every algorithm that is allowed (RFC 7518 section 3.2).
    pub(super) fn of_secret(secret: &str, allowed: &[Algorithm]) -> Result<KeySet, String> {
        let algorithms: Vec<Algorithm> = allowed.iter().copied().filter(|it| is_long(secret, *it)).collect();
        // Where none is allowed, the secret is not to blame, because the configuration is refused for that.
        if algorithms.is_empty() && !allowed.is_empty() {
            if allowed.iter().all(|algorithm| secret_bytes_min(*algorithm).is_none()) {
                return Err("a secret needs HS256, HS384 or HS512: `algorithms` has none of them".to_owned());
            }
            return Err("the secret is too short: HS256 needs 32 bytes, HS384 48, HS512 64".to_owned());
        }
        Ok(KeySet::new(vec![VerifyingKey {
            kid: None,
            algorithms,
            key: DecodingKey::from_secret(secret.as_bytes()),
        }]))
    }

    /// Keys from a JWK set (RFC 7517 section 5), one JWK, or public keys in PEM.
    ///
    /// # Errors
    /// Where it is neither, or nothing in it can be used.
    pub(super) fn of_text(text: &str, allowed: &[Algorithm]) -> Result<KeySet, String> {
        let keys = match text.trim_start().starts_with('{') {
            true => of_jwks(text, allowed)?,
            false => of_pem(text, allowed)?,
        };
        if keys.is_empty() && !text.trim_start().starts_with('{') && !text.contains("-----BEGIN ") {
            return Err("it has neither public keys in PEM nor a JWK".to_owned());
        }
        if keys.is_empty() {
            return Err("it has no key for the allowed `algorithms`".to_owned());
        }
        Ok(KeySet::new(keys))
    }

    /// Whether two sets hold the same keys.
    pub(super) fn is_same(&self, other: &KeySet) -> bool {
        let parts = |set: &KeySet| -> Vec<String> {
            let shown =
                |key: &VerifyingKey| format!("{:?} {:?} {:?}", key.kid, key.algorithms, raw(&key.key));
            set.keys.iter().map(shown).collect()
        };
        parts(self) == parts(other)
    }

    /// Checks the signature of a token by the key it names; by those that fit, where it names none or keys have no
    /// names.
    pub(super) fn verify(&self, token: &SignedToken<'_>) -> Signature {
        let is_named = |key: &&VerifyingKey| match (&key.kid, &token.kid) {
            (Some(own), Some(named)) => own == named,
            (None, _) | (_, None) => true,
        };
        let mut fitting = self.keys.iter().filter(is_named).peekable();
        if fitting.peek().is_none() {
            return Signature::UnknownKey;
        }
        let fitting = fitting.filter(|key| key.algorithms.contains(&token.algorithm));
        // A bound on what one token can make us compute.
        for key in fitting.take(KEYS_TRIED_MAX) {
            let valid = crypto::verify(token.signature, token.signed, &key.key, token.algorithm);
            if valid.unwrap_or(false) {
                return Signature::Valid;
            }
        }
        Signature::Invalid
    }
}

fn is_long(secret: &str, algorithm: Algorithm) -> bool {
    secret_bytes_min(algorithm).is_some_and(|least| secret.len() >= least)
}

/// The least length of a secret (RFC 7518 section 3.2); `None` if the algorithm takes no secret.
fn secret_bytes_min(algorithm: Algorithm) -> Option<usize> {
    match algorithm {
        Algorithm::HS256 => Some(32),
        Algorithm::HS384 => Some(48),
        Algorithm::HS512 => Some(64),
        _ => None,
    }
}

fn of_jwks(text: &str, allowed: &[Algorithm]) -> Result<Vec<VerifyingKey>, String> {
    let set: serde_json::Value = serde_json::from_str(text).map_err(|error| match error.line() {
        0 => "not JSON".to_owned(),
        line => format!("not JSON, line {line}"),
    })?;
    let keys = match set.get("keys") {
        Some(keys) => keys.as_array().ok_or("`keys` is not a list")?.clone(),
        None if set.get("kty").is_none() => {
            return Err("it is not a JWK: it has neither `keys` nor `kty`".to_owned());
        }
        None => vec![set],
    };
    if keys.len() > KEYS_MAX {
        return Err(format!("more than {KEYS_MAX} keys"));
    }
    // Keys of unknown kinds are ignored (RFC 7517 section 5).
    Ok(keys.into_iter().filter_map(|key| of_jwk(&serde_json::from_value(key).ok()?, allowed)).collect())
}

fn of_jwk(jwk: &Jwk, allowed: &[Algorithm]) -> Option<VerifyingKey> {
    let common = &jwk.common;
    if common.public_key_use.as_ref().is_some_and(|wanted| *wanted != PublicKeyUse::Signature) {
        return None;
    }
    if common.key_operations.as_ref().is_some_and(|operations| !operations.contains(&KeyOperations::Verify)) {
        return None;
    }
    let named = common.key_algorithm.map(|algorithm| algorithm.to_string());
    let secret_bytes = |key: &DecodingKey| key.try_get_as_bytes().map_or(0, <[u8]>::len);
    let key = DecodingKey::from_jwk(jwk).ok()?;
    let fits = |algorithm: &Algorithm| {
        let of_family = match (&jwk.algorithm, algorithm) {
            (AlgorithmParameters::EllipticCurve(ec), Algorithm::ES256) => ec.curve == EllipticCurve::P256,
            (AlgorithmParameters::EllipticCurve(ec), Algorithm::ES384) => ec.curve == EllipticCurve::P384,
            (AlgorithmParameters::OctetKeyPair(pair), Algorithm::EdDSA) => {
                pair.curve == EllipticCurve::Ed25519
            }
            (AlgorithmParameters::OctetKey(_), Algorithm::HS256) => secret_bytes(&key) >= 32,
            (AlgorithmParameters::OctetKey(_), Algorithm::HS384) => secret_bytes(&key) >= 48,
            (AlgorithmParameters::OctetKey(_), Algorithm::HS512) => secret_bytes(&key) >= 64,
            (AlgorithmParameters::RSA(_), algorithm) => algorithm.family() == AlgorithmFamily::Rsa,
            _ => false,
        };
        of_family && named.as_ref().is_none_or(|named| *named == format!("{algorithm:?}"))
    };
    let algorithms: Vec<Algorithm> = allowed.iter().copied().filter(fits).collect();
    (!algorithms.is_empty()).then(|| VerifyingKey { kid: common.key_id.clone(), algorithms, key })
}

/// Public keys in PEM, one or several. A certificate is none, because whether it is to be believed is another question.
fn of_pem(text: &str, allowed: &[Algorithm]) -> Result<Vec<VerifyingKey>, String> {
    let mut keys = Vec::new();
    for block in text.split_inclusive("-----END").map(str::trim_start) {
        let Some(at) = block.find("-----BEGIN ") else { continue };
        let block = &block[at..];
        let label = block["-----BEGIN ".len()..].split("-----").next().unwrap_or("");
        if !matches!(label, "PUBLIC KEY" | "RSA PUBLIC KEY") {
            return Err(match label {
                "CERTIFICATE" => {
                    "it is a certificate: `openssl x509 -pubkey -noout -in FILE` prints its public key"
                }
                _ => "only public keys are allowed: `openssl pkey -pubout` writes one",
            }
            .to_owned());
        }
        let pem = format!("{block} {label}-----\n");
        let key = public_key(pem.as_bytes()).ok_or("a public key in it cannot be read")?;
        let fits = |algorithm: &Algorithm| match (key.family(), algorithm) {
            (AlgorithmFamily::Ec, Algorithm::ES256) => raw(&key).len() == 65,
            (AlgorithmFamily::Ec, Algorithm::ES384) => raw(&key).len() == 97,
            (AlgorithmFamily::Ec, _) => false,
            (family, algorithm) => algorithm.family() == family,
        };
        let algorithms: Vec<Algorithm> = allowed.iter().copied().filter(fits).collect();
        if !algorithms.is_empty() {
            keys.push(VerifyingKey { kid: None, algorithms, key });
        }
    }
    if keys.len() > KEYS_MAX {
        return Err(format!("more than {KEYS_MAX} keys"));
    }
    Ok(keys)
}

fn public_key(pem: &[u8]) -> Option<DecodingKey> {
    // In this order, because the reader of RSA keys takes whatever is left.
    DecodingKey::from_ec_pem(pem)
        .or_else(|_| DecodingKey::from_ed_pem(pem))
        .or_else(|_| DecodingKey::from_rsa_pem(pem))
        .ok()
}

fn raw(key: &DecodingKey) -> Vec<u8> {
    match key.kind() {
        jsonwebtoken::DecodingKeyKind::SecretOrDer(bytes) => bytes.clone(),
        jsonwebtoken::DecodingKeyKind::RsaModulusExponent { n, e } => [&n[..], &[0], &e[..]].concat(),
    }
}

const KEYS_MAX: usize = 1_000;

/// Keys tried for a token that names none.
const KEYS_TRIED_MAX: usize = 4;
