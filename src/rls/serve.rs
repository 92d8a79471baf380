//! The accept loop of the gRPC listener. It runs on the control runtime and hands each connection to a thread.

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use rustls::ServerConfig;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time;
use tonic_health::ServingStatus;
use tonic_health::server::HealthReporter;

use super::config::GrpcClient;
use super::limits::CONNECTIONS_MAX;
use super::service::RATE_LIMIT_SERVICE;
use super::stats::RlsStats;
use super::threads::Threads;
use base::clock;
use net::descriptors;
use net::listening::BoundListener;

pub struct ServeOptions {
    pub threads: Threads,
    /// TLS, unless the listener speaks in the clear; it changes when files do.
    pub settings: Option<Arc<ArcSwap<ServerConfig>>>,
    /// Who may ask; empty: whoever can connect.
    pub clients: Arc<[GrpcClient]>,
    pub stats: RlsStats,
    /// Tells health what is known of it.
    pub health: HealthReporter,
    /// Whether the process is ready, which health shows.
    pub is_ready: Box<dyn Fn() -> bool + Send + Sync>,
}

/// Serves until `stopped` resolves, then waits a moment for calls under way. Every thread has ended when the task has.
pub fn spawn(listener: BoundListener, asked: ServeOptions, stopped: oneshot::Receiver<()>) -> JoinHandle<()> {
    tokio::spawn(serve(listener, asked, stopped))
}

async fn serve(listener: BoundListener, asked: ServeOptions, mut stopped: oneshot::Receiver<()>) {
    let mut looks = time::interval(LOOK_EVERY);
    let mut shown = None;
    loop {
        tokio::select! {
            _ = &mut stopped => break,
            accepted = listener.accept() => match accepted {
                Ok(stream) => {
                    let Some(connected) = asked.stats.connect(CONNECTIONS_MAX) else {
                        asked.stats.refused_connection();
                        continue;
                    };
                    let tls = asked.settings.as_ref().map(|tls| (tls.load_full(), Arc::clone(&asked.clients)));
                    if let Err(error) = asked.threads.hand(stream, tls, connected) {
                        asked.stats.refused_connection();
                        tracing::debug!(%error, "gRPC connection closed: no thread can take it");
                    }
                }
                Err(error) => {
                    descriptors::ran_out("the gRPC listener", &error, clock::now_ns());
                    // Not at once, because the connection stays in the backlog: `accept` would fail again and again, in
                    // a busy loop.
                    time::sleep(ACCEPT_PAUSE).await;
                }
            },
            _ = looks.tick() => show(&asked, &mut shown).await,
        }
    }
    drop(listener);
    show_as(&asked, false).await;
    asked.threads.end().await;
}

/// Shows health what it does not know yet.
async fn show(asked: &ServeOptions, shown: &mut Option<bool>) {
    let is_ready = (asked.is_ready)();
    if *shown != Some(is_ready) {
        *shown = Some(is_ready);
        show_as(asked, is_ready).await;
    }
}

async fn show_as(asked: &ServeOptions, is_ready: bool) {
    let status = if is_ready { ServingStatus::Serving } else { ServingStatus::NotServing };
    for service in ["", RATE_LIMIT_SERVICE] {
        asked.health.set_service_status(service, status).await;
    }
}

/// How often health is told whether the process is ready.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// The pause after `accept` has failed.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
