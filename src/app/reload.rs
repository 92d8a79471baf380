//! A reload: a whole new snapshot beside the old one, put into force at once or not at all.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use rustls::server::ProducesTickets;
use tokio::sync::mpsc::Sender;

use super::build::{self, Kept};
use super::certificates::{self, Watch};
use super::credentials;
use super::descriptors;
use super::files::check_certificates;
use super::first_try;
use super::listeners::Listeners;
use crate::auth::jwt::remote::keep_fetching;
use crate::config::{self, Config, Loaded, Shutdown};
use crate::limit::Plan;
use crate::limiter::Limiter;
use crate::metrics::Metrics;
use crate::policy::definition::Policy;
use crate::proxy::overload::Overload;
use crate::proxy::snapshot::Snapshot;
use crate::proxy::worker::Order;
use crate::trust::Trust;
use crate::upstream::resolve::Resolver;
use crate::{admin, clock, global, record, tls};

/// What a reload works on.
pub(super) struct Parts {
    /// The main configuration file.
    pub(super) path: PathBuf,
    /// The configuration in force.
    pub(super) config: Config,
    /// The configuration in force as text, for the admin listener.
    pub(super) effective: Arc<ArcSwap<String>>,
    /// The snapshot in force.
    pub(super) current: Arc<ArcSwap<Snapshot>>,
    /// Told of every quota.
    pub(super) limiter: Arc<Limiter>,
    /// Told of every reload.
    pub(super) metrics: Arc<Metrics>,
    /// What of the snapshot in force the next one keeps.
    pub(super) kept: Kept,
    /// Told what memory may be used.
    pub(super) overload: Arc<Overload>,
    /// How each worker is reached.
    pub(super) orders: Vec<Sender<Order>>,
}

/// A snapshot, what of it the next one keeps, and its configuration as text.
type Built = (Snapshot, Kept, String);

/// Puts configurations into force.
pub(super) struct Reloader {
    parts: Parts,
    fixed: Fixed,
    generation: u64,
    salt: [u8; 16],
    listeners: Listeners,
    tickets: Arc<dyn ProducesTickets>,
    watch: Watch,
    credentials: credentials::Watch,
    trust: credentials::Watch,
}

impl Reloader {
    pub(super) fn new(parts: Parts, salt: [u8; 16]) -> Result<Reloader, tls::Error> {
        let tickets = tls::tickets()?;
        let listeners = Listeners::default();
        let fixed = Fixed::of(&parts.config);
        let credentials = credentials::Watch::of_methods(&parts.kept.auth);
        let trust = credentials::Watch::of_upstreams(parts.kept.upstreams.values());
        Ok(Reloader {
            parts,
            fixed,
            generation: 0,
            salt,
            listeners,
            tickets,
            watch: Watch::default(),
            credentials,
            trust,
        })
    }

    /// Opens the listeners of the first configuration.
    pub(super) async fn open_listeners(&mut self) -> anyhow::Result<()> {
        let parts = &self.parts;
        let prepared = self.listeners.prepare(&parts.config.listeners, parts.orders.len(), &self.tickets)?;
        self.listeners.apply(prepared, &parts.metrics, &parts.orders).await;
        self.certificates_in_force();
        Ok(())
    }

    /// A URL that a first curl may ask for; `None` where nothing is served in the clear.
    pub(super) fn url_to_try(&self) -> Option<String> {
        let config = &self.parts.config;
        let plain = config.listeners.iter().find(|listener| listener.certs.is_empty() && listener.http1)?;
        let addr = self.listeners.address(&plain.name)?;
        Some(format!("http://{}{}", first_try::reachable(addr), first_try::path(&config.routes)))
    }

    /// How it stops.
    pub(super) fn shutdown(&self) -> Shutdown {
        self.parts.config.shutdown.clone()
    }

    /// Reads the file again and puts it into force; a bad one leaves the old one serving, is logged and counted.
    pub(super) async fn reload(&mut self, log: &record::Log) {
        if let Err(error) = log.reopen() {
            tracing::error!(%error, "the access log cannot be reopened");
        }
        match self.replace(log).await {
            Ok(()) => {
                self.parts.metrics.reload_succeeded(self.generation, clock::unix().as_secs());
                tracing::info!(generation = self.generation, "reloaded");
            }
            Err(error) => {
                self.parts.metrics.reload_failed();
                tracing::error!("not reloaded, the old configuration goes on: {}", super::said(&error));
            }
        }
    }

    async fn replace(&mut self, log: &record::Log) -> anyhow::Result<()> {
        let path = self.parts.path.clone();
        // Reading files may block; the signals and the admin listener go on meanwhile.
        let loaded =
            tokio::task::spawn_blocking(move || config::load(&path).and_then(check_certificates)).await?;
        let loaded = loaded.map_err(|errors| anyhow::anyhow!("{errors}"))?;
        if !loaded.report.is_empty() {
            tracing::warn!("{}", loaded.report);
        }
        let generation = self.generation + 1;
        let (config, built) = self.build(loaded, generation).await?;
        let (snapshot, kept, effective) = built?;
        let parts = &mut self.parts;
        let prepared = self.listeners.prepare(&config.listeners, parts.orders.len(), &self.tickets)?;
        if config.access_log.to != parts.config.access_log.to {
            log.switch(&config.access_log.to)?;
        }
        // From here on nothing can fail.
        self.fixed.warn_of_changes(&config);
        if parts.limiter.fleet().is_some() {
            warn_of_beginnings(&parts.config, &config);
        }
        parts.kept = kept;
        parts.current.store(Arc::new(snapshot));
        parts.effective.store(Arc::new(effective));
        descriptors::keep(&config, crate::descriptors::hard_limit());
        parts.overload.configure(config.overload.clone());
        parts.config = config;
        self.generation = generation;
        self.listeners.apply(prepared, &self.parts.metrics, &self.parts.orders).await;
        self.certificates_in_force();
        self.credentials = credentials::Watch::of_methods(&self.parts.kept.auth);
        self.trust = credentials::Watch::of_upstreams(self.parts.kept.upstreams.values());
        self.resolve_upstreams().await;
        self.fetch_keys().await;
        Ok(())
    }

    /// Builds the snapshot of a configuration, and its text, where it holds up nothing else: of many routes it takes a
    /// while.
    async fn build(
        &self,
        loaded: Loaded,
        generation: u64,
    ) -> anyhow::Result<(Config, anyhow::Result<Built>)> {
        let Loaded { config, table, .. } = loaded;
        let parts = &self.parts;
        let (limiter, metrics) = (Arc::clone(&parts.limiter), Arc::clone(&parts.metrics));
        let (before, salt) = (parts.kept.clone(), self.salt);
        let building = tokio::task::spawn_blocking(move || {
            let table = table.salted(&salt);
            let built = build::snapshot(&config, table, generation, &limiter, &metrics, &before);
            let built = built.map(|(snapshot, kept)| (snapshot, kept, config.effective()));
            (config, built)
        });
        Ok(building.await?)
    }

    /// Resolves upstreams' names: waits a moment for the first answers, then goes on in the background.
    pub(super) async fn resolve_upstreams(&self) {
        let new = self.parts.kept.upstreams.values().filter(|upstream| upstream.begin_resolving());
        let first: Vec<_> = new
            .map(|upstream| {
                let mut resolver = Resolver::new(upstream);
                tokio::spawn(async move {
                    resolver.resolve().await;
                    tokio::spawn(resolver.keep_resolving());
                })
            })
            .collect();
        let all = async {
            for resolving in first {
                let _ = resolving.await;
            }
        };
        let _ = tokio::time::timeout(FIRST_ANSWERS, all).await;
    }

    /// Begins to fetch the keys of tokens that issuers publish: waits a moment for the first answers, then goes on in
    /// the background.
    pub(super) async fn fetch_keys(&self) {
        let begun: Vec<_> =
            self.parts.kept.auth.iter().filter_map(|it| Some((it, it.begin_fetching()?))).collect();
        if begun.is_empty() {
            return;
        }
        let tls = |trust: &Trust| tls::client_config(false, trust).map_err(|error| error.to_string());
        let mut rounds = Vec::with_capacity(begun.len());
        for (method, round) in begun {
            tokio::spawn(keep_fetching(Arc::downgrade(method), tls));
            rounds.push(round);
        }
        let all = async {
            for round in &mut rounds {
                let _ = round.changed().await;
            }
        };
        let _ = tokio::time::timeout(FIRST_KEYS, all).await;
    }

    /// Reads files anew that have changed.
    pub(super) async fn watch_files(&mut self) {
        self.watch_certificates();
        self.watch_trust();
        self.watch_credentials().await;
    }

    /// Renews the certificates whose files have changed; a broken pair keeps the old one and says so.
    fn watch_certificates(&mut self) {
        let listeners = &self.parts.config.listeners;
        let changed = self.watch.changed(listeners);
        if changed.is_empty() {
            return;
        }
        for listener in changed {
            match certificates::read(listener, &self.tickets) {
                Ok(tls) => {
                    self.listeners.renew(&listener.name, tls);
                    tracing::info!(listener = %listener.name, "certificates renewed");
                }
                Err(error) => {
                    self.parts.metrics.reload_failed();
                    tracing::error!(listener = %listener.name, %error, "certificates not renewed, the old ones go on");
                }
            }
        }
        self.parts.metrics.set_certificates(self.listeners.expiries());
    }

    /// Reads authorities and certificates of upstreams again whose files have changed; a broken one keeps what was
    /// there and says so. Connections that are open stay.
    fn watch_trust(&mut self) {
        let upstreams = &self.parts.kept.upstreams;
        let changed = self.trust.changed(credentials::Watch::of_upstreams(upstreams.values()));
        for upstream in upstreams.values().filter(|upstream| changed.contains(&upstream.id)) {
            match build::client_config(&upstream.config) {
                Ok(tls) => {
                    upstream.renew_tls(tls);
                    tracing::info!(upstream = %upstream.config.name, "certificates renewed");
                }
                Err(error) => {
                    self.parts.metrics.reload_failed();
                    let why = super::said(&error);
                    tracing::error!("certificates not renewed, the old ones go on: {why}");
                }
            }
        }
    }

    /// Reads files of keys and users that have changed; a broken one keeps what was known and says so.
    async fn watch_credentials(&mut self) {
        let ways = &self.parts.kept.auth;
        let changed = self.credentials.changed(credentials::Watch::of_methods(ways));
        let changed: Vec<_> = ways.iter().filter(|method| changed.contains(&method.id)).cloned().collect();
        for method in changed {
            let name = &method.config.name;
            let changed = Arc::clone(&method);
            // There may be hundreds of megabytes of them.
            let reread = tokio::task::spawn_blocking(move || changed.reread().map_err(anyhow::Error::from));
            match reread.await.map_err(anyhow::Error::from).and_then(|reread| reread) {
                Ok(()) => tracing::info!(auth = %name, "credentials read again"),
                Err(error) => {
                    self.parts.metrics.reload_failed();
                    tracing::error!(auth = %name, %error, "credentials not read again, the old ones go on");
                }
            }
        }
    }

    fn certificates_in_force(&mut self) {
        self.watch = Watch::new(&self.parts.config.listeners);
        self.parts.metrics.set_certificates(self.listeners.expiries());
    }
}

/// Names the policies whose count in Redis begins anew because they count otherwise than before.
fn warn_of_beginnings(before: &Config, after: &Config) {
    let marks = |policy: &Policy| -> Vec<u8> {
        let plans = policy.windows.iter().map(|quota| {
            let sharing = policy.sharing(quota);
            Plan { policy: policy.name.as_str().into(), quota: *quota, sharing }
        });
        plans.map(|plan| plan.mark()).collect()
    };
    let before: HashMap<&str, &Policy> =
        before.policies.iter().map(|policy| (policy.name.as_str(), policy)).collect();
    for policy in &after.policies {
        let Some(old) = before.get(policy.name.as_str()) else { continue };
        if marks(policy).iter().zip(marks(old)).any(|(mark, old)| *mark != old) {
            tracing::warn!(policy = %policy.name, "counts otherwise than before, so its count in Redis begins anew");
        }
    }
}

/// Settings that are fixed at start.
struct Fixed {
    workers: Option<usize>,
    limits_memory: usize,
    redis: Option<global::Config>,
    admin: Option<admin::Config>,
    log_level: String,
}

impl Fixed {
    fn of(config: &Config) -> Fixed {
        Fixed {
            workers: config.workers,
            limits_memory: config.limits_memory,
            redis: config.redis.clone(),
            admin: config.admin.clone(),
            log_level: config.log_level.clone(),
        }
    }

    /// Names those that a reload would have otherwise than they are in force.
    fn warn_of_changes(&self, config: &Config) {
        let fixed = [
            ("workers", self.workers != config.workers),
            ("limits.memory", self.limits_memory != config.limits_memory),
            ("redis", self.redis != config.redis),
            ("admin", self.admin != config.admin),
            ("log.level", self.log_level != config.log_level),
        ];
        for (setting, _) in fixed.iter().filter(|(_, changed)| *changed) {
            tracing::warn!(setting, "changed, but takes effect only after a restart");
        }
    }
}

/// How long start-up and reload wait for names to resolve before they go on without.
const FIRST_ANSWERS: Duration = Duration::from_millis(500);

/// How long start-up and reload wait for keys of issuers before they go on without.
const FIRST_KEYS: Duration = Duration::from_secs(2);
