//! What a scrape shows of the connections to upstreams.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::health::State;
use super::{Server, Upstream};
use crate::clock;
use crate::metrics::{Families, UPSTREAMS_MAX};

/// Writes the families of upstreams in force; those beyond the bound on names have no series.
///
/// # Errors
/// If they cannot be written.
pub fn collect(upstreams: &[Arc<Upstream>], families: &mut Families<'_>) -> fmt::Result {
    let upstreams = &upstreams[..upstreams.len().min(UPSTREAMS_MAX)];
    families.gauges(
        "upstream_connections",
        "Connections open to an upstream, and those of them without work",
        None,
        upstreams.iter().flat_map(|upstream| {
            [
                (
                    [("upstream", upstream.config.name.as_str()), ("state", "open")],
                    sum(upstream, |server| &server.open),
                ),
                (
                    [("upstream", upstream.config.name.as_str()), ("state", "idle")],
                    sum(upstream, |server| &server.idle),
                ),
            ]
        }),
    )?;
    families.gauges(
        "upstream_waiting_requests",
        "Requests that wait for a connection",
        None,
        upstreams.iter().map(|upstream| {
            ([("upstream", upstream.config.name.as_str())], sum(upstream, |server| &server.waiting))
        }),
    )?;
    health(upstreams, families)
}

/// The health of servers, of upstreams that look after it.
fn health(upstreams: &[Arc<Upstream>], families: &mut Families<'_>) -> fmt::Result {
    let watched: Vec<_> = upstreams.iter().filter(|upstream| upstream.health.is_watched()).collect();
    let now_ns = clock::now_ns();
    families.gauges(
        "upstream_servers",
        "Servers of an upstream, by their state",
        None,
        watched.iter().flat_map(|upstream| {
            let states = upstream.health.states(now_ns);
            State::WORDS.map(|word| {
                let count = states.iter().filter(|state| state.word() == word).count() as u64;
                ([("upstream", upstream.config.name.as_str()), ("state", word)], count)
            })
        }),
    )?;
    families.gauges(
        "upstream_panic",
        "1 while all servers of an upstream are used because too few of them are usable",
        None,
        watched.iter().map(|upstream| {
            ([("upstream", upstream.config.name.as_str())], u64::from(upstream.health.is_panicking()))
        }),
    )?;
    families.counters(
        "upstream_ejections",
        "Servers left out because requests to them failed",
        None,
        watched.iter().map(|upstream| {
            ([("upstream", upstream.config.name.as_str())], upstream.health.counts().ejections)
        }),
    )?;
    families.counters(
        "upstream_health_checks",
        "Checks of servers, by their result",
        None,
        watched.iter().flat_map(|upstream| {
            let (name, counts) = (upstream.config.name.as_str(), upstream.health.counts());
            [
                ([("upstream", name), ("result", "good")], counts.checks_good),
                ([("upstream", name), ("result", "failed")], counts.checks_failed),
            ]
        }),
    )
}

fn sum(upstream: &Upstream, level: fn(&Server) -> &AtomicUsize) -> u64 {
    upstream.servers.iter().map(|server| level(server).load(Ordering::Relaxed) as u64).sum()
}
