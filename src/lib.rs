//! Sluicegate: a reverse-proxy API gateway with a built-in rate limiter.
//!
//! The library exists for the binary, its tests and its benchmarks; it is not a stable API. `ARCHITECTURE.md` says how
//! the modules build on each other.

pub mod acme;
pub mod admin;
pub mod app;
pub mod auth;
pub mod cause;
pub mod cli;
pub mod clock;
pub mod config;
pub mod database;
pub mod descriptors;
pub mod envoy;
pub mod fetch;
pub mod global;
pub mod hex;
pub mod hot_keys;
pub mod identity;
pub mod in_place;
pub mod json;
pub mod limit;
pub mod limiter;
pub mod listening;
pub mod local;
pub mod metrics;
pub mod migrate;
pub mod outbox;
pub mod policy;
pub mod proxy;
pub mod quota;
pub mod random;
pub mod record;
pub mod rendezvous;
pub mod replay;
pub mod server;
pub mod service;
pub mod sharded;
pub mod tls;
pub mod trace;
pub mod trust;
pub mod units;
pub mod unix_socket;
pub mod upstream;
pub mod usage;
pub mod whole_file;
pub mod wire;
pub mod words;
