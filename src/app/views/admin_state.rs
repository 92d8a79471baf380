//! Connects the pages of the admin listener to the metrics, the snapshot and the limiter, so that `admin` need not know
//! those. Every page is answered from the snapshot in force at that moment, and spends nothing.

use std::sync::Arc;

use serde_json::json;

use crate::counts::Counts;
use crate::explain;
use crate::explain::LimitSource;
use crate::live;
use crate::publisher::Publisher;
use crate::views::keys;
use crate::views::upstreams;
use base::clock;
use control::admin::{self, Readiness};
use limiter::Fleet;
use observe::record::decisions::SampleMemory;

pub(crate) fn state(
    counts: &Counts,
    readiness: &Readiness,
    publisher: &Publisher,
    (live, fleet): (live::Sources, Option<live::Fleet>),
    (control, samples): (Option<admin::ControlPlane>, &Arc<SampleMemory>),
    own: Option<&admin::Config>,
) -> admin::AdminState {
    let (text, current) = (Arc::clone(&publisher.text), Arc::clone(&publisher.current));
    let limiter = Arc::clone(&publisher.process.limiter);
    let shown_text = Arc::clone(&text);
    let (limiter_of_nodes, redis) = (Arc::clone(&limiter), live.redis.clone());
    let named = Arc::clone(&current);
    admin::AdminState {
        metrics: Arc::clone(&counts.metrics),
        readiness: readiness.clone(),
        config: Box::new(move || text.load().to_string()),
        policy: {
            let text = Arc::clone(&shown_text);
            Box::new(move |name| config::policy_of(&text.load(), name))
        },
        upstreams: {
            let current = Arc::clone(&current);
            Box::new(move || upstreams::shown(&current.load().upstreams, clock::now_ns()).to_string())
        },
        key: {
            let (current, limiter) = (Arc::clone(&current), Arc::clone(&limiter));
            Box::new(move |policy, values, tenant| {
                let snapshot = current.load();
                let in_force = (&snapshot.table, &*snapshot.node.name);
                let key = keys::key(in_force, &limiter, policy, (values, tenant), clock::now_ns())?;
                let limiter = Arc::clone(&limiter);
                Some(Box::pin(async move { key.with_redis(&limiter).await.to_string() }))
            })
        },
        explain: Box::new(move |request| {
            let snapshot = current.load();
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
            let mut explained = explain::explain(&in_force, known, request, clock::now_ns());
            explained.show_upstream(&snapshot.upstreams, clock::now_ns());
            let limiter = Arc::clone(&limiter);
            // Made for each question, because it takes less time than to compare the request with every route, as is
            // done above.
            let gateway = json!({
                "version": env!("CARGO_PKG_VERSION"),
                "generation": snapshot.generation + 1,
                "fingerprint": config::fingerprint(&shown_text.load()),
            });
            Box::pin(async move {
                explained.decide(&limiter).await;
                let mut shown = explained.to_json();
                shown["gateway"] = gateway;
                shown.to_string()
            })
        }),
        live: live::live(live, fleet),
        counts: counts.for_operators(),
        nodes: Box::new(move || {
            let count = limiter_of_nodes.fleet().map(Fleet::nodes)?;
            let shards = redis.as_ref().map(|status| status()).unwrap_or_default();
            let shards_away = shards.iter().filter(|shard| !shard.is_up).count();
            Some(admin::FleetNodes { count, shards: shards.len(), shards_away })
        }),
        decisions: Arc::clone(samples),
        shown_key: Box::new(move |name| named.load().naming.cut_again(name)),
        control,
        access: own.map(admin::Config::access).unwrap_or_default(),
    }
}
