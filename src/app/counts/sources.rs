//! What answers about counts are made of: the snapshot in force, the limiter, the metrics, the clocks.

use std::sync::Arc;

use arc_swap::ArcSwap;

use crate::app::hot_keys::HotKeys;
use crate::database::Time;
use crate::limiter::Limiter;
use crate::metrics::Metrics;
use crate::proxy::snapshot::Snapshot;
use crate::{clock, usage};

/// What answers need.
#[derive(Clone)]
pub(in crate::app) struct Counts {
    pub(in crate::app) current: Arc<ArcSwap<Snapshot>>,
    pub(in crate::app) limiter: Arc<Limiter>,
    pub(in crate::app) metrics: Arc<Metrics>,
    /// What is gathered of usage by the minute. `None`: nothing is.
    pub(in crate::app) usage: Option<Arc<usage::Gathered>>,
    /// What is known of heavy keys. `None`: nothing is.
    pub(in crate::app) hot_keys: Option<HotKeys>,
    /// Both clocks when this process started, if a check may say at which time it is decided.
    pub(in crate::app) clocks: Option<Clocks>,
}

/// The monotonic clock beside that of the wall at one moment. Read once, so that the same time of the wall is the same time
/// of every decision.
#[derive(Clone, Copy)]
pub(in crate::app) struct Clocks {
    pub(super) now_ns: u64,
    pub(super) wall: Time,
}

impl Clocks {
    pub(in crate::app) fn now() -> Clocks {
        Clocks { now_ns: clock::now_ns(), wall: Time::now() }
    }
}
