//! The admin listener: health, metrics, the configuration in force, explanations, keys of limits, a page for browsers, over
//! HTTP/1.1.
//!
//! It runs on the control runtime, has its own listener, and shares only [`AdminState`] with the data plane, so that
//! a client that holds its connections open delays no request. `routes.rs` is the table of all endpoints; those that
//! change something are in `api`.

mod access;
mod activity;
mod admin_tls;
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
mod scrape_format;
mod serve;
mod state;
#[cfg(test)]
mod tests;
mod watched_stream;

pub use access::{AccessRules, AdminRole, BearerToken, digest_of};
pub use api::decisions::{DecidedWindow, DecisionItem, DecisionList};
pub use api::hot_keys::{FleetKey, HotFleet, HotKey, HotKeyList, HotMinute};
pub use api::reading::bodies;
pub use config::{Config, NamedCertificate, OWN_TOKEN_NAME};
pub use control::{ByMinute, ControlPlane, MinutesQuery, Proposal, UsageMinutes, Writes};
pub use counts::{
    CheckQuestion, CheckVerdict, CountSource, GrantOutcome, HotKeyUsage, HotKeysShown, LimitCounts,
    NamesInForce, PenaltyShown, PolicyUsage, TierFrom, TierShown, UnitGrant, UsageQuestion, ViolatedWindow,
    WindowUsage,
};
pub use explain::ExplainRequest;
pub use host::canonical as canonical_host;
pub use live::LiveFeed;
pub use readiness::{ProcessPhase, Readiness};
pub use serve::spawn;
pub use state::{AdminState, Asked, FleetNodes, KeyReader, Text, asked};
