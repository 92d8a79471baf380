//! The database of the control plane: policies, tiers, overrides and keys that change while traffic runs, and who changed
//! them. SQLite and PostgreSQL behind one [`Database`].
//!
//! SQL and nothing else: rows in, rows out. It knows no HTTP and no limits, and keeps nothing in memory. Each change is one
//! transaction (see `write.rs`) that has a version of its own; nodes follow the versions ([`Database::changes_since`]).
//!
//! Migrations are in `migrations/`, one folder for each database. One that has been released is never edited.

mod api_keys;
mod assignments;
mod audit;
mod bounds;
mod changes;
pub mod config;
#[cfg_attr(not(feature = "control"), path = "no_connection.rs")]
mod connection;
mod error;
mod events;
mod handle;
mod hint;
mod id;
mod idempotency;
mod overrides;
mod page;
mod policies;
mod query;
mod resets;
mod rows;
pub mod tiers;
mod time;
mod upkeep;
mod usage;
mod write;

pub use api_keys::{ApiKeyFilter, ApiKeyRow, NewApiKey};
pub use assignments::{Assignment, consumers_of};
pub use audit::{AuditEntry, AuditFilter};
pub use changes::{ChangeTime, DatabaseRows, ENDED_KEPT, RowChanges, RowName, STATE_MAX};
pub use config::Config;
pub use connection::hints::DatabaseHints;
pub use error::Error;
pub use events::DecisionEvent;
pub use handle::{CALL_MAX, Database, OPEN_MAX};
pub use hint::{CHANNEL, HINTS_TESTED_EACH, HintConnection, LatestHint};
pub use overrides::{
    ABSOLUTE_MAX, NewOverride, OverrideFilter, OverrideKind, OverrideNames, OverrideRow, SUBJECT_CHARS_MAX,
    knows,
};
pub use page::{PageRange, ROWS_MAX};
pub use policies::PolicyRow;
pub use resets::{NewReset, ResetRow};
pub use rows::TableRow;
pub use tiers::{NewTierLimit, TierLimit};
pub use time::{Time, TimeError};
pub use usage::{UsageFilter, UsageHolder, UsageMinute, batch_id};
pub use write::{Actor, Expect, IdempotentRequest, RowKind};
