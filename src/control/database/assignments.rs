//! `user_rate_tiers`: which tier a consumer has.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::bounds;
use super::connection::sql::SqlQuery;
use super::error::Error;
use super::handle::Database;
use super::rows::{TableRow, columns};
use super::time::Time;
use super::write::{Actor, Expect, RowKind};

/// A consumer's tier.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub struct Assignment {
    /// The consumer.
    pub user_id: String,
    /// The consumer's tier.
    pub tier: String,
    /// When it was assigned.
    pub assigned_at: Time,
    /// The name of the token or certificate that made it.
    pub assigned_by: String,
    /// The version of the last change.
    pub version: i64,
}

impl TableRow for Assignment {
    const KIND: RowKind = RowKind::Assignment;
    const TABLE: &'static str = "user_rate_tiers";
    const KEY: &'static [&'static str] = &["user_id"];
    columns!(user_id, tier, assigned_at, assigned_by, version);

    fn key(&self) -> String {
        self.user_id.clone()
    }
}

impl Database {
    /// Gives a consumer a tier, in the place of the one it may have.
    ///
    /// # Errors
    /// [`Error::Conflict`] if the present assignment is not what `expect` says; [`Error::Invalid`].
    pub async fn put_assignment(
        &self,
        by: &Actor,
        user_id: &str,
        tier: &str,
        expect: Expect,
    ) -> Result<Assignment, Error> {
        bounds::name("user", user_id)?;
        bounds::name("tier", tier)?;
        self.put(by, user_id, expect, |write, _| Assignment {
            user_id: user_id.to_owned(),
            tier: tier.to_owned(),
            assigned_at: write.at,
            assigned_by: by.who.clone(),
            version: write.version,
        })
        .await
    }
}

/// Consumers that have a tier by an assignment or an API key, at most so many.
pub async fn consumers_of(database: &Database, tier: &str, most: i64) -> Result<Vec<String>, Error> {
    let query = SqlQuery::new("SELECT user_id AS consumer FROM user_rate_tiers WHERE").and("tier =", tier);
    let query = query.and("UNION SELECT consumer FROM api_keys WHERE tier =", tier);
    database.read_all(query.and("ORDER BY consumer LIMIT", most), |row| row.get("consumer")).await
}
