//! Who is calling: the ways a request can prove it, each tried in the order a route names them.
//!
//! A way answers for itself alone: it finds nothing of its kind in a request, or recognises the caller, or finds a
//! credential that proves nothing. It deliberately knows no routes, no statuses and no limits; which of several ways
//! decides, and what a refusal looks like, is the proxy's.

pub mod basic;
pub mod cache;
pub mod entries;
pub mod jwt;
pub mod keys;
pub mod mtls;
pub mod place;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use http::{HeaderMap, HeaderValue};
use tokio::sync::watch;

use crate::cause::Cause;
use crate::identity::Identity;
use cache::Cache;
use place::Place;

/// One `[auth.<name>]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Its name; also the realm of its challenge.
    pub name: String,
    /// How it recognises a caller.
    pub kind: Kind,
    /// Whether the upstream sees the credential.
    pub pass: bool,
}

impl Config {
    /// Query parameters in which it looks for a credential.
    pub fn parameters(&self) -> impl Iterator<Item = &str> {
        self.places().iter().filter_map(|place| match place {
            Place::Query(name) => Some(name.as_str()),
            Place::Header(_) | Place::Bearer => None,
        })
    }

    /// Puts `mask` in the place of every secret.
    pub fn hide_secrets(&mut self, mask: &str) {
        if let Kind::Jwt(config) = &mut self.kind
            && let jwt::Source::Secret(secret) = &mut config.source
        {
            // As long as the longest hash asks for, so that what is shown can be read again.
            secret.0 = mask.repeat(SECRET_BYTES_MAX.div_ceil(mask.len().max(1)));
        }
    }

    /// The scheme it looks for in `Authorization`, where that is one of its places.
    pub fn scheme(&self) -> &'static str {
        match &self.kind {
            Kind::Basic(_) => "basic",
            Kind::Anonymous(_) | Kind::ApiKey(_) | Kind::Jwt(_) | Kind::Mtls(_) => "bearer",
        }
    }

    /// Where a request carries what it looks at.
    pub fn places(&self) -> &[Place] {
        match &self.kind {
            Kind::ApiKey(config) => &config.places,
            Kind::Jwt(config) => &config.places,
            // The scheme is another, the field the same.
            Kind::Basic(_) => &[Place::Bearer],
            Kind::Anonymous(_) | Kind::Mtls(_) => &[],
        }
    }
}

/// How a caller is recognised.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// By nothing: whoever shows no credential of the ways before it.
    Anonymous(Anybody),
    /// By a key.
    ApiKey(keys::Config),
    /// By a token its issuer has signed.
    Jwt(Box<jwt::Config>),
    /// By the certificate of its connection.
    Mtls(mtls::Config),
    /// By a name and a password.
    Basic(basic::Config),
}

/// What is said of callers who show nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Anybody {
    /// Their name.
    pub consumer: Option<String>,
    /// Their organisation.
    pub tenant: Option<String>,
    /// Their plan.
    pub tier: Option<String>,
}

/// Why a way cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Its file.
    #[error(transparent)]
    File(#[from] entries::Error),
    /// The keys of its tokens.
    #[error(transparent)]
    Jwt(#[from] jwt::Error),
}

/// What of a request a way looks at.
#[derive(Clone, Copy, Debug)]
pub struct Asked<'r> {
    /// Its fields.
    pub headers: &'r HeaderMap,
    /// Its query, without `?`.
    pub query: Option<&'r str>,
    /// The certificate of its connection.
    pub certificate: Option<&'r mtls::Certificate>,
    /// When it came, since the Unix epoch.
    pub now: Duration,
}

impl Asked<'_> {
    fn unix_seconds(&self) -> i64 {
        i64::try_from(self.now.as_secs()).unwrap_or(i64::MAX)
    }
}

/// What a way says of a request.
#[derive(Debug)]
pub enum Checked {
    /// It carries nothing of this kind.
    Absent,
    /// This is who calls.
    Known(Arc<Identity>),
    /// What it carries proves nothing; why is for the operator, never for the caller.
    Refused(Cause),
    /// So many are being looked at that this one was not.
    Busy,
    /// That cannot be said at once; see [`Method::settle`].
    Wait(Wait),
}

/// What has to happen before more can be said.
#[derive(Debug)]
pub enum Wait {
    /// A token's signature is to be checked: [`Method::verify`] does, here and now.
    Token,
    /// Keys are being fetched; this tells when that is over.
    Keys(watch::Receiver<u64>),
    /// A password is to be looked at.
    Password(basic::Attempt),
}

/// One way to authenticate, ready for requests; shared by all workers, kept over reloads while its configuration stays.
#[derive(Debug)]
pub struct Method {
    /// Unique in the process.
    pub id: u64,
    /// What it was made from.
    pub config: Config,
    /// How a refused caller is asked for it (RFC 9110 section 11.6.1). `None`: there is nothing to ask for.
    pub challenge: Option<HeaderValue>,
    /// Claims that are asked for; a caller's others are not kept.
    wanted: Box<[Box<str>]>,
    way: Way,
}

#[derive(Debug)]
enum Way {
    Anonymous(Arc<Identity>),
    ApiKey(keys::Keys),
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
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let way = match &config.kind {
            Kind::Anonymous(anybody) => Way::Anonymous(Arc::new(anybody.identity())),
            Kind::ApiKey(config) => Way::ApiKey(keys::Keys::read(config)?),
            Kind::Jwt(config) => Way::Jwt(Box::new(jwt::Verifier::new(config, wanted)?)),
            Kind::Mtls(config) => Way::Mtls(config.clone()),
            Kind::Basic(config) => Way::Basic(basic::Users::read(config)?),
        };
        let challenge = challenge(&config);
        let id = COUNT.fetch_add(1, Ordering::Relaxed);
        Ok(Method { id, config, challenge, wanted: wanted.into(), way })
    }

    /// Whether it was made from this.
    pub fn is_of(&self, config: &Config, wanted: &[Box<str>]) -> bool {
        self.config == *config && *self.wanted == *wanted
    }

    /// Takes over keys that the one before it has fetched from the same place, so that a reload forgets none.
    pub fn inherit(&self, before: &Method) {
        if let (Way::Jwt(own), Way::Jwt(before)) = (&self.way, &before.way) {
            own.inherit(before);
        }
    }

    /// The files it was made from.
    pub fn files(&self) -> Vec<&Path> {
        match (&self.config.kind, &self.way) {
            (Kind::ApiKey(config), _) => vec![&config.file],
            (Kind::Basic(config), _) => vec![&config.file],
            (_, Way::Jwt(verifier)) => verifier.file().into_iter().collect(),
            (_, Way::Anonymous(_) | Way::ApiKey(_) | Way::Mtls(_) | Way::Basic(_)) => Vec::new(),
        }
    }

    /// Reads its files again; what it knew stays where one is broken.
    ///
    /// # Errors
    /// Where a file cannot be used.
    pub fn reread(&self) -> Result<(), Error> {
        if !self.files().is_empty() {
            self.adopt(Method::new(self.config.clone(), &self.wanted)?);
        }
        Ok(())
    }

    /// Goes on with what `fresh`, made from the same configuration, has read from the files. What is not in files stays:
    /// what was verified lately, keys that were fetched.
    pub fn adopt(&self, fresh: Method) {
        match (&self.way, fresh.way) {
            (Way::ApiKey(keys), Way::ApiKey(fresh)) => keys.adopt(fresh),
            (Way::Jwt(verifier), Way::Jwt(fresh)) => verifier.adopt(*fresh),
            (Way::Basic(users), Way::Basic(fresh)) => users.adopt(fresh),
            (Way::Anonymous(_) | Way::Mtls(_) | Way::ApiKey(_) | Way::Jwt(_) | Way::Basic(_), _) => {}
        }
    }

    /// What it says of a request, with a token's signature checked at once: up to a tenth of a millisecond of this
    /// thread.
    pub fn verify(&self, asked: &Asked<'_>, cache: &Cache) -> Checked {
        match &self.way {
            Way::Jwt(verifier) => verifier.verify(asked, cache),
            Way::ApiKey(_) | Way::Mtls(_) | Way::Basic(_) | Way::Anonymous(_) => self.check(asked, cache),
        }
    }

    /// What it says of a request, by a look-up.
    pub fn check(&self, asked: &Asked<'_>, cache: &Cache) -> Checked {
        match &self.way {
            Way::ApiKey(keys) => keys.check(asked),
            Way::Jwt(verifier) => verifier.check(asked, cache),
            Way::Mtls(config) => mtls::check(config, self.id, asked),
            Way::Basic(users) => users.check(asked, cache),
            Way::Anonymous(identity) => Checked::Known(Arc::clone(identity)),
        }
    }

    /// What it says in the end. How long that takes is bounded.
    pub async fn settle(&self, wait: Wait, asked: &Asked<'_>, cache: &Cache) -> Checked {
        match (wait, &self.way) {
            (Wait::Keys(mut rounds), _) => {
                let _ = tokio::time::timeout(KEYS_WAIT, rounds.changed()).await;
            }
            (Wait::Password(attempt), Way::Basic(users)) => return users.settle(attempt, asked, cache).await,
            // Only passwords are waited for so.
            (Wait::Password(_), _) => return Checked::Refused(Cause::CredentialMalformed),
            (Wait::Token, _) => {}
        }
        match self.verify(asked, cache) {
            // The keys that were fetched have not the one it names.
            Checked::Wait(_) => Checked::Refused(Cause::TokenKeyUnknown),
            settled => settled,
        }
    }

    /// Whether it fetches keys, and this is the first call: whoever is told so runs [`jwt::remote::keep_fetching`].
    /// What comes back tells when the first fetch is over.
    pub fn begin_fetching(&self) -> Option<watch::Receiver<u64>> {
        let (_, remote) = self.remote()?;
        remote.begin().then(|| remote.first_round())
    }

    fn remote(&self) -> Option<(&jwt::Verifier, &jwt::remote::Remote)> {
        let Way::Jwt(verifier) = &self.way else { return None };
        Some((verifier, verifier.remote.as_ref()?))
    }
}

impl Anybody {
    fn identity(&self) -> Identity {
        let text = |text: &Option<String>| text.as_deref().map(Into::into);
        Identity {
            consumer: text(&self.consumer),
            tenant: text(&self.tenant),
            tier: text(&self.tier),
            ..Identity::default()
        }
    }
}

/// One challenge a way. A name needs no escapes between quotation marks.
fn challenge(config: &Config) -> Option<HeaderValue> {
    let realm = &config.name;
    let text = match &config.kind {
        Kind::Anonymous(_) => return None,
        Kind::Basic(_) => format!("Basic realm=\"{realm}\", charset=\"UTF-8\""),
        _ if config.places().contains(&Place::Bearer) => format!("Bearer realm=\"{realm}\""),
        // No scheme is registered for certificates: whoever has one shows it in the handshake.
        Kind::Mtls(_) => format!("ClientCertificate realm=\"{realm}\""),
        // Nor for credentials in a header or a query.
        Kind::ApiKey(_) | Kind::Jwt(_) => {
            let scheme = if matches!(config.kind, Kind::Jwt(_)) { "Token" } else { "ApiKey" };
            let place = config.places().first().map(ToString::to_string).unwrap_or_default();
            format!("{scheme} realm=\"{realm}\", in=\"{place}\"")
        }
    };
    HeaderValue::from_str(&text).ok()
}

/// How long a request waits for keys that are being fetched.
pub const KEYS_WAIT: Duration = Duration::from_secs(1);

/// What HS512 asks of a secret (RFC 7518 section 3.2).
const SECRET_BYTES_MAX: usize = 64;
