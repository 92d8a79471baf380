//! The only wiring: configuration into snapshot, listeners and workers; signals into reload and drain.
//!
//! The control runtime runs here, beside the workers. It never serves a request, and no request waits for it.

mod build;
mod certificates;
mod listeners;
mod reload;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use anyhow::Context;
use arc_swap::ArcSwap;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc;

use crate::admin::{self, Readiness};
use crate::config::{self, Config};
use crate::limiter::Limiter;
use crate::metrics::Metrics;
use crate::proxy::exchange::Reason;
use crate::proxy::worker::{self, Order, Shared};
use crate::record;
use crate::{clock, local};

/// Runs the gateway on `config` until it is told to stop; `path` is read again on SIGHUP.
///
/// # Errors
/// Where it cannot start: an address in use, a certificate that cannot be read, no memory.
pub fn run(path: &Path, config: Config) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .thread_name("control")
        .enable_all()
        .build()
        .context("the control runtime does not start")?;
    runtime.block_on(Gateway::start(path, config)?.serve())
}

/// The parts that live as long as the process.
struct Gateway {
    reloader: reload::Reloader,
    workers: Vec<std::thread::JoinHandle<()>>,
    shared: Arc<Shared>,
    log: record::Log,
    readiness: Arc<Readiness>,
}

impl Gateway {
    fn start(path: &Path, config: Config) -> anyhow::Result<Gateway> {
        let count = config.workers.unwrap_or_else(cores);
        let (metrics, cells) = Metrics::new(count);
        let log = record::Log::open(&config.access_log.to, metrics.access_log()).context("the access log")?;
        let limiter = Arc::new(Limiter::new(local::Table::with_memory(config.limits_memory)));
        let salt = build::salt();
        let none = build::Upstreams::default();
        let (snapshot, upstreams) = build::snapshot(&config, 0, &limiter, &metrics, &none, salt)?;
        let current = Arc::new(ArcSwap::from_pointee(snapshot));

        let (senders, receivers): (Vec<_>, Vec<_>) = (0..count).map(|_| mpsc::channel(ORDERS)).unzip();
        let shared = Arc::new(Shared {
            current: Arc::clone(&current),
            limiter: Arc::clone(&limiter),
            refusals: Reason::ALL.iter().map(|reason| metrics.refusal(reason.code())).collect(),
            panics: metrics.panics(),
            loads: (0..count).map(|_| AtomicUsize::new(0)).collect(),
            orders: senders,
        });
        let mut workers = Vec::with_capacity(count);
        for ((index, cells), orders) in cells.into_iter().enumerate().zip(receivers) {
            let worker = worker::spawn(index, Arc::clone(&shared), cells, log.buffer(), orders);
            workers.push(worker.context("a worker does not start")?);
        }
        metrics.started(0, clock::unix().as_secs());
        build::show_table(&metrics, &limiter);
        let readiness = Arc::new(Readiness::default());
        let parts = reload::Parts {
            path: path.to_owned(),
            config,
            current,
            limiter,
            metrics,
            upstreams,
            orders: shared.orders.clone(),
        };
        let reloader = reload::Reloader::new(parts, salt)?;
        Ok(Gateway { reloader, workers, shared, log, readiness })
    }

    async fn serve(mut self) -> anyhow::Result<()> {
        let mut signals = Signals::new().context("signals")?;
        self.reloader.open_listeners().await?;
        let admin = self.open_admin().await?;
        self.reloader.resolve_upstreams().await;
        self.readiness.set(admin::State::Ready);
        eprintln!("sluicegate: ready");
        let mut watch = tokio::time::interval(CERTIFICATES_EVERY);
        loop {
            tokio::select! {
                _ = signals.hup.recv() => {
                    self.reloader.reload(&self.log).await;
                }
                _ = signals.term.recv() => break,
                _ = signals.quit.recv() => break,
                _ = signals.int.recv() => break,
                _ = watch.tick() => self.reloader.watch_certificates(),
            }
        }
        let second = tokio::spawn(async move {
            signals.any().await;
            eprintln!("sluicegate: stopped at once by a second signal");
            std::process::exit(1);
        });
        self.drain().await;
        second.abort();
        admin.abort();
        Ok(())
    }

    /// Says not ready, waits until balancers have seen it, accepts no more, lets requests end, then ends.
    async fn drain(self) {
        let shutdown = self.reloader.shutdown();
        eprintln!("sluicegate: draining");
        self.readiness.set(admin::State::Draining);
        tokio::time::sleep(shutdown.ready_delay).await;
        let deadline = clock::instant() + shutdown.drain;
        for orders in &self.shared.orders {
            let _ = orders.send(Order::Drain(deadline)).await;
        }
        let workers = self.workers;
        let joined = tokio::task::spawn_blocking(move || workers.into_iter().all(|worker| worker.join().is_ok()));
        if !joined.await.unwrap_or(false) {
            tracing::error!("a worker ended in a panic");
        }
        let dropped = self.log.close(LOG_WAIT);
        if dropped > 0 {
            tracing::warn!(dropped, "access-log lines were not written in time");
        }
        eprintln!("sluicegate: stopped");
    }
}

/// The signals the gateway listens to.
struct Signals {
    hup: Signal,
    term: Signal,
    quit: Signal,
    int: Signal,
}

impl Signals {
    fn new() -> std::io::Result<Signals> {
        Ok(Signals {
            hup: signal(SignalKind::hangup())?,
            term: signal(SignalKind::terminate())?,
            quit: signal(SignalKind::quit())?,
            int: signal(SignalKind::interrupt())?,
        })
    }

    /// Any that asks to stop.
    async fn any(&mut self) {
        tokio::select! {
            _ = self.term.recv() => {}
            _ = self.quit.recv() => {}
            _ = self.int.recv() => {}
        }
    }
}

/// One worker a core the process may use.
fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Orders a worker may have waiting.
const ORDERS: usize = 1024;
const CERTIFICATES_EVERY: Duration = Duration::from_secs(1);
const LOG_WAIT: Duration = Duration::from_secs(2);
