//! Endpoints that read and change what the database has: limits of single consumers and tenants, tiers, API keys, the audit.
//!
//! Each file has one kind of row; what they share is beside them. `fields`, `query` and `path` read a request, and what they
//! find wrong has its place. `change` refuses what cannot be changed at all and waits until a change is in force. The
//! database does the rest in one transaction.

mod answer;
pub mod bodies;
mod change;
mod conditions;
mod fields;
mod flat_policy;
pub(super) mod hot_keys;
mod json;
mod operations;
mod page;
mod path;
mod query;
mod schema;

pub(super) mod api_keys;
pub(super) mod audit;
pub(super) mod checks;
pub(super) mod consumers;
pub(super) mod decisions;
pub(super) mod document;
pub(super) mod limits;
pub(super) mod overrides;
pub(super) mod policies;
pub(super) mod snake_overrides;
pub(super) mod tiers;
pub(super) mod usage;
pub(super) mod why;

pub(super) use change::BODY_BYTES_MAX;
pub(super) use conditions::etag;
pub(super) use fields::{At, Flaw};
pub(super) use query::Query;
pub(super) use schema::Name;
