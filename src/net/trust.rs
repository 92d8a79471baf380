//! How the gateway verifies the server of a TLS connection that it makes, and the certificate it sends there. Upstreams and
//! issuers of tokens share these settings. No file is read here; `tls` reads them.

use std::path::{Path, PathBuf};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trust {
    /// PEM, the authorities that may issue its certificate. `None`: the system's.
    pub ca: Option<PathBuf>,
    /// The client certificate to send if the server asks for one.
    pub shown: Option<ClientPair>,
    /// The server name to send, which the certificate must be for. `None`: the host of the URL.
    pub sni: Option<String>,
    /// The oldest version of TLS to speak.
    pub min_version: TlsVersion,
    /// Whether to verify its certificate. Without that, anyone on the network path can pose as the server.
    pub verify: bool,
}

/// A version of TLS; there are no older ones here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum TlsVersion {
    #[default]
    Tls12,
    Tls13,
}

/// A certificate and its key, as files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientPair {
    /// The PEM file of the chain, the leaf first.
    pub cert: PathBuf,
    /// The PEM file of the leaf's private key.
    pub key: PathBuf,
}

impl Default for Trust {
    fn default() -> Trust {
        Trust { ca: None, shown: None, sni: None, min_version: TlsVersion::default(), verify: true }
    }
}

impl Trust {
    pub fn files(&self) -> Vec<&Path> {
        let shown = self.shown.iter().flat_map(|shown| [&shown.cert, &shown.key]);
        self.ca.iter().chain(shown).map(PathBuf::as_path).collect()
    }

    /// The name a server at `host` is known by.
    pub fn name<'t>(&'t self, host: &'t str) -> &'t str {
        self.sni.as_deref().unwrap_or(host)
    }
}
