//! What a process and its successor tell each other. Names that one of them does not know are ignored, so that either
//! may be the newer one.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use config::UPGRADE_MAX;
use upstream::live::{RememberedAddress, RememberedServer};

/// The first message, from the old to the new. Behind it come the descriptors: the standard error that the new one is to
/// use once it serves, then the sockets in their order.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Hello {
    /// How the states of the table will be written.
    pub(crate) states: u32,
    /// How far the clock that the states count by is ahead of the machine's own.
    pub(crate) clock_ahead_ns: i64,
    /// What limiter keys are hashed with.
    pub(crate) salt: [u8; 16],
    /// Memory of the table, bytes: states go over slot by slot.
    pub(crate) table_bytes: usize,
    pub(crate) sockets: Vec<SocketDescription>,
    /// Addresses of upstreams' servers, for a successor that DNS does not answer.
    #[serde(default)]
    pub(crate) names: Vec<RememberedAddress>,
    /// Servers of upstreams that are unhealthy, ejected or not yet back for long.
    #[serde(default)]
    pub(crate) servers: Vec<RememberedServer>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct SocketDescription {
    /// The listener's name; `admin` for the admin listener.
    pub(crate) name: String,
    /// Where it was told to listen.
    pub(crate) bind: String,
    /// The file of the Unix socket was made by this process or one before it, and goes with the last of them.
    #[serde(default)]
    pub(crate) owns_file: bool,
    #[serde(default)]
    pub(crate) is_activated: bool,
}

/// What the new one says; the old one repeats the last of it.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Word {
    /// Everything that can fail has been done; the states may come. With which format it reads.
    Prepared {
        /// The format it reads; any other, and no states are sent.
        states: u32,
    },
    Serving,
}

/// Names the process that starts a successor, for that one. A program that holds this name is a gateway.
pub(super) const VARIABLE: &str = "SLUICEGATE_UPGRADE_FROM";
/// Who only waits for the other side, which knows `shutdown.upgrade` and hangs up, waits as long as that can be.
pub(crate) const WITHIN_MAX: Duration = UPGRADE_MAX;
