//! Keys that an issuer publishes. They are fetched on the control runtime, ahead of need, and again when a token names an
//! unknown key. Requests never fetch; at most they wait, not long, for a fetch that runs.
//!
//! However many tokens name unknown keys, there is one fetch at a time and a pause after each, so that clients cannot flood
//! the issuer. While the issuer cannot be reached, the old keys stay in use.

use std::collections::HashSet;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use http::header::ACCEPT;
use http::{Request, StatusCode, Uri};
use http_body_util::Full;
use tokio::sync::{Notify, watch};
use tokio::time::sleep;

use base::log_lines::Outage;
use net::fetch::{self, Connect, FetchClient};
use net::trust::Trust;

/// Where keys are published and how often they are asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// The whole URL, over TLS or on this machine.
    pub url: Uri,
    /// How the issuer is checked over TLS, and what it is shown.
    pub trust: Trust,
    /// How often they are fetched anyway.
    pub every: Duration,
    /// The rest after each fetch.
    pub rest: Duration,
    /// How long a fetch may take.
    pub timeout: Duration,
}

impl Config {
    /// Whether it is asked over TLS.
    pub fn is_tls(&self) -> bool {
        self.url.scheme_str() == Some("https")
    }
}

#[derive(Debug, thiserror::Error)]
enum Error {
    #[error(transparent)]
    Fetch(#[from] fetch::Error),
    /// It answers something else.
    #[error("the issuer responded with status {0}")]
    Status(StatusCode),
    /// Its answer is no key set.
    #[error("{0}")]
    Keys(String),
}

/// One issuer's keys, as workers ask for them.
#[derive(Debug)]
pub(crate) struct RemoteKeys {
    config: Config,
    phase: AtomicU8,
    begun: AtomicBool,
    wanted: Notify,
    /// Counts fetches that are over.
    rounds: watch::Sender<u64>,
    /// Names of keys that the last fetch did not bring, hashed.
    unknown: Mutex<HashSet<u64>>,
    hasher: RandomState,
}

/// How the fetches of one issuer go.
#[derive(Debug, Default)]
pub(crate) struct Schedule {
    outage: Outage,
    has_keys: bool,
    /// A token with an unknown key asked for the next fetch; it is not the one that comes anyway.
    is_wanted: bool,
}

/// A fetch has just been; asking does not help.
const RESTING: u8 = 0;
/// The next one to ask starts a fetch.
const READY: u8 = 1;
const FETCHING: u8 = 2;

impl RemoteKeys {
    pub(super) fn new(config: Config) -> RemoteKeys {
        RemoteKeys {
            config,
            phase: AtomicU8::new(FETCHING),
            begun: AtomicBool::new(false),
            wanted: Notify::new(),
            rounds: watch::Sender::new(0),
            unknown: Mutex::default(),
            hasher: RandomState::new(),
        }
    }

    /// Asks for a key that is not here. Where a fetch runs or begins now: what tells that it is over.
    pub(super) fn ask_for(&self, kid: Option<&str>) -> Option<watch::Receiver<u64>> {
        let name = self.hasher.hash_one(kid);
        // Before the phase is read, because otherwise a fetch that ends in between would be waited for in vain.
        let rounds = self.rounds.subscribe();
        let phase = self.phase.load(Ordering::Acquire);
        {
            let mut unknown = self.unknown.lock().unwrap_or_else(PoisonError::into_inner);
            // Asked for before, and the fetch since then did not bring it.
            if phase != FETCHING && unknown.contains(&name) {
                return None;
            }
            if unknown.len() < UNKNOWN_MAX {
                unknown.insert(name);
            }
        }
        self.wanted.notify_one();
        (phase != RESTING).then_some(rounds)
    }

    /// Whether this is the first to ask. The first to ask fetches.
    pub(crate) fn begin(&self) -> bool {
        !self.begun.swap(true, Ordering::AcqRel)
    }

    /// Told when the first fetch is over.
    pub(crate) fn first_round(&self) -> watch::Receiver<u64> {
        self.rounds.subscribe()
    }

    /// Fetches once, takes the keys, and rests until it is time for the next fetch. `take` says whether the keys are others
    /// than before.
    pub(crate) async fn fetch_next(
        &self,
        name: &str,
        connect: &Connect,
        take: impl FnOnce(&str) -> Result<bool, String>,
        schedule: &mut Schedule,
    ) {
        self.phase.store(FETCHING, Ordering::Release);
        let fetched = self.fetch(connect).await.and_then(|text| take(&text).map_err(Error::Keys));
        match &fetched {
            Ok(changed) => {
                tracing::debug!(auth = %name, "JWT keys fetched");
                schedule.has_keys = true;
                if schedule.outage.end() {
                    tracing::info!(auth = %name, "JWT keys can be fetched again");
                }
                // Kept otherwise: a name that a fetch did not bring is not asked for again before the next scheduled
                // one.
                if *changed || !schedule.is_wanted {
                    self.unknown.lock().unwrap_or_else(PoisonError::into_inner).clear();
                }
            }
            Err(error) if schedule.outage.is_news(&error.to_string()) => {
                let url = &self.config.url;
                let meanwhile = match schedule.has_keys {
                    true => "the previous keys stay in use",
                    false => "there are none yet, so every token gets 401",
                };
                tracing::error!(auth = %name, %url, %error, "JWT keys not fetched: {meanwhile}; the gateway tries again");
            }
            Err(_) => {}
        }
        self.phase.store(RESTING, Ordering::Release);
        self.rounds.send_modify(|rounds| *rounds += 1);
        let Config { every, rest, .. } = self.config;
        sleep(rest).await;
        self.phase.store(READY, Ordering::Release);
        // While the issuer is down, it is asked again after each rest.
        if !schedule.outage.goes_on() {
            schedule.is_wanted = tokio::select! {
                () = self.wanted.notified() => true,
                () = sleep(every.saturating_sub(rest)) => false,
            };
        }
    }

    async fn fetch(&self, connect: &Connect) -> Result<String, Error> {
        let request = Request::get(&self.config.url)
            .header(ACCEPT, "application/jwk-set+json, application/json")
            .body(Full::default())
            .map_err(|error| Error::Keys(error.to_string()))?;
        let client = FetchClient::new(connect.clone(), self.config.trust.clone());
        let answer = client.ask(request, self.config.timeout).await?;
        if answer.status() != StatusCode::OK {
            return Err(Error::Status(answer.status()));
        }
        String::from_utf8(answer.into_body().into())
            .map_err(|_| Error::Keys("the response is not UTF-8".to_owned()))
    }
}

/// Unknown names kept: so many at most, because clients choose them. More are asked for without being remembered.
const UNKNOWN_MAX: usize = 1_024;
