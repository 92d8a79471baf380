//! A configuration into a snapshot.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::Context;
use arc_swap::ArcSwap;

use super::shared_tier;
use crate::config::Config;
use crate::limiter::Limiter;
use crate::metrics::Metrics;
use crate::policy::Table;
use crate::proxy::overload::Overload;
use crate::proxy::snapshot::{Figures, Snapshot};
use crate::record::{Sampler, Shown};
use crate::upstream::{self, Upstream};
use crate::{auth, metrics, tls};

/// The upstreams in force by name: one whose configuration stays keeps its connections over a reload.
pub(super) type Upstreams = HashMap<String, Arc<Upstream>>;

/// What of a snapshot is kept by the next one.
#[derive(Clone, Default)]
pub(super) struct Kept {
    /// Upstreams by name.
    pub(super) upstreams: Upstreams,
    /// Ways to authenticate.
    pub(super) auth: Vec<Arc<auth::Method>>,
}

/// Builds a snapshot beside the one in force, and what of it the next one keeps; `table` is under its salt already.
pub(super) fn snapshot(
    config: &Config,
    mut table: Table,
    generation: u64,
    limiter: &Limiter,
    metrics: &Metrics,
    before: &Kept,
) -> anyhow::Result<(Snapshot, Kept)> {
    shared_tier::share(&mut table, config, limiter);
    limiter
        .declare(table.policies().iter().flat_map(|policy| policy.windows.iter().map(|window| window.quota)));
    let wanted: Box<[Box<str>]> = table.claims().into_iter().map(Into::into).collect();
    let auth = methods(&config.auth, &wanted, &before.auth)?;
    let mut used = Upstreams::new();
    let mut upstreams = Vec::with_capacity(config.upstreams.len());
    for wanted in &config.upstreams {
        let upstream = match before.upstreams.get(&wanted.name) {
            Some(same) if same.config == *wanted => {
                if !wanted.tls.files().is_empty() {
                    same.renew_tls(client_config(wanted)?);
                }
                Arc::clone(same)
            }
            _ => Arc::new(make(wanted)?),
        };
        used.insert(wanted.name.clone(), Arc::clone(&upstream));
        upstreams.push(upstream);
    }
    let figures = Figures {
        routes: table.routes().iter().map(|route| metrics.route(&route.name)).collect(),
        no_route: metrics.route(NO_ROUTE),
        policies: table.policies().iter().map(|policy| metrics.policy(&policy.name)).collect(),
        upstreams: config.upstreams.iter().map(|upstream| metrics.upstream(&upstream.name)).collect(),
    };
    let snapshot = Snapshot {
        generation,
        table,
        upstreams,
        auth: auth.clone(),
        secret_parameters: secret_parameters(&config.auth),
        client_ip: config.client_ip.clone(),
        limit_headers: config.limit_headers,
        sampler: Sampler::new(&config.access_log),
        shown: Shown::new(&config.access_log),
        figures,
    };
    Ok((snapshot, Kept { upstreams: used, auth }))
}

/// The ways to authenticate: one whose configuration stays keeps what it knows and reads its files again.
fn methods(
    wanted: &[auth::Config],
    claims: &[Box<str>],
    before: &[Arc<auth::Method>],
) -> anyhow::Result<Vec<Arc<auth::Method>>> {
    let method = |wanted: &auth::Config| match before.iter().find(|method| method.is_of(wanted, claims)) {
        Some(same) => same.reread().map(|()| Arc::clone(same)),
        None => auth::Method::new(wanted.clone(), claims).map(|method| {
            before.iter().for_each(|before| method.inherit(before));
            Arc::new(method)
        }),
    };
    let named = |wanted| method(wanted).with_context(|| format!("auth {:?}", wanted.name));
    wanted.iter().map(named).collect()
}

/// Query parameters in which callers may show credentials.
fn secret_parameters(auth: &[auth::Config]) -> Box<[Box<str>]> {
    let mut names: Vec<Box<str>> = auth.iter().flat_map(auth::Config::parameters).map(Into::into).collect();
    names.sort_unstable();
    names.dedup();
    names.into()
}

fn make(wanted: &upstream::Config) -> anyhow::Result<Upstream> {
    let wants_tls = wanted.servers.iter().any(|server| server.tls);
    let tls = match wants_tls {
        true => Some(Arc::new(client_config(wanted)?)),
        false => None,
    };
    Ok(Upstream::new(wanted.clone(), tls))
}

/// What connections to an upstream over TLS are made with.
pub(super) fn client_config(wanted: &upstream::Config) -> anyhow::Result<rustls::ClientConfig> {
    let http2 = wanted.http == upstream::config::Version::H2;
    tls::client_config(http2, &wanted.tls).with_context(|| format!("upstream {}", wanted.name))
}

/// What limiter keys are hashed with: new at every start, so that no client can prepare keys that collide.
pub(super) fn salt() -> [u8; 16] {
    use std::hash::{BuildHasher, Hasher, RandomState};
    let half = || RandomState::new().build_hasher().finish().to_le_bytes();
    let (one, two) = (half(), half());
    std::array::from_fn(|place| if place < 8 { one[place] } else { two[place - 8] })
}

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

/// What requests without a route are counted under.
const NO_ROUTE: &str = "";
