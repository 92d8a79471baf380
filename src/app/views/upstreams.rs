//! Upstreams as operators are shown them: which servers there are, how they are, and what is known of why.

use std::cmp::Reverse;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use serde_json::{Value, json};

use upstream::health::HealthState;
use upstream::live::{NameFailure, ResolvedName};
use upstream::{LiveUpstream, ServerAddress, ServerIndex, Upstream};

pub(crate) fn shown(upstreams: &[Arc<LiveUpstream>], now_ns: u64) -> Value {
    upstreams.iter().map(|upstream| upstream_shown(upstream, now_ns)).collect()
}

/// Upstreams with how many servers are well, and by name those that are not: as much as a person looks at. Those in trouble
/// come first, so that a bound leaves out none of them.
pub(crate) fn brief(upstreams: &[Arc<LiveUpstream>], now_ns: u64) -> Value {
    let mut shown: Vec<(usize, Value)> = upstreams.iter().map(|live| brief_of(live, now_ns)).collect();
    shown.sort_by_key(|(in_trouble, _)| Reverse(*in_trouble));
    let others = shown.split_off(shown.len().min(UPSTREAMS_BRIEF));
    let busiest: Value = shown.into_iter().map(|(_, shown)| shown).collect();
    json!({ "first": busiest, "others": others.len() })
}

/// An upstream, and how many of its servers are not to be used as they should be.
fn brief_of(live: &LiveUpstream, now_ns: u64) -> (usize, Value) {
    let upstream = &*live.load();
    let states = upstream.states(now_ns);
    let mut servers: Vec<(ServerIndex, HealthState)> = upstream.servers.ids().zip(states).collect();
    servers.sort_by_key(|(_, state)| *state == HealthState::Healthy);
    let (count, healthy) =
        (servers.len(), servers.iter().filter(|(_, state)| *state == HealthState::Healthy).count());
    let server = |(index, state): (ServerIndex, HealthState)| {
        let server = &upstream.servers[index];
        let mut shown = json!({
            "server": server.authority,
            "state": state.word(),
            "open": server.open.load(Ordering::Relaxed),
            "idle": server.idle.load(Ordering::Relaxed),
            "waiting": server.waiting.load(Ordering::Relaxed),
        });
        if let Some(failure) = upstream.health.check_failure(index) {
            shown["failure"] = json!(failure);
        } else if let Some(cause) = server.last_connect.cause() {
            shown["failure"] = json!(cause.sentence());
        }
        shown
    };
    let shown = json!({
        "name": upstream.config.name,
        "all-used": upstream.health.is_panicking(),
        "healthy": healthy,
        "servers": count,
        "first": servers.into_iter().take(SERVERS_BRIEF).map(server).collect::<Value>(),
    });
    (count - healthy, shown)
}

fn upstream_shown(live: &LiveUpstream, now_ns: u64) -> Value {
    let upstream = &*live.load();
    let counts = upstream.health.counts();
    let states = upstream.states(now_ns);
    let names = live.names();
    let server = |(index, state): (ServerIndex, HealthState)| {
        let mut shown = server_shown(upstream, index, state);
        if state == HealthState::Unresolved {
            show_failure(&mut shown, &names[upstream.servers[index].origin.index()], now_ns);
        }
        shown
    };
    let servers: Value = upstream.servers.ids().zip(states).map(server).collect();
    json!({
        "name": upstream.config.name,
        "all-used": upstream.health.is_panicking(),
        "ejections": counts.ejections.iter().sum::<u64>(),
        "checks": { "good": counts.checks_good, "failed": counts.checks_failed },
        "names": names_shown(live, names, now_ns),
        "servers": servers,
    })
}

/// The configured servers that are names, and why they have no answer.
fn names_shown(live: &LiveUpstream, names: Vec<ResolvedName>, now_ns: u64) -> Value {
    let names = live.config.servers.iter().zip(names);
    names
        .filter_map(|(server, known)| Some((server.unresolved()?, known)))
        .map(|(name, known)| {
            let mut shown = json!({ "name": name, "servers": known.endpoints.len() });
            show_failure(&mut shown, &known, now_ns);
            if let Some(version) = known.left_out {
                shown["left-out"] = json!(version.word());
            }
            shown
        })
        .collect()
}

/// Why a name has no answer, and for how long.
fn show_failure(shown: &mut Value, name: &ResolvedName, now_ns: u64) {
    if let Some(NameFailure { why, since_ns }) = &name.failure {
        shown["failure"] = json!(why);
        shown["failing-seconds"] = json!(now_ns.saturating_sub(*since_ns) as f64 / 1e9);
    }
}

fn server_shown(upstream: &Upstream, index: ServerIndex, state: HealthState) -> Value {
    let server = &upstream.servers[index];
    let mut shown = json!({
        "server": server.authority,
        "tls": upstream.configured(index).tls,
        "weight": upstream.configured(index).weight,
        "addresses": server.address.iter().filter_map(ServerAddress::tcp).map(|address| address.to_string()).collect::<Vec<_>>(),
        "state": state.word(),
        "failures-in-a-row": upstream.health.failures(index),
        "connections": {
            "open": server.open.load(Ordering::Relaxed),
            "idle": server.idle.load(Ordering::Relaxed),
        },
        "waiting": server.waiting.load(Ordering::Relaxed),
    });
    match state {
        HealthState::Ejected { left_ns } => shown["seconds-left"] = json!(left_ns as f64 / 1e9),
        HealthState::WarmingUp { share } => shown["share"] = json!(f64::from(share) / 1e3),
        HealthState::Healthy | HealthState::Unhealthy | HealthState::Unresolved => {}
    }
    if upstream.config.health.outliers().is_some() {
        let seen = server.tallies.last_interval();
        let first_byte = seen.first_byte_ns().map(|ns| ns / 1e9);
        shown["last-interval"] = json!({
            "requests": seen.requests(),
            "success-rate": (seen.requests() > 0).then(|| seen.success_rate()),
            "first-byte-seconds": first_byte,
        });
    }
    if server.hangs() {
        shown["hangs"] = json!(true);
    }
    if let Some(failure) = upstream.health.check_failure(index) {
        shown["check-failure"] = json!(failure);
    }
    if let Some(cause) = server.last_connect.cause() {
        shown["connect-failure"] = json!(cause.sentence());
    }
    shown
}

const UPSTREAMS_BRIEF: usize = 20;
const SERVERS_BRIEF: usize = 10;
