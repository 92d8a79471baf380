//! What the control runtime does at intervals while it attends to anything else: it measures memory and how much the
//! workers work, looks whether logs lose lines, and tells systemd's watchdog that the workers turn.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Interval, MissedTickBehavior, interval};

use super::logs::Logs;
use super::service_manager::WatchdogNotifier;
use super::utilisation::{self, Utilisation};
use gateway::server::worker::WorkerResources;
use gateway::service::overload::Overload;

pub(super) struct Upkeep {
    memory: Interval,
    overload: Arc<Overload>,
    alive: WatchdogNotifier,
    comparison: Interval,
    utilisation: utilisation::Watch,
    lines: Interval,
    logs: Logs,
}

impl Upkeep {
    pub(super) fn new(shared: &Arc<WorkerResources>, watched: &Arc<Utilisation>, logs: &Logs) -> Upkeep {
        let every = |period| {
            let mut every = interval(period);
            every.set_missed_tick_behavior(MissedTickBehavior::Skip);
            every
        };
        Upkeep {
            memory: every(MEMORY_EVERY),
            overload: Arc::clone(&shared.overload),
            alive: WatchdogNotifier::new(shared),
            comparison: every(utilisation::EVERY),
            utilisation: utilisation::Watch::new(watched),
            lines: every(LINES_EVERY),
            logs: logs.clone(),
        }
    }

    /// Waits until something is due, and does it. Every loop that waits for something else has this as a branch. It is
    /// cancel-safe, because what is due is done in one go after the wait.
    pub(super) async fn turn(&mut self) {
        tokio::select! {
            _ = self.memory.tick() => self.overload.look(),
            () = self.alive.due() => self.alive.say(),
            _ = self.lines.tick() => self.logs.look(),
            _ = self.comparison.tick() => self.utilisation.compare(),
        }
    }
}

/// How often resident memory is compared with the marks of `[overload]`.
const MEMORY_EVERY: Duration = Duration::from_millis(250);
/// How often it is looked whether logs lose lines.
const LINES_EVERY: Duration = Duration::from_secs(1);
