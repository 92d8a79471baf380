//! `rate_limit_overrides`: limits of single consumers and tenants, and who is blocked or unlimited. What they do is not known
//! here.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

use super::bounds;
use super::connection::sql::{SqlQuery, SqlRow};
use super::error::Error;
use super::handle::Database;
use super::id;
use super::page::PageRange;
use super::rows::{self, Column, TableRow, columns};
use super::time::Time;
use super::write::{Actor, Expect, RowKind, WriteStart, WriteTransaction};

/// A limit of one consumer, one tenant, or one consumer of one tenant; or that they, or another subject, are blocked or
/// unlimited.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(rename = "Override")]
pub struct OverrideRow {
    /// The row's id. Later rows have later ids.
    pub id: String,
    /// The consumer; `null` if it is for a tenant or a subject.
    pub user_id: Option<String>,
    /// The tenant.
    pub tenant_id: Option<String>,
    /// The only policy that it applies to; `null`: all that count by the consumer or the tenant.
    pub policy: Option<String>,
    /// The dimension and value that are blocked or unlimited, if it is for neither a consumer nor a tenant.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subject: Option<String>,
    /// What it makes of a limit.
    #[serde(flatten)]
    pub kind: OverrideKind,
    /// The reason, in the operator's words.
    pub reason: String,
    /// When it expires; `null`: never.
    pub expires_at: Option<Time>,
    /// When it was made.
    pub created_at: Time,
    /// The name of the token or certificate that made it.
    pub created_by: String,
    /// The version of the change that made it.
    pub version: i64,
}

/// What an override makes of a limit.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "override-type", content = "value", rename_all = "kebab-case")]
pub enum OverrideKind {
    /// Sets the limit, to [`ABSOLUTE_MAX`] at most; 0 refuses every request of it.
    Absolute(u64),
    /// Multiplies it; finite and above 0.
    Multiplicative(f64),
    /// Refuses every request, with this status: 403 or 429.
    Block(u16),
    /// No limit counts or refuses.
    Unlimited,
}

impl JsonSchema for OverrideKind {
    fn schema_name() -> Cow<'static, str> {
        "OverrideKind".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "object",
            "required": ["override-type"],
            "properties": {
                "override-type": {
                    "type": "string",
                    "enum": [ABSOLUTE, MULTIPLICATIVE, BLOCK, UNLIMITED],
                    "description": "What it makes of a limit, or of all.",
                },
                "value": {
                    "type": "number",
                    "description": "The limit, what it is multiplied by, or the status of who is blocked.",
                    "examples": [600],
                },
            },
        })
    }
}

impl Column for OverrideKind {
    fn read(row: &SqlRow, _: &str) -> Result<OverrideKind, Error> {
        let value: f64 = row.get("value")?;
        match row.get::<String>("override_type")?.as_str() {
            MULTIPLICATIVE => Ok(OverrideKind::Multiplicative(value)),
            UNLIMITED => Ok(OverrideKind::Unlimited),
            // Rounded, because a fraction may have been written by hand: the column holds whole numbers up to 2^53.
            BLOCK => Ok(OverrideKind::Block(value.round() as u16)),
            _ => Ok(OverrideKind::Absolute(value.round() as u64)),
        }
    }

    fn bind(&self, query: SqlQuery) -> SqlQuery {
        match self {
            // Exact, because it is ABSOLUTE_MAX at most.
            OverrideKind::Absolute(limit) => query.with(ABSOLUTE).with(*limit as f64),
            OverrideKind::Multiplicative(factor) => query.with(MULTIPLICATIVE).with(*factor),
            OverrideKind::Block(status) => query.with(BLOCK).with(f64::from(*status)),
            // A number, because the column has one, and this one for nodes of before, which take it for a limit.
            OverrideKind::Unlimited => query.with(UNLIMITED).with(ABSOLUTE_MAX as f64),
        }
    }
}

/// An override that is to be made.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct NewOverride {
    pub user_id: Option<String>,
    pub tenant_id: Option<String>,
    pub policy: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subject: Option<String>,
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
    /// Those of this word of [`OverrideKind`].
    pub kind: Option<&'static str>,
    /// Those that have not ended by then.
    pub live_at: Option<Time>,
    pub is_newest_first: bool,
}

impl TableRow for OverrideRow {
    const KIND: RowKind = RowKind::Override;
    const TABLE: &'static str = "rate_limit_overrides";
    const KEY: &'static [&'static str] = &["id"];
    columns!(
        id, user_id, tenant_id, policy, subject, kind as "override_type, value", reason, expires_at, created_at,
        created_by, version
    );

    fn key(&self) -> String {
        self.id.clone()
    }
}

impl Database {
    /// Makes an override.
    ///
    /// # Errors
    /// [`Error::Invalid`] if it names neither consumer nor tenant nor subject, or a value has no place in the table;
    /// [`Error::KeyReused`].
    pub async fn add_override(&self, by: &Actor, new: NewOverride) -> Result<OverrideRow, Error> {
        check(&new)?;
        let mut write = match WriteTransaction::begin_once(self, by).await? {
            WriteStart::New(write) => write,
            WriteStart::Repeated(made) => return Ok(made),
        };
        let made = row(id::new(write.at, write.version), new, &write, by);
        write.session.execute(rows::insert(&made)).await?;
        write.commit(OverrideRow::entry(None, Some(&made)), made).await
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
        write.session.execute(rows::insert(&made)).await?;
        write.commit(OverrideRow::entry(old.as_ref(), Some(&made)), made).await
    }

    /// The lasting limit of exactly these names, as [`Database::put_override`] sets it.
    pub async fn lasting_override(&self, names: &OverrideNames) -> Result<Option<OverrideRow>, Error> {
        let found = rows::select::<OverrideRow>().then(LASTING);
        let mut found = self.read_all(names.bound_to(found), OverrideRow::read).await?;
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
        write.commit(OverrideRow::entry(Some(&old), None), old).await
    }

    /// Lists overrides by their ids, which are in the order of time; those that have ended are kept for a day.
    pub async fn overrides(
        &self,
        page: &PageRange,
        filter: &OverrideFilter,
    ) -> Result<Vec<OverrideRow>, Error> {
        let names = [
            ("user_id", filter.user_id.as_deref()),
            ("tenant_id", filter.tenant_id.as_deref()),
            ("policy", filter.policy.as_deref()),
            ("override_type", filter.kind),
        ];
        let rows = |query: SqlQuery| {
            let named = names.into_iter().filter_map(|(column, name)| Some((column, name?)));
            let query =
                named.fold(query, |query, (column, name)| query.and(&format!("AND {column} ="), name));
            match filter.live_at {
                Some(now) => live_at(query, now),
                None => query,
            }
        };
        self.rows_where((page, filter.is_newest_first), rows).await
    }
}

/// Whether a key, a tier, or a policy's count within a day names the consumer; of a tenant, whether a key or a count does.
pub async fn knows(database: &Database, name: &str, is_tenant: bool) -> Result<bool, Error> {
    let query = match is_tenant {
        false => {
            "SELECT 1 AS one FROM api_keys WHERE consumer = $1 UNION ALL \
             SELECT 1 FROM user_rate_tiers WHERE user_id = $1 UNION ALL \
             SELECT 1 FROM usage_minutes WHERE consumer = $1 LIMIT 1"
        }
        true => {
            "SELECT 1 AS one FROM api_keys WHERE tenant = $1 UNION ALL \
             SELECT 1 FROM usage_minutes WHERE tenant = $1 LIMIT 1"
        }
    };
    Ok(!database.read_all(SqlQuery::new(query).with(name), |_| Ok(())).await?.is_empty())
}

pub(super) fn live_at(query: SqlQuery, now: Time) -> SqlQuery {
    query.and("AND (expires_at IS NULL OR expires_at >", now).then(")")
}

/// Deletes all lasting limits of these names, which are one and what was made beside it. Returns the newest; the others are
/// named as changed, that one is not yet.
async fn take_lasting<'a>(
    mut write: WriteTransaction<'a>,
    names: &OverrideNames,
    expect: Expect,
) -> Result<(WriteTransaction<'a>, Option<OverrideRow>), Error> {
    let take = SqlQuery::new(format!(
        "DELETE FROM rate_limit_overrides {LASTING} RETURNING {}",
        OverrideRow::COLUMNS
    ));
    let taken = write.session.all(names.bound_to(take)).await?;
    let mut taken = taken.iter().map(OverrideRow::read).collect::<Result<Vec<_>, _>>()?;
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
    if new.user_id.is_none() && new.tenant_id.is_none() && new.subject.is_none() {
        return Err(Error::Invalid(
            "an override must name a user, a tenant, or both, or a subject".to_owned(),
        ));
    }
    let subject = new.subject.as_ref();
    subject.map_or(Ok(()), |subject| bounds::length("subject", subject, SUBJECT_CHARS_MAX))?;
    for (name, text) in [("user", &new.user_id), ("tenant", &new.tenant_id), ("policy", &new.policy)] {
        text.as_ref().map_or(Ok(()), |text| bounds::name(name, text))?;
    }
    bounds::length("reason", &new.reason, REASON_CHARS_MAX)?;
    match new.kind {
        OverrideKind::Absolute(limit) if limit > ABSOLUTE_MAX => {
            Err(Error::Invalid(format!("an absolute override must be at most {ABSOLUTE_MAX}")))
        }
        OverrideKind::Multiplicative(factor) if !(factor.is_finite() && factor > 0.0) => {
            Err(Error::Invalid("a multiplicative override must be a number above 0".to_owned()))
        }
        OverrideKind::Block(status) if ![403, 429].contains(&status) => {
            Err(Error::Invalid("the status of a block must be 403 or 429".to_owned()))
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
        subject: new.subject,
        kind: new.kind,
        reason: new.reason,
        expires_at: new.expires_at,
        created_at: write.at,
        created_by: by.who.clone(),
        version: write.version,
    }
}

/// The largest absolute override, because the whole numbers up to this are exact in both databases' floating point,
/// and in JSON for every reader (RFC 8259 section 6).
pub const ABSOLUTE_MAX: u64 = (1 << 53) - 1;
const REASON_CHARS_MAX: usize = 4_096;
/// Of a dimension and its value.
pub const SUBJECT_CHARS_MAX: usize = 1_024;
/// Lasting limits of exactly these names: [`OverrideNames::bound_to`] has the values.
const LASTING: &str = "WHERE override_type = 'absolute' AND expires_at IS NULL \
                       AND user_id IS NOT DISTINCT FROM $1 AND tenant_id IS NOT DISTINCT FROM $2 \
                       AND policy IS NOT DISTINCT FROM $3";
const ABSOLUTE: &str = "absolute";
const MULTIPLICATIVE: &str = "multiplicative";
pub const BLOCK: &str = "block";
pub const UNLIMITED: &str = "unlimited";
