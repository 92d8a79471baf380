//! What the nodes follow: everything as of one version, or what has changed since one.
//!
//! Every row carries the version of its last change, so that rows that changed are found by that; `changes` names
//! those that are gone.

use std::collections::HashSet;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::api_keys::ApiKeyRow;
use super::assignments::Assignment;
use super::connection::connections::Session;
use super::connection::sql::{SqlQuery, SqlRow};
use super::error::Error;
use super::handle::{CALL_MAX, Database};
use super::overrides::{OverrideRow, live_at};
use super::policies::PolicyRow;
use super::resets::ResetRow;
use super::rows::{TableRow, listed, select};
use super::tiers::TierLimit;
use super::time::Time;
use super::write::RowKind;

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DatabaseRows {
    pub version: i64,
    /// When that version was made, which tells it from the same version of another history: a backup that was put back goes
    /// on from an earlier one. `None`: before the first change, or too long ago.
    #[serde(default)]
    pub made_at: Option<Time>,
    pub policies: Vec<PolicyRow>,
    pub tiers: Vec<TierLimit>,
    pub assignments: Vec<Assignment>,
    /// Overrides, without those that ended more than [`ENDED_KEPT`] ago.
    pub overrides: Vec<OverrideRow>,
    pub api_keys: Vec<ApiKeyRow>,
    /// Resets of counts. A copy on disk of an older program has none.
    #[serde(default)]
    pub resets: Vec<ResetRow>,
}

/// What a node that knows one version has to learn.
#[derive(Clone, Debug, PartialEq)]
pub enum RowChanges {
    /// Rows that are new or different, with the version they are the state of, and rows that are gone.
    Since { changed: DatabaseRows, gone: Vec<RowName> },
    /// Everything: the version is too long ago, there are too many changes, or it is not one of this database's history (one
    /// that was restored from a backup is behind its nodes, or has other changes since).
    Everything(DatabaseRows),
}

/// A row by its kind and its [`TableRow::key`].
pub type RowName = (RowKind, String);

impl Database {
    /// The version of the last change; 0 before the first.
    pub async fn version(&self) -> Result<i64, Error> {
        let mut session = self.connections.session(CALL_MAX).await?;
        let version = version(&mut session).await?;
        session.release();
        Ok(version)
    }

    /// Everything, as of one moment. It may take [`STATE_MAX`].
    pub async fn state(&self) -> Result<DatabaseRows, Error> {
        let mut session = self.connections.session(STATE_MAX).await?;
        session.begin_reading().await?;
        let version = version(&mut session).await?;
        let state = everything(&mut session, version).await?;
        session.finish("COMMIT").await?;
        Ok(state)
    }

    /// What has changed since a version, as of one moment. It may take [`STATE_MAX`] if that is everything. `known` is
    /// [`DatabaseRows::made_at`] of that version, if it is known.
    pub async fn changes_since(&self, since: i64, known: Option<Time>) -> Result<RowChanges, Error> {
        let mut session = self.connections.session(CALL_MAX).await?;
        session.begin_reading().await?;
        let version = version(&mut session).await?;
        let names = match is_of_this_history(&mut session, since, version, known).await? {
            true => changed_names(&mut session, since, version).await?,
            false => None,
        };
        let changes = match names {
            Some(names) => changed(&mut session, since, version, names).await?,
            None => {
                session.extend(STATE_MAX);
                RowChanges::Everything(everything(&mut session, version).await?)
            }
        };
        session.finish("COMMIT").await?;
        Ok(changes)
    }
}

/// When a change was made, by the clock of the node that made it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChangeTime {
    pub version: i64,
    pub is_policy: bool,
    pub at: Time,
}

impl Database {
    /// When the changes after one version up to another were made, `MADE_MAX` of them at most.
    pub async fn made(&self, after: i64, until: i64) -> Result<Vec<ChangeTime>, Error> {
        let query = SqlQuery::new("SELECT version, kind, at FROM changes")
            .and("WHERE version >", after)
            .and("AND version <=", until)
            .and("ORDER BY version LIMIT", MADE_MAX);
        let read = |row: &SqlRow| {
            let is_policy = row.get::<String>("kind")? == RowKind::Policy.word();
            Ok(ChangeTime { version: row.get("version")?, is_policy, at: row.get("at")? })
        };
        self.read_all(query, read).await
    }
}

async fn version(session: &mut Session) -> Result<i64, Error> {
    let row = session.one(SqlQuery::new("SELECT version FROM control_version")).await?;
    row.map_or(Ok(0), |row| row.get("version"))
}

/// When a version was made; `None` if there is none, or its changes are not kept any more.
async fn made_at(session: &mut Session, version: i64) -> Result<Option<Time>, Error> {
    let row = session
        .one(SqlQuery::new("SELECT max(at) AS at FROM changes").and("WHERE version =", version))
        .await?;
    row.map_or(Ok(None), |row| row.get("at"))
}

/// Whether a version that was made at this time is one that this database has had.
async fn is_of_this_history(
    session: &mut Session,
    since: i64,
    version: i64,
    known: Option<Time>,
) -> Result<bool, Error> {
    let Some(known) = known else { return Ok(true) };
    match made_at(session, since).await? {
        Some(at) => Ok(at == known),
        // Only of the last version, because it is kept for ever, and of an earlier one nobody can say.
        None => Ok(since == version),
    }
}

/// The rows that `changes` has since a version; `None` if it does not have all, or too many.
async fn changed_names(
    session: &mut Session,
    since: i64,
    version: i64,
) -> Result<Option<Vec<RowName>>, Error> {
    if since == version {
        return Ok(Some(Vec::new()));
    }
    let oldest = session.one(SqlQuery::new("SELECT min(version) AS oldest FROM changes")).await?;
    let oldest: Option<i64> = oldest.map_or(Ok(None), |row| row.get("oldest"))?;
    let has_all = since < version && oldest.is_some_and(|oldest| oldest <= since.saturating_add(1));
    if !has_all {
        return Ok(None);
    }
    let names = SqlQuery::new("SELECT DISTINCT kind, id FROM changes")
        .and("WHERE version >", since)
        .and("LIMIT", CHANGES_MAX + 1);
    let names = session.all(names).await?;
    if i64::try_from(names.len()).is_ok_and(|count| count > CHANGES_MAX) {
        return Ok(None);
    }
    let mut known = Vec::with_capacity(names.len());
    for row in names {
        // Left out if it is a kind of a newer program's, because this one has no such rows.
        if let Some(kind) = RowKind::of(&row.get::<String>("kind")?) {
            known.push((kind, row.get("id")?));
        }
    }
    Ok(Some(known))
}

async fn changed(
    session: &mut Session,
    since: i64,
    version: i64,
    names: Vec<RowName>,
) -> Result<RowChanges, Error> {
    let made_at = made_at(session, version).await?;
    let mut changed = DatabaseRows { version, made_at, ..DatabaseRows::default() };
    if names.is_empty() {
        return Ok(RowChanges::Since { changed, gone: Vec::new() });
    }
    changed.policies = newer(session, since).await?;
    changed.tiers = newer(session, since).await?;
    changed.assignments = newer(session, since).await?;
    changed.overrides = newer(session, since).await?;
    changed.api_keys = newer(session, since).await?;
    changed.resets = newer(session, since).await?;
    let present = changed.names();
    let gone = names.into_iter().filter(|name| !present.contains(name)).collect();
    Ok(RowChanges::Since { changed, gone })
}

async fn newer<R: TableRow>(session: &mut Session, since: i64) -> Result<Vec<R>, Error> {
    session.all(select::<R>().and("WHERE version >", since)).await?.iter().map(R::read).collect()
}

impl DatabaseRows {
    /// The kinds and keys of all rows, as `changes` has them.
    fn names(&self) -> HashSet<RowName> {
        let all = names(&self.policies).chain(names(&self.tiers)).chain(names(&self.assignments));
        all.chain(names(&self.overrides)).chain(names(&self.api_keys)).chain(names(&self.resets)).collect()
    }
}

fn names<R: TableRow>(rows: &[R]) -> impl Iterator<Item = RowName> {
    rows.iter().map(|row| (R::KIND, row.key()))
}

/// All rows of all tables, a page at a time, because a server ends a statement that takes seconds.
async fn everything(session: &mut Session, version: i64) -> Result<DatabaseRows, Error> {
    let ended = Time::now().before(ENDED_KEPT);
    Ok(DatabaseRows {
        version,
        made_at: made_at(session, version).await?,
        policies: pages(session, |query| query).await?,
        tiers: pages(session, |query| query).await?,
        assignments: pages(session, |query| query).await?,
        overrides: pages(session, |query| live_at(query, ended)).await?,
        api_keys: pages(session, |query| query).await?,
        resets: pages(session, |query| query).await?,
    })
}

async fn pages<R: TableRow>(
    session: &mut Session,
    filter: impl Fn(SqlQuery) -> SqlQuery,
) -> Result<Vec<R>, Error> {
    let mut all: Vec<R> = Vec::new();
    loop {
        let after = all.last().map(R::key);
        let found = session.all(listed::<R>((after.as_deref(), false), PAGE_ROWS, &filter)?).await?;
        for row in &found {
            all.push(R::read(row)?);
        }
        if i64::try_from(found.len()).is_ok_and(|count| count < PAGE_ROWS) {
            return Ok(all);
        }
    }
}

/// The most that reading everything takes: a million overrides need a few seconds.
pub const STATE_MAX: Duration = Duration::from_secs(60);
/// For how long an override that has ended is still told, because the clocks of nodes differ by seconds.
pub const ENDED_KEPT: Duration = Duration::from_secs(60);
/// Rows that changed since a version, at most; beyond that everything is read.
const CHANGES_MAX: i64 = 50_000;
const PAGE_ROWS: i64 = 10_000;
/// The most changes whose times are read at once.
const MADE_MAX: i64 = 10_000;
