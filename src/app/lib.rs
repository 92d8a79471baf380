//! Wires the other modules together: turns a configuration into a snapshot, listeners and workers, and signals into
//! reload and drain. No other module knows them all.
//!
//! The control runtime runs here, beside the workers. It never serves a request, and no request waits for it.
//!
//! README.md beside this file says why it is built so.

mod control;
mod counts;
mod decisions;
#[cfg_attr(not(feature = "rls"), path = "no_envoy.rs")]
mod envoy;
pub mod explain;
mod files;
mod fleet;
mod gateway;
mod hot_keys;
mod lines;
mod live;
mod logs;
mod publisher;
mod read_files;
mod reload;
mod service_manager;
mod signals;
pub mod sockets;
mod upgrade;
mod upkeep;
mod utilisation;
mod views;

use std::path::Path;

use anyhow::Context;

pub use control::rows_of;
pub use fleet::shared_tier::{explain_from_outside, measure_from_outside};
use gateway::Gateway;
pub use publisher::prepare::{PreparedConfig, prepare};
use signals::Signals;
use sockets::inherited_sockets::InheritedSockets;
use upgrade::Predecessor;
pub use upgrade::{request as request_upgrade, request_where_listening as request_upgrade_where_listening};

/// What a process has before it begins: sockets, and whose place it takes.
#[derive(Debug, Default)]
pub struct Inheritance {
    sockets: InheritedSockets,
    predecessor: Option<Predecessor>,
}

/// What this process inherits: from a predecessor, or from systemd. Has to be called before anything reads the clock.
///
/// # Errors
/// If a predecessor does not say what it has to, or systemd passes what is no listening socket.
pub fn inherit() -> anyhow::Result<Inheritance> {
    match upgrade::find()? {
        Some((predecessor, sockets)) => Ok(Inheritance { sockets, predecessor: Some(predecessor) }),
        None => Ok(Inheritance { sockets: InheritedSockets::from_systemd()?, predecessor: None }),
    }
}

/// Runs the gateway until a signal stops it. `prepared` comes from the file at `path`, which SIGHUP reads again. With
/// `takes_time` a check of the admin API may say when it is asked, for tests.
///
/// # Errors
/// If the gateway cannot start: an address is in use, a certificate cannot be read, a thread cannot be spawned.
pub fn run(
    path: &Path,
    prepared: PreparedConfig,
    inheritance: Inheritance,
    takes_time: bool,
) -> anyhow::Result<()> {
    let config = &prepared.loaded.config;
    let limit = net::descriptors::raise();
    sockets::descriptors::keep(config, limit);
    if let Some(warning) = sockets::descriptors::warning(config, limit) {
        tracing::warn!("{warning}");
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .thread_name("control")
        .enable_all()
        .build()
        .context("cannot start the control runtime")?;
    let ended = {
        let _entered = runtime.enter();
        // First, because the default action of these signals ends the process: a SIGHUP during a slow start would kill it.
        let signals = Signals::new().context("signals")?;
        Gateway::start(path, &prepared, inheritance.predecessor.as_ref(), takes_time)
            .and_then(|gateway| runtime.block_on(gateway.serve(prepared, inheritance, signals)))
    };
    // A reload that the stop has cancelled may still be reading a file in a blocking thread, which cannot be aborted.
    runtime.shutdown_background();
    ended
}

/// An error and its causes, joined by `: `. A cause that a message before it has already is left out, since some libraries
/// print their source as part of their own message.
pub fn error_chain(error: &anyhow::Error) -> String {
    let mut text = String::new();
    for cause in error.chain().map(ToString::to_string) {
        if text.contains(&cause) {
            continue;
        }
        if !text.is_empty() {
            text.push_str(": ");
        }
        text.push_str(&cause);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_repeated_cause_is_printed_once() {
        let taken = || anyhow::anyhow!("address in use");
        assert_eq!(
            error_chain(&taken().context("admin on 127.0.0.1:1: address in use")),
            "admin on 127.0.0.1:1: address in use"
        );
        assert_eq!(error_chain(&taken().context("admin").context("start")), "start: admin: address in use");
    }
}
