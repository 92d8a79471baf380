//! Whether this process wants requests: what a load balancer asks at `/readyz`.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

/// The phase of the process. All clones share it, and it only moves forward.
#[derive(Clone, Debug, Default)]
pub struct Readiness(Arc<AtomicU8>);

/// A phase of the process's life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// Not every listener is open yet.
    Starting,
    /// It serves.
    Ready,
    /// It is going to stop.
    Draining,
}

impl Readiness {
    /// Enters a later phase; an earlier one is ignored, so that a process that drains never gets ready again if the start
    /// ends after the signal to stop.
    pub fn enter(&self, phase: Phase) {
        self.0.fetch_max(phase as u8, Ordering::Relaxed);
    }

    /// The present phase.
    pub fn phase(&self) -> Phase {
        match self.0.load(Ordering::Relaxed) {
            0 => Phase::Starting,
            1 => Phase::Ready,
            _ => Phase::Draining,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_drain_is_final() {
        let readiness = Readiness::default();
        assert_eq!(readiness.phase(), Phase::Starting);
        readiness.clone().enter(Phase::Ready);
        assert_eq!(readiness.phase(), Phase::Ready);
        readiness.enter(Phase::Draining);
        readiness.enter(Phase::Ready);
        assert_eq!(readiness.phase(), Phase::Draining);
    }
}
