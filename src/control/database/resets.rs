//! `count_resets`: since when consumers and tenants are counted anew. Counts themselves are not in the database.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::bounds;
use super::connection::sql::SqlQuery;
use super::error::Error;
use super::handle::Database;
use super::id;
use super::rows::{self, TableRow, columns};
use super::time::Time;
use super::write::{Actor, ChangeEntry, RowKind, WriteStart, WriteTransaction};

/// A reset of the counts of one consumer or one tenant.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(rename = "Reset")]
pub struct ResetRow {
    /// The id of the reset. Every node makes the keys of the new counts of it.
    pub id: String,
    /// The consumer; `null` if it is for a tenant.
    pub user_id: Option<String>,
    /// The tenant.
    pub tenant_id: Option<String>,
    /// The only policy that it applies to; `null`: all that count by the consumer or the tenant.
    pub policy: Option<String>,
    /// Units that are refunded; `null`: all that were spent.
    pub units: Option<u64>,
    /// The reason, in the operator's words.
    pub reason: String,
    /// When it was made.
    pub created_at: Time,
    /// The name of the token or certificate that made it.
    pub created_by: String,
    /// The version of the change that made it.
    pub version: i64,
}

/// A reset that is to be made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct NewReset {
    /// As [`ResetRow::id`], by [`NewReset::id`].
    #[serde(skip)]
    pub id: String,
    pub user_id: Option<String>,
    pub tenant_id: Option<String>,
    pub policy: Option<String>,
    /// As [`ResetRow::units`], up to 2^53, and only with a policy.
    pub units: Option<u64>,
    /// As [`ResetRow::reason`], 1 to 4,096 characters.
    pub reason: String,
}

impl NewReset {
    /// An id for a new one, before it is made, because what counts begin with is written under it before the row is.
    pub fn id() -> String {
        id::new(Time::now(), 0)
    }
}

impl TableRow for ResetRow {
    const KIND: RowKind = RowKind::Reset;
    const TABLE: &'static str = "count_resets";
    const KEY: &'static [&'static str] = &["id"];
    columns!(id, user_id, tenant_id, policy, units, reason, created_at, created_by, version);

    fn key(&self) -> String {
        self.id.clone()
    }
}

impl Database {
    /// Makes a reset. It stands in the place of those that it makes meaningless. With `after` it is made only if the newest
    /// that is for its policy now has that version, 0 if there is to be none.
    ///
    /// # Errors
    /// [`Error::Conflict`] if the newest is another; [`Error::KeyReused`]; [`Error::Invalid`].
    pub async fn add_reset(&self, by: &Actor, new: NewReset, after: Option<i64>) -> Result<ResetRow, Error> {
        check(&new)?;
        let mut write = match WriteTransaction::begin_once(self, by).await? {
            WriteStart::New(write) => write,
            WriteStart::Repeated(made) => return Ok(made),
        };
        if let Some(after) = after {
            let newest = "SELECT max(version) AS newest FROM count_resets WHERE user_id IS NOT DISTINCT FROM $1 \
                          AND tenant_id IS NOT DISTINCT FROM $2 AND (policy IS NULL OR policy = $3)";
            let newest = write.session.one(named(newest, &new)).await?;
            let newest: Option<i64> = newest.map_or(Ok(None), |row| row.get("newest"))?;
            if newest.unwrap_or(0) != after {
                return Err(write.refuse(Error::Conflict { version: newest }).await);
            }
        }
        let covered = "DELETE FROM count_resets WHERE user_id IS NOT DISTINCT FROM $1 \
                       AND tenant_id IS NOT DISTINCT FROM $2 AND ($3 IS NULL OR policy = $3) RETURNING id";
        // Cast, because PostgreSQL wants to know the type of a value that may be NULL before it compares it.
        let covered = covered.replace("$3 IS NULL", "CAST($3 AS text) IS NULL");
        for row in write.session.all(named(covered, &new)).await? {
            write.name(RowKind::Reset, &row.get::<String>("id")?).await?;
        }
        let made = ResetRow {
            id: new.id,
            user_id: new.user_id,
            tenant_id: new.tenant_id,
            policy: new.policy,
            units: new.units,
            reason: new.reason,
            created_at: write.at,
            created_by: by.who.clone(),
            version: write.version,
        };
        write.session.execute(rows::insert(&made)).await?;
        let of = match (&made.user_id, &made.tenant_id) {
            (Some(user), _) => format!("consumer/{user}"),
            (None, tenant) => format!("tenant/{}", tenant.as_deref().unwrap_or_default()),
        };
        let entry = ChangeEntry {
            kind: RowKind::Reset,
            id: made.id.clone(),
            shown: of,
            action: if made.units.is_some() { "grant" } else { "reset" },
            old: None,
            new: serde_json::to_value(&made).ok(),
        };
        write.commit(entry, made).await
    }
}

fn named(text: impl Into<String>, new: &NewReset) -> SqlQuery {
    SqlQuery::new(text.into()).with(new.user_id.clone()).with(new.tenant_id.clone()).with(new.policy.clone())
}

/// Beyond what the columns' types say.
fn check(new: &NewReset) -> Result<(), Error> {
    if new.user_id.is_some() == new.tenant_id.is_some() {
        return Err(Error::Invalid("a reset must name a user or a tenant".to_owned()));
    }
    if new.units.is_some_and(|units| units == 0 || units > UNITS_MAX || new.policy.is_none()) {
        return Err(Error::Invalid("a grant must name one policy and 1 to 2^53 units".to_owned()));
    }
    for (name, text) in [("user", &new.user_id), ("tenant", &new.tenant_id), ("policy", &new.policy)] {
        text.as_ref().map_or(Ok(()), |text| bounds::name(name, text))?;
    }
    bounds::length("reason", &new.reason, REASON_CHARS_MAX)
}

const UNITS_MAX: u64 = 1 << 53;
const REASON_CHARS_MAX: usize = 4_096;
