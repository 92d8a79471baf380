//! The gateway as its users meet it: a process, real sockets, real peers.
//!
//! One binary for all of it; what a single module promises is tested beside that module.

mod floors;
mod support;

mod admin;
mod auth;
mod bodies;
mod cli;
mod connections;
mod drain;
mod forwarding;
mod grpc;
mod http1;
mod http2;
mod input;
mod limits;
mod reload;
mod routes;
mod tls;
mod trouble;
mod upgrade;
