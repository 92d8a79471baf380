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
