//! Why certificates cannot be used, in words for the operator, and which file that is about.

use std::path::{Path, PathBuf};

/// Why TLS cannot be spoken as it is configured. All are for the operator.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file cannot be used.
    #[error("{}: {reason}", path.display())]
    File {
        /// What it was to be.
        part: Part,
        /// Which file.
        path: PathBuf,
        /// Why, and what to do.
        reason: String,
    },
    /// No certificate authority is known to check servers by.
    #[error("no certificate authority of the system can be read{}", listed(.0))]
    NoRoots(Vec<String>),
    /// Rustls refuses the configuration.
    #[error(transparent)]
    Rustls(#[from] rustls::Error),
}

/// What a file is for: whoever shows an error points at the key that names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// A chain of certificates.
    Certificate,
    /// Its private key.
    Key,
    /// Authorities.
    Authorities,
    /// Lists of revoked certificates.
    Revocations,
}

impl Error {
    pub(super) fn file(part: Part, path: &Path, reason: impl Into<String>) -> Error {
        Error::File { part, path: path.to_owned(), reason: reason.into() }
    }

    /// What the file is for that it is about; `None` where it is about none.
    pub fn part(&self) -> Option<Part> {
        match self {
            Error::File { part, .. } => Some(*part),
            Error::NoRoots(_) | Error::Rustls(_) => None,
        }
    }

    /// What to write instead, where the message does not say it.
    pub fn hint(&self) -> &'static str {
        match self {
            Error::NoRoots(_) => {
                "install the system's (the package `ca-certificates`), or name your own: `tls = { ca = \"ca.pem\" }`"
            }
            Error::File { .. } | Error::Rustls(_) => "",
        }
    }
}

fn listed(reasons: &[String]) -> String {
    if reasons.is_empty() { String::new() } else { format!(": {}", reasons.join("; ")) }
}
