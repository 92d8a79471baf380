//! What the gateway does, as a summary of a moment: for the page and `sluicegate top`, which watch it each second.
//!
//! It is made on the control runtime of counts that are there anyway, and says so much that a person can look at it: the
//! busiest policies and routes, and what all others do together.

mod busiest;
mod fleet;
mod rates;
mod reading;

use serde_json::{Map, Value, json};

use super::views::upstreams;
use base::clock;
use busiest::Busiest;
use config::limits::limit_text;
use control::admin;
pub(super) use fleet::Fleet;
use limit::Quota;
use metrics::Totals;
use policy::counting::{self, Policy};
use rates::Interval;
use reading::Reading;
pub(super) use reading::{Sentence, Sources};

/// The summary with what it remembers from one moment to the next.
struct Summary {
    sources: Sources,
    fleet: Option<Fleet>,
    before: Option<Reading>,
    policies: Busiest,
    routes: Busiest,
}

/// Shows summaries of these sources to all who watch, and what is known of the fleet if this is a node of one.
pub(super) fn live(sources: Sources, fleet: Option<Fleet>) -> admin::LiveFeed {
    let mut summary = Summary {
        sources,
        fleet,
        before: None,
        policies: Busiest::new(POLICIES_SHOWN),
        routes: Busiest::new(ROUTES_SHOWN),
    };
    admin::LiveFeed::new(Box::new(move || summary.of_now().to_string()))
}

impl Summary {
    fn of_now(&mut self) -> Value {
        let now_ns = clock::now_ns();
        let reading = self.sources.reading();
        let snapshot = self.sources.current.load();
        // What nobody has watched for a while has no rate of now.
        let before = self.before.take().filter(|before| now_ns.saturating_sub(before.at_ns) < STALE_NS);
        let before = before.as_ref().unwrap_or(&reading);
        let interval = Interval::between(before, &reading);
        let mut shown = Map::new();
        let mut show = |name: &str, value: Value| shown.insert(name.to_owned(), value);
        show("at", json!(clock::unix().as_millis() as f64 / 1e3));
        show("node", json!(&*snapshot.node.name));
        show("version", json!(env!("CARGO_PKG_VERSION")));
        show("phase", json!(self.sources.phase()));
        // 0: nothing to compare with yet, so that all rates are 0.
        show("seconds", json!(interval.seconds()));
        show("requests", interval.requests());
        show("connections", interval.connections());
        let mut policies = self.policies.shown(interval.policies());
        for row in policies["busiest"].as_array_mut().into_iter().flatten() {
            let name = row["name"].as_str().unwrap_or_default();
            row["limits"] = snapshot.table.policy(name).map(limits).unwrap_or_default();
        }
        show("policies", policies);
        show("routes", self.routes.shown(interval.routes()));
        show("refusals", interval.refusals());
        show("upstreams", upstreams::brief(&snapshot.upstreams, now_ns));
        if self.sources.redis.is_some() {
            show("redis", interval.redis());
        }
        show("configuration", self.configuration(&reading.totals));
        if let Some(sentence) = &self.sources.database {
            show("database", json!(sentence()));
        }
        if let Some(fleet) = &self.fleet {
            show("fleet", fleet.shown(now_ns));
        }
        self.before = Some(reading);
        Value::Object(shown)
    }

    fn configuration(&self, totals: &Totals) -> Value {
        let snapshot = self.sources.current.load();
        json!({
            "generation": snapshot.generation + 1,
            "fingerprint": self.sources.text.load().fingerprint,
            "loaded-at": totals.loaded_unix_seconds,
            "reloads": { "succeeded": totals.reloads_succeeded, "failed": totals.reloads_failed },
            "last-reload": self.sources.last_reload.shown(),
            "routes": snapshot.series.routes.len(),
            "policies": snapshot.series.policies.len(),
            "upstreams": snapshot.upstreams.len(),
        })
    }
}

/// The windows of a policy, each with the most units that one key may spend in one period.
fn limits(policy: &Policy) -> Value {
    let shown = |(tier, quota): (Option<&str>, &Quota)| {
        let tier = tier.map(|tier| format!("{tier}: ")).unwrap_or_default();
        let worst =
            quota.worst_period().map(|(units, why)| format!(" (at most {units} in one period: {why})"));
        tier + &limit_text::show_window(quota) + &worst.unwrap_or_default()
    };
    counting::limits(policy).map(shown).collect()
}

const POLICIES_SHOWN: usize = 20;
const ROUTES_SHOWN: usize = 20;
/// Of counts that are this old the rate says nothing of now, nanoseconds.
const STALE_NS: u64 = 5_000_000_000;
