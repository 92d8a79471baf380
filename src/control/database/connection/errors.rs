//! What errors of the library mean.

use std::sync::Arc;

use sqlx::error::DatabaseError;

use crate::database::error::Error;

impl Error {
    pub(in crate::database) fn of(place: &Arc<str>, error: &sqlx::Error) -> Error {
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
                reason: format!("column {index} does not have the type that the migrations gave it"),
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
        5 | 6 => Error::Unreachable { place, reason: LOCKED.to_owned() },
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

const LOCKED: &str = "another process has locked it: end its transaction, its backup or its sqlite3";

/// What an error means, by its SQLSTATE (PostgreSQL, appendix A).
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
        // invalid_catalog_name, insufficient_privilege; a database that does not accept connections
        "3D000" | "42501" | "55000" => Error::Refused { place, reason },
        // undefined_table, undefined_column
        "42P01" | "42703" => Error::Tables { place, reason },
        code => match code.get(..2) {
            // connection exceptions; too many connections, out of memory; shut down, starting up; idle for too long in
            // a transaction, or serialised after others
            Some("08" | "53" | "57" | "25" | "40") => Error::Unreachable { place, reason },
            // data exceptions, constraints
            Some("22" | "23") => Error::Invalid(reason),
            // invalid_password and the like
            Some("28") => Error::Refused { place, reason },
            _ => Error::Failed { place, reason },
        },
    }
}
