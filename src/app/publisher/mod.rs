//! Puts configurations into force. It does not know where one came from: a start, a reload and a test publish alike.
//!
//! A publication has two halves. [`prepare`] does everything that can fail without a socket and changes nothing;
//! [`Publisher::put_in_force`] binds sockets and switches the access log, which can fail too, and then swaps the
//! snapshot. A failure anywhere leaves everything as it was.

mod changes;
mod first_contact;
pub mod prepare;
mod snapshot;
pub(super) mod stamps;
mod watch;

use std::sync::Arc;

use anyhow::Context;
use arc_swap::ArcSwap;
use tokio::sync::mpsc::Sender;

use super::fleet::node_name;
use super::fleet::orders::Orders;
use super::logs::Logs;
use super::read_files::{FileReader, OutdatedFiles};
use super::sockets::descriptors;
use super::sockets::inherited_sockets::{InheritedSockets, UnusedSocket};
use super::sockets::listeners::Listeners;
use super::upgrade::Predecessor;
use base::clock;
use config::{Config, Definition, LoadedConfig, Report};
use gateway::proxy::snapshot::Snapshot;
use gateway::server::worker::WorkerCommand;
use gateway::service::overload::Overload;
use limiter::Limiter;
use metrics::Metrics;
use observe::record::decisions::{DecisionSampling, SampleMemory};
use observe::trace::Exporter;
use upstream::dns::Dns;
use upstream::live::{RememberedAddress, RememberedServer};

pub use changes::Changes;
use prepare::{PreparedConfig, ReusedParts, prepare_after};
use watch::{FileReports, Watch};

/// The parts of the process that a publication changes.
pub(super) struct Process {
    /// Is told every quota, so that it can judge a key whose quota changed.
    pub(super) limiter: Arc<Limiter>,
    /// Is told every name, so that series exist before their first request.
    pub(super) metrics: Arc<Metrics>,
    /// Is told the marks of `[overload]`.
    pub(super) overload: Arc<Overload>,
    /// Are switched when `to` of one changes.
    pub(super) logs: Logs,
    /// Is emptied when `log.decisions` is turned off.
    pub(super) samples: Arc<SampleMemory>,
    /// Is switched when `[trace]` changes.
    pub(super) exporter: Arc<Exporter>,
    pub(super) commands: Vec<Sender<WorkerCommand>>,
    /// What nodes of a fleet leave for each other, if this is one.
    pub(super) fleet_values: Option<Arc<dyn acme::FleetValues>>,
    /// The salt of limiter keys; the same for the life of the process, or every reload would forget all counts.
    pub(super) salt: [u8; 16],
}

/// The configuration in force as text, for the admin listener; follows every publication.
#[derive(Debug, Default)]
pub(super) struct EffectiveText {
    pub(super) text: String,
    pub(super) fingerprint: String,
}

pub(super) struct Publisher {
    pub(super) process: Process,
    pub(super) config: Arc<Config>,
    pub(super) text: Arc<ArcSwap<EffectiveText>>,
    /// The snapshot in force; follows every publication.
    pub(super) current: Arc<ArcSwap<Snapshot>>,
    kept: ReusedParts,
    dns: Arc<Dns>,
    pub(super) listeners: Listeners,
    pub(super) orders: Orders,
    watch: Watch,
    /// The parts whose files were refused when they were last read.
    pub(super) stale: OutdatedFiles,
    /// The configuration of the start, of which some settings stay in force; without its parts.
    first: Arc<Config>,
    /// What was found in the files and rows in force, which is told once a load.
    pub(super) told: Report,
    /// How many configurations have been put into force: the number of the one in force.
    pub(super) published: u64,
}

impl Publisher {
    /// A publisher with no listener and no route in force yet. From `first` it takes the settings that are fixed at start.
    pub(super) fn new(process: Process, first: &Config) -> anyhow::Result<Publisher> {
        let mut empty = Definition::new(first.without_parts());
        let table = empty.compile().context("an empty table")?;
        let (kept, config) = (ReusedParts::default(), empty.config);
        let snapshot =
            snapshot::snapshot(&config, table, &kept, 0, (&process.limiter, &process.metrics), &process.salt);
        let listeners = Listeners::new()?;
        let dns = Arc::new(Dns::new(first.dns.clone()));
        let orders =
            Orders::new(Arc::clone(listeners.challenges()), process.fleet_values.clone(), dns.connect());
        let config = Arc::new(config);
        Ok(Publisher {
            process,
            first: Arc::clone(&config),
            config,
            text: Arc::default(),
            current: Arc::new(ArcSwap::from_pointee(snapshot)),
            kept,
            dns,
            listeners,
            orders,
            watch: Watch::default(),
            stale: OutdatedFiles::default(),
            told: Report::default(),
            published: 0,
        })
    }

    /// Ends everything but the logs and the exporter, which only their last owner can close.
    pub(super) fn end(self) -> (Logs, Arc<Exporter>) {
        (self.process.logs, self.process.exporter)
    }

    pub(super) fn names(&self) -> Vec<RememberedAddress> {
        let mut names: Vec<RememberedAddress> =
            self.kept.upstreams.iter().flat_map(|it| it.remember()).collect();
        names.truncate(NAMES_MAX);
        names
    }

    pub(super) fn servers(&self) -> Vec<RememberedServer> {
        let upstreams = self.kept.upstreams.iter();
        upstreams.flat_map(|upstream| upstream.remember_servers()).take(SERVERS_MAX).collect()
    }

    /// Prepares a definition, puts it into force, and returns what changed.
    ///
    /// # Errors
    /// Everything that is wrong with the definition; or the socket or log that cannot be opened. What was in force stays.
    pub(super) async fn publish(&mut self, definition: Definition) -> anyhow::Result<Changes> {
        let before = self.kept.clone();
        // Reads files and compiles up to a million routes, which would block the control runtime's only thread.
        let prepared = tokio::task::spawn_blocking(move || prepare_after(definition, &before)).await?;
        let prepared = prepared?;
        let news = prepared.loaded.report.news_since(&self.told);
        news.lines().iter().for_each(|line| tracing::warn!("{line}"));
        let (changes, _) = self.put_in_force(prepared, InheritedSockets::default(), None).await?;
        self.meet_peers().await;
        Ok(changes)
    }

    /// Puts into force what was prepared, and returns what changed.
    ///
    /// # Errors
    /// The socket or log that cannot be opened; a predecessor that has gone. What was in force stays.
    pub(super) async fn put_in_force(
        &mut self,
        mut prepared: PreparedConfig,
        mut inherited: InheritedSockets,
        predecessor: Option<Predecessor>,
    ) -> anyhow::Result<(Changes, Option<Predecessor>)> {
        if let Some(predecessor) = &predecessor {
            for upstream in &prepared.kept.upstreams {
                upstream.recall(&predecessor.hello.names);
                upstream.recall_servers(&predecessor.hello.servers);
            }
        }
        // Before anything changes, so that no request meets a new name without an answer.
        first_contact::resolve(&prepared.kept, &self.dns).await;
        let config = &prepared.loaded.config;
        let sockets =
            self.listeners.prepare(&config.listeners, self.process.commands.len(), &mut inherited)?;
        for UnusedSocket { shown, file } in inherited.close() {
            tracing::warn!(
                socket = shown,
                "an inherited socket belongs to no listener of the configuration and is closed"
            );
            self.listeners.leave_behind(file);
        }
        self.process.logs.switch(&self.config, config)?;
        if config.trace != self.config.trace || config.node != self.config.node {
            let node = node_name::node(&config.node);
            self.process.exporter.switch(config.trace.as_ref(), &node.name);
        }
        // Only a panic of the thread that builds the snapshot is an error from here on, so what is in force may change.
        prepared.renew();
        let PreparedConfig { loaded: LoadedConfig { config, table, report }, kept, .. } = prepared;
        self.told = report;
        let config = Arc::new(config);
        let made = self.make(Arc::clone(&config), table, kept.clone()).await?;
        self.current.store(Arc::new(made.snapshot));
        self.text.store(Arc::new(made.text));
        self.process.samples.keep(config.decisions.draws != DecisionSampling::OFF);
        self.process.overload.configure(config.overload.clone());
        descriptors::keep(&config, net::descriptors::hard_limit());
        self.published += 1;
        self.process.metrics.published(self.published, clock::unix().as_secs());
        self.kept = kept;
        self.config = config;
        let predecessor = match predecessor {
            None => None,
            Some(predecessor) => {
                self.meet_peers().await;
                Some(predecessor.take_over(&self.process.limiter).await?)
            }
        };
        self.listeners.apply(sockets, &self.process.metrics, &self.process.commands).await;
        self.watch = Watch::new(&self.config, &self.kept);
        self.stale.published();
        self.follow_client_certificates();
        self.orders.follow(&self.config.listeners);
        Ok((made.changes, predecessor))
    }

    /// Shows when the certificates expire that are shown to upstreams.
    fn follow_client_certificates(&self) {
        let expiries = self.listeners.expiries();
        let upstreams = &self.kept.upstreams;
        expiries.retain(|part| match part {
            FileReader::Upstream(name) => upstreams.iter().any(|upstream| upstream.config.name == *name),
            _ => true,
        });
        upstreams.iter().for_each(|upstream| expiries.follow_upstream(&upstream.config));
    }

    /// Builds the snapshot in a blocking thread, because with many routes it takes long.
    async fn make(
        &self,
        config: Arc<Config>,
        table: policy::RouteTable,
        kept: ReusedParts,
    ) -> anyhow::Result<Publication> {
        let (limiter, metrics) = (Arc::clone(&self.process.limiter), Arc::clone(&self.process.metrics));
        let (before, salt, generation) = (Arc::clone(&self.config), self.process.salt, self.published);
        let in_force = self.current.load_full();
        let making = tokio::task::spawn_blocking(move || {
            let mut table = table.salted(&salt);
            let changed = table.count_on(&in_force.table, clock::now_ns());
            if changed > 0 {
                tracing::info!(
                    policies = changed,
                    "policies change their algorithm: for one period both algorithms count, and the stricter one \
                     decides"
                );
            }
            let text = config.effective();
            Publication {
                changes: Changes::between(&before, &config),
                text: EffectiveText { fingerprint: config::fingerprint(&text), text },
                snapshot: snapshot::snapshot(&config, table, &kept, generation, (&limiter, &metrics), &salt),
            }
        });
        Ok(making.await?)
    }

    /// Begins to watch servers and to fetch issuers' keys of new parts: waits a moment, then goes on in the background.
    pub(super) async fn meet_peers(&self) {
        first_contact::begin(&self.kept, &self.dns.connect()).await;
    }

    /// Settings whose value in the files takes effect only after a restart.
    pub(super) fn waiting(&self) -> Vec<&'static str> {
        changes::waiting(&self.first, &self.config)
    }

    /// Reads certificates, keys and users again whose files have changed. Compiles nothing.
    pub(super) async fn read_changed_files(&mut self) {
        let snapshot = self.current.load_full();
        let told = FileReports { metrics: &self.process.metrics, stale: &self.stale };
        self.watch.read_changed(&self.config, &self.kept, &snapshot, &mut self.listeners, &told).await;
    }

    /// Ends the windows of changed policies that have counted for one period by the algorithm of before.
    ///
    /// # Errors
    /// If the table could not be made.
    pub(super) async fn end_changes(&self) -> anyhow::Result<()> {
        let (in_force, now_ns) = (self.current.load_full(), clock::now_ns());
        if !in_force.table.has_over(now_ns) {
            return Ok(());
        }
        let (limiter, metrics) = (Arc::clone(&self.process.limiter), Arc::clone(&self.process.metrics));
        let (config, kept, salt) = (Arc::clone(&self.config), self.kept.clone(), self.process.salt);
        let making = tokio::task::spawn_blocking(move || {
            let table = in_force.table.without_over(now_ns);
            // Pages whose files were read again since are those of the snapshot in force.
            Snapshot {
                error_pages: in_force.error_pages.clone(),
                ..snapshot::snapshot(&config, table, &kept, in_force.generation, (&limiter, &metrics), &salt)
            }
        });
        self.current.store(Arc::new(making.await?));
        Ok(())
    }
}

/// Addresses of names that a successor is told of: no more, because the message that holds them is bounded.
const NAMES_MAX: usize = 2_000;
/// Servers that a successor is told of, for the same reason.
const SERVERS_MAX: usize = 2_000;

struct Publication {
    snapshot: Snapshot,
    text: EffectiveText,
    changes: Changes,
}

#[cfg(test)]
mod tests;
