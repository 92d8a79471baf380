//! One authentication method with its files read. It dispatches to the kinds and contains none of their rules.

use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use http::HeaderValue;
use tokio::sync::watch;

use super::cache::Cache;
use super::config::{Config, MethodKind, challenge};
use super::issued_keys::IssuedKeys;
use super::jwt::remote::{RemoteKeys, Schedule};
use super::request::{AuthRequest, MethodAnswer, PendingCheck};
use super::{basic, entries, jwt, keys, mtls};
use base::cause::Cause;
use base::identity::Identity;
use net::fetch::Connect;

/// Why a method cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    File(#[from] entries::Error),
    /// The keys of its tokens.
    #[error(transparent)]
    Jwt(#[from] jwt::Error),
}

impl Error {
    /// What to do about it: how a file that is not there is made.
    pub fn hint(&self, kind: &MethodKind) -> String {
        match self {
            Error::File(entries::Error::Unreadable { source, .. })
                if source.kind() == io::ErrorKind::NotFound =>
            {
                kind.hint_to_fill()
            }
            Error::File(entries::Error::Foreign { .. }) => kind.hint_to_make(),
            Error::File(_) | Error::Jwt(_) => String::new(),
        }
    }
}

/// One method, ready for requests. All workers share it, and it is kept over reloads while its configuration stays.
#[derive(Debug)]
pub struct Method {
    /// Unique in the process.
    pub id: u64,
    pub config: Config,
    /// How a refused client is asked for it (RFC 9110 section 11.6.1). `None`: there is nothing to ask for.
    pub challenge: Option<HeaderValue>,
    /// Claims that policies, templates or routes use; others are not kept.
    wanted: Box<[Box<str>]>,
    /// API keys that change while traffic runs; the same for all methods of a process.
    issued: Arc<IssuedKeys>,
    loaded: LoadedMethod,
}

#[derive(Debug)]
enum LoadedMethod {
    Anonymous(Arc<Identity>),
    ApiKey(keys::ApiKeySet),
    Jwt(Box<jwt::Verifier>),
    Mtls(mtls::Config),
    Basic(basic::Users),
}

impl Method {
    /// Makes one, reading its files; `wanted` are the claims that anything will ask for.
    ///
    /// # Errors
    /// Where a file cannot be used.
    pub fn new(config: Config, wanted: &[Box<str>]) -> Result<Method, Error> {
        Method::with_issued(config, wanted, &Arc::default())
    }

    /// The same beside API keys that change while traffic runs.
    ///
    /// # Errors
    /// As [`Method::new`].
    pub fn with_issued(
        config: Config,
        wanted: &[Box<str>],
        issued: &Arc<IssuedKeys>,
    ) -> Result<Method, Error> {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let loaded = match &config.kind {
            MethodKind::Anonymous(anybody) => LoadedMethod::Anonymous(Arc::new(anybody.identity())),
            MethodKind::ApiKey(config) => LoadedMethod::ApiKey(keys::ApiKeySet::read(config, issued)?),
            MethodKind::Jwt(config) => LoadedMethod::Jwt(Box::new(jwt::Verifier::new(config, wanted)?)),
            MethodKind::Mtls(config) => LoadedMethod::Mtls(config.clone()),
            MethodKind::Basic(config) => LoadedMethod::Basic(basic::Users::read(config)?),
        };
        let challenge = challenge(&config);
        let id = COUNT.fetch_add(1, Ordering::Relaxed);
        let (wanted, issued) = (wanted.into(), Arc::clone(issued));
        Ok(Method { id, config, challenge, wanted, issued, loaded })
    }

    /// Whether it was made from this.
    pub fn is_of(&self, config: &Config, wanted: &[Box<str>]) -> bool {
        self.config == *config && *self.wanted == *wanted
    }

    /// Takes over keys that an earlier method has fetched from the same URL, so that a reload does not refuse tokens.
    pub fn inherit(&self, before: &Method) {
        if let (LoadedMethod::Jwt(own), LoadedMethod::Jwt(before)) = (&self.loaded, &before.loaded) {
            own.inherit(before);
        }
    }

    /// The files it was made from.
    pub fn files(&self) -> Vec<&Path> {
        match (&self.config.kind, &self.loaded) {
            (MethodKind::ApiKey(config), _) => config.source.file().into_iter().collect(),
            (MethodKind::Basic(config), _) => vec![&config.file],
            (_, LoadedMethod::Jwt(verifier)) => verifier.file().into_iter().collect(),
            (
                _,
                LoadedMethod::Anonymous(_)
                | LoadedMethod::ApiKey(_)
                | LoadedMethod::Mtls(_)
                | LoadedMethod::Basic(_),
            ) => Vec::new(),
        }
    }

    /// What its file of keys or users held when this was made; `None` if it has none.
    pub fn summary(&self) -> Option<&entries::FileSummary> {
        match &self.loaded {
            LoadedMethod::ApiKey(keys) => keys.summary.as_ref(),
            LoadedMethod::Basic(users) => Some(&users.summary),
            LoadedMethod::Anonymous(_) | LoadedMethod::Jwt(_) | LoadedMethod::Mtls(_) => None,
        }
    }

    /// The same method with its files read again, for [`Method::adopt`].
    ///
    /// # Errors
    /// Where a file cannot be used.
    pub fn reread(&self) -> Result<Method, Error> {
        Method::with_issued(self.config.clone(), &self.wanted, &self.issued)
    }

    /// Takes over what `fresh`, made from the same configuration, has read from files. Verified credentials and fetched keys
    /// stay.
    pub fn adopt(&self, fresh: Method) {
        match (&self.loaded, fresh.loaded) {
            (LoadedMethod::ApiKey(keys), LoadedMethod::ApiKey(fresh)) => keys.adopt(fresh),
            (LoadedMethod::Jwt(verifier), LoadedMethod::Jwt(fresh)) => verifier.adopt(*fresh),
            (LoadedMethod::Basic(users), LoadedMethod::Basic(fresh)) => users.adopt(fresh),
            (
                LoadedMethod::Anonymous(_)
                | LoadedMethod::Mtls(_)
                | LoadedMethod::ApiKey(_)
                | LoadedMethod::Jwt(_)
                | LoadedMethod::Basic(_),
                _,
            ) => {}
        }
    }

    /// Answers with a token's signature checked here and now, which takes up to a tenth of a millisecond of this thread.
    pub fn verify(&self, asked: &AuthRequest<'_>, cache: &Cache) -> MethodAnswer {
        match &self.loaded {
            LoadedMethod::Jwt(verifier) => verifier.verify(asked, cache),
            LoadedMethod::ApiKey(_)
            | LoadedMethod::Mtls(_)
            | LoadedMethod::Basic(_)
            | LoadedMethod::Anonymous(_) => self.check(asked, cache),
        }
    }

    /// Answers by a lookup, without waiting.
    pub fn check(&self, asked: &AuthRequest<'_>, cache: &Cache) -> MethodAnswer {
        match &self.loaded {
            LoadedMethod::ApiKey(keys) => keys.check(asked),
            LoadedMethod::Jwt(verifier) => verifier.check(asked, cache),
            LoadedMethod::Mtls(config) => mtls::check(config, self.id, asked),
            LoadedMethod::Basic(users) => users.check(asked, cache),
            LoadedMethod::Anonymous(identity) => MethodAnswer::Known(Arc::clone(identity)),
        }
    }

    /// Waits for what [`Method::check`] has asked to wait for, and answers. How long that takes is bounded.
    pub async fn resolve(&self, wait: PendingCheck, asked: &AuthRequest<'_>, cache: &Cache) -> MethodAnswer {
        match (wait, &self.loaded) {
            (PendingCheck::Keys(mut rounds), _) => {
                // A timeout is no error here, because the token is judged by the keys that there are by then.
                let _ = tokio::time::timeout(KEYS_WAIT, rounds.changed()).await;
            }
            (PendingCheck::Password(attempt), LoadedMethod::Basic(users)) => {
                return users.resolve(attempt, asked, cache).await;
            }
            // No other kind asks for a password.
            (PendingCheck::Password(_), _) => return MethodAnswer::Refused(Cause::CredentialMalformed),
            (PendingCheck::Token, _) => {}
        }
        match self.verify(asked, cache) {
            // The key that the token names is not among those that were fetched.
            MethodAnswer::Wait(_) => MethodAnswer::Refused(match &self.loaded {
                LoadedMethod::Jwt(verifier) => verifier.unknown_key(),
                _ => Cause::TokenKeyUnknown,
            }),
            verified => verified,
        }
    }

    /// Whether it fetches keys, and this is the first call; whoever gets an answer runs [`keep_fetching`].
    /// What comes back tells when the first fetch is over.
    pub fn begin_fetching(&self) -> Option<watch::Receiver<u64>> {
        let (_, remote) = self.remote()?;
        remote.begin().then(|| remote.first_round())
    }

    fn remote(&self) -> Option<(&jwt::Verifier, &RemoteKeys)> {
        let LoadedMethod::Jwt(verifier) = &self.loaded else { return None };
        Some((verifier, verifier.remote.as_ref()?))
    }
}

/// Fetches the keys of a method for as long as it is in force. `connect` is asked anew for each fetch.
pub async fn keep_fetching(method: Weak<Method>, connect: Connect) {
    let mut schedule = Schedule::default();
    loop {
        let Some(method) = method.upgrade() else { return };
        let Some((verifier, remote)) = method.remote() else { return };
        remote.fetch_next(&method.config.name, &connect, |text| verifier.take(text), &mut schedule).await;
    }
}

/// How long a request waits for keys that are being fetched.
const KEYS_WAIT: Duration = Duration::from_secs(1);
