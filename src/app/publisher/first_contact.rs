//! Starts resolving upstream names, before a configuration comes into force, and fetching issuers' keys, after that. A
//! publication waits for the first answers only briefly: until they come, an upstream without an address answers 503, and
//! a request with a token waits itself.

use std::sync::Arc;
use std::time::Duration;

use super::prepare::ReusedParts;
use auth::keep_fetching;
use net::fetch::Connect;
use upstream::check::watch;
use upstream::dns::Dns;
use upstream::resolve::Resolver;

/// Begins to watch servers and to fetch keys. Waits a moment for the first answers, then goes on in the background.
pub(super) async fn begin(kept: &ReusedParts, connect: &Connect) {
    for upstream in kept.upstreams.iter().filter(|upstream| upstream.begin_watching()) {
        watch::begin(upstream);
    }
    fetch_keys(kept, connect).await;
}

/// Asks for the names of new upstreams. Waits a moment for the first answers, then goes on in the background.
pub(super) async fn resolve(kept: &ReusedParts, dns: &Arc<Dns>) {
    let new = kept.upstreams.iter().filter(|upstream| upstream.begin_resolving());
    let first: Vec<_> = new
        .flat_map(|upstream| Resolver::all(upstream, dns))
        .map(|mut resolver| {
            tokio::spawn(async move {
                if let Some(again) = resolver.resolve().await {
                    tokio::spawn(resolver.keep_resolving(again));
                }
            })
        })
        .collect();
    let all = async {
        for resolving in first {
            let _ = resolving.await;
        }
    };
    let _ = tokio::time::timeout(FIRST_ANSWERS, all).await;
}

async fn fetch_keys(kept: &ReusedParts, connect: &Connect) {
    let begun: Vec<_> =
        kept.auth.iter().filter_map(|method| Some((method, method.begin_fetching()?))).collect();
    if begun.is_empty() {
        return;
    }
    let mut rounds = Vec::with_capacity(begun.len());
    for (method, round) in begun {
        tokio::spawn(keep_fetching(Arc::downgrade(method), connect.clone()));
        rounds.push(round);
    }
    let all = async {
        for round in &mut rounds {
            let _ = round.changed().await;
        }
    };
    let _ = tokio::time::timeout(FIRST_KEYS, all).await;
}

/// How long start-up and reload wait for names to resolve before they go on without.
const FIRST_ANSWERS: Duration = Duration::from_millis(500);

/// How long start-up and reload wait for keys of issuers before they go on without.
const FIRST_KEYS: Duration = Duration::from_secs(2);
