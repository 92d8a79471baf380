//! One scrape: the families of the process, those of each kind of series, and those that parts of the process have
//! registered. The part that keeps the numbers also names their families; [`super::text`] writes them.

use std::fmt;
use std::sync::Arc;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, text as openmetrics};
use prometheus_client::registry::Registry;

use super::series::{listener, policy, route, upstream, window};
use super::text::{Families, Format, Unit, as_prometheus};
use super::{Metrics, lock};

impl Metrics {
    /// All metrics as of now. Takes time with the number of series in use, so never call it from a worker.
    pub fn encode(self: &Arc<Self>, format: Format) -> String {
        let mut registry = Registry::with_prefix("sluicegate");
        registry.register_collector(Box::new(Scrape(self.clone())));
        let mut open_metrics = String::new();
        openmetrics::encode(&mut open_metrics, &registry).expect("a String takes any text");
        match format {
            Format::OpenMetrics => open_metrics,
            Format::Prometheus => as_prometheus(&open_metrics),
        }
    }
}

#[derive(Debug)]
struct Scrape(Arc<Metrics>);

impl Collector for Scrape {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let mut families = Families::new(encoder);
        process(&self.0, &mut families)?;
        route::families(&self.0.routes.all(), &mut families)?;
        policy::families(&self.0.policies.all(), &mut families)?;
        window::families(&self.0.windows.all(), &mut families)?;
        self.0.latency.families(&mut families)?;
        route::refusal_families(&self.0.refusals.all(), &self.0.causes.all(), &mut families)?;
        route::call_families(&self.0.calls.all(), &mut families)?;
        upstream::families(&self.0.upstreams.all(), &mut families)?;
        listener::families(&self.0.listeners.all(), &mut families)?;
        workers(&self.0, &mut families)?;
        lock(&self.0.collectors).iter().try_for_each(|collect| collect(&mut families))
    }
}

fn process(metrics: &Metrics, families: &mut Families<'_>) -> fmt::Result {
    let configuration = *lock(&metrics.configuration);
    families.gauges("build_info", "Version that runs", None, [([("version", VERSION)], 1_u64)])?;
    families.counters(
        "auth_verifications",
        "Tokens and passwords looked at because nothing was known of them",
        None,
        [([], metrics.auth_verifications.value())],
    )?;
    families.counters(
        "worker_panics",
        "Panics in a worker, each of which took one request or one connection",
        None,
        [([], metrics.panics.value())],
    )?;
    families.counters(
        "accept_errors",
        "Times the kernel would not hand a connection over, for want of descriptors or memory",
        None,
        [([], metrics.accept_errors.value())],
    )?;
    families.counters(
        "access_log_lines",
        "Access-log lines written and lost",
        None,
        [
            ([("result", "written")], metrics.access_log.written.value()),
            ([("result", "dropped")], metrics.access_log.dropped.value()),
        ],
    )?;
    families.counters(
        "decision_log_lines",
        "Lines of samples of decisions, written and lost",
        None,
        [
            ([("result", "written")], metrics.decision_log.written.value()),
            ([("result", "dropped")], metrics.decision_log.dropped.value()),
        ],
    )?;
    families.counters(
        "access_log_lines_cut",
        "Access-log lines that were too long for a message of syslog and lost their end",
        None,
        [([], metrics.access_log.cut.value())],
    )?;
    families.counters(
        "spans",
        "Spans of traces that the collector took, and lost ones",
        None,
        [
            ([("result", "exported")], metrics.spans.exported.value()),
            ([("result", "dropped")], metrics.spans.dropped.value()),
        ],
    )?;
    families.counters(
        "config_reloads",
        "Reloads by their result",
        None,
        [
            ([("result", "succeeded")], metrics.reloads_succeeded.value()),
            ([("result", "failed")], metrics.reloads_failed.value()),
        ],
    )?;
    families.counters(
        "upgrades",
        "Upgrades to a new process by their result",
        None,
        [
            ([("result", "succeeded")], metrics.upgrades_succeeded.value()),
            ([("result", "failed")], metrics.upgrades_failed.value()),
        ],
    )?;
    families.gauges(
        "config_generation",
        "Number of the configuration in force",
        None,
        [([], configuration.generation)],
    )?;
    families.gauges(
        "config_last_reload_success_timestamp",
        "When the configuration in force was loaded",
        Some(&Unit::Seconds),
        [([], configuration.loaded_unix_seconds)],
    )?;
    families.gauges(
        "config_last_reload_successful",
        "Whether the configuration as it was last read is in force",
        None,
        [([], u64::from(!configuration.is_refused))],
    )
}

fn workers(metrics: &Metrics, families: &mut Families<'_>) -> fmt::Result {
    let names: Vec<_> = (0..metrics.workers).map(|index| index.to_string()).collect();
    let (routes, listeners) = (metrics.routes.all(), metrics.listeners.all());
    families.counters(
        "worker_requests",
        "Requests answered by each worker",
        None,
        names.iter().enumerate().map(|(index, name)| {
            (
                [("worker", name.as_str())],
                routes.iter().map(|(_, route)| route.requests_of_worker(index)).sum(),
            )
        }),
    )?;
    families.counters(
        "worker_connections_accepted",
        "Connections accepted by each worker",
        None,
        names.iter().enumerate().map(|(index, name)| {
            let accepted = listeners.iter().map(|(_, listener)| listener.accepted_of_worker(index)).sum();
            ([("worker", name.as_str())], accepted)
        }),
    )
}

const VERSION: &str = env!("CARGO_PKG_VERSION");

#[cfg(test)]
mod tests;
