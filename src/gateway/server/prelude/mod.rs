//! Reads what a client sends before its first head is whole, without hyper.
//!
//! hyper is built only once a head is whole, because it needs tens of KiB for a connection, half a head a few bytes,
//! and an attacker who sends half heads (slowloris) opens many connections. Until then only the client's bytes are
//! kept. Nothing is refused here: whatever is not plainly the begin of a request is left to hyper.

pub mod http1;
pub mod http2;
