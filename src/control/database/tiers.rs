//! `rate_limit_configs`: the limits of a tier, by resource.

use std::num::NonZeroU64;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::bounds;
use super::connection::open::Database;
use super::connection::sql::{SqlQuery, SqlRow};
use super::error::Error;
use super::page::PageRange;
use super::time::Time;
use super::write::{Actor, ChangeEntry, Expect, RowKind, WriteTransaction};

/// What a tier allows of one resource.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub struct TierLimit {
    /// The tier.
    pub tier: String,
    /// The resource.
    pub resource: String,
    /// Units in a window.
    pub limit_value: NonZeroU64,
    /// The window, seconds.
    pub window_seconds: NonZeroU64,
    /// The burst as a multiple of the limit.
    pub burst_multiplier: f64,
    /// The algorithm's word; `null`: the policy's own.
    pub algorithm: Option<String>,
    /// When it was made.
    pub created_at: Time,
    /// When it was changed last.
    pub updated_at: Time,
    /// The version of the last change.
    pub version: i64,
}

/// A tier's limit that is to be written.
#[derive(Clone, Debug, PartialEq)]
pub struct NewTierLimit {
    pub tier: String,
    pub resource: String,
    pub limit_value: NonZeroU64,
    pub window_seconds: NonZeroU64,
    /// As [`TierLimit::burst_multiplier`]; `None`: the default, [`BURST_MULTIPLIER`].
    pub burst_multiplier: Option<f64>,
    pub algorithm: Option<String>,
}

/// The key of a tier's limit as one text, which is how `changes`, the audit log and pages have it: JSON of both names, so
/// that no character of a name is special.
pub fn key(tier: &str, resource: &str) -> String {
    serde_json::json!([tier, resource]).to_string()
}

/// The names in a [`key`]; `None` if it is none.
pub fn names(key: &str) -> Option<(String, String)> {
    serde_json::from_str(key).ok()
}

impl Database {
    /// Makes or replaces the limit of a tier for a resource.
    ///
    /// # Errors
    /// [`Error::Conflict`] if the present one is not what `expect` says; [`Error::Invalid`].
    pub async fn put_tier(&self, by: &Actor, new: NewTierLimit, expect: Expect) -> Result<TierLimit, Error> {
        let (limit, window) = check(&new)?;
        let mut write = WriteTransaction::begin(self, by).await?;
        let old = write.session.one(one(&new.tier, &new.resource)).await?.as_ref().map(read).transpose()?;
        if let Err(error) = expect.check(old.as_ref().map(|old| old.version)) {
            return Err(write.refuse(error).await);
        }
        let new = TierLimit {
            tier: new.tier,
            resource: new.resource,
            limit_value: new.limit_value,
            window_seconds: new.window_seconds,
            burst_multiplier: new.burst_multiplier.unwrap_or(BURST_MULTIPLIER),
            algorithm: new.algorithm,
            created_at: old.as_ref().map_or(write.at, |old| old.created_at),
            updated_at: write.at,
            version: write.version,
        };
        let upsert = format!(
            "INSERT INTO rate_limit_configs ({COLUMNS}) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9) \
             ON CONFLICT (tier, resource) DO UPDATE SET limit_value = excluded.limit_value, \
             window_seconds = excluded.window_seconds, burst_multiplier = excluded.burst_multiplier, \
             algorithm = excluded.algorithm, updated_at = excluded.updated_at, version = excluded.version"
        );
        let upsert = SqlQuery::new(upsert)
            .with(new.tier.as_str())
            .with(new.resource.as_str())
            .with(limit)
            .with(window)
            .with(new.burst_multiplier)
            .with(new.algorithm.clone())
            .with(new.created_at)
            .with(new.updated_at)
            .with(new.version);
        write.session.execute(upsert).await?;
        let entry = ChangeEntry::of(RowKind::Tier, &key(&new.tier, &new.resource), old.as_ref(), Some(&new));
        write.commit(entry, new).await
    }

    /// Deletes the limit of a tier for a resource; returns what it was.
    ///
    /// # Errors
    /// [`Error::NotFound`]; [`Error::Conflict`] if it is not what `expect` says.
    pub async fn delete_tier(
        &self,
        by: &Actor,
        tier: &str,
        resource: &str,
        expect: Expect,
    ) -> Result<TierLimit, Error> {
        let mut write = WriteTransaction::begin(self, by).await?;
        let delete =
            format!("DELETE FROM rate_limit_configs WHERE tier = $1 AND resource = $2 RETURNING {COLUMNS}");
        let Some(row) = write.session.one(SqlQuery::new(delete).with(tier).with(resource)).await? else {
            return Err(write.refuse(Error::NotFound).await);
        };
        let old = read(&row)?;
        if let Err(error) = expect.check(Some(old.version)) {
            return Err(write.refuse(error).await);
        }
        write.commit(ChangeEntry::of(RowKind::Tier, &key(tier, resource), Some(&old), None), old).await
    }

    /// Lists limits of tiers, by tier and resource; `after` of the page is a [`key`].
    ///
    /// # Errors
    /// [`Error::Invalid`] if `after` is none; if the database cannot be read.
    pub async fn tiers(&self, page: &PageRange) -> Result<Vec<TierLimit>, Error> {
        let (tier, resource) = match &page.after {
            None => Default::default(),
            Some(after) => names(after)
                .ok_or_else(|| Error::Invalid("`after` must be the `next` of the page before".to_owned()))?,
        };
        let query = select()
            .and("WHERE (tier, resource) > (", tier)
            .and(",", resource)
            .then(") ORDER BY tier, resource")
            .and("LIMIT", page.rows());
        self.read_all(query, read).await
    }

    /// The limit of a tier for a resource.
    ///
    /// # Errors
    /// If the database cannot be read.
    pub async fn tier(&self, tier: &str, resource: &str) -> Result<Option<TierLimit>, Error> {
        Ok(self.read_all(one(tier, resource), read).await?.into_iter().next())
    }
}

/// The limit and the window as the columns have them.
fn check(new: &NewTierLimit) -> Result<(i64, i64), Error> {
    bounds::name("tier", &new.tier)?;
    bounds::name("resource", &new.resource)?;
    if let Some(algorithm) = &new.algorithm {
        bounds::name("algorithm", algorithm)?;
    }
    if new.burst_multiplier.is_some_and(|factor| !(factor.is_finite() && factor > 0.0)) {
        return Err(Error::Invalid("the burst multiplier must be a number above 0".to_owned()));
    }
    let column = |what: &str, number: NonZeroU64| {
        i64::try_from(number.get()).map_err(|_| Error::Invalid(format!("the {what} is too large")))
    };
    Ok((column("limit", new.limit_value)?, column("window", new.window_seconds)?))
}

fn one(tier: &str, resource: &str) -> SqlQuery {
    select().and("WHERE tier =", tier).and("AND resource =", resource)
}

/// All columns, for conditions to follow.
pub(super) fn select() -> SqlQuery {
    SqlQuery::new(format!("SELECT {COLUMNS} FROM rate_limit_configs"))
}

pub(super) fn read(row: &SqlRow) -> Result<TierLimit, Error> {
    let positive = |column| {
        let number = u64::try_from(row.get::<i64>(column)?).ok().and_then(NonZeroU64::new);
        number.ok_or_else(|| row.wrong("a tier's limit or window is below 1"))
    };
    Ok(TierLimit {
        tier: row.get("tier")?,
        resource: row.get("resource")?,
        limit_value: positive("limit_value")?,
        window_seconds: positive("window_seconds")?,
        burst_multiplier: row.get("burst_multiplier")?,
        algorithm: row.get("algorithm")?,
        created_at: row.get("created_at")?,
        updated_at: row.get("updated_at")?,
        version: row.get("version")?,
    })
}

/// The default of [`TierLimit::burst_multiplier`], as the column has it.
pub const BURST_MULTIPLIER: f64 = 1.2;
const COLUMNS: &str = "tier, resource, limit_value, window_seconds, burst_multiplier, algorithm, created_at, updated_at, \
                       version";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_limits_share_a_key() {
        for (tier, resource) in
            [("free", "search"), ("a\",\"b", "c"), ("a", "b\",\"c"), ("", "\\"), ("[", "]/")]
        {
            assert_eq!(names(&key(tier, resource)), Some((tier.to_owned(), resource.to_owned())));
        }
        assert_eq!(names("free/search"), None);
    }
}
