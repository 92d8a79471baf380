//! The configuration of the admin listener, and the rules for clients that follow from it.

use std::net::SocketAddr;
use std::path::PathBuf;

use super::access::{Access, Role};
use super::host::canonical as canonical_host;

/// `[admin]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// The listener's address.
    pub bind: Bind,
    /// The bearer token that clients must send, if set. Never logged.
    pub token: Option<String>,
    /// Hosts that requests may name beside loopback's if there is no token, in the form of
    /// [`canonical_host`](super::canonical_host).
    pub hosts: Vec<String>,
}

impl Config {
    /// The rules for clients.
    pub fn access(&self) -> Access {
        // DNS rebinding is a threat only to TCP without a token: a browser cannot reach a Unix socket, and a hostile page
        // does not have the token.
        let hosts = match &self.bind {
            Bind::Tcp(address) if self.token.is_none() => {
                // The operator has written this address, so clients may name it.
                let bound = Some(address.ip()).filter(|ip| !ip.is_unspecified());
                let bound = bound.map(|ip| canonical_host(&ip.to_string()));
                Some(self.hosts.iter().cloned().chain(bound).collect())
            }
            Bind::Tcp(_) | Bind::Unix(_) => None,
        };
        // Only its owner can connect to a Unix socket. Every process of this machine can connect to loopback, and so can a
        // web page in a browser. The page cannot read the answer, but that would not stop it from changing something.
        let without_token = match &self.bind {
            Bind::Unix(_) => Role::Admin,
            Bind::Tcp(_) => Role::Viewer,
        };
        Access { token: self.token.clone(), without_token, hosts }
    }
}

/// An address of the admin listener.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Bind {
    /// TCP.
    Tcp(SocketAddr),
    /// A Unix socket.
    Unix(PathBuf),
}
