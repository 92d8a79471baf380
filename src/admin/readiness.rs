//! The phase of the process, which `/readyz` shows to load balancers.

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
    /// The process serves requests.
    Ready,
    /// The process is going to stop.
    Draining,
}

impl Readiness {
    /// Enters a later phase. An earlier one is ignored: a start that finishes after the stop signal must not make a
    /// draining process ready.
    pub fn enter(&self, phase: Phase) {
        self.0.fetch_max(phase as u8, Ordering::Relaxed);
    }

    /// The phase now.
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
