//! The servers of one PostgreSQL: a primary and its standbys, of which one becomes the primary when that is gone. New connections
//! go to the one that can be written.

use std::sync::atomic::{AtomicUsize, Ordering};

use sqlx::postgres::{PgConnectOptions, PgConnection};
use sqlx::{ConnectOptions, Executor, Row};
use tokio::time::{Instant, timeout_at};

use base::clock;

pub(in crate::database) fn is_readable(url: &str) -> bool {
    url.parse::<PgConnectOptions>().is_ok()
}

/// How to connect to each of them.
pub(in crate::database) struct DatabaseServers {
    each: Vec<PgConnectOptions>,
    /// Whether one that can only be read will not do.
    needs_writable: bool,
    last: AtomicUsize,
}

pub(in crate::database) struct PostgresConnection {
    pub(in crate::database) connection: PgConnection,
    /// Whether it was taken because no other answers: it can only be read.
    pub(in crate::database) is_makeshift: bool,
}

impl DatabaseServers {
    pub(in crate::database) fn new(each: Vec<PgConnectOptions>, needs_writable: bool) -> DatabaseServers {
        DatabaseServers { each, needs_writable, last: AtomicUsize::new(0) }
    }

    /// All of them, the one that was written last at the front.
    pub(in crate::database) fn ordered(&self) -> impl Iterator<Item = (usize, &PgConnectOptions)> {
        let last = self.last.load(Ordering::Relaxed);
        let each = self.each.iter().enumerate();
        each.clone().cycle().skip(last).take(each.len())
    }

    /// Connects to the first that can be written, or else to the first that answers.
    ///
    /// # Errors
    /// Why the last one does not answer; `None`: none did within the deadline.
    pub(in crate::database) async fn connect(
        &self,
        deadline: Instant,
    ) -> Result<PostgresConnection, Option<sqlx::Error>> {
        let mut readable = None;
        let mut failed = None;
        let mut left = u32::try_from(self.each.len()).unwrap_or(u32::MAX);
        for (index, options) in self.ordered() {
            // For a share of the time, so that one that is silent leaves the others theirs.
            let now = Instant::from_std(clock::instant());
            let patience = now + deadline.saturating_duration_since(now) / left.max(1);
            left -= 1;
            match timeout_at(patience, self.try_one(options)).await {
                Ok(Ok((connection, true))) => {
                    self.last.store(index, Ordering::Relaxed);
                    return Ok(PostgresConnection { connection, is_makeshift: false });
                }
                Ok(Ok((connection, false))) => readable = readable.or(Some(connection)),
                Ok(Err(error)) => failed = Some(error),
                Err(_) => {}
            }
        }
        match readable {
            Some(connection) if !self.needs_writable => {
                Ok(PostgresConnection { connection, is_makeshift: true })
            }
            Some(_) => Err(Some(sqlx::Error::Protocol("no server of `url` accepts writes".to_owned()))),
            None => Err(failed),
        }
    }

    /// A connection, and whether the server can be written, as far as that matters.
    async fn try_one(&self, options: &PgConnectOptions) -> Result<(PgConnection, bool), sqlx::Error> {
        let mut connection = options.connect().await?;
        connection.execute(BOUNDS).await?;
        let asks = self.each.len() > 1 || self.needs_writable;
        let is_writable = !asks || connection.fetch_one(IS_WRITABLE).await?.try_get(0)?;
        Ok((connection, is_writable))
    }
}

/// What the server ends on its own if this process hangs: otherwise a node that is stopped while it writes would hold the
/// row that all writers wait for. Sent as a statement, because PgBouncer refuses options at connect.
const BOUNDS: &str = "SET statement_timeout = '4s'; SET lock_timeout = '2500ms'; \
     SET idle_in_transaction_session_timeout = '5s'";
const IS_WRITABLE: &str =
    "SELECT NOT pg_is_in_recovery() AND current_setting('default_transaction_read_only') = 'off'";
