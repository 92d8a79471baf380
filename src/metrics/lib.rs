//! Metrics by route, policy, upstream and listener, and a few of the process as a whole.
//!
//! A snapshot takes a handle (such as `Arc<Route>`) for each name when it is built. The same name gives the same handle
//! after every reload, so that no counter restarts from zero. On the hot path, counting is one plain load and store in
//! memory that only this worker writes; a scrape adds the workers up.
//!
//! It reads no clock, and no limiter key or client value ever becomes a label: names come from the configuration only, and
//! their number is bounded. Exemplars alone have the ids of requests.

#[macro_use]
mod words;

mod cells;
mod exemplars;
mod exposition;
mod families;
mod grid;
mod histogram;
pub mod hot_keys;
mod series;
mod totals;
pub mod usage;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};

pub use cells::WorkerToken;
pub use exemplars::Exemplar;
pub use exposition::ScrapeFormat;
pub use families::{Families, Labels, MetricNumber, MetricUnit};
pub use histogram::{Durations, Histogram};
pub use series::{
    CLASSES, Comparison, ConnectionDeadline, CostOutcome, DecidingTier, ExchangeOutcome, IpVersion, Latency,
    ListenerSeries, MirrorOutcome, PolicyDecision, PolicySeries, RefusalSeries, RefusedConnection,
    RequestCounts, RouteSeries, RouteTotals, UpstreamSeries, WindowSeries,
};
pub use totals::{ConnectionTotals, DECISIONS, Totals};

/// Everything that is counted in this process.
pub struct Metrics {
    workers: usize,
    /// The token of the row behind those of the workers.
    outside: Mutex<WorkerToken>,
    routes: NamedSeries<RouteSeries>,
    policies: NamedSeries<PolicySeries>,
    windows: NamedSeries<WindowSeries>,
    latency: Arc<Latency>,
    upstreams: NamedSeries<UpstreamSeries>,
    listeners: NamedSeries<ListenerSeries>,
    refusals: NamedSeries<RefusalSeries>,
    causes: NamedSeries<RefusalSeries>,
    calls: NamedSeries<RefusalSeries>,
    /// Write the families of other parts of the process at each scrape.
    collectors: Mutex<Vec<Collector>>,
    configuration: Mutex<Configuration>,
    reloads_succeeded: SharedCounter,
    /// Reloads that failed, so that the old configuration stayed.
    reloads_failed: SharedCounter,
    /// Upgrades by which this process took a predecessor's place: one or none.
    upgrades_succeeded: SharedCounter,
    /// Upgrades that failed, so that this process serves on.
    upgrades_failed: SharedCounter,
    /// Panics in a worker; each took one request, or one connection.
    pub panics: SharedCounter,
    /// Times the kernel would not hand a connection over (`accept` failed): out of descriptors or memory.
    pub accept_errors: SharedCounter,
    /// Credentials that were not in a cache and had to be verified: signatures checked, passwords hashed.
    pub auth_verifications: SharedCounter,
    /// Metrics of the access log itself.
    pub access_log: AccessLog,
    /// Metrics of the log of decisions.
    pub decision_log: AccessLog,
    pub spans: SpanCounters,
}

/// Lines of a log by what happened to them.
#[derive(Clone, Debug, Default)]
pub struct AccessLog {
    /// Lines that reached their file or pipe.
    pub written: SharedCounter,
    /// Lines lost because the writer was behind or its file could not be written.
    pub dropped: SharedCounter,
    /// Lines written that were too long for a message of syslog.
    pub cut: SharedCounter,
}

/// Metrics of the process's own log, which begins before all others.
pub static PROCESS_LOG: LazyLock<AccessLog> = LazyLock::new(AccessLog::default);

/// Spans by what happened to them.
#[derive(Clone, Debug, Default)]
pub struct SpanCounters {
    /// Spans that the collector took.
    pub exported: SharedCounter,
    /// Spans lost because the queue was full, or the collector was away or did not take them.
    pub dropped: SharedCounter,
}

/// A counter that any thread may raise: for rare events, and for work outside the workers.
#[derive(Clone, Debug, Default)]
pub struct SharedCounter(Arc<AtomicU64>);

type Collector = Box<dyn Fn(&mut Families<'_>) -> fmt::Result + Send>;

#[derive(Clone, Copy, Default)]
struct Configuration {
    generation: u64,
    loaded_unix_seconds: u64,
    /// Whether the file was refused when it was last read.
    is_refused: bool,
}

impl Metrics {
    /// Counters for `workers` data-plane threads, and the one token each of them counts with.
    pub fn new(workers: usize) -> (Arc<Metrics>, Vec<WorkerToken>) {
        let metrics = Metrics {
            workers,
            outside: Mutex::new(WorkerToken::new(workers)),
            routes: NamedSeries::new(ROUTES_MAX),
            policies: NamedSeries::new(POLICIES_MAX),
            windows: NamedSeries::new(WINDOWS_MAX),
            latency: Arc::new(Latency::new(workers + 1)),
            upstreams: NamedSeries::new(UPSTREAMS_MAX),
            listeners: NamedSeries::new(LISTENERS_MAX),
            refusals: NamedSeries::new(REFUSALS_MAX),
            causes: NamedSeries::new(REFUSALS_MAX),
            calls: NamedSeries::new(GRPC_STATUSES.len()),
            collectors: Mutex::default(),
            configuration: Mutex::default(),
            reloads_succeeded: SharedCounter::default(),
            reloads_failed: SharedCounter::default(),
            upgrades_succeeded: SharedCounter::default(),
            upgrades_failed: SharedCounter::default(),
            panics: SharedCounter::default(),
            accept_errors: SharedCounter::default(),
            auth_verifications: SharedCounter::default(),
            access_log: AccessLog::default(),
            decision_log: AccessLog::default(),
            spans: SpanCounters::default(),
        };
        (Arc::new(metrics), (0..workers).map(WorkerToken::new).collect())
    }

    /// The series of a route; of all others together (`other`) beyond [`ROUTES_MAX`] names.
    pub fn route(&self, name: &str) -> Arc<RouteSeries> {
        self.routes.named(name, || RouteSeries::new(self.rows()))
    }

    /// The series of a policy; of all others together beyond [`POLICIES_MAX`] names.
    pub fn policy(&self, name: &str) -> Arc<PolicySeries> {
        self.policies.named(name, || PolicySeries::new(self.rows()))
    }

    /// The series of a window of a policy, whose key has these dimensions; of all others together beyond [`WINDOWS_MAX`].
    pub fn window(&self, policy: &str, window: &str, by: &str) -> Arc<WindowSeries> {
        self.windows.named(&series::window::name(policy, window, by), || WindowSeries::new(self.rows()))
    }

    /// How long decisions take, of all policies.
    pub fn latency(&self) -> Arc<Latency> {
        Arc::clone(&self.latency)
    }

    /// The series of an upstream; of all others together beyond [`UPSTREAMS_MAX`] names.
    pub fn upstream(&self, name: &str) -> Arc<UpstreamSeries> {
        self.upstreams.named(name, || UpstreamSeries::new(self.rows()))
    }

    /// The series of a listener; of all others together beyond [`LISTENERS_MAX`] names.
    pub fn listener(&self, name: &str) -> Arc<ListenerSeries> {
        self.listeners.named(name, || ListenerSeries::new(self.rows()))
    }

    /// The count of requests refused for one reason: a fixed code, as the access log shows it.
    pub fn refusal(&self, reason: &'static str) -> Arc<RefusalSeries> {
        self.refusals.named(reason, || RefusalSeries::new(self.rows()))
    }

    /// The count of refusals and failures with one cause: a fixed word, as the access log shows it.
    pub fn cause(&self, word: &'static str) -> Arc<RefusalSeries> {
        self.causes.named(word, || RefusalSeries::new(self.rows()))
    }

    /// The counts of calls of gRPC by the status that ended them: a row for each of gRPC's numbers, and one for all others.
    pub fn calls(&self) -> Vec<Arc<RefusalSeries>> {
        let count = |status: &&str| self.calls.named(status, || RefusalSeries::new(self.rows()));
        GRPC_STATUSES.iter().map(count).collect()
    }

    /// Counts for threads that are not workers: one at a time.
    pub fn outside(&self) -> MutexGuard<'_, WorkerToken> {
        lock(&self.outside)
    }

    fn rows(&self) -> usize {
        self.workers + 1
    }

    /// Adds families whose numbers another part of the process keeps: every scrape asks `collect` to write them. A part
    /// registers once, at start.
    pub fn register(&self, collect: impl Fn(&mut Families<'_>) -> fmt::Result + Send + 'static) {
        lock(&self.collectors).push(Box::new(collect));
    }

    /// A configuration serves since `unix_seconds`.
    pub fn published(&self, generation: u64, unix_seconds: u64) {
        let mut configuration = lock(&self.configuration);
        (configuration.generation, configuration.loaded_unix_seconds) = (generation, unix_seconds);
    }

    pub fn reload_succeeded(&self) {
        self.reloads_succeeded.add(1);
    }

    /// The file was read again, and is in force now or was refused.
    pub fn file_read(&self, is_in_force: bool) {
        lock(&self.configuration).is_refused = !is_in_force;
    }

    /// A reload was refused; the old configuration goes on serving.
    pub fn reload_failed(&self) {
        self.reloads_failed.add(1);
    }

    /// This process has taken its predecessor's place. The successor counts it, because nobody scrapes the other any
    /// more.
    pub fn upgrade_succeeded(&self) {
        self.upgrades_succeeded.add(1);
    }

    /// A successor did not take this process's place.
    pub fn upgrade_failed(&self) {
        self.upgrades_failed.add(1);
    }
}

impl fmt::Debug for Metrics {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Metrics").field("workers", &self.workers).finish_non_exhaustive()
    }
}

impl SharedCounter {
    pub fn add(&self, count: u64) {
        self.0.fetch_add(count, Ordering::Relaxed);
    }

    pub fn value(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Series by name, at most `max` of them and one more for the rest. They are never removed, because a counter that
/// vanishes on a reload and comes back at zero would break every `rate()`.
struct NamedSeries<T> {
    max: usize,
    series: Mutex<BTreeMap<Box<str>, Arc<T>>>,
}

impl<T> NamedSeries<T> {
    fn new(max: usize) -> NamedSeries<T> {
        NamedSeries { max, series: Mutex::default() }
    }

    fn named(&self, name: &str, make: impl FnOnce() -> T) -> Arc<T> {
        let mut series = lock(&self.series);
        if let Some(known) = series.get(name) {
            return known.clone();
        }
        let name = if series.len() < self.max { name } else { OTHER };
        series.entry(name.into()).or_insert_with(|| Arc::new(make())).clone()
    }

    /// All of them by name, taken out so that a scrape holds no lock while it writes.
    fn all(&self) -> Vec<(Box<str>, Arc<T>)> {
        lock(&self.series).iter().map(|(name, series)| (name.clone(), series.clone())).collect()
    }
}

/// Ignores poisoning, because no code under these locks leaves a state half changed.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Routes that have series of their own.
pub const ROUTES_MAX: usize = 4096;
/// Policies that have series of their own.
pub const POLICIES_MAX: usize = 4096;
/// Windows of policies that have series of their own.
pub const WINDOWS_MAX: usize = 8192;
/// Upstreams that have series of their own.
pub const UPSTREAMS_MAX: usize = 1024;
/// Listeners that have series of their own.
pub const LISTENERS_MAX: usize = 256;
/// Reasons, and causes, that have series of their own.
pub const REFUSALS_MAX: usize = 256;
/// The statuses of gRPC, which are numbers from 0 on, and what is none of them.
const GRPC_STATUSES: [&str; 18] =
    ["0", "1", "2", "3", "4", "5", "6", "7", "8", "9", "10", "11", "12", "13", "14", "15", "16", OTHER];
/// The name of everything beyond those bounds.
pub const OTHER: &str = "other";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_name_keeps_its_series_over_reloads() {
        let (metrics, workers) = Metrics::new(1);
        metrics.policy("search").decided(&workers[0], PolicyDecision::Admitted);
        metrics.policy("search").decided(&workers[0], PolicyDecision::Admitted);
        assert!(Arc::ptr_eq(&metrics.policy("search"), &metrics.policy("search")));
        assert_eq!(metrics.policy("search").decisions(PolicyDecision::Admitted), 2);
    }

    #[test]
    fn what_is_counted_outside_the_workers_is_in_the_sum() {
        let (metrics, workers) = Metrics::new(1);
        metrics.policy("search").decided(&workers[0], PolicyDecision::Denied);
        metrics.policy("search").decided(&metrics.outside(), PolicyDecision::Denied);
        assert_eq!(metrics.policy("search").decisions(PolicyDecision::Denied), 2);
    }

    #[test]
    fn names_beyond_the_bound_share_one_series() {
        let names = NamedSeries::<u8>::new(2);
        let first = names.named("a", || 1);
        names.named("b", || 2);
        let third = names.named("c", || 3);
        assert!(Arc::ptr_eq(&third, &names.named("d", || 4)));
        assert!(Arc::ptr_eq(&first, &names.named("a", || 5)));
        let listed: Vec<_> = names.all().into_iter().map(|(name, _)| name.into_string()).collect();
        assert_eq!(listed, ["a", "b", OTHER]);
    }
}
