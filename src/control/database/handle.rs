//! An open database, as a binary with connections and one without have it.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

use super::connection::connections::{ConnectionPool, Session};
use super::connection::sql::{SqlQuery, SqlRow};
use super::error::Error;

/// The control plane's database. Cheap to clone; clones share connections. Every call fails if the database does not
/// answer, ends within [`CALL_MAX`] unless it says otherwise, and blocks no thread of the runtime.
#[derive(Clone, derive_more::Debug)]
#[debug("Database({:?})", connections.place)]
pub struct Database {
    pub(super) connections: Arc<ConnectionPool>,
    /// The version of the last change that this process has committed.
    pub(super) committed: watch::Sender<i64>,
}

impl Database {
    /// The version of the last change that this process has committed, and notice of the next: many at once are one.
    pub fn committed(&self) -> watch::Receiver<i64> {
        self.committed.subscribe()
    }

    /// The rows of one query, as `read` reads them.
    pub(super) async fn read_all<T>(
        &self,
        query: SqlQuery,
        read: fn(&SqlRow) -> Result<T, Error>,
    ) -> Result<Vec<T>, Error> {
        let mut session = self.connections.session(CALL_MAX).await?;
        let rows = session.all(query).await?;
        session.release();
        rows.iter().map(read).collect()
    }
}

impl ConnectionPool {
    pub(super) fn unreachable(&self, reason: &str) -> Error {
        Error::Unreachable { place: Arc::clone(&self.place), reason: reason.to_owned() }
    }
}

impl Session {
    /// The only row of a statement, if it has one.
    pub(super) async fn one(&mut self, query: SqlQuery) -> Result<Option<SqlRow>, Error> {
        Ok(self.all(query).await?.pop())
    }

    /// Begins to read everything as of one moment.
    pub(super) async fn begin_reading(&mut self) -> Result<(), Error> {
        let is_postgres = self.has_listeners();
        let begin = if is_postgres { "BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY" } else { "BEGIN" };
        self.execute(SqlQuery::new(begin)).await.map(drop)
    }

    /// Begins to write. SQLite waits here for whoever else writes.
    pub(super) async fn begin_writing(&mut self) -> Result<(), Error> {
        let begin = if self.has_listeners() { "BEGIN" } else { "BEGIN IMMEDIATE" };
        self.execute(SqlQuery::new(begin)).await.map(drop)
    }

    /// Ends what was begun, by `COMMIT` or `ROLLBACK`, and gives the connection back. If that fails, it is closed.
    pub(super) async fn finish(mut self, word: &'static str) -> Result<(), Error> {
        self.execute(SqlQuery::new(word)).await?;
        self.release();
        Ok(())
    }
}

/// The most that a call takes, the wait for a connection included.
pub const CALL_MAX: Duration = Duration::from_secs(5);
/// The most that [`Database::open`] takes, because it may have to wait for another node's migration.
pub const OPEN_MAX: Duration = Duration::from_secs(30);
