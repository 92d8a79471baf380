//! The control plane's own HTTP: health, metrics, the configuration in force.

use std::net::SocketAddr;
use std::path::PathBuf;

/// Where the admin listener is and who may use it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Its address.
    pub bind: Bind,
    /// Asked for as a bearer token, where set. Never logged.
    pub token: Option<String>,
}

/// An address of the admin listener.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Bind {
    /// TCP.
    Tcp(SocketAddr),
    /// A Unix socket.
    Unix(PathBuf),
}
