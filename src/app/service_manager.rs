//! What systemd is told of this process (`Type=notify`), where it asks to be: `NOTIFY_SOCKET`, a path or, as in containers,
//! `@` and a name of the abstract namespace.
//!
//! That nobody listens does not keep the gateway from serving: it is warned of once, when the process is ready.

use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use sd_notify::NotifyState;

use gateway::server::worker::WorkerResources;

pub(super) fn ready() {
    if let Err(error) = notify(&[NotifyState::Ready]) {
        tracing::warn!(%error, "cannot tell systemd (NOTIFY_SOCKET) that the gateway is ready");
    }
}

/// It reads its configuration again, until [`ready`].
pub(super) fn reloading() {
    if let Ok(now) = NotifyState::monotonic_usec_now() {
        let _ = notify(&[NotifyState::Reloading, now]);
    }
}

/// It drains, and ends.
pub(super) fn stopping() {
    let _ = notify(&[NotifyState::Stopping]);
}

/// The process of this id is the service's main one from here on.
pub(super) fn main_process(pid: u32) {
    let _ = notify(&[NotifyState::MainPid(pid)]);
}

fn notify(states: &[NotifyState<'_>]) -> io::Result<()> {
    let named = std::env::var_os("NOTIFY_SOCKET");
    let Some(name) = named.as_ref().and_then(|named| named.as_bytes().strip_prefix(b"@")) else {
        return sd_notify::notify(states);
    };
    let message: String = states.iter().map(|state| format!("{state}\n")).collect();
    let address = SocketAddr::from_abstract_name(name)?;
    UnixDatagram::unbound()?.send_to_addr(message.as_bytes(), &address).map(drop)
}

/// Says to systemd's watchdog that every worker goes on turning, if that is wanted.
pub(super) struct WatchdogNotifier {
    tick: Option<tokio::time::Interval>,
    shared: Arc<WorkerResources>,
    /// How often each worker had turned when it was said last.
    turns: Vec<u64>,
}

impl WatchdogNotifier {
    pub(super) fn new(shared: &Arc<WorkerResources>) -> WatchdogNotifier {
        // Twice as often as systemd wants to hear it.
        let every = sd_notify::watchdog_enabled().map(|within| within / 2).filter(|every| !every.is_zero());
        let tick = every.map(tokio::time::interval);
        WatchdogNotifier { tick, shared: Arc::clone(shared), turns: vec![0; shared.turns.len()] }
    }

    /// Ready when it is to be said. Cancel-safe.
    pub(super) async fn due(&mut self) {
        match &mut self.tick {
            Some(tick) => _ = tick.tick().await,
            None => std::future::pending().await,
        }
    }

    /// Says it, unless a worker stands still.
    pub(super) fn say(&mut self) {
        let turns: Vec<u64> = self.shared.turns.iter().map(|turns| turns.load(Ordering::Relaxed)).collect();
        match turns.iter().zip(&self.turns).position(|(now, before)| now == before) {
            None => _ = notify(&[NotifyState::Watchdog]),
            Some(worker) => {
                tracing::error!(
                    worker,
                    "a worker hangs: the gateway stops its watchdog messages, so that systemd restarts it after \
                     WatchdogSec"
                )
            }
        }
        self.turns = turns;
    }
}
