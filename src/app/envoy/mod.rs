//! Joins the gRPC listener to the snapshot, the limiter and the metrics: what its threads answer with.

mod decide;
mod statuses;

use std::sync::Arc;

use tokio::task::JoinHandle;
use tonic_health::server::HealthReporter;

use super::counts::Counts;
use super::sockets::listening::ListenerParts;
use control::admin::{ProcessPhase, Readiness};
use decide::Decider;
use metrics::WorkerToken;
use observe::record::decisions::{SampleBuffer, SampleMemory};
use rls::{Config, RlsStats, ServeOptions, Threads};

/// What the listener needs once it is open.
pub(super) struct Rls {
    config: Config,
    counts: Counts,
    readiness: Readiness,
    cells: Vec<WorkerToken>,
    samples: Arc<SampleMemory>,
}

impl Rls {
    /// With the cells of the metrics of each thread, and where samples of decisions go. `None` if it is not configured.
    pub(super) fn new(
        config: Option<&Config>,
        counts: &Counts,
        readiness: &Readiness,
        cells: Vec<WorkerToken>,
        samples: &Arc<SampleMemory>,
    ) -> Option<Rls> {
        let (config, counts, readiness) = (config?.clone(), counts.clone(), readiness.clone());
        Some(Rls { config, counts, readiness, cells, samples: Arc::clone(samples) })
    }

    pub(super) fn config(&self) -> &Config {
        &self.config
    }

    /// Starts the threads and begins to answer.
    ///
    /// # Errors
    /// If a thread cannot be started.
    pub(super) fn begin(self, parts: ListenerParts) -> anyhow::Result<JoinHandle<()>> {
        let Rls { config, counts, readiness, cells, samples } = self;
        let (stats, health) = (RlsStats::default(), HealthReporter::new());
        let shown = stats.clone();
        counts.metrics.register(move |families| shown.collect(families));
        let starts = cells.into_iter().map(|cells| {
            let (counts, stats) = (counts.clone(), stats.clone());
            let samples = Arc::clone(&samples);
            move || Decider::new(&counts, cells, stats, SampleBuffer::new(samples))
        });
        let threads = Threads::start(starts, &stats, &health)?;
        let is_ready = Box::new(move || readiness.phase() == ProcessPhase::Ready);
        let clients = config.clients.into();
        let asked = ServeOptions { threads, settings: parts.settings, clients, stats, health, is_ready };
        Ok(rls::spawn(parts.listener, asked, parts.stopped))
    }
}
