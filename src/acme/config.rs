//! What a certificate is ordered for, of whom, and where it is kept. `config` fills it from the file.

use std::path::PathBuf;

use base::secret::Secret;
use net::trust::Trust;

/// A certificate that is ordered by ACME.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// The URL of the authority's directory (RFC 8555 section 7.1.1).
    pub directory: String,
    /// The DNS names it is for, lower case, one at least.
    pub names: Vec<String>,
    /// Whom the authority may write to.
    pub email: Option<String>,
    /// How the authority's own server is verified.
    pub trust: Trust,
    /// How control of the names is proved. `None`: by what the listeners allow.
    pub challenge: Option<Challenge>,
    /// The folder for the account, the certificate and the record of attempts.
    pub state: PathBuf,
    /// What the nodes of a fleet share the certificate under. `None`: each node orders its own.
    pub secret: Option<Secret>,
}

/// How control of a name is proved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Challenge {
    /// The authority fetches a token over plain HTTP on port 80 (RFC 8555 section 8.3).
    Http01,
    /// The authority opens a TLS connection to port 443 (RFC 8737).
    TlsAlpn01,
}

impl Config {
    /// The PEM file of the certificate: its key, then its chain. It is one file, so that a reader never sees the key of
    /// one certificate beside the chain of another.
    pub fn file(&self) -> PathBuf {
        self.folder().join(format!("{}.pem", self.first_name()))
    }

    /// The record of attempts that have failed.
    pub fn attempts(&self) -> PathBuf {
        self.folder().join(format!("{}.attempts.json", self.first_name()))
    }

    /// The JSON file of the account and its key.
    pub fn account(&self) -> PathBuf {
        self.folder().join("account.json")
    }

    /// The name that files and log lines call the certificate by.
    pub fn first_name(&self) -> &str {
        self.names.first().map_or("", String::as_str)
    }

    /// A folder for each directory, because an account of one authority is worth nothing at another.
    fn folder(&self) -> PathBuf {
        let authority = self.directory.split_once("://").map_or(self.directory.as_str(), |(_, rest)| rest);
        let plain = |byte: char| if byte.is_ascii_alphanumeric() || byte == '.' { byte } else { '-' };
        self.state.join("acme").join(authority.chars().map(plain).collect::<String>())
    }
}

/// The folder of the state if none is configured.
pub const STATE_UNWRITTEN: &str = "/var/lib/sluicegate";
/// The names of one certificate; Let's Encrypt accepts as many.
pub const NAMES_MAX: usize = 100;
/// Where an authority asks for tokens (RFC 8555 section 8.3).
pub const PATH: &str = "/.well-known/acme-challenge/";
/// The protocol an authority asks for in a handshake (RFC 8737 section 6.2).
pub const ALPN: &[u8] = b"acme-tls/1";
