//! `[admin]` of gateway.toml, and what follows from it for clients.

use std::net::SocketAddr;
use std::path::PathBuf;

use super::access::{Access, Role};
use super::host::canonical as canonical_host;

/// `[admin]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Its address.
    pub bind: Bind,
    /// The bearer token that clients must send, if set. Never logged.
    pub token: Option<String>,
    /// Names and addresses it answers to beside loopback's if there is no token, as [`canonical_host`](super::canonical_host) writes them.
    pub hosts: Vec<String>,
}

impl Config {
    /// The rules for its clients.
    pub fn access(&self) -> Access {
        // No browser reaches a Unix socket, and no web page of a stranger has the token.
        let hosts = match &self.bind {
            Bind::Tcp(address) if self.token.is_none() => {
                // The operator has written this address, so clients may name it.
                let bound = Some(address.ip()).filter(|ip| !ip.is_unspecified());
                let bound = bound.map(|ip| canonical_host(&ip.to_string()));
                Some(self.hosts.iter().cloned().chain(bound).collect())
            }
            Bind::Tcp(_) | Bind::Unix(_) => None,
        };
        // Only its owner reaches a Unix socket. Every process of this machine reaches loopback; so does a web page in a
        // browser, with a request whose answer it cannot read: enough to change something.
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
