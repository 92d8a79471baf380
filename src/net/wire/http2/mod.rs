//! Counts the frames of an HTTP/2 connection (RFC 9113 section 4.1) against budgets while they pass.
//!
//! The protocol itself is hyper's. It accepts everything the RFC allows, and the RFC allows a peer to send PING for ever;
//! the budgets here are the gateway's own bounds. If hyper ends a connection, the fault is named here. Of payloads only the
//! codes of RST_STREAM and GOAWAY, one parameter of SETTINGS, and the presence of pseudo-headers are read. No field is
//! decoded, and the clock is passed in.

mod faults;
mod meter;
mod metered_stream;
mod splitter;
mod trailers;

pub use meter::{Excess, HyperRefusal, Meter, Opening, PeerSide, StreamId};
pub use metered_stream::MeteredStream;
pub use splitter::{
    ACK, CONTINUATION, END_HEADERS, END_STREAM, FrameHead, HEADERS, SETTINGS, Splitter, WINDOW_UPDATE, frame,
};
