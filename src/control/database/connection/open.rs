//! Opens a database: makes the file, brings its tables up to date, refuses those of a newer program.

use std::fs::OpenOptions;
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use sqlx::ConnectOptions;
use sqlx::postgres::PgConnectOptions;
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqliteSynchronous};
use tokio::sync::watch;

use crate::database::config::{self, Config, Url};
use crate::database::connection::connections::{ConnectionPool, DatabaseOptions};
use crate::database::connection::migrate;
use crate::database::connection::servers::DatabaseServers;
use crate::database::error::Error;
use crate::database::handle::{CALL_MAX, Database, OPEN_MAX};

impl Database {
    /// Connects, makes the file of SQLite (mode 0600, as its -wal and -shm then have), and brings the tables up to date.
    ///
    /// # Errors
    /// [`Error::Unreachable`] if it does not answer within [`OPEN_MAX`]; [`Error::Newer`], [`Error::Corrupt`],
    /// [`Error::Refused`] and [`Error::ReadOnly`] if an operator must act first.
    pub async fn open(config: &Config) -> Result<Database, Error> {
        if let Url::Sqlite(path) = &config.url {
            make_file(path, &place(config)).await?;
        }
        let connections = connect(config, false)?;
        migrate::up(&connections, OPEN_MAX).await?;
        Ok(of(connections))
    }

    /// Closes the connections, at most this long. Nothing can be asked after it.
    pub async fn close(&self, within: Duration) {
        self.connections.close(within).await;
    }

    /// Connects to read, and changes nothing: no file is made, and no table.
    ///
    /// # Errors
    /// As [`Database::open`]; [`Error::Tables`] if no gateway of this version has made the tables yet.
    pub async fn open_read_only(config: &Config) -> Result<Database, Error> {
        let connections = connect(config, true)?;
        migrate::must_be_current(&connections, CALL_MAX).await?;
        Ok(of(connections))
    }
}

fn of(connections: Arc<ConnectionPool>) -> Database {
    Database { connections, committed: watch::Sender::new(0) }
}

fn place(config: &Config) -> Arc<str> {
    config.url.to_string().into()
}

fn connect(config: &Config, is_read_only: bool) -> Result<Arc<ConnectionPool>, Error> {
    let place = place(config);
    let options = match &config.url {
        Url::Sqlite(path) => DatabaseOptions::Sqlite(Box::new(sqlite_options(path).read_only(is_read_only))),
        Url::Postgres(url) => DatabaseOptions::Postgres(postgres_servers(url, config, &place)?),
    };
    Ok(ConnectionPool::new(place, options))
}

/// Makes an empty file that only this user reads. A file that exists keeps its mode.
async fn make_file(path: &Path, place: &Arc<str>) -> Result<(), Error> {
    if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty() && !folder.exists()) {
        let reason = format!("create the directory {}", folder.display());
        return Err(Error::ReadOnly { place: Arc::clone(place), reason });
    }
    let path = path.to_owned();
    // Never opened if it exists, because closing it would end the locks that SQLite holds on it for this process
    // (POSIX, fcntl).
    let make = move || OpenOptions::new().write(true).create_new(true).mode(FILE_MODE).open(&path).map(drop);
    let made = tokio::task::spawn_blocking(make).await.unwrap_or_else(|error| Err(io::Error::other(error)));
    match made {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
            Err(Error::ReadOnly { place: Arc::clone(place), reason: error.to_string() })
        }
        _ => Ok(()),
    }
}

fn sqlite_options(path: &Path) -> SqliteConnectOptions {
    SqliteConnectOptions::new()
        .filename(path)
        .journal_mode(SqliteJournalMode::Wal)
        // On the disk before it is answered, because an operator is told that it holds.
        .synchronous(SqliteSynchronous::Full)
        .busy_timeout(BUSY_MAX)
        .pragma("journal_size_limit", WAL_BYTES_KEPT)
        .disable_statement_logging()
}

fn postgres_servers(url: &str, config: &Config, place: &Arc<str>) -> Result<DatabaseServers, Error> {
    let unread = || Error::Refused { place: Arc::clone(place), reason: "its `url` is invalid".to_owned() };
    let options = |server: &String| -> Result<PgConnectOptions, Error> {
        let mut options: PgConnectOptions = server.parse().map_err(|_| unread())?;
        if let Some(password) = &config.password {
            options = options.password(&password.0);
        }
        if options.get_application_name().is_none() {
            options = options.application_name("sluicegate");
        }
        Ok(options.disable_statement_logging())
    };
    let each = config::servers(url).ok_or_else(unread)?;
    let each = each.iter().map(options).collect::<Result<Vec<_>, _>>()?;
    Ok(DatabaseServers::new(each, config::needs_writable(url)))
}

/// How long a connection waits while another process writes into the file.
const BUSY_MAX: Duration = Duration::from_millis(2_500);
/// What the file ending in -wal is cut to when it starts anew, bytes.
const WAL_BYTES_KEPT: &str = "16777216";
const FILE_MODE: u32 = 0o600;
