//! Which claims a token must have, and which of them identify the client. Pure: `now` is an argument.

use std::time::Duration;

use serde_json::Value;

use super::claim_values;
use super::token::SignedToken;
use base::cause::Cause;
use base::identity::{Claim, Identity};

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClaimRules {
    /// `iss` must be one of these. Empty: it is not asked for.
    pub issuers: Vec<String>,
    /// `aud` must hold one of these. Empty: it is not asked for.
    pub audiences: Vec<String>,
    /// The header's `typ`, without `application/`. `None`: it is not asked for.
    pub typ: Option<String>,
    /// How far clocks may differ.
    pub leeway: Duration,
    pub required: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClaimNaming {
    /// The consumer. A token without it identifies nobody.
    pub consumer: Option<String>,
    pub tenant: Option<String>,
    pub tier: Option<String>,
}

impl ClaimRules {
    /// Until when these claims are good, Unix seconds; `i64::MAX` where nothing ends them.
    ///
    /// # Errors
    /// Why they are not.
    pub(super) fn good_until(&self, token: &SignedToken<'_>, claims: &Value, now: i64) -> Result<i64, Cause> {
        let is_present = |name: &String| claims.get(name).is_some_and(|claim| !claim.is_null());
        if !self.required.iter().all(is_present) {
            return Err(Cause::TokenClaims);
        }
        if !self.is_typ(token) {
            return Err(Cause::TokenType);
        }
        if !self.issuers.is_empty()
            && !self.issuers.iter().any(|own| claims.get("iss").and_then(Value::as_str) == Some(own))
        {
            return Err(Cause::TokenIssuer);
        }
        if !self.audiences.is_empty() && !claims.get("aud").is_some_and(|aud| self.is_meant(aud)) {
            return Err(Cause::TokenAudience);
        }
        let leeway = i64::try_from(self.leeway.as_secs()).unwrap_or(i64::MAX);
        for begins in ["nbf", "iat"] {
            let begins = date(claims, begins).ok_or(Cause::TokenClaims)?;
            if begins.is_some_and(|begins| now.saturating_add(leeway) < begins) {
                return Err(Cause::TokenEarly);
            }
        }
        let expires = date(claims, "exp").ok_or(Cause::TokenClaims)?;
        let until = expires.map_or(i64::MAX, |exp| exp.saturating_add(leeway));
        // On the second it expires a token is expired (RFC 7519 section 4.1.4).
        if now < until { Ok(until) } else { Err(Cause::TokenExpired) }
    }

    fn is_typ(&self, token: &SignedToken<'_>) -> bool {
        let Some(wanted) = &self.typ else { return true };
        let Some(typ) = &token.typ else { return false };
        // RFC 7515 section 4.1.9: `application/` may be left out.
        let short = match typ.get(..APPLICATION.len()) {
            Some(prefix) if prefix.eq_ignore_ascii_case(APPLICATION) => &typ[APPLICATION.len()..],
            _ => typ,
        };
        short.eq_ignore_ascii_case(wanted)
    }

    fn is_meant(&self, aud: &Value) -> bool {
        let is_own =
            |aud: &Value| aud.as_str().is_some_and(|aud| self.audiences.iter().any(|own| own == aud));
        match aud {
            Value::Array(many) => many.iter().any(is_own),
            one => is_own(one),
        }
    }
}

impl ClaimNaming {
    /// The identity a token gives, with those of its claims that anything asks for. `None` if the claim that names the
    /// consumer is absent or empty, because limits by consumer would not hold for such a client, and it would be
    /// admitted.
    pub(super) fn identity(&self, claims: &Value, wanted: &[Box<str>]) -> Option<Identity> {
        let name = |claim: &Option<String>| claim_values::name(claim_values::at(claims, claim.as_deref()?)?);
        let consumer = name(&self.consumer);
        if self.consumer.is_some() && consumer.is_none() {
            return None;
        }
        Some(Identity {
            consumer,
            tenant: name(&self.tenant),
            tier: name(&self.tier),
            claims: wanted
                .iter()
                .filter_map(|name| Some((name.clone(), claim(claim_values::at(claims, name)?)?)))
                .collect(),
        })
    }
}

fn claim(json: &Value) -> Option<Claim> {
    match json {
        Value::Array(many) => Some(Claim::Many(many.iter().filter_map(claim_values::scalar).collect())),
        one => claim_values::scalar(one).map(Claim::One),
    }
}

/// A date (RFC 7519 section 2, NumericDate), Unix seconds; parts of a second are dropped. `None` of what is none.
fn date(claims: &Value, name: &str) -> Option<Option<i64>> {
    match claims.get(name) {
        None => Some(None),
        Some(Value::Number(number)) => {
            // A float beyond the range is cut to it.
            let seconds = number.as_i64().or_else(|| number.as_f64().map(|seconds| seconds as i64));
            seconds.map(Some)
        }
        Some(_) => None,
    }
}

const APPLICATION: &str = "application/";
