//! Where a summary is from, and what was counted at a moment.

use std::sync::Arc;

use arc_swap::ArcSwap;

use crate::fleet::shared_tier::Shards;
use crate::publisher::EffectiveText;
use crate::views::last_reload::LastReload;
use base::clock;
use control::admin::{ProcessPhase, Readiness};
use gateway::proxy::snapshot::Snapshot;
use limiter::global::Status;
use metrics::{Metrics, Totals};

#[derive(Clone)]
pub(crate) struct Sources {
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) current: Arc<ArcSwap<Snapshot>>,
    pub(crate) text: Arc<ArcSwap<EffectiveText>>,
    pub(crate) readiness: Readiness,
    pub(crate) last_reload: LastReload,
    /// How this node stands to its database, in a sentence. `None`: it has none.
    pub(crate) database: Option<Sentence>,
    /// The shards of Redis. `None`: limits are not shared.
    pub(crate) redis: Option<Shards>,
}

pub(crate) type Sentence = Arc<dyn Fn() -> String + Send + Sync>;

pub(super) struct Reading {
    pub(super) at_ns: u64,
    pub(super) totals: Totals,
    pub(super) redis: Vec<Status>,
}

impl Sources {
    pub(super) fn reading(&self) -> Reading {
        let redis = self.redis.as_ref().map(|status| status()).unwrap_or_default();
        Reading { at_ns: clock::now_ns(), totals: self.metrics.totals(), redis }
    }

    /// Whether this gateway serves, in a word.
    pub(super) fn phase(&self) -> &'static str {
        match self.readiness.phase() {
            ProcessPhase::Starting => "starting",
            ProcessPhase::Ready => "ready",
            ProcessPhase::Draining => "draining",
        }
    }
}
