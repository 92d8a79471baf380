//! The gateway as its users meet it: a process, real sockets, real peers.
//!
//! One binary for all of it; what a single module promises is tested beside that module.

mod fleet;
mod floors;
mod support;

mod admin;
mod algorithms;
mod bodies;
mod cli;
mod connections;
mod costs;
mod drain;
mod forwarding;
mod global;
mod global_faults;
mod grpc;
mod http1;
mod http2;
mod input;
mod lease_script;
mod limits;
mod lua_exact;
mod reload;
mod routes;
mod tls;
mod trouble;
mod upgrade;
