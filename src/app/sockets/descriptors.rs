//! Compares the limit of file descriptors with what a configuration may need. Raising and counting is
//! `net::descriptors`.

use config::Config;
use gateway::service::config::CONNECTIONS_MAX_UNWRITTEN;
use net::descriptors;

/// Reserves the descriptors that connections to upstreams may need, so that clients cannot take them all.
pub(crate) fn keep(config: &Config, limit: u64) {
    descriptors::keep(limit, upstreams(config).saturating_add(OTHERS));
}

/// A warning if the limit is lower than what the configuration may need. A `max-connections` that the operator did not
/// write is a default, not a demand: such a listener counts as `CLIENTS_UNWRITTEN` only.
pub fn warning(config: &Config, limit: u64) -> Option<String> {
    let clients = config.listeners.iter().map(|listener| listener.connections_max as u64);
    let (clients, upstreams) = (clients.fold(0, u64::saturating_add), upstreams(config));
    let needed = clients.saturating_add(upstreams).saturating_add(OTHERS);
    let demanded = config.listeners.iter().map(|listener| match listener.connections_max {
        CONNECTIONS_MAX_UNWRITTEN => CLIENTS_UNWRITTEN,
        written => written as u64,
    });
    let demanded = demanded.fold(upstreams.saturating_add(OTHERS), u64::saturating_add);
    (limit < demanded).then(|| {
        format!(
            "the process is limited to {limit} file descriptors and can need {needed}: {clients} for clients \
             (`max-connections`), {upstreams} for upstreams (`connections.max` of each server), {OTHERS} for the rest; \
             raise the hard limit (`LimitNOFILE` of systemd, `ulimit -Hn`) or lower those"
        )
    })
}

/// The most connections to all upstream servers together.
fn upstreams(config: &Config) -> u64 {
    let each = config
        .upstreams
        .iter()
        .map(|upstream| (upstream.servers.len() as u64).saturating_mul(upstream.connections.max as u64));
    each.fold(0, u64::saturating_add)
}

/// Clients that a listener should have room for if its configuration does not say how many.
const CLIENTS_UNWRITTEN: u64 = 8_192;
/// What the process needs for itself: logs, the admin listener, Redis, files it reads, runtimes.
const OTHERS: u64 = 256;
