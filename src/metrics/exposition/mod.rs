//! One scrape: the families of the process, those of each kind of series, and those that parts of the process have
//! registered. The part that keeps the numbers also names their families; `text` and `protobuf` write them.

mod protobuf;
mod text;

use std::fmt;

use super::families::{Families, MetricUnit, SampleFamily};
use super::series::{listener, policy, route, upstream, window};
use super::{Metrics, PROCESS_LOG, lock};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScrapeFormat {
    /// Prometheus text 0.0.4.
    Prometheus,
    /// OpenMetrics 1.0: the same with exemplars.
    OpenMetrics,
    /// Messages of Prometheus: the same with exemplars and native histograms.
    Protobuf,
}

impl ScrapeFormat {
    pub fn content_type(self) -> &'static str {
        match self {
            ScrapeFormat::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
            ScrapeFormat::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            ScrapeFormat::Protobuf => {
                "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; encoding=delimited"
            }
        }
    }
}

impl Metrics {
    /// All metrics as of now. Never call it from a worker, because it takes time with the number of series in use.
    pub fn encode(&self, format: ScrapeFormat) -> Vec<u8> {
        match format {
            ScrapeFormat::Prometheus => self.text(format).into_bytes(),
            ScrapeFormat::OpenMetrics => (self.text(format) + "# EOF\n").into_bytes(),
            ScrapeFormat::Protobuf => {
                let mut page = Vec::new();
                self.show(&mut |family| protobuf::write(&mut page, family));
                page
            }
        }
    }

    fn text(&self, format: ScrapeFormat) -> String {
        let mut page = String::new();
        self.show(&mut |family| text::write(&mut page, format, family));
        page
    }

    fn show(&self, show: &mut dyn FnMut(&SampleFamily<'_>) -> fmt::Result) {
        self.families(&mut Families::new(show)).expect("memory takes any page");
    }

    fn families(&self, families: &mut Families<'_>) -> fmt::Result {
        process(self, families)?;
        configuration(self, families)?;
        route::families(&self.routes.all(), families)?;
        policy::families(&self.policies.all(), families)?;
        window::families(&self.windows.all(), families)?;
        self.latency.families(families)?;
        route::refusal_families(&self.refusals.all(), &self.causes.all(), families)?;
        route::call_families(&self.calls.all(), families)?;
        upstream::families(&self.upstreams.all(), families)?;
        listener::families(&self.listeners.all(), families)?;
        workers(self, families)?;
        lock(&self.collectors).iter().try_for_each(|collect| collect(families))
    }
}

fn process(metrics: &Metrics, families: &mut Families<'_>) -> fmt::Result {
    families.gauges(
        "build_info",
        "Version of the running process",
        None,
        [([("version", VERSION)], 1_u64)],
    )?;
    let help = "Tokens and passwords verified because no earlier verification was cached";
    families.counter("auth_verifications", help, metrics.auth_verifications.value())?;
    let help = "Panics in a worker, each of which ended one request or one connection";
    families.counter("worker_panics", help, metrics.panics.value())?;
    let help = "Times that accepting a connection failed for lack of file descriptors or memory";
    families.counter("accept_errors", help, metrics.accept_errors.value())?;
    for (family, help, log) in [
        ("access_log_lines", "Access-log lines, written and dropped", &metrics.access_log),
        ("decision_log_lines", "Lines of the decision log, written and dropped", &metrics.decision_log),
        ("process_log_lines", "Lines of the process log, written and dropped", &PROCESS_LOG),
    ] {
        let (written, dropped) = (log.written.value(), log.dropped.value());
        let series = [([("result", "written")], written), ([("result", "dropped")], dropped)];
        families.counters(family, help, None, series)?;
    }
    let help = "Access-log lines that were truncated, because they were too long for a syslog message";
    families.counter("access_log_lines_cut", help, metrics.access_log.cut.value())?;
    families.counters(
        "spans",
        "Spans of traces, exported to the collector and dropped",
        None,
        [
            ([("result", "exported")], metrics.spans.exported.value()),
            ([("result", "dropped")], metrics.spans.dropped.value()),
        ],
    )
}

/// Metrics of the configuration, and of the process that it is handed on to.
fn configuration(metrics: &Metrics, families: &mut Families<'_>) -> fmt::Result {
    let configuration = *lock(&metrics.configuration);
    families.counters(
        "config_reloads",
        "Reloads of the configuration, by result",
        None,
        [
            ([("result", "succeeded")], metrics.reloads_succeeded.value()),
            ([("result", "failed")], metrics.reloads_failed.value()),
        ],
    )?;
    families.counters(
        "upgrades",
        "Upgrades to a new process, by result",
        None,
        [
            ([("result", "succeeded")], metrics.upgrades_succeeded.value()),
            ([("result", "failed")], metrics.upgrades_failed.value()),
        ],
    )?;
    let help = "Generation of the configuration in force";
    families.gauge("config_generation", help, configuration.generation)?;
    families.gauges(
        "config_last_reload_success_timestamp",
        "When the configuration in force was loaded",
        Some(&MetricUnit::Seconds),
        [([], configuration.loaded_unix_seconds)],
    )?;
    let help = "Whether the last reload of the configuration succeeded";
    families.gauge("config_last_reload_successful", help, u64::from(!configuration.is_refused))
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
