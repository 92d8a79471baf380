//! Parses a token into its parts (RFC 7515 section 3.1). Nothing in it is trusted yet.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jsonwebtoken::Algorithm;
use serde_json::Value;

use crate::strict_json;
use base::cause::Cause;

/// A signed token in its compact form.
#[derive(Debug)]
pub(super) struct SignedToken<'t> {
    /// What is signed: header and payload as they came.
    pub(super) signed: &'t [u8],
    /// Its signature, still encoded.
    pub(super) signature: &'t str,
    payload: &'t str,
    /// How it says it is signed.
    pub(super) algorithm: Algorithm,
    /// The key it says it is signed with.
    pub(super) kid: Option<String>,
    pub(super) typ: Option<String>,
}

impl<'t> SignedToken<'t> {
    /// Takes a token apart. Refused is what is too long, no token, encrypted (RFC 7516 has five parts), says `none`,
    /// carries its own key, or asks for an extension nobody here knows (`crit`, RFC 7515 section 4.1.11).
    ///
    /// Where a key may be found by URL (`jku`, `x5u`) is not read at all.
    pub(super) fn parse(bytes: &'t [u8]) -> Result<SignedToken<'t>, Cause> {
        SignedToken::read(bytes).unwrap_or(Err(Cause::TokenMalformed))
    }

    /// `None`: it is not of a token's form.
    fn read(bytes: &'t [u8]) -> Option<Result<SignedToken<'t>, Cause>> {
        if bytes.len() > TOKEN_BYTES_MAX {
            return None;
        }
        let text = std::str::from_utf8(bytes).ok()?;
        let (signed, signature) = text.rsplit_once('.')?;
        let (header, payload) = signed.split_once('.')?;
        if payload.contains('.') {
            return None;
        }
        let header = strict_json::parse(&URL_SAFE_NO_PAD.decode(header).ok()?).ok()?;
        if ["crit", "jwk", "enc", "zip"].iter().any(|name| header.get(name).is_some()) {
            return None;
        }
        let text = |name| match header.get(name) {
            None => Some(None),
            Some(value) => value.as_str().map(|text| Some(text.to_owned())),
        };
        let algorithm = header.get("alg")?.as_str()?.parse();
        let kid = text("kid")?.filter(|kid| !kid.is_empty());
        if kid.as_ref().is_some_and(|kid| kid.len() > KID_BYTES_MAX) {
            return None;
        }
        let (signed, typ) = (signed.as_bytes(), text("typ")?);
        let token = |algorithm| SignedToken { signed, signature, payload, algorithm, kid, typ };
        Some(algorithm.map(token).map_err(|_| Cause::TokenAlgorithm))
    }

    /// What it claims; an object, or nothing.
    pub(super) fn claims(&self) -> Option<Value> {
        let claims = strict_json::parse(&URL_SAFE_NO_PAD.decode(self.payload).ok()?).ok()?;
        claims.is_object().then_some(claims)
    }
}

const TOKEN_BYTES_MAX: usize = 8 * 1024;

const KID_BYTES_MAX: usize = 256;
