//! What answers about counts are made of: the snapshot in force, the limiter, the metrics, the clocks.

use std::sync::Arc;

use arc_swap::ArcSwap;

use crate::hot_keys::HotKeys;
use base::clock;
use control::database::Time;
use gateway::proxy::snapshot::Snapshot;
use limiter::Limiter;
use metrics::Metrics;
use metrics::usage;

#[derive(Clone)]
pub(crate) struct Counts {
    pub(crate) current: Arc<ArcSwap<Snapshot>>,
    pub(crate) limiter: Arc<Limiter>,
    pub(crate) metrics: Arc<Metrics>,
    /// What is gathered of usage by the minute. `None`: nothing is.
    pub(crate) usage: Option<Arc<usage::UsageCollector>>,
    /// What is known of heavy keys. `None`: nothing is.
    pub(crate) hot_keys: Option<HotKeys>,
    /// Both clocks when this process started, if a check may say at which time it is decided.
    pub(crate) clocks: Option<Clocks>,
}

/// The monotonic clock beside that of the wall at one moment. Read once, so that the same time of the wall is the same time
/// of every decision.
#[derive(Clone, Copy)]
pub(crate) struct Clocks {
    pub(crate) now_ns: u64,
    pub(crate) wall: Time,
}

impl Clocks {
    pub(crate) fn now() -> Clocks {
        Clocks { now_ns: clock::now_ns(), wall: Time::now() }
    }
}
