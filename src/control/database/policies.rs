//! `policies`: documents that define a policy. Their content is checked by who writes them.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

use super::bounds;
use super::connection::open::Database;
use super::connection::sql::{SqlQuery, SqlRow};
use super::error::Error;
use super::page::PageRange;
use super::time::Time;
use super::write::{Actor, ChangeEntry, Expect, RowKind, WriteTransaction};

/// A policy as it was written.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(rename = "Policy")]
pub struct PolicyRow {
    /// The policy's name.
    pub id: String,
    /// What defines it.
    #[schemars(extend("type" = "object", "examples" = [{ "limit": "100/m burst 20", "by": ["consumer"] }]))]
    pub document: Json,
    /// The version of the last change.
    pub version: i64,
    /// When that was.
    pub updated_at: Time,
    /// By whom.
    pub updated_by: String,
}

impl Database {
    /// Makes or replaces a policy.
    ///
    /// # Errors
    /// [`Error::Conflict`] if the present one is not what `expect` says; [`Error::Invalid`].
    pub async fn put_policy(
        &self,
        by: &Actor,
        id: &str,
        document: Json,
        expect: Expect,
    ) -> Result<PolicyRow, Error> {
        bounds::name("policy", id)?;
        let mut write = WriteTransaction::begin(self, by).await?;
        let old = write.session.one(select().and("WHERE id =", id)).await?.as_ref().map(read).transpose()?;
        if let Err(error) = expect.check(old.as_ref().map(|old| old.version)) {
            return Err(write.refuse(error).await);
        }
        let new = PolicyRow {
            id: id.to_owned(),
            document,
            version: write.version,
            updated_at: write.at,
            updated_by: by.who.clone(),
        };
        let upsert = "INSERT INTO policies (id, document, version, updated_at, updated_by) VALUES ($1, $2, $3, $4, $5) \
                      ON CONFLICT (id) DO UPDATE SET document = excluded.document, version = excluded.version, \
                      updated_at = excluded.updated_at, updated_by = excluded.updated_by";
        let upsert = SqlQuery::new(upsert)
            .with(id)
            .with(new.document.clone())
            .with(new.version)
            .with(new.updated_at)
            .with(new.updated_by.as_str());
        write.session.execute(upsert).await?;
        let entry = ChangeEntry::of(RowKind::Policy, id, old.as_ref(), Some(&new));
        write.commit(entry, new).await
    }

    /// Deletes a policy; returns what it was.
    ///
    /// # Errors
    /// [`Error::NotFound`]; [`Error::Conflict`] if it is not what `expect` says.
    pub async fn delete_policy(&self, by: &Actor, id: &str, expect: Expect) -> Result<PolicyRow, Error> {
        let mut write = WriteTransaction::begin(self, by).await?;
        let delete =
            SqlQuery::new(format!("DELETE FROM policies WHERE id = $1 RETURNING {COLUMNS}")).with(id);
        let Some(row) = write.session.one(delete).await? else {
            return Err(write.refuse(Error::NotFound).await);
        };
        let old = read(&row)?;
        if let Err(error) = expect.check(Some(old.version)) {
            return Err(write.refuse(error).await);
        }
        write.commit(ChangeEntry::of(RowKind::Policy, id, Some(&old), None), old).await
    }

    /// Lists policies by name.
    ///
    /// # Errors
    /// If the database cannot be read.
    pub async fn policies(&self, page: &PageRange) -> Result<Vec<PolicyRow>, Error> {
        let query = select().and("WHERE id >", page.after()).then("ORDER BY id").and("LIMIT", page.rows());
        self.read_all(query, read).await
    }

    /// One policy.
    ///
    /// # Errors
    /// If the database cannot be read.
    pub async fn policy_by_id(&self, id: &str) -> Result<Option<PolicyRow>, Error> {
        let found = self.read_all(select().and("WHERE id =", id), read).await?;
        Ok(found.into_iter().next())
    }
}

/// All columns, for conditions to follow.
pub(super) fn select() -> SqlQuery {
    SqlQuery::new(format!("SELECT {COLUMNS} FROM policies"))
}

pub(super) fn read(row: &SqlRow) -> Result<PolicyRow, Error> {
    Ok(PolicyRow {
        id: row.get("id")?,
        document: row.get("document")?,
        version: row.get("version")?,
        updated_at: row.get("updated_at")?,
        updated_by: row.get("updated_by")?,
    })
}

const COLUMNS: &str = "id, document, version, updated_at, updated_by";
