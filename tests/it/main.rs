//! The gateway as its users meet it: a process, real sockets, real peers.
//!
//! One binary for all of it; what a single module promises is tested beside that module.

mod floors;
mod support;

mod admin;
mod bodies;
mod cli;
mod connections;
mod drain;
mod forwarding;
mod grpc;
mod h2_conformance;
mod hostile_h2;
mod hostile_upstream_h2;
mod http1;
mod http2;
mod input;
mod limits;
mod overload;
mod reload;
mod routes;
mod slow_h2;
mod tls;
mod trouble;
mod upgrade;
