//! What a real Envoy asks a gateway by gRPC: its rate limit service (`envoy.service.ratelimit.v3.RateLimitService`), beside
//! health and reflection.
//!
//! It has connections, messages and their bounds. It decides nothing: `app` brings a [`RateLimits`] for each of its
//! threads, which answers from the same snapshot and the same limiter as requests to the proxy. Checks run on threads
//! of their own (`threads.rs`), because on the control runtime a flood of them would hold up probes and reloads, on a
//! worker the requests of its clients.

//!
//! Without the feature `rls` there is its configuration alone.

#[cfg(feature = "rls")]
mod codec;
mod config;
#[cfg(feature = "rls")]
mod connection;
#[cfg(feature = "rls")]
mod connection_tls;
#[cfg(feature = "rls")]
mod counted_body;
#[cfg(feature = "rls")]
mod descriptors;
#[cfg(feature = "rls")]
mod ending_body;
#[cfg(feature = "rls")]
mod limits;
#[cfg(feature = "rls")]
mod messages;
#[cfg(feature = "rls")]
mod proto;
#[cfg(feature = "rls")]
mod serve;
#[cfg(feature = "rls")]
mod service;
#[cfg(feature = "rls")]
mod stats;
#[cfg(feature = "rls")]
mod threads;
#[cfg(feature = "rls")]
mod turn;

pub use config::{Config, GrpcClient};
#[cfg(feature = "rls")]
pub use messages::{
    DescriptorStatus, HeaderValue, MapEntry, RateLimit, RateLimitCode, RateLimitDescriptor,
    RateLimitOverride, RateLimitRequest, RateLimitResponse, RateLimitUnit,
};
#[cfg(feature = "rls")]
pub use serve::{ServeOptions, spawn};
#[cfg(feature = "rls")]
pub use service::RateLimits;
#[cfg(feature = "rls")]
pub use stats::RlsStats;
#[cfg(feature = "rls")]
pub use threads::Threads;
