//! How much of what a node has is in use, in one figure for autoscalers: the greatest of its busiest worker, its memory and
//! its connections.
//!
//! The control runtime compares what each worker has worked with what it had every few seconds; a scrape reads the last
//! comparison, so that the figure does not depend on who scrapes how often.

use std::fmt;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use base::clock;
use gateway::server::worker::WorkerResources;
use gateway::service::config::ListenerConfig;
use metrics::{Families, MetricUnit, Metrics};

pub(super) struct Utilisation {
    shared: Arc<WorkerResources>,
    /// Of the busiest worker, as of the last comparison.
    busiest: Mutex<f64>,
}

/// What a comparison compares with.
pub(super) struct Watch {
    of: Arc<Utilisation>,
    at: Instant,
    /// Time that each worker had worked, nanoseconds.
    busy_ns: Vec<u64>,
}

impl Utilisation {
    pub(super) fn new(shared: &Arc<WorkerResources>) -> Arc<Utilisation> {
        Arc::new(Utilisation { shared: Arc::clone(shared), busiest: Mutex::default() })
    }

    pub(super) fn collect(
        &self,
        listeners: &[ListenerConfig],
        metrics: &Metrics,
        families: &mut Families<'_>,
    ) -> fmt::Result {
        let workers = *self.busiest.lock().unwrap_or_else(PoisonError::into_inner);
        let memory = self.shared.overload.used_share();
        let connections = listeners.iter().map(|listener| {
            metrics.listener(&listener.name).open() as f64 / listener.connections_max.max(1) as f64
        });
        let connections = connections.fold(0.0, f64::max);
        families.gauges(
            "utilisation",
            "Highest utilisation of this node: of its busiest worker, memory or connections",
            Some(&MetricUnit::Ratio),
            [([], workers.max(memory).max(connections))],
        )?;
        families.gauges(
            "utilisation_part",
            "Utilisation by resource: time of the busiest worker, memory, connections of the fullest listener",
            Some(&MetricUnit::Ratio),
            [
                ([("part", "workers")], workers),
                ([("part", "memory")], memory),
                ([("part", "connections")], connections),
            ],
        )
    }
}

impl Watch {
    pub(super) fn new(of: &Arc<Utilisation>) -> Watch {
        Watch { of: Arc::clone(of), at: clock::instant(), busy_ns: vec![0; of.shared.busy_ns.len()] }
    }

    pub(super) fn compare(&mut self) {
        let now = clock::instant();
        let had = now.saturating_duration_since(self.at);
        self.at = now;
        let worked = self.busy_ns.iter_mut().zip(&self.of.shared.busy_ns).map(|(before_ns, busy_ns)| {
            let busy_ns = busy_ns.load(Ordering::Relaxed);
            Duration::from_nanos(busy_ns.saturating_sub(std::mem::replace(before_ns, busy_ns)))
        });
        let most = worked.max().unwrap_or_default();
        if !had.is_zero() {
            let share = (most.as_secs_f64() / had.as_secs_f64()).min(1.0);
            *self.of.busiest.lock().unwrap_or_else(PoisonError::into_inner) = share;
        }
    }
}

/// Long enough for what workers tell of themselves five times a second.
pub(super) const EVERY: Duration = Duration::from_secs(5);
