//! Endpoints that read and change what the database has: limits of single consumers and tenants, tiers, API keys, the audit.
//!
//! Each file has one kind of row; what they share is beside them. `fields`, `query` and `path` read a request, and what they
//! find wrong has its place. `change` refuses what cannot be changed at all and waits until a change is in force. The
//! database does the rest in one transaction.

mod answer;
mod change;
pub(super) mod hot_keys;
mod operations;
mod page;
pub mod reading;
mod schema;
mod spellings;

mod api_keys;
mod audit;
mod checks;
mod consumers;
pub(super) mod decisions;
pub(super) mod document;
pub(super) mod endpoint;
mod limits;
mod overrides;
mod policies;
mod tiers;
mod usage;
mod why;

pub(super) use reading::conditions::etag;
pub(super) use reading::fields::{At, Flaw};
pub(super) use reading::query::Query;
pub(super) use schema::Name;
