//! Certificates by ACME (RFC 8555): when one is due, how it is ordered, where it is kept, and what the authority is shown
//! meanwhile. A [`Keeper`] does so for one certificate on the control runtime, for as long as it is configured.
//!
//! A certificate that has arrived is a file like any other. Nothing here presents it: the listener that names it watches
//! the file. In a fleet one node orders and leaves the certificate for the others (`fleet.rs`). Nothing here listens either: `server` and `proxy` ask [`Challenges`] what to show an authority.

mod challenges;
mod client;
pub mod config;
mod fleet;
mod keeper;
mod order;
mod schedule;
mod seal;
mod state;

pub use challenges::{ALPN, Challenges, PATH};
pub use config::Config;
pub use fleet::{Asked, FleetNotes, NotesUnavailable};
pub use keeper::{AcmeCounts, Keeper};
