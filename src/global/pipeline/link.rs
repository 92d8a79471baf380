//! The connection of a pipeline, and the times at which it is next looked at.

use tokio::sync::watch;
use tokio::task::JoinSet;

use super::super::config::Server;
use super::super::connection::{About, ConnectError, Connection};

/// The connection, and what is known of it.
pub(super) struct Link {
    pub(super) connection: Option<Connection>,
    /// Counts connections.
    pub(super) serial: u64,
    pub(super) opening: JoinSet<Result<Connection, ConnectError>>,
    /// What its server says of itself by now.
    pub(super) abouts: JoinSet<(Server, Option<About>)>,
    /// It is not asked for that before this, nanoseconds.
    pub(super) about_ns: u64,
    /// Attempts in a row that failed.
    pub(super) failures: u32,
    /// No attempt before this, nanoseconds.
    pub(super) next_ns: u64,
    /// Calls in a row without an answer in time.
    pub(super) misses: u32,
    /// How long after one replacement another is worth trying, nanoseconds.
    pub(super) patience_ns: u64,
    /// No replacement before this.
    pub(super) replace_ns: u64,
    /// When something was asked or answered last.
    pub(super) active_ns: u64,
    /// Nothing is asked before this.
    pub(super) ask_ns: u64,
    /// Raised when the node moved.
    pub(super) moves: watch::Receiver<u64>,
}

impl Link {
    pub(super) fn new(moves: watch::Receiver<u64>) -> Link {
        Link {
            connection: None,
            serial: 0,
            opening: JoinSet::new(),
            abouts: JoinSet::new(),
            about_ns: 0,
            failures: 0,
            next_ns: 0,
            misses: 0,
            patience_ns: REPLACE_NS,
            replace_ns: 0,
            active_ns: 0,
            ask_ns: 0,
            moves,
        }
    }
}

/// A suspect connection is replaced after so long, doubling while that does not help.
pub(super) const REPLACE_NS: u64 = 250_000_000;
