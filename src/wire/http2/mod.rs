//! HTTP/2 by its frames (RFC 9113 section 4.1): what a connection carries, counted against budgets while it passes.
//!
//! The protocol itself is hyper's. It accepts what the RFC allows, and the RFC allows a peer to send PING for ever:
//! here is what we allow. Where it ends a connection, what is wrong is named here. Of payloads this reads the codes of
//! RST_STREAM and GOAWAY, a parameter of SETTINGS, and whether trailers have pseudo-headers; it decodes no field and
//! reads no clock that is not handed in.

mod faults;
mod meter;
mod metered;
mod splitter;
mod trailers;

pub use meter::{Excess, Meter, Peer, Refused};
pub use metered::Metered;
pub use splitter::{
    ACK, CONTINUATION, END_HEADERS, END_STREAM, HEADERS, Head, SETTINGS, Splitter, WINDOW_UPDATE, frame,
};
