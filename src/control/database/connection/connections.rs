//! Connections to the database: a few open ones, each used by one call at a time, and every wait on one with a deadline.
//!
//! Not the library's pool, because that says of a server that refuses connections only that the wait was too long,
//! and waits without a bound for an answer on a connection that is given back: a server that hangs would hold all of
//! them.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use sqlx::postgres::PgConnection;
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection};
use sqlx::{ConnectOptions, Connection};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout_at};

use base::clock;

use crate::database::connection::servers::{DatabaseServers, PostgresConnection};
use crate::database::connection::sql::{SqlQuery, SqlRow};
use crate::database::error::Error;

/// The open connections, and how to open more.
pub(in crate::database) struct ConnectionPool {
    pub(in crate::database) place: Arc<str>,
    pub(in crate::database) options: DatabaseOptions,
    idle: Mutex<Vec<DatabaseLink>>,
    /// Which file of SQLite was opened: its device and inode.
    file: Mutex<Option<(u64, u64)>>,
    permits: Arc<Semaphore>,
}

fn file_id(path: &Path) -> Option<(u64, u64)> {
    let metadata = fs::metadata(path).ok()?;
    Some((metadata.dev(), metadata.ino()))
}

pub(in crate::database) enum DatabaseOptions {
    Sqlite(Box<SqliteConnectOptions>),
    Postgres(DatabaseServers),
}

pub(in crate::database) enum DatabaseLink {
    Sqlite(SqliteConnection),
    Postgres(PgConnection),
}

/// A connection during one call. Dropped before [`Session::release`] it is closed, which undoes what was not
/// committed, so that a call that fails or is dropped anywhere leaves nothing behind.
pub(in crate::database) struct Session {
    connections: Arc<ConnectionPool>,
    link: Option<DatabaseLink>,
    is_makeshift: bool,
    deadline: Instant,
    _permit: OwnedSemaphorePermit,
}

impl ConnectionPool {
    pub(in crate::database) fn new(place: Arc<str>, options: DatabaseOptions) -> Arc<ConnectionPool> {
        let permits = Arc::new(Semaphore::new(CONNECTIONS_MAX));
        Arc::new(ConnectionPool { place, options, idle: Mutex::default(), file: Mutex::default(), permits })
    }

    pub(in crate::database) async fn session(
        self: &Arc<ConnectionPool>,
        within: Duration,
    ) -> Result<Session, Error> {
        let deadline = Instant::from_std(clock::instant()) + within;
        let permit = timeout_at(deadline, Arc::clone(&self.permits).acquire_owned()).await;
        let Ok(Ok(permit)) = permit else {
            return Err(self.unreachable("all connections to it are in use"));
        };
        let (link, is_makeshift) = match self.tested(deadline).await {
            Some(link) => (link, false),
            None => self.open(deadline).await?,
        };
        let connections = Arc::clone(self);
        Ok(Session { connections, link: Some(link), is_makeshift, deadline, _permit: permit })
    }

    /// An idle connection that still answers. After one that does not the others are closed, too, because the server
    /// was restarted, or the way to it is cut.
    async fn tested(&self, deadline: Instant) -> Option<DatabaseLink> {
        loop {
            let mut link = self.idle().pop()?;
            let patience = deadline.min(Instant::from_std(clock::instant()) + TEST_MAX);
            let answer = match &mut link {
                // By its name, because the file has no way to it that could break, but somebody may have put another
                // in its place, or none.
                DatabaseLink::Sqlite(_) => {
                    Ok(if self.is_the_file() { Ok(()) } else { Err(sqlx::Error::PoolClosed) })
                }
                DatabaseLink::Postgres(connection) => timeout_at(patience, connection.ping()).await,
            };
            if let Ok(Ok(())) = answer {
                return Some(link);
            }
            self.idle().clear();
        }
    }

    /// Whether the file of SQLite is the one that the open connections have.
    fn is_the_file(&self) -> bool {
        let DatabaseOptions::Sqlite(options) = &self.options else { return true };
        file_id(options.get_filename()) == *self.file.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A new connection, and whether it is a makeshift: to a server that can only be read, because no other answers.
    pub(in crate::database) async fn open(&self, deadline: Instant) -> Result<(DatabaseLink, bool), Error> {
        let opened = match &self.options {
            DatabaseOptions::Sqlite(options) => {
                let link = timeout_at(deadline, options.connect()).await;
                *self.file.lock().unwrap_or_else(PoisonError::into_inner) = file_id(options.get_filename());
                link.map_or(Err(None), |link| link.map_err(Some))
                    .map(|link| (DatabaseLink::Sqlite(link), false))
            }
            DatabaseOptions::Postgres(servers) => {
                servers.connect(deadline).await.map(|PostgresConnection { connection, is_makeshift }| {
                    (DatabaseLink::Postgres(connection), is_makeshift)
                })
            }
        };
        opened.map_err(|error| match error {
            Some(error) => Error::of(&self.place, &error),
            None => self.unreachable("no connection within the deadline"),
        })
    }

    /// Closes the open connections, those of calls under way as they end, within this time. No call comes after it.
    pub(in crate::database) async fn close(&self, within: Duration) {
        let closing = async {
            let _all = self.permits.acquire_many(CONNECTIONS_MAX as u32).await;
            let links = std::mem::take(&mut *self.idle());
            for link in links {
                // The result is ignored, because nobody is left to be told that one was broken.
                let _ = match link {
                    DatabaseLink::Sqlite(connection) => connection.close().await,
                    DatabaseLink::Postgres(connection) => connection.close().await,
                };
            }
        };
        let _ = tokio::time::timeout(within, closing).await;
        self.permits.close();
    }

    fn idle(&self) -> std::sync::MutexGuard<'_, Vec<DatabaseLink>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Session {
    /// Runs a statement; the number of rows that it changed.
    pub(in crate::database) async fn execute(&mut self, query: SqlQuery) -> Result<u64, Error> {
        query.check()?;
        let Some(link) = &mut self.link else { return Err(self.connections.unreachable(GONE)) };
        let answer = timeout_at(self.deadline, async {
            match link {
                DatabaseLink::Sqlite(link) => {
                    query.sqlite().execute(link).await.map(|done| done.rows_affected())
                }
                DatabaseLink::Postgres(link) => {
                    query.postgres().execute(link).await.map(|done| done.rows_affected())
                }
            }
        });
        let answer = answer.await;
        self.answered(answer)
    }

    pub(in crate::database) async fn all(&mut self, query: SqlQuery) -> Result<Vec<SqlRow>, Error> {
        query.check()?;
        let place = Arc::clone(&self.connections.place);
        let Some(link) = &mut self.link else { return Err(self.connections.unreachable(GONE)) };
        let answer = timeout_at(self.deadline, async {
            let row = |row| SqlRow::Sqlite(row, Arc::clone(&place));
            match link {
                DatabaseLink::Sqlite(link) => {
                    query.sqlite().fetch_all(link).await.map(|rows| rows.into_iter().map(row).collect())
                }
                DatabaseLink::Postgres(link) => {
                    let row = |row| SqlRow::Postgres(row, Arc::clone(&place));
                    query.postgres().fetch_all(link).await.map(|rows| rows.into_iter().map(row).collect())
                }
            }
        });
        let answer = answer.await;
        self.answered(answer)
    }

    /// Whether it is PostgreSQL, which has listeners to notify.
    pub(in crate::database) fn has_listeners(&self) -> bool {
        matches!(self.link, Some(DatabaseLink::Postgres(_)))
    }

    /// Sets the deadline to so much from now.
    pub(in crate::database) fn extend(&mut self, within: Duration) {
        self.deadline = Instant::from_std(clock::instant()) + within;
    }

    /// Gives the connection back for the next call. Nothing may be open on it.
    pub(in crate::database) fn release(mut self) {
        if let Some(link) = self.link.take().filter(|_| !self.is_makeshift) {
            self.connections.idle().push(link);
        }
    }

    fn answered<T>(
        &mut self,
        answer: Result<Result<T, sqlx::Error>, tokio::time::error::Elapsed>,
    ) -> Result<T, Error> {
        let error = match answer {
            Ok(Ok(answer)) => return Ok(answer),
            Ok(Err(error)) => Error::of(&self.connections.place, &error),
            Err(_) => self.connections.unreachable("no answer within the deadline"),
        };
        match error {
            // Closed, because what comes on this connection later would be the answer to another statement.
            Error::Unreachable { .. } => self.link = None,
            // Closed with all others, because a server that can only be read may be the standby of one that can be
            // written, which new connections find.
            Error::ReadOnly { .. } => {
                self.link = None;
                self.connections.idle().clear();
            }
            _ => {}
        }
        Err(error)
    }
}

/// Connections at once. They are few, because only one at a time writes into SQLite, and a fleet of hundreds of nodes
/// shares the few hundred of PostgreSQL.
const CONNECTIONS_MAX: usize = 4;
/// How long a connection may take to show that it still works.
const TEST_MAX: Duration = Duration::from_secs(1);
const GONE: &str = "the connection is lost";
