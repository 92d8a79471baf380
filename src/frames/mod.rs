//! HTTP/2 by its frames (RFC 9113 section 4.1): what a connection carries, counted against budgets while it passes.
//!
//! The protocol itself is hyper's. It accepts what the RFC allows, and the RFC allows a peer to send PING for ever:
//! here is what we allow. Nothing of a payload is read but the codes of RST_STREAM and GOAWAY, no field is decoded,
//! no clock is read that is not handed in.

mod meter;
mod metered;
mod splitter;

pub use meter::{Excess, Meter, Peer, Refused};
pub use metered::Metered;
pub use splitter::{Head, Splitter};
