//! The phase of the process, which `/readyz` shows to load balancers.

use std::sync::Arc;

use tokio::sync::watch;

/// The phase of the process. All clones share it, and it only moves forward.
#[derive(Clone, Debug)]
pub struct Readiness(Arc<watch::Sender<ProcessPhase>>);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ProcessPhase {
    /// Not every listener is open yet.
    Starting,
    Ready,
    Draining,
}

impl Default for Readiness {
    fn default() -> Readiness {
        Readiness(Arc::new(watch::Sender::new(ProcessPhase::Starting)))
    }
}

impl Readiness {
    /// Enters a later phase. An earlier one is ignored, because a start that finishes after the stop signal must not
    /// make a draining process ready.
    pub fn enter(&self, phase: ProcessPhase) {
        self.0.send_if_modified(|now| {
            let is_later = phase > *now;
            *now = phase.max(*now);
            is_later
        });
    }

    pub fn phase(&self) -> ProcessPhase {
        *self.0.borrow()
    }

    pub(super) fn draining(&self) -> impl Future<Output = ()> + Send + 'static {
        let mut phases = self.0.subscribe();
        async move {
            // The result is ignored, because who drops the phase is over, too.
            let _ = phases.wait_for(|phase| *phase == ProcessPhase::Draining).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_drain_is_final() {
        let readiness = Readiness::default();
        assert_eq!(readiness.phase(), ProcessPhase::Starting);
        readiness.clone().enter(ProcessPhase::Ready);
        assert_eq!(readiness.phase(), ProcessPhase::Ready);
        readiness.enter(ProcessPhase::Draining);
        readiness.enter(ProcessPhase::Ready);
        assert_eq!(readiness.phase(), ProcessPhase::Draining);
    }
}
