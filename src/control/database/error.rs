//! Why a call of the database failed, by who must act. No error shows a password or a value of a row.

use std::sync::Arc;

use sqlx::error::DatabaseError;

/// Why a call failed. Unless it is [`Error::Unknown`], nothing was written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Client: there is no such row.
    #[error("there is no such row")]
    NotFound,
    /// Client: the row is at another version than the one that the change is meant for.
    #[error("the row has changed meanwhile")]
    Conflict {
        /// Its present version; `None`: there is no such row.
        version: Option<i64>,
    },
    /// Client: an idempotency key came again with another request.
    #[error("the idempotency key was used for another request")]
    KeyReused,
    /// Client: a value that the tables refuse.
    #[error("{0}")]
    Invalid(String),
    /// Operator, or time: the database does not answer, or not within the deadline.
    #[error("{place}: {reason}")]
    Unreachable {
        /// Which database, without its credentials.
        place: Arc<str>,
        reason: String,
    },
    /// The connection broke while a change was being committed, and nobody could say within the deadline whether it was.
    /// The audit log tells once the database is back.
    #[error("{place}: the connection broke during a change, which may have been written: see the audit log")]
    Unknown { place: Arc<str> },
    /// Operator: it can be read and not written.
    #[error("{place}: cannot be written: {reason}")]
    ReadOnly { place: Arc<str>, reason: String },
    /// Operator: its disk is full.
    #[error("{place}: its disk is full")]
    Full { place: Arc<str> },
    /// Operator: user, password, database or rights are wrong.
    #[error("{place}: access is refused: {reason}")]
    Refused {
        place: Arc<str>,
        /// Why, as the server says it.
        reason: String,
    },
    /// Operator: the file is damaged or is no database. It is left as it is.
    #[error(
        "{place}: {reason}: stop the gateway and put a backup in its place, or move the file and those ending in -wal and -shm away to start empty"
    )]
    Corrupt { place: Arc<str>, reason: String },
    /// Operator: a newer gateway has changed the tables.
    #[error(
        "{place}: its tables are those of a newer gateway (migration {found}; this one knows {known}): run that version or a newer one"
    )]
    Newer {
        place: Arc<str>,
        /// The newest migration in it.
        found: i64,
        /// The newest that this program has.
        known: i64,
    },
    /// Operator: its tables are not those of the migrations.
    #[error("{place}: {reason}")]
    Tables { place: Arc<str>, reason: String },
    /// Us: an error that no other variant is for.
    #[error("{place}: {reason}")]
    Failed { place: Arc<str>, reason: String },
}

impl Error {
    /// Whether the database was not reached or its answer is not known: the connection is of no more use.
    pub fn is_outage(&self) -> bool {
        matches!(self, Error::Unreachable { .. } | Error::Unknown { .. })
    }

    /// What an error of the library means.
    pub(super) fn of(place: &Arc<str>, error: &sqlx::Error) -> Error {
        let place = Arc::clone(place);
        match error {
            sqlx::Error::Database(error) => match error.code().as_deref().map(str::parse::<u32>) {
                // SQLite's codes are numbers below 2^16, most with a reason in the upper byte; those of PostgreSQL have
                // five digits or letters.
                Some(Ok(code)) if error.code().is_some_and(|code| code.len() < 5) => {
                    of_sqlite(place, code, &**error)
                }
                _ => of_postgres(place, &**error),
            },
            sqlx::Error::Io(error) => Error::Unreachable { place, reason: error.to_string() },
            sqlx::Error::Tls(error) => Error::Unreachable { place, reason: format!("TLS: {error}") },
            sqlx::Error::PoolTimedOut => {
                Error::Unreachable { place, reason: "no connection within the deadline".to_owned() }
            }
            sqlx::Error::Protocol(_) | sqlx::Error::WorkerCrashed => {
                Error::Unreachable { place, reason: error.to_string() }
            }
            sqlx::Error::ColumnDecode { index, .. } => Error::Tables {
                place,
                reason: format!("column {index} has another type than the migrations give it"),
            },
            sqlx::Error::ColumnNotFound(name) => {
                Error::Tables { place, reason: format!("column {name} is missing") }
            }
            other => Error::Failed { place, reason: other.to_string() },
        }
    }
}

/// By the primary result code (sqlite.org/rescode.html).
fn of_sqlite(place: Arc<str>, code: u32, error: &dyn DatabaseError) -> Error {
    let reason = error.message().to_owned();
    match code & 0xff {
        // BUSY, LOCKED: another process has held the file for longer than the busy timeout.
        5 | 6 => Error::Unreachable { place, reason },
        // PERM, READONLY, CANTOPEN
        3 | 8 | 14 => Error::ReadOnly { place, reason },
        // FULL
        13 => Error::Full { place },
        // CORRUPT, NOTADB
        11 | 26 => Error::Corrupt { place, reason },
        // TOOBIG, CONSTRAINT
        18 | 19 => Error::Invalid(reason),
        _ => Error::Failed { place, reason },
    }
}

/// By SQLSTATE (PostgreSQL, appendix A).
fn of_postgres(place: Arc<str>, error: &dyn DatabaseError) -> Error {
    let code = error.code().unwrap_or_default().into_owned();
    let reason = error.message().to_owned();
    match code.as_str() {
        // read_only_sql_transaction
        "25006" => Error::ReadOnly { place, reason },
        // disk_full
        "53100" => Error::Full { place },
        // query_canceled and lock_not_available: our own bounds on the server's side
        "57014" | "55P03" => Error::Unreachable { place, reason },
        // invalid_password and the like, invalid_catalog_name, insufficient_privilege
        "3D000" | "42501" => Error::Refused { place, reason },
        // undefined_table, undefined_column
        "42P01" | "42703" => Error::Tables { place, reason },
        code => match code.get(..2) {
            // connection exceptions; too many connections, out of memory; shut down, starting up; idle for too long in
            // a transaction, or serialised after others
            Some("08" | "53" | "57" | "25" | "40") => Error::Unreachable { place, reason },
            // data exceptions, constraints
            Some("22" | "23") => Error::Invalid(reason),
            Some("28") => Error::Refused { place, reason },
            Some("XX") => Error::Corrupt { place, reason },
            _ => Error::Failed { place, reason },
        },
    }
}
