//! Keys that an issuer publishes. They are fetched on the control runtime, ahead of need, and again when a token names an
//! unknown key. Requests never fetch; at most they wait, not long, for a fetch that runs.
//!
//! However many tokens name unknown keys, there is one fetch at a time and a pause after each, so that clients cannot flood
//! the issuer. While the issuer cannot be reached, the old keys stay in use.

use std::collections::HashSet;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, HOST};
use http::{Request, StatusCode};
use http_body_util::{BodyExt, Empty, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::{Notify, watch};
use tokio::time::{sleep, timeout};

use crate::trust::Trust;

/// Where keys are published and how often they are asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Over TLS.
    pub tls: bool,
    /// Host name, or an address without brackets.
    pub host: String,
    /// Port.
    pub port: u16,
    /// Path and query.
    pub target: String,
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
    /// Host and port as a `Host` field has them.
    fn authority(&self) -> String {
        let host = if self.host.contains(':') { format!("[{}]", self.host) } else { self.host.clone() };
        match (self.tls, self.port) {
            (true, 443) | (false, 80) => host,
            (_, port) => format!("{host}:{port}"),
        }
    }

    /// As the configuration writes it.
    pub fn url(&self) -> String {
        let scheme = if self.tls { "https" } else { "http" };
        format!("{scheme}://{}{}", self.authority(), self.target)
    }
}

/// Why keys were not fetched.
#[derive(Debug, thiserror::Error)]
enum Error {
    /// What the issuer is checked by cannot be read.
    #[error("{0}")]
    Trust(String),
    /// The issuer cannot be reached, or breaks off.
    #[error(transparent)]
    Io(#[from] std::io::Error),
    /// It does not speak HTTP.
    #[error(transparent)]
    Http(#[from] hyper::Error),
    /// It does not take so long.
    #[error("no answer in time")]
    Timeout,
    /// It answers something else.
    #[error("answered {0}")]
    Status(StatusCode),
    /// Its answer is too long, or breaks off.
    #[error("the answer is too long or incomplete")]
    Body,
    /// Its answer is no key set.
    #[error("{0}")]
    Keys(String),
}

/// One issuer's keys, as workers ask for them.
#[derive(Debug)]
pub(in crate::auth) struct Remote {
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
pub(in crate::auth) struct Schedule {
    /// The last fetch failed.
    has_failed: bool,
    /// A token with an unknown key asked for the next fetch; it is not the one that comes anyway.
    is_wanted: bool,
}

/// A fetch has just been; asking does not help.
const RESTING: u8 = 0;
/// The next one to ask starts a fetch.
const READY: u8 = 1;
/// A fetch runs.
const FETCHING: u8 = 2;

impl Remote {
    pub(super) fn new(config: Config) -> Remote {
        Remote {
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
    pub(in crate::auth) fn begin(&self) -> bool {
        !self.begun.swap(true, Ordering::AcqRel)
    }

    /// Told when the first fetch is over.
    pub(in crate::auth) fn first_round(&self) -> watch::Receiver<u64> {
        self.rounds.subscribe()
    }

    /// Fetches once, takes the keys, and rests until it is time for the next fetch. `take` says whether the keys are others
    /// than before.
    pub(in crate::auth) async fn fetch_next<T: Connect>(
        &self,
        name: &str,
        tls: &T,
        take: impl FnOnce(&str) -> Result<bool, String>,
        schedule: &mut Schedule,
    ) {
        self.phase.store(FETCHING, Ordering::Release);
        let fetched = self.fetch(tls).await.and_then(|text| take(&text).map_err(Error::Keys));
        match &fetched {
            Ok(changed) => {
                tracing::debug!(auth = %name, "keys fetched");
                if schedule.has_failed {
                    tracing::info!(auth = %name, "keys can be fetched again");
                }
                // A name that a fetch did not bring is not asked for again before the next scheduled fetch.
                if *changed || !schedule.is_wanted {
                    self.unknown.lock().unwrap_or_else(PoisonError::into_inner).clear();
                }
            }
            Err(error) => {
                let url = self.config.url();
                tracing::error!(auth = %name, %url, %error, "keys not fetched, those there are go on");
            }
        }
        schedule.has_failed = fetched.is_err();
        self.phase.store(RESTING, Ordering::Release);
        self.rounds.send_modify(|rounds| *rounds += 1);
        let Config { every, rest, .. } = self.config;
        sleep(rest).await;
        self.phase.store(READY, Ordering::Release);
        // While the issuer is down, it is asked again after each rest.
        if !schedule.has_failed {
            schedule.is_wanted = tokio::select! {
                () = self.wanted.notified() => true,
                () = sleep(every.saturating_sub(rest)) => false,
            };
        }
    }

    async fn fetch<T: Connect>(&self, tls: &T) -> Result<String, Error> {
        let fetched = async {
            let tcp = TcpStream::connect((self.config.host.as_str(), self.config.port)).await?;
            if !self.config.tls {
                return self.talk(tcp).await;
            }
            let name = self.config.trust.name(&self.config.host).to_owned();
            let name = ServerName::try_from(name).map_err(std::io::Error::other)?;
            let (tls, trust) = (tls.clone(), self.config.trust.clone());
            // Files are read: authorities may change, and fetches are rare.
            let config =
                tokio::task::spawn_blocking(move || tls(&trust)).await.map_err(std::io::Error::other)?;
            let connector = tokio_rustls::TlsConnector::from(Arc::new(config.map_err(Error::Trust)?));
            let stream = connector.connect(name, tcp).await?;
            self.talk(stream).await
        };
        timeout(self.config.timeout, fetched).await.map_err(|_| Error::Timeout)?
    }

    /// One request and its answer. Redirects are not followed: where keys are is the operator's word.
    async fn talk(
        &self,
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    ) -> Result<String, Error> {
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
        let driver = tokio::spawn(connection);
        let request = Request::get(self.config.target.as_str())
            .header(HOST, self.config.authority())
            .header(ACCEPT, "application/jwk-set+json, application/json")
            .body(Empty::<Bytes>::new())
            .map_err(std::io::Error::other)?;
        let answered = async {
            let answer = sender.send_request(request).await?;
            if answer.status() != StatusCode::OK {
                return Err(Error::Status(answer.status()));
            }
            let body = Limited::new(answer.into_body(), ANSWER_BYTES_MAX);
            let bytes = body.collect().await.map_err(|_| Error::Body)?.to_bytes();
            String::from_utf8(bytes.to_vec()).map_err(|_| Error::Body)
        };
        let answer = answered.await;
        driver.abort();
        answer
    }
}

/// Makes what a connection over TLS is made with, or says why it cannot.
pub trait Connect: Fn(&Trust) -> Result<ClientConfig, String> + Clone + Send + 'static {}
impl<F: Fn(&Trust) -> Result<ClientConfig, String> + Clone + Send + 'static> Connect for F {}

/// Longest key set.
const ANSWER_BYTES_MAX: usize = 1024 * 1024;

/// Unknown names kept; more are asked for without being remembered.
const UNKNOWN_MAX: usize = 1_024;
