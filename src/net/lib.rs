//! What both sides of the wire need
//! framing of HTTP/1, frames of HTTP/2, TLS, listening sockets, the gateway's own requests. It knows no routes and no limits.

pub mod any_stream;
pub mod descriptors;
pub mod fetch;
pub mod in_place;
pub mod listening;
pub mod outbox;
pub mod tls;
pub mod trust;
pub mod unix_socket;
pub mod wire;
