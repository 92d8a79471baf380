//! The gateway as a process: started once, given configurations by the publisher, told by signals what to do, and drained.
//!
//! `succession.rs` hands over to a new binary, `drain.rs` ends the process.

mod drain;
mod succession;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::Context;
use tokio::sync::mpsc;
use tokio::sync::watch;
use tokio::time::MissedTickBehavior;

use super::control::{Control, Policies};
use super::counts::{Clocks, Counts};
use super::decisions;
use super::envoy::Rls;
use super::fleet::shared_tier::SharedTier;
use super::fleet::values_in_redis::ValuesInRedis;
use super::fleet::{node_name, shared_tier};
use super::hot_keys::HotKeys;
use super::lines::say;
use super::logs::Logs;
use super::publisher::prepare::PreparedConfig;
use super::publisher::{Process, Publisher};
use super::read_files::OutdatedFiles;
use super::signals::{SignalRequest, Signals};
use super::sockets::listening::{self, Role};
use super::upgrade::{Predecessor, Program, SpendExchange, UpgradeRequester};
use super::upkeep::Upkeep;
use super::utilisation::Utilisation;
use super::views::last_reload::LastReload;
use super::views::{admin_state, first_try};
use super::{Inheritance, live, reload, service_manager};
use base::cause::Cause;
use config::Config;
use control::admin::{self, ProcessPhase, Readiness};
use gateway::proxy::request::buffered_body::BufferBudget;
use gateway::proxy::services;
use gateway::server::worker::{WorkerCommand, WorkerResources};
use gateway::service::overload::Overload;
use gateway::service::reason::Reason;
use gateway::workers;
use metrics::usage;
use metrics::{Metrics, WorkerToken};
use observe::trace::Exporter;
use upstream::dns::Dns;

/// Everything that lives as long as the process.
pub(super) struct Gateway {
    config_path: PathBuf,
    publisher: Publisher,
    workers: Vec<JoinHandle<()>>,
    shared: Arc<WorkerResources>,
    utilisation: Arc<Utilisation>,
    decisions: decisions::SampleWriters,
    readiness: Readiness,
    admin: Option<(admin::Config, Arc<admin::AdminState>)>,
    admin_serving: Option<listening::Serving>,
    /// What the gRPC listener answers with, until it does.
    grpc: Option<Rls>,
    grpc_serving: Option<listening::Serving>,
    /// What a successor is told.
    program: Program,
    table_bytes: usize,
    shared_tier: Option<SharedTier>,
    control: Option<Control>,
    watching: Option<tokio::task::JoinHandle<()>>,
    last_reload: LastReload,
    telling: Option<tokio::task::JoinHandle<()>>,
    /// What this process and its predecessor tell each other.
    predecessor: Option<SpendExchange>,
    /// The same with its successor.
    successor: Option<SpendExchange>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Stop,
    /// A successor accepts in its place.
    Upgraded,
}

impl Gateway {
    /// Starts everything that is fixed when a process starts, as the first configuration says. Nothing is served yet.
    pub(super) fn start(
        path: &Path,
        prepared: &PreparedConfig,
        predecessor: Option<&Predecessor>,
        takes_time: bool,
    ) -> anyhow::Result<Gateway> {
        let config = &prepared.loaded.config;
        let program = Program::of_this_process().context("cannot find the path of this program")?;
        let (table_bytes, salt) = memory_of(config, predecessor);
        let count = config.workers.unwrap_or_else(cores);
        // gRPC has as many threads as there are workers, or none.
        let grpc_threads = if config.grpc.is_some() { count } else { 0 };
        let (metrics, mut cells) = Metrics::new(count + grpc_threads);
        let grpc_cells = cells.split_off(count);
        let (process, receivers, shared_tier) = process(config, metrics, count, (table_bytes, salt))?;
        let publisher = Publisher::new(process, config)?;
        let Process { metrics, samples, logs, .. } = &publisher.process;
        let usage = usage_of(config);
        let hot_keys =
            config.limits.hot_keys.then(|| HotKeys::new(&publisher, metrics, shared_tier.as_ref()));
        let services = services(&publisher, usage.clone(), hot_keys.as_ref());
        let (shared, workers) = start_workers(&publisher.process, services, cells, receivers)?;
        let utilisation = Utilisation::new(&shared);
        register(&publisher, &utilisation, shared_tier.as_ref());
        let (readiness, last_reload) = (Readiness::default(), LastReload::default());
        let counts = Counts {
            current: Arc::clone(&publisher.current),
            limiter: Arc::clone(&publisher.process.limiter),
            metrics: Arc::clone(metrics),
            usage,
            hot_keys: hot_keys.clone(),
            clocks: takes_time.then(Clocks::now),
        };
        let grpc = Rls::new(config.grpc.as_ref(), &counts, &readiness, grpc_cells, samples);
        let control = Control::start(config, &counts, shared_tier.as_ref(), prepared.issued());
        let shown = (readiness.clone(), last_reload.clone());
        let live = live_sources(&publisher, shown, control.as_ref(), shared_tier.as_ref());
        let fleet = shared_tier.as_ref().map(|tier| live::Fleet::new(tier.shared_values()));
        let telling = fleet.clone().map(|fleet| tokio::spawn(fleet.follow(live.clone())));
        let admin = config.admin.clone().map(|admin| {
            let control = control.as_ref().map(Control::for_operators);
            let state = admin_state::state(&counts, &publisher, (live, fleet), control, &admin);
            (admin, Arc::new(state))
        });
        let recorded = control.as_ref().filter(|_| config.decisions.in_database);
        let database = recorded.map(Control::database);
        let decisions = decisions::SampleWriters::start(samples, &logs.decisions, database, metrics);
        Ok(Gateway {
            config_path: path.to_owned(),
            publisher,
            decisions,
            workers,
            shared,
            utilisation,
            readiness,
            admin,
            admin_serving: None,
            grpc,
            grpc_serving: None,
            program,
            table_bytes,
            shared_tier,
            control,
            telling,
            watching: hot_keys.map(|keys| tokio::spawn(keys.follow())),
            last_reload,
            predecessor: None,
            successor: None,
        })
    }

    /// Serves until a signal ends the process, and drains it.
    ///
    /// # Errors
    /// If the first configuration cannot be put into force.
    pub(super) async fn serve(
        mut self,
        prepared: PreparedConfig,
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
    async fn begin(&mut self, prepared: PreparedConfig, inheritance: Inheritance) -> anyhow::Result<()> {
        let Inheritance { mut sockets, predecessor } = inheritance;
        // The admin listener is bound first because it never shares its address (no SO_REUSEPORT): of two processes
        // started at once with one configuration, the second fails here. It is served only after the first publication.
        let (expiries, stale) = (self.publisher.listeners.expiries().clone(), self.publisher.stale.clone());
        let admin = match &self.admin {
            Some((config, state)) => {
                let opened =
                    listening::open(Role::Admin, &config.bind, config.tls.as_ref(), &mut sockets, &expiries)?;
                Some((opened, Arc::clone(state)))
            }
            None => None,
        };
        let grpc = self.grpc.take().map(|rls| {
            let rls::Config { bind, tls, .. } = rls.config();
            let opened = listening::open(Role::Grpc, bind, tls.as_ref(), &mut sockets, &expiries)?;
            anyhow::Ok((opened, rls))
        });
        let grpc = grpc.transpose()?;
        if let (Some(_), Some(shared_tier)) = (&predecessor, &self.shared_tier) {
            shared_tier.ready().await;
        }
        let (prepared, rows) = match &self.control {
            Some(control) => {
                control.ready().await;
                let (prepared, version, refused) =
                    reload::with_rows(&self.config_path, prepared, control).await?;
                (prepared, Some((control, version, refused)))
            }
            None => (prepared, None),
        };
        let (_, predecessor) = self.publisher.put_in_force(prepared, sockets, predecessor).await?;
        if let Some((control, version, refused)) = rows {
            control.published(version, refused, false);
        }
        self.admin_serving = admin.map(|(opened, state)| serve_admin(opened, state, &stale)).transpose()?;
        self.grpc_serving =
            grpc.map(|(opened, rls)| opened.serve(&stale, |parts| rls.begin(parts))).transpose()?;
        if predecessor.is_none() {
            self.publisher.meet_peers().await;
            if let Some(shared_tier) = &self.shared_tier {
                shared_tier.ready().await;
            }
        }
        self.readiness.enter(ProcessPhase::Ready);
        if let Some(predecessor) = predecessor {
            self.predecessor = predecessor.serving(&self.publisher.process.limiter)?;
            self.publisher.listeners.own_files();
            self.admin_serving.iter().chain(&self.grpc_serving).for_each(listening::Serving::own_file);
            self.publisher.process.metrics.upgrade_succeeded();
        }
        service_manager::ready();
        say(format_args!("ready (process {})", std::process::id()));
        let address = |listener: &str| self.publisher.listeners.address(listener);
        if let Some(url) = first_try::url(&self.publisher.config, address) {
            say(format_args!("try  curl -i {url}"));
        }
        Ok(())
    }

    /// Handles signals, and watches files, memory and the control plane, until a signal ends the service.
    async fn attend(&mut self, signals: &mut Signals) -> End {
        let mut upkeep = Upkeep::new(&self.shared, &self.utilisation, &self.publisher.process.logs);
        let mut watch = tokio::time::interval(FILES_EVERY);
        watch.set_missed_tick_behavior(MissedTickBehavior::Skip);
        let mut policies = self.control.as_ref().map(Control::policies);
        loop {
            let due = tokio::select! {
                asked = signals.next() => match asked {
                    SignalRequest::Reload => Due::Reload,
                    SignalRequest::Stop => return End::Stop,
                    SignalRequest::Reopen => {
                        reopen(&self.publisher.process.logs);
                        continue;
                    }
                    SignalRequest::Upgrade => match self.hand_over(signals, &mut upkeep).await {
                        Some(end) => return end,
                        None => continue,
                    },
                },
                () = changed(&mut policies) => Due::Policies,
                _ = watch.tick() => Due::Files,
                () = upkeep.turn() => continue,
            };
            if self.publish(due, signals, &mut upkeep).await == Some(End::Stop) {
                return End::Stop;
            }
        }
    }

    /// Publishes what is due. A stop signal drops that midway: what is in force can be drained.
    async fn publish(&mut self, due: Due, signals: &mut Signals, upkeep: &mut Upkeep) -> Option<End> {
        let (publisher, path) = (&mut self.publisher, &self.config_path);
        let (control, last) = (self.control.as_ref(), &self.last_reload);
        let work = async {
            match due {
                Due::Reload => reload::reload(path, publisher, control, last).await,
                Due::Policies => {
                    if let Some(control) = control {
                        reload::follow(publisher, control, last).await;
                    }
                }
                Due::Files => {
                    publisher.read_changed_files().await;
                    if let Some(control) = control.filter(|control| control.is_stuck()) {
                        reload::follow(publisher, control, last).await;
                    }
                    if let Err(error) = publisher.end_changes().await {
                        tracing::error!(%error, "policies whose algorithm changed still count by the previous algorithm, \
                            too; the gateway will retry");
                    }
                }
            }
        };
        let mut work = std::pin::pin!(work);
        loop {
            tokio::select! {
                () = signals.stop.any() => return Some(End::Stop),
                () = &mut work => return None,
                () = upkeep.turn() => {}
            }
        }
    }
}

fn serve_admin(
    opened: listening::OpenListener,
    state: Arc<admin::AdminState>,
    stale: &OutdatedFiles,
) -> anyhow::Result<listening::Serving> {
    opened.serve(stale, |listening::ListenerParts { listener, settings, stopped }| {
        Ok(admin::spawn(listener, settings, state, stopped))
    })
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Due {
    /// Everything, as the files have it now.
    Reload,
    /// The same with the policies of the database as they are now.
    Policies,
    /// Certificates, keys and users whose files have changed, and windows whose change of algorithm has ended.
    Files,
}

async fn changed(policies: &mut Option<watch::Receiver<Policies>>) {
    let has_changed = match policies {
        Some(policies) => policies.changed().await.is_ok(),
        None => false,
    };
    if !has_changed {
        std::future::pending::<()>().await;
    }
}

/// Memory of the limiter's table in bytes, and what its keys are hashed with: a predecessor's, whose states are taken
/// over, or as the configuration says.
fn memory_of(config: &Config, predecessor: Option<&Predecessor>) -> (usize, [u8; 16]) {
    let wanted = shared_tier::own_bytes_of(config);
    let bytes = predecessor.map_or(wanted, |before| before.hello.table_bytes);
    if bytes != wanted {
        tracing::warn!(
            setting = "limits.memory",
            "an upgrade keeps the memory of limits as it is: the changed setting takes effect after a restart"
        );
    }
    let salt = match predecessor {
        Some(before) if config.redis.is_none() => before.hello.salt,
        _ => shared_tier::salt(config),
    };
    (bytes, salt)
}

/// What gathers usage by the minute, if there is a database to write it to and the configuration asks for rows.
fn usage_of(config: &Config) -> Option<Arc<usage::UsageCollector>> {
    let most = config.database.as_ref()?.usage_rows;
    (most > 0).then(|| Arc::new(usage::UsageCollector::new(most)))
}

/// The parts of the process that a publication changes, where each worker hears its commands, and the tier that a fleet
/// shares.
fn process(
    config: &Config,
    metrics: Arc<Metrics>,
    workers: usize,
    (table_bytes, salt): (usize, [u8; 16]),
) -> anyhow::Result<(Process, Vec<mpsc::Receiver<WorkerCommand>>, Option<SharedTier>)> {
    let logs = Logs::open(config, &metrics)?;
    let exporter = Exporter::start(Arc::new(Dns::new(config.dns.clone())).connect(), &metrics.spans);
    exporter.switch(config.trace.as_ref(), &node_name::node(&config.node).name);
    let (limiter, shared_tier) = shared_tier::limiter(config, table_bytes)?;
    let (commands, receivers) = (0..workers).map(|_| mpsc::channel(COMMANDS)).unzip();
    let fleet_values =
        shared_tier.as_ref().map(|tier| Arc::new(ValuesInRedis(tier.shared_values())) as Arc<_>);
    let process = Process {
        limiter,
        metrics,
        overload: Arc::new(Overload::new(config.overload.clone())),
        logs,
        samples: Arc::default(),
        exporter: Arc::new(exporter),
        commands,
        fleet_values,
        salt,
    };
    Ok((process, receivers, shared_tier))
}

/// Starts the workers, which share these services, and returns what they share with the control runtime.
fn start_workers(
    process: &Process,
    services: services::SharedServices,
    cells: Vec<WorkerToken>,
    receivers: Vec<mpsc::Receiver<WorkerCommand>>,
) -> anyhow::Result<(Arc<WorkerResources>, Vec<JoinHandle<()>>)> {
    let count = receivers.len();
    let shared = Arc::new(WorkerResources {
        overload: Arc::clone(&process.overload),
        panics: process.metrics.panics.clone(),
        accept_errors: process.metrics.accept_errors.clone(),
        turns: (0..count).map(|_| AtomicU64::new(0)).collect(),
        busy_ns: (0..count).map(|_| AtomicU64::new(0)).collect(),
        loads: (0..count).map(|_| AtomicUsize::new(0)).collect(),
        commands: process.commands.iter().cloned().collect(),
    });
    let workers = workers::spawn(&shared, &Arc::new(services), &process.logs.access, cells, receivers)
        .context("cannot start a worker")?;
    Ok((shared, workers))
}

fn services(
    publisher: &Publisher,
    usage: Option<Arc<usage::UsageCollector>>,
    hot_keys: Option<&HotKeys>,
) -> services::SharedServices {
    let Process { metrics, overload, limiter, samples, exporter, commands, .. } = &publisher.process;
    services::SharedServices {
        current: Arc::clone(&publisher.current),
        overload: Arc::clone(overload),
        limiter: Arc::clone(limiter),
        challenges: Arc::clone(publisher.listeners.challenges()),
        gathered: Arc::new(BufferBudget::of_gathered()),
        copies: Arc::new(BufferBudget::of_copies()),
        refusals: Reason::ALL.iter().map(|reason| metrics.refusal(reason.word())).collect(),
        causes: Cause::ALL.iter().map(|cause| metrics.cause(cause.word())).collect(),
        calls: metrics.calls(),
        auth_verifications: metrics.auth_verifications.clone(),
        usage,
        decisions: Arc::clone(samples),
        hot_keys: hot_keys.map(HotKeys::gathered),
        spans: exporter.spans().clone(),
        workers: commands.len(),
    }
}

/// What a summary of the process for those who watch it is made of.
fn live_sources(
    publisher: &Publisher,
    (readiness, last_reload): (Readiness, LastReload),
    control: Option<&Control>,
    shared_tier: Option<&SharedTier>,
) -> live::Sources {
    live::Sources {
        metrics: Arc::clone(&publisher.process.metrics),
        current: Arc::clone(&publisher.current),
        text: Arc::clone(&publisher.text),
        readiness,
        last_reload,
        database: control.map(Control::sentence),
        redis: shared_tier.map(SharedTier::status),
    }
}

/// Registers the parts of the process that write metric families of their own at each scrape.
fn register(publisher: &Publisher, utilisation: &Arc<Utilisation>, shared_tier: Option<&SharedTier>) {
    let metrics = &publisher.process.metrics;
    let current = Arc::clone(&publisher.current);
    metrics.register(move |families| upstream::families::collect(&current.load().upstreams, families));
    let expiries = publisher.listeners.expiries().clone();
    metrics.register(move |families| expiries.collect(families));
    let stale = publisher.stale.clone();
    metrics.register(move |families| stale.collect(families));
    metrics.register(publisher.orders.collect());
    let overload = Arc::clone(&publisher.process.overload);
    metrics.register(move |families| overload.collect(families));
    let limiter = Arc::clone(&publisher.process.limiter);
    metrics.register(move |families| limiter.table().collect(families));
    let (current, utilisation) = (Arc::clone(&publisher.current), Arc::clone(utilisation));
    // Weak, because the metrics hold what is registered.
    let own = Arc::downgrade(metrics);
    metrics.register(move |families| match own.upgrade() {
        Some(metrics) => utilisation.collect(&current.load().listeners, &metrics, families),
        None => Ok(()),
    });
    if let Some(shared_tier) = shared_tier {
        shared_tier.show(metrics);
    }
}

fn reopen(logs: &Logs) {
    match logs.reopen() {
        Ok(()) => say("logs reopened"),
        Err(error) => tracing::error!(%error, "a log cannot be reopened, the old file stays in use"),
    }
}

fn refuse_upgrade(why: &str) {
    say(format_args!("SIGUSR2 is ignored: {why}"));
    UpgradeRequester::open().end(false, why);
}

/// The cores this process may use; cgroup quotas and affinity count.
fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Orders that may wait for one worker.
const COMMANDS: usize = 1024;
/// How often certificates and files of keys are looked at for changes.
const FILES_EVERY: Duration = Duration::from_secs(1);
