//! An open database, as a binary with connections and one without have it.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

use super::connection::connections::ConnectionPool;
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

/// The most that a call takes, the wait for a connection included.
pub const CALL_MAX: Duration = Duration::from_secs(5);
/// The most that [`Database::open`] takes, because it may have to wait for another node's migration.
pub const OPEN_MAX: Duration = Duration::from_secs(30);
