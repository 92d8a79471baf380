//! Where a summary is from, and what was counted at a moment.

use std::sync::Arc;

use arc_swap::ArcSwap;

use crate::admin::{Phase, Readiness};
use crate::app::last_reload::LastReload;
use crate::clock;
use crate::global::Status;
use crate::metrics::{Metrics, Totals};
use crate::proxy::snapshot::Snapshot;

/// Where a summary is from.
#[derive(Clone)]
pub(in crate::app) struct Sources {
    pub(in crate::app) metrics: Arc<Metrics>,
    pub(in crate::app) current: Arc<ArcSwap<Snapshot>>,
    /// The configuration in force as text.
    pub(in crate::app) text: Arc<ArcSwap<String>>,
    pub(in crate::app) readiness: Readiness,
    pub(in crate::app) last_reload: LastReload,
    /// How this node stands to its database, in a sentence. `None`: it has none.
    pub(in crate::app) database: Option<Sentence>,
    /// The shards of Redis. `None`: limits are not shared.
    pub(in crate::app) redis: Option<Shards>,
}

/// The shards of Redis, as they are.
pub(in crate::app) type Shards = Arc<dyn Fn() -> Vec<Status> + Send + Sync>;

/// How this node stands to its database.
pub(in crate::app) type Sentence = Arc<dyn Fn() -> String + Send + Sync>;

/// What was counted at a moment.
pub(super) struct Reading {
    pub(super) at_ns: u64,
    pub(super) totals: Totals,
    pub(super) redis: Vec<Status>,
}

impl Sources {
    /// What is counted by now.
    pub(super) fn reading(&self) -> Reading {
        let redis = self.redis.as_ref().map(|status| status()).unwrap_or_default();
        Reading { at_ns: clock::now_ns(), totals: self.metrics.totals(), redis }
    }

    /// Whether this gateway serves, in a word.
    pub(super) fn phase(&self) -> &'static str {
        match self.readiness.phase() {
            Phase::Starting => "starting",
            Phase::Ready => "ready",
            Phase::Draining => "draining",
        }
    }
}
