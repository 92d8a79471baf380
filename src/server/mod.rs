//! The server of connections: from accept until bytes become a request, and from an answer's bytes to the close.
//!
//! It calls the [`Service`](crate::service::Service) it is given with each request, and knows nothing of routes, limits
//! or upstreams. Its workers share nothing but what is built before a connection comes.

pub mod accept;
mod connection;
mod frame_timer;
mod gate;
mod http1;
mod http2;
pub mod idle;
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
