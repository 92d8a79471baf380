//! `user_rate_tiers`: which tier a consumer has.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::bounds;
use super::connection::open::Database;
use super::connection::sql::{SqlQuery, SqlRow};
use super::error::Error;
use super::page::PageRange;
use super::time::Time;
use super::write::{Actor, ChangeEntry, Expect, RowKind, WriteTransaction};

/// A consumer's tier.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub struct Assignment {
    /// The consumer.
    pub user_id: String,
    /// Its tier.
    pub tier: String,
    /// Since when.
    pub assigned_at: Time,
    /// By whom.
    pub assigned_by: String,
    /// The version of the last change.
    pub version: i64,
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
        let mut write = WriteTransaction::begin(self, by).await?;
        let old = write.session.one(one(user_id)).await?.as_ref().map(read).transpose()?;
        if let Err(error) = expect.check(old.as_ref().map(|old| old.version)) {
            return Err(write.refuse(error).await);
        }
        let new = Assignment {
            user_id: user_id.to_owned(),
            tier: tier.to_owned(),
            assigned_at: write.at,
            assigned_by: by.who.clone(),
            version: write.version,
        };
        let upsert = format!(
            "INSERT INTO user_rate_tiers ({COLUMNS}) VALUES ($1, $2, $3, $4, $5) \
             ON CONFLICT (user_id) DO UPDATE SET tier = excluded.tier, assigned_at = excluded.assigned_at, \
             assigned_by = excluded.assigned_by, version = excluded.version"
        );
        let upsert = SqlQuery::new(upsert)
            .with(user_id)
            .with(tier)
            .with(new.assigned_at)
            .with(new.assigned_by.as_str())
            .with(new.version);
        write.session.execute(upsert).await?;
        write.commit(ChangeEntry::of(RowKind::Assignment, user_id, old.as_ref(), Some(&new)), new).await
    }

    /// Takes a consumer's tier away; returns what it was.
    ///
    /// # Errors
    /// [`Error::NotFound`]; [`Error::Conflict`] if it is not what `expect` says.
    pub async fn delete_assignment(
        &self,
        by: &Actor,
        user_id: &str,
        expect: Expect,
    ) -> Result<Assignment, Error> {
        let mut write = WriteTransaction::begin(self, by).await?;
        let delete = format!("DELETE FROM user_rate_tiers WHERE user_id = $1 RETURNING {COLUMNS}");
        let Some(row) = write.session.one(SqlQuery::new(delete).with(user_id)).await? else {
            return Err(write.refuse(Error::NotFound).await);
        };
        let old = read(&row)?;
        if let Err(error) = expect.check(Some(old.version)) {
            return Err(write.refuse(error).await);
        }
        write.commit(ChangeEntry::of(RowKind::Assignment, user_id, Some(&old), None), old).await
    }

    /// Lists assignments by consumer.
    ///
    /// # Errors
    /// If the database cannot be read.
    pub async fn assignments(&self, page: &PageRange) -> Result<Vec<Assignment>, Error> {
        let query =
            select().and("WHERE user_id >", page.after()).then("ORDER BY user_id").and("LIMIT", page.rows());
        self.read_all(query, read).await
    }

    /// The tier of a consumer.
    ///
    /// # Errors
    /// If the database cannot be read.
    pub async fn assignment(&self, user_id: &str) -> Result<Option<Assignment>, Error> {
        Ok(self.read_all(one(user_id), read).await?.into_iter().next())
    }
}

fn one(user_id: &str) -> SqlQuery {
    select().and("WHERE user_id =", user_id)
}

/// All columns, for conditions to follow.
pub(super) fn select() -> SqlQuery {
    SqlQuery::new(format!("SELECT {COLUMNS} FROM user_rate_tiers"))
}

pub(super) fn read(row: &SqlRow) -> Result<Assignment, Error> {
    Ok(Assignment {
        user_id: row.get("user_id")?,
        tier: row.get("tier")?,
        assigned_at: row.get("assigned_at")?,
        assigned_by: row.get("assigned_by")?,
        version: row.get("version")?,
    })
}

const COLUMNS: &str = "user_id, tier, assigned_at, assigned_by, version";
