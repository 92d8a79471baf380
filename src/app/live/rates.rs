//! What came between two readings, by the second.

use std::collections::HashMap;

use serde_json::{Value, json};

use super::busiest::Row;
use super::reading::Reading;
use limiter::global::Status;
use metrics::{CLASSES, DECISIONS, RouteTotals};

/// The time between two readings, and what came in it.
pub(super) struct Interval<'r> {
    before: &'r Reading,
    now: &'r Reading,
}

impl<'r> Interval<'r> {
    pub(super) fn between(before: &'r Reading, now: &'r Reading) -> Interval<'r> {
        Interval { before, now }
    }

    /// How long it is; 0 if there is nothing to compare with.
    pub(super) fn seconds(&self) -> f64 {
        self.now.at_ns.saturating_sub(self.before.at_ns) as f64 / 1e9
    }

    /// A count by the second, to a tenth.
    fn rate(&self, now: u64, before: u64) -> f64 {
        let seconds = self.seconds();
        if seconds == 0.0 { 0.0 } else { tenth(now.saturating_sub(before) as f64 / seconds) }
    }

    fn since(&self) -> impl Iterator<Item = (&'r str, RouteTotals)> {
        let before: HashMap<&str, &RouteTotals> = by_name(&self.before.totals.routes);
        let now = self.now.totals.routes.iter();
        now.map(move |(name, totals)| {
            (&**name, totals.since(before.get(&**name).copied().unwrap_or(&RouteTotals::default())))
        })
    }

    pub(super) fn requests(&self) -> Value {
        let all = self.since().fold(RouteTotals::default(), |all, (_, route)| all.and(&route));
        let mut shown = self.route(&all);
        let total = self.now.totals.routes.iter().map(|(_, route)| route.requests()).sum::<u64>();
        shown["total"] = json!(total);
        shown
    }

    /// Each route that had requests.
    pub(super) fn routes(&self) -> Vec<Row<'r>> {
        let used = self.since().filter(|(_, route)| route.requests() > 0);
        used.map(|(name, route)| Row {
            name,
            first: 0.0,
            then: self.rate(route.requests(), 0),
            shown: self.route(&route),
            rates: &[],
        })
        .collect()
    }

    fn route(&self, route: &RouteTotals) -> Value {
        let mut shown = json!({
            "per-second": self.rate(route.requests(), 0),
            "p50": route.durations.quantile(0.5),
            "p95": route.durations.quantile(0.95),
            "p99": route.durations.quantile(0.99),
        });
        for (class, count) in CLASSES.into_iter().zip(route.classes) {
            shown[class] = json!(self.rate(count, 0));
        }
        shown
    }

    /// Each policy, whether it decided anything or not.
    pub(super) fn policies(&self) -> Vec<Row<'r>> {
        let before: HashMap<&str, &[u64; DECISIONS.len()]> = by_name(&self.before.totals.policies);
        let none = [0; DECISIONS.len()];
        let row = |(name, now): &'r (Box<str>, [u64; DECISIONS.len()])| {
            let before = before.get(&**name).copied().unwrap_or(&none);
            let mut shown = json!({});
            let (mut refused, mut all) = (0.0, 0.0);
            for (index, word) in DECISIONS.into_iter().enumerate() {
                let rate = self.rate(now[index], before[index]);
                shown[word] = json!(rate);
                all += rate;
                if REFUSED.contains(&word) {
                    refused += rate;
                }
            }
            let refused_total = |index: &usize| REFUSED.contains(&DECISIONS[*index]);
            shown["refused-total"] =
                json!((0..now.len()).filter(refused_total).map(|index| now[index]).sum::<u64>());
            Row { name, first: refused, then: all, shown, rates: &DECISIONS }
        };
        self.now.totals.policies.iter().map(row).collect()
    }

    /// Reasons for which requests were refused, the most frequent first.
    pub(super) fn refusals(&self) -> Value {
        let before: HashMap<&str, &u64> = by_name(&self.before.totals.refusals);
        let mut reasons: Vec<(f64, u64, &str)> = Vec::new();
        for (reason, total) in self.now.totals.refusals.iter().filter(|(_, total)| *total > 0) {
            let earlier = before.get(&**reason).map_or(0, |count| **count);
            reasons.push((self.rate(*total, earlier), *total, reason));
        }
        reasons.sort_by(|one, other| other.0.total_cmp(&one.0).then(other.1.cmp(&one.1)));
        let shown = |(rate, total, reason)| json!({ "reason": reason, "per-second": rate, "total": total });
        reasons.into_iter().take(REASONS_SHOWN).map(shown).collect()
    }

    pub(super) fn connections(&self) -> Value {
        let (now, before) = (self.now.totals.connections, self.before.totals.connections);
        json!({
            "open": now.open,
            "accepted": self.rate(now.accepted, before.accepted),
            "refused": self.rate(now.refused, before.refused),
        })
    }

    /// Each shard of Redis; those in trouble first, so that a bound leaves out none of them.
    pub(super) fn redis(&self) -> Value {
        let before: HashMap<&str, &Status> =
            self.before.redis.iter().map(|shard| (shard.shard.as_str(), shard)).collect();
        let mut shards: Vec<&Status> = self.now.redis.iter().collect();
        shards.sort_by_key(|shard| shard.is_up && shard.is_quick);
        let shown = |shard: &Status| {
            let earlier = before.get(shard.shard.as_str()).map_or(shard.counts, |earlier| earlier.counts);
            json!({
                "shard": shard.shard,
                "server": shard.server,
                "version": shard.version,
                "condition": shard.condition.name(),
                "up": shard.is_up,
                "in-time": shard.is_quick,
                "round-trip": shard.round_trip_ns as f64 / 1e9,
                "calls": self.rate(shard.counts.calls, earlier.calls),
                "operations": self.rate(shard.counts.operations, earlier.operations),
                "late": self.rate(shard.counts.late, earlier.late),
                "lost": self.rate(shard.counts.lost, earlier.lost),
            })
        };
        shards.into_iter().take(SHARDS_SHOWN).map(shown).collect()
    }
}

/// To a tenth: no person reads more, and an event stays small.
pub(super) fn tenth(rate: f64) -> f64 {
    // A sum of nothing is -0.
    (rate * 10.0).round() / 10.0 + 0.0
}

fn by_name<T>(named: &[(Box<str>, T)]) -> HashMap<&str, &T> {
    named.iter().map(|(name, value)| (&**name, value)).collect()
}

const REFUSED: [&str; 3] = ["denied", "missing-rejected", "penalised"];
const REASONS_SHOWN: usize = 20;
const SHARDS_SHOWN: usize = 64;
