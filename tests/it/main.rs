//! The gateway as its users meet it: a process, real sockets, real peers.
//!
//! One binary for all of it; what a single module promises is tested beside that module.

mod fleet;
mod floors;
mod support;

mod admin;
mod algorithms;
mod auth;
mod bodies;
mod cli;
mod connections;
mod costs;
mod drain;
mod forwarding;
mod global;
mod global_faults;
mod global_records;
mod global_topologies;
mod grpc;
mod h2_conformance;
mod h2_conformance_upstream;
mod hostile_h1;
mod hostile_h2;
mod hostile_heads;
mod hostile_paths;
mod hostile_slow;
mod hostile_upstream;
mod hostile_upstream_h2;
mod http1;
mod http2;
mod input;
mod lease_script;
mod limits;
mod looks;
mod lua_exact;
mod overload;
mod penalty;
mod pools;
mod process;
mod proxy_protocol;
mod redis_slow;
mod reload;
mod resting;
mod routes;
mod slow_h2;
mod smuggling;
mod tls;
mod told_until_answered;
mod trailers;
mod trouble;
mod upgrade;
mod uploads;
