//! Code that both sides of the wire share, towards clients and towards upstreams: where HTTP/1 messages end, and counting
//! HTTP/2 frames against budgets. It follows bytes and opens no connection; the protocols themselves are hyper's.

pub mod http1;
pub mod http2;

/// A record of TLS begins so that is an alert: what a server of TLS answers to a request in the clear.
pub const TLS_ALERT: u8 = 0x15;
