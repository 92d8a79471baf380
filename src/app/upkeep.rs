//! What the control runtime does at intervals while it attends to anything else: it measures memory, and tells systemd's
//! watchdog that the workers turn.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Interval, MissedTickBehavior, interval};

use super::service_manager::Alive;
use crate::server::worker::Shared;
use crate::service::overload::Overload;

/// The intervals, and what is done at each.
pub(super) struct Upkeep {
    memory: Interval,
    overload: Arc<Overload>,
    alive: Alive,
}

impl Upkeep {
    /// Nothing is done yet.
    pub(super) fn new(shared: &Arc<Shared>) -> Upkeep {
        let mut memory = interval(MEMORY_EVERY);
        memory.set_missed_tick_behavior(MissedTickBehavior::Skip);
        Upkeep { memory, overload: Arc::clone(&shared.overload), alive: Alive::new(shared) }
    }

    /// Waits until something is due, and does it. Every loop that waits for something else has this as a branch. It is
    /// cancel-safe: what is due is done in one go after the wait.
    pub(super) async fn turn(&mut self) {
        tokio::select! {
            _ = self.memory.tick() => self.overload.look(),
            () = self.alive.due() => self.alive.say(),
        }
    }
}

/// How often resident memory is compared with the marks of `[overload]`.
const MEMORY_EVERY: Duration = Duration::from_millis(250);
