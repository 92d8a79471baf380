//! Upstream servers: their addresses, their connections, which of them is next.
//!
//! [`Upstream`] is what all workers share of one: its configuration, its resolved addresses and the permits that
//! keep the number of connections under the maximum. The connections themselves live in each worker's own
//! [`Pool`]. Nothing here knows what a request means or which status an error becomes.
//!
//! README.md beside this file says why it is built so.

pub mod balance;
pub mod budget;
pub mod check;
pub mod checkout;
pub mod config;
pub mod connect;
pub mod deadline;
pub mod dns;
pub mod dns_answers;
pub mod error;
pub mod families;
pub mod health;
pub mod http1;
pub mod http2;
mod ids;
pub mod live;
mod open;
pub mod pool;
pub mod request;
pub mod resolve;
mod server;
mod server_pool;
pub mod sticky;
pub mod tally;
pub mod uploads;

pub use checkout::Checkout;
pub use config::Config;
pub use deadline::ReusableDeadline;
pub use error::Error;
pub use ids::{ConfiguredIndex, ServerIndex};
pub use live::{LiveUpstream, ServerChanges};
pub use pool::Pool;
pub use server::{ServerAddress, SharedServer, Upstream};
