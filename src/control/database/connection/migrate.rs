//! Brings the tables up to date, and refuses a damaged file and tables that a newer program has made.

use std::borrow::Cow;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use sqlx::migrate::{MigrateError, Migration, MigrationType, Migrator};
use sqlx::{Executor, SqlStr};
use tokio::time::{Instant, sleep, timeout_at};

use base::clock;

use crate::database::connection::connections::{ConnectionPool, DatabaseLink, DatabaseOptions};
use crate::database::connection::sql::SqlQuery;
use crate::database::error::Error;

/// Applies the migrations that the database lacks. Nothing is written if it lacks none, so that a login that may only
/// use the tables is enough once somebody has made them.
pub(in crate::database) async fn up(
    connections: &Arc<ConnectionPool>,
    within: Duration,
) -> Result<(), Error> {
    let began = Instant::from_std(clock::instant());
    loop {
        let error = match try_up(connections, within, began + within).await {
            Ok(()) => return Ok(()),
            Err(MigrationFailure::Before(error)) if !is_contended(connections, &error) => return Err(error),
            Err(MigrationFailure::Before(error) | MigrationFailure::Applying(error)) => error,
        };
        let now = Instant::from_std(clock::instant());
        if now + RETRY_AFTER > began + within.min(RETRIES) {
            return Err(error);
        }
        sleep(RETRY_AFTER).await;
    }
}

/// Where bringing the tables up to date failed.
enum MigrationFailure {
    /// Nothing had been applied, so that the tables are as they were.
    Before(Error),
    /// A migration was being applied. It is tried again, because SQLite has no lock for migrations: of two processes
    /// that make the same file the slower one fails half way, undoes that, and finds the tables made. What fails for
    /// good fails again until a short patience is over.
    Applying(Error),
}

async fn try_up(
    connections: &Arc<ConnectionPool>,
    within: Duration,
    deadline: Instant,
) -> Result<(), MigrationFailure> {
    if let DatabaseOptions::Sqlite(_) = connections.options {
        check(connections, within).await.map_err(MigrationFailure::Before)?;
    }
    if is_current(connections, within).await.map_err(MigrationFailure::Before)? {
        return Ok(());
    }
    apply(connections, deadline).await.map_err(MigrationFailure::Applying)
}

/// Whether another process holds the file, which lasts a moment. The caller tries again then, because SQLite does not wait for one
/// that turns the file to WAL or recovers it, whatever the busy timeout.
fn is_contended(connections: &ConnectionPool, error: &Error) -> bool {
    matches!(connections.options, DatabaseOptions::Sqlite(_)) && error.is_outage()
}

/// Whether the tables are those of this program already.
///
/// # Errors
/// [`Error::Tables`] if they are not.
pub(in crate::database) async fn must_be_current(
    connections: &Arc<ConnectionPool>,
    within: Duration,
) -> Result<(), Error> {
    if is_current(connections, within).await? {
        return Ok(());
    }
    let reason = "its tables are missing or too old; start the gateway once to migrate them".to_owned();
    Err(Error::Tables { place: Arc::clone(&connections.place), reason })
}

/// Looks for damage in a file that is small enough to be read through at start.
async fn check(connections: &Arc<ConnectionPool>, within: Duration) -> Result<(), Error> {
    let mut session = connections.session(within).await?;
    let size = "SELECT page_count * page_size AS bytes FROM pragma_page_count(), pragma_page_size()";
    let bytes: i64 = match session.one(SqlQuery::new(size)).await? {
        Some(row) => row.get("bytes")?,
        None => 0,
    };
    if bytes <= CHECKED_BYTES_MAX {
        let found = session.one(SqlQuery::new("PRAGMA quick_check(1)")).await?;
        let found: String = found.map_or(Ok("ok".to_owned()), |row| row.get("quick_check"))?;
        if found != "ok" {
            let reason = found.replace('\n', " ");
            return Err(Error::Corrupt { place: Arc::clone(&connections.place), reason });
        }
    }
    session.release();
    Ok(())
}

/// Whether all migrations of this program are applied, and no others.
async fn is_current(connections: &Arc<ConnectionPool>, within: Duration) -> Result<bool, Error> {
    let mut session = connections.session(within).await?;
    let (migrator, table) = match connections.options {
        DatabaseOptions::Sqlite(_) => {
            (&SQLITE, "SELECT 1 FROM sqlite_master WHERE name = '_sqlx_migrations'")
        }
        DatabaseOptions::Postgres(_) => {
            (&POSTGRES, "SELECT 1 WHERE to_regclass('_sqlx_migrations') IS NOT NULL")
        }
    };
    if session.one(SqlQuery::new(table)).await?.is_none() {
        session.release();
        return Ok(false);
    }
    let applied =
        session.all(SqlQuery::new("SELECT version, checksum FROM _sqlx_migrations ORDER BY version")).await?;
    session.release();
    let place = || Arc::clone(&connections.place);
    // The newest first, because that is the one to name.
    for row in applied.iter().rev() {
        let found: i64 = row.get("version")?;
        let Some(migration) = migrator.iter().find(|migration| migration.version == found) else {
            let known = migrator.iter().map(|migration| migration.version).max().unwrap_or_default();
            return Err(Error::Newer { place: place(), found, known });
        };
        if row.get::<Vec<u8>>("checksum")? != migration.checksum.as_ref() {
            let reason = format!("migration {found} is not this program's: run the version that applied it");
            return Err(Error::Tables { place: place(), reason });
        }
    }
    Ok(applied.len() == migrator.iter().count())
}

/// Applies what is missing, each migration in one transaction.
async fn apply(connections: &Arc<ConnectionPool>, deadline: Instant) -> Result<(), Error> {
    let (mut link, _) = connections.open(deadline).await?;
    let applied = timeout_at(deadline, async {
        match &mut link {
            // Not `run`, because the compiler takes its future for one that must stay on its thread.
            DatabaseLink::Sqlite(connection) => SQLITE.run_direct(None, connection, false).await,
            DatabaseLink::Postgres(connection) => {
                // Without timeouts of the server, so that it waits for another node's migration as long as the
                // deadline allows.
                connection.execute("SET lock_timeout = 0; SET statement_timeout = 0").await?;
                POSTGRES.run_direct(None, connection, false).await
            }
        }
    });
    // The connection is closed, so that the lock is given up if the migration failed.
    match applied.await {
        Ok(Ok(())) => Ok(()),
        Ok(Err(MigrateError::Execute(error) | MigrateError::ExecuteMigration(error, _))) => {
            Err(Error::of(&connections.place, &error))
        }
        Ok(Err(error)) => {
            Err(Error::Tables { place: Arc::clone(&connections.place), reason: error.to_string() })
        }
        Err(_) => Err(connections.unreachable("its tables were not migrated within the deadline")),
    }
}

static SQLITE: LazyLock<Migrator> = LazyLock::new(|| {
    migrator([
        include_str!("../migrations/sqlite/0001_control_plane.sql"),
        include_str!("../migrations/sqlite/0002_resets.sql"),
        include_str!("../migrations/sqlite/0003_usage.sql"),
        include_str!("../migrations/sqlite/0004_events.sql"),
        include_str!("../migrations/sqlite/0005_blocks.sql"),
    ])
});
static POSTGRES: LazyLock<Migrator> = LazyLock::new(|| {
    migrator([
        include_str!("../migrations/postgres/0001_control_plane.sql"),
        include_str!("../migrations/postgres/0002_resets.sql"),
        include_str!("../migrations/postgres/0003_usage.sql"),
        include_str!("../migrations/postgres/0004_events.sql"),
        include_str!("../migrations/postgres/0005_blocks.sql"),
    ])
});

/// The migrations of one kind of database, in their order. Not by the library's macro, because the library would be
/// built a second time for it.
fn migrator<const N: usize>(texts: [&'static str; N]) -> Migrator {
    let migration = |(version, text)| {
        let description = Cow::Borrowed("tables of the control plane");
        Migration::new(version, description, MigrationType::Simple, SqlStr::from_static(text), false)
    };
    Migrator::with_migrations((1..).zip(texts).map(migration).collect())
}

const RETRY_AFTER: Duration = Duration::from_millis(50);
const RETRIES: Duration = Duration::from_secs(2);
/// A file of this size is read through in about a second.
const CHECKED_BYTES_MAX: i64 = 64 << 20;
