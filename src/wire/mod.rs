//! What both sides of the wire share, towards clients and towards upstreams: where messages of HTTP/1 end, and what
//! the frames of HTTP/2 say. It reads bytes and does no I/O of its own.

pub mod http1;
pub mod http2;
