//! The control plane's own HTTP: health, metrics, the configuration in force, explanations.
//!
//! It runs on the control runtime, has its own listener, and shares only [`State`] with the data plane, so a client that
//! holds its connections open delays no request. `routes.rs` is the table of all endpoints; no operation in it changes
//! anything yet.

mod accept;
mod access;
mod activity;
mod body;
mod connection;
mod explain;
mod gate;
mod host;
mod limits;
mod listener;
mod pages;
mod readiness;
mod refusal;
mod reply;
mod routes;
mod serve;
#[cfg(test)]
mod tests;
mod watched;

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;

pub use access::{Access, Role};
pub use explain::ExplainRequest;
pub use host::canonical as canonical_host;
pub use listener::{Error, Listener};
pub use readiness::{Phase, Readiness};
pub use serve::serve;

use crate::metrics::Metrics;

/// `[admin]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Its address.
    pub bind: Bind,
    /// The bearer token that clients must send, if set. Never logged.
    pub token: Option<String>,
    /// Names and addresses it answers to beside loopback's if there is no token, as [`canonical_host`] writes them.
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

/// A text that may have to be waited for.
pub type Text = Pin<Box<dyn Future<Output = String> + Send>>;

/// From a policy's name and values to what is shown of that key.
pub type KeyReader = Box<dyn Fn(&str, &[String]) -> Option<Text> + Send + Sync>;

/// What the admin listener shows, and its rules for clients.
pub struct State {
    /// Shown at `/metrics`.
    pub metrics: Arc<Metrics>,
    /// Shown at `/readyz`.
    pub readiness: Readiness,
    /// The effective configuration as text, secrets masked: `/config`.
    pub config: Box<dyn Fn() -> String + Send + Sync>,
    /// What would become of a request, as JSON, without spending anything: `/v1/explain`.
    pub explain: Box<dyn Fn(&ExplainRequest) -> Text + Send + Sync>,
    /// One key of a policy, by the policy's name and a value for each of its dimensions, as JSON; `None` if there is no
    /// such policy, or it has other dimensions: `/v1/keys/{policy}/{value}…`.
    pub key: KeyReader,
    /// The rules for clients.
    pub access: Access,
}

impl fmt::Debug for State {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("State").field("readiness", &self.readiness).finish_non_exhaustive()
    }
}
