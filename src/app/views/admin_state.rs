//! Connects the pages of the admin listener to the metrics, the snapshot and the limiter, so that `admin` need not know
//! those. Every page is answered from the snapshot in force at that moment, and spends nothing.

use std::sync::Arc;

use serde_json::json;

use crate::counts::Counts;
use crate::explain::{self, LimitSource};
use crate::fleet::shared_tier::Shards;
use crate::live;
use crate::publisher::Publisher;
use crate::views::keys;
use crate::views::upstreams;
use base::clock;
use control::admin;
use limiter::Fleet;

pub(crate) fn state(
    counts: &Counts,
    publisher: &Publisher,
    (live, fleet): (live::Sources, Option<live::Fleet>),
    control: Option<admin::ControlPlane>,
    own: &admin::Config,
) -> admin::AdminState {
    let [text, policies] = [(); 2].map(|()| Arc::clone(&publisher.text));
    let [upstreams, named] = [(); 2].map(|()| Arc::clone(&publisher.current));
    admin::AdminState {
        metrics: Arc::clone(&counts.metrics),
        readiness: live.readiness.clone(),
        config: Box::new(move || text.load().text.clone()),
        policy: Box::new(move |name| config::policy_of(&policies.load().text, name)),
        upstreams: Box::new(move || {
            upstreams::shown(&upstreams.load().upstreams, clock::now_ns()).to_string()
        }),
        key: keys(publisher),
        explain: explanations(publisher),
        nodes: nodes(publisher, live.redis.clone()),
        live: live::live(live, fleet),
        counts: counts.for_operators(),
        decisions: Arc::clone(&publisher.process.samples),
        shown_key: Box::new(move |name| named.load().naming.cut_again(name)),
        control,
        access: own.access(),
    }
}

fn keys(publisher: &Publisher) -> admin::KeyReader {
    let (current, limiter) = (Arc::clone(&publisher.current), Arc::clone(&publisher.process.limiter));
    Box::new(move |policy, values, tenant| {
        let snapshot = current.load();
        let in_force = (&snapshot.table, &*snapshot.node.name);
        let key = keys::key(in_force, &limiter, policy, (values, tenant), clock::now_ns())?;
        let limiter = Arc::clone(&limiter);
        Some(Box::pin(async move { key.with_redis(&limiter).await.to_string() }))
    })
}

fn explanations(publisher: &Publisher) -> admin::Asked<admin::ExplainRequest, String> {
    let (current, text) = (Arc::clone(&publisher.current), Arc::clone(&publisher.text));
    let known = (current, text, Arc::clone(&publisher.process.limiter));
    admin::asked(known, |(current, text, limiter), request| async move {
        let snapshot = current.load_full();
        let known = LimitSource::Gateway(&limiter);
        let names = snapshot.upstreams.iter().map(|live| live.config.name.as_str()).collect();
        let in_force = explain::InForce {
            table: &snapshot.table,
            auth: &snapshot.auth,
            naming: &snapshot.naming,
            client_ip: &snapshot.client_ip,
            listeners: &snapshot.listeners,
            upstreams: &names,
        };
        let mut explained = explain::explain(&in_force, known, &request, clock::now_ns());
        explained.show_upstream(&snapshot.upstreams, clock::now_ns());
        let gateway = json!({
            "version": env!("CARGO_PKG_VERSION"),
            "generation": snapshot.generation + 1,
            "fingerprint": text.load().fingerprint,
        });
        explained.decide(&limiter).await;
        let mut shown = explained.to_json();
        shown["gateway"] = gateway;
        shown.to_string()
    })
}

/// Counts the nodes of the fleet and the shards of Redis that are away.
fn nodes(
    publisher: &Publisher,
    redis: Option<Shards>,
) -> Box<dyn Fn() -> Option<admin::FleetNodes> + Send + Sync> {
    let limiter = Arc::clone(&publisher.process.limiter);
    Box::new(move || {
        let count = limiter.fleet().map(Fleet::nodes)?;
        let shards = redis.as_ref().map(|status| status()).unwrap_or_default();
        let shards_away = shards.iter().filter(|shard| !shard.is_up).count();
        Some(admin::FleetNodes { count, shards: shards.len(), shards_away })
    })
}
