//! What a scrape reads from the parts of the process.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use arc_swap::ArcSwap;

use crate::limiter::Limiter;
use crate::metrics::{self, Metrics};
use crate::proxy::snapshot::Snapshot;
use crate::service::overload::Overload;
use crate::upstream::{self, Upstream};

/// Lets /metrics show the local table.
pub(super) fn show_table(metrics: &Metrics, limiter: &Arc<Limiter>) {
    let limiter = Arc::clone(limiter);
    metrics.set_table(move || {
        let stats = limiter.table().stats();
        metrics::TableUsage {
            slots: stats.slots,
            used: stats.used,
            evictions: stats.evictions,
            overflow_decisions: stats.overflow_decisions,
            logs: stats.logs,
            log_bytes: stats.log_bytes,
        }
    });
}

/// Lets /metrics show the connections of the upstreams in force.
pub(super) fn show_pools(metrics: &Metrics, current: &Arc<ArcSwap<Snapshot>>) {
    let current = Arc::clone(current);
    metrics.set_pools(move || current.load().upstreams.iter().map(|upstream| pool_usage(upstream)).collect());
}

/// Lets /metrics show the memory in use.
pub(super) fn show_memory(metrics: &Metrics, overload: &Arc<Overload>) {
    let overload = Arc::clone(overload);
    metrics.set_memory(move || overload.usage());
}

fn pool_usage(upstream: &Upstream) -> metrics::PoolUsage {
    let sum = |level: fn(&upstream::Server) -> &AtomicUsize| {
        upstream.servers.iter().map(|server| level(server).load(Ordering::Relaxed) as u64).sum()
    };
    metrics::PoolUsage {
        upstream: upstream.config.name.clone(),
        open: sum(|server| &server.open),
        idle: sum(|server| &server.idle),
        waiting: sum(|server| &server.waiting),
    }
}
