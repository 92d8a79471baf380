//! Why a call of the database failed, by who must act. No error shows a password or a value of a row.

use std::sync::Arc;

/// Why a call failed. Unless it is [`Error::Unknown`], nothing was written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Client: there is no such row.
    #[error("nothing exists under this name or id")]
    NotFound,
    /// Client: the row is at another version than the one that the change is meant for.
    #[error("the row has changed in the meantime")]
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
        /// Which database it is, without its credentials.
        place: Arc<str>,
        reason: String,
    },
    /// The connection broke while a change was being committed, and nobody could say within the deadline whether it was.
    /// The audit log tells once the database is back.
    #[error("the connection to {place} broke during a change: the audit log shows whether it was written")]
    Unknown { place: Arc<str> },
    /// Operator: it can be read and not written.
    #[error("{place} cannot be opened or written: {reason}")]
    ReadOnly { place: Arc<str>, reason: String },
    /// Operator: the disk that the database is on is full.
    #[error("the disk of {place} is full: free space or move the database")]
    Full { place: Arc<str> },
    /// Operator: user, password, database or rights are wrong.
    #[error("{place} refuses the request: {reason}")]
    Refused {
        place: Arc<str>,
        /// Why, as the server says it.
        reason: String,
    },
    /// Operator: the file is damaged or is no database. It is left as it is.
    #[error(
        "{place} is damaged ({reason}): stop the gateway and put a backup in its place, or move the file and those ending in -wal and -shm away to start empty"
    )]
    Corrupt { place: Arc<str>, reason: String },
    /// Operator: a newer gateway has changed the tables.
    #[error(
        "the tables of {place} are those of a newer gateway (migration {found}; this one knows {known}): run that version or a newer one"
    )]
    Newer {
        place: Arc<str>,
        /// The newest migration that the database has.
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
    /// Whether the database was not reached or its answer is not known, so that the connection is of no more use.
    pub fn is_outage(&self) -> bool {
        matches!(self, Error::Unreachable { .. } | Error::Unknown { .. })
    }
}
