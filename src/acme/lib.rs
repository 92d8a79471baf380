//! Certificates by ACME (RFC 8555): when one is due, how it is ordered, where it is kept, and what the authority is shown
//! meanwhile. A [`Keeper`] does so for one certificate on the control runtime, for as long as it is configured.
//!
//! A certificate that has arrived is a file like any other. Nothing here presents it: the listener that names it watches
//! the file. In a fleet one node orders and leaves the certificate for the others (`fleet.rs`). Nothing here listens either: `server` and `proxy` ask [`Challenges`] what to show an authority.

#[cfg(not(feature = "acme"))]
mod absent;
#[cfg(feature = "acme")]
mod challenges;
#[cfg(feature = "acme")]
mod client;
pub mod config;
#[cfg(feature = "acme")]
mod fleet;
mod fleet_values;
#[cfg(feature = "acme")]
mod keeper;
#[cfg(feature = "acme")]
mod order;
#[cfg(feature = "acme")]
mod schedule;
#[cfg(feature = "acme")]
mod seal;
#[cfg(feature = "acme")]
mod state;

#[cfg(not(feature = "acme"))]
pub use absent::{AcmeCounts, Challenges, Keeper};
#[cfg(feature = "acme")]
pub use challenges::Challenges;
pub use config::{ALPN, Config, PATH};
pub use fleet_values::{FleetValues, ValueAnswer, ValuesUnavailable};
#[cfg(feature = "acme")]
pub use keeper::{AcmeCounts, Keeper};
