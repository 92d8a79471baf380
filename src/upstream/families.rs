//! What a scrape shows of the connections to upstreams.

use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use super::health::{EjectReason, HealthState};
use super::{LiveUpstream, SharedServer, Upstream};
use base::clock;
use metrics::{Families, IpVersion, UPSTREAMS_MAX};

/// Writes the families of upstreams in force; those beyond the bound on names have no series.
pub fn collect(upstreams: &[Arc<LiveUpstream>], families: &mut Families<'_>) -> fmt::Result {
    let lives = &upstreams[..upstreams.len().min(UPSTREAMS_MAX)];
    let upstreams: Vec<_> = lives.iter().map(|live| live.load()).collect();
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
    names(lives, families)?;
    health(&upstreams, families)
}

/// Names without an answer, of upstreams that have names.
fn names(lives: &[Arc<LiveUpstream>], families: &mut Families<'_>) -> fmt::Result {
    let named =
        |live: &&Arc<LiveUpstream>| live.config.servers.iter().any(|server| server.unresolved().is_some());
    families.gauges(
        "upstream_unresolved_names",
        "Names of servers whose last question to DNS, or a part of it, brought no answer",
        None,
        lives.iter().filter(named).map(|live| {
            let failing = live.names().iter().filter(|name| name.failure.is_some()).count() as u64;
            ([("upstream", live.config.name.as_str())], failing)
        }),
    )?;
    families.gauges(
        "upstream_names_without_family",
        "Names of servers whose addresses of one version of IP are left out, because none of them can be reached",
        None,
        lives.iter().filter(named).flat_map(|live| {
            let names = live.names();
            IpVersion::ALL.map(|version| {
                let count = names.iter().filter(|name| name.left_out == Some(version)).count() as u64;
                ([("upstream", live.config.name.as_str()), ("family", version.word())], count)
            })
        }),
    )
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
            let states = upstream.states(now_ns);
            HealthState::WORDS.map(|word| {
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
        "Servers left out because of their answers to requests, by the reason",
        None,
        watched.iter().flat_map(|upstream| {
            let (name, ejections) = (upstream.config.name.as_str(), upstream.health.counts().ejections);
            EjectReason::ALL
                .map(|reason| ([("upstream", name), ("reason", reason.word())], ejections[reason as usize]))
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

/// Over the servers that there are, and those that have left and are still at work.
fn sum(upstream: &Upstream, level: fn(&SharedServer) -> &AtomicUsize) -> u64 {
    let of = |server: &SharedServer| level(server).load(Ordering::Relaxed) as u64;
    let leaving = upstream.leaving.iter().filter_map(Weak::upgrade);
    upstream.servers.iter().map(|server| of(server)).sum::<u64>()
        + leaving.map(|server| of(&server)).sum::<u64>()
}
