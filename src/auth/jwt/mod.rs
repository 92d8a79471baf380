//! Signed tokens (JWT, RFC 7519) that an issuer has given to a client.
//!
//! The `jsonwebtoken` crate verifies signatures. Parsing, the choice of the key and the checks of claims are done here,
//! because the crate's own parser merges names that occur twice, reads the clock itself and does not check `nbf` and `iss`
//! by default. A token never says where its key is: keys come from the configuration only.

mod claim_values;
mod keyset;
pub mod remote;
mod rules;
#[cfg(test)]
mod tests;
mod token;

use std::borrow::Cow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arc_swap::ArcSwap;
pub use jsonwebtoken::Algorithm;

use super::cache::{Cache, Digest, digest_of};
use super::credential_source::{CredentialSource, carried};
use super::entries::{self, text};
use super::request::{AuthRequest, MethodAnswer, PendingCheck};
use base::cause::Cause;
use base::identity::Identity;
use base::secret::Secret;
use keyset::{KeySet, Signature};
use remote::RemoteKeys;
pub use rules::{ClaimNaming, ClaimRules};
use token::SignedToken;

/// The configuration of `kind = "jwt"`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Where a request carries its token.
    pub places: Vec<CredentialSource>,
    pub source: KeySetSource,
    /// How a token may be signed.
    pub algorithms: Vec<Algorithm>,
    pub rules: ClaimRules,
    pub naming: ClaimNaming,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeySetSource {
    /// A secret shared with the issuer.
    Secret(Secret),
    /// A JWK set, or public keys in PEM.
    File(PathBuf),
    /// A JWK set that the issuer publishes.
    Url(Box<remote::Config>),
}

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    File(#[from] entries::Error),
    /// It contains no usable keys.
    #[error("{}: {reason}", path.display())]
    Keys { path: PathBuf, reason: String },
    /// The secret cannot be used.
    #[error("{0}")]
    Secret(String),
}

#[derive(Debug)]
pub(super) struct Verifier {
    config: Config,
    /// Claims that policies, header values or routes ask for; others are not kept.
    wanted: Box<[Box<str>]>,
    keys: ArcSwap<KeySet>,
    pub(super) remote: Option<RemoteKeys>,
}

impl Verifier {
    /// Reads the keys; those behind a URL come later.
    pub(super) fn new(config: &Config, wanted: &[Box<str>]) -> Result<Verifier, Error> {
        let remote = match &config.source {
            KeySetSource::Url(config) => Some(RemoteKeys::new((**config).clone())),
            KeySetSource::Secret(_) | KeySetSource::File(_) => None,
        };
        let keys = ArcSwap::from_pointee(read(config)?);
        Ok(Verifier { config: config.clone(), wanted: wanted.into(), keys, remote })
    }

    /// Goes on with the keys of a file that was read again.
    pub(super) fn adopt(&self, fresh: Verifier) {
        if matches!(self.config.source, KeySetSource::File(_)) {
            self.replace(fresh.keys.into_inner());
        }
    }

    /// Takes over the keys of another, where they come from the same place and are good for the same.
    pub(super) fn inherit(&self, before: &Verifier) {
        if self.config.source == before.config.source && self.config.algorithms == before.config.algorithms {
            self.keys.store(before.keys.load_full());
        }
    }

    pub(super) fn file(&self) -> Option<&Path> {
        match &self.config.source {
            KeySetSource::File(path) => Some(path),
            KeySetSource::Secret(_) | KeySetSource::Url(_) => None,
        }
    }

    /// Takes keys that were fetched, and says whether they are others than before.
    pub(super) fn take(&self, text: &str) -> Result<bool, String> {
        Ok(self.replace(Arc::new(KeySet::of_text(text, &self.config.algorithms)?)))
    }

    /// Tokens that were verified by the same keys need no second look.
    fn replace(&self, keys: Arc<KeySet>) -> bool {
        let changed = !self.keys.load().is_same(&keys);
        if changed {
            self.keys.store(keys);
        }
        changed
    }

    /// Whether the request carries a token that was verified before; a new one is not looked at yet.
    pub(super) fn check(&self, asked: &AuthRequest<'_>, cache: &Cache) -> MethodAnswer {
        let unseen = self.unseen(asked, cache, self.keys.load().generation);
        unseen.map_or_else(|checked| checked, |_| MethodAnswer::Wait(PendingCheck::Token))
    }

    /// The token that the request carries, and its digest, where it was not verified before; else what that says.
    fn unseen<'r>(
        &self,
        asked: &AuthRequest<'r>,
        cache: &Cache,
        generation: u64,
    ) -> Result<(Cow<'r, [u8]>, Digest), MethodAnswer> {
        let credential = carried(&self.config.places, asked.headers, asked.query).only()?;
        let digest = digest_of(&credential);
        match cache.find(&digest, generation, asked.unix_seconds()) {
            Some(identity) => Err(MethodAnswer::Known(identity)),
            None => Ok((credential, digest)),
        }
    }

    /// Judges what the request carries, its signature too.
    pub(super) fn verify(&self, asked: &AuthRequest<'_>, cache: &Cache) -> MethodAnswer {
        let now = asked.unix_seconds();
        let keys = self.keys.load();
        let (credential, digest) = match self.unseen(asked, cache, keys.generation) {
            Ok(unseen) => unseen,
            Err(checked) => return checked,
        };
        let token = match SignedToken::parse(&credential) {
            Ok(token) if self.config.algorithms.contains(&token.algorithm) => token,
            Ok(_) => return MethodAnswer::Refused(Cause::TokenAlgorithm),
            Err(cause) => return MethodAnswer::Refused(cause),
        };
        match keys.verify(&token) {
            Signature::Valid => match self.identity(&token, now) {
                Ok((identity, until)) => {
                    cache.keep(digest, &identity, keys.generation, until.min(now + KEPT_SECONDS_MAX));
                    MethodAnswer::Known(identity)
                }
                Err(cause) => MethodAnswer::Refused(cause),
            },
            Signature::Invalid => MethodAnswer::Refused(Cause::TokenSignature),
            Signature::UnknownKey => {
                let asked = self.remote.as_ref().and_then(|remote| remote.ask_for(token.kid.as_deref()));
                asked.map_or(MethodAnswer::Refused(self.unknown_key()), |rounds| {
                    MethodAnswer::Wait(PendingCheck::Keys(rounds))
                })
            }
        }
    }

    /// Why it has no key for a token.
    pub(super) fn unknown_key(&self) -> Cause {
        match self.remote.is_some() && self.keys.load().is_empty() {
            true => Cause::TokenKeysUnread,
            false => Cause::TokenKeyUnknown,
        }
    }

    /// The identity of a token with a good signature, and until when it may be believed without another look.
    fn identity(&self, token: &SignedToken<'_>, now: i64) -> Result<(Arc<Identity>, i64), Cause> {
        let claims = token.claims().ok_or(Cause::TokenClaims)?;
        let until = self.config.rules.good_until(token, &claims, now)?;
        let identity = self.config.naming.identity(&claims, &self.wanted).ok_or(Cause::TokenConsumer)?;
        Ok((Arc::new(identity), until))
    }
}

fn read(config: &Config) -> Result<KeySet, Error> {
    match &config.source {
        KeySetSource::Secret(Secret(secret)) => {
            KeySet::of_secret(secret, &config.algorithms).map_err(Error::Secret)
        }
        KeySetSource::File(path) => KeySet::of_text(&text(path)?, &config.algorithms)
            .map_err(|reason| Error::Keys { path: path.clone(), reason }),
        // None yet, because they are fetched later, on the control runtime.
        KeySetSource::Url(_) => Ok(KeySet::empty()),
    }
}

/// How long a verified token is believed at most, without another look at its signature.
const KEPT_SECONDS_MAX: i64 = 3_600;
