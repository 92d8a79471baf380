//! The server side of clients' connections: from accept until bytes become a request, and from an answer's bytes to the
//! close.
//!
//! It hands each request to the [`Service`](crate::service::Service) it was given, and knows nothing of routes, limits
//! or upstreams. Start at [`run`] (a worker), [`accept`] (new connections) or `serve` (one connection).

pub mod accept;
mod connection;
mod frame_timer;
mod framing_gate;
mod http1;
mod http2;
pub mod idle;
mod late_body;
mod linger;
pub mod listener;
mod panics;
mod prelude;
mod proxy_protocol;
pub mod run;
mod serve;
mod stream;
mod timer;
mod tls;
mod tunnel;
mod websocket;
pub mod worker;
