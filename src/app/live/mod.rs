//! What the gateway does, as a summary of a moment: for the page and `sluicegate top`, which watch it each second.
//!
//! It is made on the control runtime of counts that are there anyway, and says so much that a person can look at it: the
//! busiest policies and routes, and what all others do together.

mod busiest;
mod rates;

use std::sync::Arc;

use arc_swap::ArcSwap;
use serde_json::{Map, Value, json};

use super::last_reload::LastReload;
use super::upstreams;
use crate::admin::{self, Phase, Readiness};
use crate::global::Status;
use crate::metrics::{Metrics, Totals};
use crate::proxy::snapshot::Snapshot;
use crate::{clock, config};
use busiest::Busiest;
use rates::Interval;

/// Where a summary is from.
pub(super) struct Sources {
    pub(super) metrics: Arc<Metrics>,
    pub(super) current: Arc<ArcSwap<Snapshot>>,
    /// The configuration in force as text.
    pub(super) text: Arc<ArcSwap<String>>,
    pub(super) readiness: Readiness,
    pub(super) last_reload: LastReload,
    /// How this node stands to its database, in a sentence. `None`: it has none.
    pub(super) database: Option<Box<dyn Fn() -> String + Send>>,
    /// The shards of Redis. `None`: limits are not shared.
    pub(super) redis: Option<Box<dyn Fn() -> Vec<Status> + Send>>,
}

/// The summary with what it remembers from one moment to the next.
struct Summary {
    sources: Sources,
    before: Option<Reading>,
    policies: Busiest,
    routes: Busiest,
    fingerprint: Fingerprint,
}

/// What was counted at a moment.
struct Reading {
    at_ns: u64,
    totals: Totals,
    redis: Vec<Status>,
}

/// The fingerprint of a text, which takes as long as the text is.
#[derive(Default)]
struct Fingerprint {
    of: Option<Arc<String>>,
    shown: String,
}

/// Shows summaries of these sources to all who watch.
pub(super) fn live(sources: Sources) -> admin::Live {
    let mut summary = Summary {
        sources,
        before: None,
        policies: Busiest::new(POLICIES_SHOWN),
        routes: Busiest::new(ROUTES_SHOWN),
        fingerprint: Fingerprint::default(),
    };
    admin::Live::new(Box::new(move || summary.of_now().to_string()))
}

impl Summary {
    fn of_now(&mut self) -> Value {
        let now_ns = clock::now_ns();
        let redis = self.sources.redis.as_ref().map(|status| status());
        let reading = Reading {
            at_ns: now_ns,
            totals: self.sources.metrics.totals(),
            redis: redis.clone().unwrap_or_default(),
        };
        // What nobody has watched for a while has no rate of now.
        let before = self.before.take().filter(|before| now_ns.saturating_sub(before.at_ns) < STALE_NS);
        let before = before.as_ref().unwrap_or(&reading);
        let interval = Interval::between(before, &reading);
        let mut shown = Map::new();
        let mut show = |name: &str, value: Value| shown.insert(name.to_owned(), value);
        show("at", json!(clock::unix().as_millis() as f64 / 1e3));
        show("node", json!(&*self.sources.current.load().node.name));
        show("version", json!(env!("CARGO_PKG_VERSION")));
        show("phase", json!(phase_word(self.sources.readiness.phase())));
        // 0: nothing to compare with yet, so that all rates are 0.
        show("seconds", json!(interval.seconds()));
        show("requests", interval.requests());
        show("connections", interval.connections());
        show("policies", self.policies.shown(interval.policies()));
        show("routes", self.routes.shown(interval.routes()));
        show("refusals", interval.refusals());
        show("upstreams", upstreams::brief(&self.sources.current.load().upstreams, now_ns));
        if redis.is_some() {
            show("redis", interval.redis());
        }
        show("configuration", self.configuration(&reading.totals));
        if let Some(sentence) = &self.sources.database {
            show("database", json!(sentence()));
        }
        drop(interval);
        self.before = Some(reading);
        Value::Object(shown)
    }

    fn configuration(&mut self, totals: &Totals) -> Value {
        let snapshot = self.sources.current.load();
        json!({
            "generation": snapshot.generation + 1,
            "fingerprint": self.fingerprint.of(&self.sources.text.load_full()),
            "loaded-at": totals.loaded_unix_seconds,
            "reloads": { "succeeded": totals.reloads_succeeded, "failed": totals.reloads_failed },
            "last-reload": self.sources.last_reload.shown(),
            "routes": snapshot.series.routes.len(),
            "policies": snapshot.series.policies.len(),
            "upstreams": snapshot.upstreams.len(),
        })
    }
}

impl Fingerprint {
    fn of(&mut self, text: &Arc<String>) -> &str {
        if self.of.as_ref().is_none_or(|of| !Arc::ptr_eq(of, text)) {
            self.shown = config::fingerprint(text);
            self.of = Some(Arc::clone(text));
        }
        &self.shown
    }
}

fn phase_word(phase: Phase) -> &'static str {
    match phase {
        Phase::Starting => "starting",
        Phase::Ready => "ready",
        Phase::Draining => "draining",
    }
}

/// Policies that are shown by name.
const POLICIES_SHOWN: usize = 20;
/// Routes that are shown by name.
const ROUTES_SHOWN: usize = 20;
/// Of counts that are this old the rate says nothing of now, nanoseconds.
const STALE_NS: u64 = 5_000_000_000;
