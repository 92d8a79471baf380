//! What the control runtime does at intervals while it attends to anything else: it measures memory and how much the
//! workers work, and tells systemd's
//! watchdog that the workers turn.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Interval, MissedTickBehavior, interval};

use super::service_manager::Alive;
use super::utilisation::{self, Utilisation};
use crate::server::worker::Shared;
use crate::service::overload::Overload;

/// The intervals, and what is done at each.
pub(super) struct Upkeep {
    memory: Interval,
    overload: Arc<Overload>,
    alive: Alive,
    utilisation: utilisation::Watch,
}

impl Upkeep {
    /// Nothing is done yet.
    pub(super) fn new(shared: &Arc<Shared>, utilisation: &Arc<Utilisation>) -> Upkeep {
        let mut memory = interval(MEMORY_EVERY);
        memory.set_missed_tick_behavior(MissedTickBehavior::Skip);
        let (overload, alive) = (Arc::clone(&shared.overload), Alive::new(shared));
        Upkeep { memory, overload, alive, utilisation: utilisation::Watch::new(utilisation) }
    }

    /// Waits until something is due, and does it. Every loop that waits for something else has this as a branch. It is
    /// cancel-safe: what is due is done in one go after the wait.
    pub(super) async fn turn(&mut self) {
        tokio::select! {
            _ = self.memory.tick() => self.overload.look(),
            () = self.alive.due() => self.alive.say(),
            () = self.utilisation.due() => self.utilisation.compare(),
        }
    }
}

/// How often resident memory is compared with the marks of `[overload]`.
const MEMORY_EVERY: Duration = Duration::from_millis(250);
