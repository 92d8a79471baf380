//! The limiter, alone or in a fleet: connected at start, kept up beside the workers, given back to the fleet at the
//! end.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use tokio::task::JoinHandle;

use crate::config::Config;
use crate::global::{self, Global};
use crate::limit::Plan;
use crate::limiter::{Fleet, Limiter};
use crate::local::Table;
use crate::metrics::Metrics;
use crate::{auth, clock, policy};

use super::explain::{Asked, Explained, Known, explain};

/// What a gateway shares with its fleet.
pub(super) struct SharedTier {
    global: Arc<Global>,
    limiter: Arc<Limiter>,
    sweeping: JoinHandle<()>,
}

/// The limiter of a configuration, and Redis where it names one.
///
/// # Errors
/// Where Redis is spoken to over TLS and there are no certificates to trust it by.
pub(super) fn limiter(config: &Config) -> anyhow::Result<(Arc<Limiter>, Option<SharedTier>)> {
    let Some(redis) = &config.redis else {
        return Ok((Arc::new(Limiter::new(Table::with_memory(config.limits_memory))), None));
    };
    let global = Global::start(redis).context("[redis]")?;
    // What is not shared, and what exact policies fall back on, takes the smaller part.
    let own_bytes = config.limits_memory / OWN_PART;
    let link = Arc::clone(&global) as Arc<dyn crate::limiter::Link>;
    let fleet = Fleet::new(link, config.limits_memory - own_bytes, redis.deadline).salted(&salt(config));
    let limiter = Arc::new(Limiter::in_fleet(Table::with_memory(own_bytes), fleet));
    let sweeping = tokio::spawn(sweep(Arc::clone(&limiter)));
    Ok((Arc::clone(&limiter), Some(SharedTier { global, limiter, sweeping })))
}

/// Explains a request where no gateway runs: what is left is Redis's to say, where the configuration names one. It
/// joins no fleet, and spends nothing.
///
/// # Errors
/// As `limiter`, or where there is no runtime to be had.
pub fn explain_from_outside(
    config: &Config,
    mut table: policy::Table,
    ways: &[Arc<auth::Method>],
    asked: &Asked<'_>,
) -> anyhow::Result<Explained> {
    let Some(redis) = &config.redis else {
        return Ok(explain(&table, ways, Known::Nowhere, asked, clock::now_ns()));
    };
    table = table.salted(&salt(config));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let global = Global::visit(redis).context("[redis]")?;
        let link = Arc::clone(&global) as Arc<dyn crate::limiter::Link>;
        let limiter = Limiter::in_fleet(Table::with_memory(0), Fleet::new(link, 0, redis.deadline));
        share(&mut table, config, &limiter);
        global.ready(FIRST_ANSWER).await;
        let mut explained = explain(&table, ways, Known::SharedTier(&limiter), asked, clock::now_ns());
        explained.ask_redis(&limiter).await;
        global.shutdown().await;
        Ok(explained)
    })
}

/// How long a round trip takes to each server of Redis that can be reached from here.
///
/// # Errors
/// As `limiter`, or where there is no runtime to be had.
pub fn measure_from_outside(redis: &global::Config) -> anyhow::Result<Vec<(String, Duration)>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let global = Global::visit(redis).context("[redis]")?;
        global.ready(FIRST_ANSWER).await;
        let measured = global.measure().await;
        global.shutdown().await;
        Ok(measured)
    })
}

/// What limiter keys are hashed with: one secret for a fleet; for a node alone a new one at every start, so that no
/// client can prepare keys that collide.
pub(super) fn salt(config: &Config) -> [u8; 16] {
    config.redis.as_ref().map_or_else(random_salt, global::config::salt)
}

fn random_salt() -> [u8; 16] {
    use std::hash::{BuildHasher, Hasher, RandomState};
    let half = || RandomState::new().build_hasher().finish().to_le_bytes();
    let (one, two) = (half(), half());
    std::array::from_fn(|place| if place < 8 { one[place] } else { two[place - 8] })
}

/// Gives the windows of a table the plans by which a fleet shares them.
pub(super) fn share(table: &mut policy::Table, config: &Config, limiter: &Limiter) {
    let Some(fleet) = limiter.fleet() else { return };
    let plans = fleet.plans();
    table.share(|policy, quota| {
        // A table has the policies of its configuration in their order.
        let sharing = config.policies[policy.id.index()].sharing(quota);
        plans.id(Plan { policy: policy.name.as_ref().into(), quota: *quota, sharing })
    });
    limiter.declare(plans.fallbacks());
}

impl SharedTier {
    /// Lets /metrics show Redis.
    pub(super) fn show(&self, metrics: &Metrics) {
        let global = Arc::clone(&self.global);
        metrics.register(move |families| global.collect(families));
    }

    /// Waits a moment until it is known how Redis is, so that the first requests need not find out.
    pub(super) async fn ready(&self) {
        self.global.ready(FIRST_ANSWER).await;
    }

    /// Gives back every lease, and closes. No request is decided any more.
    pub(super) async fn close(self) {
        self.sweeping.abort();
        let until_ns = clock::now_ns() + RELEASED_WITHIN_NS;
        while self.limiter.release_all(clock::now_ns()) && clock::now_ns() < until_ns {
            tokio::time::sleep(RELEASE_EVERY).await;
        }
        self.global.shutdown().await;
    }
}

async fn sweep(limiter: Arc<Limiter>) {
    let mut tick = tokio::time::interval(SWEEP_EVERY);
    loop {
        tick.tick().await;
        limiter.sweep(clock::now_ns());
    }
}

/// A node's own table takes one part in so many of the limiter's memory.
const OWN_PART: usize = 8;
const SWEEP_EVERY: Duration = Duration::from_millis(50);
/// How long a node that stops goes on giving back leases, nanoseconds: longer than it has any.
const RELEASED_WITHIN_NS: u64 = 500_000_000;
/// And how often it gives some back.
const RELEASE_EVERY: Duration = Duration::from_millis(5);
const FIRST_ANSWER: Duration = Duration::from_millis(500);
