//! The connection of a pipeline, and the times at which it is next looked at.

use tokio::task::JoinSet;

use super::super::config::Server;
use super::super::connection::{ConnectError, Connection, ServerInfo};

#[derive(Default)]
pub(super) struct ConnectionState {
    pub(super) connection: Option<Connection>,
    /// Number of the connection: calls in flight carry it, so that those of an old connection are told from the current
    /// one's.
    pub(super) serial: u64,
    pub(super) opening: JoinSet<Result<Connection, ConnectError>>,
    /// Questions on their way that ask the server for its version and settings.
    pub(super) abouts: JoinSet<(Server, Option<ServerInfo>)>,
    /// The server is not asked for them again before this, nanoseconds.
    pub(super) about_ns: u64,
    /// Failed attempts to connect in a row.
    pub(super) failures: u32,
    /// There is no attempt to connect before this, nanoseconds.
    pub(super) next_ns: u64,
    /// Calls in a row without an answer in time.
    pub(super) misses: u32,
    /// Replacements in a row that were no better.
    pub(super) replacements: u32,
    /// The connection is not replaced before this, nanoseconds.
    pub(super) replace_ns: u64,
    /// When a call was last sent or answered, nanoseconds.
    pub(super) active_ns: u64,
    /// No probe is sent before this, nanoseconds.
    pub(super) ask_ns: u64,
}
