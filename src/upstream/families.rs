//! What a scrape shows of the connections to upstreams.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::{Server, Upstream};
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
    )
}

fn sum(upstream: &Upstream, level: fn(&Server) -> &AtomicUsize) -> u64 {
    upstream.servers.iter().map(|server| level(server).load(Ordering::Relaxed) as u64).sum()
}
