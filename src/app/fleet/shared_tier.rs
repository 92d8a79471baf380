//! Builds the limiter, local or connected to Redis, sweeps its leases while the gateway runs, and returns them to the
//! fleet when it stops. All of that has a thread of its own, so that no scrape and no call of the admin API makes an answer
//! late. How leases work is in `limiter`; how Redis is spoken to is in `global`.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::{Arc, mpsc};
use std::time::Duration;
use std::{io, thread};

use anyhow::Context;
use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use base::{clock, ids::IdVec, log_lines::Outage};
use config::Config;
use control::admin::ExplainRequest;
use limit::Plan;
use limiter::global::{self, Global};
use limiter::local::Table;
use limiter::{Fleet, Limiter, PenaltyExchange};
use metrics::Metrics;
use policy::AuthMethodId;

use crate::explain::{InForce, LimitSource, RequestExplanation, explain};

pub(crate) type Shards = Arc<dyn Fn() -> Vec<global::Status> + Send + Sync>;

pub(crate) struct SharedTier {
    global: Arc<Global>,
    limiter: Arc<Limiter>,
    sweeping: JoinHandle<()>,
    thread: RedisThread,
}

/// The thread `redis` and its runtime. They end when this is dropped.
struct RedisThread {
    runtime: Handle,
    stop: oneshot::Sender<()>,
    thread: thread::JoinHandle<()>,
}

/// The limiter of a configuration, and Redis where it names one. Its own table has so many bytes.
///
/// # Errors
/// Where Redis is spoken to over TLS and there are no certificates to trust it by.
pub(crate) fn limiter(
    config: &Config,
    own_bytes: usize,
) -> anyhow::Result<(Arc<Limiter>, Option<SharedTier>)> {
    let Some(redis) = &config.redis else {
        return Ok((Arc::new(Limiter::new(Table::with_memory(own_bytes))), None));
    };
    let thread = RedisThread::start().context("the thread for [redis] cannot be started")?;
    let global = {
        let _entered = thread.runtime.enter();
        Global::start(redis).context("[redis]")?
    };
    let link = Arc::clone(&global) as Arc<dyn limiter::Link>;
    let fleet = Fleet::new(link, config.limits.memory - own_bytes_of(config)).salted(&salt(config));
    let limiter = Arc::new(Limiter::in_fleet(Table::with_memory(own_bytes), fleet));
    let sharing = share_penalties(PenaltyExchange::new(&limiter, global.shared_values()));
    let sweeping = sweep(Arc::clone(&limiter));
    let sweeping = thread.runtime.spawn(async { _ = tokio::join!(sweeping, sharing) });
    Ok((Arc::clone(&limiter), Some(SharedTier { global, limiter, sweeping, thread })))
}

/// Memory of the table that a node decides in on its own, bytes. In a fleet what is not shared, and what exact policies
/// fall back on, takes the smaller part.
pub(crate) fn own_bytes_of(config: &Config) -> usize {
    match config.redis {
        None => config.limits.memory,
        Some(_) => config.limits.memory / OWN_PART,
    }
}

/// Explains a request without a running gateway. If the configuration names Redis, that says what is left. This process
/// does not join the fleet, and spends nothing.
///
/// # Errors
/// As `limiter`, or if no runtime can be built.
pub fn explain_from_outside(
    config: &Config,
    mut table: policy::RouteTable,
    auth_methods: &IdVec<AuthMethodId, Arc<auth::Method>>,
    asked: &ExplainRequest,
) -> anyhow::Result<RequestExplanation> {
    let (client_ip, listeners) = (&config.client_ip, &config.listeners[..]);
    let upstreams = &config.upstreams.iter().map(|upstream| upstream.name.as_str()).collect();
    let salt = salt(config);
    let naming = &config.naming(&salt);
    let Some(redis) = &config.redis else {
        let in_force = InForce { table: &table, auth: auth_methods, naming, client_ip, listeners, upstreams };
        return Ok(explain(&in_force, LimitSource::Nowhere, asked, clock::now_ns()));
    };
    table = table.salted(&salt);
    let runtime = Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let global = Global::visit(redis).context("[redis]")?;
        let link = Arc::clone(&global) as Arc<dyn limiter::Link>;
        let limiter = Limiter::in_fleet(Table::with_memory(0), Fleet::new(link, 0));
        share(&mut table, &limiter);
        global.ready(FIRST_ANSWER).await;
        let known = LimitSource::SharedTier(&limiter);
        let in_force = InForce { table: &table, auth: auth_methods, naming, client_ip, listeners, upstreams };
        let mut explained = explain(&in_force, known, asked, clock::now_ns());
        explained.decide(&limiter).await;
        global.shutdown().await;
        Ok(explained)
    })
}

/// The round trips to the servers of Redis that can be reached from here.
#[derive(Debug)]
pub struct MeasuredRedis {
    /// By the names of the servers.
    pub round_trips: Vec<(String, Duration)>,
    /// The state of one that does not answer or refuses calls, and its error.
    pub trouble: Option<(global::Condition, String)>,
}

/// Measures the round trips from this process, which does not join the fleet.
///
/// # Errors
/// As `limiter`, or if no runtime can be built.
pub fn measure_from_outside(redis: &global::Config) -> anyhow::Result<MeasuredRedis> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let global = Global::visit(redis).context("[redis]")?;
        global.ready(FIRST_ANSWER).await;
        let (round_trips, trouble) = (global.measure().await, global.trouble());
        global.shutdown().await;
        Ok(MeasuredRedis { round_trips, trouble })
    })
}

/// The salt that limiter keys are hashed under. All nodes of a fleet derive the same one, because they share keys in
/// Redis. Without Redis it is random at every start, so that no client can prepare keys that collide.
pub(crate) fn salt(config: &Config) -> [u8; 16] {
    let half = || u128::from(RandomState::new().build_hasher().finish());
    config.redis.as_ref().map_or_else(|| (half() << 64 | half()).to_le_bytes(), global::config::salt)
}

/// Tells each window of a table by which plan the fleet shares it. Without Redis this does nothing.
pub(crate) fn share(table: &mut policy::RouteTable, limiter: &Limiter) {
    let Some(fleet) = limiter.fleet() else { return };
    let plans = fleet.plans();
    fleet.share_penalties(table.policies().iter().any(|policy| policy.penalty.is_some()));
    table.share(|policy, quota, sharing| {
        plans.id(Plan { policy: policy.name.as_ref().into(), quota: *quota, sharing })
    });
    limiter.table().declare_more(plans.fallbacks());
}

impl SharedTier {
    /// What nodes leave for each other in Redis.
    pub(crate) fn shared_values(&self) -> global::SharedValues {
        self.global.shared_values()
    }

    /// What nodes tell each other through Redis. It is listened to from now on.
    pub(crate) fn hints(&self) -> global::Hints {
        let _entered = self.thread.runtime.enter();
        self.global.hints()
    }

    /// What is known of each shard, for those who watch.
    pub(crate) fn status(&self) -> Shards {
        let global = Arc::clone(&self.global);
        Arc::new(move || global.status())
    }

    pub(crate) fn show(&self, metrics: &Metrics) {
        let global = Arc::clone(&self.global);
        metrics.register(move |families| global.collect(families));
    }

    /// Waits up to [`FIRST_ANSWER`] until Redis has answered, so that the first requests do not pay for connecting.
    pub(crate) async fn ready(&self) {
        self.global.ready(FIRST_ANSWER).await;
    }

    /// Returns every lease and closes the connections, and waits at most so long for a Redis that does not answer. Call
    /// it when no request can be decided any more: a request would take out a new lease.
    pub(crate) async fn close(self, within: Duration) {
        self.sweeping.abort();
        let until = clock::instant() + within;
        // A Redis that never answered has leased nothing.
        while self.global.has_answered() && self.limiter.release_all(clock::now_ns()) {
            if clock::instant() >= until {
                tracing::warn!(
                    "Redis did not answer before the stop: units that it has leased to this node count as spent until \
                     they refill"
                );
                break;
            }
            tokio::time::sleep(RELEASE_EVERY).await;
        }
        self.global.shutdown().await;
        self.thread.end();
    }
}

impl RedisThread {
    fn start() -> io::Result<RedisThread> {
        let (stop, stopped) = oneshot::channel();
        let (tell, told) = mpsc::channel();
        // The runtime is made there, because one that is dropped in a task, as at an error here, panics.
        let thread = thread::Builder::new().name("redis".into()).spawn(move || {
            let runtime = match Builder::new_current_thread().enable_all().build() {
                Ok(runtime) => runtime,
                Err(error) => return drop(tell.send(Err(error))),
            };
            if tell.send(Ok(runtime.handle().clone())).is_ok() {
                // Ends when its sender is dropped; nothing is sent.
                let _ = runtime.block_on(stopped);
            }
            // A name that is still being looked up must not hold up a stop.
            runtime.shutdown_background();
        })?;
        let runtime = told.recv().map_err(io::Error::other)??;
        Ok(RedisThread { runtime, stop, thread })
    }

    fn end(self) {
        drop(self.stop);
        if self.thread.join().is_err() {
            tracing::error!("the Redis thread panicked");
        }
    }
}

async fn sweep(limiter: Arc<Limiter>) {
    let mut tick = tokio::time::interval(SWEEP_EVERY);
    loop {
        tick.tick().await;
        limiter.sweep(clock::now_ns());
    }
}

async fn share_penalties(mut exchange: PenaltyExchange) {
    let mut outage = Outage::default();
    loop {
        tokio::time::sleep(PENALTIES_EVERY).await;
        match exchange.turn().await {
            Err(error @ global::SharedValueError::Refused(_)) if outage.is_news(&error.to_string()) => {
                tracing::warn!(%error, "penalties are not shared with the other nodes");
            }
            // A Redis that does not answer has log lines already.
            Err(_) => {}
            Ok(()) => _ = outage.end(),
        }
    }
}

/// The local table gets one eighth of `limits.memory`, the leases the rest.
const OWN_PART: usize = 8;
const SWEEP_EVERY: Duration = Duration::from_millis(50);
/// A penalty holds on all nodes after two of these, one to report it and one to hear of it.
const PENALTIES_EVERY: Duration = Duration::from_millis(400);
/// The pause between two batches of returned leases, and two looks for their answers.
const RELEASE_EVERY: Duration = Duration::from_millis(5);
/// How long a start waits for Redis before it goes on without: a gateway must start while Redis is down.
const FIRST_ANSWER: Duration = Duration::from_millis(500);
