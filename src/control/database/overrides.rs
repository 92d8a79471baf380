//! `rate_limit_overrides`: limits of single consumers and tenants. What they do to a limit is not known here.

use std::borrow::Cow;
use std::num::NonZeroU64;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

use super::bounds;
use super::connection::connections::Session;
use super::connection::open::Database;
use super::connection::sql::{SqlQuery, SqlRow};
use super::error::Error;
use super::id;
use super::page::PageRange;
use super::time::Time;
use super::write::{Actor, ChangeEntry, Expect, RowKind, WriteStart, WriteTransaction};

/// A limit of one consumer, one tenant, or one consumer of one tenant.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(rename = "Override")]
pub struct OverrideRow {
    /// The row's id. Later rows have later ids.
    pub id: String,
    /// The consumer; at least this or the tenant is there.
    pub user_id: Option<String>,
    /// The tenant.
    pub tenant_id: Option<String>,
    /// The only policy that it is for; `null`: every policy that counts by what is named.
    pub policy: Option<String>,
    /// What it makes of a limit.
    #[serde(flatten)]
    pub kind: OverrideKind,
    /// Why, in the operator's words.
    pub reason: String,
    /// When it expires; `null`: never.
    pub expires_at: Option<Time>,
    /// When it was made.
    pub created_at: Time,
    /// By whom.
    pub created_by: String,
    /// The version of the change that made it.
    pub version: i64,
}

/// What an override makes of a limit.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "override-type", content = "value", rename_all = "kebab-case")]
pub enum OverrideKind {
    /// Sets the limit, to [`ABSOLUTE_MAX`] at most.
    Absolute(NonZeroU64),
    /// Multiplies it; finite and above 0.
    Multiplicative(f64),
}

impl JsonSchema for OverrideKind {
    fn schema_name() -> Cow<'static, str> {
        "OverrideKind".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "object",
            "required": ["override-type", "value"],
            "properties": {
                "override-type": {
                    "type": "string", "enum": ["absolute", "multiplicative"], "description": "What it makes of a limit.",
                },
                "value": { "type": "number", "description": "The limit, or what it is multiplied by.", "examples": [600] },
            },
        })
    }
}

/// An override that is to be made.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct NewOverride {
    pub user_id: Option<String>,
    pub tenant_id: Option<String>,
    pub policy: Option<String>,
    #[serde(flatten)]
    pub kind: OverrideKind,
    /// As [`OverrideRow::reason`], 1 to 4,096 characters.
    pub reason: String,
    pub expires_at: Option<Time>,
}

/// Whom a lasting limit is for: exactly these names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OverrideNames {
    pub user: Option<String>,
    pub tenant: Option<String>,
    pub policy: Option<String>,
}

impl OverrideNames {
    fn bound_to(&self, query: SqlQuery) -> SqlQuery {
        query.with(self.user.clone()).with(self.tenant.clone()).with(self.policy.clone())
    }
}

/// Which overrides to list. A field that is `None` leaves none out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OverrideFilter {
    pub user_id: Option<String>,
    pub tenant_id: Option<String>,
    pub policy: Option<String>,
    /// Those that have not ended by then.
    pub live_at: Option<Time>,
}

impl Database {
    /// Makes an override.
    ///
    /// # Errors
    /// [`Error::Invalid`] if it names neither consumer nor tenant, or a value has no place in the table;
    /// [`Error::KeyReused`].
    pub async fn add_override(&self, by: &Actor, new: NewOverride) -> Result<OverrideRow, Error> {
        check(&new)?;
        let mut write = match WriteTransaction::begin_once(self, by).await? {
            WriteStart::New(write) => write,
            WriteStart::Repeated(made) => return Ok(made),
        };
        let made = row(id::new(write.at, write.version), new, &write, by);
        insert(&mut write.session, &made).await?;
        write.commit(ChangeEntry::of(RowKind::Override, &made.id, None, Some(&made)), made).await
    }

    /// Sets the lasting limit of a consumer, a tenant or a consumer of a tenant: the override stands in the place of all
    /// absolute ones without an end that are for the same names and the same policy. It keeps the id of the newest of them.
    ///
    /// # Errors
    /// [`Error::Conflict`] if the newest is not what `expect` says; as [`Database::add_override`], and
    /// [`Error::Invalid`] if it is not absolute or has an end.
    pub async fn put_override(
        &self,
        by: &Actor,
        new: NewOverride,
        expect: Expect,
    ) -> Result<OverrideRow, Error> {
        check(&new)?;
        if new.expires_at.is_some() || !matches!(new.kind, OverrideKind::Absolute(_)) {
            return Err(Error::Invalid(
                "a consumer's own limit must be absolute and without an end".to_owned(),
            ));
        }
        let write = WriteTransaction::begin(self, by).await?;
        let names = OverrideNames {
            user: new.user_id.clone(),
            tenant: new.tenant_id.clone(),
            policy: new.policy.clone(),
        };
        let (mut write, old) = take_lasting(write, &names, expect).await?;
        let id = old.as_ref().map_or_else(|| id::new(write.at, write.version), |old| old.id.clone());
        let made = row(id, new, &write, by);
        insert(&mut write.session, &made).await?;
        write.commit(ChangeEntry::of(RowKind::Override, &made.id, old.as_ref(), Some(&made)), made).await
    }

    /// The lasting limit of exactly these names, as [`Database::put_override`] sets it.
    ///
    /// # Errors
    /// If the database cannot be read.
    pub async fn lasting_override(&self, names: &OverrideNames) -> Result<Option<OverrideRow>, Error> {
        let found = SqlQuery::new(format!("SELECT {COLUMNS} FROM rate_limit_overrides {LASTING}"));
        let mut found = self.read_all(names.bound_to(found), read).await?;
        found.sort_by_key(|row| row.version);
        Ok(found.pop())
    }

    /// Takes the lasting limit of exactly these names away; returns what it was.
    ///
    /// # Errors
    /// [`Error::NotFound`]; [`Error::Conflict`] if it is not what `expect` says.
    pub async fn delete_lasting_override(
        &self,
        by: &Actor,
        names: &OverrideNames,
        expect: Expect,
    ) -> Result<OverrideRow, Error> {
        let (write, old) = take_lasting(WriteTransaction::begin(self, by).await?, names, expect).await?;
        let Some(old) = old else { return Err(write.refuse(Error::NotFound).await) };
        write.commit(ChangeEntry::of(RowKind::Override, &old.id, Some(&old), None), old).await
    }

    /// Deletes an override; returns what it was.
    ///
    /// # Errors
    /// [`Error::NotFound`]; [`Error::Conflict`] if it is not what `expect` says.
    pub async fn delete_override(&self, by: &Actor, id: &str, expect: Expect) -> Result<OverrideRow, Error> {
        let mut write = WriteTransaction::begin(self, by).await?;
        let delete =
            SqlQuery::new(format!("DELETE FROM rate_limit_overrides WHERE id = $1 RETURNING {COLUMNS}"))
                .with(id);
        let Some(row) = write.session.one(delete).await? else {
            return Err(write.refuse(Error::NotFound).await);
        };
        let old = read(&row)?;
        if let Err(error) = expect.check(Some(old.version)) {
            return Err(write.refuse(error).await);
        }
        write.commit(ChangeEntry::of(RowKind::Override, id, Some(&old), None), old).await
    }

    /// Lists overrides, oldest first; those that have ended are kept for a day.
    ///
    /// # Errors
    /// If the database cannot be read.
    pub async fn overrides(
        &self,
        page: &PageRange,
        filter: &OverrideFilter,
    ) -> Result<Vec<OverrideRow>, Error> {
        let mut query = select().and("WHERE id >", page.after());
        if let Some(user) = &filter.user_id {
            query = query.and("AND user_id =", user.as_str());
        }
        if let Some(tenant) = &filter.tenant_id {
            query = query.and("AND tenant_id =", tenant.as_str());
        }
        if let Some(policy) = &filter.policy {
            query = query.and("AND policy =", policy.as_str());
        }
        if let Some(now) = filter.live_at {
            query = query.and("AND (expires_at IS NULL OR expires_at >", now).then(")");
        }
        self.read_all(query.then("ORDER BY id").and("LIMIT", page.rows()), read).await
    }

    /// One override.
    ///
    /// # Errors
    /// If the database cannot be read.
    pub async fn override_by_id(&self, id: &str) -> Result<Option<OverrideRow>, Error> {
        let found = self.read_all(select().and("WHERE id =", id), read).await?;
        Ok(found.into_iter().next())
    }
}

/// Deletes all lasting limits of these names, which are one and what was made beside it. Returns the newest; the others are
/// named as changed, that one is not yet.
async fn take_lasting<'a>(
    mut write: WriteTransaction<'a>,
    names: &OverrideNames,
    expect: Expect,
) -> Result<(WriteTransaction<'a>, Option<OverrideRow>), Error> {
    let take = SqlQuery::new(format!("DELETE FROM rate_limit_overrides {LASTING} RETURNING {COLUMNS}"));
    let taken = write.session.all(names.bound_to(take)).await?;
    let mut taken = taken.iter().map(read).collect::<Result<Vec<_>, _>>()?;
    taken.sort_by_key(|row| row.version);
    let newest = taken.pop();
    if let Err(error) = expect.check(newest.as_ref().map(|newest| newest.version)) {
        return Err(write.refuse(error).await);
    }
    for other in &taken {
        write.name(RowKind::Override, &other.id).await?;
    }
    Ok((write, newest))
}

/// Beyond what the columns' types say.
fn check(new: &NewOverride) -> Result<(), Error> {
    if new.user_id.is_none() && new.tenant_id.is_none() {
        return Err(Error::Invalid("an override must name a user, a tenant, or both".to_owned()));
    }
    for (name, text) in [("user", &new.user_id), ("tenant", &new.tenant_id), ("policy", &new.policy)] {
        text.as_ref().map_or(Ok(()), |text| bounds::name(name, text))?;
    }
    bounds::length("reason", &new.reason, REASON_CHARS_MAX)?;
    match new.kind {
        OverrideKind::Absolute(limit) if limit.get() > ABSOLUTE_MAX => {
            Err(Error::Invalid(format!("an absolute override must be at most {ABSOLUTE_MAX}")))
        }
        OverrideKind::Multiplicative(factor) if !(factor.is_finite() && factor > 0.0) => {
            Err(Error::Invalid("a multiplicative override must be a number above 0".to_owned()))
        }
        _ => Ok(()),
    }
}

fn row(id: String, new: NewOverride, write: &WriteTransaction<'_>, by: &Actor) -> OverrideRow {
    OverrideRow {
        id,
        user_id: new.user_id,
        tenant_id: new.tenant_id,
        policy: new.policy,
        kind: new.kind,
        reason: new.reason,
        expires_at: new.expires_at,
        created_at: write.at,
        created_by: by.who.clone(),
        version: write.version,
    }
}

async fn insert(session: &mut Session, made: &OverrideRow) -> Result<(), Error> {
    let (word, value) = match made.kind {
        // Exact, because it is ABSOLUTE_MAX at most.
        OverrideKind::Absolute(limit) => (ABSOLUTE, limit.get() as f64),
        OverrideKind::Multiplicative(factor) => (MULTIPLICATIVE, factor),
    };
    let insert = format!(
        "INSERT INTO rate_limit_overrides ({COLUMNS}) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)"
    );
    let insert = SqlQuery::new(insert)
        .with(made.id.as_str())
        .with(made.user_id.clone())
        .with(made.tenant_id.clone())
        .with(made.policy.clone())
        .with(word)
        .with(value)
        .with(made.reason.as_str())
        .with(made.expires_at)
        .with(made.created_at)
        .with(made.created_by.as_str())
        .with(made.version);
    session.execute(insert).await.map(drop)
}

/// All columns, for conditions to follow.
pub(super) fn select() -> SqlQuery {
    SqlQuery::new(format!("SELECT {COLUMNS} FROM rate_limit_overrides"))
}

pub(super) fn read(row: &SqlRow) -> Result<OverrideRow, Error> {
    let value: f64 = row.get("value")?;
    let kind = match row.get::<String>("override_type")?.as_str() {
        MULTIPLICATIVE => OverrideKind::Multiplicative(value),
        // Rounded, because a fraction may have been written by hand: the column holds whole numbers up to 2^53.
        _ => NonZeroU64::new(value.round() as u64)
            .map(OverrideKind::Absolute)
            .ok_or_else(|| row.wrong("an absolute override is below 1"))?,
    };
    Ok(OverrideRow {
        id: row.get("id")?,
        user_id: row.get("user_id")?,
        tenant_id: row.get("tenant_id")?,
        policy: row.get("policy")?,
        kind,
        reason: row.get("reason")?,
        expires_at: row.get("expires_at")?,
        created_at: row.get("created_at")?,
        created_by: row.get("created_by")?,
        version: row.get("version")?,
    })
}

/// The largest absolute override, because the whole numbers up to this are exact in both databases' floating point,
/// and in JSON for every reader (RFC 8259 section 6).
pub const ABSOLUTE_MAX: u64 = (1 << 53) - 1;
const REASON_CHARS_MAX: usize = 4_096;
/// Lasting limits of exactly these names: [`OverrideNames::bound_to`] has the values.
const LASTING: &str = "WHERE override_type = 'absolute' AND expires_at IS NULL \
                       AND user_id IS NOT DISTINCT FROM $1 AND tenant_id IS NOT DISTINCT FROM $2 \
                       AND policy IS NOT DISTINCT FROM $3";
const ABSOLUTE: &str = "absolute";
const MULTIPLICATIVE: &str = "multiplicative";
const COLUMNS: &str = "id, user_id, tenant_id, policy, override_type, value, reason, expires_at, created_at, created_by, \
                       version";
