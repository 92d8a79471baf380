//! What systemd is told of this process (`Type=notify`), where it asks to be: `NOTIFY_SOCKET`.
//!
//! That nobody listens is no trouble of the gateway's, so errors are ignored.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use sd_notify::NotifyState;

use crate::server::worker::Shared;

/// It serves.
pub(super) fn ready() {
    let _ = sd_notify::notify(&[NotifyState::Ready]);
}

/// It reads its configuration again, until [`ready`].
pub(super) fn reloading() {
    if let Ok(now) = NotifyState::monotonic_usec_now() {
        let _ = sd_notify::notify(&[NotifyState::Reloading, now]);
    }
}

/// It drains, and ends.
pub(super) fn stopping() {
    let _ = sd_notify::notify(&[NotifyState::Stopping]);
}

/// The process of this id is the service's main one from here on.
pub(super) fn main_process(pid: u32) {
    let _ = sd_notify::notify(&[NotifyState::MainPid(pid)]);
}

/// It works.
fn alive() {
    let _ = sd_notify::notify(&[NotifyState::Watchdog]);
}

/// How often [`alive`] has to be said: twice as often as systemd wants to hear it. `None`: never.
fn alive_every() -> Option<Duration> {
    sd_notify::watchdog_enabled().map(|within| within / 2).filter(|every| !every.is_zero())
}

/// Says to systemd's watchdog that every worker goes on turning, if that is wanted.
pub(super) struct Alive {
    tick: Option<tokio::time::Interval>,
    shared: Arc<Shared>,
    /// How often each worker had turned when it was said last.
    turns: Vec<u64>,
}

impl Alive {
    /// Nothing said yet.
    pub(super) fn new(shared: &Arc<Shared>) -> Alive {
        let tick = alive_every().map(tokio::time::interval);
        Alive { tick, shared: Arc::clone(shared), turns: vec![0; shared.turns.len()] }
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
            None => alive(),
            Some(worker) => {
                tracing::error!(worker, "stands still: the watchdog is not told that the process works")
            }
        }
        self.turns = turns;
    }
}
