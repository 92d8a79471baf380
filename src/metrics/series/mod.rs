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
pub use listener::{Deadline, Listener, Refused};
pub use policy::{Comparison, Cost, Decision, Policy, Tier};
pub use route::{CLASSES, Refusal, Request, Route, RouteTotals};
pub use upstream::{Exchange, IpVersion, Mirrored, Upstream};
pub use window::Window;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_of_a_closed_set_follow_its_order() {
        for (index, exchange) in Exchange::ALL.into_iter().enumerate() {
            assert_eq!(exchange as usize, index);
        }
        for (index, decision) in Decision::ALL.into_iter().enumerate() {
            assert_eq!(decision as usize, index);
        }
        for (index, tier) in Tier::ALL.into_iter().enumerate() {
            assert_eq!(tier as usize, index);
        }
        for (index, cost) in Cost::ALL.into_iter().enumerate() {
            assert_eq!(cost as usize, index);
        }
        for (index, comparison) in Comparison::ALL.into_iter().enumerate() {
            assert_eq!(comparison as usize, index);
        }
        for (index, deadline) in Deadline::ALL.into_iter().enumerate() {
            assert_eq!(deadline as usize, index);
        }
        for (index, refused) in Refused::ALL.into_iter().enumerate() {
            assert_eq!(refused as usize, index);
        }
    }
}
