//! `audit_log`: who changed what. It is written by the changes themselves, in their own transactions, and only read here.

use std::net::IpAddr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

use super::connection::sql::{SqlQuery, SqlRow};
use super::error::Error;
use super::handle::Database;
use super::page::PageRange;
use super::time::Time;

/// One change, as it was recorded.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub struct AuditEntry {
    /// The entry's id. Later entries have later ids.
    pub id: String,
    /// When the change was made.
    pub at: Time,
    /// The name of the token or certificate.
    pub who: String,
    /// The address that the request came from.
    pub from_address: Option<IpAddr>,
    /// What was done, such as `create`, `replace` or `delete`.
    pub action: String,
    /// The row that was changed: its kind and its key, as in `override/01H…`.
    pub what: String,
    /// The row before the change; `null` if it was created.
    pub old: Option<Json>,
    /// The row after the change; `null` if it was deleted.
    pub new: Option<Json>,
    /// The id of the request.
    pub request_id: String,
}

/// Which entries to list. A field that is `None` leaves none out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AuditFilter {
    pub who: Option<String>,
    /// Those about this row, as in `override/01H…`, or about all of a kind, as in `override`.
    pub what: Option<String>,
    /// Those that were made then or later.
    pub since: Option<Time>,
}

impl Database {
    /// Lists entries, those that were made last first.
    pub async fn audit(&self, page: &PageRange, filter: &AuditFilter) -> Result<Vec<AuditEntry>, Error> {
        let mut query = SqlQuery::new(format!("SELECT {COLUMNS} FROM audit_log"));
        query = match &page.after {
            Some(after) => query.and("WHERE id <", after.as_str()),
            None => query.then("WHERE true"),
        };
        if let Some(who) = &filter.who {
            query = query.and("AND who =", who.as_str());
        }
        query = match &filter.what {
            Some(what) if what.contains('/') => query.and("AND what =", what.as_str()),
            // Up to `0`, because it is the character after `/`.
            Some(kind) => query.and("AND what >=", format!("{kind}/")).and("AND what <", format!("{kind}0")),
            None => query,
        };
        if let Some(since) = filter.since {
            query = query.and("AND at >=", since);
        }
        self.read_all(query.then("ORDER BY id DESC").and("LIMIT", page.rows()), read).await
    }
}

fn read(row: &SqlRow) -> Result<AuditEntry, Error> {
    Ok(AuditEntry {
        id: row.get("id")?,
        at: row.get("at")?,
        who: row.get("who")?,
        from_address: row.get::<Option<String>>("from_address")?.and_then(|address| address.parse().ok()),
        action: row.get("action")?,
        what: row.get("what")?,
        old: row.get("old")?,
        new: row.get("new")?,
        request_id: row.get("request_id")?,
    })
}

const COLUMNS: &str = "id, at, who, from_address, action, what, old, new, request_id";
