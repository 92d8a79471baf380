//! Whom the gateway trusts on the other side of a TLS connection that it makes, and what it shows there: what an
//! upstream and an issuer of tokens are told alike. It reads no file; `tls` does.

use std::path::{Path, PathBuf};

/// How the other side is checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trust {
    /// PEM, the authorities that vouch for it. `None`: the system's.
    pub ca: Option<PathBuf>,
    /// What we show where a certificate is asked for.
    pub shown: Option<Shown>,
    /// The name that the hello says and the certificate must be for. `None`: the host of the URL.
    pub sni: Option<String>,
    /// Whether its certificate is looked at. Without that anybody on the way can be it.
    pub verify: bool,
}

/// A certificate and its key, as files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shown {
    /// PEM chain, the leaf first.
    pub cert: PathBuf,
    /// PEM private key.
    pub key: PathBuf,
}

impl Default for Trust {
    fn default() -> Trust {
        Trust { ca: None, shown: None, sni: None, verify: true }
    }
}

impl Trust {
    /// The files it names.
    pub fn files(&self) -> Vec<&Path> {
        let shown = self.shown.iter().flat_map(|shown| [&shown.cert, &shown.key]);
        self.ca.iter().chain(shown).map(PathBuf::as_path).collect()
    }

    /// The name a server at `host` is known by.
    pub fn name<'t>(&'t self, host: &'t str) -> &'t str {
        self.sni.as_deref().unwrap_or(host)
    }
}
