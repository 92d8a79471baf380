//! Builds the snapshot of a prepared configuration. Nothing here can fail.

use std::sync::Arc;

use arc_swap::ArcSwap;

use crate::fleet::{node_name, shared_tier};
use config::Config;
use gateway::proxy::snapshot::{Series, Snapshot};
use limiter::Limiter;
use metrics::Metrics;
use observe::record::{LoggedParts, StatusSampler, Style};
use observe::trace::Tracer;
use policy::{Policy, RouteTable};

use super::prepare::ReusedParts;

/// Builds the snapshot and registers its quotas with the limiter and its series with the metrics. This comes after
/// everything that can fail, because both keep them for good. `table` is salted already.
pub(super) fn snapshot(
    config: &Config,
    mut table: RouteTable,
    kept: &ReusedParts,
    generation: u64,
    (limiter, metrics): (&Limiter, &Metrics),
    salt: &[u8; 16],
) -> Snapshot {
    shared_tier::share(&mut table, limiter);
    limiter.table().declare(
        table.policies().iter().flat_map(|policy| policy.windows.iter().flat_map(|window| window.quotas())),
    );
    let policy_series = |policy: &Policy| {
        let series = metrics.policy(&policy.name);
        if policy.replaces().is_some() || policy.is_changing() {
            series.expect_comparisons();
        }
        series
    };
    let window_series = |policy: &Policy| {
        let by = policy.by.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
        policy.windows.iter().map(|window| metrics.window(&policy.name, &window.label, &by)).collect()
    };
    let series = Series {
        routes: table.routes().iter().map(|route| metrics.route(&route.name)).collect(),
        no_route: metrics.route(NO_ROUTE),
        policies: table.policies().iter().map(policy_series).collect(),
        windows: table.policies().iter().map(window_series).collect(),
        latency: metrics.latency(),
        upstreams: config.upstreams.iter().map(|upstream| metrics.upstream(&upstream.name)).collect(),
    };
    let node = node_name::node(&config.node);
    Snapshot {
        generation,
        table,
        upstreams: kept.upstreams.clone().into(),
        moves: Arc::clone(&kept.moves),
        auth: kept.auth.clone().into(),
        secret_parameters: secret_parameters(&config.auth),
        listeners: config.listeners.clone(),
        client_ip: config.client_ip.clone(),
        tiers: config.tiers.iter().map(|tier| tier.name.as_str().into()).collect(),
        naming: config.naming(salt),
        limit_headers: config.limits.headers,
        error_pages: kept.error_pages.as_ref().map(|pages| Arc::new(ArcSwap::new(Arc::clone(pages)))),
        sampler: StatusSampler::new(&config.access_log),
        draws: config.decisions.draws,
        shown: LoggedParts::new(&config.access_log),
        style: Style::new(&config.access_log, &node.name),
        node,
        tracer: config.trace.as_ref().map(Tracer::new),
        series,
    }
}

/// Query parameters that may carry credentials, which the access log masks.
fn secret_parameters(auth: &[auth::Config]) -> Box<[Box<str>]> {
    let mut names: Vec<Box<str>> = auth.iter().flat_map(auth::Config::parameters).map(Into::into).collect();
    names.sort_unstable();
    names.dedup();
    names.into()
}

/// The route label of requests that no route answers.
const NO_ROUTE: &str = "";
