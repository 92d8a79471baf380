//! What one window of a policy said of requests, by who decided.

use std::fmt;
use std::sync::Arc;

use super::policy::DecidingTier;
use crate::cells::{Cells, WorkerToken};
use crate::families::Families;

/// What one window of a policy said.
#[derive(Debug)]
pub struct WindowSeries(Cells<{ SAID * DecidingTier::ALL.len() }>);

impl WindowSeries {
    pub(crate) fn new(workers: usize) -> WindowSeries {
        WindowSeries(Cells::new(workers))
    }

    /// It had room for a request, or had none, whatever other windows said.
    pub fn said(&self, worker: &WorkerToken, tier: DecidingTier, is_admitted: bool) {
        self.0.count(worker, tier as usize * SAID + usize::from(!is_admitted));
    }

    fn total(&self, tier: DecidingTier, is_admitted: bool) -> u64 {
        self.0.total(tier as usize * SAID + usize::from(!is_admitted))
    }
}

/// The name under which a window is kept: what its labels say.
pub(crate) fn name(policy: &str, window: &str, by: &str) -> String {
    [policy, window, by].join(BETWEEN)
}

/// The family of windows. Of tiers that never decided there are no series.
pub(crate) fn families(
    windows: &[(Box<str>, Arc<WindowSeries>)],
    families: &mut Families<'_>,
) -> fmt::Result {
    families.counters(
        "window_decisions",
        "Decisions of each window of each policy, whatever other windows decided",
        None,
        windows.iter().flat_map(|(name, window)| {
            let mut labels = name.split(BETWEEN);
            let [policy, limit, by] = std::array::from_fn(|_| labels.next().unwrap_or_default());
            let sample = move |tier: DecidingTier, is_admitted| {
                let outcome = if is_admitted { "admitted" } else { "denied" };
                let labels = [
                    ("policy", policy),
                    ("window", limit),
                    ("by", by),
                    ("tier", tier.word()),
                    ("outcome", outcome),
                ];
                (labels, window.total(tier, is_admitted))
            };
            let is_used = |tier: &DecidingTier| window.total(*tier, true) + window.total(*tier, false) > 0;
            let used = DecidingTier::ALL.into_iter().filter(is_used);
            used.flat_map(move |tier| [sample(tier, true), sample(tier, false)]).collect::<Vec<_>>()
        }),
    )
}

/// Between the parts of a window's name, because names of a configuration cannot hold it.
const BETWEEN: &str = "\0";
/// Admitted, denied.
const SAID: usize = 2;
