//! What a real Envoy asks a gateway by gRPC: its rate limit service (`envoy.service.ratelimit.v3.RateLimitService`) and its
//! rate limit quota service (`envoy.service.rate_limit_quota.v3.RateLimitQuotaService`), beside health and reflection.
//!
//! It has connections, messages and their bounds. It decides nothing: `app` brings a [`RateLimits`] for each of its threads,
//! which answers from the same snapshot and the same limiter as requests to the proxy. Checks run on threads of their own
//! (`threads.rs`): on the control runtime a flood of them would hold up probes and reloads, on a worker the requests of its
//! clients.

mod codec;
mod config;
mod connection;
mod descriptors;
mod held;
mod limits;
mod messages;
mod proto;
mod quota_descriptors;
mod quota_messages;
mod quota_stream;
mod secured;
mod serve;
mod service;
mod stats;
mod threads;
mod until;

pub use config::{Client, Config};
pub use messages::{
    Code, DescriptorStatus, Entry, HeaderValue, Limit, RateLimitDescriptor, RateLimitOverride,
    RateLimitRequest, RateLimitResponse, Unit,
};
pub use quota_messages::{
    Abandon, Action, Blanket, BucketAction, BucketId, BucketQuotaUsage, QuotaAssignment,
    RateLimitQuotaResponse, RateLimitQuotaUsageReports, Rule, Strategy, TokenBucket,
};
pub use serve::{Asked, serve};
pub use service::RateLimits;
pub use stats::{Stats, Told};
pub use threads::Threads;
