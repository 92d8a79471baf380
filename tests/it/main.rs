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
mod hostile_h1;
mod hostile_heads;
mod hostile_paths;
mod hostile_slow;
mod hostile_upstream;
mod http1;
mod http2;
mod input;
mod limits;
mod reload;
mod routes;
mod smuggling;
mod tls;
mod trouble;
mod upgrade;
