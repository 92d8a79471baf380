//! What has been counted by now, for whoever compares it with what was counted a moment before. A scrape has every series;
//! this has the few numbers that people watch.

use std::sync::Arc;

use super::series::{PolicyDecision, PolicySeries, RefusedConnection, RouteTotals};
use super::{Metrics, lock};

/// The counts of one moment. Lists are sorted by name, and names never go.
#[derive(Clone, Debug, Default)]
pub struct Totals {
    /// By route; routes without a request are left out.
    pub routes: Vec<(Box<str>, RouteTotals)>,
    /// By policy: decisions in the order of [`DECISIONS`].
    pub policies: Vec<(Box<str>, [u64; DECISIONS.len()])>,
    pub refusals: Vec<(Box<str>, u64)>,
    pub connections: ConnectionTotals,
    pub reloads_succeeded: u64,
    pub reloads_failed: u64,
    /// Since when it is in force, Unix seconds.
    pub loaded_unix_seconds: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ConnectionTotals {
    pub open: u64,
    pub accepted: u64,
    /// Closed at once because there were too many.
    pub refused: u64,
}

/// The words for what a policy decides, in the order of [`Totals::policies`].
pub const DECISIONS: [&str; 7] = {
    let mut words = [""; PolicyDecision::ALL.len()];
    let mut index = 0;
    while index < words.len() {
        words[index] = PolicyDecision::ALL[index].word();
        index += 1;
    }
    words
};

impl Metrics {
    /// The counts as of now. Never call it from a worker, because it takes time with the number of series in use.
    pub fn totals(&self) -> Totals {
        let configuration = *lock(&self.configuration);
        let routes = self.routes.all();
        let used = routes.into_iter().filter(|(_, route)| route.is_used());
        let policy = |policy: Arc<PolicySeries>| PolicyDecision::ALL.map(|one| policy.decisions(one));
        let mut connections = ConnectionTotals::default();
        for (_, listener) in self.listeners.all() {
            connections.open += listener.open();
            connections.accepted += listener.accepted();
            connections.refused +=
                RefusedConnection::ALL.iter().map(|why| listener.refusals(*why)).sum::<u64>();
        }
        Totals {
            routes: used.map(|(name, route)| (name, route.totals())).collect(),
            policies: self.policies.all().into_iter().map(|(name, of)| (name, policy(of))).collect(),
            refusals: self.refusals.all().into_iter().map(|(name, of)| (name, of.total())).collect(),
            connections,
            reloads_succeeded: self.reloads_succeeded.value(),
            reloads_failed: self.reloads_failed.value(),
            loaded_unix_seconds: configuration.loaded_unix_seconds,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::RequestCounts;

    #[test]
    fn totals_have_what_was_counted_and_differences_what_came_since() {
        let (metrics, workers) = Metrics::new(1);
        let of_status = |status| RequestCounts { status, duration_ns: 2_000_000, ..RequestCounts::default() };
        metrics.route("unused");
        metrics.route("a").finished(&workers[0], &of_status(200));
        metrics.policy("p").decided(&workers[0], PolicyDecision::Denied);
        let before = metrics.totals();
        for status in [200, 404, 429, 503] {
            metrics.route("a").finished(&workers[0], &of_status(status));
        }
        let now = metrics.totals();
        let [(name, route)] = &now.routes[..] else { panic!("{:?}", now.routes) };
        let since = route.since(&before.routes[0].1);
        assert_eq!((&**name, since.classes, since.requests()), ("a", [0, 1, 0, 2, 1, 0], 4));
        assert_eq!((DECISIONS[1], now.policies[0].1[1]), ("denied", 1));
    }
}
