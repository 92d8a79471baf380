//! What a real Envoy asks a gateway by gRPC: its rate limit service (`envoy.service.ratelimit.v3.RateLimitService`), beside
//! health and reflection.
//!
//! It has connections, messages and their bounds. It decides nothing: `app` brings a [`RateLimits`] for each of its threads,
//! which answers from the same snapshot and the same limiter as requests to the proxy. Checks run on threads of their own
//! (`threads.rs`): on the control runtime a flood of them would hold up probes and reloads, on a worker the requests of its
//! clients.

mod codec;
mod config;
mod connection;
mod connection_tls;
mod counted_body;
mod descriptors;
mod limits;
mod messages;
mod proto;
mod serve;
mod service;
mod stats;
mod threads;
mod until;

pub use config::{Config, GrpcClient};
pub use messages::{
    DescriptorStatus, HeaderValue, MapEntry, RateLimit, RateLimitCode, RateLimitDescriptor,
    RateLimitOverride, RateLimitRequest, RateLimitResponse, RateLimitUnit,
};
pub use serve::{ServeOptions, spawn};
pub use service::RateLimits;
pub use stats::RlsStats;
pub use threads::Threads;
