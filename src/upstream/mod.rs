//! Upstream servers: their addresses, their connections, which of them is next.

pub mod config;

pub use config::Config;
