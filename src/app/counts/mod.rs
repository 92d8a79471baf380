//! Counts of limits as programs ask for them and change them over the admin listener, by the same limiter and the same
//! snapshot as requests.

mod all;
mod checks;
pub(super) mod resets;
mod usage;

use std::sync::Arc;

use arc_swap::ArcSwap;

use crate::admin;
use crate::clock;
use crate::database::Time;
use crate::limiter::Limiter;
use crate::metrics::Metrics;
use crate::proxy::snapshot::Snapshot;

/// What answers need.
#[derive(Clone)]
pub(super) struct Counts {
    pub(super) current: Arc<ArcSwap<Snapshot>>,
    pub(super) limiter: Arc<Limiter>,
    pub(super) metrics: Arc<Metrics>,
    /// Both clocks when this process started, if a check may say at which time it is decided.
    pub(super) clocks: Option<Clocks>,
}

/// The monotonic clock beside that of the wall at one moment. Read once, so that the same time of the wall is the same time
/// of every decision.
#[derive(Clone, Copy)]
pub(super) struct Clocks {
    now_ns: u64,
    wall: Time,
}

impl Clocks {
    pub(super) fn now() -> Clocks {
        Clocks { now_ns: clock::now_ns(), wall: Time::now() }
    }
}

impl Counts {
    /// The same for the admin listener.
    pub(super) fn for_operators(&self) -> admin::Counts {
        let [counts, used, granting] = [(); 3].map(|()| self.clone());
        let current = Arc::clone(&self.current);
        admin::Counts {
            check: Box::new(move |asked, is_together| {
                let counts = counts.clone();
                Box::pin(async move { checks::decide(&counts, asked, is_together).await })
            }),
            usage: Box::new(move |asked| {
                let counts = used.clone();
                Box::pin(async move { usage::usage(&counts, asked).await })
            }),
            grant: Box::new(move |asked| {
                let counts = granting.clone();
                Box::pin(async move { resets::grant(&counts, asked).await })
            }),
            takes_time: self.clocks.is_some(),
            counts_by: Box::new(move |policy, dimension| {
                let snapshot = current.load();
                snapshot.table.policy(policy).is_some_and(|policy| policy.by.contains(dimension))
            }),
        }
    }
}
