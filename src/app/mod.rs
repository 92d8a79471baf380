//! Wires the other modules together: turns a configuration into a snapshot, listeners and workers, and signals into
//! reload and drain. No other module knows them all.
//!
//! The control runtime runs here, beside the workers. It never serves a request, and no request waits for it.

mod admin_state;
mod certificates;
pub mod descriptors;
pub mod explain;
mod files;
mod first_try;
mod inherited;
mod keys;
mod listeners;
mod neighbour;
mod orders;
mod publisher;
mod redis_view;
mod reload;
mod service_manager;
mod shared_tier;
mod upgrade;
mod upstreams;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize};
use std::time::Duration;

use anyhow::Context;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio::time::MissedTickBehavior;

use crate::admin::{self, Phase, Readiness};
use crate::cause::Cause;
use crate::config::{Config, Shutdown};
use crate::limiter::Limiter;
use crate::metrics::Metrics;
use crate::proxy::services::{self, Services};
use crate::server::run;
use crate::server::worker::{Deadlines, Order, Shared};
use crate::service::overload::Overload;
use crate::service::reason::Reason;
use crate::{clock, record, upstream};
use inherited::Inherited;
pub use publisher::prepare::{Prepared, prepare};
use publisher::{Process, Publisher};
use service_manager::Alive;
pub use shared_tier::{explain_from_outside, measure_from_outside};
pub use upgrade::request as request_upgrade;
use upgrade::{Predecessor, Program, Report, UnderWay};

/// What a process has before it begins: sockets, and whose place it takes.
#[derive(Debug, Default)]
pub struct Inheritance {
    sockets: Inherited,
    predecessor: Option<Predecessor>,
}

/// What this process inherits: from a predecessor, or from systemd. Has to be called before anything reads the clock.
///
/// # Errors
/// If a predecessor does not say what it has to, or systemd passes what is no listening socket.
pub fn inherit() -> anyhow::Result<Inheritance> {
    match upgrade::find()? {
        Some((predecessor, sockets)) => Ok(Inheritance { sockets, predecessor: Some(predecessor) }),
        None => Ok(Inheritance { sockets: Inherited::from_systemd()?, predecessor: None }),
    }
}

/// The process that listens on one of the addresses of a configuration, if it can be seen.
pub fn process_listening(config: &Config) -> Option<u32> {
    let admin = config.admin.iter().filter_map(|admin| match admin.bind {
        admin::Bind::Tcp(addr) => Some(addr),
        admin::Bind::Unix(_) => None,
    });
    let addresses = admin.chain(config.listeners.iter().map(|listener| listener.bind));
    addresses.filter(|addr| addr.port() != 0).find_map(neighbour::on).map(|process| process.pid())
}

/// Runs the gateway until a signal stops it. `prepared` comes from the file at `path`, which SIGHUP reads again.
///
/// # Errors
/// If the gateway cannot start: an address is in use, a certificate cannot be read, a thread cannot be spawned.
pub fn run(path: &Path, prepared: Prepared, inheritance: Inheritance) -> anyhow::Result<()> {
    let config = &prepared.loaded.config;
    let limit = crate::descriptors::raise();
    descriptors::keep(config, limit);
    if let Some(warning) = descriptors::warning(config, limit) {
        tracing::warn!("{warning}");
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .thread_name("control")
        .enable_all()
        .build()
        .context("the control runtime does not start")?;
    let ended = {
        let _entered = runtime.enter();
        // First, because the default action of these signals ends the process: a SIGHUP during a slow start would kill it.
        let signals = Signals::new().context("signals")?;
        Gateway::start(path, &prepared.loaded.config, inheritance.predecessor.as_ref())
            .and_then(|gateway| runtime.block_on(gateway.serve(prepared, inheritance, signals)))
    };
    // A reload that the stop has cancelled may still be reading a file in a blocking thread, which cannot be aborted.
    runtime.shutdown_background();
    ended
}

/// Everything that lives as long as the process.
struct Gateway {
    config_path: PathBuf,
    publisher: Publisher,
    metrics: Arc<Metrics>,
    workers: Vec<std::thread::JoinHandle<()>>,
    shared: Arc<Shared>,
    log: Arc<record::Log>,
    readiness: Readiness,
    admin: Option<(admin::Config, Arc<admin::State>)>,
    /// The admin listener, once it is open.
    admin_serving: Option<AdminServing>,
    /// What a successor is told.
    program: Program,
    salt: [u8; 16],
    table_bytes: usize,
    shared_tier: Option<shared_tier::SharedTier>,
}

/// The admin listener at work.
struct AdminServing {
    socket: admin::Shared,
    task: Option<JoinHandle<()>>,
    /// Lets it end when it is dropped: answers under way are given.
    stop: Option<oneshot::Sender<()>>,
}

impl Gateway {
    /// Starts everything that is fixed when a process starts, as `config` says. Nothing is served yet.
    fn start(path: &Path, config: &Config, predecessor: Option<&Predecessor>) -> anyhow::Result<Gateway> {
        let program = Program::of_this_process().context("the path of this program")?;
        let wanted_bytes = shared_tier::own_bytes_of(config);
        let table_bytes = predecessor.map_or(wanted_bytes, |before| before.table_bytes);
        if table_bytes != wanted_bytes {
            tracing::warn!(
                setting = "limits.memory",
                "the table of the predecessor is kept: a change takes effect after a restart"
            );
        }
        let salt = match predecessor {
            Some(before) if config.redis.is_none() => before.salt,
            _ => shared_tier::salt(config),
        };
        let count = config.workers.unwrap_or_else(cores);
        let (metrics, cells) = Metrics::new(count);
        let log = Arc::new(record::Log::open(&config.access_log.to, &metrics.access_log)?);
        let (limiter, shared_tier) = shared_tier::limiter(config, table_bytes)?;
        let (senders, receivers): (Vec<_>, Vec<_>) = (0..count).map(|_| mpsc::channel(ORDERS)).unzip();
        let overload = Arc::new(Overload::new(config.overload.clone()));
        let process = Process {
            limiter: Arc::clone(&limiter),
            metrics: Arc::clone(&metrics),
            overload: Arc::clone(&overload),
            log: Arc::clone(&log),
            orders: senders.clone(),
            salt,
        };
        let publisher = Publisher::new(process, config)?;
        let services = Arc::new(services::Shared {
            current: Arc::clone(publisher.current()),
            overload: Arc::clone(&overload),
            limiter: Arc::clone(&limiter),
            challenges: Arc::clone(publisher.challenges()),
            gathered: Arc::default(),
            refusals: Reason::ALL.iter().map(|reason| metrics.refusal(reason.code())).collect(),
            causes: Cause::ALL.iter().map(|cause| metrics.cause(cause.word())).collect(),
            auth_verifications: metrics.auth_verifications.clone(),
            workers: count,
        });
        let shared = Arc::new(Shared {
            overload: Arc::clone(&overload),
            panics: metrics.panics.clone(),
            accept_errors: metrics.accept_errors.clone(),
            turns: (0..count).map(|_| AtomicU64::new(0)).collect(),
            loads: (0..count).map(|_| AtomicUsize::new(0)).collect(),
            orders: senders,
        });
        let mut workers = Vec::with_capacity(count);
        for ((index, cells), orders) in cells.into_iter().enumerate().zip(receivers) {
            let (services, log) = (Arc::clone(&services), log.buffer());
            let services = move || Services::new(services, cells, log);
            let worker = run::spawn(index, Arc::clone(&shared), orders, services);
            workers.push(worker.context("a worker does not start")?);
        }
        register(&metrics, &publisher, &limiter, &overload);
        if let Some(shared_tier) = &shared_tier {
            shared_tier.show(&metrics);
        }
        let readiness = Readiness::default();
        let admin = config.admin.clone();
        let state = Arc::new(admin_state::state(&metrics, &readiness, &publisher, &limiter, admin.as_ref()));
        let admin = admin.map(|admin| (admin, state));
        let config_path = path.to_owned();
        Ok(Gateway {
            config_path,
            publisher,
            metrics,
            workers,
            shared,
            log,
            readiness,
            admin,
            admin_serving: None,
            program,
            salt,
            table_bytes,
            shared_tier,
        })
    }

    async fn serve(
        mut self,
        prepared: Prepared,
        inheritance: Inheritance,
        mut signals: Signals,
    ) -> anyhow::Result<()> {
        let is_ready = tokio::select! {
            begun = self.begin(prepared, inheritance) => begun.map(|()| true)?,
            () = signals.stop.any() => false,
        };
        let end = match is_ready {
            true => self.attend(&mut signals).await,
            false => End::Stop,
        };
        self.drain(signals, end).await;
        Ok(())
    }

    /// Publishes the first configuration and reports readiness. A stop signal may drop this future at any await; the
    /// gateway can then be drained like one that has fully started.
    async fn begin(&mut self, prepared: Prepared, inheritance: Inheritance) -> anyhow::Result<()> {
        let Inheritance { mut sockets, predecessor } = inheritance;
        // The admin listener is bound first because it never shares its address (no SO_REUSEPORT): of two processes
        // started at once with one configuration, the second fails here. It is served only after the first publication.
        let admin_listener = self.open_admin(&mut sockets)?;
        if let (Some(_), Some(shared_tier)) = (&predecessor, &self.shared_tier) {
            shared_tier.ready().await;
        }
        let (_, predecessor) = self.publisher.put_in_force(prepared, sockets, predecessor).await?;
        self.admin_serving =
            admin_listener.map(|(listener, state)| serve_admin(listener, state)).transpose()?;
        if predecessor.is_none() {
            self.publisher.warm_up().await;
            if let Some(shared_tier) = &self.shared_tier {
                shared_tier.ready().await;
            }
        }
        self.readiness.enter(Phase::Ready);
        if let Some(predecessor) = predecessor {
            predecessor.serving()?;
            self.metrics.upgrade_succeeded();
        }
        service_manager::ready();
        eprintln!("sluicegate: ready");
        let address = |listener: &str| self.publisher.address(listener);
        if let Some(url) = first_try::url(self.publisher.config(), address) {
            eprintln!("sluicegate: try  curl -i {url}");
        }
        Ok(())
    }

    /// Handles signals, watches files and memory, until a signal ends the service. A stop is noticed during a reload too:
    /// the reload is dropped, and what is in force can be drained.
    async fn attend(&mut self, signals: &mut Signals) -> End {
        let mut alive = Alive::new(&self.shared);
        let mut watch = tokio::time::interval(FILES_EVERY);
        watch.set_missed_tick_behavior(MissedTickBehavior::Skip);
        let mut memory = tokio::time::interval(MEMORY_EVERY);
        memory.set_missed_tick_behavior(MissedTickBehavior::Skip);
        loop {
            let asked = tokio::select! {
                asked = signals.next() => Some(asked),
                _ = watch.tick() => None,
                () = alive.due() => {
                    alive.say();
                    continue;
                }
                _ = memory.tick() => {
                    self.shared.overload.look();
                    continue;
                }
            };
            let is_reload = match asked {
                Some(Asked::Stop) => return End::Stop,
                Some(Asked::Reopen) => {
                    reopen(&self.log);
                    continue;
                }
                Some(Asked::Upgrade) => match self.upgrade(signals, &mut alive).await {
                    Some(end) => return end,
                    None => continue,
                },
                Some(Asked::Reload) => true,
                None => false,
            };
            let (publisher, path) = (&mut self.publisher, &self.config_path);
            let (log, metrics) = (&self.log, &self.metrics);
            let work = async {
                match is_reload {
                    true => reload::reload(path, publisher, log, metrics).await,
                    false => publisher.read_changed_files().await,
                }
            };
            let mut work = std::pin::pin!(work);
            loop {
                tokio::select! {
                    () = signals.stop.any() => return End::Stop,
                    () = &mut work => break,
                    _ = memory.tick() => self.shared.overload.look(),
                    () = alive.due() => alive.say(),
                }
            }
        }
    }

    /// Hands over to a successor, and says how this process is to end then; `None` if it serves on.
    async fn upgrade(&mut self, signals: &mut Signals, alive: &mut Alive) -> Option<End> {
        let report = Report::open();
        let succeeded = self.handover().map_err(anyhow::Error::from).and_then(|handover| {
            eprintln!("sluicegate: upgrading");
            Ok(self.program.clone().succeed(handover)?)
        });
        let (under_way, mut told) = match succeeded {
            Ok(under_way) => under_way,
            Err(error) => return self.not_upgraded(report, &error),
        };
        let mut memory = tokio::time::interval(MEMORY_EVERY);
        loop {
            tokio::select! {
                told = &mut told => return match told.map_err(anyhow::Error::from).and_then(|told| Ok(told?)) {
                    Ok(pid) => Some(self.upgraded(under_way, report, pid)),
                    Err(error) => self.not_upgraded(report, &error),
                },
                asked = signals.next() => match asked {
                    Asked::Reload => eprintln!("sluicegate: upgrading, SIGHUP is ignored"),
                    Asked::Reopen => reopen(&self.log),
                    Asked::Upgrade => refuse_upgrade("an upgrade is under way"),
                    Asked::Stop => {
                        report.end(false, "the process was told to stop meanwhile");
                        return Some(End::Stop);
                    }
                },
                _ = memory.tick() => self.shared.overload.look(),
                () = alive.due() => alive.say(),
            }
        }
    }

    /// What a successor is given.
    fn handover(&self) -> std::io::Result<upgrade::Handover> {
        let mut sockets = self.publisher.share_sockets()?;
        if let (Some((config, _)), Some(serving)) = (&self.admin, &self.admin_serving) {
            sockets.push((ADMIN.to_owned(), admin_place(&config.bind), serving.socket.socket.try_clone()?));
        }
        let limiter = Arc::clone(self.publisher.limiter());
        Ok(upgrade::Handover { sockets, limiter, salt: self.salt, table_bytes: self.table_bytes })
    }

    fn upgraded(&mut self, under_way: UnderWay, report: Report, pid: u32) -> End {
        under_way.finish();
        service_manager::main_process(pid);
        let done = format!("process {pid} serves, process {} drains", std::process::id());
        eprintln!("sluicegate: upgraded: {done}");
        report.end(true, &done);
        if let Some(serving) = &mut self.admin_serving {
            serving.socket.leave_file();
            // Probes ask the successor from here on.
            serving.stop = None;
        }
        End::Upgraded
    }

    fn not_upgraded(&self, report: Report, error: &anyhow::Error) -> Option<End> {
        let error = error_chain(error);
        self.metrics.upgrade_failed();
        tracing::error!("not upgraded, this process serves on: {error}");
        report.end(false, &format!("not upgraded, process {} serves on: {error}", std::process::id()));
        None
    }

    /// Opens the admin listener, if there is to be one.
    fn open_admin(
        &self,
        inherited: &mut Inherited,
    ) -> anyhow::Result<Option<(admin::Listener, Arc<admin::State>)>> {
        let Some((config, state)) = &self.admin else { return Ok(None) };
        let listener = match inherited.take(ADMIN, &admin_place(&config.bind)).pop() {
            Some(socket) => admin::Listener::adopt(socket, &config.bind),
            None => admin::Listener::bind(&config.bind),
        };
        let listener = listener.map_err(|error| match config.bind {
            admin::Bind::Tcp(addr) => listeners::in_use(error.into(), addr),
            admin::Bind::Unix(_) => error.into(),
        })?;
        match (&config.bind, listener.tcp_address()) {
            (_, Some(addr)) => eprintln!("sluicegate: admin on http://{addr}"),
            (admin::Bind::Unix(path), None) => eprintln!("sluicegate: admin on unix:{}", path.display()),
            (admin::Bind::Tcp(_), None) => {}
        }
        Ok(Some((listener, Arc::clone(state))))
    }

    /// Reports not ready, waits `shutdown.ready-delay` so that load balancers notice, stops accepting, and lets
    /// requests finish until `shutdown.drain` is over. After an upgrade nobody has to notice, so there is no delay.
    async fn drain(mut self, mut signals: Signals, end: End) {
        let shutdown = self.publisher.shutdown();
        eprintln!("sluicegate: draining");
        self.readiness.enter(Phase::Draining);
        self.publisher.stop_ordering();
        if end == End::Stop {
            service_manager::stopping();
        }
        let heard = Arc::clone(&self.log);
        let signals = tokio::spawn(async move { while_draining(&mut signals, &heard).await });
        if end == End::Stop {
            tokio::time::sleep(shutdown.ready_delay).await;
        }
        self.publisher.let_sockets_go();
        let deadlines = deadlines(&shutdown, end);
        for orders in &self.shared.orders {
            let _ = orders.send(Order::Drain(deadlines)).await;
        }
        let workers = self.workers;
        let joined =
            tokio::task::spawn_blocking(move || workers.into_iter().all(|worker| worker.join().is_ok()));
        if !joined.await.unwrap_or(false) {
            tracing::error!("a worker ended in a panic");
        }
        if let Some(shared_tier) = self.shared_tier {
            shared_tier.close().await;
        }
        signals.abort();
        let _ = signals.await;
        // The publisher owns a reference to the log, which can be closed only by its last owner.
        drop(self.publisher);
        let dropped = Arc::into_inner(self.log).map_or(0, |log| log.close(LOG_WAIT));
        if dropped > 0 {
            tracing::warn!(dropped, "access-log lines were not written in time");
        }
        if let Some(admin) = self.admin_serving.and_then(|serving| serving.task) {
            admin.abort();
        }
        eprintln!("sluicegate: stopped");
    }
}

/// How a process ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// Nobody takes its place.
    Stop,
    /// A successor accepts in its place.
    Upgraded,
}

/// When the moments of a drain come that begins now.
fn deadlines(shutdown: &Shutdown, end: End) -> Deadlines {
    let now = clock::instant();
    let requests = now + shutdown.drain;
    match end {
        End::Stop => Deadlines { idle: now, tunnels: now + shutdown.drain_tunnels, requests },
        // Nobody waits for this process: clients that have a connection are served once more, and tunnels stay.
        End::Upgraded => Deadlines {
            idle: now + IDLE_SERVED.min(shutdown.drain / 2),
            tunnels: now + shutdown.drain_tunnels.max(shutdown.drain),
            requests,
        },
    }
}

fn serve_admin(listener: admin::Listener, state: Arc<admin::State>) -> anyhow::Result<AdminServing> {
    let socket = listener.share().context("admin listener")?;
    let (stop, stopped) = oneshot::channel();
    let stopped = async {
        let _: Result<(), _> = stopped.await;
    };
    let task = tokio::spawn(admin::serve(listener, state, stopped));
    Ok(AdminServing { socket, task: Some(task), stop: Some(stop) })
}

/// Where the admin listener is, as its configuration writes it.
fn admin_place(bind: &admin::Bind) -> String {
    match bind {
        admin::Bind::Tcp(addr) => addr.to_string(),
        admin::Bind::Unix(path) => format!("unix:{}", path.display()),
    }
}

/// Registers the parts of the process that write metric families of their own at each scrape.
fn register(metrics: &Metrics, publisher: &Publisher, limiter: &Arc<Limiter>, overload: &Arc<Overload>) {
    let current = Arc::clone(publisher.current());
    metrics.register(move |families| upstream::families::collect(&current.load().upstreams, families));
    let expiries = publisher.expiries().clone();
    metrics.register(move |families| expiries.collect(families));
    metrics.register(publisher.orders().collect());
    let overload = Arc::clone(overload);
    metrics.register(move |families| overload.collect(families));
    let limiter = Arc::clone(limiter);
    metrics.register(move |families| limiter.table().collect(families));
}

/// The signals the gateway listens to.
struct Signals {
    hup: Signal,
    usr1: Signal,
    usr2: Signal,
    stop: Stop,
}

/// The signals that ask to stop.
struct Stop {
    term: Signal,
    quit: Signal,
    int: Signal,
}

/// What a signal asks for.
enum Asked {
    /// SIGHUP.
    Reload,
    /// SIGUSR1: reopen the access log after it was rotated.
    Reopen,
    /// SIGUSR2: hand over to a new binary.
    Upgrade,
    /// SIGTERM, SIGQUIT or SIGINT.
    Stop,
}

impl Signals {
    fn new() -> std::io::Result<Signals> {
        let stop = Stop {
            term: signal(SignalKind::terminate())?,
            quit: signal(SignalKind::quit())?,
            int: signal(SignalKind::interrupt())?,
        };
        Ok(Signals {
            hup: signal(SignalKind::hangup())?,
            usr1: signal(SignalKind::user_defined1())?,
            usr2: signal(SignalKind::user_defined2())?,
            stop,
        })
    }
}

impl Signals {
    async fn next(&mut self) -> Asked {
        tokio::select! {
            _ = self.hup.recv() => Asked::Reload,
            _ = self.usr1.recv() => Asked::Reopen,
            _ = self.usr2.recv() => Asked::Upgrade,
            () = self.stop.any() => Asked::Stop,
        }
    }
}

impl Stop {
    /// Waits for any of them. Cancel-safe, because `Signal::recv` is.
    async fn any(&mut self) {
        tokio::select! {
            _ = self.term.recv() => {}
            _ = self.quit.recv() => {}
            _ = self.int.recv() => {}
        }
    }
}

/// Handles signals until the drain is over. A second stop signal ends the process at once, for operators who do not want
/// to wait for `shutdown.drain`.
async fn while_draining(signals: &mut Signals, log: &record::Log) {
    loop {
        match signals.next().await {
            Asked::Reload => eprintln!("sluicegate: draining, SIGHUP is ignored"),
            Asked::Reopen => reopen(log),
            Asked::Upgrade => refuse_upgrade("the process drains"),
            Asked::Stop => {
                eprintln!("sluicegate: stopped at once by a second signal");
                std::process::exit(1);
            }
        }
    }
}

fn reopen(log: &record::Log) {
    match log.reopen() {
        Ok(()) => eprintln!("sluicegate: logs reopened"),
        Err(error) => tracing::error!(%error, "the access log cannot be reopened, the old file stays in use"),
    }
}

fn refuse_upgrade(why: &str) {
    eprintln!("sluicegate: SIGUSR2 is ignored: {why}");
    Report::open().end(false, why);
}

/// An error and its causes, joined by `: `. A cause that the message before it ends with already is left out, since some
/// libraries print their source as part of their own message.
pub fn error_chain(error: &anyhow::Error) -> String {
    let mut text = String::new();
    for cause in error.chain().map(ToString::to_string) {
        if text.ends_with(&cause) {
            continue;
        }
        if !text.is_empty() {
            text.push_str(": ");
        }
        text.push_str(&cause);
    }
    text
}

/// The cores this process may use; cgroup quotas and affinity count.
fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Orders that may wait for one worker.
const ORDERS: usize = 1024;
/// How often certificates and files of keys are looked at for changes.
const FILES_EVERY: Duration = Duration::from_secs(1);
/// How often resident memory is compared with the marks of `[overload]`.
const MEMORY_EVERY: Duration = Duration::from_millis(250);
/// How long idle connections go on to be served once after a successor has taken over.
const IDLE_SERVED: Duration = Duration::from_secs(5);
/// The name of the admin listener's socket.
const ADMIN: &str = "admin";
/// How long a stop waits for the access log: its reader may be a pipe that nobody reads.
const LOG_WAIT: Duration = Duration::from_secs(2);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_repeated_cause_is_printed_once() {
        let taken = || anyhow::anyhow!("address in use");
        assert_eq!(
            error_chain(&taken().context("admin on 127.0.0.1:1: address in use")),
            "admin on 127.0.0.1:1: address in use"
        );
        assert_eq!(error_chain(&taken().context("admin").context("start")), "start: admin: address in use");
    }
}
