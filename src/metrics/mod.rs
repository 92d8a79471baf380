//! What is counted: figures by route, policy, upstream and listener, and a few of the process as a whole.
//!
//! Whoever counts holds a handle (`Arc<Route>`, say) that it took by name when its snapshot was built; the same
//! name gives the same handle after every reload, so nothing starts again from zero. On the hot path a count is
//! one plain load and store in memory only that worker writes; a scrape adds the workers up.
//!
//! It deliberately reads no clock, and no limiter key or client value ever becomes a label: names come from the
//! configuration alone and are bounded.

mod cells;
mod exposition;
mod histogram;
mod series;
mod text;

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

pub use cells::Worker;
pub use series::{
    Deadline, Decision, Exchange, Listener, Policy, Refusal, Refused, Request, Route, Tier, Upstream,
};
pub use text::Format;

/// Everything that is counted in this process.
pub struct Metrics {
    workers: usize,
    routes: Names<Route>,
    policies: Names<Policy>,
    upstreams: Names<Upstream>,
    listeners: Names<Listener>,
    refusals: Names<Refusal>,
    causes: Names<Refusal>,
    certificates: Mutex<Vec<CertificateExpiry>>,
    table: Mutex<Option<TableReader>>,
    pools: Mutex<Option<PoolsReader>>,
    redis: Mutex<Option<RedisReader>>,
    memory: Mutex<Option<MemoryReader>>,
    configuration: Mutex<Configuration>,
    /// Reloads that took effect.
    reloads_succeeded: Counter,
    /// Reloads that left the old configuration serving.
    reloads_failed: Counter,
    /// Panics in a worker; each took one request, or one connection.
    pub panics: Counter,
    /// Times the kernel would not hand a connection over (`accept` failed): out of descriptors or memory.
    pub accept_errors: Counter,
    /// Credentials that were looked at because nothing was known of them: signatures checked, passwords worked out.
    pub auth_verifications: Counter,
    /// The access log's own figures.
    pub access_log: AccessLog,
}

/// What became of access-log lines.
#[derive(Clone, Debug, Default)]
pub struct AccessLog {
    /// Lines that reached their file or pipe.
    pub written: Counter,
    /// Lines lost because the writer was behind or its file could not be written.
    pub dropped: Counter,
}

/// A count any thread may raise: for what happens rarely, and for work outside the workers.
#[derive(Clone, Debug, Default)]
pub struct Counter(Arc<AtomicU64>);

/// When a certificate that is being served ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateExpiry {
    /// The listener that serves it.
    pub listener: String,
    /// The leaf's subject.
    pub subject: String,
    /// Its file.
    pub file: PathBuf,
    /// The leaf's `notAfter`, Unix seconds.
    pub not_after: i64,
}

/// How full the local table of limiter keys is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TableUsage {
    /// Keys it has room for.
    pub slots: u64,
    /// Keys it holds.
    pub used: u64,
    /// Keys that had to go for another since the start.
    pub evictions: u64,
    /// Decisions made on the shared overflow bucket since the start.
    pub overflow_decisions: u64,
    /// Keys that have a sliding log.
    pub logs: u64,
    /// What those take, bytes.
    pub log_bytes: u64,
}

/// The connections to one upstream, over all its servers and all workers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PoolUsage {
    /// The upstream's name.
    pub upstream: String,
    /// Connections open or being opened.
    pub open: u64,
    /// Those of them without work, as of each worker's last look.
    pub idle: u64,
    /// Requests that wait for one.
    pub waiting: u64,
}

/// One shard of Redis that gateways share.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RedisUsage {
    /// Its name.
    pub shard: String,
    /// Whether it is asked.
    pub is_up: bool,
    /// How it is, in one word of a few: `up`, `unreachable`, `full` …
    pub condition: &'static str,
    /// Whether it forgets keys when its memory is full.
    pub evicts: bool,
    /// Whether its answers come within the deadline.
    pub is_quick: bool,
    /// How long nearly all of them take, nanoseconds; 0: none came yet.
    pub round_trip_ns: u64,
    /// Script calls since the start.
    pub calls: u64,
    /// Operations in them.
    pub operations: u64,
    /// Calls not answered in time.
    pub late: u64,
    /// Operations without an answer.
    pub lost: u64,
    /// Operations answered with an error.
    pub refused: u64,
    /// Calls sent again.
    pub resent: u64,
    /// Connections made.
    pub connects: u64,
    /// Times its breaker opened.
    pub opened: u64,
}

type RedisReader = Box<dyn Fn() -> Vec<RedisUsage> + Send>;
/// Memory, and what is given up to save it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryUsage {
    /// Resident memory of the process.
    pub resident_bytes: u64,
    /// What it may use; 0: nothing is set.
    pub limit_bytes: u64,
    /// 0: nothing is given up; 1: keep-alive; 2: requests; 3: connections.
    pub overload_step: u64,
}

type MemoryReader = Box<dyn Fn() -> MemoryUsage + Send>;

type PoolsReader = Box<dyn Fn() -> Vec<PoolUsage> + Send>;

type TableReader = Box<dyn Fn() -> TableUsage + Send>;

#[derive(Clone, Copy, Default)]
struct Configuration {
    generation: u64,
    loaded_unix_seconds: u64,
}

impl Metrics {
    /// Counters for `workers` data-plane threads, and the one token each of them counts with.
    pub fn new(workers: usize) -> (Arc<Metrics>, Vec<Worker>) {
        let metrics = Metrics {
            workers,
            routes: Names::new(ROUTES_MAX),
            policies: Names::new(POLICIES_MAX),
            upstreams: Names::new(UPSTREAMS_MAX),
            listeners: Names::new(LISTENERS_MAX),
            refusals: Names::new(REFUSALS_MAX),
            causes: Names::new(REFUSALS_MAX),
            certificates: Mutex::default(),
            table: Mutex::default(),
            pools: Mutex::default(),
            redis: Mutex::default(),
            memory: Mutex::default(),
            configuration: Mutex::default(),
            reloads_succeeded: Counter::default(),
            reloads_failed: Counter::default(),
            panics: Counter::default(),
            accept_errors: Counter::default(),
            auth_verifications: Counter::default(),
            access_log: AccessLog::default(),
        };
        (Arc::new(metrics), (0..workers).map(Worker::new).collect())
    }

    /// The figures of a route; of all others together (`other`) beyond [`ROUTES_MAX`] names.
    pub fn route(&self, name: &str) -> Arc<Route> {
        self.routes.named(name, || Route::new(self.workers))
    }

    /// The figures of a policy; of all others together beyond [`POLICIES_MAX`] names.
    pub fn policy(&self, name: &str) -> Arc<Policy> {
        self.policies.named(name, || Policy::new(self.workers))
    }

    /// The figures of an upstream; of all others together beyond [`UPSTREAMS_MAX`] names.
    pub fn upstream(&self, name: &str) -> Arc<Upstream> {
        self.upstreams.named(name, || Upstream::new(self.workers))
    }

    /// The figures of a listener; of all others together beyond [`LISTENERS_MAX`] names.
    pub fn listener(&self, name: &str) -> Arc<Listener> {
        self.listeners.named(name, || Listener::new(self.workers))
    }

    /// The count of requests refused for one reason: a fixed code, as the access log shows it.
    pub fn refusal(&self, reason: &'static str) -> Arc<Refusal> {
        self.refusals.named(reason, || Refusal::new(self.workers))
    }

    /// The count of refusals and failures with one cause: a fixed word, as the access log shows it.
    pub fn cause(&self, word: &'static str) -> Arc<Refusal> {
        self.causes.named(word, || Refusal::new(self.workers))
    }

    /// A configuration serves since `unix_seconds`.
    pub fn published(&self, generation: u64, unix_seconds: u64) {
        *lock(&self.configuration) = Configuration { generation, loaded_unix_seconds: unix_seconds };
    }

    /// A reload took effect.
    pub fn reload_succeeded(&self) {
        self.reloads_succeeded.add(1);
    }

    /// A reload was refused; the old configuration goes on serving.
    pub fn reload_failed(&self) {
        self.reloads_failed.add(1);
    }

    /// Replaces what is known of the certificates being served. One that is named twice shows once: a scraper
    /// refuses everything where two samples have the same labels.
    pub fn set_certificates(&self, mut certificates: Vec<CertificateExpiry>) {
        certificates.sort_by(|one, other| one.labels().cmp(&other.labels()));
        certificates.dedup_by(|one, other| one.labels() == other.labels());
        *lock(&self.certificates) = certificates;
    }

    /// Says where a scrape reads the local table's figures.
    pub fn set_table(&self, read: impl Fn() -> TableUsage + Send + 'static) {
        *lock(&self.table) = Some(Box::new(read));
    }

    /// Says where a scrape reads the use of memory.
    pub fn set_memory(&self, read: impl Fn() -> MemoryUsage + Send + 'static) {
        *lock(&self.memory) = Some(Box::new(read));
    }

    /// Says where a scrape reads the state of connections upstream: one [`PoolUsage`] an upstream.
    pub fn set_pools(&self, read: impl Fn() -> Vec<PoolUsage> + Send + 'static) {
        *lock(&self.pools) = Some(Box::new(read));
    }

    /// Says where a scrape reads the state of Redis: one [`RedisUsage`] a shard.
    pub fn set_redis(&self, read: impl Fn() -> Vec<RedisUsage> + Send + 'static) {
        *lock(&self.redis) = Some(Box::new(read));
    }
}

impl fmt::Debug for Metrics {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Metrics").field("workers", &self.workers).finish_non_exhaustive()
    }
}

impl CertificateExpiry {
    fn labels(&self) -> (&str, &str, &Path) {
        (&self.listener, &self.subject, &self.file)
    }
}

impl Counter {
    /// Raises it.
    pub fn add(&self, count: u64) {
        self.0.fetch_add(count, Ordering::Relaxed);
    }

    /// What it stands at.
    pub fn value(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Series by name, at most `max` of them and one more for the rest. They are never taken away again: a counter
/// that vanishes on a reload and comes back at zero would spoil every rate.
struct Names<T> {
    max: usize,
    series: Mutex<BTreeMap<Box<str>, Arc<T>>>,
}

impl<T> Names<T> {
    fn new(max: usize) -> Names<T> {
        Names { max, series: Mutex::default() }
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

/// A thread that panicked while it held one of these locks has left nothing half done behind.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Routes that have figures of their own.
pub const ROUTES_MAX: usize = 4096;
/// Policies that have figures of their own.
pub const POLICIES_MAX: usize = 4096;
/// Upstreams that have figures of their own.
pub const UPSTREAMS_MAX: usize = 1024;
/// Listeners that have figures of their own.
pub const LISTENERS_MAX: usize = 256;
/// Reasons, and causes, that have figures of their own.
pub const REFUSALS_MAX: usize = 256;
/// The name of everything beyond those bounds.
pub const OTHER: &str = "other";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_name_keeps_its_figures_over_reloads() {
        let (metrics, workers) = Metrics::new(1);
        metrics.policy("search").decided(&workers[0], Decision::Admitted);
        metrics.policy("search").decided(&workers[0], Decision::Admitted);
        assert!(Arc::ptr_eq(&metrics.policy("search"), &metrics.policy("search")));
        assert_eq!(metrics.policy("search").decisions(Decision::Admitted), 2);
    }

    #[test]
    fn names_beyond_the_bound_share_one_series() {
        let names = Names::<u8>::new(2);
        let first = names.named("a", || 1);
        names.named("b", || 2);
        let third = names.named("c", || 3);
        assert!(Arc::ptr_eq(&third, &names.named("d", || 4)));
        assert!(Arc::ptr_eq(&first, &names.named("a", || 5)));
        let listed: Vec<_> = names.all().into_iter().map(|(name, _)| name.into_string()).collect();
        assert_eq!(listed, ["a", "b", OTHER]);
    }
}
