//! The admin listener: health, metrics, the configuration in force, explanations, keys of limits, a page for browsers, over
//! HTTP/1.1.
//!
//! It runs on the control runtime, has its own listener, and shares only [`State`] with the data plane, so a client that
//! holds its connections open delays no request. `routes.rs` is the table of all endpoints; those
//! that change something are in `api`.

mod accept;
mod access;
mod activity;
mod api;
mod body;
mod config;
mod connection;
mod control;
mod counts;
mod events;
mod explain;
mod gate;
mod gzip;
mod host;
mod limits;
mod live;
mod page;
mod pages;
mod readiness;
mod refusal;
mod reply;
mod routes;
mod secured;
mod serve;
mod state;
#[cfg(test)]
mod tests;
mod watched;

pub use access::{Access, Role, Token};
pub use api::decisions::{DecidedWindow, Decision, DecisionList};
pub use api::hot_keys::{FleetKey, HotFleet, HotKey, HotKeys, HotMinute};
pub use api::reading::bodies;
pub use config::{Config, NamedCertificate, NamedToken, OWN_TOKEN_NAME, Secret};
pub use control::{
    Applied, ByMinute, Check, Control, Minutes, MinutesAsked, MinutesReader, Proposal, Writes,
};
pub use counts::{
    Asked, Checks, Counts, CountsBy, From, Grant, Granted, Grants, Holder, HotKeyUsage, HotKeysReader,
    HotKeysShown, Names, PenaltyShown, PolicyUsage, TierFrom, TierShown, Usage, UsageAsked, Verdict,
    Violated, WindowUsage,
};
pub use explain::ExplainRequest;
pub use host::canonical as canonical_host;
pub use live::{Live, Summary};
pub use readiness::{Phase, Readiness};
pub use secured::Settings;
pub use serve::spawn;
pub use state::{KeyReader, Nodes, State, Text};
