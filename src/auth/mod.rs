//! Who is calling: the ways a request can prove it, each tried in the order a route names them.
//!
//! A way answers for itself alone: it finds nothing of its kind in a request, or recognises the caller, or finds a
//! credential that proves nothing. It deliberately knows no routes, no statuses and no limits; which of several ways
//! decides, and what a refusal looks like, is the proxy's.

pub mod entries;
pub mod keys;
pub mod place;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use http::{HeaderMap, HeaderValue};

use crate::identity::Identity;
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

    /// Where a request carries what it looks at.
    pub fn places(&self) -> &[Place] {
        match &self.kind {
            Kind::ApiKey(config) => &config.places,
            Kind::Anonymous(_) => &[],
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
}

/// What of a request a way looks at.
#[derive(Clone, Copy, Debug)]
pub struct Asked<'r> {
    /// Its fields.
    pub headers: &'r HeaderMap,
    /// Its query, without `?`.
    pub query: Option<&'r str>,
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
    /// What it carries proves nothing.
    Refused,
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
    way: Way,
}

#[derive(Debug)]
enum Way {
    Anonymous(Arc<Identity>),
    ApiKey(keys::Keys),
}

impl Method {
    /// Makes one, reading its files.
    ///
    /// # Errors
    /// Where a file cannot be used.
    pub fn new(config: Config) -> Result<Method, Error> {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let way = match &config.kind {
            Kind::Anonymous(anybody) => Way::Anonymous(Arc::new(anybody.identity())),
            Kind::ApiKey(config) => Way::ApiKey(keys::Keys::read(config)?),
        };
        let challenge = challenge(&config);
        Ok(Method { id: COUNT.fetch_add(1, Ordering::Relaxed), config, challenge, way })
    }

    /// The files it was made from.
    pub fn files(&self) -> Vec<&Path> {
        match &self.config.kind {
            Kind::Anonymous(_) => Vec::new(),
            Kind::ApiKey(config) => vec![&config.file],
        }
    }

    /// Reads its files again; what it knew stays where one is broken.
    ///
    /// # Errors
    /// Where a file cannot be used.
    pub fn reread(&self) -> Result<(), Error> {
        match &self.way {
            Way::ApiKey(keys) => Ok(keys.reread()?),
            Way::Anonymous(_) => Ok(()),
        }
    }

    /// What it says of a request.
    pub fn check(&self, asked: &Asked<'_>) -> Checked {
        match &self.way {
            Way::ApiKey(keys) => keys.check(asked),
            Way::Anonymous(identity) => Checked::Known(Arc::clone(identity)),
        }
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
        Kind::ApiKey(keys) if keys.places.contains(&Place::Bearer) => format!("Bearer realm=\"{realm}\""),
        // No scheme is registered for keys in a header or a query.
        Kind::ApiKey(keys) => {
            let place = keys.places.first().map(ToString::to_string).unwrap_or_default();
            format!("ApiKey realm=\"{realm}\", in=\"{place}\"")
        }
    };
    HeaderValue::from_str(&text).ok()
}
