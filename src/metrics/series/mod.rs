//! The metrics of one route, policy, upstream, listener or reason, each with methods for the events that it counts.
//!
//! Every method takes the [`Worker`](super::Worker) that counts and costs a few plain memory accesses.

pub(crate) mod latency;
pub(crate) mod listener;
pub(crate) mod policy;
pub(crate) mod route;
pub(crate) mod upstream;
pub(crate) mod window;

pub use latency::Latency;
pub use listener::{ConnectionDeadline, ListenerSeries, RefusedConnection};
pub use policy::{Comparison, CostOutcome, DecidingTier, PolicyDecision, PolicySeries};
pub use route::{CLASSES, RefusalSeries, RequestCounts, RouteSeries, RouteTotals};
pub use upstream::{ExchangeOutcome, IpVersion, MirrorOutcome, UpstreamSeries};
pub use window::WindowSeries;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_of_a_closed_set_follow_its_order() {
        for (index, exchange) in ExchangeOutcome::ALL.into_iter().enumerate() {
            assert_eq!(exchange as usize, index);
        }
        for (index, decision) in PolicyDecision::ALL.into_iter().enumerate() {
            assert_eq!(decision as usize, index);
        }
        for (index, tier) in DecidingTier::ALL.into_iter().enumerate() {
            assert_eq!(tier as usize, index);
        }
        for (index, cost) in CostOutcome::ALL.into_iter().enumerate() {
            assert_eq!(cost as usize, index);
        }
        for (index, comparison) in Comparison::ALL.into_iter().enumerate() {
            assert_eq!(comparison as usize, index);
        }
        for (index, deadline) in ConnectionDeadline::ALL.into_iter().enumerate() {
            assert_eq!(deadline as usize, index);
        }
        for (index, refused) in RefusedConnection::ALL.into_iter().enumerate() {
            assert_eq!(refused as usize, index);
        }
    }
}
